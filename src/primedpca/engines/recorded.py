"""Results of passes that are kept, and given back instead of reading the data again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from primedpca.protocols import DataSource, Engine, Kernel, Parts

__all__ = ["Journal", "RecordedEngine", "journal_of", "recorded"]


class Journal(Protocol):
    """Where results are kept, in the order in which they were asked for.

    ``history`` are the rows of the fit whose results they are.
    """

    history: list[dict[str, Any]]

    def once(self, name: str, operands: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """What ``make`` gave when this was first asked for, or gives now."""

    def resume_loop(self) -> dict[str, Any] | None:
        """Where a loop over mini-batches or rows stood; ``None`` if it begins now."""

    def keep_loop(self, loop: dict[str, Any], known: int, last: bool) -> None:
        """Where such a loop stands, before its step is told as row ``known`` of the history."""


class RecordedEngine:
    """An engine that makes every pass once, however often the fit is begun again.

    What lies between the passes is worked out anew from their results, so that nothing but
    these has to be kept.

    Parameters
    ----------
    engine : Engine
        Who makes the passes.
    journal : Journal
    """

    def __init__(self, engine: Engine, journal: Journal) -> None:
        self.engine, self.journal = engine, journal

    def __getattr__(self, name: str) -> Any:
        if name == "engine":  # not there yet, as in a copy that is being made
            raise AttributeError(name)
        return getattr(self.engine, name)

    def sweep(
        self,
        source: DataSource,
        kernel: Kernel,
        whole: Mapping[str, Any],
        mine: Mapping[str, Any],
    ) -> Parts:
        """One pass over all blocks, or what was kept of it."""
        name = getattr(kernel, "__name__", type(kernel).__name__)
        found: Parts = self.journal.once(
            name, {**whole, **mine}, lambda: self.engine.sweep(source, kernel, whole, mine)
        )
        return found


def recorded(
    engine: Engine, name: str, operands: Mapping[str, Any], make: Callable[[], Any]
) -> Any:
    """``make()``, whole and once, where the engine keeps what was made.

    For work that holds data in memory between sweeps: those within are not kept by themselves.
    """
    journal = journal_of(engine)
    return make() if journal is None else journal.once(name, operands, make)


def journal_of(engine: Engine) -> Journal | None:
    """Where the engine keeps what it makes, if it does."""
    return engine.journal if isinstance(engine, RecordedEngine) else None
