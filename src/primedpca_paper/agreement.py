"""Cells where "n.a." differs from the paper, and the choice of the protocol that explains them.

The paper states neither its run lengths nor the settings that it chose, and "n.a." depends on
both.  Here every cell of its table 2 is computed again for other lengths, settings and rules, from
rows that were measured once: a run that is cut is the beginning of a longer one.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from primedpca_paper.comparison import Agreement, agreement
from primedpca_paper.datasets import SETS
from primedpca_paper.protocol import N_COMPONENTS, PAPERS
from primedpca_paper.raw_rows import open_raw
from primedpca_paper.records import Records, Row, write_whole
from primedpca_paper.selection import best_setting
from primedpca_paper.tables import NAMES, number
from primedpca_paper.tabular import Cell, Table, tidy
from primedpca_paper.traces import ALONE, Results, Trace, name_of

__all__ = ["CUTS", "Again", "agreement_files", "agreement_of"]

#: Lengths of a run in steps.
CUTS = (500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 7000, 10_000, 14_000, 20_000)
POWER = "power_method"
STOCHASTIC = tuple(method for method in PAPERS if method != POWER)
#: Rules by which a run has a streak, and the evaluations that count.
RULES: dict[str, tuple[bool, bool | None]] = {
    "first reached (ours)": (False, None),
    "held to the end of the run": (True, None),
    "first reached, ends of epochs only": (False, True),
    "first reached, not on ends of epochs": (False, False),
    "held, ends of epochs only": (True, True),
}


class Count(NamedTuple):
    """Number of cells of the paper's table that agree, that were not run, and of all."""

    agreeing: int
    unknown: int
    cells: int

    def __add__(self, other: object) -> Count:
        """Return the sum of two counts."""
        assert isinstance(other, Count)
        return Count(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def text(self) -> str:
        """The count as a cell of a table."""
        missing = f", {self.unknown} not run" if self.unknown else ""
        return f"{self.agreeing} of {self.cells}{missing}"


class Choice(NamedTuple):
    """Choices for one set with which most cells agree."""

    length: int  # of the stochastic runs
    stochastic: Count  # at the rule's rates
    rates: dict[str, float]
    rated: Count  # at these rates
    epsilon: float
    power: Count


class Again:
    """The cells of the paper's table 2 under other choices.

    Parameters
    ----------
    results : Results
        The results whose cells are compared.
    selection : list of Row
        Rows of the grid, from which the rule chooses settings for other lengths.
    others : sequence of Results
        Results with runs at settings that ``results`` lacks.  Steps and streaks do not depend on
        the machine.
    """

    def __init__(
        self, results: Results, selection: list[Row], others: Sequence[Results] = ()
    ) -> None:
        self.results, self.others = results, (results, *others)
        self.cells = [cell for cell in agreement(results) if cell.ours is not None]
        self.rows = {
            (name, method): [row for row in selection if row.run[:2] == (name, method)]
            for name in SETS
            for method in PAPERS
        }
        self._chosen: dict[tuple[str, str, int], float] = {}

    def of(self, name: str, *methods: str) -> list[Agreement]:
        """Return the cells of one set and these methods."""
        return [cell for cell in self.cells if cell.dataset == name and cell.method in methods]

    def traces(self, cell: Agreement, setting: float) -> list[Trace]:
        """Return the runs of a cell's line at a setting; empty if it was not run."""
        kind = (cell.dataset, cell.method, cell.extra or 0, cell.extra is not ALONE)
        for results in self.others:
            if traces := results.at(kind, setting):
                return traces
        return []

    def settings(self, name: str, method: str) -> list[float]:
        """Return the settings at which every line of a set and method was run, largest first."""
        grid = {row.run.setting for row in self.rows[name, method]}
        more = {s for results in self.others for s in results.settings_run(name, method)}
        cells = self.of(name, method)
        run = sorted(grid | more, reverse=True)
        return [s for s in run if cells and all(self.traces(cell, s) for cell in cells)]

    def chosen(self, name: str, method: str, length: int) -> float:
        """Return the setting that the paper's rule chooses if runs end at this length."""
        key = (name, method, length)
        if key not in self._chosen:
            rows = (row for row in self.rows[name, method] if row.step <= length)
            self._chosen[key] = best_setting(rows, name, method)
        return self._chosen[key]

    def lengths(self, name: str) -> list[int]:
        """Return :data:`CUTS` up to the length of the stochastic runs of a set, and that length."""
        last = max(self.results.length(name, method) or 0 for method in STOCHASTIC)
        return [*(length for length in CUTS if length < last), last]

    def count(
        self,
        cells: Sequence[Agreement],
        setting: float,
        cut: Callable[[Trace], Trace] = lambda trace: trace,
        held: bool = False,
    ) -> Count:
        """Return how many cells agree at this setting if runs are cut."""
        agreeing = unknown = 0
        for cell in cells:
            traces = self.traces(cell, setting)
            if traces:
                ours = all(
                    _steps(cut(trace), cell.threshold, held, cell.method) for trace in traces
                )
                agreeing += ours == bool(np.isfinite(cell.theirs))
            unknown += not traces
        return Count(agreeing, unknown, len(cells))

    def at_length(self, name: str, method: str, length: int) -> tuple[float, Count]:
        """Return the chosen setting and the cells that agree if runs end at this length."""
        setting = self.chosen(name, method, length)
        cut = _cut_at(length)
        return setting, self.count(self.of(name, method), setting, cut)

    def at_rule(self, rule: str) -> Count:
        """Return the cells of all sets that agree under another rule."""
        held, ends = RULES[rule]
        total = Count(0, 0, 0)
        for name in SETS:
            for method in PAPERS:
                setting = self.results.setting(name, method)
                cut = self._evaluated(name, method, ends)
                if setting is not None:
                    total += self.count(self.of(name, method), setting, cut, held)
        return total

    def _evaluated(self, name: str, method: str, ends: bool | None) -> Callable[[Trace], Trace]:
        per_epoch = self.results.per_epoch(name, method)
        if ends is None or method == POWER or per_epoch is None:
            return lambda trace: trace
        return lambda trace: trace.only((trace.steps % per_epoch == 0) == ends)

    def best(self, name: str) -> Choice:
        """Return the length, the rates and the epsilon of a set with which most cells agree.

        Rates and epsilon are of the paper's grid.  Of equal ones the longest run and the rule's
        setting are taken.
        """
        found = {length: self._both(name, length) for length in self.lengths(name)}
        length = max(found, key=lambda length: (found[length].agreeing, length))
        rates, rated = {}, Count(0, 0, 0)
        for method in STOCHASTIC:
            rule = self.chosen(name, method, length)
            rates[method], count = self._best_setting(name, method, rule, _cut_at(length))
            rated += count
        epsilon = self.results.setting(name, POWER)
        assert epsilon is not None
        power = self._best_setting(name, POWER, epsilon)
        return Choice(length, found[length], rates, rated, *power)

    def _best_setting(
        self,
        name: str,
        method: str,
        rule: float,
        cut: Callable[[Trace], Trace] = lambda trace: trace,
    ) -> tuple[float, Count]:
        """Return the setting of the paper's grid with which most cells agree."""
        cells = self.of(name, method)
        grid = [s for s in self.settings(name, method) if _on_grid(method, s)]
        counts = {setting: self.count(cells, setting, cut) for setting in [rule, *grid]}
        # The first of equal ones is the rule's.
        setting = max(counts, key=lambda setting: counts[setting].agreeing)
        return setting, counts[setting]

    def _both(self, name: str, length: int) -> Count:
        total = Count(0, 0, 0)
        for method in STOCHASTIC:
            total += self.at_length(name, method, length)[1]
        return total


def _on_grid(method: str, setting: float) -> bool:
    return any(math.isclose(setting, value, rel_tol=1e-4) for value in PAPERS[method])


def _cut_at(length: float) -> Callable[[Trace], Trace]:
    return lambda trace: trace.only(trace.steps <= length)


def _steps(trace: Trace, threshold: float, held: bool, method: str) -> bool:
    """Return whether a run has the full streak."""
    if not len(trace.steps):
        return False
    at = trace.held(threshold, method == POWER) if held else trace.reached(threshold)
    return at is not None


def agreement_files(
    results: Results, selection: Records, others: Sequence[Results] = ()
) -> dict[str, str]:
    """Return ``agreement.md``, ``agreement.csv`` and ``agreement-cells.csv``, name to text."""
    again = Again(results, list(selection.rows()), others)
    sets = [
        name
        for name in SETS
        if all(again.of(name, method) and again.rows[name, method] for method in PAPERS)
    ]
    found = list(_found(again, sets))
    reasons = [_reason(again, cell) for cell in again.cells if not cell.agrees]
    reasons = [reason for reason in reasons if reason.cell.dataset in sets]
    tables = [
        _by_length(again, sets),
        _by_setting(again, sets),
        _by_rule(again),
        _calibrated(again, sets),
        _differing(results, reasons),
    ]
    columns = ["question", "set", "method", "choice", "setting", "agreeing", "unknown", "cells"]
    return {
        "agreement.md": "\n".join(table.markdown() for table in tables),
        "agreement.csv": tidy(columns, found),
        "agreement-cells.csv": tidy(
            [
                *("set", "method", "l", "V", "paper_seconds", "runs", "reached", "held"),
                *("median_step", "first_step", "last_step", "reason", "explanation"),
            ],
            [reason.line for reason in reasons],
        ),
    }


def agreement_of(folder: Path, *others: Path) -> dict[str, str]:
    """Return the same files, computed from folders of raw rows."""
    with TemporaryDirectory() as work:
        records, selection = open_raw(folder, Path(work) / "own")
        more = [
            Results(open_raw(other, Path(work) / f"other-{i}")[0]) for i, other in enumerate(others)
        ]
        return agreement_files(Results(records, selection), selection, more)


def _found(again: Again, sets: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield the lines of ``agreement.csv``."""
    for name in sets:
        for method in STOCHASTIC:
            for length in again.lengths(name):
                setting, count = again.at_length(name, method, length)
                yield "run length", name, method, length, setting, *count
        for method in PAPERS:
            for setting in again.settings(name, method):
                count = again.count(again.of(name, method), setting)
                yield "setting", name, method, "", setting, *count
        best = again.best(name)
        yield "best length", name, "", best.length, "", *best.stochastic
        yield "best epsilon", name, POWER, "", best.epsilon, *best.power
        yield "best rates", name, "", best.length, "", *best.rated
    for rule in RULES:
        yield "rule", "", "", rule, "", *again.at_rule(rule)


def _by_length(again: Again, sets: list[str]) -> Table:
    rows = []
    lengths = sorted({length for name in sets for length in again.lengths(name)})
    for name in sets:
        for method in STOCHASTIC:
            cells = []
            for length in lengths:
                if length in again.lengths(name):
                    setting, count = again.at_length(name, method, length)
                    cells.append(f"{count.text} ({setting:g})")
                else:
                    cells.append("")
            title = f"{again.results.title(name)}, {NAMES[method]}"
            rows.append([Cell(title), *map(Cell, cells)])
    notes = [
        "Cells of the paper's table 2 in which both or neither have n.a., if all runs end after "
        "this number of steps; in brackets the learning rate that the paper's rule then chooses. "
        "Not run: lines that were not refined at that rate."
    ]
    head = ["steps of a run", *(f"{length:,}" for length in lengths)]
    title = "Cells in which n.a. agrees, by run length"
    return Table("agreement-length", title, head, [("", rows)], notes)


def _by_setting(again: Again, sets: list[str]) -> Table:
    rows = []
    for name in sets:
        for method in PAPERS:
            ours = again.results.setting(name, method)
            for setting in again.settings(name, method):
                count = again.count(again.of(name, method), setting)
                texts = [
                    NAMES[method],
                    f"{setting:g}" + (" (the rule's choice)" if setting == ours else ""),
                    count.text,
                ]
                rows.append([Cell(again.results.title(name)), *map(Cell, texts)])
    notes = ["Learning rate, or ε of the power method; runs of our length."]
    head = ["set", "priming", "setting", "cells that agree"]
    title = "Cells in which n.a. agrees, by setting"
    return Table("agreement-setting", title, head, [("", rows)], notes)


def _by_rule(again: Again) -> Table:
    rows = [[Cell(rule), Cell(again.at_rule(rule).text)] for rule in RULES]
    notes = ["The settings and lengths are ours."]
    title = "Cells in which n.a. agrees, by the rule for a streak"
    return Table("agreement-rule", title, ["rule", "cells that agree"], [("", rows)], notes)


def _calibrated(again: Again, sets: list[str]) -> Table:
    rows, totals = [], [0] * 5
    for name in sets:
        best, cells = again.best(name), again.of(name, *PAPERS)
        power = sum(cell.agrees for cell in cells if cell.method == POWER)
        counts = [
            sum(cell.agrees for cell in cells),
            best.stochastic.agreeing + power,
            best.stochastic.agreeing + best.power.agreeing,
            best.rated.agreeing + best.power.agreeing,
            len(cells),
        ]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        rates = [f"{best.rates[method]:g}" for method in STOCHASTIC]
        texts = [f"{best.length:,}", f"{best.epsilon:g}", *rates, *map(str, counts)]
        rows.append([Cell(again.results.title(name)), *map(Cell, texts)])
    rows.append([Cell("all"), *[Cell("")] * 4, *(Cell(str(total)) for total in totals)])
    notes = [
        "The paper does not state its run lengths: these are the ones, of those in the first "
        "table, that agree best with its n.a., one for both stochastic primings of a set, with the "
        "learning rates that its rule then chooses. ε and then the rates are those of the paper's "
        "grid, of the ones that were run, that agree best.",
        "All are fitted to the paper's n.a.: that they agree is not evidence that the paper used "
        "them. Our tables keep our lengths and the rule's settings.",
    ]
    head = [
        *("set", "steps of a run", "ε", *(f"rate, {NAMES[method]}" for method in STOCHASTIC)),
        *("agree, ours", "agree, this length", "and this ε", "and these rates", "cells"),
    ]
    title = "Run lengths and settings that agree best with the paper's n.a."
    return Table("agreement-best", title, head, [("", rows)], notes)


class Reason(NamedTuple):
    """A cell that differs, and what makes it agree."""

    cell: Agreement
    held: int
    steps: np.ndarray  # steps at which our runs reach the streak
    reason: str
    explanation: str

    @property
    def line(self) -> list[object]:
        """The line of ``agreement-cells.csv``."""
        cell, ours = self.cell, self.cell.ours
        assert ours is not None
        steps = [float(np.percentile(self.steps, q)) for q in (50, 0, 100) if len(self.steps)]
        return [
            *(cell.dataset, cell.method, "alone" if cell.extra is ALONE else cell.extra),
            *(name_of(cell.threshold).replace("π", "pi"), cell.theirs),
            *(ours.runs, ours.reached, self.held),
            *(steps or [math.nan] * 3),
            *(self.reason, self.explanation),
        ]


def _reason(again: Again, cell: Agreement) -> Reason:
    setting = again.results.setting(cell.dataset, cell.method)
    assert setting is not None
    traces = again.traces(cell, setting)
    at = [(trace, trace.reached(cell.threshold)) for trace in traces]
    steps = np.array([trace.steps[i] for trace, i in at if i is not None])
    held = sum(_steps(trace, cell.threshold, True, cell.method) for trace in traces)
    lost = cell.method != POWER and held < len(steps) == len(traces)
    reason, explanation = _explained(again, cell, setting, lost)
    return Reason(cell, held, steps, reason, explanation)


def _explained(again: Again, cell: Agreement, ours: float, lost: bool) -> tuple[str, str]:
    """Return the choice that makes a cell agree, and the measurement.

    A choice explains a cell only if more cells of its set agree with it than with ours:
    otherwise it would only move the difference to other cells.
    """
    name, method = cell.dataset, cell.method
    best, cells = again.best(name), again.of(name, method)
    if method != POWER:
        setting = again.chosen(name, method, best.length)
        if again.count([cell], setting, _cut_at(best.length)).agreeing:
            rate = f", for which the rule chooses rate {setting:g}" if setting != ours else ""
            return "run length", f"agrees in runs of {best.length:,} steps{rate}"
    kind = "ε" if method == POWER else "rate"
    now = sum(one.agrees for one in cells)
    found = [
        (again.count(cells, setting).agreeing, _on_grid(method, setting), setting)
        for setting in again.settings(name, method)
        if setting != ours and again.count([cell], setting).agreeing
    ]
    most, on_grid, setting = max(found, default=(0, False, 0.0))
    text = f"agrees at {kind} {setting:g}" + ("" if on_grid else ", which the paper's grid lacks")
    text += f", where {most} of {len(cells)} cells of this priming agree"
    if most > now:
        return kind, f"{text} ({now} at ours)"
    if lost:
        return "touched", "all runs reach it, and not all hold it to the end"
    if found:
        return "not explained", f"{text}, and {now} at ours"
    return "not explained", _shorter(again, cell)


def _shorter(again: Again, cell: Agreement) -> str:
    """Return what is measured at other lengths for a cell that nothing explains."""
    name, method = cell.dataset, cell.method
    lengths = []
    for length in again.lengths(name) if method != POWER else ():
        setting = again.chosen(name, method, length)
        if again.count([cell], setting, _cut_at(length)).agreeing:
            lengths.append(length)
    if not lengths:
        return "agrees at no length and no setting that was run"
    _, count = again.at_length(name, method, lengths[-1])
    return (
        f"agrees in runs of {lengths[-1]:,} steps, where {count.text} cells of this priming agree"
    )


def _differing(results: Results, reasons: list[Reason]) -> Table:
    rows = []
    for reason in reasons:
        cell, ours = reason.cell, reason.cell.ours
        assert ours is not None
        line = NAMES[cell.method] + ("" if cell.extra is ALONE else f" + pPCA, l = {cell.extra}")
        steps = reason.steps
        parts = [f"{np.percentile(steps, q):,.0f}" for q in (50, 0, 100) if len(steps)]
        when = "{} ({} to {})".format(*parts) if parts else ""
        texts = [
            *(line, name_of(cell.threshold), number(cell.theirs)),
            *(f"{ours.reached} of {ours.runs}", when, f"{reason.held} of {ours.runs}"),
            *(reason.reason, reason.explanation),
        ]
        rows.append([Cell(results.title(cell.dataset)), *map(Cell, texts)])
    known = sum(reason.reason != "not explained" for reason in reasons)
    notes = [
        f"A choice that the paper may have made explains {known} of these {len(reasons)} cells.",
        "run length: the cell agrees at the length of its set in the table above. rate, ε: it "
        "agrees at another setting, at which more cells agree than at ours. touched: all runs have "
        f"a streak of {N_COMPONENTS} at some evaluation, and not all keep it.",
    ]
    head = [
        *("set", "line", "V", "the paper's seconds", "our runs that reach the streak"),
        *("at step, median (range)", "held to the end", "reason", "measurement"),
    ]
    title = "Cells where n.a. differs, and what makes them agree"
    return Table("agreement-cells", title, head, [("", rows)], notes)


def main(words: list[str] | None = None) -> int:
    """Write the files into a folder of raw rows; runs at other settings are in more folders."""
    parser = argparse.ArgumentParser(prog="python -m primedpca_paper.agreement")
    parser.add_argument("folders", type=Path, nargs="+", help="folders with rows.csv.gz")
    folder, *others = parser.parse_args(words).folders
    for name, text in agreement_of(folder, *others).items():
        write_whole(folder / name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
