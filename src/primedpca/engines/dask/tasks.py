"""What the workers of a Dask cluster do: tasks on blocks, and sums of what they come to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from primedpca._core.allocator import reusing_memory
from primedpca.engines.dask.waiting import naming
from primedpca.engines.local import FixedTree, cut, one_blas_thread
from primedpca.protocols import Block, Parts
from primedpca.sources.base import take_rows
from primedpca.sources.memory.dask_array import Handed, strip_of, view_of

__all__ = ["Job", "fold", "opened", "run", "take", "work"]


class Job(NamedTuple):
    """What every task of a pass needs; of a Dask array only how it is cut."""

    source: Any
    array: tuple[int, tuple[tuple[int, int], ...], int] | None
    blocks: tuple[tuple[int, int], ...]
    axis: int
    across: int
    kernel: Any
    whole: dict[str, Any]
    mine: dict[str, Any]


def opened(packed: bytes) -> Job:
    """The job that was packed: once on every worker."""
    from distributed.protocol.pickle import loads

    job: Job = loads(packed)
    return job


def _block(job: Job, i: int, chunks: Any) -> Block:
    if job.array is None:
        return job.source.read(i)
    axis, blocks, across = job.array
    number, parts = chunks
    held = Handed(blocks, strip_of(parts, axis, blocks[number], across))
    return view_of(job.source, held).read(i)


def work(job: Job, i: int, chunks: Any, before: Parts | None) -> Parts:
    """What the kernel makes of block ``i``, added to what is there of those before it."""
    start, stop = job.blocks[i]
    with (
        naming(i, (start, stop), job.axis),
        one_blas_thread(),
        reusing_memory(),
        np.errstate(all="ignore"),
    ):
        own = {name: cut(value, start, stop) for name, value in job.mine.items()}
        parts: Parts = job.kernel(_block(job, i, chunks), **job.whole, **own)
    return parts if before is None else fold([before, parts])


def run(job: Job, first: int, last: int) -> Parts:
    """Neighbouring blocks one after the other, added up in the order of the tree."""
    begin = job.blocks[first][0]
    tree = FixedTree(tuple((a - begin, b - begin) for a, b in job.blocks[first:last]))
    with reusing_memory():
        for i in range(first, last):
            tree.add(work(job, i, None, None))
        return tree.total()


def fold(parts: list[Parts]) -> Parts:
    """Sums from left to right, in float64; stacks end to end."""
    edges = np.cumsum([0, *(part.stacks[0].shape[0] if part.stacks else 1 for part in parts)])
    tree = FixedTree(tuple(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)))
    with np.errstate(all="ignore"):
        for part in parts:
            tree.add(part)
        return tree.total()


def take(job: Job, i: int, index: np.ndarray, chunks: Any) -> Block:
    """Some rows of block ``i``."""
    with naming(i, job.blocks[i], job.axis):
        if job.array is None and job.axis == 0:
            return job.source.rows(index)
        start = job.blocks[i][0] if job.axis == 0 else 0
        return take_rows(_block(job, i, chunks), index - start)
