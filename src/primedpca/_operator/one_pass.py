"""Rows of a source, each visited once in a single pass, before their mean is known.

Rows are shifted by a provisional mean, that of the first block, so that a large mean costs no
significant digits.  The consumer of the rows subtracts the remaining difference from the true
mean; Frequent Directions does so batch by batch.  The sums of the rows and of their squares are
accumulated on the way, so mean and total variance are known at the end without another pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from primedpca._core.arrays import is_sparse, work_dtype
from primedpca._operator import statistics
from primedpca._operator.operator import Centred
from primedpca._operator.preparation import Columns, stored_means
from primedpca.engines import LocalEngine
from primedpca.protocols import Array, Block, check_rows
from primedpca.sources.base import OneBlock

__all__ = ["stream"]


def stream(
    data: Centred, size: int, position: Any = None
) -> Iterator[tuple[tuple[Any, ...], Centred]]:
    """Yield the rows in order, in batches that are small dense operators, in one pass.

    Each batch's ``frame.mean`` is the provisional mean, which is the same for all batches.  Its
    ``frame.gain`` is the unit, which changes only if later rows would overflow or underflow.
    Sparse rows are made dense, one batch at a time.

    ``scale="std"`` and ``missing="mean"`` need one pass before this one, for their statistics.
    Sparse data with columns that are stored in full and far from zero need a pass after it:
    those columns are shifted there, which this stream does not do.

    Parameters
    ----------
    data : Centred
    size : int
        Maximum number of rows in a batch.
    position : tuple, optional
        Position from an earlier stream of the same data.  The stream resumes after the batch
        that the position was yielded with.  By default it starts with the first row.

    Yields
    ------
    position : tuple
    part : Centred
        Batches whose weights are all zero are skipped.
    """
    view: _View | None = None
    i, seen, n, before = 0, 0, data.shape[0], data.passes
    if position is not None:
        i, seen, before, known = position
        view = _View.known(data, known)
    for index, rows in data.source.batches(size, None, start=i):
        check_rows(rows, index, data.source)
        block = rows.toarray() if is_sparse(rows) else rows
        i, seen = i + 1, seen + len(index)
        if view is None and not _counts(data, index) and seen < n:
            continue
        if view is None:
            view = _View(data, index, block)
            before = data.passes
        part = view.take(index, block)
        data.count(seen / n, since=before)
        if seen == n:  # before the last yield: the consumer need not exhaust the iterator
            view.settle()
        if part.weight > 0:  # rows of weight zero count as absent
            yield (i, seen, before, view.state()), part


def _counts(data: Centred, index: np.ndarray) -> bool:
    """Whether any of the rows has a positive weight."""
    return data.root is None or bool((data.root[data.like.xp.asarray(index)] > 0).any())


class _View:
    """Provisional frame of a stream, and the sums of its rows in that frame.

    Parameters
    ----------
    data : Centred
    index : ndarray of shape (rows,)
        Indices of the first rows of positive weight, counted from 0.
    block : block
        Those rows.
    """

    def __init__(self, data: Centred, index: np.ndarray, block: Block) -> None:
        self.data = data
        # Open: mean and total variance are still to be found by this stream.
        self.open = data.frame.mean is None and not data.standardise and data.missing == "error"
        self.frame = data.frame if self.open else data.learn()
        self.peak = self.norm = 0.0
        self.sums: Array = 0.0
        self.far = False
        if not self.open:
            shift = data.narrow(self.frame.mean)
            self._look_from(shift, self._rest(shift) if data.sparse else self.frame.columns.rest)
            return
        first = block
        if data.source.axis == 0:
            whole = data.first_block()
            self.far = data.sparse and data.center and statistics.far_from_zero(whole)
            if data.root is None:  # otherwise some of its rows may have weight zero
                first = whole.toarray() if data.sparse else whole
                index = np.arange(first.shape[0])
        root = self._part(index, first).root
        self._look_from(stored_means(first, data.like.dtype, 1.0, root))
        self._keep_in_range(first, self._part(index, first))
        # Again, in the new unit: a mean that had overflowed was replaced by zero above.
        self._look_from(stored_means(first, data.like.dtype, self.frame.unit, root))

    def _rest(self, shift: Array) -> Array | None:
        """Return what rounding leaves out of the mean of sparse data, whose offset has it."""
        data, columns = self.data, self.frame.columns
        if self.frame.offset is None:
            return None
        away, factor = data.wide(self.frame.offset), data.wide(columns.factor)
        if factor is not None:  # of constant columns, the factor is zero
            away = away / data.like.xp.where(factor == 0, 0 * factor + 1, factor)
        near = 0 * away if columns.shift is None else data.wide(columns.shift)
        near = near - data.wide(shift)  # exact where shifts are far from zero
        near = near if columns.rest is None else near + data.wide(columns.rest)
        return data.narrow(near + away)

    @classmethod
    def known(cls, data: Centred, state: dict[str, Any]) -> _View:
        """Restore a view from the result of :meth:`state`."""
        view = cls.__new__(cls)
        vars(view).update(state, data=data)
        return view

    def state(self) -> dict[str, Any]:
        """Return all fields except the data, for a checkpoint."""
        return {name: value for name, value in vars(self).items() if name != "data"}

    def _look_from(self, shift: Array, rest: Array | None = None) -> None:
        """Use ``shift`` ``(d,)`` as the provisional mean; zero if the data are not centred."""
        data, columns = self.data, self.frame.columns
        shift = shift if data.center else shift * 0
        fill = columns.fill
        if data.center and fill is not None:  # sparse data may have measured it from elsewhere
            fill = 0 * shift
        columns = Columns(shift if data.center else None, fill, columns.factor, rest=rest)
        self.frame = self.frame.changed(columns=columns, offset=None, mean=data.wide(shift))

    def _part(self, index: np.ndarray, block: Block) -> Centred:
        """Return these rows as an operator in the provisional frame."""
        engine = LocalEngine(1)
        return self.data.part(OneBlock(block), index, engine, sparse=False, frame=self.frame)

    def take(self, index: np.ndarray, block: Block) -> Centred:
        """Return the next rows as an operator, and add them to the sums."""
        part = self._part(index, block)
        if not self.open:
            return part
        if self._keep_in_range(block, part):
            part = self._part(index, block)
        xp, rows = self.data.like.xp, self.data.wide(part.rows())
        self.norm += float(xp.sum(rows * rows))
        self.sums = self.sums + (
            xp.sum(rows, axis=0) if part.root is None else rows.T @ self.data.wide(part.root)
        )
        return part

    def _keep_in_range(self, block: Block, part: Centred) -> bool:
        """Change the unit if squares of these rows would overflow or underflow.

        Returns whether the unit was changed.
        """
        data, xp = self.data, self.data.like.xp
        low, high, top = statistics.SAFE[work_dtype(data.source.dtype)]
        with np.errstate(all="ignore"):  # non-finite values raise an error below
            self.peak = max(float(xp.max(xp.abs(part.rows()))), self.peak)
        if low <= self.peak <= high:
            return False
        with np.errstate(invalid="ignore"):  # infinity in a row of weight zero, likewise
            raw = float(xp.max(xp.abs(data.wide(block) * self._counts(part))))
        if self.peak == 0.0 and (raw == 0.0 or low <= raw <= high):
            return False
        if not math.isfinite(raw):
            statistics.refuse_non_finite(data, self.frame.changed(mean=None))
        # Identical rows are zero after the shift, so their peak says nothing about the distance
        # to other rows: the unit is then chosen by the stored values.
        known = self.peak > 0.0 and math.isfinite(self.peak)
        ready = self.peak if known else raw * self.frame.unit
        power = min(-math.frexp(ready)[1], top - math.frexp(raw * self.frame.unit)[1])
        highest = 1024 - math.frexp(self.frame.unit)[1]  # beyond it the unit would overflow
        ratio = 2.0 ** max(min(power, highest), -1022)
        self.peak, self.sums = ready * ratio, self.sums * ratio
        self.norm *= ratio  # twice: the square of the ratio itself may overflow
        self.norm *= ratio
        unit = self.frame.unit * ratio
        self.frame = self.frame.changed(unit=unit, gain=unit)
        seen_from: Array = part.frame.mean
        self._look_from(data.narrow(seen_from * ratio))
        return True

    def _counts(self, part: Centred) -> Any:
        """Return 1 for rows of positive weight and 0 for others."""
        return 1.0 if part.root is None else self.data.wide(part.root > 0)[:, None]

    def settle(self) -> None:
        """Store mean and total variance in the data, if they are accurate enough."""
        data, frame = self.data, self.frame
        if not self.open or self.far:
            return
        if self.norm == 0 and frame.scale is not None:
            statistics.in_range(data, data.frame, 0.0)  # refuses quotients that underflow
        away, factor = self.sums / data.weight, data.wide(frame.columns.factor)
        mean = frame.mean + (away if factor is None else away / factor)
        total = self.norm / data.weight
        if not data.center:
            data.learned(frame.changed(mean=mean, total=total))
            return
        first, total = total, max(0.0, total - float(away @ away))
        if first > statistics.POOR * total:
            return  # the provisional mean was too far off: the total has lost too many digits
        distance = away if factor is None else away / factor
        # The offset of sparse rows is the rounded mean: what it leaves out is part of the error.
        least, seen = math.inf if data.sparse else total, (frame.mean, distance)
        rest, lost = statistics.remainder(data, seen, first, least, factor)
        known = frame.changed(mean=mean, rest=rest, total=total, astray=lost)
        if not data.sparse:
            data.learned(statistics.settle(data, known, frame.columns, away))
            return
        # Sparse blocks keep their zeros: they are not shifted, and the whole mean is left as the
        # offset that every product is corrected by.
        known = known.changed(columns=known.columns._replace(shift=None))
        left = mean if factor is None else mean * factor
        if data.source.axis == 1 and float(left @ left) > statistics.FAR**2 * total:
            return  # blocks of columns are shifted by means of their own, which loses fewer digits
        data.learned(statistics.settle(data, known, Columns(), left))
