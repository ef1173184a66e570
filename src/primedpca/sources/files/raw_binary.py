"""Numbers at a known place in a file: raw binary and ``.npy`` files and memory maps.

Access to a map whose file was truncated kills the interpreter; a plain read returns fewer bytes,
which can be reported.
"""

from __future__ import annotations

import io
import mmap
import operator
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from primedpca._core.arrays import work_dtype
from primedpca.protocols import Block
from primedpca.sources import base
from primedpca.sources.files import common
from primedpca.sources.files.common import FileSource, Stamp, open_regular, stamp_of

HEADER_BYTES = 10_000  # of a .npy file: NumPy's own limit
Pair = tuple[int, int]


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
        self, path: Any, shape: Pair, dtype: Any, strides: Pair, offset: int, stamp: Stamp | None
    ) -> None:
        if min(strides) < 0:
            raise ValueError(
                f"`X` is a memory map with negative strides {strides}; reverse it beforehand."
            )
        self.path, self.shape, self.dtype = os.fspath(path), shape, np.dtype(dtype)
        self.strides, self.offset, self._stamp = strides, offset, stamp
        work_dtype(self.dtype)
        # Whole strips along the axis with the larger stride: every byte is read once.
        self.axis = 0 if strides[0] >= strides[1] else 1
        step = max(1, base.READ_BYTES // max(strides[self.axis], 1))
        self.blocks = base.cut_evenly(shape[self.axis], step)

    def read(self, i: int) -> Block:
        """The block, in a fresh buffer."""
        return self._read(*self.blocks[i])

    def _read(self, start: int, stop: int) -> np.ndarray:
        shape = list(self.shape)
        shape[self.axis] = stop - start
        begin = self.offset + start * self.strides[self.axis]
        last = [(extent - 1) * stride for extent, stride in zip(shape, self.strides, strict=True)]
        # A fresh buffer: measured to be no slower than one used again.
        held = np.empty(self.dtype.itemsize + sum(last), np.uint8)
        where = f"entries {start}:{stop} of axis {self.axis}"
        with open_regular(self.path) as file:
            if self._stamp is not None:
                self._stamp.check(self.path, where, file.fileno())
            file.seek(begin)
            if common.read_into(file, held) < held.size:
                raise OSError(f"{self.path} was truncated: {where} are missing.")
        block: np.ndarray = np.ndarray(shape, self.dtype, held, strides=self.strides)
        block.flags.writeable = False
        return block

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number; neighbours are read together."""
        if self.axis == 1:
            return super().rows(index)
        out = np.empty((index.size, self.shape[1]), self.dtype)
        for place, first, stop in common.runs(index):
            out[place] = self._read(first, stop)[index[place] - first]
        return out


def memmap_source(x: Any) -> RawFileSource:
    """Source of the file behind a memory map, or behind any slice of one."""
    base = np.frombuffer(x._mmap, np.uint8).__array_interface__["data"][0]
    mapped_from = x.offset - x.offset % mmap.ALLOCATIONGRANULARITY
    offset = mapped_from + x.__array_interface__["data"][0] - base
    stamp = stamp_of(os.fspath(x.filename)) if x.mode == "r" else None
    return RawFileSource(x.filename, x.shape, x.dtype, x.strides, offset, stamp)


def raw_source(
    path: str | os.PathLike[str],
    *,
    shape: tuple[int, ...],
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
    name, kind = os.fspath(path), np.dtype(dtype)
    try:
        sides = tuple(operator.index(side) for side in shape)
    except TypeError:
        raise TypeError(f"{name}: `shape`={shape!r} must be two whole numbers, (n, d).") from None
    n, d = common.check_matrix(name, sides, kind)
    if order not in ("C", "F"):
        raise ValueError(f"`order`={order!r} must be 'C' or 'F'.")
    if offset < 0:
        raise ValueError(f"{name}: `offset`={offset} must not be negative.")
    stamp, size = stamp_of(name), kind.itemsize
    end = offset + n * d * size
    if stamp.size < end or (exact and stamp.size != end):
        raise ValueError(
            f"{name} has {stamp.size} bytes, but {n} x {d} numbers of {kind} from byte {offset} "
            f"on end at byte {end}: it is truncated, or the shape, type or offset is wrong."
        )
    strides = (d * size, size) if order == "C" else (size, n * size)
    return RawFileSource(name, (n, d), kind, strides, offset, stamp)


class Header(NamedTuple):
    """Contents of a ``.npy`` header, and its length in bytes."""

    shape: tuple[int, ...]
    order: Any
    dtype: np.dtype
    length: int


def read_header(file: Any, name: str) -> Header:
    """Header of the ``.npy`` data at the current position of ``file``, read without pickle."""
    begin = file.tell()
    with common.reading(name, "the header"):
        version = npy_format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"format version {version} is not 1.0 or 2.0")
        read = getattr(npy_format, f"read_array_header_{version[0]}_0")
        count = file.read(2 * version[0])
        length = int.from_bytes(count, "little")
        if length > HEADER_BYTES:  # NumPy would read it all, up to 4 GB, and then refuse
            raise ValueError(f"it has {length} bytes, more than {HEADER_BYTES}")
        try:
            shape, fortran, dtype = read(io.BytesIO(count + file.read(length)))
        except (MemoryError, RecursionError) as error:
            raise ValueError("it is nested too deeply") from error
    if dtype.hasobject:
        raise TypeError(f"{name} holds Python objects, which are not read; save numbers instead.")
    return Header(shape, "F" if fortran else "C", dtype, file.tell() - begin)


def npy_source(path: str | os.PathLike[str]) -> RawFileSource:
    """Source of a ``.npy`` file of any real dtype, in rows or columns.

    The header is compared with the true size of the file before anything is read.
    """
    name = os.fspath(path)
    with open_regular(name) as file:
        shape, order, dtype, offset = read_header(file, name)
    return raw_source(name, shape=shape, dtype=dtype, offset=offset, order=order, exact=True)
