"""Zarr arrays of both formats, 3 and 2, read in strips along their chunks."""

from __future__ import annotations

import math
import os
import re
from itertools import product
from typing import Any

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.base import read_only
from primedpca.sources.files.common import (
    FileSource,
    Stamp,
    check_plausible,
    need,
    reading,
    stamp_of,
)
from primedpca.sources.files.strips import count_missing, outside, strips
from primedpca.sources.files.zarr_files import FolderFiles, ZipFiles, find_arrays, metadata_of
from primedpca.sources.files.zarr_layout import layout_of

__all__ = ["ZarrSource", "zarr_source"]


class ZarrSource(FileSource):
    """An array of two dimensions.

    Zarr compares checksums (``crc32c``) in every read.  Absent chunks are read as the fill value,
    as Zarr leaves out chunks that hold nothing else.  The decoded size of a stored chunk is
    compared with its shape before it is first read.

    Parameters
    ----------
    array : zarr.Array
    strict : bool, default=False
        Refuse an array with chunks that are absent.
    follow_links : bool, default=False
        Allow symbolic links inside the store.

    Attributes
    ----------
    missing_chunks : int
        Number of absent chunks (of shards, if it has some).
    """

    read_rate = 5e8

    def __init__(self, array: Any, *, strict: bool = False, follow_links: bool = False) -> None:
        self._array = array
        store, self._inside = array.store, str(array.path)
        root = getattr(store, "root", None)
        where = root if root is not None else getattr(store, "path", store)
        self.path = f"{where}::{self._inside}" if self._inside else str(where)
        self._files: FolderFiles | ZipFiles | None = None
        with reading(self.path, "its metadata"):
            if root is not None:
                self._files = FolderFiles(os.fspath(root), follow_links)
            elif os.path.isfile(str(getattr(store, "path", ""))):
                self._files = ZipFiles(str(store.path))
            found = array.metadata.to_dict()
            self._layout = layout_of(self.path, found, known_only=False)
            self.dtype, (n, d) = np.dtype(array.dtype), self._layout.shape
            self.shape = (n, d)
        self._chunks = (self._layout.chunks[0], self._layout.chunks[1])
        self._grid = tuple(
            -(-side // chunk) for side, chunk in zip(self.shape, self._chunks, strict=True)
        )
        self._sound: set[str] = set()
        self.missing_chunks = self._look()
        if strict and self.missing_chunks:
            raise ValueError(
                f"{self.path} lacks {self.missing_chunks} of its chunks, which would be read as "
                f"the fill value {array.fill_value}; `strict`=False allows that."
            )
        itemsize = self.dtype.itemsize
        self.axis, self.blocks = strips(self.shape, self._chunks, itemsize)
        self.cache_bytes = outside(self.shape, self._chunks, self.axis) * itemsize

    def _look(self) -> int:
        """List the chunks, and return the number of absent ones."""
        itemsize = self.dtype.itemsize
        self._stamps: dict[str, Stamp] = {}
        if self._files is None:  # in memory, or in a store of the user's own
            total = math.prod(self._grid)
            count_missing(self.path, self.shape, self._chunks, itemsize, total)
            with reading(self.path, "the list of its chunks"):
                return int(self._array.nchunks - self._array.nchunks_initialized)
        with reading(self.path, "the list of its chunks"):
            self._stamps = self._files.chunks(self._inside)
        if isinstance(self._files, ZipFiles):
            self._whole = stamp_of(self._files.path)
        stored = sum(stamp.size for stamp in self._stamps.values())
        check_plausible(self.path, self.shape, itemsize, stored)
        for key in self._stamps:
            place = tuple(map(int, re.findall(r"\d{1,19}", key)))
            inside = len(place) == 2 and all(
                at < side for at, side in zip(place, self._grid, strict=True)
            )
            if not inside or self._key(place) != key:
                raise ValueError(
                    f"{self.path} holds {key!r}, which is not a chunk of an array of shape "
                    f"{self.shape} in chunks of {self._chunks}: its metadata are wrong."
                )
        return count_missing(self.path, self.shape, self._chunks, itemsize, len(self._stamps))

    def _key(self, place: tuple[int, ...]) -> str:
        """Path of a chunk inside the folder of the array."""
        key: str = self._array.metadata.encode_chunk_key(place)
        return os.path.normpath(key)

    def _check_chunks(self, i: int) -> list[tuple[int, int]]:
        """Return the places of the stored chunks of block ``i``.

        Chunks that changed since the store was opened, or would decode to too much, are refused.
        """
        if self._files is None:
            return []
        archive = isinstance(self._files, ZipFiles)
        if archive:
            self._whole.check(stamp_of(self._files.path), self._files.path, self._place(i))
        step = self._chunks[self.axis]
        start, stop = self.blocks[i]
        along = range(start // step, -(-stop // step))
        across = range(self._grid[1 - self.axis])
        stored = []
        for a, b in product(along, across):
            place = (a, b) if self.axis == 0 else (b, a)
            key = self._key(place)
            path = os.path.join(self._files.path, self._inside, key)
            before = self._stamps.get(key)
            if before is not None:
                if not archive:
                    before.check(stamp_of(path), path, self._place(i))
                self._check_size(key, path, before.size)
                stored.append(place)
            elif not archive and os.path.lexists(path):
                raise OSError(
                    f"{path} was added since the store was opened (seen at {self._place(i)}); open "
                    "the store again."
                )
        return stored

    def _check_size(self, key: str, path: str, size: int) -> None:
        if key in self._sound or self._files is None:
            return
        with reading(path, "its size"), self._files.open(self._name(key)) as file:
            self._layout.check(file, size)
        self._sound.add(key)

    def _name(self, key: str) -> str:
        return f"{self._inside}/{key}" if self._inside else key

    def read(self, i: int) -> Block:
        """The strip, in its own dtype."""
        where = self._place(i)
        stored, (start, stop) = self._check_chunks(i), self.blocks[i]
        step, sides = self._chunks[self.axis], self._grid[1 - self.axis]
        with reading(self.path, where):
            if self._files is not None and 2 * len(stored) < -(-(stop - start) // step) * sides:
                block = self._filled(i, stored)
            else:
                place = (slice(start, stop), slice(None))
                block = np.asarray(self._array[place if self.axis == 0 else place[::-1]])
        return read_only(block)

    def _filled(self, i: int, stored: list[tuple[int, int]]) -> np.ndarray:
        """Read a strip of mostly absent chunks, each of which would cost Zarr 0.2 ms."""
        (start, stop), length = self.blocks[i], self.shape[1 - self.axis]
        shape = (stop - start, length) if self.axis == 0 else (length, stop - start)
        fill, first = self._array.fill_value, (start, 0) if self.axis == 0 else (0, start)
        block = np.full(shape, 0 if fill is None else fill, self.dtype)
        for place in stored:
            ends = zip(place, self._chunks, self.shape, strict=True)
            area = [(at * step, min((at + 1) * step, side)) for at, step, side in ends]
            inside = (slice(a - o, b - o) for (a, b), o in zip(area, first, strict=True))
            block[tuple(inside)] = self._array[tuple(slice(a, b) for a, b in area)]
        return block


def zarr_source(
    given: Any, part: str | None = None, *, strict: bool = False, follow_links: bool = False
) -> ZarrSource:
    """Source of an array, by the path of its store and its name, or as a Zarr object.

    Parameters
    ----------
    given : path or zarr.Array
    part : str, optional
        Name of the array; by default the store's root or the only array of two dimensions.
    strict : bool, default=False
        Refuse an array with chunks that are absent.
    follow_links : bool, default=False
        Allow symbolic links inside the store.  Only for stores you trust.
    """
    if not isinstance(given, (str, os.PathLike)):
        return ZarrSource(given, strict=strict, follow_links=follow_links)
    zarr, path = need("zarr", "Zarr"), os.fspath(given)
    stamp_of(path)
    with reading(path, "its metadata"):
        folder = os.path.isdir(path)
        files = FolderFiles(path, follow_links) if folder else ZipFiles(path)
        name, version, found = _array(files, path, part)
        layout_of(f"{path}::{name}" if name else path, found)  # before Zarr makes any codec
        # By a store object: Zarr would take a path with "::" for a chain of stores.
        store = zarr.storage.LocalStore if folder else zarr.storage.ZipStore
        array = zarr.open_array(
            store(path, read_only=True), mode="r", path=name, zarr_format=version
        )
        return ZarrSource(array, strict=strict, follow_links=follow_links)


def _array(files: FolderFiles | ZipFiles, path: str, part: str | None) -> tuple[str, int, Any]:
    """Name, format and metadata of the array to read."""
    name = "/".join(step for step in (part or "").split("/") if step)
    known = None if ".." in name.split("/") else metadata_of(files, name)
    if known is None:
        raise ValueError(f"{path} has no Zarr array {name!r}, or its metadata are damaged.")
    arrays = list(find_arrays(files, name))
    flat = [one for one in arrays if len(one[2].get("shape") or ()) == 2]
    if known[1]:
        return arrays[0]
    if len(flat) != 1:
        names = ", ".join(sorted(one[0] for one in flat)[:9])
        raise ValueError(
            f"{path} has {len(flat)} arrays of two dimensions ({names}), not one; name the array "
            f"as '{path}::array'."
        )
    return flat[0]
