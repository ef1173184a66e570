"""Drop-ins of scikit-learn's classes: parameters, results, certificates, and the patch."""

import inspect
import os
import pickle
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
import sklearn.decomposition as original
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import primedpca
from primedpca import sklearn as ours
from primedpca.metrics import angles

NAMES = ["PCA", "IncrementalPCA", "TruncatedSVD"]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 60)) @ np.diag(1 / np.arange(1, 61)) + 3
TRUE = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)


@pytest.mark.parametrize("name", NAMES)
def test_signatures_and_types_are_scikit_learns(name):
    mine, theirs = getattr(ours, name), getattr(original, name)
    assert issubclass(mine, theirs)
    assert inspect.signature(mine) == inspect.signature(theirs)
    assert mine().get_params() == theirs().get_params()
    for method in ("fit", "fit_transform", "transform", "inverse_transform", "partial_fit"):
        if hasattr(theirs, method):
            one, two = (inspect.signature(getattr(kind, method)) for kind in (mine, theirs))
            assert list(one.parameters) == list(two.parameters)


@pytest.mark.parametrize("name", NAMES)
def test_fitted_attributes_are_scikit_learns_and_one_more(name):
    mine, theirs = (getattr(kind, name)(3).fit(X) for kind in (ours, original))
    fitted = {key for key in vars(theirs) if key.endswith("_")}
    assert {key for key in vars(mine) if key.endswith("_")} == fitted | {"certificate_"}
    for key in fitted:
        one, two = getattr(mine, key), getattr(theirs, key)
        assert np.shape(one) == np.shape(two), key
        assert np.asarray(one).dtype.kind == np.asarray(two).dtype.kind, key


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solver", ["auto", "full", "covariance_eigh", "arpack", "randomized"])
def test_every_solver_is_within_its_proven_bounds(solver, dtype):
    pca = ours.PCA(5, svd_solver=solver).fit(X.astype(dtype))
    off = angles(pca.components_, TRUE[2][:5])
    slack = 1e-6 if dtype == "float32" else 1e-12  # the cast of X
    assert (off <= pca.certificate_.angle_bounds + slack).all()
    assert pca.certificate_.angle_bounds.max() <= np.pi / 1024
    assert pca.components_.dtype == dtype
    low, high = pca.certificate_.eigenvalue_bounds.T
    true = TRUE[1][:5] ** 2 / 399
    assert ((low * (1 - slack) <= true) & (true <= high * (1 + slack))).all()


def test_beyond_small_orders_solvers_iterate_to_their_tolerance(monkeypatch):
    monkeypatch.setattr(ours, "EXACT_TO", 100)
    wide = RNG.normal(size=(900, 1200)) @ np.diag(0.97 ** np.arange(1200)) + 1
    true = np.linalg.svd(wide - wide.mean(axis=0), full_matrices=False)[2][:4]
    for solver, tol in (("randomized", np.pi / 1024), ("arpack", 1e-6)):
        pca = ours.PCA(4, svd_solver=solver, tol=1e-6).fit(wide)
        assert angles(pca.components_, true).max() <= tol
        assert (angles(pca.components_, true) <= pca.certificate_.angle_bounds).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_without_a_seed_is_repeated_bit_by_bit(name):
    wide = RNG.normal(size=(700, 900))
    one, two = (getattr(ours, name)(3).fit(wide) for _ in range(2))
    np.testing.assert_array_equal(one.components_, two.components_)


def test_fits_that_prove_nothing_do_not_warn():
    # Variances this close together would cost more to tell apart than the fit.
    flat = sp.random(2000, 1500, density=0.05, format="csr", rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svd = ours.TruncatedSVD(6).fit(flat)
    assert svd.certificate_ is not None


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("name", ["PCA", "IncrementalPCA"])
def test_data_are_never_overwritten(name, copy):
    given = X.copy()
    given.setflags(write=False)
    getattr(ours, name)(3, copy=copy).fit_transform(given)
    np.testing.assert_array_equal(given, X)


def test_scores_of_a_fit_keep_their_digits_with_a_large_mean():
    far = X + 1e8
    true = far - far.mean(axis=0)
    pca = ours.PCA(3, svd_solver="full")
    scores = pca.fit_transform(far)
    np.testing.assert_allclose(scores, true @ pca.components_.T, atol=1e-7)


@pytest.mark.parametrize("n_components", [0.5, 0.9, 0.999, "mle", None, 0])
def test_numbers_that_scikit_learn_chooses_are_the_same(n_components):
    one, two = (kind.PCA(n_components, svd_solver="full").fit(X) for kind in (ours, original))
    assert one.n_components_ == two.n_components_
    np.testing.assert_allclose(one.noise_variance_, two.noise_variance_, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(one.explained_variance_ratio_, two.explained_variance_ratio_)
    assert one.certificate_.angle_bounds.size == one.n_components_


# -- batches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [7, 60, 400])
def test_batches_of_narrow_rows_lose_nothing(size):
    pca = ours.IncrementalPCA(5)
    for start in range(0, 400, size):
        pca.partial_fit(X[start : start + size])
    assert angles(pca.components_, TRUE[2][:5]).max() < 1e-7
    np.testing.assert_allclose(pca.explained_variance_, TRUE[1][:5] ** 2 / 399)
    np.testing.assert_allclose(pca.var_, X.var(axis=0))
    np.testing.assert_allclose(
        pca.explained_variance_ratio_, TRUE[1][:5] ** 2 / (TRUE[1] ** 2).sum()
    )
    assert pca.certificate_.kind == "deterministic"
    assert (pca.certificate_.angle_bounds < 1e-5).all()


def test_batches_of_wide_rows_are_within_their_bounds():
    wide = RNG.normal(size=(900, 1500)) @ np.diag(0.8 ** np.arange(1500)) + 2
    pca = ours.IncrementalPCA(4, batch_size=300).fit(wide)
    true = np.linalg.svd(wide - wide.mean(axis=0), full_matrices=False)
    assert (angles(pca.components_, true[2][:4]) <= pca.certificate_.angle_bounds + 1e-12).all()
    low, high = pca.certificate_.eigenvalue_bounds.T
    values = true[1][:4] ** 2 / 899
    assert ((low <= values) & (values <= high)).all()
    np.testing.assert_allclose(pca.explained_variance_, values, rtol=1e-6)


def test_a_first_batch_of_as_many_rows_as_components():
    pca = ours.IncrementalPCA(5).partial_fit(X[:5])
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(5), atol=1e-12)
    assert pca.explained_variance_[4] == 0.0
    assert pca.certificate_.zero[4]
    pca.partial_fit(X[5:])
    assert angles(pca.components_, TRUE[2][:5]).max() < 1e-7


def test_a_batch_that_is_refused_changes_nothing():
    pca = ours.IncrementalPCA(3).partial_fit(X)
    before = pickle.dumps(pca)
    with pytest.raises(ValueError, match="features"):
        pca.partial_fit(X[:, :10])
    with pytest.raises(ValueError, match="NaN"):
        pca.partial_fit(np.full((4, 60), np.nan))
    assert pickle.dumps(pca) == before


@pytest.mark.parametrize("bad", [1e200, np.nan])
def test_a_batch_that_the_sketch_refuses_changes_nothing(bad):
    pca = ours.IncrementalPCA(3).partial_fit(X[:200])
    rows = X[200:].copy()
    rows[-1, 7] = bad
    before = pickle.dumps(pca)
    with pytest.raises(ValueError, match=r"range of float64|NaN"):
        pca.partial_fit(rows, check_input=False)
    assert pickle.dumps(pca) == before
    pca.partial_fit(X[200:])
    np.testing.assert_allclose(pca.mean_, X.mean(axis=0))
    np.testing.assert_allclose(pca.var_, X.var(axis=0))


def test_a_batch_that_is_interrupted_after_the_sketch_changes_nothing(monkeypatch):
    pca = ours.IncrementalPCA(3).partial_fit(X[:200])
    before = pickle.dumps(pca)
    with monkeypatch.context() as patched:
        patched.setattr(ours.IncrementalPCA, "_keep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pca.partial_fit(X[200:])
    assert pickle.dumps(pca) == before
    np.testing.assert_allclose(pca.partial_fit(X[200:]).mean_, X.mean(axis=0))


def interrupted(model, *about):
    raise KeyboardInterrupt


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_fit_that_fails_leaves_the_model_as_it_was(name, fitted, monkeypatch):
    model = getattr(ours, name)(3)
    if fitted:
        model.fit(X)
    before = pickle.dumps(model)
    place = (ours, "_total_variance") if name == "TruncatedSVD" else (type(model), "_keep")
    with monkeypatch.context() as patched:
        patched.setattr(*place, interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X[:, :20])
    assert pickle.dumps(model) == before
    if fitted:
        assert model.transform(X).shape == (400, 3)
    with pytest.raises(ValueError, match="features" if fitted else "fitted"):
        model.transform(X[:, :20])


# -- in place of scikit-learn's ----------------------------------------------------------------


@pytest.fixture
def module():
    """A module that has imported PCA, as scanpy or a notebook would."""
    made = types.ModuleType("imports_pca")
    made.Reduction, made.original = original.PCA, original
    sys.modules["imports_pca"] = made
    yield made
    primedpca.unpatch_sklearn()
    del sys.modules["imports_pca"]


def test_a_patch_reaches_later_and_earlier_imports_and_is_undone(module):
    theirs = [getattr(original, name) for name in NAMES]
    primedpca.patch_sklearn()
    primedpca.patch_sklearn()  # a second one changes nothing
    from sklearn.decomposition import PCA

    assert PCA is ours.PCA
    assert module.Reduction is ours.PCA
    assert [getattr(original, name) for name in NAMES] == [getattr(ours, name) for name in NAMES]
    module.Later = original.TruncatedSVD
    primedpca.unpatch_sklearn()
    primedpca.unpatch_sklearn()
    assert [getattr(original, name) for name in NAMES] == theirs
    assert module.Reduction is theirs[0]
    assert module.Later is theirs[2]


def test_a_context_undoes_only_its_own_patch(module):
    with primedpca.patch_sklearn() as patch:
        assert "PCA, IncrementalPCA, TruncatedSVD" in repr(patch)
        with primedpca.patch_sklearn():
            pass
        assert module.Reduction is ours.PCA
    assert module.Reduction is not ours.PCA


def test_names_imported_from_here_stay(module):
    module.Mine = ours.PCA
    with primedpca.patch_sklearn():
        pass
    assert module.Mine is ours.PCA


def test_pipelines_searches_and_pickles_work_under_a_patch(module):
    before = original.PCA(2).fit(X)
    y = X[:, 0] > np.median(X[:, 0])
    with primedpca.patch_sklearn():
        from sklearn.decomposition import PCA

        pipeline = make_pipeline(PCA(2), LogisticRegression())
        search = GridSearchCV(pipeline, {"pca__n_components": [2, 4]}, cv=2).fit(X, y)
        found = search.best_estimator_["pca"]
        assert isinstance(found, ours.PCA)
        assert clone(found).get_params() == found.get_params()
        # Objects of both kinds are pickled, whichever is in place.
        assert type(pickle.loads(pickle.dumps(before))) is type(before)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.transform(X), found.transform(X))
    assert again.certificate_.kind == found.certificate_.kind


def test_ratios_of_batches_add_up_to_one_at_most_where_rounding_is_large():
    for seed in range(20):
        rows = np.random.default_rng(seed).normal(size=(8, 1)) + 1e10
        assert ours.IncrementalPCA(1).fit(rows).explained_variance_ratio_[0] <= 1


@pytest.mark.parametrize("solver", ["auto", "full", "covariance_eigh"])
def test_mle_of_one_feature_is_none(solver):
    one, two = (kind.PCA("mle", svd_solver=solver).fit(X[:5, :1]) for kind in (ours, original))
    assert one.n_components_ == two.n_components_ == 0
    assert one.transform(X[:5, :1]).shape == (5, 0)
    assert one.noise_variance_ == pytest.approx(float(two.noise_variance_))


@pytest.mark.parametrize("solver", ["full", "covariance_eigh", "arpack", "randomized"])
@pytest.mark.parametrize("count", [1, 4, 5])
def test_the_noise_of_few_rows_is_that_of_scikit_learn(count, solver):
    """The mean over all features, or over the rank, depending on the solver."""
    rows = X[:6]
    one, two = (kind.PCA(count, svd_solver=solver).fit(rows) for kind in (ours, original))
    noise = float(two.noise_variance_)
    assert one.noise_variance_ == pytest.approx(noise, rel=1e-9, abs=1e-12 * np.var(rows))


@pytest.mark.parametrize("kind", [ours.PCA, ours.IncrementalPCA, ours.TruncatedSVD])
def test_masked_entries_are_not_read(kind):
    X = np.random.default_rng(0).normal(size=(30, 4))
    masked = np.ma.masked_array(X, mask=np.arange(120).reshape(30, 4) == 15)
    with pytest.raises(TypeError, match="masked entries would be read"):
        kind(2).fit(masked)
    kind(2).fit(np.ma.masked_array(X))  # nothing is masked


def test_dates_and_tensors_are_refused_as_by_scikit_learn(monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    dates = np.arange(60).reshape(15, 4).astype("datetime64[s]")
    for module in (ours, original):
        with pytest.raises(TypeError):
            module.TruncatedSVD(2).fit(dates)
        with sklearn.config_context(array_api_dispatch=True), pytest.raises(TypeError):
            module.TruncatedSVD(2, power_iteration_normalizer="QR").fit(torch.ones(15, 4))


@pytest.mark.parametrize("kind", ["PCA", "IncrementalPCA"])
def test_the_squares_of_noise_may_overflow_without_an_error(kind):
    X = np.random.default_rng(0).normal(size=(30, 5)) * 1e80
    with np.errstate(over="ignore"):
        own, theirs = (getattr(module, kind)(2).fit(X) for module in (ours, original))
        assert type(own.noise_variance_) is type(theirs.noise_variance_)
        assert np.isfinite(own.get_precision()).all()


@pytest.mark.parametrize("scale", [None, "std"])
def test_to_sklearn_returns_scikit_learns_own_class_while_it_is_replaced(scale):
    X = np.random.default_rng(0).normal(size=(50, 6))
    with primedpca.patch_sklearn():
        found = primedpca.PrimedPCA(2, scale=scale).fit(X).to_sklearn()
    assert b"primedpca" not in pickle.dumps(found)


def test_noise_variances_combine_with_arrays_of_any_library():
    pytest.importorskip("sklearn", minversion="1.6")
    strict = pytest.importorskip("array_api_strict")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    code = """
import numpy as np, sklearn, array_api_strict as xp
from primedpca.sklearn import PCA
X = xp.asarray(np.random.default_rng(0).normal(size=(40, 6)))
with sklearn.config_context(array_api_dispatch=True):
    model = PCA(2).fit(X)
    assert type(model.get_covariance()) is type(model.get_precision()) is type(X)
    float(model.score(X))
"""
    assert strict
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


@pytest.mark.parametrize("wanted", [1, 0.999])
def test_the_density_of_float32_rows_beside_a_large_variance(wanted):
    X = np.random.default_rng(0).normal(size=(300, 6))
    X = (X * [3000, 1, 1, 1, 1, 1]).astype("f4")
    theirs = original.PCA(wanted, svd_solver="full").fit(X.astype("f8"))
    mine = ours.PCA(wanted, svd_solver="full").fit(X)
    assert float(mine.noise_variance_) == pytest.approx(theirs.noise_variance_, rel=1e-5)
    assert mine.score(X) == pytest.approx(theirs.score(X.astype("f8")), abs=1e-2)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("whiten", [False, True])
def test_frames_for_all_estimators_do_not_reach_the_engine(kind, whiten):
    X = np.random.default_rng(0).normal(size=(60, 6)) * np.arange(6, 0, -1) + 2
    for found in (ours.PCA(3, whiten=whiten), ours.IncrementalPCA(3), ours.TruncatedSVD(3)):
        wanted = clone(found).fit_transform(X)
        with sklearn.config_context(transform_output=kind):
            scores = found.fit_transform(X)
        assert type(scores).__module__.startswith(kind)
        np.testing.assert_allclose(np.asarray(scores), wanted)
