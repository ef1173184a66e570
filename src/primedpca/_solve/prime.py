"""Primings run step by step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from primedpca._core.arrays import is_dense, namespace
from primedpca._core.parameters import as_seed, is_whole
from primedpca._core.process import one_blas_thread
from primedpca._operator.one_pass import stream
from primedpca._operator.operator import Centred
from primedpca._solve import replay
from primedpca.priming import OWN, BlockKrylov, as_priming, check_directions
from primedpca.priming.user_directions import with_columns_of
from primedpca.protocols import Array, Journal, Priming, State
from primedpca.result import DivergenceError, Snapshot
from primedpca.sources.memory.frames import aligned_rows, column_labels

__all__ = ["prime", "steps"]

#: Number of steps between two checks for divergence.
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
        Anything that :func:`primedpca.as_source` reads, or prepared data (a Centred).
    priming : str, Priming, callable or array
        Algorithm that finds the directions; see :mod:`primedpca.priming`.
    n_directions : int
        Number of directions to find, ``p = k + l``.
    batch_size : int, default=1000
        Number of rows in a mini-batch, for primings that visit batches or rows.
    max_passes : int, default=60
        Maximum number of steps of a priming that visits the whole data (for the power method,
        per component), however often a step reads them: the directions do not depend on how the
        data are stored.  Stochastic primings have a parameter ``steps`` of their own.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random start and of the order of mini-batches.
    start : array of shape (d, q), optional
        Directions to start from.  By default they are random.
    **preparation
        ``sample_weight``, ``center``, ``scale``, ``missing`` and ``engine``, as in
        :class:`~primedpca.PrimedPCA`.

    Yields
    ------
    Snapshot
        With the attributes ``step``, ``passes``, ``seconds`` and ``directions`` ``(d, <= p)``.

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
    labels = partial(column_labels, data.source)
    priming = as_priming(with_columns_of(priming, labels))
    for name, value in (("batch_size", batch_size), ("max_passes", max_passes)):
        if not is_whole(value) or value < 1:
            raise ValueError(f"`{name}`={value!r} must be a whole number, at least 1.")
    if not is_whole(n_directions) or not 1 <= n_directions <= data.shape[1]:
        raise ValueError(
            f"`n_directions`={n_directions!r} must be a whole number between 1 and n_features="
            f"{data.shape[1]}."
        )
    if start is not None:
        start = check_directions(aligned_rows(start, labels, "start"), data.like)
    seed = as_seed(random_state)
    return steps(data, priming, n_directions, max_passes, seed, start, batch_size, replays=True)


def steps(
    data: Any,
    priming: Priming,
    n_directions: int,
    max_passes: int,
    seed: int,
    start: Array | None = None,
    batch_size: int = 1000,
    costs: tuple[int, int] | None = None,
    replays: bool = False,
) -> Iterator[Snapshot]:
    """Run a priming on an operator and yield a snapshot after every step.

    The arguments are those of :func:`prime`, already validated.  If the engine has a checkpoint,
    the run resumes from it.  With ``costs``, the passes of a step and those that follow the run,
    passes are limited instead of steps, those of the caller between steps included.  With
    ``replays``, steps on CUDA may be replayed as a graph, whose bits differ from those of a fit
    that a checkpoint resumes.
    """
    limit = None if costs is None else data.passes + max_passes - sum(costs)
    priming = priming.limited(max_passes)
    clock = time.perf_counter()
    with one_blas_thread:
        state = priming.init(data.like, n_directions, seed, start)
    seconds, step, at = time.perf_counter() - clock, 0, None
    keeper = None if priming.traits.replayed else data.engine.journal
    if keeper is not None and not isinstance(state, tuple):
        raise TypeError(
            f"The state of {priming!r} is a {type(state).__name__}, but a checkpoint can store "
            "only a named tuple of arrays and numbers. Return one, or leave out `checkpoint`."
        )
    held = keeper.resume_loop() if keeper is not None else None
    if held is not None:
        data.resume(held["frame"], held["passes"])
        state, at = type(state)(*held["state"]), held["position"]
        step, seconds = held["step"], held["seconds"]
    known, begun = len(keeper.history) if keeper is not None else 0, step

    def snapshot(state: State) -> Snapshot:
        def find() -> Array:
            try:
                with one_blas_thread:
                    found = priming.directions(state, data)
            except np.linalg.LinAlgError as error:
                raise _diverged(step, error) from error
            return found if isinstance(priming, OWN) else check_directions(found, data.like)

        return Snapshot(step, data.passes, seconds, state, find)

    def keep(keeper: Journal, last: bool) -> None:
        where = {"frame": data.frame, "passes": data.passes, "position": at}
        where |= {"state": tuple(state), "step": step, "seconds": seconds}
        keeper.keep_loop(where, known, last)

    if held is not None or priming.finished(state):
        yield snapshot(state)
        if priming.finished(state):
            return
    clock = time.perf_counter()
    visits: Iterator[Any] = _visits(data, priming, batch_size, max_passes, seed, at, limit)
    replayed = False
    while (visit := next(visits, None)) is not None:
        at, part = visit
        state = part if replayed else _stepped(priming, state, part, step + 1)
        step += 1
        done = priming.finished(state)
        if (done or step % CHECK_EVERY == 0) and not _is_sound(state):
            with one_blas_thread, np.errstate(all="ignore"):
                why = priming.remedy(state, data if replayed else part)
            raise DivergenceError(f"The priming diverged within {step} steps{why}")
        seconds += time.perf_counter() - clock
        if keeper is not None:
            known = len(keeper.history)
            keep(keeper, last=done)
        yield snapshot(state)
        if done:
            return
        clock = time.perf_counter()  # restarted: the caller's work between steps is not counted
        if replays and step == begun + 1 and keeper is None and replay.suits(data, priming):
            # The first step has found the learning rate; the others are replayed.
            with one_blas_thread:
                others = replay.captured_steps(data, priming, state, batch_size, seed, at)
            visits, replayed = (others, True) if others is not None else (visits, False)
    if keeper is not None and step > begun:
        keep(keeper, last=True)


def _stepped(priming: Priming, state: State, part: Any, step: int) -> State:
    """Return the state after one step."""
    try:
        with one_blas_thread, np.errstate(all="ignore"):  # divergence raises an error later
            found: State = priming.step(state, part)
    except np.linalg.LinAlgError as error:
        raise _diverged(step, error) from error
    if found is None:
        raise TypeError(f"`step` of {priming!r} returned None; it must return the new state.")
    return found


def _diverged(step: int, error: Exception) -> DivergenceError:
    """Return the error for numbers that LAPACK refuses: the first pass has found all finite."""
    return DivergenceError(
        f"The priming diverged in step {step}: {error}. Either its numbers overflowed, or the data "
        "have changed since the first pass."
    )


def passes_of(priming: Priming, data: Any) -> int:
    """Passes of a step: rows are multiplied from the right in one pass, and from the left in two.

    Of columns, the reverse holds.
    """
    left = isinstance(priming, BlockKrylov) and priming.side == "left"
    return 2 if left == (data.source.axis == 0) else 1


def _visits(
    data: Any,
    priming: Priming,
    batch_size: int,
    max_passes: int,
    seed: int,
    position: Any,
    limit: float | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Yield ``(position, part)``: the data of each step, and the position to resume after it.

    The part is the whole data, a mini-batch or a batch of the stream of rows, whichever the
    priming visits.  With a ``limit`` on the passes, no step but the first begins after it.
    """
    own_end = priming.traits.own_end
    if priming.visits == "whole":
        step = position or 0
        # A step of the user's own may read nothing, and then counts all the same.
        while own_end or (
            step < max_passes and (limit is None or step == 0 or data.passes <= limit)
        ):
            step += 1
            yield step, data
    elif priming.visits == "rows":
        yield from stream(data, batch_size, position)
    else:
        epoch, start = position or (0, 0)
        while own_end or epoch < max_passes:
            for i, part in data.numbered_batches(batch_size, seed, epoch, start):
                yield (epoch, i), part
            epoch, start = epoch + 1, 0


def _is_sound(state: State) -> bool:
    """Whether the arrays of a state are free of NaN, and its matrices finite.

    One-dimensional arrays, with one number per direction, may contain infinity: at first the
    estimated remaining change of a direction is not known.
    """
    for value in state:
        if hasattr(value, "ndim") and is_dense(value):
            xp = namespace(value)
            if not bool((xp.isfinite(value) if value.ndim > 1 else ~xp.isnan(value)).all()):
                return False
    return True
