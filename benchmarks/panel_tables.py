"""The panel's rows into JSON and Markdown, and the limits that they are held to."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tables

Row = dict[str, Any]
PROVEN = ("CERTIFIED", "EXACT")
#: Milliseconds of the proven fit; below, some limits do not apply.
SMALL = 10.0
TINY = ("iris", "cancer")
HARD = ("pbmc-log", "tfidf50", "tfidf100")
NOISE = "noise"


@dataclass(frozen=True)
class Limit:
    """A number that every set (or the median) must keep to."""

    words: str
    value: Callable[[Row], float | None]
    bound: float
    least: bool = False
    where: Callable[[Row], bool] = lambda row: True
    median: bool = False

    def judge(self, rows: list[Row]) -> Row:
        values = {row["set"]: self.value(row) for row in rows if self.where(row)}
        values = {name: value for name, value in values.items() if value is not None}
        found = {"limit": self.words, "wanted": f"{'≥' if self.least else '≤'} {self.bound:g}"}
        if not values:
            return found | {"worst": None, "set": "", "verdict": "not measured", "missed": ""}
        if self.median:
            values = {"median": statistics.median(values.values())}
        worst = (min if self.least else max)(values, key=values.__getitem__)
        missed = [f"{name} {value:.3g}" for name, value in values.items() if not self.met(value)]
        found |= {"worst": values[worst], "set": worst, "missed": ", ".join(missed)}
        return found | {"verdict": "missed" if missed else "met"}

    def met(self, value: float) -> bool:
        return value >= self.bound if self.least else value <= self.bound


def ratio(above: str, below: str) -> Callable[[Row], float | None]:
    """Of two columns, None where one was not measured."""
    return lambda row: row[above] / row[below] if row.get(above) and row.get(below) else None


def off(planned: str, measured: str, unit: float = 1.0) -> Callable[[Row], float | None]:
    """By how much a prediction is off, in either direction, at least 1."""

    def value(row: Row) -> float | None:
        quotient = ratio(planned, measured)(row)
        return None if quotient is None else max(quotient * unit, 1 / (quotient * unit))

    return value


def _is_large(row: Row) -> bool:
    return row.get("proven_ms", 0.0) >= SMALL


def _noise(row: Row) -> float | None:
    """Without a proof, white noise must at least end soon."""
    return 0.0 if row.get("proven_status") in PROVEN else ratio("proven_ms", "unproven_ms")(row)


def _proves(audit: str) -> Callable[[Row], float | None]:
    """Whether an audit proves at least as many components as the fit, 1 or 0."""

    def value(row: Row) -> float | None:
        if f"{audit}_proven" not in row or "proven_proven" not in row:
            return None
        return float(row[f"{audit}_proven"] >= row["proven_proven"])

    return value


def _against_peer(row: Row) -> float | None:
    """The best tuned peer over ours at pi/128; 0 if ours is not proven."""
    proven = row.get("proven_128_status") in PROVEN
    quotient = ratio("peer_ms", "proven_128_ms")(row)
    return quotient if proven or quotient is None else 0.0


def _price(words: str, below: str) -> tuple[Limit, ...]:
    value = ratio("proven_ms", below)
    return (
        Limit(f"{words}, median of the sets", value, 1.25, median=True),
        Limit(
            f"{words}, from {SMALL:g} ms",
            value,
            1.6,
            where=lambda row: _is_large(row) and row["set"] not in HARD,
        ),
        Limit(f"{words}, {', '.join(HARD)}", value, 2.0, where=lambda row: row["set"] in HARD),
    )


PREDICTED_S = off("planned_seconds", "proven_ms", unit=1e3)
PREDICTED_PASSES = off("planned_passes", "proven_passes")
LIMITS = (
    Limit(
        "CERTIFIED or EXACT (1: yes)",
        lambda row: float(row.get("proven_status") in PROVEN),
        1.0,
        least=True,
        where=lambda row: row["set"] != NOISE,
    ),
    Limit(
        "white noise, unless proven: proven / unproven",
        _noise,
        1.5,
        where=lambda row: row["set"] == NOISE,
    ),
    *_price("proven / unproven", "unproven_ms"),
    *_price("proven / unproven before", "before_unproven_ms"),
    Limit("unproven / unproven before", ratio("unproven_ms", "before_unproven_ms"), 1.05),
    Limit(
        "scikit-learn's default / proven, from digits up",
        ratio("sklearn_ms", "proven_ms"),
        1.0,
        least=True,
        where=lambda row: row["set"] not in TINY,
    ),
    Limit(
        f"proven / scikit-learn's default, {', '.join(TINY)}",
        ratio("proven_ms", "sklearn_ms"),
        1.6,
        where=lambda row: row["set"] in TINY,
    ),
    Limit(
        f"best tuned peer / proven at π/128, from {SMALL:g} ms",
        _against_peer,
        1.0,
        least=True,
        where=_is_large,
    ),
    Limit(
        f"best tuned peer / proven at π/128, median from {SMALL:g} ms",
        _against_peer,
        1.3,
        least=True,
        where=_is_large,
        median=True,
    ),
    Limit("certify to π/1024 / unproven", ratio("certify_ms", "unproven_ms"), 1.3),
    Limit("certify without tol / unproven", ratio("certify_open_ms", "unproven_ms"), 1.3),
    Limit("certify to π/1024 proves as much as the fit", _proves("certify"), 1.0, least=True),
    Limit("certify without tol proves as much", _proves("certify_open"), 1.0, least=True),
    Limit("seconds: planned against measured, either way", PREDICTED_S, 2.0),
    Limit("passes: planned against measured, either way", PREDICTED_PASSES, 2.0),
)

#: Head and column, or a function of the row.
Columns = tuple[tuple[str, str | Callable[[Row], Any]], ...]
TIMES: Columns = (
    ("set", "set"),
    ("data", lambda row: _about(row)),
    ("status", "proven_status"),
    ("certificate", "proven_kind"),
    ("passes", "proven_passes"),
    ("unproven", "unproven_status"),
    ("its passes", "unproven_passes"),
    ("proven ms", "proven_ms"),
    ("unproven ms", "unproven_ms"),
    ("certify ms", "certify_ms"),
    ("certify without tol ms", "certify_open_ms"),
    ("certify proves", lambda row: f"{row.get('certify_proven', 0)} of {row['k']}"),
    ("outside answer", "outside"),
    ("scikit-learn ms", "sklearn_ms"),
    ("its solver", "sklearn_solver"),
    ("TruncatedSVD ms", "truncated_ms"),
    ("load", "load"),
)
RATIOS: Columns = (
    ("set", "set"),
    ("proven / unproven", ratio("proven_ms", "unproven_ms")),
    ("proven / scikit-learn", ratio("proven_ms", "sklearn_ms")),
    ("certify / unproven", ratio("certify_ms", "unproven_ms")),
    ("certify without tol / unproven", ratio("certify_open_ms", "unproven_ms")),
    ("planned ms", lambda row: 1e3 * row["planned_seconds"] if "planned_seconds" in row else None),
    ("planned / measured", lambda row: _times(row, "planned_seconds", "proven_ms", 1e3)),
    ("planned passes", "planned_passes"),
    ("passes", "proven_passes"),
)
PEERS: Columns = (
    ("set", "set"),
    ("best peer tuned to π/128", "peer"),
    ("its ms", "peer_ms"),
    ("proven at π/128 ms", "proven_128_ms"),
    ("status", "proven_128_status"),
    ("peer / proven", ratio("peer_ms", "proven_128_ms")),
)
BEFORE: Columns = (
    ("set", "set"),
    ("status before", "before_proven_status"),
    ("proven before ms", "before_proven_ms"),
    ("passes before", "before_proven_passes"),
    ("unproven before ms", "before_unproven_ms"),
    ("proven before / proven", ratio("before_proven_ms", "proven_ms")),
    ("unproven / before", ratio("unproven_ms", "before_unproven_ms")),
    ("proven / unproven before", ratio("proven_ms", "before_unproven_ms")),
)


def _about(row: Row) -> str:
    stored = f", {row['nnz']:,} stored" if row["nnz"] != row["n"] * row["d"] else ""
    return f"{row['title']}: {row['n']:,} x {row['d']:,}{stored}, k={row['k']}, {row['dtype']}"


def _times(row: Row, above: str, below: str, unit: float) -> float | None:
    quotient = ratio(above, below)(row)
    return None if quotient is None else quotient * unit


def write(folder: Path, rows: list[Row], quick: bool) -> None:
    """``panel.json`` (everything) and ``panel.md`` (to read)."""
    folder.mkdir(parents=True, exist_ok=True)
    where = tables.machine()
    judged = [limit.judge(rows) for limit in LIMITS]
    kept = {"machine": where, "quick": quick, "rows": rows, "limits": judged}
    (folder / "panel.json").write_text(json.dumps(kept, indent=1) + "\n")
    (folder / "panel.md").write_text(markdown(rows, judged, where, quick))


def markdown(rows: list[Row], judged: list[Row], where: Row, quick: bool) -> str:
    text = ["# The price of a proof", ""]
    text.append(
        f"{where['machine']}, {where['cores']} cores, {where['date']}. {where['versions']}."
    )
    if quick:
        text += ["", "A corner of each set, once: the numbers and verdicts mean nothing."]
    heads = ("limit", "wanted", "worst", "set", "verdict", "missed")
    lines = [[tables._cell(line[head]) for head in heads] for line in judged]
    text += ["", "## Limits", "", *tables._table(heads, lines)]
    sections = {"Times": TIMES, "Ratios": RATIOS}
    if any("proven_128_ms" in row for row in rows):
        sections["Against peers"] = PEERS
    if any("before_proven_ms" in row for row in rows):
        sections["Against the checkout before"] = BEFORE
    for title, columns in sections.items():
        text += ["", f"## {title}", "", *_section(columns, rows)]
    return "\n".join([*text, "", "## Notes", "", *_notes(rows)]) + "\n"


def _section(columns: Columns, rows: list[Row]) -> list[str]:
    lines = [
        [tables._cell(what(row) if callable(what) else row.get(what)) for _, what in columns]
        for row in rows
    ]
    return tables._table(tuple(head for head, _ in columns), lines)


def _notes(rows: list[Row]) -> list[str]:
    """Ways taken, what fits that are not proven say, and what went wrong."""
    notes = []
    for row in rows:
        said = [row.get("proven_way", ""), row.get("proven_said", ""), row["note"], *row["errors"]]
        notes.append(f"- {row['set']}: " + " ".join(part for part in said if part))
    return notes
