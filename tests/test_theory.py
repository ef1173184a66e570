"""The paper's theoretical analysis: what it says, what it misses, and the bound that holds."""

import doctest

import numpy as np
import pytest
import scipy.sparse
from environments import ROOT

from primedpca import refine
from primedpca._operator.operator import Centred
from primedpca.metrics import angles, captured_variance, longest_correct_streak
from primedpca.theory import counterexample, when_refining_helps

# Of angles between vectors that are well separated, all in float64.
TOLERANCE = 1e-12


def data_with(variances, axes=None):
    """Centred rows whose covariance (divided by n) has these eigenvalues and eigenvectors."""
    axes = np.eye(len(variances)) if axes is None else axes
    half = (axes * np.sqrt(len(variances) * np.asarray(variances))).T
    return np.concatenate([half, -half])


def streak(measured, threshold):
    return int(np.cumprod(measured < threshold).sum())


# -- section 4.1 -----------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 0.57, 0.61])
def test_refining_swaps_the_directions_of_the_counterexample(epsilon):
    X, directions = counterexample(epsilon)
    assert X.mean(axis=0).tolist() == [0, 0, 0]
    np.testing.assert_allclose(X.T @ X / 6, np.diag([9, 4, 1]) / 3)
    components = refine(X, directions).components
    np.testing.assert_allclose(angles(components, directions.T[::-1]), 0, atol=TOLERANCE)
    # In the paper's words: <e_1, e_1^priming>^2 = epsilon^2 becomes 0.
    np.testing.assert_allclose([directions[0, 0] ** 2, components[0, 0]], [epsilon**2, 0])


def test_streak_of_the_counterexample_falls_only_beyond_the_thresholds_in_use():
    X, directions = counterexample(0.1)
    found = when_refining_helps(X, directions)
    np.testing.assert_allclose(found.angles_before, [np.arccos(0.1), 0], atol=TOLERANCE)
    np.testing.assert_allclose(found.angles_after, np.pi / 2, atol=TOLERANCE)
    components = refine(X, directions).components
    for threshold, before in [(np.pi / 8, 0), (np.radians(85), 2)]:
        assert longest_correct_streak(directions.T, np.eye(3)[:2], threshold) == before
        assert longest_correct_streak(components, np.eye(3)[:2], threshold) == 0
        assert not found.safe(threshold).any()


def test_covariance_printed_in_section_4_1_has_a_slip():
    epsilon = 0.57
    X, directions = counterexample(epsilon)
    inside = directions.T @ (X.T @ X / 6) @ directions
    right = 9 * epsilon**2 + (1 - epsilon**2)
    printed = 9 * epsilon**2 + 2 * (1 - epsilon**2)
    np.testing.assert_allclose(inside, np.diag([right, 4]) / 3, atol=TOLERANCE)
    np.testing.assert_allclose(Centred(X).projected_covariance(directions), inside)
    # Here the printed entry would deny the swap that happens.
    assert right < 4 < printed


def test_beyond_its_limit_the_counterexample_is_none():
    found = when_refining_helps(*counterexample(np.sqrt(3 / 8) + 1e-6))
    np.testing.assert_allclose(found.angles_after, found.angles_before, atol=1e-9)
    np.testing.assert_allclose(found.condition_angles, 0, atol=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, float("nan")])
def test_counterexample_refuses_what_is_none(epsilon):
    with pytest.raises(ValueError, match="`epsilon`="):
        counterexample(epsilon)


# -- propositions 1 to 3 ---------------------------------------------------------------------


def test_variance_on_the_span_is_the_variance_of_the_projected_data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 6)) * [6, 5, 4, 3, 2, 1]
    basis = np.linalg.qr(rng.standard_normal((6, 3)))[0]
    inside = (basis @ rng.standard_normal((3, 5))).T
    projected = X @ basis @ basis.T
    np.testing.assert_allclose(captured_variance(projected, inside), captured_variance(X, inside))
    outside = rng.standard_normal((5, 6))
    assert (captured_variance(projected, outside) != captured_variance(X, outside)).all()


def test_no_span_near_the_truth_meets_the_conditions():
    rng = np.random.default_rng(0)
    X = data_with([4, 2, 1, 0.5])
    spans = np.eye(4)[:, :2] + 0.05 * rng.standard_normal((300, 4, 2))
    missed = np.array([when_refining_helps(X, span).condition_angles for span in spans])
    assert missed.min() > 1e-7
    assert np.median(missed) < 0.05


def test_spans_of_leading_eigenvectors_meet_the_conditions():
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    found = when_refining_helps(data_with([6, 5, 4, 3, 2, 1], axes), axes[:, :3] @ np.eye(3)[::-1])
    for zero in (found.condition_angles, found.angles_after, found.angle_bounds):
        np.testing.assert_allclose(zero, 0, atol=TOLERANCE)
    np.testing.assert_allclose(found.angles_before, [np.pi / 2, 0, np.pi / 2], atol=TOLERANCE)


def test_condition_angles_from_their_definition():
    rng = np.random.default_rng(1)
    X = data_with([4, 2, 1, 0.5])
    basis = np.linalg.qr(np.eye(4)[:, :2] + 0.3 * rng.standard_normal((4, 2)))[0]
    found = when_refining_helps(X, basis)
    # A span of two dimensions is a circle: look for the largest variance on a fine grid.
    turns = np.linspace(0, np.pi, 200_001)
    circle = basis @ np.stack([np.cos(turns), np.sin(turns)])
    best = circle[:, np.argmax((X @ circle).var(axis=0))]
    first, second = (basis @ basis.T)[:, :2].T
    across = basis @ (np.array([[0, -1], [1, 0]]) @ (basis.T @ first))
    expected = angles(np.stack([first, second]), np.stack([best, across]))
    np.testing.assert_allclose(found.condition_angles, expected, atol=1e-4)


@pytest.mark.parametrize("size", [0.1, 0.01, 0.001])
def test_theorem_fails_for_some_threshold_at_every_step(size):
    """A priming that converges, whose directions are the best of their span."""
    tilt = np.random.default_rng(0).standard_normal((4, 2))
    basis = np.linalg.qr(np.eye(4)[:, :2] + size * tilt)[0]
    found = when_refining_helps(data_with([4, 2, 1, 0.5]), basis @ basis[:2].T)
    np.testing.assert_allclose(found.angles_before, found.angles_to_span, atol=TOLERANCE)
    between = (found.angles_before[0] + found.angles_after[0]) / 2
    assert (streak(found.angles_before, between), streak(found.angles_after, between)) == (2, 0)
    # Yet conditions are missed in second order only, and the loss is of third order.
    assert (found.condition_angles < 2 * size**2).all()
    assert (found.angles_after - found.angles_before < 2 * size**3).all()


# -- the bound that holds --------------------------------------------------------------------


def spectra(d, rng):
    i = np.arange(1.0, d + 1)
    near_tie = np.concatenate([[1.0, 1 - 1e-9], i[2:] ** -1])[:d]
    flat = np.where(i <= d / 2, 1.0, 0.5)
    low_rank = np.where(i <= max(1, d // 3), 1 / i, 0)
    return [i**-0.5, i**-2, 0.5**i, rng.random(d), near_tie, flat, low_rank]


def spans(X, axes, p, rng):
    d = len(axes)
    some = rng.permutation(d)[:p]
    noise = rng.standard_normal((d, p))
    yield noise
    yield X.T @ (X @ noise)
    yield axes[:, :p] + 10 ** rng.uniform(-12, 0) * noise
    yield axes[:, some] + 10 ** rng.uniform(-15, -3) * noise
    yield axes[:, some]


def problems(seed, rounds):
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        d = int(rng.integers(1, 20))
        p = int(rng.integers(1, d + 1))
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        for variances in spectra(d, rng):
            X = data_with(np.sort(variances)[::-1] * 10.0 ** rng.integers(-8, 9), axes)
            yield from ((X, directions) for directions in spans(X, axes, p, rng))


def test_bound_is_never_violated():
    found = [when_refining_helps(X, directions) for X, directions in problems(0, 30)]
    assert len(found) == 1050
    after, bounds, best = (
        np.concatenate([getattr(one, name) for one in found])
        for name in ("angles_after", "angle_bounds", "angles_to_span")
    )
    assert (after <= bounds).all()
    assert np.mean(bounds < np.pi / 2) > 0.3
    # The factor sqrt(1 + gamma^2 / delta^2) is needed: without it the bound would be wrong.
    informative = bounds < 1.5
    assert np.sum(after[informative] > 1.01 * best[informative] + 1e-9) > 100


def test_bound_from_its_definition():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 8)) * 0.7 ** np.arange(8)
    directions = X.T @ X @ rng.standard_normal((8, 4))
    found = when_refining_helps(X, directions)
    C = np.cov(X.T, bias=True)
    values, vectors = (part[..., ::-1] for part in np.linalg.eigh(C))
    P = directions @ np.linalg.pinv(directions)
    ritz_values = np.linalg.eigvalsh(P @ C @ P)[::-1][:4]
    gamma = np.linalg.norm(P @ C @ (np.eye(8) - P), 2)
    for i in range(4):
        delta = np.abs(np.delete(ritz_values, i) - values[i]).min()
        sine = np.linalg.norm(vectors[:, i] - P @ vectors[:, i])
        right = min(1.0, np.sqrt(1 + gamma**2 / delta**2) * sine)
        np.testing.assert_allclose(np.sin(found.angle_bounds[i]), right, rtol=1e-9)
    refined = refine(X, directions).components
    np.testing.assert_allclose(found.angles_after, angles(refined, vectors[:, :4].T), rtol=1e-9)


def test_bound_is_an_equality_for_a_span_of_one_dimension():
    direction = np.random.default_rng(0).standard_normal((5, 1))
    found = when_refining_helps(data_with([5, 4, 3, 2, 1]), direction)
    for same in (found.angles_after, found.angles_before, found.angles_to_span):
        np.testing.assert_allclose(found.angle_bounds, same, atol=TOLERANCE)
    np.testing.assert_allclose(found.condition_angles, 0, atol=TOLERANCE)


def test_repeated_eigenvalues_claim_nothing_of_single_vectors():
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    X = data_with([3, 2, 2, 1, 1], axes)
    found = when_refining_helps(X, axes[:, :3] @ rng.standard_normal((3, 3)))
    np.testing.assert_allclose(found.angle_bounds, [0, np.pi / 2, np.pi / 2], atol=TOLERANCE)
    # Any vector of the pair maximises the variance, so that no condition is missed.
    np.testing.assert_allclose(found.condition_angles, 0, atol=1e-7)


# -- hurting and helping ---------------------------------------------------------------------


def test_refining_hurts_where_two_variances_are_close():
    tilt = np.radians(10)
    directions = np.eye(4)[:, :2]
    directions[:, 0] = [np.cos(tilt), 0, 0, np.sin(tilt)]
    found = when_refining_helps(data_with([1, 0.98, 0.5, 0.1]), directions)
    np.testing.assert_allclose(found.angles_before, [tilt, 0], atol=TOLERANCE)
    np.testing.assert_allclose(found.angles_after, np.pi / 2, atol=TOLERANCE)
    np.testing.assert_allclose(found.condition_angles, [np.pi / 2, 0], atol=TOLERANCE)
    assert found.safe(np.pi / 16).tolist() == [False, False]


def test_refining_noisy_directions_mostly_helps_and_safe_keeps_its_word():
    rng = np.random.default_rng(0)
    X, V = data_with([1, 0.9, 0.8, 0.7, 0.6, 0.5]), np.pi / 16
    change = []
    for noise in 0.1 * rng.standard_normal((300, 6, 3)):
        found = when_refining_helps(X, np.eye(6)[:, :3] + noise, n_components=2)
        after = streak(found.angles_after, V)
        assert after >= np.cumprod(found.safe(V)).sum()
        change.append(after - streak(found.angles_before, V))
    change = np.array(change)
    assert 0 < np.sum(change < 0) < np.sum(change > 0) / 10


def test_refining_helps_after_a_step_of_power_iteration():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 30)) * 0.8 ** np.arange(30)
    found = when_refining_helps(X, X.T @ (X @ rng.standard_normal((30, 8))), n_components=3)
    assert (found.angles_after < found.angles_before / 5).all()
    assert (found.angle_bounds < 1.1 * found.angles_to_span).all()
    assert found.safe(np.pi / 32).all()


# -- what it takes and refuses ---------------------------------------------------------------


def as_torch(X):
    return pytest.importorskip("torch").asarray(X)


@pytest.mark.parametrize("convert", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, as_torch])
def test_any_kind_of_data_gives_the_same(convert):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((80, 6)) < 0.5, rng.standard_normal((80, 6)) + 1, 0) * [
        6,
        5,
        4,
        3,
        2,
        1,
    ]
    directions = X[:4].T
    expected = when_refining_helps(X, directions)
    found = when_refining_helps(
        convert(X), as_torch(directions) if convert is as_torch else directions
    )
    for name, values in vars(expected).items():
        np.testing.assert_allclose(getattr(found, name), values, atol=1e-10, err_msg=name)


def test_float32_data_are_refined_in_the_same_span():
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((80, 6)) * [6, 5, 4, 3, 2, 1]).astype(np.float32)
    found = when_refining_helps(X, X[:3].T)
    truth = np.linalg.svd(X - X.mean(axis=0))[2][:3]
    np.testing.assert_allclose(
        found.angles_after, angles(refine(X, X[:3].T).components, truth), atol=1e-4
    )
    assert (found.angles_after <= found.angle_bounds).all()


def test_zero_columns_have_no_angle():
    X = data_with([3, 2, 1])
    found = when_refining_helps(X, np.eye(3)[:, [0, 0, 1]] * [0, 1e-300, 1e300], n_components=2)
    np.testing.assert_allclose(found.angles_before, np.pi / 2)
    np.testing.assert_allclose(found.angles_after, 0, atol=TOLERANCE)


def test_preparation_is_that_of_refine():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 4)) * [4, 3, 2, 1] + 5
    weight, directions = rng.integers(1, 4, 40), rng.standard_normal((4, 2))
    repeated = when_refining_helps(np.repeat(X, weight, axis=0), directions, center=False)
    weighted = when_refining_helps(X, directions, sample_weight=weight, center=False)
    ready = Centred(X, sample_weight=weight, center=False)
    for found in (weighted, when_refining_helps(ready, directions)):
        np.testing.assert_allclose(found.angles_after, repeated.angles_after, atol=TOLERANCE)
    with pytest.raises(TypeError, match="prepared already"):
        when_refining_helps(ready, directions, center=True)


@pytest.mark.parametrize(
    ("X", "directions", "n_components", "words"),
    [
        (np.zeros((2, 5001)), np.ones((5001, 1)), None, "5001 features.*at most 5000"),
        (np.ones((9, 3)), np.eye(3), None, "no variance"),
        (np.eye(3), np.eye(3)[:, :2], 3, "`n_components`=3 must lie between 1 and 2"),
        (np.eye(3), np.eye(3)[:, :2], 0, "`n_components`=0"),
        (np.eye(3), np.zeros((3, 2)), None, "all zero"),
        (np.eye(3), np.eye(2), None, "directions have shape"),
    ],
)
def test_refusals_say_why(X, directions, n_components, words):
    with pytest.raises(ValueError, match=words):
        when_refining_helps(X, directions, n_components)


@pytest.mark.parametrize("threshold", [0.0, np.pi / 2, 22.5])
def test_safe_refuses_thresholds_that_are_none(threshold):
    with pytest.raises(ValueError, match="`threshold`="):
        when_refining_helps(*counterexample()).safe(threshold)


def test_page_shows_what_its_snippets_print():
    page = ROOT / "docs" / "theory.md"
    assert doctest.testfile(str(page), module_relative=False, encoding="utf-8").failed == 0
