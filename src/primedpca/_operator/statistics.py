"""Where the data are seen from: shift, scale, fill and unit, and how a first pass finds them.

The first pass of any kind also learns the mean: its blocks are shifted by a guess (the weighted
mean of the first block, or of each block of whole columns), the distance from the guess to the
mean is summed beside the product, and the product is corrected by it.  A pass whose guess was so
poor that the distance dwarfs the spread is made again, about the mean that it found.  After that
dense blocks are shifted by the mean itself; sparse blocks keep their zeros and are corrected in
every pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import dtype_name, namespace, to_numpy
from primedpca._operator import kernels
from primedpca._operator.non_finite import check_present, refuse
from primedpca._operator.preparation import Columns, own_shift
from primedpca.protocols import Array, Like, Operator, is_spread

__all__ = [
    "Frame",
    "before_any_pass",
    "chain_of",
    "far_from_zero",
    "given",
    "guess",
    "learn",
    "measure",
    "roots_of",
    "settle",
]

#: Sizes of entries within which fourth powers (squared residuals) stay in the range of the type,
#: and its largest exponent.
SAFE = {"float32": (2.0**-30, 2.0**30, 120), "float64": (2.0**-100, 2.0**100, 1000)}
#: Stored entries of a full sparse column are shifted where its mean exceeds its spread so often.
FAR = 8.0
#: Squares about a guess, in those about the mean, beyond which a pass is made again: they are what
#: its rounding is relative to.
POOR = 64.0
UNIT = 2.0**-53
#: Times that the columns are looked at for a shift and a scale in range, at most.
LOOKS = 12


@dataclass(frozen=True)
class Frame:
    """How a block becomes its part of ``M``.

    Attributes
    ----------
    columns : Columns
        What is done to the block itself.
    offset : array of shape (d,), optional
        What of the mean is left to subtract, in the scale of ``M``: of sparse data.
    unit : float
        A power of two that blocks are multiplied with first, other than 1 only where squares
        of the data would leave the range of their type.
    gain : float
        What ``M`` is multiplied with in the end.
    scale : array of shape (d,), optional
    mean : array of shape (d,), optional
        In float64 and multiplied by ``unit``; ``None`` until a first pass is over.
    total : float
        The mean squared norm of the rows of ``M``.
    first : float
        That of the rows as the first pass multiplied them, about a guess of the mean.
    slip : float
        The largest relative error of the numbers that columns are multiplied with.
    astray : float
        How far, in the scale of ``M``, what is subtracted may be from the mean.
    near : array of shape (d,), optional
        A better guess of the mean than the first block's, in the unit of the data.
    """

    columns: Columns = field(default_factory=Columns)
    offset: Array | None = None
    unit: float = 1.0
    gain: float = 1.0
    scale: Array | None = None
    mean: Array | None = None
    total: float = math.nan
    first: float = 0.0
    slip: float = 2 * UNIT
    astray: float = 0.0
    near: Array | None = None


def before_any_pass(like: Like, scale: Any) -> Frame:
    """The frame with nothing known but a scale that the user gave."""
    if scale is None or isinstance(scale, str):
        if scale not in (None, "std"):
            raise ValueError(f"`scale`={scale!r} must be None, 'std' or one number a column.")
        return Frame()
    given = to_numpy(scale).astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        values = like.asarray(given)
    if values.shape != (like.n_features,):
        raise ValueError(
            f"`scale` has shape {tuple(values.shape)}, but `X` has {like.n_features} columns; "
            "give one number for each column."
        )
    bad = np.flatnonzero(~(np.isfinite(given) & (given > 0)))
    if bad.size:
        raise ValueError(
            f"`scale`[{bad[0]}]={given[bad[0]]} must be finite and positive, as every entry."
        )
    kept = to_numpy(values)
    tiny, most = np.finfo(kept.dtype).tiny, np.finfo(kept.dtype).max
    far = np.flatnonzero((kept < tiny) | (kept > most / 4))
    if far.size:
        raise ValueError(
            f"`scale`[{far[0]}]={given[far[0]]:g} is beyond the range of {kept.dtype}, in which "
            "`X` is computed; give `X` in float64, or in another unit."
        )
    return Frame(Columns(factor=1 / values), scale=values)


def roots_of(weight: Any, n: int, like: Like) -> tuple[Array | None, float, float]:
    """The square roots of the row weights ``(n,)``, the sum of the weights, and their unit.

    Weights so large that one row more or less makes no difference are divided by a power of
    four, the unit, so that weighted squares stay in range.
    """
    if weight is None:
        return None, float(n), 1.0
    values = to_numpy(weight).astype(np.float64)
    if values.shape != (n,):
        raise ValueError(
            f"`sample_weight` has shape {values.shape}, but `X` has {n} rows; give one weight "
            "for each row."
        )
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size:
        raise ValueError(
            f"`sample_weight`[{bad[0]}]={values[bad[0]]} must be finite and not negative."
        )
    largest = float(values.max(initial=0.0))
    if largest > np.finfo(np.float64).max / n:
        raise ValueError(
            f"`sample_weight` is as large as {largest:g}, and the sum of the {n} weights exceeds "
            "the range of float64; divide the weights by a large number."
        )
    total = math.fsum(values)  # off by one rounding, however many there are
    # Weights that were divided by their sum add up to 1, give or take what that rounds by.
    if total <= 1.0 + n * 2.0**-49:
        raise ValueError(
            f"`sample_weight` adds up to {total:g}; weights count rows, so their sum must "
            "exceed 1, not be near zero."
        )
    # From 2^64 on, to divide by the sum less 1 or by the sum is the same.
    unit = 4.0 ** max(0, (math.frexp(total)[1] - 64) // 2)
    return like.asarray(np.sqrt(values / unit)), total / unit, unit


def given(data: Operator, mean: Array, scale: Array | None) -> Frame:
    """The frame of an earlier fit, for new rows."""
    shift, wide = data.like.asarray(mean), data.wide(data.like.asarray(mean))
    fill = shift if data.missing == "mean" else None
    factor = None if scale is None else 1 / scale
    if not data.sparse:
        return Frame(Columns(shift, fill, factor), scale=scale, mean=wide)
    offset = shift if scale is None else shift / scale
    return Frame(Columns(None, fill, factor), offset, scale=scale, mean=wide)


def guess(data: Operator, frame: Frame) -> Frame:
    """The frame of the first pass, shifted by a guess of the mean.

    Some data need a pass for their moments alone; then the frame is complete.
    """
    if data.standardise or data.missing == "mean":
        return measure(data, frame)
    if not data.center:
        return frame
    if data.sparse and data.source.axis == 0:
        far = far_from_zero(data.first_block(), frame.unit)
        return measure(data, frame) if far else frame
    if frame.near is None and data.source.axis == 1:
        return replace(frame, columns=frame.columns._replace(shift=None, own=True))
    shift = _first_shift(data, frame)
    return replace(frame, columns=frame.columns._replace(shift=shift, own=False))


def _first_shift(data: Operator, frame: Frame) -> Array:
    """The best guess of the mean so far: from an earlier pass, or the mean of the first block."""
    if frame.near is not None:
        return data.narrow(data.wide(frame.near) * frame.unit)
    block, root = data.first_block(), data.root
    if root is not None:
        start, stop = data.source.blocks[0]
        if not is_spread(data.source) and not bool((root[:stop] > 0).any()):
            # Rows of weight zero may be anything: guess from the first block with others.
            first = int(np.argmax(to_numpy(root) > 0))
            i = next(i for i, (_, end) in enumerate(data.source.blocks) if first < end)
            start, stop = data.source.blocks[i]
            block = next(iter(data.source.scan(i)))[1]
        root = root[start:stop]
    own = Columns(own=True)  # of sparse columns, those that are full
    return own_shift(block, data.like.dtype, own, frame.unit, root).shift


def far_from_zero(block: Any, unit: float = 1.0) -> bool:
    """Whether some column of a first sparse block is full and far from zero."""
    full = np.flatnonzero(np.bincount(block.indices, minlength=block.shape[1]) == block.shape[0])
    if not full.size:
        return False
    with np.errstate(all="ignore"):  # what is no number is named after the pass
        columns = block[:, full].toarray().astype(np.float64) * unit
        means = columns.mean(axis=0)
        return bool((means**2 > FAR**2 * columns.var(axis=0)).any())


def learn(
    data: Operator, frame: Frame, norm: float, sums: Array, shift: Array | None
) -> tuple[Frame, Array | None, Frame | None]:
    """The frame after a first pass, the distance of its guess from the mean, and a better start.

    Parameters
    ----------
    data : Operator
    frame : Frame
        That of the pass.
    norm : float
        The sum of all squares that were multiplied.
    sums : array of shape (d,)
        The weighted sums of the columns about the guess.
    shift : array of shape (d,), optional
        The guess.

    Returns
    -------
    found : Frame
    away : array of shape (d,), optional
    again : Frame, optional
        To be begun with again if unit or guess were so poor that rounding spoilt the pass.
    """
    unit = in_range(data, frame, norm)
    if unit is not None:
        return frame, None, _before(frame, unit)
    away = data.wide(sums) / data.weight
    distance = away if frame.scale is None else away * data.wide(frame.scale)
    mean = distance if shift is None else distance + data.wide(shift)
    total = norm / data.weight
    found = replace(frame, first=total, mean=mean, total=total)
    if not data.center:
        return found, None, None
    found = replace(found, total=max(0.0, total - float(away @ away)))
    start = 0 * distance if shift is None else data.wide(shift)
    lost = astray_by(data, start, distance, total, data.wide(frame.columns.factor))
    found = settle(data, replace(found, astray=lost), shift, away)
    return found, away, nearer(data, frame, found)


def astray_by(
    data: Operator, shift: Array, distance: Array, square: float, factor: Array | None
) -> float:
    """How far the rounded ``shift + distance`` may be from the mean, in the scale of ``M``.

    What that addition rounds off is known exactly (Knuth's two-sum), so that a constant column,
    however large, is off by nothing; ``distance`` itself is off by what sums of rows are whose
    mean square is ``square``.
    """
    lost, step = 0.0, 2**16  # a slice at a time: of very wide rows each of these is long
    for a in range(0, shift.shape[0], step):
        near, far = shift[a : a + step], distance[a : a + step]
        whole = near + far
        part = whole - near
        rest = (near - (whole - part)) + (far - part)
        rest = rest if factor is None else rest * factor[a : a + step]
        lost += float(rest @ rest)
    return math.sqrt(lost) + chain_of(data) * UNIT * math.sqrt(square)


def nearer(data: Operator, before: Frame, found: Frame) -> Frame | None:
    """A start nearer to the mean, if the pass that ``found`` this is to be made again.

    The distance to the mean falls by the unit roundoff each time, until it is lost in the spread
    or in the rounding of the mean itself.
    """
    if found.first <= POOR * found.total:
        return None
    if data.sparse:  # only full columns far from zero can be shifted
        return measure(data, before) if data.source.axis == 0 else None
    if before.near is not None and found.first > before.first / POOR:
        return None
    return replace(before, near=data.wide(found.mean) / found.unit, first=found.first)


def settle(data: Operator, frame: Frame, shift: Array | None, away: Array) -> Frame:
    """What later passes subtract: the mean itself, or what sparse columns allow."""
    if not data.sparse:
        mean = None if _is_centred(data, frame) else data.narrow(frame.mean)
        return replace(frame, columns=frame.columns._replace(shift=mean, own=False))
    kept = shift if shift is not None and bool((shift != 0).any()) else None
    columns = frame.columns._replace(shift=kept, own=False)
    return replace(frame, columns=columns, offset=data.narrow(away))


def _is_centred(data: Operator, frame: Frame) -> bool:
    """Whether to subtract the mean would change no more than float32 rounds off.

    Products in float64, where proofs are made, are always shifted.
    """
    if dtype_name(data.like.dtype) != "float32":
        return False
    mean: Any = frame.mean
    mean = mean if frame.columns.factor is None else mean * data.wide(frame.columns.factor)
    return float(mean @ mean) <= (2.0**-25) ** 2 * frame.total


class _Moments(NamedTuple):
    """Per column, in powers of two ``gain`` of the unit and about ``shift``."""

    gain: Array
    shift: Array
    there: Array
    stored: Array
    away: Array
    square: Array
    variance: Array

    @property
    def mean(self) -> Array:
        """The weighted mean, in the unit."""
        return self.shift + self.away / self.gain

    def is_constant(self, eps: float) -> Array:
        """Which columns do not differ by more than the rounding of their mean."""
        xp = namespace(self.away)
        return xp.sqrt(self.variance) <= 10 * eps * xp.abs(self.mean * self.gain)

    @property
    def is_poor(self) -> Array:
        """Which columns were looked at from too far away to know their variance well."""
        return self.square > POOR * self.variance


def measure(data: Operator, frame: Frame) -> Frame:
    """Mean, spread and missing values, in a pass of their own."""
    found, frame = _moments(data, frame)
    frame, xp = replace(frame, mean=found.mean), data.like.xp
    mean = found.mean
    if data.standardise:
        frame, factor = _standard(data, frame, found)
    else:
        factor = xp.ones_like(mean) if frame.scale is None else 1 / data.wide(frame.scale)
        factor = factor / found.gain
    whole = None if frame.scale is None else data.narrow(factor * found.gain)
    fill = data.narrow(mean) if data.missing == "mean" else None
    with np.errstate(over="ignore"):  # refused below
        # What is missing becomes the mean: nothing when centred, mean**2 when not.
        squared = found.variance * found.there
        if not data.center:
            squared = squared + (mean * found.gain) ** 2 * data.weight
        total = float(xp.sum(squared * factor**2)) / data.weight
        # About the guess, whose square has cancelled in the variances.
        first = float(xp.sum(found.square * found.there * factor**2)) / data.weight
        around = float(xp.sum(found.square * factor**2))
    if not math.isfinite(total + first + around):
        refuse_non_finite(data, frame)
    # Of sparse rows the distance from the guess is subtracted, and no mean that was rounded.
    start = 0 * found.shift if data.sparse and fill is None else found.shift
    lost = astray_by(data, start, found.away / found.gain, around, factor * found.gain)
    columns = Columns(None, fill, whole)
    first = max(first, total)
    frame = replace(frame, columns=columns, total=total, first=first, astray=lost)
    if not data.center:
        return frame
    if not data.sparse:
        return settle(data, frame, None, found.away)
    rows = data.shape[0] if data.root is None else float(xp.sum(data.root > 0))
    far = (found.stored == rows) & (xp.abs(mean * found.gain) > FAR * xp.sqrt(found.variance))
    # The guess itself is subtracted from stored entries, so that what is left of the mean is
    # as exact as the sums about it: the mean as a whole would be rounded.
    shift = data.narrow(xp.where(far, found.shift, xp.zeros_like(mean)))
    left = xp.where(far, found.away, found.away + found.shift * found.gain)
    return settle(data, frame, shift, left * factor)


def _standard(data: Operator, frame: Frame, found: _Moments) -> tuple[Frame, Array]:
    """The frame with standard deviations as its scale, and what ``found`` is multiplied with.

    Centred columns that are constant up to the rounding of their mean are taken as constant:
    their scale is 1, and what rounding left of them is multiplied by zero.
    """
    xp, ones = data.like.xp, namespace(found.away).ones_like(found.away)
    constant = found.is_constant(float(xp.finfo(data.like.dtype).eps))
    variance = xp.where(constant, ones, found.variance)
    deviation = xp.sqrt(variance)
    scale = xp.where(constant, ones, deviation / found.gain)
    still = 0 * ones if data.center else 1 / found.gain
    info = np.finfo(dtype_name(data.like.dtype))
    beyond = np.flatnonzero(to_numpy((scale < 2 * info.tiny) | (scale > info.max / 2)))
    if beyond.size:
        raise ValueError(
            f"column {beyond[0]} of `X` has a standard deviation of "
            f"{float(scale[int(beyond[0])]):.3g}, by which {info.dtype} cannot divide; give the "
            "column in another unit."
        )
    ratio = xp.where(constant, 0 * ones, found.square / variance)
    # The weight of the zeros of sparse columns is a difference of weights within a factor of 16.
    chain = chain_of(data) * (16 if data.sparse and data.root is not None else 1)
    slip = 2 * chain * UNIT * float(xp.max(ratio)) + 4 * UNIT
    frame = replace(frame, scale=data.narrow(scale), gain=1.0, slip=slip)
    return frame, xp.where(constant, still, 1 / deviation)


def _moments(data: Operator, frame: Frame) -> tuple[_Moments, Frame]:
    """Moments about a guess near the mean, and the frame in whose unit squares stay in range."""
    xp, axis, gain = data.like.xp, data.source.axis, _first_gain(data, frame)
    shift = _first_shift(data, frame) if axis == 0 else None
    worst = math.inf
    for _ in range(LOOKS):
        factor = None if bool(xp.all(gain == 1)) else data.narrow(gain)
        columns = Columns(shift=shift, factor=factor, own=shift is None)
        frame = replace(frame, columns=columns)
        parts = data.run(kernels.moments, {"dtype": data.like.dtype, "axis": axis}, frame)
        there, sums, squares, stored, absent, reach, *own = map(
            data.wide, parts.sums if axis == 0 else parts.stacks
        )
        missing = data.missing == "error" and float(xp.sum(absent)) > 0
        if missing or not math.isfinite(float(xp.sum(reach))):
            _extent(data, frame)
        fitting = _fitting_gain(data, gain, squares, reach)
        if fitting is not None:
            gain = fitting
            continue
        unit = None if data.standardise else in_range(data, frame, float(xp.sum(squares)))
        if unit is not None:
            shift = None if shift is None else shift * (unit / frame.unit)
            frame = _before(frame, unit)
            continue
        check_present(data.source, there)
        away = sums / there
        seen_from = data.wide(shift) if shift is not None else own[0]
        variance = xp.clip(squares / there - away**2, min=0.0)
        found = _Moments(gain, seen_from, there, stored, away, squares / there, variance)
        poor = found.is_poor
        distance = float(xp.max(xp.where(poor, xp.abs(away / gain), xp.zeros_like(away))))
        if not bool(xp.any(poor)) or distance > worst / 2:
            break
        worst, shift = distance, data.narrow(found.mean)
    return found, frame


def _first_gain(data: Operator, frame: Frame) -> Array:
    """Powers of two that columns are multiplied with: those next to a scale that was given."""
    xp, scale = data.like.xp, frame.scale
    if scale is None or data.standardise:
        return xp.ones(data.shape[1], dtype=xp.float64, device=data.like.device)
    return 2.0 ** -xp.round(xp.log2(data.wide(scale)))


def _fitting_gain(data: Operator, gain: Array, squares: Array, reach: Array) -> Array | None:
    """Other gains where squares of columns that are to be standardised are not in range."""
    if not data.standardise:
        return None
    xp, n = data.like.xp, data.shape[0]
    low, high, top = SAFE[dtype_name(data.like.dtype)]
    typical = reach / n
    bad = (reach > 0) & ~((squares >= n * low**2) & (squares <= n * high**2))
    if not bool(xp.any(bad)):
        return None
    size = xp.where(xp.isfinite(typical) & (typical > 0), typical, xp.full_like(typical, 2.0**top))
    power = xp.clip(xp.round(xp.log2(gain) - xp.log2(size)), min=-top, max=top)
    fitting = xp.where(bad, 2.0**power, gain)
    return fitting if bool(xp.any(fitting != gain)) else None


def chain_of(data: Operator) -> float:
    """How many roundings a sum over the rows goes through, one after the other, at most."""
    blocks = data.source.blocks
    longest = max(stop - start for start, stop in blocks)
    return (longest if data.source.axis == 0 else data.shape[0]) + math.log2(len(blocks)) + 10


def in_range(data: Operator, frame: Frame, norm: float) -> float | None:
    """The unit in which a pass is to be made again, if its sum of squares left the range."""
    low, high, top = SAFE[dtype_name(data.like.dtype)]
    count = data.weight * data.shape[1]
    typical = norm / count
    if math.isfinite(norm) and low**2 <= typical <= high**2:
        return None
    size = math.sqrt(typical) if math.isfinite(norm) and typical > low**4 else 0.0
    if size == 0.0:  # squares beyond the range, or below it, or none
        raw, ready = _extent(data, frame)
        size = ready / math.sqrt(count) if math.isfinite(norm) else max(raw * frame.unit, ready)
    if size == 0.0:
        return None
    power = -math.frexp(size)[1]
    if power > 0:  # as far as the largest entry allows, which may be shifted by as much
        power = min(power, top - math.frexp(_extent(data, frame)[0] * frame.unit)[1])
    info = np.finfo(dtype_name(data.like.dtype))  # in which the unit must be a number, too
    unit = math.ldexp(frame.unit, max(power, -top))
    unit = min(max(unit, float(info.tiny)), 2.0 ** (info.maxexp - 1))
    return None if unit == frame.unit else unit


def refuse_non_finite(data: Operator, frame: Frame) -> None:
    """Raise for products that are not finite: bad entries, or numbers beyond the type's range."""
    raw, _ = _extent(data, frame)
    raise ValueError(
        f"`X` has entries as large as {raw:.3g}, whose products exceed the range of "
        f"{dtype_name(data.like.dtype)}; divide them by a large number."
    )


def _extent(data: Operator, frame: Frame) -> tuple[float, float]:
    """The largest entry as stored and as prepared; refuses non-finite values."""
    skip = data.missing == "mean"
    operands = {"dtype": data.like.dtype, "missing": skip, "axis": data.source.axis}
    parts = data.run(kernels.extent, operands, frame)
    if parts.sums[0] > 0:
        refuse(data, int(parts.sums[0]))
    raw, ready = (float(namespace(part).max(part)) for part in parts.stacks)
    return raw, ready


def _before(frame: Frame, unit: float) -> Frame:
    """The frame before a first pass, in another unit."""
    factor = None if frame.scale is None else 1 / frame.scale
    columns = Columns(factor=factor)
    return Frame(columns, unit=unit, gain=unit, scale=frame.scale, near=frame.near)
