"""Streams whose columns change their deviations: intervals, and variances that fit the total."""

import warnings

import numpy as np
import pytest

from primedpca import PrimedPCA
from primedpca._certify.bounds import largest_within
from primedpca.priming import FrequentDirections

RNG = np.random.default_rng(0)
PLAIN = RNG.normal(size=(3000, 300))
LARGER = RNG.normal(size=(3000, 300)) * np.where(np.arange(300) < 150, 100, 1)


def streamed(*parts, k=3, merged=False, size=None, **options):
    priming = "auto" if size is None else FrequentDirections(sketch_size=size)
    models = [PrimedPCA(k, scale="std", priming=priming, **options) for _ in parts]
    for model, part in zip(models if merged else models[:1] * len(parts), parts, strict=True):
        model.partial_fit(part)
    for other in models[1:] if merged else ():
        models[0].merge(other)
    return models[0]


def truth(model, rows, center=True):
    """Variances by LAPACK, of the rows divided by the deviations of all."""
    seen = (rows - (rows.mean(axis=0) if center else 0)) / model.scale_
    seen = seen[:, rows.std(axis=0) > 0]
    return np.linalg.svd(seen, compute_uv=False) ** 2 / (len(rows) - 1)


def assert_bounded(model, rows, center=True):
    true, found = truth(model, rows, center), model.explained_variance_
    low, high = model.certificate_.eigenvalue_bounds.T
    close = 1 + 1e-10
    assert (low <= true[: found.size] * close).all()
    assert (true[: found.size] <= high * close).all()
    assert ((low <= found * close) & (found <= high * close)).all()
    assert (np.diff(found) <= 0).all()
    assert found.sum() <= true.sum() * close
    assert model.noise_variance_ >= 0
    np.testing.assert_allclose(model.explained_variance_ratio_, found / true.sum(), rtol=1e-9)
    return true


@pytest.mark.parametrize(
    ("one", "two", "merged"),
    [
        (PLAIN, LARGER, False),
        (PLAIN, PLAIN[::-1] * 100 * np.where(np.arange(300) < 150, 1, 0.01), True),
        (LARGER, PLAIN, True),
        (PLAIN * (np.arange(300) >= 30), LARGER, False),  # columns that are constant at first
    ],
    ids=["later", "merged", "earlier", "constant"],
)
def test_columns_that_grow_do_not_spoil_the_others(one, two, merged):
    model = streamed(one, two, merged=merged)
    true = assert_bounded(model, np.concatenate([one, two]))
    high = model.certificate_.eigenvalue_bounds[:, 1]
    assert (high < 8 * true[:3]).all()
    np.testing.assert_allclose(model.explained_variance_, true[:3], rtol=1)


def test_a_small_sketch_of_few_rows():
    X = RNG.integers(-9, 9, (60, 8)) * 10.0 ** np.arange(8)
    model = streamed(X[:20], X[20:40] * 50, X[40:], size=4, merged=True)
    true = assert_bounded(model, np.concatenate([X[:20], X[20:40] * 50, X[40:]]))
    assert model.explained_variance_[0] < 2 * true[0]


def test_a_deviation_that_shrinks_is_told():
    """What is lost by so many small rows is large beside their final deviations."""
    large = RNG.normal(size=(300, 100)) * np.where(np.arange(100) < 50, 1e4, 1)
    small = RNG.normal(size=(40000, 100))
    model = streamed(large, small)
    with pytest.warns(UserWarning, match="times smaller after its first batches"):
        assert model.explained_variance_.size == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_bounded(model, np.concatenate([large, small]))


def drifting(rng):
    """Rows in parts, in which columns are scaled, shifted or constant."""
    n, d = int(rng.integers(20, 300)), int(rng.integers(2, 30))
    X = rng.normal(size=(n, d)) @ (rng.normal(size=(d, d)) * 0.8 ** np.arange(d)[:, None])
    X *= 10.0 ** rng.integers(-3, 4, d)
    parts = np.split(np.arange(n), np.sort(rng.integers(1, n, 3)))
    for part in filter(len, parts):
        some = rng.random(d) < 0.5
        X[np.ix_(part, some)] *= 10.0 ** rng.integers(-4, 5)
        if rng.random() < 0.3:
            X[np.ix_(part, ~some)] = X[part[0], ~some]
    return [X[part] for part in parts if len(part)]


@pytest.mark.filterwarnings("ignore:The standard deviation of a column")
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("center", [True, False])
def test_every_interval_holds(center, merged):
    for seed in range(60):
        parts = drifting(rng := np.random.default_rng(seed))
        k = int(rng.integers(1, min(parts[0].shape[1], 5) + 1))
        model = streamed(*parts, k=k, merged=merged, size=k + int(rng.integers(9)), center=center)
        assert_bounded(model, np.concatenate(parts), center)


def test_what_a_total_allows_is_reached():
    """The largest of each is that of a spectrum with these lower bounds and this total."""
    found = largest_within(np.array([5.0, 2.0, 1.0]), 12.0, 5)
    np.testing.assert_allclose(found, [9.0, 5.5, 3.5, 7 / 3, 5 / 3], rtol=1e-12)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        true = np.sort(rng.random(8) ** 5)[::-1]
        lower = np.sort(true[:6] * rng.random(6))[::-1]
        lower = np.minimum(lower, true[:6])
        assert (true[:7] <= largest_within(lower, true.sum(), 7)).all()
    assert np.isinf(largest_within(np.ones(2), np.inf, 3)).all()
