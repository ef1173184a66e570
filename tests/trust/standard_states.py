"""Calls of single steps of the certificates, with states and findings chosen so that terms show.

In a fit, terms of second order and margins for rounding are far below the others, and most
comparisons are far from equality.  Here the states of short runs meet findings with large errors,
and arguments that are equal to the thresholds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp

from primedpca import PrimedPCA
from primedpca._certify import (
    bounds,
    certifiers,
    checked,
    checks,
    explicit,
    given,
    inertia,
    probes,
    sketch_bounds,
)
from primedpca._certify.bounds import Evidence
from primedpca._certify.checks import Findings
from primedpca._operator.operator import Centred
from primedpca._planning.plan import make_plan
from primedpca._solve import audit, driver, history, prime, refine
from primedpca._solve.driver import Goal, Stage, follow
from primedpca.priming import BlockKrylov, Exact, FrequentDirections, SubspaceIteration
from primedpca.priming.block_krylov import KrylovState, looked
from primedpca.result import Certificate, Cluster, Status

TOL = math.pi / 1024


def run_of(X: Any, side: str, steps: int, k: Any = 4, block: int = 4, **more: Any) -> tuple:
    """Return a certifier that has looked at some steps of block Krylov, and the last state."""
    data = Centred.of(X)
    priming = BlockKrylov(block, side=side)
    options = {"tol": TOL, "max_passes": 100} | more
    certifier = checked.CheckedCertifier(
        data, data.in_float64(), priming, k, 1e-6, 0, options["tol"], None, options["max_passes"]
    )
    stage = Stage(priming, block, 100, 0, certifier)
    step = follow(stage, lambda each: each.snapshot.step >= steps)
    return certifier, looked(step.snapshot.state), step.snapshot


def findings_of(certifier: Any, state: KrylovState, error: float, skew: float) -> Findings:
    """Return findings of the true tests, but with large errors."""
    certifier.check.take(state.basis)
    tests = certifier.check.tests(state.projected, state.coupling, state.newest)
    rng = np.random.default_rng(3)
    return Findings(error, skew, tests + error * rng.standard_normal(tests.shape), 0.3 * error)


def rides(X: Any, side: str) -> list:
    """Let random vectors ride, and bound what was missed from findings of every size."""
    certifier, state, _ = run_of(X, side, 6)
    data = certifier.operator.data
    multiply = data.covariance_product if side == "right" else data.gram_product
    found: list = []
    certifier._depart(state, certifier._edge(state, 4))
    riders = certifier._riders
    for _ in range(3):
        cast = riders.board(data.like.dtype)
        riders.ride(multiply(cast))
        found.append([riders.reach, riders.heights, riders.inside])
    top = float(state.variances[0])
    for error, skew in ((0.0, 0.0), (1e-3, 0.008), (3e-3, 0.2), (0.0, 0.6)):
        held = findings_of(certifier, state, error * top, skew)
        found += [riders._errors(held), riders.missed(held)]
        found.append(certifier.check.columns(held, state.turn[:, :3], 1e-3))
        for full in (False, True):
            certifier._best, certifier._at = math.inf, 0
            evidence = certifier._evidence(state, held, 4, 1e-6, full)
            if evidence is not None:
                found += [
                    evidence,
                    bounds.upper(evidence),
                    bounds.angle_bounds(evidence, 4, bounds.upper(evidence)),
                ]
    found += [riders._noise(n) for n in range(3)]
    riders.inside = [np.full(checks.RIDERS, 0.05 * (n + 1)) for n in range(3)]
    for skew in (0.0, 0.2, 0.6, 0.9995):
        held = Findings(0.01, skew, np.zeros(0), 1e-3)
        found += [riders._errors(held), riders.missed(held)]
    certifier._ceiling = bounds.upper(evidence) if evidence else np.full(9, math.inf)
    return found


def proofs(X: Any, side: str, steps: int, error: float, skew: float) -> list:
    """Prove with large errors of the findings: every part of the proof that they enter."""
    certifier, state, _ = run_of(X, side, steps)
    held = findings_of(certifier, state, error * float(state.variances[0]), skew)
    certifier._depart(state, certifier._edge(state, 4))
    data = certifier.operator.data
    multiply = data.covariance_product if side == "right" else data.gram_product
    for _ in range(5):
        certifier._riders.ride(multiply(certifier._riders.board(data.like.dtype)))
    evidence = certifier._evidence(state, held, 4, 1e-6, False)
    found: list = [evidence]
    if evidence is None:
        return found
    certifier._ceiling = bounds.upper(evidence)
    for last in (False, True):
        mapped = certifier._on_the_right(state, held, evidence, 4, 1e-6, last)
        found.append(None if mapped is None else [mapped[0].evidence, mapped[0].up, mapped[1]])
        found.append(None if mapped is None else mapped[0].turned)
    for certifier._at in (0, 1, 8, state.projected.shape[0]):
        found.append(certifier._relieved(state, evidence))
    for at in (0, 8, state.projected.shape[0]):
        found.append(checked.relief_of(state, at, 0.9 * float(state.variances[0])))
    found.append(checked.relief_of(state, 8, 1e-9))
    certifier._restarted = True
    found.append(certifier._evidence(state, held, 4, 1e-6, False))
    return found


def decisions(X: Any, side: str) -> list:
    """Ask for decisions and estimates with arguments at, below and above the thresholds."""
    certifier, state, snapshot = run_of(X, side, 5)
    tol, found = certifier.tol, []
    k = 4
    for changes in ([], [math.inf, 0.1], [0.03, 0.1], [0.5, 0.1, 0.01, 0.01], [0.0] * 2, [0.2] * 5):
        certifier._changes = [*changes]
        for change in (tol / 2, tol, 2 * tol, 0.02, 0.021, 0.3):
            for count in (1, 3, 4, 5, 9, 10, 11):
                for guess, before, rode in ((0.1, 0.2, 3), (0.2, 0.2, 10), (0.1, 0.2, 11)):
                    certifier._guessed, certifier._rode = before, rode
                    found.append(certifier._is_near(change, count, guess))
    values = state.variances
    for rest in (0.0, 0.3 * float(values[k - 1]), float(values[0])):
        for empty in (False, True):
            changed = state._replace(rest=rest)
            if empty:
                changed = changed._replace(coupling=np.zeros((0, 4)))
            found += [certifier._guess(changed, k), certifier._edge(changed, k)]
            found += [certifier._rides(changed, k), certifier._guess(changed, values.size + 2)]
    flat = state._replace(variances=np.zeros(values.size), rest=0.0)
    found += [certifier._rides(flat, k), certifier._guess(flat, k), certifier._edge(flat, k)]
    for missed in (0.1, 0.5, 0.9, 0.99, 1.0, 1.1):
        found.append(certifier._within(state, k, missed * float(values[k - 1])))
    for best in (0.0, 0.5, 0.999, 1.0, 2.0):
        certifier._best = best * float(values[k - 1])
        for size in (0.0, 0.1, 1.0):
            less = state._replace(residual=size * state.residual)
            found.append(certifier._may_prove(less, k))
        tight = tol * (values[k - 1] - certifier._best)
        column = np.zeros((1, values.size))
        column[0, k - 1] = tight
        found.append(certifier._may_prove(state._replace(residual=column), k))
    for wanted in (0.2, 0.5, 0.9, 0.999999, 3):
        certifier.wanted = wanted
        found.append(certifier._count(state))
    certifier.wanted = float(np.cumsum(values)[2] / certifier.wide.total)
    found += [certifier._count(state), certifier._out_of_passes]
    for edge in (0, 1, -1):
        certifier._last_pass = certifier.wide.passes + edge
        found.append(certifier._out_of_passes)
    found += [certifier._share() for _ in range(3)]
    certifier._changes += [1.0]
    found += [certifier._share(), certifier.spent, certifier._share_of_departure()]
    found += [certifier._share_of_departure(), certifier.spent]
    return [*found, certifier.conclude(snapshot) is None]


def sizes() -> list:
    """Count the vectors that take part, for values at the thresholds."""
    values = np.array([10.0, 5.0, 4.65, 4.6, 3.0, 1.0, 1e-5, 9e-6])
    found: list = [checked._mapped_size(values, k) for k in range(1, 10)]
    found.append(checked._mapped_size(np.linspace(2, 1.9, 60), 5))
    b = 0.1 * np.random.default_rng(0).standard_normal((3, 8))
    held = Evidence(values, b, 3.0, 0.0)
    found += [checked._enough(held, k) for k in (1, 3, 6, 9)]
    found += [checked._enough(replace(held, rounding=1e-3), 3)]
    many = Evidence(np.linspace(2, 1, 60), np.zeros((1, 60)), 0.5, 0.0)
    found += [checked._enough(many, 5), checked._enough(many, 40)]
    columns = np.linspace(0.01, 0.02, 8)
    full = replace(held, columns=columns, relief=0.01 * np.eye(3))
    found += [checked._cut(full, p) for p in (3, 8)]
    found += [checked._left_out(full, p) for p in (1, 3, 8)]
    up = bounds.upper(held)
    found += [checked._sharpest(held, 3, up, tol).values.size for tol in (1e-6, 0.05, 1.5)]
    close = Evidence(np.array([3.0, 2.0, 1.0, 0.999]), 0.05 * np.ones((2, 4)), 0.9, 0.0)
    found.append(checked._sharpest(close, 2, bounds.upper(close), 1e-6))
    own = np.array([[1.0, 0.2], [0.2, 1.0]])
    found.append(checked.rayleigh_ritz(own, np.array([[3.0, 0.5], [0.5, 2.0]])))
    found.append(checked.rayleigh_ritz(-own, own))
    rng = np.random.default_rng(2)
    newest = np.linalg.qr(rng.standard_normal((9, 2)))[0]
    known, rest = rng.standard_normal((2, 5)), rng.standard_normal((9, 2))
    found.append(checked._small(newest, known, rest, np.array([1, 4])))
    return found


def right_vectors(X: Any) -> list:
    """Bounds of right vectors with large parts of the residuals that are not known."""
    certifier, _, _ = run_of(X, "left", 3)
    theta = np.array([3.0, 2.0, 1.5, 0.7])
    b = 0.05 * np.random.default_rng(1).standard_normal((3, 4))
    found: list = []
    for factor in (0.0, 0.01, 0.1):
        phi = factor * np.array([0.1, 0.3, 0.2, 0.05])
        for ceiling in (math.inf, 2.2):
            certifier._ceiling = np.full(5, ceiling)
            evidence, up = certifier._right(theta, b, (0.01, 0.004), phi, 0.0, 0.4)
            found += [evidence, up, bounds.angle_bounds(evidence, 3, up)]
            found.append(bounds.certificate_of(evidence, 3, None, "", 0.0, up))
            found.append(certifier._up(Evidence(theta, b, 1.8, 0.01), phi))
    return found


def looks(X: Any, tol: float, max_passes: int, k: Any, side: str) -> list:
    """Look at every step, whatever a fit would decide, and note each decision."""
    data = Centred.of(X)
    priming = BlockKrylov(4, side=side)
    certifier = checked.CheckedCertifier(
        data, data.in_float64(), priming, k, 1e-6, 0, tol, None, max_passes
    )
    stage = Stage(priming, 4, 40, 0, certifier)
    found: list = []

    def note(step: Any) -> bool:
        proof = step.proof
        found.append([certifier._looking, certifier._settled, certifier._attempts])
        found.append([certifier._tried, certifier.exhausted, certifier.hopeless])
        found.append([certifier.spent, certifier._alone, certifier._departures])
        found.append([] if proof is None else [proof.counted, proof.certificate])
        return certifier.exhausted or certifier.hopeless or step.snapshot.step >= 30

    follow(stage, note)
    return found


# -- an explicit matrix ------------------------------------------------------------------------


def explicit_run(X: Any, side: str, k: Any, tol: float, steps: int) -> tuple:
    """Return a certifier of an explicit matrix, and the state after some steps."""
    data = Centred.of(X)
    priming = BlockKrylov(4, side=side, explicit=True)
    certifier = explicit.ExplicitCertifier(
        data, data.in_float64(), priming, k, 1e-6, 0, tol, None, 100
    )
    stage = Stage(priming, 4, 1000, 0, certifier)
    step = follow(stage, lambda each: certifier.exhausted or each.snapshot.step >= steps)
    return certifier, looked(step.snapshot.state), step


def matrices(X: Any, side: str, steps: int) -> list:
    """Rides and factorisations of an explicit matrix, at several positions."""
    certifier, state, _ = explicit_run(X, side, 4, 1e-9, steps)
    found: list = []
    values = state.variances
    for j in (4, 6):
        for part in (0.3, 0.6, 1.5, 0.0):
            sigma = float(values[j] + part * (values[j - 1] - values[j]))
            found.append(certifier._factorise(state, j, sigma))
    for order in (1, 10, 10**6):
        with mock.patch.object(explicit, "ORDER", order):
            found.append(certifier._ridden(state, 4, 5))
    for last in (False, True):
        for tol in (1e-9, 0.003, 0.1):
            for order in (1, 10**6):
                certifier.tol, certifier._known = tol, np.zeros(0)
                certifier._attempts = 0
                with mock.patch.object(explicit, "ORDER", order):
                    certifier._bound(state, 4, last)
                found += [certifier._known, certifier._attempts]
    leading = explicit._leading(state, 6, certifier.operator.square, certifier.wide)
    found += [leading.variances, leading.residual, leading.coupling, leading.projected]
    tiny = explicit._leading(state, 6, 1e-11 * certifier.operator.square, certifier.wide)
    found += [tiny.residual.shape[0], tiny.coupling]
    # Residuals that are settled, but wide for the gaps.
    for part in (1e-3, 8e-3, 0.01, 0.02):
        certifier._attempts, certifier._known = 0, np.zeros(0)
        certifier.tol = 0.5
        wide = np.zeros((1, values.size))
        wide[0] = part * values
        certifier._bound(state._replace(residual=wide), 4, False)
        found += [certifier._known, certifier._attempts]
    certifier.tol = TOL
    for last in (False, True):
        certifier._changes.append(0.0)
        proof = certifier._proof(state, 4, last)
        found.append([] if proof is None else [proof.certificate, certifier.exhausted])
    return found


def full_basis(X: Any, side: str) -> list:
    """Conclude from a basis of everything, and from the first steps."""
    found: list = []
    for block in (1, 4):
        for steps in (1, 2, 3, 12):
            certifier, _, snapshot = run_of(X, side, steps, 3, block)
            for proof in (certifier.conclude(snapshot), certifier.look(snapshot)):
                found.append([] if proof is None else [proof.certificate, proof.counted])
            data = Centred.of(X)
            priming = BlockKrylov(block, side=side, explicit=True)
            certifier = explicit.ExplicitCertifier(
                data, data.in_float64(), priming, 3, 1e-6, 0, TOL, None, 100
            )
            stage = Stage(priming, block, 1000, 0, certifier)
            step = follow(stage, lambda each, steps=steps: each.snapshot.step >= steps)
            proof = certifier.conclude(step.snapshot)
            found.append([] if proof is None else [proof.certificate, certifier.exhausted])
    return found


def second_attempts(X: Any, side: str) -> list:
    """Look again after a proof has failed once."""
    found: list = []
    wide = np.random.default_rng(4).standard_normal((300, 90)) * np.arange(1, 91.0) ** -0.5
    for tol in (1e-3, 0.02, 0.3):
        data = Centred.of((wide if side == "right" else wide.T).astype("f4"))
        priming = BlockKrylov(4, side=side)
        certifier = checked.CheckedCertifier(
            data, data.in_float64(), priming, 2, 1e-6, 0, tol, None, 60
        )
        certifier._attempts, certifier._tried = 1, 3

        def note(step: Any, certifier: Any = certifier) -> bool:
            found.append([certifier._attempts, certifier._tried, certifier._alone, certifier.spent])
            return certifier.exhausted or certifier.hopeless or step.snapshot.step >= 18

        follow(Stage(priming, 4, 40, 0, certifier), note)
    return found


def resumed(X: Any) -> list:
    """Fit with a checkpoint, and resume from it."""
    found: list = []
    for priming in (BlockKrylov(4), "oja"):
        with TemporaryDirectory() as folder:
            for _ in range(2):
                model = PrimedPCA(
                    3,
                    priming=priming,
                    checkpoint=f"{folder}/held",
                    max_passes=9,
                    random_state=0,
                    certificate="none",
                ).fit(X)
                found += [model.n_passes_, model.explained_variance_, len(model.history_)]
    return found


def explicit_looks(X: Any, k: Any, tol: float, order: int) -> list:
    """Look at every step of an explicit matrix."""
    data = Centred.of(X)
    side = "right" if X.shape[1] <= X.shape[0] else "left"
    priming = BlockKrylov(4, side=side, explicit=True)
    certifier = explicit.ExplicitCertifier(
        data, data.in_float64(), priming, k, 1e-6, 0, tol, None, 100
    )
    found: list = []

    def note(step: Any) -> bool:
        proof = step.proof
        found.append([certifier.exhausted, certifier._attempts, certifier._known, certifier.spent])
        found.append([] if proof is None else [proof.counted, proof.certificate])
        met = proof is not None and proof.certificate.met(tol).all()
        return certifier.exhausted or met or step.snapshot.step >= 60

    with mock.patch.object(explicit, "ORDER", order):
        last = follow(Stage(priming, 4, 1000, 0, certifier), note)
        proof = certifier.conclude(last.snapshot)
    return [*found, [] if proof is None else [proof.certificate]]


def ceilings() -> list:
    """Cholesky factorisations of matrices with known spectra."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    values = np.r_[5.0, 4.0, 3.9, 3.0, 1.5, 1.4, np.linspace(0.5, 0.1, 14)]
    matrix = (turn * values) @ turn.T
    found: list = []
    for wanted in (1, 2, 3, 5, 6, 8):
        for error in (0.0, 1e-3, 0.2):
            found.append(inertia.ceiling(matrix, turn[:, :6], values[:6], error, wanted))
    near = turn[:, :5] + 0.1 * rng.standard_normal((20, 5))
    found.append(inertia.ceiling(matrix, near, values[:5], 0.0, 2))
    found.append(inertia.ceiling(1e200 * matrix, turn[:, :6], 1e200 * values[:6], 0.0, 2))
    found.append(inertia.ceiling(matrix, turn[:, :6], values[:6] - 0.2, 0.0, 3))
    found.append(inertia.ceiling(np.asfortranarray(matrix), turn[:, :6], values[:6], 0.0, 4, True))
    with mock.patch.object(inertia, "UNIT", 1e-5):
        found.append(inertia.ceiling(matrix, turn[:, :6], values[:6], 0.0, 4))
    for tile in (4, 7, 320):
        with mock.patch.object(inertia, "TILE", tile):
            factor = turn[:, :4] * np.sqrt(values[:4])
            for sigma in (2.0, 1.6, 1.0):
                tiles = inertia.factorised(matrix, factor, sigma)
                found.append(tiles is None)
                if tiles is not None:
                    product, size = inertia.times_square(tiles, turn[:, :3])
                    found += [size, product - sigma * turn[:, :3] + matrix @ turn[:, :3] + 1.0]
    return found


# -- given components --------------------------------------------------------------------------


def given_run(X: Any, side: str, shift: float, tol: float, steps: int, k: int = 5) -> tuple:
    """Return a certifier of given components after some steps, with what it has found."""
    data = Centred.of(X)
    dense = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    true = np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)[2]
    held = np.linalg.qr((true[:k] + shift * true[k + 9 : 2 * k + 9]).T)[0]
    wide = data.in_float64()
    vectors, own = audit._check_components(held.T, wide)
    certifier = given.GivenCertifier(data, wide, side, vectors, own, 1e-6, 5, tol, 100)
    stage = Stage(certifier.priming, max(data.shape), 100, 5, certifier, vectors)
    with mock.patch.object(given.GivenCertifier, "_ride_on", return_value=None):
        step = follow(stage, lambda each: certifier.exhausted or each.snapshot.step >= steps)
    return certifier, step.snapshot.state


def beside_findings(X: Any, side: str, shift: float = 1e-4, tol: float = 0.01) -> list:
    """Certificates of given components from findings with large errors."""
    certifier, state = given_run(X, side, shift, tol, 12)
    opened = certifier.operator.opened
    state = state._replace(variances=opened.values)
    beside = given.Found.beside(state, opened.values.size)
    riders, found = certifier._riders, []
    missed = riders.missed(checked.NOTHING_FOUND)
    floor = 0.8 * float(opened.values[-1])
    top = float(opened.values[0])
    for error, skew in ((0.0, 0.0), (1e-4, 1e-4), (1e-3, 0.004), (0.0, 0.01), (0.0, 0.02)):
        held = findings_of(certifier, state, error * top, skew)
        refined = certifier._refined_by(state, opened, beside, held, 1e-6)
        found.append(refined)
        if refined is not None:
            for level in (missed, floor, 0.5 * floor):
                found.append(certifier._of_given(refined, state, opened, level))
    found += [certifier._target(opened), certifier._lengths_of(opened), missed]
    for level in (0.2, 0.5, 0.8, 0.9, 1.0, 1.1):
        size = level * float(opened.values[-1])
        certifier._level = size
        found += [certifier._predicted(state, opened, beside, size), certifier._wanted(beside)]
        found += [certifier._outside(2, state, beside, size, 0.01 * size)]
    for step in (1, 3, 4, 40, 41):
        for before in (math.inf, 3.0, 0.0):
            certifier._rides_before, certifier._guessed = before, 0.0
            moved = state._replace(step=step)
            found += [certifier._edge_of_rides(moved, opened, beside), certifier._level]
            found.append(certifier._is_lost(moved, opened, beside))
    for factor in np.geomspace(0.5, 4.0, 16):
        grown = state._replace(
            projected=factor * state.projected, coupling=factor * state.coupling, step=9
        )
        for before in (math.inf, 11.0, 0.0):
            certifier._rides_before, certifier._guessed = before, 0.0
            found += [certifier._edge_of_rides(grown, opened, beside), certifier._level]
            found.append(certifier._rides_before)
        certifier._level = 0.3 * float(opened.values[-1])
        coarse = beside._replace(residual=10 * factor * beside.residual)
        found.append(certifier._predicted(state, opened, coarse, certifier._level))
    more = beside._replace(values=beside.values * (opened.values[-1] / beside.values[0]))
    found.append(certifier._is_lost(state, opened, more))
    for tol in (1e-5, 1e-3, 0.1):
        certifier.tol = tol
        certifier._rides_before, certifier._guessed = math.inf, 0.0
        found += [certifier._edge_of_rides(state, opened, beside), certifier._target(opened)]
        found.append(certifier._is_settled(state, opened, beside))
    return found


def angles_between() -> list:
    """Angles between given and refined vectors, from coordinates."""
    rng = np.random.default_rng(5)
    c, theirs = np.eye(6)[:, :5] + 0.01 * rng.standard_normal((6, 5)), np.eye(6)[:, :5]
    far = 0.01 * rng.uniform(0.2, 1, 5)
    skewed = theirs @ (np.eye(5) + 0.2 * np.ones((5, 5)))
    found: list = [given._angle(c, far, theirs, a, b) for a, b in ((0, 2), (1, 4), (0, 5))]
    found += [given._angle(c, far, 0.5 * skewed, a, b) for a, b in ((0, 5), (0, 1))]
    square = np.cov(rng.standard_normal((4, 30)))
    found.append(given._lengths(square, rng.standard_normal((4, 3))))
    found += [audit._between(c[:, :2], theirs[:, :2]), audit._between(c[:, :1], theirs[:, 1:2])]
    proof = Certificate(
        np.array([0.01, 0.02, 1.0, np.pi / 2, 0.1]),
        np.ones((5, 2)),
        [Cluster(0, 2, 0.01), Cluster(3, 5, 0.2), Cluster(4, 7, 0.1)],
        "exact",
        0.0,
        np.array([False, False, False, True, True]),
    )
    base = np.linalg.qr(c)[0]
    data = Centred(rng.standard_normal((30, 6)) * [5, 4, 3, 2, 1e-5, 1])
    for tol in (None, 1e-3, 1.5):
        found += audit._compared(data, base, theirs, proof, tol)
        found += audit._compared(data, theirs[:, :3], theirs[:, :3], _first(proof, 3), tol)
    factors = np.array([2.0, 1.0, 0.5, 1e-3, 1e-4, 1e-4, 0.0])
    for e in (0.0, 1e-3, 0.1):
        found.append(certifiers._on_the_right(proof, factors, e))
    found.append(certifiers._on_the_right(proof, np.zeros(7), 0.0))
    return found


def _first(proof: Certificate, k: int) -> Certificate:
    return replace(proof, angle_bounds=proof.angle_bounds[:k], zero=proof.zero[:k])


def audits(X: Any) -> list:
    """Audit good, rotated, swapped and wrong vectors, with and without a tolerance."""
    true = np.linalg.svd(X - X.mean(axis=0))[2]
    wide = Centred.of(X).in_float64()
    found: list = []
    for rows in ([0, 1, 2], [1, 0, 2], [0, 1, 5], [3, 4, 5]):
        for tol in (None, 1e-3, 1e-7):
            for failure in (0.0, 1e-6):
                vectors, _ = audit._check_components(true[rows], wide)
                found.append(audit.audit(wide, vectors, tol, failure, 3, 12))
    for count in (17, 21):
        vectors, own = audit._check_components(1.00001 * true[:count], wide)
        found += [audit.audit(wide, vectors, 0.01, 1e-6, 3, 4), own]
    return found


# -- probes and other certifiers -----------------------------------------------------------------


def probe_looks(X: Any, k: Any, failure: float, small: bool, basis: Any, missed: Any) -> list:
    """Look at every step of block Krylov in float64, with probes or a factorisation."""
    data = Centred.of(X).in_float64()
    priming = BlockKrylov(4, max_basis=basis)
    certifier = certifiers.ProbeCertifier(data, priming, k, failure, 0, None, missed, small)
    found: list = []

    def note(step: Any) -> bool:
        proof = step.proof
        found.append([proof.certificate, proof.counted, certifier._best, certifier._spent])
        found.append([proof.gain(tol) for tol in (1e-14, 1e-6)])
        return step.snapshot.step >= 12

    follow(Stage(priming, 4, 100, 0, certifier), note)
    return [*found, certifier._counted_by_inertia, certifier._columns]


def floors() -> list:
    """Ask whether rounding alone keeps components from a tolerance."""
    values = np.array([3.0, 2.0, 1.999, 1.0])
    found: list = []
    for rounding in (1e-6, 1e-3, 0.02):
        for size in (0.0, 4.0, 4.1, 40.0):
            b = np.zeros((2, 4))
            b[0] = size * rounding
            held = Evidence(values, b, 0.5, rounding)
            for k in (2, 4, 5):
                proof = certifiers.Proof(
                    bounds.certificate_of(held, k, None, "", 0.0), list, evidence=held
                )
                found += [proof.gain(tol) for tol in (1e-7, 1e-3, 0.05, 1.0)]
    state = SimpleNamespace(
        variances=np.array([3.0, 2.0, 1.0]), rest=1.0, residual=np.diag([0.0, 0.5, 0.1])
    )
    found += [certifiers._settling(state, k) for k in (1, 2, 3)]
    state.rest, state.residual = 4.0, np.diag([0.0, 0.0, 0.0])
    return [*found, certifiers._settling(state, 3)]


def probe_bounds() -> list:
    """Bounds of probes with rounding errors of several sizes."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 40)) * np.arange(1, 41.0) ** -0.7
    data = Centred.of(X).in_float64()
    basis = (data.like.asarray(np.linalg.qr(rng.standard_normal((40, 5)))[0]),)
    held = probes.Probes(basis, data, 1e-6, (1, 2))
    found: list = [held.tau, held.norm, held.skew]
    while held.riding:
        held.take(data.covariance_product(held.newest))
        found += [held.reached, held.passes]
        for rounding in (0.0, 1e-4, 1e-2, 1.0):
            found += [held.missed(1.0, rounding), held._bound(0.1, rounding)]
    newest = np.linalg.qr(rng.standard_normal((9, 2)))[0] * 1.1
    other = np.linalg.qr(rng.standard_normal((9, 3)))[0]
    found += [probes.unevenness(newest, ()), probes.unevenness(newest, (other, 0.5 * other))]
    with mock.patch.object(probes, "UNIT", 0.01):
        found.append(probes.unevenness(newest, (other,)))
    return found


def sketches(X: Any, size: int) -> list:
    """Certificates of a sketch by itself, after refinement, and for other bases."""
    found: list = []
    for factor in (1.0, 2.0**40, 2.0**-300):
        data = Centred.of(factor * X).in_float64()
        priming = FrequentDirections(size)
        *_, last = prime.steps(data, priming, 4, 1, 0, batch_size=50)
        state = last.state
        for unit in (bounds.UNIT, 1e-7):
            with mock.patch.object(sketch_bounds, "UNIT", unit):
                for k in (3, size + 2):
                    _, middle, proof = sketch_bounds.sketch_certificate(state, data, k)
                    found += [middle, replace(proof, eigenvalue_bounds=np.zeros((1, 2)))]
                    found.append(np.log2(np.maximum(proof.eigenvalue_bounds, 1e-300)))
                for more in (0, 6, X.shape[1]):
                    _, middle, proof = sketch_bounds.refined_certificate(state, data, 3, more)
                    found += [middle, proof.angle_bounds]
                eye = data.like.asarray(np.eye(X.shape[1]))
                for skew in (0.0, 0.01):
                    held = (eye[:, :3], eye[:, 3:5])
                    found.append(sketch_bounds.missed_by(held, state, data, skew))
                found.append(sketch_bounds.missed_by((), state, data))
                found.append(
                    sketch_bounds._decomposition_error(np.zeros((size, 9)), np.array([4.0, 1.0]))
                )
        for unit in (0.5, 8.0):
            other = state._replace(unit=unit * state.unit)
            _, middle, proof = sketch_bounds.sketch_certificate(other, data, 3)
            found += [middle, proof.angle_bounds]
            found.append(sketch_bounds.missed_by((eye[:, :3],), other, data, 0.0))
        for tol in (1e-9, 0.3):
            certifier = certifiers.SketchCertifier(data, 3, 6, tol)
            proof = certifier.conclude(last)
            found.append([] if proof is None else proof.certificate)
            if certifier.missed is not None:
                found.append(certifier.missed((eye[:, :3],), 0.01))
    return found


# -- the main path -------------------------------------------------------------------------------


def fit_of(X: Any, goal: Goal, **plan: Any) -> driver._Fit:
    """Return a fit of a plan that is changed."""
    data = Centred.of(X)
    made = replace(make_plan(data, 4, "auto", "auto"), **plan)
    return driver._Fit(data, made, goal, history.silent)


def solved(X: Any, priming: Any, goal: Goal, **plan: Any) -> list:
    """Solve with a plan that is changed."""
    data = Centred.of(X)
    made = replace(make_plan(data, 4, priming, "auto"), **plan)
    found = driver.solve(data, made, goal)
    history_of = [[row["step"], row["passes"], row.get("change", 1.0)] for row in found.history]
    return [found.decomposition, found.status, found.passes, found.certificate, history_of]


def ends(X: Any) -> list:
    """Decide when a fit is flat, spent or at its floor, at the thresholds."""
    found: list = []
    krylov = BlockKrylov(4)
    fit = fit_of(X, Goal(), early=3, patience=5, priming=krylov)
    data = fit.data
    for proven in (True, False):
        fit.goal = Goal(proven=proven)
        for known in range(5):
            change = np.full(4, 0.1)
            change[:known] = 0.05
            for certifier in (certifiers.NoCertifier(data), _quiet(checked.CheckedCertifier)):
                for step in (3, 4, 5):
                    state = SimpleNamespace(change=change)
                    stage = Stage(krylov, 4, 9, 0, certifier)
                    held = SimpleNamespace(
                        stage=stage, snapshot=SimpleNamespace(state=state, step=step)
                    )
                    found += [fit._is_flat(held), fit._spent(held)]
    eps = float(np.finfo(data.like.dtype).eps)
    for last in (0.98, 0.99, 0.995, 1.0):
        for before in (0.9e4, 1e4, 1.1e4):
            for count in (6, 7, 8, 12):
                changes = [before * eps] * (count - 5) + [last * before * eps] * 5
                fit.history = [{"change": each} for each in changes[:count]]
                found.append(fit._at_floor())
                fit.history[-1] = {}
                found.append(fit._at_floor())
    for priming in (krylov, BlockKrylov(side="left"), SubspaceIteration(), Exact()):
        found += [fit._costs(priming, proven) for proven in (False, True)]
    for tol in (1e-3, 1.1e-5, 1e-5, 1e-7):
        for failure in (0.0, 1e-101, 1e-100, 1e-6):
            goal = Goal(tol=tol, failure_probability=failure)
            found += [driver.may_check(data, goal), fit_of(X, goal, priming=krylov).reach]
    low = np.array([1.0, 0.5])
    decomposition = SimpleNamespace(total_variance=4.0)
    for width in (3.9e-6, 4.1e-6):
        proof = SimpleNamespace(eigenvalue_bounds=np.stack([low, low + width], axis=1))
        found.append(driver._is_sharp(decomposition, proof))
    found += [Goal(), driver._is_explicit(krylov), list(Stage(krylov, 4, 9, 0, fit).costs or ())]
    return found


def _quiet(kind: type) -> Any:
    """Return an object of a class that was not started."""
    return object.__new__(kind)


def solutions(X: Any) -> list:
    """Solve with plans that end early, adapt, turn flat or run out of patience."""
    found: list = []
    krylov = BlockKrylov(4)
    matrix = SimpleNamespace(priming=BlockKrylov(4, explicit=True))
    for proven in (True, False):
        goal = Goal(proven=proven)
        found.append(solved(X, krylov, goal, early=2, ways=(matrix,)))
        found.append(solved(X, krylov, goal, patience=3))
        found.append(solved(X, krylov, goal._replace(max_passes=4)))
        found.append(solved(X, SubspaceIteration(), goal._replace(max_passes=6), overhead=2.0))
        found.append(solved(X, SubspaceIteration(), goal, overhead=50.0, n_directions=6))
        found.append(solved(X, SubspaceIteration(), goal, patience=3))
    found.append(solved(X, krylov, Goal(tol=1e-6), patience=2))
    found.append(solved(X, krylov, Goal(tol=1e-6, failure_probability=0.0), patience=60))
    found.append(solved(X, krylov, Goal(failure_probability=0.0)))
    found.append(solved(X, BlockKrylov(4, explicit=True), Goal(tol=1e-6)))
    found.append(solved(X, BlockKrylov(4, side="left", explicit=True), Goal(tol=1e-6)))
    found.append(solved(X, krylov, Goal(proven=False, tol=1e-7)))
    found.append(solved(X, krylov, Goal(proven=False, tol=1e-12)))
    found.append(solved(X, Exact(), Goal(proven=False)))
    found.append(solved(X, Exact(), Goal(proven=False, refine_share=0.5)))
    found.append(solved(X, np.eye(X.shape[1])[:, :6], Goal(max_passes=30)))
    return found


def stops(X: Any) -> list:
    """Let a listener end a fit, and count how often it is told."""
    found: list = []
    for priming in (BlockKrylov(4), SubspaceIteration(), "oja"):
        for proven in (True, False):
            told: list = []

            def listen(rows: list, find: Any, told: list = told) -> bool:
                told.append([rows[-1]["step"], rows[-1]["passes"]])
                known = find()
                told.append(0 if known is None else known.explained_variance)
                return len(told) >= 4

            data = Centred.of(X)
            plan = make_plan(data, 4, priming, "auto", batch_size=40)
            goal = Goal(proven=proven, batch_size=40, max_passes=8)
            solution = driver.solve(data, plan, goal, progress=listen)
            found += [told, solution.status, solution.passes]
    return found


def small_parts(X: Any) -> list:
    """Call what is used with its defaults, lines of the history, and intervals."""
    data = Centred.of(X)
    basis = data.like.asarray(np.linalg.qr(np.random.default_rng(2).standard_normal((30, 6)))[0])
    found: list = [refine.refine_span(data, basis, 3, 0).explained_variance, data.passes]
    found.append(refine.refine_span(data, basis, 3, 0, 0.5).explained_variance)
    found.append(data.passes)
    found.append(refine.refine(X, np.eye(30)[:, :4]).explained_variance)
    for priming in (BlockKrylov(), BlockKrylov(side="left"), SubspaceIteration()):
        found += [prime.passes_of(priming, data), prime.passes_of(priming, Centred.of(X.T.copy()))]
    vectors = np.array([1.0, np.inf])
    for state in ((vectors,), (np.diag(vectors),), (np.array([np.nan]),), (np.eye(2), 3)):
        found.append(prime._is_sound(state))
    row = {"step": 2, "passes": 3.0, "seconds": 0.5, "change": 0.01}
    lines = [history.line(row, 0.1)]
    for worst in (0.1, 0.2, np.pi / 2):
        row |= {"variances": np.array([3.0, 1.0]), "angle_bounds": np.array([0.05, worst])}
        lines.append(history.line(row, 0.1))
    row |= {"variances": np.zeros(0), "counted_bounds": np.zeros(0)}
    lines.append(history.line(row, 0.1))
    found += [sum(map(ord, line)) for line in lines]
    found += [list(Status).index(each) for each in Status]
    return found
