"""A results folder arranged for tables and figures: one trace for each run of a line."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from primedpca_paper.datasets import SHAPES, TITLES
from primedpca_paper.protocol import EXTRAS, N_COMPONENTS, PAPERS, epoch_of
from primedpca_paper.records import Records, Row
from primedpca_paper.selection import angular_errors

__all__ = ["ALONE", "Curve", "Results", "Summary", "Trace", "curve", "name_of", "titled"]

#: Value of ``l`` for the priming alone, not refined.
ALONE = None
Kind = tuple[str, str, int, bool]  # set, method, l, refined


class Trace(NamedTuple):
    """One run with its ``m`` evaluations."""

    seed: int
    steps: np.ndarray  # (m,)
    seconds: np.ndarray  # (m,)
    angles: np.ndarray  # (m, k)
    variances: np.ndarray  # (m, k)
    promised: np.ndarray  # (m, n_thresholds)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Trace:
        """Make a trace of the rows of one run, in any order."""
        rows = sorted(rows, key=lambda row: row.step)
        return cls(
            rows[0].run.seed,
            np.array([row.step for row in rows], dtype=np.float64),
            _clock(rows),
            np.array([row.angles for row in rows]),
            np.array([row.variances for row in rows]),
            np.array([row.promised for row in rows]),
        )

    def streaks(self, threshold: float) -> np.ndarray:
        """Return the longest correct streak at each evaluation, ``(m,)``."""
        found: np.ndarray = np.cumprod(self.angles < threshold, axis=1).sum(axis=1)
        return found

    def reached(self, threshold: float) -> int | None:
        """Return the index of the first evaluation with a full streak, or ``None``."""
        full = np.flatnonzero(self.streaks(threshold) >= N_COMPONENTS)
        return int(full[0]) if full.size else None

    def held(self, threshold: float, ended: bool = False) -> int | None:
        """Return the index from which on every evaluation has a full streak, or ``None``.

        A streak that is full at the last of several evaluations only is not held: no later one
        confirms it.  The run of a method that has ``ended`` by itself has no later one, and its
        last evaluation is its answer.
        """
        short = np.flatnonzero(self.streaks(threshold) < N_COMPONENTS)
        first = int(short[-1]) + 1 if short.size else 0
        last = len(self.steps) - 1
        return first if first < last or (first == last and (ended or last == 0)) else None

    def only(self, chosen: np.ndarray) -> Trace:
        """Return the trace with some of its evaluations."""
        return Trace(self.seed, *(part[chosen] for part in self[1:]))


def _clock(rows: Sequence[Row]) -> np.ndarray:
    """Return the time of each evaluation.

    Every evaluation of a run refines once, and the seconds of these refinings scatter.  The
    median of the run is added to all of its times, so that they grow with the steps.
    """
    seconds = np.array([row.seconds for row in rows])
    refining = np.array([row.refining for row in rows])
    if np.isnan(refining).any():
        return seconds
    clock: np.ndarray = np.maximum.accumulate(seconds - refining) + np.median(refining)
    return clock


class Summary(NamedTuple):
    """Mean and standard deviation (with n - 1) over runs; NaN if a run missed the streak."""

    mean: float
    spread: float
    runs: int
    reached: int

    @property
    def known(self) -> bool:
        """Whether every run reached the streak and was timed."""
        return math.isfinite(self.mean)


class Results:
    """Measurements at the best setting of each priming.

    Parameters
    ----------
    records : Records
        Timed runs.
    selection : Records, optional
        Runs of the grid, from which the best settings are chosen.  A set and method without such
        runs must have been run at one setting only.
    """

    def __init__(self, records: Records, selection: Records | None = None) -> None:
        self.machine, self.about = records.machine, records.settings
        self.data = records.data
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

    def per_epoch(self, dataset: str, method: str) -> int | None:
        """Return the number of steps in an epoch; ``None`` if the folder does not tell."""
        if method == "power_method":
            return 1
        about = self.data.get(dataset)
        return epoch_of(about["n"]) if about else None

    def title(self, dataset: str) -> str:
        """Return the name of a set with its shape, and its file if that is not the paper's set."""
        return titled(dataset, self.data)

    def length(self, dataset: str, method: str) -> int | None:
        """Return the number of steps of the longest run; ``None`` if nothing was run."""
        traces = self.traces(dataset, method, ALONE)
        return int(max(trace.steps[-1] for trace in traces)) if traces else None

    def setting(self, dataset: str, method: str) -> float | None:
        """Return the best setting, or ``None`` if nothing was run.

        A set that was run with another ``k`` ("exponential-k5") uses the setting of the set itself.
        """
        for name in (dataset, dataset.split("-k")[0]):
            errors = self.errors.get((name, method))
            if errors:
                return min(errors, key=lambda setting: (errors[setting], -setting))
        found = self.settings_run(dataset, method)
        if len(found) > 1:
            raise ValueError(
                f"{method!r} was run on {dataset!r} at the settings {sorted(found)}, without a "
                "selection to choose the best one from. Pass the folder of the grid."
            )
        return found.pop() if found else None

    def settings_run(self, dataset: str, method: str) -> set[float]:
        """Return all settings of the runs of a set and method."""
        kinds = [kind for kind in self._traces if kind[:2] == (dataset, method)]
        return {setting for kind in kinds for setting in self._traces[kind]}

    def traces(self, dataset: str, method: str, extra: int | None) -> list[Trace]:
        """Return the runs of a priming of the paper, alone or as pPCA with ``extra`` directions."""
        setting = self.setting(dataset, method)
        if setting is None:
            return []
        return self.at((dataset, method, extra or 0, extra is not ALONE), setting)

    def answers(self, dataset: str, method: str, threshold: float) -> list[Trace]:
        """Return the runs of one of our methods with the tolerance ``threshold``."""
        kind = (dataset, method, 0, True)
        # A full decomposition has no tolerance: its setting is 0.
        return self.at(kind, threshold) or self.at(kind, 0.0)

    def at(self, kind: Kind, setting: float) -> list[Trace]:
        """Return the runs of a line at one setting."""
        for found, traces in self._traces.get(kind, {}).items():
            # Files hold six digits of a setting, so that equality would be too strict.
            if math.isclose(found, setting, rel_tol=1e-4):
                return traces
        return []

    def time(
        self,
        dataset: str,
        method: str,
        extra: int | None,
        threshold: float,
        unit: str = "seconds",
        rule: str = "reached",
    ) -> Summary | None:
        """Return the ``unit`` ("seconds" or "steps") to a full streak; ``None`` if not run.

        The ``rule`` "reached" takes the first evaluation with a full streak, "held" the one from
        which on all have it, and "ends" the same among the ends of epochs.
        """
        if method in PAPERS:
            traces = self.traces(dataset, method, extra)
        else:
            traces = self.answers(dataset, method, threshold)
        if rule == "ends" and method in PAPERS:
            per_epoch = self.per_epoch(dataset, method)
            if per_epoch is None:
                return None
            traces = [trace.only(trace.steps % per_epoch == 0) for trace in traces]
        if not traces:
            return None
        ended = method == "power_method"  # stops when its components have converged
        seen = [
            (trace, trace.reached(threshold) if rule == "reached" else trace.held(threshold, ended))
            for trace in traces
        ]
        values = [getattr(trace, unit)[at] for trace, at in seen if at is not None]
        if len(values) < len(traces):
            return Summary(math.nan, math.nan, len(traces), len(values))
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        return Summary(float(np.mean(values)), spread, len(values), len(values))

    def best(
        self, dataset: str, method: str, threshold: float, unit: str = "seconds"
    ) -> tuple[int, Summary] | None:
        """Return the ``l`` of the fastest pPCA and its time; ``None`` if none had the streak."""
        found = [(extra, self.time(dataset, method, extra, threshold, unit)) for extra in EXTRAS]
        known = [(extra, time) for extra, time in found if time is not None and time.known]
        return min(known, key=lambda pair: pair[1].mean, default=None)


class Curve(NamedTuple):
    """Mean over runs and its standard error at ``m`` points."""

    steps: np.ndarray
    seconds: np.ndarray
    mean: np.ndarray
    error: np.ndarray


def curve(
    traces: Sequence[Trace],
    values: Callable[[Trace], np.ndarray],
    steps: np.ndarray | None = None,
) -> Curve:
    """Return the mean of ``values(trace)`` over runs.

    Parameters
    ----------
    traces : sequence of Trace
        Runs, at least one.
    values : callable
        Function of a trace that returns a value, or an array, for each of its evaluations.
    steps : ndarray of shape (m,), optional
        Steps of the curve, by default every step at which some run was evaluated.

    Notes
    -----
    At each step a run counts with its latest evaluation.  The seconds of a point are the mean
    over runs of the time of that step.
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
    """Return the index of the last evaluation at or before each step."""
    found: np.ndarray = np.searchsorted(trace.steps, steps, side="right") - 1
    return found


def name_of(threshold: float) -> str:
    """Return a threshold as text, such as ``π/8``."""
    return f"π/{round(math.pi / threshold)}"


def titled(dataset: str, data: dict[str, dict[str, Any]]) -> str:
    """Return the name of a set with its shape, and its file if that is not the paper's set."""
    about = data.get(dataset)
    if not about:
        return TITLES[dataset]
    n, d = about["n"], about["d"]
    other = "" if (n, d) == SHAPES[dataset] else f"stand-in {about['origin']}, "
    return f"{TITLES[dataset]} ({other}{n:,} × {d:,})"
