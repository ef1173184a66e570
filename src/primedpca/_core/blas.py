"""Limit on BLAS threads, so that results have the same bits on any number of processors."""

from __future__ import annotations

import os
import threading
from contextlib import ContextDecorator
from typing import Any

__all__ = ["one_blas_thread"]


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
                self.before = None

    def forget_users(self) -> None:
        """Reset the count in a forked child, where no other thread exists; the limit stays set.

        The next :meth:`__exit__` removes the limit: BLAS may not be usable during the fork itself.
        """
        self.lock, self.users = threading.RLock(), 0

    def _set(self, threads: list[int]) -> None:
        """Set the number of threads of each library.

        Since version 3.8 threadpoolctl obeys only the first thread that set a limit, but the last
        thread to leave may be another one.
        """
        for library, number in zip(self.libraries, threads, strict=True):
            let_any_thread_set = getattr(library, "clear_controlling_thread", None)
            if let_any_thread_set is not None:
                let_any_thread_set(force=True)
            library.set_num_threads(number)
            if let_any_thread_set is not None:
                let_any_thread_set(force=True)


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
