"""Rows to which a function is applied as they are read."""

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from primedpca._core.arrays import (
    describe,
    dtype_name,
    is_dense_block,
    is_device_sparse,
    is_numpy_array,
    is_sparse,
    namespace,
    to_numpy,
    work_dtype,
)
from primedpca._core.digest import digest
from primedpca.protocols import Block
from primedpca.sources import base, maps
from primedpca.sources.base import Batches, MemorySource, View, library_of, read_only
from primedpca.sources.maps import RowMap, Sizes
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.sparse import SparseSource

TRIED_ROWS = 8
WRITES = "writes to the rows it is given; let it copy them first."


def _in_words(function: Any) -> str:
    """Name of a function, with what it was given in advance; the same in every process."""
    if isinstance(function, partial):
        given = [_shown(value) for value in function.args]
        given += [f"{name}={_shown(value)}" for name, value in sorted(function.keywords.items())]
        return f"{_in_words(function.func)} with {', '.join(given)}"
    for known in ("__qualname__", "__name__"):  # ufuncs have the second alone
        if isinstance(getattr(function, known, None), str):
            return str(getattr(function, known))
    if " at 0x" not in str(function):
        return str(function)
    own = sorted(getattr(function, "__dict__", {}).items())  # an address is that of this process
    given = [f"{name}={_shown(value)}" for name, value in own]
    return f"{type(function).__qualname__}({', '.join(given)})"


def _shown(value: Any) -> str:
    """A plain value, or the hash of another."""
    plain = value is None or isinstance(value, (bool, int, float, str))
    return repr(value) if plain else digest(value)[:16]


class Mapped(View):
    """A source with a function applied to its rows, block by block; no copy of all is kept.

    Parameters
    ----------
    source : source
    function : callable
        Takes a block of rows, dense or sparse as the source has them, and returns as many rows,
        each a function of the same row alone, always of one type and number of columns.  It is
        tried on a few rows first.  :mod:`primedpca.sources.maps` has ready-made functions.
    """

    # Zeros stay zeros, and a Dask array is computed in place.
    kept = (*View.kept, "nnz", "client", "headings")

    def __init__(self, source: Any, function: Callable[[Block], Block]) -> None:
        if not callable(function):
            raise TypeError(f"`map`={function!r} must be a function of a block of rows.")
        self.source = source
        self.function: Any = function
        name = getattr(function, "name", "")
        # In brackets: a user's function cannot be looked up by its name.
        known = getattr(maps, name, None) == function
        self.map_name = name if known else f"<{_in_words(function)}>"
        if source.traits.scale is not None:
            raise ValueError(f"`map` and the scale of {source!r} cannot be combined; omit one.")
        if source.axis == 1 and not isinstance(function, RowMap):
            self.source = source = in_rows(source, function)
        self.axis, self.blocks, self.device = source.axis, source.blocks, source.device
        tried = self._try()
        self.dtype, self.library = tried.dtype, library_of(tried)
        self.shape = (source.shape[0], source.shape[1] if source.axis == 1 else tried.shape[1])
        self.layout = source.traits.layout  # models compare the maps as well
        self._sizes: Sizes = None, None  # of whole rows where blocks are columns, by one pass
        if source.axis == 1 and isinstance(function, RowMap) and function.total != "none":
            self._sizes = function.sizes(self._totals, dtype_name(self.dtype))

    def _totals(self, unit: float) -> Any:
        return sum(self.function.totals(block, unit) for _, block in self.source.scan())

    def _try(self) -> Block:
        """Apply the function to a few rows, twice, and to the first row alone."""
        _, block = next(iter(self.source.scan()))
        few = block[:TRIED_ROWS]
        result = self._called(few)
        work_dtype(result.dtype)
        if not _same(result, self._called(few)):
            raise self._bad("returns different values for the same rows; remove anything random.")
        if not _same(result[:1], self._called(few[:1])):
            raise self._bad("mixes rows; it must work row by row (see `center` and `scale`).")
        return result

    def _bad(self, words: str) -> ValueError:
        return ValueError(f"`map`={self.function!r} {words}")

    def _called(self, rows: Block) -> Block:
        """As many rows as were given, mapped."""
        with np.errstate(all="ignore"):  # non-finite values are reported after the pass
            try:
                result = self.function(_guarded(rows))
            except ValueError as error:
                if "read-only" not in str(error):
                    raise
                raise self._bad(WRITES) from error
        if is_sparse(result) and not is_sparse(rows):
            raise self._bad("made dense rows sparse; let it return result.toarray().")
        if is_sparse(result) and result.format != rows.format:
            result = result.asformat(rows.format)
        shape = getattr(result, "shape", None)
        if shape is None or len(shape) != 2 or shape[0] != rows.shape[0]:
            what = f"shape {tuple(shape)}" if shape is not None else type(result).__name__
            words = f"turned {rows.shape[0]} rows into {what}; it must return as many rows."
            raise self._bad(words)
        if is_sparse(rows) and not is_sparse(result) and shape[1] >= rows.shape[1]:
            raise self._bad("made sparse rows dense; it must map zero to zero, as f(rows.data).")
        if not is_sparse(result) and not is_dense_block(result):
            raise self._bad(f"returned a {describe(result)}; it must return a dense array.")
        return result

    def _applied(self, rows: Block) -> Block:
        """Whole rows, mapped; their width and type must be as in the trial."""
        result = self._called(rows)
        if result.shape[1] != self.shape[1] or result.dtype != self.dtype:
            now = f"{result.shape[1]} columns of {dtype_name(result.dtype)}"
            raise self._bad(f"returned {now} after {self.shape[1]} of {dtype_name(self.dtype)}.")
        return read_only(result)

    def read(self, i: int) -> Block:
        """The block, mapped."""
        return self._whole(self.source.read(i))

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """The blocks in order, mapped."""
        for i, block in self.source.scan(start):
            yield i, self._whole(block)

    def _whole(self, block: Block) -> Block:
        if self.axis == 0:
            return self._applied(block)
        return read_only(self.function.apply(block, self._sizes))

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number, mapped."""
        return self._applied(self.source.rows(index))

    def batches(self, size: int, seed: int | None, epoch: int = 0, start: int = 0) -> Batches:
        """The mini-batches of the source below, mapped."""
        for index, rows in self.source.batches(size, seed, epoch, start):
            yield index, self._applied(rows)

    def __repr__(self) -> str:
        return f"Mapped({self.source!r}, {getattr(self.function, '__name__', self.function)!s})"


def in_rows(source: Any, function: Any) -> MemorySource:
    """The same data in blocks of whole rows, if they lie in memory."""
    known = source.traits
    if known.array is None:
        raise ValueError(
            f"`map`={function!r} needs whole rows, but {source!r} is stored by columns. Use a "
            "function of primedpca.sources.maps, or store the data by rows."
        )
    if is_sparse(known.array):
        rows: MemorySource = SparseSource(known.array.tocsr())
    else:
        rows = DenseSource(known.array)
        rows.axis = 0
        rows.blocks = base.cut_evenly(rows.shape[0], base.BLOCK_BYTES // (8 * rows.shape[1]))
    rows.feature_names, rows.row_names = known.feature_names(), known.row_names()
    rows.labels, rows.missing, rows.paths = known.labels(), known.missing, known.paths
    rows.column_names = getattr(source, "column_names", None)
    return rows


def _guarded(rows: Block) -> Block:
    """The rows, such that nothing that a function does to them reaches their owner."""
    if is_device_sparse(rows):
        rows = copy(rows)
        rows.data = namespace(rows).asarray(rows.data, copy=True)
        return rows
    if is_sparse(rows):
        rows = copy(rows)  # of the object; below, of its arrays or of the right to write to them
        parts = ("data", "indices", "indptr")
        rows.data, rows.indices, rows.indptr = (_guarded(getattr(rows, part)) for part in parts)
        return rows
    return read_only(rows) if is_numpy_array(rows) else namespace(rows).asarray(rows, copy=True)


def _values(block: Block) -> np.ndarray:
    return block.toarray() if is_sparse(block) else to_numpy(block)


def _same(one: Block, other: Block) -> bool:
    """Whether blocks are equal up to rounding, as sums may be added in another order."""
    if one.shape != other.shape or one.dtype != other.dtype or is_sparse(one) != is_sparse(other):
        return False
    left, right = (np.asarray(_values(block), np.float64) for block in (one, other))
    floats = left.size and "float" in dtype_name(one.dtype)
    eps = float(namespace(one).finfo(one.dtype).eps) if floats else 0.0
    size = np.max(np.abs(left[np.isfinite(left)]), initial=0.0)
    return np.allclose(left, right, rtol=0, atol=1000 * eps * size, equal_nan=True)
