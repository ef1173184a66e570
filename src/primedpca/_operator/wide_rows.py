"""Square matrices across the blocks, and the adjoint of wide data that are read in rows.

Of wide rows (``n < d``) a Gram matrix is small, but every entry of it needs two whole rows, and a
product ``M^T U`` is as long as a row.  So rows are held in memory as they are stored, a group at
a time or all of them if they fit, and worked on in strips of columns: no block's part of a result
is longer than a strip.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from primedpca._core.arrays import namespace
from primedpca._operator import kernels
from primedpca._operator.statistics import Frame
from primedpca.engines.tree import cut
from primedpca.protocols import Array, Block, Operator, is_spread
from primedpca.sources.base import BlockSource, cut_evenly
from primedpca.sources.memory.dense import block_length

__all__ = ["HELD_BYTES", "adjoint_of_rows", "are_wide_rows", "by_slices", "gram_of_rows", "groups"]

HELD_BYTES = 2.0**31  # of rows, where no budget says otherwise
PIECE_BYTES = 2**26  # of a long result that is added to


def are_wide_rows(data: Operator) -> bool:
    """Whether the data are dense, wide and read in rows that this process can hold."""
    near = not data.engine.traits.remote
    return near and data.source.axis == 0 and not data.sparse and data.shape[0] < data.shape[1]


def gram_of_rows(data: Operator) -> Array:
    """``M M^T / weight``, ``(n, n)`` in float64.

    If all rows fit into ``data.room`` they are read once.  Otherwise the mean is learnt in a
    pass, and every two of ``g`` groups are held together: ``(g + 1) / 2`` passes.
    """
    found = groups(data.source, data.room)
    if len(found) == 1:
        square, frame = data.engine.once(
            "gram", {"frame": data.frame}, lambda: _gram_at_once(data, found[0])
        )
        data.learned(frame)
        data.count(1)
        return square
    asked = {"frame": data.learn()}
    square = data.engine.once("gram", asked, lambda: _gram_by_groups(data, found))
    data.count((len(found) + 1) / 2)
    return square / data.weight


def _gram_at_once(data: Operator, everything: tuple[int, int]) -> tuple[Array, Frame]:
    inner = data.view(source=Strips([_held(data, *everything)]), frame=data.frame)
    return inner.gram(), inner.frame


def _gram_by_groups(data: Operator, found: list[tuple[int, int]]) -> Array:
    xp, n = data.like.xp, data.shape[0]
    square = xp.zeros((n, n), dtype=xp.float64, device=data.like.device)
    for i, first in enumerate(found[:-1]):
        above = _held(data, *first)
        for second in found[i + 1 :]:
            part, rows = _part(data, [above, _held(data, *second)], [first, second])
            options = {"dtype": data.like.dtype, "axis": 1, "gather": False}
            index = xp.asarray(rows, device=data.like.device)
            square[index[:, None], index] = part.run(kernels.covariance, options).sums[0]
            del part  # before the next rows are read
        del above
    return square


def adjoint_of_rows(data: Operator, left: Array) -> Array:
    """``M^T U``, ``(d, p)``: one pass, summed over groups in place."""
    asked = {"frame": data.learn(), "left": left}
    total = data.engine.once("adjoint", asked, lambda: _adjoint_by_groups(data, left))
    data.count(1)
    return data.narrow(total)


def _adjoint_by_groups(data: Operator, left: Array) -> Array:
    frame, xp = data.frame, data.like.xp
    (d, p), found = (data.shape[1], left.shape[1]), groups(data.source, data.room)
    total = xp.zeros((d, p), dtype=xp.float64, device=data.like.device)
    for group in found:
        held = _held(data, *group)
        for start, stop in cut_evenly(d, max(1, PIECE_BYTES // (8 * max(p, 1)))):
            part, rows = _part(data, [held[:, start:stop]], [group])
            here = replace(frame, columns=cut(frame.columns, start, stop))
            operands = {"left": left[rows[0] : rows[-1] + 1], "axis": 1}
            total[start:stop] += part.run(kernels.adjoint, operands, here).stacks[0]
        del held, part  # before the next rows are read
    return total


def by_slices(data: Operator, axis: int) -> Array:
    """The square matrix on the side across the blocks: two passes per slice of it."""
    data.learn()
    length, across = data.shape[axis], data.shape[1 - axis]
    columns = []
    for a, b in cut_evenly(length, max(64, 2**22 // across)):
        unit = np.zeros((length, b - a))
        unit[np.arange(a, b), np.arange(b - a)] = 1.0
        piece = data.like.asarray(unit)
        multiply = data.gram_product if axis == 0 else data.covariance_product
        columns.append(data.wide(multiply(piece)))
    square = data.like.xp.concat(columns, axis=1)
    return (square + square.T) / 2


def groups(source: Any, room: float) -> list[tuple[int, int]]:
    """Neighbouring blocks, as ``(first, last + 1)``: one group if all fit, else two at a time."""
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
    """The rows of some blocks, as they are stored."""
    if last == first + 1 and not is_spread(data.source):
        return data.source.read(first)
    return data.engine.sweep(Span(data.source, first, last), kernels.stored, {}, {}).stacks[0]


def _part(
    data: Operator, held: list[Array], which: list[tuple[int, int]]
) -> tuple[Operator, np.ndarray]:
    """Held rows as an operator with the mean of all of them, and their numbers."""
    blocks = data.source.blocks
    rows = np.concatenate([np.arange(blocks[a][0], blocks[b - 1][1]) for a, b in which])
    return data.part(Strips(held), rows, data.engine), rows


class Span(BlockSource):
    """Some neighbouring blocks of another source, numbered from 0."""

    def __init__(self, source: Any, first: int, last: int) -> None:
        self.source, self.first = source, first
        begin = source.blocks[first][0]
        self.blocks = tuple((a - begin, b - begin) for a, b in source.blocks[first:last])
        self.shape = (self.blocks[-1][1], source.shape[1])
        self.dtype, self.device = source.dtype, source.device
        self.spread = is_spread(source)

    @property
    def local(self) -> tuple[int, ...]:
        """Those of its blocks that this process can read."""
        last = self.first + len(self.blocks)
        return tuple(i - self.first for i in self.source.local if self.first <= i < last)

    def below(self, i: int) -> int:
        """The block of the source below that block ``i`` is."""
        return self.first + i

    def read(self, i: int) -> Block:
        """A block of the source below."""
        return self.source.read(self.below(i))


class Strips(BlockSource):
    """Groups of rows in memory, one below the other, cut into columns."""

    def __init__(self, held: list[Array]) -> None:
        self.held, self.axis = held, 1
        self.shape = (sum(part.shape[0] for part in held), held[0].shape[1])
        self.dtype = held[0].dtype
        self.device = None if isinstance(held[0], np.ndarray) else str(held[0].device)
        step = block_length(self.dtype, self.shape[0], self.device)
        self.blocks = cut_evenly(self.shape[1], step)

    def read(self, i: int) -> Block:
        """A view, or a copy of a strip where there are several groups."""
        start, stop = self.blocks[i]
        parts = [part[:, start:stop] for part in self.held]
        return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=0)
