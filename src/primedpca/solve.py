"""The main path: prime, then refine (the paper's Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from primedpca.centred import Centred
from primedpca.certify import certified_exact, certified_krylov
from primedpca.engines.local import one_blas_thread
from primedpca.orthonormal import basis_of, complete
from primedpca.prime import prime
from primedpca.priming import BlockKrylov, Exact, Given
from primedpca.protocols import Array
from primedpca.refine import decomposition, in_unit_of_data, refine_span
from primedpca.result import Certificate, Decomposition, Plan, Snapshot, Status

__all__ = ["Solution", "print_row", "solve"]


@dataclass(frozen=True)
class Solution:
    """A decomposition, how it was reached, and what happened on the way."""

    decomposition: Decomposition
    status: Status
    passes: float
    history: list[dict[str, Any]]
    certificate: Certificate | None = None

    def shortfall(self, tol: float) -> str:
        """The status, and the components that are not proven."""
        if self.certificate is None:
            return str(self.status)
        short = np.flatnonzero(~self.certificate.met(tol))
        if short.size == 0:
            return f"{self.status} How many components are needed is not proven."
        names = ", ".join(map(str, short[:8])) + (" ..." if short.size > 8 else "")
        words = f"{self.status} Not proven: component(s) {names}, counted from 0."
        bound = float(self.certificate.angle_bounds[short].max())
        return words if bound >= np.pi / 2 else f"{words} They are within {bound:.2g} rad."


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
    progress: Callable[[dict[str, Any]], None] = lambda row: None,
    wide: Centred | None = None,
    failure_probability: float = 0.0,
) -> Solution:
    """Find the span, then the components in it.

    With ``wide``, the same data multiplied in float64, also prove how wrong each may be: exact
    and block Krylov run on it from the start, anything else is followed by block Krylov.
    """
    history: list[dict[str, Any]] = []
    settled, shown = False, 0.0
    if wide is not None and isinstance(plan.priming, (Exact, BlockKrylov)):
        options = {"max_passes": max_passes, "seed": seed, "start": start}
        return _prove(data, wide, plan, tol, failure_probability, history, progress, **options)
    with one_blas_thread():
        for snapshot in prime(
            data,
            plan.priming,
            plan.n_directions,
            batch_size=batch_size,
            max_passes=max_passes,
            random_state=seed,
            start=start,
        ):
            row = _row(snapshot, plan)
            history.append(row)
            if int(snapshot.passes) > int(shown):
                progress(row)
            shown = snapshot.passes
            settled = row.get("change", np.inf) <= tol
            if settled:
                break
        if isinstance(plan.priming, Given):
            _check_rank(snapshot, plan)
        if wide is not None:
            left = max(1, max_passes - round(data.passes)) if settled else max_passes
            options = {"max_passes": left, "seed": seed, "start": snapshot.directions}
            krylov = replace(plan, priming=BlockKrylov())
            return _prove(
                data, wide, krylov, tol, failure_probability, history, progress, **options
            )
        found = _refine(data, plan, snapshot, refine_share, seed)
    status = _status(plan, snapshot, settled, data.shape[1], refine_share)
    return Solution(found, status, data.passes, history)


def _prove(
    data: Centred,
    wide: Centred,
    plan: Plan,
    tol: float,
    failure_probability: float,
    history: list[dict[str, Any]],
    progress: Callable[[dict[str, Any]], None],
    **options: Any,
) -> Solution:
    """Go on until every component is proven to lie within ``tol``."""
    # What the cast to the type of the data may turn a component by.
    cast = 0.0 if data.like.dtype == wide.like.dtype else 2.0**-23
    reach = max(tol - cast, cast)
    with one_blas_thread():
        if isinstance(plan.priming, Exact):
            found, certificate = certified_exact(wide, plan.n_components)
            floor = counted = True
        else:
            krylov = replace(plan.priming, side="right")
            for certified in certified_krylov(
                wide,
                krylov,
                plan.n_components,
                plan.n_directions,
                failure_probability=failure_probability,
                **options,
            ):
                snapshot, certificate, evidence, counted = certified
                k = certificate.angle_bounds.size
                row = _row(snapshot, plan)
                row["angle_bounds"] = certificate.angle_bounds
                row["variances"] = in_unit_of_data(wide, evidence.values[:k])
                history.append(row)
                progress(row)
                floor = certified.at_floor(reach)
                if floor or (counted and certificate.met(reach).all()):
                    break
            if isinstance(plan.n_components, float):  # of a share nothing is made up
                k = min(k, evidence.values.size)
                certificate = certificate.first(k)
            state = snapshot.state._replace(n_directions=k)
            basis, variances = krylov.refined(state, wide)
            basis = complete(basis, wide.like, k, 0)
            variances = np.concatenate([variances, np.zeros(max(0, k - variances.size))])
            found = decomposition(wide, basis[:, :k], variances)
    if cast:
        certificate = certificate.rounded(cast)
        mean, components = data.narrow(found.mean), data.narrow(found.components)
        scale = None if found.scale is None else data.narrow(found.scale)
        found = replace(found, components=components, mean=mean, scale=scale)
    short = Status.FLOOR if floor else Status.NOT_CERTIFIED
    status = Status.CERTIFIED if counted and certificate.met(tol).all() else short
    return Solution(found, status, data.passes + wide.passes, history, certificate)


def _row(snapshot: Snapshot, plan: Plan) -> dict[str, Any]:
    row: dict[str, Any] = {
        "step": snapshot.step,
        "passes": snapshot.passes,
        "seconds": snapshot.seconds,
    }
    if hasattr(plan.priming, "change") and not isinstance(plan.n_components, float):
        row["change"] = float(plan.priming.change(snapshot.state)[: plan.n_components].max())
    return row


def print_row(row: dict[str, Any]) -> None:
    """A line on where a fit stands."""
    change = f", change {row['change']:.2e} rad" if "change" in row else ""
    bound = f", proven {row['angle_bounds'].max():.2e} rad" if "angle_bounds" in row else ""
    step = f"step {row['step']}, {row['passes']:.1f} passes, {row['seconds']:.2f} s"
    print(f"primedpca: {step}{change}{bound}")


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
    return Status.MAX_PASSES if snapshot.state.unsettled else Status.CONVERGED
