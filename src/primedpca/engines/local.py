"""The local machine: blocks in parallel threads, one BLAS thread each, sums in the fixed tree."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, starmap
from typing import Any

import numpy as np

from primedpca._core.threads import one_blas_thread, pool_of, processors
from primedpca.engines.base import BaseEngine
from primedpca.engines.tree import FixedTree, block_parts
from primedpca.protocols import Block, DataSource, EngineTraits, Kernel, Operands, Parts


@dataclass(frozen=True)
class LocalEngine(BaseEngine):
    """Process blocks in threads of this process.

    Parameters
    ----------
    workers : int, optional
        Number of blocks processed at a time.  The default is the number of processors, and at
        least two, so that one block is read while another is processed.  The result does not
        depend on it.
    """

    workers: int = field(default_factory=lambda: max(2, processors()))

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"`workers`={self.workers} must be at least 1.")

    @property
    def traits(self) -> EngineTraits:
        """Facts for plans and reports."""
        return EngineTraits("this machine", self.workers)

    def sweep(self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands) -> Parts:
        """Make one pass over all blocks; see :class:`primedpca.protocols.Engine`."""
        if len(source.local) < len(source.blocks):
            words = f"this process holds {len(source.local)} of the {len(source.blocks)} blocks"
            raise ValueError(f"{words} of {source!r}. Use `engine`='torch_distributed'.")
        return self.part(source, kernel, whole, mine, range(len(source.blocks))).total()

    def part(
        self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands, numbers: range
    ) -> FixedTree:
        """Return the sums of neighbouring blocks, as a tree that other ranks can continue."""

        def work(i: int, block: Block | None = None) -> Parts:
            block = source.read(i) if block is None else block
            return block_parts(block, source.blocks[i], kernel, whole, mine)

        tree = FixedTree(source.blocks, numbers.start)
        with one_blas_thread(), np.errstate(all="ignore"):  # sums may overflow, too
            for parts in self._results(source, work, numbers):
                tree.add(parts)
                del parts  # otherwise it would stay in memory beside the sum and the next part
        return tree

    def _results(self, source: DataSource, work: Any, numbers: range) -> Iterator[Parts]:
        """Yield ``work(i)``, or ``work(i, block)`` of blocks read here, in block order."""
        in_order = islice(source.scan(numbers.start), len(numbers))  # nothing is read yet
        if self.workers == 1 or len(numbers) == 1 or source.device not in (None, "cpu"):
            yield from starmap(work, in_order)
            return
        traits, tasks = source.traits, deque[_Task]()
        # A thread that waits for a result processes a queued block itself.  Where blocks come in
        # order, this thread reads them, and the pool does the work.
        pool = pool_of(self.workers - (not traits.sequential))
        # For data in memory one more is queued, so that no thread idles while a part is added.
        most = self.workers + (traits.array is not None)
        for task in in_order if traits.sequential else zip(numbers):
            tasks.append(_Task(pool, partial(work, *task)))
            if len(tasks) == most:
                yield _first(tasks)
        while tasks:
            yield _first(tasks)


class _Task:
    """A call for the pool, which a waiting thread can take over until it has started."""

    def __init__(self, pool: ThreadPoolExecutor, call: Callable[[], Parts]) -> None:
        self.call, self.future = call, pool.submit(call)

    def take_over(self) -> bool:
        """Make the call in this thread, unless it has started; return whether it was made."""
        if not self.future.cancel():
            return False
        self.future = Future()
        try:
            self.future.set_result(self.call())
        except Exception as error:  # raised when its turn comes, in block order
            self.future.set_exception(error)
        return True


def _first(tasks: deque[_Task]) -> Parts:
    """Return the result of the first task: results are added in block order."""
    if not tasks[0].future.done():
        any(task.take_over() for task in reversed(tasks))
    return tasks.popleft().future.result()
