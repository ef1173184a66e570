"""SciPy sparse matrices and arrays, never densified."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from primedpca._core.arrays import work_dtype
from primedpca.protocols import Block
from primedpca.sources.base import MemorySource, matrix_shape, read_only

BLOCK_ENTRIES = 2**19
OUTPUT_RATIO = 16  # a block's product is dense, so a block must hold many times its entries


class SparseSource(MemorySource):
    """A sparse matrix in memory: compressed rows are read as rows, compressed columns as columns.

    The other formats (COO, LIL, DOK, DIA, BSR) are converted to compressed rows once, which
    takes a copy; so does merging duplicate entries.

    Attributes
    ----------
    array : sparse array of shape (n, d)
        The matrix itself, in CSR or CSC format.
    """

    library = "scipy"

    def __init__(self, x: Any) -> None:
        self.shape, self.dtype = matrix_shape(x), x.dtype
        work_dtype(x.dtype)
        try:
            x = _checked(x)
        except ValueError as error:
            raise ValueError(f"`X` is a damaged sparse matrix: {error}. Build it again.") from error
        fresh = _uncached(x)
        if not fresh.has_canonical_format:
            x = fresh.copy()
            x.sum_duplicates()
        self.array = x
        self.axis = 0 if x.format == "csr" else 1
        self.blocks = cut_by_entries(x.indptr, self.shape[1 - self.axis])

    def read(self, i: int) -> Block:
        """The block, as a view: its entries are not copied."""
        start, stop = self.blocks[i]
        x, (a, b) = self.array, self.array.indptr[[start, stop]]
        shape = (stop - start, x.shape[1]) if self.axis == 0 else (x.shape[0], stop - start)
        block = (sp.csr_array if self.axis == 0 else sp.csc_array)(shape, dtype=x.dtype)
        # Set, not passed in: the constructor would copy what is less than half of its base.
        block.data, block.indices = x.data[a:b], x.indices[a:b]
        block.indptr = x.indptr[start : stop + 1] - a
        return read_only(block)

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number, as compressed rows."""
        return sp.csr_array(self.array[index])

    def __repr__(self) -> str:
        x, (n, d) = self.array, self.shape
        return f"SparseSource({x.format}, {n} x {d}, {x.nnz} entries, {x.dtype})"


def _checked(x: Any) -> Any:
    """Compressed rows or columns, which may be trusted afterwards."""
    if x.format == "coo":
        for used, size in zip(x.coords, x.shape, strict=True):
            check_indices(used, size)
    x = x if x.format in ("csr", "csc") else sp.csr_array(x)
    minor, major = x.shape[::-1] if x.format == "csr" else x.shape
    check_indptr(x.indptr, major, min(x.indices.size, x.data.size))
    check_indices(x.indices[: x.indptr[-1]], minor)
    return x


def _uncached(x: Any) -> Any:
    """Return a view of a compressed matrix without SciPy's cached flags.

    SciPy keeps ``has_canonical_format`` when the indices are changed in place, and with a stale
    flag ``sum_duplicates`` does nothing.  Squares of unmerged duplicates make the total variance,
    and with it the proof, wrong.
    """
    view = (sp.csr_array if x.format == "csr" else sp.csc_array)(x.shape, dtype=x.dtype)
    view.data, view.indices, view.indptr = x.data, x.indices, x.indptr
    return view


def cut_by_entries(indptr: np.ndarray, across: int) -> tuple[tuple[int, int], ...]:
    """Cut compressed rows (columns) of length ``across`` into blocks with about equal entries.

    The number of blocks is a power of two: two processors would take as long for five as for six.
    """
    stored, length = int(indptr[-1]), indptr.size - 1
    wanted = stored / max(BLOCK_ENTRIES, OUTPUT_RATIO * across)
    pieces = 2 ** max(0, round(math.log2(max(wanted, 1.0))))
    inner = np.searchsorted(indptr, np.linspace(0, stored, pieces + 1)[1:-1])
    edges = np.unique([0, *inner, length])
    return tuple((int(a), int(b)) for a, b in pairwise(edges))


def index_dtype(most: int) -> type:
    """Return the narrowest dtype of indices and offsets up to ``most``."""
    return np.int32 if most < 2**31 else np.int64


def check_indptr(indptr: np.ndarray, length: int, stored: int) -> None:
    """Refuse an ``indptr`` of ``length`` rows that does not ascend from 0 to the stored entries."""
    if indptr.size != length + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise ValueError("its `indptr` does not ascend from 0")
    if indptr[-1] > stored:
        raise ValueError(f"`indptr` ends at {indptr[-1]}, but {stored} entries are stored")


def check_indices(used: np.ndarray, size: int) -> None:
    """Refuse indices outside the matrix: products would read memory beyond its arrays."""
    least, most = used.min(initial=0), used.max(initial=0)
    if used.size and (least < 0 or most >= size):
        bad = least if least < 0 else most
        raise ValueError(f"it stores an entry at index {bad}, outside 0..{size - 1}")
