"""Means and variances of the columns of a stream, with bounds on their rounding errors.

They let a stream divide its columns by standard deviations and fill missing values by means that
are known only at its end; ``docs/certificates.md``, section 8, derives the bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["ColumnSums", "column_sums"]

UNIT = 2.0**-53  # unit roundoff of float64
STILL = 2.0**-33  # divisor of a column that is constant up to rounding, in its mean, if above 1
LEAST = 2.0**-450  # distance from a mean whose square is still in range


class ColumnSums(NamedTuple):
    """Sums over the values that are present in each column, arrays of shape (d,) in float64.

    Attributes
    ----------
    scaled, filled : bool
        Whether the stream is to be divided by standard deviations, and missing values filled.
    weight : array
        Sum of the weights of the values.
    shift : array
        Reference from which the values are measured: a mean of the first rows.
    sums : array
        Weighted sum of the values minus ``shift``.
    spread : array
        Weighted sum of squared distances from the mean.
    error : array
        Bound on the rounding error of ``spread``.
    reach : array
        Upper bound on the weighted sum of distances from ``shift``.
    fills : array of shape (3, d)
        Of the values that were filled in: their weight, and the weighted sums of their distances
        from ``shift`` and of the squares of these.
    depth : int
        Length of the longest chain of additions in any sum.
    """

    scaled: bool
    filled: bool
    weight: np.ndarray
    shift: np.ndarray
    sums: np.ndarray
    spread: np.ndarray
    error: np.ndarray
    reach: np.ndarray
    fills: np.ndarray
    depth: int = 0

    @property
    def mean(self) -> np.ndarray:
        """Weighted means of the values; the shift, 0 at first, of a column without any."""
        found: np.ndarray = self.shift + _divided(self.sums, self.weight)
        return found

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviations of the values, with the divisor ``n``."""
        found: np.ndarray = np.sqrt(_divided(self.spread, self.weight))
        return found

    def add(self, rows: np.ndarray, weights: np.ndarray) -> ColumnSums:
        """Return the sums with more rows, in which NaN is a missing value."""
        present = ~np.isnan(rows)
        there = weights @ present
        with np.errstate(invalid="ignore"):
            near = _divided(weights @ np.where(present, rows, 0.0), there)
        about = np.where(present, rows - near, 0.0)
        self._check_range(about, weights)
        sums = weights @ about
        size = np.sqrt(weights @ (about * about))
        about = np.where(present, about - _divided(sums, there), 0.0)
        spread, depth = weights @ (about * about), max(self.depth, len(rows))
        # As in `take_in` of the sketch, column by column.
        gamma = (depth + 18) * UNIT
        slip = 5 * gamma * size
        error = (2 * np.sqrt(spread) + slip) * slip + (len(rows) + 4) * UNIT * spread
        group = self._replace(
            weight=there,
            shift=near,
            sums=sums,
            spread=spread,
            error=error,
            reach=np.sqrt(there) * size,
            depth=depth,
        )
        return self.joined(group._replace(fills=np.zeros_like(self.fills)))

    def _check_range(self, about: np.ndarray, weights: np.ndarray) -> None:
        """Refuse numbers whose weighted squares exceed the range of float64."""
        size = np.abs(about).max(axis=0, initial=0.0) * np.sqrt(weights.max(initial=1.0))
        beyond = np.flatnonzero(~((size == 0) | ((size > LEAST) & (size < 1 / LEAST))))
        if beyond.size:
            raise ValueError(
                f"Column {beyond[0]} of `X` (counted from 0) has distances from its mean, times "
                f"roots of weights, of {size[beyond[0]]:.1e}, whose squares may leave the range of "
                "float64. Give the column in another unit, or other weights."
            )

    def joined(self, other: ColumnSums) -> ColumnSums:
        """Return the sums over the rows of both, measured from the shift of the first."""
        fresh = self.weight == 0  # nothing was measured from its shift but what was filled in
        w1, w2 = self.weight, other.weight
        offset = np.where((w1 > 0) & (w2 > 0), other.shift - self.shift, 0.0)
        depth = max(self.depth, other.depth) + 1
        pull = np.sqrt(_divided(w1, w1 + w2) * w2)
        link = pull * (_divided(other.sums, w2) + offset - _divided(self.sums, w1))
        slip = 5 * (depth + 18) * UNIT * pull
        slip *= _divided(self.reach, w1) + _divided(other.reach, w2) + np.abs(offset)
        spread = self.spread + other.spread + link * link
        shift = np.where(fresh & (w2 > 0), other.shift, self.shift)
        error = self.error + other.error + (2 * np.abs(link) + slip) * slip + 4 * UNIT * spread
        return self._replace(
            weight=w1 + w2,
            shift=shift,
            sums=self.sums + other.sums + w2 * offset,
            spread=spread,
            error=error,
            reach=self.reach + other.reach + w2 * np.abs(offset),
            fills=_moved(self.fills, self.shift - shift) + _moved(other.fills, other.shift - shift),
            depth=depth,
        )

    def fill(self, rows: np.ndarray, weights: np.ndarray) -> tuple[ColumnSums, np.ndarray]:
        """Return the rows with missing values replaced by the means so far, and what was filled."""
        missing = np.isnan(rows)
        if not missing.any():
            return self, rows
        mean = self.mean
        count = weights @ missing
        away = mean - self.shift
        fills = self.fills + np.stack([count, count * away, count * away * away])
        return self._replace(fills=fills), np.where(missing, mean, rows)

    def fill_error(self) -> np.ndarray:
        """Bound on the weighted squared distances of what was filled in from the final means."""
        count, first, second = self.fills
        # Not from the rounded mean, which may be far less accurate than its distance to the shift.
        away = _divided(self.sums, self.weight)
        exact = second - 2 * away * first + away * away * count
        size = second + 2 * np.abs(away * first) + away * away * count
        near = np.maximum(exact, 0.0) + (self.depth + 20) * UNIT * size
        slip = 5 * (self.depth + 18) * UNIT * _divided(self.reach, self.weight)
        found: np.ndarray = (np.sqrt(near) + np.sqrt(count) * slip) ** 2
        return found

    def upper_squares(self, weight: float, center: bool) -> np.ndarray:
        """Upper bounds on the sums of squares of the filled columns, about their means or zero."""
        found: np.ndarray = self.spread + self.error
        if not center:
            slip = 5 * (self.depth + 18) * UNIT * _divided(self.reach, self.weight)
            found = found + (np.abs(self.mean) + slip) ** 2 * weight
        return found

    def constant(self) -> np.ndarray:
        """Mask of the columns whose standard deviation is below the rounding of their mean."""
        near = 10 * 2 * UNIT * np.abs(self.mean)
        found: np.ndarray = (self.weight == 0) | (self.deviation <= near)
        return found

    def _scale_of_constants(self, center: bool) -> np.ndarray:
        """Powers of two beside which the rounding of constant columns vanishes, at least 1.

        Without centring they are 1: such columns are not constant about zero.
        """
        size = STILL * np.abs(self.mean) if center else np.zeros_like(self.spread)
        found: np.ndarray = 2.0 ** np.round(np.log2(np.maximum(size, 1.0)))
        return found

    def deviations(self, weight: float, center: bool) -> tuple[np.ndarray, float]:
        """Standard deviations of the filled columns, and a bound on their relative error.

        Those of constant columns are 1, or a power of two beside which their rounding vanishes.
        """
        still = self.constant()
        spread = np.where(still, weight, self.spread)
        with np.errstate(invalid="ignore"):
            slip = np.where(still, 0.0, self.error / spread)
        worst = float(slip.max(initial=0.0))
        # The root of 1 - x differs from 1 by at most x; below 1, a bound would mean nothing.
        found = np.where(still, self._scale_of_constants(center), np.sqrt(spread / weight))
        return found, min(worst, 1.0) + 4 * UNIT

    def power_of_two(self, center: bool) -> np.ndarray:
        """Powers of two near the standard deviations so far; of constant columns as above."""
        deviation = self.deviation
        still = self.constant() | (deviation == 0)
        deviation = np.where(still, self._scale_of_constants(center), deviation)
        found: np.ndarray = np.clip(2.0 ** np.round(np.log2(deviation)), 2.0**-500, 2.0**500)
        return found


def column_sums(d: int, scaled: bool, filled: bool) -> ColumnSums:
    """Return the sums before the first row of ``d`` columns."""
    none = np.zeros(d)
    return ColumnSums(scaled, filled, none, none, none, none, none, none, np.zeros((3, d)))


def _moved(fills: np.ndarray, by: np.ndarray) -> np.ndarray:
    """The sums of what was filled in, measured from a shift that is smaller by ``by``.

    The squares may cancel where the values are near the new shift and far from the old one.  They
    are rounded up by more than their error and, by Cauchy-Schwarz, than that of the first sums.
    """
    count, first, second = fills
    squares = by * by * count
    moved = np.maximum(second + 2 * by * first + squares, 0.0)
    slip = np.where(by == 0, 0.0, 16 * UNIT * (second + 2 * np.abs(by * first) + squares))
    return np.stack([count, first + count * by, moved + slip])


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotients, 0 where the divisor is 0."""
    found: np.ndarray = np.divide(a, b, out=np.zeros_like(a, dtype=np.float64), where=b > 0)
    return found
