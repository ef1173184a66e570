"""On this machine: blocks in parallel threads, one BLAS thread each, sums in a fixed tree."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import device, namespace
from primedpca._core.threads import pool_of, processors
from primedpca.protocols import Array, Block, DataSource, Kernel, Parts

__all__ = ["FixedTree", "LocalEngine", "Node", "cut", "one_blas_thread"]

FAN_IN = 16


@dataclass(frozen=True)
class LocalEngine:
    """Work on blocks in threads of this process.

    Parameters
    ----------
    workers : int, optional
        How many blocks at a time; by default as many as there are processors, and at least two,
        so that one is read while another is worked on.  The result does not depend on it.
    """

    workers: int = field(default_factory=lambda: max(2, processors()))

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"`workers`={self.workers} must be at least 1.")

    def sweep(
        self,
        source: DataSource,
        kernel: Kernel,
        whole: Mapping[str, Any],
        mine: Mapping[str, Any],
    ) -> Parts:
        """One pass over all blocks; see :class:`primedpca.protocols.Engine`."""
        if len(source.local) < len(source.blocks):
            raise ValueError(
                f"this process holds {len(source.local)} of the {len(source.blocks)} blocks of "
                f"{source!r}; use `engine`='torch_distributed', which works on all of them."
            )
        return self.part(source, kernel, whole, mine, range(len(source.blocks))).total()

    def part(
        self,
        source: DataSource,
        kernel: Kernel,
        whole: Mapping[str, Any],
        mine: Mapping[str, Any],
        numbers: range,
    ) -> FixedTree:
        """What neighbouring blocks add up to, in a tree that others may go on with."""
        tree = FixedTree(source.blocks, numbers.start)
        with one_blas_thread(), np.errstate(all="ignore"):  # looked for in the results
            for parts in self._results(source, kernel, whole, mine, numbers):
                tree.add(parts)
                del parts  # or the sum and the next part would be alive beside it
        return tree

    def _results(
        self,
        source: DataSource,
        kernel: Kernel,
        whole: Mapping[str, Any],
        mine: Mapping[str, Any],
        numbers: range,
    ) -> Iterator[Parts]:
        def work(i: int, block: Block | None = None) -> Parts:
            block = source.read(i) if block is None else block
            start, stop = source.blocks[i]
            with np.errstate(all="ignore"):  # in this thread as well
                own = {name: cut(value, start, stop) for name, value in mine.items()}
                return kernel(block, **whole, **own)

        traits = source.traits
        if self.workers == 1 or len(numbers) == 1 or source.device not in (None, "cpu"):
            for i, block in islice(source.scan(numbers.start), len(numbers)):
                yield work(i, block)
            return
        if traits.sequential:  # who reads them in order has enough to do
            pool, waiting = pool_of(self.workers), deque[Future[Parts]]()
            for i, block in islice(source.scan(numbers.start), len(numbers)):
                waiting.append(pool.submit(work, i, block))
                if len(waiting) == self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
            return
        # Whoever waits for a block works on another one.
        pool, tasks = pool_of(self.workers - 1), deque[Task]()
        # Of data in memory one more, so that nobody waits while a part is added.
        most = self.workers + (traits.array is not None)
        for i in numbers:
            tasks.append(Task(pool, partial(work, i)))
            if len(tasks) == most:
                yield _first(tasks)
        while tasks:
            yield _first(tasks)


class Task:
    """A call that a thread of the pool makes, or whoever waits for it before one has begun to."""

    def __init__(self, pool: ThreadPoolExecutor, call: Callable[[], Parts]) -> None:
        self.call, self.future = call, pool.submit(call)

    def take_over(self) -> bool:
        """Make the call here and now, unless it has been begun."""
        if not self.future.cancel():
            return False
        self.future = Future()
        try:
            self.future.set_result(self.call())
        except Exception as error:  # told in its turn
            self.future.set_exception(error)
        return True


def _first(tasks: deque[Task]) -> Parts:
    """The result of the first: they are folded in block order, whoever is done before."""
    if not tasks[0].future.done():
        any(task.take_over() for task in reversed(tasks))
    return tasks.popleft().future.result()


def cut(value: Any, start: int, stop: int) -> Any:
    """The entries ``start:stop`` of an array, or of every array in a named tuple."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, tuple):
        return type(value)(*(cut(part, start, stop) for part in value))
    return value[start:stop]


class Node(NamedTuple):
    """A sum in the tree: the first ``added`` of sixteen sums of ``16 ** level`` blocks each."""

    level: int
    added: int
    sums: tuple[Array, ...]


class FixedTree:
    """Adds parts in float64 in an order that depends on how many there are and nothing else.

    Sixteen neighbours are added from left to right, then sixteen such sums, and so on: few
    sums are alive at a time, and a cluster can add each sixteen where they are.

    Parameters
    ----------
    blocks : tuple of (start, stop)
        Where the stacks of each block belong.
    first : int
        The number of the block that is added first, where others add those before it.
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
        """Go on with a sum that was made elsewhere, of the blocks that come next."""
        level, count, sums = node
        if count == 1:
            self._carry(level, 0, sums)
            return
        self._grow(level)
        self._levels[level] = (count, tuple(map(_wide, sums)))

    def _carry(self, level: int, number: int, carried: tuple[Array, ...]) -> None:
        """Add the sum with this number in its level, and hand on sixteens that are whole."""
        # Sixteen that began before the first block are left to whoever has that beginning.
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
        """The sums that are left to add to those of other blocks, in block order."""
        held = [Node(i, *level) for i, level in enumerate(self._levels) if level[0]]
        return self._loose + held[::-1]

    @property
    def stacks(self) -> tuple[Array, ...]:
        """As long as those of all blocks; only the places of the blocks added are filled."""
        return tuple(self._stacks)

    def total(self) -> Parts:
        """All sums, and all stacks end to end."""
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
    held += part  # ours since _wide made it
    return held


class _BlasLimit:
    """BLAS gives other bits with other numbers of threads, so there is one, process-wide.

    Counted, because two fits in two threads would otherwise restore each other's limit.
    """

    def __init__(self) -> None:
        # Whoever forks from a signal handler may be in here already.
        self.lock, self.users = threading.RLock(), 0
        self.undo: Any = None  # as long as the limit is set
        self.controller: Any = None

    def enter(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                if self.controller is None:
                    import scipy.linalg  # noqa: F401  (its BLAS must be there to be limited)
                    from threadpoolctl import ThreadpoolController

                    self.controller = ThreadpoolController()
                if self.undo is None:
                    self._let_any_thread_set()
                    self.undo = self.controller.limit(limits=1, user_api="blas")

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self._let_any_thread_set()
                self.undo.restore_original_limits()
                self._let_any_thread_set()
                self.undo = None

    def forget_users(self) -> None:
        """In a forked child: whoever was inside is not there, and the limit is still set.

        The next to leave takes it off; here BLAS may not be ready to be told.
        """
        self.lock, self.users = threading.RLock(), 0

    def _let_any_thread_set(self) -> None:
        """From 3.8 on threadpoolctl hears the first thread that set a limit and no other.

        Whoever leaves last need not be who came first, and a fit need not be in that thread.
        """
        for library in self.controller.lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)


_limit = _BlasLimit()
if hasattr(os, "register_at_fork"):
    # No thread is setting the limit while the process is copied.
    os.register_at_fork(
        before=lambda: _limit.lock.acquire(),
        after_in_parent=lambda: _limit.lock.release(),
        after_in_child=_limit.forget_users,
    )


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the ``with`` block, for this whole process."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()
