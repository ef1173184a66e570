"""Every claim, compared with integer arithmetic: nothing that is proven may be false."""

import math
import os
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from extended import BITS, truth
from extended_fuzz import Findings, certificate_claims, complaints, examine, run, table
from extended_problems import CATEGORIES, problem

from primedpca import PrimedPCA

QUICK, SLOW, FIRST_SEED = 18 * 20, 20_000, 0


def float_of(values, exp):
    return [float(Fraction(v) * Fraction(2) ** exp) for v in values]


def test_the_reference_knows_known_variances():
    # Rows +-s e_j: the covariance is diagonal, 2 s^2 / (n - 1).
    rows = np.diag([3.0, 2.0, 2.0, 1.0])
    true = truth(np.concatenate([rows, -rows]) + 2.0**40)
    np.testing.assert_allclose(float_of(true.values, true.exp), np.array([18, 8, 8, 2]) / 7)
    assert true.gap(1, 2) < 0 < true.gap(1, 3)
    assert true.angle(np.eye(4)[:1], 0, 1) == 0
    assert true.angle(np.eye(4)[[2, 1]], 1, 3) == 0
    assert true.angle(np.eye(4)[[0, 1]], 1, 3) == pytest.approx(math.pi / 2)
    assert true.angle(np.array([[1.0, 1e-20, 0, 0]]), 0, 1) == pytest.approx(1e-20, rel=1e-12)


def test_the_reference_agrees_with_numpy_and_knows_its_error():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(50, 6)) * 0.7 ** np.arange(6), rng.integers(1, 4, 50)
    true = truth(X, weights=w)
    values, vectors = np.linalg.eigh(np.cov(X.T, fweights=w))
    np.testing.assert_allclose(float_of(true.values, true.exp), values[::-1], rtol=1e-12)
    angles = [true.angle(v[None], i, i + 1) for i, v in enumerate(vectors.T[::-1])]
    assert max(angles) < 1e-13
    assert true.slip < 2**40  # of 2^256
    assert true.blur(2, 3) < 1e-60


def test_the_reference_prepares_as_documented():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 4)) * [1, 1e150, 1e-150, 1e5] + [0, 1e155, 0, 1e16]
    X[rng.random(X.shape) < 0.2] = np.nan
    w = rng.integers(0, 3, 40).astype(float)
    true = truth(X, weights=w, scale="std")
    there = ~np.isnan(X)
    mean = np.nansum(X * w[:, None], axis=0) / (there * w[:, None]).sum(axis=0)
    np.testing.assert_allclose([float(m) for m in true.means], mean, rtol=1e-10)
    # Each column has variance 1 after its missing values were filled.
    trace = float(Fraction(true.trace) * Fraction(2) ** true.exp)
    assert trace == pytest.approx(4 * w.sum() / (w.sum() - 1))
    units = float_of(truth(X[:, :1] * 2.0**-400).values, 0)[0] / 2.0**BITS
    assert units > 0.2


def test_a_false_claim_is_found():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 5)) * 0.7 ** np.arange(5)
    pca, true = PrimedPCA(3).fit(X), truth(X)
    proof = pca.certificate_
    shrunk = replace(proof, angle_bounds=proof.angle_bounds * 1e-6)
    moved = replace(proof, eigenvalue_bounds=proof.eigenvalue_bounds * (1 + 1e-9))
    for certificate, kind in ((proof, None), (shrunk, "angle"), (moved, "interval")):
        found = Findings(0, "exact")
        certificate_claims(certificate, pca.components_, true, found, past=True)
        assert found.claims == 6
        assert found.coarse == 0
        assert {words.split(":")[0] for words in found.violated} == ({kind} if kind else set())


def assert_nothing_false(results):
    wrong = [r for r in results if r.violated or r.raw]
    assert not wrong, f"\n{table(results)}\n{complaints(results)}"
    for category in CATEGORIES:
        mine = [r for r in results if r.category == category]
        assert sum(r.claims for r in mine) > 2 * len(mine)  # there was something to be false
        assert sum(r.coarse for r in mine) <= 0.1 * sum(r.claims for r in mine)


def test_no_claim_is_false():
    assert_nothing_false(run(range(FIRST_SEED, FIRST_SEED + QUICK), 1))


@pytest.mark.slow
def test_no_claim_of_twenty_thousand_problems_is_false():
    seeds = range(FIRST_SEED, FIRST_SEED + SLOW)
    assert_nothing_false(run(seeds, os.cpu_count() or 1))


@pytest.mark.parametrize("seed", [4001743, 5006224, 6091919])
def test_problems_that_once_had_a_false_claim(seed):
    found = examine(problem(seed))
    assert found.claims
    assert not found.violated
    assert not found.raw
