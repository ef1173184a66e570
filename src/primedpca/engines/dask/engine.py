"""On a Dask cluster: a task for every block or run of them, sums in the fixed tree, on any worker.

A pass is one graph.  What all its tasks need (kernel, operands, where the data are) is sent to
every worker once.  A task reads its own block, so the data do not go through the client; one that
was lost with its worker is made again from the same, to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import uuid4

import numpy as np

from primedpca._operator import kernels
from primedpca.engines.dask import tasks
from primedpca.engines.dask.tasks import Job
from primedpca.engines.dask.waiting import (
    ANSWER,
    check_client,
    finished,
    threads_of,
)
from primedpca.engines.local import FAN_IN, LocalEngine
from primedpca.protocols import Block, DataSource, Kernel, Parts
from primedpca.sources.base import View, join, take_rows
from primedpca.sources.memory.dask_array import Handed, array_below, chunks_of, view_of

__all__ = ["DaskEngine", "dask_engine", "span_of"]

RETRIES = 2  # of a task that raises, before its error is the fit's
SPREAD_BYTES = 2**26  # of parts that may lie on a worker until sixteen are added
AHEAD = 4  # runs of blocks for every thread, if one of them is to be a task
SMALL_SOURCE = 2**20
LARGE_GRAPH = 10**7


@dataclass(frozen=True)
class DaskEngine:
    """Work on blocks in the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        Of a cluster that somebody else started, and closes.
    timeout : float
        Seconds without any worker, or without any task that ends, after which a pass is given up.

    Attributes
    ----------
    remote : bool
        That blocks are in other processes.
    """

    client: Any
    timeout: float = 300.0
    remote = True

    def __post_init__(self) -> None:
        check_client(self.client)
        if not self.timeout > 0:
            raise ValueError(f"`timeout`={self.timeout!r} must be a number of seconds above 0.")

    @property
    def workers(self) -> int:
        """What plans are made for: as here, so that they do not depend on who is at work."""
        return LocalEngine().workers

    @property
    def threads(self) -> int:
        """The most that one worker has: so many blocks are in its memory at a time."""
        return max(threads_of(self.client), default=1)

    def sweep(
        self,
        source: DataSource,
        kernel: Kernel,
        whole: Mapping[str, Any],
        mine: Mapping[str, Any],
    ) -> Parts:
        """One pass over all blocks; see :class:`primedpca.protocols.Engine`."""
        job = _job(source, kernel, dict(whole), dict(mine))
        name = f"{getattr(kernel, '__name__', 'kernel')}-{uuid4().hex}"
        threads = max(1, sum(threads_of(self.client)))
        parts: Parts = self._computed(
            job, lambda operands: _tree(source, job, operands, name, threads)
        )
        return parts

    def gathering(self, source: Any) -> Any:
        """``source`` with its rows, and so its mini-batches, read by the workers."""
        held = copy(source)
        if isinstance(source, View):
            held.source = self.gathering(source.source)
        else:
            held.rows = Gathered(self, source)
        return held

    def rows(self, source: Any, index: np.ndarray) -> Block:
        """Rows by ascending number: a task for every block that has some of them."""
        job, name = _job(source, None, {}, {}), f"rows-{uuid4().hex}"
        numbers, pieces = list(range(len(source.blocks))), [index] * len(source.blocks)
        if source.axis == 0:
            owner = np.searchsorted([stop for _, stop in source.blocks], index, side="right")
            numbers = np.unique(owner).tolist()
            pieces = [index[owner == i] for i in numbers]

        def graph(operands: Any) -> Any:
            from dask import delayed

            take = delayed(tasks.take, pure=False)
            return [
                take(operands, i, piece, _chunks(source, job, i), dask_key_name=f"block-{i}-{name}")
                for i, piece in zip(numbers, pieces, strict=True)
            ]

        return join(self._computed(job, graph), source.axis)

    def _computed(self, job: Job, graph: Callable[[Any], Any]) -> Any:
        """What the graph comes to, its operands in it.

        They are not scattered: what was, is lost for good with the last worker that held it.
        """
        import dask
        from distributed.protocol.pickle import dumps

        packed = dumps(job)
        # Dask warns of graphs that hold data; of these it need not.
        limit = {"distributed.admin.large-graph-warning-threshold": LARGE_GRAPH + len(packed)}
        with self.client.as_current(), dask.config.set(limit):
            opened = dask.delayed(tasks.opened, pure=False, traverse=False)
            operands = opened(packed, dask_key_name=f"operands-{uuid4().hex}")
            return self.fetch(graph(operands))

    def fetch(self, wanted: Any) -> Any:
        """What something delayed, or a list of such, comes to; no wait is without a limit."""
        several = wanted if isinstance(wanted, list) else [wanted]
        keys = {key for one in several for key in one.__dask_graph__()}
        with self.client.as_current():
            futures = self.client.compute(several, retries=RETRIES)
            try:
                values = finished(self.client, futures, self.timeout, keys)
            finally:
                for future in futures:  # whoever keeps an error would keep them
                    future.release()
        return values if isinstance(wanted, list) else values[0]

    def __deepcopy__(self, memo: Any) -> DaskEngine:
        return self  # there is one cluster, and a client cannot be copied


class Gathered:
    """Rows by number, of which those asked for last are held: small data are fetched once."""

    def __init__(self, engine: DaskEngine, source: Any) -> None:
        self.engine, self.source = engine, source
        self.index, self.block = np.arange(0), None

    def __call__(self, index: np.ndarray) -> Block:
        """In the order of ``index``."""
        order = np.argsort(index)
        if not np.array_equal(index[order], self.index):
            self.block = None  # before the next are read
            self.index, self.block = index[order], self.engine.rows(self.source, index[order])
        places = np.empty_like(order)
        places[order] = np.arange(order.size)
        return take_rows(self.block, places)


@cache
def _client_of(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError(
            f"`engine`={address!r} needs Dask: pip install 'primedpca[dask]'."
        ) from error
    try:
        return Client(address, timeout=ANSWER, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ConnectionError(
            f"`engine`={address!r}: no Dask scheduler answers there within {ANSWER:g} s; start "
            "one, or leave `engine` at None for this machine."
        ) from error


def dask_engine(engine: Any) -> DaskEngine:
    """The engine of a client, or of the scheduler at an address."""
    if not isinstance(engine, str):
        return DaskEngine(engine)
    client = _client_of(engine)
    if client.status != "running":  # closed since
        _client_of.cache_clear()
        client = _client_of(engine)
    return DaskEngine(client)


def _job(source: Any, kernel: Any, whole: dict[str, Any], mine: dict[str, Any]) -> Job:
    array, cut_as = array_below(source), None
    if array is not None:
        cut_as = array.axis, array.blocks, array.shape[1 - array.axis]
    held = _portable(source) if array is None else view_of(source, Handed(array.blocks))
    across = source.shape[1 - source.axis]
    return Job(held, cut_as, source.blocks, source.axis, across, kernel, whole, mine)


def _chunks(source: Any, job: Job, i: int) -> tuple[int, Any] | None:
    """Of a Dask array: the number of the block of it that block ``i`` rests on, and its chunks."""
    return None if job.array is None else chunks_of(source, i)


def span_of(count: int, threads: int) -> int:
    """How many blocks a task takes: a power of sixteen that leaves several tasks to everybody.

    A task costs milliseconds, and what it comes to is sent; a sixteen is a node of the tree.
    """
    span = 1
    while span < count >= span * FAN_IN * AHEAD * threads:
        span *= FAN_IN
    return span


def _tree(source: Any, job: Job, operands: Any, name: str, threads: int) -> Any:
    """The graph of a pass: the parts of blocks or of runs of them, sums of sixteen, and so on.

    Where sixteen parts are too many for a worker's memory, each is added to the sum of those
    before it as soon as it is made: the same additions, and less that can be done side by side.
    """
    from dask import delayed

    work, run, fold = (delayed(do, pure=False) for do in (tasks.work, tasks.run, tasks.fold))
    count, parts = len(source.blocks), list[Any]()
    span = span_of(count, threads) if job.array is None else 1
    chained = FAN_IN * _part_bytes(job) > SPREAD_BYTES
    for i in range(0, count, span):
        if span > 1:
            last = min(i + span, count)
            key = f"block-{i}..{last - 1}-{name}"
            parts.append(run(operands, i, last, dask_key_name=key))
            continue
        before = parts.pop() if chained and i % FAN_IN else None
        chunks = _chunks(source, job, i)
        parts.append(work(operands, i, chunks, before, dask_key_name=f"block-{i}-{name}"))

    def added(few: list[Any], key: str) -> Any:
        if not chained:
            return fold(few, dask_key_name=key)
        total = fold(few[:1], dask_key_name=f"{key}-first")
        for j, part in enumerate(few[1:]):
            total = fold([total, part], dask_key_name=f"{key}-{j}")
        return total

    level = 0
    while len(parts) > 1 or level == 0:
        level += 1
        parts = [
            added(parts[a : a + FAN_IN], f"sum-{level}-{a}-{name}")
            for a in range(0, len(parts), FAN_IN)
        ]
    return parts[0]


def _part_bytes(job: Job) -> float:
    """About how many bytes one block adds to the sums."""
    operands = {**job.whole, **job.mine}
    factor = next((operands[name] for name in ("vectors", "left") if name in operands), None)
    columns = job.across if job.kernel is kernels.covariance else 8
    return 8.0 * job.across * (columns if factor is None else factor.shape[1])


def _portable(source: Any) -> Any:
    """``source`` if it can be read by others: sent by path, not by content."""
    from distributed.protocol.pickle import dumps

    inside = "it lies in the memory of this process"
    if source.traits.array is None:
        try:
            size, data = len(dumps(source)), source.shape[0] * source.shape[1]
        except Exception as error:
            inside = f"it cannot be sent ({type(error).__name__}: {error})"
        else:
            if size <= SMALL_SOURCE + data // 10:
                return source
    raise ValueError(
        f"`X`, {source!r}, cannot be read by the workers of `engine`, as {inside}; save it to a "
        "file that they can read and pass its path, pass a Dask array, or leave `engine` at None."
    )
