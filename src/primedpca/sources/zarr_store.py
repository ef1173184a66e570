"""Zarr arrays of both formats, 3 and 2, read in strips along their chunks."""

from __future__ import annotations

import os
from itertools import product
from typing import Any

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.files import (
    FileSource,
    Stamp,
    check_matrix,
    check_plausible,
    need,
    reading,
    stamp_of,
)
from primedpca.sources.strips import strips

__all__ = ["ZarrSource", "zarr_source"]

METADATA = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}


class ZarrSource(FileSource):
    """An array of two dimensions.

    Checksum codecs (``crc32c``) are compared by Zarr at every reading.  Chunks that are absent
    read as the fill value, which is how Zarr stores chunks of nothing else.

    Parameters
    ----------
    array : zarr.Array
    strict : bool
        Refuse an array with chunks that are absent.

    Attributes
    ----------
    missing_chunks : int
        How many chunks (shards, where it has some) are absent.
    """

    read_rate = 5e8

    def __init__(self, array: Any, *, strict: bool = False) -> None:
        self._array = array
        store, inside = array.store, str(array.path)
        root = getattr(store, "root", None)
        self._folder = None if root is None else os.path.join(os.fspath(root), inside)
        where = root if root is not None else getattr(store, "path", store)
        self.path = f"{where}::{inside}" if inside else str(where)
        with reading(self.path, "its metadata"):
            self.shape = check_matrix(self.path, tuple(array.shape), np.dtype(array.dtype))
            self.dtype = np.dtype(array.dtype)
            self._chunks = tuple(array.shards or array.chunks)
            if min(self._chunks) < 1:
                raise ValueError(f"its chunks are {self._chunks}")
        self._stamps: dict[str, Stamp] = {}
        self._grid = tuple(
            -(-side // chunk) for side, chunk in zip(self.shape, self._chunks, strict=True)
        )
        self.missing_chunks = self._look()
        if strict and self.missing_chunks:
            raise ValueError(
                f"{self.path} lacks {self.missing_chunks} of its chunks, which would be read as "
                f"the fill value {array.fill_value}; `strict`=False allows that."
            )
        self.axis, self.blocks = strips(self.shape, self._chunks, self.dtype.itemsize)

    def _look(self) -> int:
        """Take stock of the chunks: how many are absent."""
        itemsize = self.dtype.itemsize
        if self._folder is None:
            if os.path.isfile(str(getattr(self._array.store, "path", ""))):
                self._zip = str(self._array.store.path)
                self._stamps = {self._zip: stamp_of(self._zip)}
                size = self._stamps[self._zip].size
                check_plausible(self.path, self.shape, itemsize, size)
            with reading(self.path, "the list of its chunks"):
                return int(self._array.nchunks - self._array.nchunks_initialized)
        for folder, _, names in os.walk(self._folder):
            for name in names:
                if name not in METADATA:
                    path = os.path.join(folder, name)
                    self._stamps[os.path.relpath(path, self._folder)] = stamp_of(path)
        stored = sum(stamp.size for stamp in self._stamps.values())
        check_plausible(self.path, self.shape, itemsize, stored)
        wanted = {self._key(place) for place in product(*map(range, self._grid))}
        if strange := self._stamps.keys() - wanted:
            raise ValueError(
                f"{self.path} holds {min(strange)!r}, which is no chunk of an array of shape "
                f"{self.shape} in chunks of {self._chunks}: its metadata are wrong."
            )
        return len(wanted - self._stamps.keys())

    def _key(self, place: tuple[int, ...]) -> str:
        """The path of a chunk inside the array's folder."""
        return os.path.normpath(self._array.metadata.encode_chunk_key(place))

    def _check_chunks(self, i: int) -> None:
        """Refuse chunks that came, went or were written to since the store was opened."""
        if self._folder is None:
            for path, stamp in self._stamps.items():
                stamp.check(stamp_of(path), path, self._place(i))
            return
        step = self._chunks[self.axis]
        start, stop = self.blocks[i]
        along = range(start // step, -(-stop // step))
        across = range(self._grid[1 - self.axis])
        for a, b in product(along, across):
            key = self._key((a, b) if self.axis == 0 else (b, a))
            path = os.path.join(self._folder, key)
            before = self._stamps.get(key)
            if before is not None:
                before.check(stamp_of(path), path, self._place(i))
            elif os.path.exists(path):
                raise OSError(
                    f"{path} has come since the store was opened (seen at {self._place(i)}); "
                    "open it again."
                )

    def read(self, i: int) -> Block:
        """The strip, in its own dtype."""
        where = self._place(i)
        self._check_chunks(i)
        start, stop = self.blocks[i]
        with reading(self.path, where):
            place = (slice(start, stop), slice(None))
            block = np.asarray(self._array[place if self.axis == 0 else place[::-1]])
        block.flags.writeable = False
        return block


def zarr_source(given: Any, part: str | None = None, *, strict: bool = False) -> ZarrSource:
    """An array, by the path of its store and its name, or as a Zarr object.

    Parameters
    ----------
    given : path or zarr.Array
    part : str, optional
        The name of the array; by default the store's root or the only array of two dimensions.
    strict : bool
        Refuse an array with chunks that are absent.
    """
    if not isinstance(given, (str, os.PathLike)):
        return ZarrSource(given, strict=strict)
    zarr, path = need("zarr", "Zarr"), os.fspath(given)
    stamp_of(path)
    with reading(path, "its metadata"):
        try:
            # A store of its own: a path with "::" in it would be taken for a chain of stores.
            store = zarr.storage.LocalStore if os.path.isdir(path) else zarr.storage.ZipStore
            found = zarr.open(store(path, read_only=True), mode="r", path=part)
        except FileNotFoundError as error:
            raise ValueError(
                f"{path} has no Zarr array {part or ''!r}, or its metadata are damaged."
            ) from error
        if hasattr(found, "shape"):
            return ZarrSource(found, strict=strict)
        inside = dict(found.members(max_depth=None))  # of groups in groups, too
        arrays = {name: one for name, one in inside.items() if len(getattr(one, "shape", ())) == 2}
        if len(arrays) != 1:
            raise ValueError(
                f"{path} must have one array of two dimensions, it has {len(arrays)} "
                f"({', '.join(sorted(arrays)[:9])}); name one as '{path}::array'."
            )
        return ZarrSource(*arrays.values(), strict=strict)
