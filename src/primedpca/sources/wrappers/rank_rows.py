"""Rows that lie on several ranks, each rank holding its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from primedpca._core.arrays import device, dtype_name, is_sparse, namespace, to_numpy
from primedpca._core.checksum import checksum
from primedpca._core.fingerprint import fingerprint
from primedpca.engines import as_engine
from primedpca.protocols import Array, Block
from primedpca.sources import as_source
from primedpca.sources.base import BlockSource, MemorySource, cut_evenly, take_rows
from primedpca.sources.files import common as files
from primedpca.sources.memory.dense import block_length
from primedpca.sources.memory.sparse import cut_by_entries

__all__ = ["RankRows"]

#: Smaller than where one process has all rows: a rank has up to a block more than its neighbour.
DEVICE_BLOCK_BYTES = 2**28


class RankRows(MemorySource):
    """The rows of all ranks, one rank's below the other's; each rank gives its own.

    Blocks are cut by the numbers that rows have among all of them.  One that begins on a rank
    and ends on the next is sent to the first, once, so that it makes no difference to any bit
    of a result how the rows are spread over ranks, or whether one process has them all.

    Every rank must call this at the same place, as it must ``fit``.

    Parameters
    ----------
    x : anything that :func:`~primedpca.as_source` reads in rows
        This rank's rows, at least one.
    engine : Engine
        The ranks: ``"torch_distributed"``, or a
        :class:`~primedpca.engines.torch.engine.TorchDistributed`.

    Attributes
    ----------
    own : DataSource
        This rank's rows alone.
    edges : tuple of int
        Where each rank's rows begin, and their number.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca.sources.wrappers.rank_rows import RankRows
    >>> RankRows(np.ones((5, 3)))  # the only rank, without torchrun
    RankRows(5 of 5 x 3, float64, rank 0 of 1)
    """

    def __init__(self, x: Any, engine: Any = "torch_distributed") -> None:
        self._ranks = as_engine(engine).ranks  # type: ignore[attr-defined]
        with self._ranks.together():
            self.own: Any = as_source(x)
            self._held: Any = self._as_rows()
            self.dtype, self.device, self.axis = self.own.dtype, self.own.device, 0
            self.missing = getattr(self.own, "missing", None)
            notes = self._agreed()
        counts, d = [note["rows"] for note in notes], self.own.shape[1]
        self.spread = self._ranks.size > 1
        self.edges = (0, *np.cumsum(counts).tolist())
        self.shape = (self.edges[-1], d)
        self.nnz: int | None = None
        if isinstance(self.own, MemorySource):
            self.read_rate = math.inf  # nothing is read from a disk
        if hasattr(self.own, "feature_names"):
            self.feature_names = self.own.feature_names
        self.blocks = self._cut()
        rank, begin = self._ranks.rank, [start for start, _ in self.blocks]
        first, last = np.searchsorted(begin, self.edges[rank : rank + 2])
        self._local = tuple(range(first, last))
        self._kept = self._moved()

    def _as_rows(self) -> Any:
        """The array that blocks are cut from, or ``None`` where rows are read."""
        array = getattr(self.own, "array", None)
        if getattr(self.own, "scale", None) is not None:
            raise ValueError(f"{self.own!r} has a scale of its own, which cannot be that of all.")
        if array is not None:
            return sp.csr_array(array) if is_sparse(array) else array
        block = next(iter(self.own.scan()))[1]
        if self.own.axis == 1 or is_sparse(block):
            kind = "sparse" if is_sparse(block) else "stored by columns"
            raise ValueError(
                f"{self.own!r} is {kind}, of which rows cannot be read in blocks of another cut; "
                "read it into memory, or let every rank open one file that has all rows."
            )
        return None

    def _agreed(self) -> list[dict[str, Any]]:
        """What every rank has, which must be of one kind."""
        block = next(iter(self.own.scan()))[1] if self._held is None else self._held
        library = "a sparse matrix" if is_sparse(block) else type(block).__module__.split(".")[0]
        mine = {
            "columns": self.own.shape[1],
            "dtype": dtype_name(self.dtype),
            "kind": f"{library} on {str(self.device or 'cpu').split(':')[0]}",
            "missing": self.missing,
            "in_memory": isinstance(self.own, MemorySource),
        }
        notes = self._ranks.meet("the rows of every rank", rows=self.own.shape[0], facts=mine)
        for name in mine:
            for r, note in enumerate(notes):
                here, there = (one["facts"][name] for one in (note, notes[0]))
                if here != there:
                    raise ValueError(
                        f"rank {r} has rows with {name}={here}, and rank 0 with {there}; all "
                        "ranks must have rows of one kind."
                    )
        return notes

    def _cut(self) -> tuple[tuple[int, int], ...]:
        n, d = self.shape
        if is_sparse(self._held):
            lengths = np.concatenate(self._ranks.collect(np.diff(self._held.indptr)))
            self.nnz = int(lengths.sum())
            return cut_by_entries(np.cumsum([0, *lengths]), d)
        if self._held is None:
            return cut_evenly(n, max(16, files.READ_BYTES // (self.dtype.itemsize * d)))
        step = block_length(self.dtype, d, self.device)
        if self.device not in (None, "cpu"):
            step = min(step, max(16, DEVICE_BLOCK_BYTES // (self.dtype.itemsize * d)))
        return cut_evenly(n, step)

    def _moved(self) -> dict[int, Block]:
        """Blocks that lie on several ranks, on the first of them; the first block, on all."""
        kept: dict[int, Block] = {}
        for i, (start, stop) in enumerate(self.blocks):
            inner = any(start < edge < stop for edge in self.edges)
            if i == 0 or inner:
                block = self.rows(np.arange(start, stop))
                if i == 0 or i in self._local:
                    kept[i] = block
        return kept

    @property
    def local(self) -> tuple[int, ...]:
        """The blocks that begin with a row of this rank."""
        return self._local

    def read(self, i: int) -> Block:
        """A block that begins on this rank, or the first."""
        if i in self._kept:
            return self._kept[i]
        if i not in self._local:
            raise LookupError(f"block {i} is not on rank {self._ranks.rank} of {self!r}.")
        begin = self.edges[self._ranks.rank]
        start, stop = (edge - begin for edge in self.blocks[i])
        if self._held is None:
            return self.own.rows(np.arange(start, stop))
        return self._held[start:stop]

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """The first block, and those of this rank."""
        for i in sorted({0, *self._local}):
            if i >= start:
                yield i, self.read(i)

    def rows(self, index: np.ndarray) -> Block:
        """Rows by their number among all; all ranks must ask for the same."""
        rank, size = self._ranks.rank, self._ranks.size
        owner = np.searchsorted(self.edges[1:], index, side="right")
        order = np.argsort(owner, kind="stable")
        with self._ranks.together():
            mine = index[owner == rank] - self.edges[rank]
            part = self.own.rows(mine) if self._held is None else take_rows(self._held, mine)
            edges = np.searchsorted(owner[order], np.arange(size + 1)).tolist()
            together = self._sparse_of_all if is_sparse(part) else self._dense_of_all
            self._ranks.meet("rows of every rank", checksum(index))
            with self._ranks.exchange():
                whole = together(part, edges)
            return take_rows(whole, np.argsort(order, kind="stable"))

    def _dense_of_all(self, part: Array, edges: list[int]) -> Array:
        rank = self._ranks.rank
        shape = (edges[-1], part.shape[1])
        whole = namespace(part).empty(shape, dtype=part.dtype, device=device(part))
        whole[edges[rank] : edges[rank + 1]] = part
        self._ranks.fill(whole, edges)
        return whole

    def _sparse_of_all(self, part: Any, edges: list[int]) -> Any:
        lengths = self._dense_of_all(np.diff(part.indptr).astype(np.int64)[:, None], edges)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entries = indptr[edges].tolist()
        data = self._dense_of_all(part.data[:, None], entries)[:, 0]
        columns = self._dense_of_all(part.indices.astype(np.int64)[:, None], entries)[:, 0]
        return sp.csr_array((data, columns, indptr), shape=(edges[-1], part.shape[1]))

    def batches(
        self, size: int, seed: int | None, epoch: int = 0, start: int = 0
    ) -> Iterator[tuple[np.ndarray, Block]]:
        """Mini-batches of the rows of all ranks, as one process that has them would draw them."""
        kind = MemorySource if isinstance(self.own, MemorySource) else BlockSource
        yield from kind.batches(self, size, seed, epoch, start)

    def of_all(self, values: Any) -> np.ndarray | None:
        """Numbers for this rank's own rows, such as weights, as those for all rows."""
        rows = self.own.shape[0]
        with self._ranks.together():
            if values is not None and np.shape(to_numpy(values)) != (rows,):
                raise ValueError(
                    f"`sample_weight` has shape {np.shape(values)}, but this rank has {rows} "
                    "rows; give one weight for each."
                )
        parts = self._ranks.collect(None if values is None else to_numpy(values))
        if all(part is None for part in parts):
            return None
        for r, part in enumerate(parts):
            if part is None:
                raise ValueError(f"rank {r} has no `sample_weight`, and others have; give all.")
        return np.concatenate(parts)

    def whose(self, row: int) -> tuple[int, int]:
        """The rank that has a row, and its number there."""
        rank = int(np.searchsorted(self.edges[1:], row, side="right"))
        return rank, row - self.edges[rank]

    def fingerprint(self) -> Any:
        """What tells these rows from others: a hash of the blocks of every rank."""
        known = fingerprint(self.own)
        return self._ranks.collect([known[name] for name in ("contents", "file") if name in known])

    def __repr__(self) -> str:
        ranks, (n, d) = self._ranks, self.shape
        return (
            f"RankRows({self.own.shape[0]} of {n} x {d}, {dtype_name(self.dtype)}, rank "
            f"{ranks.rank} of {ranks.size})"
        )
