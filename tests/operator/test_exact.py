"""Kernels, units and messages of the operator on numbers whose results are known exactly."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from operator_record import Cut

from primedpca import certify
from primedpca._operator import kernels, preparation, statistics, wide_rows
from primedpca._operator.operator import Centred
from primedpca._operator.preparation import Columns
from primedpca._operator.statistics import Frame
from primedpca.engines import LocalEngine

X = np.array([[4.0, 0, -2], [0, 0, 6], [1, 0, 8], [3, 5, 0], [0, 0, 4]])
ROOT = np.array([1.0, 2, 0, 0.5, 3])
SHIFT, FACTOR = np.array([1.0, 2, 4]), np.array([2.0, 1, 0.5])
DENSE = [np.asarray, np.asfortranarray, torch.tensor]
SPARSE = [sp.csr_array, sp.csc_array]


def refused(call, *arguments, **options):
    """Return the message of the error, or None."""
    try:
        call(*arguments, **options)
    except (ValueError, TypeError) as error:
        return str(error)
    return None


def host(value):
    value = value.toarray() if sp.issparse(value) else value
    return value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def like(kind, value):
    return torch.tensor(value) if kind is torch.tensor else value


def f8(kind):
    return torch.float64 if kind is torch.tensor else np.float64


# -- preparation ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DENSE)
@pytest.mark.parametrize("unit", [1.0, 0.25])
@pytest.mark.parametrize("root", [None, ROOT])
def test_prepared_blocks(kind, unit, root):
    holes = X.copy()
    holes[1, 2] = np.nan
    for shift in (None, SHIFT):
        for factor in (None, FACTOR):
            for fill in (None, np.array([7.0, 8, 9])):
                block = holes if fill is not None else X
                wanted = block * unit
                wanted = wanted if shift is None else wanted - shift
                wanted = wanted if fill is None else np.where(np.isnan(wanted), fill, wanted)
                wanted = wanted if factor is None else wanted * factor
                wanted = wanted if root is None else wanted * root[:, None]
                parts = (
                    None if part is None else like(kind, part) for part in (shift, fill, factor)
                )
                weights = None if root is None else like(kind, root)
                found = preparation.prepare(kind(block), f8(kind), Columns(*parts), weights, unit)
                np.testing.assert_array_equal(host(found), wanted)


@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("unit", [1.0, 0.25])
@pytest.mark.parametrize("root", [None, ROOT])
def test_prepared_sparse_blocks(kind, unit, root):
    stored = X != 0
    for shift in (None, SHIFT):
        for factor in (None, FACTOR):
            for fill in (None, np.array([7.0, 8, 9])):
                block = X.copy()
                if fill is not None:
                    block[1, 2] = np.nan
                wanted = block * unit
                wanted = wanted if shift is None else wanted - shift
                wanted = wanted if fill is None else np.where(np.isnan(wanted), fill, wanted)
                wanted = wanted if factor is None else wanted * factor
                wanted = wanted if root is None else wanted * root[:, None]
                columns = Columns(shift, fill, factor)
                found = preparation.prepare(kind(block), np.float64, columns, root, unit)
                assert found.nnz == stored.sum()
                np.testing.assert_array_equal(host(found), np.where(stored, wanted, 0))


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, *SPARSE])
def test_rows_of_weight_zero(kind):
    """They are zero where they are finite, even if they overflow, and NaN where they are not."""
    block = X.copy()
    block[2] = [1e300, np.inf, np.nan]
    root = like(kind, ROOT)
    for fill, wanted in ((None, [0, np.nan, np.nan]), (np.ones(3), [0, np.nan, 0])):
        columns = Columns(factor=like(kind, np.full(3, 1e300)))
        columns = columns if fill is None else columns._replace(fill=like(kind, fill))
        with np.errstate(all="ignore"):
            found = host(preparation.prepare(kind(block), f8(kind), columns, root))
        np.testing.assert_array_equal(found[2], wanted)


def test_large_integers_are_shifted_before_they_are_rounded():
    for kind, middle in ((np.int64, 2**61), (np.uint64, 2**63)):
        whole = np.array([[middle + 3], [middle - 5], [middle + 1000]], kind)
        for shift in (np.array([float(middle)]), np.array([float(middle) + 1024])):
            wanted = np.array([[3.0], [-5], [1000]]) + (middle - int(shift[0]))
            for block in (whole, sp.csr_array(whole)):
                found = preparation.prepare(block, np.float64, Columns(shift=shift))
                np.testing.assert_array_equal(host(found), wanted)
    half = preparation.EXACT / 2
    for shift, far in ((half, False), (-half, False), (half + 1, True), (-half - 1, True)):
        block = np.zeros((2, 1), np.int64)
        assert preparation._is_far(block, np.array([shift])) == far
        assert not preparation._is_far(block.astype(np.int32), np.array([shift]))


def test_counts_of_stored_entries():
    wanted = {None: [3, 1, 4], "root": [2, 1, 3]}
    for kind in SPARSE:
        assert preparation.stored_counts(kind(X), None).tolist() == wanted[None]
        assert preparation.stored_counts(kind(X), ROOT).tolist() == wanted["root"]
        rows, columns = preparation.positions(kind(X))
        np.testing.assert_array_equal(X[rows, columns], kind(X).data)
    assert preparation.present_rows(X, None) == 5
    assert preparation.present_rows(X, ROOT) == 4


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_means_of_dense_blocks(kind):
    w = ROOT**2
    found = preparation.stored_means(kind(X), f8(kind), 0.5)
    np.testing.assert_allclose(host(found), X.mean(axis=0) / 2, rtol=1e-15)
    found = preparation.stored_means(kind(X), f8(kind), 2.0, like(kind, ROOT))
    np.testing.assert_allclose(host(found), 2 * w @ X / w.sum(), rtol=1e-15)
    holes = X.copy()
    holes[0, 0], holes[3, 2], holes[2] = np.nan, np.inf, np.nan
    there = np.isfinite(holes)
    kept = np.where(there, holes, 0)
    found = preparation.stored_means(kind(holes), f8(kind))
    np.testing.assert_allclose(host(found), kept.sum(axis=0) / there.sum(axis=0), rtol=1e-15)
    found = preparation.stored_means(kind(holes), f8(kind), 1.0, like(kind, ROOT))
    np.testing.assert_allclose(host(found), w @ kept / (w @ there), rtol=1e-15)
    # All rows count if none has a positive weight; a column without finite values has mean 0.
    found = preparation.stored_means(kind(X), f8(kind), 1.0, like(kind, 0 * ROOT))
    np.testing.assert_allclose(host(found), X.mean(axis=0), rtol=1e-15)
    empty = np.full((2, 1), np.nan)
    assert host(preparation.stored_means(kind(empty), f8(kind))).tolist() == [0]
    huge = np.full((3, 1), 1.7e308)
    assert host(preparation.stored_means(kind(huge), f8(kind))).tolist() == [0]


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("root", [None, np.array([0.1, 0.3, 0.0, 0.7, 1.1, 1.3, 1.7])])
def test_means_of_constant_columns_are_exact(kind, root):
    constants = np.r_[0.1, 1 / 3, 1e-300, 7e200, np.random.default_rng(0).random(40)]
    weights = None if root is None else like(kind, root)
    for hole in (False, True):
        block = np.tile(constants, (7, 1))
        if hole:
            block[5, 3] = np.nan
        if root is not None:
            block[2] += 5  # of weight zero
        found = preparation.stored_means(kind(block), f8(kind), 1.0, weights)
        assert host(found).tolist() == constants.tolist()
    almost = np.full((7, 1), 0.1)
    almost[3] = 0.1 * (1 + 1e-13)
    found = host(preparation.stored_means(kind(almost), f8(kind)))
    assert found != 0.1


@pytest.mark.parametrize("kind", SPARSE)
def test_means_of_sparse_blocks(kind):
    w = ROOT**2
    stored = X != 0
    found = preparation.stored_means(kind(X), np.float64, 0.5)
    np.testing.assert_allclose(found, X.sum(axis=0) / stored.sum(axis=0) / 2, rtol=1e-15)
    found = preparation.stored_means(kind(X), np.float64, 1.0, ROOT)
    np.testing.assert_allclose(found, w @ X / (w @ stored), rtol=1e-15)
    holes = X.copy()
    holes[0, 0] = np.nan
    found = preparation.stored_means(kind(holes), np.float64, 1.0, ROOT)
    there = stored & np.isfinite(holes)
    np.testing.assert_allclose(found, w @ np.where(there, X, 0) / (w @ there), rtol=1e-15)
    assert preparation.stored_means(kind(np.full((3, 1), 1.7e308)), np.float64).tolist() == [0]
    assert preparation.stored_means(kind((3, 2)), np.float64).tolist() == [0, 0]
    full = X + np.array([20.0, 0, 0])
    for root in (None, ROOT):
        shift = preparation.own_shift(kind(full), np.float64, Columns(own=True), 1.0, root).shift
        mean = full[:, 0].mean() if root is None else w @ full[:, 0] / w.sum()
        np.testing.assert_allclose(shift, [mean, 0, 0], rtol=1e-15)


@pytest.mark.parametrize(("kind", "most", "each"), [("float32", 1, 1), ("float64", 4, 16)])
def test_blocks_that_need_no_shift(kind, most, each):
    """Columns of +1 and -1 about a mean: the square of the mean is compared with variance 1."""
    signs = np.resize(np.repeat([1.0, -1.0], 128), (8192, 1))  # every 128th row is looked at

    def near(*means, rows=8192):
        return preparation.is_near_zero(signs[:rows] + np.array(means), kind)

    assert near(0, 0, 0, 0)
    limit = np.sqrt(min(most, each))
    assert near(*[limit] * 4)
    assert not near(*[limit * (1 + 1e-9)] * 4)
    if each > most:
        assert near(np.sqrt(each), 0, 0, 0)
        assert not near(np.sqrt(each) * (1 + 1e-9), 0, 0, 0)
    assert not near(0, 0, 0, 0, rows=8191)  # smaller blocks are not looked at
    assert not near(np.nan, 0, 0, 0)
    assert not near(np.inf, 0, 0, 0)
    assert not preparation.is_near_zero(sp.csr_array(signs + np.zeros(4)), kind)


@pytest.mark.parametrize("full", [[3], [0, 5], [], list(range(6)), [1]])
@pytest.mark.parametrize("order", ["sorted", "reversed"])
def test_the_shift_of_a_few_columns_of_compressed_rows(full, order, monkeypatch):
    """Entries of few columns are looked for, of many or unsorted ones the shift of every entry."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((9, 6)) < 0.4, rng.normal(size=(9, 6)), 0.0)
    dense[:, [column for column in full if column != 1]] = rng.normal(size=(9, 1)) + 5
    dense[4] = np.where(dense[4] == 0, 0, 2.0)
    block = sp.csr_array(dense.astype("f4"))
    if order == "reversed":
        for a, b in pairwise(block.indptr):
            block.indices[a:b], block.data[a:b] = block.indices[a:b][::-1], block.data[a:b][::-1]
    before = block.data.copy()
    shift = np.zeros(6, "f4")
    shift[full] = 2.5
    found = preparation.prepare(block, np.float32, Columns(shift=shift)).toarray()
    wanted = np.where(dense != 0, dense.astype("f4") - shift, 0)  # only entries that are stored
    assert np.array_equal(found, wanted)
    assert np.array_equal(block.data, before)
    monkeypatch.setattr(preparation, "FEW", 0)
    assert np.array_equal(
        preparation.prepare(block, np.float32, Columns(shift=shift)).toarray(), wanted
    )


# -- kernels ----------------------------------------------------------------------------------


def moments_of(block, root, shift, factor, axis=0):
    """Return the parts of :func:`kernels.moments`."""
    columns = Columns(shift=shift, factor=factor)
    options = {"dtype": np.float64, "columns": columns, "root": root, "unit": 1.0, "axis": axis}
    parts = kernels.moments(block, **options)
    return [host(part) for part in (parts.sums or parts.stacks)]


@pytest.mark.parametrize("kind", [np.asarray, *SPARSE])
@pytest.mark.parametrize("root", [None, ROOT, ROOT + 0.5])
@pytest.mark.parametrize("factor", [None, FACTOR])
@pytest.mark.parametrize("size", [1.0, 2.0**80, 2.0**-80])
@pytest.mark.parametrize("entries", ["missing", "of both signs", "not negative"])
def test_moments(kind, root, factor, size, entries):
    holes = (np.abs(X) if entries == "not negative" else X) * size
    if entries == "missing":
        holes[1, 2] = np.nan
    shift = SHIFT * size
    w = np.ones(5) if root is None else root**2
    there = ~np.isnan(holes)
    away = np.where(there, (np.where(there, holes, 0) - shift), 0) * (
        1 if factor is None else factor
    )
    found = moments_of(kind(holes), root, shift, factor)
    sparse = kind is not np.asarray
    counted = (X != 0) | ~there if sparse else there
    distances = np.abs(away)[w > 0].sum(axis=0)
    squares = w @ (away * away)
    ordinary = (squares >= 2.0**-20) & (squares <= 2.0**50)
    np.testing.assert_allclose(found[0], w @ there, rtol=1e-15)
    np.testing.assert_allclose(found[1], w @ away, rtol=1e-14, atol=1e-14 * size)
    np.testing.assert_allclose(found[2], squares, rtol=1e-14)
    np.testing.assert_array_equal(found[3], counted[w > 0].sum(axis=0))
    np.testing.assert_array_equal(found[4], (~there).sum(axis=0))
    reach = distances if sparse else np.where(ordinary, 0, distances)
    np.testing.assert_allclose(found[5], reach, rtol=1e-14)


def test_infinite_entries_of_rows_of_weight_zero_are_found():
    for kind in (np.asarray, *SPARSE):
        block = X.copy()
        block[2, 0] = np.inf
        assert np.isinf(moments_of(kind(block), ROOT, SHIFT, None)[5]).all()
    assert kernels._is_finite(np.array([[1, 2]]))
    assert kernels._is_finite(np.array([[1.0, np.nan]]))
    assert not kernels._is_finite(np.array([[1.0, -np.inf]]))


def test_sums_at_the_edges_of_the_ordinary_range():
    for square, zero in ((2.0**-20, True), (2.0**50, True), (2.0**-22, False), (2.0**52, False)):
        value = np.sqrt(square)
        found = kernels._reach(np.array([[value]]), np.array([square]))
        assert (found[0] == 0) == zero
    mixed = kernels._reach(np.array([[1.0, 2.0**30]]), np.array([1.0, 2.0**60]))
    assert mixed.tolist() == [0, 2.0**30]


@pytest.mark.parametrize("kind", SPARSE)
def test_weights_of_zeros(kind):
    block = kind(np.array([[1.0, 0, 2], [0, 0, 3], [4, 0, 5], [0, 6, 7]]))
    root = np.array([2.0**40, 1, 3, 0.5])
    # The weight of the first row is far larger than that of all zeros.
    assert kernels._weight_of_zeros(block, root).tolist() == [1.25, 2.0**80 + 10, 0]
    close = np.array([1.0, 3.9, 3.9, 1.0])
    np.testing.assert_allclose(kernels._weight_of_zeros(block, close), [16.21, 31.42, 0], 1e-15)


@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("root", [None, ROOT])
def test_squares_about_an_offset(kind, root):
    full = X + np.array([20.0, 0, 0])
    offset = np.array([21.0, 0.5, -2])
    a = full if root is None else full * root[:, None]
    roots = np.ones(5) if root is None else root
    wanted = ((a - roots[:, None] * offset) ** 2).sum(axis=1)
    found = kernels._squares_about(kind(a), root, offset)
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(kernels._squares_about(kind(a), root, None), (a * a).sum(axis=1))


@pytest.mark.parametrize("kind", [np.asarray, *SPARSE])
@pytest.mark.parametrize("axis", [0, 1])
def test_largest_magnitudes(kind, axis):
    block = X.copy()
    block[0, 0], block[1, 2] = np.nan, -np.inf
    options = {"dtype": np.float64, "columns": Columns(shift=SHIFT), "root": None, "unit": 2.0}
    for missing, count in ((True, 1), (False, 2)):
        parts = kernels.extent(kind(block), missing=missing, axis=axis, **options)
        assert float(parts.sums[0]) == count
        raw, ready = parts.stacks
        assert raw.tolist() == [8.0] * block.shape[axis]
        assert ready.tolist() == [12.0] * block.shape[axis]
    assert kernels._peak(np.empty((0, 3))) == 0
    assert kernels._peak(np.array([np.nan, np.inf])) == 0
    assert kernels._peak(np.array([-5.0, 2, np.inf])) == 5


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("root", [None, True])
@pytest.mark.parametrize(("n", "d"), [(64, 3), (200, 7), (130, 300), (65, 40)])
def test_large_blocks_are_multiplied_in_halves(inside, root, n, d, monkeypatch):
    rng = np.random.default_rng(0)
    block, v = rng.integers(-9, 9, (n, d)).astype(float), rng.integers(-3, 3, (d, 2)).astype(float)
    root = None if root is None else rng.integers(0, 3, n).astype(float)
    lift = np.array([1.0, -2])
    lengths = []
    plain = preparation.prepare

    def counted(block, *rest):
        lengths.append(len(block))
        return plain(block, *rest)

    monkeypatch.setattr(kernels, "prepare", counted)
    options = {"lift": lift, "columns": Columns(shift=np.ones(d)), "root": root, "unit": 1.0}

    def parts(limit):
        lengths.clear()
        monkeypatch.setattr(kernels, "PREPARED_BYTES", limit)
        return kernels.product(block, vectors=v, gather=True, inside=inside, **options).sums

    whole = parts(n * d * 8)
    assert lengths == [n]
    a = (block - 1) * (1 if root is None else root[:, None])
    roots = np.ones(n) if root is None else root
    y = a @ v - roots[:, None] * lift
    wanted = ((y if inside else a).T @ y, roots @ y, (a * a).sum(), roots @ a)
    for limit, cut in ((n * d * 8 - 1, 2), (n * d * 8 // 2 - 1, 4)):
        halves = parts(limit)
        assert sum(lengths) == n
        assert len(lengths) == (cut if n // cut >= 32 or cut == 2 else 2)
        assert max(lengths) - min(lengths) <= 1
        for found, other, exact in zip(halves, whole, wanted, strict=True):
            np.testing.assert_array_equal(found, exact)
            np.testing.assert_array_equal(other, exact)
    short = kernels.product(
        block[:63],
        vectors=v,
        gather=False,
        inside=inside,
        **(options | {"root": None if root is None else root[:63]}),
    )
    assert lengths[-1] == 63
    assert len(short.sums) == 2


def test_products_by_kernels_of_a_gpu(monkeypatch):
    """Stand-ins for the kernels, which need a GPU, show that they are given the right operands."""
    calls = []

    def forward(a, v):
        calls.append("forward")
        return a.to(v.dtype) @ v

    def adjoint(a, y):
        calls.append("adjoint")
        return a.to(y.dtype).T @ y

    def sums(a):
        calls.append("statistics")
        wide = a.double()
        return (wide * wide).sum(), wide.sum(axis=0)

    fake = {"serves": lambda a, v: True, "forward": forward, "adjoint": adjoint}
    fake["sums"] = lambda a: True
    monkeypatch.setattr(kernels, "gpu_products", SimpleNamespace(statistics=sums, **fake))
    v = torch.tensor([[1.0], [2], [-1]], dtype=torch.float64)
    y = X @ v.numpy()
    usual = {"columns": Columns(), "root": None, "unit": 1.0, "lift": None, "gather": False}
    for changes, wanted, used in (
        ({}, (X.T @ y, y.sum(axis=0)), ["forward", "adjoint"]),
        ({"gather": True}, None, ["forward", "adjoint", "statistics"]),
        ({"inside": True}, (y.T @ y, y.sum(axis=0)), ["forward"]),
        ({"unit": 2.0}, (4 * X.T @ y, 2 * y.sum(axis=0)), ["forward", "adjoint"]),
        ({"columns": Columns(factor=torch.tensor(np.full(3, 2.0)))}, None, ["forward", "adjoint"]),
        ({"root": torch.tensor(ROOT)}, None, ["forward", "adjoint"]),
    ):
        calls.clear()
        block = torch.tensor(X, dtype=torch.float32)
        parts = kernels.product(block, vectors=v, **(usual | changes))
        assert calls == used
        if "columns" in changes:
            wanted = (4 * X.T @ y, 2 * y.sum(axis=0))
        if "root" in changes:
            w = ROOT**2
            wanted = (X.T @ (w[:, None] * y), w @ y)
        if "gather" in changes:
            wanted = (X.T @ y, y.sum(axis=0), (X * X).sum(), X.sum(axis=0))
        for found, exact in zip(parts.sums, wanted, strict=True):
            np.testing.assert_array_equal(host(found), exact)


@pytest.mark.parametrize("columns", [1, 3, 47, 48, 60])
def test_products_with_few_and_many_columns(columns, monkeypatch):
    left = np.resize([1.0, -2, 3], (5, columns))
    for kind in (np.asarray, *SPARSE):
        options = {"columns": Columns(), "root": None, "unit": 1.0, "axis": 0}
        found = kernels.adjoint(kind(X), left=left, **options).sums[0]
        np.testing.assert_array_equal(host(found), X.T @ left)
    a = np.resize(np.arange(7.0), (130, 4))
    checks = np.resize([1.0, 2, -1], (4, columns))
    for fast in (4 * columns * 32, 4 * columns * 31, 4 * columns * 50, 900_000):
        monkeypatch.setattr(kernels, "FAST", fast)
        np.testing.assert_array_equal(kernels._times_square(a, checks), a.T @ (a @ checks))


def test_a_matrix_in_three_parts():
    for width in (2, 3, 8, 9):
        a = np.resize(np.arange(11.0), (20, width))
        np.testing.assert_array_equal(kernels._in_three(a), a.T @ a)


# -- units and the first pass -----------------------------------------------------------------


def operator_of(block, **options):
    return Centred(Cut(block, 2), LocalEngine(1), **options)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_the_range_of_squares(kind, monkeypatch):
    """The mean square of 15 entries is compared with the squares of the smallest and largest."""
    low, high, top = statistics.SAFE[kind]
    data = operator_of(X.astype(kind))
    extents = {"raw": 1.0, "ready": 1.0}
    monkeypatch.setattr(
        statistics, "_extent", lambda data, frame: (extents["raw"], extents["ready"])
    )

    def unit(norm, before=1.0, raw=1.0, ready=1.0):
        extents.update(raw=raw, ready=ready)
        return statistics.in_range(data, Frame(unit=before), norm)

    assert unit(15 * low**2) is None
    assert unit(15 * high**2) is None
    above = np.nextafter(15 * high**2, np.inf) * (1 + 1e-12)
    assert unit(above) == 1 / (2 * high)
    below = 15 * low**2 * (1 - 1e-12)
    assert unit(below, raw=low) == 1 / low
    # Up to the fourth power the size follows from the norm; below, and beyond the range, from the
    # entries.
    smaller = 15 * low**4 * 4
    assert unit(smaller, raw=1e-30) == 1 / (4 * low**2)
    assert unit(15 * low**4, ready=2.0**-20 * np.sqrt(15), raw=1e-30) == 2.0**19
    assert unit(0.0, ready=0.0) is None
    assert unit(np.inf, raw=2.0**5, ready=2.0**3) == 2.0**-6
    assert unit(np.inf, before=2.0**4, raw=2.0**5, ready=2.0**3) == 2.0**-6
    assert unit(np.inf, raw=2.0**3, ready=2.0**5) == 2.0**-6
    # A larger unit is limited by the largest stored entry, which must not overflow.
    assert unit(15 * low**3, raw=2.0 ** (top - 5)) == 2.0**4
    assert unit(15 * low**3, raw=2.0 ** (top - 1)) is None
    assert unit(np.inf, raw=2.0**1010, ready=1.0) == 2.0**-top
    info = np.finfo(kind)
    large = unit(15 * low**3, before=2.0 ** (info.maxexp - 2), raw=1e-300)
    assert large == 2.0 ** (info.maxexp - 1)
    tiny = unit(np.inf, before=float(info.tiny) * 4, raw=2.0**1023, ready=0.0)
    assert tiny == float(info.tiny)


def test_the_sums_of_weights():
    like_float64 = operator_of(X).like
    root, total, unit = statistics.roots_of([1.0, 4, 0, 9], 4, like_float64)
    assert (root.tolist(), total, unit) == ([1, 2, 0, 3], 14.0, 1.0)
    for power, unit in ((60, 1.0), (63, 1.0), (64, 4.0), (65, 4.0), (66, 16.0), (67, 16.0)):
        # Two weights of 2^power add up to 2^(power + 1), whose binary exponent is power + 2.
        found = statistics.roots_of([2.0**power] * 2, 2, like_float64)
        assert found[1:] == (2.0 ** (power + 1) / unit, unit)
        np.testing.assert_allclose(found[0] ** 2, [2.0**power / unit] * 2, rtol=1e-15)
    n = 1024
    for total, right in ((1 + n * 2.0**-49, False), (1 + n * 2.0**-48, True), (0.0, False)):
        weights = np.zeros(n)
        weights[0] = total
        assert (refused(statistics.roots_of, weights, n, like_float64) is None) == right
    largest = np.finfo(float).max
    assert refused(statistics.roots_of, [largest / 2] * 2, 2, like_float64) is None
    told = refused(statistics.roots_of, [np.nextafter(largest / 2, np.inf)] * 2, 2, like_float64)
    assert "exceeds the range of float64" in told
    for bad, place in (([1.0, -1], 1), ([np.nan, 1], 0), ([1, np.inf], 1)):
        assert f"`sample_weight`[{place}]=" in refused(statistics.roots_of, bad, 2, like_float64)
    assert "shape (3,), but `X` has 2 rows" in refused(
        statistics.roots_of, np.ones(3), 2, like_float64
    )


def test_scales_at_the_edges_of_the_range():
    for kind in ("float32", "float64"):
        data, info = operator_of(X.astype(kind)), np.finfo(kind)
        tiny, most = float(info.tiny), float(info.max)
        for good in (tiny, most / 4):
            with np.errstate(over="ignore"):
                frame = statistics.before_any_pass(data.like, [1.0, good, 1])
            assert frame.scale[1] == np.float64(good).astype(kind)
        for bad in (tiny / 2, float(np.nextafter(info.dtype.type(most / 4), info.max))):
            told = refused(statistics.before_any_pass, data.like, [1.0, bad, 1])
            assert f"`scale`[1]={bad:g} is beyond the range of {kind}" in told
        for bad in (0.0, -1.0, np.nan, np.inf):
            told = refused(statistics.before_any_pass, data.like, [1.0, 1, bad])
            assert f"`scale`[2]={bad} must be finite and positive" in told


def test_columns_far_from_zero():
    signs = np.resize([1.0, -1.0], (40, 1))
    other = np.r_[np.zeros((1, 1)), np.full((39, 1), 100.0)]
    for mean, far in ((8.0, False), (8.0 * (1 + 1e-12), True), (-9.0, True), (7.0, False)):
        block = sp.csr_array(np.c_[signs + mean, other])
        assert statistics.far_from_zero(block) == far
        assert statistics.far_from_zero(sp.csr_array(block * 2.0**-10), 2.0**10) == far
    assert not statistics.far_from_zero(sp.csr_array(other))
    assert not statistics.far_from_zero(sp.csr_array((4, 3)))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_longest_sum(axis):
    source = Cut(np.ones((40, 12)), 5, axis)
    data = Centred(source, LocalEngine(1))
    blocks, longest = (8, 5) if axis == 0 else (3, 40)
    assert statistics.chain_of(data) == longest + np.log2(blocks) + 10


def test_the_distance_of_a_rounded_mean():
    """The rounding error of 1 + 2^-54 is 2^-54, found exactly; the rest is the error of a sum."""
    data = operator_of(np.ones((4, 3)))
    chain = (2 + 1 + 10) * 2.0**-53
    shift, distance = np.array([1.0, 1.0, 8.0]), np.array([2.0**-54, 0, 2.0**-52])
    lost = np.hypot(2.0**-54, 2.0**-52)

    def error(*seen, factor=None, square=0.0, total=np.inf):
        rest, found = statistics.remainder(data, seen, square, total, factor)
        assert (rest is None) == (total == np.inf)
        return found if rest is None else (rest.tolist(), found)

    assert error(shift, distance, square=9.0) == pytest.approx(lost + 3 * chain, rel=1e-12)
    found = error(shift, distance, square=9.0, factor=np.array([4.0, 1, 0.5]))
    assert found == pytest.approx(np.hypot(2.0**-52, 2.0**-53) + 3 * chain, rel=1e-12)
    # Where it matters, it is returned, and not a part of the error.
    rest, found = error(shift, distance, square=9.0, total=lost)
    assert rest == [2.0**-54, 0, 2.0**-52]
    assert found == pytest.approx(3 * chain, rel=1e-12)
    assert error(shift, distance, distance, total=lost) == ([2.0**-53, 0, 2.0**-51], 0.0)
    assert error(shift, shift, distance) == pytest.approx(lost, rel=1e-12)  # 1 + (2^-54 + 1)
    long = error(np.ones(70_000), np.full(70_000, 2.0**-54))
    assert long == pytest.approx(2.0**-54 * np.sqrt(70_000), rel=1e-12)
    factor = np.ones(70_000)
    factor[65_536:] = 0
    long = error(np.ones(70_000), np.full(70_000, 2.0**-54), factor=factor)
    assert long == pytest.approx(2.0**-54 * 256, rel=1e-12)


# -- batches, samples and messages ------------------------------------------------------------


def test_batches_are_numbered_from_where_they_start():
    data = operator_of(np.arange(20.0).reshape(10, 2))
    for start in (0, 1, 3):
        found = [(i, part.shape[0]) for i, part in data.numbered_batches(3, None, 0, start)]
        assert found == [(i + 1, (2, 3, 2, 3)[i]) for i in range(start, 4)]
    assert data.passes == pytest.approx(1 + 1 + 0.8 + 0.3)


def test_samples_must_weigh_more_than_one_row():
    rows = np.arange(20.0).reshape(10, 2)
    for weight, right in ((0.25, False), (0.390625, True)):
        data = operator_of(rows, sample_weight=np.full(10, weight))
        found = refused(data.sample, 0.4, 0)
        assert (found is None) == right
        assert right or "of the 4 rows drawn adds up to 1, but must exceed 1" in found


def test_values_that_are_not_finite_are_listed_in_order():
    block = np.ones((6, 3))
    places = [(0, 2), (1, 0), (3, 1), (4, 2), (5, 0), (5, 1)]
    for count in range(1, 7):
        bad = block.copy()
        for row, column in places[:count]:
            bad[row, column] = np.nan
        for step, axis in ((2, 0), (6, 0)):
            for held in (bad, sp.csr_array(bad)):
                data = Centred(Cut(held, step, axis), LocalEngine(1))
                told = refused(data.covariance)
                then = ", ".join(map(str, places[1 : min(count, 5)]))
                words = f"Input X contains NaN: {count} non-finite value(s), the first at row 0, "
                words += "column 2" + (f", then at {then}" if then else "")
                words += " and so on" * (count > 5)
                assert told == f"{words} (rows and columns counted from 0). " + (
                    "Use `missing`='mean', or drop or replace it."
                )
    columns = block.copy()
    columns[4, 2] = -np.inf
    told = refused(Centred(Cut(columns, 1, 1), LocalEngine(1)).gram)
    assert "contains infinity: 1 non-finite value(s), the first at row 4, column 2 (rows" in told
    empty = np.full((6, 3), np.nan)
    empty[:, 1] = 1
    told = refused(operator_of(empty, missing="mean").covariance)
    assert "has 2 column(s) in which every value is missing (first: column 0, counted" in told


def test_one_value_of_a_column_is_enough():
    rows = np.full((4, 2), np.nan)
    rows[1], rows[2, 0] = [3.0, 7.0], 5.0
    for weight in (None, [1.0, 0.25, 1, 1]):
        data = operator_of(rows, missing="mean", sample_weight=weight)
        mean = 4.0 if weight is None else 4.6
        np.testing.assert_allclose(data.mean, [mean, 7], rtol=1e-15)


def test_one_row_is_too_few():
    assert "Found 1 sample" in refused(operator_of(np.ones((1, 3))).check_rows)
    assert refused(operator_of(np.ones((2, 3))).check_rows) is None


def test_numbers_are_converted_only_if_they_must_be():
    for kind in (np.float32, np.float64):
        data = operator_of(X.astype(kind))
        single, double = np.ones(3, np.float32), np.ones(3)
        assert data.narrow(single).dtype == data.narrow(double).dtype == kind
        assert data.narrow(single if kind is np.float32 else double) is (
            single if kind is np.float32 else double
        )
        assert data.wide(double) is double
        assert data.wide(single).dtype == np.float64
        assert data.wide(None) is None
        assert data.wide(True) is True


def test_wide_rows_in_groups():
    """Products of groups of rows, of which two fit at a time, in pieces of a few columns."""
    rng = np.random.default_rng(5)
    rows = rng.integers(-9, 10, (12, 50)).astype(float)
    M = rows - rows.mean(axis=0)
    left = rng.integers(-3, 4, (12, 2)).astype(float)
    for room, groups in ((4800, 1), (4799, 3), (3200, 3), (3199, 6), (100, 6)):
        data = Centred(Cut(rows, 2), LocalEngine(1)).view(room=float(room))
        assert len(wide_rows.groups(data.source, room)) == groups
        np.testing.assert_allclose(data.gram(), M @ M.T / 12, rtol=1e-13, atol=1e-12)
        passes = 1 if groups == 1 else 1 + (groups + 1) / 2
        assert data.passes == passes
        np.testing.assert_allclose(data.adjoint(left), M.T @ left, rtol=1e-13, atol=1e-11)
        assert data.passes == passes + 1


def test_pieces_of_long_results(monkeypatch):
    rng = np.random.default_rng(6)
    rows = rng.integers(-9, 10, (6, 50)).astype(float)
    left = rng.integers(-3, 4, (6, 3)).astype(float)
    wanted = (rows - rows.mean(axis=0)).T @ left
    lengths = []
    plain = wide_rows.cut_evenly
    monkeypatch.setattr(wide_rows, "cut_evenly", lambda *args: lengths.append(args) or plain(*args))
    for size, step in ((24 * 7, 7), (24 * 7 + 23, 7), (23, 1), (2**26, 2**26 // 24)):
        monkeypatch.setattr(wide_rows, "PIECE_BYTES", size)
        lengths.clear()
        data = Centred(Cut(rows, 6), LocalEngine(1))
        np.testing.assert_allclose(data.adjoint(left), wanted, rtol=1e-13, atol=1e-12)
        assert lengths == [(50, step)]


def test_matrices_by_slices(monkeypatch):
    lengths = []
    plain = wide_rows.cut_evenly
    monkeypatch.setattr(wide_rows, "cut_evenly", lambda *args: lengths.append(args) or plain(*args))
    for n, d in ((150, 40), (40, 150)):
        rows = np.random.default_rng(7).integers(-9, 10, (n, d)).astype(float)
        M = rows - rows.mean(axis=0)
        data = Centred(Cut(rows, 30), LocalEngine(1))
        np.testing.assert_allclose(wide_rows.by_slices(data, 0), M @ M.T / n, atol=1e-11)
        np.testing.assert_allclose(wide_rows.by_slices(data, 1), M.T @ M / n, atol=1e-11)
        assert {(n, 2**22 // d), (d, 2**22 // n)} <= set(lengths)
    assert wide_rows.are_wide_rows(data)
    assert not wide_rows.are_wide_rows(Centred(Cut(rows[:, :40], 30), LocalEngine(1)))
    assert not wide_rows.are_wide_rows(Centred(Cut(rows, 30, 1), LocalEngine(1)))
    assert not wide_rows.are_wide_rows(Centred(Cut(sp.csr_array(rows), 30), LocalEngine(1)))


def test_adjacent_blocks_of_another_source():
    source = Cut(np.arange(24.0).reshape(12, 2), 3)
    span = wide_rows.Span(source, 1, 4)
    assert (span.shape, span.blocks) == ((9, 2), ((0, 3), (3, 6), (6, 9)))
    assert (span.local, [span.below(i) for i in range(3)]) == ((0, 1, 2), [1, 2, 3])
    assert wide_rows.Span(source, 1, 2).shape == (3, 2)
    np.testing.assert_array_equal(span.read(1), source.held[6:9])
    strips = wide_rows.Strips([source.held[:3].T, source.held[3:6].T])
    assert (strips.shape, strips.axis, strips.blocks) == ((4, 3), 1, ((0, 3),))
    np.testing.assert_array_equal(strips.read(0), np.r_[source.held[:3].T, source.held[3:6].T])


def test_data_that_are_centred_after_the_products():
    """Dense rows on a device, which are neither standardised nor filled."""

    def implicit(axis=0, device="cuda:0", block=X, **options):
        source = Cut(block, 2, axis)
        source.device = device
        return Centred(source, LocalEngine(1), **options).implicitly_centred().implicit

    assert implicit()
    assert implicit(axis=1)
    assert not implicit(device=None)
    assert not implicit(device="cpu")
    assert not implicit(center=False)
    assert not implicit(scale="std")
    assert not implicit(missing="mean")
    assert not implicit(block=sp.csr_array(X))
    assert implicit(scale=np.ones(3), sample_weight=np.ones(5))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_that_are_centred_afterwards(axis, weighted):
    rng = np.random.default_rng(1)
    rows, w = rng.normal(size=(30, 45)) + rng.normal(size=45), rng.integers(1, 4, 30)
    root = np.sqrt(w if weighted else np.ones(30))
    M = root[:, None] * (rows - np.average(rows, axis=0, weights=root**2))
    V, U = rng.normal(size=(45, 3)), rng.normal(size=(30, 3))

    def operator():
        source = Cut(rows, 8, axis)
        source.device = "cuda:0"
        weights = w if weighted else None
        return Centred(source, LocalEngine(1), sample_weight=weights).implicitly_centred()

    known = operator()
    for data in (operator(), known, known):  # in the first pass, and in later ones
        assert data.implicit
        np.testing.assert_allclose(data.forward(V), M @ V, atol=1e-12)
    np.testing.assert_allclose(operator().gram_product(U), M @ M.T @ U / known.weight, atol=1e-11)
    for data in (operator(), known):
        np.testing.assert_allclose(data.adjoint(U), M.T @ U, atol=1e-12)
        found = data.covariance_product(V)
        np.testing.assert_allclose(found, M.T @ M @ V / known.weight, atol=1e-11)
        np.testing.assert_allclose(data.gram_product(U), M @ M.T @ U / known.weight, atol=1e-11)
        assert data.total == pytest.approx((M * M).sum() / known.weight, rel=1e-12)


def test_squares_of_a_sample_are_about_the_mean_of_all_rows():
    X = sp.random_array((60, 9), density=0.4, rng=np.random.default_rng(0)).tocsr() * 10
    dense = X.toarray()
    for form in (X, X.tocsc()):
        part = Centred(form).sample(0.5, 0)
        index = part.source.index
        rows = dense[index] - dense.mean(axis=0)
        np.testing.assert_allclose(part.covariance(), rows.T @ rows / len(index), atol=1e-10)
        np.testing.assert_allclose(part.gram(), rows @ rows.T / len(index), atol=1e-10)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_one_row_is_too_few_for_a_certificate(make, center):
    with pytest.raises(ValueError, match="Found 1 sample in `X`"):
        certify(make(np.arange(1.0, 7)[None]), np.eye(6)[:1], center=center)
