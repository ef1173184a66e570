"""SciPy sparse matrices and arrays, never densified."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from primedpca._core.arrays import work_dtype
from primedpca.protocols import Block
from primedpca.sources.base import MemorySource

__all__ = ["SparseSource", "cut_by_entries"]

BLOCK_ENTRIES = 2**19
OUTPUT_RATIO = 16  # a block's product is written out whole, so it must hold many more entries


class SparseSource(MemorySource):
    """Compressed rows are read as rows, compressed columns as columns.

    The other formats (COO, LIL, DOK, DIA, BSR) are converted to compressed rows once, which
    takes a copy; so does merging duplicate entries.
    """

    def __init__(self, x: Any) -> None:
        if x.ndim != 2:
            raise ValueError(f"`X` must have two dimensions, got {x.ndim}.")
        work_dtype(x.dtype)
        if x.format == "coo":
            _check_indices(x.coords[0], x.shape[0])
            _check_indices(x.coords[1], x.shape[1])
        x = x if x.format in ("csr", "csc") else sp.csr_array(x)
        _check_structure(x)
        if not x.has_canonical_format:
            x = x.copy()
            x.sum_duplicates()
        self._x = x
        self.shape, self.dtype = (int(x.shape[0]), int(x.shape[1])), x.dtype
        self.axis = 0 if x.format == "csr" else 1
        self.blocks = cut_by_entries(x.indptr, self.shape[1 - self.axis])

    @property
    def array(self) -> Any:
        """The matrix itself."""
        return self._x

    def read(self, i: int) -> Block:
        """A view of the block: its entries are not copied."""
        start, stop = self.blocks[i]
        x, (a, b) = self._x, self._x.indptr[[start, stop]]
        shape = (stop - start, x.shape[1]) if self.axis == 0 else (x.shape[0], stop - start)
        block = (sp.csr_array if self.axis == 0 else sp.csc_array)(shape, dtype=x.dtype)
        # Set, not passed in: the constructor would copy what is less than half of its base.
        block.data, block.indices = x.data[a:b], x.indices[a:b]
        block.data.flags.writeable = block.indices.flags.writeable = False
        block.indptr = x.indptr[start : stop + 1] - a
        return block

    def rows(self, index: np.ndarray) -> Block:
        """The rows themselves, as compressed rows."""
        return sp.csr_array(self._x[index])

    def __repr__(self) -> str:
        n, d = self.shape
        return f"SparseSource({self._x.format}, {n} x {d}, {self._x.nnz} entries, {self.dtype})"


def cut_by_entries(indptr: np.ndarray, across: int) -> tuple[tuple[int, int], ...]:
    """Cut compressed rows (columns) of ``across`` places into blocks of about as many entries.

    A power of two of them: with five, two processors would work as long as for six.
    """
    stored, length = int(indptr[-1]), indptr.size - 1
    wanted = stored / max(BLOCK_ENTRIES, OUTPUT_RATIO * across)
    pieces = 2 ** max(0, round(math.log2(max(wanted, 1.0))))
    inner = np.searchsorted(indptr, np.linspace(0, stored, pieces + 1)[1:-1])
    edges = np.unique([0, *inner, length])
    return tuple((int(a), int(b)) for a, b in pairwise(edges))


def _check_structure(x: Any) -> None:
    """Refuse indices that point outside: the products would read foreign memory."""
    minor, major = x.shape[::-1] if x.format == "csr" else x.shape
    steps = np.diff(x.indptr)
    if x.indptr.size != major + 1 or x.indptr[0] != 0 or (steps < 0).any():
        raise ValueError("`X` is a damaged sparse matrix: its `indptr` does not ascend from 0.")
    if x.indptr[-1] > min(x.indices.size, x.data.size):
        raise ValueError(
            f"`X` is a damaged sparse matrix: `indptr` ends at {x.indptr[-1]}, but "
            f"{min(x.indices.size, x.data.size)} entries are stored."
        )
    _check_indices(x.indices[: x.indptr[-1]], minor)


def _check_indices(used: np.ndarray, size: int) -> None:
    if used.size and (used.min() < 0 or used.max() >= size):
        bad = used.min() if used.min() < 0 else used.max()
        raise ValueError(
            f"`X` is a damaged sparse matrix: it stores an entry at index {bad}, outside "
            f"0..{size - 1}; rebuild it."
        )
