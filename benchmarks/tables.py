"""Rows into CSV and Markdown, and what they say about the targets."""

from __future__ import annotations

import csv
import datetime
import importlib.metadata
import os
import platform
import statistics
from pathlib import Path
from typing import Any

import cases

import primedpca

COLUMNS = (
    "set",
    "n",
    "d",
    "nnz",
    "k",
    "method",
    "role",
    "setting",
    "seconds_best",
    "seconds_median",
    "seconds_all",
    "passes",
    "gflop",
    "gbyte",
    "extra_mb",
    "worst_angle_deg",
    "right",
    "proven",
    "ratio_to_ours",
    "note",
    "machine",
    "cores",
    "versions",
    "date",
    "load",
)
#: (b) with a certificate, (c) against a peer whose setting is right on every set.
CERTIFIED_TARGET, CAREFUL_TARGET = 1.3, 2.0
PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "fbpca")
Row = dict[str, Any]


def versions() -> dict[str, str]:
    """Of the peers and of what they compute with."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine() -> dict[str, Any]:
    """The processor, how many cores this process may use, and when."""
    all_versions = {"primedpca": primedpca.__version__} | versions()
    return {
        "machine": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": "; ".join(f"{name} {version}" for name, version in all_versions.items()),
        "date": datetime.date.today().isoformat(),
        "load": os.getloadavg()[0],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def timed(seconds: list[float], ours: float) -> Row:
    """The columns about time."""
    return {
        "seconds_best": min(seconds),
        "seconds_median": statistics.median(seconds),
        "seconds_all": " ".join(f"{s:.4f}" for s in seconds),
        "ratio_to_ours": min(seconds) / ours,
    }


# -- the targets ---------------------------------------------------------------------------------


def summary(name: str, target: float, rows: list[Row]) -> list[Row]:
    """The targets on one set: which, against whom, the ratio, met or short."""
    ours, certified = _one(rows, "ours"), _one(rows, "ours, certified")
    right = [row for row in rows if row.get("right") and "ours" not in row["role"]]
    tuned = sorted((r for r in right if "tuned" in r["role"]), key=_seconds)
    careful = sorted((r for r in right if "all sets" in r["role"]), key=_seconds)
    lines = []
    if tuned:
        lines.append(_verdict(name, "a", tuned[0], _seconds(tuned[0]), ours, target))
    audited = _audited(rows)
    if audited:
        seconds, peer, audit = audited[0]
        line = _verdict(name, "b", peer, seconds, certified, CERTIFIED_TARGET)
        line["against"] += " + certify" + ("" if audit["proven"] else ", which does not prove it")
        if not certified["proven"]:
            line["verdict"] = "ours is not proven"
        lines.append(line)
    everywhere = [row for row in careful if _on_every_set(name, row["note"])]
    for letter, found in (("c", everywhere), ("c, where it can", careful)):
        if found:
            peer = found[0]
            lines.append(_verdict(name, letter, peer, _seconds(peer), ours, CAREFUL_TARGET))
            # Which sets "all" are depends on which have been tuned.
            lines[-1]["against"] += f"; {peer['note']}"
        else:
            against = "no setting in its grid is right on every set"
            lines.append(dict.fromkeys(lines[0] if lines else ("set",)) | {"set": name})
            lines[-1] |= {"target": letter, "against": against, "wanted": CAREFUL_TARGET}
    return lines


def _on_every_set(name: str, note: str) -> bool:
    """Whether a setting is right on all sets at once, not only on those that its peer can do."""
    needed = cases.CASES if name in cases.CASES else {}
    return "not enough" not in note and all(f" {other}" in note for other in needed)


def _audited(rows: list[Row]) -> list[tuple[float, Row, Row]]:
    """Seconds of a right peer and of `certify`, both rows; those that prove first, then by time.

    An audit that ends without a proof is no certificate, however soon it ends.
    """
    found = []
    for audit in (row for row in rows if row["role"] == "audit"):
        for row in rows:
            who = (f"certify({row['method']})", row.get("setting"))
            if who == (audit["method"], audit["setting"]) and row.get("right"):
                found.append((_seconds(row) + _seconds(audit), row, audit))
    return sorted(found, key=lambda item: (not item[2]["proven"], item[0]))


def _verdict(name: str, letter: str, peer: Row, seconds: float, ours: Row, target: float) -> Row:
    ratio = seconds / _seconds(ours)
    verdict = "met" if ratio >= target else "short"
    line = {
        "set": name,
        "target": letter,
        "against": f"{peer['method']} ({peer['setting']})",
        "theirs": seconds,
        "ours": _seconds(ours),
        "ratio": ratio,
        "wanted": target,
        "verdict": verdict if ours["right"] else "ours is wrong",
        "counts": "",
    }
    if verdict == "short":
        line["counts"] = "; ".join(
            f"{who} {row['gflop']:.3g} Gflop, {row['gbyte']:.3g} GB in {row['passes']:.3g} passes"
            for who, row in (("ours", ours), ("theirs", peer))
        )
    return line


def _one(rows: list[Row], role: str) -> Row:
    return next(row for row in rows if row["role"] == role)


def _seconds(row: Row) -> float:
    return row["seconds_best"]


# -- files ---------------------------------------------------------------------------------------


def write(folder: Path, rows: list[Row], chosen: dict[str, Any]) -> None:
    """``table.csv`` (every row), ``targets.csv`` and ``table.md`` (both, to read)."""
    folder.mkdir(parents=True, exist_ok=True)
    where = machine()
    targets: list[Row] = []
    for name, case in chosen.items():
        own = [row for row in rows if row["set"] == name]
        targets += summary(name, case.target, own) if own else []
    for row in rows:
        # What the machine was busy with when the row was new; a later set does not change it.
        row |= where | row
    _csv(folder / "table.csv", COLUMNS, rows)
    if targets:
        _csv(folder / "targets.csv", tuple(targets[0]), targets)
    (folder / "table.md").write_text(markdown(rows, targets, chosen, where))


def _csv(path: Path, columns: tuple[str, ...], rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def markdown(rows: list[Row], targets: list[Row], chosen: dict[str, Any], where: Row) -> str:
    text = ["# Speed against peers", ""]
    text.append(
        f"{where['machine']}, {where['cores']} cores, {where['date']}. {where['versions']}."
    )
    text += ["", "## Targets", ""]
    heads = ("set", "target", "against", "theirs s", "ours s", "ratio", "wanted", "verdict")
    text += _table(
        (*heads, "flops and bytes where short"),
        [[_cell(value) for value in line.values()] for line in targets],
    )
    heads = ("method", "role", "setting", "best s", "median s", "passes", "extra MB")
    heads += ("worst angle °", "right at π/128", "proven", "ratio to ours", "note")
    keys = ("method", "role", "setting", "seconds_best", "seconds_median", "passes", "extra_mb")
    keys += ("worst_angle_deg", "right", "proven", "ratio_to_ours", "note")
    for name, case in chosen.items():
        own = [row for row in rows if row["set"] == name]
        if not own:
            continue
        head = own[0]
        stored = f", {head['nnz']:,} stored" if head["nnz"] != head["n"] * head["d"] else ""
        shape = f"{head['n']:,} x {head['d']:,}{stored}, k={head['k']}"
        text += ["", f"## {case.title}: {shape}", "", f"Load average {head['load']:.1f}.", ""]
        own.sort(key=lambda row: row.get("seconds_best", float("inf")))
        text += _table(heads, [[_cell(row.get(key)) for key in keys] for row in own])
    return "\n".join(text) + "\n"


def _table(heads: tuple[str, ...], lines: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(line) + " |" for line in lines),
    ]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
