"""What one pass of Frequent Directions proves, fuzzed: the truth may never violate it.

The truth is LAPACK's in float64, of a covariance formed in extended precision from the numbers
as they are stored.  Its own error is far below the rounding that the certificate allows for.
"""

import math
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from catalogue import thinned

from primedpca import PrimedPCA, load, prime
from primedpca._certify.bounds import stream_bounds
from primedpca._certify.sketch_bounds import missed_by, refined_certificate, sketch_certificate
from primedpca._core.arrays import to_numpy
from primedpca._operator.one_pass import stream
from primedpca._operator.operator import Centred
from primedpca.metrics import angles
from primedpca.priming import FrequentDirections
from primedpca.priming.sketch import merge

SPECTRA = ("flat", "geometric", "clustered", "repeated", "deficient", "spiked", "slow")
DATA = os.environ.get("PRIMEDPCA_DATA", "")


# -- problems ---------------------------------------------------------------------------------


def spectrum(rng, name, r):
    i = np.arange(1, r + 1)
    if name == "flat":
        values = 1 + rng.choice([1e-6, 1e-2, 0.3]) * rng.random(r)
    elif name == "geometric":
        values = rng.uniform(0.05, 0.9) ** i
    elif name == "clustered":
        centres = 10.0 ** rng.uniform(-3, 0, int(rng.integers(1, 5)))
        values = rng.choice(centres, r) * (1 + rng.choice([1e-9, 1e-4, 1e-2]) * rng.random(r))
    elif name == "repeated":
        values = rng.choice(10.0 ** rng.uniform(-3, 0, int(rng.integers(1, 4))), r)
    elif name == "deficient":
        values = rng.random(r) ** 3 * (i <= rng.integers(1, r + 1)) + 1e-300
    elif name == "spiked":
        values = 10.0 ** rng.uniform(-5, -1) * rng.random(r)
        values[: max(1, r // 8)] += rng.random(max(1, r // 8)) + 0.2
    else:
        values = i**-0.5
    values = np.sort(values)[::-1]
    return values / values[0]


@dataclass
class Case:
    """Data, how they are prepared and read, and the true spectrum (over the weight - 1)."""

    X: np.ndarray
    options: dict
    size: int
    batch: int
    k: int
    values: np.ndarray
    vectors: np.ndarray
    words: str


def truth(X, sample_weight=None, center=True, scale=None, float64=False):
    """Eigenvalues over (weight - 1), largest first, and eigenvectors."""
    rows = X.astype(np.longdouble)
    rows = rows - rows[0] if center else rows  # so that the mean of equal rows is exact
    weight = np.ones(len(X)) if sample_weight is None else sample_weight
    weight = weight.astype(np.longdouble)
    if center:
        rows = rows - weight @ rows / weight.sum()
    if scale is not None:
        rows = rows / scale
    covariance = (rows.T * weight) @ rows / (weight.sum() - 1)
    values, vectors = np.linalg.eigh(covariance.astype(np.float64))
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def case(rng, largest=60):
    top = int(rng.choice([8, largest]))
    n, d = (int(value) for value in rng.integers(2, top + 1, 2))
    name, dtype = rng.choice(SPECTRA), rng.choice(["float32", "float64", "float64"])
    r = min(n - 1, d)
    scores = rng.standard_normal((n, r))
    scores -= scores.mean(axis=0)
    if rng.random() < 0.8:
        scores = np.linalg.qr(scores)[0]
    axes = np.linalg.qr(rng.standard_normal((d, r)))[0] if rng.random() < 0.8 else np.eye(d)[:, :r]
    X = scores * np.sqrt(spectrum(rng, name, r)) @ axes.T
    order = rng.integers(0, 4)
    if order == 0:  # as hard as it gets: like with like
        X = X[np.argsort(X @ axes[:, 0])]
    elif order == 1:
        X = X[rng.integers(0, n, n)]  # duplicates
    far = rng.choice([0.0, 1.0, 1e3, 1e6])
    X = 10.0 ** rng.integers(-3, 4) * (X + far * rng.standard_normal(d))
    X = X.astype(dtype)
    options = {"center": bool(rng.random() < 0.9)}
    if rng.random() < 0.3:
        options["sample_weight"] = rng.choice([0.0, 0.5, 1.0, 2.0, 7.3], n) + (np.arange(n) < 2)
    if rng.random() < 0.2:
        options["scale"] = (10.0 ** rng.uniform(-1, 1, d)).astype(dtype)
    k = int(rng.integers(1, d + 1))
    size = int(rng.integers(k, k + max(2, 2 * d))) if rng.random() < 0.7 else k
    batch = int(rng.choice([1, 2, 3, 7, n // 2 + 1, n]))
    words = f"{name}, {n} x {d}, {dtype}, mean {far}, {options.keys()}, {k} of {size} by {batch}"
    return Case(X, options, size, batch, k, *truth(X, **options), words)


def sketch(X, size, p, batch, **options):
    data = Centred(X, **options)
    *_, last = prime(data, FrequentDirections(size), p, batch_size=batch)
    return last.state, data


def run_of(problem):
    return sketch(problem.X, problem.size, problem.k, problem.batch, **problem.options)


# -- the search for counterexamples -----------------------------------------------------------


def sine(basis, vectors, start, stop):
    """Of the largest angle between the spans of some columns."""
    mine, true = basis[:, start:stop], vectors[:, start:stop]
    return float(np.linalg.norm(mine - true @ (true.T @ mine), 2))


def violations(found, problem):
    """Names of the violated bounds, and how many angles were claimed."""
    basis, _, certificate = found
    values, low, up = problem.values[: problem.k], *certificate.eigenvalue_bounds.T
    wrong = ["lower"] * int(np.sum(low > values)) + ["upper"] * int(np.sum(values > up))
    claims = [(i, i + 1, angle) for i, angle in enumerate(certificate.angle_bounds)]
    claims = [claim for claim in claims + certificate.clusters if claim[2] < np.pi / 2]
    for start, stop, angle in claims:
        if stop > basis.shape[1]:
            continue  # reaches past the vectors at hand
        if sine(basis, problem.vectors, start, stop) > math.sin(angle) * (1 + 1e-12) + 1e-15:
            wrong.append("angle" if stop - start == 1 else "cluster")
    return wrong, len(claims)


def certified(problem):
    state, data = run_of(problem)
    wide = problem.X.shape[1]
    return sketch_certificate(state, data, problem.k), sketch_certificate(state, data, wide)


def fuzz(seed, problems, largest=60):
    rng, total = np.random.default_rng(seed), 0
    for number in range(problems):
        problem = case(rng, largest)
        found, whole = certified(problem)
        wrong, claimed = violations(found, problem)
        total += claimed
        problem.k = problem.X.shape[1]  # clusters whole, and components past the sketch
        wrong += violations(whole, problem)[0]
        assert not wrong, (seed, number, problem.words, wrong)
    assert total > problems / 2  # a bound of 90 degrees cannot be violated


@pytest.mark.parametrize("seed", thinned(range(4), (0, 1)))
def test_no_bound_is_ever_violated(seed):
    fuzz(seed, 80)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_no_bound_is_ever_violated_in_many_problems(seed):
    fuzz(seed, 250, 150)


def excess(state, problem):
    """How far ``M^T M - B^T B`` leaves [0, Delta], as a share of the rounding allowed for."""
    covariance = (problem.vectors * problem.values) @ problem.vectors.T
    B = to_numpy(state.sketch).astype(np.longdouble)
    weight = problem.options.get("sample_weight", np.ones(len(problem.X))).sum()
    whole = (weight - 1) * state.unit**2
    rest = np.linalg.eigvalsh((covariance * whole - B.T @ B).astype(np.float64))
    noise = 1e-15 * problem.X.shape[1] * problem.values[0] * whole  # of the truth
    beyond = max(-rest[0], rest[-1] - state.loss) - noise
    return max(beyond, 0.0) / state.rounding if state.rounding else beyond


def test_the_sketch_is_as_near_as_its_state_says():
    rng = np.random.default_rng(10)
    for _ in range(300):
        problem = case(rng)
        state, _ = run_of(problem)
        assert excess(state, problem) <= 1, problem.words


def planted(rng):
    """Eigenvalues of a sketch, and of what was there: more, by a part of norm Delta at most."""
    d = int(rng.choice([2, 3, int(rng.integers(4, 30))]))
    squares = spectrum(rng, rng.choice(SPECTRA), d)
    slack = 10.0 ** rng.uniform(-6, 0)
    rank = int(rng.choice([1, d // 2 + 1]))
    noise = rng.standard_normal((d, rank)) * rng.choice([1, 0.1, 10], (d, 1))
    turn = np.linalg.qr(noise)[0]
    shares = np.ones(rank) if rng.random() < 0.5 else rng.random(rank)
    values, vectors = np.linalg.eigh(np.diag(squares) + slack * (turn * shares) @ turn.T)
    return squares, slack, values[::-1], vectors[:, ::-1]


def broken(squares, values, vectors, found):
    """How many bounds the truth violates."""
    intervals, angles, runs = found
    count = int(np.sum((intervals[:, 0] > values + 1e-13) | (intervals[:, 1] < values - 1e-13)))
    axes = np.eye(values.size)
    singles = [(i, i + 1, angle) for i, angle in enumerate(angles) if angle < np.pi / 2]
    for start, stop, angle in singles + runs:
        before = squares[start - 1] - squares[start] if start else math.inf
        gap = min(before, squares[stop - 1] - (squares[stop] if stop < values.size else 0.0))
        count += sine(axes, vectors, start, stop) > math.sin(angle) + 1e-13 / max(gap, 1e-7)
    return count


def test_bounds_of_a_sketch_hold_and_tempting_ones_do_not():
    rng = np.random.default_rng(0)
    wrong = dict.fromkeys(("half of Delta", "half of Delta in the angle", "one gap"), 0)
    for _ in range(2000):
        squares, slack, values, vectors = planted(rng)
        d = squares.size
        intervals, angles, runs = stream_bounds(squares, slack, 0.0, d)
        assert broken(squares, values, vectors, (intervals, angles, runs)) == 0
        half = stream_bounds(squares, slack / 2, 0.0, d)
        none = np.full(d, np.pi / 2)
        wrong["half of Delta"] += broken(squares, values, vectors, (half[0], none, []))
        wrong["half of Delta in the angle"] += broken(
            squares, values, vectors, (intervals, *half[1:])
        )
        below = squares - np.append(squares[1:], 0.0)
        sure = below > slack
        none[sure] = np.arcsin(slack / below[sure]) / 2
        wrong["one gap"] += broken(squares, values, vectors, (intervals, none, []))
    assert min(wrong.values()) >= 20, wrong


def test_the_angle_of_a_sketch_is_sharp():
    """sin 2 theta = Delta / gap is reached: by a loss of rank one, turned by 45 degrees + theta."""
    slack, theta = 0.5, math.asin(0.5) / 2
    w = np.array([math.cos(math.pi / 4 + theta), math.sin(math.pi / 4 + theta)])
    _, vectors = np.linalg.eigh(np.diag([2.0, 1.0]) + slack * np.outer(w, w))
    angle = stream_bounds(np.array([2.0, 1.0]), slack, 0.0, 1)[1][0]
    assert math.sin(angle) == pytest.approx(abs(vectors[1, 1]), rel=1e-12)


def test_runs_are_given_whole_and_nothing_after_the_last_cut():
    squares = np.array([9.0, 5.0, 5.0, 4.95, 2.0, 1.95, 0.02])
    intervals, angles, ((start, stop, angle),) = stream_bounds(squares, 0.1, 0.0, 2)
    assert np.allclose(intervals, [[9, 9.1], [5, 5.1]])
    assert angles[0] == pytest.approx(math.asin(0.1 / 4) / 2)
    assert angles[1] == np.pi / 2
    assert (start, stop) == (1, 4)
    assert angle == pytest.approx(math.asin(0.1 / 2.95) / 2)
    runs = stream_bounds(squares, 0.1, 0.0, 7)[2]
    assert [run[:2] for run in runs] == [(1, 4), (4, 6)]
    intervals, angles, runs = stream_bounds(np.zeros(0), 0.1, 0.0, 3)
    assert np.allclose(intervals, [[0, 0.1]] * 3)
    assert (angles == np.pi / 2).all()
    assert runs == []


def test_without_rounding_the_bounds_are_violated():
    rng, count = np.random.default_rng(20), 0
    for _ in range(50):
        problem = case(rng)
        state, data = run_of(problem)
        squares = np.linalg.svd(to_numpy(state.sketch).astype(np.float64))[1] ** 2
        intervals, angles, _ = stream_bounds(squares, state.loss, 0.0, problem.k)
        basis, _, certificate = sketch_certificate(state, data, problem.k)
        scale = state.unit**2 * (state.weight - 1)
        bare = replace(certificate, eigenvalue_bounds=intervals / scale, angle_bounds=angles)
        count += bool(violations((basis, None, bare), problem)[0])
    assert count >= 10


# -- one pass ---------------------------------------------------------------------------------


ROWS = np.random.default_rng(5).standard_normal((90, 12)) * 0.8 ** np.arange(12) + 3
KINDS = {
    "numpy": np.asarray,
    "columns first": np.asfortranarray,
    "torch": torch.tensor,
    "csr": sp.csr_array,
    "csc": sp.csc_array,
}


@pytest.mark.parametrize("batch", [1, 2, 7, 89, 1000])
@pytest.mark.parametrize(
    "options",
    [{}, {"center": False}, {"scale": np.arange(1.0, 13)}, {"sample_weight": np.arange(90.0)}],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_is_learned_on_the_way(kind, options, batch):
    holes = np.where(np.arange(12) % 3 == 1, 0.0, ROWS) if kind.startswith("cs") else ROWS
    holes = holes * (np.random.default_rng(0).random(holes.shape) < 0.9)
    state, data = sketch(KINDS[kind](holes), 6, 3, batch, **options)
    other = Centred(holes, **options)
    assert data.passes == 1
    assert np.allclose(to_numpy(data.mean), other.mean, rtol=1e-13, atol=1e-13)
    assert data.total == pytest.approx(other.total, rel=1e-12)
    assert state.total == pytest.approx(data.total * data.weight, rel=1e-12)
    values, _ = truth(holes, **options)
    bounds = sketch_certificate(state, data, 5)[2].eigenvalue_bounds
    assert (bounds[:, 0] <= values[:5]).all()
    assert (values[:5] <= bounds[:, 1]).all()
    assert data.passes == 1
    V = np.linalg.qr(np.random.default_rng(1).standard_normal((12, 3)))[0]
    product = to_numpy(data.covariance_product(data.like.asarray(V)))
    assert np.allclose(product, other.covariance_product(V), rtol=1e-11, atol=1e-11)
    assert data.passes == 2 + data.source.axis  # over columns a product takes two


@pytest.mark.parametrize("options", [{"scale": "std"}, {"missing": "mean"}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_of_columns_need_a_pass_before(kind, options):
    X = ROWS.copy()
    if "missing" in options:
        X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    state, data = sketch(KINDS[kind](X), 12, 3, 20, **options)
    assert data.passes == 2
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    filled = filled / X.std(axis=0) if "scale" in options else filled
    assert state.loss == 0.0
    bounds = sketch_certificate(state, data, 5)[2].eigenvalue_bounds
    assert np.allclose(bounds, truth(filled)[0][:5, None], rtol=1e-10)


@pytest.mark.parametrize("batch", [1, 7, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_a_large_mean_costs_no_digits(kind, batch):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 10)) * 0.8 ** np.arange(10) + 1e8 * rng.standard_normal(10)
    state, data = sketch(KINDS[kind](X), 10, 3, batch)
    values, vectors = truth(X)
    basis, variances, certificate = sketch_certificate(state, data, 5)
    assert np.abs(variances * 200 / 199 - values[:5]).max() < 1e-10 * values[0]
    assert certificate.angle_bounds.max() < 1e-9
    assert sine(to_numpy(basis), vectors, 0, 1) < 1e-9


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1e30, 1e200, 1e300])
@pytest.mark.parametrize("batch", [1, 40])
def test_any_unit_gives_the_same(size, batch):
    power = 2.0 ** math.floor(math.log2(size))
    plain, data = sketch(ROWS, 6, 3, batch)
    basis, _, certificate = sketch_certificate(plain, data, 4)
    scaled, same = sketch(ROWS * power, 6, 3, batch)
    again, _, found = sketch_certificate(scaled, same, 4)
    assert same.passes == 1
    assert np.array_equal(found.angle_bounds, certificate.angle_bounds)
    assert np.abs(np.abs(basis) - np.abs(again)).max() < 1e-12
    assert np.allclose(to_numpy(same.mean) / power, data.mean, rtol=1e-12)
    if abs(math.log10(size)) < 100:
        bounds = certificate.eigenvalue_bounds * power**2
        assert np.allclose(found.eigenvalue_bounds, bounds, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_range_may_be_left_midway(dtype):
    """Small rows, then large ones: as if all had come in the unit of the large."""
    huge = {"float32": 2.0**60, "float64": 2.0**500}[dtype]
    X = np.vstack([ROWS[:45], ROWS[45:] * huge]).astype(dtype)
    state, data = sketch(X, 12, 3, 9)
    values, _ = truth(X.astype(np.float64) / huge)
    bounds = sketch_certificate(state, data, 3)[2].eigenvalue_bounds / huge / huge
    assert (bounds[:, 0] <= values[:3]).all()
    assert (values[:3] <= bounds[:, 1]).all()
    assert bounds[0, 1] < values[0] * 1.001
    assert np.allclose(data.mean / huge, X.mean(axis=0, dtype=np.float64) / huge, rtol=1e-6)
    dull = np.vstack([np.zeros((45, 12)), ROWS[45:] / huge]).astype(dtype)
    state, data = sketch(dull, 12, 3, 9)
    values, _ = truth(dull.astype(np.float64) * huge)
    bounds = sketch_certificate(state, data, 3)[2].eigenvalue_bounds * huge * huge
    assert np.allclose(bounds, values[:3, None], rtol=1e-3)


@pytest.mark.parametrize("place", [0, 60])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_named(value, place):
    X = ROWS.copy()
    X[place, 4] = value
    with pytest.raises(ValueError, match=f"the first at row {place}, column 4"):
        sketch(X, 6, 3, 10)


def test_what_any_basis_misses_is_bounded():
    rng, sharp = np.random.default_rng(30), []
    for number in range(200):
        problem = case(rng)
        state, data = run_of(problem)
        data.learn()
        d = problem.X.shape[1]
        p = int(rng.integers(0, d + 1))
        noise = 10.0 ** rng.uniform(-12, 1) * rng.standard_normal((d, p))
        U = np.linalg.qr(problem.vectors[:, :p] + noise)[0]
        outside = np.linalg.qr(U, mode="complete")[0][:, p:]
        inside = outside.T @ ((problem.vectors * problem.values) @ (problem.vectors.T @ outside))
        true = np.linalg.eigvalsh(inside)[-1] if p < d else 0.0
        blocks = tuple(np.array_split(U, min(3, p), axis=1)) if p else ()
        skew = np.linalg.norm(U.T @ U - np.eye(p))
        bound = missed_by(blocks, state, data, skew) * data.weight / (data.weight - 1)
        assert true <= bound, (number, problem.words)
        sharp += [bound / true] if state.loss == 0 and true > 1e-3 * problem.values[0] else []
    assert len(sharp) > 20
    assert np.median(sharp) < 1 + 1e-9


def fuzz_refined(seed, problems, largest=60):
    rng, claims, better = np.random.default_rng(seed), 0, 0
    for number in range(problems):
        problem = case(rng, largest)
        problem.options["float64"] = bool(rng.random() < 0.5)
        state, data = run_of(problem)
        _, _, alone = sketch_certificate(state, data, problem.k)
        data = Centred(problem.X, **problem.options | {"float64": True})
        p = int(rng.integers(problem.k, problem.X.shape[1] + 1))
        found = refined_certificate(state, data, problem.k, p)
        wrong, claimed = violations(found, problem)
        assert not wrong, (seed, number, problem.words, wrong)
        claims += claimed
        better += int(np.sum(found[2].angle_bounds < alone.angle_bounds))
    assert claims > problems
    assert better > problems


@pytest.mark.parametrize("seed", range(2))
def test_no_bound_of_a_second_pass_is_ever_violated(seed):
    fuzz_refined(seed, 80)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 210))
def test_no_bound_of_a_second_pass_is_ever_violated_in_many_problems(seed):
    fuzz_refined(seed, 250, 150)


def test_a_second_pass_is_made_in_float64():
    state, data = sketch(ROWS.astype("float32"), 6, 3, 20)
    with pytest.raises(ValueError, match="`float64`=True"):
        refined_certificate(state, data, 3, 4)


# -- nothing lost -----------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 5, 1000])
@pytest.mark.parametrize("rank", [1, 4, 12])
def test_a_sketch_larger_than_the_rank_loses_nothing(rank, batch):
    rng = np.random.default_rng(rank)
    X = (rng.standard_normal((300, rank)) * 0.7 ** np.arange(rank)) @ np.linalg.qr(
        rng.standard_normal((12, rank))
    )[0].T + 5
    state, data = sketch(X, 12, 12, batch)
    assert state.shrinks > 5 or batch == 1000  # rows that come together are folded instead
    assert state.loss == 0.0
    _, _, certificate = sketch_certificate(state, data, 12)
    assert certificate.angle_bounds[:rank].max() < 1e-8
    assert certificate.zero.tolist() == [False] * rank + [True] * (12 - rank)
    assert certificate.met(1e-8).all()
    assert np.allclose(certificate.eigenvalue_bounds[:rank], truth(X)[0][:rank, None], rtol=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shift", [0.0, 1e3])
@pytest.mark.parametrize("batch", [7, 900, 20000])
def test_many_narrow_rows_are_folded_and_no_bound_is_violated(batch, shift, dtype):
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((20000, 6)) * 10.0 ** -np.arange(6) + shift).astype(dtype)
    pca = PrimedPCA(6)
    for start in range(0, len(X), batch):
        pca.partial_fit(X[start : start + batch])
    # numpy.cov in extended precision, decomposed in float64, is right to 1e-15 of the largest.
    exact = X.astype(np.longdouble)
    exact = exact - exact.mean(axis=0)
    values, vectors = np.linalg.eigh((exact.T @ exact / (len(X) - 1)).astype(np.float64))
    low, high = pca.certificate_.eigenvalue_bounds.T
    slack = 1e-15 * values[-1]
    assert (low - slack <= values[::-1]).all()
    assert (values[::-1] <= high + slack).all()
    assert (high - low).max() < 1e-6 * values[-1]
    off = angles(pca.components_.astype(np.float64), vectors.T[::-1])
    gaps = np.abs(np.diff(values[::-1], append=0.0))
    assert (off <= pca.certificate_.angle_bounds + 1e-15 * values[-1] / gaps).all()


@pytest.mark.parametrize("X", [np.zeros((9, 4)), np.full((9, 4), 0.1), np.full((2, 1), 7.0)])
@pytest.mark.parametrize("batch", [1, 4, 9])
def test_constant_rows_are_proven_constant(X, batch):
    state, data = sketch(X, 4, 1, batch)
    k = X.shape[1]
    basis, variances, certificate = sketch_certificate(state, data, k)
    assert np.allclose(basis.T @ basis, np.eye(k))
    assert variances.max() < 1e-30
    assert certificate.eigenvalue_bounds.max() < 1e-30
    assert certificate.zero.all()
    assert (certificate.angle_bounds == np.pi / 2).all()


def test_duplicates_and_zero_rows_are_bounded():
    X = np.repeat(np.diag([3.0, 2.0, 2.0, 1.0, 0.0]), 12, axis=0)
    problem = Case(X, {}, 2, 5, 2, *truth(X), "axes")
    assert violations(certified(problem)[0], problem)[0] == []


# -- sketches of parts ------------------------------------------------------------------------


def merged(rng, problem):
    """The same data in two to four pieces, each with its own guess of the mean, then merged."""
    n = len(problem.X)
    cuts = np.sort(rng.choice(np.arange(1, n), min(n - 1, int(rng.integers(1, 4))), replace=False))
    whole, factor = None, problem.options.get("scale")
    factor = None if factor is None else 1 / factor.astype(np.float64)
    for index in np.split(np.arange(n), cuts):
        options = dict(problem.options)
        if "sample_weight" in options:
            options["sample_weight"] = options["sample_weight"][index]
            if options["sample_weight"].sum() <= 1:
                return None
        size = problem.size + int(rng.integers(0, 3))
        state, _ = sketch(problem.X[index], size, problem.k, problem.batch, **options)
        whole = state if whole is None else merge(whole, state, factor)
    return whole


@pytest.mark.parametrize("seed", range(3))
def test_merged_sketches_keep_their_word(seed):
    rng, claims = np.random.default_rng(seed), 0
    for number in range(60):
        problem = case(rng)
        state = merged(rng, problem)
        if state is None:
            continue
        data = Centred(problem.X, **problem.options)
        data.learn()
        wrong, claimed = violations(sketch_certificate(state, data, problem.k), problem)
        assert not wrong, (seed, number, problem.words, wrong)
        claims += claimed
        weight = problem.options.get("sample_weight", np.ones(len(problem.X))).sum()
        assert state.weight == pytest.approx(weight)
        if problem.options["center"]:
            whole = (weight - 1) * state.unit**2
            assert state.total == pytest.approx(whole * problem.values.sum(), rel=1e-3)
    assert claims > 30


def test_merging_is_one_link_and_both_losses():
    one, _ = sketch(ROWS[:50], 4, 3, 10)
    other, _ = sketch(ROWS[50:] + 4, 4, 3, 10)
    both = merge(one, other)
    assert both.loss >= one.loss + other.loss
    assert both.shrinks >= one.shrinks + other.shrinks
    mean = both.shift + both.sums / both.weight
    assert np.allclose(mean, (ROWS[:50].sum(axis=0) + (ROWS[50:] + 4).sum(axis=0)) / 90)
    empty = FrequentDirections(4).init(Centred(ROWS).like, 3, 0)
    assert merge(one, empty) is one
    assert merge(empty, one) is one


def test_merging_takes_units_along():
    one, _ = sketch(ROWS[:50], 12, 3, 10)
    other, data = sketch(ROWS[50:] * 2.0**400, 12, 3, 10)
    assert other.unit < 1
    values, _ = truth(np.vstack([ROWS[:50] * 2.0**-400, ROWS[50:]]))
    for both in (merge(one, other), merge(other, one)):
        bounds = sketch_certificate(both, data, 3)[2].eigenvalue_bounds * 2.0**-800
        assert np.allclose(bounds, values[:3, None], rtol=1e-9)


def test_merging_refuses_by_name():
    one, _ = sketch(ROWS, 4, 3, 10)
    with pytest.raises(ValueError, match="have 12 and 5 columns"):
        merge(one, sketch(ROWS[:, :5], 4, 3, 10)[0])
    with pytest.raises(ValueError, match="only one of the two sketches is centred"):
        merge(one, sketch(ROWS, 4, 3, 10, center=False)[0])


def test_a_sketch_goes_on_with_new_rows():
    """Another source, seen from another guess."""
    priming = FrequentDirections(12)
    first, _ = sketch(ROWS[:50], 12, 3, 10)
    data = Centred(ROWS[50:] + 100)
    for _, part in stream(data, 7):
        first = priming.step(first, part)
    values, _ = truth(np.vstack([ROWS[:50], ROWS[50:] + 100]))
    bounds = sketch_certificate(first, data, 4)[2].eigenvalue_bounds
    assert np.allclose(bounds, values[:4, None], rtol=0, atol=1e-11 * values[0])


# -- real data --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="PRIMEDPCA_DATA is not set")
def test_mnist_after_one_pass():
    with np.load(Path(DATA) / "mnist_train.npz") as archive:
        X = archive["X"]
    X = X.reshape(len(X), -1)
    state, data = sketch(X, 200, 16, 1000, float64=True)
    assert data.passes == 1
    basis, _, certificate = sketch_certificate(state, data, 16)
    values, vectors = np.linalg.eigh(np.cov(X.T, dtype=np.float64))
    problem = Case(X, {}, 200, 1000, 16, values[::-1], vectors[:, ::-1], "mnist")
    assert violations((basis, None, certificate), problem)[0] == []
    degrees = np.degrees(certificate.angle_bounds)
    print(degrees.round(2), certificate.clusters, state.loss / state.total, state.rounding)
    assert np.sum(degrees < 90) >= 14
    assert degrees.min() < 0.6
    basis, _, certificate = refined_certificate(state, data, 16, 20)
    assert data.passes == 2
    assert violations((basis, None, certificate), problem)[0] == []
    assert certificate.met(math.pi / 1024).all()


# -- scale and missing values -----------------------------------------------------------------


def streamed(X, batch, **options):
    model = PrimedPCA(4, **options)
    for start in range(0, len(X), batch):
        model.partial_fit(X[start : start + batch])
    return model


@pytest.fixture(params=[20, 250], ids=["narrow", "wide"])
def units(request):
    """Rows with columns of very different units and some missing values."""
    rng, d = np.random.default_rng(0), request.param
    X = rng.normal(size=(1500, d)) @ (rng.normal(size=(d, d)) * 0.9 ** np.arange(d)[:, None])
    X = X * 10.0 ** rng.integers(-3, 4, d) + 5
    X[:, 3] = 7.0
    holes = X.copy()
    holes[rng.random(X.shape) < 0.1] = np.nan
    return X, holes


@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize("missing", ["error", "mean"])
def test_a_stream_is_scaled_and_filled_as_a_fit(units, scale, missing):
    X = units[missing == "mean"]
    options = {"scale": scale, "missing": missing}
    whole, stream = PrimedPCA(4, **options).fit(X), streamed(X, 77, **options)
    np.testing.assert_allclose(stream.mean_, whole.mean_, rtol=1e-9)
    if scale is not None:
        np.testing.assert_allclose(stream.scale_, whole.scale_, rtol=1e-12)
    low, high = stream.certificate_.eigenvalue_bounds.T
    assert (low <= whole.explained_variance_ * (1 + 1e-9)).all()
    assert (whole.explained_variance_ <= high * (1 + 1e-9)).all()
    turned = np.abs(np.sum(stream.components_ * whole.components_, axis=1))
    assert (np.arccos(np.minimum(turned, 1)) <= stream.angle_bounds_ + 1e-7).all()
    assert (turned > 0.999).all()
    if scale is not None:  # else the units leave nothing of the later components
        exact = missing == "error" and X.shape[1] == 20
        assert (high <= low * (1 + 1e-9 if exact else 2)).all()
    np.testing.assert_allclose(
        stream.explained_variance_ratio_, whole.explained_variance_ratio_, rtol=1e-2
    )


def test_the_batches_of_a_scaled_stream_do_not_matter(units):
    options = {"scale": "std", "missing": "mean"}
    models = [streamed(units[1], batch, **options) for batch in (1, 13, 1500)]
    for other in models[1:]:
        np.testing.assert_array_equal(models[0].components_, other.components_)
        np.testing.assert_array_equal(models[0].angle_bounds_, other.angle_bounds_)


def test_scaled_streams_are_merged_and_saved(units, tmp_path):
    X, options = units[1], {"scale": "std", "missing": "mean"}
    whole = PrimedPCA(4, **options).fit(X)
    one, two = streamed(X[:600], 60, **options), streamed(X[600:], 60, **options)
    one.save(tmp_path / "one.safetensors")
    later = load(tmp_path / "one.safetensors").merge(two)
    one.merge(two)
    np.testing.assert_array_equal(one.components_, later.components_)
    np.testing.assert_allclose(one.mean_, whole.mean_, rtol=1e-9)
    np.testing.assert_allclose(one.scale_, whole.scale_, rtol=1e-12)
    low, high = one.certificate_.eigenvalue_bounds.T
    assert (low <= whole.explained_variance_).all()
    assert (whole.explained_variance_ <= high).all()
    assert one.transform(X[:3]).shape == (3, 4)
    with pytest.raises(ValueError, match="differ in `scale` or `missing`"):
        one.merge(streamed(X[:50, :] * 0 + 1, 50, missing="mean"))
    with pytest.raises(ValueError, match="`scale` or `missing` differs from that of earlier"):
        one.set_params(scale=None).partial_fit(X)


def test_a_column_that_comes_late_is_filled_as_well():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 6)) * [1, 2, 3, 4, 5, 6] + 100
    X[:700, 2] = np.nan  # known only in the last rows
    options = {"scale": "std", "missing": "mean"}
    whole, stream = PrimedPCA(4, **options).fit(X), streamed(X, 50, **options)
    np.testing.assert_allclose(stream.mean_, whole.mean_, rtol=1e-12)
    np.testing.assert_allclose(stream.scale_, whole.scale_, rtol=1e-12)
    low, high = stream.certificate_.eigenvalue_bounds.T
    assert ((low <= whole.explained_variance_) & (whole.explained_variance_ <= high)).all()


@pytest.mark.parametrize("seed", [71, 128, 184])
def test_merged_streams_with_gaps_in_constant_columns_have_bounds(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 4)) * np.arange(4, 0, -1)
    X = np.c_[X, np.tile(1e4 * rng.normal(size=40), (60, 1))]
    X[rng.random(X.shape) < 0.1] = np.nan
    weights = rng.uniform(0.5, 3, 60)
    one, two = (
        PrimedPCA(2, missing="mean").partial_fit(X[half], sample_weight=weights[half])
        for half in (slice(0, 30), slice(30, 60))
    )
    low, high = one.merge(two).certificate_.eigenvalue_bounds.T
    true = PrimedPCA(2, missing="mean").fit(X, sample_weight=weights).explained_variance_
    assert ((low <= true) & (true <= high)).all()
    assert np.isfinite(one.certificate_.angle_bounds).all()


def test_infinity_is_not_filled():
    X = np.ones((5, 3)) * np.arange(5)[:, None]
    X[2, 1] = np.inf
    with pytest.raises(ValueError, match="contains infinity"):
        PrimedPCA(1, missing="mean").partial_fit(X)
    with pytest.raises(ValueError, match="may be beyond the range of float64"):
        _ = streamed(np.eye(4) * 1e200, 4, scale="std").components_


@pytest.mark.parametrize("options", [{}, {"center": False}, {"scale": "std"}, {"missing": "mean"}])
@pytest.mark.parametrize("value", [1e200, -np.finfo(float).max])
def test_a_row_that_would_end_the_stream_is_refused(options, value):
    """Its variance exceeds float64, so that no result could be computed from all rows so far."""
    X = np.random.default_rng(0).normal(size=(40, 5))
    pca = PrimedPCA(2, **options).partial_fit(X[:20])
    wild = X[20:22].copy()
    wild[1, 3] = value
    with pytest.raises(ValueError, match=r"in column 3 .* may be beyond the range of float64"):
        pca.partial_fit(wild)
    with pytest.raises(ValueError, match="may be beyond the range"):
        PrimedPCA(2, **options).partial_fit(wild[1:])
    pca.partial_fit(wild, sample_weight=[1, 0]).partial_fit(X[21:])
    whole = PrimedPCA(2, **options).partial_fit(X)
    np.testing.assert_allclose(pca.explained_variance_, whole.explained_variance_)


@pytest.mark.parametrize(
    ("options", "limit"),
    [({}, 2.0**512), ({"scale": "std"}, 2.0**448), ({"missing": "mean"}, 2.0**448)],
)
def test_the_limit_that_a_message_states_is_the_one_that_holds(options, limit):
    X = np.random.default_rng(0).normal(size=(20, 3))
    X /= np.abs(X).max()
    with pytest.raises(ValueError, match=re.escape(f"numbers above {limit:.1e} may be beyond")):
        PrimedPCA(2, **options).partial_fit(X * limit)
    PrimedPCA(2, **options).partial_fit(X * limit / 2)


@pytest.mark.parametrize("options", [{"scale": "std"}, {"missing": "mean"}])
def test_columns_of_tiny_numbers_alone_are_refused_and_the_stream_goes_on(options):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    small = X.copy()
    small[:, 2] *= 1e-200
    with pytest.raises(ValueError, match=r"Column 2 .* nothing larger than .*e-200"):
        PrimedPCA(2, **options).partial_fit(small)
    # Tiny numbers beside others are none the worse.
    model = PrimedPCA(2, **options).partial_fit(X).partial_fit(small)
    known = PrimedPCA(2, **options).fit(np.concatenate([X, small]))
    assert angles(model.components_, known.components_).max() < 1e-6
    # A constant alone has no distances, but a zero that follows does.
    with pytest.raises(ValueError, match="Column 0"):
        PrimedPCA(2, **options).partial_fit(np.c_[np.full(60, 1e-200), X])


@pytest.mark.parametrize("weights", [[3.0, 3.0], [1.0, 3.0], [7.0, 11.0], [2.5, 3.25]])
def test_whole_weights_count_as_many_rows(weights):
    X = np.random.default_rng(0).normal(size=(2, 3))
    streamed = PrimedPCA(1).partial_fit(X, sample_weight=weights)
    assert streamed.n_samples_ == PrimedPCA(1).fit(X, sample_weight=weights).n_samples_
    assert streamed.n_samples_ == int(sum(weights))


@pytest.mark.parametrize("scale", [None, "std"])
def test_rows_of_weight_zero_alone_count_as_none(scale, tmp_path):
    X = np.random.default_rng(0).normal(size=(5, 3))
    streamed = PrimedPCA(1, scale=scale).partial_fit(X, sample_weight=np.zeros(5))
    assert (streamed.n_samples_, streamed.n_components_) == (0, 0)
    streamed.save(tmp_path / "model")
    assert load(tmp_path / "model").partial_fit(X).n_samples_ == 5


def test_a_merged_row_in_far_units_keeps_the_total_of_every_column():
    """Beside squares of 1e200, those of the other column must not underflow."""
    Z = np.random.default_rng(0).standard_normal((6, 2))
    found = []
    for power in (0, 332):
        X = Z * [2.0**power, 2.0**-power]
        model = PrimedPCA(2, scale="std").partial_fit(X[:1])
        model.merge(PrimedPCA(2, scale="std").partial_fit(X[1:]))
        found.append(model)
        np.testing.assert_allclose(model.explained_variance_.sum(), 2 * 6 / 5, rtol=1e-10)
    near, far = (model.certificate_.eigenvalue_bounds for model in found)
    top = 6 / 5 * (1 + abs(np.corrcoef(Z.T)[0, 1]))
    assert far[0, 0] <= top * (1 + 1e-15)
    assert far[0, 1] >= top * (1 - 1e-15)
    np.testing.assert_allclose(far, near, rtol=1e-11)


@pytest.mark.filterwarnings("ignore:The standard deviation of a column became")
@pytest.mark.parametrize("n", [2, 10, 100, 3000])
def test_columns_of_tiny_numbers_are_refused_wherever_a_group_of_rows_ends(n):
    X = np.random.default_rng(0).standard_normal((n, 3)) * [1, 1e-170, 1]
    with pytest.raises(ValueError, match=r"Column 1 .* holds nothing larger than .*e-1[67]"):
        PrimedPCA(1, scale="std", priming=FrequentDirections(1)).partial_fit(X)
    # Beside larger numbers, in this batch or before it, they are rounding.
    X[0, 1] = 2.0
    model = PrimedPCA(1, scale="std", priming=FrequentDirections(1)).partial_fit(X)
    model.partial_fit(X[1:])
    assert model.n_samples_ == 2 * n - 1


@pytest.mark.parametrize("power", [20, 54, 87, 110])
def test_rows_without_variance_in_a_far_unit_do_not_hide_the_variances_of_others(power):
    Z = np.random.default_rng(0).standard_normal((13, 4))
    X = Z * 1e-110
    X[:, 0] = 10.0**power  # a constant; the last group is a single row
    away = (Z - Z.mean(axis=0))[:, 1:]
    true = np.linalg.eigvalsh(away.T @ away / 12)[::-1]
    for size in (2, 3, 4):
        for merged in (False, True):
            model = PrimedPCA(2, priming=FrequentDirections(size)).partial_fit(X[:12])
            if merged:
                last = PrimedPCA(2, priming=FrequentDirections(size)).partial_fit(X[12:])
                model.merge(last)
            else:
                model.partial_fit(X[12:])
            low, high = (model.certificate_.eigenvalue_bounds * 1e110 * 1e110).T
            assert (low <= true[:2] * (1 + 1e-12)).all()
            assert (true[:2] <= high * (1 + 1e-12)).all()
            assert not model.certificate_.zero.any()


def test_units_of_tiny_constants_stay_in_range():
    from primedpca.priming.sketch import _Scope, _unit_for_both

    for low, high in ((2.0**980, 2.0**1010), (2.0**-1000, 2.0**1000), (1.0, 2.0**30)):
        for extent in (0.0, 1.0, 2.0**399):
            found = _unit_for_both(_Scope(low, True, extent), _Scope(high, False, 1.0))
            assert low <= found <= high
            if extent:  # the larger rows do not overflow
                assert extent * (found / low) <= 2.0**400
    model = PrimedPCA(2).partial_fit(np.full((3, 4), 5e-310))
    model.partial_fit(np.random.default_rng(0).standard_normal((5, 4)))
    assert np.isfinite(model.explained_variance_).all()
