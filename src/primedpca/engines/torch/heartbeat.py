"""Heartbeats that ranks leave in the rendezvous store, and the search for a lost rank.

A thread of every rank increments a counter in the store, also while the rank works.  When an
exchange breaks, the remaining ranks look for counters that stand still.  The first verdict holds
for all, so that every rank raises the same error, and no rank leaves before all have read it: the
store ends with the process that hosts it.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["Heartbeat"]

BEAT = 1.0  # seconds between two heartbeats
GRACE = 5.0  # seconds without a heartbeat after which a rank counts as lost
LOOK = 0.05  # seconds between two checks of the store
STORE = "the rendezvous store (often hosted by rank 0)"


class Heartbeat:
    """Signs of life of this rank, and its view of the others once the group is broken.

    Parameters
    ----------
    store : Store
        A store that only these ranks use, over a connection on which no other thread waits.
    rank, size : int
    timeout : float
        Seconds after which a rank that does not answer counts as lost, for the error message.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: float) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self._store, self._lock = store, threading.Lock()
        self._verdict: tuple[str, list[int]] | None = None
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="primedpca beat", daemon=True)
        self._beating.start()
        # A thread that returns from C++ into an interpreter that has ended crashes.
        atexit.register(self.end)

    def end(self) -> None:
        """Stop the heartbeat."""
        atexit.unregister(self.end)
        self._ended.set()
        self._beating.join(GRACE)  # longer only if the machine or the store is busy

    def leave(self, words: str, close: Callable[[], None]) -> None:
        """Store an error of this rank, then ``close`` the connections others wait on."""
        verdict = f"rank {self.rank} of {self.size} failed: {words}"
        self._limited(lambda: self._say(verdict, [self.rank]))
        close()
        self._limited(self._let_others_hear)

    def what_broke(self, why: str) -> str:
        """Return the cause of the broken group, the same on all ranks; ``why`` was seen here."""

        def ask() -> None:
            self._store.set(f"here/{self.rank}", why)
            while not self._heard():
                self._say(*self._judged(why))
            self._let_others_hear()

        trouble = self._limited(ask)
        return self._verdict[0] if self._verdict else f"{STORE} {trouble} ({why})"

    # -- the store ---------------------------------------------------------------------------

    def _beat(self) -> None:
        with suppress(RuntimeError):  # no store any more, which the next exchange reports
            while not self._ended.wait(BEAT):
                self._store.add(f"beat/{self.rank}", 1)
                self._heard()

    def _heard(self) -> bool:
        """Whether there is a verdict; the first time, this rank confirms that it has read it."""
        with self._lock:
            if self._verdict is None and self._store.check(["verdict"]):
                words, lost = json.loads(self._store.get("verdict"))
                self._verdict = words, lost
                self._store.set(f"heard/{self.rank}", "yes")
            return self._verdict is not None

    def _say(self, words: str, lost: list[int]) -> None:
        self._store.compare_set("verdict", "", json.dumps([words, lost]))

    def _let_others_hear(self) -> None:
        """Wait until all remaining ranks have read the verdict."""
        self._heard()
        lost = self._verdict[1] if self._verdict else []
        left = [f"heard/{r}" for r in range(self.size) if r not in lost]
        end = time.monotonic() + GRACE
        while time.monotonic() < end and not self._store.check(left):
            time.sleep(LOOK)

    def _limited(self, ask: Callable[[], None]) -> str:
        """Ask the store with a time limit, and return its trouble, if any.

        A store whose process was stopped never answers.
        """
        trouble = ["does not answer: its process was stopped or hangs"]

        def work() -> None:
            try:
                ask()
                trouble[0] = ""
            except RuntimeError:
                trouble[0] = "is lost: its process has ended"

        asking = threading.Thread(target=work, name="primedpca ask", daemon=True)
        try:
            asking.start()
        except RuntimeError:  # no memory for a thread, which may be why this rank leaves
            work()
        else:
            asking.join(3 * GRACE)
        return trouble[0]

    # -- the verdict -------------------------------------------------------------------------

    def _judged(self, why: str) -> tuple[str, list[int]]:
        """Return the most likely cause, and the lost ranks."""
        others = [r for r in range(self.size) if r != self.rank]
        first = {r: self._store.add(f"beat/{r}", 0) for r in others}
        end = time.monotonic() + GRACE
        while time.monotonic() < end and not self._heard():
            if self._store.check([f"here/{r}" for r in others]):
                break
            time.sleep(LOOK)
        here = [r for r in others if self._store.check([f"here/{r}"])]
        reasons = [why, *(self._store.get(f"here/{r}").decode() for r in here)]
        absent = [r for r in others if r not in here]
        silent = [r for r in absent if self._store.add(f"beat/{r}", 0) == first[r]]
        late = any("imed out" in reason for reason in reasons)
        if late and absent:
            return self._late(silent or absent, bool(silent)), silent or absent
        if silent:
            return (
                f"rank {_names(silent)} of {self.size} is lost: it was killed, ran out of memory, "
                "ended or lost its network. Read its own output, and resume from a `checkpoint`."
            ), silent
        return f"the connection between the ranks broke, although all are alive ({why})", []

    def _late(self, ranks: list[int], silent: bool) -> str:
        how = (
            "it gives no sign of life. Check whether it was stopped or its machine is down."
            if silent
            else "it is alive, but hangs or has much more to do. Check it, or raise the limit."
        )
        names = _names(ranks)
        return (
            f"rank {names} of {self.size} did not answer for {self.timeout:g} s (`timeout`): {how}"
        )


def _names(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
