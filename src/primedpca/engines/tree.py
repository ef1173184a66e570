"""Work on one block, and the fixed tree in which the results of all blocks are added."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import device, namespace
from primedpca._core.blas import one_blas_thread
from primedpca.protocols import Array, Block, DataSource, Kernel, Operands, Parts

__all__ = ["FAN_IN", "FixedTree", "Node", "block_parts", "cut", "read_and_apply"]

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
        self._levels: list[tuple[int, tuple[Array, ...]]] = []
        self._stacks: list[Array] = []

    def add(self, parts: Parts) -> None:
        """Add the parts of the next block."""
        self._stack(parts.stacks)
        self._carry(0, self._next, parts.sums)
        self._next += 1

    def graft(self, node: Node) -> None:
        """Continue with a sum, computed elsewhere, of the blocks that come next."""
        level, count, sums = node
        if count == 1:
            self._carry(level, 0, sums)
            return
        self._grow(level)
        self._levels[level] = (count, tuple(map(_wide, sums)))

    def _carry(self, level: int, number: int, carried: tuple[Array, ...]) -> None:
        """Add the sum with this number in its level; pass complete sixteens to the next level."""
        # A sixteen that began before the first block is left to the process with its beginning.
        while -(-self._first // FAN_IN**level) <= number - number % FAN_IN:
            self._grow(level)
            count, held = self._levels[level]
            held = tuple(map(_add, held, carried)) if count else tuple(map(_wide, carried))
            if count + 1 < FAN_IN:
                self._levels[level] = (count + 1, held)
                return
            self._levels[level], carried = (0, ()), held
            level, number = level + 1, number // FAN_IN
        self._loose.append(Node(level, 1, tuple(map(_wide, carried))))

    def _grow(self, level: int) -> None:
        while len(self._levels) <= level:
            self._levels.append((0, ()))

    def _stack(self, parts: tuple[Array, ...]) -> None:
        start, stop = self._blocks[self._next]
        if self._next == self._first:
            length = self._blocks[-1][1]
            self._stacks = [_room(part, length) for part in parts]
        for whole, part in zip(self._stacks, parts, strict=True):
            whole[start:stop] = part

    def nodes(self) -> list[Node]:
        """Return the sums that are still to be added to those of other blocks, in block order."""
        held = [Node(i, *level) for i, level in enumerate(self._levels) if level[0]]
        return self._loose + held[::-1]

    @property
    def stacks(self) -> tuple[Array, ...]:
        """Stacks as long as those of all blocks; only the places of blocks added are filled."""
        return tuple(self._stacks)

    def total(self) -> Parts:
        """Return all sums, and all stacks end to end."""
        sums: tuple[Array, ...] = ()
        for count, held in self._levels:
            if count:
                sums = tuple(map(_add, held, sums)) if sums else held
        return Parts(sums, self.stacks)


def _room(part: Array, length: int) -> Array:
    shape = (length, *part.shape[1:])
    return namespace(part).empty(shape, dtype=part.dtype, device=device(part))


def _wide(part: Array) -> Array:
    xp = namespace(part)
    return xp.astype(part, xp.float64)


def _add(held: Array, part: Array) -> Array:
    held += part  # in place: _wide made this copy
    return held
