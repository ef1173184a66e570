"""Arrays that are stored in compressed chunks: strips of whole chunks, and checks of their sizes.

A few megabytes can decompress to terabytes.  The shape of a chunk determines its decompressed
size, so each check here raises ``ValueError`` unless the bytes decompress to exactly that.
"""

import base64
import bz2
import lzma
import math
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from primedpca.sources import base
from primedpca.sources.base import BlockSource, cut_evenly, tall_first
from primedpca.sources.files.common import PLAUSIBLE_BYTES, FileSource

ABSENT_CHUNKS = 2**15
ABSENT_RATIO = 64  # absent chunks to a stored one
LZMA_MEMORY = 2**28
ZSTD_BLOCK = 2**17
Pair = tuple[int, int]
#: Attributes of the CF conventions (netCDF, xarray), and the value that changes no number.
CONVENTIONS = {
    "scale_factor": 1.0,
    "add_offset": 0.0,
    "_FillValue": math.nan,
    "missing_value": math.nan,
}


class ChunkedSource(FileSource):
    """A dense array in chunks, read in strips so that every chunk is read once a pass.

    Attributes
    ----------
    part : str
        Name of the array inside the file or store.
    missing_chunks : int
        Number of chunks that are not stored, and read as the fill value.
    """

    part: str
    read_rate: float | None = 5e8

    def reading_options(self) -> str | None:
        """The options and the name of the array, in words."""
        return ", ".join(filter(None, (f"part={self.part!r}", super().reading_options())))

    def _cut(self, label: str, chunks: Pair, missing: int, strict: bool, fill: Any) -> None:
        """Cut into blocks; ``strict`` refuses missing chunks."""
        if strict and missing:
            raise ValueError(f"{label} lacks {missing} chunks; `strict`=False reads {fill} there.")
        self.missing_chunks = missing
        self.axis, self.blocks = strips(self.shape, chunks, self.dtype.itemsize)
        self.cache_bytes = outside(self.shape, chunks, self.axis) * self.dtype.itemsize


def check_conventions(label: str, attributes: Mapping[str, Any], dtype: Any) -> None:
    """Refuse an array whose attributes give its numbers another meaning, by the CF conventions."""
    kind = np.dtype(dtype).kind
    if str(attributes.get("_Unsigned", "")).lower() == {"i": "true", "u": "false"}.get(kind):
        raise _replaced(label, "_Unsigned", attributes)
    for name, plain in CONVENTIONS.items():
        if name not in attributes:
            continue
        try:
            values = np.asarray(_decoded(attributes[name], dtype), np.float64)
            same = (values == plain) | (np.isnan(values) & math.isnan(plain))
        except (TypeError, ValueError):
            same = np.False_
        if not same.all():
            raise _replaced(label, name, attributes)


def _replaced(label: str, name: str, attributes: Mapping[str, Any]) -> ValueError:
    shown = np.asarray(attributes[name]).tolist()
    return ValueError(
        f"{label} has the attribute {name}={shown!r}, by which readers of the "
        "CF conventions replace its numbers. Open it with xarray.open_dataset (Zarr: "
        "xarray.open_zarr) and pass the DataArray."
    )


def _decoded(value: Any, dtype: Any) -> Any:
    """The value of an attribute; xarray writes those of floats to Zarr as eight bytes in base64."""
    if isinstance(value, str) and np.dtype(dtype).kind == "f":
        return np.frombuffer(base64.b64decode(value, validate=True), "<f8")
    return value


def region(source: BlockSource, i: int) -> tuple[Pair, Pair]:
    """Rows and columns of block ``i``."""
    along, across = source.blocks[i], (0, source.shape[1 - source.axis])
    return (along, across) if source.axis == 0 else (across, along)


def strips(shape: Pair, chunks: Pair, itemsize: int) -> tuple[Literal[0, 1], tuple[Pair, ...]]:
    """Axis to cut along, and blocks along it that hold whole chunks, so that each is read once.

    The axis is the one whose strips of whole chunks take less memory.  A block holds as many
    strips as fit into ``READ_BYTES``.

    Examples
    --------
    >>> from primedpca.sources.files.chunked import strips
    >>> strips((1000, 30), (1000, 10), 8)  # a chunk holds whole columns
    (1, ((0, 30),))
    """
    width = [min(chunks[axis], shape[axis]) * shape[1 - axis] for axis in (0, 1)]
    tie = width[0] == width[1]
    axis: Literal[0, 1] = tall_first(shape) if tie else 0 if width[0] < width[1] else 1
    length, chunk = shape[axis], min(chunks[axis], shape[axis])
    together = max(1, base.READ_BYTES // (width[axis] * itemsize))
    cuts = cut_evenly(-(-length // chunk), together)
    return axis, tuple((a * chunk, min(b * chunk, length)) for a, b in cuts)


def outside(shape: Pair, chunks: Pair, axis: int) -> int:
    """Count the numbers in a strip of chunks that lie outside the array but are decoded.

    Examples
    --------
    >>> from primedpca.sources.files.chunked import outside
    >>> outside((20, 4), (20, 100), 0)
    1920
    """
    across = -(-shape[1 - axis] // chunks[1 - axis]) * chunks[1 - axis]
    return chunks[axis] * across - min(chunks[axis], shape[axis]) * shape[1 - axis]


def count_missing(
    label: str, shape: tuple[int, ...], chunks: tuple[int, ...], itemsize: int, stored: int
) -> int:
    """Count the absent chunks, and refuse chunks much larger or more numerous than plausible.

    Every chunk is decoded whole, however little of it lies inside the array, and every absent
    chunk costs time, although it takes no room in the file.

    Parameters
    ----------
    label : str
        Names the array in errors.
    shape, chunks : tuple of int
    itemsize : int
        Bytes of a number.
    stored : int
        Number of chunks that are stored.
    """
    needed, chunk = math.prod(shape) * itemsize, math.prod(chunks) * itemsize
    if chunk > max(PLAUSIBLE_BYTES, 2 * needed):
        raise ValueError(f"{label} has chunks of shape {chunks}, too large for {needed} bytes.")
    total = math.prod(-(-side // step) for side, step in zip(shape, chunks, strict=True))
    missing = total - stored
    if missing > max(ABSENT_CHUNKS, ABSENT_RATIO * stored):
        raise ValueError(f"{label} lacks {missing} of its {total} chunks. Write it in larger ones.")
    return missing


def check_stored(size: int, wanted: int) -> None:
    """Refuse more bytes than any compressor makes of ``wanted`` bytes."""
    if size > wanted + wanted // 8 + 4096:
        raise ValueError(f"{size} bytes are stored, but its shape needs {wanted}")


def check_declared(size: int, wanted: int) -> None:
    """Refuse a header with another size than the shape needs."""
    if size != wanted:
        raise ValueError(f"it declares {size} bytes, but its shape needs {wanted}")


def _stream(start: Callable[[], Any], several: bool) -> Callable[[bytes, int], None]:
    """Make a check by decompression, a piece at a time and no further than ``wanted``."""

    def check(data: bytes, wanted: int) -> None:
        total = 0
        while data:
            held = start()
            while not held.eof:
                piece = held.decompress(data, 2**20)
                total += len(piece)
                if total > wanted:
                    raise ValueError(f"it decompresses to more than the {wanted} bytes it needs")
                data = getattr(held, "unconsumed_tail", b"")
                if not piece and not data:
                    break
            if not held.eof:
                raise ValueError(f"it ends after {total} of {wanted} bytes")
            data = held.unused_data.lstrip(b"\0") if several else b""
        if total != wanted:
            raise ValueError(f"it decompresses to {total} bytes, but its shape needs {wanted}")

    return check


def _blosc(head: bytes, size: int, wanted: int) -> None:
    check_declared(int.from_bytes(head[4:8], "little"), wanted)
    packed = int.from_bytes(head[12:16], "little")
    if packed != size:
        raise ValueError(f"it declares {packed} stored bytes, but has {size}")


def _zstd(data: bytes, size: int, wanted: int) -> None:
    """Check the size in the frame's header, or else the sum of its blocks (RFC 8878)."""
    if data[:4] != b"\x28\xb5\x2f\xfd" or size < 6:
        raise ValueError("it does not begin as Zstandard does")
    flags = data[4]
    place = 5 + (not flags & 0x20) + (0, 1, 2, 4)[flags & 3]
    width = (1 if flags & 0x20 else 0, 2, 4, 8)[flags >> 6]
    if width:
        said = int.from_bytes(data[place : place + width], "little")
        check_declared(said + (256 if width == 2 else 0), wanted)
        return
    most, last = 0, False
    while not last:
        if place + 3 > size:
            raise ValueError("its last block is missing")
        block = int.from_bytes(data[place : place + 3], "little")
        last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
        place += 3 + (1 if kind == 1 else length)
        most += length if kind < 2 else ZSTD_BLOCK
    if place + (4 if flags & 4 else 0) != size or most > max(2**26, 16 * wanted):
        raise ValueError(f"its blocks do not fit the {wanted} bytes that its shape needs")


#: Checks by the first bytes: (first bytes, stored size, wanted size).
HEADERS: dict[str, Callable[[bytes, int, int], None]] = {
    "blosc": _blosc,
    "lz4": lambda head, _, wanted: check_declared(int.from_bytes(head[:4], "little"), wanted),
    "zstd": _zstd,
}
#: Checks by decompression: (bytes, wanted size).
STREAMS: dict[str, Callable[[bytes, int], None]] = {
    "zlib": _stream(zlib.decompressobj, several=False),
    "gzip": _stream(partial(zlib.decompressobj, 31), several=True),
    "bz2": _stream(bz2.BZ2Decompressor, several=True),
    "lzma": _stream(partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, LZMA_MEMORY), several=True),
}
