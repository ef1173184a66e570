"""Checks of the decompressed size of bytes, made before a library decompresses them.

A few megabytes can decompress to terabytes.  The shape of a chunk determines its decompressed
size, so each function here raises ``ValueError`` unless the bytes decompress to exactly that.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable

__all__ = ["HEADERS", "STREAMS", "check_stored", "inflate"]

LZMA_MEMORY = 2**28
ZSTD_BLOCK = 2**17
Decompressor = Callable[[], "zlib._Decompress | bz2.BZ2Decompressor | lzma.LZMADecompressor"]


def check_stored(size: int, wanted: int) -> None:
    """Refuse more bytes than any compressor makes of ``wanted`` bytes."""
    if size > wanted + wanted // 8 + 4096:
        raise ValueError(f"{size} bytes are stored, but its shape needs {wanted}")


def inflate(data: bytes, most: int) -> bytes:
    """Decompress a zlib stream, up to one byte more than ``most``."""
    return zlib.decompressobj().decompress(data, most + 1)


def _stream(start: Decompressor, several: bool) -> Callable[[bytes, int], None]:
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
                data = b"" if not hasattr(held, "unconsumed_tail") else held.unconsumed_tail
                if not piece and not data:
                    break
            if not held.eof:
                raise ValueError(f"it ends after {total} of {wanted} bytes")
            data = held.unused_data.lstrip(b"\0") if several else b""
        if total != wanted:
            raise ValueError(f"it decompresses to {total} bytes, but its shape needs {wanted}")

    return check


def _check_declared(size: int, wanted: int) -> None:
    if size != wanted:
        raise ValueError(f"it declares {size} bytes, but its shape needs {wanted}")


def _blosc(head: bytes, size: int, wanted: int) -> None:
    _check_declared(int.from_bytes(head[4:8], "little"), wanted)
    packed = int.from_bytes(head[12:16], "little")
    if packed != size:
        raise ValueError(f"it declares {packed} stored bytes, but has {size}")


def _lz4(head: bytes, size: int, wanted: int) -> None:
    _check_declared(int.from_bytes(head[:4], "little"), wanted)


def _zstd(data: bytes, size: int, wanted: int) -> None:
    """Check the size in the frame's header, or else the sum of its blocks (RFC 8878)."""
    if data[:4] != b"\x28\xb5\x2f\xfd" or size < 6:
        raise ValueError("it does not begin as Zstandard does")
    flags = data[4]
    place = 5 + (not flags & 0x20) + (0, 1, 2, 4)[flags & 3]
    width = (1 if flags & 0x20 else 0, 2, 4, 8)[flags >> 6]
    if width:
        said = int.from_bytes(data[place : place + width], "little")
        return _check_declared(said + (256 if width == 2 else 0), wanted)
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
    return None


#: Checks by the first bytes: (first bytes, stored size, wanted size).
HEADERS: dict[str, Callable[[bytes, int, int], None]] = {
    "blosc": _blosc,
    "lz4": _lz4,
    "zstd": _zstd,
}
#: Checks by decompression: (bytes, wanted size).
STREAMS: dict[str, Callable[[bytes, int], None]] = {
    "zlib": _stream(zlib.decompressobj, several=False),
    "gzip": _stream(lambda: zlib.decompressobj(31), several=True),
    "bz2": _stream(bz2.BZ2Decompressor, several=True),
    "lzma": _stream(
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LZMA_MEMORY), several=True
    ),
}
