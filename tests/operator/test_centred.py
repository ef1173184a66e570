"""The operator against its formula, M = W^(1/2) (X - 1 mean^T) S^-1 formed densely in float64."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from catalogue import EPS, FEW_SOURCES, SOURCES, VARIANCE_ERROR, thinned

from primedpca import refine
from primedpca._core.arrays import subtract_outer, to_numpy, wide_dot
from primedpca._operator.operator import Centred
from primedpca._operator.preparation import prepare
from primedpca.engines import LocalEngine

SHAPES = {"tall": (60, 9), "wide": (20, 50)}
ENGINE = LocalEngine(1)  # the others give the same bits: contracts/test_engines.py


pytestmark = pytest.mark.usefixtures("small_blocks")


def plain(shape, seed=0):
    """Half zeros, means away from zero, and no column that is full."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal(shape) + rng.standard_normal(shape[1])) * (rng.random(shape) < 0.5)
    X[rng.integers(0, shape[0], shape[1]), np.arange(shape[1])] = 0
    return X


def varied(shape, missing=False):
    """As ``plain``, with columns that are full, far from zero, constant and zero; and with NaN."""
    rng = np.random.default_rng(1)
    X = plain(shape)
    X[:, 0] = rng.standard_normal(shape[0])
    X[:, 1] = 50 + rng.standard_normal(shape[0])
    X[:, 2] = 3
    X[:, 3] = 0
    if missing:
        holes = rng.random(shape) < 0.1
        holes[:, 4] = np.arange(shape[0]) > shape[0] // 2
        X[holes] = np.nan
    return X


def some_weights(n):
    weights = np.random.default_rng(2).choice([0.0, 0.5, 1.0, 3.0], n)
    weights[:4] = 0.0, 2.0, 1.0, 0.25
    return weights


@dataclass
class Dense:
    """The reference."""

    M: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    scale: np.ndarray


def dense_formula(X, sample_weight=None, center=True, scale=None, missing="error"):
    X = X.astype(np.longdouble)
    w = np.ones(X.shape[0]) if sample_weight is None else np.asarray(sample_weight)
    there = ~np.isnan(X)
    assert missing == "mean" or there.all()
    present = w[:, None] * there
    mean = np.sum(present * np.nan_to_num(X), axis=0) / present.sum(axis=0)
    filled = np.where(there, X, mean)
    if isinstance(scale, str):
        variance = np.sum(present * (filled - mean) ** 2, axis=0) / w.sum()  # of the filled column
        scale = np.where(variance > 1e-20 * mean**2, np.sqrt(variance), 1.0)
    elif scale is None:
        scale = np.ones(X.shape[1])
    mean = mean if center else np.zeros_like(mean)
    M = np.sqrt(w)[:, None] * (filled - mean) / scale
    return Dense(*(np.asarray(part, np.float64) for part in (M, w.sum(), mean, scale)))


def vectors(shape, side):
    return np.random.default_rng(3 + side).standard_normal((shape[side], 3))


#: name -> (operator, right vectors, left vectors) -> product
PRODUCTS = {
    "covariance_product": lambda data, V, U: data.covariance_product(V),
    "projected_covariance": lambda data, V, U: data.projected_covariance(V),
    "forward": lambda data, V, U: data.forward(V),
    "adjoint": lambda data, V, U: data.adjoint(U),
    "covariance": lambda data, V, U: data.covariance(),
    "gram": lambda data, V, U: data.gram(),
    "scores_and_squares": lambda data, V, U: side_by_side(*data.scores_and_squares(V)),
}
#: name -> (M, weight, right vectors, left vectors) -> product
FORMULAS = {
    "covariance_product": lambda M, w, V, U: M.T @ (M @ V) / w,
    "projected_covariance": lambda M, w, V, U: (M @ V).T @ (M @ V) / w,
    "forward": lambda M, w, V, U: M @ V,
    "adjoint": lambda M, w, V, U: M.T @ U,
    "covariance": lambda M, w, V, U: M.T @ M / w,
    "gram": lambda M, w, V, U: M @ M.T / w,
    "scores_and_squares": lambda M, w, V, U: side_by_side(M @ V, (M**2).sum(axis=1)),
}


def side_by_side(scores, squares):
    return np.concatenate([to_numpy(scores), to_numpy(squares)[:, None]], axis=1)


def assert_close(found, expected, dtype="float64", what=""):
    found = to_numpy(found)
    assert found.shape == expected.shape, what
    tolerance = 300 * EPS[np.dtype(dtype)] * max(np.abs(expected).max(), 1e-3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=what)


def check_product(data, M, weight, name, dtype="float64", what=""):
    V, U = vectors(M.shape, 1), vectors(M.shape, 0)
    found = PRODUCTS[name](data, data.like.asarray(V), data.like.asarray(U))
    assert_close(found, FORMULAS[name](M, weight, V, U), dtype, f"{what} {name}")


PREPARATIONS = {
    ", ".join(
        f"{k}={v}" for k, v in zip(("weights", "center", "scale", "missing"), c, strict=True)
    ): c
    for c in itertools.product(
        (False, True), (True, False), (None, "std", "array"), ("error", "mean")
    )
}


@pytest.fixture(params=SHAPES)
def shape(request):
    return SHAPES[request.param]


def prepared(shape, weights, center, scale, missing):
    """Data and the options that prepare them."""
    X = varied(shape, missing == "mean")
    scale = np.linspace(0.5, 4, shape[1]) if scale == "array" else scale
    weight = some_weights(shape[0]) if weights else None
    return X, {"sample_weight": weight, "center": center, "scale": scale, "missing": missing}


# -- every product, of every kind of data, prepared in every way -------------------------------


@pytest.mark.parametrize("preparation", PREPARATIONS)
@pytest.mark.parametrize("name", thinned(SOURCES))
def test_products(name, preparation, shape, tmp_path):
    X, options = prepared(shape, *PREPARATIONS[preparation])
    given = SOURCES[name](X, tmp_path)
    ref = dense_formula(X, **options)
    for product in PRODUCTS:
        data = Centred(given, ENGINE, **options)
        assert data.weight == pytest.approx(ref.weight)
        check_product(data, ref.M, ref.weight, product, what="first pass,")
        check_product(data, ref.M, ref.weight, product, what="mean known,")
        assert_close(data.mean, ref.mean)
        assert data.total == pytest.approx((ref.M**2).sum() / ref.weight, rel=1e-10)
        if options["scale"] is not None:
            assert_close(data.frame.scale, ref.scale)


@pytest.mark.parametrize("first", ["mean", "total"])
@pytest.mark.parametrize("preparation", PREPARATIONS)
def test_mean_and_total_of_their_own(preparation, first, shape):
    X, options = prepared(shape, *PREPARATIONS[preparation])
    ref = dense_formula(X, **options)
    for given in (X, sp.csr_array(X), sp.csc_array(X)):
        data = Centred(given, ENGINE, **options)
        getattr(data, first)
        assert_close(data.mean, ref.mean)
        assert data.total == pytest.approx((ref.M**2).sum() / ref.weight, rel=1e-10)


@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("name", thinned(SOURCES))
def test_float32(name, weights, scale, shape, tmp_path):
    X = varied(shape).astype(np.float32)
    options = {"sample_weight": some_weights(shape[0]) if weights else None, "scale": scale}
    ref = dense_formula(X, **options)
    for product in PRODUCTS:
        data = Centred(SOURCES[name](X, tmp_path), ENGINE, **options)
        assert "float32" in str(data.like.dtype)
        check_product(data, ref.M, ref.weight, product, "float32", "first pass,")
        check_product(data, ref.M, ref.weight, product, "float32", "mean known,")


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("name", thinned(SOURCES))
def test_widened_multiplies_in_float64(name, weights, shape, tmp_path):
    X = plain(shape).astype(np.float32)
    weight = some_weights(shape[0]) if weights else None
    data = Centred(SOURCES[name](X, tmp_path), ENGINE, sample_weight=weight)
    V = vectors(shape, 1)
    wide = data.widened()
    found = wide.covariance_product(wide.like.asarray(V))
    assert "float64" in str(found.dtype)
    # The same operator up to the rounding of its mean and weights, which float32 holds.
    M = dense_formula(X, weight).M
    assert_close(found, M.T @ M @ V / data.weight, "float32")
    again = wide.covariance_product(wide.like.asarray(V * 3))
    assert_close(again, 3 * to_numpy(found), "float64")


# -- mini-batches and samples -----------------------------------------------------------------


@pytest.mark.parametrize("preparation", PREPARATIONS)
@pytest.mark.parametrize("name", thinned(SOURCES))
def test_batches_and_samples(name, preparation, shape, tmp_path):
    X, options = prepared(shape, *PREPARATIONS[preparation])
    data = Centred(SOURCES[name](X, tmp_path), ENGINE, **options)
    ref = dense_formula(X, **options)
    weight = options["sample_weight"]
    weight = np.ones(shape[0]) if weight is None else weight
    size = shape[0] // 2  # two batches, the first of which is skipped
    numbers = [index for index, _ in data.source.batches(size, 1, 2, 1)]
    batches = [part for _, part in data.numbered_batches(size, 1, 2, 1)]
    assert len(numbers) == len(batches)
    sample = data.sample(0.4, 5)
    for what, index, part in [
        *zip(itertools.repeat("batch,"), numbers, batches, strict=False),
        ("sample,", sample.source.index, sample),
    ]:
        assert part.shape == (len(index), shape[1])
        assert part.weight == pytest.approx(weight[index].sum())
        for product in PRODUCTS:
            check_product(part, ref.M[index], weight[index].sum(), product, what=what)
    for index, part in zip(numbers, batches, strict=True):
        assert_close(part.rows(), ref.M[index])


def test_batches_count_their_share_of_a_pass():
    data = Centred(plain((60, 9)), ENGINE)
    data.covariance_product(vectors((60, 9), 1))
    assert data.passes == 1
    for _ in data.numbered_batches(7, seed=0):
        pass
    assert data.passes == pytest.approx(2)


def test_batches_of_no_weight_are_left_out():
    X, weight = plain((60, 9)), np.repeat([1.0, 0.0], 30)
    data = Centred(X, ENGINE, sample_weight=weight)
    parts = [part for _, part in data.numbered_batches(6, seed=None)]
    assert len(parts) == 5
    assert sum(part.weight for part in parts) == 30
    assert data.passes == pytest.approx(2)  # one to learn the mean, one for the epoch


def test_a_sample_of_no_weight_is_refused():
    weight = np.zeros(60)
    weight[0] = 2
    data = Centred(plain((60, 9)), ENGINE, sample_weight=weight)
    with pytest.raises(ValueError, match="`sample_weight` of the 6 rows drawn adds up to 0"):
        data.sample(0.1, seed=0)


# -- new rows with an old mean ----------------------------------------------------------------


@pytest.mark.parametrize("missing", ["error", "mean"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", thinned(SOURCES))
def test_given(name, scaled, missing, shape, tmp_path):
    X = varied(shape, missing == "mean")
    mean, scale = np.linspace(-1, 2, shape[1]), np.linspace(0.5, 2, shape[1])
    fill = mean if missing == "mean" else None
    source = SOURCES[name](X, tmp_path)
    data = Centred.given(source, mean, scale if scaled else None, missing, fill)
    M = (np.where(np.isnan(X), mean, X) - mean) / (scale if scaled else 1)
    for product in PRODUCTS:
        check_product(data, M, shape[0], product)
    before = data.passes
    check_product(data, M, shape[0], "forward")
    assert data.passes == before + 1


# -- passes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", thinned(SOURCES))
def test_passes(name, shape, tmp_path):
    given = SOURCES[name](plain(shape), tmp_path)
    V, U = vectors(shape, 1), vectors(shape, 0)
    columns = Centred(given, ENGINE).source.axis == 1
    cost = {
        "covariance_product": 2 if columns else 1,
        "projected_covariance": 1,
        "forward": 1,
        "adjoint": 1,
        "gram" if columns else "covariance": 1,
        "scores_and_squares": 1,
    }
    needs_the_mean = ("adjoint", "scores_and_squares")
    for product, expected in cost.items():
        data = Centred(given, ENGINE)
        assert data.passes == 0
        PRODUCTS[product](data, data.like.asarray(V), data.like.asarray(U))
        assert data.passes == expected + (product in needs_the_mean), product
        before = data.passes
        PRODUCTS[product](data, data.like.asarray(V), data.like.asarray(U))
        assert data.passes - before == expected, product
        before = data.passes
        assert np.isfinite(data.total)
        assert data.mean.shape == (shape[1],)
        assert data.passes == before


@pytest.mark.parametrize("name", thinned(SOURCES))
def test_refining_is_one_pass(name, shape, tmp_path):
    data = Centred(SOURCES[name](plain(shape), tmp_path), ENGINE)
    found = refine(data, vectors(shape, 1), 2)
    assert found.components.shape == (2, shape[1])
    assert data.passes == 1


def test_standardising_costs_one_pass_more():
    data = Centred(plain((60, 9)), ENGINE, scale="std")
    data.covariance_product(vectors((60, 9), 1))
    assert data.passes == 2


# -- weights are frequencies ------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["error", "mean"])
@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize("name", ["numpy", "csr", "csc", "torch", "memory map, rows"])
def test_a_row_of_weight_two_is_the_row_twice(name, scale, missing, shape, tmp_path):
    X = varied(shape, missing == "mean")
    counts = np.random.default_rng(0).integers(0, 4, shape[0])
    options = {"scale": scale, "missing": missing}
    weighted = Centred(SOURCES[name](X, tmp_path), ENGINE, sample_weight=counts, **options)
    repeated = Centred(np.repeat(X, counts, axis=0), ENGINE, **options)
    V = vectors(shape, 1)
    assert weighted.weight == repeated.weight == counts.sum()
    assert_close(
        weighted.covariance_product(weighted.like.asarray(V)), repeated.covariance_product(V)
    )
    assert_close(weighted.mean, repeated.mean)
    assert weighted.total == pytest.approx(repeated.total)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(59), r"`sample_weight` has shape \(59,\), but `X` has 60 rows"),
        (np.ones((60, 1)), "`sample_weight` has shape"),
        (3.0, "`sample_weight` has shape"),
        (np.where(np.arange(60) == 7, -1.0, 1.0), r"`sample_weight`\[7\]=-1.0 must be finite"),
        (np.where(np.arange(60) == 7, np.nan, 1.0), r"`sample_weight`\[7\]=nan must be finite"),
        (np.zeros(60), "`sample_weight` adds up to 0"),
        (np.r_[1e300, np.full(59, 1e-300)], r"`sample_weight`\[1\]=1e-300 is too small beside a"),
        (np.r_[1e273, np.full(59, 5e-109)], "Use 0 to leave the row out"),
        (np.r_[2.0, np.full(59, 5e-324)], "4.94066e-324 is too small beside a sum of 2"),
    ],
)
def test_weights_that_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        Centred(plain((60, 9)), sample_weight=weight)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ("max", "`scale`='max' must be None, 'std' or"),
        (np.ones(8), r"`scale` has shape \(8,\), but `X` has 9 columns"),
        (np.zeros(9), "must be finite and positive"),
        (np.full(9, np.nan), "must be finite and positive"),
    ],
)
def test_scales_that_are_refused(scale, message):
    with pytest.raises(ValueError, match=message):
        Centred(plain((60, 9)), scale=scale)


def test_other_options_that_are_refused():
    with pytest.raises(ValueError, match="`missing`='drop' must be 'error' or 'mean'"):
        Centred(plain((60, 9)), missing="drop")
    data = Centred(plain((60, 9)))
    assert Centred.of(data) is data
    with pytest.raises(TypeError, match="`scale` cannot be changed"):
        Centred.of(data, scale="std")


# -- far from zero ----------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize(("dtype", "mean"), [("float64", 1e8), ("float32", 1e3)])
@pytest.mark.parametrize("name", ["numpy", "memory map, rows", "csr", "csc", "torch"])
def test_a_mean_far_from_zero_costs_no_accuracy(name, dtype, mean, weights, scale, shape, tmp_path):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal(shape) + mean * rng.uniform(0.1, 1, shape[1])).astype(dtype)
    weight = rng.choice([0.1, 0.5, 3.0], shape[0]) if weights else None
    ref = dense_formula(X, weight, scale=scale)
    V = np.eye(shape[1])[:, :3]
    given = SOURCES[name](X, tmp_path)
    tolerance = VARIANCE_ERROR[np.dtype(dtype)]
    for product in ("covariance_product", "projected_covariance", "covariance", "gram"):
        data = Centred(given, ENGINE, sample_weight=weight, scale=scale)
        # Of the Gram matrix only the eigenvalues: the rounding of the mean is in its entries, in
        # the one direction in which M has nothing.
        of = np.linalg.eigvalsh if product == "gram" else np.asarray
        expected = of(FORMULAS[product](ref.M, ref.weight, V, None))
        for _ in range(2):  # first pass, and mean known
            found = of(to_numpy(PRODUCTS[product](data, data.like.asarray(V), None)))
            error = np.abs(found - expected).max() / np.abs(expected).max()
            assert error < tolerance, product
        assert data.total == pytest.approx((ref.M**2).sum() / ref.weight, rel=tolerance)


# -- sparse data stay sparse ------------------------------------------------------------------


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("options", [{}, {"scale": "std"}, {"weights": True}], ids=str)
def test_sparse_data_are_never_dense(kind, options, monkeypatch):
    monkeypatch.undo()  # blocks of the usual size
    shape = (20_000, 200_000)
    rng = np.random.default_rng(0)
    entries = rng.integers(0, shape[0], 50_000), rng.integers(0, shape[1], 50_000)
    X = kind(sp.coo_array((rng.random(50_000), entries), shape=shape))
    V = rng.standard_normal((shape[1], 3))
    weight = rng.integers(0, 3, shape[0]) if "weights" in options else None
    scale = options.get("scale")
    tracemalloc.start()
    data = Centred(X, ENGINE, sample_weight=weight, scale=scale)
    z = data.covariance_product(V)
    z = data.covariance_product(z)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6  # a dense copy is 32 GB, a dense block of a thousandth 32 MB
    assert np.isfinite(z).all()


# -- missing values ---------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("name", thinned(SOURCES))
def test_a_column_without_any_value_is_refused(name, weights, shape, tmp_path):
    X = varied(shape)
    X[:, [5, 7]] = np.nan
    weight = np.ones(shape[0]) if weights else None
    data = Centred(SOURCES[name](X, tmp_path), ENGINE, missing="mean", sample_weight=weight)
    with pytest.raises(ValueError, match=r"2 column\(s\) in which every value .* column 5"):
        data.covariance_product(data.like.asarray(vectors(shape, 1)))


# -- what is no number ------------------------------------------------------------------------

BAD_SOURCES = ["numpy", "numpy, columns first", "memory map, rows", "memory map, columns"]
BAD_SOURCES += ["csr", "csc", "coo", "torch", "pandas", "polars"]


def refused(given, product="covariance_product", **options):
    data = Centred(given, ENGINE, **options)
    V, U = (data.like.asarray(vectors(data.shape, side)) for side in (1, 0))
    with pytest.raises(ValueError, match="Input X contains") as error:
        PRODUCTS[product](data, V, U)
    return str(error.value)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("place", [(0, 0), (2, 6), (-1, -1), (-3, 0), (0, -2)], ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", thinned(BAD_SOURCES, (*FEW_SOURCES, "pandas")))
def test_the_first_bad_entry_is_named(name, value, place, dtype, shape, tmp_path):
    X = varied(shape).astype(dtype)
    X[place] = value
    row, column = place[0] % shape[0], place[1] % shape[1]
    given = SOURCES[name](X, tmp_path)
    what = "NaN" if np.isnan(value) else "infinity"
    expected = f"contains {what}: 1 non-finite value(s), the first at row {row}, "
    expected += (
        f"column {column} ('c{column}') (" if name in ("pandas", "polars") else f"column {column} ("
    )
    missing = ("error", "mean") if what == "infinity" else ("error",)
    for scale, rule in itertools.product((None, "std"), missing):
        text = refused(given, scale=scale, missing=rule)
        assert expected in text
        assert ("`missing`='mean'" in text) == (what == "NaN")


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("name", thinned(BAD_SOURCES, (*FEW_SOURCES, "pandas")))
def test_every_product_refuses_bad_entries(name, product, shape, tmp_path):
    X = varied(shape)
    X[-2, 5] = np.nan
    text = refused(SOURCES[name](X, tmp_path), product)
    assert f"row {shape[0] - 2}, column 5" in text


@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize("name", thinned(BAD_SOURCES, (*FEW_SOURCES, "pandas")))
def test_bad_entries_are_counted(name, scale, shape, tmp_path):
    X = varied(shape)
    X[3, 2] = np.inf
    X[-1, 6] = np.nan
    X[-2, 5] = -np.inf
    assert "3 non-finite value" in refused(SOURCES[name](X, tmp_path), scale=scale)


@pytest.mark.parametrize("rule", ["error", "mean"])
@pytest.mark.parametrize("name", thinned(BAD_SOURCES, (*FEW_SOURCES, "pandas")))
def test_a_column_of_infinities_is_not_taken_for_missing(name, rule, shape, tmp_path):
    X = varied(shape)
    X[:, 5] = np.inf
    text = refused(SOURCES[name](X, tmp_path), missing=rule)
    assert f"infinity: {shape[0]} non-finite value" in text
    assert "row 0, column 5" in text


@pytest.mark.parametrize("rule", ["error", "mean"])
def test_infinities_of_both_signs(rule, shape):
    X = varied(shape)
    X[:2, 5] = np.inf, -np.inf
    assert "2 non-finite value" in refused(X, missing=rule)


def test_bad_entries_of_other_types():
    X = varied((60, 9))
    X[7, 3] = np.nan
    half = X.astype(np.float16)
    for given in (half, torch.tensor(half), torch.tensor(half).to(torch.bfloat16)):
        assert "NaN: 1 non-finite value(s), the first at row 7, column 3" in refused(given)


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(float).max, reason="no wider type")
def test_numbers_beyond_float64_are_named():
    X = varied((60, 9)).astype(np.longdouble)
    X[7, 3] = np.longdouble("1e4000")
    assert "row 7, column 3" in refused(X)


def test_new_rows_with_bad_entries_are_refused(shape):
    X = varied(shape)
    X[-1, 2] = np.nan
    data = Centred.given(X, np.zeros(shape[1]))
    with pytest.raises(ValueError, match=f"NaN.* row {shape[0] - 1}, column 2"):
        data.check_finite(data.forward(vectors(shape, 1)))


# -- the ends of the range --------------------------------------------------------------------


@pytest.mark.parametrize("scale", [None, "std", "array"])
@pytest.mark.parametrize("power", [-1000, -600, 600, 1000])
@pytest.mark.parametrize("name", ["numpy", "csr", "csc", "torch"])
def test_sizes_whose_squares_leave_the_range(name, power, scale, shape, tmp_path):
    X = plain(shape)
    scale = np.linspace(0.5, 4, shape[1]) if scale == "array" else scale
    ref = dense_formula(X, scale=scale)
    for product in PRODUCTS:
        data = Centred(SOURCES[name](X * 2.0**power, tmp_path), ENGINE, scale=scale)
        # M comes multiplied by a power of two, the gain, which keeps its squares in range.
        V, U = (data.like.asarray(vectors(shape, side)) for side in (1, 0))
        first = PRODUCTS[product](data, V, U)
        size = 1.0 if isinstance(scale, str) else data.frame.gain * 2.0**power
        expected = FORMULAS[product](ref.M * size, ref.weight, vectors(shape, 1), vectors(shape, 0))
        assert_close(first, expected, what=f"first pass, {product}")
        check_product(data, ref.M * size, ref.weight, product, what="mean known,")
        np.testing.assert_allclose(to_numpy(data.mean) / 2.0**power, ref.mean, rtol=1e-12)


# -- data that are centred already ------------------------------------------------------------


def centred_already(n=700, d=30, off=0.0):
    """Rows about zero in float32, and a mean of ``off`` times what their norms are."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((n, d)) * np.linspace(1, 3, d)
    X -= X.mean(axis=0)
    X = X.astype(np.float32)
    mean = X.astype(np.float64).mean(axis=0)
    return (X - mean + off * np.linalg.norm(X, axis=1).mean() / np.sqrt(d)).astype(np.float32)


@pytest.mark.parametrize("off", [0.0, 1e-8, 1e-7, 1e-6, 1e-3, 1.0, 1e3])
def test_means_are_subtracted_unless_they_are_below_rounding(off):
    X = centred_already(off=off)
    wide = X.astype(np.float64)
    M = wide - wide.mean(axis=0)
    data = Centred(X, ENGINE)
    data.learn()
    V = np.random.default_rng(1).standard_normal((30, 4)).astype(np.float32)
    scores = data.forward(V)
    # As if it had been shifted: a mean of 1e-7 of the rows would show in theirs.
    size = np.linalg.norm(M, axis=1, keepdims=True) * np.linalg.norm(V, axis=0)
    assert np.abs(scores - M @ V).max() < (4e-7 + 2e-7 * off) * size.max()
    product = data.covariance_product(V)
    expected = M.T @ (M @ V) / len(X)
    assert np.abs(product - expected).max() < (1e-6 + 1e-6 * off) * np.abs(expected).max()
    np.testing.assert_allclose(data.mean, wide.mean(axis=0), atol=1e-7 * np.abs(wide).max())
    assert (data.frame.columns.shift is None) == (off < 1e-7)
    # In float64, where proofs are made, it always is.
    assert data.widened().frame.columns.shift is not None
    double = Centred(X, ENGINE, float64=True)
    double.learn()
    assert double.frame.columns.shift is not None


def test_standardised_columns_count_in_their_scale():
    X = centred_already() * np.geomspace(1, 1e-6, 30).astype(np.float32)
    X[:, -1] += 1e-6  # small beside the other columns, as large as its own deviation
    data = Centred(X, ENGINE, scale="std")
    data.learn()
    assert data.frame.columns.shift is not None
    scores = data.forward(np.eye(30, dtype=np.float32))
    wide = X.astype(np.float64)
    assert np.abs(scores - (wide - wide.mean(axis=0)) / wide.std(axis=0)).max() < 1e-5


def test_centred_data_are_not_copied_and_not_written_to():
    X = centred_already()
    X.flags.writeable = False
    data = Centred(X, ENGINE)
    data.learn()
    block = data.source.read(0)
    assert np.shares_memory(prepare(block, X.dtype, data.frame.columns), X)
    turned = np.asfortranarray(X)
    assert not np.shares_memory(prepare(turned, X.dtype, data.frame.columns), turned)


# -- the offset of sparse data ----------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_subtract_outer_in_place(dtype, order):
    rng = np.random.default_rng(2)
    z = np.asarray(rng.standard_normal((500, 7)), dtype=dtype, order=order)
    u, v = rng.standard_normal(500).astype(np.float32), rng.standard_normal(7)
    expected = z.astype(np.float64) - np.outer(u.astype(np.float64), v)
    subtract_outer(z, u, v)
    assert np.abs(z - expected).max() < 8 * EPS[np.dtype(dtype)]


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_wide_dot_adds_in_float64(kind):
    u, v = np.ones(2**19, np.float32), np.ones((2**19, 3), np.float32)
    v[0] = 2**24  # in float32 the ones would be lost beside it
    assert to_numpy(wide_dot(kind(u), kind(v))).tolist() == [2**24 + 2**19 - 1] * 3
