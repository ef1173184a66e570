"""Metadata of Zarr arrays and the sizes of their chunks, checked before Zarr decodes anything."""

from __future__ import annotations

import math
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from primedpca.sources.files.chunked import HEADERS, STREAMS, check_stored
from primedpca.sources.files.common import check_matrix, reading

#: Codecs that decode to Python objects; pickle among them runs code from the file.
OBJECTS = {"pickle", "json2", "json", "msgpack2", "msgpack", "categorize", "base64"}
OBJECTS |= {"vlen-utf8", "vlen-bytes", "vlen-array"}
#: Codecs from array to array or to bytes, which do not change the number of values.
FILTERS = {"bytes", "endian", "transpose", "delta", "fixedscaleoffset", "quantize", "bitround"}
FILTERS |= {"shuffle", "astype"}
#: Checksums of four bytes, and their default position.
CHECKSUMS = {"crc32c": "end", "fletcher32": "end", "crc32": "start", "adler32": "start"}
ABSENT = 2**64 - 1  # in the index of a shard


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
    index_at_end : bool, default=True
        Whether the index of a shard is at its end, not at its beginning.
    index_checksum : bool, default=True
        Whether the index has a checksum.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    inner: tuple[int, ...]
    encoded: int
    packing: tuple[dict[str, Any], ...] | None
    index_at_end: bool = True
    index_checksum: bool = True

    def check(self, file: BinaryIO, size: int) -> None:
        """Refuse a stored chunk, or shard, that does not decode to what its shape needs."""
        if self.packing is None:
            return
        if self.chunks == self.inner:
            self._check_chunk(file, 0, size)
            return
        count = math.prod(a // b for a, b in zip(self.chunks, self.inner, strict=True))
        length = 16 * count + 4 * self.index_checksum
        if length > size:
            raise ValueError(f"the index of its {count} chunks needs {length} of {size} bytes")
        file.seek(size - length if self.index_at_end else 0)
        pairs = np.frombuffer(file.read(16 * count), "<u8").reshape(-1, 2)
        for start, length in pairs[(pairs != ABSENT).any(axis=1)].tolist():
            if start + length > size:
                raise ValueError(f"its index points to byte {start + length} of {size}")
            self._check_chunk(file, start, length)

    def _check_chunk(self, file: BinaryIO, start: int, size: int) -> None:
        wanted = math.prod(self.inner) * self.encoded
        check_stored(size, wanted)
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
        version = found["zarr_format"]
        if version == 3:
            kind, grid = found["data_type"], found["chunk_grid"]
            if grid["name"] != "regular":
                raise ValueError(f"its chunk grid {grid['name']!r} is not regular")
            chunks, codecs = grid["configuration"]["chunk_shape"], found["codecs"]
        elif version == 2:
            kind, chunks = found["dtype"], found["chunks"]
            codecs = [*(found["filters"] or []), found["compressor"] or {}]
        else:
            raise ValueError(f"its `zarr_format` is {version!r}, not 2 or 3")
        shape, chunks = _lengths(found["shape"], 0), _lengths(chunks, 1)
        dtype = _dtype(kind)
        if len(shape) != len(chunks):
            raise ValueError(f"its shape is {shape}, but its chunks have shape {chunks}")
        check_matrix(label, shape, dtype)
        codecs = [_codec(one) for one in codecs]
        names = [codec["id"] for codec in codecs]
        if "sharding_indexed" not in names:
            return Layout(shape, chunks, chunks, *_packing(dtype, codecs, known_only))
        if names != ["sharding_indexed"]:
            raise ValueError(
                f"it has codecs beside its shards ({', '.join(names)}); write it again with codecs "
                "inside the shards only"
            )
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


def _packing(
    dtype: np.dtype, codecs: list[dict[str, Any]], known_only: bool
) -> tuple[int, tuple[dict[str, Any], ...] | None]:
    """Bytes of a value before it is packed, and its compressors and checksums, outermost first."""
    encoded, packing = dtype.itemsize, []
    for codec in codecs:
        name = codec["id"]
        if name in OBJECTS:
            raise ValueError(
                f"its codec {name!r} decodes Python objects and could run code; write it again as "
                "numbers"
            )
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
    if "id" in given:
        options, name = given, given["id"]
    elif "name" in given:
        options, name = given.get("configuration") or {}, given["name"]
    elif not given:
        return {"id": "bytes"}
    else:
        raise ValueError(f"a codec without a name, {given!r}")
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
