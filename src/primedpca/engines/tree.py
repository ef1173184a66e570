"""Work on one block, and the fixed tree in which the results of all blocks are added."""

from __future__ import annotations

from operator import iadd
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import device, namespace
from primedpca._core.threads import one_blas_thread
from primedpca.protocols import Array, Block, DataSource, Kernel, Operands, Parts

FAN_IN = 16


def cut(value: Any, start: int, stop: int) -> Any:
    """Return the entries ``start:stop`` of an array, or of every array in a named tuple."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, tuple):
        return type(value)(*(cut(part, start, stop) for part in value))
    return value[start:stop]


def block_parts(
    block: Block, place: tuple[int, int], kernel: Kernel, whole: Operands, mine: Operands
) -> Parts:
    """Apply a kernel to the block at ``place``, with its own part of every array in ``mine``."""
    # Overflow and NaN are found in the results; warnings are set per thread, hence here.
    with np.errstate(all="ignore"):
        own = {name: cut(value, *place) for name, value in mine.items()}
        return kernel(block, **whole, **own)


def read_and_apply(
    source: DataSource, kernel: Kernel, whole: Operands, mine: Operands, i: int
) -> Parts:
    """Read block ``i`` and apply a kernel to it, with one BLAS thread: a task for any process."""
    with one_blas_thread():
        return block_parts(source.read(i), source.blocks[i], kernel, whole, mine)


class Node(NamedTuple):
    """A sum in the tree: the first ``added`` of sixteen sums of ``16 ** level`` blocks each."""

    level: int
    added: int
    sums: tuple[Array, ...]


class FixedTree:
    """Sums in float64, added in an order that depends only on the number of blocks.

    Sixteen neighbours are added from left to right, then sixteen such sums, and so on.  Few
    sums are in memory at a time, and a cluster can add each sixteen where they were computed.

    Parameters
    ----------
    blocks : tuple of (start, stop)
        Place of the stacks of each block.
    first : int, default=0
        Number of the first block to be added here; another process adds those before it.
    """

    def __init__(self, blocks: tuple[tuple[int, int], ...], first: int = 0) -> None:
        self._blocks, self._first, self._next = blocks, first, first
        self._loose: list[Node] = []
        self._levels: dict[int, Node] = {}
        #: As long as those of all blocks; only the places of blocks added are filled.
        self.stacks: tuple[Array, ...] = ()

    def add(self, parts: Parts) -> None:
        """Add the parts of the next block."""
        start, stop = self._blocks[self._next]
        if self._next == self._first:
            length = self._blocks[-1][1]
            self.stacks = tuple(
                namespace(x).empty((length, *x.shape[1:]), dtype=x.dtype, device=device(x))
                for x in parts.stacks
            )
        for stack, part in zip(self.stacks, parts.stacks, strict=True):
            stack[start:stop] = part
        self._carry(0, self._next, parts.sums)
        self._next += 1

    def graft(self, node: Node) -> None:
        """Continue with a sum, computed elsewhere, of the blocks that come next."""
        if node.added == 1:
            self._carry(node.level, 0, node.sums)
        else:
            self._levels[node.level] = node._replace(sums=tuple(map(_wide, node.sums)))

    def _carry(self, level: int, number: int, sums: tuple[Array, ...]) -> None:
        """Add the sum with this number in its level; pass complete sixteens to the next level."""
        # A sixteen that began before the first block is left to the process with its beginning.
        while -(-self._first // FAN_IN**level) <= number - number % FAN_IN:
            _, added, held = self._levels.pop(level, (level, 0, ()))
            sums = tuple(map(iadd, held, sums)) if added else tuple(map(_wide, sums))
            if added + 1 < FAN_IN:
                self._levels[level] = Node(level, added + 1, sums)
                return
            level, number = level + 1, number // FAN_IN
        self._loose.append(Node(level, 1, tuple(map(_wide, sums))))

    def nodes(self) -> list[Node]:
        """Return the sums that are still to be added to those of other blocks, in block order."""
        return self._loose + sorted(self._levels.values(), key=lambda node: -node.level)

    def total(self) -> Parts:
        """Return all sums, and all stacks end to end."""
        sums: tuple[Array, ...] = ()
        for level in sorted(self._levels):
            held = self._levels[level].sums
            sums = tuple(map(iadd, held, sums)) if sums else held
        return Parts(sums, self.stacks)


def _wide(part: Array) -> Array:
    """Copy in float64, to be added to in place."""
    xp = namespace(part)
    return xp.astype(part, xp.float64)
