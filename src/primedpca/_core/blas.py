"""Limit on BLAS threads, so that results have the same bits on any number of processors."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["one_blas_thread"]


class _Limit:
    """Limit of one BLAS thread: with more threads BLAS adds in another order.

    Nested and concurrent uses are counted.  Otherwise two fits in two threads would restore each
    other's limit.
    """

    def __init__(self) -> None:
        # Reentrant: a signal handler that forks may interrupt a thread that holds the lock.
        self.lock, self.users = threading.RLock(), 0
        self.undo: Any = None  # not None while the limit is set
        self.controller: Any = None

    def enter(self) -> None:
        """Set the limit for the first user."""
        with self.lock:
            self.users += 1
            if self.users > 1:
                return
            if self.controller is None:
                import scipy.linalg  # noqa: F401  (only a library that is loaded can be limited)
                from threadpoolctl import ThreadpoolController

                self.controller = ThreadpoolController()
            if self.undo is None:
                self._let_any_thread_set()
                self.undo = self.controller.limit(limits=1, user_api="blas")

    def leave(self) -> None:
        """Restore the earlier number of threads after the last user."""
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self._let_any_thread_set()
                self.undo.restore_original_limits()
                self._let_any_thread_set()
                self.undo = None

    def forget_users(self) -> None:
        """Reset the count in a forked child, where no other thread exists; the limit stays set.

        The next :meth:`leave` removes the limit: BLAS may not be usable during the fork itself.
        """
        self.lock, self.users = threading.RLock(), 0

    def _let_any_thread_set(self) -> None:
        """Let this thread change the limit.

        Since version 3.8 threadpoolctl obeys only the first thread that set a limit, but the last
        thread to leave may be another one.
        """
        for library in self.controller.lib_controllers:
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


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the ``with`` block, for the whole process."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()
