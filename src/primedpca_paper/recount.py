"""The cells of the paper's table 2 under other run lengths, settings and rules.

The paper states neither its run lengths nor the settings that it chose, and "n.a." depends on
both.  Here every cell is computed again from rows that were measured once: a run that is cut is
the beginning of a longer one.

:meth:`Again.shortest` derives run lengths from the times that the paper prints, because runs that
end earlier could not have given them.  The cells with n.a. are not used, so that they test it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from primedpca_paper.comparison import Agreement, agreement
from primedpca_paper.datasets import SETS
from primedpca_paper.protocol import N_COMPONENTS, PAPERS
from primedpca_paper.records import Row
from primedpca_paper.selection import best_setting
from primedpca_paper.traces import ALONE, Results, Trace, curve

__all__ = [
    "CUTS",
    "POWER",
    "RULES",
    "STOCHASTIC",
    "STREAKS",
    "Again",
    "Choice",
    "Count",
    "Setup",
    "cut_at",
    "on_grid",
]

#: Lengths of a run in steps.
CUTS = (500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 7000, 10_000, 14_000, 20_000)
POWER = "power_method"
STOCHASTIC = tuple(method for method in PAPERS if method != POWER)
#: Rules by which the runs of a line have a streak at V; the power method ends by itself.
STREAKS: dict[str, Callable[[Sequence[Trace], float, bool], bool]] = {
    "reached": lambda traces, v, ended: all(t.reached(v) is not None for t in traces),
    "held": lambda traces, v, ended: all(t.held(v, ended) is not None for t in traces),
    "half": lambda traces, v, ended: (
        2 * sum(t.reached(v) is not None for t in traces) >= len(traces)
    ),
    "mean": lambda traces, v, ended: bool(
        (curve(traces, lambda t: t.streaks(v)).mean >= N_COMPONENTS).any()
    ),
}
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


class Setup(NamedTuple):
    """Setting and run length of a priming on one set; the power method has no length."""

    setting: float
    length: float = math.inf


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
        self._shortest: dict[tuple[str, str, str], Setup | None] = {}

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
        cut = cut_at(length)
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
            rates[method], count = self._best_setting(name, method, rule, cut_at(length))
            rated += count
        epsilon = self.results.setting(name, POWER)
        assert epsilon is not None
        power = self._best_setting(name, POWER, epsilon)
        return Choice(length, found[length], rates, rated, *power)

    def has_streak(self, cell: Agreement, setup: Setup, rule: str = "reached") -> bool | None:
        """Return whether the runs of a cell have its streak; ``None`` if they were not run."""
        traces = self.traces(cell, setup.setting)
        if not traces:
            return None
        traces = [trace.only(trace.steps <= setup.length) for trace in traces]
        if not all(len(trace.steps) for trace in traces):
            return False
        return STREAKS[rule](traces, cell.threshold, cell.method == POWER)

    def ours(self, name: str, method: str) -> Setup:
        """Return our setup: the rule's setting and our run length."""
        setting = self.results.setting(name, method)
        assert setting is not None
        return Setup(setting)

    def at(self, name: str, method: str, length: float) -> Setup:
        """Return the setup if runs end at this length; the power method ends by itself."""
        if method == POWER:
            return self.ours(name, method)
        length = min(length, self.lengths(name)[-1])
        return Setup(self.chosen(name, method, int(length)), length)

    def shortest(self, name: str, method: str, rule: str = "reached") -> Setup | None:
        """Return the shortest runs that have every streak for which the paper prints a time.

        At each length the setting is the one that the paper's rule then chooses.  Lengths whose
        setting was not run are left out.  The power method ends by itself: it gets the largest
        epsilon of the paper's grid with which it has all of these streaks.

        Returns
        -------
        Setup or None
            ``None`` if no length, or no epsilon, gives all of these streaks.
        """
        key = (name, method, rule)
        if key not in self._shortest:
            self._shortest[key] = self._find_shortest(*key)
        return self._shortest[key]

    def _find_shortest(self, name: str, method: str, rule: str) -> Setup | None:
        printed = [cell for cell in self.of(name, method) if math.isfinite(cell.theirs)]

        def complete(setup: Setup) -> bool:
            return all(self.has_streak(cell, setup, rule) for cell in printed)

        if method == POWER:
            setups = [Setup(setting) for setting in PAPERS[POWER]]
            return next((setup for setup in setups if complete(setup)), None)
        # A setting that lacks a streak at full length lacks it at every length.
        last = self.lengths(name)[-1]
        able = [s for s in PAPERS[method] if complete(Setup(s, last)) or rule != "reached"]
        steps = sorted({row.step for row in self.rows[name, method] if row.step <= last})
        for length in steps:
            if any(complete(Setup(setting, length)) for setting in able):
                setup = Setup(self.chosen(name, method, length), length)
                if complete(setup):
                    return setup
        return None

    def shortest_at(self, name: str, method: str, setting: float) -> Setup | None:
        """Return the shortest runs at one setting that have every streak of a printed time."""
        printed = [cell for cell in self.of(name, method) if math.isfinite(cell.theirs)]
        if not printed or not all(self.has_streak(cell, Setup(setting)) for cell in printed):
            return None
        found = [
            (trace, trace.reached(cell.threshold))
            for cell in printed
            for trace in self.traces(cell, setting)
        ]
        return Setup(setting, max(float(trace.steps[i]) for trace, i in found if i is not None))

    def _best_setting(
        self,
        name: str,
        method: str,
        rule: float,
        cut: Callable[[Trace], Trace] = lambda trace: trace,
    ) -> tuple[float, Count]:
        """Return the setting of the paper's grid with which most cells agree."""
        cells = self.of(name, method)
        grid = [s for s in self.settings(name, method) if on_grid(method, s)]
        counts = {setting: self.count(cells, setting, cut) for setting in [rule, *grid]}
        # The first of equal ones is the rule's.
        setting = max(counts, key=lambda setting: counts[setting].agreeing)
        return setting, counts[setting]

    def _both(self, name: str, length: int) -> Count:
        total = Count(0, 0, 0)
        for method in STOCHASTIC:
            total += self.at_length(name, method, length)[1]
        return total


def on_grid(method: str, setting: float) -> bool:
    """Return whether a setting is one of the paper's."""
    return any(math.isclose(setting, value, rel_tol=1e-4) for value in PAPERS[method])


def cut_at(length: float) -> Callable[[Trace], Trace]:
    """Return a function that ends a run after ``length`` steps."""
    return lambda trace: trace.only(trace.steps <= length)


def _steps(trace: Trace, threshold: float, held: bool, method: str) -> bool:
    """Return whether a run has the full streak."""
    if not len(trace.steps):
        return False
    at = trace.held(threshold, method == POWER) if held else trace.reached(threshold)
    return at is not None
