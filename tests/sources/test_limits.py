"""Limits of the readers: a file at a limit is read, and one a byte beyond it is refused."""

import bz2
import gzip
import importlib
import io
import lzma
import os
import struct
import zipfile
import zlib
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from catalogue import BYTE_SOURCES, FILES, KINDS

from primedpca import as_source
from primedpca.sources import base
from primedpca.sources.files import (
    chunked,
    common,
    hdf5,
    matrix_market,
    numpy_files,
    spreadsheets,
    zarr_store,
)
from primedpca.sources.files.text_lines import Lines
from primedpca.sources.files.zarr_store import Layout
from primedpca.sources.maps import RowMap
from primedpca.sources.memory.sparse import check_indices, check_indptr, index_dtype

MIB = 1_048_576
#: Module of the sources -> its limits.  A limit that changes is a decision, not an accident:
#: SECURITY.md relies on them, and blocks of another size give other last bits.
LIMITS = {
    "base": {"BLOCK_BYTES": 4 * MIB, "READ_BYTES": 8 * MIB, "GROUP_BYTES": 128 * MIB, "HASHED": 4},
    "column_choice": {"SHOWN": 20},
    "files.chunked": {"ABSENT_CHUNKS": 32_768, "ABSENT_RATIO": 64, "ZSTD_BLOCK": 131_072}
    | {"LZMA_MEMORY": 256 * MIB},
    "files.common": {"AHEAD": 4, "LINE_BYTES": 64 * MIB, "PLAUSIBLE_BYTES": 64 * MIB}
    | {"PLAUSIBLE_RATIO": 16_384},
    "files.csv_text": {"BLOCK_BYTES": MIB, "MOST_COLUMNS": 131_072, "LEAST_COUNTED": 3}
    | {"LINES": 30},
    "files.hdf5": {"DEFLATE": 1, "SHUFFLE": 2, "FLETCHER32": 3, "SZIP": 4, "NBIT": 5}
    | {"SCALEOFFSET": 6, "LZF": 32_000, "LINKS": 64, "HEAP_BYTES": 16 * MIB}
    | {"TEXT_BYTES": 256 * MIB, "FILTER_RATIO": 65_536},
    "files.images": {"BLOCK_BYTES": 32 * MIB}
    | {"MODES": {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}},
    "files.matrix_market": {"PIECE_BYTES": MIB // 2, "LINE_BYTES": MIB, "COMMENT_BYTES": 64 * MIB}
    | {"GZIP_RATIO": 1032, "LEAST_SIDE": MIB},
    "files.number_text": {"LOOKED_AT": 2000},
    "files.numpy_files": {"HEADER_BYTES": 10_000, "DEFLATE_RATIO": 1032, "PIECE_BYTES": 4 * MIB}
    | {"SURPLUS": 16 * MIB, "LEAST_SIDE": MIB},
    "files.plink": {"READ_BYTES": 4 * MIB, "LEAST": 64},
    "files.spreadsheets": {"FILE_BYTES": 1024 * MIB, "MOST_CELLS": 16 * MIB, "SPREAD": 4}
    | {"TEXT_BYTES": 2048 * MIB, "LINES": 30},
    "files.table_columns": {"SHOWN": 5},
    "files.tables": {"WHOLE": 4},
    "files.text_lines": {"LOOKED_AT": 65_536},
    "files.zarr_store": {"METADATA_BYTES": 64 * MIB, "ABSENT": 18_446_744_073_709_551_615},
    "maps": {"LEAST": {"log1p": -1, "sqrt": 0}}
    | {"log1p": RowMap("log1p", then="log1p"), "sqrt": RowMap("sqrt", then="sqrt")}
    | {"counts_per_million": RowMap("counts_per_million", "sum", 1_000_000.0)}
    | {"log_cp10k": RowMap("log_cp10k", "sum", 10_000.0, "log1p")}
    | {"log_cpm": RowMap("log_cpm", "sum", 1_000_000.0, "log1p")}
    | {"normalise_rows": RowMap("normalise_rows", "squares", 1.0)},
    "memory.dense": {"DEVICE_BLOCK_BYTES": 1024 * MIB}
    | {"RESIDENT_BYTES": 4096 * MIB, "RESIDENT_SHARE": 1 / 32},
    "memory.iterables": {"BLOCK_BYTES": 4 * MIB},
    "memory.sparse": {"BLOCK_ENTRIES": 524_288, "OUTPUT_RATIO": 16},
    "wrappers.activations": {"BLOCK_BYTES": 128 * MIB, "DEVICE_BLOCK_BYTES": 1024 * MIB}
    | {"BLOCK_ROWS": 256},
    "wrappers.mapped": {"TRIED_ROWS": 8},
    "wrappers.on_device": {"AT_ONCE": 256 * MIB, "SHARE": 0.7, "STREAM_BYTES": 256 * MIB}
    | {"PIECE_BYTES": 32 * MIB, "DEVICE_ENTRIES": 134_217_728, "AHEAD": 2, "TRANSFER": 4e10},
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_limits(name):
    module = importlib.import_module(f"primedpca.sources.{name}")
    assert {key: getattr(module, key) for key in LIMITS[name]} == LIMITS[name]


def test_the_containers_of_videos():
    found = importlib.import_module("primedpca.sources.files.video").CONTAINERS
    places = {name: place for place, _, name in found}
    assert places == {
        **{"mov": 4, "matroska": 0, "avi": 8, "mpeg": 0, "mpegvideo": 0},
        "mpegts": 188,
    }


# -- chunks -----------------------------------------------------------------------------------


def refused(call, *arguments):
    """Return the message of the error, or None."""
    try:
        call(*arguments)
    except (ValueError, OSError, zlib.error, EOFError, lzma.LZMAError) as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("shape", "chunks", "itemsize", "stored", "missing"),
    [
        ((10, 10), (3, 4), 8, 5, 7),  # 4 x 3 chunks
        ((10, 10), (10, 10), 8, 1, 0),
        ((1, 1), (4096, 2048), 8, 1, 0),  # exactly 64 MiB
        ((1, 1), (8193, 1024), 8, 1, None),
        ((3000, 3000), (4500, 4000), 8, 1, 0),  # exactly twice the array
        ((3000, 3000), (4501, 4000), 8, 1, None),
        ((32_768, 1), (1, 1), 1, 0, 32_768),
        ((32_769, 1), (1, 1), 1, 0, None),
        ((65_000, 1), (1, 1), 1, 1000, 64_000),
        ((65_001, 1), (1, 1), 1, 1000, None),
    ],
)
def test_absent_chunks_and_large_ones(shape, chunks, itemsize, stored, missing):
    if missing is None:
        with pytest.raises(ValueError, match=r"^label (has chunks of shape|lacks \d+ of its)"):
            chunked.count_missing("label", shape, chunks, itemsize, stored)
    else:
        assert chunked.count_missing("label", shape, chunks, itemsize, stored) == missing


def test_sizes_of_stored_and_declared_chunks():
    assert refused(chunked.check_stored, 8000 + 1000 + 4096, 8000) is None
    assert "9" in refused(chunked.check_stored, 8000 + 1000 + 4097, 8000)
    assert refused(chunked.check_declared, 5, 5) is None
    assert refused(chunked.check_declared, 4, 5) == "it declares 4 bytes, but its shape needs 5"
    assert refused(chunked.check_declared, 6, 5) is not None


PACKERS = {
    "zlib": zlib.compress,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_XZ),
}


@pytest.mark.parametrize("name", PACKERS)
def test_streams_of_exactly_the_wanted_length(name):
    check, pack = chunked.STREAMS[name], PACKERS[name]
    data = np.random.default_rng(0).integers(0, 9, 1000).astype(np.uint8).tobytes() * 2100
    assert len(data) > 2 * MIB  # more than two pieces
    packed = pack(data)
    assert refused(check, packed, len(data)) is None
    assert "more than" in refused(check, packed, len(data) - 1)
    assert f"decompresses to {len(data)} bytes" in refused(check, packed, len(data) + 1)
    assert refused(check, packed[:-9], len(data)) is not None
    assert refused(check, b"", 1) is not None
    twice = pack(data[:99]) + pack(data[:99])
    assert refused(check, twice, 198 if name != "zlib" else 99) is None
    if name != "zlib":
        assert "more than" in refused(check, twice, 197)


def zstd_frame(flags, head, *blocks, tail=b""):
    """A frame of Zstandard; blocks are (kind, length) with as many bytes as they take."""
    held = b"\x28\xb5\x2f\xfd" + bytes([flags]) + head
    for i, (kind, length) in enumerate(blocks):
        held += struct.pack("<I", (i == len(blocks) - 1) | kind << 1 | length << 3)[:3]
        held += b"x" * (1 if kind == 1 else length)
    return held + tail


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (zstd_frame(0x20, b"\x09"), 9),  # one byte of size
        (zstd_frame(0x40, b"w" + struct.pack("<H", 44)), 300),  # two bytes, counted from 256
        (zstd_frame(0x60, struct.pack("<H", 44)), 300),
        (zstd_frame(0x80, b"w" + struct.pack("<I", 70_000)), 70_000),
        (zstd_frame(0xC0, b"w" + struct.pack("<Q", 70_000)), 70_000),
        (zstd_frame(0x21, b"d\x09"), 9),  # with a dictionary of one, two and four bytes
        (zstd_frame(0x22, b"dd\x09"), 9),
        (zstd_frame(0x23, b"dddd\x09"), 9),
    ],
)
def test_sizes_in_the_header_of_zstandard(data, wanted):
    check = chunked.HEADERS["zstd"]
    assert refused(check, data, len(data), wanted) is None
    for other in (wanted - 1, wanted + 1):
        assert f"declares {wanted} bytes" in refused(check, data, len(data), other)


def test_blocks_of_zstandard_without_a_size():
    check = chunked.HEADERS["zstd"]
    whole = zstd_frame(0x00, b"w", (0, 7), (1, 9), (2, 5))
    assert refused(check, whole, len(whole), 100) is None
    assert "last block" in refused(check, whole[:-8], len(whole) - 8, 100)
    assert "do not fit" in refused(check, whole + b"x", len(whole) + 1, 100)
    empty = zstd_frame(0x00, b"w", (0, 7), (0, 0))
    assert refused(check, empty, len(empty), 7) is None
    assert "last block" in refused(check, empty, len(empty) - 1, 7)
    summed = zstd_frame(0x04, b"w", (0, 7), tail=b"sums")
    assert refused(check, summed, len(summed), 100) is None
    assert "do not fit" in refused(check, summed[:-4], len(summed) - 4, 100)
    with_dictionary = zstd_frame(0x01, b"wd", (0, 7))  # and without a sum
    assert refused(check, with_dictionary, len(with_dictionary), 100) is None
    # 512 compressed blocks of up to 128 KiB are exactly 64 MiB, and repeated bytes count in full.
    many = zstd_frame(0x00, b"w", *[(2, 1)] * 512)
    assert refused(check, many, len(many), 1) is None
    for more in ((0, 1), (1, 1), (2, 1)):
        large = zstd_frame(0x00, b"w", more, *[(2, 1)] * 512)
        assert "do not fit" in refused(check, large, len(large), 1)
    assert refused(check, large, len(large), 513 * 131_072 // 16) is None
    assert "do not fit" in refused(check, large, len(large), 513 * 131_072 // 16 - 1)
    bare = zstd_frame(0x20, b"")
    assert "does not begin" in refused(check, bare, 5, 0)
    assert "does not begin" in refused(check, b"x" + whole[1:], len(whole), 100)


def test_headers_of_blosc_and_lz4():
    head = b"\2\1\1\4" + struct.pack("<III", 800, 800, 90)
    assert refused(chunked.HEADERS["blosc"], head, 90, 800) is None
    assert "declares 800 bytes" in refused(chunked.HEADERS["blosc"], head, 90, 801)
    assert "90 stored bytes, but has 91" in refused(chunked.HEADERS["blosc"], head, 91, 800)
    assert refused(chunked.HEADERS["lz4"], struct.pack("<I", 300) + b"xxxx", 9, 300) is None
    assert refused(chunked.HEADERS["lz4"], struct.pack("<I", 300) + b"xxxx", 9, 301) is not None


# -- HDF5 -------------------------------------------------------------------------------------


def checked_chunk(data, filters, wanted, whole=True, size=None):
    """Check bytes as a stored chunk; filters are (code, values)."""
    dataset = SimpleNamespace(id=SimpleNamespace(read_direct_chunk=lambda place: (0, data)))
    size = len(data) if size is None else size
    listed = [(code, 0, values, b"name") for code, values in filters]
    return refused(hdf5._check_chunk, dataset, (0, 0), size, listed, wanted, whole)


def lzf_literals(count):
    """A stream of LZF that decodes to so many bytes, none of them packed."""
    runs = [min(32, count - a) for a in range(0, count, 32)]
    return b"".join(bytes([run - 1]) + b"x" * run for run in runs)


def test_chunks_of_hdf5_decode_to_what_their_shape_needs():
    text = bytes(range(256)) * 4
    packed, sums = zlib.compress(text), b"sums"
    deflate, shuffle, fletcher = (1, (6,)), (2, (8,)), (3, ())
    assert checked_chunk(text, [], 1024) is None
    assert "1024 bytes are stored" in checked_chunk(text, [], 1023)
    assert checked_chunk(text, [], 1025) is not None
    assert checked_chunk(text, [shuffle], 1024) is None
    assert checked_chunk(text + sums, [shuffle, fletcher], 1024) is None
    assert checked_chunk(text + sums, [fletcher], 1028) is not None
    assert checked_chunk(packed, [deflate], 1024) is None
    assert checked_chunk(packed, [shuffle, deflate], 1024) is None
    assert "more than the 1023 bytes" in checked_chunk(packed, [deflate], 1023)
    assert "1024 bytes are stored" in checked_chunk(packed, [deflate], 1025)
    assert checked_chunk(packed + sums, [deflate, fletcher], 1024) is None
    inner = zlib.compress(text + sums)
    assert checked_chunk(inner, [fletcher, deflate], 1024) is None
    assert checked_chunk(inner, [fletcher, deflate], 1023) is not None
    assert checked_chunk(zlib.compress(text + sums + b"x"), [fletcher, deflate], 1024) is not None
    assert checked_chunk(zlib.compress(packed), [deflate, deflate], 1024) is None
    assert checked_chunk(zlib.compress(packed), [deflate, deflate], 1025) is not None
    # Between two compressors, an eighth and 4096 bytes more than the shape needs are allowed.
    for more, right in ((0, True), (1, False)):
        long = zlib.compress(b"x" * (1024 + 128 + 4096 + more))
        found = checked_chunk(long, [deflate, deflate], 1024)
        assert ("more than the 5248 bytes" in found) != right
    # A chunk at the edge may be stored uncompressed.
    assert checked_chunk(text, [deflate], 1024, whole=False) is None
    assert checked_chunk(text, [deflate], 1024, whole=True) is not None
    assert checked_chunk(text, [deflate], 1020, whole=False) is not None
    assert checked_chunk(text, [], 1024, size=1024 + 128 + 4097) is not None


def test_other_filters_of_hdf5_declare_their_size():
    lzf, szip = (32_000, (4, 0, 64)), (4, ())
    stream = lzf_literals(64)
    assert checked_chunk(stream, [lzf], 64) is None
    assert "declares 64 bytes" in checked_chunk(stream, [lzf], 65)
    assert "decompresses to 63" in checked_chunk(lzf_literals(63), [lzf], 64)
    assert checked_chunk(stream, [(32_000, ())], 64) is None
    assert checked_chunk(stream, [(32_000, (4, 0))], 64) is None
    assert checked_chunk(b"y" * 64, [lzf], 64, whole=False) is None
    assert checked_chunk(b"y" * 64, [lzf], 64, whole=True) is not None
    assert checked_chunk(b"y" * 63, [lzf], 64, whole=False) is not None
    assert checked_chunk(struct.pack("<I", 64) + b"\1\2", [szip], 64) is None
    assert checked_chunk(struct.pack("<I", 65) + b"\1\2", [szip], 64) is not None
    for code in (5, 6):  # of both, the third and the fifth value multiply
        assert checked_chunk(b"\1", [(code, (0, 0, 8, 0, 8, 0))], 64) is None
        assert checked_chunk(b"\1", [(code, (0, 0, 8, 0, 9, 0))], 64) is not None
        assert checked_chunk(b"\1", [(code, (0, 0, 8, 0))], 64) is not None
        assert checked_chunk(b"\1", [(code, (0, 0, 8, 0, 8))], 64) is None
    assert checked_chunk(b"\1", [(307, ())], 64) is None  # a plug-in of the user
    both = checked_chunk(b"\1", [(1, ()), (307, ())], 64)
    assert both == "'name' is not its only compression"
    # A checksum that was packed with the values takes four bytes of the declared size.
    assert checked_chunk(lzf_literals(68), [(3, ()), (32_000, (4, 0, 68))], 64) is None
    assert checked_chunk(lzf_literals(64), [(3, ()), (32_000, (4, 0, 64))], 64) is not None


@pytest.mark.parametrize(
    ("stream", "length"),
    [
        (b"\x00x", 1),
        (b"\x1f" + b"x" * 32, 32),
        (b"\x02xxx\x20\x00", 6),  # a copy of 3 bytes
        (b"\x02xxx\xc0\x00", 11),  # of 8
        (b"\x02xxx\xe0\x00\x00", 12),  # of 9 and more
        (b"\x02xxx\xe0\x05\x00", 17),
        (b"\x02xxx\xdf\x00", 11),
    ],
)
def test_lengths_of_lzf(stream, length):
    assert refused(hdf5._check_lzf, stream, length) is None
    for other in (length - 1, length + 1):
        assert f"decompresses to {length} bytes" in refused(hdf5._check_lzf, stream, other)
    assert refused(hdf5._check_lzf, stream[:-1], length) is not None


def chain_of_links(path, count):
    """A dataset, and a chain of so many soft links to it."""
    with h5py.File(path, "w") as file:
        file["X"] = np.ones((3, 2))
        for i in range(count):
            file[f"l{i}"] = h5py.SoftLink("/X" if i == 0 else f"/l{i - 1}")
    return f"{path}::l{count - 1}"


def test_links_in_hdf5(tmp_path):
    assert as_source(chain_of_links(tmp_path / "a.h5", 64)).shape == (3, 2)
    with pytest.raises(ValueError, match="form a circle"):
        as_source(chain_of_links(tmp_path / "b.h5", 65))


def test_contiguous_datasets_of_hdf5(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = np.arange(12.0).reshape(4, 3)
        file.create_dataset("Y", (4, 3), "f4")  # never written: no bytes are stored
    stored, absent = (as_source(f"{tmp_path / 'a.h5'}::{name}") for name in "XY")
    assert (stored.missing_chunks, absent.missing_chunks) == (0, 1)
    np.testing.assert_array_equal(absent.read(0), 0)
    with pytest.raises(ValueError, match="lacks 1 chunks"):
        as_source(f"{tmp_path / 'a.h5'}::Y", strict=True)
    as_source(f"{tmp_path / 'a.h5'}::X", strict=True)


def test_a_damaged_dataset_of_hdf5_is_named(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = np.arange(12.0).reshape(4, 3)

    def damaged(*_):
        raise ValueError("wrong offset")

    monkeypatch.setattr(hdf5.HDF5Source, "_count_missing", damaged)
    told = "is damaged or cannot be read (dataset /X): wrong offset"
    assert refused(as_source, tmp_path / "a.h5") == f"{tmp_path / 'a.h5'} {told}"


def test_few_bytes_of_a_contiguous_dataset():
    numbers = SimpleNamespace(get_type=lambda: h5py.h5t.IEEE_F64LE)
    dataset = SimpleNamespace(chunks=None, id=numbers)
    source = SimpleNamespace(shape=(4, 3), dtype=np.dtype("f8"))
    for stored, missing in ((0, 1), (1, None), (95, None), (96, 0), (97, 0)):
        dataset.id.get_storage_size = lambda stored=stored: stored
        if missing is None:
            with pytest.raises(ValueError, match=f"{stored} bytes are too few for 4 x 3"):
                hdf5.HDF5Source._count_missing(source, dataset, "label")
        else:
            assert hdf5.HDF5Source._count_missing(source, dataset, "label") == missing


def heap(*entries, size=None):
    """A heap of texts as HDF5 stores it; entries are (number, length)."""
    held = b"".join(
        struct.pack("<HHIQ", number, 1, 0, length) + b"t" * (-(-length // 8) * 8 if number else 0)
        for number, length in entries
    )
    rest = entries[-1][1] - 16 if entries[-1][0] == 0 else 0
    held += b"\0" * max(rest, 0)
    return b"GCOL\1\0\0\0" + struct.pack("<Q", 16 + len(held) if size is None else size) + held


@pytest.mark.parametrize(
    ("held", "right"),
    [
        (heap((1, 5), (2, 8), (3, 9)), True),
        (heap((1, 5), (0, 40)), True),
        (heap((1, 0), (0, 16)), True),
        (heap((1, 5), size=16 + 16), False),  # a text beyond the end of the heap
        (heap((1, 5), (0, 40), size=16 + 24 + 48), False),  # free space that ends before it
    ],
    ids=["texts", "free", "empty", "long", "short"],
)
def test_heaps_of_hdf5(tmp_path, held, right, monkeypatch):
    path = tmp_path / "a.h5"
    for before in (0, 8, 1000):
        path.write_bytes(b"\0" * before + held + b"\0" * 64)
        found = refused(hdf5._check_heaps, str(path))
        assert (found is None) == right
        assert right or found.endswith(f"texts do not fill their heap at {before}.")
    # Both ends of a long file are looked at, in steps of eight bytes.
    monkeypatch.setattr(hdf5, "HEAP_BYTES", 256)
    path.write_bytes(b"\0" * 1003 + held + b"\0" * 64)
    assert (refused(hdf5._check_heaps, str(path)) is None) == right


def texts_of(column, path):
    return hdf5._InFile._texts(SimpleNamespace(path=str(path)), column)


def test_texts_of_an_h5ad_file_may_be_as_long_as_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["names"] = np.array(["n" * 10] * 150, dtype=object)
    size = os.path.getsize(path)
    assert size > 1500
    with h5py.File(path) as file:
        assert texts_of(file["names"], path).tolist() == ["n" * 10] * 150
    # Many names may share one text, so that the texts are longer than the file.
    long = SimpleNamespace(name="long", shape=(200,), steps=[])

    class Words:
        def __getitem__(self, place):
            long.steps.append(min(place.stop, long.shape[0]) - place.start)
            return np.array(["w" * (size // 100)] * long.steps[-1], dtype=object)

    long.asstr = Words
    monkeypatch.setattr(hdf5, "TEXT_BYTES", 200 * (size // 100))
    texts_of(long, path)
    assert long.steps == [64, 64, 64, 8]
    monkeypatch.setattr(hdf5, "TEXT_BYTES", 10)  # as much text as the file has bytes
    long.shape = (99,)
    texts_of(long, path)
    long.shape = (200,)
    monkeypatch.setattr(hdf5, "TEXT_BYTES", 200 * (size // 100) - 1)
    with pytest.raises(ValueError, match="more text than the file has bytes"):
        texts_of(long, path)


# -- Zarr -------------------------------------------------------------------------------------


def test_indices_of_shards():
    """Two chunks of four bytes in a shard, its index before or behind them."""
    absent = 2**64 - 1

    def shard(pairs, at_end, checksum, body=b"aaaabbbb"):
        index = np.array(pairs, "<u8").tobytes() + b"sums" * checksum
        return body + index if at_end else index + body

    for at_end in (True, False):
        for checksum in (True, False):
            layout = Layout((4, 1), (2, 1), (1, 1), 4, (), at_end, checksum)
            first = 0 if at_end else 32 + 4 * checksum

            def found(pairs, layout=layout, at_end=at_end, checksum=checksum, cut=0, **more):
                held = shard(pairs, at_end, checksum, **more)
                return refused(layout.check, io.BytesIO(held), len(held) - cut)

            end = 8 + 32 + 4 * checksum
            assert found([(first, 4), (first + 4, 4)]) is None
            assert found([(first, 4), (absent, absent)]) is None
            assert "5 bytes are stored" in found([(first, 4), (first + 3, 5)])
            assert found([(absent, 4), (first + 4, 4)]) is not None
            assert found([(end - 4, 4), (first, 4)]) is None  # the end of the file itself
            assert f"byte {end + 1} of {end}" in found([(end - 3, 4), (first, 4)])
            short = refused(layout.check, io.BytesIO(b"x" * 40), 31 + 4 * checksum)
            length = 32 + 4 * checksum
            assert short == f"the index of its 2 chunks needs {length} of {length - 1} bytes"


def test_checksums_in_chunks_of_zarr():
    text = b"v" * 16
    for name, at_start in (("crc32c", False), ("crc32", True), ("adler32", True)):
        sums = {"id": name}
        layout = Layout((2, 1), (2, 1), (2, 1), 8, (sums,))
        assert refused(layout.check, io.BytesIO(text + b"sums"), 20) is None
        assert "15 bytes are stored" in refused(layout.check, io.BytesIO(text + b"sums"), 19)
        packed = zlib.compress(text)
        held = b"sums" + packed if at_start else packed + b"sums"
        layout = Layout((2, 1), (2, 1), (2, 1), 8, (sums, {"id": "zlib"}))
        assert refused(layout.check, io.BytesIO(held), len(held)) is None
        inner = zlib.compress(b"sums" + text)
        layout = Layout((2, 1), (2, 1), (2, 1), 8, ({"id": "zlib"}, sums))
        assert refused(layout.check, io.BytesIO(inner), len(inner)) is None
        layout = layout._replace(packing=({"id": "zlib"},))
        assert refused(layout.check, io.BytesIO(inner), len(inner)) is not None
    other = {"id": "crc32c", "location": "start"}
    layout = Layout((2, 1), (2, 1), (2, 1), 8, (other, {"id": "zlib"}))
    assert refused(layout.check, io.BytesIO(b"sums" + packed), 4 + len(packed)) is None
    assert Layout((2, 1), (2, 1), (2, 1), 8, None).check(io.BytesIO(), 99) is None


def test_lengths_and_types_in_metadata_of_zarr():
    assert zarr_store._lengths([0, 2**63 - 1], 0) == (0, 2**63 - 1)
    for bad, least in (([2**63], 0), ([-1], 0), ([0], 1), ([True], 0), ([1.0], 0)):
        assert refused(zarr_store._lengths, bad, least) == f"lengths of {bad!r}"
    assert zarr_store._dtype("<f8") == np.dtype("<f8")
    padded = "float64," + " " * 12
    assert len(padded) == 20
    for bad in (padded, "<U3", "object", ["f8"], "nonsense"):
        assert "only numbers are supported" in refused(zarr_store._dtype, bad)


def zarr_metadata(version=3, **changes):
    """Metadata of an array of 8 x 6 in chunks of 4 x 3."""
    bytes_codec = {"name": "bytes", "configuration": {"endian": "little"}}
    found = {
        **{"zarr_format": 3, "shape": [8, 6], "data_type": "float32", "codecs": [bytes_codec]},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 3]}},
    }
    if version == 2:
        found = {"zarr_format": 2, "shape": [8, 6], "dtype": "<f4", "chunks": [4, 3]}
        found |= {"filters": None, "compressor": None}
    return found | changes


def shards(inner, index=("bytes", "crc32c"), **more):
    packed = [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 3}}]
    options = {"chunk_shape": list(inner), "codecs": packed, "index_codecs": [*index]} | more
    return {"name": "sharding_indexed", "configuration": options}


def test_layouts_of_zarr():
    def layout(version=3, **changes):
        return zarr_store.layout_of("label", zarr_metadata(version, **changes))

    for version in (2, 3):
        assert layout(version) == Layout((8, 6), (4, 3), (4, 3), 4, ({"id": "bytes"},)[:0], None)
    zstd = {"name": "zstd", "configuration": {"level": 3}}
    assert layout(codecs=["bytes", zstd, "crc32c"]).packing == (
        {"id": "crc32c"},
        {"id": "zstd", "level": 3},
    )
    assert layout(2, compressor={"id": "zlib", "level": 1}).packing == ({"id": "zlib", "level": 1},)
    assert layout(2, filters=[{"id": "delta", "dtype": "<f4", "astype": "<f8"}]).encoded == 8
    found = layout(codecs=[shards((2, 3))])
    assert (found.chunks, found.inner, found.packing) == (
        (4, 3),
        (2, 3),
        ({"id": "zstd", "level": 3},),
    )
    assert (found.index_at_end, found.index_checksum) == (True, True)
    found = layout(codecs=[shards((4, 3), ["bytes"], index_location="start")])
    assert (found.index_at_end, found.index_checksum) == (False, False)

    def told(version=3, **changes):
        return refused(zarr_store.layout_of, "label", zarr_metadata(version, **changes))

    for inner in ((3, 3), (4, 2), (4,), (4, 3, 1), (0, 3)):
        assert told(codecs=[shards(inner)]) is not None
    assert "codecs beside its shards" in told(codecs=[shards((2, 3)), zstd])
    assert "encodes the index" in told(codecs=[shards((2, 3), ["bytes", "zstd"])])
    assert "its chunks have shape (4, 3)" in told(shape=[8])
    assert "is not regular" in told(chunk_grid={"name": "other"})
    assert "decodes Python objects" in told(2, compressor={"id": "pickle"})
    assert "cannot be bounded" in told(2, compressor={"id": "unknown"})
    assert "'zlib and bz2'" in told(2, filters=[{"id": "zlib"}], compressor={"id": "bz2"})
    assert "'lzma with filters'" in told(2, compressor={"id": "lzma", "format": 2})
    assert told(2, compressor={"id": "lzma", "format": 1}) is None
    assert "a codec named None" in told(codecs=[{}, {"name": None}])
    for shape in ([0, 6], [8, -1], [8, 6, 1]):
        assert told(shape=shape) is not None
    unknown = zarr_metadata(2, compressor={"id": "unknown"})
    assert zarr_store.layout_of("label", unknown, known_only=False).packing is None


def test_metadata_of_zarr_may_be_as_long_as_the_limit(monkeypatch):
    monkeypatch.setattr(zarr_store, "METADATA_BYTES", 5)
    assert zarr_store._limited(io.BytesIO(b"12345"), 5, "path") == b"12345"
    assert "path has 6 bytes" in refused(zarr_store._limited, io.BytesIO(b"123456"), 6, "path")


def zarr_with(path, keep):
    """Six chunks of which only some are kept."""
    array = zarr.create_array(path, shape=(5, 5), chunks=(2, 3), dtype="f8", fill_value=7.0)
    array[...] = np.arange(25.0).reshape(5, 5)
    wanted = np.full((5, 5), 7.0)
    for i in range(3):
        for j in range(2):
            place = path / "c" / str(i) / str(j)
            if (i, j) in keep:
                side = np.s_[2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
                wanted[side] = np.arange(25.0).reshape(5, 5)[side]
            else:
                place.unlink()
    return wanted


@pytest.mark.parametrize("keep", [[(0, 0)], [(2, 1)], [(1, 0), (2, 0)], [(0, 1), (1, 1), (2, 0)]])
def test_strips_of_mostly_absent_chunks(tmp_path, keep, monkeypatch):
    from primedpca.sources import base

    wanted = zarr_with(tmp_path / "a.zarr", keep)
    ways = []
    plain = zarr_store.ZarrSource._filled
    monkeypatch.setattr(
        zarr_store.ZarrSource, "_filled", lambda *args: ways.append(1) or plain(*args)
    )
    for size in (8, 2**23):
        monkeypatch.setattr(base, "READ_BYTES", size)
        source = as_source(tmp_path / "a.zarr")
        assert source.missing_chunks == 6 - len(keep)
        found = np.concatenate([block for _, block in source.scan()], axis=source.axis)
        np.testing.assert_array_equal(found, wanted)
    # In the last case, one strip has all six chunks: fewer than half of them are read one by one.
    assert bool(ways) == (len(keep) < 3 or size == 8)


def test_files_that_are_not_chunks(tmp_path):
    zarr_with(tmp_path / "a.zarr", [(i, j) for i in range(3) for j in range(2)])
    inside = tmp_path / "a.zarr" / "c"
    for strange in ("3/0", "0/2", "0/00"):
        extra = inside / strange
        extra.parent.mkdir(exist_ok=True)
        extra.write_bytes((inside / "0" / "0").read_bytes())
        with pytest.raises(ValueError, match="is not a chunk of an array of shape"):
            as_source(tmp_path / "a.zarr")
        extra.unlink()
        if strange == "3/0":
            extra.parent.rmdir()
    as_source(tmp_path / "a.zarr")


# -- NumPy files ------------------------------------------------------------------------------


def npy(text, version=1, data=b""):
    """A .npy file whose header is this text."""
    count = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + count + text + data


def header_of(length, shape=(2, 3)):
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return text.ljust(length - 1) + b"\n"


@pytest.mark.parametrize("version", [1, 2])
def test_headers_of_numpy_files(version):
    for length in (128, 10_000):
        held = io.BytesIO(b"before" + npy(header_of(length), version, bytes(48)))
        held.seek(6)
        head = numpy_files.read_header(held, "name")
        assert head.shape == (2, 3)
        assert head.length == 8 + 2 * version + length
    held = io.BytesIO(npy(header_of(10_001), version))
    assert "10001 bytes, more than 10000" in refused(numpy_files.read_header, held, "name")
    for wrong in (b"\x93NUMPY\3\0", b"\x93NUMPY\1\1"):
        held = io.BytesIO(wrong + npy(header_of(128))[8:])
        assert "version" in refused(numpy_files.read_header, held, "name")


def test_raw_files_end_where_their_shape_says(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(4) + np.arange(6.0).tobytes())
    for order, wanted in (("C", [[0, 1, 2], [3, 4, 5]]), ("F", [[0, 2, 4], [1, 3, 5]])):
        source = numpy_files.raw_source(path, shape=(2, 3), dtype="f8", offset=4, order=order)
        np.testing.assert_array_equal(source.rows(np.arange(2)), wanted)
        np.testing.assert_array_equal(source.rows(np.array([1, 0, 1])), np.array(wanted)[[1, 0, 1]])
    for offset in (5, -1):
        with pytest.raises(ValueError, match="offset"):
            numpy_files.raw_source(path, shape=(2, 3), dtype="f8", offset=offset)
    numpy_files.raw_source(path, shape=(2, 3), dtype="f8", exact=False)
    with pytest.raises(ValueError, match=r"has 52 bytes, but 2 x 3 .* end at byte 48"):
        numpy_files.raw_source(path, shape=(2, 3), dtype="f8")


def test_slices_of_memory_maps(tmp_path):
    whole = np.memmap(tmp_path / "a.bin", "f8", "w+", 40, (50, 7))
    whole[...] = np.arange(350.0).reshape(50, 7)
    whole.flush()
    X = np.memmap(tmp_path / "a.bin", "f8", "r", 40, (50, 7))
    for part in (X[3:], X[:, 2:], X[5:20:3, 1:6:2], X.T, X[4:, 1:].T, X[7:8], X[:, 6:]):
        source = numpy_files.memmap_source(part)
        found = np.concatenate([block for _, block in source.scan()], axis=source.axis)
        np.testing.assert_array_equal(found, part)
        index = np.arange(part.shape[0])[::-1]
        np.testing.assert_array_equal(source.rows(index), np.asarray(part)[index])
    far = np.memmap(tmp_path / "b.bin", "u1", "w+", 0, 9000)
    far[...] = np.arange(9000) % 251
    far.flush()
    X = np.memmap(tmp_path / "b.bin", "u1", "r", 4101, (40, 60))
    np.testing.assert_array_equal(numpy_files.memmap_source(X[2:]).read(0), X[2:])


def member(path, name="X", compress=zipfile.ZIP_DEFLATED, data=None, size=None):
    with zipfile.ZipFile(path, "w", compress) as archive:
        archive.writestr(f"{name}.npy", data)


def test_members_that_declare_more_than_they_hold(tmp_path):
    path = tmp_path / "a.npz"
    for rows, right in ((2, True), (1, False), (3, False), (-2, False)):
        member(path, data=npy(header_of(118, (rows, 3)), 1, bytes(48)))
        assert (refused(numpy_files.npz_source, path) is None) == right
    info = SimpleNamespace(file_size=128 + 1032 * 100 - 128, compress_size=100)
    text = npy(header_of(118, ((1032 * 100 - 128) // 8, 1)), 1)
    assert numpy_files._header(io.BytesIO(text), info, "label").length == 128
    info.compress_size = 99
    assert "its header is wrong" in refused(numpy_files._header, io.BytesIO(text), info, "label")


def test_compressed_members_are_held_up_to_their_size(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=np.arange(60.0).reshape(20, 3))
    size = 128 + 480
    assert type(as_source(path, cache=size)).__name__ == "DenseSource"
    assert type(as_source(path, cache=size - 1)).__name__ == "CompressedMember"
    assert type(as_source(path, cache=0)).__name__ == "CompressedMember"


def test_sparse_members_with_more_entries_than_places(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    sp.save_npz(path, sp.coo_array(([1.0] * 5, ([0] * 5, [1] * 5)), shape=(2, 2)))
    monkeypatch.setattr(numpy_files, "SURPLUS", 5)
    assert as_source(path).read(0).toarray().tolist() == [[0, 5], [0, 0]]
    monkeypatch.setattr(numpy_files, "SURPLUS", 4)
    with pytest.raises(ValueError, match="declares 5 entries, more than the 4 possible"):
        as_source(path)
    monkeypatch.setattr(numpy_files, "SURPLUS", 3)
    sp.save_npz(path, sp.coo_array(([1.0] * 4, ([0, 0, 1, 1], [0, 1, 0, 1])), shape=(2, 2)))
    assert as_source(path).shape == (2, 2)


def test_sides_of_sparse_members(tmp_path, monkeypatch):
    """Beside 8 + 4 + 4 bytes of one entry, as many rows may be empty as the limit says."""
    monkeypatch.setattr(numpy_files, "LEAST_SIDE", 100)
    path = tmp_path / "a.npz"
    for rows, right in ((116, True), (117, False)):
        held = sp.coo_array((np.ones(1), (np.zeros(1, "i4"), np.zeros(1, "i4"))), shape=(rows, 2))
        held.coords = tuple(part.astype("i4") for part in held.coords)
        sp.save_npz(path, held)
        assert (refused(as_source, path) is None) == right


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("packed", [False, True])
def test_sparse_members_of_every_format(tmp_path, kind, packed):
    X = np.diag(np.arange(1.0, 7)) + np.eye(6, k=2)
    X = X[:, :4]
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(X).asformat(kind), compressed=packed)
    source = as_source(tmp_path / "a.npz")
    joined = (sp.vstack if source.axis == 0 else sp.hstack)([one for _, one in source.scan()])
    np.testing.assert_array_equal(joined.toarray(), X)
    assert source.traits.nnz() == np.count_nonzero(X)


# -- Matrix Market ----------------------------------------------------------------------------


def mtx(path, text):
    path.write_bytes(text.encode())
    found = refused(matrix_market.matrix_market, path)
    assert found is None or found.startswith(str(path))
    return found


def test_sizes_of_matrix_market_files(tmp_path, monkeypatch):
    path = tmp_path / "a.mtx"
    head = "%%MatrixMarket matrix coordinate real general\n"
    assert mtx(path, head + "2 2 1\n1 1 3\n") is None
    assert mtx(path, head + "2 2 1\n2 2 3") is None
    for wrong, line in (("0 1 3", 3), ("3 1 3", 3), ("1 3 3", 3), ("1 1\n", 3), ("1 1 x", 3)):
        assert f"line {line} " in mtx(path, head + f"2 2 1\n{wrong}\n")
    assert "line 4 holds 'x'" in mtx(path, head + "2 2 1\n\n1 1 x\n")
    assert "line 5 has an index 9, not in 1..2" in mtx(path, head + "2 2 2\n1 1 1\n\n1 9 1\n")
    assert "more than the 1 entries" in mtx(path, head + "2 2 1\n1 1 3\n1 2 3\n")
    assert "ends after 1 of the 2 entries" in mtx(path, head + "2 2 2\n1 1 3\n")
    # A number and the blank behind it take two bytes: the last one may lack the blank.
    dense = "%%MatrixMarket matrix array integer general\n"
    length = len(dense) + len("1 99\n")
    for count, right in ((length // 2 + 40, False), (length // 2, True)):
        found = mtx(path, dense + f"1 {count}\n" + "1\n" * 3)
        assert ("at most" in found) != right
    monkeypatch.setattr(matrix_market, "LEAST_SIDE", 10)
    assert mtx(path, head + "16 2 1\n1 1 3\n") is None  # six bytes of text
    assert "its 1 entries take 6 bytes" in mtx(path, head + "17 2 1\n1 1 3\n")
    assert mtx(path, head + "2 16 1\n1 1 3\n") is None
    assert mtx(path, head + "2 17 1\n1 1 3\n") is not None


def test_comments_of_matrix_market_files(tmp_path, monkeypatch):
    path = tmp_path / "a.mtx"
    head = "%%MatrixMarket matrix coordinate real general\n"
    monkeypatch.setattr(matrix_market, "PIECE_BYTES", 64)
    monkeypatch.setattr(matrix_market, "COMMENT_BYTES", 300)
    line = "%" + "c" * 30 + "\n"
    assert mtx(path, head + line * 7 + "1 1 1\n1 1 2\n") is None
    assert "more than 300 bytes of comments" in mtx(path, head + line * 20 + "1 1 1\n1 1 2\n")
    assert f"line {7 + 2} must give its size as 3" in mtx(path, head + line * 7 + "1 1\n")
    assert "line 11 has an index 5" in mtx(path, head + line * 7 + "1 1 2\n1 1 2\n1 5 1\n")


@pytest.mark.parametrize("kind", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("form", ["array", "coordinate"])
def test_triangles_of_matrix_market_files(tmp_path, kind, form):
    head = f"%%MatrixMarket matrix {form} integer {kind}\n"
    lower = [(i, j) for j in range(3) for i in range(3) if i >= j + (kind == "skew-symmetric")]
    places = [(i, j) for j in range(3) for i in range(3)] if kind == "general" else lower
    wanted = np.zeros((3, 3))
    for value, (i, j) in enumerate(places, 1):
        wanted[i, j] = value
        if kind != "general" and i != j:
            wanted[j, i] = value if kind == "symmetric" else -value
    values = range(1, len(places) + 1)
    lines = [f"{i + 1} {j + 1} {v}" for (i, j), v in zip(places, values, strict=True)]
    lines = [str(value) for value in values] if form == "array" else lines
    size = "3 3" if form == "array" else f"3 3 {len(places)}"
    path = tmp_path / "a.mtx"
    path.write_text(head + "\n".join([size, *lines]) + "\n")
    block = matrix_market.matrix_market(path).rows(np.arange(3))
    np.testing.assert_array_equal(block.toarray() if form == "coordinate" else block, wanted)
    if form == "coordinate" and kind != "general":
        path.write_text(head + "3 3 1\n1 2 5\n")
        with pytest.raises(ValueError, match=r"line 3 has an entry at 1, 2, not .*below"):
            matrix_market.matrix_market(path)
        path.write_text(head + "3 3 1\n2 2 5\n")
        assert (refused(matrix_market.matrix_market, path) is None) == (kind == "symmetric")


def test_entries_of_matrix_market_files_need_two_bytes_for_each_number(tmp_path):
    path, head = tmp_path / "a.mtx", "%%MatrixMarket matrix coordinate real general\n9 9 {}\n"
    size = len(head.format(10))
    fitting = (size + 1) // 6  # three numbers each
    for entries, words in ((fitting, "declares"), (fitting + 1, f"holds at most {size} bytes")):
        path.write_text(head.format(f"{entries:02}"))
        told = refused(matrix_market.matrix_market, path)
        assert words in told
        assert ("holds at most" in told) == (entries > fitting)


def test_integers_of_matrix_market_files(tmp_path):
    path = tmp_path / "a.mtx"
    for field, low, high in (
        ("integer", -(2**63), 2**63 - 1),
        ("unsigned-integer", 0, 2**64 - 1),
    ):
        head = f"%%MatrixMarket matrix array {field} general\n2 1\n"
        assert mtx(path, head + f"{low}\n{high}\n") is None
        assert "line 4: " in mtx(path, head + f"1\n{high + 1}\n")
        assert "line 3" in mtx(path, head + f"{low - 1}\n1\n")
        assert "does not fit into 64 bits" in mtx(path, head + f"1\n{'9' * 31}\n")
        assert "instead of an integer" in mtx(path, head + "1\n1.5\n")
    long = b"x" * 41
    assert matrix_market.shown(long) == repr("x" * 40) + "..."
    assert matrix_market.shown(long[1:]) == repr("x" * 40)


# -- sparse matrices --------------------------------------------------------------------------


class WideFile(common.CompressedFile):
    """Two rows with an entry each, the second one in a column beyond the range of int32."""

    def __init__(self):
        self.path = "wide.npz"
        self._begin("csr", (2, 2**31 + 10), np.float32, np.array([0, 1, 2]), 2)

    def _stored(self, name, start, stop):
        whole = np.array([5, 2**31 + 3]) if name == "indices" else np.ones(2, np.float32)
        return whole[start:stop]


def test_indices_beyond_the_range_of_int32():
    assert index_dtype(2**31 - 1) is np.int32
    assert index_dtype(2**31) is np.int64
    (_, block), *others = WideFile().scan()
    assert not others
    assert block.indices.tolist() == [5, 2**31 + 3]
    assert block.indices.dtype == block.indptr.dtype


def test_offsets_and_indices_of_sparse_matrices():
    good = np.array([0, 2, 2, 5])
    assert refused(check_indptr, good, 3, 5) is None
    assert refused(check_indptr, good, 3, 4) == "`indptr` ends at 5, but 4 entries are stored"
    for bad, length in ((good, 2), (good, 4), (good + 1, 3), (np.array([0, 3, 2, 5]), 3)):
        assert refused(check_indptr, bad, length, 9) == "its `indptr` does not ascend from 0"
    assert refused(check_indices, np.array([0, 4]), 5) is None
    assert refused(check_indices, np.array([], int), 0) is None
    words = "it stores an entry at index {}, outside 0..4"
    assert refused(check_indices, np.array([0, 5]), 5) == words.format(5)
    assert refused(check_indices, np.array([-1, 7]), 5) == words.format(-1)


def test_rows_of_compressed_files(tmp_path):
    X = np.arange(60.0).reshape(20, 3) * (np.arange(60).reshape(20, 3) % 4 > 0)
    for kind in (sp.csr_array, sp.csc_array):
        sp.save_npz(tmp_path / "a.npz", kind(X), compressed=False)
        source = as_source(tmp_path / "a.npz")
        for index in ([3], [5, 4, 19, 0, 4], [], [0, 1, 2, 9, 10], [19, 19]):
            found = source.rows(np.array(index, dtype=int))
            assert found.shape == (len(index), 3)
            np.testing.assert_array_equal(found.toarray(), X[index])


# -- bytes and lines --------------------------------------------------------------------------


def test_runs_of_rows():
    found = [(place.tolist(), a, b) for place, a, b in common.runs(np.array([7, 3, 4, 9, 4, 0]))]
    assert found == [([5], 0, 1), ([1, 2, 4], 3, 5), ([0], 7, 8), ([3], 9, 10)]
    assert list(common.runs(np.array([], dtype=int))) == []


def test_members_begin_after_their_own_header(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, extra in (("first", b""), ("n" * 300, b"\x99\x99\x04\x01" + b"e" * 260)):
            info = zipfile.ZipInfo(name)
            info.extra = extra
            archive.writestr(info, name.encode())
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        for info in archive.infolist():
            file.seek(common.member_begin(file, info.header_offset))
            assert file.read(info.file_size) == info.filename.encode()


def test_read_bytes_reads_all_or_says_where_the_file_ends():
    data = os.urandom(3 * MIB + 7)
    assert common.read_bytes(io.BytesIO(data), len(data), "it").tobytes() == data
    assert common.read_bytes(io.BytesIO(data), 5, "it").tobytes() == data[:5]
    assert common.read_bytes(io.BytesIO(b""), 0, "it").size == 0
    with pytest.raises(OSError, match="it ends at byte 9: it was truncated"):
        common.read_bytes(io.BytesIO(b"123456789"), 10, "it")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_whole_lines_of_any_encoding(size, encoding, monkeypatch):
    text = 'ab\n\nc,"d\ne"\n\u0a0a\u000b\nlast'
    data, end = text.encode(encoding), "\n".encode(encoding)
    pieces = list(common.whole_lines(io.BytesIO(data), "path", size * len(end), 1000, end))
    assert b"".join(piece for _, piece in pieces) == data
    place = 0
    for begin, piece in pieces:
        assert begin == place
        place += len(piece)
        if place < len(data):
            assert piece.decode(encoding).endswith("\n")
    assert pieces[-1][1].decode(encoding).endswith("last")
    monkeypatch.setattr(base, "READ_BYTES", size * len(end))
    quoted = list(Lines(encoding, 0, end, None, ",").cut(io.BytesIO(data), "path"))
    assert b"".join(piece for _, piece in quoted) == data
    assert all(piece.decode(encoding).count('"') % 2 == 0 for _, piece in quoted)


def test_line_ends_are_found_in_pieces_that_begin_inside_a_character():
    data, end = "ab\nc".encode("utf-32-le"), "\n".encode("utf-32-le")
    pieces = list(common.whole_lines(io.BytesIO(data), "path", 7, 1000, end))
    assert pieces == [(0, data[:12]), (12, data[12:])]


@pytest.mark.parametrize("size", range(1, 15))
def test_lines_with_several_quotation_marks(size, monkeypatch):
    data = b'a"b""\nc"\n"d"\n""""\n"e\nf\ng"\nh\n'
    whole = [b'a"b""\n', b'c"\n', b'"d"\n', b'""""\n', b'"e\nf\ng"\n', b"h\n"]
    monkeypatch.setattr(base, "READ_BYTES", size)
    lines = Lines("utf-8", 0, b"\n", None, ",")
    found = [piece for _, piece in lines.cut(io.BytesIO(data), "path")]
    assert b"".join(found) == data
    ends = {sum(map(len, whole[:i])) for i in range(len(whole) + 1)}
    assert ends >= {sum(map(len, found[:i])) for i in range(len(found) + 1)}
    if size < 3:
        assert found == whole


def test_a_quotation_may_be_as_long_as_a_line(monkeypatch):
    monkeypatch.setattr(base, "READ_BYTES", 4)
    monkeypatch.setattr(common, "LINE_BYTES", 12)
    lines = Lines("utf-8", 0, b"\n", None, ",")
    data = b'a\n"bcdefg\nhi"\n'
    assert [begin for begin, _ in lines.cut(io.BytesIO(data), "path")] == [0, 2]
    with pytest.raises(ValueError, match="path is not text: over 12 bytes in the line at 2"):
        list(lines.cut(io.BytesIO(data.replace(b"g", b"g\nhijk\n")), "path"))


def test_lines_may_be_as_long_as_the_limit():
    def pieces(data):
        return [begin for begin, _ in common.whole_lines(io.BytesIO(data), "path", 4, 12)]

    assert pieces(b"a" * 12 + b"\n" + b"b" * 12) == [0, 13]
    assert pieces(b"a" * 3 + b"\n" + b"b" * 12) == [0, 4]
    with pytest.raises(ValueError, match="path is not text: over 12 bytes in the line at 4"):
        pieces(b"a" * 3 + b"\n" + b"b" * 13)


def test_plausible_sizes_of_dense_files():
    assert refused(common.check_plausible, "path", (8192, 1024), 8, 0) is None
    assert "declares 67108872 bytes" in refused(common.check_plausible, "path", (8388609, 1), 8, 0)
    assert refused(common.check_plausible, "path", (16_384, 10_000), 1, 10_000) is None
    assert refused(common.check_plausible, "path", (16_384, 10_001), 1, 10_000) is not None


def test_shapes_of_files():
    assert common.check_matrix("path", (1, 2), np.dtype("f4")) == (1, 2)
    for shape in ((0, 2), (2, 0), (-1, 2), (3,), (1, 2, 3), ()):
        assert refused(common.check_matrix, "path", shape, np.dtype("f4")).startswith("path ")


def test_changes_of_files_are_described(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"12345")
    now = common.stamp_of(str(path))
    assert refused(now.check, str(path), "here") is None
    for changes, words in (
        ({"inode": 1, "size": 9}, "was replaced by another file"),
        ({"device": 1}, "was replaced by another file"),
        ({"size": 6}, "was truncated from 6 to 5 bytes"),
        ({"size": 4}, "has grown from 4 to 5 bytes"),
        ({"modified": 1, "changed": 1}, "was written to"),
        ({"changed": 1}, "was changed (contents, permissions or name)"),
    ):
        found = refused(now._replace(**changes).check, str(path), "here")
        assert found == f"{path} {words} since it was opened (seen at here); open it again."
    assert common.stamp_of(str(tmp_path))[:3] == (0, 0, 0)


# -- spreadsheets -----------------------------------------------------------------------------


def test_areas_of_spreadsheets(monkeypatch):
    monkeypatch.setattr(spreadsheets, "MOST_CELLS", 60)
    assert refused(spreadsheets._check_area, "s", 10, 6, 1) is None
    assert "reach to row 61 and column 1" in refused(spreadsheets._check_area, "s", 61, 1, 15)
    assert refused(spreadsheets._check_area, "s", 8, 8, 16) is None
    assert refused(spreadsheets._check_area, "s", 5, 13, 16) is not None


def test_places_of_cells():
    assert [spreadsheets._number(one) for one in (b"", b"A", b"Z", b"AA", b"AZ", b"BA")] == [
        *(0, 1, 26, 27, 52),
        53,
    ]
    assert spreadsheets._place("s", b"ABCDE123") == (b"ABCDE", b"123")
    for bad in (b"ABCDEF1", b"A1B", b"A-1"):
        assert refused(spreadsheets._place, "s", bad) == f"s has a cell at {bad!r}."


def sheet(cells):
    """A sheet of Excel; cells are references, rows are separated by /."""
    rows = "".join(
        "<row>" + "".join(f'<c r="{one}"><v>1</v></c>' for one in row.split()) + "</row>"
        for row in cells.split("/")
    )
    head = f'<worksheet xmlns="{spreadsheets.EXCEL[0]}"><sheetData>'
    return f"{head}{rows}</sheetData></worksheet>".encode()


def test_cells_far_from_the_table(monkeypatch):
    def found(cells, most, strings=b""):
        monkeypatch.setattr(spreadsheets, "MOST_CELLS", most)
        return refused(spreadsheets._check_sheet, "s", sheet(cells), strings)

    # A row or cell without a place follows the one before: two rows and the text before them are
    # added to the last row, and the two cells of a row to the last column.
    assert found("A1 B1/A9 B9", (9 + 3) * (2 + 2)) is None
    assert "s has 4 cells, which reach to row 12 and column 4" in found("A1 B1/A9 B9", 47)
    assert found("A1 B1/A9 C9", 60) is None
    assert found("A1 B1/A9 C9", 59) is not None
    assert "cells of rows [1, 2] in one row" in found("A1 B2", 1000)
    assert found("A1 B1/A2 B2", 4 * 4 * 4) is None


def test_texts_of_spreadsheets(monkeypatch):
    strings = b"<sst><si>" + b"t" * 100 + b"</si><si>u</si></sst>"
    first = strings.index(b"</si>") + 5
    second = strings.index(b"</si>", first) + 5 - first
    cells = b'<row><c t="s"><v>0</v></c><c t="s"><v>1</v></c><c t="s"><v>7</v></c></row>'
    part = sheet("A1").replace(b"</sheetData>", cells + b"</sheetData>")
    used = first + 2 * second  # the number 1 of cell A1 counts as a text, too
    monkeypatch.setattr(spreadsheets, "TEXT_BYTES", used)
    assert refused(spreadsheets._check_sheet, "s", part, strings) is None
    monkeypatch.setattr(spreadsheets, "TEXT_BYTES", used - 1)
    assert "over 2 GB of text" in refused(spreadsheets._check_sheet, "s", part, strings)


def ods(rows):
    """Contents of an OpenDocument, rows given as XML."""
    names = "".join(
        f' xmlns:{name}="{spreadsheets.OPEN}{name}:1.0"' for name in ("office", "table", "text")
    )
    return (
        f"<office:document-content{names}><office:body><office:spreadsheet><table:table>{rows}"
        "</table:table></office:spreadsheet></office:body></office:document-content>"
    ).encode()


def test_extents_of_open_documents():
    cell = '<table:table-cell office:value-type="float" office:value="1"/>'
    gap = '<table:table-cell table:number-columns-repeated="5"/>'
    rows = f"<table:table-row>{cell}{cell}{gap}</table:table-row>"
    rows += '<table:table-row table:number-rows-repeated="7"><table:table-cell/></table:table-row>'
    rows += f"<table:table-row>{gap}{cell}</table:table-row>"
    rows += f'<table:table-row table:number-rows-repeated="3">{cell}</table:table-row>'
    rows += '<table:table-row table:number-rows-repeated="90">' + gap + "</table:table-row>"
    found = spreadsheets._Extent(ods(rows))
    assert (found.rows, found.width, found.cells) == (12, 6, 2 + 6 + 1)
    half = '<table:table-cell office:value-type="float"/>'
    wrong = f"<table:table-row>{cell}</table:table-row><table:table-row>{half}</table:table-row>"
    words = "row 2 has a cell with half of a number."
    assert refused(spreadsheets._Extent, ods(wrong)) == words
    assert refused(spreadsheets._Extent, b"<a/>") == "it has no table."


def test_workbooks_may_be_as_large_as_the_limit(tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    book.active.append([1, 2.5])
    book.active.append([3, 4])
    path = tmp_path / "a.xlsx"
    book.save(path)
    with zipfile.ZipFile(path) as packed:
        ends = (".xml", ".rels", "mimetype")
        size = sum(one.file_size for one in packed.infolist() if one.filename.endswith(ends))
    for limit, right in ((size, True), (size - 1, False)):
        monkeypatch.setattr(spreadsheets, "FILE_BYTES", limit)
        assert (refused(as_source, path) is None) == right
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("xl/media/picture.png", bytes(10**6))  # which is not unpacked
    monkeypatch.setattr(spreadsheets, "FILE_BYTES", max(size, os.path.getsize(path)))
    np.testing.assert_array_equal(as_source(path).read(0), [[1, 2.5], [3, 4]])
    monkeypatch.setattr(spreadsheets, "FILE_BYTES", os.path.getsize(path) - 1)
    assert "it has over 1 GB" in refused(as_source, path)


# -- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FILES, *KINDS, *BYTE_SOURCES])
def test_messages_on_damaged_files_begin_with_the_path(name, tmp_path):
    """Every file is cut, or filled with other bytes, before it is opened and after."""
    X = (np.arange(60).reshape(20, 3) % 7).astype(np.uint8 if name in BYTE_SOURCES else "f4")
    for number, after in enumerate((False, True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        given = {**FILES, **KINDS, **BYTE_SOURCES}[name](X, folder)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        if not paths or (not isinstance(given, str) and not hasattr(given, "paths")):
            return
        source = as_source(given) if after else None
        for path in paths:
            held = path.read_bytes()
            for damaged in (held[: len(held) // 2], b"\x93NUMPY" + bytes(len(held))):
                path.write_bytes(damaged)
                found = [refused(as_source, given)]
                if after:
                    found.append(refused(list, source.scan()))
                for words in filter(None, found):
                    begin = words.removeprefix("`X`=").lstrip("'\"")
                    assert begin.startswith((str(folder), "File not found", "row ")), words
            path.write_bytes(held)


def test_filters_that_a_chunk_of_hdf5_leaves_out(tmp_path):
    """The mask of a chunk says which filters were not applied, the first one by its lowest bit."""
    X = np.arange(12.0).reshape(4, 3)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset(
            "X", X.shape, X.dtype, chunks=(2, 3), shuffle=True, compression=4
        )
        plain = X[:2].tobytes()
        data.id.write_direct_chunk((0, 0), plain, filter_mask=3)
        data.id.write_direct_chunk((2, 0), zlib.compress(X[2:].tobytes()), filter_mask=1)
    source = as_source(tmp_path / "a.h5")
    np.testing.assert_array_equal(np.concatenate([block for _, block in source.scan()]), X)
