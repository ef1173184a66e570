"""Certificates of given components: right ones cheaply, wrong ones never."""

import math

import checked_fuzz
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import subspace_angles

from primedpca import certify
from primedpca._certify import checks, explicit, given
from primedpca._operator.operator import Centred
from primedpca._solve import audit
from primedpca._solve.driver import Stage, follow
from primedpca.metrics import angles
from primedpca.priming import BlockKrylov
from primedpca.result import Certificate, Cluster

TOL = math.pi / 1024


@pytest.fixture(scope="module")
def counts():
    """Sparse counts whose spectrum falls slowly, and all their components in float64."""
    rng = np.random.default_rng(3)
    low = rng.gamma(0.4, size=(600, 12)) @ rng.gamma(0.3, size=(12, 1000)) / 8
    X = rng.poisson(low + 0.01).astype("f4")
    truth = np.linalg.svd(X - X.mean(axis=0, dtype="f8"), full_matrices=False)[2]
    return sp.csr_array(X), truth


@pytest.fixture
def fits(monkeypatch):
    """The fits that audits make of their own."""
    made = []
    real = audit.solve
    monkeypatch.setattr(
        audit, "solve", lambda *args, **more: made.append(args) or real(*args, **more)
    )
    return made


@pytest.mark.parametrize("turned", [False, True], ids=["wide", "tall"])
def test_right_components_need_no_fit(counts, fits, turned):
    X = sp.csr_array(counts[0].T) if turned else counts[0]
    dense = X.toarray().astype("f8")
    truth = np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)[2][:10]
    given_out = truth.astype("f4")
    found = certify(X, given_out, random_state=0)
    assert not fits
    assert found.met(TOL).all()
    assert (angles(given_out, truth) <= found.angle_bounds).all()
    assert found.failure_probability <= 1e-6


def test_a_certificate_that_misses_the_tolerance_is_tried_again(counts, fits, monkeypatch):
    """The angle is predicted far too small: the rides continue until it is proven."""
    X, truth = counts
    tried, real = [], given.GivenCertifier._of_given
    monkeypatch.setattr(
        given.GivenCertifier,
        "_of_given",
        lambda *args: tried.append(real(*args)) or tried[-1],
    )
    monkeypatch.setattr(given.GivenCertifier, "_predicted", lambda *_: 0.0)
    found = certify(X, truth[:10], random_state=0)
    assert not fits
    assert len(tried) > 1
    assert not tried[0].met(TOL).all()
    assert found.met(TOL).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda truth: truth[[*range(9), 10]],  # the last one is the next one
        lambda truth: truth[[*range(8), 9, 10]],  # one is missing
        lambda truth: truth[[1, 0, *range(2, 10)]],
        lambda truth: truth[range(1, 11)],  # without the first
    ],
    ids=["lower", "missing", "swapped", "first"],
)
def test_wrong_components_are_found_out(counts, fits, change):
    X, truth = counts
    components = change(truth)
    found = certify(X, components, random_state=0)
    assert fits
    right = angles(components, truth[:10]) < 1e-6
    assert (found.angle_bounds[~right] > 0.5).all()
    assert found.met(TOL)[right].all()


def test_the_failure_probability_is_that_of_both_ways_together(counts, monkeypatch):
    """A fit after an audit that has spent a part of it has only the rest."""
    X, truth = counts
    monkeypatch.setattr(given.GivenCertifier, "_refined_by", lambda *_: None)
    left = []
    real = audit.solve
    monkeypatch.setattr(
        audit, "solve", lambda data, plan, goal, **more: left.append(goal) or real(data, plan, goal)
    )
    found = certify(X, truth[:10], random_state=0)
    assert left[0].failure_probability == pytest.approx(5e-7)
    assert found.failure_probability <= 5e-7


def _certifier(X, truth, side="left", seed=0):
    data = Centred(X)
    columns = np.ascontiguousarray(truth.T)
    own = columns.T @ columns
    return given.GivenCertifier(
        data, data.in_float64(), side, columns, own, 1e-6, seed, TOL, 60
    ), columns


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_basis_does_not_depend_on_the_random_vectors(counts, monkeypatch, side):
    """With other random vectors, the same steps are made until they ride alone."""
    X, truth = counts
    seen = []
    for seed in (0, 1):
        certifier, columns = _certifier(X, truth[:10], side, seed)
        states = []
        look = certifier.look
        monkeypatch.setattr(
            certifier, "look", lambda s, look=look, states=states: states.append(s.state) or look(s)
        )
        stage = Stage(certifier.priming, 1000, 60, 7, certifier, columns)
        done = lambda _, c=certifier: c.exhausted or c.certificate is not None  # noqa: E731
        follow(stage, done)
        seen.append(states)
    assert len(seen[0]) == len(seen[1])
    for a, b in zip(*seen, strict=True):
        assert np.array_equal(a.projected, b.projected)


# Only more problems of the same kinds wait for the integration tests.
@pytest.mark.parametrize("count", [40, pytest.param(120, marks=pytest.mark.integration)])
def test_no_claim_about_given_components_is_false(count):
    results = checked_fuzz.run(range(count), examiner=checked_fuzz.check_given)
    assert not [line for result in results for line in result.violated]
    assert sum(result.met for result in results) > 0.2 * count
    assert not any(result.met for result in results if result.kind.startswith("lower"))


@pytest.mark.parametrize("trusted", [False, True])
def test_a_planted_miss_that_the_blocks_cannot_find(monkeypatch, trusted):
    """In a basis without the second component, only the random vectors show that it is missing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 150)) * 0.93 ** np.arange(150)
    truth = np.linalg.svd(X - X.mean(axis=0))[2]
    certifier, columns = _certifier(X, truth[[0, 2, 3]], "right")
    real, hidden = given.complete, truth[1]

    def blind(basis, like, count, seed):
        found = real(basis, like, count, seed)
        found[:, 3:] -= np.outer(hidden, hidden @ found[:, 3:])
        return np.linalg.qr(found)[0]

    monkeypatch.setattr(given, "complete", blind)
    if trusted:  # small residuals count as a proof
        monkeypatch.setattr(checks.Riders, "missed", lambda self, findings: self.rho)
    stage = Stage(certifier.priming, 400, 8, 0, certifier, columns)
    follow(stage, lambda _: certifier.exhausted or certifier.certificate is not None)
    assert certifier._riders is not None
    assert (certifier.certificate is not None) == trusted


@pytest.mark.parametrize("outside", [0.0, 1e-3])
def test_the_angle_between_spans_is_bounded(outside):
    """Given vectors inside a basis, refined ones up to a part outside of it of a known length."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        basis = np.linalg.qr(rng.normal(size=(30, 6)))[0]
        back = np.linalg.qr(rng.normal(size=(6, 6)))[0]
        c = back + 0.02 * rng.normal(size=back.shape)
        beyond = rng.normal(size=(30, 6))
        beyond *= outside / np.linalg.norm(beyond, axis=0)
        true = subspace_angles(basis @ back[:, 2:5], (basis @ c + beyond)[:, 2:5])[0]
        found = given._angle(c, np.full(6, outside), back, 2, 5)
        assert true <= found < 4 * true + 4 * outside


def test_a_block_beside_the_components_is_no_wider_than_what_they_leave():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 12)) * 0.8 ** np.arange(12)
    truth = np.linalg.svd(X - X.mean(axis=0))[2]
    certifier, columns = _certifier(X, truth[:10], "right")
    assert certifier.priming.block_size > 2
    stage = Stage(certifier.priming, 12, 60, 0, certifier, columns)
    state = next(snapshot.state for snapshot in stage.snapshots() if snapshot.state.step == 1)
    assert state.newest.shape == (12, 2)
    whole = np.hstack([*state.basis, state.newest])
    assert np.abs(whole.T @ whole - np.eye(12)).max() < 1e-12


def test_no_span_is_said_to_be_farther_than_a_right_angle():
    """Spans of given vectors that are orthogonal to those refined from them."""
    swapped = np.eye(4)[[2, 3, 0, 1]]
    opened = given.Opened(np.arange(4.0, 0, -1), swapped, swapped, np.zeros((4, 4)), None, None)
    refined = given.Refined(opened.values, np.eye(4), np.eye(4), np.eye(4), None, None, 0.0)
    proven = Certificate(
        angle_bounds=np.full(4, 0.1),
        eigenvalue_bounds=np.zeros((4, 2)),
        clusters=[Cluster(0, 2, 0.1), Cluster(2, 4, 0.2)],
        kind="probabilistic",
        failure_probability=1e-6,
        zero=np.zeros(4, dtype=bool),
    )
    rng = np.random.default_rng(0)
    certifier, _ = _certifier(rng.normal(size=(20, 6)), np.eye(6)[:4], "right")
    found = certifier._compared(proven, refined, opened)
    assert found.angle_bounds.tolist() == [math.pi / 2] * 4
    assert found.clusters == [Cluster(0, 2, math.pi / 2), Cluster(2, 4, math.pi / 2)]


# -- with an explicit matrix -----------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    """Dense rows whose covariance matrix is formed, and all their components in float64."""
    rng = np.random.default_rng(4)
    turn = np.linalg.qr(rng.normal(size=(600, 600)))[0]
    X = ((rng.normal(size=(700, 600)) * np.arange(1.0, 601) ** -0.7) @ turn + 3).astype("f4")
    return X, np.linalg.svd(X - X.mean(axis=0, dtype="f8"), full_matrices=False)[2]


@pytest.mark.parametrize("turned", [False, True], ids=["tall", "wide"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_an_explicit_matrix_proves_right_components(table, fits, turned, dtype):
    X = np.ascontiguousarray((table[0].T if turned else table[0]).astype(dtype))
    truth = np.linalg.svd(X - X.mean(axis=0, dtype="f8"), full_matrices=False)[2]
    found = certify(X, truth[:10], random_state=0)
    assert bool(fits) == turned  # with a Gram matrix, a fit reads the data less often
    assert found.met(TOL).all()
    assert found.kind == "probabilistic"
    assert 0 < found.failure_probability <= 1e-6
    assert (angles(truth[:10], truth[:10]) <= found.angle_bounds).all()
    variances = np.linalg.svd(X - X.mean(axis=0, dtype="f8"), compute_uv=False)[:10] ** 2
    low, high = found.eigenvalue_bounds.T
    assert ((low <= variances / (len(X) - 1)) & (variances / (len(X) - 1) <= high)).all()


def test_components_in_another_order_need_no_fit_either(table, fits):
    X, truth = table
    found = certify(X, truth[[1, 0, 2, 3]], random_state=0)
    assert not fits
    assert (found.angle_bounds[:2] > 1.5).all()
    assert found.met(TOL).tolist() == [False, False, True, True]


@pytest.mark.parametrize("kept", [[0, 2, 3], [0, 1, 3]])
def test_a_component_that_was_left_out_is_found(table, fits, kept):
    X, truth = table
    found = certify(X, truth[kept], random_state=0)
    assert len(fits) == 1
    right = [i == place for i, place in enumerate(kept)]
    assert found.met(TOL).tolist() == right


@pytest.mark.parametrize("first", [True, False], ids=["succeeds", "fails"])
def test_the_shares_of_a_fit_do_not_depend_on_the_factorisation(table, monkeypatch, first):
    X, truth = table
    data, columns = Centred(X), np.ascontiguousarray(truth[:3].T)
    options = (BlockKrylov(8, explicit=True), 3, 1e-6, 0, TOL, columns)
    certifier = explicit.GivenMatrixCertifier(data, data.in_float64(), *options)
    real = explicit.GivenMatrixCertifier._factorise

    def factorise(self, *state):
        return real(self, *state) if first else real(self, *state) + math.inf

    monkeypatch.setattr(explicit.GivenMatrixCertifier, "_factorise", factorise)
    assert (certifier.audit(columns) is not None) == first
    assert (certifier._looks, certifier._departures) == (1, 2)
    assert (certifier._best, certifier._at, certifier._restarted) == (math.inf, 0, False)
    assert not certifier._known.size


def test_all_components_of_a_matrix_are_left_to_a_fit(table):
    """There is no variance beside them that could be estimated."""
    X = table[0][:, :12]
    columns = np.linalg.svd(X - X.mean(axis=0))[2].T.astype(float)
    data = Centred(X)
    options = (BlockKrylov(8, explicit=True), 12, 1e-6, 0, TOL, columns)
    certifier = explicit.GivenMatrixCertifier(data, data.in_float64(), *options)
    proof = certifier.audit(np.linalg.qr(columns)[0])
    assert proof is None or proof.certificate.met(1.0).all()


@pytest.mark.parametrize("trusted", [False, True])
def test_a_planted_miss_that_the_factorisation_does_not_show(table, monkeypatch, trusted):
    """Of a matrix without the second component, only the random vectors show that it is wrong."""
    X, truth = table
    data = Centred(X)
    columns, hidden, real = np.ascontiguousarray(truth[[0, 2, 3]].T), truth[1], explicit.factorised
    options = (BlockKrylov(8, explicit=True), 3, 1e-6, 0, TOL, columns)
    certifier = explicit.GivenMatrixCertifier(data, data.in_float64(), *options)

    def blind(square, factor, sigma):
        rest = square - np.outer(hidden, hidden @ square)
        return real((rest - np.outer(rest @ hidden, hidden)).astype(square.dtype), factor, sigma)

    monkeypatch.setattr(explicit, "factorised", blind)
    monkeypatch.setattr(explicit.GivenMatrixCertifier, "_below", lambda self, state: 0.01)
    if trusted:  # a factorisation that ends counts as a proof
        monkeypatch.setattr(explicit, "tau", lambda s, failure: math.inf)
    assert (certifier.audit(columns) is not None) == trusted


# Only more problems of the same kinds wait for the integration tests.
@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.integration)])
def test_no_claim_by_a_factorisation_is_false(count):
    results = checked_fuzz.run(range(count), examiner=checked_fuzz.check_given_matrix)
    assert not [line for result in results for line in result.violated]
    assert sum(result.met for result in results) > 0.2 * count
    assert not any(result.met for result in results if result.kind.startswith("lower"))
