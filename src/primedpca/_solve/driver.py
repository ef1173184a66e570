"""The main path: prime, then refine (the paper's Algorithm 1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from primedpca._certify.certifiers import certified_exact, certified_krylov
from primedpca._certify.sketch_bounds import missed_by, refined_certificate, sketch_certificate
from primedpca._core.arrays import work_dtype
from primedpca._core.blas import one_blas_thread
from primedpca._core.orthonormal import basis_of, complete
from primedpca._core.parameters import DEFAULTS
from primedpca._operator.operator import Centred
from primedpca._planning.extra_directions import best_extra
from primedpca._solve.history import Listener, Record, silent
from primedpca._solve.prime import prime
from primedpca._solve.refine import decomposition, in_unit_of_data, refine_span
from primedpca._solve.solution import Solution
from primedpca.priming import BlockKrylov, Exact, FrequentDirections, Given, SubspaceIteration
from primedpca.protocols import Array
from primedpca.result import Certificate, Decomposition, Plan, Snapshot, Status

__all__ = ["solve"]


def solve(
    data: Centred,
    plan: Plan,
    *,
    tol: float,
    max_passes: int,
    batch_size: int,
    refine_share: float,
    seed: int,
    start: Array | None = None,
    progress: Listener = silent,
    wide: Centred | None = None,
    failure_probability: float = 0.0,
) -> Solution:
    """Find the span, then the components in it.

    With ``wide``, the same data multiplied in float64, also prove how wrong each may be: exact
    and block Krylov run on it from the start, anything else is followed by block Krylov.
    """
    journal = data.engine.journal
    history: list[dict[str, Any]] = [] if journal is None else journal.history
    record = Record(history, progress, rarely=plan.priming.visits == "batches")
    for seen in (data, wide):
        if seen is not None and plan.room is not None:
            seen.room = plan.room
    limits = {"max_passes": max_passes, "seed": seed}
    with one_blas_thread():
        if wide is not None and isinstance(plan.priming, (Exact, BlockKrylov)):
            proof = _Proof(wide, plan, tol, failure_probability, record)
            proof.run(start=start, **limits)
            return proof.solution(data, history)
        streamed = isinstance(plan.priming, FrequentDirections)
        seen = wide if streamed and wide is not None else data
        settled = floor = False
        for snapshot in _snapshots(seen, plan, batch_size, start, **limits):
            stopped = record(row := _row(snapshot, plan, seen))
            settled = row.get("change", np.inf) <= tol
            floor = not settled and _at_floor(history, data)
            if settled or floor or stopped or _spent(history, plan):
                break
        if isinstance(plan.priming, Given):
            _check_rank(snapshot, plan)
        if wide is not None:
            krylov = replace(plan, priming=BlockKrylov(max_basis=plan.max_basis))
            proof = _Proof(wide, krylov, tol, failure_probability, record)
            proof.before = row | {"passes": 0.0 if streamed else data.passes}
            if hasattr(plan.priming, "change") or streamed:  # others always run to their end
                limits["max_passes"] = max(1, max_passes - round(seen.passes))
            if not (streamed and proof.of_sketch(snapshot.state)):
                proof.run(start=snapshot.directions, **limits)
            return proof.solution(data, history)
        if not (settled or record.stopped) and _spent(history, plan):
            plan = replace(plan, priming=Exact(), n_directions=int(plan.n_components))
            *_, snapshot = prime(data, plan.priming, plan.n_directions)
        found = _refine(data, plan, snapshot, refine_share, seed)
    status = _status(plan, snapshot, settled, data.shape[1], refine_share)
    if status is Status.MAX_PASSES and (floor or record.stopped):
        status = Status.STALLED if floor else Status.STOPPED
    return Solution(found, status, data.passes, history)


def _snapshots(
    data: Centred,
    plan: Plan,
    batch_size: int,
    start: Array | None,
    max_passes: int,
    seed: int,
) -> Iterator[Snapshot]:
    """The priming, step by step.

    Subspace iteration looks at its Ritz values after two passes, if it may choose how many
    extra directions pay, and goes on with as many as they tell.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "random_state": seed}
    directions = plan.n_directions
    choosing = plan.overhead is not None and isinstance(plan.priming, SubspaceIteration)
    for snapshot in prime(
        data, plan.priming, directions, max_passes=max_passes, start=start, **options
    ):
        yield snapshot
        if choosing and snapshot.step == 2 < max_passes:
            k, values = int(plan.n_components), snapshot.state.variances
            extra = best_extra(values, k, "subspace_iteration", overhead=plan.overhead or 0.0)
            directions = min(k + extra, *data.shape)
            if directions != plan.n_directions:
                break
    else:
        return
    known, done = snapshot, snapshot.directions[:, :directions]
    for snapshot in prime(
        data, plan.priming, directions, max_passes=max_passes - 2, start=done, **options
    ):
        yield replace(
            snapshot, step=known.step + snapshot.step, seconds=known.seconds + snapshot.seconds
        )


def _spent(history: list[dict[str, Any]], plan: Plan) -> bool:
    """Whether a full decomposition would have been cheaper than going on."""
    return plan.patience is not None and len(history) >= plan.patience


def _at_floor(history: list[dict[str, Any]], data: Centred) -> bool:
    """Whether the change has come near to rounding and has not fallen in five passes."""
    changes = [row["change"] for row in history if "change" in row]
    if len(changes) < 8:
        return False
    before, lately = min(changes[:-5]), min(changes[-5:])
    eps = float(data.like.xp.finfo(data.like.dtype).eps)
    return before < 1e4 * eps and lately > 0.99 * before


class _Proof:
    """Components with a certificate, worked on until each is proven to lie within ``tol``."""

    def __init__(
        self,
        wide: Centred,
        plan: Plan,
        tol: float,
        failure_probability: float,
        record: Record,
    ) -> None:
        self.wide, self.plan, self.tol = wide, plan, tol
        self.failure_probability, self.record = failure_probability, record
        # What the cast to the type of the data may turn a component by.
        self.cast = 0.0 if work_dtype(wide.source.dtype) == "float64" else 2.0**-23
        self.reach = max(tol - self.cast, self.cast)
        self.counted, self.floor, self.exact = True, False, False
        self.before: dict[str, Any] = {"step": 0, "passes": 0.0, "seconds": 0.0}
        self.found: Decomposition
        self.certificate: Certificate
        self._missed: Callable[[tuple[Array, ...], float], float] | None = None

    def of_sketch(self, state: Any) -> bool:
        """Try what a sketch proves by itself, and after one more pass."""
        k, p = int(self.plan.n_components), self.plan.n_directions
        basis, variances, certificate = sketch_certificate(state, self.wide, k)
        if not certificate.met(self.reach).all():
            basis, variances, certificate = refined_certificate(state, self.wide, k, p)
        if certificate.met(self.reach).all():
            self.found = decomposition(self.wide, basis, variances)
            self.certificate = certificate
            return True
        self._missed = lambda basis, skew: missed_by(basis, state, self.wide, skew)
        return False

    def run(self, **options: Any) -> None:
        """A full decomposition, or block Krylov until all is proven."""
        if isinstance(self.plan.priming, Exact) or not self._krylov(**options):
            clock = time.perf_counter()
            self.found, self.certificate, self.counted = certified_exact(
                self.wide, self.plan.n_components
            )
            self.record(
                {
                    "step": self.before["step"] + 1,
                    "passes": self.wide.passes,
                    "seconds": self.before["seconds"] + time.perf_counter() - clock,
                    "angle_bounds": self.certificate.angle_bounds,
                    "counted_bounds": self.certificate.counted_bounds(),
                    "variances": self.found.explained_variance,
                },
                lambda: self.found,
            )
            self.exact = self.floor = True

    def _krylov(self, **options: Any) -> bool:
        """Block Krylov; whether it was not given up for a full decomposition."""
        krylov = replace(self.plan.priming, side="right")
        for certified in certified_krylov(
            self.wide,
            krylov,
            self.plan.n_components,
            self.plan.n_directions,
            failure_probability=self.failure_probability,
            missed=self._missed,
            **options,
        ):
            snapshot, certificate, evidence, self.counted = certified
            k = certificate.angle_bounds.size
            row = _row(snapshot, self.plan, self.wide)
            for name in ("step", "passes", "seconds"):
                row[name] += self.before[name]
            row["angle_bounds"] = certificate.angle_bounds
            row["counted_bounds"] = certificate.counted_bounds()
            row["variances"] = in_unit_of_data(self.wide, evidence.values[:k])
            find = partial(self._refined, krylov, snapshot, min(k, evidence.values.size))
            stopped = self.record(row, find)
            self.floor = certified.at_floor(self.reach)
            met = self.counted and bool(certificate.met(self.reach).all())
            if self.floor or met or stopped:
                break
            if self.plan.patience is not None and snapshot.step >= self.plan.patience:
                self.before = row
                return False
        # What nothing more comes out of has tied variances, which no pass tells apart.
        self.floor |= (met and self.reach > self.tol) or krylov.finished(snapshot.state)
        if isinstance(self.plan.n_components, float):  # of a share nothing is made up
            k = min(k, evidence.values.size)
        self.found = self._refined(krylov, snapshot, k)
        self.certificate = certificate.first(k)
        return True

    def _refined(self, krylov: BlockKrylov, snapshot: Snapshot, k: int) -> Decomposition:
        """The first ``k`` components that block Krylov has; of no variance, beyond those."""
        basis, variances = krylov.refined(snapshot.state._replace(n_directions=k), self.wide)
        basis = complete(basis, self.wide.like, k, 0)
        variances = np.concatenate([variances, np.zeros(max(0, k - variances.size))])
        return decomposition(self.wide, basis[:, :k], variances)

    def solution(self, data: Centred, history: list[dict[str, Any]]) -> Solution:
        """What was found, in the type of the data."""
        found, certificate = self.found, self.certificate
        if self.cast:
            certificate = certificate.rounded(self.cast)
            mean, components = data.narrow(found.mean), data.narrow(found.components)
            scale = None if found.scale is None else data.narrow(found.scale)
            found = replace(found, components=components, mean=mean, scale=scale)
        short = Status.STOPPED if self.record.stopped else Status.NOT_CERTIFIED
        short = Status.FLOOR if self.floor else short
        sharp = self.counted and _is_sharp(found, certificate)
        if self.exact and self.tol >= DEFAULTS["tol"] and sharp:
            short = Status.EXACT  # only ties, and variances that are lost in rounding
        proven = self.counted and certificate.met(self.tol).all()
        passes = data.passes + self.wide.passes
        return Solution(found, Status.CERTIFIED if proven else short, passes, history, certificate)


def _is_sharp(found: Decomposition, certificate: Certificate) -> bool:
    """Whether rounding leaves the variances known to a small part of their sum."""
    low, high = certificate.eigenvalue_bounds.T
    return bool((high - low <= 1e-6 * found.total_variance).all())


def _row(snapshot: Snapshot, plan: Plan, data: Centred) -> dict[str, Any]:
    row: dict[str, Any] = {
        "step": snapshot.step,
        "passes": snapshot.passes,
        "seconds": snapshot.seconds,
    }
    if not hasattr(plan.priming, "change") or isinstance(plan.n_components, float):
        return row
    change = float(plan.priming.change(snapshot.state)[: plan.n_components].max())
    if np.isfinite(change):
        row["change"] = change
    variances = getattr(snapshot.state, "variances", None)
    if variances is not None and variances.size:
        row["variances"] = in_unit_of_data(data, variances[: plan.n_components])
    return row


def _refine(
    data: Centred, plan: Plan, snapshot: Snapshot, share: float, seed: int
) -> Decomposition:
    k = int(plan.n_components)  # a share is proven, not refined
    if hasattr(plan.priming, "refined") and share == 1.0:
        basis, variances = plan.priming.refined(snapshot.state, data)
        return decomposition(data, basis[:, :k], variances)
    return refine_span(data, basis_of(snapshot.directions), k, seed, share)


def _check_rank(snapshot: Snapshot, plan: Plan) -> None:
    rank = basis_of(snapshot.directions).shape[1]
    if rank < plan.n_components:
        raise ValueError(
            f"the directions given as `priming` span {rank} dimensions, too few for "
            f"`n_components`={plan.n_components}; give more, or lower it."
        )


def _status(plan: Plan, snapshot: Snapshot, settled: bool, d: int, share: float) -> Status:
    if isinstance(plan.priming, Exact):
        return Status.EXACT if share == 1.0 else Status.FINISHED
    if plan.n_directions == d:
        return Status.CONVERGED  # the span is the whole space, and refining in it is exact
    if hasattr(plan.priming, "change"):
        return Status.CONVERGED if settled else Status.MAX_PASSES
    if not hasattr(snapshot.state, "unsettled"):
        return Status.FINISHED
    first = snapshot.state.unsettled  # counted from 1; those beyond k do not matter
    return Status.MAX_PASSES if 0 < first <= plan.n_components else Status.CONVERGED
