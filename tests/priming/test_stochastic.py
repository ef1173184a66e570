"""The stochastic primings against the paper's formulas, PyTorch's SGD, and its claim."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

from primedpca import prime, refine
from primedpca._operator.operator import Centred
from primedpca.metrics import longest_correct_streak, subspace_error
from primedpca.priming import EigenGame, Krasulina, MuEigenGame, Oja
from primedpca.priming.stochastic import fitting_rate
from primedpca.result import DivergenceError
from primedpca_paper.datasets import synthetic

ALGORITHMS = [Oja, EigenGame, MuEigenGame, Krasulina]
algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS)
#: Formulas in another order of operations, in float64, on numbers of order one.
ROUNDING = 1e-13


def rows(n=40, d=7, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.linspace(1.5, 0.5, d)
    return X - X.mean(axis=0)


def unit_vectors(d=7, p=4, seed=1):
    V = np.random.default_rng(seed).standard_normal((d, p))
    return V / np.linalg.norm(V, axis=0)


def ascent(algorithm, X, V):
    """The direction that the library moves in."""
    Z = X.T @ (X @ V) / len(X)
    return algorithm().ascent(V, Z, V.T @ Z)


def last(X, priming, p, **options):
    *_, snapshot = prime(X, priming, p, **{"random_state": 0} | options)
    return snapshot


# -- the formulas ----------------------------------------------------------------------------


def test_sanger_row_by_row():
    """Section 2.2: the change of w_m is y_m (x - sum over l <= m of y_l w_l), on average."""
    X, V = rows(), unit_vectors() * [1.0, 0.7, 1.3, 0.9]
    expected = np.zeros_like(V)
    for x in X:
        y = [x @ V[:, m] for m in range(V.shape[1])]
        for m in range(V.shape[1]):
            seen = sum(y[j] * V[:, j] for j in range(m + 1))
            expected[:, m] += y[m] * (x - seen) / len(X)
    assert np.abs(ascent(Oja, X, V) - expected).max() < ROUNDING


def utility(j, v, V, C):
    """Equation 3 of the paper, for the player j at v; the others stay where they are."""
    reward = v @ C @ v
    for i in range(j):
        reward = reward - (v @ C @ V[:, i]) ** 2 / (V[:, i] @ C @ V[:, i])
    return reward


def test_eigengame_climbs_its_utility():
    X, V = torch.tensor(rows()), torch.tensor(unit_vectors())
    C = X.T @ X / len(X)
    found = ascent(EigenGame, X.numpy(), V.numpy())
    for j in range(V.shape[1]):
        v = V[:, j].clone().requires_grad_()
        utility(j, v, V, C).backward()
        tangent = v.grad - (v.grad @ V[:, j]) * V[:, j]
        assert np.abs(found[:, j] - tangent.numpy()).max() < ROUNDING


def test_eigengame_by_finite_differences_along_the_sphere():
    X, V = rows(), unit_vectors()
    C, found, h = X.T @ X / len(X), ascent(EigenGame, X, V), 1e-5
    rng = np.random.default_rng(2)
    for j in range(V.shape[1]):
        v = V[:, j]
        aside = rng.standard_normal(v.size)
        aside -= (aside @ v) * v
        ahead, behind = (
            utility(j, (v + s * h * aside) / np.linalg.norm(v + s * h * aside), V, C)
            for s in (1, -1)
        )
        # Central differences are off by h**2 and by eps / h.
        assert found[:, j] @ aside == pytest.approx((ahead - behind) / (2 * h), abs=1e-8)


def test_mu_eigengame_player_by_player():
    X, V = rows(), unit_vectors()
    C = X.T @ X / len(X)
    found = ascent(MuEigenGame, X, V)
    for j in range(V.shape[1]):
        v = V[:, j]
        wanted = C @ v - sum(((V[:, i] @ C @ v) * V[:, i] for i in range(j)), np.zeros(7))
        assert np.abs(found[:, j] - (wanted - (v @ wanted) * v)).max() < ROUNDING


def test_krasulina_row_by_row():
    X, V = rows(), np.linalg.qr(unit_vectors())[0]
    expected = np.zeros_like(V)
    for x in X:
        unexplained = x - V @ (V.T @ x)
        expected += np.outer(unexplained, V.T @ x) / len(X)
    assert np.abs(ascent(Krasulina, X, V) - expected).max() < ROUNDING


@algorithms
def test_the_principal_components_are_a_fixed_point(algorithm):
    X = rows()
    V = np.linalg.svd(X, full_matrices=False)[2][:4].T
    assert np.abs(ascent(algorithm, X, V)).max() < ROUNDING


@pytest.mark.parametrize("algorithm", [Oja, EigenGame, MuEigenGame])
def test_later_vectors_do_not_disturb_earlier_ones(algorithm):
    """What makes extra directions free of harm: v_j listens to v_1 .. v_j alone."""
    X, V = rows(), unit_vectors(p=6)
    wide, narrow = ascent(algorithm, X, V), ascent(algorithm, X, V[:, :3])
    assert np.abs(wide[:, :3] - narrow).max() < ROUNDING


@pytest.mark.parametrize("algorithm", [EigenGame, MuEigenGame, Krasulina])
def test_vectors_are_kept_at_unit_length(algorithm):
    V = last(rows(), algorithm(steps=7, learning_rate=0.5), 4).directions
    assert np.abs(np.linalg.norm(V, axis=0) - 1).max() < ROUNDING
    if algorithm is Krasulina:
        assert np.abs(V.T @ V - np.eye(4)).max() < ROUNDING


# -- momentum and schedule -------------------------------------------------------------------


@algorithms
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_momentum_is_that_of_torch_sgd(algorithm, momentum):
    X, rate = rows(), 0.05
    priming = algorithm(learning_rate=rate, momentum=momentum, steps=12)
    data = Centred(X, center=False)
    state = priming.init(data.like, 4, 0)
    weights = torch.tensor(state.vectors, requires_grad=True)
    nesterov = {"momentum": momentum, "nesterov": True} if momentum else {}
    optimiser = torch.optim.SGD([weights], lr=rate, maximize=True, **nesterov)
    for _ in range(12):
        weights.grad = torch.tensor(ascent(algorithm, X, weights.detach().numpy()))
        optimiser.step()
        with torch.no_grad():
            weights.copy_(torch.tensor(priming.keep(weights.numpy().copy())))
        state = priming.step(state, data)
        assert np.abs(state.vectors - weights.detach().numpy()).max() < ROUNDING


def test_schedules():
    """The length of a first step without momentum is the rate times the gradient."""
    X, steps, rate = rows(), 50, 0.01
    data = Centred(X, center=False)
    for schedule in ("constant", "1/t"):
        priming = Oja(learning_rate=rate, steps=steps, momentum=0.0, schedule=schedule)
        state = priming.init(data.like, 4, 0)
        for t in range(20):
            moved = priming.step(state, data)
            gradient = ascent(Oja, X, state.vectors)
            factor = 1.0 if schedule == "constant" else (steps / 10) / (steps / 10 + t)
            expected = rate * factor * gradient
            assert np.abs(moved.vectors - state.vectors - expected).max() < ROUNDING
            state = moved


@algorithms
def test_a_falling_rate_wanders_less(algorithm):
    X, components = synthetic("exponential", n_samples=600, n_features=12)
    off = {"constant": 0.0, "1/t": 0.0}
    for schedule in off:
        for seed in range(3):
            priming = algorithm(steps=600, schedule=schedule)
            found = last(X, priming, 3, batch_size=20, random_state=seed).directions
            off[schedule] += subspace_error(np.linalg.qr(found)[0].T, components[:3])
    assert off["1/t"] < off["constant"]


# -- the learning rate -----------------------------------------------------------------------


@algorithms
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_automatic_rate_does_not_see_the_unit_of_the_data(algorithm, dtype):
    """Powers of two are exact, so the directions are the same to the bit."""
    X = synthetic("linear", n_samples=300, n_features=20)[0].astype(dtype)
    priming = algorithm(steps=60)
    one, *others = (
        last(X * np.array(factor, dtype), priming, 5, batch_size=100)
        for factor in (1.0, 2.0**10, 2.0**-10)
    )
    for other, factor in zip(others, (2.0**20, 2.0**-20), strict=True):
        assert np.array_equal(one.directions, other.directions)
        assert other.state.rate == one.state.rate / factor


@algorithms
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_works_unattended_at_any_scale(algorithm, scale, dtype):
    X, components = synthetic("exponential", n_samples=1000, n_features=20)
    X = (X * (scale / np.sqrt(1000))).astype(dtype)
    found = last(X, algorithm(steps=400), 6, batch_size=200).directions
    refined = refine(X, found, 4).components
    assert longest_correct_streak(refined, components[:4], np.pi / 32) == 4


@algorithms
def test_a_number_belongs_to_the_covariance_of_the_batch(algorithm):
    """Data twice as large want a quarter of the rate, and then take the same way."""
    X, rate = rows(), 0.02
    one = last(X, algorithm(learning_rate=rate, steps=30), 3, batch_size=20)
    other = last(2 * X, algorithm(learning_rate=rate / 4, steps=30), 3, batch_size=20)
    same = last(2 * X, algorithm(learning_rate=rate, steps=30), 3, batch_size=20)
    assert np.array_equal(one.directions, other.directions)
    assert not np.allclose(one.directions, same.directions)


def test_the_covariance_of_a_batch_is_divided_by_its_rows():
    X = rows()
    data, priming = Centred(X), Oja(learning_rate=0.1, momentum=0.0)
    _, batch = next(data.numbered_batches(10, 0))
    index = next(data.source.batches(10, 0))[0]
    state = priming.init(data.like, 3, 0)
    expected = state.vectors + 0.1 * ascent(Oja, X[index], state.vectors)
    assert np.abs(priming.step(state, batch).vectors - expected).max() < ROUNDING


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("excess", [10, 1e3, 1e9])
def test_divergence_is_named_with_a_rate_that_works(library, dtype, excess):
    X, components = synthetic("linear", n_samples=500, n_features=20)
    X = X.astype(dtype) if library == "numpy" else torch.tensor(X.astype(dtype))
    rate = 0.1 / 1000 * excess  # the largest variance is 1000
    words = re.escape(f"`learning_rate`={rate:.3g} is too large")
    with pytest.raises(DivergenceError, match=words) as caught:
        last(X, Oja(learning_rate=rate), 6, batch_size=100)
    advice = float(re.search(r"Try ([-+.e0-9]+) or 'auto'", str(caught.value))[1])
    assert advice < rate
    found = last(X, Oja(learning_rate=advice), 6, batch_size=100).directions
    refined = refine(X, found, 4).components
    assert longest_correct_streak(refined, components[:4], np.pi / 8) == 4


def test_another_rate_than_auto_is_proposed_where_auto_diverged():
    """The rate of a batch of small rows is too large for a later one of large rows."""
    X = np.random.default_rng(0).normal(size=(400, 4)) * np.repeat([1, 1e9], [390, 10])[:, None]
    with pytest.raises(DivergenceError, match=r"Try [-+e0-9]+(\.[-+e0-9]+)?\.$"):
        last(X, Oja(steps=200), 1, batch_size=2)


def test_the_rate_is_positive_where_rounding_leaves_a_negative_variance():
    class Rounded:
        def covariance_product(self, vectors):
            return -1e-25 * vectors

    assert fitting_rate(Rounded(), np.eye(4)[:, :2]) == 0.1


def test_divergence_is_found_at_the_last_step_too():
    X = synthetic("linear", n_samples=200, n_features=10)[0]
    with pytest.raises(DivergenceError, match="within 11 steps"):
        last(X, Oja(learning_rate=1e3, steps=11), 3)


# -- refusing --------------------------------------------------------------------------------


@algorithms
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learning_rate": 0.0}, "`learning_rate`=0.0 must be positive and finite, or 'auto'"),
        ({"learning_rate": -1.0}, "`learning_rate`=-1.0"),
        ({"learning_rate": math.nan}, "`learning_rate`=nan"),
        ({"learning_rate": math.inf}, "`learning_rate`=inf"),
        ({"learning_rate": "fast"}, "`learning_rate`='fast'"),
        ({"learning_rate": None}, "`learning_rate`=None"),
        ({"steps": 0}, "`steps`=0 must be an integer of at least 1"),
        ({"momentum": 1.0}, r"`momentum`=1.0 must be a number in \[0, 1\)"),
        ({"momentum": -0.1}, "`momentum`=-0.1"),
        ({"momentum": math.nan}, "`momentum`=nan"),
        ({"schedule": "cosine"}, "`schedule`='cosine' must be 'constant' or '1/t'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_options_are_refused_by_name(algorithm, options, words):
    with pytest.raises(ValueError, match=words):
        algorithm(**options)


@algorithms
def test_options_go_by_name_only(algorithm):
    with pytest.raises(TypeError):
        algorithm(0.1)


@pytest.mark.parametrize("rate", [1, np.float32(0.5), np.int64(1), np.float64(0.5)])
def test_any_real_number_is_a_rate(rate):
    assert Oja(learning_rate=rate).init(Centred(rows()).like, 2, 0).rate == float(rate)


# -- the paper's claim -----------------------------------------------------------------------

WANTED, SEEDS = 16, 5
#: 0.03 over the largest variance: small enough for a run without refining to settle at all.
RATE = 3e-5


def steps_to_streak(algorithm, X, components, extra, seed):
    """Steps until all 16 are within pi/8, of the vectors themselves and of their refinement."""
    alone = refined = None
    priming = algorithm(learning_rate=RATE, steps=3000)
    for snapshot in prime(X, priming, WANTED + extra, random_state=seed):
        if snapshot.step % 5:
            continue
        V = snapshot.directions
        if refined is None and has_all(refine(X, V, WANTED).components, components):
            refined = snapshot.step
        if alone is None and has_all(V[:, :WANTED].T, components):
            alone = snapshot.step
        if refined and (alone or extra):
            break
    return (alone, refined) if extra == 0 else (refined,)


def has_all(found, components):
    return longest_correct_streak(found, components[:WANTED], np.pi / 8) == WANTED


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["exponential", "linear"])
@pytest.mark.parametrize("algorithm", [Oja, EigenGame])
def test_refining_and_extra_directions_save_steps(algorithm, kind):
    """With the same seed and rate; medians, because single runs end by luck of the last swap.

    Where the 16th vector sits on the 17th component, the span lacks the 16th and refining
    alone cannot find it: such a run gains nothing without extra directions.
    """
    counts = []
    for seed in range(SEEDS):
        X, components = synthetic(kind, seed=seed)
        runs = (steps_to_streak(algorithm, X, components, extra, seed) for extra in (0, 2, 4))
        counts.append([count for run in runs for count in run])
    alone, refined, two, four = np.median(counts, axis=0)
    assert four < two < refined < alone
    for alone, refined, *more in counts:
        assert refined <= alone
        assert max(more) < alone


def test_a_numeric_rate_is_in_the_units_of_the_data_even_where_they_are_rescaled():
    X = rows(200, 6).astype("float32")
    runs = []
    for power in (0, 50):
        rate = 0.01 * 2.0 ** (-2 * power)
        *_, last = prime(np.ldexp(X, power), Oja(learning_rate=rate, steps=30), 3, random_state=0)
        runs.append(last.directions)
    np.testing.assert_allclose(runs[0], runs[1], atol=1e-5)
