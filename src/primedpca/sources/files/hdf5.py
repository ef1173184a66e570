"""Datasets of HDF5 files, read in strips along their chunks.

Files are not trusted: no other files are read, and nothing is decompressed without a limit.
"""

from __future__ import annotations

import math
import os
import zlib
from contextlib import ExitStack
from itertools import product
from typing import Any

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.base import read_only
from primedpca.sources.files import chunked, common
from primedpca.sources.files.common import need, reading

DEFLATE, SHUFFLE, FLETCHER32, SZIP, NBIT, SCALEOFFSET, LZF = 1, 2, 3, 4, 5, 6, 32000
LINKS = 64  # soft links followed to reach one object


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
        self._dataset, self._seen = dataset, set[tuple[Any, ...]]()
        self.path = str(dataset.file.filename)
        label = f"{self.path}::{dataset.name}"
        with reading(self.path, f"dataset {dataset.name}"):
            self.shape = common.check_matrix(label, dataset.shape or (), dataset.dtype)
            self.dtype = np.dtype(dataset.dtype)
            inside = check_inside(label, dataset, follow_links)
            missing = self._count_missing(dataset, label) if inside else 0
        # A file that the user has open for writing may be written to.
        kept = dataset.file.mode == "r" and os.path.isfile(self.path)
        self._stamp = common.stamp_of(self.path) if kept else None
        chunks = dataset.chunks or (1, self.shape[1])
        self._cut(label, chunks, missing, strict, dataset.fillvalue)

    def _count_missing(self, dataset: Any, label: str) -> int:
        (n, d), itemsize = self.shape, self.dtype.itemsize
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
            return read_only(np.asarray(self._dataset[tuple(slice(*side) for side in sides)]))

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
    given: Any, part: str | None = None, *, strict: bool = False, follow_links: bool = False
) -> HDF5Source:
    """Source of a dataset, by ``path`` and name or as an h5py object.

    Parameters
    ----------
    given : path or h5py.Dataset
    part : str, optional
        Name of the dataset, such as ``"group/data"``; by default the only one with two
        dimensions.
    strict : bool, default=False
        Refuse a dataset with chunks that were never written.
    follow_links : bool, default=False
        Allow data in other files: external links, external storage and virtual datasets.  Only
        for files you trust.
    """
    if not isinstance(given, (str, os.PathLike)):
        if not given:
            raise ValueError("`X` is a dataset of a closed HDF5 file; open it again.")
        return HDF5Source(given, strict=strict, follow_links=follow_links)
    path = os.fspath(given)
    with reading(path, "opening"), ExitStack() as closing:
        file = closing.enter_context(open_hdf5(path))
        dataset = _dataset(file, path, part, follow_links)
        source = HDF5Source(dataset, strict=strict, follow_links=follow_links)
        closing.pop_all()  # kept open
        return source


def _dataset(file: Any, path: str, part: str | None, follow_links: bool) -> Any:
    kind = need("h5py", "HDF5").Dataset
    if part is not None and isinstance(dataset := find(file, part, follow_links), kind):
        return dataset
    found: list[Any] = []
    file.visititems(lambda _, thing: found.append(thing))  # it follows hard links only
    found = [thing for thing in found if isinstance(thing, kind)]
    if part is None:
        return common.only_one(path, {thing.name: thing for thing in found if thing.ndim == 2})
    names = ", ".join(thing.name.lstrip("/") for thing in found[:9]) or "none"
    raise ValueError(f"{path} has no dataset {part!r}; it has {names}.")


# -- checks -----------------------------------------------------------------------------------


def open_hdf5(path: str) -> Any:
    """Open a regular file for reading."""
    common.check_regular(path)
    return need("h5py", "HDF5").File(path, "r")


def find(file: Any, name: str, follow_links: bool = False) -> Any:
    """The object at a path in a file, or None; links to other files are refused.

    Soft links are followed inside the file.  h5py's own lookup is not used: it opens the target
    of an external link even to test whether it exists.
    """
    h5py = need("h5py", "HDF5")
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
    elif plist.get_layout() == need("h5py", "HDF5").h5d.VIRTUAL:
        name = plist.get_virtual_filename(0) if plist.get_virtual_count() else "other files"
    if name is not None and not follow_links:
        raise ValueError(f"{label} takes its values from {name!r}. {common.TRUST}")
    return name is None


def check_chunks(
    label: str, dataset: Any, region: tuple[tuple[int, int], ...], seen: set[tuple[Any, ...]]
) -> None:
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
