"""Threads of this process: how many there may be, work in them, and what a fork leaves of them.

A forked child has none of the threads, and whatever they held when it was made is held for ever.
Who keeps a lock or a place in a file therefore gives it up there and begins anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

__all__ = ["in_threads", "lock_of", "pool_of", "processors", "renewed_after_fork"]

_locks: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_renewed: WeakSet[Any] = WeakSet()
_left: list[Any] = []


def processors() -> int:
    """How many this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed else os.cpu_count() or 1


@cache
def pool_of(workers: int, name: str = "primedpca") -> ThreadPoolExecutor:
    """So many threads, which live as long as the process."""
    return ThreadPoolExecutor(workers, thread_name_prefix=name)


def lock_of(owner: Any) -> Any:
    """The lock of an object: reentrant, and no part of what is copied or pickled of it."""
    # One step, so that two threads that ask at once are given the same.
    return _locks.setdefault(owner, threading.RLock())


def renewed_after_fork(owner: Any) -> None:
    """Have ``owner._renew()`` called in every child that is forked while ``owner`` lives."""
    _renewed.add(owner)


def _after_fork() -> None:
    pool_of.cache_clear()
    _locks.clear()
    for owner in list(_renewed):
        _left.append(dict(vars(owner)))  # a file that another thread was reading cannot be closed
        owner._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def in_threads(work: Callable[[slice], Any], rows: list[slice]) -> list[Any]:
    """What ``work`` makes of each slice of the rows of tall arrays, in their order.

    The slices decide about bits, the number of processors does not.
    """
    if len(rows) == 1 or processors() == 1:
        return [work(some) for some in rows]
    # Not the threads of blocks: one of them may be who asks.
    return list(pool_of(processors(), "primedpca-rows").map(work, rows))
