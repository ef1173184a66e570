"""Arrays in the members of a ZIP archive, as ``.npz`` files hold them, read with limits.

NumPy would allocate as much as a header declares.  Here a header is compared with the bytes that
are stored, and with the most that the caller can use, before anything is allocated; and every
member is read to its end, where its checksum is compared.
"""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np

from primedpca.sources.files.common import read_into
from primedpca.sources.files.npy import Header, read_header

__all__ = ["begin_of", "member_header", "read_member"]

DEFLATE_RATIO = 1032  # one byte of a deflated stream never becomes more


def member_header(stream: Any, info: zipfile.ZipInfo, label: str) -> Header:
    """Shape and type of a member, compared with the bytes that are stored."""
    head = read_header(stream, label)
    wanted = int(np.prod(head.shape, dtype=object)) * head.dtype.itemsize
    there = info.file_size - head.length
    if wanted != there or min(head.shape, default=0) < 0:
        raise ValueError(
            f"{label} declares shape {head.shape} of {head.dtype}, {wanted} bytes, but {there} "
            "bytes are stored: its header is wrong."
        )
    if info.file_size > DEFLATE_RATIO * info.compress_size:
        raise ValueError(
            f"{label} declares {info.file_size} bytes, but only {info.compress_size} are stored, "
            "which cannot become that many: its header is wrong."
        )
    return head


def read_member(archive: zipfile.ZipFile, name: str, label: str, most: int) -> np.ndarray:
    """The array ``name`` of an archive, which may have at most ``most`` entries."""
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise ValueError(f"{label} has no array `{name}`.") from None
    label = f"{label}::{name}"
    with archive.open(info) as stream:
        head = member_header(stream, info, label)
        count = int(np.prod(head.shape, dtype=object))
        if count > most:
            raise ValueError(f"{label} declares {count} entries, more than the {most} possible.")
        held = np.empty(count * head.dtype.itemsize, np.uint8)
        if read_into(stream, held) < held.size:
            raise ValueError(f"{label} ends early.")
        stream.read(1)  # at the end the checksum is compared
    order: Any = head.order
    return np.ndarray(head.shape, head.dtype, held, order=order)


def begin_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Offset of a member's bytes in the file: its local header has a length of its own."""
    file: Any = archive.fp
    file.seek(info.header_offset + 26)
    lengths = np.frombuffer(file.read(4), "<u2")
    return int(info.header_offset + 30 + lengths.sum(dtype=np.int64))
