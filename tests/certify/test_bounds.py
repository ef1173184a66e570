"""The inequalities of docs/certificates.md, fuzzed: no bound may ever be violated by the truth.

Spectra are planted, and everything is written in the eigenbasis (the bounds do not depend on the
basis), so that the truth is exact: eigenvector ``i`` is the ``i``-th axis.  Where an eigenvalue is
repeated its eigenvectors are not unique, and the truth is the worst choice: 90 degrees.
"""

import math
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from catalogue import thinned

from primedpca._certify import bounds, sketch_bounds
from primedpca._certify.bounds import (
    NEGLIGIBLE,
    UNIT,
    Evidence,
    _block,
    _gap,
    _tops,
    angle_bounds,
    carried,
    clusters,
    fewest,
    lower,
    spectral_norm,
    upper,
)
from primedpca._operator.operator import Centred
from primedpca._solve.prime import prime
from primedpca.priming import FrequentDirections

# Float64 work on a problem of top eigenvalue 1 and size up to 120 is this good, generously.
NOISE = 1e-13
SPECTRA = ("flat", "geometric", "linear", "clustered", "repeated", "close", "spiked", "deficient")
SPECTRA += ("slow", "random")
KINDS = ("random", "near", "missing", "missing_near", "krylov", "orthogonal", "mixed", "whole")


@dataclass
class Problem:
    """A planted spectrum and a basis; ``turn`` are the eigenvectors, ``None`` for the axes."""

    values: np.ndarray
    basis: np.ndarray
    turn: np.ndarray | None
    kind: str

    def times(self, vectors):
        """``C @ vectors``, dense if the problem is turned."""
        if self.turn is None:
            return self.values[:, None] * vectors
        return ((self.turn * self.values) @ self.turn.T) @ vectors

    def in_eigenbasis(self, vectors):
        return vectors if self.turn is None else self.turn.T @ vectors


def spectrum(rng, name, d):
    i = np.arange(1, d + 1)
    if name == "flat":
        values = 1 + rng.choice([1e-8, 1e-3, 0.1]) * rng.random(d)
    elif name == "geometric":
        values = rng.uniform(0.2, 0.98) ** i
    elif name == "linear":
        values = 1 - (i - 1) / d
    elif name == "clustered":
        centres = rng.random(int(rng.integers(1, 5)))
        values = rng.choice(centres, d) + rng.choice([1e-9, 1e-5, 1e-2]) * rng.random(d)
    elif name == "repeated":
        values = rng.choice(rng.random(int(rng.integers(1, max(2, d // 2) + 1))), d)
    elif name == "close":
        values = np.sort(rng.random(d))[::-1]
        at = int(rng.integers(0, d - 1))
        values[at + 1] = values[at] * (1 - 1e-10)
    elif name == "spiked":
        values = 0.05 * rng.random(d)
        values[: max(1, d // 8)] += rng.random(max(1, d // 8)) + 0.2
    elif name == "deficient":
        values = rng.random(d) * (i <= rng.integers(1, d + 1))
    elif name == "slow":
        values = i**-0.5
    else:
        values = rng.random(d) ** 3
    values = np.sort(values)[::-1]
    return values / values[0]


def orthonormal(matrix):
    return np.linalg.qr(matrix)[0]


def basis(rng, kind, values, p):
    """``p`` or fewer orthonormal columns in the eigenbasis."""
    d = values.size
    size = 10.0 ** rng.uniform(-12, 0)
    axes = np.eye(d)
    noise = rng.standard_normal((d, p)) / math.sqrt(d)
    if kind == "near":
        return orthonormal(axes[:, :p] + size * noise)
    if kind in ("missing", "missing_near"):  # the top one first of all
        out = 0 if rng.random() < 0.6 else int(rng.integers(0, p))
        kept = np.delete(axes, out, axis=1)[:, :p]
        return orthonormal(kept + (size if kind == "missing_near" else 0.0) * noise[:, : d - 1])
    if kind == "krylov":
        block = int(rng.integers(1, min(p, 6) + 1))
        span = orthonormal(rng.standard_normal((d, block)))
        while span.shape[1] + block <= p:
            fresh = values[:, None] * span[:, -block:]
            for _ in range(2):
                fresh = fresh - span @ (span.T @ fresh)
            fresh = fresh + 1e-14 * rng.standard_normal(fresh.shape)
            span = orthonormal(np.hstack([span, fresh]))
        return span
    if kind == "orthogonal":  # to the top eigenvector, all but exactly
        noise = values[:, None] ** rng.integers(0, 6) * noise + 1e-9 * noise
        noise[0] *= rng.choice([0.0, 1e-14, 1e-8, 1e-3])
        return orthonormal(noise)
    if kind == "mixed":  # good ones first, late ones anything
        return orthonormal(axes[:, :p] + noise * size ** np.linspace(1, 0, p))
    if kind == "whole":
        return orthonormal(axes + size * rng.standard_normal((d, d)))
    return orthonormal(noise)


def problem(rng):
    d = int(rng.integers(2, 7)) if rng.random() < 0.5 else int(rng.integers(7, 121))
    name, kind = rng.choice(SPECTRA), str(rng.choice(KINDS))
    values = spectrum(rng, name, d)
    p = int(rng.integers(1, min(d, 33)))
    u = basis(rng, kind, values, p)
    if kind == "whole" and d > 40:
        u = u[:, :p]
    turn = orthonormal(rng.standard_normal((d, d))) if rng.random() < 0.3 else None
    return Problem(values, u if turn is None else turn @ u, turn, f"{name}/{kind}/d={d}")


def ritz(rng, case, error=0.0):
    """Ritz vectors, values and ``B`` from products that are wrong by ``error`` in norm."""
    u = case.basis
    products = case.times(u)
    d, p = u.shape
    if error:
        wrong = rng.standard_normal((d, p))
        how = rng.integers(0, 4)
        if how == 0:  # of rank one
            wrong = np.outer(wrong[:, 0], rng.standard_normal(p))
        elif how == 1:  # at the worst place: the residual itself, or its opposite
            wrong = (products - u @ (u.T @ products)) * rng.choice([-1, 1]) + 1e-30 * wrong
        elif how == 2:  # inside the span only
            wrong = u @ wrong[:p] if d >= p else wrong
        products = products + wrong * (error / np.linalg.norm(wrong, 2))
    small = u.T @ products
    theta, w = np.linalg.eigh((small + small.T) / 2)
    theta, w = theta[::-1].copy(), w[:, ::-1]
    u, products = u @ w, products @ w
    residual = products - u * theta
    if rng.random() < 0.5:
        residual = residual - u @ (u.T @ residual)
    return u, theta, np.linalg.qr(residual, mode="r")


def missed(rng, case, theta, error):
    """A number at least alpha: alpha itself, larger, of a smaller basis, or from the trace."""
    u, d = case.basis, case.values.size
    how = rng.choice(["exact", "exact", "relative", "absolute", "smaller", "trace"])
    if how == "smaller":
        u = u[:, : int(rng.integers(0, u.shape[1] + 1))]
    left = np.linalg.qr(u, mode="complete")[0][:, u.shape[1] :] if u.shape[1] else np.eye(d)
    alpha = max(0.0, np.linalg.eigvalsh(left.T @ case.times(left))[-1]) if left.size else 0.0
    if how == "relative":
        return alpha * (1 + 10.0 ** rng.uniform(-6, 1))
    if how == "absolute":
        return alpha + 10.0 ** rng.uniform(-10, 0)
    if how == "trace":  # its own rounding is p e
        return max(alpha, float(case.values.sum() - theta.sum() + theta.size * error))
    return alpha


def evidence(rng, case, error=0.0):
    u, theta, b = ritz(rng, case, error)
    e = error + NOISE if error else 0.0
    return u, Evidence(theta, b, missed(rng, case, theta, e), e)


def separation(values, a, b):
    """From the run ``a..b`` of true eigenvalues to the others."""
    before = math.inf if a == 0 else values[a - 1] - values[a]
    after = math.inf if b + 1 >= values.size else values[b] - values[b + 1]
    return min(before, after)


def true_sine(case, u, a, b):
    """Sine of the largest angle between ``u[:, a..b]`` and eigenspace ``a..b``; 1 if not unique."""
    if separation(case.values, a, b) == 0:
        return 1.0
    outside = np.delete(case.in_eigenbasis(u), np.s_[a : b + 1], axis=0)
    return float(np.linalg.norm(outside[:, a : b + 1], 2)) if outside.size else 0.0


def exceeds(truth, angle, case, a, b, e):
    """Whether the truth is beyond the bound.

    With e = 0, float64 itself is let off: NOISE over the true gap, on the sine; a repeated
    eigenvalue is then beyond what can be told.  With e > 0, e covers that.
    """
    if e > 0:
        return truth > math.sin(angle) * (1 + 1e-12) + 1e-14
    gap = separation(case.values, a, b)
    return gap > 0 and truth > math.sin(angle) + NOISE / gap


def violations(rng, case, error=0.0):
    """Names of the violated bounds, and how many angles were claimed."""
    u, seen = evidence(rng, case, error)
    p, e = seen.values.size, seen.rounding
    slack = 0.0 if e else NOISE
    low, up = lower(seen), upper(seen)
    true = np.append(case.values, 0.0)[: p + 1]
    found = ["lower"] * int(np.sum(low > true[:p] + slack))
    found += ["upper"] * int(np.sum(true > up + slack))
    angles = angle_bounds(seen, p, up)
    claimed = int(np.sum(angles < np.pi / 2))
    for i, angle in enumerate(angles):
        if exceeds(true_sine(case, u, i, i), angle, case, i, i, e):
            found.append("angle")
    for start, stop, angle in clusters(seen, p, up):
        assert stop - start > 1
        claimed += angle < np.pi / 2
        if exceeds(true_sine(case, u, start, stop - 1), angle, case, start, stop - 1, e):
            found.append("cluster")
    return found, claimed


def fuzz(seed, problems):
    rng, total = np.random.default_rng(seed), 0
    for number in range(problems):
        case = problem(rng)
        for error in (0.0, 10.0 ** rng.uniform(-13, -1)):
            found, claimed = violations(rng, case, error)
            total += claimed
            assert not found, (seed, number, case.kind, error, found)
    assert total > 2 * problems  # a bound of 90 degrees cannot be violated


@pytest.mark.parametrize("seed", thinned(range(4), (0, 1)))
def test_no_bound_is_ever_violated(seed):
    fuzz(seed, 100)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_no_bound_is_ever_violated_in_many_problems(seed):
    fuzz(seed, 1000)


def li_and_li(eta, size):
    """``2 size^2 / (eta + sqrt(eta^2 + 4 size^2))``, without cancellation."""
    root = math.hypot(eta, 2 * size)
    return 2 * size**2 / (eta + root) if eta > 0 else (root - eta) / 2


def wrong_variants(case, u, seen):
    """Tempting and wrong; how often each is violated in this problem."""
    theta, mu = seen.values, seen.missed
    sizes = np.linalg.norm(seen.residual, axis=0)
    count = dict.fromkeys(("ritz gaps", "single residual", "no kappa, no s"), 0)
    for i in range(theta.size):
        truth = true_sine(case, u, i, i)
        before = math.inf if i == 0 else theta[i - 1] - theta[i]
        after = math.inf if i + 1 == theta.size else theta[i] - theta[i + 1]
        gap = min(before, after)
        if sizes[i] < gap < math.inf:
            angle = math.asin(sizes[i] / gap)
            count["ritz gaps"] += exceeds(truth, angle, case, i, i, 0.0)
        eta = theta[i] - mu
        high = max(mu, theta[i] + li_and_li(eta, sizes[i]))
        count["single residual"] += case.values[i] > high + NOISE
        if eta > 0:
            angle = math.atan(sizes[i] / eta)
            count["no kappa, no s"] += exceeds(truth, angle, case, i, i, 0.0)
    return count


def test_tempting_variants_are_violated_on_the_same_problems():
    total = dict.fromkeys(("ritz gaps", "single residual", "no kappa, no s", "no rounding"), 0)
    rng = np.random.default_rng(0)
    for _ in range(250):
        case = problem(rng)
        u, seen = evidence(rng, case)
        for name, times in wrong_variants(case, u, seen).items():
            total[name] += times
        error = 10.0 ** rng.uniform(-8, -2)
        u, seen = evidence(rng, case, error)
        bare = Evidence(seen.values, seen.residual, seen.missed, 0.0)
        angles = angle_bounds(bare, bare.values.size, upper(bare))
        for i, angle in enumerate(angles):
            total["no rounding"] += exceeds(true_sine(case, u, i, i), angle, case, i, i, 0.0)
    assert min(total.values()) >= 20, total


def test_upper_is_never_looser_than_li_and_li():
    rng = np.random.default_rng(1)
    for _ in range(60):
        _, seen = evidence(rng, problem(rng))
        theta, mu, up = seen.values, seen.missed, upper(seen)
        for i in range(theta.size):
            size = np.linalg.norm(seen.residual[:, i:], 2)
            assert up[i] <= max(mu, theta[i] + li_and_li(theta[i] - mu, size)) + NOISE


def test_wide_gap_is_used_where_neighbours_are_close():
    """Useful, too: with a good basis the bounds are a small factor above the truth."""
    rng = np.random.default_rng(2)
    ratios, sure = [], 0
    for power in (0.5, 1.0, 2.0):
        for _ in range(5):
            values = np.arange(1, 121.0) ** -power
            u = basis(rng, "mixed", values, 30)
            for _ in range(3):
                u = orthonormal(values[:, None] * u)
            case = Problem(values, u, None, "good")
            u, theta, b = ritz(rng, case)
            left = np.linalg.qr(u, mode="complete")[0][:, u.shape[1] :]
            mu = np.linalg.eigvalsh(left.T @ case.times(left))[-1]
            seen = Evidence(theta, b, mu, 1e-15)
            up = upper(seen)
            angles = angle_bounds(seen, 10, up)
            sure += int(np.sum(angles < np.pi / 2))
            ratios += [
                math.sin(angle) / true_sine(case, u, i, i)
                for i, angle in enumerate(angles)
                if angle < np.pi / 2
            ]
    assert sure >= 120
    assert np.median(ratios) < 1.5


def test_intervals_are_tight_for_exact_eigenvectors():
    values = np.array([4.0, 3.0, 1.0])
    seen = Evidence(values[:2], np.zeros((2, 2)), 1.0, 0.0)
    assert np.array_equal(lower(seen), [4.0, 3.0])
    assert np.allclose(upper(seen), [4.0, 3.0, 1.0])
    assert np.all(angle_bounds(seen, 2, upper(seen)) == 0)
    assert clusters(seen, 2, upper(seen)) == []


def test_missing_top_eigenvector_proves_nothing():
    """The Ritz pair is exact and the next Ritz value far, but what was missed is larger."""
    seen = Evidence(np.array([2.0, 1.0]), np.zeros((2, 2)), 3.0, 0.0)
    up = upper(seen)
    assert np.allclose(up, 3.0)
    assert np.all(angle_bounds(seen, 2, up) == np.pi / 2)
    assert clusters(seen, 2, up) == []


def test_cluster_is_given_whole_past_k_and_nothing_after_the_last_cut():
    theta = np.array([9.0, 5.0, 5.0, 5.0, 2.0, 1.9])
    seen = Evidence(theta, np.full((1, 6), 1e-3), 1.95, 1e-12)
    up = upper(seen)
    ((start, stop, angle),) = clusters(seen, 2, up)
    assert (start, stop) == (1, 4)
    assert 0 < angle < 1e-3
    angles = angle_bounds(seen, 6, up)
    assert angles[0] < 1e-3
    assert np.all(angles[1:4] == np.pi / 2)
    assert angles[5] == np.pi / 2


def test_empty_residual_is_an_exact_answer():
    seen = Evidence(np.array([2.0, 1.0]), np.zeros((0, 2)), 0.0, 1e-14)
    up = upper(seen)
    assert np.allclose(up, [2.0, 1.0, 0.0])
    assert np.all(angle_bounds(seen, 2, up) < 1e-12)


def test_what_is_known_of_eigenvalues_bounds_what_a_basis_missed():
    rng = np.random.default_rng(0)
    tried = sharp = 0
    for _ in range(400):
        d, p = 12, int(rng.integers(1, 8))
        spectrum = np.sort(rng.uniform(0, 1, d) ** rng.integers(1, 6))[::-1]
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        c = (axes * spectrum) @ axes.T
        start = axes[:, :p] + 10.0 ** rng.uniform(-8, 0.5) * rng.standard_normal((d, p))
        basis = np.linalg.qr(start)[0]
        theta, turn = np.linalg.eigh(basis.T @ c @ basis)
        u, theta = basis @ turn[:, ::-1], theta[::-1]
        residual = c @ u - u * theta
        ceiling = spectrum * (1 + 10.0 ** rng.uniform(-9, -1))
        outside = np.eye(d) - u @ u.T
        alpha = np.linalg.eigvalsh(outside @ c @ outside)[-1]
        bound = carried(Evidence(theta, residual, 0.0, 1e-14), ceiling)
        assert alpha <= bound * (1 + 1e-9)
        tried += np.isfinite(bound)
        sharp += bound < 1.1 * alpha
    assert tried > 150
    assert sharp > 50


# -- shares of the variance ------------------------------------------------------------------


@pytest.mark.parametrize("seed", thinned(range(4), (0, 1)))
def test_as_many_as_hold_a_share(seed):
    rng, told, equal = np.random.default_rng((7, seed)), 0, 0
    for _ in range(120):
        case = problem(rng)
        u, seen = evidence(rng, case, 10.0 ** rng.uniform(-13, -4))
        p, e, whole = seen.values.size, seen.rounding, float(case.values.sum())
        sums = np.cumsum(case.values)
        share = float(rng.uniform(0.05, 0.999))
        if rng.random() < 0.3:  # exactly what some number of them hold
            share = min(0.999, float(rng.choice(sums[:p])) / whole)
        total = whole + rng.uniform(-2, 2) * e
        least, enough = fewest(seen, upper(seen), total, share)
        assert 1 <= least <= enough <= p + 1
        if enough <= p:
            held = np.einsum("ij,ij->", u[:, :enough], case.times(u[:, :enough]))
            assert held >= share * whole - NOISE
            told, equal = told + 1, equal + (least == enough)
        if least > 1:  # one fewer does not hold so much, but for rounding
            assert sums[least - 2] <= share * whole + 10 * p * e + NOISE
        if e * p < 1e-9 and abs(sums - share * whole).min() > 1e-8:
            assert least <= 1 + np.searchsorted(sums, share * whole)
    assert told > 40
    assert equal > told / 4


def test_a_share_that_is_not_held_yet_takes_one_more():
    seen = Evidence(np.array([5.0, 2.0]), np.full((1, 2), 0.1), 2.0, 1e-14)
    assert fewest(seen, upper(seen), 10.0, 0.4) == (1, 1)
    assert fewest(seen, upper(seen), 10.0, 0.9) == (3, 3)
    exact = Evidence(np.array([5.0, 3.0, 2.0]), np.zeros((0, 3)), 0.0, 1e-14)
    assert fewest(exact, upper(exact), 10.0, 0.8) == (3, 3)  # two hold it but for rounding
    assert fewest(exact, upper(exact), 10.0, 0.8 - 1e-9) == (2, 2)


def test_gaps_lose_four_roundings():
    """Each of two Ritz values and two true ones may be off by one (docs/certificates.md, 8)."""
    e = 0.01
    evidence = Evidence(np.array([2.0, 1.0, 0.5]), np.zeros((0, 3)), 0.25, e)
    up = upper(evidence)
    assert _gap(evidence, 0, 0, up) <= 2.0 - up[1] - 4 * e
    assert _gap(evidence, 1, 1, up) <= min(1.0, 1.0 - up[2]) - 4 * e


def test_the_block_bound_of_a_run_is_its_formula():
    """One member, one other Ritz value and no rounding, so that every term is a number."""
    evidence = Evidence(np.array([4.0, 3.0]), np.array([[0.1, 0.6]]), 0.5, 0.0)
    kappa, ahead = 0.6 / (4 - 3), 4 - 0.5 - 0.6**2 / (4 - 3)
    angle = math.asin(0.1 * math.sqrt(1 + kappa**2) / ahead)
    assert _block(evidence, 0, 0, upper(evidence)) == pytest.approx(angle, rel=1e-9)


@pytest.mark.parametrize("imperfect", [False, True])
def test_the_block_bound_of_a_run_has_every_term_of_rounding(imperfect):
    """A run of two between two others (docs/certificates.md, 8): a dropped term is a false proof.

    Rounding errors of real fits are too small to show in an angle.
    """
    theta, e, mu = np.array([5.0, 3.0, 2.9, 1.0]), 1e-3, 0.3
    b = np.array([[0.02, 0.1, 0.05, 0.2], [0.01, 0.03, 0.07, 0.1]])
    more = {"skew": 2e-4, "cross": 3e-3, "columns": np.full(4, 1e-4), "outside": True}
    evidence = Evidence(theta, b, mu, e, **(more if imperfect else {}))
    up = upper(evidence)
    if imperfect:
        off = math.sqrt(4) * 1e-4
        e += off + 2 * 3e-3 * (np.linalg.norm(b, 2) + off) + 2 * 5.0 * 2e-4
    g = np.array([5.0 - up[1], 2.9 - 1.0]) - 4 * e
    blur = e / g.min()
    kappa = (np.linalg.norm(b[:, [0, 3]] / g, 2) + blur) * (1 + blur)
    ahead = 2.9 - (mu + 1e-3) - b[:, 3] @ b[:, 3] / g[1]
    size = np.linalg.norm(b[:, 1:3]) + e * math.sqrt(2)
    sine = size * math.hypot(1, kappa) / (ahead - 4 * e * (1 + kappa) ** 2)
    sine += 2 * e * (1 + kappa) ** 2 / min(g.min(), ahead) * math.sqrt(2)
    assert _block(evidence, 1, 2, up) == pytest.approx(math.asin(sine), rel=1e-9)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (6, 6), (1, 36)])
def test_a_norm_is_rounded_up(shape):
    assert 6 < spectral_norm(np.ones(shape)) < 6 * (1 + 1e-11)


def test_a_carried_bound_is_its_formula():
    """From lambda_3 <= 1 alone: both Ritz vectors are weighted by their distance from 1."""
    evidence = Evidence(np.array([4.0, 3.0]), np.array([[0.1, 0.6]]), math.inf, 0.0)
    size = math.hypot(0.1 / math.sqrt(4 - 1), 0.6 / math.sqrt(3 - 1))
    found = carried(evidence, np.array([math.inf, math.inf, 1.0]))
    assert found == pytest.approx(1 + size**2, rel=1e-9)


def test_the_error_of_a_decomposition_grows_with_both_sides_of_a_sketch():
    """LAPACK's bound is a small multiple of the unit roundoff and of the norms."""
    squares = np.array([4.0, 1.0])
    small, long, wide = (
        sketch_bounds._decomposition_error(np.zeros(shape), squares)
        for shape in ((10, 100), (20, 100), (10, 1000))
    )
    assert small >= UNIT * (2 * 100 + 20 * 10) * math.sqrt(4.0) * math.sqrt(5.0)
    assert long - small == pytest.approx(20 * 10 * UNIT * math.sqrt(20.0))
    assert wide - small == pytest.approx(2 * 900 * UNIT * math.sqrt(20.0))


def sketched(size=8):
    """Rows of rank 4, and the state of a sketch of them."""
    rng = np.random.default_rng(0)
    data = Centred(rng.normal(size=(200, 4)) @ rng.normal(size=(4, 12)), float64=True)
    return data, list(prime(data, FrequentDirections(size), 3, random_state=0))[-1].state


def test_a_variance_of_a_sketch_is_zero_only_next_to_the_least_total_that_it_may_have(monkeypatch):
    data, state = sketched()
    seen, real = [], sketch_bounds.stream_bounds

    def recorded(squares, slack, rounding, k):
        found = real(squares, slack, rounding, k)
        seen.append((squares.size, rounding, found[0][-1, 1]))
        return found

    monkeypatch.setattr(sketch_bounds, "stream_bounds", recorded)
    found = sketch_bounds.sketch_certificate(state, data, 6)[2]
    assert found.zero.tolist() == [False] * 4 + [True] * 2
    size, rounding, top = seen[0]
    least = top / NEGLIGIBLE + 4 * size * rounding  # of the total, of which `top` is negligible
    for total, zero in ((least * (1 + 1e-15), True), (least - size * rounding, False)):
        found = sketch_bounds.sketch_certificate(state._replace(total=total), data, 6)[2]
        assert found.zero[-1] == zero


def test_rounding_errors_are_added_to_what_refined_vectors_leave_of_the_total(monkeypatch):
    data, state = sketched()
    seen = []
    monkeypatch.setattr(
        sketch_bounds, "Evidence", lambda *given: seen.append(given) or Evidence(*given)
    )
    monkeypatch.setattr(sketch_bounds, "missed_by", lambda *given: math.inf)
    sketch_bounds.refined_certificate(state, data, 2, 4)
    values, _, missed, e, floor = seen[0]
    left = data.total - values.sum()
    assert missed == max(0.0, left) + (math.sqrt(4) + 2) * e
    assert floor == NEGLIGIBLE * (data.total - (math.sqrt(4) + 2) * e)


@pytest.mark.parametrize("relieved", [False, True])
def test_the_block_bound_takes_bounded_memory_and_has_the_same_bits_in_pieces(
    relieved, monkeypatch
):
    rng = np.random.default_rng(0)
    b, weights = rng.normal(size=(60, 1200)), rng.random((300, 1200))
    relief = np.eye(60) if relieved else None
    tracemalloc.start()
    whole = _tops(b, weights, relief)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * bounds.TOPS_BYTES
    monkeypatch.setattr(bounds, "TOPS_BYTES", 2**32)
    np.testing.assert_array_equal(_tops(b, weights, relief), whole)
    monkeypatch.setattr(bounds, "TOPS_BYTES", 1)
    np.testing.assert_array_equal(_tops(b, weights, relief), whole)


def test_second_order_terms_are_traces_where_that_is_enough():
    rng = np.random.default_rng(3)
    b, weights = rng.standard_normal((5, 9)), rng.uniform(0.5, 2.0, (6, 9))
    exact = np.array([np.linalg.eigvalsh(b @ np.diag(w) @ b.T)[-1] for w in weights])
    traces = np.array([np.trace(b @ np.diag(w) @ b.T) for w in weights])
    limits = np.where(np.arange(6) < 3, 2 * traces, 0.0)
    found = _tops(b, weights, enough=limits)
    np.testing.assert_allclose(found[:3], traces[:3], rtol=1e-8)
    assert (found[:3] >= traces[:3]).all()
    np.testing.assert_allclose(found[3:], exact[3:], rtol=0.05)
    assert (found >= exact).all()
    # Weights of 1e300 and residuals of 1e-170: neither square underflows.
    tiny = _tops(1e-170 * b, 1e300 * weights, enough=np.inf)
    np.testing.assert_allclose(tiny, 1e-40 * traces, rtol=1e-8)
