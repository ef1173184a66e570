"""The rows of a source, each once and in one pass, before their mean is known.

Rows are handed out as they are seen from a provisional mean, that of the first block, so that a
large mean costs no digits.  Who visits them centres them by itself (Frequent Directions does so
batch by batch); what they add up to is kept, so that mean and total variance are known at the
end and no later pass measures them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, is_sparse
from primedpca._operator import statistics
from primedpca._operator.operator import Centred
from primedpca._operator.preparation import Columns, stored_means
from primedpca.engines import LocalEngine
from primedpca.protocols import Array, Block
from primedpca.sources.base import OneBlock

__all__ = ["stream"]


def stream(
    data: Centred, size: int, position: Any = None
) -> Iterator[tuple[tuple[Any, ...], Centred]]:
    """The rows in order, at most ``size`` at a time, as small dense operators: one pass in all.

    Before each of them stands the position that the stream is re-entered with to go on behind it.

    A part's ``frame.mean`` is the provisional mean, the same for all parts, and its
    ``frame.gain`` the unit, which changes only where data leave the range of their type midway.
    Sparse rows are made dense, a batch at a time.  ``scale="std"`` and ``missing="mean"`` need
    a pass before this one, for their statistics, and so do in a later pass sparse data with
    full columns far from zero, which are shifted there.
    """
    view: _View | None = None
    i, seen, n, before = 0, 0, data.shape[0], data.passes
    if position is not None:
        i, seen, before, known = position
        view = _View.known(data, known)
    for index, rows in data.source.batches(size, None, start=i):
        block = rows.toarray() if is_sparse(rows) else rows
        i, seen = i + 1, seen + len(index)
        if view is None and not _counts(data, index) and seen < n:
            continue
        if view is None:
            view = _View(data, index, block)
            before = data.passes
        part = view.take(index, block)
        data.count(seen / n, since=before)
        if seen == n:  # before the last rows are shown, so that nobody has to ask for more
            view.settle()
        if part.weight > 0:  # rows of weight zero are not there
            yield (i, seen, before, view.state()), part


def _counts(data: Centred, index: np.ndarray) -> bool:
    """Whether any of the rows has a weight."""
    return data.root is None or bool((data.root[data.like.xp.asarray(index)] > 0).any())


class _View:
    """The provisional frame, and what the rows add up to in it."""

    def __init__(self, data: Centred, index: np.ndarray, block: Block) -> None:
        self.data = data
        self.open = data.frame.mean is None and not data.standardise and data.missing == "error"
        self.frame = data.frame if self.open else data.learn()
        self.peak = self.norm = 0.0
        self.sums: Array = 0.0
        self.far = False
        if not self.open:
            self._look_from(data.narrow(self.frame.mean))
            return
        first = block
        if data.source.axis == 0:
            whole = data.first_block()
            self.far = data.sparse and data.center and statistics.far_from_zero(whole)
            if data.root is None:  # else some of its rows may not count
                first = whole.toarray() if data.sparse else whole
                index = np.arange(first.shape[0])
        root = self._part(index, first).root
        self._look_from(stored_means(first, data.like.dtype, 1.0, root))
        self._keep_in_range(first, self._part(index, first))
        # In the new unit; a mean that was beyond the range was taken as zero before.
        self._look_from(stored_means(first, data.like.dtype, self.frame.unit, root))

    @classmethod
    def known(cls, data: Centred, state: dict[str, Any]) -> _View:
        """The view that another one's :meth:`state` describes."""
        view = cls.__new__(cls)
        vars(view).update(state, data=data)
        return view

    def state(self) -> dict[str, Any]:
        """Everything but the data, as it stands."""
        return {name: value for name, value in vars(self).items() if name != "data"}

    def _look_from(self, shift: Array) -> None:
        data, columns = self.data, self.frame.columns
        shift = shift if data.center else shift * 0
        columns = Columns(shift if data.center else None, columns.fill, columns.factor)
        self.frame = replace(self.frame, columns=columns, offset=None, mean=data.wide(shift))

    def _part(self, index: np.ndarray, block: Block) -> Centred:
        engine = LocalEngine(1)
        return self.data.part(OneBlock(block), index, engine, sparse=False, frame=self.frame)

    def take(self, index: np.ndarray, block: Block) -> Centred:
        """The next rows as a part, and into the sums."""
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
        """Change the unit if squares of these rows would leave the range of the type."""
        data, xp = self.data, self.data.like.xp
        low, high, top = statistics.SAFE[dtype_name(data.like.dtype)]
        with np.errstate(all="ignore"):  # what is no number is named below
            self.peak = max(float(xp.max(xp.abs(part.rows()))), self.peak)
        if low <= self.peak <= high:
            return False
        raw = float(xp.max(xp.abs(data.wide(block) * self._counts(part))))
        if self.peak == 0.0 and (raw == 0.0 or low <= raw <= high):
            return False
        if not math.isfinite(raw):
            statistics.refuse_non_finite(data, replace(self.frame, mean=None))
        # Rows that are all alike are at zero here, and their distance from others is not.
        known = self.peak > 0.0 and math.isfinite(self.peak)
        ready = self.peak if known else raw * self.frame.unit
        power = min(-math.frexp(ready)[1], top - math.frexp(raw * self.frame.unit)[1])
        highest = 1024 - math.frexp(self.frame.unit)[1]  # of which the unit is still a number
        ratio = 2.0 ** max(min(power, highest), -1022)
        self.peak, self.sums = ready * ratio, self.sums * ratio
        self.norm *= ratio  # twice, as the square of the ratio may not exist
        self.norm *= ratio
        unit = self.frame.unit * ratio
        self.frame = replace(self.frame, unit=unit, gain=unit)
        seen_from: Array = part.frame.mean
        self._look_from(data.narrow(seen_from * ratio))
        return True

    def _counts(self, part: Centred) -> Any:
        """1 for rows of positive weight, 0 for others."""
        return 1.0 if part.root is None else self.data.wide(part.root > 0)[:, None]

    def settle(self) -> None:
        """Tell the data their mean and total variance."""
        data, frame = self.data, self.frame
        if not self.open or self.far:
            return
        away, factor = self.sums / data.weight, data.wide(frame.columns.factor)
        mean = frame.mean + (away if factor is None else away / factor)
        total = self.norm / data.weight
        if not data.center:
            data.learned(replace(frame, mean=mean, total=total))
            return
        first, total = total, max(0.0, total - float(away @ away))
        if first > statistics.POOR * total:
            return  # seen from too far away: whoever needs the mean makes a pass for it
        distance = away if factor is None else away / factor
        lost = statistics.astray_by(data, frame.mean, distance, first, factor)
        known = replace(frame, mean=mean, total=total, astray=lost)
        if not data.sparse:
            data.learned(statistics.settle(data, known, frame.columns.shift, away))
            return
        # Sparse blocks keep their zeros: nothing is shifted, all of the mean is left to correct.
        known = replace(known, columns=known.columns._replace(shift=None))
        left = mean if factor is None else mean * factor
        data.learned(statistics.settle(data, known, None, left))
