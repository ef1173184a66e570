"""A budget of memory for a priming that was asked for, where the planner has nothing to choose."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from primedpca._planning.costs import ALLOCATOR, Load, exact_way, krylov_way
from primedpca.priming import BlockKrylov, Exact, FrequentDirections
from primedpca.result import Plan
from primedpca.sources.base import GROUP_BYTES

__all__ = ["within_budget"]


def within_budget(
    plan: Plan, load: Load, budget: float, *, tol: float, proven: bool, batch_size: int
) -> Plan:
    """The same plan with its basis, and what it holds of the data, kept to the budget.

    Parameters
    ----------
    plan : Plan
        With any priming and a whole number of components.
    load : Load
    budget : float
        Bytes; refused if they do not suffice.
    tol, proven, batch_size
        As in :class:`~primedpca.PrimedPCA`.
    """
    if budget == math.inf:
        return plan
    p, priming = plan.n_directions, plan.priming
    if isinstance(priming, Exact):
        way = exact_way(load, p, budget)
        _check(way.memory, budget, "a full decomposition", "raise it or use `priming`='auto'")
        return replace(plan, room=way.room)
    if isinstance(priming, BlockKrylov):
        way = krylov_way(load, p, priming.block_size or p, priming.side, tol, proven, budget)
        _check(way.memory, budget, way.name, "raise it, or ask for smaller blocks")
        most = [size for size in (priming.max_basis, way.priming.max_basis) if size is not None]
        return replace(plan, priming=replace(priming, max_basis=min(most, default=None)))
    name = type(priming).__name__
    memory = _memory(priming, load, p, batch_size)
    _check(memory, budget, name, "raise it, or lower `batch_size` or `n_components`")
    if not proven:
        return plan
    # Proven by block Krylov, which starts from what was found.
    start = 8.0 * load.d * p
    way = krylov_way(load, p, p, "right", tol, proven, budget - start)
    _check(way.memory + start, budget, f"the proof after {name}", "raise it, or give up the proof")
    return replace(plan, max_basis=way.priming.max_basis)


def _memory(priming: Any, load: Load, p: int, batch_size: int) -> float:
    """Bytes beside the data, about: of functions that users bring only what is done with them."""
    # Rows as read from their blocks, joined, and in their order: three times a group.
    group = min(GROUP_BYTES / 8 * load.stored / (load.n * load.d), load.stored)
    gathered = 3 * group if load.rate < math.inf else 0.0
    batch = 4.0 * load.item * load.d * min(batch_size, load.n) + gathered
    if isinstance(priming, FrequentDirections):
        size = priming.sketch_size or max(2 * p, 64)
        return ALLOCATOR * (14 * 8.0 * load.d * size + batch + load.buffers)
    vectors = (6 * load.item + 8 * (load.busy + 3)) * float(load.d) * p
    more = batch if priming.visits == "batches" else 0.0
    return ALLOCATOR * (vectors + more + load.buffers)


def _check(memory: float, budget: float, what: str, remedy: str) -> None:
    if memory > budget:
        raise ValueError(
            f"`max_memory`={budget / 1e6:.0f} MB is less than the {math.ceil(memory / 1e6)} MB "
            f"that {what} needs; {remedy}."
        )
