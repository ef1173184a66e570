"""Runs in lockstep are the library's own runs."""

import numpy as np
import pytest
import torch

from primedpca import prime
from primedpca._core.arrays import like_block, to_numpy
from primedpca.metrics import angles
from primedpca.priming import EigenGame, Oja, PowerMethod
from primedpca_paper.lockstep import Batches, LockstepPower, LockstepSGD

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(250, 12)) * np.geomspace(9, 1, 12) + 3).astype(np.float32)
CENTRED = X - X.mean(axis=0, dtype=np.float64)


def arena(library, spare):
    rows = np.concatenate([CENTRED, np.zeros((spare, 12))]).astype(np.float32)
    x = torch.from_numpy(rows) if library == "torch" else rows
    return x, like_block(x, 12)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("rule", [EigenGame, Oja])
def test_stochastic_runs_follow_prime(library, rule):
    # 250 rows in batches of at most 60: of 50 each; then of 83 and 84, which differ in length.
    for size, steps in ((60, 33), (90, 300)):
        x, like = arena(library, 1)
        rates, seeds = (1e-3, 3e-4), (0, 5, 7)
        batches = Batches(250, size, seeds)
        many = LockstepSGD(x, like, rule(), rates, 4, batches)
        many.run_to(7)
        many.run_to(steps)
        for i, seed in enumerate(seeds):
            for j, rate in enumerate(rates):
                own = rule(learning_rate=rate, steps=steps)
                *_, last = prime(X, own, 4, batch_size=size, random_state=seed)
                found = to_numpy(many.vectors[i, j])
                assert np.abs(found - last.directions).max() < 1e-4
        assert many.clock.seconds > 0


def test_a_run_that_diverges_leaves_the_others_alone():
    x, like = arena("numpy", 1)
    many = LockstepSGD(x, like, Oja(), (1e3, 1e-3), 4, Batches(250, 60, (0,)))
    alone = LockstepSGD(x, like, Oja(), (1e-3,), 4, Batches(250, 60, (0,)))
    for run in (many, alone):
        run.run_to(100)
    assert not np.isfinite(many.vectors[0, 0]).all()
    np.testing.assert_allclose(many.vectors[0, 1], alone.vectors[0, 0], atol=1e-5)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_power_runs_find_what_prime_finds(library):
    x, like = arena(library, 0)
    many = LockstepPower(x, like, (1e-3, 1e-6, 1e-6), 3, (0, 0, 4))
    counts = []
    for step in range(1, 2000):
        many.run_to(step)
        if many.finished.all():
            break
        counts.append(many.found.tolist())
    assert step < 1000
    assert counts[0] == [0, 0, 0]
    assert (np.diff(counts, axis=0) >= 0).all()
    truth = np.linalg.svd(CENTRED, full_matrices=False)[2][:3]
    for i, epsilon in enumerate((1e-3, 1e-6, 1e-6)):
        *_, last = prime(X, PowerMethod(epsilon=epsilon, max_steps=1000), 3, random_state=0)
        found, same = (
            angles(to_numpy(v).T, truth).max() for v in (many.vectors[i], last.directions)
        )
        assert found < 40 * epsilon + 1e-4
        assert same < 40 * epsilon + 1e-4
    # A sloppier end comes sooner.
    assert next(i for i, c in enumerate(counts) if c[0] == 1) < next(
        i for i, c in enumerate(counts) if c[1] == 1
    )


def test_the_power_method_takes_the_passes_of_prime_for_its_first_component():
    for seed in (0, 4, 9):
        x, like = arena("numpy", 0)
        run = LockstepPower(x, like, (1e-4,), 3, (seed,))
        method = PowerMethod(epsilon=1e-4, max_steps=1000)
        for snapshot in prime(X, method, 3, random_state=seed):
            run.run_to(snapshot.step)
            if snapshot.directions.shape[1] > 1:
                break
            assert run.found[0] == 0
            np.testing.assert_allclose(run.vectors[0, :, 0], snapshot.directions[:, 0], atol=1e-4)
        assert run.found[0] == 1


def test_finished_power_runs_stand_still():
    x, like = arena("numpy", 0)
    run = LockstepPower(x, like, (1e-4,), 2, (0,))
    run.run_to(500)
    assert run.finished.all()
    before = run.vectors.copy()
    run.run_to(550)
    np.testing.assert_array_equal(run.vectors, before)
