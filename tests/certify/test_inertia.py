"""Upper bounds on eigenvalues by a Cholesky factorisation, compared with exact counts.

``positives`` counts the positive eigenvalues of a matrix of floats in integer arithmetic, so that
a bound is judged without rounding.  Hadamard matrices give larger examples with exact spectra.
The exact ``G`` may differ from the matrix given by ``error`` in any direction, so the claim
``lambda_{j+1}(G) <= rho`` is true if the matrix has at most ``j`` eigenvalues above
``rho - error``.
"""

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg

from primedpca import PrimedPCA
from primedpca._certify import inertia
from primedpca._certify.bounds import Evidence, carried
from primedpca._certify.inertia import ceiling
from primedpca.metrics import angles

FAMILIES = ("random", "clustered", "repeated", "deficient", "graded", "indefinite", "edge")
BASES = ("eigenvectors", "perturbed", "missing", "random", "skewed", "repeated")
QUICK, SLOW = 300, 20_000
ULP = 2.0**-52


# -- the truth -------------------------------------------------------------------------------


def positives(matrix):
    """Count the positive eigenvalues of a symmetric matrix of integers, by Sylvester's law.

    Bareiss' elimination: every entry stays an integer, a minor of the matrix.
    """
    a, before, count = [list(map(int, row)) for row in matrix], 1, 0
    while a:
        size = range(len(a))
        pivot = next((i for i in size if a[i][i]), None)
        if pivot is None:
            pair = next(((i, j) for i in size for j in size if a[i][j]), None)
            if pair is None:
                break
            i, j = pair  # adding row and column j to i makes the diagonal 2 a_ij
            a[i] = [x + y for x, y in zip(a[i], a[j], strict=True)]
            for row in a:
                row[i] += row[j]
            continue
        here = a[pivot][pivot]
        count += (here > 0) == (before > 0)
        rest = [i for i in size if i != pivot]
        a = [[(a[i][j] * here - a[i][pivot] * a[pivot][j]) // before for j in rest] for i in rest]
        before = here
    return count


def above(matrix, level):
    """Count the eigenvalues of a matrix of floats that exceed the Fraction ``level``."""
    shifted = [[Fraction(float(x)) for x in row] for row in matrix]
    for i, row in enumerate(shifted):
        row[i] -= level
    unit = math.lcm(*(x.denominator for row in shifted for x in row))
    return positives([[x * unit for x in row] for row in shifted])


def is_true(matrix, bounds, error):
    """Whether every finite bound holds for all matrices within ``error`` of the one given."""
    j = int(np.argmax(np.isfinite(bounds)))
    if not np.isfinite(bounds[j]):
        return True
    assert np.all(bounds[j:] == bounds[j])
    return above(matrix, Fraction(float(bounds[j])) - Fraction(error)) <= j


def hadamard(values):
    """``H diag(values) H^T / m``, exact if the values have few bits, and eigenvectors ``H``."""
    h = scipy.linalg.hadamard(values.size).astype(float)
    return (h * values) @ h.T / values.size, h / math.sqrt(values.size)


def symmetric(turn, values):
    matrix = (turn * values) @ turn.T
    return np.tril(matrix) + np.tril(matrix, -1).T


def rotation(rng, m):
    return np.linalg.qr(rng.standard_normal((m, m)))[0]


# -- the fuzz --------------------------------------------------------------------------------


def spectrum(rng, family, m):
    values = rng.random(m)
    if family == "clustered":
        values = rng.choice(rng.random(2), m) + 10.0 ** rng.uniform(-15, -3) * rng.random(m)
    elif family == "repeated":
        values = rng.choice(rng.random(3), m)
    elif family == "deficient":
        values = rng.random(m) * (np.arange(m) < rng.integers(1, m + 1))
    elif family == "graded":
        values = 10.0 ** rng.uniform(-rng.choice([3, 17, 300]), 0, m)
    elif family == "indefinite":
        values = rng.standard_normal(m)
    return np.sort(values)[::-1]


def vectors(rng, kind, turn, p):
    if kind == "random":
        return rotation(rng, len(turn))[:, :p]
    if kind == "repeated":
        return turn[:, rng.integers(0, len(turn), p)]
    if kind == "missing":
        turn = np.delete(turn, rng.integers(0, p), axis=1)
    noise = {"perturbed": 10.0 ** rng.uniform(-16, -1), "skewed": 0.5}.get(kind, 0.0)
    return turn[:, :p] + noise * rng.standard_normal((len(turn), p))


def edge(rng, m):
    """Sigma within rounding of ``lambda_{j+1}``: rounding relative to eigenvalues before ``j``.

    They are larger by up to 2^30, and ``B`` is as large along their eigenvectors.
    """
    m = 4 if m < 8 else 8
    j = int(rng.integers(2, m))
    values = np.sort(rng.integers(1, 2**10, m))[::-1] / 2.0**10
    top = 2.0 ** int(rng.integers(0, 30))
    values[: j - 1] *= top
    order = rng.permutation(m)
    matrix, turn = hadamard(values[np.argsort(order)])
    sigma = values[j] - rng.choice([1, 1, -1]) * 10.0 ** rng.uniform(-2, 1) * ULP * top
    shown = [*(3 * values[: j - 1]), 2 * values[j - 1], 2 * sigma - 2 * values[j - 1]]
    return matrix, turn[:, order[: j + 1]], np.array(shown), j


def ordinary(rng, m, family, kind):
    matrix = symmetric(rotation(rng, m), spectrum(rng, family, m))
    found, turn = (part[..., ::-1] for part in np.linalg.eigh(matrix))
    p = int(rng.integers(2, m))
    basis, values = vectors(rng, kind, turn, p), found[:p]
    if kind == "missing" or rng.random() < 0.2:  # Rayleigh quotients, as a caller would have
        values = np.sort(np.sum(basis * (matrix @ basis), axis=0))[::-1]
    return matrix, basis, values, int(rng.integers(1, p))


def problem(seed, largest=9):
    """``matrix, basis, values, error, wanted``, of any size from 1e-270 to 1e270."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(3, largest + 1))
    family, kind = FAMILIES[seed % len(FAMILIES)], BASES[seed // len(FAMILIES) % len(BASES)]
    found = edge(rng, m) if family == "edge" else ordinary(rng, m, family, kind)
    matrix, basis, values, wanted = found
    unit = 2.0 ** int(rng.choice([0, 0, -900, -500, 500, 900]))
    error = float(rng.choice([0.0, 1e-14, 1e-6])) * unit
    return matrix * unit, basis, values * unit, error, wanted


def fuzz(seeds, error_known=True, **sizes):
    """Return how many bounds were proven, and the seeds of those that are false."""
    proven, false = 0, []
    for seed in seeds:
        matrix, basis, values, error, wanted = problem(seed, **sizes)
        bounds = ceiling(matrix, basis, values, error if error_known else 0.0, wanted)
        assert bounds.shape == (values.size + 1,)
        assert np.all(np.isinf(bounds[:wanted]))
        proven += bool(np.isfinite(bounds).any())
        if not is_true(matrix, bounds, error):
            false.append(seed)
    return proven, false


def test_no_bound_is_false():
    proven, false = fuzz(range(QUICK))
    assert not false
    assert proven > QUICK / 4


@pytest.mark.slow
def test_no_bound_of_twenty_thousand_is_false():
    proven, false = fuzz(range(QUICK, QUICK + SLOW), largest=14)
    assert not false
    assert proven > SLOW / 4


def no_slack(shape, trace, size, sigma):
    return 0.0


def without_the_trace(shape, trace, size, sigma):
    return 1.01 * inertia.UNIT * (sum(shape) + 4) * sigma


@pytest.mark.parametrize("wrong", [no_slack, without_the_trace])
def test_a_slack_that_is_too_small_is_found(monkeypatch, wrong):
    monkeypatch.setattr(inertia, "_slack", wrong)
    assert len(fuzz(range(QUICK))[1]) >= 3


def test_leaving_out_the_error_of_the_matrix_is_found():
    assert len(fuzz(range(QUICK), error_known=False)[1]) >= 3


def test_the_count_in_integers():
    rng = np.random.default_rng(0)
    assert positives([[0, 1], [1, 0]]) == 1
    assert positives([[0, 0], [0, 0]]) == 0
    assert positives([[-1, 2, 0], [2, -1, 0], [0, 0, 0]]) == 1
    for _ in range(50):
        m = int(rng.integers(1, 9))
        a = rng.integers(-9, 10, (m, m))
        a += a.T
        assert positives(a) == np.sum(np.linalg.eigvalsh(a) > 1e-9)
    assert above(np.diag([1.0, 1 + ULP, 2.0]), Fraction(1)) == 2


# -- larger examples with exact spectra --------------------------------------------------------


@pytest.mark.parametrize("m", [16, 256])
@pytest.mark.parametrize("unit", [2.0**-1000, 1.0, 2.0**1000])
def test_a_gap_is_proven_at_any_scale(m, unit):
    values = np.round(2.0**20 * np.arange(1, m + 1) ** -0.5) / 2**20
    matrix, turn = hadamard(values)
    bounds = ceiling(matrix * unit, turn[:, :9], values[:9] * unit, 0.0, 5)
    rho = bounds[5:] / unit  # the widest gap is the first
    assert np.all(np.isinf(bounds[:5]))
    assert np.all(rho == rho[0])
    middle = (values[4] + values[5]) / 2
    assert middle < rho[0] < middle * (1 + 3e-16 * m * m)


def test_subnormal_matrices_are_proven_outward():
    values = np.array([12.0, 8, 2, 0])
    matrix, turn = hadamard(values)
    tiny = 2.0**-1074
    bounds = ceiling(matrix * tiny, turn[:, :3], values[:3] * tiny, 0.0, 1)
    assert 5 * tiny < bounds[2] <= 7 * tiny


def test_the_widest_gap_from_k_on_is_chosen():
    values = np.array([64.0, 32, 31, 30, 20, 19, 1, 1])
    matrix, turn = hadamard(values)
    for wanted, j, sigma in ((1, 1, 48), (2, 4, 25), (4, 4, 25), (5, 5, 19.5)):
        bounds = ceiling(matrix, turn[:, :6], values[:6], 0.0, wanted)
        assert np.all(np.isinf(bounds[:j]))
        np.testing.assert_allclose(bounds[j:], sigma, rtol=1e-13)


def test_the_error_of_the_matrix_is_added():
    values = np.array([8.0, 4, 2, 1])
    matrix, turn = hadamard(values)
    exact = ceiling(matrix, turn[:, :2], values[:2], 0.0, 1)[1]
    assert ceiling(matrix, turn[:, :2], values[:2], 0.5, 1)[1] == pytest.approx(exact + 0.5)
    # A matrix that is too small by the error: without it the bound would be false.
    low = matrix - 2.5 * np.eye(4)
    assert ceiling(low, turn[:, :2], values[:2] - 2.5, 0.0, 1)[1] < 4
    assert ceiling(low, turn[:, :2], values[:2] - 2.5, 2.5, 1)[1] == np.inf  # past theta_1


@pytest.mark.parametrize("lost", [0, 3])
def test_a_missed_eigenvector_above_sigma_is_not_overlooked(lost):
    """``U`` lacks an eigenvector; its eigenvalue decides, to the last digits, what is proven."""
    m, j = 64, 6
    for sign in (-1, 1):
        values = np.where(np.arange(m) < j, 4.0, 1.0)
        values[j] = 2.5 + sign * 2.0**-30  # sigma is 2.5 first, then 3.625
        matrix, turn = hadamard(values)
        kept = np.delete(turn, j, axis=1)
        bounds = ceiling(matrix, kept[:, : j + 1], np.delete(values, j)[: j + 1], 0.0, j)
        assert bounds[j] == pytest.approx(2.5 if sign < 0 else 3.625)
        # Lost among the leading ones: j + 1 eigenvalues exceed every sigma that is tried.
        values[j] = 3.7
        matrix, turn = hadamard(np.round(values * 2**20) / 2**20)
        kept = np.delete(turn, lost, axis=1)
        assert np.all(np.isinf(ceiling(matrix, kept[:, : j + 1], np.full(j + 1, 4.0), 0.0, j)))
        shown = np.where(np.arange(j + 1) < j, 4.0, 1.0)
        assert np.all(np.isinf(ceiling(matrix, kept[:, : j + 1], shown, 0.0, j)))


@pytest.mark.parametrize("wrong", [no_slack, without_the_trace])
def test_a_factorisation_that_hides_a_negative_eigenvalue_needs_the_slack(monkeypatch, wrong):
    """Cholesky runs to its end although ``B`` has a negative eigenvalue.

    ``B`` is formed exactly: all square roots and products have few bits.
    """
    rng = np.random.default_rng(4)

    def claim():
        values = rng.integers(0, 900, 16) / 2**10
        values[:3] = values[0] * 2**20, 2, 1
        order = rng.permutation(16)
        matrix, turn = hadamard(values[np.argsort(order)])
        shown = np.array([9 * 2.0**20, 4, -2 - 2.0**-32])  # sigma = 1 - 2^-33
        return ceiling(matrix, turn[:, order[:3]], shown, 0.0, 2)[2]

    proven = [rho for _ in range(200) if (rho := claim()) < 2]
    assert proven
    assert min(proven) >= 1
    monkeypatch.setattr(inertia, "_slack", wrong)
    assert min(claim() for _ in range(200)) < 1


def test_a_failure_is_repeated_with_a_larger_sigma_only_once():
    m = 32
    for third, rho in ((0.4, 0.5), (0.8, 0.875), (0.9, np.inf)):
        values = np.array([2.0, 1.0, *np.full(m - 2, third)])
        turn = rotation(np.random.default_rng(0), m)
        bounds = ceiling(symmetric(turn, values), turn[:, :3], np.array([2, 1, 0.0]), 0.0, 2)
        assert bounds[2] == (pytest.approx(rho) if np.isfinite(rho) else rho)


# -- against LAPACK --------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["random", "clustered", "deficient", "graded"])
def test_the_bound_lies_between_eigenvalue_and_gap(family):
    rng = np.random.default_rng(1)
    m, k = 120, 7
    values = np.sort(spectrum(rng, family, m))[::-1]
    values[:k] += 0.5  # a gap at k
    matrix = symmetric(rotation(rng, m), values)
    found, turn = (part[..., ::-1] for part in np.linalg.eigh(matrix))
    noise = 1e-8 * rng.standard_normal((m, k + 4))
    rho = ceiling(matrix, turn[:, : k + 4] + noise, found[: k + 4], 1e-13, k)[k]
    assert found[k] < rho < found[k - 1]


def test_mu_follows_from_the_bound():
    rng = np.random.default_rng(2)
    m, k, p = 90, 5, 9
    matrix = symmetric(rotation(rng, m), np.arange(1, m + 1) ** -1.0)
    turn = np.linalg.eigh(matrix)[1][:, ::-1]
    basis = np.linalg.qr(turn[:, :p] + 1e-5 * rng.standard_normal((m, p)))[0]
    values, small = (part[..., ::-1] for part in np.linalg.eigh(basis.T @ matrix @ basis))
    basis = basis @ small
    residual = matrix @ basis - basis * values
    evidence = Evidence(values, np.linalg.qr(residual)[1], math.inf, 1e-13)
    mu = carried(evidence, ceiling(matrix, basis, values, 1e-13, k))
    rest = matrix - basis @ (basis.T @ matrix)
    rest -= rest @ basis @ basis.T
    assert np.linalg.eigvalsh(rest)[-1] < mu < values[k - 1]


# -- input and memory ------------------------------------------------------------------------


def clear_case(m=300):
    values = np.append(np.full(4, 8.0), np.ones(m - 4))
    turn = rotation(np.random.default_rng(3), m)
    return symmetric(turn, values), turn[:, :5], values[:5]


@pytest.mark.parametrize("layout", ["C", "F", "strided", "read-only"])
def test_the_matrix_is_left_alone_unless_told(layout):
    matrix, basis, values = clear_case(60)
    given = np.array(matrix, order="F" if layout == "F" else "C")
    if layout == "strided":
        given = np.repeat(given, 2, axis=1)[:, ::2]
    given.flags.writeable = layout != "read-only"
    expected = ceiling(matrix, basis, values, 0.0, 4)
    assert np.isfinite(expected[4])
    np.testing.assert_array_equal(ceiling(given, basis, values, 0.0, 4), expected)
    np.testing.assert_array_equal(given, matrix)
    np.testing.assert_array_equal(ceiling(given, basis, values, 0.0, 4, overwrite=True), expected)


@pytest.mark.parametrize("order", ["C", "F"])
def test_overwriting_takes_no_second_matrix(order):
    matrix, basis, values = clear_case()
    given = np.array(matrix, order=order)
    values[-1] = -20  # sigma = -6 fails, 4.5 does not: both triangles are used
    tracemalloc.start()
    bounds = ceiling(given, basis, values, 0.0, 4, overwrite=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bounds[4] == pytest.approx(4.5)
    assert peak < matrix.nbytes / 4
    assert not np.array_equal(given, matrix)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e308])
@pytest.mark.parametrize("place", [(0, 0), (2, 2), (4, 1), (1, 4), (5, 5)])
def test_non_finite_numbers_prove_nothing(wrong, place):
    matrix, basis, values = clear_case(6)
    assert np.isfinite(ceiling(matrix, basis, values, 0.0, 4)[4])
    row, column = place
    matrix[row, column] = matrix[column, row] = wrong
    assert np.all(np.isinf(ceiling(matrix, basis, values, 0.0, 4)))
    matrix, basis, values = clear_case(6)
    basis[row, min(column, 3)] = wrong
    assert np.all(np.isinf(ceiling(matrix, basis, values, 0.0, 4)))
    matrix, basis, values = clear_case(6)
    assert np.all(np.isinf(ceiling(matrix, basis, values, wrong, 4))) or wrong < 0


def test_nothing_is_proven_without_a_gap_or_a_spare_value():
    matrix, basis, values = clear_case(8)
    assert np.all(np.isinf(ceiling(matrix, basis, values, 0.0, 5)))
    assert np.all(np.isinf(ceiling(matrix, basis, np.ones(5), 0.0, 2)))
    assert np.all(np.isinf(ceiling(np.zeros((8, 8)), basis, np.zeros(5), 0.0, 2)))


def test_a_fit_without_probability_ends_by_inertia():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(4000, 900)) * np.arange(1, 901) ** -0.6).astype("f4")
    pca = PrimedPCA(8, certificate="deterministic", random_state=0).fit(X)
    assert type(pca.plan_.priming).__name__ == "BlockKrylov"
    assert pca.status_.name == "CERTIFIED"
    assert pca.certificate_.kind == "deterministic"
    assert pca.certificate_.failure_probability == 0
    assert pca.n_passes_ < pca.plan_.patience  # no full decomposition was made
    wide = X.astype(np.float64)
    true = np.linalg.eigh(np.cov(wide.T))[1][:, ::-1].T[:8]
    assert (angles(pca.components_, true) <= pca.angle_bounds_ + 1e-7).all()


def test_the_slack_has_the_terms_of_factorising_and_of_forming():
    m, j, trace, size, sigma = 10, 3, 2.0, 5.0, 1.0
    terms = (m + 2) * trace + (j + 2) * (trace + 2 * size + 2 * sigma)
    assert inertia._slack((m, j), trace, size, sigma) >= 2.0**-53 * terms
