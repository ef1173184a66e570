"""Sketch of Frequent Directions: its state, adding rows, merging two sketches, shrinking.

Rounding is bounded along with the loss; ``docs/certificates.md``, section 8, derives the bounds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from primedpca._core.arrays import dtype_name, namespace, to_numpy
from primedpca._core.orthonormal import small_eigh
from primedpca.priming.column_sums import ColumnSums
from primedpca.protocols import Array

__all__ = [
    *("FOLD", "ROOM", "UNIT", "SketchState", "Stream", "decompose", "merge", "rescaled", "take_in"),
]

UNIT = 2.0**-53  # unit roundoff of float64
#: A sketch is shrunk when it has this many rows for each direction kept.  With 3, one shrink takes
#: in twice as many rows as with 2 for less than the cost of two shrinks, and loses a fifth less.
ROOM = 3
#: Rows for each column beyond which rows are first replaced by as many as there are columns.
FOLD = 2
#: Largest exponent of rows in a unit that was chosen for other rows; squares stay in range.
FARTHEST = 400
#: Total variance below which another unit is chosen, and the largest exponent of numbers in it.
SMALLEST, LARGEST = 2.0**-400, 500


class SketchState(NamedTuple):
    """Sketch, bounds on its loss and rounding, and the mean of the rows seen so far.

    Attributes
    ----------
    sketch : array of shape (r, d)
        At most ``ROOM * size`` rows.
    size : int
        Directions that a shrink keeps.
    loss : float
        Sum of what shrinks subtracted from the squared singular values, ``Delta``.
    shrinks : int
        Number of shrinks.
    n_directions : int
        Directions wanted.
    shift : array of shape (d,)
        Provisional mean that was subtracted from all rows, in float64.
    sums : array of shape (d,)
        Weighted sum of the rows minus ``shift``, in float64.
    weight : float
        Sum of the weights of all rows.
    total : float
        Weighted sum of squared distances of all rows from their mean.
    reach : float
        Upper bound on the weighted sum of distances from ``shift``; rounding errors are relative
        to it.
    rounding : float
        Bound on the effect of rounding on the scatter of the sketch.
    depth : int
        Length of the longest chain of additions in any sum.
    unit : float
        Power of two by which rows were multiplied.
    center : bool
        Whether the mean is subtracted.
    """

    sketch: Array
    size: int
    loss: float
    shrinks: int
    n_directions: int
    shift: Array
    sums: Array
    weight: float
    total: float
    reach: float
    rounding: float
    depth: int
    unit: float
    center: bool


class Stream(NamedTuple):
    """State of ``partial_fit``; its arrays are never written to.

    Attributes
    ----------
    sketch : SketchState
        Sketch of the rows that have been added.
    waiting : tuple of arrays of shape (r, d)
        Later rows, until there are enough of them to be added together.
    weights : tuple of arrays of shape (r,)
        Weights of the waiting rows.
    size : int
        Directions that the sketch keeps.
    rows : int
        All rows seen.
    counted : int
        Rows of positive weight.
    single : bool
        Whether float32 represents the dtypes of all rows, so that results are float32.
    scale : array of shape (d,) or None
        Divisor of each column.
    columns : ColumnSums or None
        Statistics of the columns, where their deviations are the final scale, or their means are
        filled in for missing values.  ``scale`` is then a power of two near the deviations of the
        first rows, by which all rows are divided before they enter the sketch.
    """

    sketch: SketchState
    waiting: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...]
    size: int
    rows: int
    counted: int
    single: bool
    scale: np.ndarray | None
    columns: ColumnSums | None = None


def take_in(
    state: SketchState,
    rows: Array,
    root: Array | None,
    shift: Array | None,
    unit: float = 1.0,
    factor: Array | None = None,
) -> SketchState:
    """Return the sketch with more rows.

    Parameters
    ----------
    state : SketchState
    rows : array of shape (r, d)
        Rows in float64, minus ``shift``, scaled and weighted.  The array is overwritten.
    root : array of shape (r,) or None
        Square roots of the weights; ``None`` means weights of 1.
    shift : array of shape (d,) or None
        Provisional mean that was subtracted; ``None`` if rows are not centred.
    unit : float, default=1.0
        Power of two by which the rows were multiplied.
    factor : array of shape (d,) or None, default=None
        Reciprocal of the scale by which the columns were divided.
    """
    xp, center = namespace(rows), shift is not None
    seen_from: Array = shift if center else state.shift
    if state.weight == 0:
        state = state._replace(shift=seen_from, unit=unit, center=center)
    elif unit != state.unit:
        still = not bool(xp.any(rows != 0))
        common = _unit_for_both(_scope(state), _Scope(unit, still, _peak(seen_from)))
        state = _in_unit(state, common)
        rows *= common / unit
        seen_from = seen_from * (common / unit)
    weight = float(rows.shape[0]) if root is None else float(xp.sum(root * root))
    sums = xp.sum(rows, axis=0) if root is None else rows.T @ root
    size = math.sqrt(_squares(rows))
    depth = max(state.depth, rows.shape[0])
    if state.center:
        mean = sums / weight
        rows -= mean if root is None else root[:, None] * mean
        rows = rows[1:] if rows.shape[0] == 1 else rows  # a single row is its own mean
    total = _squares(rows)
    # Preparing rows costs one gamma, the mean two, subtracting and storing one; 5 leaves room
    # for terms of second order.
    error = 5 * _relative(state, depth) * size
    rounding = state.rounding + (2 * math.sqrt(total) + error) * error
    if rows.shape[0] > FOLD * rows.shape[1]:
        rows, error = _folded(rows, total, _roundoff(state.sketch))
        rounding += error
    group = _Group(seen_from, sums, weight, total, math.sqrt(weight) * size)
    return _take(state._replace(rounding=rounding), rows, group, depth, factor)


def _folded(rows: Array, total: float, roundoff: float) -> tuple[Array, float]:
    """Return at most ``d`` rows with the same scatter as many narrow ones, and a rounding bound.

    The bound is ``epsilon_fold`` of docs/certificates.md, section 8.
    """
    xp, (m, d) = namespace(rows), rows.shape
    gram = to_numpy(rows.T @ rows)
    if not np.isfinite(gram).all():
        return rows, 0.0
    squares, right = small_eigh(gram)
    top = max(float(squares[0]), 0.0)
    floor = UNIT * (m * total + 42 * d * top)  # more than rounding: below, squares may be negative
    kept = squares > floor
    fewer = np.sqrt(squares[kept])[:, None] * right[:, kept].T
    return xp.asarray(fewer, device=rows.device), 2 * floor + 10 * (UNIT + roundoff) * total


def _squares(rows: Array) -> float:
    xp = namespace(rows)
    return float(xp.sum(xp.vecdot(rows, rows)))


def merge(one: SketchState, other: SketchState, factor: Array | None = None) -> SketchState:
    """Return the sketch of the rows of both, with the size of the first.

    The losses of both add up, and so does the loss of adding the second to the first.

    Parameters
    ----------
    one, other : SketchState
        Sketches of rows with the same columns, both centred or both not.
    factor : array of shape (d,) or None, default=None
        Reciprocal of the scale by which the columns of both were divided.
    """
    if one.sketch.shape[1] != other.sketch.shape[1]:
        raise ValueError(
            f"the sketches have {one.sketch.shape[1]} and {other.sketch.shape[1]} columns. Merge "
            "sketches of the same columns."
        )
    if not (one.weight and other.weight):
        return one if one.weight else other
    if one.center != other.center:
        raise ValueError(
            "only one of the two sketches is centred. Fit both with the same `center`."
        )
    unit = _unit_for_both(_scope(one), _scope(other))
    one, other = _in_unit(one, unit), _in_unit(other, unit)
    group = _Group(other.shift, other.sums, other.weight, other.total, other.reach)
    both = one._replace(
        loss=one.loss + other.loss,
        shrinks=one.shrinks + other.shrinks,
        rounding=one.rounding + other.rounding,
        n_directions=max(one.n_directions, other.n_directions),
    )
    depth = max(one.depth, other.depth)
    return _take(both, other.sketch, group, depth, factor)


def rescaled(state: SketchState, factor: Array) -> SketchState:
    """Return the sketch of the same rows with each column multiplied by a factor.

    What the sketch has lost and rounded grows by at most the square of the largest factor.
    ``total`` is an upper bound.
    """
    most = float(factor.max(initial=0.0))
    whole = most * most * _squares(state.sketch)
    return state._replace(
        sketch=state.sketch * factor,
        sums=state.sums * factor,
        loss=state.loss * most * most,
        total=state.total * most * most,
        reach=state.reach * most,
        rounding=state.rounding * most * most + 16 * UNIT * whole,
    )


class _Group(NamedTuple):
    """Facts about rows that are added together; names as in :class:`SketchState`."""

    shift: Array
    sums: Array
    weight: float
    total: float
    reach: float


def _grown(group: _Group, ratio: float) -> _Group:
    """Return the facts about the same rows multiplied by ``ratio``, a power of two."""
    lengths = {name: getattr(group, name) * ratio for name in ("shift", "sums", "reach")}
    return group._replace(**lengths, total=group.total * ratio * ratio)


def _relative(state: SketchState, depth: int) -> float:
    """Bound the relative error of a prepared row and of a sum of ``depth`` additions.

    It is ``gamma`` in section 8 of docs/certificates.md.
    """
    return (depth + 12) * UNIT + 6 * _roundoff(state.sketch)


def _roundoff(array: Array) -> float:
    return UNIT if dtype_name(array.dtype) == "float64" else 2.0**-24


class _Scope(NamedTuple):
    """Unit of some rows, whether they are all equal, and a bound on their values."""

    unit: float
    still: bool
    extent: float


def _scope(state: SketchState) -> _Scope:
    return _Scope(state.unit, state.total == 0, max(_peak(state.shift), state.reach))


def _peak(array: Array) -> float:
    xp = namespace(array)
    return float(xp.max(xp.abs(array)))


def _unit_for_both(one: _Scope, other: _Scope) -> float:
    """Return the smaller of two units, in which the larger rows do not overflow.

    Rows without variance do not need their small unit, in which the other rows could underflow:
    the largest unit in which they fit, up to that of the others, is returned.
    """
    low, high = sorted((one, other))
    if not low.still:
        return low.unit
    least, most = math.frexp(low.unit)[1], math.frexp(high.unit)[1]
    power = most - least
    if low.extent > 0:
        power = min(power, max(0, FARTHEST - math.frexp(low.extent)[1]))
    return math.ldexp(low.unit, power)


def _in_unit(state: SketchState, unit: float) -> SketchState:
    """Return the same sketch in another unit.  Units are powers of two, so nothing is rounded."""
    ratio = unit / state.unit
    if ratio == 1.0:
        return state
    lengths = ("sketch", "shift", "sums", "reach")
    squares = ("loss", "total", "rounding")
    changed = {name: getattr(state, name) * ratio for name in lengths}
    changed |= {name: getattr(state, name) * ratio * ratio for name in squares}
    return state._replace(unit=unit, **changed)


def _take(
    state: SketchState, rows: Array, group: _Group, depth: int, factor: Array | None
) -> SketchState:
    """Add rows about their own mean, and the row that joins the two means."""
    offset = group.shift - state.shift
    offset = offset if factor is None else offset * factor
    distance = math.sqrt(float(offset @ offset))
    w1, w2 = state.weight, group.weight
    square, error, pieces = 0.0, 0.0, [rows]
    if state.center and w1 > 0:
        # The row beta of docs/certificates.md, section 7, makes up for centring at two means.
        # The root is split because w1 * w2 could overflow.
        pull = math.sqrt(w1 / (w1 + w2)) * math.sqrt(w2)
        link = pull * (group.sums / w2 + offset - state.sums / w1)
        square = float(link @ link)
        if state.total + group.total + square < SMALLEST:
            power = _power_for(state, _peak(link), max(_peak(group.shift), group.reach))
            if power > 0:  # the square has underflowed, or nearly
                unit, ratio = math.ldexp(state.unit, power), math.ldexp(1.0, power)
                return _take(
                    _in_unit(state, unit), rows * ratio, _grown(group, ratio), depth, factor
                )
        error = 5 * _relative(state, depth) * pull
        error *= state.reach / w1 + group.reach / w2 + distance
        pieces.append(link[None, :])
    state = state._replace(
        sums=state.sums + group.sums + w2 * offset,
        weight=w1 + w2,
        total=state.total + group.total + square,
        reach=state.reach + group.reach + w2 * distance,
        rounding=state.rounding + (2 * math.sqrt(square) + error) * error,
        depth=depth + 1,
    )
    return _in_range(_fill(state, pieces))


def _in_range(state: SketchState) -> SketchState:
    """Return the sketch in a unit in which squares of its variances do not underflow.

    Groups of a single row have no variance, and so no unit of their own.
    """
    if not 0 < state.total < SMALLEST:
        return state
    power = _power_for(state, math.sqrt(state.total))
    return _in_unit(state, math.ldexp(state.unit, power)) if power > 0 else state


def _power_for(state: SketchState, size: float, extent: float = 0.0) -> int:
    """Return the power of two by which rows of this size can be multiplied, 0 for a size of 0.

    ``extent`` is a bound on other values that are multiplied.
    """
    if size == 0.0:
        return 0
    far = math.frexp(max(_peak(state.shift), state.reach, extent))[1]
    # The unit itself must be a number of float64, too.
    return min(-math.frexp(size)[1], LARGEST - far, 1000 - math.frexp(state.unit)[1])


def _fill(state: SketchState, pieces: list[Array]) -> SketchState:
    """Append rows to the sketch; shrink it whenever it is full."""
    xp, room = namespace(state.sketch), ROOM * state.size
    held, used = [state.sketch], state.sketch.shape[0]
    for piece in pieces:
        taken = 0
        while taken < piece.shape[0]:
            count = min(room - used, piece.shape[0] - taken)
            rows = xp.astype(piece[taken : taken + count], state.sketch.dtype, copy=False)
            held.append(rows)
            taken, used = taken + count, used + count
            if used == room:
                state = _shrink(state._replace(sketch=xp.concat(held, axis=0)))
                held, used = [state.sketch], state.sketch.shape[0]
    return state if len(held) == 1 else state._replace(sketch=xp.concat(held, axis=0))


def decompose(sketch: Array) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Decompose a sketch by its small Gram matrix.

    Returns
    -------
    squares : ndarray of shape (r,)
        Squared singular values above rounding, largest first.
    left : ndarray of shape (m, r)
        Left singular vectors.
    whole : float
        Sum of all squared singular values.
    floor : float
        Squares up to this size were dropped as rounding.
    """
    xp = namespace(sketch)
    # A Gram matrix has the squares of the singular values, and so half of their digits.
    wide = xp.astype(sketch, xp.float64, copy=False)
    gram = to_numpy(wide @ wide.T)
    if not np.isfinite(gram).all():
        return np.zeros(0), gram[:, :0], math.nan, math.nan
    squares, left = small_eigh(gram)
    whole = float(np.trace(gram))
    # f of docs/certificates.md, section 8.
    floor = UNIT * (2 * squares.size * squares[0] + math.sqrt(sketch.shape[1]) * whole)
    kept = squares > floor
    return squares[kept], left[:, kept], whole, float(floor)


def _shrink(state: SketchState) -> SketchState:
    xp, kind = namespace(state.sketch), state.sketch.dtype
    if state.sketch.shape[0] > FOLD * state.sketch.shape[1]:
        wide = xp.astype(state.sketch, xp.float64, copy=False)
        rows, error = _folded(wide, _squares(wide), _roundoff(state.sketch))
        state = state._replace(
            sketch=xp.astype(rows, kind, copy=False), rounding=state.rounding + error
        )
        if rows.shape[0] <= state.size:
            return state._replace(shrinks=state.shrinks + 1)
    squares, left, whole, floor = decompose(state.sketch)
    # No loss while the rank fits: then a sketch is exact up to rounding.
    lost = float(squares[state.size]) if squares.size > state.size else 0.0
    kept = squares[: state.size]
    factor = np.sqrt(np.maximum(kept - lost, 0.0) / kept)
    turn = xp.asarray(left[:, : kept.size].T * factor[:, None], device=state.sketch.device)
    # In float64 even for a float32 sketch: then only storing the rows rounds to float32.
    rows = turn @ xp.astype(state.sketch, xp.float64, copy=False)
    top = float(squares[0]) if squares.size else 0.0
    return state._replace(
        sketch=xp.astype(rows, kind, copy=False),
        loss=state.loss + lost,
        shrinks=state.shrinks + 1,
        rounding=state.rounding + floor + _shrink_error(state.sketch, top, whole),
    )


def _shrink_error(sketch: Array, top: float, whole: float) -> float:
    """Bound the rounding of one shrink: Gram matrix, eigenvectors, new rows and their storage."""
    m, d = sketch.shape  # epsilon_shrink of docs/certificates.md, section 8, without f
    both = math.sqrt(top) * math.sqrt(whole)  # sqrt(top * whole) could overflow
    rows = (2 * m * math.sqrt(m / 2) + 12) * both
    error: float = UNIT * (d * whole + 42 * m * top + rows) + 2 * _roundoff(sketch) * both
    return error
