"""A fit session with optional checkpoint and ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from primedpca._core.allocator import reusing_memory
from primedpca._core.packing import pack, unpack
from primedpca._operator.operator import Centred
from primedpca._session.agreement import agreement
from primedpca._session.checkpoint import TYPES, Checkpoint
from primedpca._solve.history import Find, Listener, Row
from primedpca._solve.solution import Solution
from primedpca.engines.journal import RecordedEngine
from primedpca.protocols import Engine, Like
from primedpca.result import Plan

__all__ = ["SharedFit", "Unkept", "fit_session"]

#: Facts that may differ from rank to rank: each may have its own copy of a file.
OWN = {"device", "file", "source"}
#: Parameters that change no component, but must not differ between models either.
SEEN = ("whiten", "warm_start")


class Unkept:
    """A fit that keeps nothing: the same methods as a :class:`Checkpoint`."""

    speaks = True

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def agreed(self, listener: Listener) -> Listener:
        """The listener itself."""
        return listener

    def begin(self, plan: Plan, seed: int) -> tuple[Plan, int]:
        """Return plan and seed unchanged."""
        return plan, seed

    def solution(self, make: Callable[[], Solution]) -> Solution:
        """What the fit comes to."""
        return make()


class SharedFit:
    """A fit that all ranks make together; rank 0 keeps it, if there is a folder.

    Parameters
    ----------
    engine : Engine
    like : Like
        Library, device and type of the data.
    kept : Checkpoint or None
        On rank 0, where the fit is kept.
    keeping : bool
        Whether rank 0 keeps it.
    """

    def __init__(self, engine: Engine, like: Like, kept: Checkpoint | None, keeping: bool) -> None:
        self._inner, self._kept, self._like = engine, kept, like
        self.history: list[dict[str, Any]] = [] if kept is None else kept.history
        self.engine: Engine = RecordedEngine(engine, self) if keeping else engine
        self.speaks = engine.traits.rank == 0

    def _share(self, make: Callable[[Any], Any]) -> Any:
        """What ``make(checkpoint)`` gives on rank 0, its arrays in this rank's own library."""
        held = self._inner.share(lambda: pack(make(self._kept)))
        return unpack(held, self._like)

    def agreed(self, listener: Listener) -> Listener:
        """A listener by which rank 0 decides whether the fit ends: clocks differ."""

        def told(history: list[Row], find: Find) -> bool:
            word = bool(listener(history, find))
            return bool(self._inner.share(lambda: word))

        return told

    def begin(self, plan: Plan, seed: int) -> tuple[Plan, int]:
        """The plan and seed of rank 0, or of the fit that it kept."""

        def begun(kept: Any) -> tuple[Plan | None, int]:
            found, drawn = (plan, seed) if kept is None else kept.begin(plan, seed)
            # A priming of the user's own need not be one that can be sent.
            return found if type(found.priming) in TYPES.values() else None, drawn

        found, drawn = self._share(begun)
        return found or plan, drawn

    def solution(self, make: Callable[[], Solution]) -> Solution:
        """What the fit comes to: that of rank 0, on all."""
        held = self._share(lambda kept: None if kept is None else kept.ended())
        if held is None:
            found = make()
            held = self._share(lambda kept: found)
        if self._kept is not None:
            self._kept.end(held)
        return held

    def held(self, name: str, operands: Mapping[str, Any]) -> tuple[Any] | None:
        """Return the result of the next pass that rank 0 kept, in a tuple, or ``None``."""
        held: tuple[Any] | None = self._share(lambda kept: kept.held(name, operands))
        return held

    def keep(self, name: str, operands: Mapping[str, Any], result: Any) -> None:
        """Keep the result of a pass on rank 0."""
        if self._kept is not None:
            self._kept.keep(name, operands, result)

    def resume_loop(self) -> dict[str, Any] | None:
        """Where a loop stood on rank 0, and what it had learnt of the data."""

        def resumed(kept: Any) -> Any:
            found = kept.resume_loop()
            return found and (found, kept.history)

        held = self._share(resumed)
        if held is None:
            return None
        found, self.history[:] = held
        return found

    def keep_loop(self, loop: dict[str, Any], known: int, last: bool) -> None:
        """Rank 0 writes where the loop stands."""
        if self._kept is not None:
            self._kept.keep_loop(loop, known, last)


@contextmanager
def fit_session(
    data: Centred, options: Mapping[str, Any], sample_weight: Any = None, start: Any = None
) -> Iterator[Checkpoint | SharedFit | Unkept]:
    """A fit on one machine or on all ranks, kept in ``options["checkpoint"]`` if there is one.

    Parameters
    ----------
    data : Centred
        Before any pass, with the engine that is to make them.
    options : mapping
        The parameters of the estimator.
    sample_weight : array of shape (n,), optional
    start : array of shape (d, q), optional
        Directions to start from.
    """
    engine, folder = data.engine, options["checkpoint"]
    traits = engine.traits
    alone = traits.ranks == 1
    # With a memory budget, freed memory does not stay with the process.
    memory = reusing_memory(options["max_memory"] is None)
    if alone and folder is None:
        with memory:
            yield Unkept(engine)
        return
    about = agreement(data.source, options, sample_weight, start)
    keeping = folder is not None
    if not alone:
        _compare(engine, about, options)
        keeping = engine.share(lambda: keeping)
    if not (alone or (keeping and traits.rank == 0)):
        with memory:
            yield SharedFit(engine, data.like, None, keeping)
        return
    kept = Checkpoint(folder, engine)
    with memory, kept.opened(about, data.like):
        yield kept if alone else SharedFit(engine, data.like, kept, keeping)


def _compare(engine: Engine, about: Mapping[str, Mapping[str, Any]], options: Any) -> None:
    """Refuse ranks that differ in their data, parameters or libraries."""
    facts = [*about["data"].items(), *about["options"].items(), *about["versions"].items()]
    facts += [(name, options[name]) for name in SEEN]
    mine = {name: value for name, value in facts if name not in OWN}
    for r, theirs in enumerate(found := engine.collect(mine)):
        for name in theirs | found[0]:
            here, there = theirs.get(name), found[0].get(name)
            if not np.array_equal(here, there):
                raise ValueError(
                    f"rank {r} has `{name}`={here}, and rank 0 has {there}; give every rank the "
                    "same data, parameters and versions."
                )
