"""Signals that wait until what was worked out is safe."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Interrupts"]

HELD = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """SIGINT and SIGTERM, held back until :meth:`let_through`; a second one is let through at once.

    Whoever would have had the signal gets it then: by default SIGINT raises KeyboardInterrupt
    and SIGTERM ends the process.
    """

    def __init__(self) -> None:
        self.pending: int | None = None
        self._before: dict[int, Any] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold them back inside; only the main thread can, elsewhere nothing is changed."""
        if threading.current_thread() is threading.main_thread():
            self._install()
        try:
            yield
        finally:
            self._restore()
            self._hand_on()  # one that came after the last safe point is not lost

    def let_through(self) -> None:
        """Hand on a signal that has come meanwhile, to whoever would have had it."""
        if self.pending is None:
            return
        self._restore()
        self._hand_on()
        self._install()  # somebody else's handler came back: the work goes on

    def _hand_on(self) -> None:
        number, self.pending = self.pending, None
        if number is not None:
            signal.raise_signal(number)

    def _install(self) -> None:
        for number in HELD:
            before = signal.getsignal(number)
            # What is ignored stays so, and what was not set from Python could not be restored.
            if before not in (signal.SIG_IGN, None):
                self._before[number] = before
                signal.signal(number, self._hold)

    def _restore(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _hold(self, number: int, frame: Any) -> None:
        again, self.pending = self.pending is not None, number
        if again:
            self.let_through()
