"""Find each peer's cheapest setting that is right, knowing the truth.

Right is: every component within pi/128 of the reference, in 3 of 3 seeds.  For each width the
efforts are walked from cheap to dear; the first that is right stands for the width, the fastest
width for the peer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.metrics import angles
from primedpca_paper.peers import TOL, Peer, Setting

SEEDS = (0, 1, 2)
#: A wrong setting that is this much slower than the best right one of anybody ends its walk.
HOPELESS = 3.0
#: Except where nothing is slow.
SECONDS = 0.05
#: Settings of one peer that are within this of its fastest all start in the race.
CLOSE = 1.5
#: A run longer than this is not repeated to rule out that somebody else was busy.
LONG = 60.0


def attempt(
    peer: Peer, X: Any, k: int, setting: Setting, seed: int, reference: np.ndarray
) -> tuple[float, float]:
    """Seconds, and the worst angle in radians."""
    start = time.perf_counter()
    found = peer.run(X, k, setting, seed)
    seconds = time.perf_counter() - start
    return seconds, worst_angle(found.components, reference)


def worst_angle(components: Any, reference: np.ndarray) -> float:
    """A right angle for an answer that is not finite or lacks components."""
    if np.shape(components) != reference.shape or not np.isfinite(components).all():
        return np.pi / 2
    return float(angles(components, reference).max())


def try_setting(
    peer: Peer, X: Any, k: int, setting: Setting, reference: np.ndarray, limit: float
) -> dict[str, Any]:
    """One point of the grid; seeds after the first only if that one was right."""
    row: dict[str, Any] = {"width": setting.width, "effort": setting.effort, "right": False}
    refusal = peer.refuses(X, k, setting)
    if refusal:
        return row | {"note": refusal}
    times, worst = [], 0.0
    for seed in SEEDS if peer.seeded else SEEDS[:1]:
        try:
            seconds, angle = attempt(peer, X, k, setting, seed, reference)
        except Exception as error:  # what a peer raises is a finding, not our failure
            return row | {"note": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
        times.append(seconds)
        worst = max(worst, angle)
        if worst > TOL:
            break
    row |= {"seconds": min(times), "angle": float(np.degrees(worst)), "right": worst <= TOL}
    if not row["right"] and limit < row["seconds"] < LONG:
        row["seconds"] = min(row["seconds"], attempt(peer, X, k, setting, seed, reference)[0])
    if not row["right"] and row["seconds"] > limit:
        row["note"] = f"abandoned: wrong, and {HOPELESS:g} times slower than the best right one"
    return row


def tune_peer(
    peer: Peer, X: Any, k: int, reference: np.ndarray, best: float
) -> tuple[dict[str, Any], float]:
    """Walk the grid; returns the record and the seconds of the best right setting of anybody."""
    visited = []
    for width in peer.widths:
        for effort in peer.efforts:
            setting = Setting(width, effort)
            row = try_setting(peer, X, k, setting, reference, max(HOPELESS * best, SECONDS))
            if "seconds" not in row and row["note"] in [other.get("note") for other in visited]:
                continue  # said once
            visited.append(row)
            print("   ", peer.name, peer.label(setting), told(row), flush=True)
            if row["right"]:
                best = min(best, row["seconds"])
            if row["right"] or row.get("note", "").startswith("abandoned"):
                break
    return {"grid": grid(peer), "visited": visited}, best


def told(row: dict[str, Any]) -> str:
    if "seconds" not in row:
        return row["note"]
    verdict = "right" if row["right"] else "wrong"
    note = f" ({row['note']})" if "note" in row else ""
    return f"{row['seconds']:.3f} s, worst {row['angle']:.2f} deg: {verdict}{note}"


def tune(
    case: Any, X: Any, reference: np.ndarray, peers: Iterable[Peer], known: dict[str, Any]
) -> dict[str, Any]:
    """Tune every peer whose grid has not been walked yet; `known` is what is in the cache."""
    records, best = {}, np.inf
    for peer in peers:
        record = known.get(peer.name, {})
        if record.get("grid") == grid(peer) and peer.missing() is None:
            best = min([best, *(row["seconds"] for row in record["visited"] if row["right"])])
        else:
            record, best = tune_peer(peer, X, case.k, reference, best)
        records[peer.name] = record
    return records


def grid(peer: Peer) -> list[Any]:
    return [list(peer.widths), list(peer.efforts)]


def right_settings(record: dict[str, Any]) -> list[tuple[Setting, float]]:
    """The right setting of each width with its seconds, fastest first.

    Those that one noisy run cannot tell from the fastest are in it too: the race will.
    """
    right = sorted(
        (row["seconds"], i, row) for i, row in enumerate(record["visited"]) if row["right"]
    )
    near = [row for seconds, _, row in right if seconds <= CLOSE * right[0][0]]
    return [(Setting(row["width"], row["effort"]), row["seconds"]) for row in near]


def why_none(record: dict[str, Any]) -> str:
    """Why no setting was right, in a sentence."""
    notes = [row["note"] for row in record["visited"] if "note" in row]
    measured = [row for row in record["visited"] if "seconds" in row]
    if not measured:
        return notes[0]
    closest = min(measured, key=lambda row: row["angle"])
    words = f"No setting tried is right; the closest is {closest['angle']:.1f} deg off."
    return f"{words} ({notes[0]})" if notes else words


def all_sets_setting(
    peer: Peer, records: dict[str, dict[str, Any]], ks: dict[str, int]
) -> tuple[Setting, list[str], list[str]] | None:
    """The cheapest setting that is right on every set that the peer can do.

    A walk that was abandoned says only that its width needs more effort than was tried; that
    effort is then a lower bound, and the sets it comes from are named.

    Returns
    -------
    setting, sets it is right on, sets on which no right one of its width is known
    """
    able = [name for name, record in records.items() if was_run(record)]
    candidates = []
    for width in peer.widths:
        needed, unknown = 0, []
        for name in able:
            rows = [row for row in records[name]["visited"] if row["width"] == width]
            tried = [row for row in rows if "seconds" in row]
            if not tried:
                unknown.append(name)
                continue
            if not tried[-1]["right"]:
                unknown.append(name)
            needed = max(needed, peer.efforts.index(tried[-1]["effort"]))
        setting = Setting(width, peer.efforts[needed])
        price = sum(peer.price(ks[name], setting) for name in able)
        candidates.append((len(unknown), price, setting, unknown))
    if not able:
        return None
    _, _, setting, unknown = min(candidates, key=lambda item: item[:2])
    return setting, [name for name in able if name not in unknown], unknown


def was_run(record: dict[str, Any]) -> bool:
    return any("seconds" in row for row in record["visited"])


def load_cache(path: Path, versions: dict[str, str]) -> dict[str, Any]:
    """Tuning of earlier runs, unless a package has changed since."""
    if path.is_file():
        kept = json.loads(path.read_text())
        if kept["versions"] == versions:
            return kept["sets"]
    return {}


def save_cache(path: Path, versions: dict[str, str], sets: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"versions": versions, "sets": sets}, indent=1))
