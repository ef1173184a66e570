"""NumPy's own files, `.npy` and dense `.npz`: read where they lie, never through pickle."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from primedpca._core.units import as_bytes
from primedpca.protocols import Block, DataSource
from primedpca.sources.base import cut_evenly
from primedpca.sources.files import common as files
from primedpca.sources.files.common import Stamp, check_matrix, opened_archive, reading, stamp_of
from primedpca.sources.files.raw_binary import RawFileSource, raw_source
from primedpca.sources.files.regular_files import open_regular
from primedpca.sources.files.sequential import InOrder
from primedpca.sources.memory.dense import DenseSource

__all__ = ["Header", "begin_of", "npy_source", "npz_source", "read_header", "read_into"]

DEFLATE_RATIO = 1100  # the most that deflate can shrink
HEADER_BYTES = 10_000  # the most that NumPy itself believes
SPARSE_MEMBERS = {"data.npy", "shape.npy", "format.npy"}


class Header(NamedTuple):
    """What a `.npy` header says, and how long it is."""

    shape: tuple[int, ...]
    order: str
    dtype: np.dtype
    length: int


def read_header(file: Any, name: str) -> Header:
    """The header of the `.npy` data that begin where ``file`` stands."""
    begin = file.tell()
    with reading(name, "the header"):
        version = npy_format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"format version {version} is not 1.0 or 2.0")
        read, size = npy_format.read_array_header_1_0, 2
        if version == (2, 0):
            read, size = npy_format.read_array_header_2_0, 4
        count = file.read(size)
        length = int.from_bytes(count, "little")
        if length > HEADER_BYTES:  # NumPy would read it all, up to 4 GB, and then refuse
            raise ValueError(f"it takes {length} bytes, and at most {HEADER_BYTES} are read")
        try:
            shape, fortran, dtype = read(io.BytesIO(count + file.read(length)))
        except (MemoryError, RecursionError) as error:
            raise ValueError("it is nested too deeply") from error
    if dtype.hasobject:
        raise TypeError(f"{name} holds Python objects, which are not read; save numbers instead.")
    return Header(shape, "F" if fortran else "C", dtype, file.tell() - begin)


def npy_source(path: str | os.PathLike[str]) -> RawFileSource:
    """A `.npy` file of any real dtype, in rows or columns.

    The header is compared with the true size of the file before anything is read.
    """
    name = os.fspath(path)
    stamp_of(name)
    with open_regular(name) as file:
        head = read_header(file, name)
    shape = check_matrix(name, head.shape, head.dtype)
    return raw_source(
        name, shape=shape, dtype=head.dtype, offset=head.length, order=head.order, exact=True
    )


def npz_source(
    path: str | os.PathLike[str],
    part: str | None = None,
    *,
    cache: Any = "256MB",
    verify: bool = True,
) -> DataSource:
    """One array of an `.npz` file.

    Parameters
    ----------
    path : path
    part : str, optional
        The name of the array; by default the only one with two dimensions.
    cache : str or number
        A compressed array up to this size is decompressed once and held in memory.  A larger
        one is decompressed in every pass, in blocks; so is any with ``cache=0``.
    verify : bool
        Read an array that is not compressed once beforehand, to compare it with its checksum.
        Compressed ones are compared at the end of every reading.
    """
    name = os.fspath(path)
    stamp = stamp_of(name)
    with reading(name, "the list of its members"), opened_archive(name) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if members.keys() >= SPARSE_MEMBERS and part is None:
            return import_module("primedpca.sources.files.sparse_npz").sparse_npz(name)
        info = members[_member(archive, members, name, part)]
        label = f"{name}::{info.filename.removesuffix('.npy')}"
        with archive.open(info) as file:
            head = read_header(file, label)
        begin = begin_of(archive, info)
    shape = check_matrix(label, head.shape, head.dtype)
    length = head.length + shape[0] * shape[1] * head.dtype.itemsize
    if info.file_size != length or info.file_size > DEFLATE_RATIO * info.compress_size:
        raise ValueError(
            f"{label} says that it holds {shape[0]} x {shape[1]} numbers of {head.dtype}, "
            f"{length} bytes with its header, but {info.file_size} from {info.compress_size} "
            "bytes are stored: its header is wrong."
        )
    if info.compress_type != zipfile.ZIP_STORED:
        streamed = CompressedMember(name, info.filename, shape, head, stamp)
        return _held(streamed) if cache and length <= as_bytes(cache, "cache") else streamed
    if verify:
        _check_crc(name, begin, info)
    whole = raw_source(
        name, shape=shape, dtype=head.dtype, offset=begin + head.length, order=head.order
    )
    stamp.check(stamp_of(name), name, "opening")
    return whole


def _member(archive: zipfile.ZipFile, members: dict[str, Any], name: str, part: str | None) -> str:
    """The member that is asked for, or the only one with two dimensions."""
    if part is not None:
        for wanted in (part, f"{part}.npy"):
            if wanted in members:
                return wanted
        known = ", ".join(sorted(key.removesuffix(".npy") for key in members)) or "nothing"
        raise ValueError(f"{name} has no array {part!r}; it holds: {known}.")
    found = []
    for key in members:
        if key.endswith(".npy"):
            with archive.open(key) as file:
                if len(read_header(file, f"{name}::{key}").shape) == 2:
                    found.append(key)
    if len(found) != 1:
        names = ", ".join(key.removesuffix(".npy") for key in found) or "none"
        raise ValueError(
            f"{name} must have one array of two dimensions, it has {len(found)} ({names}); name "
            f"one as '{name}::array'."
        )
    return found[0]


def begin_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin: its local header has a length of its own."""
    file: Any = archive.fp
    file.seek(info.header_offset + 26)
    lengths = np.frombuffer(file.read(4), "<u2")
    return int(info.header_offset + 30 + lengths.sum(dtype=np.int64))


def _check_crc(name: str, begin: int, info: zipfile.ZipInfo) -> None:
    """Compare a stored member with its checksum, reading it once."""
    state, left = 0, info.file_size
    with open_regular(name) as file:
        file.seek(begin)
        while left:
            piece = file.read(min(left, files.READ_BYTES))
            if not piece:
                raise OSError(f"{name} ends inside {info.filename}: it was truncated.")
            state, left = zlib.crc32(piece, state), left - len(piece)
    if state != info.CRC:
        raise OSError(
            f"{name}::{info.filename} is damaged: its checksum is {state:#010x}, not "
            f"{info.CRC:#010x}. `verify`=False reads it all the same."
        )


class CompressedMember(InOrder):
    """A compressed array of an `.npz` file, decompressed from its beginning in every pass."""

    read_rate = 2e8

    def __init__(
        self, path: str, member: str, shape: tuple[int, int], head: Header, stamp: Stamp
    ) -> None:
        super().__init__()
        self.path, self._stamp, self._member, self._head = path, stamp, member, head
        self.shape, self.dtype = shape, head.dtype
        self.axis = 0 if head.order == "C" else 1
        across = shape[1 - self.axis] * head.dtype.itemsize
        self.blocks = cut_evenly(shape[self.axis], max(1, files.READ_BYTES // across))

    def _from(self, i: int) -> Iterator[tuple[int, Block]]:
        with opened_archive(self.path) as archive, archive.open(self._member) as file:
            file.read(self._head.length)
            for number, (start, stop) in enumerate(self.blocks):
                sides = (stop - start, self.shape[1 - self.axis])
                held = np.empty(sides[0] * sides[1] * self.dtype.itemsize, np.uint8)
                if read_into(file, held) < held.size:
                    raise OSError(f"{self.path} ends early in {self._place(number)}.")
                if number == len(self.blocks) - 1:
                    file.read(1)  # at the end the checksum is compared
                block = held.view(self.dtype).reshape(sides)
                block.flags.writeable = False
                yield number, block if self.axis == 0 else block.T


def read_into(file: Any, held: np.ndarray) -> int:
    """Fill ``held`` from ``file``; how many bytes there were."""
    view, got = held.data, 0
    while got < len(view):
        count = file.readinto(view[got : got + 2**20])
        if not count:
            break
        got += count
    return got


def _held(source: CompressedMember) -> DenseSource:
    """All of it in memory."""
    whole = np.empty(source.shape, source.dtype, order="C" if source.axis == 0 else "F")
    for i, block in source.scan():
        start, stop = source.blocks[i]
        whole[(slice(None),) * source.axis + (slice(start, stop),)] = block
    return DenseSource(whole)
