"""The local machine: blocks in parallel threads, one BLAS thread each, sums in the fixed tree."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, starmap
from typing import Any

import numpy as np

from primedpca._core.parameters import check_count
from primedpca._core.process import one_blas_thread, pool_of, processors
from primedpca.engines.base import (
    BaseEngine,
    FixedTree,
    block_parts,
    is_out_of_memory,
    parts_of_halves,
)
from primedpca.protocols import (
    Block,
    DataSource,
    EngineTraits,
    Kernel,
    Operands,
    Parts,
    check_block,
)


@dataclass(frozen=True)
class LocalEngine(BaseEngine):
    """Process blocks in threads of this process.

    Parameters
    ----------
    workers : int, optional
        Number of blocks processed at a time.  The default is what ``limit_threads`` or the
        environment variable ``PRIMEDPCA_NUM_THREADS`` says, or else the number of processors, and
        at least two, so that one block is read while another is processed.  The result does not
        depend on it.
    """

    workers: int = field(default_factory=partial(processors, least=2))

    def __post_init__(self) -> None:
        check_count("workers", self.workers)

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
            check_block(block, source, i)
            place = source.blocks[i]
            try:
                return block_parts(block, place, kernel, whole, mine)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # Outside of the handler, which would keep the arrays of the failed call alive.
            source.traits.release()
            return parts_of_halves(block, place, source.axis, kernel, whole, mine)

        tree = FixedTree(source.blocks, numbers.start)
        with one_blas_thread, np.errstate(all="ignore"):  # sums may overflow, too
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
            call = partial(work, *task)
            tasks.append(_Task(call, pool.submit(call)))
            if len(tasks) == most:
                yield _first(tasks)
        while tasks:
            yield _first(tasks)


@dataclass(slots=True)
class _Task:
    """A call, and its result once the pool or a waiting thread has made it."""

    call: Callable[[], Parts]
    future: Future[Parts]


def _first(tasks: deque[_Task]) -> Parts:
    """Return the result of the first task: results are added in block order.

    Instead of waiting, this thread first makes the last call that the pool has not started.
    """
    if not tasks[0].future.done():
        for task in reversed(tasks):
            if task.future.cancel():
                task.future = Future()
                try:
                    task.future.set_result(task.call())
                except Exception as error:  # raised when its turn comes, in block order
                    task.future.set_exception(error)
                break
    return tasks.popleft().future.result()
