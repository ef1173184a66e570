"""A few eigenpairs of a matrix on a GPU, here on the CPU, where the algebra is the same."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from primedpca._core.few_eigenpairs import UNIT, few_eigenpairs  # noqa: E402

ORDER, COUNT = 300, 25
INDEX = np.arange(1, ORDER + 1.0)
#: Spectra of which the leading eigenpairs are found.
FALLING = {"power": INDEX**-1.4, "steep": INDEX**-4.0, "slow": 1 / INDEX}
#: Spectra that must not be guessed at: ties at the last wanted, nothing beyond a rank, no gap.
HARD = {
    "tie": np.where(INDEX < 20, 5.0, np.where(INDEX < 60, 2.0, 1 / INDEX)),
    "rank": (INDEX < 6) * 1.0,
    "flat": 1 + 1e-3 / INDEX,
    "zero": 0 * INDEX,
}


def matrix(values, seed=0):
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((ORDER, ORDER)))[0]
    square = (basis * values) @ basis.T
    return (square + square.T) / 2


@pytest.mark.parametrize("scale", [1.0, 1e120, 1e-120])
@pytest.mark.parametrize("name", FALLING)
def test_they_are_those_of_lapack(name, scale):
    square = matrix(FALLING[name]) * scale
    found = few_eigenpairs(torch.from_numpy(square), COUNT)
    assert found is not None
    values, vectors = found[0], found[1].numpy()
    wanted = np.linalg.eigvalsh(square)[::-1][:COUNT]
    near = 10 * ORDER * UNIT * wanted[0]
    np.testing.assert_allclose(values, wanted, rtol=0, atol=near)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(COUNT), atol=1e-13)
    assert np.linalg.norm(square @ vectors - vectors * values) < near


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", HARD)
def test_nothing_is_said_where_it_is_not_sure(name, seed):
    square = matrix(HARD[name], seed)
    found = few_eigenpairs(torch.from_numpy(square), COUNT)
    if found is not None:  # then it must be right
        wanted = np.linalg.eigvalsh(square)[::-1][:COUNT]
        np.testing.assert_allclose(found[0], wanted, rtol=0, atol=10 * ORDER * UNIT * wanted[0])


def test_a_missed_eigenvector_is_noticed(monkeypatch):
    """The random start is orthogonal to the second eigenvector, and products keep it so."""
    values = np.linalg.eigvalsh(matrix(FALLING["power"]))
    # Exact arithmetic on the diagonal: entries that start at zero stay there.
    square = np.diag(values[::-1].copy())
    drawn = torch.randn

    def blind(*args, **options):
        x = drawn(*args, **options)
        x[1] = 0.0
        return x

    monkeypatch.setattr(torch, "randn", blind)
    assert few_eigenpairs(torch.from_numpy(square), COUNT) is None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_left_to_others(bad):
    square = matrix(FALLING["power"])
    square[3, 3] = bad
    assert few_eigenpairs(torch.from_numpy(square), COUNT) is None
