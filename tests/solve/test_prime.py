"""The loop: snapshots, limits, seeds, and everything that can stand for a priming."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from catalogue import PRIMINGS, PROBLEMS

from primedpca import PrimedPCA, prime, refine
from primedpca._core.parameters import as_seed
from primedpca._operator.operator import Centred
from primedpca.metrics import angles, subspace_error
from primedpca.priming import (
    REGISTRY,
    BlockKrylov,
    Exact,
    FrequentDirections,
    Oja,
    PowerMethod,
    SubspaceIteration,
    as_priming,
)
from primedpca.result import DivergenceError
from primedpca.sources import BlockSource

TALL = PROBLEMS[0]
X, N, D = TALL.X, *TALL.X.shape


def everything(*arguments, **options):
    return list(prime(*arguments, **{"random_state": 0} | options))


# -- snapshots -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRIMINGS)
def test_steps_count_up_and_costs_never_fall(name):
    shots = everything(X, PRIMINGS[name][0], 3, batch_size=100, max_passes=10)
    assert [shot.step for shot in shots] == list(range(1, len(shots) + 1))
    for before, after in pairwise(shots):
        assert after.passes >= before.passes
        assert after.seconds >= before.seconds
    assert shots[0].passes > 0
    assert shots[0].seconds > 0


def test_the_time_of_whoever_looks_is_not_counted():
    spent, clock = [], time.perf_counter()
    for shot in prime(X, "subspace_iteration", 3, max_passes=5, random_state=0):
        time.sleep(0.1)
        spent.append(shot.seconds)
    assert time.perf_counter() - clock > 0.5
    assert spent[-1] - spent[0] < 0.3  # four sleeps lie between


class State(NamedTuple):
    vectors: np.ndarray
    step: int


class Slow:
    """Subspace iteration by hand, with nothing but the four members that must be there."""

    visits = "whole"

    def __init__(self, pause=0.0):
        self.pause, self.asked = pause, 0

    def init(self, like, n_directions, seed, start=None):
        rng = np.random.default_rng(seed)
        return State(like.asarray(rng.standard_normal((like.n_features, n_directions))), 0)

    def step(self, state, data):
        time.sleep(self.pause)
        product = data.covariance_product(state.vectors)
        return State(np.linalg.qr(product)[0], state.step + 1)

    def directions(self, state, data):
        self.asked += 1
        return state.vectors


def test_the_time_of_the_steps_is_counted():
    shots = everything(X, Slow(pause=0.02), 3, max_passes=3)
    assert [shot.seconds >= 0.02 * shot.step for shot in shots] == [True] * 3


def test_directions_are_looked_up_when_asked_for_and_once():
    priming = Slow()
    shots = everything(X, priming, 3, max_passes=4)
    assert priming.asked == 0
    assert shots[1].directions is shots[1].directions
    assert priming.asked == 1


def test_a_snapshot_stays_what_it_was():
    shots = prime(X, "oja", 3, batch_size=100, random_state=0)
    first = next(shots)
    before = first.state.vectors.copy()
    rest = list(shots)
    assert np.array_equal(first.directions, before)
    assert not np.array_equal(rest[-1].directions, before)


def test_nothing_happens_before_the_first_snapshot_is_asked_for():
    data = Centred(X)
    shots = prime(data, "subspace_iteration", 3, random_state=0)
    assert data.passes == 0
    next(shots)
    assert data.passes == 1


def test_a_run_ends_once_and_another_is_the_same():
    shots = prime(X, "oja", 3, batch_size=100, random_state=0)
    first = [shot.directions for shot in shots]
    assert list(shots) == []
    for one, other in zip(first, everything(X, "oja", 3, batch_size=100), strict=True):
        assert np.array_equal(one, other.directions)


def test_passes_go_on_over_several_runs_on_the_same_data():
    data = Centred(X)
    everything(data, "subspace_iteration", 3, max_passes=4)
    assert data.passes == 4
    assert everything(data, "subspace_iteration", 3, max_passes=4)[-1].passes == 8


# -- limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 7, 26])
def test_stochastic_primings_have_steps_of_their_own(steps):
    shots = everything(X, Oja(steps=steps), 3, batch_size=100, max_passes=2)
    assert len(shots) == steps
    assert shots[-1].state.step == steps
    # 240 rows in batches of 80, after a pass for the mean.
    assert shots[-1].passes == pytest.approx(1 + steps / 3)


def test_every_row_comes_once_an_epoch_in_another_order():
    class Collect(Slow):
        visits = "batches"

        def step(self, state, data):
            rows.append(data.rows())
            return state

    rows = []
    labelled = np.arange(100.0)[:, None] * np.ones(3)
    everything(labelled, Collect(), 2, batch_size=30, max_passes=3, center=False)
    assert [len(part) for part in rows] == [25] * 12
    epochs = [np.concatenate(rows[i : i + 4])[:, 0] for i in (0, 4, 8)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(100))
    assert not np.array_equal(epochs[0], epochs[1])


@pytest.mark.parametrize("most", [1, 5])
def test_max_passes_bounds_steps_with_the_whole(most):
    assert len(everything(X, "subspace_iteration", 3, max_passes=most)) == most
    assert len(everything(X, Slow(), 3, max_passes=most)) == most


def test_max_passes_bounds_the_power_method_by_component():
    assert len(everything(X, PowerMethod(epsilon=1e-14), 3, max_passes=4)) == 12
    assert len(everything(X, PowerMethod(epsilon=1e-14, max_steps=2), 3, max_passes=4)) == 6


def test_max_passes_bounds_a_priming_that_never_says_it_is_finished():
    class Endless(Slow):
        def finished(self, state):
            return False

    assert len(everything(X, Endless(), 3, max_passes=6)) == 6


def test_a_priming_may_finish_by_itself():
    class Brief(Slow):
        def finished(self, state):
            return state.step >= 3

    assert len(everything(X, Brief(), 3)) == 3
    assert len(everything(X, "exact", 3)) == 1


class Counting(BlockSource):
    """Rows that count how often they are handed out."""

    def __init__(self, x):
        self._x, self.shape, self.dtype = x, x.shape, x.dtype
        self.blocks = tuple((i, min(i + 37, len(x))) for i in range(0, len(x), 37))
        self.seen = np.zeros(len(x), int)

    def read(self, i):
        return self._x[slice(*self.blocks[i])]

    def rows(self, index):
        self.seen[index] += 1
        return self._x[index]


@pytest.mark.parametrize("batch_size", [1, 50, 1000])
def test_frequent_directions_visits_every_row_once(batch_size):
    source = Counting(X)
    shots = everything(source, FrequentDirections(), 3, batch_size=batch_size)
    assert (source.seen == 1).all()
    assert len(shots) == -(-N // batch_size)
    assert shots[-1].passes == 1  # none for the mean


def test_rows_come_in_order():
    seen = []

    class Rows(Slow):
        visits = "rows"

        def step(self, state, data):
            seen.append(data.rows()[:, 0])
            return state

    labelled = np.arange(100.0)[:, None] * np.ones(3)
    everything(labelled, Rows(), 2, batch_size=30, center=False)
    assert np.concatenate(seen).tolist() == list(range(100))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"n_directions": 0},
            "`n_directions`=0 must be a whole number between 1 and n_features=24",
        ),
        (
            {"n_directions": 25},
            "`n_directions`=25 must be a whole number between 1 and n_features=24",
        ),
        ({"n_directions": -3}, "`n_directions`=-3"),
        ({"n_directions": 1.5}, "`n_directions`=1.5 must be a whole number"),
        ({"n_directions": True}, "`n_directions`=True must be a whole number"),
        ({"batch_size": True}, "`batch_size`=True must be a whole number"),
        ({"batch_size": 0}, "`batch_size`=0 must be a whole number, at least 1"),
        ({"max_passes": 0}, "`max_passes`=0 must be a whole number, at least 1"),
        ({"random_state": -1}, "`random_state`=-1 is negative"),
        ({"random_state": "seed"}, "`random_state`='seed' must be an integer, a NumPy Rand"),
        ({"random_state": 1.5}, "`random_state`=1.5 must be an integer"),
        ({"start": np.ones((3, 24))}, r"shape \(3, 24\), but `X` has 24 features"),
        ({"start": np.full((24, 3), np.nan)}, r"directions contain nan at index \(0, 0\)"),
        ({"missing": "drop"}, "`missing`='drop' must be 'error' or 'mean'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_refused_at_once_and_by_name(options, words):
    options = {"priming": "subspace_iteration", "n_directions": 3} | options
    with pytest.raises(ValueError, match=words):
        prime(X, **options)  # before anything is iterated


def test_preparation_belongs_to_the_data():
    with pytest.raises(TypeError, match="`center` cannot be changed for data that are prepared"):
        prime(Centred(X), "exact", 3, center=False)


def test_preparation_is_used():
    weight = np.random.default_rng(0).integers(1, 5, N)
    repeated = np.repeat(X, weight, axis=0)
    one = everything(X, "exact", 4, sample_weight=weight)[-1].directions
    other = everything(repeated, "exact", 4)[-1].directions
    assert angles(one.T, other.T).max() < 1e-10


# -- seeds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_generators_are_taken_and_move_on(make):
    one, other = (everything(X, "oja", 3, random_state=make(7))[0].directions for _ in "ab")
    assert np.array_equal(one, other)
    state = make(7)
    first, second = (everything(X, "oja", 3, random_state=state)[0].directions for _ in "ab")
    assert np.array_equal(one, first)
    assert not np.array_equal(first, second)


def test_whole_numbers_of_numpy_are_seeds():
    assert as_seed(np.int64(5)) == as_seed(5) == 5


def test_without_a_seed_every_run_is_another():
    one, other = (everything(X, "oja", 3, random_state=None)[0].directions for _ in "ab")
    assert not np.array_equal(one, other)


# -- what may stand for a priming ------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRY)
def test_a_name(name):
    assert type(as_priming(name)) is REGISTRY[name]
    shot = everything(X, name, 3, batch_size=100)[-1]
    assert shot.directions.shape == (D, 3)


@pytest.mark.parametrize("name", ["lanczos", "pca", "", "Oja"])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match=f"Unknown `priming`='{name}'") as caught:
        prime(X, name, 3)
    for known in REGISTRY:
        assert known in str(caught.value)


@pytest.mark.parametrize("kind", [Oja, Exact, Slow])
def test_a_class_is_refused(kind):
    with pytest.raises(TypeError, match=f"is the class {kind.__name__}. Pass an"):
        prime(X, kind, 3)


@pytest.mark.parametrize("thing", [None, 3, [[1.0, 2.0]], {"oja": 1}])
def test_other_things_are_refused(thing):
    with pytest.raises(TypeError, match=f"type for `priming`: {type(thing).__name__}"):
        prime(X, thing, 3)


def test_an_object_with_four_members():
    last = everything(X, Slow(), 6, max_passes=40)[-1]
    refined = refine(X, last.directions, 4).components
    assert subspace_error(refined, TALL.components[:4]) < 1e-12


def test_a_function_is_called_once_with_the_data_as_given():
    calls = []

    def scikit(data, n_directions):
        calls.append((data, n_directions))
        return np.linalg.svd(data - data.mean(0), full_matrices=False)[2][:n_directions].T

    (shot,) = everything(X, scikit, 5)
    assert len(calls) == 1
    assert calls[0][1] == 5
    assert np.shares_memory(calls[0][0], X)
    assert shot.passes == 1
    assert angles(shot.directions.T, TALL.components[:5]).max() < 1e-10


def test_a_function_may_return_another_library():
    def directions(data, n_directions):
        assert isinstance(data, torch.Tensor)
        return np.eye(D, n_directions)

    (shot,) = everything(torch.tensor(X), directions, 5)
    assert isinstance(shot.directions, torch.Tensor)


def test_what_a_function_returns_is_checked():
    with pytest.raises(ValueError, match=r"directions have shape \(5, 24\), but .*24"):
        everything(X, lambda data, p: np.ones((p, D)), 5)


def test_a_callable_object_with_the_members_is_a_priming():
    class Both(Slow):
        def __call__(self, data, n_directions):
            raise AssertionError("a priming is not called")

    assert len(everything(X, Both(), 3, max_passes=2)) == 2


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_an_array_is_taken_as_it_is(make):
    given = np.random.default_rng(0).standard_normal((D, 5))
    (shot,) = everything(X, make(given), 5)
    assert np.array_equal(shot.directions, given)
    assert (shot.step, shot.passes) == (0, 0)


@pytest.mark.parametrize("shape", [(5, D), (D - 1, 3)])
def test_an_array_of_the_wrong_shape_is_refused(shape):
    with pytest.raises(ValueError, match="but `X` has 24 features"):
        everything(X, np.ones(shape), 3)


def test_an_instance_with_options():
    assert as_priming(SubspaceIteration()) == SubspaceIteration()
    priming = Oja(steps=3)
    assert as_priming(priming) is priming


def test_a_priming_without_a_rate_that_goes_astray_is_named():
    class Astray(Slow):
        def step(self, state, data):
            return State(state.vectors * np.inf, state.step + 1)

    with pytest.raises(DivergenceError, match="within 25 steps; its state is not finite"):
        everything(X, Astray(), 3)


@pytest.mark.parametrize(
    "priming",
    [BlockKrylov(block_size=1), BlockKrylov(block_size=1, side="left"), SubspaceIteration()],
)
def test_a_change_that_is_not_known_yet_is_no_divergence(priming):
    rows = np.random.default_rng(3).normal(size=(120, 60)) * np.arange(1, 61) ** -0.5
    *_, last = prime(rows, priming, 40, random_state=0, max_passes=45)
    assert last.step == 45
    assert last.directions.shape[1] == 40


def test_more_directions_than_25_blocks_are_certified():
    rows = np.random.default_rng(3).normal(size=(2000, 300)) * np.arange(1, 301) ** -0.5
    for wanted in (24, 0.25):
        model = PrimedPCA(wanted, priming=BlockKrylov(block_size=1), random_state=0, max_passes=200)
        model.fit(rows)
        values, vectors = np.linalg.eigh(np.cov(rows.T))
        k = model.n_components_
        assert model.status_.name == "CERTIFIED"
        assert model.plan_.n_directions > 25
        assert (angles(model.components_, vectors.T[::-1][:k]) <= model.angle_bounds_).all()
        np.testing.assert_allclose(model.explained_variance_, values[::-1][:k], rtol=1e-6)


def test_infinite_vectors_and_nan_anywhere_are_divergence():
    class Unknown(Slow):
        def step(self, state, data):
            return state._replace(vectors=np.full(3, np.nan), step=state.step + 1)

    with pytest.raises(DivergenceError):
        everything(X, Unknown(), 3)


def test_a_step_that_returns_nothing_is_named():
    class Forgetful(Slow):
        def step(self, state, data):
            Slow.step(self, state, data)

    with pytest.raises(TypeError, match=r"`step` of .*Forgetful.* returned None; it must return"):
        everything(X, Forgetful(), 3)


@pytest.mark.parametrize("certificate", ["auto", "none"])
def test_data_that_change_after_the_first_pass_are_named(certificate):
    class Changing(BlockSource):
        shape, axis, device, dtype = X.shape, 0, None, X.dtype
        blocks, reads = ((0, len(X)),), 0

        def read(self, i):
            self.reads += 1
            return X if self.reads < 3 else np.full(X.shape, np.nan)  # the mean is guessed first

    model = PrimedPCA(3, priming="subspace_iteration", certificate=certificate)
    with pytest.raises(DivergenceError, match="data have changed since the first pass"):
        model.fit(Changing())
