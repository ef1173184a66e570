"""Signs of life that ranks leave in their store, and what broke them apart, in one sentence.

A thread of every rank counts up a number in the store, also while the rank works.  When an
exchange breaks, those who are left look whose number stands still.  The first verdict counts
for all, so that every rank says the same, and all hear it before anybody leaves: the store ends
with the process that keeps it.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["Presence"]

BEAT = 1.0  # seconds between two signs of life
GRACE = 5.0  # seconds without one after which a rank is lost
LOOK = 0.05  # seconds between two looks at the store
KEEPER = "the process that keeps the ranks in touch (often rank 0)"


class Presence:
    """What this rank knows of the others when it cannot meet them any more.

    Parameters
    ----------
    store : Store
        One that these ranks alone use, over a connection that nobody else waits on.
    rank, size : int
    timeout : float
        Seconds after which a rank that does not answer was given up, for the sentence.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: float) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self._store, self._lock = store, threading.Lock()
        self._verdict: tuple[str, list[int]] | None = None
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="primedpca beat", daemon=True)
        self._beating.start()
        # A thread that comes back from C++ into an interpreter that is gone ends in a crash.
        atexit.register(self.end)

    def end(self) -> None:
        """Give no more signs of life."""
        atexit.unregister(self.end)
        self._ended.set()
        self._beating.join(GRACE)  # at once, but where the machine or the store is busy

    def leave(self, words: str, close: Callable[[], None]) -> None:
        """Leave word of an error of this rank, then ``close`` the connections others wait on."""
        verdict = f"rank {self.rank} of {self.size} failed: {words}"
        self._limited(lambda: self._say(verdict, [self.rank]))
        close()
        self._limited(self._let_others_hear)

    def what_broke(self, why: str) -> str:
        """What broke the ranks apart, as all of them say it; ``why`` is what was seen here."""

        def ask() -> None:
            self._store.set(f"here/{self.rank}", why)
            while not self._heard():
                self._say(*self._judged(why))
            self._let_others_hear()

        trouble = self._limited(ask)
        return self._verdict[0] if self._verdict else f"{KEEPER} {trouble} ({why})"

    # -- the store ---------------------------------------------------------------------------

    def _beat(self) -> None:
        with suppress(RuntimeError):  # the store is gone, as whoever asks next will hear
            while not self._ended.wait(BEAT):
                self._store.add(f"beat/{self.rank}", 1)
                self._heard()

    def _heard(self) -> bool:
        """Whether there is a verdict; the first time it is heard, the others get to know."""
        with self._lock:
            if self._verdict is None and self._store.check(["verdict"]):
                words, lost = json.loads(self._store.get("verdict"))
                self._verdict = words, lost
                self._store.set(f"heard/{self.rank}", "yes")
            return self._verdict is not None

    def _say(self, words: str, lost: list[int]) -> None:
        self._store.compare_set("verdict", "", json.dumps([words, lost]))

    def _let_others_hear(self) -> None:
        """Wait until all who are left know the verdict."""
        self._heard()
        lost = self._verdict[1] if self._verdict else []
        left = [f"heard/{r}" for r in range(self.size) if r not in lost]
        end = time.monotonic() + GRACE
        while time.monotonic() < end and not self._store.check(left):
            time.sleep(LOOK)

    def _limited(self, ask: Callable[[], None]) -> str:
        """Ask the store, and say what is wrong with it: one that was stopped never answers."""
        trouble = ["does not answer: it was stopped or hangs"]

        def work() -> None:
            try:
                ask()
                trouble[0] = ""
            except RuntimeError:
                trouble[0] = "is gone"

        asking = threading.Thread(target=work, name="primedpca ask", daemon=True)
        try:
            asking.start()
        except RuntimeError:  # no memory for a thread, which is why this rank leaves
            work()
        else:
            asking.join(3 * GRACE)
        return trouble[0]

    # -- the verdict -------------------------------------------------------------------------

    def _judged(self, why: str) -> tuple[str, list[int]]:
        """What this rank takes for the cause, and who is lost."""
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
                f"rank {_names(silent)} of {self.size} is gone: it was killed, ran out of memory, "
                "ended or lost its network; see its own last words, and go on from a `checkpoint`."
            ), silent
        return f"the connection between the ranks broke although all are there ({why})", []

    def _late(self, ranks: list[int], silent: bool) -> str:
        how = (
            "it gives no sign of life; see whether it was stopped or its machine is down."
            if silent
            else "it lives, but hangs or has far more to do; see what it does, or raise the limit."
        )
        names = _names(ranks)
        return (
            f"rank {names} of {self.size} did not answer for {self.timeout:g} s (`timeout`): {how}"
        )


def _names(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
