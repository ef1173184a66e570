"""The numbers that are promised, on the cases where the field's tools fail."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from catalogue import VARIANCE_ERROR, thinned

from primedpca import PrimedPCA
from primedpca._operator import kernels
from primedpca._operator.preparation import Columns, stored_means
from primedpca.metrics import angles

KINDS = {
    "numpy": lambda X: X,
    "csr": sp.csr_array,
    "csc": sp.csc_array,
    "torch": torch.tensor,
}
WAYS = ["exact", "subspace_iteration", "block_krylov"]


def reference(X):
    """Variances and components by LAPACK in extended precision centring."""
    wide = X.astype(np.longdouble)
    centred = (wide - wide.mean(axis=0)).astype(np.float64)
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    return s**2 / (X.shape[0] - 1), vt


def far_from_zero(ratio, dtype, n=5000, d=20):
    """Spread of 0.5 to 2 about a mean of ``ratio``."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * np.linspace(2, 0.5, d) + ratio
    return X.astype(dtype)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ratio", "dtype"),
    [(r, "f8") for r in (0, 1e4, 1e8)] + [(r, "f4") for r in (0, 1e3)],
)
def test_a_mean_far_larger_than_the_spread(ratio, dtype, kind, way):
    X = far_from_zero(ratio, dtype)
    variances, components = reference(X)
    tol = 1e-7 if dtype == "f8" else 1e-6
    pca = PrimedPCA(5, priming=way, tol=tol, max_passes=300, random_state=0).fit(KINDS[kind](X))
    error = np.abs(pca.explained_variance_ - variances[:5]).max() / variances[0]
    assert error <= VARIANCE_ERROR[X.dtype]
    total = variances.sum()
    assert abs(pca.noise_variance_ * 15 + pca.explained_variance_.sum() - total) <= 1e-5 * total
    # The mean itself, in units of the spread: half an ulp of the entries.
    assert np.abs(pca.mean_ - X.astype("longdouble").mean(0)).max() <= np.spacing(X.max())
    assert angles(pca.components_, components[:5]).max() < (1e-6 if dtype == "f8" else 1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_temperatures_in_kelvin(kind):
    rng = np.random.default_rng(1)
    X = (290 + rng.standard_normal((4000, 12)) * np.linspace(0.6, 0.3, 12)).astype("f4")
    variances, _ = reference(X)
    pca = PrimedPCA(3).fit(KINDS[kind](X))
    np.testing.assert_allclose(pca.explained_variance_, variances[:3], rtol=1e-5)


def test_unix_times():
    rng = np.random.default_rng(2)
    X = 1.7e9 + np.cumsum(rng.random((3000, 6)), axis=0)
    variances, components = reference(X)
    pca = PrimedPCA(6).fit(X)
    assert np.abs(pca.explained_variance_ - variances).max() <= 1e-10 * variances[0]
    assert angles(pca.components_[:1], components[:1])[0] < 1e-7


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("dtype", "powers"), [("f4", (-100, -60, -30, 30, 60, 100)), ("f8", (-400, -40, 40, 400))]
)
def test_powers_of_two_do_not_change_the_components(kind, way, dtype, powers):
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((300, 12)) * np.arange(12, 0, -1) + 3).astype(dtype)
    fit = {"priming": way, "random_state": 0}
    plain = PrimedPCA(4, **fit).fit(KINDS[kind](X))
    for power in powers:
        scaled = PrimedPCA(4, **fit).fit(KINDS[kind](np.ldexp(X, power)))
        tiny = 1e-6 if dtype == "f4" else 1e-14
        np.testing.assert_allclose(scaled.components_, plain.components_, atol=tiny)
        wanted = np.ldexp(plain.explained_variance_.astype("f8"), 2 * power)
        np.testing.assert_allclose(scaled.explained_variance_, wanted, rtol=1e-5)
        np.testing.assert_allclose(
            scaled.explained_variance_ratio_, plain.explained_variance_ratio_, rtol=1e-5
        )
        assert_finite(scaled)


def assert_finite(pca):
    for name, value in vars(pca).items():
        if name.endswith("_") and isinstance(value, (np.ndarray, float)):
            assert np.isfinite(value).all(), name


@pytest.mark.parametrize("size", [1e19, 1e30, 3e38])
def test_finite_values_near_the_top_of_float32(size):
    rng = np.random.default_rng(4)
    X = (rng.random((200, 8)) * size).astype("f4")
    variances, components = reference(X.astype("f8") / size)
    pca = PrimedPCA(3).fit(X)
    assert_finite(pca)
    np.testing.assert_allclose(pca.explained_variance_ / size / size, variances[:3], rtol=1e-4)
    assert angles(pca.components_, components[:3]).max() < 1e-2


def test_variances_beyond_float64_are_refused_by_name():
    X = np.random.default_rng(5).random((50, 4)) * 1e200
    with pytest.raises(ValueError, match="exceed the range of float64"):
        PrimedPCA(2).fit(X)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0.0, 7.25, 1e8])
def test_a_constant_matrix_has_no_variance_and_no_infinite_ratio(kind, value):
    pca = PrimedPCA(2).fit(KINDS[kind](np.full((30, 5), value)))
    assert_finite(pca)
    assert pca.explained_variance_.max() <= 1e-20 * value**2
    assert pca.explained_variance_ratio_.max() <= 1
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(2), atol=1e-12)


@pytest.mark.parametrize("shape", [(60, 15), (15, 60)])
def test_rank_deficient_data_report_zeros_not_noise(shape):
    rng = np.random.default_rng(6)
    X = rng.standard_normal((shape[0], 3)) @ rng.standard_normal((3, shape[1]))
    pca = PrimedPCA().fit(X)
    assert pca.explained_variance_[3:].max() <= 1e-14 * pca.explained_variance_[0]
    assert pca.noise_variance_ == 0
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(15), atol=1e-12)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "float16", "bool"])
def test_small_types_compute_and_return_float32(dtype):
    X = np.random.default_rng(7).integers(0, 2 if dtype == "bool" else 100, (200, 9)).astype(dtype)
    variances, _ = reference(X.astype("f8"))
    pca = PrimedPCA(3).fit(X)
    assert pca.components_.dtype == pca.transform(X).dtype == np.float32
    np.testing.assert_allclose(pca.explained_variance_, variances[:3], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "float64", "longdouble"])
def test_wide_types_compute_and_return_float64(dtype):
    X = np.random.default_rng(8).integers(0, 10**6, (200, 9)).astype(dtype)
    pca = PrimedPCA(3).fit(X)
    assert pca.components_.dtype == pca.transform(X).dtype == np.float64
    np.testing.assert_allclose(pca.explained_variance_, reference(X)[0][:3], rtol=1e-10)


def test_int16_extremes_do_not_wrap():
    X = np.array([[-32768, 32767], [32767, -32768], [0, 5], [9, 0]], dtype="int16")
    variances, _ = reference(X)
    error = np.abs(PrimedPCA().fit(X).explained_variance_ - variances)
    assert error.max() <= 1e-5 * variances[0]


@pytest.mark.parametrize("kind", thinned(["numpy", "csr", "csc"], ("numpy",)))
def test_bitwise_the_same_on_repeat_and_with_any_number_of_workers(kind):
    from primedpca.engines import LocalEngine

    X = np.random.default_rng(9).standard_normal((9000, 150)) * np.linspace(3, 1, 150)
    for way, tol in (("subspace_iteration", 1.0), ("block_krylov", 0.1)):
        fits = [
            PrimedPCA(5, priming=way, tol=tol, random_state=0, engine=e).fit(KINDS[kind](X))
            for e in (None, LocalEngine(1), LocalEngine(2), LocalEngine(4))
        ]
        for other in fits[1:]:
            assert np.array_equal(fits[0].components_, other.components_)
            assert np.array_equal(fits[0].angle_bounds_, other.angle_bounds_)


@pytest.mark.parametrize("kind", ["f4", "u1", "i2"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_nothing_changes_are_multiplied_as_they_are_stored(
    kind, order, axis, monkeypatch
):
    """The same bits as of a copy in float64 that is rounded to float32 again."""
    rng = np.random.default_rng(0)
    X = np.asarray(rng.integers(0, 100, (300, 40)), dtype=kind, order=order)
    checks = rng.normal(size=(40 if axis == 0 else 300, 8))
    options = {"dtype": np.dtype("f8"), "axis": axis, "unit": 1.0, "root": None, "checks": checks}

    def made(factor):
        columns = Columns(factor=factor)
        return kernels.covariance(X, columns=columns, rounded=True, gather=True, **options)

    rounded = made(np.ones(40))
    monkeypatch.setattr(kernels, "in_float32", None)
    stored = made(None)
    for one, other in zip(stored, rounded, strict=True):
        for part, twin in zip(one, other, strict=True):
            assert np.asarray(part).tobytes() == np.asarray(twin).tobytes()


@pytest.mark.parametrize("axis", [0, 1])
def test_a_rounded_square_of_weighted_rows_has_their_weights(axis):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 8)).astype("f4")
    root = rng.uniform(0.5, 2.0, 30)
    options = {"dtype": np.dtype("f8"), "axis": axis, "columns": Columns(), "rounded": True}
    (square,), _ = kernels.covariance(X, unit=1.0, root=root, **options)
    wide = root[:, None] * X
    wanted = wide.T @ wide if axis == 0 else wide @ wide.T
    np.testing.assert_allclose(square, wanted, rtol=1e-5, atol=1e-5)
    (square,), _ = kernels.covariance(X, unit=4.0, root=None, **options)
    wanted = 16.0 * (X.T @ X if axis == 0 else X @ X.T)
    np.testing.assert_allclose(square, wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("hole", [np.nan, np.inf])
def test_the_means_of_weighted_rows_leave_out_entries_that_are_not_finite(hole):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3)) + 5.0
    X[[3, 7], 1] = hole
    root = rng.uniform(0.5, 2.0, 20)
    root[:2], X[:2] = 0.0, 1e6  # rows of weight zero may be far away
    there = np.isfinite(X)
    weights = root[:, None] ** 2 * there
    wanted = (weights * np.where(there, X, 0.0)).sum(axis=0) / weights.sum(axis=0)
    found = stored_means(X, np.float64, 1.0, root)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("rows", [1, 63, 64, 200])
def test_large_blocks_are_multiplied_in_halves_with_the_same_sums(rows, monkeypatch):
    rng = np.random.default_rng(0)
    X, vectors = rng.normal(size=(rows, 100)), rng.normal(size=(100, 3))
    root = rng.uniform(0.5, 2.0, rows)
    monkeypatch.setattr(kernels, "PREPARED_BYTES", 100)
    options = {"vectors": vectors, "lift": None, "columns": Columns(), "unit": 1.0}
    sums = kernels.product(X, root=root, gather=False, **options).sums
    wide = root[:, None] * X
    np.testing.assert_allclose(sums[0], wide.T @ (wide @ vectors), rtol=1e-10, atol=1e-10)
