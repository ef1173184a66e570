"""NumPy's ``.npy`` files: headers that are checked before they are believed, and no pickle."""

from __future__ import annotations

import io
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from primedpca.sources.files.common import check_matrix, reading, stamp_of
from primedpca.sources.files.raw_binary import RawFileSource, raw_source
from primedpca.sources.files.regular_files import open_regular

__all__ = ["Header", "npy_source", "read_header"]

HEADER_BYTES = 10_000  # NumPy's own limit


class Header(NamedTuple):
    """Contents of a ``.npy`` header, and its length in bytes."""

    shape: tuple[int, ...]
    order: str
    dtype: np.dtype
    length: int


def read_header(file: Any, name: str) -> Header:
    """Header of the ``.npy`` data that begin at the current position of ``file``."""
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
    stamp_of(name)
    with open_regular(name) as file:
        head = read_header(file, name)
    shape = check_matrix(name, head.shape, head.dtype)
    return raw_source(
        name, shape=shape, dtype=head.dtype, offset=head.length, order=head.order, exact=True
    )
