"""Files of NumPy: raw binary, memory maps, ``.npy``, and ``.npz`` with dense or sparse arrays.

Access to a map whose file was truncated kills the interpreter; a plain read returns fewer bytes,
which can be reported.  NumPy would allocate as much as a header declares; here a header is
compared with the bytes that are stored before anything is allocated, and every member of an
archive is read to its end, where its checksum is compared.  Nothing is unpickled or densified.
"""

import io
import mmap
import operator
import os
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy_format

from primedpca._core.arrays import work_dtype
from primedpca._core.parameters import is_whole
from primedpca._core.units import as_bytes
from primedpca.protocols import Block, DataSource
from primedpca.sources import base
from primedpca.sources.files import common
from primedpca.sources.files.common import Stamp, open_regular, opened_archive, reading, stamp_of
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.sparse import SparseSource

HEADER_BYTES = 10_000  # of a .npy file: NumPy's own limit
DEFLATE_RATIO = 1032  # one byte of a deflated stream never becomes more
PIECE_BYTES = 2**22
SURPLUS = 2**24  # entries that a small matrix may have: several at one place add up
LEAST_SIDE = 2**20  # rows or columns that may be empty, however little is stored
#: SciPy format -> members of its file beside ``format`` and ``shape``.
MEMBERS = {
    **dict.fromkeys(("csr", "csc", "bsr"), ("data", "indices", "indptr")),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}
Pair = tuple[int, int]


class RawFileSource(common.FileSource):
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
            raise ValueError(f"`X` is a memory map with negative strides {strides}; reverse it.")
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
        where = f"entries {start}:{stop} of axis {self.axis}"
        with reading(self.path, where), open_regular(self.path) as file:
            self._check_same(where, file.fileno())
            file.seek(begin)
            # Into a fresh buffer: measured to be no slower than one used again.
            held = common.read_bytes(file, self.dtype.itemsize + sum(last), self.path)
        block: np.ndarray = np.ndarray(shape, self.dtype, held, strides=self.strides)
        block.flags.writeable = False
        return block

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number; neighbours are read together."""
        if self.axis == 1:
            return super().rows(index)
        out = np.empty((index.size, self.shape[1]), self.dtype)
        for place, first, stop in common.runs(index):
            block = self._read(first, stop)  # gathered only where a row is asked for twice
            out[place] = block if len(block) == place.size else block[index[place] - first]
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
    exact: bool = True,
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
    exact : bool, default=True
        Refuse a file with more bytes after the last number: the shape or type may be wrong.
    """
    name = os.fspath(path)
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        words = "must be a type of NumPy, such as 'float32' or '>f4'."
        raise TypeError(f"{name}: `dtype`={dtype!r} {words}") from None
    try:
        sides = tuple(operator.index(side) for side in shape)
    except TypeError:
        raise TypeError(f"{name}: `shape`={shape!r} must be two whole numbers, (n, d).") from None
    n, d = common.check_matrix(name, sides, kind)
    if order not in ("C", "F"):
        raise ValueError(f"`order`={order!r} must be 'C' or 'F'.")
    if not is_whole(offset) or offset < 0:
        raise ValueError(f"{name}: `offset`={offset!r} must be a whole number of bytes, 0 or more.")
    stamp, size = stamp_of(name), kind.itemsize
    end = offset + n * d * size
    if stamp.size < end or (exact and stamp.size != end):
        why = "it is truncated, or the shape, type or offset is wrong."
        if stamp.size > end:
            why = "the shape, type or offset is wrong, or pass `exact`=False to `as_source`."
        raise ValueError(
            f"{name} has {stamp.size} bytes, but {n} x {d} numbers of {kind} from byte {offset} "
            f"on end at byte {end}: {why}"
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
    with reading(name, "the header"):
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


def npy_source(path: str | os.PathLike[str], *, exact: bool = True) -> RawFileSource:
    """Source of a ``.npy`` file of any real dtype, in rows or columns.

    The header is compared with the true size of the file before anything is read.

    Parameters
    ----------
    path : path
    exact : bool, default=True
        Refuse a file with more bytes after the last number.
    """
    name = os.fspath(path)
    with open_regular(name) as file:
        shape, order, dtype, offset = read_header(file, name)
    return raw_source(name, shape=shape, dtype=dtype, offset=offset, order=order, exact=exact)


# -- archives ---------------------------------------------------------------------------------


def npz_source(
    path: common.Path, part: str | None = None, *, cache: Any = "256MB", verify: bool = True
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
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if part is None and members.keys() >= {"data", "shape", "format"}:
            return sparse_npz(name)
        info = _member(archive, members, name, part)
        label = f"{name}::{info.filename.removesuffix('.npy')}"
        stored = info.compress_type == zipfile.ZIP_STORED
        head, begin = _located(archive, info, label, verify and stored)
    shape = common.check_matrix(label, head.shape, head.dtype)
    if stored:
        kind, order = head.dtype, head.order
        whole = raw_source(name, shape=shape, dtype=kind, offset=begin, order=order, exact=False)
        stamp.check(name, "opening")
        return whole
    streamed = CompressedMember(name, info.filename, shape, head, stamp)
    if not cache or info.file_size > as_bytes(cache, "cache"):
        return streamed
    held = np.empty(shape, head.dtype, order=head.order)
    for i, block in streamed.scan():
        held[(slice(None),) * streamed.axis + (slice(*streamed.blocks[i]),)] = block
    return DenseSource(held)


def _member(archive: zipfile.ZipFile, members: dict[str, Any], name: str, part: str | None) -> Any:
    """The member to read: the one named, or the only one with two dimensions."""
    if part is not None:
        info = members.get(part.removesuffix(".npy"))
        if info is None:
            known = ", ".join(sorted(members)) or "nothing"
            raise ValueError(f"{name} has no array {part!r}; it has {known}.")
        return info
    found = {}
    for key, info in members.items():
        if info.filename.endswith(".npy"):
            with archive.open(info) as file:
                if len(read_header(file, f"{name}::{key}").shape) == 2:
                    found[key] = info
    return common.only_one(name, found)


def _located(archive: Any, info: Any, label: str, verify: bool) -> tuple[Header, int]:
    """Header of a member, and the byte of the file at which its numbers begin."""
    with archive.open(info) as stream:
        head = _header(stream, info, label)
        try:
            while verify and stream.read(PIECE_BYTES):
                pass  # the last read compares the checksum
        except (zipfile.BadZipFile, EOFError) as error:
            raise OSError(
                f"{label} is damaged: {error}. `verify`=False reads a dense array all the same."
            ) from error
    return head, common.member_begin(archive.fp, info.header_offset) + head.length


def _header(stream: Any, info: zipfile.ZipInfo, label: str) -> Header:
    """Shape and type of a member, compared with the bytes that are stored."""
    head = read_header(stream, label)
    wanted = int(np.prod(head.shape, dtype=object)) * head.dtype.itemsize
    there = info.file_size - head.length
    room = DEFLATE_RATIO * info.compress_size
    if wanted != there or min(head.shape, default=0) < 0 or info.file_size > room:
        raise ValueError(
            f"{label} declares shape {head.shape} of {head.dtype}, {wanted} bytes, but {there} "
            f"bytes are stored in {info.compress_size}: its header is wrong."
        )
    return head


class CompressedMember(common.InOrder):
    """A compressed array of a ``.npz`` file, decompressed from its beginning in every pass."""

    read_rate = 2e8

    def __init__(self, path: str, member: str, shape: Any, head: Header, stamp: Stamp) -> None:
        super().__init__()
        self.path, self._stamp, self._member, self._head = path, stamp, member, head
        self.shape, self.dtype = shape, head.dtype
        self.axis = 0 if head.order == "C" else 1
        across = shape[1 - self.axis] * head.dtype.itemsize
        self.blocks = base.cut_evenly(shape[self.axis], max(1, base.READ_BYTES // across))

    def _from(self, i: int) -> Iterator[tuple[int, Block]]:
        with opened_archive(self.path) as archive, archive.open(self._member) as file:
            file.read(self._head.length)
            for number, (start, stop) in enumerate(self.blocks):
                sides = (stop - start, self.shape[1 - self.axis])
                size = sides[0] * sides[1] * self.dtype.itemsize
                held = common.read_bytes(file, size, self._place(number))
                if number == len(self.blocks) - 1:
                    file.read(1)  # at the end the checksum is compared
                block = base.read_only(held.view(self.dtype).reshape(sides))
                yield number, block if self.axis == 0 else block.T


# -- sparse matrices --------------------------------------------------------------------------


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
    with reading(name, "a sparse matrix", ValueError), opened_archive(name) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        kind = _array(archive, members, "format", 1).item()
        kind = kind.decode("ascii") if isinstance(kind, bytes) else str(kind)
        if kind not in MEMBERS:
            raise ValueError(f"its sparse format is {kind!r}, not one of {', '.join(MEMBERS)}")
        sides = _array(archive, members, "shape", 32)
        shape = tuple(sides.ravel().tolist())
        if sides.dtype.kind not in "iu" or len(shape) != 2 or min(shape) < 0:
            raise ValueError(f"its shape is {shape}, not two whole numbers from 0 up")
        entries = [members[part] for part in ("data", "indices") if part in members]
        packed = len(entries) < 2 or any(one.compress_type != zipfile.ZIP_STORED for one in entries)
        if kind in ("csr", "csc") and not packed:
            indptr = _array(archive, members, "indptr", max(shape) + 1)
            where = [_located(archive, one, one.filename, True) for one in entries]
            return SparseNpz(name, kind, shape, indptr, where)
        most = max(shape[0] * shape[1], SURPLUS)
        parts = {part: _array(archive, members, part, most) for part in MEMBERS[kind]}
        return SparseSource(_assembled(kind, shape, parts))


def _array(archive: zipfile.ZipFile, members: dict[str, Any], name: str, most: int) -> np.ndarray:
    """The array ``name`` of an archive, which may have at most ``most`` entries."""
    if name not in members:
        raise ValueError(f"it has no array `{name}`")
    with archive.open(members[name]) as stream:
        head = _header(stream, members[name], name)
        count = int(np.prod(head.shape, dtype=object))
        if count > most:
            raise ValueError(f"{name} declares {count} entries, more than the {most} possible")
        held = common.read_bytes(stream, count * head.dtype.itemsize, name)
        stream.read(1)  # at the end the checksum is compared
    return np.ndarray(head.shape, head.dtype, held, order=head.order)


class SparseNpz(common.CompressedFile):
    """Compressed rows or columns in members that were stored without compression.

    The checksums of the archive are verified when it is opened, in one reading of the file.
    """

    def __init__(self, path: str, kind: str, shape: Any, indptr: Any, where: Any) -> None:
        self.path, self._stamp = path, stamp_of(path)
        for head, _ in where:
            if len(head.shape) != 1:
                raise ValueError(f"an array of its entries has {len(head.shape)} dimensions, not 1")
        self._where: dict[str, tuple[Header, int]] = {"data": where[0], "indices": where[1]}
        entries = min(head.shape[0] for head, _ in where)
        self._begin(kind, shape, where[0][0].dtype, indptr, entries)

    def _stored(self, name: str, start: int, stop: int) -> np.ndarray:
        head, begin = self._where[name]
        size = head.dtype.itemsize
        with open_regular(self.path) as file:
            self._check_same(f"entries {start}:{stop} of `{name}`", file.fileno())
            file.seek(begin + start * size)
            held = common.read_bytes(file, (stop - start) * size, self.path)
        return held.view(head.dtype).astype(head.dtype.newbyteorder("="), copy=False)


def _assembled(kind: str, shape: tuple[int, int], parts: dict[str, np.ndarray]) -> Any:
    values = tuple(parts.values())
    work_dtype(values[0].dtype)
    for name, part in parts.items():
        if name != "data" and (part.dtype.kind not in "iu" or part.ndim != 1):
            raise ValueError(f"its `{name}` are {part.dtype} of shape {part.shape}, not integers")
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
