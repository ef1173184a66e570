"""Rows that an object yields or gives one by one: iterables, PyTorch datasets and data loaders."""

import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import scipy.sparse as sp

from primedpca._core.arrays import (
    dtype_name,
    is_sparse,
    is_sparse_tensor,
    to_numpy,
    work_dtype,
)
from primedpca._core.process import lock_of, renewed_after_fork
from primedpca.protocols import Block, DataSource
from primedpca.sources import base
from primedpca.sources.base import BlockSource, MemorySource, join, read_only
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.frames import (
    as_native,
    frame_source,
    is_frame,
    labels_along,
    not_numbers,
)
from primedpca.sources.memory.sparse import SparseSource

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
        self._columns: list[Any] | None = None
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
            raise ValueError(self._yields("no blocks; it must yield 2-d arrays of rows."))
        self.shape, self.dtype = (edges[-1], int(first.shape[1])), first.dtype
        self._first, self.library = first, base.library_of(first)
        names: list[Any] = self._columns or []
        if all(isinstance(name, str) for name in names):
            self.feature_names = names or None
        self.blocks = tuple(pairwise(edges))
        self._renew()
        renewed_after_fork(self)

    def _renew(self) -> None:
        """Iterate from the start for the next block that is read."""
        self._lock = threading.Lock()
        self._cursor: Iterator[tuple[int, Block]] = iter(())
        self._next = len(self.blocks)

    def _yields(self, words: str) -> str:
        return f"`X` ({self._name}) yields {words}"

    def _compare(self, block: Block, first: Block) -> None:
        kinds = [(x.shape[1], x.dtype, is_sparse(x)) for x in (block, first)]
        if kinds[0] != kinds[1]:
            now, then = (
                f"{columns} columns of {dtype_name(dtype)}{' in sparse storage' * sparse}"
                for columns, dtype, sparse in kinds
            )
            raise ValueError(self._yields(f"{now} after one of {then}; all must be alike."))

    def _pieces(self) -> Iterator[Block]:
        """Blocks as they come, small ones joined."""
        held, size = list[Block](), 0
        for number, given in enumerate(self._start()):
            block = self._checked(given, number)
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

    def _checked(self, block: Any, number: int) -> Block:
        """A block as rows that can be worked on."""
        names = labels_along(block, 1)
        if is_frame(block):  # NumPy would take categories, gaps and large integers as they are
            block = as_native(block)
            if text := not_numbers(block):
                name, what = next(iter(text.items()))
                words = f"column {name!r} ({what}) in block {number}, which does not hold numbers"
                raise ValueError(self._yields(f"{words}; drop or encode such columns."))
            source = frame_source(block)
            names, block = list(source.column_names or ()), source.array
        if number == 0:
            self._columns = names
        if names != self._columns:
            pairs = zip_longest(names or (), self._columns or (), fillvalue="no name")
            here, first = next(pair for pair in pairs if pair[0] != pair[1])
            what = f"column {here!r} in block {number} where the first block has {first!r}"
            raise ValueError(self._yields(f"{what}; give all the same columns in one order."))
        if is_sparse(block):
            # A copy, here and below: the iterator may reuse the memory for its next block.
            return SparseSource(sp.csr_array(block, copy=True)).array
        rows = "it must yield 2-d arrays of rows, such as row[None] for a single one."
        if not hasattr(block, "shape") and not hasattr(block, "__array__"):
            raise TypeError(self._yields(f"a {type(block).__name__} as block {number}; {rows}"))
        values = np.array(_dense(block, f"block {number}"))
        if values.ndim != 2:
            words = f"an array of shape {values.shape} as block {number}"
            raise ValueError(self._yields(f"{words}; {rows}"))
        return values

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """Iterate again, skipping the blocks before ``start``."""
        count = 0
        for i, block in enumerate(self._pieces()):
            if i >= len(self.blocks) or _checksum(block) != self._sums[i]:
                words = f"other rows in block {i} than when it was first read"
                raise ValueError(self._yields(f"{words}; remove all shuffling and randomness."))
            count += 1
            if i >= start:
                yield i, block
        if count < len(self.blocks):
            words = f"{count} blocks, but yielded {len(self.blocks)} when it was first read"
            raise ValueError(self._yields(f"{words}; it must yield the same rows every time."))

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

    def __repr__(self) -> str:
        n, d = self.shape
        return f"IteratedBlocks({self._name}, {n} x {d}, {dtype_name(self.dtype)})"


def _checksum(block: Block) -> int:
    parts = (block.data, block.indices, block.indptr) if is_sparse(block) else (block,)
    total: int = block.shape[0]
    for part in parts:
        total = zlib.crc32(np.ascontiguousarray(part).data.cast("B"), total)
    return total


def iterated(x: Any) -> IteratedBlocks:
    """Source of an object that yields 2-d arrays each time it is iterated over."""
    if iter(x) is x:
        raise TypeError(f"`X` is a {type(x).__name__}, iterated only once. Use `partial_fit`.")
    return IteratedBlocks(lambda: iter(x), type(x).__name__)


def is_iterable_of_blocks(x: Any) -> bool:
    """Whether ``x`` can be iterated over and is not text, a mapping, a set or an array."""
    if isinstance(x, (str, bytes, Mapping, set, frozenset)) or hasattr(x, "__array__"):
        return False
    return hasattr(x, "__iter__")


class DatasetRows(MemorySource):
    """A dataset with random access to its rows.

    A row of any shape is flattened; of a pair (row, label) the label is ignored.  One thread at a
    time asks for one row at a time, as a worker of a data loader would.

    Parameters
    ----------
    dataset : torch.utils.data.Dataset
        With ``__len__`` and ``__getitem__``; it must give the same row for the same number.
    """

    library = "numpy"

    def __init__(self, dataset: Any) -> None:
        self.dataset, n, self._labels = dataset, len(dataset), list[Any]()
        if n == 0:
            raise ValueError("`X` is empty: the dataset has no rows.")
        first, again = self._row(0), self._row(0)
        if not np.array_equal(first, again, equal_nan=first.dtype.kind == "f"):
            raise ValueError("row 0 differs at each reading of `X`; remove random transforms.")
        work_dtype(first.dtype)
        self.shape, self.dtype = (n, first.size), first.dtype
        self.blocks = base.cut_evenly(n, max(1, BLOCK_BYTES // max(first.nbytes, 1)))

    def _row(self, number: int) -> np.ndarray:
        try:
            item = self.dataset[number]
        except IndexError as error:
            raise ValueError(
                f"row {number} of `X` cannot be read: IndexError({error}). Its length is "
                f"{len(self.dataset)}; correct `__len__` or `__getitem__` of the dataset."
            ) from error
        return _numbers(item, f"row {number}", self._labels).reshape(-1)

    def read(self, i: int) -> Block:
        """Rows of the block, in a fresh array."""
        return self.rows(np.arange(*self.blocks[i]))

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number."""
        out = np.empty((index.size, self.shape[1]), self.dtype)
        with lock_of(self):
            for place, number in enumerate(index.tolist()):
                row = self._row(number)
                if row.size != self.shape[1] or row.dtype != self.dtype:
                    words = f"{row.size} entries of {row.dtype}, but row 0 has {self.shape[1]} of"
                    raise ValueError(f"row {number} of `X` has {words} {self.dtype}.")
                out[place] = row
        return read_only(out)

    def __repr__(self) -> str:
        n, d = self.shape
        return f"DatasetRows({type(self.dataset).__name__}, {n} x {d}, {dtype_name(self.dtype)})"


def is_torch_data(x: Any) -> bool:
    """Whether ``x`` is a PyTorch dataset or data loader (PyTorch is not imported to find out)."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(x, (data.Dataset, data.DataLoader))


def torch_source(x: Any) -> DataSource:
    """A dataset with random access where it has that; iterable ones and loaders in order only."""
    from torch.utils import data

    if isinstance(x, data.DataLoader):
        if isinstance(x.sampler, data.RandomSampler):
            raise ValueError("`X` is a data loader that shuffles; set shuffle=False.")
        if x.drop_last:
            raise ValueError("`X` is a data loader that drops rows; use drop_last=False.")
        return IteratedBlocks(lambda: _batches(x), "a DataLoader")
    if isinstance(x, data.IterableDataset):
        return IteratedBlocks(lambda: _single_rows(x), type(x).__name__)
    if type(x) is data.TensorDataset and x.tensors[0].ndim == 2:
        base.check_entries(x.tensors[0])
        return DenseSource(x.tensors[0])
    return DatasetRows(x)


def _batches(loader: Any) -> Iterator[np.ndarray]:
    """Batches of a data loader, each row flattened."""
    labels: list[Any] = []
    for number, batch in enumerate(loader):
        single = loader.batch_size is None and loader.batch_sampler is None
        values = _numbers(batch, f"batch {number}", labels, 1 if single else 2)
        if single:
            values = values[None] if values.ndim == 1 else values
        yield values.reshape(values.shape[0], -1)


def _single_rows(dataset: Any) -> Iterator[np.ndarray]:
    labels: list[Any] = []
    for number, item in enumerate(dataset):
        yield _numbers(item, f"row {number}", labels).reshape(1, -1)


def _dense(values: Any, what: str) -> np.ndarray:
    """The numbers of an array of any library but a sparse one."""
    base.check_entries(values, f"{what} of `X`")
    if is_sparse_tensor(values) or hasattr(values, "todense"):  # of PyTorch, of the library sparse
        dense = "to_dense" if is_sparse_tensor(values) else "todense"
        kind = f"{type(values).__module__.split('.')[0]}.{type(values).__name__}"
        raise TypeError(
            f"{what} of `X` is a sparse {kind}. Give `.{dense}()` of it, or yield blocks of rows "
            "as sparse arrays of SciPy."
        )
    return to_numpy(values)


def _numbers(item: Any, what: str, labels: list[Any], least: int = 1) -> np.ndarray:
    """Rows of an item, without its label, beside which they have at least so many dimensions.

    Names of columns, as a Series has them, are compared with those of the first item, which are
    kept in ``labels``.
    """
    several = isinstance(item, (tuple, list))
    values = item[0] if several and len(item) else item
    if not hasattr(values, "__array__"):
        raise TypeError(f"`X` gave a {type(values).__name__} as {what}, not a row or (row, label).")
    found = _dense(values, what)
    names = labels_along(values, 1 if is_frame(values) or found.ndim > 1 else 0)
    if not labels:
        labels.append(names)
    elif names != labels[0]:
        words = "names its columns otherwise than the first item, or in another order"
        raise ValueError(f"{what} of `X` {words}. Give arrays with the columns in one order.")
    if several and len(item) > 1 and found.ndim < least:
        words = f"{len(item)} separate columns as {what}, not a row or (row, label)"
        raise TypeError(f"`X` gave {words}. Join them in one array, as torch.stack does.")
    return found
