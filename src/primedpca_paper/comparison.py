"""Our numbers beside the paper's: the same sets, the same l, the same cells.

Everything here needs only the time of each line of the tables, so that it is computed from a
results folder or from a published ``table-2.csv``.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from primedpca_paper.datasets import SETS
from primedpca_paper.protocol import EXTRAS, PAPERS, THRESHOLDS
from primedpca_paper.published import published
from primedpca_paper.result_files import read_json
from primedpca_paper.tables import NAMES, number
from primedpca_paper.tabular import Cell, Table, tidy
from primedpca_paper.traces import ALONE, Summary, name_of, titled

__all__ = ["Agreement", "Tidy", "agreement", "comparison_files", "gain", "like_for_like"]

V = THRESHOLDS[0]
BEST = "best"


class Times(Protocol):
    """Anything that knows the time of every line of the tables."""

    def time(
        self, dataset: str, method: str, extra: int | None, threshold: float, unit: str = "seconds"
    ) -> Summary | None:
        """Return the time to a full streak; ``None`` if the line was not run."""

    def title(self, dataset: str) -> str:
        """Return the name of a set, with what was read for it."""


class Tidy:
    """The lines of a ``table-2.csv``.

    Parameters
    ----------
    path : Path
        The file.  A ``provenance.json`` beside it tells the shapes of the sets.
    """

    def __init__(self, path: Path) -> None:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        about = path.with_name("provenance.json")
        self.machine = rows[0]["machine"]
        self.data = read_json(about)["data"] if about.is_file() else {}
        self._rows = {
            (
                row["set"],
                row["method"],
                row["l"] if row["refined"] == "1" else "alone",
                row["V"],
            ): row
            for row in rows
        }

    def time(
        self, dataset: str, method: str, extra: int | None, threshold: float, unit: str = "seconds"
    ) -> Summary | None:
        """Return the time to a full streak; ``None`` if the line was not run."""
        line = "alone" if extra is ALONE else str(extra)
        row = self._rows.get((dataset, method, line, f"pi/{round(math.pi / threshold)}"))
        if row is None or row["runs"] == "0":
            return None
        mean, spread = (float(row[name] or "nan") for name in (unit, f"{unit}_sd"))
        return Summary(mean, spread, int(row["runs"]), int(row["reached"]))

    def title(self, dataset: str) -> str:
        """Return the name of a set with its shape, if that is known."""
        return titled(dataset, self.data)


def gain(times: Times, dataset: str, method: str, extra: int | str, unit: str = "seconds") -> float:
    """Return the time of the priming alone over that of pPCA_l; NaN if one is not known.

    ``extra`` "best" stands for the ``l`` that is fastest in this unit.
    """
    alone = times.time(dataset, method, ALONE, V, unit)
    return _quotient(alone, [times.time(dataset, method, e, V, unit) for e in _choice(extra)])


def paper_gain(dataset: str, method: str, extra: int | str) -> float:
    """Return the same for the paper's table."""
    alone = published(dataset, method, ALONE, V)
    return _quotient(alone, [published(dataset, method, e, V) for e in _choice(extra)])


def _choice(extra: int | str) -> tuple[int, ...]:
    return EXTRAS if isinstance(extra, str) else (extra,)


def _quotient(alone: NamedTuple | None, refined: list[NamedTuple | None]) -> float:
    if alone is None:
        return math.nan
    known = [one[0] for one in refined if one is not None and math.isfinite(one[0])]
    return float(alone[0]) / min(known) if known else math.nan


def like_for_like(times: Times) -> Table:
    """Return the table of mean speed-ups over the sets that both we and the paper have."""
    sections = []
    for method in PAPERS:
        rows = []
        for extra in (*EXTRAS, BEST) if method != "power_method" else (0,):
            seconds, steps, theirs, sets = means_of(times, method, extra)
            if sets:
                name = "best l" if extra == BEST else f"l = {extra}"
                texts = [number(seconds), number(steps), number(theirs), "; ".join(sets)]
                rows.append([Cell(name), *map(Cell, texts)])
        if rows:
            sections.append((NAMES[method], rows))
    head = ["pPCA", "ours, seconds", "ours, steps", "the paper's", "sets"]
    notes = [
        f"Time of the priming alone over that of pPCA with the same l to a streak of 16 at V = "
        f"{name_of(V)}; mean over the sets where it is known both here and in the paper.",
    ]
    title = "The same sets and the same l as the paper"
    return Table("like-for-like", title, head, sections, notes)


def means_of(times: Times, method: str, extra: int | str) -> tuple[float, float, float, list[str]]:
    """Return our mean gain in seconds and in steps, the paper's, and the names of the sets."""
    found = [
        (gain(times, s, method, extra), gain(times, s, method, extra, "steps"), theirs, s)
        for s in SETS
        if math.isfinite(theirs := paper_gain(s, method, extra))
    ]
    both = [one for one in found if math.isfinite(one[0])]
    if not both:
        return math.nan, math.nan, math.nan, []
    seconds, steps, theirs = np.mean([one[:3] for one in both], axis=0)
    return seconds, steps, theirs, [_short(times.title(one[3])) for one in both]


def _short(title: str) -> str:
    """Return a title without its shape, unless it is that of a stand-in."""
    return title if "stand-in" in title else title.partition(" (")[0]


class Agreement(NamedTuple):
    """One cell of the paper's table 2, and whether "n.a." agrees."""

    dataset: str
    method: str
    extra: int | None
    threshold: float
    ours: Summary | None
    theirs: float

    @property
    def agrees(self) -> bool:
        """Whether both reached the streak in every run, or neither."""
        return self.ours is not None and self.ours.known == math.isfinite(self.theirs)


def agreement(times: Times) -> list[Agreement]:
    """Return every cell of the paper's table 2."""
    found = []
    for threshold in (THRESHOLDS[0], THRESHOLDS[2], THRESHOLDS[4]):
        for method in PAPERS:
            for extra in (ALONE, *EXTRAS):
                for name in SETS:
                    theirs = published(name, method, extra, threshold)
                    if theirs is not None:
                        ours = times.time(name, method, extra, threshold)
                        which = (name, method, extra, threshold)
                        found.append(Agreement(*which, ours, theirs.mean))
    return found


def comparison_files(times: Times) -> dict[str, str]:
    """Return ``comparison.md`` and ``comparison.csv``, name to text."""
    cells = agreement(times)
    lines = [
        [
            *(cell.dataset, cell.method, "alone" if cell.extra is ALONE else cell.extra),
            *(name_of(cell.threshold).replace("π", "pi"), cell.theirs),
            *((cell.ours.mean, cell.ours.runs, cell.ours.reached) if cell.ours else (None,) * 3),
            int(cell.agrees),
        ]
        for cell in cells
    ]
    head = ["set", "method", "l", "V", "paper_seconds", "seconds", "runs", "reached", "agrees"]
    tables = [like_for_like(times), _differing(times, cells)]
    return {
        "comparison.md": "\n".join(table.markdown() for table in tables),
        "comparison.csv": tidy(head, lines),
    }


def _differing(times: Times, cells: list[Agreement]) -> Table:
    """Return the table of the cells where only one of us and the paper has n.a."""
    rows = []
    for cell in cells:
        if not cell.agrees and cell.ours is not None:
            line = NAMES[cell.method] + (
                "" if cell.extra is ALONE else f" + pPCA, l = {cell.extra}"
            )
            ours = f"{cell.ours.reached} of {cell.ours.runs}"
            texts = [line, name_of(cell.threshold), ours, number(cell.theirs)]
            rows.append([Cell(times.title(cell.dataset)), *map(Cell, texts)])
    run = [cell for cell in cells if cell.ours is not None]
    agree = sum(cell.agrees for cell in run)
    notes = [
        f"n.a. agrees with the paper in {agree} of {len(run)} cells that were run "
        f"(table 2 has {len(cells)}).",
    ]
    head = ["set", "line", "V", "runs of ours that reached the streak", "the paper's seconds"]
    title = "Cells where only one of us and the paper has n.a."
    return Table("agreement", title, head, [("", rows)], notes)
