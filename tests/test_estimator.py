"""PrimedPCA as a scikit-learn user meets it."""

import dataclasses
import pickle
import warnings
from functools import partial
from pathlib import Path

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
import xarray as xr
from catalogue import PRIMINGS, PROBLEMS, SOURCES, thinned
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    parametrize_with_checks,
)

from primedpca import PrimedPCA, as_source, certify, choose_k, load, prime, refine, svd
from primedpca import sklearn as drop_in
from primedpca._operator.operator import Centred
from primedpca._planning.plan import make_plan
from primedpca._solve.driver import Goal, solve
from primedpca.engines import LocalEngine
from primedpca.metrics import angles
from primedpca.monitoring import limits
from primedpca.priming import REGISTRY, BlockKrylov, EigenGame, Given, Oja, SubspaceIteration

BUNDLED = {f.__name__: f for f in (load_digits, load_iris, load_breast_cancer, load_wine)}
REASON = "the default number of components differs, because the fits have different row counts"
#: The checks ask for scikit-learn's conventions and not for converged components, so that a few
#: steps do; at their defaults the stochastic primings took nine tenths of the time.
FEW_STEPS = {
    name: kind(steps=3) if "steps" in {field.name for field in dataclasses.fields(kind)} else name
    for name, kind in sorted(REGISTRY.items())
}


@parametrize_with_checks(
    [PrimedPCA(), *(PrimedPCA(priming=priming) for priming in FEW_STEPS.values())],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": REASON,
        "check_sample_weight_equivalence_on_sparse_data": REASON,
    },
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", ["auto", "exact", "subspace_iteration", "block_krylov"])
def test_weights_are_repeated_rows(name):
    estimator = PrimedPCA(5, priming=name, tol=1e-9, max_passes=500)
    check_sample_weight_equivalence_on_dense_data("PrimedPCA", estimator)
    check_sample_weight_equivalence_on_sparse_data("PrimedPCA", estimator)


@pytest.mark.parametrize("options", [{}, {"center": False}, {"scale": "std"}], ids=str)
@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_weights_are_repeated_rows_also_of_fewer_rows_than_columns(way, options):
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(12, 40)), np.tile([1, 3, 0, 2], 3)
    repeated = np.repeat(rows, weights, axis=0)
    one, two = (PrimedPCA(4, random_state=0, **options) for _ in range(2))
    getattr(one, way)(rows, sample_weight=weights)
    getattr(two, way)(repeated)
    assert one.n_samples_ == two.n_samples_ == 18
    assert one.noise_variance_ == pytest.approx(two.noise_variance_, rel=1e-9)
    np.testing.assert_allclose(one.score_samples(rows), two.score_samples(rows), rtol=1e-9)
    for mine, theirs in zip(limits(one), limits(two), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("total", [1.5, 12.0])
def test_weights_that_are_no_frequencies_do_not_make_rows_fewer(total):
    rows = np.random.default_rng(0).normal(size=(12, 40))
    one, two = PrimedPCA(4).fit(rows), PrimedPCA(4).fit(rows, sample_weight=np.full(12, total / 12))
    assert one.n_samples_ == two.n_samples_ == 12
    total_variance = [m.explained_variance_.sum() + 8 * m.noise_variance_ for m in (one, two)]
    factor = 11 / 12 * total / (total - 1)
    assert total_variance[1] == pytest.approx(factor * total_variance[0])


# -- against scikit-learn's full solver ------------------------------------------------------


@pytest.mark.parametrize("way", ["auto", "exact", "subspace_iteration", "block_krylov"])
@pytest.mark.parametrize("k", [2, 5, 10])
@pytest.mark.parametrize("data", BUNDLED)
def test_equals_the_full_solver(data, k, way):
    X = BUNDLED[data]().data.astype(np.float64)
    if k > min(X.shape):
        return
    # As exact as LAPACK is more than can be proven of the tenth variance, 1e-8 of the first.
    fine = {} if way in ("auto", "exact") else {"tol": 1e-8, "certificate": "none"}
    ours = PrimedPCA(k, priming=way, random_state=0, **fine).fit(X)
    theirs = PCA(k, svd_solver="full").fit(X)
    for name in (
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
        "mean_",
        "noise_variance_",
        "n_components_",
        "n_samples_",
        "n_features_in_",
    ):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=1e-6, atol=1e-6, err_msg=name
        )
    scores = theirs.transform(X)
    np.testing.assert_allclose(ours.transform(X), scores, atol=1e-6 * np.abs(scores).max())
    np.testing.assert_allclose(
        ours.inverse_transform(scores), theirs.inverse_transform(scores), atol=1e-6 * X.max()
    )
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-6, atol=1e-6)
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-6)
    cov = theirs.get_covariance()
    np.testing.assert_allclose(ours.get_covariance(), cov, atol=1e-6 * cov.max())
    np.testing.assert_allclose(ours.get_precision() @ cov, np.eye(X.shape[1]), atol=1e-4)


def test_mle_and_none_as_scikit_learn():
    X = load_wine().data
    assert PrimedPCA("mle").fit(X).n_components_ == PCA("mle").fit(X).n_components_
    X = load_digits().data
    assert PrimedPCA().fit(X).n_components_ == 64
    rng = np.random.default_rng(0)
    planted = rng.standard_normal((500, 12)) * np.r_[10, 8, 6, 5, np.ones(8)]
    ours, theirs = PrimedPCA("mle").fit(planted), PCA("mle", svd_solver="full").fit(planted)
    assert ours.n_components_ == theirs.n_components_ == 4
    assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_)


@pytest.mark.parametrize("seed", range(8))
def test_mle_bears_columns_without_variance_of_their_own_in_any_unit(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(50, 8)) * np.linspace(4, 1, 8)
    rows = np.c_[rows, rows[:, : seed % 3], np.ones((50, seed // 3))]
    expected = PCA("mle", svd_solver="full").fit(rows).n_components_
    for unit in (1e-100, 1e-6, 1e-2, 1.0, 1e6, 1e100):
        for kind in (PrimedPCA, drop_in.PCA):
            assert kind("mle").fit(rows * unit).n_components_ == expected


@pytest.mark.parametrize("whiten", [False, True])
def test_whitening_and_back(whiten):
    X = load_iris().data
    ours, theirs = PrimedPCA(3, whiten=whiten).fit(X), PCA(3, whiten=whiten).fit(X)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-9)
    np.testing.assert_allclose(ours.fit_transform(X), theirs.fit_transform(X), atol=1e-9)
    back = ours.inverse_transform(ours.transform(X))
    np.testing.assert_allclose(back, theirs.inverse_transform(theirs.transform(X)), atol=1e-9)


def test_whitening_does_not_blow_up_what_has_no_variance():
    X = np.zeros((20, 4))
    X[:, 0] = np.arange(20)
    scores = PrimedPCA(whiten=True).fit_transform(X)
    assert np.abs(scores).max() < 10


@pytest.mark.parametrize("certificate", ["none", "auto"])
def test_whitening_does_not_divide_by_rounding_error(certificate):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 20))
    pca = PrimedPCA(6, whiten=True, certificate=certificate).fit(X)
    off = X[:1] + 1e-3 * rng.normal(size=20)  # off the plane of the rows
    assert np.abs(pca.transform(off)[0, 3:]).max() < 0.01
    np.testing.assert_allclose(pca.transform(X)[:, :3].std(axis=0, ddof=1), 1.0)
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(off)), off, atol=0.01)


def test_whitening_divides_by_small_deviations():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 4)) * [1.0, 0.7, 0.3, 1e-6]
    np.testing.assert_allclose(PrimedPCA(whiten=True).fit_transform(X).std(axis=0, ddof=1), 1.0)


def test_scale_std_is_a_standard_scaler_before():
    X = load_wine().data
    ours = PrimedPCA(4, scale="std").fit(X)
    scaler = StandardScaler().fit(X)
    theirs = PCA(4).fit(scaler.transform(X))
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-10)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_)
    np.testing.assert_allclose(ours.scale_, scaler.scale_)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(scaler.transform(X)), atol=1e-9)
    same = PrimedPCA(4, scale=scaler.scale_).fit(sp.csr_array(X))
    np.testing.assert_allclose(same.components_, ours.components_, atol=1e-9)
    # The density is that of the data as they were: changing units changes it by the Jacobian.
    jacobian = np.log(scaler.scale_).sum()
    assert ours.score(X) == pytest.approx(theirs.score(scaler.transform(X)) - jacobian)
    back = PrimedPCA(scale="std").fit(X)
    np.testing.assert_allclose(back.inverse_transform(back.transform(X)), X, atol=1e-8)
    precision = np.linalg.inv(ours.get_covariance())
    np.testing.assert_allclose(ours.get_precision(), precision, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("kind", ["dense", "sparse", "columns", "float32", "weights"])
def test_missing_values_are_filled_before_the_scale_is_found(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 9)) @ rng.normal(size=(9, 9)) * 10.0 ** rng.integers(-3, 4, 9) + 5
    X[rng.random(X.shape) < 0.2] = np.nan
    count = rng.integers(0, 4, 200) if kind == "weights" else np.ones(200, int)
    pipeline = make_pipeline(SimpleImputer(), StandardScaler(), PCA(3, svd_solver="full"))
    theirs = pipeline.fit(np.repeat(X, count, axis=0))
    given = {"sparse": sp.csr_array, "columns": np.asfortranarray, "float32": np.float32}
    pca = PrimedPCA(3, scale="std", missing="mean")
    ours = pca.fit(given.get(kind, np.asarray)(X), sample_weight=count.astype(float))
    rtol = 1e-5 if kind == "float32" else 1e-12
    np.testing.assert_allclose(ours.scale_, theirs[1].scale_, rtol=rtol)
    np.testing.assert_allclose(ours.explained_variance_, theirs[2].explained_variance_, rtol=rtol)
    expected = abs(theirs.transform(X))
    np.testing.assert_allclose(abs(ours.transform(X)), expected, rtol=100 * rtol, atol=100 * rtol)


def test_constant_columns_survive_scaling():
    X = np.random.default_rng(0).standard_normal((50, 4))
    X[:, 2] = 3.5
    pca = PrimedPCA(scale="std").fit(X)
    assert pca.scale_[2] == 1
    assert np.isfinite(pca.transform(X)).all()


def test_without_centring():
    X = np.random.default_rng(0).random((80, 6))
    pca = PrimedPCA(3, center=False).fit(X)
    _, s, vt = np.linalg.svd(X, full_matrices=False)
    np.testing.assert_allclose(pca.singular_values_, s[:3])
    np.testing.assert_allclose(np.abs(pca.components_), np.abs(vt[:3]), atol=1e-12)
    assert (pca.mean_ == 0).all()
    np.testing.assert_allclose(pca.transform(X), X @ pca.components_.T)


def test_missing_values_become_the_mean():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 8)) * np.arange(8, 0, -1) + 10
    X[rng.random(X.shape) < 0.1] = np.nan
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    ours, theirs = PrimedPCA(3, missing="mean").fit(X), PCA(3).fit(filled)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-9)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(filled), atol=1e-9)
    with pytest.raises(ValueError, match="NaN"):
        ours.set_params(missing="error").transform(X)


# -- every kind of data ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", thinned(SOURCES))
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_every_source_fits_transforms_and_scores_alike(kind, problem, tmp_path):
    X = SOURCES[kind](problem.X, tmp_path)
    pca = PrimedPCA(4).fit(X)
    dense = PCA(4, svd_solver="full").fit(problem.X)
    np.testing.assert_allclose(pca.components_, dense.components_, atol=1e-6)
    np.testing.assert_allclose(pca.explained_variance_, problem.variances[:4], rtol=1e-8)
    scores = pca.transform(X)
    kind_of_scores = torch.Tensor if kind.startswith("torch") else np.ndarray
    assert isinstance(scores, kind_of_scores)
    np.testing.assert_allclose(np.asarray(scores), dense.transform(problem.X), atol=1e-5)
    if not (kind == "memory map" or problem.name.endswith("rank 8")):
        np.testing.assert_allclose(pca.score(X), dense.score(problem.X), rtol=1e-6)
    for name in ("components_", "mean_", "explained_variance_", "singular_values_"):
        assert isinstance(getattr(pca, name), np.ndarray)


def test_tensors_go_in_and_come_back():
    X = torch.randn(60, 7, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
    pca = PrimedPCA(3).fit(X)
    scores = pca.transform(X)
    back = pca.inverse_transform(scores)
    assert isinstance(back, torch.Tensor)
    assert back.dtype == torch.float32
    np.testing.assert_allclose(
        pca.inverse_transform(scores.numpy()), back.numpy(), rtol=1e-4, atol=1e-5
    )
    same = PrimedPCA(3, device="cpu").fit(X.numpy())
    np.testing.assert_allclose(same.components_, pca.components_, atol=1e-5)


def test_frames_keep_their_names():
    X = pd.DataFrame(load_iris().data, columns=["a", "b", "c", "d"])
    pca = PrimedPCA(2).fit(X)
    assert list(pca.feature_names_in_) == ["a", "b", "c", "d"]
    assert list(pca.get_feature_names_out()) == ["PC1", "PC2"]
    with pytest.raises(ValueError, match="feature names"):
        pca.transform(X[["b", "a", "c", "d"]])
    out = pca.set_output(transform="pandas").transform(X)
    assert list(out.columns) == ["PC1", "PC2"]
    out = PrimedPCA(2).set_output(transform="polars").fit_transform(pl.from_pandas(X))
    assert out.columns == ["PC1", "PC2"]


# -- scikit-learn's machinery ----------------------------------------------------------------


def test_clone_pickle_and_pipelines():
    X, y = load_digits(return_X_y=True)
    pca = PrimedPCA(10, priming=Oja(steps=50), random_state=3)
    assert clone(pca).get_params() == pca.get_params()
    fitted = clone(pca).fit(X)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    model = make_pipeline(PrimedPCA(20), LogisticRegression(max_iter=2000)).fit(X / 16, y)
    assert model.score(X / 16, y) > 0.9
    assert "PrimedPCA" in estimator_html_repr(model)
    assert "PrimedPCA" in repr(pca)


def test_grid_search_over_priming_objects_and_names():
    X = load_iris().data
    grid = {"priming": ["exact", "oja", EigenGame(steps=20), SubspaceIteration()]}
    search = GridSearchCV(PrimedPCA(2, random_state=0), grid, cv=2).fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("name", PRIMINGS)
def test_same_seed_same_bits(name):
    X = load_wine().data
    priming = PRIMINGS[name][0]
    first, second = (PrimedPCA(3, priming=priming, random_state=7).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.components_, second.components_)
    np.testing.assert_array_equal(first.explained_variance_, second.explained_variance_)


def test_directions_functions_and_objects_as_priming():
    X = load_wine().data
    truth = PCA(3, svd_solver="full").fit(X).components_
    span = truth.T @ np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    for priming in (span, lambda X, n: span, torch.tensor(span)):
        pca = PrimedPCA(3, priming=priming).fit(X)
        np.testing.assert_allclose(pca.components_, truth, atol=1e-9)
    seen = []
    PrimedPCA(2, priming=lambda X, n: seen.append((type(X), n)) or span).fit(sp.csr_array(X))
    assert seen == [(sp.csr_array, 6)]


def test_warm_start_saves_passes():
    X = PROBLEMS[1].X
    options = {"extra_components": 4, "certificate": "none", "random_state": 0}
    pca = PrimedPCA(4, priming="subspace_iteration", max_passes=200, **options).fit(X)
    cold = pca.n_passes_
    warm = pca.set_params(warm_start=True).fit(X).n_passes_
    assert warm < cold


def test_refine_share_uses_a_share_of_the_rows():
    X = np.random.default_rng(0).standard_normal((4000, 10)) * np.arange(10, 0, -1)
    whole = PrimedPCA(3, priming="oja", random_state=0).fit(X)
    share = PrimedPCA(3, priming="oja", refine_share=0.1, random_state=0).fit(X)
    assert share.n_passes_ == pytest.approx(whole.n_passes_ - 0.9)
    assert not np.array_equal(share.components_, whole.components_)
    np.testing.assert_allclose(share.explained_variance_, whole.explained_variance_, rtol=0.2)


def test_attributes_tell_what_happened(capsys):
    X = PROBLEMS[1].X
    options = {"priming": "subspace_iteration", "certificate": "none", "extra_components": 10}
    pca = PrimedPCA(4, verbose=1, random_state=0, **options).fit(X)
    assert pca.converged_
    assert pca.status_.name == "CONVERGED"
    assert len(pca.history_) == pca.n_passes_ - 1
    assert pca.history_[-1]["change"] <= pca.tol < pca.history_[-2]["change"]
    assert "SubspaceIteration" in str(pca.plan_)
    assert capsys.readouterr().out.count("primedpca: step") == len(pca.history_)


def test_running_out_of_passes_warns():
    options = {"priming": "subspace_iteration", "certificate": "none", "extra_components": 4}
    pca = PrimedPCA(4, tol=1e-12, max_passes=3, random_state=0, **options)
    with pytest.warns(ConvergenceWarning, match="max_passes"):
        pca.fit(PROBLEMS[1].X)
    assert not pca.converged_


def test_a_fit_that_ends_with_fewer_components_says_so():
    rows = np.random.default_rng(0).normal(size=(300, 50)) * np.linspace(5, 1, 50)
    options = {"priming": BlockKrylov(1), "certificate": "none", "max_passes": 2}
    with pytest.warns(ConvergenceWarning, match=r"`max_passes` .* Found 2 of 4 components\.$"):
        assert PrimedPCA(4, **options).fit(rows).n_components_ == 2
    with pytest.warns(UserWarning, match=r"Found 2 of 4 components\.$"):
        assert svd(rows, 4, **options).s.shape == (2,)


def test_out_is_filled():
    X = load_iris().data
    pca = PrimedPCA(2).fit(X)
    out = np.empty((150, 2))
    assert pca.transform(X, out=out) is out
    np.testing.assert_array_equal(out, pca.transform(X))
    with pytest.raises(ValueError, match=r"`out` must be an array of shape \(150, 2\)"):
        pca.transform(X, out=np.empty((3, 2)))


def broken_pipe(line):
    if "step" not in line:
        raise BrokenPipeError("closed")


def full_disk(row):
    raise OSError("no space left")


def learnt(model):
    known = vars(model).keys() - model.get_params().keys()
    return pickle.dumps({name: vars(model)[name] for name in sorted(known)})


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("end", ["warning", "pipe", "function", "data"])
def test_a_fit_that_fails_leaves_the_model_as_it_was(end, fitted, monkeypatch):
    rng = np.random.default_rng(0)
    pca = PrimedPCA(2, random_state=0)
    if fitted:
        pca.fit(pd.DataFrame(rng.normal(size=(30, 5)), columns=list("abcde")))
    before = learnt(pca)
    wide = rng.normal(size=(400, 300))
    if end == "warning":
        pca.set_params(priming=BlockKrylov(), max_passes=3, tol=1e-9, certificate="none")
    elif end == "pipe":  # the sentence at the end of the fit
        pca.set_params(verbose=1)
        monkeypatch.setattr("builtins.print", broken_pipe)
    elif end == "function":
        pca.set_params(verbose=full_disk)
    else:
        wide[3, 4] = np.nan
    with pytest.raises((OSError, ValueError, ConvergenceWarning)):  # warnings are errors here
        pca.fit(wide)
    assert learnt(pca) == before
    with pytest.raises(ValueError if fitted else NotFittedError):
        pca.transform(pd.DataFrame(wide, columns=[f"x{j}" for j in range(300)]))


def test_a_merge_that_fails_leaves_the_model_as_it_was(monkeypatch):
    one, two = (PrimedPCA(2).partial_fit(np.eye(9, 5) + i) for i in range(2))
    assert one.n_samples_ == 9
    before = learnt(one)

    def interrupted(model, seen):
        vars(model).pop("components_")
        raise KeyboardInterrupt

    monkeypatch.setattr(PrimedPCA, "_set_stream", interrupted)
    for call in (lambda: one.merge(two), lambda: one.partial_fit(np.eye(9, 5))):
        with pytest.raises(KeyboardInterrupt):
            call()
        assert learnt(one) == before


def test_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        PrimedPCA().transform(np.ones((3, 3)))


# -- bad input -------------------------------------------------------------------------------

GOOD = np.random.default_rng(0).standard_normal((20, 6))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_components": 7}, r"`n_components`=7 must lie between 1 and min.*=6\."),
        ({"n_components": 0}, r"`n_components`=0"),
        ({"n_components": -1}, r"`n_components`=-1"),
        ({"tol": True}, r"`tol`=True must be an angle"),
        ({"max_passes": 2.5}, r"`max_passes`=2.5 must be an integer"),
        ({"refine_share": "a"}, r"`refine_share`='a'"),
        ({"failure_probability": "a"}, r"`failure_probability`='a'"),
        ({"n_components": 1.5}, r"`n_components`=1.5 must be an integer, a fraction"),
        ({"n_components": 0.0}, r"`n_components`=0.0 must be an integer, a fraction"),
        ({"n_components": 0.9, "certificate": "none"}, r"0.9, .* requires a certificate"),
        ({"n_components": 0.9, "priming": "oja"}, r"`n_components`=0.9 .*`priming`=Oja"),
        ({"n_components": 2.0}, r"`n_components`=2.0"),
        ({"n_components": "many"}, r"`n_components`='many'"),
        ({"n_components": True}, r"`n_components`=True"),
        ({"center": "yes"}, r"`center`='yes' must be True or False"),
        ({"tol": 0}, r"`tol`=0 must be an angle"),
        ({"tol": 2}, r"`tol`=2"),
        ({"tol": "small"}, r"`tol`='small'"),
        ({"max_passes": 0, "priming": "oja"}, r"`max_passes`=0"),
        ({"batch_size": 0, "priming": "oja"}, r"`batch_size`=0"),
        ({"extra_components": -1}, r"`extra_components`=-1"),
        ({"extra_components": "some"}, r"`extra_components`='some'"),
        ({"scale": "minmax"}, r"`scale`='minmax'"),
        ({"scale": np.ones(5)}, r"`scale` has shape \(5,\), but `X` has 6 columns"),
        ({"scale": np.zeros(6)}, r"`scale`\[0\]=0.0 must be finite and positive"),
        ({"missing": "drop"}, r"`missing`='drop'"),
        ({"refine_share": 0}, r"`refine_share`=0"),
        ({"certificate": "sure"}, r"`certificate`='sure' must be one of"),
        ({"certificate": "probabilistic", "refine_share": 0.5}, r"`refine_share`=0.5"),
        ({"failure_probability": 0}, r"`failure_probability`=0 must be"),
        ({"checkpoint": 3}, r"`checkpoint`=3 must be the path"),
        ({"engine": "mpi"}, r"`engine`='mpi' is not available"),
        ({"device": "cuda:7"}, r"`device`='cuda:7'"),
        ({"device": "meta"}, r"`device`='meta' holds shapes but no numbers\. Use 'cpu'"),
        ({"device": torch.device("meta")}, r"`device`='meta' holds shapes"),
        ({"priming": "lanczos"}, r"Unknown `priming`='lanczos'\. Use one of block_k"),
        ({"priming": np.ones((5, 3))}, r"directions have shape \(5, 3\), but `X` has 6"),
        ({"priming": np.ones((3, 6))}, r"Transpose them"),
        ({"priming": np.zeros((6, 3))}, r"span 0 dimensions"),
        ({"priming": np.ones((6, 3)), "n_components": 2}, r"span 1 dimensions, too few"),
        ({"priming": np.full((6, 3), np.nan)}, r"directions contain nan at index \(0, 0\)"),
        ({"scale": [10**400] * 6}, "`scale` must hold numbers: int too large"),
        ({"priming": np.eye(6) * 1j}, "`directions` holds complex numbers"),
        ({"priming": sp.eye_array(6).tocsr()}, r"`directions` is a sparse matrix\. .*toarray"),
        ({"priming": np.ma.masked_equal(np.eye(6), 1)}, "`directions` has masked entries"),
        ({"random_state": "x", "priming": "oja"}, r"`random_state`='x'"),
        ({"random_state": -1, "priming": "oja"}, r"`random_state`=-1"),
    ],
    ids=str,
)
def test_bad_options_are_refused_by_name(options, words):
    before = GOOD.copy()
    with pytest.raises(ValueError, match=words):
        PrimedPCA(**{"n_components": 2} | options).fit(GOOD)
    np.testing.assert_array_equal(GOOD, before)


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        (np.array([["a", "b"]] * 4), ValueError, "convert|string|dtype"),
        (np.array([[1 + 2j, 3]] * 4), ValueError, "Complex"),
        (np.array([[object(), 1]] * 4), TypeError, "float|number"),
        (np.empty((0, 4)), ValueError, "0 sample"),
        (np.empty((4, 0)), ValueError, "0 feature"),
        (np.ones((1, 4)), ValueError, "1 sample"),
        (np.ma.masked_array(np.ones((4, 2)), np.eye(4, 2)), TypeError, "mask"),
        (np.ones(4), ValueError, "1D array|dimension"),
        (np.ones((2, 2, 2)), ValueError, "dim 3|dimension"),
        (np.array([[1.0, np.nan]] * 3), ValueError, "NaN.*row 0, column 1"),
        (np.array([[1.0, 2.0], [np.inf, 1.0], [0, 0]]), ValueError, "infinity.*row 1, column 0"),
        (sp.csr_array([[1.0, 0], [0, np.nan]]), ValueError, "NaN.*row 1, column 1"),
        (torch.tensor([[1.0, float("nan")]] * 3), ValueError, "NaN.*row 0, column 1"),
        (pd.DataFrame({"n": [1, 2, 3], "city": ["a", "b", "c"]}), ValueError, "'city'"),
        (pl.DataFrame({"n": [1, 2, 3], "city": ["a", "b", "c"]}), ValueError, "'city'"),
        ("file.npy", FileNotFoundError, "'file.npy'"),
        (Path("file.npy"), FileNotFoundError, "File not found.*file.npy"),
        (None, (TypeError, ValueError), "None|data"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_bad_data_are_refused_by_name(X, error, words):
    with pytest.raises(error, match=words):
        PrimedPCA().fit(X)


@pytest.mark.parametrize("weight", [np.ones(3), -np.ones(20), np.full(20, np.nan), np.zeros(20)])
def test_bad_weights_are_refused(weight):
    with pytest.raises(ValueError, match="`sample_weight`"):
        PrimedPCA(2).fit(GOOD, sample_weight=weight)


@pytest.mark.parametrize("kind", ["datetime64[D]", "timedelta64[s]"])
def test_dates_and_durations_are_no_weights_or_scale(kind):
    times = np.arange(1, 21).astype(kind)
    with pytest.raises(ValueError, match="`sample_weight` holds dates or durations"):
        PrimedPCA(2).fit(GOOD, sample_weight=times)
    with pytest.raises(ValueError, match="`scale` holds dates or durations"):
        PrimedPCA(2, scale=times[: GOOD.shape[1]]).fit(GOOD)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["numpy", "csr", "csc", "torch", "pandas"])
def test_transform_refuses_what_is_no_number(bad, kind, tmp_path):
    pca = PrimedPCA(2).fit(SOURCES[kind](GOOD, tmp_path))
    X = GOOD.copy()
    X[3, 4] = bad
    with pytest.raises(ValueError, match="row 3, column 4"):
        pca.transform(SOURCES[kind](X, tmp_path))
    with pytest.raises(ValueError, match="feature"):
        pca.transform(SOURCES[kind](GOOD[:, :5], tmp_path))
    with pytest.raises(ValueError, match="n_components_=2"):
        pca.inverse_transform(np.ones((3, 4)))


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_covariance_in_float32_with_a_scale_whose_squares_are_out_of_range(unit):
    X = (np.random.default_rng(0).normal(size=(200, 6)) * unit).astype(np.float32)
    pca = PrimedPCA(3, scale="std").fit(X)
    cov = pca.get_covariance()
    np.testing.assert_allclose(np.diag(cov), X.var(axis=0, dtype=np.float64), rtol=0.3)
    np.testing.assert_allclose(pca.get_precision() @ cov, np.eye(6), atol=1e-4)


def test_no_density_without_noise_or_full_rank():
    X = np.random.default_rng(0).standard_normal((30, 2)) @ np.ones((2, 5))
    pca = PrimedPCA(2).fit(X)
    with pytest.raises(ValueError, match="rank-deficient"):
        pca.score(X)
    with pytest.raises(ValueError, match="rank-deficient"):
        pca.get_precision()


def test_an_engine_object_is_used():
    pca = PrimedPCA(2, engine=LocalEngine(1)).fit(GOOD)
    np.testing.assert_array_equal(pca.components_, PrimedPCA(2).fit(GOOD).components_)
    with pytest.raises(ValueError, match="`workers`=0"):
        LocalEngine(0)


@pytest.mark.parametrize("kind", ["numpy", "csr", "csc", "torch"])
def test_densities_of_float32_data_are_right(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 10)) * np.r_[100, 30, np.full(8, 0.1)] + 50
    X = X.astype(np.float32)
    pca = PrimedPCA(2).fit(SOURCES[kind](X, tmp_path))
    cov, centred = pca.get_covariance(), X.astype("f8") - pca.mean_
    distance = np.einsum("ij,ij->i", centred, np.linalg.solve(cov, centred.T).T)
    wanted = -0.5 * (distance + np.linalg.slogdet(cov)[1] + 10 * np.log(2 * np.pi))
    np.testing.assert_allclose(pca.score_samples(SOURCES[kind](X, tmp_path)), wanted, rtol=1e-3)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("before", "after"), [(4, 5), (5, 8), (4, 17), (12, 3)])
def test_warm_start_with_another_number_of_components(before, after, side):
    both = np.random.default_rng(0).normal(size=(800, 30)) * 0.6 ** np.arange(30)
    known, X = both[:400], both[400:]  # of other rows, so that there is something left to find
    narrow = BlockKrylov(block_size=1, max_basis=8, side=side)
    model = PrimedPCA(before, priming=narrow, warm_start=True, random_state=0, certificate="none")
    model.fit(known).set_params(n_components=after).fit(X)
    assert angles(model.components_, PCA(after).fit(X).components_).max() < 1e-2


@pytest.mark.parametrize("priming", ["auto", "block_krylov"])
@pytest.mark.parametrize("value", [0.0, 5.3, 1e10 / 3, -1e-200])
def test_a_share_of_no_variance_is_one_component(value, priming):
    model = PrimedPCA(0.95, priming=priming).fit(np.full((50, 6), value))
    assert model.n_components_ == 1
    assert model.converged_
    assert model.certificate_.zero.all()
    assert "no variance" in str(model.status_)


class Fewer(PrimedPCA):
    """A subclass with a signature of its own."""

    def __init__(self, share=0.5):
        super().__init__(2, random_state=0)
        self.share = share


def test_a_subclass_may_have_a_signature_of_its_own(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 5)) * [5, 4, 3, 2, 1]
    model = Fewer(0.3).fit(X)
    assert np.array_equal(model.components_, PrimedPCA(2, random_state=0).fit(X).components_)
    model.save(tmp_path / "model.safetensors")
    assert Fewer().partial_fit(X).n_samples_ == 60


def test_a_stopped_stream_is_not_certified_by_its_sketch():
    """With scales to learn first, a listener hears of the first rows and may end the fit there."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 6)) * [9, 7, 5, 3, 2, 1]
    X[250:] = X[250:, ::-1]

    data = Centred(X, scale="std")
    plan = make_plan(data, 2, "frequent_directions", 0)
    goal = Goal(batch_size=50)
    solution = solve(data, plan, goal, progress=lambda history, find: True)
    true = np.linalg.svd((X - X.mean(0)) / X.std(0), full_matrices=False)[2][:2]
    found = angles(solution.decomposition.components, true)
    assert (found <= solution.certificate.angle_bounds + 1e-12).all()


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5]])
def test_variances_of_subnormal_data_are_not_proven_to_be_zero(weights):
    rows = np.array([[1, 0], [0, 2], [3, 1]]) * 5e-324
    with pytest.warns(RuntimeWarning, match="below the range of float64"):
        proof = PrimedPCA(1).fit(rows, sample_weight=weights).certificate_
    assert proof.eigenvalue_bounds[0, 1] > 0
    assert not proof.zero.any()


def test_variances_that_are_rounded_to_zero_are_warned_of():
    rows = np.random.default_rng(0).normal(size=(30, 4))
    for fit in (PrimedPCA(2).fit, PrimedPCA(2, certificate="none").fit, PrimedPCA(2).partial_fit):
        with pytest.warns(RuntimeWarning, match="Multiply `X` by a large number"):
            assert not fit(rows * 1e-165).explained_variance_.any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrimedPCA(2).fit(rows * 1e-150)
        PrimedPCA(2).fit(np.full((30, 4), 7.0))  # no variance, and nothing that is lost


@pytest.mark.filterwarnings("ignore:The variances of `X` are below")
@pytest.mark.parametrize("power", [-156, -162, -165, -200, -300])
@pytest.mark.parametrize("priming", ["exact", "block_krylov"])
def test_singular_values_and_ratios_of_numbers_whose_squares_underflow(power, priming):
    rows = np.random.default_rng(0).normal(size=(30, 5)) * [5, 4, 3, 2, 1]
    tiny = rows * 10.0**power
    wanted = PrimedPCA(2, priming=priming, random_state=0).fit(rows)
    model = PrimedPCA(2, priming=priming, random_state=0).fit(tiny)
    np.testing.assert_allclose(
        model.singular_values_ / 10.0**power, wanted.singular_values_, rtol=1e-12
    )
    np.testing.assert_allclose(
        model.explained_variance_ratio_, wanted.explained_variance_ratio_, rtol=1e-12
    )
    s = svd(tiny, 2, priming=priming, random_state=0).s
    np.testing.assert_allclose(s, np.linalg.svd(tiny, compute_uv=False)[:2], rtol=1e-12)
    for density in (lambda: model.score(tiny), model.get_precision):  # few digits, or none
        with pytest.raises(ValueError, match="variances below the range of float64"):
            density()
    if power < -162:
        with pytest.raises(ValueError, match="The variance of `X` is zero"):
            choose_k(tiny)


@pytest.mark.parametrize("mean", [1e8, 1e11])
def test_ratios_add_up_to_one_at_most_where_rounding_is_large(mean):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows, weights = rng.normal(size=(20, 1)) + mean, rng.random(20) + 0.5
        rows[3] = np.nan
        found = PrimedPCA(1, missing="mean").fit(rows, sample_weight=weights)
        assert found.explained_variance_ratio_.sum() <= 1


@pytest.mark.parametrize("priming", ["auto", "exact", "block_krylov", "subspace_iteration", "oja"])
@pytest.mark.parametrize("certificate", ["auto", "none"])
def test_the_noise_of_float32_beside_a_large_variance(priming, certificate):
    X = np.random.default_rng(0).normal(size=(300, 6))
    X = (X * [3000, 1, 1, 1, 1, 1]).astype("f4")
    wanted = np.linalg.eigvalsh(np.cov(X.T.astype("f8")))[:5].mean()
    model = PrimedPCA(1, priming=priming, certificate=certificate, random_state=0).fit(X)
    assert model.noise_variance_ == pytest.approx(wanted, rel=1e-5)
    assert model.score(X) == pytest.approx(PrimedPCA(1).fit(X.astype("f8")).score(X), abs=1e-4)


def test_the_noise_of_float32_by_mle_weights_gaps_and_streams():
    X = np.random.default_rng(1).normal(size=(300, 6))
    X = (X * [3000, 1, 1, 1, 1, 1]).astype("f4")
    wanted = np.linalg.eigvalsh(np.cov(X.T.astype("f8")))[:5].mean()
    assert PrimedPCA("mle").fit(X).noise_variance_ == pytest.approx(wanted, rel=0.3)
    assert PrimedPCA(0.9).fit(X).noise_variance_ == pytest.approx(wanted, rel=1e-5)
    stream = PrimedPCA(1).partial_fit(X[:99]).partial_fit(X[99:])
    assert stream.noise_variance_ == pytest.approx(wanted, rel=1e-5)
    for center in (True, False):
        for options in ({"sample_weight": np.arange(300.0)}, {}):
            models = []
            for rows, proof in ((X, "none"), (X, "auto"), (X.astype("f8"), "auto")):
                rows = rows.copy()
                rows[::7, 3] = np.nan
                model = PrimedPCA(1, certificate=proof, missing="mean", center=center)
                models.append(model.fit(rows, **options))
            one, two, three = (model.noise_variance_ for model in models)
            assert one == pytest.approx(three, rel=1e-4)
            assert two == pytest.approx(three, rel=1e-4)


def test_float32_noise_takes_no_pass_beyond_those_allowed_or_needed():
    X = np.random.default_rng(0).normal(size=(300, 6)).astype("f4")
    assert PrimedPCA(1, certificate="none").fit(X).n_passes_ == 1
    X[:, 0] *= 3000
    options = {"certificate": "none", "priming": "block_krylov", "tol": 1e-5, "random_state": 0}
    free = PrimedPCA(1, **options).fit(X)
    with pytest.warns(ConvergenceWarning):
        tight = PrimedPCA(1, **options, max_passes=int(free.n_passes_) - 2).fit(X)
    assert tight.n_passes_ <= free.n_passes_ - 2


@pytest.mark.parametrize("priming", ["exact", "block_krylov", "subspace_iteration"])
@pytest.mark.parametrize("certificate", ["auto", "none"])
@pytest.mark.parametrize("shape", [(60, 15), (15, 60), (2000, 300)])
def test_float32_of_low_rank_has_no_noise(shape, priming, certificate):
    rng = np.random.default_rng(6)
    X = rng.standard_normal((shape[0], 3)) @ rng.standard_normal((3, shape[1]))
    model = PrimedPCA(3, priming=priming, certificate=certificate, random_state=0)
    assert model.fit(X.astype("f4")).noise_variance_ == 0


@pytest.mark.parametrize("certificate", ["auto", "none"])
@pytest.mark.parametrize("priming", ["exact", "block_krylov", "frequent_directions"])
@pytest.mark.parametrize(("unit", "scale"), [(1e-30, 1e30), (1e-20, 1e30), (1e30, 1e-30)])
def test_a_scale_far_from_one_on_float32_in_extreme_units(unit, scale, priming, certificate):
    rows = np.random.default_rng(0).normal(size=(200, 5)) * [3, 2, 1, 1, 1]
    X = (rows * unit).astype("f4")
    model = PrimedPCA(
        2, scale=np.full(5, scale), priming=priming, certificate=certificate, random_state=0
    ).fit(X)
    wanted = np.linalg.eigvalsh(np.cov(rows.T))[:2:-1] * (unit / scale) ** 2
    np.testing.assert_allclose(model.explained_variance_, wanted, rtol=1e-5)
    scores = model.transform(X) / (unit / scale)
    np.testing.assert_allclose(scores.var(axis=0, ddof=1), wanted / (unit / scale) ** 2, rtol=1e-5)
    back = model.inverse_transform(model.transform(X))
    assert np.isfinite(back).all()
    assert np.abs(back - X).max() < 5 * unit


def test_variances_of_scaled_columns_beyond_float64_are_refused():
    X = np.random.default_rng(0).normal(size=(50, 4)) * 1e150
    with pytest.raises(ValueError, match="exceed the range of float64"):
        PrimedPCA(2, scale=np.full(4, 1e-30)).fit(X)


@pytest.mark.parametrize("priming", ["exact", "block_krylov", "frequent_directions"])
@pytest.mark.parametrize("certificate", ["auto", "none"])
@pytest.mark.parametrize(("unit", "scale"), [(1e198, 1e-288), (1e-198, 1e288), (1e300, 1e-300)])
def test_quotients_beyond_float64_are_refused(unit, scale, priming, certificate):
    X = np.random.default_rng(0).normal(size=(50, 4)) * unit
    model = PrimedPCA(2, scale=np.full(4, scale), priming=priming, certificate=certificate)
    words = "Use a (larger|smaller) `scale`|Divide `X` by a large number"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(ValueError, match=words):
            model.fit(X)
    constant = PrimedPCA(2, scale=np.full(4, 1e9)).fit(np.full((9, 4), 1e-100))
    assert not constant.explained_variance_.any()


def test_a_scale_with_labels_goes_by_name():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 3)) * [1, 10, 100], columns=list("abc"))
    scale = X.std(ddof=0)
    turned = scale[list("cba")]
    wanted = PrimedPCA(2, scale=scale.to_numpy()).fit(X)
    for given in (scale, turned):
        found = PrimedPCA(2, scale=given).fit(X)
        np.testing.assert_array_equal(found.scale_, scale)
        np.testing.assert_array_equal(found.components_, wanted.components_)
        proof = certify(X, wanted.components_, scale=given)
        assert proof.angle_bounds.max() < 1e-3
        part = PrimedPCA(2, scale=given).partial_fit(X[:20]).partial_fit(X[20:])
        np.testing.assert_allclose(part.explained_variance_, wanted.explained_variance_)
    other = scale.rename({"a": "z"})
    for call in (PrimedPCA(2, scale=other).fit, PrimedPCA(2, scale=other).partial_fit):
        with pytest.raises(ValueError, match=r"`scale` has the label 'z' for column 1"):
            call(X)
    for native in (X, pl.from_pandas(X), pa.Table.from_pandas(X)):
        wrapped = nw.from_native(turned, series_only=True)
        np.testing.assert_array_equal(PrimedPCA(2, scale=wrapped).fit(native).scale_, scale)
    # Without names on both sides the order counts.
    by_order = PrimedPCA(2, scale=turned).fit(X.to_numpy())
    np.testing.assert_array_equal(by_order.scale_, turned)


def test_a_saved_scale_with_labels_stays_with_its_columns(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 3)) * [1, 10, 100], columns=list("abc"))
    turned = X.std(ddof=0)[list("cba")]
    whole = PrimedPCA(2, scale=turned).fit(X)
    whole.save(tmp_path / "whole.safetensors")
    again = load(tmp_path / "whole.safetensors").fit(X)
    np.testing.assert_array_equal(again.scale_, whole.scale_)
    part = PrimedPCA(2, scale=turned).partial_fit(X[:20])
    part.save(tmp_path / "part.safetensors")
    later = load(tmp_path / "part.safetensors").partial_fit(X[20:])
    np.testing.assert_allclose(later.explained_variance_, whole.explained_variance_)


def test_saved_directions_with_labels_stay_with_their_columns(tmp_path):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)) * [9, 3, 1], columns=list("abc"))
    directions = PrimedPCA(1).fit(X).loadings().iloc[::-1]
    pca = PrimedPCA(1, priming=directions, certificate="none").fit(X)
    pca.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors").fit(X)
    np.testing.assert_array_equal(again.components_, pca.components_)


def test_labels_of_every_kind_go_by_name():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 4)) * [1, 10, 100, 1000]
    labels = (
        list("abcd"),
        [2021, 2022, 2023, 2024],
        [0, 1, 2, 3],
        pd.date_range("2021", periods=4),
        pd.MultiIndex.from_product([["a", "b"], ["x", "y"]]),
        pd.CategoricalIndex(list("abcd")),
    )
    for names in labels:
        X = pd.DataFrame(values, columns=names).iloc[:, [2, 0, 3, 1]]
        scale = X.std(ddof=0)
        turned = scale.iloc[::-1]
        kinds = [scale, turned]
        if not isinstance(names, pd.MultiIndex):
            kinds.append(xr.DataArray(turned.to_numpy(), dims="c", coords={"c": turned.index}))
        for given in kinds:
            np.testing.assert_array_equal(PrimedPCA(2, scale=given).fit(X).scale_, scale)
        mapped = as_source(X, map=np.cbrt)
        np.testing.assert_array_equal(PrimedPCA(2, scale=turned).fit(mapped).scale_, scale)
        components = pd.DataFrame(PrimedPCA(2).fit(X).components_, columns=X.columns)
        assert certify(X, components.iloc[:, ::-1]).angle_bounds.max() < 1e-3
    # Labels that only number their entries name nothing.
    named = pd.DataFrame(values, columns=list("abcd"))
    by_order = pd.Series(np.arange(1.0, 5))
    np.testing.assert_array_equal(PrimedPCA(2, scale=by_order).fit(named).scale_, by_order)
    other = by_order.set_axis(pd.MultiIndex.from_product([["a", "b"], ["x", "y"]]))
    with pytest.raises(ValueError, match=r"`scale` has the label \('a', 'x'\) for column 1"):
        PrimedPCA(2, scale=other).fit(named)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "xarray", "given", "function"])
def test_labelled_directions_of_every_kind(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 4)) * [1, 2, 4, 8], columns=list("abcd"))
    wanted = PrimedPCA(2).fit(X)
    frame = wanted.loadings().loc[list("cadb")]
    table = frame.reset_index()
    directions = {
        "pandas": frame,
        "polars": pl.from_pandas(table),
        "pyarrow": pl.from_pandas(table).to_arrow(),
        "xarray": xr.DataArray(frame),
        "given": Given(frame),
        "function": lambda X, n_directions: frame,
    }[kind]
    options = {"priming": directions, "certificate": "none", "checkpoint": tmp_path / "kept"}
    for _ in range(2):  # the second from the checkpoint
        found = PrimedPCA(2, **options).fit(X)
        np.testing.assert_allclose(found.explained_variance_, wanted.explained_variance_)
    if kind in ("given", "function"):
        return
    start = next(iter(prime(X, "subspace_iteration", 2, start=directions)))
    for given in (directions, start.directions):
        np.testing.assert_allclose(
            refine(X, given, 2).explained_variance, wanted.explained_variance_
        )


def test_given_directions_of_every_library_are_saved(tmp_path):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)) * [9, 3, 1], columns=list("abc"))
    frame = PrimedPCA(1).fit(X).loadings().iloc[::-1]
    tensor = torch.tensor(frame.to_numpy()[::-1].copy(), requires_grad=True)
    arrow = pl.from_pandas(frame.reset_index())
    for i, given in enumerate((frame, tensor, arrow, Given(frame), Given(tensor))):
        pca = PrimedPCA(1, priming=given, certificate="none").fit(X)
        pca.save(tmp_path / f"{i}.safetensors")
        again = load(tmp_path / f"{i}.safetensors").fit(X)
        np.testing.assert_array_equal(again.components_, pca.components_)
    with pytest.raises(ValueError, match="`directions` is a sparse matrix"):
        PrimedPCA(1, priming=sp.csr_array(np.eye(3)), checkpoint=tmp_path / "kept").fit(X)
    assert not (tmp_path / "kept").exists()


def test_weights_in_another_order_than_the_rows_are_refused():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(9, 3)), index=list("rstuvwxyz"))
    weights = pd.Series(np.arange(1.0, 10), index=X.index)
    wanted = PrimedPCA(2).fit(X, sample_weight=weights.to_numpy()).components_
    by_position = (weights, weights.reset_index(drop=True), weights.rename(str.upper))
    for given in by_position:
        found = PrimedPCA(2).fit(X, sample_weight=given)
        np.testing.assert_array_equal(found.components_, wanted)
    turned = weights[::-1]
    model = PrimedPCA(2)
    calls = (model.fit, model.partial_fit, partial(certify, components=wanted))
    for call in calls:
        with pytest.raises(ValueError, match="`sample_weight` has the label 'z' for row 1, where"):
            call(X, sample_weight=turned)
        call(X, sample_weight=turned.to_numpy())
    # Of an array no names of rows are known.
    assert PrimedPCA(2).fit(X.to_numpy(), sample_weight=turned).n_samples_ == 45


def test_lists_of_series_name_their_entries_alike():
    values = np.random.default_rng(0).normal(size=(6, 3))
    rows = [pd.Series(row, index=list("abc")) for row in values]
    wanted = PrimedPCA(2).fit(values)
    np.testing.assert_array_equal(PrimedPCA(2).fit(rows).components_, wanted.components_)
    rows[4] = rows[4][::-1]
    for call in (PrimedPCA(2).fit, wanted.transform, partial(svd, k=2)):
        with pytest.raises(ValueError, match=r"differently, or in another order. .*DataFrame"):
            call(rows)
