"""Apply ``max_memory`` to a priming that the user has chosen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from primedpca._core.wording import memory_words
from primedpca._planning.costs import ALLOCATOR, Load, exact_way, explicit_way, krylov_way
from primedpca.result import Plan
from primedpca.sources.base import GROUP_BYTES

__all__ = ["within_budget"]


def within_budget(
    plan: Plan, load: Load, budget: float, *, tol: float, proven: bool, batch_size: int
) -> Plan:
    """Return the plan with its basis, and the rows that it holds, limited to the budget.

    Parameters
    ----------
    plan : Plan
        Plan with any priming and an integer number of components.
    load : Load
        Sizes and rates of the data.
    budget : float
        Limit on memory in bytes.
    tol : float
        Target angle in radians.
    proven : bool
        Whether a certificate is made.
    batch_size : int
        Rows of a mini-batch.

    Raises
    ------
    ValueError
        If the priming or its certificate needs more memory.
    """
    if budget == math.inf:
        return plan
    p, priming = plan.n_directions, plan.priming
    kind = priming.traits.certifier
    if kind == "exact":
        way = exact_way(load, p, budget)
        _check(way.memory, budget, "a full decomposition", "Raise it, or use `priming`='auto'")
        return replace(plan, room=way.room)
    if kind == "probes" and priming.explicit:
        way = explicit_way(load, p, priming.block_size or p, tol, proven, budget)
        _check(way.memory, budget, way.name, "Raise it, or use `priming`='auto'")
        return replace(plan, room=way.room)
    if kind == "probes":
        way = krylov_way(load, p, priming.block_size or p, priming.side, tol, proven, budget)
        _check(way.memory, budget, way.name, "Raise it, or lower `block_size`")
        # The smaller of the user's limit and the one that fits.
        most = [size for size in (priming.max_basis, way.priming.max_basis) if size is not None]
        return replace(plan, priming=replace(priming, max_basis=min(most, default=None)))
    name = type(priming).__name__
    memory = _memory(priming, load, p, batch_size)
    smaller = "Raise it, or lower `batch_size` or `n_components`"
    if not proven:
        _check(memory, budget, name, smaller)
        return plan
    # The certificate is made by block Krylov, started from the directions found.
    start = 8.0 * load.d * p
    way = krylov_way(load, p, p, "right", tol, proven, budget - start)
    # The larger of the two, so that the number stated is enough for both.
    needed = max(memory, way.memory + start)
    what = name if needed == memory else f"the certificate after {name}"
    remedy = "Raise it, or set `certificate`='none'" if memory <= budget else smaller
    _check(needed, budget, what, remedy)
    return replace(plan, max_basis=way.priming.max_basis)


def _memory(priming: Any, load: Load, p: int, batch_size: int) -> float:
    """Estimate the bytes besides the data, without the memory of a user's own function."""
    # Three copies of a group of rows: as read from the blocks, joined, and reordered.
    group = min(GROUP_BYTES / 8 * load.stored / (load.n * load.d), load.stored)
    gathered = 3 * group if load.rate < math.inf else 0.0
    batch = 4.0 * load.item * load.d * min(batch_size, load.n) + gathered
    if priming.traits.certifier == "sketch":
        size = priming.sketch_size or max(2 * p, 64)
        return ALLOCATOR * (14 * 8.0 * load.d * size + batch + load.buffers)
    vectors = (6 * load.item + 8 * (load.busy + 3)) * float(load.d) * p
    more = batch if priming.visits == "batches" else 0.0
    return ALLOCATOR * (vectors + more + load.buffers)


def _check(memory: float, budget: float, what: str, remedy: str) -> None:
    if memory > budget:
        raise ValueError(
            f"`max_memory`={memory_words(budget)} is less than the {memory_words(memory, up=True)} "
            f"that {what} needs. {remedy}."
        )
