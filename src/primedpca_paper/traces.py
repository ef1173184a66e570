"""A results folder as tables and figures see it: for each line of a table, one trace a run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from primedpca_paper.protocol import EXTRAS, N_COMPONENTS, PAPERS
from primedpca_paper.records import Records, Row
from primedpca_paper.selection import angular_errors

__all__ = ["ALONE", "Curve", "Results", "Summary", "Trace", "curve", "name_of"]

#: In the place of ``l``: the priming as it is, not refined.
ALONE = None
Kind = tuple[str, str, int, bool]  # set, method, l, refined


class Trace(NamedTuple):
    """One run along its ``m`` evaluations."""

    seed: int
    steps: np.ndarray  # (m,)
    seconds: np.ndarray  # (m,)
    angles: np.ndarray  # (m, k)
    variances: np.ndarray  # (m, k)
    promised: np.ndarray  # (m, n_thresholds)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Trace:
        """The rows of one run, put in order."""
        rows = sorted(rows, key=lambda row: row.step)
        return cls(
            rows[0].run.seed,
            np.array([row.step for row in rows], dtype=np.float64),
            np.array([row.seconds for row in rows]),
            np.array([row.angles for row in rows]),
            np.array([row.variances for row in rows]),
            np.array([row.promised for row in rows]),
        )

    def streaks(self, threshold: float) -> np.ndarray:
        """The longest correct streak at each evaluation: ``(m,)``."""
        found: np.ndarray = np.cumprod(self.angles < threshold, axis=1).sum(axis=1)
        return found

    def reached(self, threshold: float) -> int | None:
        """The first evaluation with a full streak, whatever comes after it."""
        full = np.flatnonzero(self.streaks(threshold) >= N_COMPONENTS)
        return int(full[0]) if full.size else None


class Summary(NamedTuple):
    """Over runs: mean and standard deviation (divided by runs less one); NaN if a run failed."""

    mean: float
    spread: float
    runs: int
    reached: int

    @property
    def known(self) -> bool:
        """Whether every run got there, on a clock that ran."""
        return math.isfinite(self.mean)


class Results:
    """What was measured, at the best setting of each priming.

    Parameters
    ----------
    records : Records
    selection : Records, optional
        The grid, from which the best settings are chosen.  A set and method that it lacks must
        have been run at one setting only.
    """

    def __init__(self, records: Records, selection: Records | None = None) -> None:
        self.machine, self.about = records.machine, records.settings
        self.errors = angular_errors(selection.rows()) if selection else {}
        runs: dict[tuple[Kind, float], dict[int, list[Row]]]
        runs = defaultdict(lambda: defaultdict(list))
        for row in records.rows():
            run = row.run
            kind = (run.dataset, run.method, run.extra, row.refined)
            runs[kind, run.setting][run.seed].append(row)
        self._traces: dict[Kind, dict[float, list[Trace]]] = defaultdict(dict)
        for (kind, setting), rows in runs.items():
            self._traces[kind][setting] = [Trace.of(rows[seed]) for seed in sorted(rows)]

    def setting(self, dataset: str, method: str) -> float | None:
        """The one that is kept; ``None`` where nothing was run.

        A set run with another ``k`` ("exponential-k5") takes the setting of the set itself.
        """
        for name in (dataset, dataset.split("-k")[0]):
            errors = self.errors.get((name, method))
            if errors:
                return min(errors, key=lambda setting: (errors[setting], -setting))
        found = {
            setting
            for kind, by_setting in self._traces.items()
            if kind[:2] == (dataset, method)
            for setting in by_setting
        }
        if len(found) > 1:
            raise ValueError(
                f"{method!r} was run on {dataset!r} at the settings {sorted(found)}, and no "
                "selection says which is best; give the folder of the grid."
            )
        return found.pop() if found else None

    def traces(self, dataset: str, method: str, extra: int | None) -> list[Trace]:
        """All runs of a priming of the paper: alone, or pPCA with ``extra`` directions."""
        setting = self.setting(dataset, method)
        if setting is None:
            return []
        return self._at((dataset, method, extra or 0, extra is not ALONE), setting)

    def answers(self, dataset: str, method: str, threshold: float) -> list[Trace]:
        """All runs of a method of ours that was asked for ``threshold``."""
        kind = (dataset, method, 0, True)
        # A full decomposition is not asked for an angle: its setting is 0.
        return self._at(kind, threshold) or self._at(kind, 0.0)

    def _at(self, kind: Kind, setting: float) -> list[Trace]:
        for found, traces in self._traces.get(kind, {}).items():
            # Files hold six digits of a setting.
            if math.isclose(found, setting, rel_tol=1e-4):
                return traces
        return []

    def time(
        self, dataset: str, method: str, extra: int | None, threshold: float, unit: str = "seconds"
    ) -> Summary | None:
        """``unit`` ("seconds" or "steps") to a full streak; ``None`` where nothing was run."""
        if method in PAPERS:
            traces = self.traces(dataset, method, extra)
        else:
            traces = self.answers(dataset, method, threshold)
        if not traces:
            return None
        seen = [(trace, trace.reached(threshold)) for trace in traces]
        values = [getattr(trace, unit)[at] for trace, at in seen if at is not None]
        if len(values) < len(traces):
            return Summary(math.nan, math.nan, len(traces), len(values))
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        return Summary(float(np.mean(values)), spread, len(values), len(values))

    def best(
        self, dataset: str, method: str, threshold: float, unit: str = "seconds"
    ) -> tuple[int, Summary] | None:
        """The ``l`` whose pPCA was soonest, and its time; ``None`` if none got there."""
        found = [(extra, self.time(dataset, method, extra, threshold, unit)) for extra in EXTRAS]
        known = [(extra, time) for extra, time in found if time is not None and time.known]
        return min(known, key=lambda pair: pair[1].mean, default=None)


class Curve(NamedTuple):
    """A mean over runs, its standard error, and where it lies: ``m`` points each."""

    steps: np.ndarray
    seconds: np.ndarray
    mean: np.ndarray
    error: np.ndarray


def curve(
    traces: Sequence[Trace],
    values: Callable[[Trace], np.ndarray],
    steps: np.ndarray | None = None,
) -> Curve:
    """The mean of ``values(trace)`` over runs.

    Parameters
    ----------
    traces : sequence of Trace
        At least one.
    values : callable
        From a trace to one value, or one array, for each of its evaluations.
    steps : ndarray of shape (m,), optional
        Where to look; by default at every step at which some run was evaluated.

    Notes
    -----
    A run counts with its latest evaluation, and after its end with its last.  The seconds of a
    point are the mean over runs of the time of that step.
    """
    begin = max(trace.steps[0] for trace in traces)
    if steps is None:
        steps = np.unique(np.concatenate([trace.steps for trace in traces]))
    steps = steps[steps >= begin]
    seconds = np.mean([np.interp(steps, t.steps, t.seconds) for t in traces], axis=0)
    seen = np.array([values(trace)[latest(trace, steps)] for trace in traces], dtype=np.float64)
    error = np.zeros_like(seen[0])
    if len(traces) > 1:
        error = seen.std(axis=0, ddof=1) / math.sqrt(len(traces))
    return Curve(steps, seconds, seen.mean(axis=0), error)


def latest(trace: Trace, steps: np.ndarray) -> np.ndarray:
    """The index of the last evaluation at or before each step."""
    found: np.ndarray = np.searchsorted(trace.steps, steps, side="right") - 1
    return found


def name_of(threshold: float) -> str:
    """``π/8`` and the like."""
    return f"π/{round(math.pi / threshold)}"
