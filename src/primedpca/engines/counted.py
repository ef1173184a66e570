"""Progress within a pass: an engine that reports every block it has processed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from primedpca._core.arrays import is_sparse
from primedpca.engines.base import EngineWrapper
from primedpca.protocols import Block, DataSource, Engine, Kernel, Operands, Parts

__all__ = ["CountedEngine"]


class CountedEngine(EngineWrapper):
    """Another engine, its blocks counted; results are the same to the bit.

    Parameters
    ----------
    engine : Engine
        The engine that does the work, in this process.
    tell : callable
        Called with the bytes of a block and the number of blocks in its pass, by the thread that
        processed the block.
    """

    def __init__(self, engine: Engine, tell: Callable[[int, int], None]) -> None:
        super().__init__(engine)
        self.tell = tell

    def sweep(self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands) -> Parts:
        """Make one pass over all blocks."""

        @wraps(kernel)
        def counted(block: Block, **operands: Any) -> Parts:
            parts = kernel(block, **operands)
            self.tell(_size(block), len(source.blocks))
            return parts

        return self.engine.sweep(source, counted, whole, mine)


def _size(block: Block) -> int:
    """Bytes of a block; of a sparse one, of its stored values and indices."""
    if is_sparse(block):
        return int(block.data.nbytes + block.indices.nbytes)
    size = getattr(block.dtype, "itemsize", 8)
    return int(block.shape[0] * block.shape[1] * size)
