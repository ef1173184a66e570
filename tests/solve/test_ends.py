"""When a fit stops: rounding, and bounds that are just met."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from primedpca import PrimedPCA, svd
from primedpca._solve import audit
from primedpca._solve.driver import _Fit
from primedpca.priming import BlockKrylov
from primedpca.result import Status


def at_floor(changes, dtype=np.float64):
    like = SimpleNamespace(xp=np, dtype=dtype)
    rows = [{"change": change} for change in changes]
    return _Fit._at_floor(SimpleNamespace(history=rows, data=SimpleNamespace(like=like)))


def test_a_change_near_rounding_that_does_not_fall_is_the_floor():
    assert at_floor([1e-13] * 8)
    assert at_floor([1e-4] * 8, np.float32)
    assert not at_floor([1e-13] * 7)  # too few to tell
    assert not at_floor([1e-4] * 8)  # slow, but far above rounding
    assert not at_floor(list(1e-13 * 0.9 ** np.arange(12)))  # still falling


def test_a_tolerance_below_rounding_still_gives_the_bounds_that_rounding_allows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 300)) * np.arange(1, 301) ** -0.4
    for priming in ("subspace_iteration", "block_krylov"):
        with pytest.warns(ConvergenceWarning):
            found = PrimedPCA(5, tol=1e-11, priming=priming, random_state=0).fit(X)
        assert found.angle_bounds_.max() < 1e-7
        assert found.n_passes_ < 60


@pytest.mark.parametrize("tail", [1e-4, 1e-5])
def test_a_fit_goes_on_while_small_variances_grow(tail):
    """Variances of some 1e-11 of the total are far above the rounding of float64."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(644, 7)) @ rng.normal(size=(7, 462))
    X += tail * (rng.normal(size=(644, 56)) * np.linspace(1, 0.3, 56)) @ rng.normal(size=(56, 462))
    X = X.astype("f4")
    truth = np.linalg.svd(X - X.mean(axis=0, dtype="f8"), compute_uv=False)[:8] ** 2 / 643
    with pytest.warns(ConvergenceWarning):
        found = PrimedPCA(8, priming="block_krylov", random_state=2).fit(X)
    np.testing.assert_allclose(found.explained_variance_, truth, rtol=0.1)
    low, high = found.certificate_.eigenvalue_bounds.T
    assert ((low <= truth) & (truth <= high)).all()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("max_basis", [4, 20, None])
def test_an_explicit_matrix_with_a_small_basis_is_decomposed(side, max_basis):
    """Restarts would keep the basis from ever growing to where that is done."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(187, 43)))[0]
    X = turn * np.repeat([4.0, 3.0, 2.0, 1.0], [12, 11, 10, 10])
    priming = BlockKrylov(explicit=True, side=side, max_basis=max_basis)
    for certificate in ("auto", "none"):
        found = PrimedPCA(1, center=False, priming=priming, certificate=certificate, random_state=0)
        found.fit(X)
        assert found.explained_variance_[0] == pytest.approx(16 / 186)
        assert found.history_[-1]["step"] < 60


def test_a_basis_too_small_for_a_share_of_the_variance_is_not_proven():
    rng = np.random.default_rng(0)
    for side in ("left", "right"):
        X = rng.normal(size=(4, 100)) * np.array([4, 2, 1, 0.5])[:, None]
        priming = BlockKrylov(side=side, block_size=1)
        found = PrimedPCA(0.99, priming=priming, tol=0.1, max_passes=1, random_state=0)
        with pytest.warns(ConvergenceWarning):
            found.fit(X)
        assert found.explained_variance_ratio_.sum() < 0.99
        assert not found.converged_


def test_the_rounding_of_an_angle_grows_with_the_vectors():
    assert audit._slip(1000, 5) > audit._slip(100, 5) >= 100 * 2.0**-52
    assert audit._slip(100, 50) > audit._slip(100, 5)


@pytest.mark.parametrize("k", [1, 4])
def test_the_angle_between_spans_is_never_too_small(k):
    """The exact angle of a rotation by 3, 4 and 5 in every plane, mixed by Householder vectors."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        a = np.eye(60)[:, :k]
        b = 0.6 * a + 0.8 * np.eye(60)[:, k : 2 * k]
        v = rng.normal(size=60)
        mix = np.eye(60) - 2 * np.outer(v, v) / (v @ v)
        turn = np.linalg.qr(rng.normal(size=(k, k)))[0]
        found = audit._between(mix @ a, mix @ b @ turn)
        exact = np.arctan2(4, 3)
        assert exact <= found < exact + 1e-12


# -- fits that end before there are as many directions as components -------------------------

FEW = np.random.default_rng(0).normal(size=(200, 6)) * [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("certificate", ["none", "auto"])
@pytest.mark.parametrize("max_passes", [1, 3, 4, 5])
def test_vectors_beyond_the_basis_are_no_components(certificate, max_passes):
    """All six columns would be directions; block Krylov has come to fewer."""
    options = {"certificate": certificate, "max_passes": max_passes, "random_state": 0}
    pca = PrimedPCA(4, priming=BlockKrylov(block_size=1), whiten=True, **options)
    with pytest.warns(
        ConvergenceWarning, match=r"Found \d of 4" if max_passes < 4 else "ended|Not"
    ):
        pca.fit(FEW)
    assert not pca.converged_
    assert pca.n_components_ <= max_passes
    variances = (pca.transform(FEW) * np.sqrt(pca.explained_variance_)).var(axis=0, ddof=1)
    np.testing.assert_allclose(variances, pca.explained_variance_)
    if certificate == "auto":
        assert pca.angle_bounds_.shape == pca.explained_variance_.shape


@pytest.mark.parametrize("priming", ["subspace_iteration", "block_krylov", "oja"])
def test_a_part_of_the_rows_does_not_converge_in_the_whole_space(priming):
    options = {"certificate": "none", "random_state": 0}
    assert PrimedPCA(4, priming=priming, **options).fit(FEW).status_ is Status.CONVERGED
    part = PrimedPCA(4, priming=priming, refine_share=0.02, **options).fit(FEW)
    assert part.status_ is Status.FINISHED
    assert not part.converged_


def test_components_beyond_the_rank_stay():
    low = FEW[:, :2] @ np.random.default_rng(1).normal(size=(2, 30))
    pca = PrimedPCA(4, priming="block_krylov", random_state=0).fit(low)
    assert pca.status_ is Status.CERTIFIED
    assert pca.components_.shape == (4, 30)


@pytest.mark.parametrize("certificate", ["none", "auto"])
def test_so_does_svd(certificate):
    A = np.random.default_rng(0).normal(size=(900, 700)).astype(np.float32)
    with pytest.warns(UserWarning, match="Found 1 of 5 components"):
        found = svd(A, 5, certificate=certificate, max_passes=1, priming=BlockKrylov(block_size=1))
    assert found[1].shape == (1,)


@pytest.mark.parametrize("certificate", ["auto", "deterministic"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_more_components_than_the_rank_of_sparse_data(certificate, dtype):
    """An invariant span of float32 or float64 is not widened to a basis of everything."""
    few = sp.random_array((30, 900), density=0.03, rng=np.random.default_rng(0), dtype=dtype)
    X = sp.vstack([few] * 30).tocsr()
    pca = PrimedPCA(40, certificate=certificate, random_state=0).fit(X)
    assert pca.status_.name == "CERTIFIED"
    assert pca.n_passes_ < 20
    assert pca.n_components_ == 40
    dense = X.toarray().astype("f8")
    wanted = np.linalg.svd(dense - dense.mean(axis=0))[1][:40] ** 2 / (len(dense) - 1)
    found = pca.explained_variance_
    np.testing.assert_allclose(
        found, wanted, atol=(1e-5 if dtype == "float32" else 1e-10) * wanted[0]
    )
    assert pca.certificate_.zero[29:].all()
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(40), atol=1e-5)
