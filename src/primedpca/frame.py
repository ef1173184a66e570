"""Where the data are seen from: shift, scale, fill and unit, and how a first pass finds them.

The first pass of any kind also learns the mean: its blocks are shifted by a guess (the mean of
the first block, or of each block of whole columns), the distance from the guess to the mean is
summed beside the product, and the product is corrected by it.  After that dense blocks are
shifted by the mean itself; sparse blocks keep their zeros and are corrected in every pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from primedpca.arrays import dtype_name, namespace, to_numpy
from primedpca.bad_entries import check_present, refuse
from primedpca.engines import kernels
from primedpca.engines.prepare import Columns, stored_means
from primedpca.protocols import Array

if TYPE_CHECKING:
    from primedpca.centred import Centred

__all__ = [
    "Frame",
    "before_any_pass",
    "far_from_zero",
    "given",
    "guess",
    "in_range",
    "learn",
    "measure",
    "roots_of",
    "settle",
]

#: Sizes within which no sum of squares leaves the range of the type, and its largest exponent.
SAFE = {"float32": (2.0**-40, 2.0**40, 120), "float64": (2.0**-300, 2.0**300, 1000)}
#: Stored entries of a full sparse column are shifted where its mean exceeds its spread so often.
FAR = 8.0


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
    """

    columns: Columns = field(default_factory=Columns)
    offset: Array | None = None
    unit: float = 1.0
    gain: float = 1.0
    scale: Array | None = None
    mean: Array | None = None
    total: float = math.nan
    first: float = 0.0


def before_any_pass(data: Centred, scale: Any) -> Frame:
    """The frame with nothing known but a scale that the user gave."""
    if scale is None or isinstance(scale, str):
        if scale not in (None, "std"):
            raise ValueError(f"`scale`={scale!r} must be None, 'std' or one number a column.")
        return Frame()
    values = data.like.asarray(to_numpy(scale))
    if values.shape != (data.shape[1],):
        raise ValueError(
            f"`scale` has shape {tuple(values.shape)}, but `X` has {data.shape[1]} columns; "
            "give one number for each column."
        )
    xp = namespace(values)
    if not bool(xp.all(xp.isfinite(values) & (values > 0))):
        raise ValueError("`scale` must be finite and positive in every entry.")
    return Frame(Columns(factor=1 / values), scale=values)


def roots_of(weight: Any, data: Centred) -> tuple[Array | None, float]:
    """The square roots of the row weights ``(n,)`` and the sum of the weights."""
    n = data.shape[0]
    if weight is None:
        return None, float(n)
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
    total = math.fsum(values)  # off by one rounding, however many there are
    # Weights that were divided by their sum add up to 1, give or take what that rounds by.
    if total <= 1.0 + n * 2.0**-49:
        raise ValueError(
            f"`sample_weight` adds up to {total:g}; weights count rows, so their sum must "
            "exceed 1, not be near zero."
        )
    return data.like.asarray(np.sqrt(values)), total


def given(data: Centred, mean: Array, scale: Array | None) -> Frame:
    """The frame of an earlier fit, for new rows."""
    shift, wide = data.like.asarray(mean), data.wide(data.like.asarray(mean))
    fill = shift if data.missing == "mean" else None
    factor = None if scale is None else 1 / scale
    if not data.sparse:
        return Frame(Columns(shift, fill, factor), scale=scale, mean=wide)
    offset = shift if scale is None else shift / scale
    return Frame(Columns(None, fill, factor), offset, scale=scale, mean=wide)


def guess(data: Centred) -> Frame:
    """What the first pass is shifted by.  Some data need a pass for their moments alone."""
    frame = data.frame
    if data.standardise or data.missing == "mean":
        return measure(data)
    if not data.center:
        return frame
    if data.source.axis == 1:
        return replace(frame, columns=frame.columns._replace(shift=None, own=True))
    block = first_block(data)
    if data.sparse:
        return measure(data) if far_from_zero(block, frame.unit) else frame
    shift = stored_means(block, data.like.dtype, frame.unit)
    return replace(frame, columns=frame.columns._replace(shift=shift))


def first_block(data: Centred) -> Any:
    """The block that the guess is made from."""
    return next(iter(data.source.scan()))[1]


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
    data: Centred, norm: float, sums: Array, shift: Array | None
) -> tuple[Frame, Array | None]:
    """The frame after a first pass, and how far its guess was away from the mean."""
    frame = data.frame
    away = data.wide(sums) / data.weight
    distance = away if frame.scale is None else away * data.wide(frame.scale)
    mean = distance if shift is None else distance + data.wide(shift)
    total = norm / data.weight
    frame = replace(frame, first=total)
    if not data.center:
        return replace(frame, mean=mean, total=total), None
    frame = replace(frame, mean=mean, total=max(0.0, total - float(away @ away)))
    return settle(data, frame, shift, away), away


def settle(data: Centred, frame: Frame, shift: Array | None, away: Array) -> Frame:
    """What later passes subtract: the mean itself, or what sparse columns allow."""
    if not data.sparse:
        mean = None if _is_centred(data, frame) else data.narrow(frame.mean)
        return replace(frame, columns=frame.columns._replace(shift=mean, own=False))
    kept = shift if shift is not None and bool((shift != 0).any()) else None
    columns = frame.columns._replace(shift=kept, own=False)
    return replace(frame, columns=columns, offset=data.narrow(away))


def _is_centred(data: Centred, frame: Frame) -> bool:
    """Whether to subtract the mean would change no more than float32 rounds off.

    Products in float64, where proofs are made, are always shifted.
    """
    if dtype_name(data.like.dtype) != "float32":
        return False
    mean: Any = frame.mean
    mean = mean if frame.columns.factor is None else mean * data.wide(frame.columns.factor)
    return float(mean @ mean) <= (2.0**-25) ** 2 * frame.total


def measure(data: Centred) -> Frame:
    """Mean, spread and what is missing, in a pass of their own."""
    frame, axis, xp = data.frame, data.source.axis, data.like.xp
    shift = None
    if axis == 0:
        shift = stored_means(first_block(data), data.like.dtype, frame.unit)
    data.frame = replace(frame, columns=Columns(shift=shift, own=axis == 1))
    parts = data.run(kernels.moments, {"dtype": data.like.dtype, "axis": axis})
    there, sums, squares, stored, absent, *own = map(
        data.wide, parts.sums if axis == 0 else parts.stacks
    )
    if data.missing == "error" and float(xp.sum(absent)):
        _extent(data)
    if not in_range(data, float(xp.sum(squares))):
        return measure(data)
    check_present(data.source, there)
    away = sums / there
    mean = away + (data.wide(shift) if axis == 0 else own[0])
    variance = xp.clip(squares / there - away**2, min=0.0)
    frame = replace(data.frame, mean=mean)
    if data.standardise:
        deviation = _spread(data, mean, variance)
        frame = replace(frame, scale=data.narrow(deviation / frame.unit), gain=1.0)
        factor = 1 / deviation
    else:
        factor = xp.ones_like(mean) if frame.scale is None else 1 / data.wide(frame.scale)
    fill = data.narrow(mean) if data.missing == "mean" else None
    columns = Columns(None, fill, None if frame.scale is None else data.narrow(factor))
    # What is missing becomes the mean: nothing when centred, mean**2 when not.
    squared = variance * there if data.center else variance * there + mean**2 * data.weight
    total = float(xp.sum(squared * factor**2)) / data.weight
    # About the guess, whose square has cancelled in the variances.
    first = float(xp.sum(squares * factor**2)) / data.weight
    frame = replace(frame, columns=columns, total=total, first=max(first, total))
    if not data.center:
        return frame
    allowed = mean
    if data.sparse:
        far = (stored == data.shape[0]) & (mean**2 > FAR**2 * variance)
        allowed = xp.where(far, mean, xp.zeros_like(mean))
    shift = data.narrow(allowed)
    return settle(data, frame, shift, (mean - data.wide(shift)) * factor)


def _spread(data: Centred, mean: Array, variance: Array) -> Array:
    """Standard deviations; the unit itself for columns that are constant up to rounding."""
    xp = data.like.xp
    deviation = xp.sqrt(variance)
    constant = deviation <= 10 * float(xp.finfo(data.like.dtype).eps) * xp.abs(mean)
    return xp.where(constant, xp.full_like(deviation, data.frame.unit), deviation)


def in_range(data: Centred, norm: float) -> bool:
    """Whether the sum of squares stayed in range.

    If not, either refuses what is no number, or changes ``data.frame`` to a unit in which the
    pass is to be made again.
    """
    low, high, top = SAFE[dtype_name(data.like.dtype)]
    typical = norm / (data.weight * data.shape[1])
    if data.frame.unit != 1.0 or (math.isfinite(norm) and low**2 <= typical <= high**2):
        return True
    raw, ready = _extent(data)
    ready = ready if math.isfinite(norm) else max(raw, ready)
    if ready == 0.0 or low <= ready <= high:
        return True
    power = min(-math.frexp(ready)[1], top - math.frexp(raw)[1])
    unit = 2.0 ** max(min(power, 1023), -1022)
    data.frame = guess_again(data, unit)
    return False


def refuse_non_finite(data: Centred) -> None:
    """Raise for products that are not finite: bad entries, or numbers beyond the type's range."""
    raw, _ = _extent(data)
    raise ValueError(
        f"`X` has entries as large as {raw:.3g}, whose products exceed the range of "
        f"{dtype_name(data.like.dtype)}; divide them by a large number."
    )


def _extent(data: Centred) -> tuple[float, float]:
    """The largest entry as stored and as prepared; refuses what is no number."""
    skip = data.missing == "mean"
    operands = {"dtype": data.like.dtype, "missing": skip, "axis": data.source.axis}
    parts = data.run(kernels.extent, operands)
    if parts.sums[0] > 0:
        refuse(data, int(parts.sums[0]))
    raw, ready = (float(namespace(part).max(part)) for part in parts.stacks)
    return raw, ready


def guess_again(data: Centred, unit: float) -> Frame:
    """The frame before a first pass, in another unit."""
    scale = data.frame.scale
    factor = None if scale is None else 1 / scale
    data.frame = Frame(Columns(factor=factor), unit=unit, gain=unit, scale=scale)
    return data.frame if data.standardise or data.missing == "mean" else guess(data)
