"""Steps of a stochastic priming as a CUDA graph: a step takes less time than launching it did.

A step on a mini-batch is some thirty small operations.  Launched one by one, they take several
times as long as they compute.  Here one graph gathers the rows of a batch, makes the step in
place and moves on to the next batch; the host sends row numbers for many steps at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, is_torch_array
from primedpca._core.graphs import captured
from primedpca._operator.preparation import prepare
from primedpca.priming.stochastic import SGDState, Stochastic
from primedpca.protocols import Array
from primedpca.sources.base import MemorySource, cut_evenly

__all__ = ["Replay", "captured_steps", "suits"]

#: Number of steps whose row numbers are drawn and sent to the device together.
AHEAD = 256
#: Steps in one graph, a divisor of `AHEAD`, and the largest vectors in bytes that it has so often.
TOGETHER, SMALL = 8, 2**20
#: Steps from which a graph pays for its capture.
FEWEST = 50


def suits(data: Any, priming: Any) -> bool:
    """Whether the next steps can be replayed: dense rows on CUDA, in float32, without weights."""
    if not (isinstance(priming, Stochastic) and priming.replays and priming.steps >= FEWEST):
        return False
    array = data.traits.array
    if not is_torch_array(array):
        return False
    drawn = type(data.source).batches is MemorySource.batches and not data.sparse
    plain = data.root is None and "int64" not in dtype_name(array.dtype)
    return bool(drawn and plain and array.is_cuda)


def captured_steps(
    data: Any, priming: Any, state: Any, batch_size: int, seed: int, position: tuple[int, int]
) -> Iterator[tuple[Any, SGDState]] | None:
    """Return the steps after ``state``, replayed; None if they cannot be captured.

    Parameters are those of :class:`Replay`; ``position`` is the epoch and the next batch.
    """
    try:
        return Replay(data, priming, state, batch_size, seed).steps(state, position)
    except RuntimeError:  # such as another thread's work on the GPU; eager steps do not mind it
        return None


class Replay:
    """The steps of a priming, each a replay of one graph.

    The vectors are those of eager steps up to rounding: the same batches, the same update.

    Parameters
    ----------
    data : Centred
        For which :func:`suits` holds, after its first pass.
    priming : Stochastic
    state : SGDState
        After at least one step, so that its learning rate is known.
    batch_size : int
        Rows of a mini-batch.
    seed : int
        Seed of the order of the rows.
    """

    def __init__(
        self, data: Any, priming: Stochastic, state: SGDState, batch_size: int, seed: int
    ) -> None:
        self.data, self.priming, self._seed = data, priming, seed
        n, xp, like = data.shape[0], data.like.xp, data.like
        self._cuts = cut_evenly(n, batch_size)
        self._width = max(b - a for a, b in self._cuts)
        self._even = all(b - a == self._width for a, b in self._cuts)
        self._x, self._columns = data.traits.array, data.learn().columns
        where: Any = {"device": like.device}
        # One launch for several steps, unless their vectors are large.
        self._together = TOGETHER if state.vectors.nbytes <= SMALL else 1
        #: The vectors and their velocity after each of them, in one array.
        self._after = xp.stack([xp.stack(state[:2])] * self._together)
        self._rows = xp.zeros((AHEAD, self._width), dtype=xp.int64, **where)
        #: Of each step: 1 / rows of the batch, and the learning rate.
        self._numbers = xp.zeros((AHEAD, 2), dtype=like.dtype, **where)
        self._next = xp.zeros(1, dtype=xp.int64, **where)
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)
        self._advance = captured(self._steps, (self._after, self._next))

    def steps(self, state: SGDState, position: tuple[int, int]) -> Iterator[tuple[Any, SGDState]]:
        """Yield the position in the epochs and the state after each step, without end."""
        xp, (epoch, batch), place = self.data.like.xp, position, AHEAD
        while True:
            if batch == len(self._cuts):
                epoch, batch = epoch + 1, 0
            if place == AHEAD:
                self._send(state, epoch, batch)
                place = 0
            if place % self._together == 0:
                self._advance()
                after = xp.asarray(self._after, copy=True)
            vectors, velocity = after[place % self._together]
            start, stop = self._cuts[batch]
            self.data.count((stop - start) / self.data.shape[0])
            batch, place = batch + 1, place + 1
            state = SGDState(vectors, velocity, state.step + 1, state.rate)
            yield (epoch, batch), state

    def _send(self, state: SGDState, epoch: int, batch: int) -> None:
        """Send the row numbers and learning rates of the next steps."""
        rows = np.zeros((AHEAD, self._width), dtype=np.int64)
        numbers = np.zeros((AHEAD, 2))
        for i in range(AHEAD):
            if batch == len(self._cuts):
                epoch, batch = epoch + 1, 0
            start, stop = self._cuts[batch]
            rows[i, : stop - start] = self._drawn(epoch)[start:stop]
            rate = self.priming.rate_at(state.step + i, state.rate, self.data)
            numbers[i] = 1 / (stop - start), rate
            batch += 1
        xp, where = self.data.like.xp, self.data.like.device
        self._rows[...] = xp.asarray(rows, device=where)
        self._numbers[...] = self.data.like.asarray(numbers)
        self._next[...] = 0

    def _drawn(self, epoch: int) -> np.ndarray:
        """Return the order of the rows in an epoch, as sources in memory draw it."""
        if epoch != self._epoch:
            drawn = np.random.default_rng((self._seed, 1, epoch)).permutation(len(self._x))
            self._epoch, self._order = epoch, drawn
        return self._order

    def _steps(self) -> None:
        """Make the next steps in place; no operation waits for the host."""
        xp, (v, u) = self.data.like.xp, self._after[-1]
        for after in self._after:
            numbers = xp.take(self._numbers, self._next, axis=0)[0]
            a = self._batch()
            z = a.T @ (a @ v) * numbers[0]
            v, u = self.priming.move(v, u, z, v.T @ z, numbers[1])
            after[0], after[1] = v, u
            self._next += 1

    def _batch(self) -> Array:
        """Return the rows of the batch, prepared; those that pad a short one are zero."""
        xp = self.data.like.xp
        rows = xp.take(self._rows, self._next, axis=0)[0]
        block = xp.take(self._x, rows, axis=0)
        a = prepare(block, self.data.like.dtype, self._columns, None, self.data.frame.unit)
        if self._even:
            return a
        share = xp.take(self._numbers, self._next, axis=0)[0, 0]
        places = xp.arange(self._width, dtype=a.dtype, device=a.device)
        return a * xp.astype(places * share < 1 - 0.5 * share, a.dtype)[:, None]
