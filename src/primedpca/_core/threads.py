"""Threads of this process: their number, pools and locks, also after a fork.

A forked child has none of its parent's other threads, and the locks that these held stay locked.
Objects that hold a lock or a position in a file therefore make new ones in the child.
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
    """Return the number of processors that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed else os.cpu_count() or 1


@cache
def pool_of(workers: int, name: str = "primedpca") -> ThreadPoolExecutor:
    """Return a pool of this many threads, which live as long as the process."""
    return ThreadPoolExecutor(workers, thread_name_prefix=name)


def lock_of(owner: Any) -> Any:
    """Return the reentrant lock of an object, which is not copied or pickled with it."""
    # Atomic, so that two threads that ask at the same time get the same lock.
    return _locks.setdefault(owner, threading.RLock())


def renewed_after_fork(owner: Any) -> None:
    """Call ``owner._renew()`` in every child that is forked while ``owner`` lives."""
    _renewed.add(owner)


def _after_fork() -> None:
    pool_of.cache_clear()
    _locks.clear()
    for owner in list(_renewed):
        # Kept alive: closing a file that another thread was reading may hang.
        _left.append(dict(vars(owner)))
        owner._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def in_threads(work: Callable[[slice], Any], rows: list[slice]) -> list[Any]:
    """Apply ``work`` to each slice of the rows of tall arrays; return the results in order.

    The slices determine the bits of a result; the number of processors does not.
    """
    if len(rows) == 1 or processors() == 1:
        return [work(some) for some in rows]
    # Not the engine's pool: if all its threads waited here for tasks of their own, none would run.
    return list(pool_of(processors(), "primedpca-rows").map(work, rows))
