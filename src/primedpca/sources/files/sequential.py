"""Files that can only be decoded from the start: read in any order, but cheap in order only."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from primedpca._core.threads import renewed_after_fork
from primedpca.protocols import Block
from primedpca.sources.files.common import FileSource, reading

__all__ = ["InOrder"]

AHEAD = 4  # skipped blocks that are kept for a thread that asks late


class InOrder(FileSource):
    """Blocks that are decoded one after another; reading an earlier one starts again.

    Threads that share the blocks of a pass ask for them nearly in order, so blocks that were
    skipped on the way to a later one are kept for a while.
    """

    def __init__(self) -> None:
        self._renew()
        renewed_after_fork(self)

    def _renew(self) -> None:
        """Start again: a forked child shares its position in the file with its parent."""
        self._lock = threading.Lock()
        self._running: Iterator[tuple[int, Block]] | None = None
        self._next = 0
        self._passed: dict[int, Block] = {}

    @abstractmethod
    def _from(self, i: int) -> Iterator[tuple[int, Block]]:
        """Yield blocks with their numbers, from the last possible start before block ``i``."""

    def _entry(self, i: int) -> int:
        """Number of the block with which ``_from(i)`` begins."""
        return 0

    def read(self, i: int) -> Block:
        """Block ``i``: the next one at once, others after decoding the blocks before."""
        with self._lock, reading(self.path, self._place(i)):
            self._check_same(self._place(i))
            if i in self._passed:
                return self._passed.pop(i)
            entry = self._entry(i)
            if self._running is None or not entry < self._next <= i:
                self._running, self._passed = self._from(i), {}
                self._next = entry
            try:
                return self._forward(i)
            except BaseException:
                self._running = None
                raise

    def _forward(self, i: int) -> Block:
        assert self._running is not None
        for number, block in self._running:
            self._next = number + 1
            if number == i:
                if i == len(self.blocks) - 1:
                    self._running = None  # nothing follows: close the file
                return block
            self._passed[number] = block
            if len(self._passed) > AHEAD:
                del self._passed[min(self._passed)]
        raise OSError(f"{self.path} ends before {self._place(i)}.")

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_lock", "_running", "_passed")
        return {key: value for key, value in self.__dict__.items() if key not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        InOrder.__init__(self)
        self.__dict__.update(state)
        self._next = 0
