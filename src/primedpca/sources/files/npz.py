"""``.npz`` files of NumPy and SciPy: one array is read in place, or decompressed in blocks."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from primedpca._core.units import as_bytes
from primedpca.protocols import Block, DataSource
from primedpca.sources import base
from primedpca.sources.base import cut_evenly
from primedpca.sources.files.common import (
    Stamp,
    check_matrix,
    opened_archive,
    read_into,
    reading,
    stamp_of,
)
from primedpca.sources.files.npy import Header, read_header
from primedpca.sources.files.raw_binary import raw_source
from primedpca.sources.files.regular_files import open_regular
from primedpca.sources.files.sequential import InOrder
from primedpca.sources.files.sparse_npz import sparse_npz
from primedpca.sources.files.zip_members import begin_of, member_header
from primedpca.sources.memory.dense import DenseSource

__all__ = ["npz_source"]

SPARSE_MEMBERS = {"data.npy", "shape.npy", "format.npy"}


def npz_source(
    path: str | os.PathLike[str],
    part: str | None = None,
    *,
    cache: Any = "256MB",
    verify: bool = True,
) -> DataSource:
    """Source of one array of a ``.npz`` file, dense or as ``scipy.sparse.save_npz`` writes it.

    Parameters
    ----------
    path : path
    part : str, optional
        Name of the array; by default the only one with two dimensions.
    cache : str or number, default="256MB"
        A compressed array up to this size in bytes is decompressed once and held in memory.  A
        larger one is decompressed in every pass, in blocks; so is any with ``cache=0``.
    verify : bool, default=True
        Read an uncompressed array once beforehand, to compare it with its checksum.  Compressed
        ones are compared at the end of every pass.
    """
    name = os.fspath(path)
    stamp = stamp_of(name)
    with reading(name, "the list of its members"), opened_archive(name) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if members.keys() >= SPARSE_MEMBERS and part is None:
            return sparse_npz(name)
        info = members[_member(archive, members, name, part)]
        label = f"{name}::{info.filename.removesuffix('.npy')}"
        with archive.open(info) as file:
            head = member_header(file, info, label)
        begin = begin_of(archive, info)
    shape = check_matrix(label, head.shape, head.dtype)
    if info.compress_type != zipfile.ZIP_STORED:
        streamed = CompressedMember(name, info.filename, shape, head, stamp)
        small = cache and info.file_size <= as_bytes(cache, "cache")
        return _held(streamed) if small else streamed
    if verify:
        _check_crc(name, begin, info)
    whole = raw_source(
        name, shape=shape, dtype=head.dtype, offset=begin + head.length, order=head.order
    )
    stamp.check(stamp_of(name), name, "opening")
    return whole


def _member(archive: zipfile.ZipFile, members: dict[str, Any], name: str, part: str | None) -> str:
    """Name of the member to read: the one named, or the only one with two dimensions."""
    if part is not None:
        for wanted in (part, f"{part}.npy"):
            if wanted in members:
                return wanted
        known = ", ".join(sorted(key.removesuffix(".npy") for key in members)) or "nothing"
        raise ValueError(f"{name} has no array {part!r}; it has {known}.")
    found = []
    for key in members:
        if key.endswith(".npy"):
            with archive.open(key) as file:
                if len(read_header(file, f"{name}::{key}").shape) == 2:
                    found.append(key)
    if len(found) != 1:
        names = ", ".join(key.removesuffix(".npy") for key in found) or "none"
        raise ValueError(
            f"{name} has {len(found)} arrays of two dimensions ({names}), not one; name the array "
            f"as '{name}::array'."
        )
    return found[0]


def _check_crc(name: str, begin: int, info: zipfile.ZipInfo) -> None:
    """Compare an uncompressed member with its checksum, by reading it once."""
    state, left = 0, info.file_size
    with open_regular(name) as file:
        file.seek(begin)
        while left:
            piece = file.read(min(left, base.READ_BYTES))
            if not piece:
                raise OSError(f"{name} ends inside {info.filename}: it is truncated.")
            state, left = zlib.crc32(piece, state), left - len(piece)
    if state != info.CRC:
        raise OSError(
            f"{name}::{info.filename} is damaged: its checksum is {state:#010x}, not "
            f"{info.CRC:#010x}. `verify`=False reads it without this check."
        )


class CompressedMember(InOrder):
    """A compressed array of a ``.npz`` file, decompressed from its beginning in every pass."""

    read_rate = 2e8

    def __init__(
        self, path: str, member: str, shape: tuple[int, int], head: Header, stamp: Stamp
    ) -> None:
        super().__init__()
        self.path, self._stamp, self._member, self._head = path, stamp, member, head
        self.shape, self.dtype = shape, head.dtype
        self.axis = 0 if head.order == "C" else 1
        across = shape[1 - self.axis] * head.dtype.itemsize
        self.blocks = cut_evenly(shape[self.axis], max(1, base.READ_BYTES // across))

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
                block = base.read_only(held.view(self.dtype).reshape(sides))
                yield number, block if self.axis == 0 else block.T


def _held(source: CompressedMember) -> DenseSource:
    """The whole array in memory."""
    whole = np.empty(source.shape, source.dtype, order="C" if source.axis == 0 else "F")
    for i, block in source.scan():
        start, stop = source.blocks[i]
        whole[(slice(None),) * source.axis + (slice(start, stop),)] = block
    return DenseSource(whole)
