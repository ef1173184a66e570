"""Compressed sparse rows or columns in a file, read block by block."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp

from primedpca._core.arrays import work_dtype
from primedpca.protocols import Block
from primedpca.sources.base import BlockSource, read_only
from primedpca.sources.files.common import reading, runs
from primedpca.sources.memory import sparse


class CompressedFile(BlockSource):
    """A sparse matrix of which only ``indptr`` is in memory; blocks stay sparse.

    A subclass defines :meth:`_stored`.  Every block is checked as it is read: products with an
    index outside the matrix would read memory beyond their operands.
    """

    path: str
    library = "scipy"

    def _begin(self, kind: str, shape: Any, dtype: Any, indptr: np.ndarray, entries: int) -> None:
        """Check all that is known without reading the entries, and cut into blocks."""
        if kind not in ("csr", "csc"):
            raise ValueError(f"its sparse format is {kind!r}, not csr or csc")
        self.format, self.dtype = kind, np.dtype(dtype)
        self.shape, self.axis = (int(shape[0]), int(shape[1])), 0 if kind == "csr" else 1
        work_dtype(self.dtype)
        indptr = np.asarray(indptr)
        if indptr.dtype.kind not in "iu" or indptr.shape != (self.shape[self.axis] + 1,):
            raise ValueError(f"its `indptr` is {indptr.dtype} of shape {indptr.shape}")
        self._indptr = indptr.astype(np.int64, copy=False)
        if self._indptr[0] != 0 or (np.diff(self._indptr) < 0).any():
            raise ValueError("its `indptr` does not ascend from 0")
        if self._indptr[-1] > entries:
            raise ValueError(f"`indptr` ends at {self._indptr[-1]}, but has {entries} entries")
        self.nnz = int(self._indptr[-1])
        self.blocks = sparse.cut_by_entries(self._indptr, self.shape[1 - self.axis])

    @abstractmethod
    def _stored(self, name: str, start: int, stop: int) -> np.ndarray:
        """Entries ``start:stop`` of ``"data"`` or ``"indices"``, in a fresh array."""

    def read(self, i: int) -> Block:
        """The block, its indices checked."""
        return self._slice(*self.blocks[i], f"block {i}")

    def _slice(self, start: int, stop: int, what: str) -> Block:
        a, b = int(self._indptr[start]), int(self._indptr[stop])
        lengths = [self.shape[0], self.shape[1]]
        lengths[self.axis] = stop - start
        block = (sp.csr_array if self.axis == 0 else sp.csc_array)(tuple(lengths), dtype=self.dtype)
        # Set, not passed in: the constructor would look for a narrower type and copy.
        block.data, block.indices = self._stored("data", a, b), self._stored("indices", a, b)
        narrow = np.int32 if b - a < 2**31 else np.int64
        block.indptr = (self._indptr[start : stop + 1] - a).astype(narrow)
        across = self.shape[1 - self.axis]
        with reading(self.path, what):
            if block.indices.dtype.kind not in "iu":
                raise ValueError("its `indices` are not integers")
            least, most = block.indices.min(initial=0), block.indices.max(initial=0)
            if block.indices.size and (least < 0 or most >= across):
                bad = least if least < 0 else most
                raise ValueError(f"it stores an entry at index {bad}, outside 0..{across - 1}")
        block.indices = block.indices.astype(narrow, copy=False)
        if not block.has_canonical_format:
            block.sum_duplicates()
        return read_only(block)

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number; neighbours are read together."""
        if self.axis == 1:
            return super().rows(index)
        pieces, places = [], []
        for place, first, stop in runs(index):
            held = self._slice(first, stop, f"rows {first}:{stop}")
            pieces.append(held[index[place] - first])
            places.append(place)
        if not pieces:
            return sp.csr_array((0, self.shape[1]), dtype=self.dtype)
        return sp.vstack(pieces, format="csr")[np.argsort(np.concatenate(places), kind="stable")]

    def __repr__(self) -> str:
        (n, d), name = self.shape, f"{type(self).__name__}({self.path!r}"
        return f"{name}, {self.format}, {n} x {d}, {self.nnz} entries, {self.dtype})"
