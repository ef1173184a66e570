"""Threads of this process: how many there may be, and work on slices of tall arrays in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

__all__ = ["in_threads", "pool_of", "processors"]


def processors() -> int:
    """How many this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed else os.cpu_count() or 1


@cache
def pool_of(workers: int, name: str = "primedpca") -> ThreadPoolExecutor:
    """So many threads, which live as long as the process."""
    return ThreadPoolExecutor(workers, thread_name_prefix=name)


# A forked child inherits the pool but none of its threads, and would wait for them for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool_of.cache_clear)


def in_threads(work: Callable[[slice], Any], rows: list[slice]) -> list[Any]:
    """What ``work`` makes of each slice of the rows of tall arrays, in their order.

    The slices decide about bits, the number of processors does not.
    """
    if len(rows) == 1 or processors() == 1:
        return [work(some) for some in rows]
    # Not the threads of blocks: one of them may be who asks.
    return list(pool_of(processors(), "primedpca-rows").map(work, rows))
