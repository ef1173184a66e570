"""Signals that are delayed until results are saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HELD = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """SIGINT and SIGTERM, delayed until :meth:`let_through`; a second signal is not delayed.

    The signal then goes to its previous handler: by default SIGINT raises KeyboardInterrupt and
    SIGTERM ends the process.
    """

    def __init__(self) -> None:
        self.pending: int | None = None
        self._before: dict[int, Any] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay signals inside; in threads other than the main thread nothing is changed."""
        if threading.current_thread() is threading.main_thread():
            self._install()
        try:
            yield
        finally:
            self._restore()
            self._hand_on()  # a signal after the last safe point must not be lost

    def let_through(self) -> None:
        """Pass a pending signal to its previous handler."""
        if self.pending is None:
            return
        self._restore()
        self._hand_on()
        self._install()  # the handler returned, so the fit continues

    def _hand_on(self) -> None:
        number, self.pending = self.pending, None
        if number is not None:
            signal.raise_signal(number)

    def _install(self) -> None:
        for number in HELD:
            before = signal.getsignal(number)
            # An ignored signal stays ignored; a handler not set from Python cannot be restored.
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
