"""Dask arrays: strips of whole chunks, computed every time they are read."""

from __future__ import annotations

import sys
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from primedpca._core import dask_cluster
from primedpca._core.arrays import (
    check_unmasked,
    describe,
    dtype_name,
    is_sparse,
    to_numpy,
    work_dtype,
)
from primedpca.protocols import Block
from primedpca.sources import base
from primedpca.sources.base import BlockSource, View, join, read_only, tall_first
from primedpca.sources.memory.sparse import SparseSource


class DaskSource(BlockSource):
    """A Dask array of two dimensions, its chunks dense or sparse.

    A block is a strip of whole chunks, along the axis whose strips take less memory, so that
    every chunk is computed once a pass.  Small chunks are joined.

    Parameters
    ----------
    x : dask.array.Array
        Chunked in rows, columns or both.  It is not computed as a whole, kept or rechunked.
    """

    on_disk = True

    def __init__(self, x: Any) -> None:
        if any(np.isnan(size) for sizes in x.chunks for size in sizes):
            raise ValueError("`X` has chunks of unknown sizes. Call X.compute_chunk_sizes() first.")
        self.shape, self.dtype = base.matrix_shape(x), np.dtype(x.dtype)
        work_dtype(self.dtype)
        self.axis, parts = _cut(x.chunks, self.shape, self.dtype.itemsize)
        edges = np.concatenate([[0], np.cumsum(x.chunks[self.axis])]).tolist()
        self.blocks = tuple((edges[a], edges[b]) for a, b in parts)
        # Delayed chunks, one list for every step along the axis.
        chunks = x.to_delayed() if self.axis == 0 else x.to_delayed().T
        self.strips: list[Any] = [chunks[a:b].tolist() for a, b in parts]
        self._cluster: tuple[Any, float] | None = None  # client and timeout; see computed_by
        self._here, self._block = False, None

    @cached_property
    def nnz(self) -> int | None:  # type: ignore[override]
        """Estimate from the first block of how many entries sparse chunks store; None if dense."""
        first, (start, stop) = self.read(0), self.blocks[0]
        if not is_sparse(first):
            return None
        return int(first.nnz) * self.shape[self.axis] // (stop - start)

    def dask_client(self) -> Any:
        """The Dask client in scope, if any, unless the array has travelled to a worker."""
        distributed = sys.modules.get("distributed")  # imported by anyone who has a client
        if self._here or distributed is None:
            return None
        try:
            return distributed.Client.current()
        except ValueError:
            return None

    def holding(self, block: Block) -> DaskSource:
        """Return the cut of the array without its chunks; ``block`` stands in for them."""
        held = copy(self)
        held.strips, held._block = [], block
        return held

    def computed_by(self, client: Any, timeout: float) -> DaskSource:
        """Return the same array, its blocks computed by this Dask client."""
        held = copy(self)
        held._cluster, held._here = (client, timeout), False
        return held

    def read(self, i: int) -> Block:
        """Compute the block: by the client given or in scope, otherwise in this thread."""
        if self._block is not None:
            return self._block
        from dask import delayed

        # A task of its own: chunks fetched by name twice in a row may be released in between.
        make = delayed(strip_of, pure=False)
        block = make(self.strips[i], self.axis, self.blocks[i], self.shape[1 - self.axis])
        client, timeout = self._cluster or (self.dask_client(), dask_cluster.TIMEOUT)
        if client is None:
            return read_only(block.compute(scheduler="synchronous"))
        return read_only(dask_cluster.compute(client, [block], timeout)[0])

    def __getstate__(self) -> dict[str, Any]:
        # On a worker, computed in place: one that waited for other workers could wait for ever.
        return self.__dict__ | {"_here": True, "_cluster": None}

    def __repr__(self) -> str:
        n, d = self.shape
        return f"DaskSource({n} x {d}, {len(self.blocks)} blocks, {dtype_name(self.dtype)})"


def array_below(source: Any) -> DaskSource | None:
    """The Dask array that a source is, or is a view of; None for other data."""
    while isinstance(source, View):
        source = source.source
    return source if isinstance(source, DaskSource) else None


def chunks_of(source: Any, i: int) -> tuple[int, Any] | None:
    """Number and delayed chunks of the array's block that block ``i`` of a view is made of."""
    while isinstance(source, View):
        source, i = source.source, source.below(i)
    return (i, source.strips[i]) if isinstance(source, DaskSource) else None


def view_of(source: Any, floor: DaskSource) -> Any:
    """A copy of the view with another array below it."""
    if not isinstance(source, View):
        return floor
    held = copy(source)
    held.source = view_of(source.source, floor)
    return held


def is_dask(x: Any) -> bool:
    """Whether ``x`` is a Dask array; data frames of Dask are refused with a remedy."""
    kind = type(x)
    if kind.__module__.split(".")[0] not in ("dask", "dask_expr") or not hasattr(x, "dask"):
        return False
    if hasattr(x, "to_dask_array"):
        raise TypeError(f"`X` is a {describe(x)}; pass X.to_dask_array(lengths=True).")
    return hasattr(x, "chunks") and hasattr(x, "to_delayed")


def strip_of(chunks: Any, axis: int, place: tuple[int, int], across: int) -> Block:
    """Join computed chunks to one read-only block.

    Parameters
    ----------
    chunks : sequence of sequences
        One sequence for every step along the axis, each with the chunks across it.
    axis : {0, 1}
    place : (start, stop)
        Range of the block along the axis.
    across : int
        Length of the block along the other axis.
    """
    steps = [join([as_block(part, axis) for part in step], 1 - axis) for step in chunks]
    block = join(steps, axis)
    length = place[1] - place[0]
    if tuple(block.shape) != ((length, across) if axis == 0 else (across, length)):
        raise ValueError(
            f"`X` declares {('rows', 'columns')[axis]} {place[0]}:{place[1]} of {across} entries, "
            f"but its chunks are computed to shape {tuple(block.shape)}. Correct its chunk sizes."
        )
    if is_sparse(block):
        block = block.asformat("csr" if axis == 0 else "csc")
    return read_only(block)


def as_block(chunk: Any, axis: int) -> Block:
    """A chunk as a NumPy array or as compressed rows (columns) with checked indices."""
    if hasattr(chunk, "to_scipy_sparse"):  # of the library `sparse`
        chunk = chunk.to_scipy_sparse()
    if not is_sparse(chunk):
        check_unmasked(chunk, "a chunk of `X`")
        return to_numpy(chunk)
    return SparseSource(chunk.asformat("csr" if axis == 0 else "csc")).array


def _cut(chunks: Any, shape: tuple[int, int], itemsize: int) -> tuple[Literal[0, 1], Any]:
    """Axis to cut along, and the range of chunks along it that makes each block."""
    width = [max(chunks[axis], default=0) * shape[1 - axis] for axis in (0, 1)]
    tie = width[0] == width[1]
    axis: Literal[0, 1] = tall_first(shape) if tie else 0 if width[0] < width[1] else 1
    edges, held = [0], 0
    for i, size in enumerate(chunks[axis]):
        size *= shape[1 - axis] * itemsize
        if held and size and held + size > base.READ_BYTES:
            edges.append(i)
            held = 0
        held += size
    return axis, list(pairwise([*edges, len(chunks[axis])]))
