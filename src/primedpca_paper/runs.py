"""The runs behind the tables: choose each priming's setting, time it, and time our methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.parameters import DEFAULTS
from primedpca._planning.plan import make_plan
from primedpca._solve.driver import Goal, solve
from primedpca.priming import BlockKrylov, Exact
from primedpca.protocols import Array
from primedpca_paper.arena import Arena
from primedpca_paper.datasets import load_set
from primedpca_paper.lockstep import Batches, LockstepPower, LockstepSGD
from primedpca_paper.protocol import (
    BATCH,
    EXTRAS,
    N_COMPONENTS,
    OURS,
    THRESHOLDS,
    Protocol,
    epoch_of,
    priming_of,
)
from primedpca_paper.records import Records, Row, Run, streak_of
from primedpca_paper.selection import angular_errors, best_setting
from primedpca_paper.sensitivity import chosen_by_length

__all__ = ["EPSILONS", "FACTORS", "K5", "Runner", "rows_at"]

#: Data of the paper's figure 3: the exponential set with five components.
K5 = "exponential-k5"
#: Tolerances of the power method beside the one that the rule chooses: the next of the paper's
#: grid, and some between the two.
EPSILONS = (5e-4, 2e-4, 1e-4)
#: Rates between the two best of the paper's grid, over the smaller one: those of a gradient with
#: another factor, which the paper does not state.
FACTORS = (2.0, 5.0)
#: Most entries gathered for one step of runs in lockstep; more are split by seeds.
GATHERED = {"cpu": 2**22, "cuda": 2**28}


class Runner:
    """Runs that a results folder lacks.

    Parameters
    ----------
    records : Records
        Timed runs.
    selection : Records
        Runs of the grid, from which the settings are chosen.
    protocol : Protocol
        Settings, steps and repeats.
    device : str, default="cpu"
        ``"cpu"`` or a CUDA device.
    folder : Path, optional
        Folder of the data sets.
    progress : callable, optional
        Function that is called with a sentence on each step of the work.
    """

    def __init__(
        self,
        records: Records,
        selection: Records,
        protocol: Protocol,
        device: str = "cpu",
        folder: Path | None = None,
        progress: Callable[[str], None] = lambda words: None,
    ) -> None:
        self.records, self.selection, self.protocol = records, selection, protocol
        self.device, self.folder, self.progress = device, folder, progress
        self._arena: Arena | None = None

    def arena(self, name: str) -> Arena:
        """Return the set, read and solved exactly; only the latest one is kept in memory."""
        if self._arena is None or self._arena.name != name:
            self._arena = None
            self.progress(f"{name}: reading, and solving exactly in float64")
            k = 5 if name == K5 else N_COMPONENTS
            data = load_set("exponential" if name == K5 else name, self.folder)
            self._arena = Arena(data, self.device, k)
            self._arena.name = name
            self.records.note_data(name, self._arena.shape, data.origin)
        return self._arena

    def run(self, name: str, method: str) -> None:
        """Run everything that the tables need of one method on one set."""
        if method in OURS:
            self._own(name, method)
        else:
            setting = self.best(name, method)
            self._timed(name, method, setting)

    def run_other_settings(self, name: str, method: str) -> None:
        """Run the settings that the paper may have used in place of ours.

        For a stochastic priming they are those that its rule chooses if runs are shorter, the
        second best of the grid and, not timed, :data:`FACTORS` times the smaller of the two best;
        for the power method :data:`EPSILONS`, not timed.
        """
        if method == "power_method":
            self._refined_power(name)
            return
        self.best(name, method)
        rows = [row for row in self.selection.rows() if row.run[:2] == (name, method)]
        errors = angular_errors(rows)[name, method]
        two = sorted(errors, key=lambda setting: (errors[setting], -setting))[:2]
        for setting in dict.fromkeys([*chosen_by_length(rows, name, method).values(), *two]):
            self._timed(name, method, setting)
        n, d = self.arena(name).shape
        gathered = min(BATCH, n) * d * self.protocol.repeats
        if gathered <= GATHERED["cpu" if self.device == "cpu" else "cuda"]:
            self.run_at(name, method, [min(two) * factor for factor in FACTORS])

    # -- the best setting --------------------------------------------------------------------

    def best(self, name: str, method: str) -> float:
        """Return the setting with the least angular error, running what the grid lacks."""
        if name == K5:
            name = "exponential"
        settings = self.protocol.settings[name, method]
        seeds = range(self.protocol.repeats)
        runs = [Run(name, method, setting, 0, seed) for setting in settings for seed in seeds]
        missing = [run for run in runs if not self.selection.has(run)]
        if missing:
            self.progress(f"{name}, {method}: {len(missing)} runs to choose a setting")
            search = self._search_power if method == "power_method" else self._search_sgd
            search(name, method, missing)
        rows = (row for run in runs for row in self.selection.read(run))
        return best_setting(rows, name, method)

    def _search_sgd(self, name: str, method: str, missing: list[Run]) -> None:
        arena, steps = self.arena(name), self.protocol.steps[name, method]
        n, d = arena.shape
        settings = sorted({run.setting for run in missing}, reverse=True)
        seeds = sorted({run.seed for run in missing})
        kind = "cpu" if self.device == "cpu" else "cuda"
        together = max(1, GATHERED[kind] // (min(BATCH, n) * d))
        for i in range(0, len(seeds), together):
            batches = Batches(n, BATCH, seeds[i : i + together])
            priming = priming_of(method, settings[0], steps)
            many = LockstepSGD(
                arena.rows, arena.like, priming, settings, arena.n_components, batches
            )
            rows: dict[Run, list[Row]] = {}
            for step in self.protocol.evaluations(name, method, epoch_of(n)):
                many.run_to(int(step))
                angles = arena.angles(many.vectors)
                for j, seed in enumerate(batches.seeds):
                    for g, setting in enumerate(settings):
                        run = Run(name, method, setting, 0, seed)
                        rows.setdefault(run, []).append(_chosen_by(run, step, angles[j, g]))
            for run, found in rows.items():
                self.selection.write(run, found)

    def _search_power(self, name: str, method: str, missing: list[Run]) -> None:
        arena = self.arena(name)
        many = LockstepPower(
            arena.rows[:-1],
            arena.like,
            [run.setting for run in missing],
            arena.n_components,
            [run.seed for run in missing],
        )
        rows: dict[Run, list[Row]] = {run: [] for run in missing}
        for step in self.protocol.evaluations(name, method):
            many.run_to(int(step))
            angles, found = arena.angles(many.vectors), many.found.tolist()
            for i, run in enumerate(missing):
                angles[i, found[i] + 1 :] = np.pi / 2  # components not begun yet
                rows[run].append(_chosen_by(run, step, angles[i]))
            if many.finished.all():
                break
        for run, held in rows.items():
            self.selection.write(run, held)

    # -- the timed runs ----------------------------------------------------------------------

    def _timed(self, name: str, method: str, setting: float) -> None:
        extras = (0,) if method == "power_method" or name == K5 else EXTRAS
        for extra in extras:
            for seed in range(self.protocol.repeats):
                run = Run(name, method, setting, extra, seed)
                if not self.records.has(run):
                    self.progress(f"{name}, {method} {setting:g}, l={extra}, run {seed + 1}")
                    follow = self._power if method == "power_method" else self._sgd
                    self.records.write(run, follow(self.arena(name), run))

    def _sgd(self, arena: Arena, run: Run) -> Iterator[Row]:
        pair = ("exponential" if run.dataset == K5 else run.dataset, run.method)
        priming = priming_of(run.method, run.setting, self.protocol.steps[pair])
        one = LockstepSGD(
            arena.rows,
            arena.like,
            priming,
            (run.setting,),
            arena.n_components + run.extra,
            Batches(arena.shape[0], BATCH, (run.seed,)),
        )
        for step in self.protocol.evaluations(*pair, epoch_of(arena.shape[0])):
            one.run_to(int(step))
            yield from rows_at(arena, run, int(step), one.clock.seconds, one.vectors[0, 0])

    def _power(self, arena: Arena, run: Run) -> Iterator[Row]:
        k = arena.n_components
        one = LockstepPower(arena.rows[:-1], arena.like, (run.setting,), k, (run.seed,))
        for step in self.protocol.evaluations(run.dataset, run.method):
            one.run_to(int(step))
            begun = min(int(one.found[0]) + 1, k)
            yield from rows_at(arena, run, int(step), one.clock.seconds, one.vectors[0, :, :begun])
            if one.finished.all():
                return

    def run_at(
        self,
        name: str,
        method: str,
        rates: Sequence[float],
        kind: type[Batches] = Batches,
    ) -> None:
        """Run and refine a stochastic priming at these rates, in lockstep and not timed.

        Parameters
        ----------
        name, method : str
            Set and priming.
        rates : sequence of float
            Learning rates.
        kind : type, default=Batches
            How mini-batches are drawn.
        """
        arena, seeds = self.arena(name), range(self.protocol.repeats)
        n = arena.shape[0]
        steps = self.protocol.steps[name, method]
        for extra in EXTRAS:
            if all(self.records.has(Run(name, method, r, extra, s)) for r in rates for s in seeds):
                continue
            self.progress(f"{name}, {method}, l={extra}: {len(rates)} other rates")
            priming, batches = priming_of(method, rates[0], steps), kind(n, BATCH, seeds)
            width = arena.n_components + extra
            many = LockstepSGD(arena.rows, arena.like, priming, rates, width, batches)
            rows: dict[Run, list[Row]] = {}
            for step in self.protocol.evaluations(name, method, epoch_of(n)):
                many.run_to(int(step))
                for j, seed in enumerate(seeds):
                    for g, rate in enumerate(rates):
                        run = Run(name, method, rate, extra, seed)
                        found = rows_at(arena, run, int(step), np.nan, many.vectors[j, g])
                        rows.setdefault(run, []).extend(found)
            for run, held in rows.items():
                self.records.write(run, held)

    def _refined_power(self, name: str) -> None:
        """Run and refine the power method at :data:`EPSILONS`, in lockstep and not timed."""
        seeds = range(self.protocol.repeats)
        runs = [Run(name, "power_method", tol, 0, seed) for tol in EPSILONS for seed in seeds]
        runs = [run for run in runs if not self.records.has(run)]
        if not runs:
            return
        self.progress(f"{name}, power_method: {len(runs)} runs at other tolerances")
        arena = self.arena(name)
        tolerances, starts = [run.setting for run in runs], [run.seed for run in runs]
        many = LockstepPower(arena.rows[:-1], arena.like, tolerances, arena.n_components, starts)
        rows: dict[Run, list[Row]] = {run: [] for run in runs}
        ended: set[Run] = set()
        for step in self.protocol.evaluations(name, "power_method"):
            many.run_to(int(step))
            for i, count in enumerate(many.found.tolist()):
                if runs[i] not in ended:
                    begun = many.vectors[i][:, : min(count + 1, arena.n_components)]
                    rows[runs[i]] += rows_at(arena, runs[i], int(step), np.nan, begun)
                    if count >= arena.n_components:
                        ended.add(runs[i])
            if len(ended) == len(runs):
                break
        for run, found in rows.items():
            self.records.write(run, found)

    # -- our own methods ---------------------------------------------------------------------

    def _own(self, name: str, method: str) -> None:
        targets = (0.0,) if method == "exact" else THRESHOLDS
        for tol in targets:
            for seed in range(self.protocol.repeats):
                run = Run(name, method, tol, 0, seed)
                if self.records.has(run):
                    continue
                arena = self.arena(name)
                if seed == 0 and tol == targets[0]:
                    self.progress(f"{name}, {method}")
                    self._solve(arena, run)  # untimed, so that libraries are loaded
                self.records.write(run, [self._solve(arena, run)])

    def _solve(self, arena: Arena, run: Run) -> Row:
        proven = run.method == "certified"
        tol = run.setting or DEFAULTS["tol"]
        arena.wait()
        start = time.perf_counter()
        data = arena.fresh()
        options: dict[str, Any] = {"extra_components": "auto", "tol": tol, "proven": proven}
        plan = make_plan(data, arena.n_components, "auto", **options)
        if not proven:  # the cheapest way of this kind
            kind = {"exact": Exact, "block_krylov": BlockKrylov}[run.method]
            ways = [way.priming for way in plan.ways if isinstance(way.priming, kind)]
            priming = ways[0] if ways else kind()
            plan = make_plan(data, arena.n_components, priming, **options)
        goal = Goal(tol=tol, max_passes=200, batch_size=BATCH, seed=run.seed, proven=proven)
        solution = solve(data, plan, goal)
        arena.wait()
        seconds = time.perf_counter() - start
        found = solution.decomposition
        step = max(1, round(solution.passes))
        angles = arena.angles(found.components.T)
        return _row(run, True, step, seconds, angles, found.explained_variance)


def _chosen_by(run: Run, step: Any, angles: np.ndarray) -> Row:
    """Return a row of the search for a setting, which is not timed."""
    return _row(run, False, int(step), np.nan, angles, np.full(N_COMPONENTS, np.nan))


def _row(
    run: Run, refined: bool, step: int, seconds: float, angles: Any, variances: Any, **more: Any
) -> Row:
    """Return a row whose lists are padded to the length that all rows have."""
    angles, variances = (
        np.pad(np.asarray(part, dtype=float), (0, N_COMPONENTS - len(part)), constant_values=np.nan)
        for part in (angles, variances)
    )
    return Row(run, refined, step, seconds, angles, variances, **more)


def rows_at(arena: Arena, run: Run, step: int, seconds: float, directions: Array) -> Iterator[Row]:
    """Yield the row of the priming's directions and the row after refining."""
    k = arena.n_components
    finite = bool(arena.like.xp.all(arena.like.xp.isfinite(directions)))
    unknown = np.full(k, np.nan)
    if not finite:
        nothing = np.full(k, np.pi / 2)
        kinds = (False, True) if run.extra == 0 else (True,)
        yield from (_row(run, kind, step, seconds, nothing, unknown) for kind in kinds)
        return
    begun = min(k, directions.shape[1])
    raw = np.full(k, np.pi / 2)
    if run.extra == 0:
        raw[:begun] = arena.angles(directions)
        unknown[:begun] = arena.variances(directions)
        yield _row(run, False, step, seconds, raw, unknown)
    found, cost = arena.refine(directions, run.seed)
    refined = arena.angles(found.components.T)
    more: dict[str, Any] = {}
    if run.extra == 0:
        more["promised"] = _promised(arena, directions, raw, refined)
    more["refining"] = cost
    yield _row(run, True, step, seconds + cost, refined, found.explained_variance, **more)


def _promised(arena: Arena, directions: Array, raw: np.ndarray, refined: np.ndarray) -> np.ndarray:
    """Return the streaks that condition (b) guarantees where refining shortened a streak."""
    lost = np.array([streak_of(refined, v) < streak_of(raw, v) for v in THRESHOLDS])
    promised = np.full(len(THRESHOLDS), np.nan)
    if lost.any():
        bounds = arena.promised(directions)
        promised[lost] = [streak_of(bounds, v) for v in np.array(THRESHOLDS)[lost]]
    return promised
