"""An accuracy asked for is an accuracy proven, or the reason why not."""

import warnings
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from catalogue import PROBLEMS, planted
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from primedpca import PrimedPCA, certify
from primedpca._core.orthonormal import orthonormalise, random_basis
from primedpca.metrics import angles
from primedpca.priming import BlockKrylov

BUNDLED = {f.__name__: f for f in (load_digits, load_iris, load_breast_cancer, load_wine)}


@pytest.mark.parametrize("share", [0.3, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("way", ["auto", "block_krylov"])
@pytest.mark.parametrize("data", BUNDLED)
def test_a_share_of_the_variance_keeps_the_fewest_components(data, way, share):
    X = BUNDLED[data]().data.astype(np.float64)
    ours = PrimedPCA(share, priming=way, random_state=0).fit(X)
    theirs = PCA(share, svd_solver="full").fit(X)
    assert ours.n_components_ == theirs.n_components_
    assert ours.converged_
    assert ours.explained_variance_ratio_.sum() >= share
    assert ours.certificate_.angle_bounds.shape == (theirs.n_components_,)
    assert f"{100 * share:g} % of the variance" in str(ours.plan_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("shape", [(8, 128), (200, 9)])
@pytest.mark.parametrize("max_passes", [1, 3, 6])
def test_a_share_never_has_more_components_than_rows_or_columns(shape, max_passes):
    """Blocks have 32 columns, of which some are directions without variance."""
    X = np.random.default_rng(0).normal(size=shape)
    for priming in ("block_krylov", BlockKrylov(block_size=60)):
        pca = PrimedPCA(0.99, priming=priming, max_passes=max_passes, random_state=0).fit(X)
        assert pca.n_components_ <= min(shape)
        assert pca.explained_variance_.shape == pca.angle_bounds_.shape == (pca.n_components_,)


def test_a_share_is_found_without_a_full_decomposition():
    problem = planted("many columns", 3000, 2600, 0.9 ** np.arange(60))
    pca = PrimedPCA(0.9, random_state=0).fit(problem.X)
    held = np.cumsum(problem.variances) / problem.variances.sum()
    assert pca.n_components_ == 1 + np.searchsorted(held, 0.9)
    assert type(pca.plan_.priming).__name__ == "BlockKrylov"
    assert pca.status_.name == "CERTIFIED"


def test_a_share_that_a_tie_decides_is_still_captured():
    scores = np.linalg.qr(np.random.default_rng(0).standard_normal((60, 4)))[0]
    scores -= scores.mean(axis=0)
    X = np.linalg.qr(scores)[0]  # four equal variances
    for way in ("exact", "block_krylov"):
        pca = PrimedPCA(0.5, priming=way, random_state=0).fit(X)
        assert pca.n_components_ in (2, 3)  # which of the two is below rounding
        assert pca.explained_variance_ratio_.sum() >= 0.5 - 1e-12


@pytest.mark.parametrize("way", ["block_krylov", "subspace_iteration", "exact"])
def test_an_angle_finer_than_the_type_stops_at_its_floor(way):
    X = PROBLEMS[1].X.astype(np.float32)
    pca = PrimedPCA(4, priming=way, tol=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"Rounding error .* `tol`.* float64"):
        pca.fit(X)
    assert pca.status_.name == "FLOOR"
    assert pca.n_passes_ < pca.max_passes
    assert 1e-9 < pca.angle_bounds_.max() < 1e-6  # and still it says how good they are
    assert PrimedPCA(4, priming=way, tol=1e-9, random_state=0).fit(PROBLEMS[1].X).converged_


def test_without_a_certificate_too_it_stops_at_the_floor():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 300), "f4") * np.linspace(5, 0.1, 300, dtype="f4")
    way = BlockKrylov(max_basis=60)  # a basis of all 300 dimensions would be exact
    pca = PrimedPCA(4, priming=way, tol=1e-12, max_passes=500, certificate="none")
    with pytest.warns(ConvergenceWarning, match="Rounding error"):
        pca.fit(X)
    assert pca.status_.name == "STALLED"
    assert pca.n_passes_ < 100


@pytest.mark.parametrize("way", ["oja", "eigengame", "frequent_directions", "power_method"])
def test_any_priming_ends_certified(way):
    problem = PROBLEMS[0]
    pca = PrimedPCA(4, priming=way, random_state=0).fit(problem.X)
    assert pca.status_.name == "CERTIFIED"
    assert (angles(pca.components_, problem.components[:4]) <= pca.angle_bounds_ + 1e-9).all()
    passes = [row["passes"] for row in pca.history_]
    assert passes == sorted(passes)
    assert passes[-1] <= pca.n_passes_ <= passes[-1] + 1


@pytest.mark.parametrize("way", ["block_krylov", "exact"])
def test_history_has_bounds_and_variances(way):
    pca = PrimedPCA(4, priming=way, random_state=0).fit(PROBLEMS[1].X)
    assert pca.history_[-1]["angle_bounds"].shape == (4,)
    for row in pca.history_:
        assert row["seconds"] > 0
        assert row["variances"].shape == (4,)
    np.testing.assert_allclose(pca.history_[-1]["variances"], pca.explained_variance_)


@pytest.mark.integration
def test_a_slow_spectrum_is_right_where_others_are_30_degrees_off():
    # FIELD: scikit-learn's randomized solver is 30 degrees off here, and says nothing.
    rng = np.random.default_rng(0)
    left = np.linalg.qr(rng.standard_normal((1200, 600)))[0]
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    right = np.linalg.qr(rng.standard_normal((600, 600)))[0]
    X = (left * np.arange(1, 601) ** -0.5) @ right.T
    for dtype in ("f4", "f8"):
        for way in ("auto", "block_krylov"):
            pca = PrimedPCA(50, priming=way, random_state=0).fit(X.astype(dtype))
            assert pca.converged_
            off = angles(pca.components_, right.T[:50])
            assert off.max() <= pca.tol
            assert (off <= pca.angle_bounds_ + 1e-6).all()
    theirs = PCA(50, svd_solver="randomized", random_state=0).fit(X)
    assert angles(theirs.components_, right.T[:50]).max() > np.pi / 18


# -- where nothing more can be told -----------------------------------------------------------


def one_hot(categories, rows):
    return np.eye(categories)[np.arange(rows) % categories]


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("certificate", ["auto", "none"])
def test_ties_leave_no_component_out(make, certificate):
    # LAPACK gives fewer than it was asked for here.
    for X in (one_hot(100, 1000), np.vstack([np.eye(120) * 3, np.eye(120)] * 3)):
        pca = PrimedPCA(8, priming="exact", certificate=certificate).fit(make(X))
        assert pca.components_.shape == (8, X.shape[1])
        assert pca.status_.name == "EXACT"  # and no warning: more nobody can tell
        np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(8), atol=1e-12)
        if certificate == "auto":
            assert (pca.angle_bounds_ == np.pi / 2).all()
    assert certify(make(X), np.eye(8, 120)).streak(0.1) == 0


@pytest.mark.parametrize("way", ["exact", "block_krylov"])
def test_a_tie_that_k_cuts_through_is_reported_whole(way):
    tied = planted("tied", 300, 40, np.r_[9, 5, 5, 5, 1 / np.arange(2.0, 38)])
    for k in (2, 3):
        pca = PrimedPCA(k, priming=way, random_state=0).fit(tied.X)
        assert pca.status_.name == "CERTIFIED"
        ((start, stop, angle),) = pca.certificate_.clusters
        assert (start, stop) == (1, 4)
        assert angle <= pca.tol
        assert not certify(tied.X, pca.components_, random_state=0).met(pca.tol).all()


@pytest.mark.parametrize("data", BUNDLED)
@pytest.mark.parametrize("k", [None, "mle"])
def test_all_components_of_ordinary_data_do_not_warn(data, k):
    pca = PrimedPCA(k).fit(BUNDLED[data]().data)
    assert pca.converged_


@pytest.mark.integration
def test_noise_is_iterated_with_an_explicit_matrix_once_that_is_cheaper():
    X = np.random.default_rng(0).standard_normal((5000, 1200), dtype="float32")
    pca = PrimedPCA(10, random_state=0).fit(X)
    assert type(pca.plan_.priming).__name__ == "BlockKrylov"
    assert pca.n_passes_ < 8 < pca.history_[-1]["step"]  # steps with the matrix read no data
    assert pca.history_[-1]["seconds"] > pca.history_[-2]["seconds"]
    assert pca.status_.name == "CERTIFIED"
    theirs = PCA(10, svd_solver="full").fit(X.astype("f8"))
    assert angles(pca.components_, theirs.components_).max() <= pca.angle_bounds_.max() + 1e-6


def test_a_span_that_nothing_comes_out_of_is_looked_beyond():
    # Oja on all rows at once converges to rounding: its span is invariant, but is it the top?
    X = np.random.default_rng(0).normal(size=(500, 20))
    pca = PrimedPCA(4, priming="oja", random_state=0).fit(X)
    assert pca.status_.name == "CERTIFIED"
    truth = PCA(12, svd_solver="full").fit(X).components_
    missed = PrimedPCA(4, priming=truth[1:].T, random_state=0).fit(X)
    assert angles(missed.components_, truth[:4]).max() <= missed.angle_bounds_.max() + 1e-9
    assert missed.status_.name == "CERTIFIED"


def test_passes_are_bounded_together():
    X = PROBLEMS[1].X
    for way in ("subspace_iteration", "frequent_directions"):
        pca = PrimedPCA(4, priming=way, extra_components=2, max_passes=3, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            assert pca.fit(X).n_passes_ <= 4  # at least one for the proof


@pytest.mark.parametrize("certificate", ["auto", "none"])
def test_a_priming_with_nothing_but_a_change(certificate):
    class State(NamedTuple):
        basis: np.ndarray
        moved: np.ndarray

    class Powers:
        visits = "whole"

        def init(self, like, n_directions, seed, start=None):
            return State(random_basis(like, n_directions, seed, start), np.full(n_directions, 9.0))

        def step(self, state, data):
            basis = orthonormalise(data.covariance_product(state.basis))[0]
            off = np.linalg.norm(basis - state.basis @ (state.basis.T @ basis), axis=0)
            return State(basis, off)

        def directions(self, state, data):
            return state.basis

        def change(self, state):
            return state.moved

    problem = PROBLEMS[0]
    pca = PrimedPCA(3, priming=Powers(), certificate=certificate, random_state=0).fit(problem.X)
    assert pca.converged_
    assert angles(pca.components_, problem.components[:3]).max() < 0.01


def test_without_a_certificate_no_bound_is_left_over():
    X = PROBLEMS[0].X
    pca = PrimedPCA(4).fit(X)
    assert pca.angle_bounds_ is not None
    pca.set_params(certificate="none").fit(X)
    assert pca.certificate_ is None
    assert pca.angle_bounds_ is None


# -- the words of a certificate ---------------------------------------------------------------


def test_a_certificate_in_words():
    words = str(PrimedPCA(6).fit(PROBLEMS[3].X).certificate_)
    assert words.startswith("Components 1 to 6 are each proven to be within ")
    words = str(PrimedPCA(20).fit(PROBLEMS[3].X).certificate_)
    assert "Components 9 to 20 have no variance" in words
    wrong = certify(PROBLEMS[0].X, PROBLEMS[0].components[3:6])
    assert "Nothing useful is proven about components 1 to 3" in str(wrong)
    tied = planted("tied", 300, 12, np.r_[5, 3, 3, 2, np.full(8, 0.5)])
    pca = PrimedPCA(4, priming="block_krylov", random_state=0).fit(tied.X)
    words = str(pca.certificate_)
    assert words.startswith("Components 1 and 4 are each proven to be within ")
    assert "Components 2 and 3 are not distinguished, but proven as a plane" in words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tol": 2.0}, "`tol`=2.0 must be an angle"),
        ({"failure_probability": 2}, r"`failure_probability`=2 must lie in \[0, 1\)"),
        ({"failure_probability": -1}, "`failure_probability`=-1"),
        ({"max_passes": 0}, "`max_passes`=0 must be a whole number"),
    ],
    ids=str,
)
def test_certify_refuses_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        certify(PROBLEMS[0].X, PROBLEMS[0].components[:2], **options)


def test_certify_says_when_to_transpose():
    components = PROBLEMS[0].components
    with pytest.raises(ValueError, match="transpose them"):
        certify(PROBLEMS[0].X, components[:2].T)
    with pytest.raises(ValueError, match=r"for each component: `components\[None\]`\."):
        certify(PROBLEMS[0].X, components[0])
    assert certify(PROBLEMS[0].X, components[0][None]).angle_bounds.size == 1
