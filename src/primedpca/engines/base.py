"""Members that engines share: the defaults of one process, and forwarding to another engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from primedpca.protocols import DataSource, Engine, EngineTraits, Journal, Kernel, Operands, Parts

__all__ = ["AdaptedEngine", "BaseEngine", "EngineWrapper", "kernel_name"]


class BaseEngine(ABC):
    """An :class:`~primedpca.protocols.Engine` in this process; a subclass writes ``sweep``."""

    @property
    def traits(self) -> EngineTraits:
        """Facts for plans and reports: by default one worker, named after the class."""
        return EngineTraits(type(self).__name__)

    @property
    def journal(self) -> Journal | None:
        """The record of passes: none."""
        return None

    @abstractmethod
    def sweep(self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands) -> Parts:
        """Make one pass over all blocks; see :class:`primedpca.protocols.Engine`."""

    def once(self, name: str, operands: Operands, make: Callable[[], Any]) -> Any:
        """Call ``make``: nothing is kept."""
        return make()

    def view(self, source: DataSource) -> DataSource:
        """Return the source itself."""
        return source

    def blocks_in_memory(self) -> int:
        """Return the number of workers."""
        return self.traits.workers

    def together(self, task: str) -> AbstractContextManager[None]:
        """Do nothing: no other process runs this fit."""
        return nullcontext()

    def share(self, make: Callable[[], Any]) -> Any:
        """Call ``make``."""
        return make()

    def collect(self, value: Any) -> list[Any]:
        """Return the ``value`` of the only rank."""
        return [value]


class AdaptedEngine(BaseEngine):
    """An object of the user that has only ``sweep``."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    @property
    def traits(self) -> EngineTraits:
        """One worker, named after the class of the user's object."""
        return EngineTraits(type(self.engine).__name__)

    def sweep(self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands) -> Parts:
        """Make one pass with the user's object."""
        found: Parts = self.engine.sweep(source, kernel, whole, mine)
        return found


class EngineWrapper(BaseEngine):
    """Another engine, whose passes a subclass makes in its own way.

    Parameters
    ----------
    engine : Engine
        The engine that does the work.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def traits(self) -> EngineTraits:
        """Traits of the engine inside."""
        return self.engine.traits

    @property
    def journal(self) -> Journal | None:
        """That of the engine inside."""
        return self.engine.journal

    def once(self, name: str, operands: Operands, make: Callable[[], Any]) -> Any:
        """Call ``make`` through the engine inside."""
        return self.engine.once(name, operands, make)

    def view(self, source: DataSource) -> DataSource:
        """Return the source as the engine inside reads it."""
        return self.engine.view(source)

    def blocks_in_memory(self) -> int:
        """Return the number of the engine inside."""
        return self.engine.blocks_in_memory()

    def together(self, task: str) -> AbstractContextManager[None]:
        """Context of the engine inside."""
        return self.engine.together(task)

    def share(self, make: Callable[[], Any]) -> Any:
        """Share through the engine inside."""
        return self.engine.share(make)

    def collect(self, value: Any) -> list[Any]:
        """Collect through the engine inside."""
        return self.engine.collect(value)


def kernel_name(kernel: Kernel) -> str:
    """Name of a kernel, for journals, task names and messages."""
    return str(getattr(kernel, "__name__", type(kernel).__name__))
