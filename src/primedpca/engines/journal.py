"""The journal of passes: results that are kept, so that no pass is made twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from primedpca.engines.base import EngineWrapper, kernel_name
from primedpca.protocols import DataSource, Engine, Journal, Kernel, Operands, Parts

__all__ = ["RecordedEngine"]


class RecordedEngine(EngineWrapper):
    """An engine that makes every pass once, however often the fit is resumed.

    The algebra between passes is recomputed from their results, so only these are kept.

    Parameters
    ----------
    engine : Engine
        The engine that makes the passes.
    journal : Journal
    """

    def __init__(self, engine: Engine, journal: Journal) -> None:
        super().__init__(engine)
        self._journal, self._inside = journal, False

    @property
    def journal(self) -> Journal:
        """The record of passes."""
        return self._journal

    def sweep(self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands) -> Parts:
        """Make one pass over all blocks, or return the kept result."""
        operands, engine = {**whole, **mine}, self.engine
        found: Parts = self.once(
            kernel_name(kernel), operands, lambda: engine.sweep(source, kernel, whole, mine)
        )
        return found

    def once(self, name: str, operands: Operands, make: Callable[[], Any]) -> Any:
        """Return the kept result of ``make``, or call it and keep what it returns."""
        if self._inside:  # the result of the outer call is kept, and holds this one
            return make()
        held = self._journal.held(name, operands)
        if held is not None:
            return held[0]
        self._inside = True
        try:
            result = make()
        finally:
            self._inside = False
        self._journal.keep(name, operands, result)
        return result
