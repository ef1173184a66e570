"""A sketch of rows: what Frequent Directions keeps of them, and how more are taken in."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from primedpca._core.arrays import dtype_name, namespace, to_numpy
from primedpca._core.orthonormal import small_eigh
from primedpca.protocols import Array

__all__ = ["ROOM", "UNIT", "SketchState", "Stream", "decompose", "merge", "take_in"]

UNIT = 2.0**-53
#: Rows of a sketch before it is shrunk, for each that is left: with three a shrink of twice as
#: many new rows costs less than two shrinks, and what is lost is a fifth less, than with two.
ROOM = 3
#: How far out rows may be in a unit that was made for others.
FARTHEST = 2.0**120


class SketchState(NamedTuple):
    """A sketch, what was lost on the way, and the mean of the rows seen so far.

    Attributes
    ----------
    sketch : array of shape (r, d)
        At most ``ROOM * size`` rows.
    size : int
        Directions that a shrink leaves.
    loss : float
        What was shrunk off the squared singular values in all.
    shrinks, n_directions : int
    shift : array of shape (d,)
        Where rows are seen from, in float64.
    sums : array of shape (d,)
        The weighted sum of the rows seen from there, in float64.
    weight, total : float
        Of all rows: their weight, and their squared distance from their mean.
    reach : float
        At least the sum of all distances from ``shift``: what rounding is relative to.
    rounding : float
        What rounding may have done to the covariance of the sketch in all.
    depth : int
        The longest chain of additions that a sum went through.
    unit : float
        The power of two that rows were multiplied with.
    center : bool
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
    """All that ``partial_fit`` keeps of the rows seen so far; nothing in it is ever written to.

    Attributes
    ----------
    sketch : SketchState
        Of the rows that are worked in.
    waiting : tuple of arrays of shape (r, d)
        Rows that came after, until there are enough to be worked in together.
    weights : tuple of arrays of shape (r,)
        Theirs.
    size : int
        Directions that the sketch keeps.
    rows, counted : int
        All rows seen, and those of positive weight.
    single : bool
        Whether all of them came in types that float32 holds.
    scale : array of shape (d,) or None
    """

    sketch: SketchState
    waiting: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...]
    size: int
    rows: int
    counted: int
    single: bool
    scale: np.ndarray | None


def take_in(
    state: SketchState,
    rows: Array,
    root: Array | None,
    shift: Array | None,
    unit: float = 1.0,
    factor: Array | None = None,
) -> SketchState:
    """The sketch with more rows.

    Parameters
    ----------
    state : SketchState
    rows : array of shape (r, d)
        In float64, seen from ``shift``, scaled and weighted.  They are overwritten.
    root : array of shape (r,), optional
        The square roots of their weights.
    shift : array of shape (d,), optional
        Where they are seen from; ``None`` if nothing is centred.
    unit : float
        The power of two that they were multiplied with.
    factor : array of shape (d,), optional
        The reciprocal of the scale that they were divided by.
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
    error = 5 * _relative(state, depth) * size
    rounding = state.rounding + (2 * math.sqrt(total) + error) * error
    group = _Group(seen_from, sums, weight, total, math.sqrt(weight) * size)
    return _take(state._replace(rounding=rounding), rows, group, depth, factor)


def _squares(rows: Array) -> float:
    xp = namespace(rows)
    return float(xp.sum(xp.vecdot(rows, rows)))


def merge(one: SketchState, other: SketchState, factor: Array | None = None) -> SketchState:
    """The sketch of the rows of both, in the size of the first.

    What both have lost adds up, and so does what is lost in taking the second into the first.

    Parameters
    ----------
    one, other : SketchState
        Of rows with the same columns, both centred or both not.
    factor : array of shape (d,), optional
        The reciprocal of the scale that the columns of both were divided by.
    """
    if one.sketch.shape[1] != other.sketch.shape[1]:
        raise ValueError(
            f"the sketches have {one.sketch.shape[1]} and {other.sketch.shape[1]} columns; only "
            "sketches of the same columns can be merged."
        )
    if not (one.weight and other.weight):
        return one if one.weight else other
    if one.center != other.center:
        raise ValueError("one sketch is of centred rows and the other is not; make both alike.")
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


class _Group(NamedTuple):
    """What rows that come in together bring beside themselves, named as in the state."""

    shift: Array
    sums: Array
    weight: float
    total: float
    reach: float


def _relative(state: SketchState, depth: int) -> float:
    """The relative error of a row as prepared, and of a sum of so many (docs/certificates.md)."""
    return (depth + 12) * UNIT + 6 * _roundoff(state.sketch)


def _roundoff(array: Array) -> float:
    return UNIT if dtype_name(array.dtype) == "float64" else 2.0**-24


class _Scope(NamedTuple):
    """How rows stand in their unit: whether none differs from another, and how far out they are."""

    unit: float
    still: bool
    extent: float


def _scope(state: SketchState) -> _Scope:
    return _Scope(state.unit, state.total == 0, max(_peak(state.shift), state.reach))


def _peak(array: Array) -> float:
    xp = namespace(array)
    return float(xp.max(xp.abs(array)))


def _unit_for_both(one: _Scope, other: _Scope) -> float:
    """The smaller unit, in which the larger rows are in range, and the smaller may vanish.

    Rows that do not differ tell nothing of the unit; the others must not vanish beside them.
    """
    low, high = sorted((one, other))
    if low.still and low.extent * (high.unit / low.unit) <= FARTHEST:
        return high.unit
    return low.unit


def _in_unit(state: SketchState, unit: float) -> SketchState:
    """The same sketch in another unit."""
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
    """Rows about their own mean, and the row that leads from the mean so far to theirs."""
    offset = group.shift - state.shift
    offset = offset if factor is None else offset * factor
    distance = math.sqrt(float(offset @ offset))
    w1, w2 = state.weight, group.weight
    square, error, pieces = 0.0, 0.0, [rows]
    if state.center and w1 > 0:
        pull = math.sqrt(w1 / (w1 + w2)) * math.sqrt(w2)
        link = pull * (group.sums / w2 + offset - state.sums / w1)
        square = float(link @ link)
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
    return _fill(state, pieces)


def _fill(state: SketchState, pieces: list[Array]) -> SketchState:
    """Put rows below those of the sketch, which is shrunk whenever it is full."""
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
    """Squared singular values above rounding, left singular vectors, by the small Gram matrix.

    Also the sum of all squares, and the size below which a square was taken as none.
    """
    xp = namespace(sketch)
    wide = xp.astype(sketch, xp.float64, copy=False)
    gram = to_numpy(wide @ wide.T)
    if not np.isfinite(gram).all():
        return np.zeros(0), gram[:, :0], math.nan, math.nan
    squares, left = small_eigh(gram)
    whole = float(np.trace(gram))
    floor = UNIT * (2 * squares.size * squares[0] + math.sqrt(sketch.shape[1]) * whole)
    kept = squares > floor
    return squares[kept], left[:, kept], whole, float(floor)


def _shrink(state: SketchState) -> SketchState:
    xp, kind = namespace(state.sketch), state.sketch.dtype
    squares, left, whole, floor = decompose(state.sketch)
    lost = float(squares[state.size]) if squares.size > state.size else 0.0
    kept = squares[: state.size]
    factor = np.sqrt(np.maximum(kept - lost, 0.0) / kept)
    turn = xp.asarray(left[:, : kept.size].T * factor[:, None], device=state.sketch.device)
    # In float64 also for a float32 sketch, so that storing it is the only coarse rounding.
    rows = turn @ xp.astype(state.sketch, xp.float64, copy=False)
    top = float(squares[0]) if squares.size else 0.0
    return state._replace(
        sketch=xp.astype(rows, kind, copy=False),
        loss=state.loss + lost,
        shrinks=state.shrinks + 1,
        rounding=state.rounding + floor + _shrink_error(state.sketch, top, whole),
    )


def _shrink_error(sketch: Array, top: float, whole: float) -> float:
    """What one shrink may be off by: the Gram matrix, its vectors, the rows, their storage."""
    m, d = sketch.shape
    both = math.sqrt(top) * math.sqrt(whole)  # the product may be out of range
    rows = (2 * m * math.sqrt(m / 2) + 12) * both
    return UNIT * (d * whole + 42 * m * top + rows) + 2 * _roundoff(sketch) * both
