"""SciPy's sparse ``.npz``, never densified and never unpickled."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from primedpca._core.arrays import work_dtype
from primedpca.protocols import DataSource
from primedpca.sources.files.common import opened_archive, stamp_of
from primedpca.sources.files.compressed_rows import CompressedFile
from primedpca.sources.files.regular_files import open_regular
from primedpca.sources.files.zip_members import begin_of, member_header, read_member
from primedpca.sources.memory.sparse import SparseSource

__all__ = ["SparseNpz", "sparse_npz"]

PIECE_BYTES = 2**22
SURPLUS = 2**24  # entries that a small matrix may have: several at one place add up
LEAST_SIDE = 2**20  # rows or columns that may be empty, however little is stored
#: SciPy format -> members of its file beside ``format`` and ``shape``.
MEMBERS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


def sparse_npz(path: str | os.PathLike[str]) -> DataSource:
    """Source of a file that ``scipy.sparse.save_npz`` wrote.

    Parameters
    ----------
    path : path
        Compressed rows and columns saved with ``compressed=False`` are read block by block;
        other formats are loaded once, and stay sparse.

    Returns
    -------
    DataSource
        :class:`SparseNpz`, or a :class:`~primedpca.sources.memory.sparse.SparseSource`.
    """
    name = os.fspath(path)
    with _damage(name), opened_archive(name) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        kind = read_member(archive, "format", name, 1).item()
        kind = kind.decode("ascii") if isinstance(kind, bytes) else str(kind)
        if kind not in MEMBERS:
            raise ValueError(f"its sparse format is {kind!r}, not one of {', '.join(MEMBERS)}")
        sides = read_member(archive, "shape", name, 32)
        shape = tuple(sides.ravel().tolist())
        if sides.dtype.kind not in "iu" or len(shape) != 2 or min(shape) < 0:
            raise ValueError(f"its shape is {shape}, not two whole numbers from 0 up")
        most = max(shape[0] * shape[1], SURPLUS)
        stored = all(
            name in members and members[name].compress_type == zipfile.ZIP_STORED
            for name in ("data", "indices")
        )
        if kind in ("csr", "csc") and stored:
            indptr = read_member(archive, "indptr", name, max(shape) + 1)
            return SparseNpz(name, kind, shape, indptr)
        parts = {part: read_member(archive, part, name, most) for part in MEMBERS[kind]}
        return SparseSource(_assembled(kind, shape, parts))


class SparseNpz(CompressedFile):
    """Compressed rows or columns in members that were stored without compression.

    The checksums of the archive are verified when it is opened, in one reading of the file.
    """

    def __init__(self, path: str, kind: str, shape: tuple[int, int], indptr: np.ndarray) -> None:
        self.path, self._stamp = path, stamp_of(path)
        self._where: dict[str, tuple[int, np.dtype[Any]]] = {}
        counts = {name: self._find(name) for name in ("data", "indices")}
        self._begin(kind, shape, self._where["data"][1], indptr, min(counts.values()))

    def _find(self, name: str) -> int:
        """Note where in the file the entries of a member begin; return their number."""
        with opened_archive(self.path) as archive:
            info = archive.getinfo(f"{name}.npy")
            with archive.open(info) as stream:
                head = member_header(stream, info, f"{self.path}::{name}")
                while stream.read(PIECE_BYTES):
                    pass  # the last read compares the checksum
            begin = begin_of(archive, info)
        if len(head.shape) != 1:
            raise ValueError(f"`{name}` has {len(head.shape)} dimensions instead of 1")
        self._where[name] = (begin + head.length, head.dtype)
        return head.shape[0]

    def _stored(self, name: str, start: int, stop: int) -> np.ndarray:
        begin, dtype = self._where[name]
        where = f"entries {start}:{stop} of `{name}`"
        with open_regular(self.path) as file:
            self._stamp.check(stamp_of(file.fileno(), self.path), self.path, where)
            file.seek(begin + start * dtype.itemsize)
            values = np.fromfile(file, dtype, stop - start)
        if values.size < stop - start:
            raise OSError(f"{self.path} was truncated: {where} no longer exist.")
        return values.astype(dtype.newbyteorder("="), copy=False)


def _assembled(kind: str, shape: tuple[int, int], parts: dict[str, np.ndarray]) -> Any:
    import scipy.sparse as sp

    values = tuple(parts.values())
    work_dtype(values[0].dtype)
    for name, part in parts.items():
        if name != "data" and (part.dtype.kind not in "iu" or part.ndim != 1):
            raise ValueError(
                f"its `{name}` are {part.ndim}-dimensional of type {part.dtype}, not a list of "
                "integers"
            )
    if values[0].ndim != {"dia": 2, "bsr": 3}.get(kind, 1):
        raise ValueError(f"its `data` have {values[0].ndim} dimensions")
    if kind not in ("csr", "csc"):
        stored = sum(part.nbytes for part in values)
        if max(shape) > stored + LEAST_SIDE:  # even its empty rows would fill the memory
            raise ValueError(f"its shape is {shape}, but only {stored} bytes are stored")
    if kind == "coo":
        return sp.coo_array((values[0], values[1:]), shape=shape)
    if kind == "dia":
        return sp.dia_array(values, shape=shape).tocoo()
    if kind == "bsr":
        blocks = sp.bsr_array(values, shape=shape)
        blocks.check_format(full_check=True)
        return blocks.tocoo()  # in NumPy: compiled conversions would trust the indices
    empty = (sp.csr_array if kind == "csr" else sp.csc_array)((1, 1), dtype=values[0].dtype)
    # Set, not passed in, so that SparseSource can say what is wrong with them.
    empty._shape = shape
    empty.data, empty.indices, empty.indptr = values
    return empty


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Turn errors of damaged files into errors that name the file."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except (
        *(OSError, ValueError, TypeError, OverflowError, EOFError, SyntaxError, KeyError),
        *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, AttributeError),
    ) as error:
        text = str(error).removeprefix("`X` is a damaged sparse matrix: ")
        if text.startswith(path):
            raise
        raise ValueError(f"{path} is damaged or truncated: {text.rstrip('.')}.") from error
