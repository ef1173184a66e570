"""A fit, kept in a checkpoint or not, and what the ranks that make one together agree in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from primedpca._core.allocator import reusing_memory
from primedpca._core.arrays import like_block
from primedpca._core.packing import pack, unpack
from primedpca._session.agreement import agreement
from primedpca._session.checkpoint import TYPES, Checkpoint
from primedpca._solve.history import Find, Listener, Row
from primedpca._solve.solution import Solution
from primedpca.engines import as_engine
from primedpca.engines.recorded import RecordedEngine
from primedpca.protocols import DataSource, Engine
from primedpca.result import Plan

__all__ = ["SharedFit", "Unkept", "begun_fit"]

#: Facts that may differ from rank to rank: each may have its own copy of a file.
OWN = {"device", "file", "source"}
#: Parameters that change no component, but must not differ between models either.
SEEN = ("whiten", "warm_start")


class Unkept:
    """A fit that keeps nothing: the same methods as a :class:`Checkpoint`."""

    speaks = True

    def __init__(self, engine: Any) -> None:
        self.engine: Engine = engine

    def agreed(self, listener: Listener) -> Listener:
        """The listener itself."""
        return listener

    def begin(self, plan: Plan, seed: int) -> tuple[Plan, int]:
        """These."""
        return plan, seed

    def solution(self, make: Callable[[], Solution]) -> Solution:
        """What the fit comes to."""
        return make()


class SharedFit:
    """A fit that all ranks make together; rank 0 keeps it, if there is a folder.

    Parameters
    ----------
    engine : Engine
        With the methods ``share`` and ``ranks``.
    source : DataSource
    kept : Checkpoint or None
        On rank 0, where the fit is kept.
    keeping : bool
        Whether rank 0 keeps it.
    """

    def __init__(
        self, engine: Any, source: DataSource, kept: Checkpoint | None, keeping: bool
    ) -> None:
        self._inner, self._kept = engine, kept
        self._like = like_block(next(iter(source.scan()))[1], source.shape[1])
        self._depth = 0
        self.history: list[dict[str, Any]] = [] if kept is None else kept.history
        self.engine: Engine = RecordedEngine(engine, self) if keeping else engine
        self.speaks = engine.ranks.rank == 0

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

    def once(self, name: str, operands: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """What rank 0 kept of a pass, or what all ranks make of it now."""
        if self._depth:
            return make()
        held = self._share(lambda kept: kept.held(name, operands))
        if held is not None:
            return held[0]
        self._depth += 1
        try:
            gave = make()
        finally:
            self._depth -= 1
        if self._kept is not None:
            self._kept.keep(name, operands, gave)
        return gave

    def resume_loop(self, data: Any) -> dict[str, Any] | None:
        """Where a loop stood on rank 0, and the data as it had found them."""

        def resumed(kept: Any) -> Any:
            found = kept.resume_loop(data)
            return found and (found, data.frame, data.passes, data.position, kept.history)

        held = self._share(resumed)
        if held is None:
            return None
        found, data.frame, data.passes, data.position, self.history[:] = held
        return found

    def keep_loop(self, data: Any, known: int, last: bool, **loop: Any) -> None:
        """Rank 0 writes where the loop stands."""
        if self._kept is not None:
            self._kept.keep_loop(data, known, last, **loop)


@contextmanager
def begun_fit(
    source: DataSource, options: Mapping[str, Any], sample_weight: Any = None, start: Any = None
) -> Iterator[Checkpoint | SharedFit | Unkept]:
    """A fit on one machine or on all ranks, kept in ``options["checkpoint"]`` if there is one.

    Parameters
    ----------
    source : DataSource
    options : mapping
        The parameters of the estimator.
    sample_weight : array of shape (n,), optional
    start : array of shape (d, q), optional
        Directions to start from.
    """
    engine: Any = as_engine(options["engine"], source)
    folder = options["checkpoint"]
    ranks: Any = getattr(engine, "ranks", None)
    alone = ranks is None or ranks.size == 1
    # Where there is a budget, what is freed does not stay with the process.
    memory = reusing_memory(options["max_memory"] is None)
    if alone and folder is None:
        with memory:
            yield Unkept(engine)
        return
    about = agreement(source, options, sample_weight, start)
    keeping = folder is not None
    if not alone:
        _compare(engine, about, options)
        keeping = engine.share(lambda: keeping)
    if not (alone or (keeping and ranks.rank == 0)):
        with memory:
            yield SharedFit(engine, source, None, keeping)
        return
    kept = Checkpoint(folder, engine)
    with memory, kept.opened(about, source):
        yield kept if alone else SharedFit(engine, source, kept, keeping)


def _compare(engine: Any, about: Mapping[str, Mapping[str, Any]], options: Any) -> None:
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
