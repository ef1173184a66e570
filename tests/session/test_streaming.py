"""``partial_fit`` and ``merge``: bounds that hold however rows are cut, and models that go on."""

import copy
import os
import pickle
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.exceptions import NotFittedError

from primedpca import PrimedPCA, as_source, load
from primedpca.priming import FrequentDirections
from primedpca.result import Status

DATA = os.environ.get("PRIMEDPCA_DATA", "")


def problem(name, n=600, d=40, seed=0):
    rng = np.random.default_rng(seed)
    i = np.arange(1, d + 1)
    deviations = {"steep": 0.8**i, "slow": i**-0.5, "tied": np.where(i < 6, 1.0, 0.1)}[name]
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return rng.normal(size=(n, d)) * deviations @ turn.T


def truth(X, weights=None):
    """Variances, largest first, and components, by LAPACK in float64 about an exact first row."""
    rows = X.astype(np.longdouble)
    weights = np.ones(len(X)) if weights is None else weights
    rows = rows - rows[0]
    rows = (rows - weights @ rows / weights.sum()).astype(np.float64)
    values, vectors = np.linalg.eigh((rows.T * weights) @ rows / (weights.sum() - 1))
    return values[::-1], vectors[:, ::-1].T


def streamed(model, X, batch, weights=None):
    for a in range(0, X.shape[0], batch):
        some = None if weights is None else weights[a : a + batch]
        model.partial_fit(X[a : a + batch], sample_weight=some)
    return model


def check_bounds(model, values, vectors):
    """No angle, no variance and no span of a cluster may lie outside what is proven."""
    proof, k = model.certificate_, model.n_components_
    assert proof.kind == "deterministic"
    assert proof.failure_probability == 0
    slack = 1e-12 * values[0]  # of LAPACK's own answer
    assert (proof.eigenvalue_bounds[:, 0] <= values[:k] + slack).all()
    assert (values[:k] <= proof.eigenvalue_bounds[:, 1] + slack).all()
    found = model.components_.astype(np.float64)
    for i in np.flatnonzero(proof.angle_bounds < np.pi / 2):
        rest = found[i] - (found[i] @ vectors[i]) * vectors[i]
        assert np.linalg.norm(rest) <= np.sin(proof.angle_bounds[i]) + 1e-9
    for start, stop, angle in proof.clusters:
        if stop <= k:
            span = vectors[start:stop]
            rest = found[start:stop] - found[start:stop] @ span.T @ span
            assert np.linalg.norm(rest, 2) <= np.sin(angle) + 1e-9


@pytest.mark.parametrize("name", ["steep", "slow", "tied"])
@pytest.mark.parametrize("batch", [1, 7, 100, 5000])
@pytest.mark.parametrize("size", [8, 20])
def test_bounds_hold_and_the_cut_into_batches_makes_no_difference(name, batch, size):
    X = problem(name)
    model = streamed(PrimedPCA(5, priming=FrequentDirections(size)), X, batch)
    check_bounds(model, *truth(X))
    assert model.n_samples_ == 600
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), atol=1e-14)
    whole = PrimedPCA(5, priming=FrequentDirections(size)).partial_fit(X)
    np.testing.assert_array_equal(model.components_, whole.components_)
    np.testing.assert_array_equal(model.angle_bounds_, whole.angle_bounds_)


@pytest.mark.parametrize("kind", ["float32", "sparse", "torch", "frame", "int", "half sparse"])
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_every_kind_of_batch(kind, batch):
    X = problem("steep", n=150, d=12)
    X[np.abs(X) < 0.05] = 0
    if kind == "int":
        X = np.rint(50 * X).astype(np.int16)
    elif kind in ("float32", "torch"):
        X = X.astype(np.float32)
    make = {
        "sparse": sp.csr_array,
        "torch": torch.from_numpy,
        "frame": lambda x: pd.DataFrame(x, columns=[f"c{i}" for i in range(12)]),
        "half sparse": lambda x: sp.csc_array(x) if x[0, 0] > 0 else x,
    }.get(kind, lambda x: x)
    model = PrimedPCA(3, priming=FrequentDirections(6))
    for a in range(0, 150, batch):
        model.partial_fit(make(X[a : a + batch]))
    check_bounds(model, *truth(X))
    assert model.components_.dtype == (np.float32 if X.dtype != np.float64 else np.float64)
    reference = PrimedPCA(3, priming=FrequentDirections(6)).partial_fit(X)
    np.testing.assert_array_equal(model.components_, reference.components_)
    assert hasattr(model, "feature_names_in_") == (kind == "frame")


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_drifting_means(batch):
    """The mean is a million times the spread, and moves."""
    X = problem("steep", n=400, d=15)
    far = np.random.default_rng(1).normal(size=15)
    X = X + 1e6 * far + np.linspace(0, 1e3, 400)[:, None] * far[::-1]
    model = streamed(PrimedPCA(3, priming=FrequentDirections(9)), X, batch)
    check_bounds(model, *truth(X))
    assert model.angle_bounds_[0] < 1e-3


def test_a_sketch_as_wide_as_the_data_loses_nothing():
    X = problem("slow", n=500, d=30)
    model, theirs = PrimedPCA().partial_fit(X[:3]).partial_fit(X[3:]), PCA().fit(X)
    np.testing.assert_allclose(model.explained_variance_, theirs.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(
        model.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-10
    )
    np.testing.assert_allclose(model.singular_values_, theirs.singular_values_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(model.transform(X)), np.abs(theirs.transform(X)), atol=1e-9)
    assert model.status_ is Status.CERTIFIED
    assert model.converged_


def test_few_rows():
    X = problem("slow", d=10)
    model = PrimedPCA(4).partial_fit(X[:1])
    assert model.components_.shape == (0, 10)
    assert model.n_components_ == 0
    assert model.transform(X[:3]).shape == (3, 0)
    np.testing.assert_allclose(model.mean_, X[0])
    for rows in range(2, 8):
        model.partial_fit(X[rows - 1 : rows])
        assert model.n_components_ == min(4, rows - 1)
        assert model.n_samples_ == rows
        check_bounds(model, *truth(X[:rows]))
        assert (model.status_ is Status.CERTIFIED) == (rows > 4)


def test_rows_that_are_not_centred_have_as_many_components():
    X = problem("slow", d=12)[:5] + 1.0
    model = PrimedPCA(5, center=False).partial_fit(X)
    assert model.n_components_ == PrimedPCA(5, center=False).fit(X).n_components_ == 5
    values, vectors = np.linalg.eigh(X.T @ X / 4)
    check_bounds(model, values[::-1], vectors[:, ::-1].T)
    np.testing.assert_allclose(model.explained_variance_, values[::-1][:5], rtol=1e-9)
    assert model.converged_


def test_weights_are_repeated_rows_and_zeros_are_not_there():
    X, rng = problem("steep", n=120, d=10), np.random.default_rng(0)
    weights = rng.integers(0, 4, 120).astype(float)
    model = streamed(PrimedPCA(3, priming=FrequentDirections(5)), X, 7, weights)
    check_bounds(model, *truth(X, weights))
    repeated = np.repeat(X, weights.astype(int), axis=0)
    np.testing.assert_allclose(model.mean_, repeated.mean(axis=0), atol=1e-14)
    small = streamed(PrimedPCA(3, priming=FrequentDirections(5)), X, 7, weights / 50)
    check_bounds(small, *truth(X, weights / 50))


def test_without_centring_and_with_a_scale():
    X, scale = problem("steep", n=90, d=8) + 1.0, np.linspace(1, 2, 8)
    model = streamed(PrimedPCA(3, center=False, scale=scale), X, 11)
    rows = X / scale
    values, vectors = np.linalg.eigh(rows.T @ rows / 89)
    check_bounds(model, values[::-1], vectors[:, ::-1].T)
    assert not model.mean_.any()
    centred = streamed(PrimedPCA(3, scale=scale), X, 11)
    np.testing.assert_allclose(centred.mean_, X.mean(axis=0), rtol=1e-13)
    np.testing.assert_array_equal(centred.scale_, scale)


@pytest.mark.parametrize("name", ["steep", "slow"])
@pytest.mark.parametrize("at", [1, 30, 300])
def test_merged_halves(name, at):
    X = problem(name) + np.where(np.arange(600) < at, 0.0, 5.0)[:, None]
    options = {"priming": FrequentDirections(12)}
    one = streamed(PrimedPCA(4, **options), X[:at], 7)
    two = streamed(PrimedPCA(4, **options), X[at:], 100)
    before = two.components_.copy()
    assert one.merge(two) is one
    check_bounds(one, *truth(X))
    assert one.n_samples_ == 600
    np.testing.assert_allclose(one.mean_, X.mean(axis=0), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(two.components_, before)
    one.partial_fit(X[:50])
    check_bounds(one, *truth(np.vstack([X, X[:50]])))


def test_merging_refuses_what_is_not_alike():
    X = problem("steep", n=50, d=8)
    model = PrimedPCA(2).partial_fit(X)
    for other, words in [
        (PrimedPCA(2).fit(X), "partial_fit"),
        (PrimedPCA(2).partial_fit(X[:, :5]), "columns"),
        (PrimedPCA(2, center=False).partial_fit(X), "centred"),
        (PrimedPCA(2, scale=np.ones(8)).partial_fit(X), "scale"),
    ]:
        with pytest.raises(ValueError, match=words):
            model.merge(other)
    named = [PrimedPCA(2).partial_fit(pd.DataFrame(X, columns=list(c))) for c in ("abcdefgh",) * 2]
    named[0].merge(named[1])
    other = PrimedPCA(2).partial_fit(pd.DataFrame(X, columns=list("hgfedcba")))
    with pytest.raises(ValueError, match="feature_names_in_"):
        named[0].merge(other)


def test_a_saved_model_goes_on(tmp_path):
    X = problem("slow")
    model = streamed(PrimedPCA(4, priming=FrequentDirections(10)), X[:305], 7)
    model.save(tmp_path / "model.safetensors")
    later = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(later.components_, model.components_)
    others = (model, later, copy.copy(model), copy.deepcopy(model))
    for each in (*others, pickle.loads(pickle.dumps(model))):
        each.partial_fit(X[305:])
        np.testing.assert_array_equal(each.components_, model.components_)
        check_bounds(each, *truth(X))
    assert not hasattr(clone(model), "components_")


def test_fitting_again_starts_from_the_stream_and_ends_it():
    X = problem("slow", n=3000, d=600)
    model = streamed(PrimedPCA(4, warm_start=True, random_state=0), X, 1000).fit(X)
    cold = PrimedPCA(4, random_state=0).fit(X)
    assert not hasattr(model, "stream_")
    assert model.certificate_.met(model.tol).all()
    assert model.n_passes_ <= cold.n_passes_
    model.partial_fit(X[:100])
    assert model.n_samples_ == 100  # a new stream


def test_asking_in_between_changes_nothing():
    X = problem("slow")
    quiet, curious = (PrimedPCA(4, priming=FrequentDirections(10)) for _ in range(2))
    for a in range(0, 600, 13):
        quiet.partial_fit(X[a : a + 13])
        curious.partial_fit(X[a : a + 13]).transform(X[:2])
    np.testing.assert_array_equal(quiet.components_, curious.components_)


def test_batches_are_copied_and_left_alone():
    X, buffer = problem("slow"), np.empty((6, 40))
    model = PrimedPCA(4, priming=FrequentDirections(10))
    for a in range(0, 600, 6):
        buffer[:] = X[a : a + 6]
        model.partial_fit(buffer)
        np.testing.assert_array_equal(buffer, X[a : a + 6])
    reference = PrimedPCA(4, priming=FrequentDirections(10)).partial_fit(X)
    np.testing.assert_array_equal(model.components_, reference.components_)


def test_a_bad_batch_changes_nothing():
    X = problem("slow")
    model = PrimedPCA(4, priming=FrequentDirections(10)).partial_fit(X[:300])
    bad = X[300:].copy()
    bad[250, 3] = np.nan
    with pytest.raises(ValueError, match="250"):
        model.partial_fit(bad)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :7])
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[300:], sample_weight=[1.0])
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X[300:], sample_weight=-np.ones(300))
    reference = PrimedPCA(4, priming=FrequentDirections(10)).partial_fit(X)
    np.testing.assert_array_equal(model.partial_fit(X[300:]).components_, reference.components_)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_components": None}, "whole number"),
        ({"n_components": 0.9}, "whole number"),
        ({"n_components": "mle"}, "whole number"),
        ({"n_components": 0}, "at least 1"),
        ({"n_components": 700}, "n_features=600"),
        ({"scale": "range"}, "must be None, 'std' or one number"),
        ({"max_memory": "100KB"}, "sketch"),
    ],
)
def test_what_a_stream_cannot_do_is_refused_with_a_remedy(options, words):
    with pytest.raises(ValueError, match=words):
        PrimedPCA(**({"n_components": 3} | options)).partial_fit(np.ones((5, 600)))


def test_changed_parameters_are_refused():
    X = problem("slow")
    model = PrimedPCA(4, priming=FrequentDirections(5)).partial_fit(X)
    for change in ({"n_components": 6}, {"center": False}, {"scale": np.ones(40)}):
        before = model.get_params()
        with pytest.raises(ValueError, match="new model"):
            model.set_params(**change).partial_fit(X)
        model.set_params(**before)
    assert model.set_params(n_components=2).partial_fit(X).n_components_ == 2


def test_numbers_near_the_ends_of_the_range():
    X = problem("steep", n=60, d=8)
    reference = streamed(PrimedPCA(2, priming=FrequentDirections(4)), X, 7)
    for size in (1e-200, 1e-150, 1e150):
        # Squares of 1e-200 are zero in float64; the components are not lost.
        tiny = size < 1e-160
        with pytest.warns(RuntimeWarning, match="below the range") if tiny else nullcontext():
            model = streamed(PrimedPCA(2, priming=FrequentDirections(4)), X * size, 7)
            components = model.components_
        np.testing.assert_allclose(components, reference.components_, atol=1e-12)
        np.testing.assert_allclose(model.mean_, X.mean(axis=0) * size, rtol=1e-9)


def test_memory_sets_the_size_of_the_sketch():
    X = problem("slow", n=50, d=300)
    model = PrimedPCA(4, max_memory="1MB").partial_fit(X)
    assert 4 <= model.plan_.priming.sketch_size < 50
    assert PrimedPCA(4).partial_fit(X).plan_.priming.sketch_size == 70


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="PRIMEDPCA_DATA names no folder of real data")
@pytest.mark.parametrize("batch", [1, 7, 100, 5000])
def test_real_images(batch):
    with np.load(Path(DATA) / "mnist_train.npz") as held:
        X = held[held.files[0]].reshape(-1, 784)[:10000]
    values, vectors = truth(X)
    model = streamed(PrimedPCA(16), X, batch)
    check_bounds(model, values, vectors)
    halves = [streamed(PrimedPCA(16), part, batch) for part in (X[:4000], X[4000:])]
    check_bounds(halves[0].merge(halves[1]), values, vectors)
    theirs = IncrementalPCA(16)
    for a in range(0, 10000, 1000):
        theirs.partial_fit(X[a : a + 1000])

    def worst(components):
        off = np.abs((components.astype(np.float64) * vectors[:16]).sum(axis=1))
        return np.arccos(np.minimum(off, 1)).max()

    assert worst(model.components_) <= worst(theirs.components_)


def _unseen(pca, X, center):
    """Whether the truth lies within the bounds, for data of any unit."""
    peak = np.abs(X).max()
    Z = X / peak - (X / peak).mean(axis=0) * center
    rows = np.linalg.svd(Z, full_matrices=False)[2]
    bounds = pca.certificate_.angle_bounds
    cosines = np.abs(np.sum(rows[: bounds.size] * pca.components_, axis=1))
    return (np.arccos(np.minimum(cosines, 1)) > bounds + 1e-7).any()


@pytest.mark.filterwarnings("ignore:The variances of `X` are below the range:RuntimeWarning")
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("unit", [1e-200, 1e-305])
def test_rows_of_zeros_do_not_hide_tiny_ones(unit, center):
    X = np.random.default_rng(0).normal(size=(300, 3)) * (9, 3, 1) * unit
    X[5:90] = 0  # whole groups of rows that do not differ
    X[200:260] = X[200]
    pca = PrimedPCA(2, priming=FrequentDirections(2), center=center).partial_fit(X)
    assert not _unseen(pca, X, center)
    halves = [PrimedPCA(2, center=center).partial_fit(part) for part in (X[5:90], X[90:])]
    assert not _unseen(halves[0].merge(halves[1]), X[5:], center)


@pytest.mark.filterwarnings("ignore:The variances of `X` are below the range:RuntimeWarning")
@pytest.mark.parametrize("value", [1.0, -1e10, 1e100])
@pytest.mark.parametrize("size", [1e-40, 1e-164, 1e-200, 1e-300])
def test_a_constant_column_does_not_hide_tiny_ones(value, size):
    X = np.random.default_rng(0).normal(size=(40, 3)) * (9, 3, 1) * size
    plain = PrimedPCA(2).partial_fit(X)
    pca = PrimedPCA(2).partial_fit(np.insert(X, 1, value, axis=1))
    np.testing.assert_allclose(np.delete(pca.components_, 1, axis=1), plain.components_, atol=1e-9)
    assert not pca.certificate_.zero.any()
    assert (pca.certificate_.eigenvalue_bounds[:, 1] > 0).all()
    assert pca.angle_bounds_.max() < 1e-9


@pytest.mark.filterwarnings("ignore:The variances of `X` are below the range:RuntimeWarning")
@pytest.mark.parametrize(
    ("value", "power"), [(1.0, -200), (0.0, -900), (1.0, -900), (4e128, -200), (4e128, -474)]
)
def test_groups_of_equal_rows_that_hardly_differ_from_each_other(value, power):
    """The whole variance is that between the means of two streams."""
    unit = np.ldexp(1.0, power)
    X = np.repeat([[value, unit, 2 * unit], [value, 2 * unit, 2 * unit]], [3, 5], axis=0)
    halves = [PrimedPCA(1).partial_fit(rows) for rows in (X[:3], X[3:])]
    pca = halves[0].merge(halves[1])
    np.testing.assert_allclose(pca.components_, [[0, 1, 0]], atol=1e-9)
    low, high = pca.certificate_.eigenvalue_bounds[0]
    true = np.ldexp(15 / 8 / 7, 2 * power)
    assert low * (1 - 1e-12) <= true <= high * (1 + 1e-12)
    assert high > 0


@pytest.mark.parametrize("fit", ["fit", "partial_fit"])
@pytest.mark.parametrize("excess", [1e-3, 1e-7, 1e-10])
def test_weights_that_hardly_exceed_one(fit, excess):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3)) * (9, 3, 1)
    weight = rng.exponential(size=40)
    weight *= (1 + excess) / weight.sum()
    w, Z = weight.astype(np.longdouble), X.astype(np.longdouble)
    Z = Z - (w @ Z) / w.sum()
    exact = (Z.T * w @ Z / (w.sum() - 1)).astype(float)
    pca = getattr(PrimedPCA(3), fit)(X, sample_weight=weight)
    low, high = pca.certificate_.eigenvalue_bounds.T
    truth = np.linalg.eigvalsh(exact)[::-1]
    assert (low <= truth * (1 + 1e-14)).all()
    assert (truth * (1 - 1e-14) <= high).all()


def test_weights_that_add_up_to_one():
    X = np.random.default_rng(2).normal(size=(30, 3))
    weight = np.full(30, 1 / 30)
    with pytest.raises(ValueError, match="adds up to 1; weights count rows"):
        PrimedPCA(2).fit(X, sample_weight=weight)
    assert PrimedPCA(2).partial_fit(X, sample_weight=weight).n_components_ == 0


def test_an_error_leaves_the_columns_of_the_model_as_they_were():
    good = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 4)), columns=list("abcd"))
    bad = pd.DataFrame(np.full((30, 3), np.nan), columns=list("xyz"))
    for first in ("fit", "partial_fit"):
        for second in ("fit", "partial_fit"):
            pca = getattr(PrimedPCA(2), first)(good)
            scores = pca.transform(good)
            with pytest.raises(ValueError):
                getattr(pca, second)(bad)
            assert pca.n_features_in_ == 4
            assert list(pca.feature_names_in_) == list("abcd")
            np.testing.assert_array_equal(pca.transform(good), scores)
            assert getattr(pca, first)(good).n_samples_ == (30 if first == "fit" else 60)
    pca = PrimedPCA(2)
    with pytest.raises(ValueError):
        pca.fit(bad)
    with pytest.raises(NotFittedError):
        pca.transform(good)


def test_rows_with_different_maps_are_not_mixed():
    rows = np.random.default_rng(0).random((30, 4))
    mapped = as_source(rows, map=np.log1p)
    for first, second in ((rows, mapped), (mapped, rows)):
        pca = PrimedPCA(2).partial_fit(first)
        with pytest.raises(ValueError, match="the map <log1p>"):
            pca.partial_fit(second)
        with pytest.raises(ValueError, match="the map <log1p>"):
            pca.merge(PrimedPCA(2).partial_fit(second))
        assert pca.partial_fit(first).n_samples_ == 60


def test_new_rows_with_another_map_are_refused():
    rows = np.random.default_rng(0).random((30, 4))
    pca = PrimedPCA(2).fit(as_source(rows, map=np.log1p))
    np.testing.assert_allclose(
        pca.transform(as_source(rows, map=np.log1p)), pca.transform(np.log1p(rows)), atol=1e-12
    )
    with pytest.raises(ValueError, match=r"the map <sqrt>, but the model .* <log1p>"):
        pca.transform(as_source(rows, map=np.sqrt))


@pytest.mark.parametrize("later", [0.5, "mle", 1])
def test_the_number_of_components_is_that_of_the_last_batch(later):
    rows = np.random.default_rng(0).normal(size=(30, 4))
    pca = PrimedPCA(2).partial_fit(rows).set_params(n_components=later)
    assert pca.components_.shape == (2, 4)
    assert pca.set_params(warm_start=True).fit(rows).status_.name == "CERTIFIED"


def test_only_models_are_merged():
    with pytest.raises(TypeError, match="Pass a PrimedPCA"):
        PrimedPCA(2).partial_fit(np.eye(4)).merge(3)


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("size", [1e-100, 1e90, 1e130])
def test_merged_scaled_streams_have_the_ratios_of_the_fit_in_any_unit(first, size):
    rows = np.random.default_rng(0).normal(size=(50, 4))
    one, other = (
        PrimedPCA(2, scale="std").partial_fit(part * size) for part in (rows[:first], rows[first:])
    )
    found = one.merge(other).explained_variance_ratio_
    np.testing.assert_allclose(
        found, PrimedPCA(2, scale="std").fit(rows).explained_variance_ratio_, rtol=1e-9
    )


def test_batches_of_bfloat16_are_taken_in_exactly():
    rows = torch.tensor(np.random.default_rng(0).normal(size=(40, 5))).bfloat16()
    one, other = (PrimedPCA(2).partial_fit(kind) for kind in (rows, rows.float()))
    np.testing.assert_array_equal(one.components_, other.components_)


def test_a_negative_weight_of_a_stream_is_named():
    with pytest.raises(ValueError, match=r"`sample_weight`\[1\]=-2\.0 must be finite and not neg"):
        PrimedPCA(2).partial_fit(np.eye(3), sample_weight=[1.0, -2.0, 1.0])
