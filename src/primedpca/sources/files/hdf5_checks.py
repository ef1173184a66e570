"""Checks for untrusted HDF5 files: no reads of other files, no decompression without limit."""

from __future__ import annotations

import math
import os
import zlib
from itertools import product
from typing import Any

from primedpca.sources.files.common import need
from primedpca.sources.files.decompression import check_stored, inflate
from primedpca.sources.files.regular_files import check_regular

__all__ = ["check_chunks", "check_inside", "find", "open_hdf5"]

DEFLATE, SHUFFLE, FLETCHER32, SZIP, NBIT, SCALEOFFSET, LZF = 1, 2, 3, 4, 5, 6, 32000
LINKS = 64  # soft links followed to reach one object


def open_hdf5(path: str) -> Any:
    """Open a regular file for reading."""
    h5py = need("h5py", "HDF5")
    check_regular(path)
    return h5py.File(path, "r")


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
        if not isinstance(here, h5py.Group):
            return None
        key = step.encode()
        if not here.id.links.exists(key):
            return None
        kind = here.id.links.get_info(key).type
        if kind == h5py.h5l.TYPE_HARD:
            here = here[step]
            continue
        target = here.id.links.get_val(key) if kind == h5py.h5l.TYPE_SOFT else None
        if target is None:
            other = here.get(step, getlink=True)
            other = getattr(other, "filename", "another file")
            raise ValueError(
                f"{file.filename}: {step!r} is a link to {other!r}. Pass `follow_links`=True if "
                "you trust the file."
            )
        links += 1
        if links > LINKS:
            raise ValueError(f"{file.filename}: the links from {name!r} form a circle.")
        here = file if target.startswith(b"/") else here
        steps += target.decode(errors="surrogateescape").split("/")[::-1]
    return here


def check_inside(label: str, dataset: Any, follow_links: bool) -> bool:
    """Whether a dataset is stored in its own file; refuse one that is not, unless allowed."""
    h5py, plist = need("h5py", "HDF5"), dataset.id.get_create_plist()
    if plist.get_external_count():
        name = os.fsdecode(plist.get_external(0)[0])
    elif plist.get_layout() == h5py.h5d.VIRTUAL:
        names = [plist.get_virtual_filename(0)] if plist.get_virtual_count() else []
        name = next(iter(names), "other files")
    else:
        return True
    if not follow_links:
        raise ValueError(
            f"{label} takes its values from {name!r}. Pass `follow_links`=True if you trust the "
            "file."
        )
    return False


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
                raise ValueError(
                    f"{label} is damaged: of its chunk at {place}, {error}."
                ) from error
        seen.add((name, *place))


def _check_chunk(
    dataset: Any, place: Any, size: int, filters: list[Any], wanted: int, whole: bool
) -> None:
    check_stored(size, wanted)
    left = 4 * sum(one[0] == FLETCHER32 for one in filters)
    packed = sum(one[0] not in (SHUFFLE, FLETCHER32) for one in filters)
    data = dataset.id.read_direct_chunk(place)[1] if packed else b""
    for code, _, values, name in reversed(filters):
        if code == SHUFFLE:
            continue
        if code == FLETCHER32:
            size, left = size - 4, left - 4
            data = data[:-4]
            continue
        packed -= 1
        if code != DEFLATE:
            if packed:
                raise ValueError(f"{name.decode(errors='replace')!r} is not its only compression")
            _check_declared(code, values, data, wanted + left)
            # HDF5 can store chunks at the edge uncompressed.
            if code == LZF and (whole or size != wanted):
                _check_lzf(data, wanted + left)
            return
        # Bytes that another filter will unpack may be a little longer than the shape needs.
        most = wanted + left + (wanted // 8 + 4096 if packed else 0)
        try:
            data = inflate(data, most)
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


def _check_declared(code: int, values: tuple[int, ...], data: bytes, wanted: int) -> None:
    """Compare the size that other filters allocate with the size that the shape needs."""
    if code == SZIP:
        said = int.from_bytes(data[:4], "little")
    elif code in (NBIT, SCALEOFFSET):
        said = values[2] * values[4] if len(values) > 4 else 0
    elif code == LZF:
        said = values[2] if len(values) > 2 else wanted
    else:  # a plug-in that the user has installed
        return
    if said != wanted:
        raise ValueError(f"it declares {said} bytes, but its shape needs {wanted}")
