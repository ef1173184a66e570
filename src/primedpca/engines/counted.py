"""An engine that tells of every block as it is done, for whoever shows how a pass goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from primedpca._core.arrays import is_sparse
from primedpca.protocols import Block, DataSource, Engine, Kernel, Parts

__all__ = ["CountedEngine"]


class CountedEngine:
    """Another engine, its blocks counted; results are the same to the bit.

    Parameters
    ----------
    engine : Engine
        Who does the work.
    tell : callable
        Called with the bytes of a block and the number of blocks of its pass, by the thread that
        worked on it.
    """

    def __init__(self, engine: Engine, tell: Callable[[int, int], None]) -> None:
        self.engine, self.tell = engine, tell

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
        """One pass over all blocks."""

        def counted(block: Block, **operands: Any) -> Parts:
            parts = kernel(block, **operands)
            self.tell(_size(block), len(source.blocks))
            return parts

        return self.engine.sweep(source, counted, whole, mine)


def _size(block: Block) -> int:
    """Bytes of a block: of a sparse one, of its entries and where they are."""
    if is_sparse(block):
        return int(block.data.nbytes + block.indices.nbytes)
    size = getattr(block.dtype, "itemsize", 8)
    return int(block.shape[0] * block.shape[1] * size)
