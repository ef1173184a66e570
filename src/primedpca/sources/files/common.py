"""Shared parts of sources on disk: regular files only, which must not change, and clear errors.

A pipe, socket or device could block a reader for ever, so every file is checked before it is read.
"""

import errno
import gzip
import os
import stat
import threading
import zipfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import scipy.sparse as sp

from primedpca._core.arrays import InexactError, work_dtype
from primedpca._core.process import renewed_after_fork
from primedpca.protocols import Block
from primedpca.sources import base
from primedpca.sources.base import WithOptions
from primedpca.sources.memory import sparse

AHEAD = 4  # skipped blocks that are kept for a thread that asks late
LINE_BYTES = 2**26  # of a text file: a line without an end would fill the memory
PLAUSIBLE_BYTES = 2**26
#: No codec shrinks anything but constants further, and stores leave constants out.
PLAUSIBLE_RATIO = 2**14
Lines = Iterator[tuple[int, bytes]]
Path = str | os.PathLike[str]
SPARSE_MATRIX = "a sparse matrix"
#: Groups of HDF5 and Zarr that AnnData writes, by their attribute `encoding-type`.
KINDS_OF_GROUPS = {
    **dict.fromkeys(("csr_matrix", "csc_matrix"), SPARSE_MATRIX),
    "dataframe": "a table of labels",
    "categorical": "a column of labels",
}
TRUST = "Pass `follow_links`=True if you trust the file."
#: Without O_NONBLOCK, opening a FIFO waits for a writer; Windows has neither of the two after it.
FLAGS = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_BINARY", "O_NONBLOCK", "O_CLOEXEC"))
#: Test of a mode, and the name of such a file.
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


# -- regular files ----------------------------------------------------------------------------


def check_regular(path: Path) -> None:
    """Refuse a path that is not a readable regular file.

    For libraries that open paths themselves; the package opens files by :func:`open_regular`.
    """
    open_regular(path).close()


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read, checked after opening so that it cannot be swapped between."""
    name = os.fspath(path)
    try:
        # Before opening, too: opening a device may have effects, such as rewinding a tape.
        _check_mode(name, os.stat(name).st_mode)
        handle = os.open(name, FLAGS)
    except OSError as error:
        raise _told(name, error) from None
    except ValueError as error:  # a zero byte
        raise ValueError(f"{name!r} is not a path: {error}. Correct it.") from None
    try:
        _check_mode(name, os.fstat(handle).st_mode)
        if hasattr(os, "set_blocking"):  # not on Windows before Python 3.12
            os.set_blocking(handle, True)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_mode(path: str, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    found = next((name for test, name in KINDS if test(mode)), "something else")
    kind, remedy = OSError, "save its contents to a file first"
    if stat.S_ISDIR(mode):
        kind, remedy = IsADirectoryError, "name a file in it"
    raise kind(f"{path} is not a regular file but {found}; {remedy}.")


def _told(path: str, error: OSError) -> OSError:
    """The same error with a message that names the path and a remedy."""
    if error.errno is None:  # raised by _check_mode
        return error
    told = f"{path} cannot be opened: {error.strerror}."
    if isinstance(error, FileNotFoundError):
        told = f"File not found: {path}. Check the path."
        if os.path.islink(path):
            told = f"{path} is a symbolic link to {os.readlink(path)}, which does not exist."
    elif isinstance(error, PermissionError):
        told = f"{path} cannot be read: {error.strerror}. Ask its owner for permission."
    elif error.errno == errno.ELOOP:
        told = f"{path} is a symbolic link to itself; correct the link."
    return type(error)(told)


@contextmanager
def unpacked(path: str) -> Iterator[Any]:
    """Open a regular file to read bytes, decompressed if its name ends with ``.gz``."""
    with open_regular(path) as file:
        yield gzip.GzipFile(fileobj=file) if path.lower().endswith(".gz") else file


@contextmanager
def opened_archive(path: str) -> Iterator[zipfile.ZipFile]:
    """Open the ZIP archive in a regular file."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        yield archive


def member_begin(file: Any, header_offset: int) -> int:
    """Offset of a member's bytes in a ZIP archive: its local header has a length of its own."""
    file.seek(header_offset + 26)
    lengths = file.read(4)  # of two fields after the header
    return header_offset + 30 + sum(int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2))


def read_bytes(file: Any, size: int, what: str) -> np.ndarray:
    """Read exactly ``size`` bytes; of fewer, an error says where ``what`` ends."""
    held, got = np.empty(size, np.uint8), 0
    # One read may return fewer bytes; of a ZIP member it makes a copy.
    while got < size and (count := file.readinto(held.data[got : got + 2**20])):
        got += count
    if got < size:
        end = file.seek(0, os.SEEK_END)
        raise OSError(f"{what} ends at byte {end}: it was truncated")
    return held


def whole_lines(
    file: Any, path: str, size: int = 0, most: int = LINE_BYTES, end: bytes = b"\n"
) -> Lines:
    """Yield pieces of whole lines, each with the byte at which it begins.

    About ``size`` bytes are read at a time; a line of more than ``most`` bytes is refused.
    """
    begin, held, length = 0, [b""], 0
    while piece := file.read(size or base.READ_BYTES):
        stop = last_end(piece, end, length)
        if stop:
            yield begin, b"".join([*held, piece[:stop]])
            begin, held, length = begin + length + stop, [], 0
        held.append(piece[stop:])
        length += len(piece) - stop
        if length > most:
            raise ValueError(f"{path} is not text: over {most} bytes in the line at {begin}.")
    if length:
        yield begin, b"".join(held)


def last_end(piece: bytes, end: bytes, before: int = 0) -> int:
    """Byte after the last line end in a piece that follows ``before`` bytes of its line, or 0."""
    stop = piece.rfind(end)
    while stop >= 0 and (before + stop) % len(end):  # the same bytes across two characters
        stop = piece.rfind(end, 0, stop + len(end) - 1)
    return stop + len(end) if stop >= 0 else 0


# -- errors -----------------------------------------------------------------------------------


def need(library: str, what: str, extra: str = "disk") -> Any:
    """Import an optional library that reads ``what``; see :func:`primedpca.sources.base.needed`."""
    return base.needed(library, f"Reading {what}", extra)


#: What to do with genotypes in the variant call format.
VCF = "Convert it to PLINK, 'plink2 --vcf FILE --make-bed --out NAME', and read NAME.bed."
#: What to do with counts of 10x Genomics: the function of scanpy that reads them, and the path.
TENX = "In Python, scanpy.{}({!r}).write_h5ad('cells.h5ad') makes a file of cells as rows."


def is_tenx(folder: str) -> bool:
    """Whether a folder holds counts of 10x Genomics: a matrix, its genes and its cells."""

    def there(*names: str) -> bool:
        files = (os.path.join(folder, name + end) for name in names for end in ("", ".gz"))
        return any(map(os.path.exists, files))

    return there("matrix.mtx") and there("features.tsv", "genes.tsv") and there("barcodes.tsv")


class UnfitError(ValueError):
    """A message that is complete but for the path; the file is not damaged."""


@contextmanager
def reading(path: str, where: str, kind: type[Exception] | None = None) -> Iterator[None]:
    """Turn errors of libraries on damaged files into errors that name the file and the place.

    Errors of the operating system stay such errors, unless ``kind`` says what all are to be.
    """
    try:
        yield
    except Exception as error:
        known = isinstance(error, (FileNotFoundError, PermissionError, ImportError))
        # Arrow's subclass of MemoryError is for lengths in damaged files.
        if known or type(error) is MemoryError or path in str(error):
            raise
        if isinstance(error, (InexactError, UnfitError)):
            raise ValueError(f"{path}: {error}") from error
        kind = kind or (OSError if isinstance(error, OSError) else ValueError)
        raise kind(f"{path} is damaged or cannot be read ({where}): {error}") from error


def check_matrix(path: str, shape: tuple[int, ...], dtype: Any) -> tuple[int, int]:
    """Return the shape as whole numbers; refuse all but two dimensions of real numbers."""
    if len(shape) != 2:
        raise ValueError(f"{path} holds an array of shape {tuple(shape)}, not of two dimensions.")
    try:
        work_dtype(dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None
    if min(shape) < 1:
        raise ValueError(f"{path} is empty or of negative length: its shape is {tuple(shape)}.")
    return int(shape[0]), int(shape[1])


def check_plausible(path: str, shape: tuple[int, int], itemsize: int, true_size: int) -> None:
    """Refuse a header that declares far more than the file can hold, however compressed."""
    promised = shape[0] * shape[1] * itemsize
    if promised > max(PLAUSIBLE_BYTES, PLAUSIBLE_RATIO * true_size):
        raise ValueError(
            f"{path} declares {promised} bytes, but {true_size} are stored: its header is wrong."
        )


def split_part(path: Path) -> tuple[str, str | None]:
    """Split ``"file.h5::group/name"`` into path and part; an existing path is never split.

    Both may have ``::`` in their names: the longest existing path counts.
    """
    text = os.fspath(path)
    pieces = text.split("::")
    for count in range(len(pieces), 0, -1):
        name = "::".join(pieces[:count])
        if os.path.exists(name):
            return name, "::".join(pieces[count:]) if count < len(pieces) else None
    name, mark, part = text.rpartition("::")
    return (name, part) if mark else (text, None)


def only_one(path: str, arrays: dict[str, Any]) -> Any:
    """Return the only array of two dimensions, of a file that may have several."""
    if len(arrays) != 1:
        names = ", ".join(sorted(arrays)[:9]) or "none"
        raise ValueError(f"{path} has {len(arrays)} 2-d arrays ({names}); add '::name' for one.")
    return next(iter(arrays.values()))


def main_matrix(path: str, names: Set[str], encoding: str, main: str) -> str:
    """Name of the matrix to read: ``main`` of an AnnData, by its attribute, or else the only one.

    Without ``main``, the only matrix of an AnnData may be an embedding, which is not the data.
    """
    if encoding != "anndata":
        return str(only_one(path, {name: name for name in names}))
    if main not in names:
        known = ", ".join(sorted(names)[:9]) or "none"
        raise UnfitError(f"it is an AnnData without X; add '::name' for one of {known}.")
    return main


def kind_of_group(attributes: Mapping[str, Any]) -> str | None:
    """What AnnData stores in a group with these attributes, in words; None for other groups."""
    return KINDS_OF_GROUPS.get(str(attributes.get("encoding-type", "")))


# -- sources ----------------------------------------------------------------------------------


class Stamp(NamedTuple):
    """Facts that change when a file is replaced or written to."""

    size: int
    modified: int
    changed: int  # ctime, which unlike the date of writing cannot be set back
    inode: int
    device: int

    def check(self, path: str, where: str, handle: int | None = None) -> None:
        """Refuse a file that has changed since it was opened; it costs a stat."""
        now = stamp_of(path if handle is None else handle)
        if now == self:
            return
        changes = {
            "was replaced by another file": now[3:] != self[3:],
            f"was truncated from {self.size} to {now.size} bytes": now.size < self.size,
            f"has grown from {self.size} to {now.size} bytes": now.size > self.size,
            "was written to": now.modified != self.modified,
            "was changed (contents, permissions or name)": True,
        }
        what = next(what for what, seen in changes.items() if seen)
        raise OSError(f"{path} {what} since it was opened (seen at {where}); open it again.")


def stamp_of(path: str | int) -> Stamp:
    """Stamp of a file, by path or descriptor; of a folder, its identity only."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise _told(str(path), error) from error
    if stat.S_ISDIR(found.st_mode):
        return Stamp(0, 0, 0, found.st_ino, found.st_dev)
    if isinstance(path, str):
        _check_mode(path, found.st_mode)
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)


class FileSource(WithOptions):
    """A source in one file, which must not change after it was opened."""

    path: str
    on_disk = True
    library: str | None = "numpy"
    _stamp: Stamp | None = None

    def _check_same(self, where: str, handle: int | None = None) -> None:
        """Refuse a file that was replaced, written to, truncated or deleted."""
        if self._stamp is not None:
            self._stamp.check(self.path, where, handle)

    def _place(self, i: int) -> str:
        """Description of block ``i`` for an error message."""
        start, stop = self.blocks[i]
        return f"block {i}, {('rows', 'columns')[self.axis]} {start}:{stop}"

    def __repr__(self) -> str:
        n, d = self.shape
        return f"{type(self).__name__}({self.path!r}, {n} x {d}, {self.dtype})"


class InOrder(FileSource):
    """Blocks that are decoded one after another; reading an earlier one starts again.

    Threads that share the blocks of a pass ask for them nearly in order, so blocks that were
    skipped on the way to a later one are kept for a while.
    """

    def __init__(self) -> None:
        self._renew()
        renewed_after_fork(self)

    def _renew(self) -> None:
        """Start again: a forked child shares its position in the file with its parent."""
        self._lock = threading.Lock()
        self._running: Iterator[tuple[int, Block]] | None = None
        self._next = 0
        self._passed: dict[int, Block] = {}

    @abstractmethod
    def _from(self, i: int) -> Iterator[tuple[int, Block]]:
        """Yield blocks with their numbers, from the last possible start before block ``i``."""

    def _entry(self, i: int) -> int:
        """Number of the block with which ``_from(i)`` begins."""
        return 0

    def read(self, i: int) -> Block:
        """Block ``i``: the next one at once, others after decoding the blocks before."""
        with self._lock, reading(self.path, self._place(i)):
            self._check_same(self._place(i))
            if i in self._passed:
                return self._passed.pop(i)
            entry = self._entry(i)
            if self._running is None or not entry < self._next <= i:
                self._running, self._passed, self._next = self._from(i), {}, entry
            try:
                return self._forward(self._running, i)
            except BaseException:
                self._running = None
                raise

    def _forward(self, running: Iterator[tuple[int, Block]], i: int) -> Block:
        for number, block in running:
            self._next = number + 1
            if number == i:
                if i == len(self.blocks) - 1:
                    self._running = None  # nothing follows: close the file
                return block
            self._passed[number] = block
            if len(self._passed) > AHEAD:
                del self._passed[min(self._passed)]
        raise OSError(f"{self.path} ends before {self._place(i)}.")

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_lock", "_running", "_passed", "_next")
        return {key: value for key, value in self.__dict__.items() if key not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        InOrder.__init__(self)
        self.__dict__.update(state)


def runs(index: np.ndarray) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield the places in ``index`` of rows that lie together, with their range of rows."""
    order = np.argsort(index, kind="stable")
    for place in np.split(order, np.flatnonzero(np.diff(index[order]) > 1) + 1):
        if place.size:
            yield place, int(index[place[0]]), int(index[place[-1]]) + 1


class CompressedFile(FileSource):
    """A sparse matrix of which only ``indptr`` is in memory; blocks stay sparse.

    A subclass defines :meth:`_stored`.  Every block is checked as it is read: products with an
    index outside the matrix would read memory beyond their operands.
    """

    library = "scipy"

    def _begin(self, kind: str, shape: Any, dtype: Any, indptr: np.ndarray, entries: int) -> None:
        """Check all that is known without reading the entries, and cut into blocks."""
        if kind not in ("csr", "csc"):
            raise ValueError(f"its sparse format is {kind!r}, not csr or csc")
        self.format, self.dtype = kind, np.dtype(dtype)
        self.shape, self.axis = (int(shape[0]), int(shape[1])), 0 if kind == "csr" else 1
        work_dtype(self.dtype)
        indptr = np.asarray(indptr)
        size = self.shape[self.axis] + 1
        if indptr.dtype.kind not in "iu" or indptr.shape != (size,):
            raise ValueError(f"`indptr` is {indptr.dtype} {indptr.shape}, not {size} integers")
        self._indptr = indptr.astype(np.int64, copy=False)
        sparse.check_indptr(self._indptr, size - 1, entries)
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
        across = self.shape[1 - self.axis]
        narrow = sparse.index_dtype(max(b - a, across))
        block.indptr = (self._indptr[start : stop + 1] - a).astype(narrow)
        with reading(self.path, what):
            if block.indices.dtype.kind not in "iu":
                raise ValueError("its `indices` are not integers")
            sparse.check_indices(block.indices, across)
        block.indices = block.indices.astype(narrow, copy=False)
        if not block.has_canonical_format:
            block.sum_duplicates()
        return base.read_only(block)

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
