"""Rotations, compared with factor_analyzer 0.5.1 and with their definitions."""

import numpy as np
import pytest
from sklearn.datasets import load_wine

from primedpca import PrimedPCA
from primedpca.rotation import promax, varimax

# The first three rows that factor_analyzer's Rotator (max_iter=5000, tol=1e-14) returns for the
# scaled loadings of four components of standardised wines, sorted and signed as here.
VARIMAX = [
    [0.162479, 0.814596, -0.210559, -0.120446],
    [-0.160817, -0.06035, -0.792413, 0.178987],
    [0.062171, 0.345958, -0.041366, 0.859241],
]
PROMAX = [
    [0.078273, 0.818931, 0.2303, -0.125589],
    [0.156281, -0.081543, 0.869686, 0.146207],
    [0.107349, 0.335085, 0.011239, 0.875455],
]


@pytest.fixture(scope="module")
def wines():
    wines = PrimedPCA(4, scale="std").fit(load_wine().data)
    return wines.components_.T * np.sqrt(wines.explained_variance_)


def criterion(loadings):
    rows = loadings / np.linalg.norm(loadings, axis=1, keepdims=True)
    return (rows**2).var(axis=0).sum()


def test_varimax_is_that_of_factor_analyzer(wines):
    found = varimax(wines)
    np.testing.assert_allclose(found.loadings[:3], VARIMAX, atol=1e-6)
    np.testing.assert_allclose(found.matrix.T @ found.matrix, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(wines @ found.matrix, found.loadings, atol=1e-12)
    np.testing.assert_array_equal(found.correlations, np.eye(4))


def test_promax_is_that_of_factor_analyzer(wines):
    found = promax(wines)
    np.testing.assert_allclose(found.loadings[:3], PROMAX, atol=1e-6)
    np.testing.assert_allclose(np.diag(found.correlations), 1, atol=1e-12)
    # Loadings and correlations of the components together give the same covariances.
    rebuilt = found.loadings @ found.correlations @ found.loadings.T
    np.testing.assert_allclose(rebuilt, wines @ wines.T, atol=1e-10)


def test_no_turn_of_two_components_improves_varimax(wines):
    best = criterion(varimax(wines).loadings)
    for i in range(4):
        for j in range(i):
            for angle in (-0.05, 0.05, 0.8):
                turn = np.eye(4)
                turn[[i, j], [i, j]] = np.cos(angle)
                turn[i, j], turn[j, i] = np.sin(angle), -np.sin(angle)
                assert criterion(varimax(wines).loadings @ turn) < best
    assert best > criterion(wines)


def test_a_simple_structure_is_found_again():
    rng = np.random.default_rng(0)
    simple = np.kron(np.eye(3), np.ones((6, 1))) * rng.uniform(0.5, 1, (18, 1))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    for rotate in (varimax, promax):
        found = rotate(simple @ turn).loadings
        order = np.argsort(-(simple**2).sum(axis=0))
        np.testing.assert_allclose(found, simple[:, order], atol=1e-6)


def test_one_component_and_columns_of_zeros():
    one = np.array([[0.5], [0.0], [-0.9]])
    np.testing.assert_array_equal(varimax(one).loadings, -one)
    found = promax(np.array([[1.0, 1.0], [0.0, 0.0], [1.0, -1.0]])).loadings
    assert np.isfinite(found).all()
    for rotate in (varimax, promax):
        assert not rotate(np.zeros((4, 2))).loadings.any()


@pytest.mark.parametrize("rotate", [varimax, promax])
@pytest.mark.parametrize(("kind", "rounding"), [("float64", 1e-17), ("float32", 1e-8)])
def test_columns_of_rounding_error_do_not_count(rotate, kind, rounding):
    given = np.random.default_rng(0).normal(size=(8, 3)).astype(kind)
    noise = np.random.default_rng(1).normal(size=(4, 3)).astype(kind) * rounding
    found = rotate(np.vstack([given, noise]).astype(kind)).loadings[:8]
    close = {"atol": 1e-5 if kind == "float32" else 1e-12}
    zeros = rotate(np.vstack([given, 0 * noise]).astype(kind)).loadings[:8]
    np.testing.assert_allclose(found, zeros, **close)


@pytest.mark.parametrize("rotation", ["varimax", "promax"])
def test_components_beyond_the_rank_do_not_turn_others(rotation):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 10))

    def rotated(rows, k):
        return PrimedPCA(k, certificate="none").fit(rows).loadings(rotation=rotation)

    three = np.asarray(rotated(X, 3))
    for rows in (X, X[::-1]):
        np.testing.assert_allclose(np.asarray(rotated(rows, 4))[:, :3], three, atol=1e-12)


def test_small_columns_and_components_count():
    rng = np.random.default_rng(0)
    simple = np.kron(np.eye(3), np.ones((6, 1))) * rng.uniform(0.5, 1, (18, 1))
    simple[:6] *= 1e-5
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    for rotate in (varimax, promax):
        found = rotate(simple @ turn).loadings
        order = np.argsort(-(simple**2).sum(axis=0))
        np.testing.assert_allclose(found, simple[:, order], atol=1e-10)


def test_bad_loadings_are_refused():
    with pytest.raises(ValueError, match=r"shape \(d > 0, k > 0\), got \(3,\)"):
        varimax(np.ones(3))
    with pytest.raises(ValueError, match="non-finite"):
        varimax(np.full((3, 2), np.nan))
    for power in (0, np.inf, np.nan, "4", None):
        with pytest.raises(ValueError, match=f"`power`={power!r} must be"):
            promax(np.eye(3), power=power)


@pytest.mark.parametrize("rotate", [varimax, promax])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("power", [-1000, -540, -270, 270, 540, 1000])
def test_the_unit_does_not_change_the_rotation(rotate, normalize, power):
    # The fourth powers of 2^-270 underflow, and those of 2^270 overflow.
    loadings = np.random.default_rng(0).normal(size=(8, 3))
    one = rotate(loadings, normalize=normalize)
    other = rotate(loadings * 2.0**power, normalize=normalize)
    np.testing.assert_allclose(other.loadings / 2.0**power, one.loadings, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(other.correlations, one.correlations, rtol=1e-10, atol=1e-12)


def test_complex_loadings_are_refused():
    with pytest.raises(ValueError, match="complex"):
        varimax(np.eye(3) * 1j)


@pytest.mark.parametrize("power", [50.0, 2000.0, 1e9])
def test_large_powers_do_not_underflow(power):
    loadings = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 3)))[0]
    found = promax(loadings, power=power)
    # A target that underflowed would be zero, and so would the loadings.
    np.testing.assert_allclose(np.diag(found.correlations), 1.0)
    assert np.linalg.matrix_rank(found.loadings) == 3
    product = found.loadings @ found.correlations @ found.loadings.T
    np.testing.assert_allclose(product, loadings @ loadings.T, atol=1e-9)


@pytest.mark.parametrize("rotation", ["varimax", "promax"])
@pytest.mark.parametrize("priming", ["exact", "block_krylov"])
def test_components_of_rounding_in_float32_are_not_rotated_or_divided_by(priming, rotation):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(500, 3)) @ rng.normal(size=(3, 12)) + 100).astype(np.float32)
    options = {"priming": priming, "certificate": "none", "whiten": True, "random_state": 0}
    found, few = (PrimedPCA(k, **options).fit(X) for k in (6, 3))
    assert 0 < found.explained_variance_[3] < 1e-6 * found.explained_variance_[0]
    turned, wanted = (np.asarray(model.loadings(rotation=rotation)) for model in (found, few))
    np.testing.assert_allclose(turned[:, :3], wanted, atol=1e-4)
    assert not turned[:, 3:].any()
    scores = found.transform(X)
    np.testing.assert_allclose(scores[:, :3].std(axis=0, ddof=1), 1, rtol=1e-4)
    assert np.abs(scores[:, 3:]).max() < 1e-2
    np.testing.assert_allclose(found.inverse_transform(scores), X, atol=1e-3)
    # A certificate, computed in float64, proves the variances of the rounded numbers themselves.
    proven = PrimedPCA(6, **options | {"certificate": "auto"}).fit(X)
    np.testing.assert_allclose(proven.transform(X).std(axis=0, ddof=1), 1, rtol=1e-2)
