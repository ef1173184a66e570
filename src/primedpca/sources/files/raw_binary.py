"""Numbers at a known place in a file: raw binary files and memory maps, read with plain reads.

Access to a map whose file was truncated kills the interpreter; a plain read returns fewer bytes,
which can be reported.
"""

from __future__ import annotations

import mmap
import operator
import os
from typing import Any

import numpy as np

from primedpca._core.arrays import work_dtype
from primedpca.protocols import Block
from primedpca.sources import base
from primedpca.sources.base import cut_evenly
from primedpca.sources.files.common import (
    FileSource,
    Stamp,
    check_matrix,
    read_into,
    stamp_of,
)
from primedpca.sources.files.regular_files import open_regular

__all__ = ["RawFileSource", "memmap_source", "raw_source"]


class RawFileSource(FileSource):
    """A strided array inside a file.

    Parameters
    ----------
    path : path
    shape, dtype, strides
        Of the array, as in NumPy; strides in bytes.
    offset : int
        Byte of the file at which the first entry begins.
    stamp : Stamp, optional
        State in which the file must remain.  Writable memory maps have none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        shape: tuple[int, int],
        dtype: Any,
        strides: tuple[int, int],
        offset: int,
        stamp: Stamp | None = None,
    ) -> None:
        if min(strides) < 0:
            raise ValueError(
                f"`X` is a memory map with negative strides {strides}, which cannot be read in "
                "order. Reverse it before passing it."
            )
        self.path, self.shape, self.dtype = os.fspath(path), shape, np.dtype(dtype)
        self.strides, self.offset, self._stamp = strides, offset, stamp
        work_dtype(self.dtype)
        # Whole strips along the axis with the larger stride: every byte is read once.
        self.axis = 0 if strides[0] >= strides[1] else 1
        self.blocks = cut_evenly(
            shape[self.axis], max(1, base.READ_BYTES // max(strides[self.axis], 1))
        )

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
        held = np.empty(length, np.uint8)  # measured: no slower than a buffer used again
        where = f"entries {start}:{stop} of axis {self.axis}"
        try:
            with open_regular(self.path) as file:
                if self._stamp is not None:
                    self._stamp.check(stamp_of(file.fileno(), self.path), self.path, where)
                file.seek(begin)
                if read_into(file, held) < length:
                    size = os.fstat(file.fileno()).st_size
                    raise OSError(
                        f"{self.path} ends at byte {size}, but {where} reach to byte "
                        f"{begin + length}: it was truncated."
                    )
        except FileNotFoundError:
            raise FileNotFoundError(
                f"File not found any more: {self.path} (seen at {where})."
            ) from None
        block: np.ndarray = base.read_only(
            np.ndarray(shape, self.dtype, held, strides=self.strides)
        )
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


def memmap_source(x: Any) -> RawFileSource:
    """Source of the file behind a memory map, or behind any slice of one."""
    base = np.frombuffer(x._mmap, np.uint8).__array_interface__["data"][0]
    mapped_from = x.offset - x.offset % mmap.ALLOCATIONGRANULARITY
    offset = mapped_from + x.__array_interface__["data"][0] - base
    stamp = stamp_of(x.filename) if x.mode == "r" else None
    return RawFileSource(x.filename, x.shape, x.dtype, x.strides, offset, stamp)


def raw_source(
    path: str | os.PathLike[str],
    *,
    shape: tuple[int, int],
    dtype: Any,
    offset: int = 0,
    order: str = "C",
    exact: bool = False,
) -> RawFileSource:
    """Source of a file of numbers without a header.

    Parameters
    ----------
    path : path
    shape : (n, d)
    dtype : dtype
        With its byte order, such as ``">f4"``.
    offset : int, default=0
        Bytes before the first number.
    order : {"C", "F"}, default="C"
        Rows one after another, or columns.
    exact : bool, default=False
        Refuse a file with more bytes after the last number.
    """
    name = os.fspath(path)
    kind = np.dtype(dtype)
    try:
        sides = tuple(operator.index(side) for side in shape)
    except TypeError:
        raise TypeError(f"{name}: `shape`={shape!r} must be two whole numbers, (n, d).") from None
    n, d = check_matrix(name, sides, kind)
    if order not in ("C", "F"):
        raise ValueError(f"`order`={order!r} must be 'C' or 'F'.")
    if min(n, d, offset) < 0:
        raise ValueError(f"{name}: `shape`={shape} and `offset`={offset} must not be negative.")
    stamp = stamp_of(name)
    end = offset + n * d * kind.itemsize
    if stamp.size < end or (exact and stamp.size != end):
        raise ValueError(
            f"{name} has {stamp.size} bytes, but {n} x {d} numbers of {kind} from byte {offset} "
            f"on end at byte {end}: it is truncated, or the shape, type or offset is wrong."
        )
    strides = (
        (d * kind.itemsize, kind.itemsize) if order == "C" else (kind.itemsize, n * kind.itemsize)
    )
    return RawFileSource(name, (n, d), kind, strides, offset, stamp)
