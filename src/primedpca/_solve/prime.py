"""The loop: run a priming step by step and show where it stands."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np

from primedpca._core.arrays import is_dense, namespace
from primedpca._core.blas import one_blas_thread
from primedpca._core.orthonormal import random_basis
from primedpca._operator.one_pass import stream
from primedpca._operator.operator import Centred
from primedpca.priming import BlockKrylov, Exact, Given, as_priming, check_directions
from primedpca.priming.stochastic import fitting_rate
from primedpca.protocols import Array, Priming, State
from primedpca.result import DivergenceError, Snapshot

__all__ = ["as_seed", "prime"]

CHECK_EVERY = 25


def prime(
    X: Any,  # noqa: N803
    priming: Any,
    n_directions: int,
    *,
    batch_size: int = 1000,
    max_passes: int = 60,
    random_state: Any = None,
    start: Array | None = None,
    **preparation: Any,
) -> Iterator[Snapshot]:
    """Run a priming and yield a snapshot after every step.

    Parameters
    ----------
    X : data of shape (n, d)
        Anything that :func:`primedpca.as_source` reads, or a Centred.
    priming : str, Priming, callable or array
        Who looks for the span; see :mod:`primedpca.priming`.
    n_directions : int
        How many directions to look for, ``p = k + l``.
    batch_size : int
        Rows in a mini-batch, for primings that visit batches or rows.
    max_passes : int
        The most steps of a priming that visits the whole data (for the power method, of one
        component).  Stochastic primings have ``steps`` of their own.
    random_state : int, RandomState, Generator or None
    start : array of shape (d, q), optional
        Directions to start from.
    **preparation
        ``sample_weight``, ``center``, ``scale``, ``missing`` and ``engine``, as the estimator
        has them.

    Yields
    ------
    Snapshot
        ``step``, ``passes``, ``seconds`` and ``directions`` ``(d, <= p)``.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import prime, refine
    >>> X = np.random.default_rng(0).normal(size=(200, 8)) * np.arange(8, 0, -1)
    >>> *_, last = prime(X, "oja", 4, batch_size=50, random_state=0)
    >>> refine(X, last.directions, 2).components.shape
    (2, 8)
    """
    data = Centred.of(X, **preparation)
    priming = as_priming(priming)
    for name, value in (("batch_size", batch_size), ("max_passes", max_passes)):
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"`{name}`={value!r} must be a whole number, at least 1.")
    if not isinstance(n_directions, Integral) or not 1 <= n_directions <= data.shape[1]:
        raise ValueError(
            f"`n_directions`={n_directions!r} must be a whole number between 1 and n_features="
            f"{data.shape[1]}."
        )
    if getattr(priming, "max_steps", 0) is None:
        priming = dataclasses.replace(priming, max_steps=max_passes)  # type: ignore[type-var]
    start = None if start is None else check_directions(start, data.like)
    return _loop(data, priming, n_directions, batch_size, max_passes, as_seed(random_state), start)


def _loop(
    data: Centred,
    priming: Priming,
    n_directions: int,
    batch_size: int,
    max_passes: int,
    seed: int,
    start: Array | None,
) -> Iterator[Snapshot]:
    finished = getattr(priming, "finished", lambda state: False)
    clock = time.perf_counter()
    with one_blas_thread():
        state = priming.init(data.like, n_directions, seed, start)
    seconds, step = time.perf_counter() - clock, 0
    data.position = None
    # What these hold is what their passes gave, and that is kept already.
    own = isinstance(priming, (BlockKrylov, Exact, Given))
    keeper = None if own else data.engine.journal
    if keeper is not None and not hasattr(state, "_fields"):
        raise TypeError(
            f"the state of {type(priming).__name__} is a {type(state).__name__}, and a checkpoint "
            "keeps named tuples of arrays and numbers; make it one, or leave `checkpoint` out."
        )
    held = keeper.resume_loop(data) if keeper is not None else None
    if held is not None:
        state, step, seconds = type(state)(*held["state"]), held["step"], held["seconds"]
    known, begun = len(keeper.history) if keeper is not None else 0, step

    def snapshot(state: State) -> Snapshot:
        find = one_blas_thread()(lambda: priming.directions(state, data))
        return Snapshot(step, data.passes, seconds, state, find)

    def keep(last: bool) -> None:
        if keeper is not None:
            where = {"state": tuple(state), "step": step, "seconds": seconds}
            keeper.keep_loop(data, known, last, **where)

    if held is not None or finished(state):
        yield snapshot(state)
        if finished(state):
            return
    clock = time.perf_counter()
    for part in _visits(data, priming, batch_size, max_passes, seed):
        with one_blas_thread(), np.errstate(all="ignore"):  # a diverging run is named below
            state = priming.step(state, part)
            step += 1
            done = finished(state)
            if done or step % CHECK_EVERY == 0:
                _check_finite(state, step, part)
        seconds += time.perf_counter() - clock
        known = len(keeper.history) if keeper is not None else 0
        keep(last=done)
        yield snapshot(state)
        if done:
            return
        clock = time.perf_counter()
    if step > begun:
        keep(last=True)


def _visits(
    data: Centred, priming: Priming, batch_size: int, max_passes: int, seed: int
) -> Iterator[Centred]:
    """What the priming is shown, visit by visit."""
    if priming.visits == "whole":
        own_count = hasattr(priming, "max_steps")
        step = data.position or 0
        while own_count or step < max_passes:
            step += 1
            data.position = step
            yield data
    elif priming.visits == "rows":
        yield from stream(data, batch_size)
    else:
        epoch, start = data.position or (0, 0)
        while hasattr(priming, "finished") or epoch < max_passes:
            yield from data.batches(batch_size, seed, epoch, start)
            epoch, start = epoch + 1, 0


def _check_finite(state: State, step: int, data: Centred) -> None:
    """Refuse a state that left the range of numbers.

    Vectors must be finite, and NaN is nowhere a value.  Infinity in a list of numbers, one for
    each direction, is: what a priming expects still to change is not known at first.
    """
    arrays = [value for value in state if is_dense(value)]
    if all(_is_sound(value) for value in arrays):
        return
    rate = getattr(state, "rate", None)
    if not rate:
        raise DivergenceError(f"the priming diverged within {step} steps; its state is not finite.")
    smaller = min(rate / 10, fitting_rate(data, random_basis(data.like, 1, 0)))
    raise DivergenceError(
        f"the priming diverged within {step} steps: `learning_rate`={rate:.3g} is too large for "
        f"these data; try {smaller:.2g} or 'auto'."
    )


def _is_sound(value: Array) -> bool:
    xp = namespace(value)
    wrong = ~xp.isfinite(value) if value.ndim > 1 else xp.isnan(value)
    return not bool(xp.any(wrong))


def as_seed(random_state: Any) -> int:
    """A whole number from whatever scikit-learn and NumPy take as a source of randomness."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, (int, np.integer)):
        if random_state < 0:
            raise ValueError(f"`random_state`={random_state} must not be negative.")
        return int(random_state)
    draw = getattr(random_state, "integers", None) or getattr(random_state, "randint", None)
    if draw is None:
        raise ValueError(
            f"`random_state`={random_state!r} must be an integer, a numpy RandomState or "
            "Generator, or None."
        )
    return int(draw(2**31))
