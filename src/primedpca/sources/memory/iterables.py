"""Objects that can be iterated over again: blocks that come in one order only."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, is_sparse, to_numpy, work_dtype
from primedpca._core.threads import renewed_after_fork
from primedpca.protocols import Block
from primedpca.sources.base import BlockSource, join, library_of, read_only, take_rows

__all__ = ["IteratedBlocks", "is_iterable_of_blocks", "iterated"]

BLOCK_BYTES = 2**22


class IteratedBlocks(BlockSource):
    """Blocks of rows from an object that yields the same ones whenever it is iterated over.

    The first scan counts the rows.  Small blocks are joined, as they are slow to work on.  Every
    later scan is compared with the first by checksums: other rows, or rows in another order, would
    spoil the result silently.  The first block is kept, as several steps look at it.

    Parameters
    ----------
    start : callable
        Returns a fresh iterator over 2-d blocks, dense or sparse.
    name : str
        Name of the object in error messages.
    """

    sequential = True  # a block out of order costs a new iteration

    def __init__(self, start: Callable[[], Iterator[Block]], name: str) -> None:
        self._start, self._name = start, name
        edges, self._sums, self.nnz = [0], list[int](), 0
        first: Any = None
        for block in self._pieces():
            if first is None:
                first = block
                work_dtype(block.dtype)
            self._compare(block, first)
            self._sums.append(_checksum(block))
            self.nnz += int(block.nnz) if is_sparse(block) else block.size
            edges.append(edges[-1] + block.shape[0])
        if first is None:
            raise ValueError(f"`X` ({name}) yields no blocks; it must yield 2-d arrays of rows.")
        self.shape, self.dtype = (edges[-1], int(first.shape[1])), first.dtype
        self._first, self.library = first, library_of(first)
        self.blocks = tuple(pairwise(edges))
        self._renew()
        renewed_after_fork(self)

    def _renew(self) -> None:
        """Iterate from the start for the next block that is read."""
        self._lock = threading.Lock()
        self._cursor: Iterator[tuple[int, Block]] = iter(())
        self._next = len(self.blocks)

    def _compare(self, block: Block, first: Block) -> None:
        if block.shape[1] != first.shape[1] or block.dtype != first.dtype:
            raise ValueError(
                f"`X` ({self._name}) yields a block of {block.shape[1]} columns of "
                f"{dtype_name(block.dtype)} after one of {first.shape[1]} of "
                f"{dtype_name(first.dtype)}; all must be alike."
            )

    def _pieces(self) -> Iterator[Block]:
        """Blocks as they come, small ones joined."""
        held: list[Block] = []
        size = 0
        for number, given in enumerate(self._start()):
            block = _checked(given, number, self._name)
            if held:
                self._compare(block, held[0])
            if block.shape[0]:
                held.append(block)
                size += 12 * block.nnz if is_sparse(block) else 8 * block.size
            if size >= BLOCK_BYTES:
                yield read_only(join(held, axis=0))
                held, size = [], 0
        if held:
            yield read_only(join(held, axis=0))

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """Iterate again, skipping the blocks before ``start``."""
        count = 0
        for i, block in enumerate(self._pieces()):
            if i >= len(self.blocks) or _checksum(block) != self._sums[i]:
                raise ValueError(
                    f"`X` ({self._name}) yields other rows in block {i} than when it was first "
                    "read; it must yield the same rows in the same order every time "
                    "(shuffle=False, no random transforms)."
                )
            count += 1
            if i >= start:
                yield i, block
        if count < len(self.blocks):
            raise ValueError(
                f"`X` ({self._name}) yields {count} blocks, but yielded {len(self.blocks)} when it "
                "was first read; it must yield the same rows every time."
            )

    def fingerprint(self) -> list[int]:
        """Checksums of all blocks."""
        return self._sums

    def read(self, i: int) -> Block:
        """Block ``i``: the first and the next at no cost, an earlier one by iterating again."""
        if i == 0:
            return self._first
        with self._lock:
            if i < self._next:
                self._cursor, self._next = self.scan(), 0
            for number, block in self._cursor:
                self._next = number + 1
                if number == i:
                    return block
        raise IndexError(f"block {i} does not exist: `X` ({self._name}) has {len(self.blocks)}.")

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number, in one iteration."""
        order = np.argsort(index, kind="stable")
        edges = np.searchsorted(index[order], [stop for _, stop in self.blocks])
        pieces: list[Block] = []
        begin = 0
        for i, block in self.scan():
            place = index[order[begin : edges[i]]] - self.blocks[i][0]
            if place.size or not pieces:
                pieces.append(take_rows(block, place))
            begin = int(edges[i])
            if begin == index.size:
                break
        return take_rows(join(pieces, axis=0), np.argsort(order, kind="stable"))

    def __repr__(self) -> str:
        n, d = self.shape
        return f"IteratedBlocks({self._name}, {n} x {d}, {dtype_name(self.dtype)})"


def _checked(block: Any, number: int, name: str) -> Block:
    """A block as rows that can be worked on."""
    if is_sparse(block):
        from scipy.sparse import csr_array

        from primedpca.sources.memory.sparse import SparseSource

        # A copy, here and below: the iterator may reuse the memory for its next block.
        return SparseSource(csr_array(block, copy=True)).array
    if not hasattr(block, "shape") and not hasattr(block, "__array__"):
        raise TypeError(
            f"`X` ({name}) yields a {type(block).__name__} as block {number}; it must yield 2-d "
            "arrays of rows."
        )
    values = np.array(to_numpy(block))
    if values.ndim != 2:
        raise ValueError(
            f"`X` ({name}) yields an array of shape {values.shape} as block {number}; it must "
            "yield 2-d arrays of rows, such as row[None] for a single one."
        )
    return values


def _checksum(block: Block) -> int:
    parts = (block.data, block.indices, block.indptr) if is_sparse(block) else (block,)
    total: int = block.shape[0]
    for part in parts:
        total = zlib.crc32(np.ascontiguousarray(part).data.cast("B"), total)
    return total


def iterated(x: Any) -> IteratedBlocks:
    """Source of an object that yields 2-d arrays each time it is iterated over."""
    if iter(x) is x:
        raise TypeError(
            f"`X` is a {type(x).__name__}, which can be iterated over only once, but PCA reads the "
            "data several times. Pass an object whose __iter__ starts again, or use `partial_fit` "
            "on each block."
        )
    return IteratedBlocks(lambda: iter(x), type(x).__name__)


def is_iterable_of_blocks(x: Any) -> bool:
    """Whether ``x`` can be iterated over and is not text, a mapping, a set or an array."""
    if isinstance(x, (str, bytes, Mapping, set, frozenset)) or hasattr(x, "__array__"):
        return False
    return hasattr(x, "__iter__")
