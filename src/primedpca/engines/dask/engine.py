"""Dask clusters: a task for every block or run of blocks, and for every sum in the fixed tree.

A pass is one graph.  The kernel, the operands and the location of the data, which all tasks need,
are sent to every worker once.  A task reads its own block, so the data do not go through the
client.  A task that is lost with its worker is repeated with the same inputs, to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from primedpca._core import dask_cluster
from primedpca._core.process import one_blas_thread, reusing_memory
from primedpca.engines.base import FAN_IN, BaseEngine, FixedTree, block_parts, kernel_name
from primedpca.engines.local import LocalEngine
from primedpca.protocols import (
    Block,
    DataSource,
    EngineTraits,
    Kernel,
    Operands,
    Parts,
    check_block,
)
from primedpca.sources.base import View, join, needed, take_rows
from primedpca.sources.memory import dask_array
from primedpca.sources.memory.dask_array import DaskSource, array_below, chunks_of, view_of

SPREAD_BYTES = 2**26  # parts beyond this many bytes are added one by one, not sixteen at a time
AHEAD = 4  # runs of blocks for every thread, if a task is to be a run
SMALL_SOURCE = 2**20  # bytes of a pickled source that are always sent
LARGE_GRAPH = 10**7  # Dask's own limit for a warning, in bytes


@dataclass(frozen=True)
class DaskEngine(BaseEngine):
    """Process blocks in the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        Client of a running cluster.  It is neither started nor closed here.
    timeout : float, default=300
        Seconds without any worker, or without any finished task, after which a pass fails.
    """

    client: Any
    timeout: float = dask_cluster.TIMEOUT

    def __post_init__(self) -> None:
        if not all(hasattr(self.client, name) for name in ("scatter", "compute", "sync")):
            raise TypeError(f"`client`={self.client!r} is not a distributed.Client. Pass one.")
        if self.client.asynchronous:
            raise ValueError("`engine` is asynchronous. Pass distributed.Client(address) instead.")
        if not self.timeout > 0:
            raise ValueError(f"`timeout`={self.timeout!r} must be a number of seconds above 0.")

    @property
    def traits(self) -> EngineTraits:
        """Facts for plans and reports; workers are those of this machine, as more may join."""
        address = getattr(self.client.scheduler, "address", "a cluster")  # None once closed
        return EngineTraits(f"Dask, {address}", LocalEngine().workers, remote=True)

    def blocks_in_memory(self) -> int:
        """Return the number of threads of the largest worker, and one for the sum of parts."""
        return max(dask_cluster.threads_of(self.client), default=1) + 1

    def sweep(self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands) -> Parts:
        """Make one pass over all blocks; see :class:`primedpca.protocols.Engine`."""
        job, name = _job(source, kernel, whole, mine), f"{kernel_name(kernel)}-{uuid4().hex}"
        threads = max(1, sum(dask_cluster.threads_of(self.client)))
        graph = partial(_tree, source, job, name, threads)
        return Parts(*self._computed(job, graph)[0])

    def view(self, source: Any) -> Any:
        """Return the source with rows read, and the blocks of a Dask array computed, by workers.

        The source itself is not changed, so that it can be used after the cluster is closed.
        """
        ours = isinstance(source, DaskSource)
        held: Any = source.computed_by(self.client, self.timeout) if ours else copy(source)
        if isinstance(source, View):
            held.source = self.view(source.source)
        else:
            held.rows = Gathered(self, source)
        return held

    def rows(self, source: Any, index: np.ndarray) -> Block:
        """Return rows by ascending number: one task for every block that has some of them."""
        job, name = _job(source, None, {}, {}), f"rows-{uuid4().hex}"
        pieces = dict.fromkeys(range(len(source.blocks)), index)
        if source.axis == 0:
            owner = np.searchsorted([stop for _, stop in source.blocks], index, side="right")
            pieces = {int(i): index[owner == i] for i in np.unique(owner)}

        def graph(sent: Any) -> list[Any]:
            from dask import delayed

            make = delayed(take, pure=False)
            return [
                make(sent, i, piece, chunks_of(source, i), dask_key_name=f"block-{i}-{name}")
                for i, piece in pieces.items()
            ]

        return join(self._computed(job, graph), source.axis)

    def _computed(self, job: Job, graph: Callable[[Any], list[Any]]) -> list[Any]:
        """Compute a graph that contains its operands.

        Operands are not scattered, because scattered data are lost with the last worker that
        holds them, while a task of the graph can be repeated.
        """
        import dask
        from distributed.protocol.pickle import dumps, loads

        packed = dumps(job)
        # Dask warns of graphs that hold data; these operands are meant to be there.
        limit = {"distributed.admin.large-graph-warning-threshold": LARGE_GRAPH + len(packed)}
        with self.client.as_current(), dask.config.set(limit):
            opened = dask.delayed(loads, pure=False, traverse=False)  # once on every worker
            sent = opened(packed, dask_key_name=f"operands-{uuid4().hex}")
            return dask_cluster.compute(self.client, graph(sent), self.timeout)

    def __deepcopy__(self, memo: Any) -> DaskEngine:
        return self  # there is one cluster, and a client cannot be copied


class Gathered:
    """Rows by number, fetched from workers; the last rows are kept, so small data come once."""

    def __init__(self, engine: DaskEngine, source: Any) -> None:
        self.engine, self.source = engine, source
        self.index, self.block = np.arange(0), None

    def __call__(self, index: np.ndarray) -> Block:
        """Return the rows in the order of ``index``."""
        order = np.argsort(index)
        if not np.array_equal(index[order], self.index):
            self.block = None  # frees memory before the next rows are read
            self.index, self.block = index[order], self.engine.rows(self.source, index[order])
        if np.array_equal(index, self.index):
            return self.block  # rows in order: no copy
        return take_rows(self.block, np.argsort(order))

    def __reduce__(self) -> Any:
        # A worker that waited for other workers could wait for ever: it reads the rows itself.
        return getattr, (self.source, "rows")


_clients: dict[str, Any] = {}


def client_at(address: str) -> Any:
    """Return a client of the scheduler at an address; one for all fits, as long as it is open."""
    distributed = needed("distributed", f"`engine`={address!r}", "dask")
    if address not in _clients or _clients[address].status != "running":
        limit = dask_cluster.ANSWER
        try:
            client = distributed.Client(address, timeout=limit, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ConnectionError(
                f"`engine`={address!r}: no Dask scheduler answered within {limit:g} s. Start one, "
                "or use `engine`=None for this machine."
            ) from error
        _clients[address] = client
    return _clients[address]


class Job(NamedTuple):
    """Inputs that all tasks of a pass share; of a Dask array only its cut into blocks."""

    source: Any
    kernel: Any
    whole: Operands
    mine: Operands

    def block(self, i: int, chunks: Any) -> Block:
        """Read block ``i``, or join it from chunks that were computed."""
        array = array_below(self.source)
        if array is None:
            return self.source.read(i)
        (number, parts), across = chunks, array.shape[1 - array.axis]
        block = dask_array.strip_of(parts, array.axis, array.blocks[number], across)
        return view_of(self.source, array.holding(block)).read(i)

    def naming(self, i: int) -> Any:
        """Context that adds the place of block ``i`` to errors."""
        return dask_cluster.naming(i, self.source.blocks[i], self.source.axis)


def run(job: Job, first: int, last: int, chunks: Any, before: Parts | None) -> Parts:
    """Process neighbouring blocks, and add the result to ``before``, the sum so far."""
    blocks = job.source.blocks
    begin = blocks[first][0]
    tree = FixedTree(tuple((a - begin, b - begin) for a, b in blocks[first:last]))
    with one_blas_thread, reusing_memory(), np.errstate(all="ignore"):
        for i in range(first, last):
            with job.naming(i):
                block = job.block(i, chunks)
                check_block(block, job.source, i)
                tree.add(block_parts(block, blocks[i], job.kernel, job.whole, job.mine))
        return tree.total() if before is None else fold([before, tree.total()])


def fold(parts: list[Parts]) -> Parts:
    """Add sums from left to right, in float64; put stacks end to end."""
    edges = np.cumsum([0, *(part.stacks[0].shape[0] if part.stacks else 1 for part in parts)])
    tree = FixedTree(tuple(pairwise(edges.tolist())))
    with np.errstate(all="ignore"):
        for part in parts:
            tree.add(part)
        return tree.total()


def take(job: Job, i: int, index: np.ndarray, chunks: Any) -> Block:
    """Return some rows of block ``i``."""
    with job.naming(i):
        if chunks is None and job.source.axis == 0:
            return job.source.rows(index)
        start = job.source.blocks[i][0] if job.source.axis == 0 else 0
        return take_rows(job.block(i, chunks), index - start)


def _job(source: Any, kernel: Any, whole: Operands, mine: Operands) -> Job:
    array = array_below(source)
    held = _portable(source) if array is None else view_of(source, array.holding(None))
    return Job(held, kernel, dict(whole), dict(mine))


def span_of(count: int, threads: int) -> int:
    """Return the number of blocks per task: a power of sixteen with several tasks per thread.

    A task costs milliseconds, and its result is sent; a sixteen is a node of the tree.
    """
    span = 1
    while span < count >= span * FAN_IN * AHEAD * threads:
        span *= FAN_IN
    return span


def _tree(source: Any, job: Job, name: str, threads: int, sent: Any) -> list[Any]:
    """Build the graph of a pass: parts of blocks or runs of blocks, sums of sixteen, and so on.

    Where sixteen parts are too large for a worker's memory, each is added at once to the sum of
    those before it: the same additions, with less parallelism.
    """
    from dask import delayed

    make, add = delayed(run, pure=False), delayed(fold, pure=False)
    count, parts = len(source.blocks), list[Any]()
    span = span_of(count, threads) if array_below(source) is None else 1
    chained = FAN_IN * _part_bytes(job) > SPREAD_BYTES
    for i in range(0, count, span):
        last = min(i + span, count)
        before = parts.pop() if chained and span == 1 and i % FAN_IN else None
        key = f"block-{i}{f'..{last - 1}' if span > 1 else ''}-{name}"
        parts.append(make(sent, i, last, chunks_of(source, i), before, dask_key_name=key))
    at_once = 1 if chained else FAN_IN

    def added(few: list[Any], key: str) -> Any:
        total = add(few[:at_once], dask_key_name=key)
        for j, part in enumerate(few[at_once:]):
            total = add([total, part], dask_key_name=f"{key}-{j}")
        return total

    level = 0
    while len(parts) > 1 or level == 0:
        level += 1
        sixteens = range(0, len(parts), FAN_IN)
        parts = [added(parts[a : a + FAN_IN], f"sum-{level}-{a}-{name}") for a in sixteens]
    return parts


def _part_bytes(job: Job) -> float:
    """Estimate the bytes that one block adds to the sums."""
    operands = {**job.whole, **job.mine}
    factor = next((operands[name] for name in ("vectors", "left") if name in operands), None)
    across = int(job.source.shape[1 - job.source.axis])
    columns = across if getattr(job.kernel, "makes_square", False) else 8
    return 8.0 * across * int(columns if factor is None else factor.shape[1])


def _portable(source: Any) -> Any:
    """Return ``source`` if workers can read it: it is sent by path, not by content."""
    from distributed.protocol.pickle import dumps

    inside = "it is in the memory of this process"
    if source.traits.array is None:
        try:
            if len(dumps(source)) <= SMALL_SOURCE + source.shape[0] * source.shape[1] // 10:
                return source
        except Exception as error:
            inside = f"it cannot be sent ({type(error).__name__}: {error})"
    raise ValueError(
        f"`X`, {source!r}, cannot be read by the workers of `engine`, because {inside}. Save it "
        "to a file that they can read and pass its path, pass a Dask array, or use `engine`=None."
    )
