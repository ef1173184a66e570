"""Datasets of HDF5 files, and AnnData (``.h5ad``) in them, read in strips along their chunks.

Files are not trusted: no other files are read, and nothing is decompressed without a limit.
"""

import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from primedpca._core.wording import count_words
from primedpca.protocols import Block, DataSource
from primedpca.sources import base
from primedpca.sources.column_choice import check_name
from primedpca.sources.files import chunked, common
from primedpca.sources.files.common import need, reading
from primedpca.sources.selected import Selected

DEFLATE, SHUFFLE, FLETCHER32, SZIP, NBIT, SCALEOFFSET, LZF = 1, 2, 3, 4, 5, 6, 32000
LINKS = 64  # soft links followed to reach one object
HEAP_BYTES = 2**24
TEXT_BYTES = 2**28
FILTER_RATIO = 2**16  # bytes that one stored byte can plausibly become
#: Frames of an ``.h5ad`` file that name the rows and the columns of its matrices.
FRAMES: dict[str, tuple[str | None, str | None]] = {
    **dict.fromkeys(("X", "layers"), ("obs", "var")),
    "raw": ("obs", "raw/var"),
    "obsm": ("obs", None),  # such as an embedding, whose columns have no names
    "varm": ("var", None),
    "obsp": ("obs", "obs"),
    "varp": ("var", "var"),
}
_h5py = partial(need, "h5py", "HDF5")


class HDF5Source(chunked.ChunkedSource):
    """A dataset of two dimensions.

    HDF5 itself compares checksums (``fletcher32``) in every read, one thread at a time.

    Parameters
    ----------
    dataset : h5py.Dataset
    strict : bool, default=False
        Refuse a dataset with chunks that were never written, which read as its fill value.
    follow_links : bool, default=False
        Allow a dataset with values in other files: external storage or a virtual dataset.
    """

    def __init__(self, dataset: Any, *, strict: bool = False, follow_links: bool = False) -> None:
        if not dataset:
            raise ValueError("`X` is a dataset of a closed HDF5 file; open it again.")
        self._dataset, self._seen = dataset, set[tuple[Any, ...]]()
        self.path, self.part = str(dataset.file.filename), str(dataset.name)
        label = f"{self.path}::{dataset.name}"
        with reading(self.path, f"dataset {dataset.name}"):
            self.shape = common.check_matrix(label, dataset.shape or (), dataset.dtype)
            self.dtype = np.dtype(dataset.dtype)
            chunked.check_conventions(label, dataset.attrs, self.dtype)
            inside = check_inside(label, dataset, follow_links)
            missing = self._count_missing(dataset, label) if inside else 0
        # A file that the user has open for writing may be written to.
        kept = dataset.file.mode == "r" and os.path.isfile(self.path)
        self._stamp = common.stamp_of(self.path) if kept else None
        chunks = dataset.chunks or (1, self.shape[1])
        self._cut(label, chunks, missing, strict, dataset.fillvalue)

    def _count_missing(self, dataset: Any, label: str) -> int:
        # Numbers may be narrower in the file than NumPy's type for them, such as bfloat16.
        (n, d), itemsize = self.shape, dataset.id.get_type().get_size()
        stored = int(dataset.id.get_storage_size())
        common.check_plausible(label, self.shape, itemsize, stored)
        present = min(stored, 1) if dataset.chunks is None else int(dataset.id.get_num_chunks())
        if dataset.chunks is None and 0 < stored < n * d * itemsize:
            raise ValueError(f"its {stored} bytes are too few for {n} x {d} of {self.dtype}")
        return chunked.count_missing(label, self.shape, dataset.chunks or (n, d), itemsize, present)

    def read(self, i: int) -> Block:
        """The strip, in its own dtype."""
        where = self._place(i)
        if not self._dataset:
            raise ValueError(f"{self.path} was closed; keep it open while it is read ({where}).")
        self._check_same(where)
        sides = chunked.region(self, i)
        with reading(self.path, where):
            check_chunks(f"{self.path} ({where})", self._dataset, sides, self._seen)
            return base.read_only(np.asarray(self._dataset[tuple(slice(*side) for side in sides)]))

    def __getstate__(self) -> dict[str, Any]:
        """State by path and name: another process opens the file for itself."""
        name = self._dataset.name if self._dataset else None
        return self.__dict__ | {"_dataset": None, "_name": name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        name = state.pop("_name")
        self.__dict__.update(state)
        if name is not None:
            with reading(self.path, "opening"):
                self._dataset = open_hdf5(self.path)[name]


def hdf5_source(
    given: common.Path, part: str | None = None, *, strict: bool = False, follow_links: bool = False
) -> HDF5Source:
    """Source of a dataset of a file.

    Parameters
    ----------
    given : path
    part : str, optional
        Name of the dataset, such as ``"group/data"``; by default the only one with two
        dimensions.
    strict : bool, default=False
        Refuse a dataset with chunks that were never written.
    follow_links : bool, default=False
        Allow data in other files: external links, external storage and virtual datasets.  Only
        for files you trust.
    """
    path = os.fspath(given)
    with reading(path, "opening"), ExitStack() as closing:
        file = closing.enter_context(open_hdf5(path))
        dataset = _dataset(file, path, part, follow_links)
        source = HDF5Source(dataset, strict=strict, follow_links=follow_links)
        closing.pop_all()  # kept open
        return source


def _dataset(file: Any, path: str, part: str | None, follow_links: bool) -> Any:
    """The dataset to read; of an AnnData it is ``X``."""
    h5py = _h5py()
    chosen = None if part is None else find(file, part, follow_links)
    if isinstance(chosen, h5py.Dataset):
        return chosen
    found: list[Any] = []
    file.visititems(lambda _, thing: found.append(thing))  # it follows hard links only
    arrays = [thing for thing in found if isinstance(thing, h5py.Dataset)]
    matrices = {thing.name: thing for thing in arrays if thing.ndim == 2}
    for thing in found:
        if common.kind_of_group(thing.attrs) == common.SPARSE_MATRIX:
            matrices[thing.name] = thing
    if not matrices and {"indptr", "barcodes"} <= {thing.name.split("/")[-1] for thing in arrays}:
        remedy = common.TENX.format("read_10x_h5", path)
        raise ValueError(f"{path} has counts of 10x Genomics, with cells as columns. {remedy}")
    if part is None:
        whole = str(file.attrs.get("encoding-type", ""))
        chosen = matrices[common.main_matrix(path, {*matrices}, whole, "/X")]
        if isinstance(chosen, h5py.Dataset):
            return chosen
    if chosen is None or (kind := common.kind_of_group(chosen.attrs)) is None:
        names = ", ".join(thing.name.lstrip("/") for thing in arrays[:9]) or "none"
        raise ValueError(f"{path} has no dataset {part!r}; it has {names}.")
    name = chosen.name.lstrip("/")
    if kind == common.SPARSE_MATRIX:
        raise common.UnfitError(
            f"{name!r} is a sparse matrix of AnnData. Rename the file to end in .h5ad."
        )
    names = ", ".join(sorted(each.lstrip("/") for each in matrices)[:9]) or "none"
    raise common.UnfitError(f"{name!r} is {kind}, not a matrix; its matrices: {names}.")


# -- checks -----------------------------------------------------------------------------------


def open_hdf5(path: str) -> Any:
    """Open a regular file for reading."""
    common.check_regular(path)
    return _h5py().File(path, "r")


def find(file: Any, name: str, follow_links: bool = False) -> Any:
    """The object at a path in a file, or None; links to other files are refused.

    Soft links are followed inside the file.  h5py's own lookup is not used: it opens the target
    of an external link even to test whether it exists.
    """
    h5py = _h5py()
    if follow_links:
        return file.get(name)
    here, steps, links = file, name.split("/")[::-1], 0
    while steps:
        step = steps.pop()
        if step in ("", "."):
            continue
        key = step.encode()
        if not isinstance(here, h5py.Group) or not here.id.links.exists(key):
            return None
        kind = here.id.links.get_info(key).type
        if kind == h5py.h5l.TYPE_HARD:
            here = here[step]
            continue
        if kind != h5py.h5l.TYPE_SOFT:
            other = getattr(here.get(step, getlink=True), "filename", "another file")
            raise ValueError(f"{file.filename}: {step!r} is a link to {other!r}. {common.TRUST}")
        links += 1
        if links > LINKS:
            raise ValueError(f"{file.filename}: the links from {name!r} form a circle.")
        target = here.id.links.get_val(key)
        here = file if target.startswith(b"/") else here
        steps += target.decode(errors="surrogateescape").split("/")[::-1]
    return here


def check_inside(label: str, dataset: Any, follow_links: bool) -> bool:
    """Whether a dataset is stored in its own file; refuse one that is not, unless allowed."""
    plist, name = dataset.id.get_create_plist(), None
    if plist.get_external_count():
        name = os.fsdecode(plist.get_external(0)[0])
    elif plist.get_layout() == _h5py().h5d.VIRTUAL:
        name = plist.get_virtual_filename(0) if plist.get_virtual_count() else "other files"
    if name is not None and not follow_links:
        raise ValueError(f"{label} takes its values from {name!r}. {common.TRUST}")
    return name is None


def check_chunks(label: str, dataset: Any, region: Any, seen: set[tuple[Any, ...]]) -> None:
    """Refuse stored chunks of a region that do not decode to what their shape needs.

    Parameters
    ----------
    label : str
        Names the dataset in errors.
    dataset : h5py.Dataset
    region : tuple of (start, stop)
        Along every axis.
    seen : set
        Chunks checked before; the chunks checked now are added.
    """
    chunks, shape, name = dataset.chunks, dataset.shape, dataset.name
    if chunks is None:
        return
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    itemsize = dataset.id.get_type().get_size()
    if dataset.dtype.kind == "O":  # a text is stored as length, address and number
        itemsize = 8 + dataset.file.id.get_create_plist().get_sizes()[0]
    wanted = math.prod(chunks) * itemsize
    sides = zip(region, chunks, strict=True)
    for place in product(*(range(a - a % step, b, step) for (a, b), step in sides)):
        if (name, *place) in seen:
            continue
        info = dataset.id.get_chunk_info_by_coord(place)
        if info.byte_offset is not None:
            active = [one for k, one in enumerate(filters) if not info.filter_mask >> k & 1]
            ends = zip(place, chunks, shape, strict=True)
            whole = all(at + step <= side for at, step, side in ends)
            try:
                _check_chunk(dataset, place, info.size, active, wanted, whole)
            except (ValueError, zlib.error) as error:
                raise ValueError(f"{label} is damaged, chunk at {place}: {error}.") from error
        seen.add((name, *place))


def _check_chunk(
    dataset: Any, place: Any, size: int, filters: list[Any], wanted: int, whole: bool
) -> None:
    chunked.check_stored(size, wanted)
    left = 4 * sum(one[0] == FLETCHER32 for one in filters)
    packed = sum(one[0] not in (SHUFFLE, FLETCHER32) for one in filters)
    data = dataset.id.read_direct_chunk(place)[1] if packed else b""
    for code, _, values, name in reversed(filters):
        if code == SHUFFLE:
            continue
        if code == FLETCHER32:
            size, left, data = size - 4, left - 4, data[:-4]
            continue
        packed -= 1
        if code != DEFLATE:
            if packed:
                raise ValueError(f"{name.decode(errors='replace')!r} is not its only compression")
            chunked.check_declared(_declared(code, values, data, wanted + left), wanted + left)
            # HDF5 can store chunks at the edge uncompressed.
            if code == LZF and (whole or size != wanted):
                _check_lzf(data, wanted + left)
            return
        # Bytes that another filter will unpack may be a little longer than the shape needs.
        most = wanted + left + (wanted // 8 + 4096 if packed else 0)
        try:
            data = zlib.decompressobj().decompress(data, most + 1)
        except zlib.error:
            if not whole and size == wanted:  # HDF5 can store chunks at the edge uncompressed
                return
            raise
        size = len(data)
        if size > most:
            raise ValueError(f"it decompresses to more than the {most} bytes that it needs")
    if size != wanted:
        raise ValueError(f"{size} bytes are stored, but its shape needs {wanted}")


def _check_lzf(data: bytes, wanted: int) -> None:
    """Refuse an LZF stream of another length: HDF5 would leave the rest of the chunk undefined.

    A control byte below 32 begins a literal run, others copy bytes that were decoded before.
    """
    i, length, end = 0, 0, len(data)
    while i < end:
        control = data[i]
        if control < 32:
            i, length = i + control + 2, length + control + 1
        elif control < 224:
            i, length = i + 2, length + (control >> 5) + 2
        else:
            more = data[i + 1] if i + 1 < end else 0
            i, length = i + 3, length + more + 9
    if i != end or length != wanted:
        raise ValueError(f"it decompresses to {length} bytes, but its shape needs {wanted}")


def _declared(code: int, values: tuple[int, ...], data: bytes, wanted: int) -> int:
    """Size that another filter allocates; of a plug-in that the user has installed, ``wanted``."""
    if code == SZIP:
        return int.from_bytes(data[:4], "little")
    if code in (NBIT, SCALEOFFSET):
        return values[2] * values[4] if len(values) > 4 else 0
    return values[2] if code == LZF and len(values) > 2 else wanted


# -- AnnData ----------------------------------------------------------------------------------


class _InFile:
    """A matrix inside an ``.h5ad`` file, and the names of its rows and columns."""

    shape: tuple[int, int]

    def __init__(
        self, path: str, node: str, follow_links: bool, label_column: str | None = None
    ) -> None:
        self.path, self.node, self.follow_links = path, node, follow_links
        self._label, self.headings = label_column, ("name", label_column or "label")
        self._state, self._seen = common.stamp_of(path), set[tuple[Any, ...]]()
        with self._opened() as file:
            self._look(file)

    def _look(self, file: Any) -> None:
        """Read what is needed to cut the matrix into blocks."""

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the file for one read; errors of HDF5 then name the file."""
        self._state.check(self.path, f"`{self.node}`")
        with reading(self.path, f"`{self.node}`", ValueError), open_hdf5(self.path) as file:
            yield file

    @property
    def row_names(self) -> np.ndarray | None:
        """Names of the rows, of shape (n,): of ``X`` the observations, ``obs_names``."""
        return self._names(self._frames[0], 0)

    @property
    def feature_names(self) -> np.ndarray | None:
        """Names of the columns, of shape (d,): of ``X`` the variables, ``var_names``."""
        return self._names(self._frames[1], 1)

    @property
    def labels(self) -> np.ndarray | None:
        """Contents of ``label_column`` of ``obs``, of shape (n,)."""
        return None if self._label is None else self.column("obs", self._label, 0)

    @property
    def _frames(self) -> tuple[str | None, str | None]:
        return FRAMES.get(self.node.split("/")[0], (None, None))

    def _find(self, file: Any, name: str) -> Any:
        return find(file, name, self.follow_links)

    def _names(self, frame: str | None, axis: int) -> np.ndarray | None:
        if frame is None:
            return None
        with self._opened() as file:
            group = self._find(file, frame)
            known = {} if group is None else group.attrs
            path = f"{frame}/{known.get('_index', '_index')}"
            if self._find(file, path) is None:
                return None
            return self._entries(file, path, f"`{frame}`", self.shape[axis]).astype(object)

    def column(self, frame: str, name: str, axis: int) -> np.ndarray:
        """A column of ``obs`` or ``var``: numbers, bools, texts, or the words of a category.

        Columns with missing values are of objects, with None where one is missing.
        """
        with self._opened() as file:
            path, what = f"{frame}/{name}", f"`{frame}[{name!r}]`"
            if self._find(file, path) is None:
                table = self._find(file, frame)
                attributes = {} if table is None else table.attrs
                hidden = {str(attributes.get("_index", "_index")), "__categories"}
                shown = [repr(column) for column in table or () if column not in hidden]
                known = ", ".join(shown[:20]) or "none"
                raise common.UnfitError(f"no {what}; columns of `{frame}`: {known}.")
            return self._entries(file, path, what, self.shape[axis])

    def _entries(self, file: Any, path: str, what: str, size: int) -> np.ndarray:
        """Entries of a column in any encoding of AnnData."""
        column = self._find(file, path)
        if isinstance(column, _h5py().Dataset):
            return self._values(column, what, size)
        if (pair := self._parts(file, path, "categories", "codes")) is not None:
            return self._named(pair[0], pair[1], what, size)
        if (pair := self._parts(file, path, "values", "mask")) is None:
            raise ValueError(f"{what} is neither text, numbers nor a category")
        values, absent = (self._values(part, what, size) for part in pair)
        if not absent.any():
            return values
        with_gaps: np.ndarray = values.astype(object)
        with_gaps[absent] = None
        return with_gaps

    def _parts(self, file: Any, path: str, *names: str) -> list[Any] | None:
        """The datasets of these names in a group, or None if it is encoded otherwise."""
        found = [self._find(file, f"{path}/{name}") for name in names]
        return found if all(isinstance(part, _h5py().Dataset) for part in found) else None

    def _named(self, categories: Any, codes: Any, what: str, size: int) -> np.ndarray:
        """The words of a category, None where there is none."""
        words = self._values(categories, what, categories.size)
        numbers = self._values(codes, what, size)
        known = numbers.dtype.kind in "iu" and -1 <= numbers.min() <= numbers.max() < words.size
        if not known:
            raise ValueError(f"{what} has codes without a category")
        named: np.ndarray = np.append(words.astype(object), [None])[numbers]
        return named

    def _values(self, column: Any, what: str, size: int) -> np.ndarray:
        """All of one dataset, which must have this many values."""
        if column.shape != (size,):
            raise ValueError(f"{what} has shape {column.shape}, but needs ({size},)")
        self._check_dataset(column, (0, size))
        if column.dtype.kind == "O":
            return self._texts(column)
        values = column.asstr() if column.dtype.kind == "S" else column
        return np.asarray(values[...])

    def _texts(self, column: Any) -> np.ndarray:
        """Read texts of any length, a few at a time: in the file many names can share one text."""
        size, total = os.path.getsize(self.path), 0
        found = np.empty(column.shape, dtype=object)
        step = max(64, TEXT_BYTES // size)
        for start in range(0, column.shape[0], step):
            found[start : start + step] = column.asstr()[start : start + step]
            total += sum(map(len, found[start : start + step]))
            if total > max(TEXT_BYTES, size):
                raise ValueError(f"`{column.name}` holds more text than the file has bytes")
        return found

    def _check_dataset(self, dataset: Any, *region: tuple[int, int]) -> None:
        """Refuse a dataset, and chunks in a region of it, that are damaged or implausible."""
        if dataset.ndim != len(region):
            raise ValueError(f"`{dataset.name}` has {dataset.ndim} dimensions, not {len(region)}")
        label = f"{self.path}::{dataset.name}"
        if not check_inside(label, dataset, self.follow_links):
            return
        stored, itemsize = dataset.id.get_storage_size(), dataset.dtype.itemsize
        ratio = FILTER_RATIO if dataset.id.get_create_plist().get_nfilters() else 1
        if dataset.size * itemsize > ratio * min(stored, os.path.getsize(self.path)):
            declared = f"`{dataset.name}` declares {dataset.shape} of {dataset.dtype}"
            raise ValueError(f"{declared}, but {stored} bytes are stored")
        if dataset.chunks is not None:
            present = int(dataset.id.get_num_chunks())
            chunked.count_missing(label, dataset.shape, dataset.chunks, itemsize, present)
            check_chunks(label, dataset, region, self._seen)


class H5adSparse(_InFile, common.CompressedFile):
    """A CSR or CSC matrix of an ``.h5ad`` file: rows or columns are read, never densified."""

    def _look(self, file: Any) -> None:
        known = self._find(file, self.node).attrs
        kind = str(known.get("encoding-type", known.get("h5sparse_format", "")))
        shape = known.get("shape", known.get("h5sparse_shape"))
        if shape is None or len(shape) != 2:
            raise ValueError(f"`{self.node}` does not say its shape")
        data, indices, indptr = (self._part(file, name) for name in ("data", "indices", "indptr"))
        for part in (data, indices):
            self._check_dataset(part, (0, 0))
        self._check_dataset(indptr, (0, indptr.size))
        entries = min(data.shape[0], indices.shape[0])
        self._begin(kind.removesuffix("_matrix"), shape, data.dtype, indptr[...], entries)

    def _part(self, file: Any, name: str) -> Any:
        part = self._find(file, f"{self.node}/{name}")
        if not isinstance(part, _h5py().Dataset):
            raise ValueError(f"`{self.node}` has no dataset {name!r}")
        return part

    def _stored(self, name: str, start: int, stop: int) -> np.ndarray:
        with self._opened() as file:
            part = self._part(file, name)
            self._check_dataset(part, (start, stop))
            stored: np.ndarray = part[start:stop]
            return stored


class H5adDense(_InFile, common.FileSource):
    """A dense matrix of an ``.h5ad`` file, read in whole strips of chunks."""

    def _look(self, file: Any) -> None:
        dataset = self._find(file, self.node)
        self._check_dataset(dataset, (0, 0), (0, 0))
        self.shape = common.check_matrix(self.path, dataset.shape, dataset.dtype)
        self.dtype, chunks = dataset.dtype, dataset.chunks or (1, self.shape[1])
        # Strips of whole chunks along the axis on which they take fewer bytes.
        strips = [chunks[axis] * self.shape[1 - axis] for axis in (0, 1)]
        self.axis = 0 if strips[0] <= strips[1] else 1
        strip, end = strips[self.axis] * self.dtype.itemsize, self.shape[self.axis]
        length = chunks[self.axis] * max(1, base.READ_BYTES // strip)
        self.blocks = tuple((a, min(a + length, end)) for a in range(0, end, length))

    def read(self, i: int) -> Block:
        """The block, in a fresh array."""
        sides = chunked.region(self, i)
        with self._opened() as file:
            dataset = self._find(file, self.node)
            self._check_dataset(dataset, *sides)
            return base.read_only(dataset[tuple(slice(*side) for side in sides)])


def _check_heaps(path: str) -> None:
    """Check the heaps of strings at both ends of the file, on which HDF5 could loop for ever.

    A heap is ``GCOL``, a version, its size, and then entries: a number, a size and the text,
    padded to a multiple of 8 bytes; the entry numbered 0 is the free space at the end.
    """
    size = common.stamp_of(path).size
    for first in sorted({0, max(0, size - HEAP_BYTES) // 8 * 8}):
        with common.open_regular(path) as file:
            file.seek(first)
            held = file.read(HEAP_BYTES)
        for found in re.finditer(rb"GCOL\x01\0\0\0", held):
            place, end = found.start() + 16, found.start()
            end += int.from_bytes(held[place - 8 : place], "little")
            while end <= len(held) and place + 16 <= end:
                number = int.from_bytes(held[place : place + 2], "little")
                length = int.from_bytes(held[place + 8 : place + 16], "little")
                place += 16 + -(-length // 8) * 8 if number else length
                if place > end or (number == 0 and place < end):
                    begin = first + found.start()
                    raise ValueError(f"{path} is damaged: texts do not fill their heap at {begin}.")


def h5ad_source(
    x: str | os.PathLike[str],
    part: str | None = None,
    *,
    follow_links: bool = False,
    label_column: str | None = None,
    mask_var: str | None = None,
    columns: Sequence[str] | None = None,
) -> DataSource:
    """Source of the matrix of an AnnData file, without loading it.

    Parameters
    ----------
    x : path
    part : str, optional
        Name of another matrix than ``X``, such as ``"layers/counts"``.
    follow_links : bool, default=False
        Allow data in other files: external links, external storage and virtual datasets.  Only
        for files you trust.
    label_column : str, optional
        Column of ``obs`` with the labels of the rows.
    mask_var : str, optional
        Column of ``var`` that selects the variables to use, such as ``"highly_variable"``.
    columns : sequence of str, optional
        Names of the variables to use, by default all.

    Returns
    -------
    DataSource
        With ``row_names`` (``obs_names``) and ``feature_names`` (``var_names``).
    """
    path, node = os.fspath(x), "/".join(step for step in (part or "X").split("/") if step)
    for given, argument in ((label_column, "label_column"), (mask_var, "mask_var")):
        check_name(given, argument)
    _check_heaps(path)
    top = _InFile(path, node, follow_links)
    with top._opened() as file:
        found = top._find(file, node)
        if found is None:
            raise ValueError(f"{path} has no `{node}`; it has {_matrices(top, file)}.")
        if (kind := _other_than_matrix(found)) is not None:
            words = f"Name one of its matrices: {_matrices(top, file)}."
            raise common.UnfitError(f"{path}::{node} is {kind}, not a matrix. {words}")
        sparse = isinstance(found, _h5py().Group)
        if not sparse and not isinstance(found, _h5py().Dataset):
            raise ValueError(f"`{node}` is not a matrix")
    make = H5adSparse if sparse else H5adDense
    source = make(path, node, follow_links, label_column)
    if label_column is not None:
        source.labels  # noqa: B018  (a wrong name is reported before anything is fitted)
    if mask_var is None and columns is None:
        return source
    return Selected(source, _chosen_variables(source, mask_var, columns))


def _other_than_matrix(found: Any) -> str | None:
    """What a part of an AnnData file is, or None for a matrix, which may be damaged."""
    if isinstance(found, _h5py().Dataset):
        kinds = {0: "a single value", 1: "a column", 2: None}
        return kinds.get(found.ndim, f"an array of {found.ndim} dimensions")
    if not isinstance(found, _h5py().Group):
        return None  # a data type
    kind = found.attrs.get("encoding-type", "")
    if kind in ("dataframe", "categorical"):
        return "a table of labels" if kind == "dataframe" else "a column of labels"
    sparse = {"shape", "h5sparse_shape", "h5sparse_format"} & {*found.attrs} or "matrix" in str(
        kind
    )
    return None if sparse or "indptr" in found else "a group"


def _matrices(top: _InFile, file: Any) -> str:
    """Names of the matrices in an AnnData file, in words."""
    names = ["X", "raw/X"]
    for folder in ("layers", "obsm", "obsp"):
        names += [f"{folder}/{name}" for name in top._find(file, folder) or ()]
    parts = ((name, top._find(file, name)) for name in names)
    known = (name for name, part in parts if part is not None and _other_than_matrix(part) is None)
    return ", ".join(known) or "none"


def _chosen_variables(
    source: Any, mask_var: str | None, columns: Sequence[str] | None
) -> np.ndarray:
    """Return the numbers of the variables that a mask or a list of names chooses."""
    frame = source._frames[1]
    if frame is None:
        words = "has no variables to choose by `mask_var` or `columns`. Omit it."
        raise ValueError(f"{source.path}: `{source.node}` {words}")
    if columns is None:
        return masked_in(source.column(frame, mask_var, 1), source.path, mask_var)
    if mask_var is not None:
        raise ValueError("`mask_var` and `columns` both choose variables. Omit one.")
    names = [] if source.feature_names is None else source.feature_names.tolist()
    known, counts = {name: i for i, name in enumerate(names)}, Counter(names)
    for name in columns:
        if counts[name] != 1:
            raise ValueError(f"{source.path} has {counts[name]} variables {name!r}, not one.")
    return np.array([known[name] for name in columns])


def masked_in(mask: np.ndarray, where: str, name: Any) -> np.ndarray:
    """The numbers of the variables that a column of bools, or a category of bools, selects."""
    if mask.dtype == object and all(isinstance(one, (bool, np.bool_, type(None))) for one in mask):
        if absent := sum(one is None for one in mask):
            words = f"has {count_words(absent, 'missing value')}; replace them by True or False."
            raise ValueError(f"{where}: `mask_var`={name!r} {words}")
        mask = mask.astype(bool)
    if mask.dtype != bool or not mask.any():
        what = mask.dtype if mask.dtype != bool else "no True"
        raise ValueError(f"{where}: `mask_var`={name!r} must be bools, has {what}.")
    return np.flatnonzero(mask)


def is_anndata(x: Any) -> bool:
    """Whether ``x`` is an AnnData object, or its raw part; a collection of some has no ``X``."""
    kind = type(x)
    return kind.__module__.split(".")[0] == "anndata" and {"X", "obs_names"} <= {*dir(kind)}
