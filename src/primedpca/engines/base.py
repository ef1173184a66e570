"""Members that engines share, and engines that wrap another: counted, or kept in a journal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from typing import Any

from primedpca._core.arrays import is_sparse
from primedpca.protocols import DataSource, Engine, EngineTraits, Journal, Kernel, Operands, Parts


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
        return Parts(*self.engine.sweep(source, kernel, whole, mine))


class EngineWrapper(BaseEngine):
    """Another engine, whose passes a subclass makes in its own way.

    Parameters
    ----------
    engine : Engine
        The engine that does the work.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        for name in ("view", "blocks_in_memory", "together", "share", "collect"):
            setattr(self, name, getattr(engine, name))

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


class CountedEngine(EngineWrapper):
    """Another engine, its blocks counted; results are the same to the bit.

    Parameters
    ----------
    engine : Engine
        The engine that does the work, in this process.
    tell : callable
        Called with the bytes of a block (of a sparse one, of its stored values and indices) and
        the number of blocks in its pass, by the thread that processed the block.
    """

    def __init__(self, engine: Engine, tell: Callable[[int, int], None]) -> None:
        super().__init__(engine)
        self.tell = tell

    def sweep(self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands) -> Parts:
        """Make one pass over all blocks."""

        @wraps(kernel)
        def counted(block: Any, **operands: Any) -> Parts:
            parts, size = kernel(block, **operands), getattr(block.dtype, "itemsize", 8)
            size *= block.shape[0] * block.shape[1]
            if is_sparse(block):
                size = block.data.nbytes + block.indices.nbytes
            self.tell(int(size), len(source.blocks))
            return parts

        return self.engine.sweep(source, counted, whole, mine)


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
        make = partial(self.engine.sweep, source, kernel, whole, mine)
        return Parts(*self.once(kernel_name(kernel), {**whole, **mine}, make))

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


def kernel_name(kernel: Kernel) -> str:
    """Name of a kernel, for journals, task names and messages."""
    return str(getattr(kernel, "__name__", type(kernel).__name__))
