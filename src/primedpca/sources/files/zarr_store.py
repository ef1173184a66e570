"""Zarr arrays of both formats, 3 and 2, in folders and ZIP archives, read along their chunks."""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator
from itertools import product
from posixpath import join
from typing import Any, BinaryIO

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.base import read_only
from primedpca.sources.files import chunked, common
from primedpca.sources.files.common import Stamp, reading, stamp_of
from primedpca.sources.files.zarr_layout import layout_of

METADATA = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
METADATA_BYTES = 2**26


class FolderFiles:
    """A store in a folder: regular files of the store itself.

    Parameters
    ----------
    path : str
        The folder, which may be a symbolic link itself.
    follow_links : bool
        Allow symbolic links inside it.
    """

    def __init__(self, path: str, follow_links: bool = False) -> None:
        self.path, self.follow_links = path, follow_links

    def read(self, name: str) -> bytes | None:
        """A file of metadata, or None where there is none."""
        whole = self.path
        for step in name.split("/"):
            whole = os.path.join(whole, step)
            if not os.path.lexists(whole):
                return None
            self._check(whole)
        with common.open_regular(whole) as file:
            return _limited(file, os.fstat(file.fileno()).st_size, whole)

    def folders(self, name: str) -> Iterator[str]:
        """The folders in a folder."""
        for entry in sorted(os.listdir(os.path.join(self.path, name))):
            path = os.path.join(self.path, name, entry)
            self._check(path)
            if os.path.isdir(path):
                yield join(name, entry)

    def chunks(self, name: str) -> dict[str, Stamp]:
        """Every file in a folder but metadata, by its path from there."""
        found: dict[str, Stamp] = {}
        top = os.path.join(self.path, name)
        for folder, within, names in os.walk(top, followlinks=self.follow_links):
            others = {*within, *METADATA}
            for one in (*within, *names):
                path = os.path.join(folder, one)
                self._check(path)
                if one not in others:
                    found[os.path.relpath(path, top)] = stamp_of(path)
        return found

    def open(self, name: str) -> BinaryIO:
        """A chunk, by its path in the store."""
        return common.open_regular(os.path.join(self.path, name))

    def check_same(self, name: str, before: Stamp | None, where: str) -> None:
        """Refuse a chunk that has changed, or was added."""
        path = os.path.join(self.path, name)
        if before is not None:
            before.check(path, where)
        elif os.path.lexists(path):
            raise OSError(
                f"{path} was added since the store was opened (seen at {where}); open the store "
                "again."
            )

    def _check(self, path: str) -> None:
        if os.path.islink(path) and not self.follow_links:
            raise ValueError(
                f"{path} is a symbolic link to {os.readlink(path)!r}. Pass `follow_links`=True if "
                "you trust the store."
            )
        if not os.path.isdir(path) and not os.path.isfile(path):
            common.check_regular(path)


class ZipFiles:
    """A store in a ZIP archive, whose members are not compressed by ZIP once more."""

    def __init__(self, path: str) -> None:
        self.path, self._stamp = path, stamp_of(path)
        with common.opened_archive(path) as archive:
            members = archive.infolist()
        for one in members:
            if one.compress_type != zipfile.ZIP_STORED or one.file_size != one.compress_size:
                raise ValueError(
                    f"{path} compresses its member {one.filename!r}, which a Zarr archive does "
                    "not need; pack it again without compression (zip -0)."
                )
        self._members = {one.filename: one for one in members if not one.is_dir()}

    def read(self, name: str) -> bytes | None:
        """A file of metadata, or None where there is none."""
        if name not in self._members:
            return None
        with self.open(name) as file:
            return _limited(file, self._members[name].file_size, f"{self.path}::{name}")

    def folders(self, name: str) -> Iterator[str]:
        """The folders in a folder."""
        before = join(name, "")
        inside = (key.removeprefix(before) for key in self._members if key.startswith(before))
        yield from sorted({before + key.split("/")[0] for key in inside if "/" in key})

    def chunks(self, name: str) -> dict[str, Stamp]:
        """Every member in a folder but metadata, by its path from there."""
        before = join(name, "")
        return {
            os.path.normpath(key.removeprefix(before)): Stamp(one.file_size, 0, 0, 0, 0)
            for key, one in self._members.items()
            if key.startswith(before) and key.rsplit("/", 1)[-1] not in METADATA
        }

    def open(self, name: str) -> BinaryIO:
        """A member, by its path in the store."""
        with common.open_regular(self.path) as file:
            file.seek(common.member_begin(file, self._members[name].header_offset))
            return io.BytesIO(file.read(self._members[name].file_size))

    def check_same(self, name: str, before: Stamp | None, where: str) -> None:
        """Refuse an archive that has changed."""
        self._stamp.check(self.path, where)


def _limited(file: BinaryIO, size: int, path: str) -> bytes:
    if size > METADATA_BYTES:
        raise ValueError(f"{path} has {size} bytes, too many for the metadata of a Zarr store.")
    return file.read(size)


def _metadata(files: FolderFiles | ZipFiles, name: str) -> tuple[int, bool, Any] | None:
    """Format, whether it is an array, and metadata of a node; None if it is not a node."""
    for version, entry in ((3, "zarr.json"), (2, ".zarray"), (2, ".zgroup")):
        text = files.read(join(name, entry))
        if text is None:
            continue
        with reading(files.path, f"its metadata in {entry}"):
            found = json.loads(text)
            if not isinstance(found, dict):
                raise ValueError("not a JSON object")
        if entry == ".zarray":
            # Zarr will read the attributes, too: a pipe must be refused before.
            files.read(join(name, ".zattrs"))
        return version, entry == ".zarray" or found.get("node_type") == "array", found
    return None


def _array(files: FolderFiles | ZipFiles, path: str, part: str | None) -> tuple[str, int, Any]:
    """Name, format and metadata of the array to read."""
    name = "/".join(step for step in (part or "").split("/") if step)
    known = None if ".." in name.split("/") else _metadata(files, name)
    if known is None:
        raise ValueError(f"{path} has no Zarr array {name!r}, or its metadata are damaged.")
    if known[1]:
        return name, known[0], known[2]
    arrays, waiting = {}, [name]
    while waiting:
        here = waiting.pop()
        known = _metadata(files, here)
        if known is not None and not known[1]:
            waiting += files.folders(here)
        elif known is not None and len(known[2].get("shape") or ()) == 2:
            arrays[here] = (here, known[0], known[2])
    found: tuple[str, int, Any] = common.only_one(path, arrays)
    return found


class ZarrSource(chunked.ChunkedSource):
    """An array of two dimensions.

    Zarr compares checksums (``crc32c``) in every read.  Absent chunks are read as the fill value,
    as Zarr leaves out chunks that hold nothing else.  The decoded size of a stored chunk is
    compared with its shape before it is first read.

    Parameters
    ----------
    array : zarr.Array
    strict : bool, default=False
        Refuse an array with chunks (shards, if it has some) that are absent.
    follow_links : bool, default=False
        Allow symbolic links inside the store.
    """

    def __init__(self, array: Any, *, strict: bool = False, follow_links: bool = False) -> None:
        self._array, self._inside = array, str(array.path)
        root, file = (getattr(array.store, name, None) for name in ("root", "path"))
        where = str(next(place for place in (root, file, array.store) if place is not None))
        self.path = f"{where}::{self._inside}" if self._inside else where
        self._files: FolderFiles | ZipFiles | None = None
        with reading(self.path, "its metadata"):
            if root is not None:
                self._files = FolderFiles(os.fspath(root), follow_links)
            elif os.path.isfile(where):
                self._files = ZipFiles(where)
            self._layout = layout_of(self.path, array.metadata.to_dict(), known_only=False)
        self.dtype, (n, d), (height, width) = array.dtype, self._layout.shape, self._layout.chunks
        self.shape, self._chunks = (n, d), (height, width)
        self._grid = (-(-n // height), -(-d // width))
        self._sound: set[str] = set()
        self._cut(self.path, self._chunks, self._look(), strict, array.fill_value)

    def _look(self) -> int:
        """List the chunks, and return the number of absent ones."""
        itemsize, absent, count = self.dtype.itemsize, None, math.prod(self._grid)
        with reading(self.path, "the list of its chunks"):
            if self._files is None:  # in memory, or in a store of the user's own
                absent = int(self._array.nchunks - self._array.nchunks_initialized)
            else:
                self._stamps = self._files.chunks(self._inside)
                count = len(self._stamps)
                stored = sum(stamp.size for stamp in self._stamps.values())
                common.check_plausible(self.path, self.shape, itemsize, stored)
                self._check_keys()
        missing = chunked.count_missing(self.path, self.shape, self._chunks, itemsize, count)
        return missing if absent is None else absent

    def _check_keys(self) -> None:
        """Refuse a file that is not a chunk of the array."""
        for key in self._stamps:
            place = tuple(map(int, re.findall(r"\d{1,19}", key)))
            inside = len(place) == 2 and place[0] < self._grid[0] and place[1] < self._grid[1]
            if not inside or self._key(place) != key:
                raise ValueError(
                    f"{self.path} holds {key!r}, which is not a chunk of an array of shape "
                    f"{self.shape} in chunks of {self._chunks}: its metadata are wrong."
                )

    def _key(self, place: tuple[int, ...]) -> str:
        """Path of a chunk inside the folder of the array."""
        key: str = self._array.metadata.encode_chunk_key(place)
        return os.path.normpath(key)

    def _is_stored(self, place: tuple[int, ...], where: str) -> bool:
        """Whether a chunk is stored; one that has changed, or would decode to too much, is refused.

        Only for stores in files.
        """
        assert self._files is not None
        key = self._key(place)
        name, before = join(self._inside, key), self._stamps.get(key)
        self._files.check_same(name, before, where)
        if before is not None and key not in self._sound:
            path = os.path.join(self._files.path, name)
            with reading(path, "its size"), self._files.open(name) as file:
                self._layout.check(file, before.size)
            self._sound.add(key)
        return before is not None

    def read(self, i: int) -> Block:
        """The strip, in its own dtype."""
        where, sides = self._place(i), chunked.region(self, i)
        ranges = (range(a // s, -(-b // s)) for (a, b), s in zip(sides, self._chunks, strict=True))
        places = list(product(*ranges))
        stored = places
        if self._files is not None:
            stored = [place for place in places if self._is_stored(place, where)]
        with reading(self.path, where):
            if 2 * len(stored) < len(places):
                return read_only(self._filled(sides, stored))
            return read_only(np.asarray(self._array[tuple(slice(*side) for side in sides)]))

    def _filled(self, sides: Any, stored: list[tuple[int, ...]]) -> np.ndarray:
        """Read a strip of mostly absent chunks, each of which would cost Zarr 0.2 ms."""
        fill = self._array.fill_value
        block = np.full([b - a for a, b in sides], 0 if fill is None else fill, self.dtype)
        for place in stored:
            ends = zip(place, self._chunks, self.shape, strict=True)
            area = [(at * step, min((at + 1) * step, side)) for at, step, side in ends]
            inside = (slice(a - o, b - o) for (a, b), (o, _) in zip(area, sides, strict=True))
            block[tuple(inside)] = self._array[tuple(slice(*side) for side in area)]
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
    zarr, path = common.need("zarr", "Zarr"), os.fspath(given)
    with reading(path, "its metadata"):
        folder = os.path.isdir(path)
        files = FolderFiles(path, follow_links) if folder else ZipFiles(path)
        name, version, found = _array(files, path, part)
        layout_of(f"{path}::{name}" if name else path, found)  # before Zarr makes any codec
        # By a store object: Zarr would take a path with "::" for a chain of stores.
        store = (zarr.storage.LocalStore if folder else zarr.storage.ZipStore)(path, read_only=True)
        array = zarr.open_array(store, mode="r", path=name, zarr_format=version)
        return ZarrSource(array, strict=strict, follow_links=follow_links)
