"""SciPy's sparse ``.npz`` and Matrix Market files, never densified and never unpickled."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from primedpca.arrays import work_dtype
from primedpca.protocols import DataSource
from primedpca.sources.compressed import CompressedFile
from primedpca.sources.dense import DenseSource
from primedpca.sources.files import stamp_of
from primedpca.sources.sparse import SparseSource

__all__ = ["SparseNpz", "is_matrix_market", "is_sparse_npz", "matrix_market", "sparse_npz"]

DEFLATE_RATIO = 1032  # no deflated byte can become more
READ_BYTES = 2**22
#: What a SciPy format keeps in its file beside ``format`` and ``shape``.
MEMBERS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


# -- SciPy's .npz -----------------------------------------------------------------------------


def sparse_npz(path: str | os.PathLike[str]) -> DataSource:
    """What ``scipy.sparse.save_npz`` wrote.

    Parameters
    ----------
    path : path
        Compressed rows and columns saved with ``compressed=False`` are read block by block;
        everything else is loaded once, and stays sparse.

    Returns
    -------
    DataSource
        :class:`SparseNpz`, or a :class:`~primedpca.sources.sparse.SparseSource`.
    """
    name = os.fspath(path)
    with _damage(name), zipfile.ZipFile(name) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        kind = _load(archive, members, "format", name).item()
        kind = kind.decode("ascii") if isinstance(kind, bytes) else str(kind)
        if kind not in MEMBERS:
            raise ValueError(f"it holds a sparse format {kind!r}, not one of {', '.join(MEMBERS)}")
        shape = tuple(int(side) for side in _load(archive, members, "shape", name))
        if len(shape) != 2 or min(shape) < 0:
            raise ValueError(f"it says that its shape is {shape}")
        stored = all(
            name in members and members[name].compress_type == zipfile.ZIP_STORED
            for name in ("data", "indices")
        )
        if kind in ("csr", "csc") and stored:
            indptr = _load(archive, members, "indptr", name)
            return SparseNpz(name, kind, shape, indptr)
        parts = {part: _load(archive, members, part, name) for part in MEMBERS[kind]}
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
        """Where in the file the entries of a member begin; how many there are."""
        with zipfile.ZipFile(self.path) as archive:
            info = archive.getinfo(f"{name}.npy")
            with archive.open(info) as stream:
                (count,), dtype = _header(stream, info, name)
                skipped = stream.tell()
                while stream.read(READ_BYTES):
                    pass  # the last read compares the checksum
        with open(self.path, "rb") as file:
            file.seek(info.header_offset + 26)
            lengths = np.frombuffer(file.read(4), "<u2")
        self._where[name] = (info.header_offset + 30 + int(lengths.sum()) + skipped, dtype)
        return count

    def _stored(self, name: str, start: int, stop: int) -> np.ndarray:
        begin, dtype = self._where[name]
        where = f"entries {start}:{stop} of `{name}`"
        with open(self.path, "rb", buffering=0) as file:
            self._stamp.check(stamp_of(file.fileno(), self.path), self.path, where)
            file.seek(begin + start * dtype.itemsize)
            values = np.fromfile(file, dtype, stop - start)
        if values.size < stop - start:
            raise OSError(f"{self.path} was truncated: {where} are not there any more.")
        return values.astype(dtype.newbyteorder("="), copy=False)


def is_sparse_npz(x: Any) -> bool:
    """Whether ``x`` names an archive that SciPy wrote a sparse matrix to."""
    if not isinstance(x, (str, os.PathLike)) or not os.fspath(x).lower().endswith(".npz"):
        return False
    try:
        with zipfile.ZipFile(x) as archive:
            return {"format.npy", "shape.npy"} <= set(archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return False


def _header(stream: Any, info: zipfile.ZipInfo, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of a member, compared with the bytes that are there."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0
    shape, _, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(stream)
    if dtype.hasobject:
        raise ValueError(f"`{name}` holds Python objects, which are never unpickled")
    wanted = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if wanted != info.file_size - stream.tell():
        raise ValueError(
            f"`{name}` is said to take {wanted} bytes, but {info.file_size - stream.tell()} are "
            "there"
        )
    return shape, dtype


def _load(archive: zipfile.ZipFile, members: dict[str, Any], name: str, path: str) -> np.ndarray:
    """One member, whole: no pickle, and no more room than the archive can fill."""
    if name not in members:
        raise ValueError(f"`{name}` is not in it")
    info = members[name]
    most = os.path.getsize(path) * DEFLATE_RATIO
    if info.file_size > most:
        raise ValueError(f"`{name}` is said to unpack to {info.file_size} bytes")
    with archive.open(info) as stream:
        _header(stream, info, name)
    with archive.open(info) as stream:
        values = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read(1)  # the end is where the checksum is compared
    return values


def _assembled(kind: str, shape: tuple[int, int], parts: dict[str, np.ndarray]) -> Any:
    import scipy.sparse as sp

    values = tuple(parts.values())
    work_dtype(values[0].dtype)
    for name, part in parts.items():
        if name != "data" and part.dtype.kind not in "iu":
            raise ValueError(f"its `{name}` are of type {part.dtype}, not integers")
    if kind == "coo":
        return sp.coo_array((values[0], values[1:]), shape=shape)
    if kind == "dia":
        return sp.dia_array(values, shape=shape)
    if kind == "bsr":
        return sp.bsr_array(values, shape=shape)
    empty = (sp.csr_array if kind == "csr" else sp.csc_array)((1, 1), dtype=values[0].dtype)
    # Set, not passed in: SparseSource names what is wrong with them.
    empty._shape = shape
    empty.data, empty.indices, empty.indptr = values
    return empty


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Name the file in whatever is found wrong with it."""
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


# -- Matrix Market ----------------------------------------------------------------------------


def matrix_market(path: str | os.PathLike[str]) -> DataSource:
    """A Matrix Market file, ``.mtx`` or ``.mtx.gz``, loaded once.

    Parameters
    ----------
    path : path
        Coordinates stay sparse; the format ``array`` is dense.  What the header says is compared
        with the size of the file before any room is taken.
    """
    from scipy.io import mminfo, mmread

    name = os.fspath(path)
    with _damage(name):
        rows, columns, entries, layout, kind, symmetry = mminfo(name)
        room = _text_bytes(name)
        entries = rows * columns if layout == "array" else entries
        if layout == "array" and symmetry != "general":
            entries //= 2
        least = 2 if layout == "array" else 4 if kind == "pattern" else 6
        if entries < 0 or entries * least > room or max(rows, columns) > room + 2**20:
            raise ValueError(
                f"its header says {rows} x {columns} with {entries} entries, but it holds no more "
                f"than {room} bytes of text"
            )
        found = mmread(name, spmatrix=False)
        if isinstance(found, np.ndarray):
            return DenseSource(found)
        return SparseSource(found)


def _text_bytes(path: str) -> int:
    """How long the text is, unpacked piece by piece if need be."""
    if not path.lower().endswith(".gz"):
        return os.path.getsize(path)
    with gzip.open(path) as stream:
        return sum(map(len, iter(lambda: stream.read(READ_BYTES), b"")))


def is_matrix_market(x: Any) -> bool:
    """Whether ``x`` names a Matrix Market file by its suffix."""
    if not isinstance(x, (str, os.PathLike)):
        return False
    return os.fspath(x).lower().endswith((".mtx", ".mtx.gz"))
