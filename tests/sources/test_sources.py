"""What is special to one kind of data: files, damage, duplicates, frames, types, refusals."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap
from decimal import Decimal
from fractions import Fraction

import anndata
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp
import torch
import zarr
from anndata.experimental import AnnCollection
from catalogue import BYTE_SOURCES, FILES, KINDS, SOURCES, TEXT_FILES
from torch._subclasses.fake_tensor import FakeTensorMode

from primedpca import PrimedPCA, as_source, certify, choose_k, plan, prime, refine, svd
from primedpca._core.arrays import is_sparse, like_block, to_numpy, work_dtype
from primedpca._operator.operator import Centred
from primedpca.protocols import DataSource
from primedpca.sources import base
from primedpca.sources.base import cut_evenly, fingerprint
from primedpca.sources.files.csv_text import CSVSource
from primedpca.sources.files.numpy_files import RawFileSource
from primedpca.sources.memory.sparse import SparseSource


def values_of(source):
    """All the data of a source, dense."""
    blocks = [block for _, block in source.scan()]
    dense = [block.toarray() if is_sparse(block) else to_numpy(block) for block in blocks]
    return np.concatenate(dense, axis=source.axis)


def counted(*shape, dtype="float64"):
    return np.arange(1, np.prod(shape) + 1).reshape(shape).astype(dtype)


def in_a_child(code, *arguments):
    """Run code where a crash kills only the child; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    return done.stdout


def test_cut_evenly():
    assert cut_evenly(10, 4) == ((0, 3), (3, 6), (6, 10))
    assert cut_evenly(8, 4) == ((0, 4), (4, 8))
    assert cut_evenly(3, 100) == ((0, 3),)
    assert cut_evenly(5, 0) == tuple((i, i + 1) for i in range(5))


# -- memory maps ------------------------------------------------------------------------------

SLICES = {
    "all": np.s_[:, :],
    "rows": np.s_[5:31, :],
    "columns": np.s_[:, 2:9],
    "rows and columns": np.s_[5:31, 2:9],
    "row steps": np.s_[3::4, :],
    "column steps": np.s_[:, 1::3],
    "both steps": np.s_[2:30:3, 1:10:2],
    "one row": np.s_[7:8, :],
    "one column": np.s_[:, 7:8],
    "the last entry": np.s_[-1:, -1:],
}


@pytest.fixture(params=["C", "F"])
def order(request):
    return request.param


@pytest.fixture(params=[0, 64, 5000, 4096 * 3 + 8])
def mapped(request, order, tmp_path, monkeypatch):
    """A map of a part of a file, and what it holds; several blocks of it."""
    monkeypatch.setattr(base, "READ_BYTES", 512)
    path, offset = tmp_path / "data.bin", request.param
    X = counted(40, 11)
    path.write_bytes(b"\xff" * offset + X.tobytes(order) + b"\xff" * 99)
    return np.memmap(path, "float64", "r", offset, X.shape, order), X


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_of_a_map_reads_the_right_bytes(name, mapped):
    view, X = (array[SLICES[name]] for array in mapped)
    source = as_source(view)
    assert isinstance(source, RawFileSource)
    np.testing.assert_array_equal(values_of(source), X)
    index = np.array([0, X.shape[0] - 1])
    np.testing.assert_array_equal(source.rows(index), X[index])
    np.testing.assert_array_equal(source.rows(index[::-1]), X[index[::-1]])


def test_a_transposed_map(mapped):
    view, X = mapped
    np.testing.assert_array_equal(values_of(as_source(view.T)), X.T)
    np.testing.assert_array_equal(values_of(as_source(view[4:20].T[1:7])), X[4:20].T[1:7])


def test_the_axis_is_the_one_that_lies_apart(mapped, order):
    view, _ = mapped
    assert as_source(view).axis == (0 if order == "C" else 1)


@pytest.mark.parametrize("dtype", ["uint8", "int16", ">i4", "<f4", ">f8", "bool"])
def test_a_map_of_another_type(dtype, tmp_path):
    X = (counted(30, 7) % 5).astype(dtype)
    X.tofile(tmp_path / "data.bin")
    source = as_source(np.memmap(tmp_path / "data.bin", dtype, "r", shape=(30, 7)))
    assert source.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(values_of(source), X)


def test_a_map_opened_by_numpy_load(tmp_path):
    np.save(tmp_path / "data.npy", counted(30, 7))
    view = np.load(tmp_path / "data.npy", mmap_mode="r")
    source = as_source(view)
    assert isinstance(source, RawFileSource)
    assert "data.npy" in repr(source)
    np.testing.assert_array_equal(values_of(source), counted(30, 7))


def test_changes_to_a_writable_map_are_seen(tmp_path):
    view = np.memmap(tmp_path / "data.bin", "float64", "w+", shape=(20, 3))
    view[...] = counted(20, 3)
    view[4, 1] = -7
    assert values_of(as_source(view))[4, 1] == -7


def test_changes_to_a_private_map_are_seen(tmp_path):
    """Copy on write: what was changed is in memory, and not in the file."""
    counted(20, 3).tofile(tmp_path / "data.bin")
    view = np.memmap(tmp_path / "data.bin", "float64", "c", shape=(20, 3))
    view[4, 1] = -7
    assert values_of(as_source(view))[4, 1] == -7


def test_what_is_no_longer_in_the_file_is_read_from_memory(tmp_path):
    counted(20, 3).tofile(tmp_path / "data.bin")
    view = np.memmap(tmp_path / "data.bin", "float64", "r", shape=(20, 3))
    for array in (view + 1, view.copy() + 1, view[np.arange(20)] + 1):
        np.testing.assert_array_equal(values_of(as_source(array)), counted(20, 3) + 1)


def test_a_map_that_runs_backwards_is_refused(mapped):
    view, _ = mapped
    with pytest.raises(ValueError, match=r"memory map with negative strides"):
        as_source(view[::-1])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_truncated_file_is_named_and_kills_nobody(order, tmp_path):
    path = tmp_path / "data.bin"
    counted(3000, 40).tofile(path)
    code = """
        import os, sys
        import numpy as np
        from primedpca import PrimedPCA, as_source
        path, order = sys.argv[1:]
        X = np.memmap(path, "float64", "r", shape=(3000, 40), order=order)
        source = as_source(X)
        os.truncate(path, 100_000)
        for attempt in (
            lambda: list(source.scan()),
            lambda: source.rows(np.array([2999])),
            lambda: list(source.batches(100, 0)),
            lambda: PrimedPCA(2).fit(X),
        ):
            try:
                attempt()
            except OSError as error:
                print(error)
    """
    lines = in_a_child(code, path, order).splitlines()
    assert len(lines) == 4
    *opened, anew = lines
    assert all(f"{path} was truncated from 960000 to 100000 bytes" in line for line in opened)
    assert f"{path} ends at byte 100000" in anew
    assert "truncated" in anew


def test_a_file_that_is_gone_is_named(tmp_path):
    path = tmp_path / "data.bin"
    counted(20, 3).tofile(path)
    source = as_source(np.memmap(path, "float64", "r", shape=(20, 3)))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"data\.bin"):
        source.read(0)


# -- sparse matrices --------------------------------------------------------------------------

DAMAGE = {
    "index too large": ("m.indices[5] = 99", "index 99, outside 0..8"),
    "index far too large": ("m.indices[5] = 2**31 - 1", "index 2147483647, outside"),
    "index negative": ("m.indices[5] = -1", "index -1, outside"),
    "indptr descends": ("m.indptr[3] = m.indptr[2] - 1", "`indptr` does not ascend"),
    "indptr begins late": ("m.indptr[0] = 1", "`indptr` does not ascend from 0"),
    "indptr negative": ("m.indptr[1] = -4", "`indptr` does not ascend"),
    "indptr ends too late": ("m.indptr[-1] += 1000", "`indptr` ends at 1180, but 180 entries"),
    "indptr too short": ("m.indptr = m.indptr[:-1]", "`indptr` does not ascend"),
    "data too short": ("m.data = m.data[:-3]", "`indptr` ends at 180, but 177 entries"),
}


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "csr_matrix"])
def test_damage_is_named_and_kills_nobody(kind):
    code = """
        import sys
        import numpy as np, scipy.sparse as sp
        from primedpca._operator.operator import Centred
        kind, *damage = sys.argv[1:]
        X = np.ones((20, 9)) if kind[:3] == "csr" else np.ones((9, 20))
        for line in damage:
            m = getattr(sp, kind)(X)
            exec(line)
            try:
                Centred(m).covariance_product(np.ones((m.shape[1], 2)))
            except ValueError as error:
                print(error)
            else:
                print("nothing noticed")
    """
    found = in_a_child(code, kind, *(line for line, _ in DAMAGE.values())).splitlines()
    for line, (_, message) in zip(found, DAMAGE.values(), strict=True):
        assert "`X` is a damaged sparse matrix" in line
        assert message in line


def test_damaged_coordinates_are_named_and_kill_nobody():
    code = """
        import numpy as np, scipy.sparse as sp
        from primedpca import as_source
        for place, number in ((0, 2**30), (1, 2**30), (0, -5), (1, -5)):
            m = sp.coo_array(np.ones((20, 9)))
            m.coords[place][7] = number
            try:
                as_source(m)
            except ValueError as error:
                print(error)
            else:
                print("nothing noticed")
    """
    lines = in_a_child(code).splitlines()
    assert len(lines) == 4
    assert all("index" in line for line in lines)


@pytest.mark.parametrize("kind", [sp.coo_array, sp.coo_matrix])
def test_duplicate_coordinates_are_added(kind):
    rows, columns = np.array([2, 0, 2, 2]), np.array([1, 0, 1, 0])
    X = kind((np.array([1.0, 2.0, 4.0, 8.0]), (rows, columns)), shape=(3, 2))
    np.testing.assert_array_equal(values_of(as_source(X)), [[2, 0], [0, 0], [8, 5]])
    assert X.nnz == 4
    np.testing.assert_array_equal(X.data, [1, 2, 4, 8])
    np.testing.assert_array_equal(X.coords[0], rows)
    np.testing.assert_array_equal(X.coords[1], columns)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix])
def test_duplicate_and_unsorted_entries(kind):
    data, indices, indptr = [1.0, 2.0, 4.0, 8.0], [2, 0, 2, 1], [0, 3, 4]
    shape = (2, 3) if "csr" in kind.__name__ else (3, 2)
    X = kind((np.array(data), np.array(indices), np.array(indptr)), shape=shape)
    expected = np.array([[2.0, 0, 5], [0, 8, 0]])
    source = as_source(X)
    np.testing.assert_array_equal(values_of(source), expected if shape == (2, 3) else expected.T)
    for found, before in ((X.data, data), (X.indices, indices), (X.indptr, indptr)):
        np.testing.assert_array_equal(found, before)


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_duplicates_behind_a_stale_flag_are_added(kind):
    """SciPy keeps its flag when indices change in place, as when pairs of columns are merged."""
    X = sp.random(60, 16, 0.5, format=kind, random_state=0)
    assert X.has_canonical_format  # kept from now on
    X.indices //= 2
    X.resize((60, 8) if kind == "csr" else (30, 16))
    stored, dense = X.nnz, X.toarray()
    assert as_source(X).array.nnz == (dense != 0).sum()
    assert X.nnz == stored
    found = PrimedPCA(2, priming="block_krylov", random_state=0).fit(X)
    truth = PrimedPCA(2, priming="exact").fit(dense)
    np.testing.assert_allclose(
        found.explained_variance_ratio_, truth.explained_variance_ratio_, rtol=1e-6
    )
    scaled = PrimedPCA(2, scale="std").fit(X)
    np.testing.assert_allclose(scaled.scale_, dense.std(axis=0), rtol=1e-12)


def test_compressed_data_are_not_copied():
    X = sp.random_array((500, 40), density=0.2, format="csr", rng=np.random.default_rng(0))
    source = as_source(X)
    assert source.array is X
    for _, block in source.scan():
        assert np.shares_memory(block.data, X.data)
        assert np.shares_memory(block.indices, X.indices)


def test_explicit_zeros_and_empty_rows():
    X = sp.csr_array(np.zeros((30, 4)))
    np.testing.assert_array_equal(values_of(as_source(X)), np.zeros((30, 4)))
    X = sp.csr_array((np.zeros(2), ([3, 9], [1, 2])), shape=(30, 4))
    np.testing.assert_array_equal(values_of(as_source(X)), np.zeros((30, 4)))


@pytest.mark.parametrize("form", ["dok", "dia", "bsr", "lil", "coo"])
def test_other_sparse_formats_become_compressed_rows(form):
    X = counted(6, 4) * (counted(6, 4) % 3 == 0)
    source = as_source(sp.coo_array(X).asformat(form))
    assert isinstance(source, SparseSource)
    assert "csr" in repr(source)
    np.testing.assert_array_equal(values_of(source), X)


def test_wide_index_types():
    X = sp.csr_array(counted(40, 6) * (counted(40, 6) % 2))
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    np.testing.assert_array_equal(values_of(as_source(X)), X.toarray())


# -- frames -----------------------------------------------------------------------------------


def test_pandas_nullable_integers():
    frame = pd.DataFrame({"a": pd.array([1, None, 3], "Int64"), "b": pd.array([4, 5, 6], "Int8")})
    source = as_source(frame)
    np.testing.assert_array_equal(values_of(source), [[1, 4], [np.nan, 5], [3, 6]])
    assert work_dtype(source.dtype) == "float64"
    assert isinstance(frame["a"].dtype, pd.Int64Dtype)


def test_pandas_nullable_columns_of_every_kind():
    frame = pd.DataFrame(
        {
            "flag": pd.array([True, None, False], "boolean"),
            "real": pd.array([1.5, 2.5, None], "Float32"),
            "plain": [1.0, np.nan, 3.0],
        }
    )
    expected = [[1, 1.5, 1], [np.nan, 2.5, np.nan], [0, np.nan, 3]]
    np.testing.assert_array_equal(values_of(as_source(frame)), expected)


def test_pandas_mixed_columns():
    frame = pd.DataFrame({"a": [True, False], "b": [1, 2], "c": [0.5, 1.5]})
    np.testing.assert_array_equal(values_of(as_source(frame)), [[1, 1, 0.5], [0, 2, 1.5]])


def test_pandas_boolean_columns():
    source = as_source(pd.DataFrame({"a": [True, False], "b": [False, True]}))
    np.testing.assert_array_equal(values_of(source), [[1, 0], [0, 1]])
    assert work_dtype(source.dtype) == "float32"


def test_pandas_columns_need_no_names():
    frame = pd.DataFrame(counted(4, 3), columns=[10, "x", 2.5])
    np.testing.assert_array_equal(values_of(as_source(frame)), counted(4, 3))


def test_a_pandas_frame_of_one_dtype_is_not_copied():
    values = counted(50, 4)
    source = as_source(pd.DataFrame(values, columns=list("abcd"), copy=False))
    assert np.shares_memory(source.array, values)


def test_pandas_sparse_frame():
    X = counted(6, 4) * (counted(6, 4) % 3 == 0)
    frame = pd.DataFrame.sparse.from_spmatrix(sp.csr_array(X))
    source = as_source(frame)
    assert isinstance(source, SparseSource)
    np.testing.assert_array_equal(values_of(source), X)


def test_pandas_some_columns_sparse():
    frame = pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 2.0, 0.0]), "b": [1.0, 2.0, 3.0]})
    np.testing.assert_array_equal(values_of(as_source(frame)), [[0, 1], [2, 2], [0, 3]])


@pytest.mark.parametrize(
    "column",
    [
        ["x", "y"],
        pd.to_datetime(["2020-01-01", "2021-01-01"]),
        pd.Categorical(["u", "v"]),
        [1j, 2j],
        [[1], [2]],
    ],
    ids=["text", "dates", "categories", "complex", "lists"],
)
def test_pandas_columns_without_numbers_are_named(column):
    frame = pd.DataFrame({"fine": [1.0, 2.0], "wrong": column})
    with pytest.raises(ValueError, match=r"`X` has 1 column.* numbers \('wrong' \("):
        as_source(frame)


def test_columns_of_one_name_are_told_in_a_sentence():
    frame = pd.DataFrame(np.ones((3, 3)), columns=["a", "b", "a"])
    for given in (frame, frame.astype(pd.SparseDtype(float, 0.0))):
        with pytest.raises(ValueError, match=r"`X` has 2 columns .*'a'"):
            as_source(given)


def test_polars_nulls():
    frame = pl.DataFrame({"a": [1, None, 3], "b": [0.5, 1.5, None], "c": [True, None, False]})
    expected = [[1, 0.5, 1], [np.nan, 1.5, np.nan], [3, np.nan, 0]]
    np.testing.assert_array_equal(values_of(as_source(frame)), expected)


def test_polars_mixed_columns():
    frame = pl.DataFrame({"a": [True, False], "b": [1, 2], "c": [0.5, 1.5]})
    np.testing.assert_array_equal(values_of(as_source(frame)), [[1, 1, 0.5], [0, 2, 1.5]])


def test_polars_columns_without_numbers_are_named():
    frame = pl.DataFrame({"fine": [1.0, 2.0], "wrong": ["x", "y"], "worse": [[1], [2]]})
    message = r"`X` has 2 column.* numbers \('wrong' \(text\), 'worse' \(lists\)\)"
    with pytest.raises(ValueError, match=message):
        as_source(frame)


def test_many_columns_without_numbers_are_not_all_listed():
    frame = pl.DataFrame({f"c{i}": ["x"] for i in range(9)})
    with pytest.raises(ValueError, match=r"9 column\(s\).*'c4' \(text\) \.\.\.\)"):
        as_source(frame)


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"]
)
def test_columns_of_a_frame_are_chosen_as_those_of_a_file(make, tmp_path):
    held = {
        "id": ["x", "y", "z"],
        "a": [1.0, 2.0, 4.0],
        "b": [True, False, True],
        "kind": list("uvu"),
    }
    frame = make(held)
    pyarrow.parquet.write_table(pa.table(held), tmp_path / "a.parquet")
    for data in (frame, tmp_path / "a.parquet"):
        source = as_source(data, id_column="id", label_column="kind")
        np.testing.assert_array_equal(values_of(source), [[1, 1], [2, 0], [4, 1]])
        assert list(source.feature_names) == ["a", "b"]
        assert source.row_names.tolist() == held["id"]
        assert source.labels.tolist() == held["kind"]
        with pytest.warns(UserWarning, match=r"left out a column .* 'kind' \(text\)"):
            source = as_source(data, exclude=["id", "b"], numeric_only=True)
        assert source.shape == (3, 1)
        np.testing.assert_array_equal(values_of(as_source(data, columns=["b", "a"]))[0], [1, 1])
        with pytest.raises(ValueError, match="no column 'c'; it has 'id', 'a'"):
            as_source(data, exclude="c")
        with pytest.raises(ValueError, match="no column of numbers left"):
            as_source(data, exclude=list(held))
    with pytest.raises(ValueError, match=r"'id' \(text\), 'kind' \(text\)\)\. .*`numeric_only`"):
        as_source(frame)


def test_labels_of_a_frame_colour_its_report(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=list("abc"))
    frame["kind"] = ["u", "v"] * 10
    source = as_source(frame, label_column="kind")
    assert PrimedPCA(2).fit(source).feature_names_in_.tolist() == ["a", "b", "c"]
    assert source.traits.labels().tolist() == frame["kind"].tolist()


def test_kinds_of_columns_of_a_frame_are_named():
    frame = pd.DataFrame(
        {
            "a": [1.0, 2.0],
            "day": pd.to_datetime(["2024-01-01", "2024-01-02"]),
            "kind": pd.Categorical(["u", "v"]),
            "took": pd.to_timedelta([1, 2]),
        }
    )
    words = r"'day' \(dates and times\), 'kind' \(categories\), 'took' \(durations\)"
    with pytest.raises(ValueError, match=words):
        as_source(frame)


@pytest.mark.parametrize("option", ["id_column", "label_column"])
def test_a_list_where_one_column_is_named(option, tmp_path):
    frame = pd.DataFrame({"a": ["x", "y"], "b": [1.0, 2.0], "c": [3.0, 1.0]})
    for write in (frame.to_csv, frame.to_parquet, frame.to_excel):
        suffix = {"excel": "xlsx"}.get(kind := write.__name__[3:], kind)
        write(tmp_path / f"a.{suffix}", index=False)
    files = [tmp_path / f"a.{suffix}" for suffix in ("csv", "parquet", "xlsx")]
    for given in (*files, frame, frame.rename(columns={"a": 0})):
        with pytest.raises(TypeError, match=rf"`{option}`=\['a'\] must be the name of one column"):
            as_source(given, **{option: ["a"]})
    with pytest.raises(TypeError, match=r"`exclude`=\[\[0\]\] must be the names of columns"):
        as_source(frame.rename(columns={"a": 0}), exclude=[[0]])


def test_equal_columns_of_a_frame_can_be_left_out():
    frame = pd.DataFrame(np.ones((3, 3)), columns=["a", "b", "a"])
    assert as_source(frame, exclude="a").shape == (3, 1)
    with pytest.raises(ValueError, match=r"2 columns named 'a'.*`exclude`"):
        as_source(frame)


def test_a_lazy_frame_is_refused_with_a_remedy():
    with pytest.raises(TypeError, match=r"LazyFrame.*X\.collect\(\), or .*sink_parquet"):
        as_source(pl.DataFrame({"a": [1.0]}).lazy())
    with pytest.raises(TypeError, match=r"X\.collect\(\)"):
        PrimedPCA(1).fit(pl.DataFrame({"a": [1.0, 2.0]}).lazy())


def test_missing_entries_of_a_frame_are_filled_when_asked_for():
    frame = pl.DataFrame({"a": [1, None, 3, 4], "b": [0, 2, 5, 3]})
    with pytest.raises(ValueError, match=r"Input X contains NaN.* row 1, column 0"):
        Centred(frame).covariance()
    data = Centred(frame, missing="mean")
    np.testing.assert_allclose(data.mean, [8 / 3, 2.5])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_empty_frames_are_refused(make):
    with pytest.raises(ValueError, match="`X` is empty"):
        as_source(make())
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        as_source(make({"a": np.zeros(0)}))


# -- torch ------------------------------------------------------------------------------------


def test_a_tensor_that_requires_grad_is_only_read():
    X = torch.tensor(counted(30, 4), requires_grad=True)
    source = as_source(X)
    assert not source.read(0).requires_grad
    data = Centred(X)
    found = data.covariance_product(data.like.asarray(np.eye(4)))
    assert not found.requires_grad
    np.testing.assert_allclose(to_numpy(found), np.cov(counted(30, 4).T, ddof=0))
    assert X.grad is None
    assert X.requires_grad


TENSOR_TYPES = ["float16", "bfloat16", "float32", "float64", "bool", "uint8", "int8", "int16"]
TENSOR_TYPES += ["int32", "int64", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("name", TENSOR_TYPES)
def test_tensors_of_every_type(name):
    values = counted(40, 5) * counted(40, 5) % 7 % (2 if name == "bool" else 7)
    X = torch.tensor(values).to(getattr(torch, name))
    wide = ("float64", "int32", "int64", "uint32", "uint64")
    expected = "float64" if name in wide else "float32"
    assert work_dtype(X.dtype) == expected
    source = as_source(X)
    for index, rows in source.batches(7, 0):
        np.testing.assert_array_equal(to_numpy(rows.to(torch.float64)), values[index])
    for weight in (None, np.arange(40.0)):
        for missing in ("error", "mean"):
            data = Centred(X, sample_weight=weight, missing=missing)
            found = data.covariance_product(data.like.asarray(np.eye(5)))
            assert found.dtype == getattr(torch, expected)
            np.testing.assert_allclose(
                to_numpy(found), np.cov(values.T, ddof=0, aweights=weight), atol=1e-5
            )


# -- NumPy types ------------------------------------------------------------------------------

FLOAT32 = ["bool", "int8", "uint8", "int16", "uint16", "float16", "float32"]
FLOAT64 = ["int32", "uint32", "int64", "uint64", "float64", "longdouble"]


@pytest.mark.parametrize("name", FLOAT32 + FLOAT64)
def test_arrays_of_every_type(name):
    values = counted(40, 5) * counted(40, 5) % 7 % (2 if name == "bool" else 7)
    X = values.astype(name)
    expected = "float32" if name in FLOAT32 else "float64"
    assert work_dtype(X.dtype) == expected
    assert like_block(X, 5).dtype == np.dtype(expected)
    assert as_source(X).dtype == X.dtype
    data = Centred(X)
    found = data.covariance_product(np.eye(5, dtype=expected))
    assert found.dtype == np.dtype(expected)
    np.testing.assert_allclose(found, np.cov(values.T, ddof=0), atol=1e-5)
    np.testing.assert_allclose(data.mean, values.mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "int64", "uint64"])
def test_the_ends_of_integer_types_do_not_wrap_around(name):
    ends = np.iinfo(name).min, np.iinfo(name).max
    X = np.array([[ends[0], 0], [ends[1], 1], [ends[1], 0]], dtype=name)
    data = Centred(X)
    wide = X.astype(np.float64)
    found = data.covariance_product(np.eye(2, dtype=data.like.dtype))
    np.testing.assert_allclose(found, np.cov(wide.T, ddof=0), rtol=1e-5)


@pytest.mark.parametrize("name", ["bool", "int8", "int64", "float32", "float64", "longdouble"])
def test_sparse_arrays_of_every_type(name):
    values = counted(40, 5) % 3 % 2
    data = Centred(sp.csr_array(values.astype(name)))
    expected = "float32" if name in FLOAT32 else "float64"
    found = data.covariance_product(np.eye(5, dtype=expected))
    assert found.dtype == np.dtype(expected)
    np.testing.assert_allclose(found, np.cov(values.T, ddof=0), atol=1e-6)


def test_nested_lists_and_array_likes():
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return counted(4, 3)

    for given in ([[1, 2], [3, 4]], ((1, 2), (3, 4))):
        np.testing.assert_array_equal(values_of(as_source(given)), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(values_of(as_source(Wrapped())), counted(4, 3))


# -- refusals ---------------------------------------------------------------------------------


def collected():
    """Several AnnData objects as one, without a matrix of its own."""
    return AnnCollection([anndata.AnnData(np.ones((3, 2)))])


def hybrid():
    """A sparse tensor whose entries are rows."""
    return torch.sparse_coo_tensor(
        torch.tensor([[0, 2]]), torch.ones(2, 4), (3, 4), check_invariants=True
    )


REFUSED = {
    "complex": (np.ones((3, 2), complex), ValueError, "Complex data not supported.* complex128"),
    "complex tensor": (torch.ones(3, 2, dtype=torch.complex64), ValueError, "Complex data"),
    "complex sparse": (sp.csr_array(np.ones((3, 2), complex)), ValueError, "Complex data"),
    "objects": (np.array([[1, {}], [2, 3]]), TypeError, "other than numbers.*not 'dict'"),
    "words": (np.array([[1, "a"], [2, 3]], object), ValueError, "other than numbers.*float: 'a'"),
    "long integers": ([[2**53 + 1, 0.5], [2, 3]], ValueError, "`X` holds 9007199254740993"),
    "text": (np.array([["a", "b"]]), TypeError, "`X` has dtype str"),
    "bytes": (np.array([[b"a", b"b"]]), TypeError, "`X` has dtype bytes"),
    "dates": (np.zeros((3, 2), "M8[s]"), TypeError, "`X` has dtype datetime"),
    "records": (np.zeros((3, 2), "f4,i4"), TypeError, "`X` has dtype void"),
    "masked": (np.ma.masked_equal(counted(3, 2), 4), TypeError, "masked.*filled"),
    "one dimension": (np.ones(3), ValueError, r"two dimensions.*shape \(3,\).*reshape"),
    "three dimensions": (np.ones((3, 2, 2)), ValueError, "two dimensions"),
    "no dimension": (np.array(1.0), ValueError, "two dimensions"),
    "flat list": ([1, 2, 3], ValueError, "two dimensions"),
    "flat tensor": (torch.ones(3), ValueError, "two dimensions"),
    "flat sparse": (sp.coo_array(np.ones(3)), ValueError, "two dimensions"),
    "no rows": (np.ones((0, 3)), ValueError, r"0 sample\(s\) .*`X` is empty"),
    "no columns": (np.ones((3, 0)), ValueError, r"0 feature\(s\) .*`X` is empty"),
    "nothing": (np.ones((0, 0)), ValueError, "`X` is empty"),
    "empty list": ([], ValueError, "two dimensions"),
    "empty tensor": (torch.ones(0, 3), ValueError, "`X` is empty"),
    "empty csr": (sp.csr_array((0, 3)), ValueError, "`X` is empty"),
    "empty csc": (sp.csc_array((3, 0)), ValueError, "`X` is empty"),
    "flat sparse tensor": (torch.ones(3).to_sparse(), ValueError, "two dimensions"),
    "path": ("data.npy", FileNotFoundError, "File not found: `X`='data.npy'"),
    "path object": (pathlib.Path("data.npy"), FileNotFoundError, "File not found.*data.npy"),
    "bytes as a path": (b"data.npy", TypeError, "`X`=b'data.npy'"),
    "None": (None, TypeError, "`X`=None"),
    "number": (3.0, TypeError, "`X`=3.0"),
    "dictionary": ({"a": [1, 2]}, TypeError, "`X`.*builtins.dict. Pass an array, a data frame"),
    "group of Zarr": (zarr.group(), TypeError, r"zarr.Group, a group of arrays. Pass.*X\['name'\]"),
    "AnnCollection": (collected(), TypeError, "Unsupported type for `X`: anndata.AnnCollection"),
    "hybrid tensor": (hybrid(), TypeError, r"hybrid tensor.*Pass X.to_dense\(\)"),
    "generator": ((row for row in [[1, 2]]), TypeError, "`X`.*generator.*once"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    given, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        as_source(given)


def test_arrays_that_numpy_cannot_read():
    strict = pytest.importorskip("array_api_strict")
    elsewhere = strict.ones((3, 2), device=strict.Device("device1"))
    with pytest.raises(TypeError, match=r"numpy.asarray: .*device1.* Pass an array of NumPy"):
        as_source(elsewhere)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1, 2], [3, 4], [5]], "row 1 has length 2, row 3 has length 1"),
        ([1, [2, 3]], "row 1 is a single value, row 2 has length 2"),
        ([[1, 2], None], "row 2 is a single value"),
        (([1, 2], np.ones(3)), "row 2 has length 3"),
        (np.array([[1, 2], [3]], object), "row 2 has length 1"),
        ([[1, [2]], [3, 4]], "row 1 is a single value, row 2 has length 1"),
    ],
)
def test_ragged_lists_are_refused(rows, words):
    model = PrimedPCA(1).fit(np.eye(3))
    for read in (as_source, PrimedPCA(1).fit, PrimedPCA(1).partial_fit, model.transform):
        with pytest.raises(ValueError, match=f"The rows of `X` differ in length: .*{words}.*nan"):
            read(rows)


def test_arrays_of_objects_are_converted_as_in_a_fit():
    numbers = np.random.default_rng(0).normal(size=(30, 4))
    X = numbers.astype(object)
    X[0] = [Fraction(1, 3), Decimal("0.5"), True, None]
    numbers[0] = [1 / 3, 0.5, 1, np.nan]
    np.testing.assert_array_equal(values_of(as_source(X)), numbers)
    assert plan(X[1:], 2).n_components == 2
    np.testing.assert_array_equal(svd(X[1:], 2).s, svd(numbers[1:], 2).s)
    components = PrimedPCA(2).fit(X[1:]).components_
    assert certify(X[1:], components, random_state=0).streak(1e-6) == 2
    with pytest.raises(ValueError, match="contains NaN"):
        svd(X, 2)


def test_an_array_without_hidden_entries_may_be_masked():
    np.testing.assert_array_equal(values_of(as_source(np.ma.array(counted(3, 2)))), counted(3, 2))


# -- sources of users' own --------------------------------------------------------------------


class Bare:
    """The ten members of a DataSource and no more."""

    dtype, device, axis = np.dtype("float64"), None, 0

    def __init__(self, X):
        self.X, self.shape = X, X.shape
        self.blocks = cut_evenly(X.shape[0], 7)
        self.local = tuple(range(len(self.blocks)))

    def read(self, i):
        return self.X[slice(*self.blocks[i])]

    def scan(self, start=0):
        return ((i, self.read(i)) for i in range(start, len(self.blocks)))

    def batches(self, size, seed, epoch=0, start=0):
        for a, b in cut_evenly(self.shape[0], size)[start:]:
            yield np.arange(a, b), self.X[a:b]

    def sample(self, share, seed):
        return Bare(self.X[: max(2, int(share * self.shape[0]))])


def test_a_source_without_traits_is_completed():
    X = np.random.default_rng(0).normal(size=(50, 6)) * np.arange(6, 0, -1)
    own = Bare(X)
    assert isinstance(own, DataSource)
    source = as_source(own)
    assert isinstance(source, DataSource)
    assert source.traits.sparse is None  # only a block can tell
    assert source.traits.feature_names() is None
    np.testing.assert_array_equal(values_of(source), X)
    np.testing.assert_array_equal(source.rows(np.array([30, 2, 7])), X[[30, 2, 7]])
    assert source.sample(0.5, 0).traits.array is None
    for priming in ("exact", "block_krylov", "oja"):
        model = PrimedPCA(2, priming=priming, random_state=0).fit(own)
        alone = PrimedPCA(2, priming=priming, random_state=0).fit(X)
        if priming != "oja":  # whose batches are drawn by the source
            np.testing.assert_allclose(abs(model.components_), abs(alone.components_), atol=1e-6)


def test_what_a_source_without_traits_says_of_itself_is_used():
    X = np.random.default_rng(0).normal(size=(50, 3))
    own = Bare(np.where(X > 2, np.nan, X))
    own.feature_names, own.missing = np.array(["a", "b", "c"]), "mean"
    model = PrimedPCA(2, random_state=0).fit(own)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert as_source(own).traits.missing == "mean"


KNOWN = [(name, "float64") for name in SOURCES | TEXT_FILES]
KNOWN += [(name, "float32") for name in FILES | KINDS] + [(name, "uint8") for name in BYTE_SOURCES]


@pytest.mark.parametrize(("name", "kind"), KNOWN)
def test_sources_know_the_library_of_their_blocks(name, kind, tmp_path):
    X = abs(np.random.default_rng(0).normal(size=(20, 6)) * 40).astype(kind)
    source = as_source((SOURCES | FILES | KINDS | TEXT_FILES | BYTE_SOURCES)[name](X, tmp_path))
    block = source.read(0)
    if source.traits.library is None:
        assert "dask" in name
    else:
        assert source.traits.library == base.library_of(block)
        assert source.traits.sparse == is_sparse(block)


# -- reading once -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [40, 400])
def test_a_csv_is_parsed_no_more_often_than_it_must(tmp_path, monkeypatch, rows):
    """When it is opened, and in every pass what is not kept."""
    monkeypatch.setattr(base, "READ_BYTES", 2**12)
    path = tmp_path / "x.csv"
    X = np.random.default_rng(0).normal(size=(rows, 3))
    np.savetxt(path, X, delimiter=",", header="a,b,c", comments="")
    parsed, parse = [], CSVSource._parse
    monkeypatch.setattr(
        CSVSource, "_parse", lambda *given, **more: parsed.append(1) or parse(*given, **more)
    )
    source = as_source(path)
    assert len(parsed) == len(source.blocks)
    first = source.read(0)
    np.testing.assert_allclose(first, X[: len(first)])
    fingerprint(source)
    assert len(parsed) <= len(source.blocks) + min(len(source.blocks) - 1, 3)
    parsed.clear()
    model = PrimedPCA(2, priming="exact", certificate="none").fit(source)
    assert len(parsed) <= model.n_passes_ * (len(source.blocks) - 1)


def test_the_first_block_of_an_iterable_takes_no_iteration():
    starts = []

    class Blocks:
        def __iter__(self):
            starts.append(1)
            return iter([counted(5, 3), counted(4, 3)])

    source = as_source(Blocks())
    starts.clear()
    for _ in range(3):
        np.testing.assert_array_equal(source.read(0)[:5], counted(5, 3))
    assert not starts


def test_a_record_batch_is_read_as_a_table():
    batch = pa.RecordBatch.from_pydict({"a": [1.0, 2, 4], "b": [3.0, 1, 2], "c": ["x", "y", "z"]})
    np.testing.assert_array_equal(values_of(as_source(batch, exclude="c"))[1], [2, 1])
    pca = PrimedPCA(1).fit(batch.drop_columns(["c"]))
    assert pca.feature_names_in_.tolist() == ["a", "b"]
    assert isinstance(pca.loadings(), pa.Table)


def test_a_tensor_without_numbers_is_refused():
    X = np.random.default_rng(0).normal(size=(9, 3))
    model = PrimedPCA(2).fit(X)
    empty = torch.empty((9, 3), device="meta")
    with FakeTensorMode():
        fake = torch.empty((9, 3))
    for given, kind in ((empty, "tensor on the device 'meta'"), (fake, "FakeTensor")):
        calls = [PrimedPCA(2).fit, PrimedPCA(2).partial_fit, model.transform, choose_k]
        calls += [lambda A: svd(A, 2), lambda X: refine(X, model.components_.T)]
        calls += [lambda X: certify(X, model.components_), lambda X: next(prime(X, "oja", 2))]
        calls += [lambda V: certify(X, V[:2])]
        for call in calls:
            with pytest.raises(ValueError, match=f" is a {kind}, which holds a shape but no num"):
                call(given)


def test_devices_that_compute_nothing_are_refused():
    X = np.random.default_rng(0).normal(size=(9, 3))
    model = PrimedPCA(2).fit(X).set_params(device="meta")
    with pytest.raises(ValueError, match="`device`='meta' holds shapes but no numbers"):
        model.transform(X)
    for device in ("hpu", "vulkan"):
        with pytest.raises(ValueError, match=f"`device`='{device}' is not available: .* Use 'cpu'"):
            PrimedPCA(2, device=device).fit(X)


@pytest.mark.filterwarnings("ignore:The PyTorch API of:UserWarning")
def test_masked_and_nested_tensors_are_refused_by_name():
    whole = torch.ones(3, 2)
    masked = torch.masked.masked_tensor(whole, whole > 0)
    words = r"`X` is a MaskedTensor, .*; pass X\.to_tensor\(float\('nan'\)\) and `missing`='mean'"
    for given in (masked, torch.utils.data.TensorDataset(masked)):
        with pytest.raises(TypeError, match=words):
            as_source(given)
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=layout)
        with pytest.raises(TypeError, match=r"`X` is a nested tensor.*to_padded_tensor\(X, "):
            as_source(nested)
    nested = torch.nested.nested_tensor([whole, whole[:2]])
    with pytest.raises(TypeError, match=r"`X` is a nested tensor.*torch\.cat\(X\.unbind\(\)\)"):
        PrimedPCA(1).fit(nested)
    assert as_source(torch.cat(nested.unbind())).shape == (5, 2)


def test_columns_of_types_that_narwhals_does_not_know_are_named_by_their_library():
    wide = pa.array([Decimal(1)], pa.decimal256(5))
    columns = {"c": [1j], "p": pd.period_range("2020", periods=1), "i": pd.interval_range(0, 1)}
    for frame, words in (
        (pd.DataFrame(columns), r"'c' \(complex128\), 'p' \(period\[D\]\), 'i' \(interval\["),
        (pa.table({"d": wide, "n": pa.nulls(1)}), r"'d' \(decimal256\(5, 0\)\), 'n' \(no values"),
        (pl.DataFrame({"n": [None]}), r"'n' \(no values\)"),
    ):
        with pytest.raises(ValueError, match=words):
            as_source(frame)


class Frames:
    def __init__(self, *frames):
        self.frames = frames

    def __iter__(self):
        return iter(self.frames)


@pytest.mark.parametrize("native", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_frame_of_narwhals_is_read_as_the_one_that_it_wraps(native):
    columns = {"t": ["x", "y", "z"], "a": [1, 2, 4], "b": [1.5, 2.0, 9.0]}
    frame = nw.from_native(native(columns))
    source = as_source(frame, id_column="t")
    assert list(source.feature_names) == ["a", "b"]
    assert list(source.row_names) == columns["t"]
    np.testing.assert_array_equal(source.read(0), [[1, 1.5], [2, 2], [4, 9]])
    with pytest.raises(ValueError, match=r"'t' \(text\)"):
        as_source(frame)
    with pytest.raises(ValueError, match="'a' holds 9007199254740993"):
        as_source(nw.from_native(native(columns | {"a": [2**53 + 1, 2, 4]})), columns=["a", "b"])
    numbers = frame.select("a", "b")
    for model in (PrimedPCA(1).fit(numbers), PrimedPCA(1).partial_fit(numbers)):
        assert list(model.feature_names_in_) == ["a", "b"]
        with pytest.raises(ValueError, match="feature names"):
            model.transform(frame.select("b", "a"))


def test_categories_in_a_frame_of_narwhals_are_refused():
    frame = pd.DataFrame({"c": pd.Categorical([10, 20]), "d": pd.Categorical([1, 2])})
    with pytest.raises(ValueError, match=r"'c' \(categories\)"):
        as_source(nw.from_native(frame))
    with pytest.raises(TypeError, match=r"narwhals LazyFrame.*X\.collect"):
        as_source(nw.from_native(pl.LazyFrame({"a": [1.0, 2.0]})))


def test_an_index_of_pandas_in_an_arrow_table_is_not_data():
    whole = pd.DataFrame({"a": [1, 2, 3, 9], "b": [1.5, 2, 7, 8]})
    for frame in (whole[whole.a > 1], whole.set_index(pd.Index([5, 7, 8, 9], name="n"))):
        table = pa.Table.from_pandas(frame)
        assert len(table.column_names) == 3
        for given in (table, table.to_batches()[0]):
            source = as_source(given)
            assert list(source.feature_names) == ["a", "b"]
            assert list(source.row_names) == list(frame.index)
            np.testing.assert_array_equal(source.read(0), frame)
            model = PrimedPCA(1).fit(given)
            np.testing.assert_array_equal(model.transform(given), model.transform(frame))
        index = table.column_names[-1]
        assert as_source(table, exclude=index).shape == frame.shape
        assert as_source(table, label_column=index).labels.tolist() == list(frame.index)
        assert list(as_source(table, columns=["a", index]).feature_names) == ["a", index]
    several = pa.Table.from_pandas(whole.assign(c=1.0).set_index(["a", "c"]))
    assert list(as_source(several).feature_names) == ["b"]


def test_columns_of_one_name_are_refused_before_those_of_text_are_left_out():
    frame = pd.DataFrame([[1.0, 2.0, "x"], [3.0, 4.0, "y"]], columns=["a", "a", "t"])
    with pytest.raises(ValueError, match="`X` has 2 columns named 'a'"):
        as_source(frame, numeric_only=True)
    with pytest.raises(ValueError, match="`numeric_only`='no' must be True or False"):
        as_source(frame, numeric_only="no")


def test_frames_in_blocks_are_read_as_a_frame():
    blocks = [pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [True, False]})] * 2
    np.testing.assert_array_equal(as_source(Frames(*blocks)).read(0)[:2], [[1, 1], [np.nan, 0]])
    for bad, words in (
        (pd.DataFrame({"a": pd.Categorical([10, 20]), "b": pd.Categorical([1, 2])}), "categories"),
        (pl.DataFrame({"a": [2**53 + 1, 1], "b": [0.5, 1.0]}), "holds 9007199254740993"),
    ):
        with pytest.raises(ValueError, match=words):
            as_source(Frames(bad, bad))
    columns = {"a": [1.0, 2.0], "b": [3.0, 5.0]}
    one = nw.from_native(pl.DataFrame(columns))
    with pytest.raises(ValueError, match="yields column 'b' in block 1"):
        as_source(Frames(one, one.select("b", "a")))


def test_columns_without_numbers_in_blocks_of_frames_are_named_without_options():
    # `as_source` takes none of its options for tables with an iterable.
    good, bad = pd.DataFrame({"a": [1.0]}), pd.DataFrame({"id": ["x"], "a": [1.0]})
    for frames, number in (((bad,), 0), ((good, nw.from_native(bad)), 1)):
        with pytest.raises(ValueError, match=rf"'id' \(text\) in block {number}, .*drop") as told:
            as_source(Frames(*frames))
        assert "`" not in str(told.value).replace("`X`", "")


def test_an_index_of_pandas_stays_beside_chosen_columns(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [4.0, 5.0]}, index=pd.Index([7, 3], name="n"))
    table = pa.Table.from_pandas(frame)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    for given in (frame, table, nw.from_native(table), tmp_path / "a.parquet"):
        for columns in (["b"], "b", iter(["b"])):
            source = as_source(given, columns=columns)
            np.testing.assert_array_equal(source.read(0), frame[["b"]])
            assert source.row_names.tolist() == [7, 3]
    for given in (table, tmp_path / "a.parquet"):
        assert as_source(given, columns=["n", "a"]).row_names is None
        assert as_source(given, columns=["a"], id_column="b").row_names.tolist() == [4, 5]


@pytest.mark.parametrize("stored", [b"no json", b'{"index_columns": 5}', b"\xff", b"[1]"])
def test_metadata_of_pandas_that_cannot_be_read(stored):
    table = pa.table({"a": [1.0, 2.0]}, metadata={b"pandas": stored})
    for call in (as_source, PrimedPCA(1).fit):
        with pytest.raises(ValueError, match=r"metadata of pandas.*`replace_schema_metadata"):
            call(table)
    assert as_source(table.replace_schema_metadata()).shape == (2, 1)


def test_tables_without_columns():
    for table in (pa.table({}), nw.from_native(pa.table({})), pa.table({"a": [1]}).select([])):
        with pytest.raises(ValueError, match="`X` is empty"):
            as_source(table)
