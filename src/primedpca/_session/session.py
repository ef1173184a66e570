"""Fit session with optional checkpoint and ranks."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from primedpca._core.packing import pack, unpack
from primedpca._operator.operator import Centred
from primedpca._session.agreement import agreement
from primedpca._session.checkpoint import TYPES, Checkpoint
from primedpca._solve.history import Find, Listener, Row
from primedpca.engines.base import RecordedEngine
from primedpca.protocols import DataSource, Engine, Like
from primedpca.result import Plan, Solution

#: Facts that may differ between ranks, each of which may have its own copy of a file.
OWN = {"device", "file", "source"}
#: Parameters that do not affect the components but must be equal on all ranks.
SEEN = ("whiten", "warm_start")


class SharedFit:
    """Session of a fit that several ranks compute together; rank 0 writes the checkpoint, if any.

    Parameters
    ----------
    engine : Engine
        Engine of this rank.
    like : Like
        Library, device and dtype of the data on this rank.
    kept : Checkpoint or None
        The checkpoint on rank 0; ``None`` on other ranks or without a checkpoint.
    keeping : bool
        Whether rank 0 has a checkpoint; equal on all ranks.
    """

    def __init__(self, engine: Engine, like: Like, kept: Checkpoint | None, keeping: bool) -> None:
        self._inner, self._kept, self._like = engine, kept, like
        self.history: list[dict[str, Any]] = [] if kept is None else kept.history
        self.engine: Engine = RecordedEngine(engine, self) if keeping else engine

    def _share(self, make: Callable[[Any], Any]) -> Any:
        """Return ``make(checkpoint)`` of rank 0, with arrays in the library of this rank."""
        held = self._inner.share(lambda: pack(make(self._kept)))
        return unpack(held, self._like)

    def agreed(self, listener: Listener) -> Listener:
        """Return a listener for which rank 0 decides whether the fit ends.

        Listeners may depend on a clock, and clocks differ between ranks.
        """

        def told(history: list[Row], find: Find) -> bool:
            word = bool(listener(history, find))
            return bool(self._inner.share(lambda: word))

        return told

    def begin(self, plan: Plan, seed: int) -> tuple[Plan, int]:
        """Return the plan and seed of rank 0, or those in its checkpoint."""

        def begun(kept: Any) -> tuple[Plan | None, int]:
            found, drawn = (plan, seed) if kept is None else kept.begin(plan, seed)
            # A user's priming cannot always be sent; each rank then uses its own plan.
            return found if type(found.priming) in TYPES.values() else None, drawn

        found, drawn = self._share(begun)
        return found or plan, drawn

    def solution(self, make: Callable[[], Solution]) -> Solution:
        """Return on every rank the result of rank 0, or the one in its checkpoint."""
        held: Solution | None
        held = self._share(lambda kept: None if kept is None else kept.ended())
        if held is None:
            found = make()
            held = self._share(lambda kept: found)
        if self._kept is not None:
            self._kept.end(held)
        return held

    def held(self, name: str, operands: Mapping[str, Any]) -> tuple[Any] | None:
        """Return the next pass's result from the checkpoint, in a tuple, or ``None``."""
        held: tuple[Any] | None = self._share(lambda kept: kept.held(name, operands))
        return held

    def keep(self, name: str, operands: Mapping[str, Any], result: Any) -> None:
        """Write the result of a pass to the checkpoint on rank 0."""
        if self._kept is not None:
            self._kept.keep(name, operands, result)

    def resume_loop(self) -> dict[str, Any] | None:
        """Return the state of a loop in the checkpoint, or ``None``; restore its history."""

        def resumed(kept: Any) -> Any:
            found = kept.resume_loop()
            return found and (found, kept.history)

        held: tuple[dict[str, Any], list[Row]] | None = self._share(resumed)
        if held is None:
            return None
        found, self.history[:] = held
        return found

    def keep_loop(self, loop: dict[str, Any], known: int, last: bool) -> None:
        """Write the state of a loop to the checkpoint on rank 0."""
        if self._kept is not None:
            self._kept.keep_loop(loop, known, last)


@contextmanager
def fit_session(
    data: Centred, options: Mapping[str, Any], sample_weight: Any = None, start: Any = None
) -> Iterator[Checkpoint | SharedFit]:
    """Open the session of a fit by several ranks or with a checkpoint.

    Parameters
    ----------
    data : Centred
        Data before the first pass, with the engine that makes the passes.
    options : mapping
        Parameters of the estimator.
    sample_weight : array of shape (n,) or None, default=None
        Weights of the rows.
    start : array of shape (d, q) or None, default=None
        Directions of a warm start.

    Yields
    ------
    Checkpoint or SharedFit
        Depending on the number of ranks.
    """
    engine, folder = data.engine, options["checkpoint"]
    traits = engine.traits
    alone = traits.ranks == 1
    about = agreement(data.source, options, sample_weight, start)
    keeping = folder is not None
    if not alone:
        _compare(engine, about, options)
        keeping = engine.share(lambda: keeping)  # only rank 0 writes, so only its folder counts
    if not (alone or (keeping and traits.rank == 0)):
        yield SharedFit(engine, data.like, None, keeping)
        return
    kept = Checkpoint(folder, engine)
    with kept.opened(about, data.like):
        yield kept if alone else SharedFit(engine, data.like, kept, keeping)


def check_resumable(source: DataSource, options: Mapping[str, Any], start: Any = None) -> None:
    """Raise ValueError if the folder of a checkpoint is another fit's; nothing is written.

    Parameters
    ----------
    source : DataSource
    options : mapping
        Parameters of the estimator.
    start : array of shape (d, q) or None, default=None
        Directions of a warm start.
    """
    Checkpoint(options["checkpoint"]).check(agreement(source, options, None, start))


def _compare(engine: Engine, about: Mapping[str, Mapping[str, Any]], options: Any) -> None:
    """Raise ValueError if ranks differ in their data, parameters or library versions."""
    facts = [*about["data"].items(), *about["options"].items(), *about["versions"].items()]
    facts += [(name, options[name]) for name in SEEN]
    mine = {name: value for name, value in facts if name not in OWN}
    for r, theirs in enumerate(found := engine.collect(mine)):
        for name in theirs | found[0]:
            here, there = theirs.get(name), found[0].get(name)
            if not np.array_equal(here, there):
                raise ValueError(
                    f"rank {r} has `{name}`={here}, but rank 0 has {there}. Use the same data, "
                    "parameters and versions on every rank."
                )
