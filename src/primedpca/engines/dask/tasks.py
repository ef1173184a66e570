"""Tasks that the workers of a Dask cluster run: on blocks, and on sums of their results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from primedpca._core.allocator import reusing_memory
from primedpca._core.blas import one_blas_thread
from primedpca._core.dask_cluster import naming
from primedpca.engines.tree import FixedTree, block_parts
from primedpca.protocols import Block, Parts
from primedpca.sources.base import take_rows
from primedpca.sources.memory.dask_array import Handed, strip_of, view_of

__all__ = ["Job", "fold", "opened", "run", "take", "work"]


class Job(NamedTuple):
    """Inputs that all tasks of a pass share; of a Dask array only its cut into blocks."""

    source: Any
    array: tuple[int, tuple[tuple[int, int], ...], int] | None
    blocks: tuple[tuple[int, int], ...]
    axis: int
    across: int
    kernel: Any
    whole: dict[str, Any]
    mine: dict[str, Any]


def opened(packed: bytes) -> Job:
    """Unpickle the job, once on every worker."""
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
    """Apply the kernel to block ``i`` and add the result to ``before``, the sum so far."""
    place = job.blocks[i]
    with naming(i, place, job.axis), one_blas_thread(), reusing_memory():
        parts = block_parts(_block(job, i, chunks), place, job.kernel, job.whole, job.mine)
    return parts if before is None else fold([before, parts])


def run(job: Job, first: int, last: int) -> Parts:
    """Process neighbouring blocks one after the other, added in the order of the tree."""
    begin = job.blocks[first][0]
    tree = FixedTree(tuple((a - begin, b - begin) for a, b in job.blocks[first:last]))
    with reusing_memory():
        for i in range(first, last):
            tree.add(work(job, i, None, None))
        return tree.total()


def fold(parts: list[Parts]) -> Parts:
    """Add sums from left to right, in float64; put stacks end to end."""
    edges = np.cumsum([0, *(part.stacks[0].shape[0] if part.stacks else 1 for part in parts)])
    tree = FixedTree(tuple(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)))
    with np.errstate(all="ignore"):
        for part in parts:
            tree.add(part)
        return tree.total()


def take(job: Job, i: int, index: np.ndarray, chunks: Any) -> Block:
    """Return some rows of block ``i``."""
    with naming(i, job.blocks[i], job.axis):
        if job.array is None and job.axis == 0:
            return job.source.rows(index)
        start = job.blocks[i][0] if job.axis == 0 else 0
        return take_rows(_block(job, i, chunks), index - start)
