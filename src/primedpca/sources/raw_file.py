"""Numbers in a file at a known place: memory maps, read with plain reads.

A map that is truncated while it is open kills the interpreter; a read comes back short and can
be told.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from primedpca.arrays import dtype_name, work_dtype
from primedpca.protocols import Block
from primedpca.sources.base import BlockSource, cut_evenly

__all__ = ["RawFileSource", "memmap_source"]

READ_BYTES = 2**23


class RawFileSource(BlockSource):
    """A strided array inside a file.

    Parameters
    ----------
    path : path
    shape, dtype, strides
        Of the array, as NumPy has them.
    offset : int
        Where in the file the first entry stands.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        shape: tuple[int, int],
        dtype: Any,
        strides: tuple[int, int],
        offset: int,
    ) -> None:
        if min(strides) < 0:
            raise ValueError(
                f"`X` is a memory map with strides {strides}; one that runs backwards cannot be "
                "read in order: pass it the other way round."
            )
        self.path, self.shape, self.dtype = os.fspath(path), shape, np.dtype(dtype)
        self.strides, self.offset = strides, offset
        work_dtype(self.dtype)
        # Whole strips along the axis that lies apart in the file: every byte is read once.
        self.axis = 0 if strides[0] >= strides[1] else 1
        self.blocks = cut_evenly(shape[self.axis], max(1, READ_BYTES // max(strides[self.axis], 1)))

    def read(self, i: int) -> Block:
        """The block, in a fresh buffer."""
        return self._read(*self.blocks[i])

    def _read(self, start: int, stop: int) -> np.ndarray:
        shape = list(self.shape)
        shape[self.axis] = stop - start
        if 0 in shape:
            return np.empty(shape, self.dtype)
        begin = self.offset + start * self.strides[self.axis]
        length = self.dtype.itemsize + sum(
            (extent - 1) * stride for extent, stride in zip(shape, self.strides, strict=True)
        )
        held = bytearray(length)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(begin)
            view, got = memoryview(held), 0
            while got < length:
                count = file.readinto(view[got:])
                if not count:
                    size = os.fstat(file.fileno()).st_size
                    raise OSError(
                        f"{self.path} ends at byte {size}, but entries {start}:{stop} of axis "
                        f"{self.axis} reach to byte {begin + length}: it was truncated."
                    )
                got += count
        block = np.ndarray(shape, self.dtype, held, strides=self.strides)
        block.flags.writeable = False
        return block

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number; neighbours are read together."""
        if self.axis == 1:
            return super().rows(index)
        out = np.empty((index.size, self.shape[1]), self.dtype)
        order = np.argsort(index, kind="stable")
        edges = np.flatnonzero(np.diff(index[order]) != 1) + 1
        for place in np.split(order, edges):
            if place.size:
                first, last = int(index[place[0]]), int(index[place[-1]])
                out[place] = self._read(first, last + 1)
        return out

    def __repr__(self) -> str:
        n, d = self.shape
        return f"RawFileSource({self.path!r}, {n} x {d}, {dtype_name(self.dtype)})"


def memmap_source(x: Any) -> RawFileSource:
    """The file behind a memory map, or behind any slice of one."""
    base = np.frombuffer(x._mmap, np.uint8).__array_interface__["data"][0]
    mapped_from = x.offset - x.offset % mmap.ALLOCATIONGRANULARITY
    offset = mapped_from + x.__array_interface__["data"][0] - base
    return RawFileSource(x.filename, x.shape, x.dtype, x.strides, offset)
