"""Many runs of one priming in lockstep, on NumPy or PyTorch arrays.

The tables need over a thousand runs whose steps are a few small operations.  Seeds and settings
are leading axes of one array, so that one step of all runs is a handful of operations, and on
CUDA a step is captured once and replayed.  A timed run is the same code with axes of length one,
so that the code that is timed is the code that was tuned.

The vectors of a stochastic priming are those of :func:`primedpca.prime` with the same seed: the
same start, the same mini-batches, the same update.  The power method takes the same passes as
``prime`` for its first component only; see :class:`LockstepPower`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from primedpca._core.graphs import captured
from primedpca._core.orthonormal import random_basis
from primedpca._core.process import one_blas_thread
from primedpca.priming.stochastic import Stochastic
from primedpca.protocols import Array, Like
from primedpca.sources.base import cut_evenly

__all__ = [
    "Batches",
    "Clock",
    "IndependentBatches",
    "LockstepPower",
    "LockstepSGD",
    "wait_for",
]

#: Products of fewer numbers than this finish before a second thread has started.
SMALL = 2**19
#: Number of steps whose row numbers are drawn and sent to the device together.
AHEAD = 256


class Clock:
    """Timer of the steps alone.

    Parameters
    ----------
    like : Like
        Array library and device of the run.
    size : int
        Number of entries of the data that a step multiplies.
    """

    def __init__(self, like: Like, size: int) -> None:
        self.seconds = 0.0
        self._wait = wait_for(like)
        self._threads = one_blas_thread if size < SMALL else nullcontext()

    def run(self, step: Callable[[], None], times: int) -> None:
        """Run a step ``times`` times and add the seconds it took."""
        with self._threads, np.errstate(all="ignore"):  # a run may diverge, which is a result
            self._wait()
            start = time.perf_counter()
            for _ in range(times):
                step()
            self._wait()
            self.seconds += time.perf_counter() - start


def wait_for(like: Like) -> Callable[[], Any]:
    """Return a function that waits until the device has finished its work."""
    if "cuda" not in str(like.device):
        return lambda: None
    import torch

    wait: Callable[[], Any] = torch.cuda.synchronize
    return wait


class Batches:
    """Row numbers of the mini-batches of several seeds.

    Number ``n`` is a row of zeros that pads a short batch.
    """

    def __init__(self, n_samples: int, size: int, seeds: Sequence[int]) -> None:
        self.n_samples, self.seeds = n_samples, tuple(seeds)
        self.cuts = cut_evenly(n_samples, size)
        self.width = max(b - a for a, b in self.cuts)
        self._epoch, self._orders = -1, np.empty((0, 0), dtype=np.int32)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the row numbers of these steps, ``(stop - start, n_seeds, width)``."""
        found = np.full((stop - start, len(self.seeds), self.width), self.n_samples, np.int32)
        for step in range(start, stop):
            epoch, batch = divmod(step, len(self.cuts))
            if epoch != self._epoch:
                self._epoch = epoch
                self._orders = np.stack(
                    [
                        np.random.default_rng((seed, 1, epoch)).permutation(self.n_samples)
                        for seed in self.seeds
                    ]
                )
            a, b = self.cuts[batch]
            found[step - start, :, : b - a] = self._orders[:, a:b]
        return found

    def shares(self, start: int, stop: int) -> np.ndarray:
        """Return 1 over the length of each of these batches."""
        lengths = [b - a for a, b in self.cuts]
        return np.array([1 / lengths[step % len(lengths)] for step in range(start, stop)])


class IndependentBatches(Batches):
    """Row numbers of mini-batches that are drawn independently of each other.

    A mini-batch holds a row once at most.  In epochs the errors of the mini-batches of one
    permutation cancel; here they do not.
    """

    def __init__(self, n_samples: int, size: int, seeds: Sequence[int]) -> None:
        super().__init__(n_samples, size, seeds)
        self.width = min(size, n_samples)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the row numbers of these steps, ``(stop - start, n_seeds, width)``."""
        found = np.empty((stop - start, len(self.seeds), self.width), dtype=np.int32)
        for step in range(start, stop):
            for j, seed in enumerate(self.seeds):
                rng = np.random.default_rng((seed, 2, step))
                found[step - start, j] = rng.choice(
                    self.n_samples, self.width, replace=False, shuffle=False
                )
        return found

    def shares(self, start: int, stop: int) -> np.ndarray:
        """Return 1 over the length of each of these batches."""
        return np.full(stop - start, 1 / self.width)


class LockstepSGD:
    """Runs of a stochastic priming: every seed with every learning rate.

    Parameters
    ----------
    x : array of shape (n + 1, d)
        Centred rows, and a row of zeros at the end.
    like : Like
        Array library, device and type of the vectors.
    priming : Stochastic
        The priming; its own learning rate is not used.
    rates : sequence of G floats
        Learning rates.
    n_directions : int
        Number of directions p.
    batches : Batches
        Mini-batches of S seeds.

    Attributes
    ----------
    vectors : array of shape (S, G, d, p)
        Directions of every run.
    step : int
        Number of steps so far.
    clock : Clock
        Timer of the steps.
    """

    def __init__(
        self,
        x: Array,
        like: Like,
        priming: Stochastic,
        rates: Sequence[float],
        n_directions: int,
        batches: Batches,
    ) -> None:
        self.like, self.priming, self.batches = like, priming, batches
        self.step, self.clock = 0, Clock(like, batches.width * like.n_features)
        xp = like.xp
        starts = [random_basis(like, n_directions, seed) for seed in batches.seeds]
        self.vectors = xp.stack([xp.stack([start] * len(rates)) for start in starts])
        self._velocity = xp.zeros_like(self.vectors)
        self._rates = like.asarray(np.reshape(rates, (-1, 1, 1)))
        shape = (AHEAD, len(batches.seeds), batches.width)
        self._rows = xp.zeros(shape, dtype=xp.int32, device=like.device)
        self._shares = like.asarray(np.zeros(AHEAD))
        self._next = xp.zeros(1, dtype=xp.int64, device=like.device)
        self._x = x
        state = (self.vectors, self._velocity, self._next)
        with np.errstate(all="ignore"):
            self._advance = captured(self._one_step, state)

    def run_to(self, step: int) -> None:
        """Continue to step ``step``; drawing the mini-batches is not timed."""
        while self.step < step:
            place = self.step % AHEAD
            if place == 0:
                self._send(self.step)
            count = min(AHEAD - place, step - self.step)
            self.clock.run(self._advance, count)
            self.step += count

    def _send(self, start: int) -> None:
        xp, stop = self.like.xp, start + AHEAD
        rows = self.batches.rows(start, stop)
        self._rows[...] = xp.asarray(rows, device=self.like.device)
        self._shares[...] = self.like.asarray(self.batches.shares(start, stop))
        self._next[...] = 0

    def _one_step(self) -> None:
        xp, v = self.like.xp, self.vectors
        s, g, d, p = v.shape
        rows = xp.take(self._rows, self._next, axis=0)
        share = xp.take(self._shares, self._next, axis=0)
        batch = xp.reshape(xp.take(self._x, xp.reshape(rows, (-1,)), axis=0), (s, -1, d))
        folded = xp.reshape(xp.permute_dims(v, (0, 2, 1, 3)), (s, d, g * p))
        z = xp.matrix_transpose(batch) @ (batch @ folded)
        z = xp.permute_dims(xp.reshape(z * share, (s, d, g, p)), (0, 2, 1, 3))
        inside = xp.matrix_transpose(v) @ z
        new, velocity = self.priming.move(v, self._velocity, z, inside, self._rates)
        v[...] = new
        self._velocity[...] = velocity
        self._next += 1


class LockstepPower:
    """Runs of the power method: every seed with every epsilon.

    An array holds the component that each run works on, so that no step waits for the host.

    The first component takes the same passes as in :func:`primedpca.prime` with the same seed.
    Later ones begin elsewhere and take other passes: ``prime`` makes the vectors that are still
    to come orthonormal whenever a component has converged, which a step without the host cannot
    decide to do.  Here each begins with its own random vector and is made orthogonal to the
    components found in its first step.  Both converge to the same components.

    Parameters
    ----------
    x : array of shape (n, d)
        Centred rows.
    like : Like
        Array library, device and type of the vectors.
    epsilons : sequence of R floats
        Tolerance of each run.
    n_directions : int
        Number of directions p.
    seeds : sequence of R ints
        Seed of each run.

    Attributes
    ----------
    vectors : array of shape (R, d, p)
        Directions; in run ``i`` those before index ``found[i]`` are finished, and the one at that
        index is being computed.
    """

    def __init__(
        self,
        x: Array,
        like: Like,
        epsilons: Sequence[float],
        n_directions: int,
        seeds: Sequence[int],
    ) -> None:
        self.like, self._x = like, x
        self.step, self.clock = 0, Clock(like, x.shape[0] * x.shape[1])
        xp = like.xp
        self.vectors = xp.stack([random_basis(like, n_directions, seed) for seed in seeds])
        self.found = xp.zeros(len(seeds), dtype=xp.int64, device=like.device)
        self._epsilons = like.asarray(epsilons)
        self._numbers = xp.arange(n_directions, dtype=xp.int64, device=like.device)
        self._floor = 8 * float(xp.finfo(like.dtype).eps)
        self._advance = captured(self._one_step, (self.vectors, self.found))

    @property
    def finished(self) -> np.ndarray:
        """Whether each run has found all directions, ``(R,)``."""
        return np.array([count >= len(self._numbers) for count in self.found.tolist()])

    def run_to(self, step: int) -> None:
        """Continue to pass ``step``."""
        self.clock.run(self._advance, step - self.step)
        self.step = step

    def _one_step(self) -> None:
        xp, w, j = self.like.xp, self.vectors, self.found[:, None]
        here = self._numbers == j  # (R, p); all false for a finished run
        x = xp.sum(xp.where(here[:, None, :], w, xp.zeros_like(w)), axis=2)
        new = xp.matrix_transpose(self._x.T @ (self._x @ x.T))
        size = xp.linalg.vector_norm(new, axis=1)
        known = xp.where((self._numbers < j)[:, None, :], w, xp.zeros_like(w))
        for _ in range(2):  # a second projection removes what rounding left of the first
            shadow = xp.matrix_transpose(known) @ new[:, :, None]
            new = new - (known @ shadow)[:, :, 0]
        rest = xp.linalg.vector_norm(new, axis=1)
        exhausted = rest <= self._floor * size
        safe = xp.where(exhausted, xp.ones_like(rest), rest)
        new = xp.where(exhausted[:, None], x, new / safe[:, None])
        settled = exhausted | (xp.linalg.vector_norm(new - x, axis=1) < self._epsilons)
        self.vectors[...] = xp.where(here[:, None, :], new[:, :, None], w)
        still = self.found < len(self._numbers)
        self.found += xp.astype(settled & still, xp.int64)
