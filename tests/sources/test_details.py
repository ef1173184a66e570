"""Sources in memory, views and wrappers: exact orders, places, limits and messages."""

import math
from functools import partial
from types import SimpleNamespace

import dask.array
import h5py
import numpy as np
import pandas as pd
import polars
import pytest
import scipy.sparse as sp
import torch
import xarray as xr
from catalogue import annotated, lossless_video
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from primedpca import PrimedPCA, as_source
from primedpca._core.arrays import to_numpy
from primedpca.sources import base, maps
from primedpca.sources.base import BlockSource, Subset, cut_evenly, fingerprint
from primedpca.sources.files import images, numpy_files, plink, video
from primedpca.sources.files.images import ImageFolder
from primedpca.sources.files.video import VideoFrames
from primedpca.sources.memory import iterables
from primedpca.sources.memory.dask_array import DaskSource, is_dask
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.sparse import SparseSource
from primedpca.sources.memory.xarray_fields import Fields
from primedpca.sources.selected import Selected
from primedpca.sources.wrappers import mapped, on_device
from primedpca.sources.wrappers.activations import Activations, imagenet, some
from primedpca.sources.wrappers.adapted import Adapted, Watched
from primedpca.sources.wrappers.on_device import OnDevice


def refused(call, *arguments, **options):
    """Return the message of the error, or None."""
    try:
        call(*arguments, **options)
    except (ValueError, TypeError, OSError, IndexError, MemoryError) as error:
        return str(error)
    return None


def counted(n=20, d=4, dtype=np.float64):
    return np.arange(n * d).reshape(n, d).astype(dtype)


class Cut(BlockSource):
    """Rows in blocks of a given length."""

    def __init__(self, array, step, axis=0):
        self.held, self.shape, self.dtype, self.axis = array, array.shape, array.dtype, axis
        self.blocks, self.read_blocks = cut_evenly(array.shape[axis], step), []

    def read(self, i):
        self.read_blocks.append(i)
        place = slice(*self.blocks[i])
        return self.held[place] if self.axis == 0 else self.held[:, place]


# -- blocks, rows and batches -----------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_by_number(axis):
    X = counted()
    source = Cut(X, 3, axis)
    for index in ([0], [19], [5, 5, 2], [3, 2, 17, 0], [2, 3], []):
        np.testing.assert_array_equal(source.rows(np.array(index, dtype=int)), X[index])
    assert Cut(X, 20, axis).rows(np.array([], dtype=int)).shape == (0, 4)
    if axis == 0:
        source.read_blocks.clear()
        source.rows(np.array([19, 0, 1, 2]))  # 20 rows in 7 blocks, the first of two rows
        assert source.read_blocks == [0, 1, 6]


@pytest.mark.parametrize("size", [1, 3, 7, 20, 50])
@pytest.mark.parametrize("per_group", [1, 2, 100])
def test_mini_batches_from_groups(size, per_group, monkeypatch):
    X = counted()
    width = max(b - a for a, b in cut_evenly(20, size))
    monkeypatch.setattr(base, "GROUP_BYTES", 8 * 4 * width * per_group)
    source = Cut(X, 3)
    cuts = cut_evenly(20, size)
    for seed in (None, 4):
        rng = None if seed is None else np.random.default_rng((seed, 1, 2))
        groups = [cuts[i : i + per_group] for i in range(0, len(cuts), per_group)]
        wanted = []
        for group in [groups[i] for i in rng.permutation(len(groups))] if rng else groups:
            index = np.arange(group[0][0], group[-1][1])
            index = index if rng is None else rng.permutation(index)
            wanted += [index[a - group[0][0] : b - group[0][0]].tolist() for a, b in group]
        for start in range(len(cuts) + 1):
            found = list(source.batches(size, seed, 2, start))
            assert [index.tolist() for index, _ in found] == wanted[start:]
            for index, rows in found:
                np.testing.assert_array_equal(rows, X[index])


def test_shares_of_the_rows():
    source = Cut(counted(), 3)
    for share, count in ((0.0, 2), (0.1, 2), (0.3, 6), (1.0, 20), (2.0, 20)):
        part = source.sample(share, 7)
        assert part.shape == (count, 4)
        chosen = np.random.default_rng((7, 2)).choice(20, count, replace=False)
        assert part.index.tolist() == sorted(chosen.tolist())
    assert Cut(counted(1), 3).sample(0.5, 0).shape == (1, 4)


def test_subsets_leave_out_blocks_without_rows():
    source = Cut(counted(), 4)
    part = Subset(source, np.array([0, 3, 4, 19]))
    assert (part.blocks, part._owner) == (((0, 2), (2, 3), (3, 4)), (0, 1, 4))
    assert [part.below(i) for i in range(3)] == [0, 1, 4]
    for i, rows in ((0, [0, 3]), (1, [4]), (2, [19])):
        np.testing.assert_array_equal(part.read(i), counted()[rows])
    np.testing.assert_array_equal(part.rows(np.array([3, 0])), counted()[[19, 0]])
    assert part.local == (0, 1, 2)
    columns = Subset(Cut(counted(), 2, axis=1), np.array([1, 18]))
    assert columns.blocks == ((0, 2), (2, 4))
    np.testing.assert_array_equal(columns.read(1), counted()[[1, 18], 2:])


def test_names_of_views():
    frame = pd.DataFrame(counted(), columns=list("abcd"), index=[f"r{i}" for i in range(20)])
    source = as_source(frame)
    part = source.sample(0.5, 0).traits
    assert list(part.feature_names()) == list("abcd")
    assert part.row_names() is None
    whole = source.sample(1.0, 0).traits
    assert list(whole.row_names()) == [f"r{i}" for i in range(20)]
    chosen = Selected(source, np.array([2, 0])).traits
    assert list(chosen.feature_names()) == ["c", "a"]
    assert list(chosen.row_names()) == list(frame.index)


def test_columns_that_are_chosen():
    X = counted()
    rows, columns = Cut(X, 6), Cut(X, 2, axis=1)
    np.testing.assert_array_equal(Selected(rows, np.array([3, 1, 1])).read(0), X[:5, [3, 1, 1]])
    found = Selected(columns, np.array([1, 3]))
    assert found.blocks == ((0, 1), (1, 2))
    np.testing.assert_array_equal(found.read(1), X[:, [3]])
    assert [i for i, _ in found.scan(1)] == [1]
    last = Selected(columns, np.array([2, 3]))
    assert (last.blocks, last._owner) == (((0, 2),), (1,))
    for bad in ([1, 1], [2, 1]):
        assert "in ascending order" in refused(Selected, columns, np.array(bad))


def test_what_does_not_fit_into_memory_as_a_whole(monkeypatch):
    X = counted(20, 4)
    source = Cut(X, 5)
    np.testing.assert_array_equal(base.whole(source), X)
    # Pages of one byte: half of them is the room, and blocks are counted twice.
    for pages, right in ((4 * X.nbytes, True), (4 * X.nbytes - 1, False)):
        monkeypatch.setattr(
            base.os, "sysconf", lambda name, pages=pages: 1 if name == "SC_PAGE_SIZE" else pages
        )
        assert (refused(base.whole, source) is None) == right


def test_fingerprints_hash_all_of_memory_and_some_of_files(tmp_path):
    X = counted(100, 3)
    one = fingerprint(Cut(X, 2))
    for place in range(0, 100, 7):
        changed = X.copy()
        changed[place, 1] += 1
        assert fingerprint(Cut(changed, 2))["contents"] != one["contents"]
    np.save(tmp_path / "a.npy", X)
    source = as_source(tmp_path / "a.npy")
    source.blocks = cut_evenly(100, 1)
    reads = []
    plain = type(source).read
    source.read = lambda i: reads.append(i) or plain(source, i)
    found = fingerprint(source, np.ones(100))
    some_blocks = np.random.default_rng(99).integers(0, 100, 2)
    assert sorted(reads) == sorted({0, 99, *some_blocks.tolist()})
    assert found["shape"] == (100, 3)
    assert found["sample_weight"] is not None
    assert found["file"].startswith(f"{128 + X.nbytes} bytes, changed at ")
    spread = Cut(X, 2)
    spread.spread = True
    spread.read_blocks.clear()
    fingerprint(spread)
    assert spread.read_blocks == [0]
    (tmp_path / "folder" / "in").mkdir(parents=True)
    for name in ("b", "a", "in/c"):
        (tmp_path / "folder" / name).write_bytes(b"x")
    spread.paths = [tmp_path / "a.npy", tmp_path / "folder"]
    files = base._files(spread)
    assert files == [
        str(tmp_path / one) for one in ("a.npy", "folder/a", "folder/b", "folder/in/c")
    ]
    assert base._dates(files).startswith("4 files, ")
    spread.paths = [tmp_path / "a.npy", tmp_path / "gone"]
    assert base._files(spread) == []


def test_square_arrays_are_read_by_rows():
    for shape, axis in (((5, 5), 0), ((5, 4), 0), ((4, 5), 1)):
        assert base.tall_first(shape) == axis
        assert as_source(np.ones(shape)).axis == axis


def test_arrays_of_other_dimensions():
    for shape in ((3,), (2, 2, 2)):
        assert f"got shape {shape}" in refused(as_source, np.ones(shape))
    for shape, what in (((0, 3), "sample"), ((3, 0), "feature")):
        assert f"0 {what}(s) (shape={shape})" in refused(as_source, np.ones(shape))
    empty = xr.DataArray(np.ones((0, 3)), dims=("time", "x"))
    assert "0 sample(s)" in refused(as_source, empty)
    assert "0 feature(s)" in refused(as_source, empty.transpose("x", "time"))


# -- maps -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array, torch.tensor])
def test_maps_of_rows(kind):
    X = np.array([[3.0, 4, 0], [0, 0, 0], [1, 2, 2]])
    found = {
        maps.normalise_rows: X / np.array([[5], [1], [3]]),
        maps.counts_per_million: X * 1e6 / np.array([[7], [1], [5]]),
        maps.log_cp10k: np.log1p(X * 1e4 / np.array([[7], [1], [5]])),
        maps.sqrt: np.sqrt(X),
    }
    for function, wanted in found.items():
        result = function(kind(X))
        dense = to_numpy(result.toarray() if sp.issparse(result) else result)
        np.testing.assert_allclose(dense, wanted, rtol=1e-15)


def test_arguments_that_maps_refuse():
    assert maps.log1p(np.array([[-1 + 2**-20]])).shape == (1, 1)
    with np.errstate(divide="ignore"):
        assert np.isneginf(maps.log1p(np.array([[-1.0]]))).all()
    assert "-1.5, which is below -1" in refused(maps.log1p, np.array([[0.0, -1.5]]))
    assert "-0.1, which is below 0" in refused(maps.sqrt, np.array([[0.0, -0.1]]))
    assert maps.sqrt(np.array([[0.0]])) == 0


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array, torch.tensor])
@pytest.mark.parametrize("function", [maps.counts_per_million, maps.log_cp10k, maps.log_cpm])
def test_negative_counts_are_refused_before_they_flip_the_signs_of_a_row(kind, function):
    counts = kind(np.array([[1.0, 3, 0], [-1, -3, 0]]))
    assert "which is below 0; choose another map" in refused(function, counts)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array, torch.tensor])
@pytest.mark.parametrize("function", [maps.counts_per_million, maps.log_cp10k, maps.normalise_rows])
def test_rows_without_a_total_are_refused(kind, function):
    for bad in (np.nan, np.inf):
        X = np.pad(np.arange(1.0, 21).reshape(10, 2), ((0, 0), (0, 9)))
        X[9, 1] = bad
        source = kind(X)
        assert f"cannot divide a row by its total {bad}. Drop or" in refused(function, source)
        with pytest.raises(ValueError, match=f"by its total {bad}"):
            PrimedPCA(1, missing="mean").fit(as_source(source, map=function))
        PrimedPCA(1).fit(as_source(kind(X[:9]), map=function))


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_what_a_map_may_return(kind):
    X = kind(counted(20, 4))
    returned = {
        "pandas.DataFrame": pd.DataFrame,
        "polars.DataFrame": polars.DataFrame,
        "dask.Array": dask.array.from_array,
        "numpy.matrix": lambda rows: sp.csr_matrix(rows).todense(),
        "torch.Tensor": lambda rows: torch.tensor(rows).to_sparse(),
    }
    for name, function in returned.items():
        words = refused(as_source, X, map=lambda rows, f=function: f(to_numpy(rows)))
        assert f"returned a {name} of shape (8, 4); it must return a dense array" in words
    words = refused(as_source, X, map=lambda rows: sp.csr_array(to_numpy(rows)))
    assert "made dense rows sparse; let it return result.toarray()" in words


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array, torch.tensor])
def test_rows_at_the_ends_of_the_range_are_normalised(kind):
    sizes = {np.float64: (1e200, 1e-200, 1.7e308, 5e-324), np.float32: (3e38, 1e-40)}
    for dtype, large in sizes.items():
        X = np.outer((*large, 1, 0), [1, 0, 1]).astype(dtype)
        wanted = np.sqrt(np.outer([*[1] * (len(large) + 1), 0], [0.5, 0, 0.5]))
        result = maps.normalise_rows(kind(X))
        dense = to_numpy(result.toarray() if sp.issparse(result) else result)
        np.testing.assert_allclose(dense, wanted, rtol=4 * np.finfo(dtype).eps)
        by_columns = as_source(np.pad(X, ((0, 0), (0, 9))), map=maps.normalise_rows)
        assert by_columns.axis == 1
        found = np.hstack([block for _, block in by_columns.scan()])
        np.testing.assert_allclose(found[:, :3], wanted, rtol=4 * np.finfo(dtype).eps)


def test_maps_that_differ_by_rounding_are_the_same():
    eps, one = 2.0**-52, np.array([[4.0, -8.0, np.nan]])
    assert mapped._same(one, one + 8 * 999 * eps * np.array([1, 0, 0]))
    assert not mapped._same(one, one + 8 * 1001 * eps * np.array([1, 0, 0]))
    assert not mapped._same(one, np.array([[4.0, -8.0, 1.0]]))
    assert not mapped._same(one, one.astype(np.float32))
    assert not mapped._same(one, one[:, :2])
    whole = np.array([[4, 5]])
    assert mapped._same(whole, whole)
    assert not mapped._same(whole, whole + 1)
    assert mapped._same(one[:0], one[:0])


class Power:
    """A map that is an object."""

    def __init__(self, p):
        self.p = p

    def __call__(self, rows):
        return rows**self.p


def test_a_map_has_the_same_name_in_every_process():
    def named(function):
        return as_source(counted(20, 4), map=function).traits.map_name

    assert named(np.square) == "<square>"
    assert named(Power(2)) == named(Power(2)) == "<Power(p=2)>"
    assert named(Power(3)) != named(Power(2))
    assert named(partial(np.power, 2.0)) == "<power with 2.0>"
    weights = partial(np.multiply, np.arange(4.0))
    assert named(weights) == named(partial(np.multiply, np.arange(4.0)))
    assert named(weights) != named(partial(np.multiply, np.ones(4)))


def test_a_map_is_tried_on_eight_rows():
    calls = []

    def function(rows):
        calls.append(rows.shape)
        return rows * 2

    source = as_source(counted(20, 4), map=function)
    assert calls == [(8, 4), (8, 4), (1, 4)]
    assert source.traits.map_name.startswith("<test_a_map_is_tried")
    wide = as_source(np.ascontiguousarray(counted(4, 20)), map=lambda rows: rows[:, :3])
    assert (wide.shape, wide.axis) == ((4, 3), 0)


def test_maps_of_wide_arrays_are_cut_by_rows(monkeypatch):
    monkeypatch.setattr(base, "BLOCK_BYTES", 8 * 30 * 4)
    source = as_source(counted(10, 30), map=np.positive)
    assert source.blocks == cut_evenly(10, 4)
    sparse = as_source(sp.csc_array(counted(10, 30)), map=lambda rows: rows * 2)
    assert sparse.axis == 0
    np.testing.assert_array_equal(sparse.rows(np.array([9])).toarray(), 2 * counted(10, 30)[[9]])


# -- iterables and datasets -------------------------------------------------------------------


class Changing:
    """Blocks that differ from one iteration to the next."""

    def __init__(self, *turns):
        self.turns = list(turns)

    def __iter__(self):
        return iter(self.turns.pop(0) if len(self.turns) > 1 else self.turns[0])


def test_blocks_that_change(monkeypatch):
    monkeypatch.setattr(iterables, "BLOCK_BYTES", 8 * 4 * 3)
    blocks = [counted(3) + i for i in range(4)]
    for later, words in (
        (blocks[:3], "3 blocks, but yielded 4 when it was first read"),
        ([], "0 blocks, but yielded 4"),
        ([*blocks, counted(3)], "other rows in block 4"),
        ([*blocks[:2], blocks[3], blocks[2]], "other rows in block 2"),
        ([*blocks[:3], blocks[3] + 1e-9], "other rows in block 3"),
    ):
        source = as_source(Changing([], blocks, later))  # it is asked for an iterator first
        assert source.blocks == ((0, 3), (3, 6), (6, 9), (9, 12))
        assert words in refused(lambda source=source: list(source.scan()))
    source = as_source(Changing(blocks))
    assert [i for i, _ in source.scan(2)] == [2, 3]
    for i in (0, 3, 1, 2, 0, 2):
        np.testing.assert_array_equal(source.read(i), blocks[i])
    assert "block 4 does not exist" in refused(source.read, 4)


def test_small_blocks_are_joined(monkeypatch):
    monkeypatch.setattr(iterables, "BLOCK_BYTES", 100)
    rows = counted(12, 2)  # 16 bytes a row
    for size, wanted in ((1, [7, 5]), (2, [8, 4]), (7, [7, 5]), (6, [12]), (12, [12])):
        source = as_source(Changing([rows[a : a + size] for a in range(0, 12, size)]))
        assert [b - a for a, b in source.blocks] == wanted
        assert source.nnz == 24
    full = sp.csr_array(np.ones((12, 2)))  # 24 bytes a row
    source = as_source(Changing([full[a : a + 1] for a in range(12)]))
    assert [b - a for a, b in source.blocks] == [5, 5, 2]
    assert source.nnz == 24
    empty = as_source(Changing([rows[:0], rows[:3], rows[:0], rows[3:]]))
    assert empty.shape == (12, 2)


def test_blocks_that_are_not_blocks():
    class Convertible:
        def __array__(self, dtype=None, copy=None):
            return counted(3)

    assert as_source(Changing([Convertible()])).shape == (3, 4)
    assert "yields a list as block 1" in refused(as_source, Changing([counted(3), [1]]))
    assert "shape (4,) as block 1" in refused(as_source, Changing([counted(3), counted(3)[0]]))
    different = Changing([counted(3), counted(3, 5)])
    assert "5 columns of float64 after one of 4 columns" in refused(as_source, different)
    assert "no blocks" in refused(as_source, Changing([]))
    assert "iterated only once" in refused(as_source, iter([counted(3)]))


class Rows(torch.utils.data.Dataset):
    """Rows that a function gives by number."""

    def __init__(self, n, row):
        self.n, self.row = n, row

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.row(i)


def test_datasets(monkeypatch):
    monkeypatch.setattr(iterables, "BLOCK_BYTES", 8 * 4 * 3)
    source = as_source(Rows(10, lambda i: (torch.arange(4.0).double() + i, i)))
    assert source.blocks == cut_evenly(10, 3)
    np.testing.assert_array_equal(
        source.rows(np.array([7, 2])), np.add.outer([7, 2], np.arange(4.0))
    )
    few = as_source(Rows(5, lambda i: [np.ones(2), np.ones(2)][i]))
    assert "row 2 of `X` cannot be read: IndexError(list index out of range)" in refused(
        few.read, 0
    )
    uneven = as_source(Rows(3, lambda i: np.ones(4 + (i == 2))))
    assert "row 2 of `X` has 5 entries of float64, but row 0 has 4" in refused(uneven.read, 0)
    turns = iter(range(9))
    assert "row 0 differs" in refused(as_source, Rows(3, lambda i: np.ones(2) * next(turns)))
    missing = as_source(Rows(3, lambda i: np.array([np.nan, i])))
    assert missing.shape == (3, 2)
    assert "the dataset has no rows" in refused(as_source, Rows(0, None))
    picture = as_source(Rows(2, lambda i: [np.ones((2, 3)), 5]))
    assert picture.shape == (2, 6)
    assert "gave a str as row 0" in refused(as_source, Rows(2, lambda i: "text"))


def test_columns_of_a_dataset_are_not_rows_and_labels():
    columns = TensorDataset(*torch.ones(4, 6))
    listed = Rows(6, lambda i: list(np.ones(4)))
    for given, what in (
        (columns, "row 0"),
        (listed, "row 0"),
        (DataLoader(columns, batch_size=3), "batch 0"),
        (DataLoader(listed, batch_size=None), "batch 0"),
    ):
        assert f"gave 4 separate columns as {what}, not a row" in refused(as_source, given)
    for single in (TensorDataset(torch.ones(6)), Rows(6, lambda i: np.float64(i))):
        for given in (single, DataLoader(single, batch_size=3)):
            assert as_source(given).shape == (6, 1)


def test_names_of_columns_of_items_are_compared():
    X, names = np.arange(24.0).reshape(6, 4) ** 2, list("abcd")

    def row(i, kind, turned):
        given = kind(X[i], names)
        return given[names[::-1]] if turned and i == 4 else given

    kinds = {
        "Series": pd.Series,
        "frame": lambda x, names: pd.DataFrame([x], columns=names),
        "field": lambda x, names: pd.Series(x, names).rename_axis("c").to_xarray(),
    }
    for kind in kinds.values():
        source = as_source(Rows(6, lambda i, kind=kind: row(i, kind, False)))
        np.testing.assert_array_equal(base.whole(source), X)
        if kind is kinds["field"]:
            given = Rows(6, lambda i: row(i, pd.Series, True).rename_axis("c").to_xarray())
        else:
            given = Rows(6, lambda i, kind=kind: row(i, kind, True))
        words = refused(PrimedPCA(2).fit, given)
        assert "row 4 of `X` names its columns otherwise" in words


def test_sparse_items_and_blocks_of_other_libraries_are_named():
    class Blocks:
        def __init__(self, block):
            self.block = block

        def __iter__(self):
            return iter([self.block])

    tensor = torch.eye(4).to_sparse()
    other = pytest.importorskip("sparse").COO(np.eye(4))
    for given, remedy in ((tensor, ".to_dense()"), (other, ".todense()")):
        assert remedy in refused(as_source, Rows(4, lambda i, given=given: given[i]))
        assert remedy in refused(as_source, Blocks(given))
    half = Rows(4, lambda i: torch.eye(4)[i].bfloat16())
    np.testing.assert_array_equal(base.whole(as_source(half)), np.eye(4))


# -- fields, frames, genotypes, AnnData -------------------------------------------------------


def test_points_that_are_always_missing(monkeypatch):
    values = np.arange(24.0).reshape(4, 6)
    values[:, 2] = np.nan
    values[0, 4] = values[:3, 5] = np.nan
    monkeypatch.setattr(base, "READ_BYTES", 48)
    field = xr.DataArray(values, dims=("time", "x"), coords={"x": list("abcdef")})
    source = Fields(field)
    assert (source.shape, source.blocks) == ((4, 5), ((0, 1), (1, 2), (2, 3), (3, 4)))
    assert source.feature_names.tolist() == list("abdef")
    assert source.mask.values.tolist() == [True, True, False, True, True, True]
    np.testing.assert_array_equal(source.read(3), values[[3]][:, [0, 1, 3, 4, 5]])
    assert Fields(field, mask=False).shape == (4, 6)
    assert Fields(field, mask=source.mask).shape == (4, 5)
    assert "keeps nothing" in refused(Fields, field, mask=np.zeros(6, bool))
    assert "NaN everywhere" in refused(Fields, field * np.nan)
    back = source.unstack(np.arange(5.0))
    np.testing.assert_array_equal(back.values, [0, 1, np.nan, 2, 3, 4])
    assert back.dims == ("x",)
    assert source.unstack(np.ones((2, 5))).shape == (2, 6)
    for bad in (np.ones(6), np.ones((1, 2, 5))):
        assert "a field has 5 entries" in refused(source.unstack, bad)
    assert source.label(np.ones((4, 2))).dims == ("time", "component")
    for bad in (np.ones(4), np.ones((3, 2))):
        assert "there are 4 samples" in refused(source.label, bad)


def test_weights_of_fields():
    field = xr.DataArray(
        np.random.default_rng(0).random((3, 2, 2)),
        dims=("time", "lat", "lon"),
        coords={"lat": [0.0, 60.0]},
    )
    np.testing.assert_allclose(Fields(field, weights="cos_lat").scale, [1, 1, 2**0.5, 2**0.5])
    np.testing.assert_allclose(Fields(field, weights=np.full((2, 2), 4.0)).scale, [0.5] * 4)
    for bad in (np.zeros((2, 2)), np.full((2, 2), np.inf), -np.ones((2, 2))):
        assert "finite and positive" in refused(Fields, field, weights=bad)
    masked = Fields(field, mask=[[True, False], [True, True]], weights=[[1.0, 0], [4, 16]])
    np.testing.assert_allclose(masked.scale, [1, 0.5, 0.25])
    assert Fields(field, sample="lon").shape == (2, 6)
    assert "is not a dimension" in refused(Fields, field, sample="z")
    assert Fields(xr.DataArray(np.arange(3.0), dims="time")).shape == (3, 1)


def write_genotypes(folder, n, d, columns=6):
    """Genotypes that count up, and the two files beside them."""
    copies = np.resize([0, 1, 2], (n, d))
    codes = np.array([3, 2, 0])[copies]  # of two, one and no copies of the second allele
    held = np.zeros((d, -(-n // 4) * 4), np.uint8)
    held[:, :n] = codes.T
    packed = held.reshape(d, -1, 4) @ np.array([1, 4, 16, 64], np.uint8)
    (folder / "a.bed").write_bytes(plink.MAGIC + packed.astype(np.uint8).tobytes())
    for suffix, count in ((".fam", n), (".bim", d)):
        lines = [" ".join([f"f{i}", f"name{i}", *"0" * (columns - 2)]) for i in range(count)]
        (folder / f"a{suffix}").write_text("\n".join(lines) + "\n\n")
    return folder / "a.bed"


def test_genotypes(tmp_path, monkeypatch):
    pytest.importorskip("bed_reader")
    path = write_genotypes(tmp_path, 9, 200, columns=2)
    source = as_source(path)
    assert (source.shape, source.axis) == ((9, 200), 1)
    assert source.blocks == ((0, 200),)
    assert source.row_names.tolist() == [f"name{i}" for i in range(9)]
    assert source.feature_names[-1] == "name199"
    wanted = source.read(0)
    monkeypatch.setattr(plink, "READ_BYTES", 4 * 9 * 100)
    source = as_source(path, standardise=True)
    assert source.blocks == cut_evenly(200, 100)
    np.testing.assert_array_equal(source.read(1), wanted[:, 100:])
    p = wanted.mean(axis=0, dtype=np.float64) / 2
    np.testing.assert_allclose(source.frequencies, p)
    np.testing.assert_allclose(source.scale, np.sqrt(2 * p * (1 - p)))
    monkeypatch.setattr(plink, "READ_BYTES", 4 * 9 * 10)
    assert as_source(path).blocks == cut_evenly(200, 64)
    for size in (-1, 1):
        held = path.read_bytes()
        path.write_bytes(held[:-1] if size < 0 else held + b"\0")
        assert f"has {len(held) + size} bytes" in refused(as_source, path)
        path.write_bytes(held)
    (tmp_path / "a.fam").write_text("only\n" * 9)
    assert "entry 0 has fewer than 2 columns" in refused(lambda: as_source(path).row_names)
    block = np.array([[np.nan, 1, 0], [np.nan, np.nan, 2]], np.float32)
    np.testing.assert_array_equal(plink._means(block), [0, 1, 1])


def test_dense_matrices_of_anndata_files(tmp_path, monkeypatch):
    X = counted(20, 6, np.float32)
    path = tmp_path / "a.h5ad"
    annotated(X).write_h5ad(path)
    for chunks, axis in (((20, 1), 1), ((2, 6), 0), ((5, 2), 0), ((10, 1), 1), (None, 0)):
        with h5py.File(path, "a") as file:
            known = dict(file["X"].attrs)
            del file["X"]
            file.create_dataset("X", data=X, chunks=chunks).attrs.update(known)
        for size, strips in ((2**23, 100), (1, 1), (480, None)):
            monkeypatch.setattr(base, "READ_BYTES", size)
            source = as_source(path)
            step = (chunks or (1, 6))[axis]
            each = step * X.shape[1 - axis] * 4
            length = step * (strips or max(1, 480 // each))
            wanted = tuple(
                (a, min(a + length, X.shape[axis])) for a in range(0, X.shape[axis], length)
            )
            assert (source.axis, source.blocks) == (axis, wanted)
            found = np.concatenate([block for _, block in source.scan()], axis=axis)
            np.testing.assert_array_equal(found, X)


def test_variables_that_are_chosen(tmp_path):
    data = annotated(sp.csr_array(counted(20, 6)))
    data.var["some"] = [True, False, False, True, False, True]
    data.var["none"] = False
    data.var["number"] = 1
    data.obs["kind"] = pd.Categorical(list("ab") * 10)
    data.write_h5ad(tmp_path / "a.h5ad")
    path = tmp_path / "a.h5ad"
    source = as_source(path, mask_var="some", label_column="kind")
    assert source.index.tolist() == [0, 3, 5]
    assert list(source.traits.feature_names()) == ["gene 0", "gene 3", "gene 5"]
    assert list(source.traits.labels()) == list("ab") * 10
    assert as_source(path, columns=["gene 4", "gene 1"]).index.tolist() == [4, 1]
    assert "must be bools, has no True" in refused(as_source, path, mask_var="none")
    assert "must be bools, has int64" in refused(as_source, path, mask_var="number")
    assert "has 0 variables 'x'" in refused(as_source, path, columns=["x"])
    assert "both choose variables" in refused(as_source, path, columns=["gene 1"], mask_var="some")


def test_codes_of_categories(tmp_path):
    data, path = annotated(counted(4, 3)), tmp_path / "a.h5ad"
    data.obs["kind"] = pd.Categorical(["a", None, "b", "a"])
    data.write_h5ad(path)
    assert as_source(path, label_column="kind").traits.labels().tolist() == ["a", None, "b", "a"]
    for code in (-2, 2):
        with h5py.File(path, "r+") as file:
            file["obs/kind/codes"][1] = code
        told = refused(as_source, path, label_column="kind")
        assert told.endswith("`obs['kind']` has codes without a category")


def test_columns_of_frames_that_have_the_same_name():
    frame = pd.DataFrame(counted(5, 4), columns=list("abcb"))
    assert "`X` has 2 columns named 'b'" in refused(as_source, frame)
    assert as_source(frame, exclude="b").shape == (5, 2)
    text = pd.DataFrame({name: ["x", "y"] for name in "abcdef"})
    told = refused(as_source, text)
    assert told.startswith("`X` has 6 column(s) that do not hold numbers ('a' (text), ")
    assert "'e' (text) ...)" in told
    assert "'e' (text))" in refused(as_source, text[list("abcde")])


def test_columns_of_anndata_files_are_listed(tmp_path):
    data = annotated(counted(6, 3))
    data.obs["kind"] = list("ababab")
    data.write_h5ad(tmp_path / "a.h5ad")
    told = refused(as_source, tmp_path / "a.h5ad", label_column="x")
    assert told.endswith("a.h5ad: no `obs['x']`; columns of `obs`: 'kind'.")
    told = refused(as_source, f"{tmp_path / 'a.h5ad'}::layers/y")
    assert told.endswith("a.h5ad has no `layers/y`; it has X.")


def test_dask_arrays(monkeypatch):
    import dask.array as da

    X = counted(12, 8)
    monkeypatch.setattr(base, "READ_BYTES", 8 * 8 * 6)
    for chunks, axis, blocks in (
        ((3, 8), 0, ((0, 6), (6, 12))),
        ((4, 8), 0, ((0, 4), (4, 8), (8, 12))),
        (((1, 0, 5, 6), 8), 0, ((0, 6), (6, 12))),
        ((12, 2), 1, ((0, 4), (4, 8))),
        ((12, 8), 0, ((0, 12),)),
        (((7, 5), 8), 0, ((0, 7), (7, 12))),
    ):
        source = DaskSource(da.from_array(X, chunks=chunks))
        assert (source.axis, source.blocks) == (axis, blocks)
        found = np.concatenate([block for _, block in source.scan()], axis=axis)
        np.testing.assert_array_equal(found, X)
        assert source.traits.nnz() is None
    here = DaskSource(da.from_array(X, chunks=(3, 8)))
    here._here = True
    monkeypatch.setitem(
        __import__("sys").modules,
        "distributed",
        SimpleNamespace(Client=SimpleNamespace(current=lambda: "client")),
    )
    assert here.dask_client() is None
    here._here = False
    assert here.dask_client() == "client"


# -- pictures and videos ----------------------------------------------------------------------


def test_pictures_that_are_kept(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (7, 5, 9, 3)).astype(np.uint8)
    for i, picture in enumerate(pictures):
        Image.fromarray(picture).save(tmp_path / f"{i}.png")
    monkeypatch.setattr(images, "BLOCK_BYTES", 135 * 3)
    for cache, kept in ((0, 0), (134, 0), (135, 1), (135 * 3 + 1, 3), ("1GB", 7)):
        source = ImageFolder(tmp_path, cache=cache)
        assert source.blocks == cut_evenly(7, 3)
        assert (source.cache_bytes, len(source._kept)) == (135 * kept, 0)
        for _ in range(2):
            for i, block in source.scan():
                np.testing.assert_array_equal(
                    block, pictures.reshape(7, -1)[slice(*source.blocks[i])]
                )
        assert len(source._kept) == kept
        found = source.rows(np.array([6, 0, 6]))
        np.testing.assert_array_equal(found, pictures.reshape(7, -1)[[6, 0, 6]])
    assert repr(source) == "ImageFolder(7 x 5 x 9 x 3, uint8)"
    small = ImageFolder(tmp_path, shrink=2)
    assert small.image_shape == (3, 5, 3)
    whole = Image.fromarray(pictures[0]).reduce(2)
    np.testing.assert_array_equal(small.read(0)[0], np.asarray(whole).reshape(-1))
    monkeypatch.setattr(images, "BLOCK_BYTES", 1)
    assert ImageFolder(tmp_path).blocks == cut_evenly(7, 1)
    for bad in (0, -1, 1.0, True):
        assert "at least 1" in refused(ImageFolder, tmp_path, shrink=bad)


def test_frames_of_videos(tmp_path, monkeypatch):
    frames = np.random.default_rng(1).integers(0, 256, (20, 4, 6)).astype(np.uint8)
    path = lossless_video(tmp_path / "a.mkv", frames, keys=5)
    flat = frames.reshape(20, -1)
    for cache, kept in ((0, 0), (24 * 3, 3), ("1GB", 20)):
        source = VideoFrames(path, gray=True, cache=cache)
        assert (source.shape, len(source._kept)) == ((20, 24), kept)
        assert source._keys == [0, 5, 10, 15]
        for index in ([0], [19, 3], [4, 5, 6], [14, 15], [7, 7]):
            np.testing.assert_array_equal(source.rows(np.array(index)), flat[index])
        orders = [index.tolist() for index, _ in source.batches(6, 1)]
        assert sorted(number for order in orders for number in order) == list(range(20))
        if kept == 20:
            order = np.random.default_rng((1, 1, 0)).permutation(20)
            assert orders == [order[a:b].tolist() for a, b in cut_evenly(20, 6)]
    assert source.image_shape == (4, 6, 1)
    small = VideoFrames(path, gray=True, shrink=2)
    means = frames.reshape(20, 2, 2, 3, 2).mean(axis=(2, 4)).reshape(20, 6)
    assert np.abs(base.whole(small) - means).max() <= 0.5
    for place, mark, name in video.CONTAINERS:
        held = tmp_path / "head"
        held.write_bytes(b"\x99" * place + mark + b"\x99" * 200)
        with open(held, "rb") as file:
            assert source._container(file) == name
            assert file.tell() == 0
    held.write_bytes(b"\x99" * 300)
    with open(held, "rb") as file:
        assert "does not begin as" in refused(source._container, file)


# -- networks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40, 80), (80, 40), (64, 64), (61, 97)])
def test_crops_of_pictures(shape):
    picture = np.random.default_rng(2).integers(0, 256, (*shape, 3)).astype(np.uint8)
    height, width = shape
    short = round(28 * 256 / 224)
    assert short == 32
    scale = short / min(shape)
    size = max(short, int(width * scale)), max(short, int(height * scale))
    resized = Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR)
    left, top = round((size[0] - 28) / 2), round((size[1] - 28) / 2)
    crop = np.asarray(resized, np.float32)[top : top + 28, left : left + 28]
    wanted = (crop / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    found = imagenet(picture, 28)
    assert (found.shape, found.dtype) == ((3, 28, 28), np.float32)
    np.testing.assert_allclose(found, wanted.transpose(2, 0, 1), atol=1e-6)


class Halves(torch.nn.Module):
    """Two modules whose outputs are known."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Identity(), torch.nn.Flatten()

    def forward(self, x):
        return self.second(self.first(2 * x))


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_rows_of_networks(batch, monkeypatch):
    from primedpca.sources.wrappers import activations

    pictures = np.random.default_rng(3).random((7, 2, 3)).astype(np.float32)
    row = 2 * pictures.reshape(7, -1)
    wanted = np.c_[row, row]
    monkeypatch.setattr(activations, "BLOCK_BYTES", 48 * 4)
    names = ["second", "first"]
    for cache, kept in ((None, 0), (47, 0), (48 * 2, 2 // batch * batch), (48 * 7, 7)):
        source = Activations(
            Halves(), pictures, blocks=names, batch=batch, transform=None, cache=cache
        )
        assert (source.shape, source.cache_bytes) == ((7, 12), 48 * kept)
        groups = cut_evenly(-(-7 // batch), max(1, 4 // batch))
        assert source.blocks == tuple((a * batch, min(b * batch, 7)) for a, b in groups)
        assert source.block_slices["first"] == (slice(0, 6), (2, 3))
        assert source.block_slices["second"] == (slice(6, 12), (6,))
        for _ in range(2):
            for i, block in source.scan():
                np.testing.assert_array_equal(block, wanted[slice(*source.blocks[i])])
        np.testing.assert_array_equal(source.rows(np.array([6, 0, 6])), wanted[[6, 0, 6]])
        for seed in (None, 5):
            first = np.arange(0, 7, batch)
            if seed is not None:
                first = np.random.default_rng((seed, 1, 2)).permutation(first)
            order = [i for a in first.tolist() for i in range(a, min(a + batch, 7))]
            cuts = cut_evenly(7, 3)
            found = list(source.batches(3, seed, 2, 1))
            assert [index.tolist() for index, _ in found] == [order[a:b] for a, b in cuts[1:]]
            for index, rows in found:
                np.testing.assert_array_equal(rows, wanted[index])
        part = source.sample(0.5, 1)
        longest = max(b - a for a, b in source.blocks)
        assert part.blocks == cut_evenly(part.index.size, longest)
        np.testing.assert_array_equal(part.read(0), wanted[part.index[slice(*part.blocks[0])]])
    split = source.split(np.arange(24.0).reshape(2, 12))
    np.testing.assert_array_equal(split["first"][1], [[12, 13, 14], [15, 16, 17]])
    np.testing.assert_array_equal(split["second"][0], np.arange(6.0, 12))
    assert "length 11, but rows have 12" in refused(source.split, np.ones(11))
    assert "must be at least 1" in refused(
        Activations, Halves(), pictures, blocks=names, transform=None, batch=0
    )


def test_some_names():
    assert some("abcde") == "a, b, c, d, e"
    assert some("abcdef") == "a, b, c, d, e, ..."


# -- other sources and devices ----------------------------------------------------------------


def test_sources_that_are_adapted_or_watched():
    inner = Cut(counted(), 4)
    for source in (Adapted(inner), Watched(inner, lambda count: None)):
        assert source.local == tuple(range(5))
        assert [i for i, _ in source.scan()] == list(range(5))
        assert [i for i, _ in source.scan(3)] == [3, 4]
        order = [index.tolist() for index, _ in inner.batches(6, 2, 0, 0)]
        assert [index.tolist() for index, _ in source.batches(6, 2)] == order
        assert [index.tolist() for index, _ in source.batches(6, 2, 0, 1)] == order[1:]
        other = [index.tolist() for index, _ in inner.batches(6, 2, 1, 0)]
        assert [index.tolist() for index, _ in source.batches(6, 2, 1)] == other != order
        assert source.sample(0.4, 3).index.tolist() == inner.sample(0.4, 3).index.tolist()
    seen = []
    source = Watched(inner, seen.append)
    source.read(2)
    source.read(2)
    list(source.scan())
    assert seen == [1, 1, 2, 3, 3, 4, 5]


def test_room_on_a_device():
    free = SimpleNamespace(
        mem_get_info=lambda device: (1000, 9000),
        memory_reserved=lambda device: 500,
        memory_allocated=lambda device: 100,
    )
    library = SimpleNamespace(cuda=free)
    host, card = (SimpleNamespace(type=name) for name in ("cpu", "cuda"))
    assert on_device._room(library, host, 600.0) == 300.0
    assert on_device._room(library, card, math.inf) == pytest.approx(0.7 * 1400)
    assert on_device._room(library, card, 1000.0) == 500.0


def test_the_number_of_a_device():
    def device(name, index=None):
        return SimpleNamespace(type=name, index=index)

    library = SimpleNamespace(device=device, cuda=SimpleNamespace(current_device=lambda: 3))
    assert on_device._exactly(library, "cuda") == device("cuda", 3)
    assert on_device._exactly(library, "cpu") == device("cpu")
    assert on_device._exactly(torch, "cuda:1") == torch.device("cuda", 1)


def test_data_that_just_fit_on_a_device():
    source = as_source(counted(10, 3))
    for room, whole in ((240.0, True), (239.0, False)):
        moved = OnDevice(source, "cpu", room)
        assert (moved._all, moved.read_rate == math.inf) == (whole, whole)


def test_bytes_on_a_device():
    dense = as_source(counted(10, 3, np.float32))
    assert on_device._bytes_of(dense, None) == 120.0
    sparse = as_source(sp.csr_array(counted(10, 3)))
    assert on_device._bytes_of(sparse, 29) == 29 * 32.0
    single = as_source(sp.csr_array(counted(10, 3, np.float32)))
    assert on_device._bytes_of(single, 29) == 29 * 28.0


def test_arrays_are_copied_to_a_device_at_once(monkeypatch):
    """The device ``meta`` keeps no values, but takes the same ways as a GPU."""
    X = counted(10, 3)
    monkeypatch.setattr(on_device, "AT_ONCE", 240)
    for limit, dense in ((math.inf, True), (960.0, True), (959.0, False)):
        found = on_device.on_device(as_source(X), "meta", limit)
        assert isinstance(found, DenseSource if dense else OnDevice)
    monkeypatch.setattr(on_device, "AT_ONCE", 239)
    assert isinstance(on_device.on_device(as_source(X), "meta"), OnDevice)
    assert on_device.on_device(as_source(X), "cpu") is not None
    big = as_source(X.astype(">f8"))
    assert on_device._copied(torch, big, "cpu").array.tolist() == X.tolist()
    native = as_source(X)
    copied = on_device._copied(torch, native, "cpu")
    assert copied.array.data_ptr() == native.array.ctypes.data  # without a copy of NumPy


def test_pieces_on_the_way_to_a_device(monkeypatch):
    X = counted(100, 3)
    found = on_device._in_pieces(as_source(X), 240)
    assert found.blocks == cut_evenly(100, 10)
    assert on_device._in_pieces(as_source(X), 1).blocks == cut_evenly(100, 1)
    file_like = Cut(X, 7)
    assert on_device._in_pieces(file_like, 240) is file_like
    monkeypatch.setattr(on_device, "DEVICE_ENTRIES", 60)
    sparse = on_device._in_pieces(SparseSource(sp.csr_array(X + 1)), 2**20)
    assert sparse.blocks == tuple((a, a + 20) for a in range(0, 100, 20))
    halves = on_device._in_pieces(SparseSource(sp.csr_array(X + 1)), 150)
    assert halves.blocks == sparse.blocks
    few = on_device._in_pieces(SparseSource(sp.csr_array(X + 1)), 30)
    assert len(few.blocks) == 10


def test_blocks_that_stay_on_a_device():
    X = counted(40, 4)
    source = Cut(X, 5)
    moved = OnDevice(source, "cpu", room=X.nbytes / 2)
    moved._groups = [(i, i + 1) for i in range(8)]
    moved.blocks, moved._most = source.blocks, 4
    reads = source.read_blocks
    reads.clear()
    assert [i for i, _ in moved.scan()] == list(range(8))
    assert sorted(reads) == list(range(8))
    assert sorted(moved._held) == [0, 1, 2, 3]
    reads.clear()
    for i, block in moved.scan(2):
        np.testing.assert_array_equal(to_numpy(block), X[5 * i : 5 * i + 5])
    assert sorted(reads) == [4, 5, 6, 7]
    moved.release()
    assert (sorted(moved._held), moved._most) == ([0, 1], 2)
    reads.clear()
    np.testing.assert_array_equal(to_numpy(moved.read(1)), X[5:10])
    assert reads == []
    np.testing.assert_array_equal(to_numpy(moved.rows(np.array([39, 0]))), X[[39, 0]])
    assert moved.local == tuple(range(8))


def test_large_integers_of_tables_stay_integers(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    held = pa.table({"a": [2**60 + 1, 3], "b": [1, 2**53 + 1]})
    parquet.write_table(held, tmp_path / "a.parquet")
    source = as_source(tmp_path / "a.parquet")
    assert source.read(0).tolist() == [[2**60 + 1, 1], [3, 2**53 + 1]]
    mixed = pa.table({"a": [2**53, 3], "b": [1.5, 2.0**60]})
    parquet.write_table(mixed, tmp_path / "b.parquet")
    assert as_source(tmp_path / "b.parquet").read(0).tolist() == [[2.0**53, 1.5], [3, 2.0**60]]
    mixed = pa.table({"a": [2**53 + 1, 3], "b": [1.5, 2.0]})
    parquet.write_table(mixed, tmp_path / "c.parquet")
    assert "column 'a'" in refused(as_source(tmp_path / "c.parquet").read, 0)


@pytest.mark.parametrize(
    ("times", "declared", "right"),
    [
        # Ten frames of 0.1 s, in ticks of 0.01 s: three quarters of a frame may be missing.
        (range(0, 100, 10), {"duration": 100}, True),
        (range(0, 100, 10), {"duration": 107}, True),
        (range(0, 100, 10), {"duration": 108}, False),
        (range(0, 100, 10), {"frames": 10, "average_rate": 10}, True),
        (range(0, 100, 10), {"frames": 11, "average_rate": 10}, False),
        (range(0, 100, 10), {"container": 1_070_000}, True),
        (range(0, 100, 10), {"container": 1_080_000}, False),
        (range(0, 100, 10), {"container": 9_000_000, "streams": 2}, True),
        (range(50, 150, 10), {"duration": 100}, True),
        (range(50, 150, 10), {"duration": 108}, False),
        (range(50, 150, 10), {"duration": 149, "start_time": 0}, True),
        (range(50, 150, 10), {"duration": 158, "start_time": 0}, False),
        ([0, 10], {"duration": 27}, True),
        ([0, 10], {"duration": 28}, False),
        ([0], {"duration": 17, "average_rate": 10}, True),
        ([0], {"duration": 18, "average_rate": 10}, False),
        ([0], {"duration": 0}, True),
        ([0], {"duration": 1}, False),
        ([0, 10], {"duration": 47, "last": 30}, True),
        ([0, 10], {"duration": 48, "last": 30}, False),
    ],
)
def test_videos_that_are_shorter_than_they_declare(times, declared, right):
    from fractions import Fraction

    usual = {"average_rate": None, "duration": None, "frames": 0, "start_time": None}
    stream = SimpleNamespace(time_base=Fraction(1, 100), **(usual | declared))
    container = SimpleNamespace(
        duration=declared.get("container"), streams=[None] * declared.get("streams", 1)
    )
    last = SimpleNamespace(pts=times[-1], duration=declared.get("last"))
    source = SimpleNamespace(_times=list(times), path="path")
    found = refused(VideoFrames._check_whole, source, container, stream, last)
    assert (found is None) == right
    assert right or found.startswith("path declares ")


def test_damage_that_is_found_while_a_member_is_decompressed(tmp_path):
    rows = np.random.default_rng(0).random((400, 5))
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=rows)
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 0xFF
    path.write_bytes(held)
    source = as_source(path, cache=0)
    words = refused(lambda: [block for _, block in source.scan()])
    assert words.startswith(f"{path} is damaged or cannot be read (block 0, rows 0:400): ")


def test_row_names_have_the_heading_of_the_index():
    frame = pd.DataFrame({"a": [1.0, 2], "b": [3.0, 5]}, index=["x", "y"])
    assert as_source(frame).traits.headings == ("name", "label")
    assert as_source(frame.rename_axis("gene")).traits.headings == ("gene", "label")


def test_blocks_are_rows_unless_a_source_says_otherwise():
    class Rows(BlockSource):
        shape, dtype, blocks = (3, 2), np.dtype("f8"), ((0, 2), (2, 3))

        def read(self, i):
            return counted(3, 2)[slice(*self.blocks[i])]

    np.testing.assert_array_equal(base.whole(Rows()), counted(3, 2))
    np.testing.assert_array_equal(Rows().rows(np.array([2, 0])), counted(3, 2)[[2, 0]])


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ValueError("{path} has no video stream."), ValueError, "{path} has no video stream."),
        (PermissionError("not yours"), PermissionError, "not yours"),
        (MemoryError("too large"), MemoryError, "too large"),
        (RuntimeError("odd"), ValueError, "{path} cannot be read as a video: odd."),
    ],
    ids=["ours", "permission", "memory", "other"],
)
def test_errors_while_a_video_is_read(tmp_path, error, kind, words):
    path = lossless_video(tmp_path / "a.mkv", np.zeros((3, 4, 6), dtype=np.uint8), keys=1)
    source = VideoFrames(path, gray=True)
    error = type(error)(str(error).format(path=path))
    with pytest.raises(kind) as found, source._opened():
        raise error
    assert str(found.value) == words.format(path=path)


def test_damage_in_a_column_of_names(tmp_path):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"id": ["x", "y"], "a": [1.0, 2], "b": [3.0, 5]}).to_parquet(path)
    source = as_source(path, id_column="id")
    source._readers[0].table = lambda *arguments: 1 / 0
    words = refused(lambda: source.row_names)
    assert words == f"{path} is damaged or cannot be read (column 'id'): division by zero"


def test_errors_while_an_array_is_read(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    np.save(path, counted())
    source = as_source(path)

    def broken(*_):
        raise OSError("odd")

    monkeypatch.setattr(numpy_files.common, "read_bytes", broken)
    wanted = f"{path} is damaged or cannot be read (entries 0:20 of axis 0): odd"
    assert refused(source.read, 0) == wanted


def test_objects_of_other_libraries_are_not_arrays_of_dask():
    import dask.array as da

    array = da.zeros((4, 3), chunks=2)
    assert is_dask(array)
    assert not is_dask(SimpleNamespace(dask=array.dask, chunks=array.chunks, to_delayed=list))
    assert not is_dask(counted())
