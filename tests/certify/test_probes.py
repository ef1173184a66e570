"""Probes against LAPACK on what is left: they may fail as often as they say, and no more."""

import math

import numpy as np
import pytest

from primedpca._certify.bounds import UNIT, rounding_of
from primedpca._certify.probes import COUNT, PASSES, Probes, Riding, _inverse, unevenness
from primedpca._core.arrays import like_block
from primedpca._operator.operator import Centred
from primedpca.priming import BlockKrylov

DELTA = 0.05
NOISE = 1e-13  # what float64 leaves of a problem of top eigenvalue 1

SPECTRA = {
    "flat": lambda d, rng: np.ones(d),
    "nearly flat": lambda d, rng: 1 - 1e-3 * rng.random(d),
    "geometric": lambda d, rng: rng.uniform(0.3, 0.95) ** np.arange(d),
    "slow": lambda d, rng: np.arange(1, d + 1) ** -0.5,
    "spiked": lambda d, rng: np.r_[np.ones(min(3, d)), np.full(max(0, d - 3), 0.1)][:d],
    "one left": lambda d, rng: np.r_[np.ones(d // 2), 0.3, np.zeros(d)][:d],
    "near zero": lambda d, rng: np.r_[np.ones(min(4, d)), 1e-9 * rng.random(d)][:d],
    "random": lambda d, rng: rng.random(d) ** 3,
}


class Planted:
    """``C`` with a planted spectrum along the axes, its products wrong by up to ``error``."""

    def __init__(self, values, wrong=None):
        self.values = np.sort(values)[::-1] / values.max()
        self.shape = (values.size, values.size)
        self.like = like_block(np.empty((0, values.size)), values.size, float64=True)
        self.wrong = wrong

    def covariance_product(self, vectors):
        right = self.values[:, None] * vectors
        return right if self.wrong is None else right + self.wrong @ vectors

    def left(self, basis):
        """What is left outside of a basis: its top eigenvalue and eigenvector, by LAPACK."""
        v = np.linalg.qr(np.hstack(basis))[0]
        outside = np.eye(self.shape[0]) - v @ v.T
        values, vectors = np.linalg.eigh(outside @ (self.values[:, None] * outside))
        return max(0.0, values[-1]), vectors[:, -1]


def krylov_basis(data, rng, seed):
    """The blocks of a real run, before or after thick restarts."""
    width = int(rng.integers(1, min(5, data.shape[1]) + 1))
    krylov = BlockKrylov(block_size=width, max_basis=int(rng.choice([3 * width, 100])))
    state = krylov.init(data.like, min(width, data.shape[1]), seed)
    for _ in range(int(rng.integers(1, 6))):
        state = krylov.step(state, data)
        if krylov.finished(state):
            break
    return (*state.basis, state.newest)


def rode(probes, data, passes):
    for _ in range(passes):
        if not probes.riding:
            break
        probes.take(data.covariance_product(probes.newest))
    return probes


def draw(seed, change=lambda probes: None):
    """Whether one set of probes failed, or ``None`` if nothing was left; what it gave."""
    rng = np.random.default_rng((1, seed))
    d = int(rng.integers(2, 16)) if rng.random() < 0.3 else int(rng.integers(16, 90))
    name = list(SPECTRA)[seed % len(SPECTRA)]
    exact = Planted(SPECTRA[name](d, rng))
    basis = krylov_basis(exact, rng, seed)
    alpha, top = exact.left(basis)
    error, wrong = 0.0, None
    if rng.random() < 0.5:
        error = 10.0 ** rng.uniform(-8, -3) * alpha
        noise = rng.standard_normal((d, d))
        noise = -np.outer(top, top) if rng.random() < 0.5 else noise / np.linalg.norm(noise, 2)
        wrong = error * noise
    data = Planted(exact.values, wrong)
    probes = Probes(basis, data, DELTA, (2, seed))
    change(probes)
    rode(probes, data, int(rng.integers(1, PASSES + 1)))
    if not probes.passes:
        assert alpha <= NOISE
        return None, 0.0
    largest = max(1e-3, math.sqrt(alpha))  # any number will do
    mu = probes.missed(largest, error + NOISE)
    return mu < alpha * (1 - NOISE), mu / alpha


def failures(seeds, change=lambda probes: None):
    outcome = [draw(seed, change) for seed in seeds]
    told = [failed for failed, _ in outcome if failed is not None]
    useful = np.median([ratio for failed, ratio in outcome if failed is not None])
    return sum(told), len(told), useful


def limit(count):
    return DELTA * count + 3 * math.sqrt(DELTA * (1 - DELTA) * count)


@pytest.mark.integration
def test_they_fail_no_more_often_than_they_say():
    failed, count, useful = failures(range(320))
    assert count > 250
    assert failed <= limit(count)
    assert useful < 1.6  # an infinite bound would not fail either


@pytest.mark.slow
def test_they_fail_no_more_often_than_they_say_in_thousands_of_draws():
    failed, count, useful = failures(range(1000, 9000))
    print(failed, count, useful)
    assert failed <= limit(count)


def rank_one(seed, rounding=0.0, doubled=1.0):
    """The worst case: all that is left is one direction.  A failed draw, or not."""
    data = Planted(np.r_[1.0, 0.3, np.zeros(18)])
    probes = Probes((np.eye(20)[:, :1],), data, DELTA, (3, seed))
    probes.tau *= doubled
    rode(probes, data, 1 + seed % 3)
    return probes.missed(1.0, rounding) < 0.3 * (1 - NOISE)


@pytest.mark.parametrize("count", [400, pytest.param(8000, marks=pytest.mark.slow)])
def test_the_worst_case_fails_as_often_as_they_say(count):
    failed = sum(rank_one(seed) for seed in range(count))
    print(failed, count)
    assert 2 * DELTA * count - limit(count) <= failed <= limit(count)


def test_the_fuzz_can_fail():
    def lengthen(probes):
        probes.tau *= 2

    assert sum(rank_one(seed, doubled=2.0) for seed in range(40)) > 35
    failed, count, _ = failures(range(80), lengthen)
    assert failed > 2 * limit(count)


def test_probes_that_the_basis_knows_fail():
    data = Planted(np.r_[1.0, 0.3, np.zeros(18)])
    failed = 0
    for seed in range(40):
        draws = np.random.default_rng((3, seed)).standard_normal((20, COUNT))
        known = np.linalg.qr(np.c_[np.eye(20)[:, :1], draws[:, 1:]])[0]
        probes = rode(Probes((known,), data, DELTA, (3, seed)), data, 3)
        failed += probes.missed(1.0, 0.0) < data.left((known,))[0]
    assert failed > 30


def test_rounding_that_is_left_out_shows():
    """An error that hides what is left, and nothing but it: the term with t^2 is needed."""
    hidden = -0.02 * 0.3 * np.eye(20)[:, 1:2] @ np.eye(20)[1:2]
    data = Planted(np.r_[1.0, 0.3, np.zeros(18)], hidden)
    failed = {0.0: 0, 0.006: 0}
    for seed in range(200):
        probes = rode(Probes((np.eye(20)[:, :1],), data, DELTA, (3, seed)), data, 1)
        for rounding in failed:
            failed[rounding] += probes.missed(1.0, rounding) < 0.3
    assert failed[0.006] <= limit(200) < 1.5 * failed[0.0]


# -- the basis that they are kept in -----------------------------------------------------------


@pytest.mark.parametrize("shape", [(60, 40), (30, 9), (25, 60), (12, 5)])
@pytest.mark.parametrize("power", [0.5, 4.0, 12.0])
def test_images_are_what_they_are_said_to_be(shape, power):
    """``A [Q_1 .. Q_t] = Q H`` begun at ``P Omega = Q_1 R``, to the rounding that is allowed."""
    rng = np.random.default_rng(shape[0])
    X = rng.standard_normal(shape) * np.arange(1.0, shape[1] + 1) ** (-power / 2) + 5.0
    data = Centred(X, float64=True)
    riding, krylov = Riding(data), BlockKrylov(block_size=2)
    state = krylov.init(data.like, 2, 0)
    state = krylov.step(state, riding)
    basis = (*state.basis, state.newest)
    probes = riding.probes = Probes(basis, data, DELTA, 0)
    while probes.riding and not krylov.finished(state):
        state = krylov.step(state, riding)
    assert probes.passes
    rows = (X - X.astype(np.longdouble).mean(axis=0)).astype(np.longdouble)
    v = np.hstack(basis).astype(np.longdouble)
    q = np.hstack(probes.images)
    whole = np.c_[q, probes.newest].astype(np.longdouble)
    product = rows.T @ (rows @ (q - v @ (v.T @ q))) / shape[0]
    off = (product - v @ (v.T @ product)) - whole @ probes.small
    blocks = (*basis, *probes.images, probes.newest)
    skew = math.sqrt(sum(unevenness(b, blocks[:i]) for i, b in enumerate(blocks)))
    largest = float(np.linalg.norm(X - X.mean(axis=0), 2) ** 2 / shape[0])
    assert np.linalg.norm(off.astype(float), 2) <= rounding_of(data, q.shape[1], largest, skew) / 4
    draws = np.random.default_rng(0).standard_normal((shape[1], COUNT))
    begun = draws - v @ (v.T @ draws) - probes.images[0].astype(np.longdouble) @ probes.start
    assert np.linalg.norm(begun.astype(float), 2) <= 64 * UNIT * probes.norm
    assert probes.skew <= 1e-13 * math.sqrt(shape[1])


@pytest.mark.parametrize("start", ["random", "nearly right"])
def test_residuals_are_right_after_restarts_too(start):
    """``C V = V T + Q B`` for the vectors kept and for what follows them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 50)) * np.linspace(2, 1, 50)
    rows = (X - X.astype(np.longdouble).mean(axis=0)).astype(np.longdouble)
    C = rows.T @ rows / 80
    data, given = Centred(X, float64=True), None
    if start == "nearly right":  # wrong in the same direction, so that residuals are parallel
        truth = np.linalg.eigh(C.astype(float))[1][:, ::-1]
        given = np.linalg.qr(truth[:, :4] + 1e-6 * np.outer(rng.standard_normal(50), range(4)))[0]
    krylov, lengths = BlockKrylov(block_size=6, max_basis=20), []
    state = krylov.init(data.like, 4, 0, given)
    for _ in range(30):
        state = krylov.step(state, data)
        lengths.append(len(state.basis))
        vectors = np.hstack(state.basis).astype(np.longdouble) @ state.turn
        residual = state.newest.astype(np.longdouble) @ state.residual
        off = C @ vectors - vectors * state.variances - residual
        allowed = rounding_of(data, state.variances.size, state.variances[0])
        assert np.linalg.norm(off.astype(float), 2) <= allowed / 10
    assert np.sum(np.diff(lengths) <= 0) > 3


def test_nothing_left_is_nothing_to_ride():
    data = Planted(np.ones(6))
    probes = Probes((np.eye(6)[:, :2], np.eye(6)[:, 2:]), data, DELTA, 0)
    assert probes.newest.shape == (6, 0)
    assert not probes.riding


@pytest.mark.parametrize("t", range(1, PASSES + 1))
def test_the_inverse_is_never_below(t):
    for height in [0.5, 1.0, 1 + 1e-15, 1 + 1e-9, 1.5, 10.0, 1e6, 1e40, 1e250]:
        y = np.longdouble(_inverse(t, height))
        x = 2 * y - 1
        before, value = np.longdouble(1), x
        for _ in range(t - 2):
            before, value = value, 2 * x * value - before
        value = y if t == 1 else y * value
        assert value >= height
        assert y == 1 + 1e-12 or value <= max(1.0, height) * (1 + 1e-8)
