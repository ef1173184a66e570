"""Refining: exact PCA in a span, whatever the directions look like."""

from __future__ import annotations

from itertools import pairwise

import catalogue
import numpy as np
import pandas as pd
import pytest
import torch
from catalogue import EPS, PROBLEMS, VARIANCE_ERROR, angle_error

from primedpca import PrimedPCA, as_source, prime, refine
from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred
from primedpca.metrics import angles, subspace_error
from primedpca.sources import BlockSource
from primedpca.theory import when_refining_helps

TALL, LINEAR, WIDE, LOW_RANK = PROBLEMS
everywhere = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])


def some_directions(problem, q=7, noise=0.3, seed=3):
    """The true span and noise: neither right nor orthogonal."""
    d = problem.X.shape[1]
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((q, q))
    return problem.components[:q].T @ mix + noise * rng.standard_normal((d, q)) / np.sqrt(d)


def dense_reference(X, directions, k, weight=None, center=True, scale=None):
    """Steps 2 to 4 of Algorithm 1 with everything formed, in float64."""
    X = X.astype(np.float64)
    weight = np.ones(len(X)) if weight is None else weight
    M = X - weight @ X / weight.sum() if center else X
    M = M if scale is None else M / scale
    V = np.linalg.qr(directions.astype(np.float64))[0]
    projected = (np.sqrt(weight)[:, None] * M) @ V  # coordinates of proj_V(x)
    _, singular, turn = np.linalg.svd(projected, full_matrices=False)
    return (turn @ V.T)[:k], (singular**2 / (weight.sum() - 1))[:k], M


def check(found, expected, dtype="float64", gap=0.02):
    """``gap``: the smallest between the variances inside the span, relative to the largest."""
    components, variances, _ = expected
    dtype = np.dtype(dtype)
    assert np.abs(found.explained_variance - variances).max() < VARIANCE_ERROR[dtype] * variances[0]
    d = components.shape[1]
    assert angles(found.components, components).max() < angle_error(dtype, gap, d)


# -- the mathematics -------------------------------------------------------------------------


@dtypes
@everywhere
def test_exact_pca_in_the_span(problem, dtype):
    X, V = problem.X.astype(dtype), some_directions(problem).astype(dtype)
    check(refine(X, V, 4), dense_reference(X, V, 4), dtype)


@dtypes
@pytest.mark.parametrize("source", catalogue.thinned(catalogue.SOURCES))
@pytest.mark.parametrize("problem", [LINEAR, WIDE], ids=lambda problem: problem.name)
def test_exact_pca_in_the_span_from_every_source(source, problem, dtype, tmp_path):
    X, V = problem.X.astype(dtype), some_directions(problem).astype(dtype)
    check(refine(catalogue.SOURCES[source](X, tmp_path), V, 4), dense_reference(X, V, 4), dtype)


@dtypes
@everywhere
def test_refining_the_true_span_returns_the_truth(problem, dtype):
    rng = np.random.default_rng(0)
    V = problem.components[:6].T @ rng.standard_normal((6, 6))
    found = refine(problem.X.astype(dtype), V, 5)
    moved = np.abs(problem.X.astype(dtype) - problem.X).max() / np.sqrt(problem.variances[0])
    allowed = angle_error(dtype, problem.gap, problem.X.shape[1])
    off = angles(found.components, problem.components[:5]).max()
    assert off < allowed * (1 + moved / EPS[np.dtype(dtype)])
    assert np.allclose(found.explained_variance, problem.variances[:5], rtol=1e3 * allowed)


@everywhere
def test_all_of_space_is_full_pca(problem):
    d = problem.X.shape[1]
    found = refine(problem.X, np.random.default_rng(0).standard_normal((d, d)), 5)
    allowed = angle_error("float64", problem.gap, d)
    assert angles(found.components, problem.components[:5]).max() < allowed


@everywhere
def test_extra_directions_never_capture_less(problem):
    """k + l directions to k: the wider span holds the narrower one (Cauchy)."""
    V = some_directions(problem, 8)
    captured = [refine(problem.X, V[:, : 4 + extra], 4).explained_variance for extra in (0, 2, 4)]
    slack = VARIANCE_ERROR[np.dtype("float64")] * problem.variances[0]
    for narrow, wide in pairwise(captured):
        assert (wide >= narrow - slack).all()
    assert (captured[2] <= problem.variances[:4] + slack).all()
    assert captured[2].sum() > captured[0].sum()


def test_without_a_number_all_that_the_directions_span():
    V = some_directions(TALL, 5)
    assert refine(TALL.X, V).components.shape == (5, 24)
    assert refine(TALL.X, np.column_stack([V, V[:, :2]])).components.shape == (5, 24)


def test_refining_twice_changes_nothing():
    once = refine(TALL.X, some_directions(TALL), 4)
    twice = refine(TALL.X, once.components.T, 4)
    assert angles(once.components, twice.components).max() < angle_error("float64", TALL.gap, 24)


# -- the directions --------------------------------------------------------------------------


@dtypes
@pytest.mark.parametrize("library", ["numpy", "torch", "csr"])
def test_only_the_span_counts(library, dtype, tmp_path):
    X = catalogue.SOURCES[library](TALL.X.astype(dtype), tmp_path)
    V = some_directions(TALL, 6)
    plain = to_numpy(refine(X, V, 4).components)
    variants = {
        "dependent": np.column_stack([V, V @ np.ones((6, 3)), V[:, :1] - V[:, 1:2]]),
        "repeated": np.column_stack([V, V]),
        "with zeros": np.column_stack([np.zeros(24), V, np.zeros(24)]),
        "turned": V @ np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0],
        "tiny": V * 1e-300,
        "subnormal": V * 1e-310,
        "huge": V * 1e300,
        "badly scaled": V * [1e-200, 1.0, 1e200, -1e-5, 1e5, -1.0],
    }
    for name, variant in variants.items():
        with_digits = 1e3 if name == "subnormal" else 1.0  # a subnormal has fewer digits
        found = to_numpy(refine(X, variant, 4).components)
        allowed = max(angle_error(dtype, 0.02, 24), with_digits * 1e-12)
        assert angles(found, plain).max() < allowed, name


@pytest.mark.parametrize("factor", [1e-30, 1e-44, 1e30])
def test_float32_directions_of_any_size(factor):
    X, V = TALL.X.astype("float32"), some_directions(TALL, 6).astype("float32")
    digits = 0.2 if factor < 1e-38 else 0.0  # 1e-44 is seven units of the last place of zero
    found = refine(X, (V * np.float32(factor)), 4).components
    allowed = angle_error("float32", 0.02, 24) + digits
    assert angles(found[:2], refine(X, V, 4).components[:2]).max() < allowed


def test_directions_of_another_library_or_type():
    V = some_directions(TALL, 6)
    plain = refine(TALL.X, V, 4).components
    assert np.array_equal(refine(TALL.X, torch.tensor(V), 4).components, plain)
    assert np.array_equal(refine(TALL.X, np.asfortranarray(V), 4).components, plain)
    rounded = np.round(V * 100).astype(np.int64)
    assert refine(TALL.X, rounded, 4).components.dtype == np.float64
    tensor = refine(torch.tensor(TALL.X), V, 4).components
    assert isinstance(tensor, torch.Tensor)
    assert angles(tensor, plain).max() < angle_error("float64", 0.02, 24)


def test_directions_are_not_written_to():
    V = some_directions(TALL)
    V.flags.writeable = False
    X = TALL.X.copy()
    X.flags.writeable = False
    refine(X, V, 4)
    tensor = torch.tensor(some_directions(TALL))
    before = tensor.clone()
    refine(torch.tensor(TALL.X), tensor, 4)
    assert torch.equal(tensor, before)


NAN = some_directions(TALL)
NAN[3, 2] = np.nan


@pytest.mark.parametrize(
    ("directions", "options", "words"),
    [
        (np.zeros((24, 3)), {}, "`directions` are all zero"),
        (TALL.components[:3], {}, r"shape \(3, 24\), but `X` has 24 features\. Transpose them"),
        (np.ones((23, 3)), {}, r"shape \(23, 3\), but `X` has 24 features\. Pass one row"),
        (np.ones(24), {}, r"must be an array of shape \(n_features, n_directions\), got \(24,\)"),
        (np.ones((24, 0)), {}, r"shape \(24, 0\)"),
        ([[1.0]], {}, "must be an array .* got list"),
        (NAN, {}, r"directions contain nan at index \(3, 2\)"),
        (NAN * np.inf, {}, "directions contain -inf"),
        (np.eye(24, 3), {"n_components": 4}, "`n_components`=4 must lie between 1 and 3"),
        (np.eye(24, 3), {"n_components": 0}, "`n_components`=0 must lie between 1 and 3"),
        (np.ones((24, 3)), {"n_components": 2}, r"`n_components`=2 .* 1, .*numpy.ndarray .*span"),
        (np.eye(24, 3), {"share": 0.0}, "`share`=0.0 must be above 0"),
        (np.eye(24, 3), {"share": 1.5}, "`share`=1.5 must be above 0 and at most 1"),
        (np.eye(24, 3), {"share": np.nan}, "`share`=nan"),
        (np.eye(24, 3), {"share": 0.5, "random_state": "x"}, "`random_state`='x' must be"),
    ],
)
def test_refused_by_name(directions, options, words):
    with pytest.raises(ValueError, match=words):
        refine(TALL.X, directions, **options)


def test_nan_directions_are_refused_for_tensors():
    with pytest.raises(ValueError, match=r"nan at index \(3, 2\)"):
        refine(torch.tensor(TALL.X), torch.tensor(NAN))


def test_a_single_row_is_refused():
    with pytest.raises(ValueError, match="a minimum of 2 is required"):
        refine(TALL.X[:1], np.eye(24, 3))


# -- a share of the rows ---------------------------------------------------------------------


@pytest.mark.parametrize("source", ["numpy", "csr", "csc", "torch", "memory map, columns"])
@pytest.mark.parametrize("problem", [LINEAR, WIDE], ids=lambda problem: problem.name)
def test_a_share_is_pca_of_those_rows_about_the_mean_of_all(source, problem, tmp_path):
    V, n = some_directions(problem), len(problem.X)
    index = as_source(problem.X).sample(0.5, 4).index
    assert index.size == n // 2
    M = (problem.X - problem.X.mean(0))[index] @ np.linalg.qr(V)[0]
    variances, turn = np.linalg.eigh(M.T @ M / index.size * n / (n - 1))
    X = catalogue.SOURCES[source](problem.X, tmp_path)
    found = refine(X, V, 4, share=0.5, random_state=4)
    allowed = VARIANCE_ERROR[np.dtype("float64")] * variances[-1]
    assert np.abs(found.explained_variance - variances[::-1][:4]).max() < allowed
    expected = (np.linalg.qr(V)[0] @ turn[:, ::-1])[:, :4].T
    gap = -np.diff(variances[::-1][:5]).max() / variances[-1]
    assert angles(found.components, expected).max() < angle_error("float64", gap, X.shape[1])


def test_a_tenth_is_close_to_the_whole():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 12)) * 1.5 ** -np.arange(12) + 5.0
    V = rng.standard_normal((12, 8))
    whole, tenth = (refine(X, V, 3, share=share, random_state=0) for share in (1.0, 0.1))
    # A variance from m rows is off by sqrt(2 / m), a component by 1 / (sqrt(m) gap) or so.
    m = 2000
    off = np.abs(tenth.explained_variance / whole.explained_variance - 1).max()
    assert 0 < off < 4 * np.sqrt(2 / m)
    assert 0 < angles(tenth.components, whole.components).max() < 8 / np.sqrt(m)


def test_the_seed_draws_the_share():
    V = some_directions(TALL)
    one, again, other = (
        refine(TALL.X, V, 4, share=0.1, random_state=seed).components for seed in (1, 1, 2)
    )
    assert np.array_equal(one, again)
    assert not np.allclose(one, other)
    for state in (np.random.default_rng(3), np.random.RandomState(3)):
        assert refine(TALL.X, V, 4, share=0.1, random_state=state).components.shape == (4, 24)


class Counting(BlockSource):
    """An array whose blocks of ten rows tell when they are read."""

    def __init__(self, X):
        self._x, self.shape, self.dtype, self.taken = X, X.shape, X.dtype, []
        self.blocks = tuple((i, i + 10) for i in range(0, len(X), 10))

    def read(self, i):
        self.taken.append(i)
        return self._x[slice(*self.blocks[i])]


def test_a_share_is_all_that_is_read_once_the_mean_is_known():
    source = Counting(TALL.X)
    data = Centred(source)
    data.learn()
    assert data.passes == 1
    source.taken.clear()
    refine(data, some_directions(TALL), 4, share=0.05, random_state=0)
    index = source.sample(0.05, 0).index
    assert sorted(set(source.taken)) == sorted(set(index // 10))  # the blocks that hold them
    assert data.passes == 1 + index.size / 240


def test_a_share_keeps_the_count_and_the_total_of_all_rows():
    whole, half = (refine(LINEAR.X, np.eye(24), share=s, random_state=0) for s in (1.0, 0.5))
    assert half.n_samples == whole.n_samples == 240
    assert half.total_variance == pytest.approx(whole.total_variance, rel=1e-12)
    ratio = half.singular_values.sum() / whole.singular_values.sum()
    assert ratio == pytest.approx(1, abs=0.2)
    with_estimator = PrimedPCA(
        4, priming="subspace_iteration", refine_share=0.5, max_passes=500, random_state=0
    ).fit(LINEAR.X)
    expected = np.sqrt(LINEAR.variances[:4] * 239)
    assert np.allclose(with_estimator.singular_values_, expected, rtol=0.2)


def test_a_share_of_almost_nothing_is_two_rows():
    found = refine(TALL.X, np.eye(24, 3), 2, share=1e-9, random_state=0)
    assert np.isfinite(found.explained_variance).all()


# -- passes, weights, centring, scale --------------------------------------------------------


@pytest.mark.parametrize("source", catalogue.thinned(catalogue.SOURCES))
@pytest.mark.parametrize("problem", [TALL, WIDE], ids=lambda problem: problem.name)
def test_one_pass_over_a_fresh_source(source, problem, tmp_path):
    # About zero: sparse columns that are full and far from it cost a pass for their mean.
    data = Centred(catalogue.SOURCES[source](problem.X - problem.X.mean(axis=0), tmp_path))
    refine(data, some_directions(problem), 4)
    assert data.passes == 1


def test_one_pass_reads_each_block_once():
    source = Counting(TALL.X)
    data = Centred(source)
    source.taken.clear()
    refine(data, some_directions(TALL), 4)
    assert sorted(source.taken) == [*range(24)]


@dtypes
@pytest.mark.parametrize("source", ["numpy", "csr", "csc", "torch", "memory map, columns"])
@pytest.mark.parametrize("problem", [LINEAR, WIDE], ids=lambda problem: problem.name)
def test_sample_weights_are_frequencies(source, problem, dtype, tmp_path):
    X, V = problem.X.astype(dtype), some_directions(problem).astype(dtype)
    weight = np.random.default_rng(0).integers(0, 4, len(X)).astype(float)
    repeated = np.repeat(X, weight.astype(int), axis=0)
    expected = dense_reference(X, V, 3, weight=weight)
    again = dense_reference(repeated, V, 3)
    assert np.allclose(expected[1], again[1], rtol=1e-10)
    found = refine(catalogue.SOURCES[source](X, tmp_path), V, 3, sample_weight=weight)
    check(found, expected, dtype)
    assert found.n_samples == weight.sum()
    assert np.allclose(to_numpy(found.mean), repeated.mean(axis=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("source", ["numpy", "csr", "csc", "torch"])
def test_without_centring(source, tmp_path):
    V = some_directions(LINEAR)
    found = refine(catalogue.SOURCES[source](LINEAR.X, tmp_path), V, 3, center=False)
    expected = dense_reference(LINEAR.X, V, 3, center=False)
    # The mean is ten thousand times the variances: relative to it the rest lies close.
    assert np.allclose(found.explained_variance, expected[1], rtol=1e-9)
    assert angles(found.components, expected[0]).max() < 1e-8
    assert not to_numpy(found.mean).any()


@pytest.mark.parametrize("source", ["numpy", "csr", "csc", "torch"])
def test_scale(source, tmp_path):
    X, V = LINEAR.X, some_directions(LINEAR)
    given = np.linspace(0.5, 3, 24)
    for scale, factors in [(given, given), ("std", X.std(axis=0))]:
        found = refine(catalogue.SOURCES[source](X, tmp_path), V, 3, scale=scale)
        expected = dense_reference(X, V, 3, scale=factors)
        check(found, expected)
        assert np.allclose(to_numpy(found.scale), factors, rtol=1e-12)
        assert found.total_variance == pytest.approx((expected[2] ** 2).sum() / 239, rel=1e-10)


# -- what comes back -------------------------------------------------------------------------


@dtypes
@everywhere
def test_the_fields_of_a_decomposition(problem, dtype):
    X = problem.X.astype(dtype)
    n, d = X.shape
    found = refine(X, some_directions(problem), 4)
    wide = X.astype(np.float64)
    assert found.components.shape == (4, d)
    assert found.components.dtype == X.dtype
    rows = found.components.astype(np.float64)
    assert np.abs(rows @ rows.T - np.eye(4)).max() < 20 * EPS[X.dtype]
    assert found.explained_variance.dtype == np.float64
    assert (np.diff(found.explained_variance) <= 0).all()
    assert np.allclose(found.mean, wide.mean(0), rtol=4 * EPS[X.dtype], atol=4 * EPS[X.dtype])
    assert found.scale is None
    assert found.n_samples == n
    total = wide.var(axis=0, ddof=1).sum()
    assert found.total_variance == pytest.approx(total, rel=10 * VARIANCE_ERROR[X.dtype])
    projected = (wide - wide.mean(0)) @ rows.T
    assert np.allclose(
        found.explained_variance, projected.var(axis=0, ddof=1), rtol=10 * VARIANCE_ERROR[X.dtype]
    )
    assert np.allclose(found.singular_values**2, found.explained_variance * (n - 1), rtol=1e-14)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_largest_entry_of_a_component_is_positive(library, tmp_path):
    X = catalogue.SOURCES[library](TALL.X, tmp_path)
    V = some_directions(TALL)
    for directions in (V, -V, V[:, ::-1].copy()):
        rows = to_numpy(refine(X, directions, 5).components)
        assert (rows[np.arange(5), np.abs(rows).argmax(axis=1)] > 0).all()


def test_directions_that_see_no_variance():
    nowhere = np.linalg.svd(LOW_RANK.components)[2][8:].T
    found = refine(LOW_RANK.X, nowhere, 3)
    assert (found.explained_variance >= 0).all()
    assert found.explained_variance.max() < VARIANCE_ERROR[np.dtype("float64")]
    assert subspace_error(found.components, found.components) < 1e-30


def test_variances_beyond_the_range_are_refused():
    with pytest.raises(ValueError, match="variances of `X` exceed the range of float64"):
        refine(TALL.X * 1e200, np.eye(24, 3))


def test_directions_with_labels_go_by_name():
    values = np.random.default_rng(0).normal(size=(50, 4)) @ np.diag([4.0, 3.0, 2.0, 1.0])
    X = pd.DataFrame(values, columns=list("abcd"))
    directions = PrimedPCA(2).fit(X).loadings()
    wanted = refine(X, directions, 2).explained_variance
    turned = X[list("dcba")]
    np.testing.assert_allclose(refine(turned, directions, 2).explained_variance, wanted)
    assert when_refining_helps(turned, directions).angles_after.max() < 1e-6
    given = PrimedPCA(2, priming=directions, certificate="none").fit(turned)
    np.testing.assert_allclose(given.explained_variance_, wanted)
    for options in ({"priming": directions}, {"priming": "power_method", "start": directions}):
        shot = next(iter(prime(turned, n_directions=2, **options)))
        assert subspace_error(shot.directions.T, directions.to_numpy()[::-1].T) < 1e-3
    # Without names of the columns the order counts.
    np.testing.assert_allclose(refine(values, directions, 2).explained_variance, wanted)
    with pytest.raises(ValueError, match="`directions` has the label 'PC1' for column 1"):
        refine(X, PrimedPCA(4).fit(X).loadings().T)
