"""Shared parts of all engines.

Members with their defaults, engines that wrap another (counted, or kept in a journal), the work on
one block, and the fixed tree in which the results of all blocks are added.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from operator import add, iadd
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import device, is_sparse, namespace
from primedpca._core.process import one_blas_thread
from primedpca.protocols import (
    Array,
    Block,
    DataSource,
    Engine,
    EngineTraits,
    Journal,
    Kernel,
    Operands,
    Parts,
    check_block,
)

FAN_IN = 16  # sums that are added from left to right at each level of the tree
ONCE = "An engine must add every block of `X` once, in order; correct its `sweep`."


class BaseEngine(ABC):
    """An :class:`~primedpca.protocols.Engine` in this process; a subclass writes ``sweep``."""

    #: The record of passes: none.
    journal: Journal | None = None

    @property
    def traits(self) -> EngineTraits:
        """Facts for plans and reports: by default one worker, named after the class."""
        return EngineTraits(type(self).__name__)

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
        found = self.engine.sweep(source, kernel, whole, mine)
        if not isinstance(found, tuple) or len(found) != len(Parts._fields):
            name = type(self.engine).__name__
            raise TypeError(
                f"`sweep` of {name} returned a {type(found).__name__}, which must be a Parts: the "
                "arrays added over all blocks, and those put end to end."
            )
        return Parts(*found)


class EngineWrapper(BaseEngine):
    """Another engine, whose passes a subclass makes in its own way.

    Parameters
    ----------
    engine : Engine
        The engine that does the work.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.journal = engine, engine.journal
        for name in ("view", "blocks_in_memory", "together", "share", "collect"):
            setattr(self, name, getattr(engine, name))

    @property
    def traits(self) -> EngineTraits:
        """Traits of the engine inside."""
        return self.engine.traits

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
        self.journal: Journal = journal
        self._inside = False

    def sweep(self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands) -> Parts:
        """Make one pass over all blocks, or return the kept result."""
        make = partial(self.engine.sweep, source, kernel, whole, mine)
        return Parts(*self.once(kernel_name(kernel), {**whole, **mine}, make))

    def once(self, name: str, operands: Operands, make: Callable[[], Any]) -> Any:
        """Return the kept result of ``make``, or call it and keep what it returns."""
        if self._inside:  # the result of the outer call is kept, and holds this one
            return make()
        held = self.journal.held(name, operands)
        if held is not None:
            return held[0]
        self._inside = True
        try:
            result = make()
        finally:
            self._inside = False
        self.journal.keep(name, operands, result)
        return result


def kernel_name(kernel: Kernel) -> str:
    """Name of a kernel, for journals, task names and messages."""
    return str(getattr(kernel, "__name__", type(kernel).__name__))


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
        own = dict(mine)
        for name, value in mine.items():
            if value is not None:
                own[name] = cut(value, *place)
        return kernel(block, **whole, **own)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of a GPU was too small."""
    return type(error).__name__ == "OutOfMemoryError"


def parts_of_halves(
    block: Block,
    place: tuple[int, int],
    axis: int,
    kernel: Kernel,
    whole: Operands,
    mine: Operands,
) -> Parts:
    """Apply a kernel to the halves of a block, and to their halves, until the memory suffices.

    Sparse blocks are not cut: they take less memory than their products.
    """
    start, stop = place
    middle = (start + stop) // 2
    if is_sparse(block) or middle == start:
        raise MemoryError(
            f"The device has too little memory for products with {stop - start} rows or columns of "
            "`X`. Set `max_memory` to what is free there, or ask for fewer components."
        )
    found = []
    for a, b in ((start, middle), (middle, stop)):
        part = block[a - start : b - start] if axis == 0 else block[:, a - start : b - start]
        try:
            found.append(block_parts(part, (a, b), kernel, whole, mine))
            continue
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        found.append(parts_of_halves(part, (a, b), axis, kernel, whole, mine))
    first, second = found
    xp = namespace(block)
    stacks = zip(first.stacks, second.stacks, strict=True)
    return Parts(
        tuple(map(add, first.sums, second.sums)), tuple(xp.concat(pair) for pair in stacks)
    )


def read_and_apply(
    source: DataSource, kernel: Kernel, whole: Operands, mine: Operands, i: int
) -> Parts:
    """Read block ``i`` and apply a kernel to it, with one BLAS thread: a task for any process."""
    with one_blas_thread:
        block = source.read(i)
        check_block(block, source, i)
        return block_parts(block, source.blocks[i], kernel, whole, mine)


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
        if self._next == len(self._blocks):
            raise ValueError(f"FixedTree has all {self._next} blocks already. {ONCE}")
        start, stop = self._blocks[self._next]
        if self._next == self._first and parts.stacks:
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
        self._next += node.added * FAN_IN**node.level

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
        if self._next - self._first != len(self._blocks):
            added = f"{self._next - self._first} of {len(self._blocks)} blocks"
            raise ValueError(f"FixedTree has only {added}. {ONCE}")
        sums: tuple[Array, ...] = ()
        for level in sorted(self._levels):
            held = self._levels[level].sums
            sums = tuple(map(iadd, held, sums)) if sums else held
        return Parts(sums, self.stacks)


def _wide(part: Array) -> Array:
    """Copy in float64, to be added to in place."""
    xp = namespace(part)
    return xp.astype(part, xp.float64)
