"""The main path: prime, then refine (the paper's Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from primedpca.centred import Centred
from primedpca.engines.local import one_blas_thread
from primedpca.orthonormal import basis_of
from primedpca.prime import prime
from primedpca.priming import Exact, Given
from primedpca.protocols import Array
from primedpca.refine import decomposition, refine_span
from primedpca.result import Decomposition, Plan, Snapshot, Status

__all__ = ["Solution", "solve"]


@dataclass(frozen=True)
class Solution:
    """A decomposition, how it was reached, and what happened on the way."""

    decomposition: Decomposition
    status: Status
    passes: float
    history: list[dict[str, Any]]


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
) -> Solution:
    """Find the span, then the components in it."""
    history: list[dict[str, Any]] = []
    settled = False
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
            progress(row)
            settled = row.get("change", np.inf) <= tol
            if settled:
                break
        found = _refine(data, plan, snapshot, refine_share, seed)
    status = _status(plan, snapshot, settled, data.shape[1], refine_share)
    return Solution(found, status, data.passes, history)


def _row(snapshot: Snapshot, plan: Plan) -> dict[str, Any]:
    row: dict[str, Any] = {
        "step": snapshot.step,
        "passes": snapshot.passes,
        "seconds": snapshot.seconds,
    }
    if hasattr(plan.priming, "change"):
        row["change"] = float(plan.priming.change(snapshot.state)[: plan.n_components].max())
    return row


def _refine(
    data: Centred, plan: Plan, snapshot: Snapshot, share: float, seed: int
) -> Decomposition:
    k = plan.n_components
    if hasattr(plan.priming, "refined") and share == 1.0:
        basis, variances = plan.priming.refined(snapshot.state, data)
        return decomposition(data, basis[:, :k], variances)
    basis = basis_of(snapshot.directions)
    if isinstance(plan.priming, Given) and basis.shape[1] < k:
        raise ValueError(
            f"the directions given as `priming` span {basis.shape[1]} dimensions, too few for "
            f"`n_components`={k}; give more, or lower it."
        )
    return refine_span(data, basis, k, seed, share)


def _status(plan: Plan, snapshot: Snapshot, settled: bool, d: int, share: float) -> Status:
    if isinstance(plan.priming, Exact):
        return Status.EXACT if share == 1.0 else Status.FINISHED
    if plan.n_directions == d:
        return Status.CONVERGED  # the span is the whole space, and refining in it is exact
    if hasattr(plan.priming, "change"):
        return Status.CONVERGED if settled else Status.MAX_PASSES
    return Status.MAX_PASSES if getattr(snapshot.state, "unsettled", 0) else Status.FINISHED
