"""Rows that lie on several ranks of torch.distributed, each rank holding its own."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from primedpca._core.arrays import device, dtype_name, is_sparse, namespace, to_numpy
from primedpca._core.checksum import checksum
from primedpca.engines import as_engine
from primedpca.protocols import Array, Block, Traits
from primedpca.sources import as_source, base
from primedpca.sources.base import Batches, BlockSource, MemorySource, cut_evenly
from primedpca.sources.memory.dense import cut_in_memory
from primedpca.sources.memory.sparse import cut_by_entries

__all__ = ["RankRows"]

#: Smaller than where one process has all rows: a rank may have a block more than its neighbour.
DEVICE_BLOCK_BYTES = 2**28


class RankRows(MemorySource):
    """The rows of all ranks, one rank's after the other's; each rank brings its own.

    Blocks are cut by the numbers that rows have among all of them.  A block that begins on one
    rank and ends on the next is sent to the first, once.  So results are bitwise identical however
    the rows are spread over ranks, and the same as where one process has them all.

    Every rank must create it at the same place, as every rank must call ``fit``.

    Parameters
    ----------
    x : anything that :func:`~primedpca.as_source` reads in rows
        This rank's rows, at least one.
    engine : Engine
        The ranks: ``"torch_distributed"`` (default), or a
        :class:`~primedpca.engines.torch.engine.TorchDistributed`.

    Attributes
    ----------
    own : DataSource
        This rank's rows alone.
    edges : tuple of int
        Number of each rank's first row among all, and the number of all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca.sources import RankRows
    >>> RankRows(np.ones((5, 3)))  # the only rank, without torchrun
    RankRows(5 of 5 x 3, float64, rank 0 of 1)
    """

    def __init__(self, x: Any, engine: Any = "torch_distributed") -> None:
        self._ranks = as_engine(engine).ranks  # type: ignore[attr-defined]
        with self._ranks.together():
            self.own: Any = as_source(x)
            self._held: Any = self._as_rows()
            self.dtype, self.device, self.axis = self.own.dtype, self.own.device, 0
            self.missing, self.map_name = self.own.traits.missing, self.own.traits.map_name
            notes = self._agreed()
        self.spread = self._ranks.size > 1
        self.edges = (0, *np.cumsum([note["rows"] for note in notes]).tolist())
        self.shape = (self.edges[-1], self.own.shape[1])
        if isinstance(self.own, MemorySource):
            self.read_rate = math.inf  # nothing is read from a disk
        self.feature_names = self.own.traits.feature_names()
        self.layout = self.own.traits.layout
        self.blocks = self._cut()
        rank, begin = self._ranks.rank, [start for start, _ in self.blocks]
        first, last = np.searchsorted(begin, self.edges[rank : rank + 2])
        self._local = tuple(range(first, last))
        self._kept = self._moved()

    def _as_rows(self) -> Any:
        """The array that blocks are cut from, or None where rows are read."""
        array = self.own.traits.array
        if self.own.traits.scale is not None:
            raise ValueError(f"{self.own!r} has a scale of its own; all ranks must share one.")
        self.library = self.own.traits.library or base.library_of(self.own.read(0))
        sparse = self.library == "scipy"
        if array is not None:
            return sp.csr_array(array) if sparse else array
        if self.own.axis == 1 or sparse:
            kind = "sparse" if sparse else "stored by columns"
            raise ValueError(f"{self.own!r} is {kind} and cannot be cut anew. Read it into memory.")
        return None

    def _agreed(self) -> Any:
        """Facts about the rows of every rank, which must be of one kind."""
        library = "a sparse matrix" if self.library == "scipy" else self.library
        mine = {
            "columns": self.own.shape[1],
            "dtype": dtype_name(self.dtype),
            "kind": f"{library} on {str(self.device or 'cpu').split(':')[0]}",
            "missing": self.missing,
            "in_memory": isinstance(self.own, MemorySource),
        }
        notes = self._ranks.meet("the rows of every rank", rows=self.own.shape[0], facts=mine)
        for name, there in notes[0]["facts"].items():
            for r, note in enumerate(notes):
                here = note["facts"][name]
                if here != there:
                    words = f"rank {r} has rows with {name}={here}, but rank 0 has {there}"
                    raise ValueError(f"{words}; all ranks must have rows of one kind.")
        return notes

    def _cut(self) -> tuple[tuple[int, int], ...]:
        n, d = self.shape
        if is_sparse(self._held):
            lengths = np.concatenate(self._ranks.collect(np.diff(self._held.indptr)))
            self.nnz = int(lengths.sum())
            return cut_by_entries(np.cumsum([0, *lengths]), d)
        if self._held is None:
            return cut_evenly(n, max(16, base.READ_BYTES // (self.dtype.itemsize * d)))
        return cut_in_memory(n, d, self.dtype, self.device, DEVICE_BLOCK_BYTES)

    def _moved(self) -> dict[int, Block]:
        """Blocks that span several ranks, kept by the first of them; block 0, kept by all."""
        kept: dict[int, Block] = {}
        for i, (start, stop) in enumerate(self.blocks):
            if i == 0 or any(start < edge < stop for edge in self.edges):
                block = self.rows(np.arange(start, stop))
                if i == 0 or i in self._local:
                    kept[i] = block
        return kept

    @property
    def traits(self) -> Traits:
        """Every rank has rows of its own."""
        return super().traits._replace(shared=self)

    @property
    def local(self) -> tuple[int, ...]:
        """Numbers of the blocks that begin with a row of this rank."""
        return self._local

    def read(self, i: int) -> Block:
        """A block that begins on this rank, or block 0."""
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
        """Yield block 0 and the blocks of this rank, in order."""
        for i in sorted({0, *self._local}):
            if i >= start:
                yield i, self.read(i)

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number among all; every rank must ask for the same ones."""
        rank, size = self._ranks.rank, self._ranks.size
        owner = np.searchsorted(self.edges[1:], index, side="right")
        order = np.argsort(owner, kind="stable")
        with self._ranks.together():
            mine = index[owner == rank] - self.edges[rank]
            part = self.own.rows(mine) if self._held is None else base.take_rows(self._held, mine)
            edges = np.searchsorted(owner[order], np.arange(size + 1)).tolist()
            self._ranks.meet("rows of every rank", checksum(index))
            with self._ranks.exchange():
                whole = self._of_all(part, edges)
            return base.take_rows(whole, np.argsort(order, kind="stable"))

    def _of_all(self, part: Array, edges: list[int]) -> Array:
        """The parts of all ranks, end to end; ``edges`` are their places."""
        if is_sparse(part):
            lengths = self._of_all(np.diff(part.indptr).astype(np.int64), edges)
            indptr = np.concatenate([[0], np.cumsum(lengths)])
            entries = indptr[edges].tolist()
            data = self._of_all(part.data, entries)
            columns = self._of_all(part.indices.astype(np.int64), entries)
            return sp.csr_array((data, columns, indptr), shape=(edges[-1], part.shape[1]))
        shape, rank = (edges[-1], *part.shape[1:]), self._ranks.rank
        whole = namespace(part).empty(shape, dtype=part.dtype, device=device(part))
        whole[edges[rank] : edges[rank + 1]] = part
        self._ranks.fill(whole, edges)
        return whole

    def batches(self, size: int, seed: int | None, epoch: int = 0, start: int = 0) -> Batches:
        """Mini-batches of the rows of all ranks, the same as one process would draw."""
        kind = MemorySource if isinstance(self.own, MemorySource) else BlockSource
        return kind.batches(self, size, seed, epoch, start)

    def of_all(self, values: Any) -> np.ndarray | None:
        """Numbers for this rank's rows, such as weights, joined with those of the others."""
        rows = self.own.shape[0]
        with self._ranks.together():
            if values is not None and np.shape(to_numpy(values)) != (rows,):
                shape = np.shape(values)
                raise ValueError(f"`sample_weight` has shape {shape}, but this rank {rows} rows.")
        parts = self._ranks.collect(None if values is None else to_numpy(values))
        without = [r for r, part in enumerate(parts) if part is None]
        if len(without) == len(parts):
            return None
        if without:
            raise ValueError(f"rank {without[0]} has no `sample_weight`, but others have.")
        return np.concatenate(parts)

    def whose(self, row: int) -> tuple[int, int]:
        """Rank that has a row, and the number of the row on that rank."""
        rank = int(np.searchsorted(self.edges[1:], row, side="right"))
        return rank, row - self.edges[rank]

    def fingerprint(self) -> Any:
        """Hashes of the blocks of every rank, and how they are read."""
        known = base.fingerprint(self.own)
        told = ("contents", "file", "reading_options", "own_scale")
        return self._ranks.collect([known[name] for name in told if name in known])

    def __repr__(self) -> str:
        ranks, (n, d), own = self._ranks, self.shape, self.own.shape[0]
        about = f"{own} of {n} x {d}, {dtype_name(self.dtype)}"
        return f"RankRows({about}, rank {ranks.rank} of {ranks.size})"
