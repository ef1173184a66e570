"""What is special to one priming: the power method, exact, Frequent Directions, subspace."""

from __future__ import annotations

import dataclasses

import catalogue
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from catalogue import EPS, PROBLEMS, VARIANCE_ERROR, angle_error

from primedpca import PrimedPCA, prime
from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred
from primedpca._planning.plan import make_plan
from primedpca._solve.driver import Goal, solve
from primedpca.metrics import angles, subspace_error
from primedpca.priming import (
    REGISTRY,
    BlockKrylov,
    EigenGame,
    Exact,
    FrequentDirections,
    Oja,
    PowerMethod,
    SubspaceIteration,
)
from primedpca.result import Status

TALL, LINEAR, WIDE, LOW_RANK = PROBLEMS
everywhere = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])


def run(X, priming, p, **options):
    return list(prime(X, priming, p, **{"random_state": 0} | options))


@pytest.mark.parametrize("name", REGISTRY)
def test_options_cannot_be_changed_later(name):
    priming = REGISTRY[name]()
    for field in dataclasses.fields(priming):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(priming, field.name, 1)
    assert priming == REGISTRY[name]()
    assert hash(priming) == hash(REGISTRY[name]())


# -- the power method ------------------------------------------------------------------------


@dtypes
def test_the_power_method_against_its_definition(dtype):
    """x <- M x / |M x| until |x_i - x_{i+1}| < epsilon, beside what was found before."""
    X = TALL.X.astype(dtype)
    priming, p = PowerMethod(epsilon=1e-3), 4
    data = Centred(X)
    start = priming.init(data.like, p, 0).vectors
    C = np.cov(X.astype(np.float64), rowvar=False, bias=True)
    shots = run(X, priming, p, max_passes=500)
    vectors, steps = start.astype(np.float64), 0
    for j in range(p):
        found, x = vectors[:, :j], vectors[:, j]
        while True:
            new = C @ x
            new -= found @ (found.T @ new)
            new /= np.linalg.norm(new)
            moved, x, steps = np.linalg.norm(new - x), new, steps + 1
            if moved < priming.epsilon:
                break
        vectors[:, j] = x
        vectors = np.linalg.qr(vectors)[0] * np.sign(np.diag(np.linalg.qr(vectors)[1]))
    assert len(shots) == steps
    assert np.abs(shots[-1].directions - vectors).max() < 1e3 * EPS[X.dtype]


@pytest.mark.parametrize("epsilon", [1e-2, 1e-5, 1e-8])
def test_epsilon_says_how_well_a_component_is_known(epsilon):
    """A last step of less than epsilon leaves epsilon r / (1 - r), r the ratio of variances."""
    shots = run(TALL.X, PowerMethod(epsilon=epsilon), 1, max_passes=1000)
    off = angles(shots[-1].directions.T, TALL.components[:1])[0]
    assert off < epsilon * 0.7 / (1 - 0.7) * 1.1
    before = angles(shots[-3].directions.T, TALL.components[:1])[0]
    assert before > epsilon  # it did not run on for nothing


def test_every_component_has_its_own_steps():
    shots = run(LINEAR.X, PowerMethod(epsilon=1e-9, max_steps=6), 4)
    places = [(shot.state.component, shot.state.iteration) for shot in shots]
    assert places[:6] == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 0)]
    assert len(shots) == 24
    assert shots[-1].state.unsettled == 1  # the first of them, counted from 1
    assert run(TALL.X, PowerMethod(epsilon=1e-2), 4, max_passes=500)[-1].state.unsettled == 0


def test_the_power_method_shows_what_it_has():
    widths = [shot.directions.shape[1] for shot in run(TALL.X, PowerMethod(max_steps=3), 4)]
    assert widths == [1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4]


@dtypes
@everywhere
def test_the_power_method_stays_orthogonal(problem, dtype):
    for shot in run(problem.X.astype(dtype), PowerMethod(max_steps=5), 8):
        V = shot.directions.astype(np.float64)
        assert np.abs(V.T @ V - np.eye(V.shape[1])).max() < 100 * EPS[np.dtype(dtype)]


def test_the_power_method_goes_on_beyond_the_rank():
    shots = run(LOW_RANK.X, PowerMethod(), 12, max_passes=300)
    V = shots[-1].directions
    assert V.shape == (20, 12)
    assert subspace_error(np.linalg.qr(V)[0].T[:8], LOW_RANK.components) < 1e-8
    assert np.abs(V.T @ V - np.eye(12)).max() < 1e-13
    # Nothing is left beside the eight: each of the rest ends after few steps.
    assert sum(shot.state.component >= 8 for shot in shots) < 12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 0.0}, "`epsilon`=0.0 must be a number between 0 and 2"),
        ({"epsilon": 2.0}, "`epsilon`=2.0"),
        ({"epsilon": float("nan")}, "`epsilon`=nan"),
        ({"max_steps": 0}, "`max_steps`=0 must be an integer of at least 1, or None"),
    ],
)
def test_the_power_method_refuses_by_name(options, words):
    with pytest.raises(ValueError, match=words):
        PowerMethod(**options)


# -- exact -----------------------------------------------------------------------------------


def exact(X, p):
    data = Centred(X)
    state = Exact().step(Exact().init(data.like, p, 0), data)
    basis, variances = Exact().refined(state, data)
    return to_numpy(basis), variances, data


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array, torch.tensor])
def test_the_covariance_and_the_gram_matrix_agree(kind):
    """The same rows with enough zero columns beside them are wide, and have the same PCA."""
    X = TALL.X[:40]
    wide = np.column_stack([X, np.zeros((40, 100))])
    narrow_basis, narrow, _ = exact(kind(X), 10)
    wide_basis, by_gram, _ = exact(kind(wide), 10)
    assert np.abs(narrow - by_gram).max() < VARIANCE_ERROR[X.dtype] * narrow[0]
    gap = -np.diff(narrow).max() / narrow[0]
    assert angles(wide_basis[:24].T, narrow_basis.T).max() < angle_error(X.dtype, gap, 140)
    assert not wide_basis[24:].any()


@dtypes
@everywhere
def test_exact_has_every_variance_and_an_orthonormal_basis(problem, dtype):
    X = problem.X.astype(dtype)
    p = min(X.shape)
    basis, variances, _ = exact(X, p)
    wide = X.astype(np.float64)
    singular = np.linalg.svd(wide - wide.mean(0), compute_uv=False)
    expected = singular**2 / len(X)
    assert np.abs(variances - expected[:p]).max() < VARIANCE_ERROR[X.dtype] * expected[0]
    assert basis.shape == (X.shape[1], p)
    V = basis.astype(np.float64)
    assert np.abs(V.T @ V - np.eye(p)).max() < 50 * EPS[X.dtype]
    assert (variances >= 0).all()


@pytest.mark.parametrize("p", [1, 5, 6, 24])
def test_a_few_vectors_are_the_first_of_all(p):
    """Few of a large matrix are found by another routine of LAPACK."""
    basis, variances, _ = exact(TALL.X, p)
    everything, all_variances, _ = exact(TALL.X, 24)
    assert np.allclose(variances, all_variances[:p], rtol=1e-11)
    assert angles(basis[:, :5].T, everything[:, : min(5, p)].T).max() < 1e-11


def test_exact_needs_one_pass_where_blocks_lie_along_the_longer_side():
    assert exact(TALL.X, 3)[2].passes == 1
    assert exact(WIDE.X, 3)[2].passes == 2  # the Gram matrix, then from left to right vectors


def test_exact_by_gram_with_more_directions_than_rows():
    basis, variances, _ = exact(WIDE.X, 60)
    assert basis.shape == (150, 40)
    assert variances.shape == (40,)
    assert np.abs(basis.T @ basis - np.eye(40)).max() < 1e-13


def test_exact_by_gram_beyond_the_rank():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 5)) @ rng.standard_normal((5, 90))
    basis, variances, _ = exact(X, 20)
    assert np.abs(basis.T @ basis - np.eye(20)).max() < 1e-13
    assert variances[5:].max() < 1e-13 * variances[0]
    M = X - X.mean(axis=0)
    assert np.abs(M - M @ basis[:, :5] @ basis[:, :5].T).max() < 1e-11


# -- Frequent Directions ---------------------------------------------------------------------


def sketch(X, size, batch_size=1000, p=3):
    shot = run(X, FrequentDirections(size), p, batch_size=batch_size)[-1]
    return shot.state, FrequentDirections(size).slack(shot.state)


DATA = {
    "geometric": TALL.X,
    "linear": LINEAR.X,
    "wide": WIDE.X,
    "rank 8": LOW_RANK.X,
    "noise": np.random.default_rng(0).standard_normal((400, 30)),
    "sparse": sp.random_array((300, 40), density=0.1, rng=np.random.default_rng(1)).toarray(),
    "sorted by size": np.sort(np.random.default_rng(2).standard_normal((200, 12)), axis=0),
    "one loud row last": np.vstack(
        [np.random.default_rng(3).normal(size=(150, 9)), np.full(9, 50)]
    ),
    "constant": np.ones((50, 6)),
}


@dtypes
@pytest.mark.parametrize("batch_size", [1, 17, 1000])
@pytest.mark.parametrize("size", [3, 8, 20])
@pytest.mark.parametrize("name", DATA)
def test_what_a_sketch_loses_is_bounded(name, size, batch_size, dtype):
    """0 <= M^T M - B^T B <= slack I, eigenvalue by eigenvalue."""
    X = DATA[name].astype(dtype)
    state, slack = sketch(X, size, batch_size)
    M = X.astype(np.float64)
    M -= M.mean(axis=0)
    B = state.sketch.astype(np.float64)
    assert B.shape[0] < 3 * size
    left_out = np.linalg.eigvalsh(M.T @ M - B.T @ B)
    # Every shrink rounds the sketch once, and M is rounded where it is centred.
    rounding = 20 * (1 + state.shrinks) * EPS[X.dtype] * (np.linalg.norm(M, 2) ** 2 + (M**2).sum())
    rounding += len(X) * np.abs(X).max() * EPS[X.dtype] * np.abs(M).max() * X.shape[1]
    assert left_out.min() >= -rounding
    assert left_out.max() <= slack + rounding
    # And not by a bound that says nothing: (l - used) slack is at most what was there.
    assert slack * size <= (M**2).sum() * (1 + 1e-6) + rounding


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_a_shrink_against_its_definition(kind):
    """B <- sqrt(max(S^2 - s_{l+1}^2, 0)) V^T once there are 3 l rows, and 2 l of them are free."""
    X, size = DATA["noise"][:24], 8
    _, singular, rows = np.linalg.svd(X, full_matrices=False)
    expected = np.sqrt(singular[:size] ** 2 - singular[size] ** 2)[:, None] * rows[:size]
    data = Centred(kind(X), center=False)
    state = run(data, FrequentDirections(size), 3)[-1].state
    B = to_numpy(state.sketch)
    assert (len(B), state.shrinks) == (size, 1)
    assert state.loss == pytest.approx(singular[size] ** 2, rel=1e-12)
    assert np.abs(B.T @ B - expected.T @ expected).max() < 1e-12


def test_many_shrinks_lose_something_and_few_rows_nothing():
    many, lost = sketch(DATA["noise"], 3, 1)
    assert many.shrinks > 60
    assert lost > 0
    none, kept = sketch(DATA["noise"][:60], 30)
    assert none.shrinks <= 1
    assert kept == 0
    low_rank, kept = sketch(LOW_RANK.X, 8, 5)
    assert low_rank.shrinks > 5
    assert kept < 1e-12 * (LOW_RANK.X**2).sum()  # eight rows hold a rank of eight


@pytest.mark.parametrize("kind", [sp.csr_array, torch.tensor])
def test_a_sketch_is_the_same_from_other_libraries(kind):
    plain, slack = sketch(DATA["noise"], 8, 17)
    other, again = sketch(kind(DATA["noise"]), 8, 17)
    assert again == pytest.approx(slack, rel=1e-10)
    B, D = plain.sketch, to_numpy(other.sketch)
    assert np.abs(B.T @ B - D.T @ D).max() < 1e-10


def test_a_sketch_feels_weights():
    weight = np.random.default_rng(0).integers(1, 4, 400)
    X = DATA["noise"]
    data = Centred(X, sample_weight=weight)
    state = run(data, FrequentDirections(8), 3, batch_size=50)[-1].state
    M = np.repeat(X, weight, axis=0)
    M = M - M.mean(axis=0)
    left_out = np.linalg.eigvalsh(M.T @ M - state.sketch.T @ state.sketch)
    assert left_out.min() > -1e-10
    assert left_out.max() < state.loss + 1e-10


def test_directions_are_those_of_the_sketch():
    shot = run(DATA["noise"], FrequentDirections(8), 3)[-1]
    expected = np.linalg.svd(shot.state.sketch)[2][:3]
    assert angles(shot.directions.T, expected).max() < 1e-10
    assert run(LOW_RANK.X, FrequentDirections(), 12)[-1].directions.shape == (20, 8)
    empty = run(np.ones((9, 4)), FrequentDirections(), 3)[-1].directions
    assert empty.shape[1] <= 3
    assert not empty.any()


@pytest.mark.parametrize(("p", "size"), [(1, 64), (32, 64), (50, 100)])
def test_the_size_of_a_sketch_fits_the_directions(p, size):
    X = np.random.default_rng(0).standard_normal((30, 60))
    assert run(X, "frequent_directions", p)[-1].state.size == size


def test_frequent_directions_refuses_by_name():
    with pytest.raises(
        ValueError, match="`sketch_size`=0 must be an integer of at least 1, or None"
    ):
        FrequentDirections(0)
    with pytest.raises(ValueError, match="`sketch_size`=4 is less than the 5 directions"):
        run(TALL.X, FrequentDirections(4), 5)


# -- block Krylov from the left --------------------------------------------------------------


@pytest.mark.parametrize("max_basis", [None, 30])
@dtypes
def test_images_save_the_last_pass_and_change_nothing_else(dtype, max_basis):
    rng = np.random.default_rng(3)
    X = sp.random_array((90, 400), density=0.1, rng=rng) * np.linspace(1, 4, 90)[:, None] ** 2
    X = sp.csr_array(X).astype(dtype)
    left = BlockKrylov(block_size=5, max_basis=max_basis, side="left")
    found = []
    for priming in (left, dataclasses.replace(left, keep_images=True)):
        pca = PrimedPCA(5, priming=priming, tol=1e-4, max_passes=200, certificate="none")
        found.append(pca.set_params(random_state=0).fit(X))
    assert found[1].n_passes_ == found[0].n_passes_ - 1
    assert len(found[1].history_) == len(found[0].history_)
    dense = X.toarray().astype(np.float64)
    _, singular, expected = np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)
    for pca in found:
        assert angles(pca.components_, expected[:5]).max() < 2e-4
        gram = pca.components_.astype(np.float64) @ pca.components_.T
        assert np.abs(gram - np.eye(5)).max() < 20 * EPS[np.dtype(dtype)]
        error = np.abs(pca.singular_values_ - singular[:5]).max() / singular[0]
        assert error < max(1e-8, VARIANCE_ERROR[np.dtype(dtype)])  # 1e-8: the square of `tol`


def test_directions_on_the_way_cost_no_reading_where_images_are_kept():
    X = sp.random_array((60, 300), density=0.2, rng=np.random.default_rng(0), format="csr")
    for keep, more in ((True, 0), (False, 1)):
        data = Centred(X)
        priming = BlockKrylov(block_size=4, side="left", keep_images=keep)
        for shot in prime(data, priming, 4, max_passes=5, random_state=0):
            before = data.passes
            assert shot.directions.shape == (300, 4)
            assert data.passes == before + more


def test_what_was_found_on_the_way_stays_as_it_was():
    """Images share memory: later ones must not lie where those of earlier snapshots do."""
    X = sp.random_array((70, 300), density=0.2, rng=np.random.default_rng(1), format="csr")
    priming = BlockKrylov(block_size=4, max_basis=14, side="left", keep_images=True)
    shots, then = [], []
    for shot in prime(X, priming, 4, max_passes=12, random_state=0):
        shots.append(shot)
        then.append(shot.directions.copy())
    assert len(shots) == 12
    for shot, directions in zip(shots, then, strict=True):
        assert np.array_equal(shot.directions, directions)


# -- subspace iteration ----------------------------------------------------------------------


@dtypes
@everywhere
def test_subspace_iteration_against_its_definition(problem, dtype):
    X, p = problem.X.astype(dtype), 5
    data = Centred(X)
    V = SubspaceIteration().init(data.like, p, 0).basis.astype(np.float64)
    C = np.cov(X.astype(np.float64), rowvar=False, bias=True)
    for shot in run(data, SubspaceIteration(), p, max_passes=4):
        theta, W = np.linalg.eigh(V.T @ C @ V)
        theta, U = theta[::-1], V @ W[:, ::-1]
        R = C @ U - U * theta
        change = np.arctan2(np.linalg.norm(R, axis=0), theta)
        allowed = 1e4 * EPS[X.dtype]
        assert np.abs(shot.state.variances - theta).max() < allowed * theta[0]
        assert np.abs(shot.state.change - change).max() < allowed * theta[0] / theta[-1]
        V = np.linalg.qr(C @ U)[0]
        assert np.abs(V.T @ shot.directions).max() <= 1 + allowed
        assert np.linalg.norm(shot.directions - V @ (V.T @ shot.directions), 2) < allowed


def test_the_change_falls_with_the_ratio_of_variances():
    """Geometric with 0.7 and four extra directions: a factor of 0.7**8 in the angle a pass."""
    changes = [shot.state.change[0] for shot in run(TALL.X, SubspaceIteration(), 8, max_passes=20)]
    assert changes[0] > 0.1
    factors = np.divide(changes[4:8], changes[3:7])
    assert (factors < 0.7**6).all()
    assert changes[-1] == 0.0  # below rounding it counts as settled


def test_the_change_bounds_the_residual_it_speaks_of():
    """The Ritz vectors that it measured are those of the basis before the step."""
    shots = run(LINEAR.X, SubspaceIteration(), 6, max_passes=30)
    C = np.cov(LINEAR.X, rowvar=False, bias=True)
    V = shots[-2].directions
    W = np.linalg.eigh(V.T @ C @ V)[1]
    u = V @ W[:, -1]
    turned = angles((C @ u)[None], u[None])[0]
    assert shots[-1].state.change[0] == pytest.approx(turned, rel=1e-6)


@pytest.mark.parametrize("X", [np.ones((30, 5)), np.zeros((5, 30))], ids=["tall", "wide"])
def test_without_variance_nothing_moves(X):
    (shot,) = run(X, SubspaceIteration(), 3, max_passes=1)
    assert shot.state.change.tolist() == [0, 0, 0]
    assert np.abs(shot.directions.T @ shot.directions - np.eye(3)).max() < 1e-14


# -- how a fit with each of them ends --------------------------------------------------------


def status(X, priming, k, share=1.0, tol=1e-6, max_passes=200, extra=4):
    data = Centred(X)
    plan = make_plan(data, k, priming, extra)
    options = {"tol": tol, "max_passes": max_passes, "batch_size": 100}
    return solve(data, plan, Goal(refine_share=share, proven=False, **options))


def test_statuses():
    assert status(TALL.X, Exact(), 4).status is Status.EXACT
    assert status(TALL.X, Exact(), 4, share=0.5).status is Status.FINISHED
    assert status(TALL.X, SubspaceIteration(), 4).status is Status.CONVERGED
    assert status(TALL.X, SubspaceIteration(), 4, max_passes=2).status is Status.MAX_PASSES
    assert status(TALL.X, PowerMethod(epsilon=1e-6), 4).status is Status.CONVERGED
    assert status(TALL.X, PowerMethod(epsilon=1.1e-6), 4).status is Status.FINISHED
    assert status(TALL.X, PowerMethod(), 4, max_passes=2).status is Status.MAX_PASSES
    assert status(TALL.X, Oja(steps=5), 4).status is Status.FINISHED
    assert status(TALL.X, FrequentDirections(), 4).status is Status.FINISHED


def test_the_whole_space_is_exact_and_the_number_of_rows_is_not():
    everything = status(TALL.X, Oja(steps=1), 24)
    assert everything.status is Status.CONVERGED
    assert np.allclose(everything.decomposition.explained_variance, TALL.variances, atol=1e-12)
    # 40 directions in 150 dimensions after one small step are nearly as random as before.
    rows = status(WIDE.X, EigenGame(steps=1, learning_rate=1e-9), 40)
    assert rows.decomposition.explained_variance[0] < 0.7 * WIDE.variances[0]
    assert rows.status is Status.FINISHED


def test_passes_and_history_of_a_solution():
    found = status(LINEAR.X, SubspaceIteration(), 4, tol=1e-3)
    changes = [row["change"] for row in found.history]
    assert changes[-1] <= 1e-3 < changes[-2]
    assert found.passes == len(changes) + 1  # and one to refine
    assert [row["passes"] for row in found.history] == list(range(1, len(changes) + 1))


def test_a_warm_start_saves_steps():
    cold = run(LINEAR.X, PowerMethod(epsilon=1e-6), 5, max_passes=500)
    start = cold[-1].directions
    warm = run(LINEAR.X, PowerMethod(epsilon=1e-6), 5, max_passes=500, start=start)
    assert len(warm) < len(cold) / 10


@pytest.mark.parametrize("name", catalogue.PRIMINGS)
def test_a_run_leaves_no_trace_in_its_options(name):
    priming = catalogue.PRIMINGS[name][0]
    before = repr(priming)
    run(TALL.X, priming, 3, max_passes=3)
    assert repr(priming) == before
