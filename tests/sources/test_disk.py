"""Files of numbers: every format gives what memory gives, and damage is named."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
import zarr
from catalogue import FILES, TEXT_FILES, table_of, vectors_of, write_csv
from environments import ROOT

from primedpca import PrimedPCA, as_source, plan
from primedpca.sources import base
from primedpca.sources.files import common as in_order
from primedpca.sources.files.chunked import strips
from primedpca.sources.files.numpy_files import CompressedMember, RawFileSource
from primedpca.sources.memory.dense import DenseSource

ALL = FILES | TEXT_FILES
TYPES = ["float32", "float64", "uint8", "int16", "float16", ">f4", "bool"]


def numbers(shape=(60, 9), dtype="float32", seed=0):
    values = 40 * abs(np.random.default_rng(seed).standard_normal(shape))
    return (values > 30) if dtype == "bool" else values.astype(dtype)


def values_of(source):
    return np.concatenate([block for _, block in source.scan()], axis=source.axis)


def reference(X, k):
    """Variances and components by LAPACK, in float64."""
    centred = X.astype("float64") - X.astype("float64").mean(axis=0)
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    return (values**2 / (X.shape[0] - 1))[:k], vectors[:k]


# -- every format, type and shape -------------------------------------------------------------


@pytest.mark.parametrize("shape", [(60, 9), (9, 60)], ids=["tall", "wide"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FILES)
def test_numbers_come_back_bit_by_bit(tmp_path, name, dtype, shape):
    if dtype == ">f4" and name.split()[0].rstrip(",") in ("zarr", "parquet", "feather", "arrow"):
        pytest.skip("the format has one byte order, or its writer has")
    X = numbers(shape, dtype)
    source = as_source(FILES[name](X, tmp_path))
    assert source.shape == shape
    assert source.dtype == X.dtype
    assert source.read(0).dtype == X.dtype
    np.testing.assert_array_equal(values_of(source), X)


@pytest.mark.parametrize("shape", [(60, 9), (9, 60)], ids=["tall", "wide"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int16", "float16"])
@pytest.mark.parametrize("name", ALL)
def test_a_fit_from_disk_is_a_fit_from_memory(tmp_path, name, dtype, shape):
    X = numbers(shape, dtype)
    X = X.astype("float64") if name in TEXT_FILES else X
    given = ALL[name](X, tmp_path)
    disk = PrimedPCA(3, random_state=0).fit(given)
    memory = PrimedPCA(3, random_state=0).fit(X)
    source = as_source(given)
    variances, components = reference(X, 3)
    kind = np.dtype(disk.components_.dtype)
    tol = 1e-5 if kind == np.float32 else 1e-10
    np.testing.assert_allclose(disk.explained_variance_, variances, rtol=tol)
    np.testing.assert_allclose(abs((disk.components_ * components).sum(axis=1)), 1, atol=tol)
    np.testing.assert_allclose(disk.transform(given), memory.transform(X), rtol=0, atol=200 * tol)
    if (source.axis, source.blocks) == (as_source(X).axis, as_source(X).blocks):
        assert source.read(0).shape == X.shape
        if source.read(0).flags.c_contiguous:  # sums run in the order that entries lie in
            np.testing.assert_array_equal(disk.components_, memory.components_)
            np.testing.assert_array_equal(disk.explained_variance_, memory.explained_variance_)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ALL)
def test_many_blocks_and_many_threads_give_the_same_bits(tmp_path, name):
    from primedpca.engines import LocalEngine

    X = numbers((200, 12), "float64")
    given = ALL[name](X, tmp_path)
    assert len(as_source(given).blocks) > 1
    first, second = (
        PrimedPCA(3, random_state=0, engine=LocalEngine(workers)).fit(given) for workers in (1, 4)
    )
    np.testing.assert_array_equal(first.components_, second.components_)
    np.testing.assert_allclose(first.explained_variance_, reference(X, 3)[0], rtol=1e-10)


def test_nan_is_found_in_the_last_block(tmp_path):
    X = numbers((50, 4))
    X[-1, -1] = np.nan
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(ValueError, match="NaN"):
        PrimedPCA(2).fit(tmp_path / "a.npy")
    filled = PrimedPCA(2, missing="mean").fit(tmp_path / "a.npy")
    np.testing.assert_allclose(filled.mean_, np.nanmean(X.astype("f8"), axis=0), rtol=1e-5)


# -- paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["with space", "ünïcode 数据", "-dash", "a::b", "dot.ted", "%41"])
@pytest.mark.parametrize(
    "kind", ["npy, rows", "npz", "hdf5", "zarr 3", "parquet", "feather", "csv"]
)
def test_strange_paths(tmp_path, monkeypatch, name, kind):
    X = numbers()
    given = ALL[kind](X, tmp_path)
    path, _, part = given.partition("::")
    moved = f"{name}{Path(path).suffix}"
    shutil.move(path, tmp_path / moved)
    monkeypatch.chdir(tmp_path)
    for given in (moved, tmp_path / moved, f"{moved}::{part}" if part else moved):
        np.testing.assert_array_equal(values_of(as_source(given)), X)


def test_capital_suffixes(tmp_path):
    np.save(tmp_path / "a.npy", numbers())
    (tmp_path / "a.npy").rename(tmp_path / "A.NPY")
    assert as_source(tmp_path / "A.NPY").shape == (60, 9)


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"File not found: `X`='nowhere.h5'"):
        as_source("nowhere.h5::data")
    with pytest.raises(FileNotFoundError, match=r"nowhere.bin"):
        as_source(r"nowhere.bin", shape=(2, 2), dtype="f4")
    (tmp_path / "a.xyz").write_bytes(b"12")
    with pytest.raises(ValueError, match=r"suffix; supported are \.npy"):
        as_source(tmp_path / "a.xyz")
    with pytest.raises(ValueError, match="is a folder without"):
        as_source(tmp_path)
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(ValueError, match=r"empty\.zarr has 0 2-d arrays"):
        as_source(tmp_path / "empty.zarr")
    with pytest.raises(TypeError, match="needs `dtype`"):
        as_source(tmp_path / "a.xyz", shape=(1, 1))
    np.save(tmp_path / "a.npy", numbers())
    with pytest.raises(ValueError, match=r"no parts.*::x"):
        as_source(f"{tmp_path}/a.npy::x")
    with pytest.raises(TypeError, match=r"`strict` for .*a.npy"):
        as_source(tmp_path / "a.npy", strict=True)
    with pytest.raises(TypeError, match="`strict`"):
        as_source(numbers(), strict=True)
    with pytest.raises(TypeError, match="`columns`"):
        as_source(numbers(), columns=["a"])


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["npy, rows", "npz", "hdf5", "parquet", "feather", "csv"])
def test_no_right_to_read(tmp_path, name):
    given = ALL[name](numbers(), tmp_path)
    Path(given.split("::")[0]).chmod(0)
    with pytest.raises(PermissionError):
        as_source(given)


# -- headers that lie -------------------------------------------------------------------------


def npy_with(header, data):
    """A `.npy` file with this text as its header."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


LIES = {
    "too long": "{'descr': '<f4', 'fortran_order': False, 'shape': (1000, 9), }",
    "far too long": "{'descr': '<f4', 'fortran_order': False, 'shape': (10**15, 9), }",
    "huge": "{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999, 9), }",
    "overflows": f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**62}, 16), }}",
    "too short": "{'descr': '<f4', 'fortran_order': False, 'shape': (59, 9), }",
    "negative": "{'descr': '<f4', 'fortran_order': False, 'shape': (-60, -9), }",
    "empty": "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9), }",
    "flat": "{'descr': '<f4', 'fortran_order': False, 'shape': (540,), }",
    "cube": "{'descr': '<f4', 'fortran_order': False, 'shape': (60, 3, 3), }",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (60, 9), }",
    "text": "{'descr': '<U1', 'fortran_order': False, 'shape': (60, 9), }",
    "complex": "{'descr': '<c8', 'fortran_order': False, 'shape': (30, 9), }",
    "records": "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (60, 9), }",
    "code": "__import__('os').getcwd()",
    "nothing": "",
}


@pytest.mark.parametrize("lie", LIES)
def test_an_npy_header_that_lies(tmp_path, lie):
    path = tmp_path / "a.npy"
    path.write_bytes(npy_with(LIES[lie], numbers().tobytes()))
    with pytest.raises((ValueError, TypeError), match=r"a.npy"):
        as_source(path)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(path, "X.npy")
    with pytest.raises((ValueError, TypeError), match=r"a.npz"):
        as_source(f"{tmp_path}/a.npz::X")


def test_an_npy_file_with_more_bytes_than_its_header_says(tmp_path):
    X = numbers((4, 3))
    np.save(tmp_path / "a.npy", X)
    with open(tmp_path / "a.npy", "ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=r"wrong, or pass `exact`=False to `as_source`\.$"):
        as_source(tmp_path / "a.npy")
    np.testing.assert_array_equal(values_of(as_source(tmp_path / "a.npy", exact=False)), X)


def test_raw_binary_is_compared_with_the_file(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(numbers().tobytes())
    np.testing.assert_array_equal(
        values_of(as_source(path, shape=(60, 9), dtype="float32")), numbers()
    )
    with pytest.raises(ValueError, match=r"2160 bytes, but 61 x 9 numbers.*end at byte 2196"):
        as_source(path, shape=(61, 9), dtype="float32")
    # A wrong number of columns would give wrong rows without an error.
    with pytest.raises(ValueError, match=r"60 x 8 numbers.*wrong, or pass `exact`=False"):
        as_source(path, shape=(60, 8), dtype="float32")
    first = values_of(as_source(path, shape=(59, 9), dtype="float32", exact=False))
    np.testing.assert_array_equal(first, numbers()[:59])
    with pytest.raises(ValueError, match="from byte 1 on"):
        as_source(path, shape=(60, 9), dtype="float32", offset=1)
    with pytest.raises(ValueError, match="`order`='K'"):
        as_source(path, shape=(60, 9), dtype="float32", order="K")
    with pytest.raises(ValueError, match="negative"):
        as_source(path, shape=(-60, -9), dtype="float32")
    with pytest.raises(ValueError, match="two dimensions"):
        as_source(path, shape=(540,), dtype="float32")
    for bad in (-1, 48.0, "48", True, None):
        with pytest.raises(ValueError, match=f"`offset`={bad!r} must be a whole number of bytes"):
            as_source(path, shape=(60, 9), dtype="float32", offset=bad)
    for bad in ("nope", "(1,", [1]):
        with pytest.raises(TypeError, match=re.escape(f"`dtype`={bad!r} must be a type of NumPy")):
            as_source(path, shape=(60, 9), dtype=bad)


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("shape", [[10**9, 9], [60, 10**12], [2**62, 2**62], [0, 9], [60], [30, 9]])
@pytest.mark.parametrize("name", ["zarr 3", "zarr 2"])
def test_zarr_metadata_that_lie(tmp_path, name, shape):
    given = FILES[name](numbers(), tmp_path)
    edit_json(Path(given) / ("zarr.json" if name == "zarr 3" else ".zarray"), shape=shape)
    with pytest.raises(ValueError, match=r"a.zarr"):
        as_source(given)


def test_zarr_metadata_without_a_chunk_size_are_named(tmp_path):
    given = FILES["zarr 3"](numbers(), tmp_path)
    edit_json(Path(given) / "zarr.json", chunk_grid={"name": "regular", "configuration": {}})
    with pytest.raises(ValueError, match=r"a\.zarr.* is damaged or cannot be read"):
        as_source(given)


# -- files that change ------------------------------------------------------------------------

IN_PLACE = ["npy, rows", "raw, rows", "npz", "npz, compressed, rows", "parquet", "feather", "csv"]


def change(path, how):
    whole = path.read_bytes()
    if how == "truncated":
        os.truncate(path, len(whole) // 2)
    elif how == "grown":
        with open(path, "ab") as file:
            file.write(b"more")
    elif how == "replaced":
        other = path.with_name("other")
        other.write_bytes(whole)
        os.replace(other, path)
    elif how == "written to":
        os.utime(path, ns=(0, 1))
    else:
        path.unlink()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("how", ["truncated", "grown", "replaced", "written to", "not found"])
@pytest.mark.parametrize("name", [*IN_PLACE, "hdf5", "hdf5, chunks"])
def test_a_file_that_changes_is_named(tmp_path, name, how):
    source = as_source(ALL[name](numbers(), tmp_path))
    path = Path(source.path)
    running = source.scan()
    next(running)
    change(path, how)
    with pytest.raises(OSError, match=rf"(?is)^(?=.*{how}).*{path.name}"):
        list(running)
    with pytest.raises(OSError, match=path.name):
        PrimedPCA(2).fit(source)


@pytest.mark.parametrize("how", ["truncated", "grown", "replaced", "written to", "not found"])
@pytest.mark.parametrize("name", ["zarr 3", "zarr 3, shards", "zarr 2"])
def test_a_chunk_that_changes_is_named(tmp_path, name, how):
    given = FILES[name](numbers(), tmp_path)
    source = as_source(given)
    chunk = Path(given) / max(source._stamps)
    change(chunk, how)
    with pytest.raises(OSError, match=rf"(?i)^(?=.*{how}).*{chunk}"):
        values_of(source)


# -- npz --------------------------------------------------------------------------------------


def test_npz_members(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=numbers(), y=np.arange(60), Z=numbers(seed=1))
    with pytest.raises(ValueError, match=r"2 2-d arrays \(X, Z\)"):
        as_source(path)
    np.testing.assert_array_equal(values_of(as_source(f"{path}::Z")), numbers(seed=1))
    assert isinstance(as_source(f"{path}::Z"), RawFileSource)
    with pytest.raises(ValueError, match="no array 'Y'; it has X, Z, y"):
        as_source(f"{path}::Y")
    with pytest.raises(ValueError, match=r"y holds an array of shape \(60,\)"):
        as_source(f"{path}::y")


def test_a_small_compressed_member_is_held(tmp_path):
    X = numbers()
    np.savez_compressed(tmp_path / "a.npz", X)
    assert isinstance(as_source(tmp_path / "a.npz"), DenseSource)
    for cache in (0, "1KB"):
        source = as_source(tmp_path / "a.npz", cache=cache)
        assert isinstance(source, CompressedMember)
        np.testing.assert_array_equal(values_of(source), X)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_flipped_byte_in_an_npz_is_caught(tmp_path, compressed):
    path = tmp_path / "a.npz"
    X = numbers((600, 9))
    (np.savez_compressed if compressed else np.savez)(path, X)
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)
    for cache in (0, "1GB"):
        with pytest.raises((OSError, ValueError), match=r"a\.npz"):
            values_of(as_source(path, cache=cache))
    if not compressed:
        assert (values_of(as_source(path, verify=False)) != X).sum() == 1


@pytest.mark.usefixtures("small_blocks")
def test_blocks_in_order_are_decoded_once(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", numbers((300, 9)))
    source = as_source(tmp_path / "a.npz", cache=0)
    begun, from_the_front = [], source._from
    source._from = lambda i: begun.append(i) or from_the_front(i)
    order = [1, 0, 3, 2, *range(4, len(source.blocks))]  # as two threads may ask
    for number, some in enumerate((order, sorted(order)), 1):
        for i in some:
            rows = slice(*source.blocks[i])
            np.testing.assert_array_equal(source.read(i), numbers((300, 9))[rows])
        assert len(begun) == number
    for i in reversed(order[: in_order.AHEAD]):
        source.read(i)
    assert len(begun) > 2


# -- chunks -----------------------------------------------------------------------------------


def test_strips_follow_the_chunks(monkeypatch):
    monkeypatch.setattr(base, "READ_BYTES", 1000)
    assert strips((100, 10), (10, 10), 8)[0] == 0
    assert strips((100, 10), (100, 1), 8) == (1, tuple((j, j + 1) for j in range(10)))
    for shape, chunks in [((100, 10), (7, 4)), ((10, 100), (3, 9)), ((50, 50), (50, 7))]:
        axis, cut = strips(shape, chunks, 8)
        assert cut[0][0] == 0
        assert cut[-1][1] == shape[axis]
        for (_, stop), (start, _) in pairwise(cut):
            assert stop == start
            assert start % chunks[axis] == 0  # so no chunk belongs to two strips


@pytest.mark.usefixtures("small_blocks")
def test_every_zarr_chunk_is_read_once_a_pass(tmp_path):
    X = numbers((64, 12))
    array = zarr.create_array(tmp_path / "a.zarr", shape=X.shape, chunks=(8, 4), dtype=X.dtype)
    array[...] = X
    asked = []

    class Counting(zarr.storage.LocalStore):
        async def get(self, key, *args, **kwargs):
            asked.append(key)
            return await super().get(key, *args, **kwargs)

    source = as_source(zarr.open_array(Counting(tmp_path / "a.zarr", read_only=True), mode="r"))
    asked.clear()
    np.testing.assert_array_equal(values_of(source), X)
    assert sorted(asked) == sorted({f"c/{i}/{j}" for i in range(8) for j in range(3)})


def test_absent_chunks_are_counted(tmp_path):
    X = numbers((60, 9))
    X[:20] = 0
    array = zarr.create_array(tmp_path / "a.zarr", shape=X.shape, chunks=(10, 9), dtype=X.dtype)
    array[...] = X
    with h5py.File(tmp_path / "a.h5", "w") as file:
        held = file.create_dataset("X", X.shape, X.dtype, chunks=(10, 9))
        held[20:] = X[20:]
    for path in (tmp_path / "a.zarr", tmp_path / "a.h5"):
        source = as_source(path)
        assert source.missing_chunks == 2
        np.testing.assert_array_equal(values_of(source), X)
        with pytest.raises(ValueError, match=r"lacks 2 chunks.*reads 0"):
            as_source(path, strict=True)
        assert "2 chunks are absent and read as the fill value" in str(plan(source, 1))


@pytest.mark.parametrize("name", ["a.zarr", "a.zarr.zip"])
@pytest.mark.parametrize("place", ["start", "end"])
def test_chunks_that_shards_lack(name, place, tmp_path):
    X, shards = numbers((85, 23)), {"shape": (40, 20), "index_location": place}
    for start, lacking in ((70, 0), (40, 9)):
        store = tmp_path / f"{start}{name}"
        opened = zarr.storage.ZipStore(store, mode="w") if "zip" in name else store
        array = zarr.create_array(
            opened, shape=X.shape, chunks=(10, 10), shards=shards, dtype=X.dtype
        )
        # Written at once, as the members of an archive cannot be replaced.
        array[...] = np.where(
            (np.arange(85) < start)[:, None] | (np.arange(85) >= 70)[:, None], X, 0
        )
        if "zip" in name:
            opened.close()
        assert as_source(store).missing_chunks == 0
        if lacking:
            with pytest.raises(ValueError, match=f"lacks {lacking} chunks.*reads 0"):
                as_source(store, strict=True)
        else:
            assert as_source(store, strict=True).shape == X.shape


def test_counts_of_10x_genomics_in_hdf5(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("barcodes", "data", "indices", "indptr", "shape"):
            file[f"matrix/{name}"] = [1, 2]
    for name in ("a.h5", "a.h5::matrix"):
        with pytest.raises(
            ValueError, match=r"a\.h5 has counts of 10x.*scanpy.read_10x_h5\('.*a.h5"
        ):
            as_source(tmp_path / name)


def flip_stored(path, wanted):
    """Flip a bit of the stored number ``wanted``."""
    held = path.read_bytes()
    place = held.index(wanted.tobytes())
    path.write_bytes(held[: place + 1] + bytes([held[place + 1] ^ 1]) + held[place + 2 :])


def test_checksums_are_compared(tmp_path):
    X = numbers((60, 9), "float64")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(10, 9), fletcher32=True)
    flip_stored(tmp_path / "a.h5", X[33, 4])
    with pytest.raises(OSError, match=r"a\.h5 .*block 0, rows 0:60"):
        values_of(as_source(tmp_path / "a.h5"))
    from zarr.codecs import Crc32cCodec

    array = zarr.create_array(
        tmp_path / "a.zarr", shape=X.shape, chunks=(10, 9), dtype=X.dtype, compressors=Crc32cCodec()
    )
    array[...] = X
    flip_stored(tmp_path / "a.zarr" / "c" / "3" / "0", X[33, 4])
    with pytest.raises(ValueError, match=r"a\.zarr .*block 0, rows 0:60.*checksum"):
        values_of(as_source(tmp_path / "a.zarr"))
    parquet.write_table(
        table_of(X), tmp_path / "a.parquet", write_page_checksum=True,
        compression="none", use_dictionary=False,
    )  # fmt: skip
    flip_stored(tmp_path / "a.parquet", X[33, 4])
    with pytest.raises(OSError, match=r"a\.parquet .*block 0, rows 0:60.*CRC"):
        values_of(as_source(tmp_path / "a.parquet"))


def test_objects_of_the_libraries(tmp_path):
    X = numbers()
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("deep/X", shape=X.shape, chunks=(7, 9), dtype=X.dtype)[...] = X
    np.testing.assert_array_equal(values_of(as_source(group["deep/X"])), X)
    np.testing.assert_array_equal(values_of(as_source(f"{tmp_path}/g.zarr::deep/X")), X)
    memory = zarr.create_array({}, shape=X.shape, chunks=(7, 9), dtype=X.dtype)
    memory[...] = X
    np.testing.assert_array_equal(values_of(as_source(memory)), X)
    with zarr.storage.ZipStore(tmp_path / "z.zarr.zip", mode="w") as store:
        zarr.create_array(store, shape=X.shape, chunks=(7, 9), dtype=X.dtype)[...] = X
    np.testing.assert_array_equal(values_of(as_source(tmp_path / "z.zarr.zip")), X)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"], file["y"] = X, X[:, 0]
        np.testing.assert_array_equal(values_of(as_source(file["X"])), X)
        source = as_source(file["X"])
        with pytest.raises(ValueError, match="two dimensions"):
            as_source(file["y"])
    with pytest.raises(ValueError, match="closed"):
        source.read(0)
    np.testing.assert_array_equal(values_of(as_source(tmp_path / "a.h5")), X)
    with pytest.raises(ValueError, match="no dataset 'Z'; it has X, y"):
        as_source(f"{tmp_path}/a.h5::Z")
    with pytest.raises(ValueError, match="no Zarr array 'Z'"):
        as_source(f"{tmp_path}/g.zarr::Z")


# -- tables -----------------------------------------------------------------------------------

WRITE = {
    "parquet": lambda table, path: parquet.write_table(table, path),
    "feather": lambda table, path: feather.write_feather(table, str(path)),
    "csv": lambda table, path: pa.csv.write_csv(table, path),
}


@pytest.fixture(params=WRITE)
def written(request, tmp_path):
    """A function that writes a table in one of the formats, and its path."""
    import pyarrow.csv  # noqa: F401

    path = tmp_path / f"a.{request.param}"
    return lambda table: WRITE[request.param](table, path) or path


def test_names_and_labels_are_kept_and_text_is_refused(written):
    X = numbers((20, 3))
    names, labels = [f"row {i}" for i in range(20)], ["a", "b"] * 10
    path = written(table_of(X, name=names, kind=labels, more=names))
    with pytest.raises(ValueError, match=r"3 columns that are not all numbers: 'name' \("):
        as_source(path)
    with pytest.raises(ValueError, match="a column that is not all numbers: 'more'"):
        as_source(path, id_column="name", label_column="kind")
    source = as_source(path, id_column="name", label_column="kind", exclude="more")
    np.testing.assert_array_equal(values_of(source).astype("f4"), X)
    assert source.column_names == ("c0", "c1", "c2")
    assert source.row_names.tolist() == names
    assert source.labels.tolist() == labels
    chosen = as_source(path, columns=["c2", "c0"])
    np.testing.assert_array_equal(values_of(chosen).astype("f4"), X[:, [2, 0]])
    assert chosen.row_names is None
    for wrong in (["c7"], ["c0", "c0"], []):
        with pytest.raises(ValueError, match=path.name):
            as_source(path, columns=wrong)
    with pytest.raises(ValueError, match="no column 'nobody'; it has 'c0'"):
        as_source(path, id_column="nobody")
    with pytest.raises(TypeError, match="`columns`"):
        as_source(path, columns=[0])


def test_nulls_become_nan(written):
    table = pa.table({"a": [1, None, 3], "b": [0.5, 1.5, None], "c": [1.0, 2.0, 3.0]})
    source = as_source(written(table))
    nan = np.nan
    np.testing.assert_array_equal(values_of(source), [[1, 0.5, 1], [nan, 1.5, 2], [3, nan, 3]])
    with pytest.raises(ValueError, match="NaN"):
        PrimedPCA(1).fit(source)
    assert PrimedPCA(1, missing="mean").fit(source).mean_.tolist() == [2, 1, 2]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_vectors(tmp_path, kind):
    X = numbers((20, 3))
    path = tmp_path / f"a.{kind}"
    write = WRITE["parquet" if kind == "parquet" else "feather"]
    rows = [*X.tolist()[:19], None]
    write(pa.table({"v": pa.array(rows, pa.list_(pa.float32()))}), path)
    found = values_of(as_source(path))
    np.testing.assert_array_equal(found[:19], X[:19])
    assert np.isnan(found[19]).all()
    write(pa.table({"v": pa.array([[1.0, 2.0], [1.0]])}), path)
    with pytest.raises(ValueError, match=r"row 1 of .*'v' has length 1, not 2"):
        values_of(as_source(path))
    write(vectors_of(X, name=[f"r{i}" for i in range(20)]), path)
    with pytest.raises(ValueError, match="vectors must be the only one"):
        as_source(path)
    source = as_source(path, id_column="name")
    np.testing.assert_array_equal(values_of(source), X)
    assert source.row_names[3] == "r3"
    write(pa.table({"v": pa.array([[1, 2], [3, None]], pa.list_(pa.uint8()))}), path)
    with pytest.raises(ValueError, match=r"1 nulls.*uint8"):
        values_of(as_source(path))


def test_decimals_and_mixed_columns(tmp_path):
    from decimal import Decimal

    table = pa.table({"a": [Decimal("1.5"), Decimal("2.25")], "b": [True, False], "c": [1, 2]})
    parquet.write_table(table, tmp_path / "a.parquet")
    source = as_source(tmp_path / "a.parquet")
    np.testing.assert_array_equal(values_of(source), [[1.5, 1, 1], [2.25, 0, 2]])


def test_checksums_of_hdf5_are_known_and_used(tmp_path):
    X = numbers((40, 5))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(10, 5), fletcher32=True)
    np.testing.assert_array_equal(values_of(as_source(tmp_path / "a.h5")), X)
    flip_stored(tmp_path / "a.h5", X[33, 4])
    with pytest.raises(OSError, match=r"a\.h5"):
        values_of(as_source(tmp_path / "a.h5"))


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_a_table_of_one_column(tmp_path, kind):
    X = numbers((12, 1))
    WRITE[kind](table_of(X), tmp_path / f"a.{kind}")
    np.testing.assert_array_equal(values_of(as_source(tmp_path / f"a.{kind}")), X)


def test_small_row_groups_are_read_together_up_to_the_size_of_a_block(tmp_path, monkeypatch):
    X = numbers((60, 4))
    parquet.write_table(table_of(X), tmp_path / "a.parquet", row_group_size=5)
    monkeypatch.setattr(base, "READ_BYTES", 12 * 4 * X.itemsize)  # 12 rows
    source = as_source(tmp_path / "a.parquet")
    assert [stop - start for start, stop in source.blocks] == [10] * 6
    np.testing.assert_array_equal(values_of(source), X)


def test_a_folder_with_tables_only_in_its_subfolders(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    (tmp_path / "sales" / "k=1").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1.0, 2.0], "b": [3.0, 5.0]}), tmp_path / "sales/k=1/x.parquet")
    with pytest.raises(ValueError, match=r"only in subfolders, such as 'k=1'.*data frame") as told:
        as_source(tmp_path / "sales")
    assert "CSV" not in str(told.value)
    assert as_source(tmp_path / "sales" / "k=1").shape == (2, 2)
    (tmp_path / "empty" / "more").mkdir(parents=True)
    with pytest.raises(ValueError, match="empty is a folder without images"):
        as_source(tmp_path / "empty")


def test_folders_of_tables(tmp_path):
    X = numbers((30, 3))
    parquet.write_table(table_of(X[:10], id=["x"] * 10), tmp_path / "1.parquet")
    parquet.write_table(table_of(X[10:], id=["y"] * 20), tmp_path / "2.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    source = as_source(tmp_path, id_column="id")
    np.testing.assert_array_equal(values_of(source), X)
    assert source.row_names.tolist() == ["x"] * 10 + ["y"] * 20
    for strange, words in [
        (table_of(X.astype("f8"), id=["z"] * 30), "double in column 'c0', but .*1.parquet .*float"),
        (table_of(X[:, :2], id=["z"] * 30), "3.parquet has no column 'c2'"),
        (table_of(X, id=["z"] * 30, extra=X[:, 0]), "has a column 'extra'"),
    ]:
        parquet.write_table(strange, tmp_path / "3.parquet")
        with pytest.raises(ValueError, match=words):
            as_source(tmp_path, id_column="id")
    (tmp_path / "3.parquet").unlink()
    feather.write_feather(table_of(X), str(tmp_path / "3.feather"))
    with pytest.raises(ValueError, match="several kinds of tables"):
        as_source(tmp_path)
    (tmp_path / "3.feather").unlink()
    (tmp_path / "3.csv").write_text("c0,c1,c2\n1,2,3\n")
    with pytest.raises(ValueError, match=r"several kinds of tables: \.csv, \.parquet"):
        as_source(tmp_path)
    (tmp_path / "3.csv").unlink()
    for folder in ("more", "_delta_log"):
        (tmp_path / folder).mkdir()
    (tmp_path / "_delta_log" / "10.checkpoint.parquet").write_text("")
    assert as_source(tmp_path, id_column="id").shape == (30, 3)
    parquet.write_table(table_of(X, id=["z"] * 30), tmp_path / "more" / "4.parquet")
    with pytest.raises(ValueError, match="more data in its subfolder 'more'"):
        as_source(tmp_path, id_column="id")


def test_a_column_that_is_empty_in_the_first_file_only(tmp_path):
    # pandas stores a column of None as one without a type.
    empty = pa.table({"a": [1.0, 2.0], "b": pa.nulls(2)})
    parquet.write_table(empty, tmp_path / "1.parquet")
    parquet.write_table(pa.table({"a": [5.0], "b": [3]}), tmp_path / "2.parquet")
    for options in ({}, {"numeric_only": True}):
        words = r"2.parquet holds int64 in column 'b', but .*1.parquet holds null"
        with pytest.warns(UserWarning, match="no values"), pytest.raises(ValueError, match=words):
            as_source(tmp_path, **options)
    assert as_source(tmp_path, exclude="b").shape == (3, 1)
    parquet.write_table(empty, tmp_path / "2.parquet")
    with pytest.warns(UserWarning, match=r"'b' \(no values\)"):
        assert as_source(tmp_path).shape == (4, 1)


def test_data_two_levels_below_a_folder_of_tables(tmp_path):
    X = numbers((30, 3))
    parquet.write_table(table_of(X), tmp_path / "1.parquet")
    deep = tmp_path / "sub" / "k=1"
    for folder in (deep, tmp_path / "_delta_log" / "x", tmp_path / "a.zarr" / "x"):
        folder.mkdir(parents=True)
        (folder / ".hidden.parquet").write_text("")
        (folder / "c.txt").write_text("")
    for skipped in ("_delta_log", "a.zarr"):
        (tmp_path / skipped / "x" / "c.parquet").write_text("")
    deep.joinpath("up").symlink_to(tmp_path, target_is_directory=True)
    deep.joinpath("self").symlink_to(deep, target_is_directory=True)
    assert as_source(tmp_path).shape == (30, 3)
    parquet.write_table(table_of(X), deep / "c.parquet")
    told = re.escape(repr(os.path.join("sub", "k=1")))
    with pytest.raises(ValueError, match=f"more data in its subfolder {told}"):
        as_source(tmp_path)


def test_csv_without_names_and_with_tabs(tmp_path):
    X = numbers((20, 3), "float64")
    np.savetxt(tmp_path / "a.tsv", X, delimiter="\t", fmt="%.17g")
    source = as_source(tmp_path / "a.tsv", header=False)
    np.testing.assert_array_equal(values_of(source), X)
    assert source.column_names == ("f0", "f1", "f2")
    import gzip

    with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
        file.write(Path(write_csv(X, tmp_path / "a.csv")).read_bytes())
    np.testing.assert_array_equal(values_of(as_source(tmp_path / "a.csv.gz")), X)


NUMBERS_FIRST = {
    "a row": "1.5,2.5\n3,4\n5,7\n",
    "nearly counted": "0,1,3\n1,2,2\n2,2,2\n",
    "too few to be counted": "0,1\n1,2\n2,2\n",
    "missing": "1.5,,2\n1,2,2\n2,2,2\n",
    "not a number": "nan,2.5\n3,4\n5,7\n",
    "with a date": "2020-01-01,2.5,1\n2020-01-02,3,4\n2020-01-03,5,7\n",
    "the only one": "1.5,2.5\n",
    "not available": "5.1,NA,1.4\n4.9,3.0,1.4\n5,7,2\n",
    "true and false": "True,FALSE\nfalse,true\ntrue,false\n",
    "a minus of typesetters": "\u22125,6.5\n3,4\n5,7\n",
}


@pytest.mark.parametrize("text", NUMBERS_FIRST.values(), ids=NUMBERS_FIRST)
def test_a_row_of_numbers_is_not_taken_for_names(text, tmp_path):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="`header`=False if it is a row"):
        as_source(tmp_path / "a.csv")


NOTATIONS_FIRST = {
    "decimal commas": ("1,5;2,5\n3,5;4,1\n5,5;6,7\n", {"decimal": ","}),
    "accounts": ("(5);$6\n7;8-\n9;1\n", {"strip": "$"}),
    "thousands": ("1'234;5\n1'235;6\n1'236;5\n", {"thousands": "'"}),
    "gaps": ("5.1;gone\n4.9;3.0\n5;7\n", {"na_values": "gone"}),
}


@pytest.mark.parametrize(("text", "options"), NOTATIONS_FIRST.values(), ids=NOTATIONS_FIRST)
def test_a_row_in_a_notation_is_not_taken_for_names(text, options, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    options = options | {"delimiter": ";"}
    with pytest.raises(ValueError, match="`header`=False if it is a row"):
        as_source(tmp_path / "a.csv", **options)
    assert as_source(tmp_path / "a.csv", header=False, **options).shape == (3, 2)


NAMES = {
    "counted from 0": ("0,1,2", 3),
    "counted from 1": ("1,2,3", 3),
    "with an index": (",0,1,2", 4),
    "some are words": ("age,1990,1991", 3),
    "of a grid": ("1_1,1_2,2_1", 3),
    "some are marks": ("NA,True,b", 3),
    "all are marks": ("NA,null,None", 3),
}


@pytest.mark.parametrize(("names", "d"), NAMES.values(), ids=NAMES)
def test_names_that_are_numbers(names, d, tmp_path):
    X = numbers((20, d), "float64")
    np.savetxt(tmp_path / "a.csv", X, delimiter=",", fmt="%.17g", header=names, comments="")
    source = as_source(tmp_path / "a.csv")
    assert source.column_names == tuple(name or "Unnamed: 0" for name in names.split(","))
    np.testing.assert_array_equal(values_of(source), X)


def test_names_that_are_said_to_be_names(tmp_path):
    (tmp_path / "a.csv").write_text("1990,1991\n3,4\n5,7\n")
    source = as_source(tmp_path / "a.csv", header=True)
    assert source.column_names == ("1990", "1991")
    assert source.shape == (2, 2)


@pytest.mark.usefixtures("small_blocks")
def test_a_word_late_in_a_csv_is_named(tmp_path):
    path = tmp_path / "a.csv"
    write_csv(numbers((50, 3), "float64"), path)
    path.write_text(path.read_text() + "\n\n1.0,word,2.0\n")
    with pytest.raises(ValueError, match=r"a\.csv .*'c1' \('word' in row 51\)"):
        as_source(path)
    path.write_text("a,b\n")
    with pytest.raises(ValueError, match=r"a\.csv has no rows below its column names"):
        as_source(path)
    with pytest.raises(ValueError, match=r"a\.csv has no line left to read with `skip_rows`=9\."):
        as_source(path, skip_rows=9)
    with pytest.raises(ValueError, match=r"`comment`='a'\. Correct the option"):
        as_source(path, comment="a")
    path.write_text("")
    with pytest.raises(ValueError, match=r"a\.csv is empty"):
        as_source(path)


def test_columns_of_frames():
    import pandas as pd
    import polars as pl

    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        frame = make({"a": [1.0, 2.0], "b": ["x", "y"], "c": [3.0, 4.0]})
        source = as_source(frame, columns=["c", "a"])
        np.testing.assert_array_equal(values_of(source), [[3, 1], [4, 2]])
        with pytest.raises(ValueError, match="no column 'd'"):
            as_source(frame, columns=["d"])


@pytest.mark.parametrize(
    ("library", "name"),
    [("h5py", "hdf5"), ("zarr", "zarr 3"), ("pyarrow", "parquet"), ("pyarrow", "csv")],
)
def test_a_missing_library_names_the_extra(tmp_path, library, name):
    given = ALL[name](numbers(), tmp_path)
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        f"from primedpca import as_source\nas_source({given!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert f"needs {library}: pip install 'primedpca[disk]'" in done.stderr


def test_a_parquet_footer_with_another_type_is_refused_without_a_crash(tmp_path):
    """Asked for the statistics of such a column, pyarrow ends the process."""
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": [1.0, 2.0, 3.0]}), path)
    data = path.read_bytes()
    place = data.rindex(b"\x15\x0a\x19")  # of a column: field 1, DOUBLE; field 2, a list
    code = (
        "import sys, pathlib\nfrom primedpca import as_source\n"
        "path, place = pathlib.Path(sys.argv[1]), int(sys.argv[2])\n"
        "data = bytearray(path.read_bytes())\n"
        "for kind in range(256):\n"
        "    data[place + 1] = kind\n"
        "    path.write_bytes(data)\n"
        "    try:\n"
        "        [block for _, block in as_source(path).scan()]\n"
        "    except (OSError, ValueError) as error:\n"
        "        assert str(path) in str(error), error\n"
        "    else:\n"
        "        assert kind == 10, kind\n"
    )
    command = [sys.executable, "-c", code, str(path), str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-1000:]


# -- the damage matrix ------------------------------------------------------------------------

DAMAGED = [
    name
    for name in ALL
    if not name.startswith("raw") and "columns" not in name and "folder" not in name
]


def run_damage(kind, folder, *flips):
    command = [sys.executable, str(ROOT / "tests" / "damage.py"), kind, str(folder)]
    done = subprocess.run([*command, *map(str, flips)], capture_output=True, text=True, timeout=600)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{lines[-1:]} {done.stderr[-2000:]}"
    found = json.loads(lines[-1])
    assert found["bad"] == []
    assert found["counts"]["error"] > 50
    assert found["grown_mb"] < 100
    return found["counts"]


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["npy, rows", "npz", "hdf5, chunks", "zarr 3", "parquet"])
def test_damage(tmp_path, kind):
    run_damage(kind, tmp_path, 0xFF)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_of_every_kind(tmp_path, kind):
    run_damage(kind, tmp_path, 0x01, 0x08, 0x40, 0xFF)


# -- attributes of the CF conventions -----------------------------------------------------------


def packed(kind, folder, attributes, dtype):
    """An array with attributes, in a store of its own."""
    x = np.arange(60).reshape(20, 3).astype(dtype)
    if kind == "hdf5":
        path = folder / "x.h5"
        with h5py.File(path, "w") as file:
            file["x"] = x
            file["x"].attrs.update(attributes)
        return path
    path = folder / "x.zarr"
    version = int(kind[-1])
    array = zarr.create_array(str(path), data=x, zarr_format=version)
    array.attrs.update(attributes)
    return path


@pytest.mark.parametrize("kind", ["hdf5", "zarr2", "zarr3"])
@pytest.mark.parametrize(
    ("attributes", "dtype"),
    [
        ({"scale_factor": 0.01}, "i2"),
        ({"scale_factor": 1.0, "add_offset": 273.15}, "i2"),
        ({"_FillValue": -9999}, "i2"),
        ({"missing_value": [-9999.0, -999.0]}, "f8"),
        ({"_FillValue": "many"}, "f8"),
        ({"_Unsigned": "true"}, "i1"),
        ({"_Unsigned": "false"}, "u1"),
    ],
)
def test_numbers_that_attributes_replace_are_refused(kind, attributes, dtype, tmp_path):
    path = packed(kind, tmp_path, attributes, dtype)
    name, value = [*attributes.items()][-1]
    with pytest.raises(ValueError, match=f"the attribute {name}=.*xarray.open_dataset") as refused:
        as_source(path)
    assert "damaged" not in str(refused.value)
    assert str(np.ravel(value)[0]) in str(refused.value)


@pytest.mark.parametrize("kind", ["hdf5", "zarr2", "zarr3"])
def test_attributes_that_replace_nothing_are_let_be(kind, tmp_path):
    plain = {"scale_factor": 1.0, "add_offset": 0, "units": "K", "missing_value": float("nan")}
    plain["_Unsigned"] = "false"
    if kind != "hdf5":
        plain["_FillValue"] = "AAAAAAAA+H8="  # NaN, as xarray writes it
        del plain["missing_value"]
    path = packed(kind, tmp_path, plain, "f8")
    assert as_source(path).shape == (20, 3)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_missing_values_that_xarray_writes_as_a_number_are_refused(dtype, zarr_format, tmp_path):
    xr = pytest.importorskip("xarray")
    x = np.arange(60, dtype=dtype).reshape(20, 3)
    field = xr.DataArray(x, dims=("time", "point"), name="x").to_dataset()
    options = {"zarr_format": zarr_format, "consolidated": False}
    field.to_zarr(tmp_path / "plain.zarr", **options)
    np.testing.assert_array_equal(as_source(f"{tmp_path / 'plain.zarr'}::x").read(0), x)
    encoding = {"x": {"_FillValue": np.dtype(dtype).type(-999)}}
    with_gap = field.where(field["x"] != 4).fillna(-999).astype(dtype)
    with_gap.to_zarr(tmp_path / "gaps.zarr", encoding=encoding, **options)
    with pytest.raises(ValueError, match=r"(_FillValue|fill_value)=.*xarray.open_zarr"):
        as_source(f"{tmp_path / 'gaps.zarr'}::x")
    for masked, value in ((True, np.nan), (False, -999)):
        opened = xr.open_zarr(tmp_path / "gaps.zarr", mask_and_scale=masked, consolidated=False)
        np.testing.assert_array_equal(as_source(opened["x"]).read(0)[1, 1], value)


def test_a_fill_value_of_zarr_alone_is_no_missing_value(tmp_path):
    zarr = pytest.importorskip("zarr")
    x = np.arange(60.0).reshape(20, 3)
    zarr.create_array(str(tmp_path / "x.zarr"), data=x, zarr_format=2, fill_value=-999.0)
    np.testing.assert_array_equal(as_source(tmp_path / "x.zarr").read(0), x)


def test_what_xarray_writes_is_read_or_refused(tmp_path):
    xr = pytest.importorskip("xarray")
    x = np.arange(60.0).reshape(20, 3)
    field = xr.DataArray(x, dims=("time", "point"), name="x").to_dataset()
    field.to_zarr(tmp_path / "plain.zarr", consolidated=False)
    assert as_source(f"{tmp_path / 'plain.zarr'}::x").shape == (20, 3)
    encoding = {"x": {"dtype": "int16", "scale_factor": 0.1, "_FillValue": -9999}}
    field.to_zarr(tmp_path / "packed.zarr", encoding=encoding, consolidated=False)
    with pytest.raises(ValueError, match="scale_factor"):
        as_source(f"{tmp_path / 'packed.zarr'}::x")
    opened = xr.open_zarr(tmp_path / "packed.zarr", consolidated=False)["x"]
    np.testing.assert_allclose(as_source(opened).read(0), x)


def test_numbers_narrower_in_the_file_than_in_memory(tmp_path):
    """HDF5 describes bfloat16 as a float of its own, which h5py reads as float32."""
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    X = np.arange(60, dtype=np.float32).reshape(12, 5)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple(X.shape))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, X)
    source = as_source(tmp_path / "x.h5")
    np.testing.assert_array_equal(np.vstack([block for _, block in source.scan()]), X)
