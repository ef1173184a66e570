"""Statistics of the columns (mean, scale, fill values, unit) and the first pass that finds them.

The first pass of any kind also finds the mean.  Its blocks are shifted by a guess: the weighted
mean of the first block, or of each block of columns.  The pass sums the distance from the guess to
the mean beside the product, and the product is corrected by this distance.  If the distance is
much larger than the standard deviation, too many digits have cancelled, and the pass is repeated
with the mean just found as the guess.  Later passes shift dense blocks by the mean itself; sparse
blocks keep their zeros, and each product is corrected.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from operator import sub
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import (
    as_real,
    dtype_name,
    is_device_sparse,
    namespace,
    to_numpy,
    work_dtype,
)
from primedpca._operator import kernels
from primedpca._operator.non_finite import check_present, refuse
from primedpca._operator.preparation import Columns, is_near_zero, own_shift
from primedpca.protocols import Array, Like, Operator, is_spread

__all__ = [
    "Frame",
    "before_any_pass",
    "beyond_float32",
    "chain_of",
    "check_deviations",
    "check_weights",
    "deviations_of",
    "far_from_zero",
    "given",
    "guess",
    "learn",
    "measure",
    "narrowed",
    "remainder",
    "roots_of",
    "settle",
]

#: Smallest and largest magnitude of entries whose fourth powers (squared residuals) neither
#: underflow nor overflow in the dtype, and the largest binary exponent that is used.  The dtype is
#: that of the stored data: float64 products of float32 data have the unit of float32 products.
SAFE = {"float32": (2.0**-30, 2.0**30, 120), "float64": (2.0**-100, 2.0**100, 1000)}
#: A sparse column that is stored in full is shifted if its mean exceeds its standard deviation by
#: this factor.
FAR = 8.0
#: A pass is repeated if the sum of squares about its guess exceeds that about the mean by this
#: factor: rounding errors are relative to the former.
POOR = 64.0
#: Unit roundoff of float64.
UNIT = 2.0**-53
#: Mean of a standardised column, in its scale, up to which it need not be centred.
FARTHEST = {"float32": 2.0**50, "float64": 2.0**100}
#: Divisor of a column that is constant up to rounding, in its mean, where that exceeds 1.
STILL = 2.0**-33
#: Divisors of columns outside which quotients of float32 numbers may leave the range of float32.
ORDINARY = (2.0**-40, 2.0**40)
#: Rows of the first block from which the mean is guessed, about.
GUESSED = 256
#: Maximum number of passes that look for a shift and a scale in range.
LOOKS = 12


@dataclass(frozen=True)
class Frame:
    """Mean, scale and unit: the parameters that turn a block into its part of ``M``.

    Attributes
    ----------
    columns : Columns
        Operations on the block itself.
    offset : array of shape (d,), optional
        For sparse data, the part of the mean that products are still to be corrected by, in the
        scale of ``M``.
    unit : float, default=1.0
        A power of two by which blocks are multiplied first; 1 unless squares of the data would
        overflow or underflow in their dtype.
    gain : float, default=1.0
        Factor by which ``M`` as computed exceeds ``M`` in the unit of the data.
    scale : array of shape (d,), optional
        Divisors of the columns.
    mean : array of shape (d,), optional
        In float64 and multiplied by ``unit``; ``None`` until the first pass is over.
    rest : array of shape (d,), optional
        What rounding has left out of ``mean``; ``None`` where that is too small to matter.
    total : float
        Mean squared norm of the rows of ``M``.
    first : float
        Mean squared norm of the rows in the first pass, relative to its guess of the mean.
    slip : float
        Largest relative error of the factors by which columns are multiplied.
    astray : float
        Bound on the distance between the vector that is subtracted and the mean, in the scale
        of ``M``.
    near : array of shape (d,), optional
        A better guess of the mean than the first block's, in the unit of the data.
    """

    columns: Columns = field(default_factory=Columns)
    offset: Array | None = None
    unit: float = 1.0
    gain: float = 1.0
    scale: Array | None = None
    mean: Array | None = None
    rest: Array | None = None
    total: float = math.nan
    first: float = 0.0
    slip: float = 2 * UNIT
    astray: float = 0.0
    near: Array | None = None

    def changed(self, **changes: Any) -> Frame:
        """Return a copy with other fields, as ``dataclasses.replace`` at a fraction of its time."""
        other = object.__new__(Frame)
        vars(other).update(vars(self), **changes)
        return other


def before_any_pass(like: Like, scale: Any) -> Frame:
    """Return the frame before any pass, in which only a ``scale`` given by the user is known."""
    if isinstance(scale, str):
        if scale != "std":
            raise ValueError(
                f"`scale`={scale!r} must be None, 'std' or an array with one number per column."
            )
        return Frame()
    given = as_real(scale, "scale")
    with np.errstate(over="ignore", under="ignore"):
        values = like.asarray(given)
    if values.shape != (like.n_features,):
        raise ValueError(
            f"`scale` has shape {tuple(values.shape)}, but `X` has {like.n_features} columns. "
            "Give one number for each column."
        )
    bad = np.flatnonzero(~(np.isfinite(given) & (given > 0)))
    if bad.size:
        raise ValueError(
            f"`scale`[{bad[0]}]={given[bad[0]]} must be finite and positive. Use 1 for a column "
            "that is not to be scaled."
        )
    kept = to_numpy(values)
    tiny, most = np.finfo(kept.dtype).tiny, np.finfo(kept.dtype).max
    far = np.flatnonzero((kept < tiny) | (kept > most / 4))
    if far.size:
        wide = kept.dtype == np.float64
        raise ValueError(
            f"`scale`[{far[0]}]={given[far[0]]:g} is beyond the range of {kept.dtype}, in which "
            f"`X` is multiplied. Give `X` in {'' if wide else 'float64, or in '}another unit."
        )
    return Frame(Columns(factor=1 / values), scale=values)


def beyond_float32(scale: Any) -> bool:
    """Whether columns divided by a ``scale`` of the user's may leave the range of float32.

    No power of two in that range brings both stored numbers and quotients into it.
    """
    if scale is None or isinstance(scale, str):
        return False
    values = as_real(scale, "scale")
    return bool(((values < ORDINARY[0]) | (values > ORDINARY[1])).any())


def check_weights(values: np.ndarray, n: int) -> None:
    """Raise ValueError unless there is a weight that is finite and not negative for each row."""
    if values.shape != (n,):
        raise ValueError(
            f"`sample_weight` has shape {values.shape}, but `X` has {n} rows. Give one weight "
            "for each row."
        )
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size:
        raise ValueError(
            f"`sample_weight`[{bad[0]}]={values[bad[0]]} must be finite and not negative. Use 0 to "
            "leave a row out."
        )


def roots_of(weight: Any, n: int, like: Like) -> tuple[Array, float, float]:
    """Return the square roots of the row weights ``(n,)``, the sum of the weights, and their unit.

    Weights and their sum are divided by the unit, a power of four.  The unit is 1 unless the sum
    is so large that subtracting 1 does not change it; then weighted squares might overflow.
    """
    values = as_real(weight, "sample_weight")
    check_weights(values, n)
    largest = float(values.max(initial=0.0))
    if largest > np.finfo(np.float64).max / n:
        raise ValueError(
            f"`sample_weight` is as large as {largest:g}, and the sum of the {n} weights exceeds "
            "the range of float64. Divide the weights by a large number."
        )
    total = math.fsum(values)  # exact up to one rounding, for any number of weights
    # Weights that were divided by their sum add up to 1, up to the rounding of the divisions.
    # scikit-learn's checks of estimators look for the word "zero" in the message.
    if total <= 1.0 + n * 2.0**-49:
        raise ValueError(
            f"`sample_weight` adds up to {total:g}; weights count rows, so their sum must exceed "
            "1, and not be near zero. Multiply the weights by a number so that they count rows."
        )
    # From 2^64 on, the sum and the sum minus 1 are the same number in float64.  A power of four
    # has an exact square root, so the division does not change the digits of the roots.
    unit = 4.0 ** max(0, (math.frexp(total)[1] - 64) // 2)
    lost = np.flatnonzero((values > 0) & (values / unit < np.finfo(np.float64).tiny))
    if lost.size:
        small = values[lost[0]]
        raise ValueError(
            f"`sample_weight`[{lost[0]}]={small:g} is too small beside a sum of {total:g} for "
            "float64. Use 0 to leave the row out."
        )
    return like.asarray(np.sqrt(values / unit)), total / unit, unit


def given(data: Operator, mean: Array, scale: Array | None, fill: Array | None) -> Frame:
    """Return the frame with the mean, scale and fill values of an earlier fit, for new rows."""
    shift, wide = data.like.asarray(mean), data.wide(data.like.asarray(mean))
    fill = data.like.asarray(fill) if data.missing == "mean" else None
    factor = None if scale is None else 1 / scale
    if not data.sparse:
        fill = None if fill is None else fill - shift
        return Frame(Columns(shift, fill, factor), scale=scale, mean=wide)
    offset = shift if scale is None else shift / scale
    return Frame(Columns(None, fill, factor), offset, scale=scale, mean=wide)


def guess(data: Operator, frame: Frame) -> Frame:
    """Return the frame of the first pass, shifted by a guess of the mean.

    Data with missing values or ``scale="std"``, and sparse data far from zero, need a pass for
    their moments first.  Then the frame that comes back is complete.
    """
    if data.standardise or data.missing == "mean":
        return measure(data, frame)
    if not data.center or (data.implicit and frame.near is None):
        return frame
    if data.sparse and data.source.axis == 0:
        far = far_from_zero(data.first_block(), frame.unit)
        return measure(data, frame) if far else frame
    if frame.near is None and data.source.axis == 1:
        return frame.changed(columns=frame.columns._replace(shift=None, own=True))
    near = frame.near is None and is_near_zero(data.first_block(), data.like.dtype)
    shift, rest = (None, None) if near else _first_shift(data, frame)
    return frame.changed(columns=frame.columns._replace(shift=shift, rest=rest, own=False))


def _first_shift(data: Operator, frame: Frame) -> tuple[Array, Array | None]:
    """Return the best guess of the mean: from an earlier pass, or the mean of the first block.

    The second array is the rest of the shift.
    """
    if frame.near is not None:
        return data.narrow(data.wide(frame.near) * frame.unit), None
    block, root = data.first_block(), data.root
    if root is not None:
        start, stop = data.source.blocks[0]
        if not is_spread(data.source) and not bool((root[:stop] > 0).any()):
            # Rows of weight zero may be far from the others: use the first block that has
            # rows of positive weight.
            first = int(np.argmax(to_numpy(root) > 0))
            i = next(i for i, (_, end) in enumerate(data.source.blocks) if first < end)
            start, stop = data.source.blocks[i]
            block = next(iter(data.source.scan(i)))[1]
        root = root[start:stop]
    elif not data.sparse:
        # A few rows of the block will do: the pass itself finds how far their mean is off.
        block = block[:: max(1, block.shape[0] // GUESSED)]
    own = Columns(own=True)  # in sparse blocks, this shifts only columns that are stored in full
    found = own_shift(block, data.like.dtype, own, frame.unit, root)
    return found.shift, found.rest


def far_from_zero(block: Any, unit: float = 1.0) -> bool:
    """Whether a sparse block has a column that is stored in full and far from zero."""
    block = block.host if is_device_sparse(block) else block
    full = np.flatnonzero(np.bincount(block.indices, minlength=block.shape[1]) == block.shape[0])
    if not full.size:
        return False
    with np.errstate(all="ignore"):  # non-finite values raise an error after the pass
        columns = block[:, full].toarray().astype(np.float64) * unit
        means = columns.mean(axis=0)
        return bool((means**2 > FAR**2 * columns.var(axis=0)).any())


def learn(
    data: Operator, frame: Frame, norm: float, sums: Array, seen_from: Columns
) -> tuple[Frame, Array | None, Frame | None]:
    """Return the frame after a first pass, and whether the pass must be repeated.

    Parameters
    ----------
    data : Operator
    frame : Frame
        Frame of the pass.
    norm : float
        Sum of the squares of all prepared entries.
    sums : array of shape (d,)
        Weighted sums of the columns, relative to the guess of the mean.
    seen_from : Columns
        Their shift and rest are the guess of the mean; zero if there is none.

    Returns
    -------
    found : Frame
    away : array of shape (d,), optional
        Mean minus guess in the scale of ``M``; ``None`` if there is nothing to correct.
    again : Frame, optional
        Frame with which to repeat the pass, if its unit or its guess were so poor that rounding
        errors dominate; otherwise ``None``.
    """
    unit = in_range(data, frame, norm)
    if unit is not None:
        return frame, None, _before(frame, unit)
    if not math.isfinite(norm):  # in every unit
        refuse_non_finite(data, frame)
    away = data.wide(sums) / data.weight
    distance = away if frame.scale is None else away * data.wide(frame.scale)
    shift, rest = seen_from.shift, data.wide(seen_from.rest)
    known = distance if rest is None else distance + rest
    mean = known if shift is None else known + data.wide(shift)
    total = norm / data.weight
    if not data.center:
        return frame.changed(first=total, mean=mean, total=total), None, None
    # Sparse rows are corrected by the distance from the guess, which no addition has rounded.
    start = 0 * distance if shift is None or data.sparse else data.wide(shift)
    # Mean square about the mean = mean square about the guess - squared distance of the two.
    left = max(0.0, total - float(away @ away))
    factor = data.wide(frame.columns.factor)
    seen = (start, distance) if rest is None or data.sparse else (start, distance, rest)
    left_out, lost = remainder(data, seen, total, left, factor)
    found = frame.changed(first=total, mean=mean, rest=left_out, total=left, astray=lost)
    found, again = settle(data, found, seen_from, away), None
    if found.first > POOR * found.total:
        again = nearer(data, frame, found)
    return found, away, again


def remainder(
    data: Operator, seen: tuple[Array, ...], square: float, total: float, factor: Array | None
) -> tuple[Array | None, float]:
    """Return what rounding leaves out of the mean, and the error of the mean without it.

    The first is ``None``, and included in the second, if its square is below the rounding of the
    ``total`` variance: subtracting it would not change the products.

    Parameters
    ----------
    data : Operator
    seen : tuple of arrays of shape (d,)
        Shift, distance from the shift to the mean and, for a shift that has one, its rest.
    square : float
        Mean squared norm of the rows about the guess, in the scale of ``M``.
    total : float
        Total variance.
    factor : array of shape (d,), optional
    """
    shift, distance, *rest = seen
    error, step = chain_of(data) * UNIT * math.sqrt(square), 2**16
    for part in (*rest, shift):
        lost, left_out = 0.0, []
        for a in range(0, part.shape[0], step):  # for very wide rows, temporary arrays are large
            near, far = part[a : a + step], distance[a : a + step]
            whole = near + far
            back = whole - near
            left_out.append((near - (whole - back)) + (far - back))  # exact (Knuth's two-sum)
            scaled = left_out[-1] if factor is None else left_out[-1] * factor[a : a + step]
            lost += float(scaled @ scaled)
        distance = part + distance
        without, error = error, error + math.sqrt(lost)
    if lost <= UNIT * total:
        return None, error
    return data.like.xp.concat(left_out), without


def nearer(data: Operator, before: Frame, found: Frame) -> Frame | None:
    """Return a frame with a better guess of the mean, or None if no pass can improve it.

    Each repetition reduces the distance to the mean by about the unit roundoff, until it is small
    beside the standard deviation or beside the rounding error of the mean itself.
    """
    if data.sparse:  # only columns stored in full and far from zero can be shifted
        return measure(data, before) if data.source.axis == 0 else None
    if before.near is not None and found.first > before.first / POOR:
        return None
    return before.changed(near=data.wide(found.mean) / found.unit, first=found.first)


def settle(data: Operator, frame: Frame, seen_from: Columns, away: Array) -> Frame:
    """Return the frame for later passes.

    Dense blocks are shifted by the mean, and by what rounding has left out of it if that matters.
    Sparse blocks keep the shift of the first pass, and the distance ``away`` from it to the mean
    becomes the offset.
    """
    if not (data.sparse or data.implicit):
        mean: Any = frame.mean
        shift, rest = data.narrow(mean), frame.rest
        if dtype_name(data.like.dtype) == "float32":
            factor = data.wide(frame.columns.factor)
            scaled = mean if factor is None else mean * factor
            # Subtracting so small a mean is below the rounding of float32.  Products in float64,
            # from which proofs are made, are always shifted.
            shift = None if float(scaled @ scaled) <= (2.0**-25) ** 2 * frame.total else shift
            rest = None if shift is None else mean - data.wide(shift)
            if rest is not None:
                scaled = rest if factor is None else rest * factor
                rest = rest if float(scaled @ scaled) > 2.0**-24 * frame.total else None
        rest = None if rest is None else data.narrow(rest)
        return frame.changed(columns=frame.columns._replace(shift=shift, rest=rest, own=False))
    shift, rest = (
        part if part is not None and bool((part != 0).any()) else None
        for part in (seen_from.shift, seen_from.rest)
    )
    columns = frame.columns._replace(shift=shift, rest=rest, own=False)
    return frame.changed(columns=columns, offset=data.narrow(away))


def narrowed(data: Operator, frame: Frame) -> Frame | None:
    """Return a frame of float64 products for products in float32; None if it is out of range."""
    if dtype_name(data.like.dtype) == "float64":
        return frame
    low, high, _ = SAFE[work_dtype(data.source.dtype)]
    if frame.total and not low**2 <= frame.total / data.shape[1] <= high**2:
        return None  # a large constant column that is neither centred nor scaled
    xp, narrow = data.like.xp, dict[str, Array]()
    for name in ("shift", "fill", "factor"):
        part = getattr(frame.columns, name)
        if part is not None:
            narrow[name] = data.narrow(part)
            if not bool(xp.all(xp.isfinite(narrow[name]))):
                return None
    columns = Columns(**narrow)
    if not (data.sparse or data.implicit):
        found = frame.changed(columns=columns)
        return settle(data, found, Columns(), frame.mean) if data.center else found
    offset, (shift, _, factor, *_) = frame.offset, frame.columns
    if shift is not None and offset is not None:
        lost = shift - data.wide(columns.shift)
        offset = offset + (lost if factor is None else lost * factor)
        if columns.fill is not None:
            columns = columns._replace(fill=data.narrow(frame.columns.fill + lost))
    return frame.changed(columns=columns, offset=None if offset is None else data.narrow(offset))


class _Moments(NamedTuple):
    """Moments of each column, all of shape (d,).

    Attributes
    ----------
    gain : array
        Powers of two by which the columns were multiplied, beside the unit.
    shift, rest : array
        Guess of the mean, relative to which the sums were taken, in the unit, and what rounding
        has left out of it.
    there : array
        Total weight of the values that are present.
    stored : array
        Number of entries stored in rows of positive weight.
    away : array
        Mean minus shift and rest, multiplied by the gain.
    square : array
        Mean square about the shift, multiplied by the squared gain.
    variance : array
        Variance with divisor ``n``, multiplied by the squared gain.
    whole : bool
        Whether the values are 64-bit integers.
    """

    gain: Array
    shift: Array
    rest: Array
    there: Array
    stored: Array
    away: Array
    square: Array
    variance: Array
    whole: bool = False

    @property
    def mean(self) -> Array:
        """Weighted mean in the unit."""
        return self.shift + (self.rest + self.away / self.gain)

    @property
    def is_constant(self) -> Array:
        """Mask of the columns whose standard deviation is below the rounding of their mean.

        64-bit integers are not rounded: of them, below that of the distance from the shift.
        """
        xp = namespace(self.away)
        size = xp.sqrt(self.square) if self.whole else xp.abs(self.mean * self.gain)
        return xp.sqrt(self.variance) <= 20 * UNIT * size

    @property
    def is_poor(self) -> Array:
        """Mask of the columns whose shift was too far from the mean for an accurate variance."""
        return self.square > POOR * self.variance


def measure(data: Operator, frame: Frame) -> Frame:
    """Return the frame with mean, scale and fill values, found in a pass of their own."""
    start, xp, standardise = frame, data.like.xp, data.standardise
    found, frame = _moments(data, start, standardise, data.center)
    if standardise and not data.center and bool(xp.all(found.is_constant)):
        # All scales are 1: the means may need a unit, as data without a scale do.
        standardise = False
        found, frame = _moments(data, start, standardise, data.center)
        frame = frame.changed(scale=data.narrow(xp.ones_like(found.mean)))
    frame, mean = frame.changed(mean=found.mean), found.mean
    if standardise:
        frame, factor = _standard(data, frame, found)
    else:
        factor = xp.ones_like(mean) if frame.scale is None else 1 / data.wide(frame.scale)
        factor = factor / found.gain
    whole = None if frame.scale is None else data.narrow(factor * found.gain)
    fill = None
    if data.missing == "mean":  # of centred dense data, a missing value is at the mean exactly
        fill = 0 * data.narrow(mean) if data.center else data.narrow(mean)
    with np.errstate(over="ignore"):  # overflow raises an error below
        # A missing value becomes the mean: it adds nothing when centred, mean**2 when not.
        squared = found.variance * found.there
        if not data.center:
            squared = squared + (mean * found.gain) ** 2 * data.weight
        total = float(xp.sum(squared * factor**2)) / data.weight
        # About the guess: rounding errors are relative to these squares, not to the variances.
        first = float(xp.sum(found.square * found.there * factor**2)) / data.weight
        around = float(xp.sum(found.square * factor**2))
    if standardise and not data.center:
        _check_uncentred(data, mean, to_numpy(mean * found.gain * factor))
    if not math.isfinite(total + first + around):
        refuse_non_finite(data, frame)
    # Sparse rows are corrected by the distance from the guess, which no addition has rounded.
    plain = data.sparse and (fill is None or data.center)
    seen: tuple[Array, ...] = (0 * found.shift if plain else found.shift, found.away / found.gain)
    seen = seen if plain else (*seen, found.rest)
    rest, lost = remainder(data, seen, around, total, factor * found.gain)
    columns = Columns(None, fill, whole)
    first = max(first, total)
    frame = frame.changed(columns=columns, rest=rest, total=total, first=first, astray=lost)
    if not data.center:
        return frame
    if not data.sparse:
        return settle(data, frame, Columns(), found.away)
    rows = data.shape[0] if data.root is None else float(xp.sum(data.root > 0))
    far = (found.stored == rows) & (xp.abs(mean * found.gain) > FAR * xp.sqrt(found.variance))
    # Subtract the guess, not the mean, from stored entries: the distance that is left is then as
    # accurate as the sums about the guess, where the whole mean would be rounded.
    parts = (data.narrow(xp.where(far, part, 0 * mean)) for part in (found.shift, found.rest))
    shift, rest = parts
    left = xp.where(far, found.away, found.away + (found.shift + found.rest) * found.gain)
    if fill is not None:  # as far from the shift as the mean is
        frame = frame.changed(columns=columns._replace(fill=data.narrow(left / found.gain)))
    return settle(data, frame, Columns(shift, rest=rest), left * factor)


def _check_uncentred(data: Operator, mean: Array, scaled: np.ndarray) -> None:
    """Refuse columns that are so far from zero, in their scale, that products leave the range."""
    j, high = int(np.argmax(np.abs(scaled))), FARTHEST[work_dtype(data.source.dtype)]
    if abs(scaled[j]) > high:
        raise ValueError(
            f"The mean of column {j} of `X` (counted from 0), {float(mean[j]):.3g}, is "
            f"{abs(scaled[j]):.2g} times its scale; with `center`=False at most {high:.2g} is "
            "possible. Leave the column out, or use `center`=True."
        )


def _standard(data: Operator, frame: Frame, found: _Moments) -> tuple[Frame, Array]:
    """Return the frame with standard deviations as its scale, and the factors for ``found``.

    The deviations are those of the columns after missing values were replaced by the mean, as in
    the usual pipeline: such a value adds to the number of rows, and nothing to the sum of squares.
    Columns that are constant up to the rounding of their mean have scale 1.  If the data are
    centred, such columns are multiplied by zero, so that no rounding errors are left of them, and
    large ones have a scale beside which the rounding of new rows vanishes.
    """
    xp, ones = data.like.xp, namespace(found.away).ones_like(found.away)
    constant = found.is_constant
    filled = (
        found.variance * (found.there / data.weight) if data.missing == "mean" else found.variance
    )
    variance = xp.where(constant, ones, filled)
    deviation = xp.sqrt(variance)
    rounded = 2.0 ** xp.round(xp.log2(xp.clip(STILL * xp.abs(found.mean), min=1.0)))
    scale = xp.where(constant, rounded if data.center else ones, deviation / found.gain)
    still = 0 * ones if data.center else 1 / found.gain
    check_deviations(to_numpy(scale), work_dtype(data.source.dtype))
    # The rounding error of a variance is relative to the mean square about the shift.
    ratio = xp.where(constant, 0 * ones, found.square / xp.where(constant, ones, found.variance))
    # The weight of the zeros of a sparse column is a difference of weights that lie within a
    # factor of 16 of each other, so its relative error is up to 16 times larger.
    chain = chain_of(data) * (16 if data.sparse and data.root is not None else 1)
    slip = 2 * chain * UNIT * float(xp.max(ratio)) + 6 * UNIT
    frame = frame.changed(scale=data.narrow(scale), gain=1.0, slip=slip)
    return frame, xp.where(constant, still, 1 / deviation)


def deviations_of(data: Operator, constant: bool) -> tuple[Frame, Array]:
    """Return a frame with the mean, and the standard deviations of the columns ``(d,)``, in a pass.

    Missing values are replaced by the mean.  With ``constant``, deviations below the rounding of
    the mean are zero, as in the fit of standardised columns.
    """
    found, frame = _moments(data, data.frame, data.standardise, True)
    xp = data.like.xp
    spread = xp.sqrt(found.variance * (found.there / data.weight)) / found.gain
    spread = xp.where(found.is_constant, 0 * spread, spread) if constant else spread
    return frame.changed(mean=found.mean), spread


def check_deviations(scale: np.ndarray, dtype: str) -> None:
    """Refuse standard deviations that the dtype of the model cannot hold or divide by."""
    info = np.finfo(dtype)
    beyond = np.flatnonzero((scale < 2 * info.tiny) | (scale > info.max / 2))
    if beyond.size:
        found = scale[beyond[0]]
        words = f"{found:.3g}" if found else "nearly 0"
        raise ValueError(
            f"Column {beyond[0]} of `X` (counted from 0) has a standard deviation of {words}, "
            f"which is beyond the range of {info.dtype}. Give the column in another unit."
        )


def _moments(
    data: Operator, frame: Frame, standardise: bool, center: bool
) -> tuple[_Moments, Frame]:
    """Return moments about a guess near the mean, and a frame whose unit keeps squares in range.

    The pass is repeated, at most ``LOOKS`` times in all, with another gain, unit or guess if
    squares left the range of the dtype or the guess was too far from the mean.  With
    ``standardise`` every column has a gain of its own.  Otherwise squares are those about the guess
    and, unless ``center``, those of the means, too.
    """
    xp, axis, gain = data.like.xp, data.source.axis, _first_gain(data, frame)
    whole = dtype_name(data.source.dtype) in ("int64", "uint64")
    shift, rest = _first_shift(data, frame) if axis == 0 else (None, None)
    worst = math.inf
    for _ in range(LOOKS):
        factor = None if bool(xp.all(gain == 1)) else data.narrow(gain)
        columns = Columns(shift, factor=factor, own=shift is None, rest=rest)
        frame = frame.changed(columns=columns)
        parts = data.run(kernels.moments, {"dtype": data.like.dtype, "axis": axis}, frame)
        there, sums, squares, stored, absent, reach, *own = map(
            data.wide, parts.sums if axis == 0 else parts.stacks
        )
        missing = data.missing == "error" and float(xp.sum(absent)) > 0
        if missing or not math.isfinite(float(xp.sum(reach))):
            _extent(data, frame)
        fitting = _fitting_gain(data, gain, squares, reach) if standardise else None
        if fitting is not None:
            gain = fitting
            continue
        check_present(data.source, there)
        with np.errstate(over="ignore", invalid="ignore"):  # in a unit that is replaced below
            away = sums / there
            seen_from, left = (data.wide(shift), data.wide(rest)) if shift is not None else own
            left = 0 * away if left is None else left
            variance = xp.clip(squares / there - away**2, min=0.0)  # rounding may go below zero
            seen = (gain, seen_from, left, there, stored, away)
            found = _Moments(*seen, squares / there, variance, whole)
            norm, plain = float(xp.sum(squares)), frame
            if not center:  # the means are multiplied, too
                norm += float(xp.sum((found.mean * gain) ** 2)) * data.weight
                plain = frame.changed(columns=Columns(factor=factor))
        unit = None if standardise else in_range(data, plain, norm)
        if unit is not None:
            ratio = unit / frame.unit
            shift, rest = (None if part is None else part * ratio for part in (shift, rest))
            frame = _before(frame, unit)
            continue
        poor = found.is_poor
        distance = float(xp.max(xp.where(poor, xp.abs(away / gain), xp.zeros_like(away))))
        if not bool(xp.any(poor)) or distance > worst / 2:
            break
        worst, shift, rest = distance, data.narrow(found.mean), None
    return found, frame


def _first_gain(data: Operator, frame: Frame) -> Array:
    """Return powers of two ``(d,)``: 1, or the nearest to the reciprocal of a given scale.

    Multiplying by a power of two causes no rounding error.
    """
    xp, scale = data.like.xp, frame.scale
    if scale is None or data.standardise:
        return xp.ones(data.shape[1], dtype=xp.float64, device=data.like.device)
    return 2.0 ** -xp.round(xp.log2(data.wide(scale)))


def _fitting_gain(data: Operator, gain: Array, squares: Array, reach: Array) -> Array | None:
    """Return other gains if squares of columns to be standardised left the range, else None."""
    xp, n = data.like.xp, data.shape[0]
    low, high, top = SAFE[work_dtype(data.source.dtype)]
    typical = reach / n
    bad = (reach > 0) & ~((squares >= n * low**2) & (squares <= n * high**2))
    if not bool(xp.any(bad)):
        return None
    typical = xp.where(typical > 0, typical, reach)  # the division may have underflowed
    # If even the magnitudes have overflowed, assume the largest size.
    size = xp.where(xp.isfinite(typical) & (typical > 0), typical, xp.full_like(typical, 2.0**top))
    power = xp.clip(xp.round(xp.log2(gain) - xp.log2(size)), min=-top, max=top)
    fitting = xp.where(bad, 2.0**power, gain)
    return fitting if bool(xp.any(fitting != gain)) else None


def chain_of(data: Operator) -> float:
    """Return the maximum number of successive roundings in a sum over the rows."""
    # One per row of a block, then those of the tree in which the blocks are added up.
    blocks = data.source.blocks
    starts, stops = zip(*blocks, strict=True)
    longest = max(map(sub, stops, starts))
    return (longest if data.source.axis == 0 else data.shape[0]) + math.log2(len(blocks)) + 10


def in_range(data: Operator, frame: Frame, norm: float) -> float | None:
    """Return another unit if the sum of squares of a pass left the range, else None."""
    low, high, top = SAFE[work_dtype(data.source.dtype)]
    count = data.weight * data.shape[1]
    typical = norm / count
    if math.isfinite(norm) and low**2 <= typical <= high**2:
        return None
    size = math.sqrt(typical) if math.isfinite(norm) and typical > low**4 else 0.0
    if size == 0.0:  # squares have overflowed or underflowed, or all entries are zero
        raw, ready = _extent(data, frame)
        # The division may underflow, too.
        root = ready / math.sqrt(count) or ready
        size = root if math.isfinite(norm) else max(raw * frame.unit, ready)
        if size == 0.0 and raw < sys.float_info.min:  # quotients and weighted entries underflow
            size = raw
        if size == 0.0 and raw > 0 and frame.scale is not None and not data.standardise:
            plain = frame.changed(columns=frame.columns._replace(factor=None))
            if _extent(data, plain)[1] > 0:  # not constant columns: quotients underflow
                most = float(data.like.xp.max(frame.scale))
                raise ValueError(
                    f"`X` has entries no larger than {raw:.3g}, and `scale` numbers as large as "
                    f"{most:.3g}. Quotients are below {sys.float_info.min:.2g}, the range of "
                    "float64. Use a smaller `scale`."
                )
    if size == 0.0:
        return None
    power = -math.frexp(size)[1]
    if power > 0:  # limited by the largest stored entry, which must not overflow before the shift
        power = min(power, top - math.frexp(_extent(data, frame)[0] * frame.unit)[1])
    info = np.finfo(dtype_name(data.like.dtype))  # the unit itself must be representable, too
    largest = info.maxexp - math.frexp(frame.unit)[1]
    unit = max(math.ldexp(frame.unit, min(max(power, -top), largest)), float(info.tiny))
    return None if unit == frame.unit else unit


def refuse_non_finite(data: Operator, frame: Frame) -> None:
    """Raise ValueError for non-finite values in the data, or for products that overflow."""
    raw, _ = _extent(data, frame)
    if frame.scale is not None and not data.standardise:
        least = float(data.like.xp.min(frame.scale))
        raise ValueError(
            f"`X` has entries as large as {raw:.3g}, and `scale` numbers as small as {least:.3g}. "
            f"Squares of quotients exceed {sys.float_info.max:.2g}, the range of float64. Use a "
            "larger `scale`."
        )
    raise ValueError(
        f"`X` has entries as large as {raw:.3g}, whose products exceed the range of "
        f"{dtype_name(data.like.dtype)}. Divide `X` by a large number."
    )


def _extent(data: Operator, frame: Frame) -> tuple[float, float]:
    """Return the largest magnitudes, stored and prepared; raise for non-finite values."""
    skip = data.missing == "mean"
    operands = {"dtype": data.like.dtype, "missing": skip, "axis": data.source.axis}
    parts = data.run(kernels.extent, operands, frame)
    if parts.sums[0] > 0:
        refuse(data, int(parts.sums[0]))
    raw, ready = (float(namespace(part).max(part)) for part in parts.stacks)
    return raw, ready


def _before(frame: Frame, unit: float) -> Frame:
    """Return the frame before a first pass, in another unit."""
    factor = None if frame.scale is None else 1 / frame.scale
    columns = Columns(factor=factor)
    return Frame(columns, unit=unit, gain=unit, scale=frame.scale, near=frame.near)
