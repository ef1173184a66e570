"""Gram matrix and adjoint of wide data (``n < d``) that are read by rows.

The Gram matrix is small, but each of its entries needs two whole rows.  A product ``M^T U`` has
columns as long as a row.  So rows are held in memory as they are stored, all of them if they fit
and otherwise one group at a time.  They are processed in strips of columns, so that no block's
part of a result is longer than a strip.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from primedpca._core.arrays import namespace
from primedpca._operator import kernels
from primedpca.engines.base import cut
from primedpca.protocols import Array, Block, Operator, is_spread
from primedpca.sources.base import BlockSource, cut_evenly
from primedpca.sources.memory.dense import cut_in_memory

__all__ = ["HELD_BYTES", "adjoint_of_rows", "are_wide_rows", "by_slices", "gram_of_rows", "groups"]

#: Default maximum of bytes of rows held in memory at a time.
HELD_BYTES = 2.0**31
#: Size in bytes of the pieces in which a long result is summed.
PIECE_BYTES = 2**26


def are_wide_rows(data: Operator) -> bool:
    """Whether the data are dense, wide and read by rows in this process."""
    near = not data.engine.traits.remote
    return near and data.source.axis == 0 and not data.sparse and data.shape[0] < data.shape[1]


def gram_of_rows(data: Any, checks: Array | None = None) -> list[Array]:
    """Return ``M M^T / weight``, ``(n, n)`` in float64, and its product with ``checks``, if any.

    If all rows fit into ``data.room``, they are read once.  Otherwise one pass finds the mean, and
    then each pair of the ``g`` groups is held in memory once: ``(g + 1) / 2`` passes more.  Only
    rows that are read once have a product; see :meth:`Centred.checked_square`.
    """
    found = groups(data.source, data.room)
    if len(found) == 1:
        asked = {"frame": data.frame} | ({} if checks is None else {"checks": checks})
        squares: list[Array]
        *squares, frame = data.engine.once(
            "gram", asked, lambda: _gram_at_once(data, found[0], checks)
        )
        data.learned(frame)
        data.count(1)
        return squares
    asked = {"frame": data.learn()}
    square = data.engine.once("gram", asked, lambda: _gram_by_groups(data, found))
    data.count((len(found) + 1) / 2)
    return [square / data.weight]


def _gram_at_once(data: Any, everything: tuple[int, int], checks: Array | None) -> tuple[Any, ...]:
    """Return the Gram matrix of rows that are all held in memory, and the frame found with it."""
    inner = data.view(source=Strips([_held(data, *everything)]), frame=data.frame)
    made = (inner.gram(),) if checks is None else inner.checked_square(checks)
    return *made, inner.frame


def _gram_by_groups(data: Operator, found: list[tuple[int, int]]) -> Array:
    """Return the Gram matrix times the weight, from each pair of groups in turn."""
    xp, n = data.like.xp, data.shape[0]
    square = xp.zeros((n, n), dtype=xp.float64, device=data.like.device)
    for i, first in enumerate(found[:-1]):
        above = _held(data, *first)
        for second in found[i + 1 :]:
            part, rows = _part(data, [above, _held(data, *second)], [first, second])
            options = {"dtype": data.like.dtype, "axis": 1, "gather": False}
            index = xp.asarray(rows, device=data.like.device)
            square[index[:, None], index] = part.run(kernels.covariance, options).sums[0]
            del part  # release the rows before the next ones are read
        del above
    return square


def adjoint_of_rows(data: Operator, left: Array) -> Array:
    """Return ``A^T U``, ``(d, p)`` in float64: one pass, summed over groups in place."""
    asked = {"frame": data.learn(), "left": left}
    total = data.engine.once("adjoint", asked, lambda: _adjoint_by_groups(data, left))
    data.count(1)
    return total


def _adjoint_by_groups(data: Operator, left: Array) -> Array:
    """Return ``A^T U`` in float64, summed over groups of rows and pieces of columns."""
    frame, xp = data.frame, data.like.xp
    (d, p), found = (data.shape[1], left.shape[1]), groups(data.source, data.room)
    total = xp.zeros((d, p), dtype=xp.float64, device=data.like.device)
    for group in found:
        held = _held(data, *group)
        for start, stop in cut_evenly(d, max(1, PIECE_BYTES // (8 * max(p, 1)))):
            part, rows = _part(data, [held[:, start:stop]], [group])
            here = frame.changed(columns=cut(frame.columns, start, stop))
            operands = {"left": left[rows[0] : rows[-1] + 1], "axis": 1}
            total[start:stop] += part.run(kernels.adjoint, operands, here).stacks[0]
        del held, part  # release the rows before the next ones are read
    return total


def by_slices(data: Operator, axis: int) -> Array:
    """Return the Gram matrix (axis 0) or the covariance (axis 1), a slice of columns at a time.

    This is the way for the side across the blocks, where each slice costs up to two passes.
    """
    data.learn()
    length, across = data.shape[axis], data.shape[1 - axis]
    columns = []
    for a, b in cut_evenly(length, max(64, 2**22 // across)):
        # A slice of the matrix is its product with columns of the identity.
        unit = np.zeros((length, b - a))
        unit[np.arange(a, b), np.arange(b - a)] = 1.0
        piece = data.like.asarray(unit)
        multiply = data.gram_product if axis == 0 else data.covariance_product
        columns.append(data.wide(multiply(piece)))
    square = data.like.xp.concat(columns, axis=1)
    # Rounding makes the slices slightly unsymmetric, and eigensolvers read one triangle only.
    return (square + square.T) / 2


def groups(source: Any, room: float) -> list[tuple[int, int]]:
    """Return groups of adjacent blocks as ``(first, last + 1)``, counted from 0.

    One group if all rows fit into ``room`` bytes; otherwise groups of which two fit at a time,
    unless a single block is larger.
    """
    size = source.shape[1] * int(source.dtype.itemsize)
    if source.shape[0] * size <= room:
        return [(0, len(source.blocks))]
    edges, held = [0], 0
    for i, (start, stop) in enumerate(source.blocks):
        held += (stop - start) * size
        if held > room / 2 and i > edges[-1]:
            edges.append(i)
            held = (stop - start) * size
    return list(pairwise([*edges, len(source.blocks)]))


def _held(data: Operator, first: int, last: int) -> Array:
    """Read the rows of the blocks ``first`` to ``last - 1`` as they are stored."""
    if last == first + 1 and not is_spread(data.source):
        return data.source.read(first)
    return data.engine.sweep(Span(data.source, first, last), kernels.stored, {}, {}).stacks[0]


def _part(
    data: Operator, held: list[Array], which: list[tuple[int, int]]
) -> tuple[Operator, np.ndarray]:
    """Return held rows as an operator with the mean of all rows, and their indices from 0."""
    blocks = data.source.blocks
    rows = np.concatenate([np.arange(blocks[a][0], blocks[b - 1][1]) for a, b in which])
    return data.part(Strips(held), rows, data.engine), rows


class Span(BlockSource):
    """Adjacent blocks of another source, counted from 0.

    Parameters
    ----------
    source : DataSource
    first, last : int
        Index of the first block, and that after the last one.
    """

    def __init__(self, source: Any, first: int, last: int) -> None:
        self.source, self.first = source, first
        begin = source.blocks[first][0]
        self.blocks = tuple((a - begin, b - begin) for a, b in source.blocks[first:last])
        self.shape = (self.blocks[-1][1], source.shape[1])
        self.dtype, self.device = source.dtype, source.device
        self.spread = is_spread(source)

    @property
    def local(self) -> tuple[int, ...]:
        """Indices of the blocks that this process can read."""
        last = self.first + len(self.blocks)
        return tuple(i - self.first for i in self.source.local if self.first <= i < last)

    def below(self, i: int) -> int:
        """Return the index that block ``i`` has in the underlying source."""
        return self.first + i

    def read(self, i: int) -> Block:
        """Read block ``i`` from the underlying source."""
        return self.source.read(self.below(i))


class Strips(BlockSource):
    """Groups of rows in memory, stacked and cut into strips of columns.

    Parameters
    ----------
    held : list of arrays of shape (rows, d)
    """

    def __init__(self, held: list[Array]) -> None:
        self.held, self.axis = held, 1
        self.shape = (sum(part.shape[0] for part in held), held[0].shape[1])
        self.dtype = held[0].dtype
        self.device = None if isinstance(held[0], np.ndarray) else str(held[0].device)
        rows, length = self.shape
        self.blocks = cut_in_memory(length, rows, self.dtype, self.device)

    def read(self, i: int) -> Block:
        """Return strip ``i``: a view of one group, or a copy if there are several groups."""
        start, stop = self.blocks[i]
        parts = [part[:, start:stop] for part in self.held]
        return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=0)
