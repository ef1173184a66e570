"""Threads of this process: their number, pools and locks, also after a fork, and those of BLAS.

A forked child has none of its parent's other threads, and the locks that these held stay locked.
Objects that hold a lock or a position in a file therefore make new ones in the child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ContextDecorator
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

__all__ = [
    *("in_threads", "lock_of", "one_blas_thread", "pool_of", "processors", "renewed_after_fork"),
]

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


class _Limit(ContextDecorator):
    """Limit of one BLAS thread: with more threads BLAS adds in another order.

    Nested and concurrent uses are counted.  Otherwise two fits in two threads would restore each
    other's limit.
    """

    def __init__(self) -> None:
        # Reentrant: a signal handler that forks may interrupt a thread that holds the lock.
        self.lock, self.users = threading.RLock(), 0
        self.before: list[int] | None = None  # numbers of threads, while the limit is set
        self.libraries: Any = None

    def __enter__(self) -> None:
        """Set the limit for the first user."""
        with self.lock:
            self.users += 1
            if self.users > 1:
                return
            if self.libraries is None:
                import scipy.linalg  # noqa: F401  (only a library that is loaded can be limited)
                from threadpoolctl import ThreadpoolController

                self.libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            if self.before is None:
                self.before = [library.num_threads for library in self.libraries]
                self._set([1] * len(self.before))

    def __exit__(self, *error: object) -> None:
        """Restore the earlier number of threads after the last user."""
        with self.lock:
            self.users -= 1
            if self.users == 0 and self.before is not None:
                self._set(self.before)
                self._let_any_thread_set()  # until here others could not change the limit
                self.before = None

    def forget_users(self) -> None:
        """Reset the count in a forked child, where no other thread exists; the limit stays set.

        The next :meth:`__exit__` removes the limit: BLAS may not be usable during the fork itself.
        """
        self.lock, self.users = threading.RLock(), 0

    def _set(self, threads: list[int]) -> None:
        """Set the number of threads of each library, from any thread."""
        self._let_any_thread_set()
        for library, number in zip(self.libraries, threads, strict=True):
            library.set_num_threads(number)

    def _let_any_thread_set(self) -> None:
        """Let this thread change the limit.

        Since version 3.8 threadpoolctl obeys only the first thread that set a limit, but the last
        thread to leave may be another one.
        """
        for library in self.libraries:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)


_limit = _Limit()
if hasattr(os, "register_at_fork"):
    # Holding the lock during a fork keeps a half-made change of the limit out of the child.
    os.register_at_fork(
        before=lambda: _limit.lock.acquire(),
        after_in_parent=lambda: _limit.lock.release(),
        after_in_child=_limit.forget_users,
    )


def one_blas_thread() -> _Limit:
    """Limit BLAS to one thread inside the ``with`` block, for the whole process."""
    return _limit
