"""Zarr arrays of both formats, 3 and 2, in folders and ZIP archives, read along their chunks."""

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from itertools import product
from posixpath import join
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.base import read_only
from primedpca.sources.files import chunked, common
from primedpca.sources.files.chunked import HEADERS, STREAMS
from primedpca.sources.files.common import Stamp, reading, stamp_of

METADATA = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
METADATA_BYTES = 2**26
#: Codecs that decode to Python objects; pickle among them runs code from the file.
OBJECTS = {"pickle", "json2", "json", "msgpack2", "msgpack", "categorize", "base64"}
OBJECTS |= {"vlen-utf8", "vlen-bytes", "vlen-array"}
#: Codecs from array to array or to bytes, which do not change the number of values.
FILTERS = {"bytes", "endian", "transpose", "delta", "fixedscaleoffset", "quantize", "bitround"}
FILTERS |= {"shuffle", "astype"}
#: Checksums of four bytes, and their default position.
CHECKSUMS = {"crc32c": "end", "fletcher32": "end", "crc32": "start", "adler32": "start"}
ABSENT = 2**64 - 1  # in the index of a shard


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
            raise OSError(f"{path} was added after the store was opened ({where}); open it again.")

    def _check(self, path: str) -> None:
        if os.path.islink(path) and not self.follow_links:
            raise ValueError(f"{path} is a symbolic link to {os.readlink(path)!r}. {common.TRUST}")
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
                raise ValueError(f"{path} compresses its member {one.filename!r}; use zip -0.")
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


def _metadata(files: FolderFiles | ZipFiles, name: str) -> dict[str, Any]:
    """Metadata of an array or a group; empty if it is neither."""
    for entry, kind in (("zarr.json", "group"), (".zarray", "array"), (".zgroup", "group")):
        text = files.read(join(name, entry))
        if text is None:
            continue
        with reading(files.path, f"its metadata in {entry}"):
            found = json.loads(text)
            if not isinstance(found, dict):
                raise ValueError("not a JSON object")
        if kind == "array":
            # Zarr will read the attributes, too: a pipe must be refused before.
            files.read(join(name, ".zattrs"))
        # By the name of the file, as Zarr will: what it says itself could be of another format.
        version = 3 if entry == "zarr.json" else 2
        return {"node_type": kind} | found | {"zarr_format": version}
    return {}


def _attributes(files: FolderFiles | ZipFiles, name: str, found: Any) -> Mapping[str, Any]:
    """Attributes of a group with this metadata."""
    held = found.get("attributes")
    if found["zarr_format"] == 2:
        with reading(files.path, "its metadata in .zattrs"):
            held = json.loads(files.read(join(name, ".zattrs")) or b"{}")
    return held if isinstance(held, dict) else {}


def _arrays(
    files: FolderFiles | ZipFiles, top: str
) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
    """Metadata of arrays below a name, and attributes of groups.

    A sparse matrix, which AnnData stores as a group, counts as an array of two dimensions.
    """
    arrays, groups, waiting = {}, dict[str, Mapping[str, Any]](), [top]
    while waiting:
        here = waiting.pop()
        found = _metadata(files, here)
        if found.get("node_type") == "group":
            groups[here] = _attributes(files, here, found)
            if common.kind_of_group(groups[here]) == common.SPARSE_MATRIX:
                arrays[here] = found
            else:
                waiting += files.folders(here)
        elif found and (here == top or len(found.get("shape") or ()) == 2):
            arrays[here] = found
    return arrays, groups


def _array(files: FolderFiles | ZipFiles, path: str, part: str | None) -> tuple[str, Any]:
    """Name and metadata of the array to read; of an AnnData it is ``X``."""
    name = "/".join(step for step in (part or "").split("/") if step)
    arrays, groups = ({}, {}) if ".." in name.split("/") else _arrays(files, name)
    known = groups.get(name, {})
    kind = common.kind_of_group(known)
    if kind is not None and kind != common.SPARSE_MATRIX:
        names = ", ".join(sorted(_arrays(files, "")[0])[:9]) or "none"
        raise common.UnfitError(f"{name!r} is {kind}, not a matrix; its matrices: {names}.")
    if name in groups and name and not arrays:
        raise common.UnfitError(f"{name!r} is a group without arrays of two dimensions.")
    if name and not arrays:
        raise ValueError(f"{path} has no Zarr array {name!r}, or its metadata are damaged.")
    whole = str(known.get("encoding-type", ""))
    main = common.main_matrix(path, {*arrays}, whole, join(name, "X"))
    if main in groups:
        raise common.UnfitError(
            f"{main!r} is a sparse matrix, which is not read from Zarr. Read it with "
            "anndata.read_zarr and pass it, or write it as .h5ad."
        )
    return main, arrays[main]


class Layout(NamedTuple):
    """Shapes of an array and of its chunks, and the facts that bound the decoded size of a chunk.

    Attributes
    ----------
    shape : tuple of int
    chunks : tuple of int
        Shape of a chunk, or of a shard if the array has shards.
    inner : tuple of int
        Shape of the chunks in a shard, or else of a chunk.
    encoded : int
        Bytes of a value before compression.
    packing : tuple of dict or None
        Compressors and checksums in the order of decoding; None if one of them is unknown.
    index_at_end : bool or None
        Whether the index of a shard is at its end, not at its beginning; None without shards.
    index_checksum : bool, default=True
        Whether the index has a checksum.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    inner: tuple[int, ...]
    encoded: int
    packing: tuple[dict[str, Any], ...] | None
    index_at_end: bool | None = None
    index_checksum: bool = True

    def check(self, file: BinaryIO, size: int) -> None:
        """Refuse a stored chunk, or shard, that does not decode to what its shape needs."""
        if self.packing is None:
            return
        if self.index_at_end is None:
            self._check_chunk(file, 0, size)
            return
        pairs = self.places(file, size)
        for start, length in pairs[(pairs != ABSENT).any(axis=-1)].tolist():
            if start + length > size:
                raise ValueError(f"its index points to byte {start + length} of {size}")
            self._check_chunk(file, start, length)

    def places(self, file: BinaryIO, size: int) -> np.ndarray:
        """Place and length of each chunk in a shard; both are ``ABSENT`` for one that it lacks."""
        grid = tuple(a // b for a, b in zip(self.chunks, self.inner, strict=True))
        count = math.prod(grid)
        length = 16 * count + 4 * self.index_checksum
        if length > size:
            raise ValueError(f"the index of its {count} chunks needs {length} of {size} bytes")
        file.seek(size - length if self.index_at_end else 0)
        return np.frombuffer(file.read(16 * count), "<u8").reshape(*grid, 2)

    def _check_chunk(self, file: BinaryIO, start: int, size: int) -> None:
        wanted = math.prod(self.inner) * self.encoded
        chunked.check_stored(size, wanted)
        packing = self.packing or ()
        left = 4 * sum(codec["id"] in CHECKSUMS for codec in packing)
        for codec in packing:
            name = codec["id"]
            if name in CHECKSUMS:
                size, left = size - 4, left - 4
                start += 4 if codec.get("location", CHECKSUMS[name]) == "start" else 0
                continue
            file.seek(start)
            if name in HEADERS:
                HEADERS[name](file.read(size if name == "zstd" else 16), size, wanted + left)
            else:
                STREAMS[name](file.read(size), wanted + left)
            return
        if size != wanted:
            raise ValueError(f"{size} bytes are stored, but its shape needs {wanted}")


def layout_of(label: str, found: Any, *, known_only: bool = True) -> Layout:
    """Return the layout that metadata describe, as decoded from their JSON.

    Parameters
    ----------
    label : str
        Names the array in errors.
    found : dict
        ``zarr.json`` or ``.zarray``.
    known_only : bool
        Refuse codecs whose decoded size cannot be checked; if False, they are not checked.
    """
    with reading(label, "its metadata"):
        if found["zarr_format"] == 3:
            kind, grid = found["data_type"], found["chunk_grid"]
            if grid["name"] != "regular":
                raise ValueError(f"its chunk grid {grid['name']!r} is not regular")
            chunks, codecs = grid["configuration"]["chunk_shape"], found["codecs"]
        else:
            kind, chunks = found["dtype"], found["chunks"]
            codecs = [*(found["filters"] or []), found["compressor"] or {}]
        shape, chunks = _lengths(found["shape"], 0), _lengths(chunks, 1)
        dtype = _dtype(kind)
        if len(shape) != len(chunks):
            raise ValueError(f"its shape is {shape}, but its chunks have shape {chunks}")
        common.check_matrix(label, shape, dtype)
        codecs = [_codec(one) for one in codecs]
        names = [codec["id"] for codec in codecs]
        if "sharding_indexed" not in names:
            return Layout(shape, chunks, chunks, *_packing(dtype, codecs, known_only))
        if names != ["sharding_indexed"]:
            raise ValueError(f"codecs beside its shards are not supported: {', '.join(names)}")
        (shard,) = codecs
        inner = _lengths(shard["chunk_shape"], 1)
        if len(inner) != len(chunks) or any(a % b for a, b in zip(chunks, inner, strict=True)):
            raise ValueError(f"it has shards of {chunks}, which chunks of {inner} do not fill")
        index = [_codec(one)["id"] for one in shard["index_codecs"]]
        if index not in (["bytes"], ["bytes", "crc32c"]):
            raise ValueError(f"it encodes the index of its shards by {index}: not supported")
        packed = _packing(dtype, [_codec(one) for one in shard["codecs"]], known_only)
        at_end = shard.get("index_location", "end") == "end"
        return Layout(shape, chunks, inner, *packed, at_end, "crc32c" in index)


def _packing(dtype: np.dtype, codecs: list[Any], known_only: bool) -> tuple[int, Any]:
    """Bytes of a value before it is packed, and its compressors and checksums, outermost first."""
    encoded, packing = dtype.itemsize, []
    for codec in codecs:
        name = codec["id"]
        if name in OBJECTS:
            raise ValueError(f"its codec {name!r} decodes Python objects, which could run code")
        if name in FILTERS:
            for key in {"dtype", "astype", "encode_dtype", "decode_dtype"} & codec.keys():
                _dtype(codec[key])
            changed = codec.get("astype") or codec.get("encode_dtype")
            encoded = encoded if changed is None else np.dtype(changed).itemsize
            continue
        if name == "lzma" and (codec.get("format", 1) != 1 or codec.get("filters")):
            codec = codec | {"id": "lzma with filters"}
        packing.append(codec)
    names = [codec["id"] for codec in packing]
    unknown = [name for name in names if name not in {*CHECKSUMS, *HEADERS, *STREAMS}]
    if not unknown and sum(name not in CHECKSUMS for name in names) > 1:
        unknown = [" and ".join(names)]
    if unknown and known_only:
        raise ValueError(
            f"it is compressed by {unknown[0]!r}, whose decoded size cannot be bounded. If you "
            "trust it, open it with zarr.open_array and pass the array"
        )
    return encoded, None if unknown else tuple(reversed(packing))


def _codec(given: Any) -> dict[str, Any]:
    """A codec of either version as its name and options: ``{"id": "zstd", "level": 3}``."""
    if isinstance(given, str):
        given = {"name": given}
    given = {"id": "bytes"} if given == {} else given
    options = given if "id" in given else given.get("configuration") or {}
    name = given.get("id", given.get("name"))
    if not isinstance(name, str):
        raise ValueError(f"a codec named {name!r}")
    return {**options, "id": name.removeprefix("numcodecs.")}


def _lengths(given: Any, least: int) -> tuple[int, ...]:
    found = tuple(given)
    if not all(type(side) is int and least <= side < 2**63 for side in found):
        raise ValueError(f"lengths of {given!r}")
    return found


def _dtype(given: Any) -> np.dtype:
    """A NumPy type of numbers; no other is ever passed to NumPy or Zarr."""
    try:
        found = np.dtype(given) if isinstance(given, str) and len(given) < 20 else None
    except (TypeError, ValueError, SyntaxError):
        found = None
    if found is None or found.kind not in "biufc":
        raise ValueError(f"it holds values of type {given!r}; only numbers are supported")
    return found


def _check_fill(label: str, array: Any) -> None:
    """Refuse a fill value that stands for missing values.

    In format 2, xarray stores ``_FillValue`` as the fill value of Zarr, and none if there is none.
    """
    fill = array.fill_value
    if array.metadata.zarr_format != 2 or "_ARRAY_DIMENSIONS" not in array.attrs:
        return
    if fill is not None and not np.isnan(fill):
        raise ValueError(
            f"{label} has fill_value={np.asarray(fill).tolist()!r}, which xarray writes for "
            "missing values in Zarr format 2. Open it with xarray.open_zarr and pass the "
            "DataArray; `mask_and_scale=False` there keeps these numbers."
        )


def _place_of(key: str) -> tuple[int, ...]:
    """Place of a chunk in the grid, from its path."""
    return tuple(map(int, re.findall(r"\d{1,19}", key)))


class ZarrSource(chunked.ChunkedSource):
    """An array of two dimensions.

    Zarr compares checksums (``crc32c``) in every read.  Absent chunks are read as the fill value,
    as Zarr leaves out chunks that hold nothing else.  The decoded size of a stored chunk is
    compared with its shape before it is first read.

    Parameters
    ----------
    array : zarr.Array
    strict : bool, default=False
        Refuse an array with chunks that are absent, in the shards of a store in files, too.
    follow_links : bool, default=False
        Allow symbolic links inside the store.
    """

    def __init__(self, array: Any, *, strict: bool = False, follow_links: bool = False) -> None:
        self._array, self._inside, self.part = array, str(array.path), str(array.path)
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
            chunked.check_conventions(self.path, array.attrs, array.dtype)
            _check_fill(self.path, array)
        self.dtype, (n, d), (height, width) = array.dtype, self._layout.shape, self._layout.chunks
        self.shape, self._chunks = (n, d), (height, width)
        self._grid = (-(-n // height), -(-d // width))
        self._sound: set[str] = set()
        missing = self._look()
        if strict and not missing:
            missing = self._lacking_in_shards()
        self._cut(self.path, self._chunks, missing, strict, array.fill_value)

    def _look(self) -> int:
        """List the chunks, and return the number of absent ones."""
        itemsize, count = self.dtype.itemsize, math.prod(self._grid)
        with reading(self.path, "the list of its chunks"):
            if self._files is None:  # in memory, or in a store of the user's own
                chunked.count_missing(self.path, self.shape, self._chunks, itemsize, count)
                return int(self._array.nchunks - self._array.nchunks_initialized)
            self._stamps = self._files.chunks(self._inside)
            stored = sum(stamp.size for stamp in self._stamps.values())
            common.check_plausible(self.path, self.shape, itemsize, stored)
            self._check_keys()
        count = len(self._stamps)
        return chunked.count_missing(self.path, self.shape, self._chunks, itemsize, count)

    def _check_keys(self) -> None:
        """Refuse a file that is not a chunk of the array."""
        for key in self._stamps:
            place = _place_of(key)
            inside = len(place) == 2 and place[0] < self._grid[0] and place[1] < self._grid[1]
            if not inside or self._key(place) != key:
                array = f"an array of shape {self.shape} in chunks of {self._chunks}"
                raise ValueError(f"{key!r} is not a chunk of {array}")

    def _lacking_in_shards(self) -> int:
        """Count the chunks of the array that its shards lack, as after a write that broke off."""
        if self._files is None or self._layout.index_at_end is None:
            return 0
        lacking, steps = 0, self._layout.inner
        for key, stamp in self._stamps.items():
            with (
                reading(self.path, "its shards"),
                self._files.open(join(self._inside, key)) as file,
            ):
                absent = (self._layout.places(file, stamp.size) == ABSENT).all(axis=-1)
            starts = (at * side for at, side in zip(_place_of(key), self._chunks, strict=True))
            left = (end - start for start, end in zip(starts, self.shape, strict=True))
            rows, columns = (-(-side // step) for side, step in zip(left, steps, strict=True))
            lacking += int(absent[:rows, :columns].sum())  # those beyond the array are not needed
        return lacking

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
    given: common.Path, part: str | None = None, *, strict: bool = False, follow_links: bool = False
) -> ZarrSource:
    """Source of an array, by the path of its store and its name.

    Parameters
    ----------
    given : path
    part : str, optional
        Name of the array; by default the store's root or the only array of two dimensions.
    strict : bool, default=False
        Refuse an array with chunks that are absent.
    follow_links : bool, default=False
        Allow symbolic links inside the store.  Only for stores you trust.
    """
    zarr, path = common.need("zarr", "Zarr"), os.fspath(given)
    with reading(path, "its metadata"):
        folder = os.path.isdir(path)
        files = FolderFiles(path, follow_links) if folder else ZipFiles(path)
        name, found = _array(files, path, part)
        layout_of(f"{path}::{name}" if name else path, found)  # before Zarr makes any codec
        # By a store object: Zarr would take a path with "::" for a chain of stores.
        store = (zarr.storage.LocalStore if folder else zarr.storage.ZipStore)(path, read_only=True)
        array = zarr.open_array(store, mode="r", path=name, zarr_format=found["zarr_format"])
        return ZarrSource(array, strict=strict, follow_links=follow_links)
