"""The proof of block Krylov in any arithmetic: its parts, and a search for false claims."""

import math
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from checked_fuzz import Problem, are_false, examine, problem, run, summary
from scipy import special
from sklearn.exceptions import ConvergenceWarning

from primedpca import PrimedPCA
from primedpca._certify import bounds, checked, checks
from primedpca._certify.bounds import Evidence, carried, clusters
from primedpca._operator.operator import Centred
from primedpca._solve import driver
from primedpca._solve.driver import Stage
from primedpca.priming import BlockKrylov
from primedpca.priming.block_krylov import looked


def spread(rng, n=60, d=30, ratio=0.8, dtype="f4"):
    """Rows of a falling spectrum."""
    X = rng.normal(size=(n, d)) * ratio ** np.arange(d)
    return (X @ np.linalg.qr(rng.normal(size=(d, d)))[0]).astype(dtype)


def certifier_of(X, priming, k=3, failure=1e-6, seed=0, tol=1.5, start=None):
    data = Centred(X)
    return checked.CheckedCertifier(data, data.in_float64(), priming, k, failure, seed, tol, start)


def steps_of(certifier, width, count):
    """Look at each of the first steps; yield the snapshots."""
    stage = Stage(certifier.priming, width, count, certifier._seed, certifier)
    for snapshot in stage.snapshots():
        certifier.look(snapshot)
        yield snapshot
        if certifier.operator.riders is None:
            certifier.go_on()


# -- no claim is false -----------------------------------------------------------------------


def test_no_claim_of_any_look_is_false():
    results = run(range(130))
    assert not any(r.violated for r in results), summary(results)
    assert sum(r.claims for r in results) > 2500
    assert sum(r.met for r in results) > 45  # the search is not empty


@contextmanager
def variant(changes):
    """A tempting change of the proof that is wrong."""
    with ExitStack() as stack:
        for where, what, wrong in changes():
            stack.enter_context(mock.patch.object(where, what, wrong))
        yield


def trusted_products():
    look = checks.Check.look

    def trusting(self, state, share, seed):
        found = look(self, state, share, seed)
        return found._replace(error=0.0, tests=0 * found.tests, noise=0.0)

    return [(checks.Check, "look", trusting)]


def ritz_gaps():
    def between_values(evidence, k, data, kind, failure, up=None):
        up = np.append(evidence.values, 0.0)
        return bounds.certificate_of(evidence, k, data, kind, failure, up)

    return [(checked, "certificate_of", between_values)]


def missed_by_ritz_values():
    whole = checked.CheckedCertifier._evidence

    def of_ritz_values(self, state, *others):
        found = whole(self, state, *others)
        return None if found is None else replace(found, missed=max(0.0, state.rest))

    return [(checked.CheckedCertifier, "_evidence", of_ritz_values)]


def expected_length():
    return [(checks, "tau", lambda s, failure: math.sqrt(s))]


def exact_rides():
    errors = checks.Riders._errors
    return [(checks.Riders, "_errors", lambda *args: [0 * part for part in errors(*args)])]


VARIANTS = {
    "trusted products": trusted_products,
    "gaps between Ritz values": ritz_gaps,
    "missed variance from Ritz values": missed_by_ritz_values,
    "the expected length of a Gaussian vector": expected_length,
}


@pytest.mark.parametrize("name", VARIANTS)
def test_tempting_variants_are_found_false_on_the_same_problems(name):
    with variant(VARIANTS[name]):
        assert are_false(4, range(80))


def blind(seed):
    """Products in which the top component is missing, and a start that misses it as well."""
    rng = np.random.default_rng(seed)
    X = spread(rng, ratio=0.9)
    vectors = np.linalg.svd(X - X.mean(axis=0))[2]
    top = vectors[0]
    liar = X - np.outer((X - X.mean(axis=0)) @ top, top)
    start = np.ascontiguousarray(vectors[1:5].T)
    return Problem(X, 3, BlockKrylov(4), 1e-6, 1.5, 6, seed, start, liar.astype("f4"))


def test_products_that_hide_a_component_are_found_out_unless_their_errors_count_as_zero(
    monkeypatch,
):
    monkeypatch.setattr(checked.CheckedCertifier, "_edge", lambda self, state, k: 1e-9)
    assert not any(examine(blind(seed)).violated for seed in range(6))
    with variant(exact_rides):
        assert sum(bool(examine(blind(seed)).violated) for seed in range(6)) >= 4


def test_a_start_at_the_random_vectors_is_found_false(monkeypatch):
    monkeypatch.setattr(checked.zlib, "crc32", lambda start: 0)
    # Any rho will do; a low one does not hide what was missed.
    monkeypatch.setattr(checked.CheckedCertifier, "_edge", lambda self, state, k: 1e-9)
    X, falses = spread(np.random.default_rng(0), 150, 90, ratio=0.97), 0
    for seed in range(3):
        p = Problem(X, 3, BlockKrylov(8), 1e-6, 0.1, 8, seed)
        assert not examine(p).violated
        # The same vectors, as a start that a checksum does not tell from none.
        p.start = certifier_of(X, p.priming, seed=seed).check.omega
        falses += bool(examine(p).violated)
    assert falses == 3


def test_undivided_failure_probability_is_found_false(monkeypatch):
    # A new departure at every look, and one eigenvalue ahead of all others: independent events.
    monkeypatch.setattr(checks, "RIDES", 0)
    monkeypatch.setattr(checked, "PATIENCE", 99)
    monkeypatch.setattr(checked.CheckedCertifier, "_edge", lambda self, state, k: 1e-9)
    rng, failure, runs = np.random.default_rng(0), 0.3, 60
    left = np.linalg.qr(rng.normal(size=(40, 16)) - 0.5)[0]
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    X = (left * 0.45 ** np.arange(16)) @ np.linalg.qr(rng.normal(size=(16, 16)))[0]

    def false_fits():
        problems = (Problem(X, 1, BlockKrylov(1), failure, 1.5, 14, seed) for seed in range(runs))
        return sum(bool(examine(p).violated) for p in problems)

    assert false_fits() <= 0.5 * failure * runs
    # r (r + 1) = 1: every departure has all that there is for departures.
    always = property(lambda self: (math.sqrt(5) - 1) / 2, lambda self, value: None)
    with mock.patch.object(checked.CheckedCertifier, "_departures", always, create=True):
        assert false_fits() > failure * runs


# -- what depends on the random vectors ------------------------------------------------------


def test_the_random_vectors_are_none_that_block_krylov_draws():
    X = np.random.default_rng(0).normal(size=(30, 20))
    for seed in range(3):
        omega = certifier_of(X, BlockKrylov(8), seed=seed).check.omega
        drawn = [np.random.default_rng((seed, step)).standard_normal(20) for step in range(30)]
        assert not np.isin(np.stack(drawn), omega).any()


def test_random_vectors_of_another_start_are_others():
    X = spread(np.random.default_rng(0))
    starts = [None, np.eye(30, 3), np.eye(30, 4)]
    first = [certifier_of(X, BlockKrylov(), start=s).check.omega[0, 0] for s in starts]
    assert len(set(first)) == 3


def test_the_priming_does_not_depend_on_the_random_vectors():
    X, found = spread(np.random.default_rng(1), 200, 60, 0.95), []
    original = checked.CheckedCertifier._ride_alone
    for draw in (0, 1):
        certifier, widths = certifier_of(X, BlockKrylov(3), tol=0.1), []
        # Neither very short nor very long ones may change what the priming does.
        omega = np.random.default_rng(draw).standard_normal((60, 8)) * 20.0**draw
        certifier.check.omega = omega
        with mock.patch.object(checked.CheckedCertifier, "_ride_alone", autospec=True) as alone:
            alone.side_effect = original
            for last in steps_of(certifier, 4, 20):
                certifier.go_on()
                riders = certifier.operator.riders
                widths.append((0 if riders is None else riders.shape[1], certifier._departures))
                basis = np.concatenate(last.state.basis, axis=1)
        assert alone.call_count > 0
        found.append((basis, widths, certifier.spent))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert max(found[0][1])[0] == checks.RIDERS
    assert found[0][1:] == found[1][1:]


def test_riders_do_not_depend_on_each_other():
    X = spread(np.random.default_rng(2), ratio=0.95)
    certifier = certifier_of(X, BlockKrylov(2))
    for _ in steps_of(certifier, 4, 7):
        pass
    riders, cast = certifier._riders, []
    image = riders.images[-1].copy()
    for factor in (1.0, 2.0**150):
        riders.images[-1] = image * np.append(factor, np.ones(7))
        cast.append(riders.board(np.float32)[:, 1:])
        riders.images[-1] = image
    np.testing.assert_array_equal(*cast)


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_parts_of_looks_and_departures_add_up_to_the_failure_probability(monkeypatch, side):
    looks, departures = [], []

    def counted(owner, name, at, parts):
        method = getattr(owner, name)

        def wrapper(self, *args):
            parts.append(args[at])
            return method(self, *args)

        monkeypatch.setattr(owner, name, wrapper)

    counted(checks.Check, "look", 1, looks)
    counted(checks.Check, "columns", 2, looks)
    counted(checks.Riders, "__init__", 3, departures)
    monkeypatch.setattr(checks, "RIDES", 2)  # so that they depart more than once
    failure, most, total = 1e-3, 0, 0.0
    X = spread(np.random.default_rng(2), 200, 60, 0.9)
    certifier = certifier_of(X, BlockKrylov(2, side=side), failure=failure, tol=0.1)
    for snapshot in steps_of(certifier, 4, 12):
        r = certifier._looks
        if looks:
            assert sum(looks) <= failure / 2 / r / (r + 1) * (1 + 1e-12)
            most = max(most, len(looks))
        total += sum(looks)
        looks.clear()
        last = snapshot
    assert most == (3 if side == "left" else 2)
    conclusion = certifier.conclude(last)
    total += sum(looks) + sum(departures)
    assert len(departures) > 1
    assert sum(departures) <= failure / 2
    assert total <= certifier.spent * (1 + 1e-12) <= failure
    assert conclusion.certificate.failure_probability == certifier.spent


def test_the_parts_of_a_departure_add_up_to_its_share(monkeypatch):
    X, parts = spread(np.random.default_rng(2), 200, 60, 0.9), []
    certifier = certifier_of(X, BlockKrylov(2), tol=0.1)
    *_, snapshot = steps_of(certifier, 4, 8)
    riders, tau, tau_of_sum = certifier._riders, checks.tau, checks.tau_of_sum
    findings = certifier.check.look(looked(snapshot.state), 1e-6, 0)
    monkeypatch.setattr(checks, "tau", lambda s, f: parts.append((s, f)) or tau(s, f))
    monkeypatch.setattr(checks, "tau_of_sum", lambda s, f: parts.append((0, f)) or tau_of_sum(s, f))
    riders.missed(findings)
    # Every column of the first image and of each later one is tested by the others, the latter
    # twice, and six vectors test what lies along the basis.
    each = {s: [f for t, f in parts if t == s] for s in (0, 7, 8)}
    assert [len(each[s]) for s in (0, 8)] == [1, 1]
    own, *images = each[7]
    assert len(images) == len(riders.images) > 1
    parts.clear()
    riders.board(np.float32)
    ((width, inside),) = parts
    assert width == checks.SKEW
    columns = own + 2 * (checks.RIDES + 1) * max(images) + checks.RIDES * inside
    assert each[0][0] + each[8][0] + checks.RIDERS * columns <= riders.share * (1 + 1e-12)


def test_the_number_of_a_look_does_not_depend_on_the_random_vectors(monkeypatch):
    # Otherwise the random vectors would choose the basis that is looked at with the first share.
    X, numbers = spread(np.random.default_rng(3), 100, 40, 0.9), []
    for may in (True, False):
        monkeypatch.setattr(checked.CheckedCertifier, "_may_prove", lambda *args, may=may: may)
        certifier = certifier_of(X, BlockKrylov(3), tol=0.1)
        numbers.append([(certifier._looks, certifier.spent) for _ in steps_of(certifier, 4, 9)])
    assert numbers[0] == numbers[1]
    assert numbers[0][-1][0] > 2


def test_the_end_of_a_fit_repeats_the_look_at_its_last_step():
    certifier = certifier_of(spread(np.random.default_rng(3), ratio=0.7), BlockKrylov(3), tol=0.1)
    *_, snapshot = steps_of(certifier, 4, 6)
    assert certifier._looks > 0
    spent = certifier.spent
    assert certifier.conclude(snapshot).certificate.failure_probability == spent


def test_a_second_stage_has_only_what_the_first_left_of_the_failure_probability(monkeypatch):
    given, spent = [], []
    original, look = driver.ProbeCertifier.__init__, checks.Check.look
    depart = checks.Riders.__init__

    def recorded(self, data, priming, wanted, failure, *others, **options):
        given.append(failure)
        original(self, data, priming, wanted, failure, *others, **options)

    def skew(self, state, share, seed):
        spent.append(2 * share)
        return look(self, state, share, seed)._replace(skew=1.0)

    def departed(self, check, state, rho, share, seed):
        spent.append(share)
        depart(self, check, state, rho, share, seed)

    monkeypatch.setattr(driver.ProbeCertifier, "__init__", recorded)
    monkeypatch.setattr(checks.Check, "look", skew)
    monkeypatch.setattr(checks.Riders, "__init__", departed)
    X = spread(np.random.default_rng(4), n=300, d=60, ratio=0.9)
    options = {"tol": 1e-3, "failure_probability": 0.01, "random_state": 0}
    assert PrimedPCA(4, priming=BlockKrylov(4), **options).fit(X).converged_
    assert len(given) == 1
    assert len(spent) > 2
    assert 0 < given[0] <= 0.01 - sum(set(spent)) + 1e-15


def test_the_vectors_that_are_mapped_do_not_depend_on_a_proven_number(monkeypatch):
    X, seen = spread(np.random.default_rng(5), n=2000, ratio=0.995), []
    columns = checks.Check.columns

    def recorded(self, findings, turn, share):
        seen[-1][-1].append(turn)
        return columns(self, findings, turn, share)

    monkeypatch.setattr(checks.Check, "columns", recorded)
    for more in (0, 2):
        monkeypatch.setattr(
            checked, "fewest", lambda *args, more=more: (bounds.fewest(*args)[1] + more,) * 2
        )
        certifier = certifier_of(X, BlockKrylov(6, side="left"), k=0.2)
        seen.append([])
        for snapshot in steps_of(certifier, 5, 5):
            seen[-1].append([])
            certifier.conclude(snapshot)
    mapped = [pair for pair in zip(*seen, strict=True) if min(map(len, pair)) == 2]
    assert len(mapped) > 2
    for pair in mapped:
        np.testing.assert_array_equal(*(turns[1] for turns in pair))


# -- parts of the proof ----------------------------------------------------------------------


def test_residuals_of_mapped_vectors_grow_with_the_skew_of_the_basis(monkeypatch):
    certifier = certifier_of(spread(np.random.default_rng(3), 100, 40), BlockKrylov(3, side="left"))
    mapped, right = checked.CheckedCertifier._mapped, checked.CheckedCertifier._right
    seen = []

    def twice(self, state, findings, *others):
        for skew in (0.0, 0.25):
            found = mapped(self, state, findings._replace(skew=skew), *others)
        return found

    def recorded(self, theta, b, *others):
        seen.append(b)
        return right(self, theta, b, *others)

    monkeypatch.setattr(checked.CheckedCertifier, "_mapped", twice)
    monkeypatch.setattr(checked.CheckedCertifier, "_right", recorded)
    list(steps_of(certifier, 4, 5))
    assert np.abs(seen[0]).max() > 0
    np.testing.assert_allclose(seen[1], 1.25 * seen[0], rtol=1e-14)


def test_quantiles_of_lengths_and_sums():
    rng = np.random.default_rng(6)
    squares = rng.standard_normal((20000, 8, 3)) ** 2
    for failure in (0.3, 0.05, 0.01):
        short = np.sqrt(squares[:, :, 0].sum(axis=1)) < checks.tau(8, failure)
        assert abs(short.mean() - failure) < 5 * math.sqrt(failure / 20000)
        for weights in ([1, 0, 0], [0.5, 0.3, 0.2], [0.9, 0.05, 0.05]):
            sums = (squares * weights).sum(axis=(1, 2))
            assert (sums < checks.tau_of_sum(8, failure) ** 2).mean() <= failure


def test_a_column_is_tested_by_all_others_however_large_its_own_test_is():
    X = spread(np.random.default_rng(2), ratio=0.95)
    certifier = certifier_of(X, BlockKrylov(2))
    for _ in steps_of(certifier, 4, 7):
        pass
    tests = 1e-9 * np.ones((8, 8)) + np.eye(8)
    sizes = certifier._riders._by_others(tests, 0.0, 0.1)
    expected = math.sqrt(7) * 1e-9 / checks.tau(7, 0.1 / (2 * (checks.RIDES + 1) * 8))
    np.testing.assert_allclose(sizes, expected)


def test_polynomials_of_the_rides_and_their_root():
    x = np.linspace(1.0, 3.0, 5)
    for n in range(checks.RIDES + 1):
        first, *others = checks._chebyshev(n)
        np.testing.assert_allclose(np.polyval(first[::-1], x - 1), special.eval_chebyt(n, x))
        assert len(others) == n
        for j, other in enumerate(others, start=1):
            expected = special.eval_chebyu(n - j, x)
            np.testing.assert_allclose(np.polyval(other[::-1], x - 1), expected)
    rng = np.random.default_rng(0)
    for _ in range(200):
        f = 10.0 ** rng.uniform(-8, 8, rng.integers(2, 16))
        f[0] *= -1
        root = checks._root(f)
        assert np.polyval(f[::-1], root) >= 0 > np.polyval(f[::-1], root * (1 - 1e-6))
    assert checks._root(np.array([0.1, 1.0])) == 0.0
    assert checks._root(np.array([-1.0, 2.0, 0.0])) == math.inf


def test_what_rounding_changes_when_vectors_board_counts():
    certifier = certifier_of(spread(np.random.default_rng(2), ratio=0.95), BlockKrylov(2))
    for _ in steps_of(certifier, 4, 7):
        pass
    riders, rng = certifier._riders, np.random.default_rng(0)
    basis = np.concatenate(riders.basis, axis=1).astype(np.longdouble)
    # Nearly all of the image lies along the basis, and what is subtracted is rounded.
    image = (basis @ rng.normal(size=(basis.shape[1], 8)) * 1e9).astype("f8")
    image += rng.normal(size=image.shape)
    riders.images[-1], riders.tests[-1] = image, np.zeros((8, 8))
    riders.board(np.float64)
    change = riders.images[-1].astype(np.longdouble) - image
    inside = np.linalg.qr(basis.astype("f8"))[0].astype(np.longdouble)
    for _ in range(2):  # the factor of LAPACK is orthonormal in float64 only
        gram = inside.T @ inside
        inside = inside @ (1.5 * np.eye(len(gram)) - gram / 2)
    for _ in range(2):
        change -= inside @ (inside.T @ change)
    moved = np.sqrt((change**2).sum(axis=0)).astype("f8")
    assert moved.max() > 1e-9
    n = len(riders.images) - 1
    assert (moved <= riders._by_others(riders.tests[n], riders._noise(n), 0.1)).all()
    # What still lies along the basis is known, too.
    inside = np.linalg.norm(basis.T @ riders.images[-1].astype(np.longdouble), axis=0)
    assert (inside <= riders.inside[-1]).all()


def test_the_number_of_rides_can_be_estimated_whatever_rounding_has_done():
    certifier = certifier_of(spread(np.random.default_rng(2), ratio=0.95), BlockKrylov(2))
    *_, snapshot = steps_of(certifier, 4, 3)
    state = looked(snapshot.state)
    tiny = state._replace(variances=state.variances * 1e-200)
    for other in (state._replace(rest=-1e3), tiny):
        assert 1 <= certifier._rides(other, 3) <= checks.RIDES


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("max_basis", [None, 12])
def test_the_relation_of_a_basis_holds_after_every_step_and_restart(side, max_basis):
    X = spread(np.random.default_rng(7), ratio=0.95, dtype="f8")
    rows = (X - X.mean(axis=0)) / math.sqrt(len(X))
    square = rows.T @ rows if side == "right" else rows @ rows.T
    data, priming, smallest = Centred(X), BlockKrylov(3, max_basis, side), 99
    for snapshot in Stage(priming, 4, 9, 0, checked.NoCertifier(data)).snapshots():
        state = looked(snapshot.state)
        v, w = np.concatenate(state.basis, axis=1), state.coupling.shape[1]
        error = square @ v - v @ state.projected
        error[:, v.shape[1] - w :] -= state.newest @ state.coupling
        assert np.linalg.norm(error) < 1e-12
        turned = state.coupling @ state.turn[v.shape[1] - w :]
        np.testing.assert_allclose(turned, state.residual, atol=1e-12)
        smallest = min(smallest, v.shape[1]) if snapshot.step > 4 else 99
    assert (smallest < 12) == (max_basis is not None)


def test_errors_outside_the_span_count_for_clusters():
    # A pair of equal variances whose residuals are not known, only their sizes.
    theta, sizes, rest = np.array([1.0, 0.999, 0.3]), np.array([0.05, 0.05, 0.01]), 0.1
    square = np.diag([*theta, rest, rest, rest])
    square[3, 0] = square[0, 3] = sizes[0]
    square[4, 1] = square[1, 4] = sizes[1]
    vectors = np.linalg.eigh(square)[1][:, :-3:-1]
    true = math.asin(np.linalg.norm(vectors[2:], ord=2))
    evidence = Evidence(theta, np.zeros((1, 3)), rest, 1e-12, columns=sizes, outside=True)
    up = np.linalg.eigvalsh(square)[::-1][:4] + 1e-9
    up[3] = rest
    ((start, stop, bound),) = clusters(evidence, 2, up)
    assert (start, stop) == (0, 2)
    assert true <= bound < 0.2


def evidence_since_a_departure(rng):
    """Evidence of a basis of which some vectors came after ``mu`` was known, and its matrix."""
    at, m, n = (int(i) for i in np.cumsum(rng.integers(1, 5, 3)))
    square = rng.normal(size=(n, n)) * 10.0 ** -rng.uniform(0, 1.5)
    square += square.T + np.diag(np.sort(rng.uniform(0, 3, n))[::-1])
    square[m:, :at] = square[:at, m:] = 0.0  # as in a Krylov basis, whose first blocks stay inside
    square += (1e-3 - min(0.0, np.linalg.eigvalsh(square)[0])) * np.eye(n)
    mu = float(np.linalg.eigvalsh(square[at:, at:])[-1]) * (1 + 10.0 ** -rng.uniform(2, 9))
    lift = square[m:, at:m]
    relief = lift @ np.linalg.solve(mu * np.eye(m - at) - square[at:m, at:m], lift.T)
    theta, turn = np.linalg.eigh(square[:m, :m])
    turn = turn[:, ::-1]
    evidence = Evidence(theta[::-1].copy(), square[m:, :m] @ turn, mu, 1e-14, relief=relief)
    return evidence, square, np.concatenate([turn, np.zeros((n - m, m))])


def test_bounds_that_use_the_steps_since_a_departure():
    rng, sharper, single = np.random.default_rng(10), 0, 0
    for _ in range(500):
        evidence, square, vectors = evidence_since_a_departure(rng)
        values, true = np.linalg.eigh(square)
        up, p = bounds.upper(evidence), evidence.values.size
        assert (values[::-1][: p + 1] <= up[: values.size] + 1e-12).all()
        assert bounds.topmost(evidence) >= up[0] - 1e-12
        sharper += up[0] < bounds.upper(replace(evidence, relief=None))[0] - 1e-6
        for i, angle in enumerate(bounds.angle_bounds(evidence, p, up)):
            cosine = min(1.0, abs(float(vectors[:, i] @ true[:, -1 - i])))
            assert math.acos(cosine) <= angle + 1e-7
            single += angle < 1.5
    assert sharper > 100
    assert single > 100


def test_good_starts_need_no_more_passes_than_random_ones():
    spread = np.arange(1, 301) ** -0.7
    X = (np.random.default_rng(0).standard_normal((1500, 300)) * spread).astype("f4")
    pca = PrimedPCA(12, priming=BlockKrylov(16), warm_start=True, random_state=0).fit(X)
    cold = pca.n_passes_
    assert pca.fit(X).converged_
    assert pca.n_passes_ <= cold + 1


def mapped_evidence(rng):
    """Evidence of right vectors that are mapped from the left without any error, and the truth."""
    n = int(rng.integers(3, 7))
    p = int(rng.integers(2, n))
    values = np.sort(10.0 ** -rng.uniform(0, 1.5, n))[::-1]
    basis = np.eye(n, p) + rng.normal(size=(n, p)) * 10.0 ** -rng.uniform(0.3, 2)
    basis = np.linalg.qr(basis)[0]
    theta, turn = np.linalg.eigh(basis.T @ (values[:, None] * basis))
    theta, left = theta[::-1], basis @ turn[:, ::-1]
    residual = values[:, None] * left - left * theta
    rest = np.eye(n) - left @ left.T
    alpha = float(np.linalg.eigvalsh(rest @ np.diag(values) @ rest)[-1])
    b = residual * np.sqrt(alpha / theta)
    cross = np.linalg.norm(residual / np.sqrt(theta), ord=2) / math.sqrt(alpha)
    crosses = np.minimum(np.linalg.norm(b, axis=0) / alpha, cross)
    known = {"columns": np.full(p, 1e-15), "cross": cross, "crosses": crosses, "outside": True}
    vectors = np.sqrt(values)[:, None] * left / np.sqrt(theta)
    return Evidence(theta, b, alpha, 1e-15, **known), values, vectors


@pytest.mark.parametrize("seed", [947, 7447, *range(200)])
def test_bounds_on_single_vectors_from_the_left(seed):
    evidence, values, vectors = mapped_evidence(np.random.default_rng(seed))
    up = np.append(values[: evidence.values.size] + 1e-13, evidence.missed)
    for i, angle in enumerate(bounds.angle_bounds(evidence, 2, up)):
        assert math.asin(np.linalg.norm(np.delete(vectors[:, i], i))) <= angle * (1 + 1e-9)


def test_carried_bounds_hold_for_vectors_that_are_not_orthonormal():
    rng = np.random.default_rng(8)
    for _ in range(200):
        d, p = 12, 4
        values = np.sort(10.0 ** -rng.uniform(0, 4, d))[::-1]
        square = np.diag(values)
        skew = 10.0 ** -rng.uniform(2, 6)
        basis = np.eye(d, p) + skew * rng.normal(size=(d, p)) / 20
        small = basis.T @ square @ basis
        theta, turn = np.linalg.eigh((small + small.T) / 2)
        theta, vectors = theta[::-1], basis @ turn[:, ::-1]
        residual = square @ vectors - vectors * theta
        off = np.linalg.norm(vectors.T @ vectors - np.eye(p), ord=2)
        inside = np.linalg.qr(vectors)[0]
        outside = np.eye(d) - inside @ inside.T
        top = np.linalg.eigvalsh(outside @ square @ outside)[-1]
        e = 1.1 * np.linalg.norm(residual)
        sizes = np.linalg.norm(residual, axis=0)
        evidence = Evidence(theta, np.zeros((0, p)), 0.0, e, columns=sizes, skew=off)
        assert top <= carried(evidence, values[: p + 1]) * (1 + 1e-9)


def test_a_change_of_zero_and_tiny_probabilities_are_no_errors():
    X = np.zeros((30, 12), "f4")
    X[:, :3] = np.random.default_rng(9).integers(-3, 4, (30, 3))
    for options in ({}, {"failure_probability": 5e-324}):
        for side in ("right", "left"):
            pca = PrimedPCA(3, priming=BlockKrylov(1, side=side), random_state=0, **options).fit(X)
            assert pca.converged_


def test_problems_of_the_search_are_of_every_kind():
    kinds = [problem(seed) for seed in range(160)]
    assert {p.priming.side for p in kinds} == {"right", "left"}
    assert any(p.start is not None for p in kinds)
    assert any(p.liar is not None for p in kinds)
    assert any(isinstance(p.k, float) for p in kinds)


@pytest.mark.parametrize("max_passes", [20, 24])
def test_rides_without_the_priming_count_among_the_passes(max_passes):
    spread = np.r_[2.0, 1.6, 1.3, np.full(597, 1.1)]
    X = (np.random.default_rng(0).standard_normal((6000, 600)) * spread).astype("f4")
    pca = PrimedPCA(3, priming=BlockKrylov(16), tol=0.05, max_passes=max_passes, random_state=0)
    with pytest.warns(ConvergenceWarning):
        pca.fit(X)
    assert pca.n_passes_ <= max_passes


@pytest.mark.parametrize("side", ["right", "left"])
def test_rows_of_tiny_weight_that_float32_cannot_hold(side):
    rng = np.random.default_rng(0)
    X = np.vstack([1e13 * rng.standard_normal((6, 14)), rng.standard_normal((6, 14))])
    weights = np.r_[np.full(6, 1e-200), np.full(6, 1e9)]
    pca = PrimedPCA(2, priming=BlockKrylov(block_size=4, side=side), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        pca.fit(X.astype("f4"), sample_weight=weights)
    truth = np.linalg.eigvalsh(np.cov(X[6:].astype("f4").astype("f8").T, bias=True))[::-1]
    low, high = pca.certificate_.eigenvalue_bounds.T
    assert ((low <= truth[:2] * (1 + 1e-6)) & (truth[:2] <= high * (1 + 1e-6))).all()


def test_upper_bounds_hold_whatever_the_unknown_parts_of_the_residuals_are():
    rng = np.random.default_rng(0)
    for _ in range(300):
        theta, mu = np.sort(rng.uniform(1, 4, 3))[::-1], 0.5
        known, unknown = 0.3 * rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
        phi = rng.uniform(0.01, 1.0, 3)
        unknown *= phi / np.linalg.norm(unknown, axis=0)
        rest = np.linalg.qr(rng.normal(size=(5, 5)))[0]
        rest = (rest * rng.uniform(0, mu, 5)) @ rest.T
        off = known + unknown
        exact = np.linalg.eigvalsh(np.block([[np.diag(theta), off.T], [off, rest]]))[::-1]
        found = checked.CheckedCertifier._up(
            mock.Mock(_ceiling=np.full(4, np.inf)), Evidence(theta, known, mu, 0.0), phi
        )
        assert (exact[:4] <= found * (1 + 1e-12)).all()


@pytest.mark.parametrize("failure", [1e-60, 1e-75, 1e-99])
def test_failure_probabilities_near_the_smallest(failure):
    """Their quantiles are tiny, but not zero."""
    assert checks.tau_of_sum(8, failure) > 0
    X = np.random.default_rng(0).normal(size=(900, 700)).astype("f4") * 0.8 ** np.arange(700)
    model = PrimedPCA(3, failure_probability=failure, random_state=0).fit(X.astype("f4"))
    assert model.certificate_.met(math.pi / 1024).all()
    assert model.certificate_.failure_probability <= failure
