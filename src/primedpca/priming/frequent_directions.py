"""Frequent Directions: one pass, fixed memory, a deterministic bound on what is lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from primedpca.arrays import dtype_name, namespace, to_numpy
from primedpca.orthonormal import small_eigh
from primedpca.protocols import Array, Like

__all__ = ["FrequentDirections", "SketchState", "merge"]

UNIT = 2.0**-53


class SketchState(NamedTuple):
    """A sketch, what was lost on the way, and the mean of the rows seen so far.

    Attributes
    ----------
    sketch : array of shape (2 size, d)
    used : int
        Its rows in use.
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
    used: int
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


@dataclass(frozen=True)
class FrequentDirections:
    r"""A sketch :math:`B` of few rows whose covariance is near that of all of them.

    Rows are collected until there are :math:`2\ell`.  Then, with :math:`B = U \Sigma V^T`,

    .. math:: B \leftarrow \sqrt{\max(\Sigma^2 - \sigma_{\ell+1}^2 I,\, 0)}\; V^T,
              \qquad \Delta \leftarrow \Delta + \sigma_{\ell+1}^2,

    which frees :math:`\ell` rows, and at the end
    :math:`0 \preceq M^T M - B^T B \preceq \Delta I`.

    The mean need not be known before: of every batch the rows minus their own mean
    :math:`m_2` are taken in and, from the second batch on, the row
    :math:`\sqrt{n_1 n_2 / (n_1 + n_2)}\,(m_2 - m_1)` with the mean :math:`m_1` of all before
    it.  Their squares add up to those of the centred rows, however the batches are cut.  So
    every row is read once; only ``scale="std"`` and ``missing="mean"`` need a pass before.

    The sketch is dense, in the type of the data, and sparse rows are made dense batch by
    batch: both cost ``d`` numbers a row.

    Parameters
    ----------
    sketch_size : int, optional
        The :math:`\ell` above, at least the number of directions looked for; by default twice
        that number, and at least 64.

    References
    ----------
    M. Ghashami, E. Liberty, J. Phillips, D. Woodruff, "Frequent Directions: simple and
    deterministic matrix sketching", 2015.
    T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample variance", 1983.
    """

    sketch_size: int | None = None

    visits: ClassVar[Literal["rows"]] = "rows"

    def __post_init__(self) -> None:
        if self.sketch_size is not None and self.sketch_size < 1:
            raise ValueError(f"`sketch_size`={self.sketch_size} must be at least 1, or None.")

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> SketchState:
        """An empty sketch; a warm start has nothing to add."""
        size = self.sketch_size or max(2 * n_directions, 64)
        if size < n_directions:
            raise ValueError(
                f"`sketch_size`={size} is less than the {n_directions} directions looked for; "
                "make it larger."
            )
        empty = like.asarray(np.zeros((2 * size, like.n_features)))
        nowhere = like.xp.zeros(like.n_features, dtype=like.xp.float64, device=like.device)
        return SketchState(
            sketch=empty,
            used=0,
            loss=0.0,
            shrinks=0,
            n_directions=n_directions,
            shift=nowhere,
            sums=nowhere,
            weight=0.0,
            total=0.0,
            reach=0.0,
            rounding=0.0,
            depth=0,
            unit=1.0,
            center=True,
        )

    def step(self, state: SketchState, data: Any) -> SketchState:
        """Take in the next rows."""
        rows, root = data.wide(data.rows()), data.wide(data.root)
        factor, unit = data.wide(data.frame.columns.factor), data.frame.gain
        shift = data.frame.mean if data.center else state.shift
        if state.weight == 0:
            state = state._replace(shift=shift, unit=unit, center=data.center)
        elif unit < state.unit or (unit > state.unit and state.total == 0):
            state = _in_unit(state, unit)
        elif unit > state.unit:
            rows, shift = rows * (state.unit / unit), shift * (state.unit / unit)
        xp = namespace(rows)
        weight = float(rows.shape[0]) if root is None else float(xp.sum(root * root))
        sums = xp.sum(rows, axis=0) if root is None else rows.T @ root
        size = math.sqrt(float(xp.sum(rows * rows)))
        depth = max(state.depth, rows.shape[0])
        if state.center:
            mean = sums / weight
            rows = rows - (mean if root is None else root[:, None] * mean)
            rows = rows[1:] if rows.shape[0] == 1 else rows  # a single row is its own mean
        total = float(xp.sum(rows * rows))
        error = 5 * _relative(state, depth) * size
        rounding = state.rounding + (2 * math.sqrt(total) + error) * error
        group = _Group(shift, sums, weight, total, math.sqrt(weight) * size)
        return _take(state._replace(rounding=rounding), rows, group, depth, factor)

    def directions(self, state: SketchState, data: Any) -> Array:
        """The leading right singular vectors of the sketch."""
        if not state.used:
            return state.sketch[:1].T
        sketch = state.sketch[: state.used]
        squares, vectors = _decompose(sketch)[:2]
        xp, count = namespace(sketch), min(state.n_directions, squares.size)
        left = xp.asarray(vectors[:, :count], dtype=sketch.dtype, device=sketch.device)
        return (left.T @ sketch).T if count else state.sketch[:1].T

    def slack(self, state: SketchState) -> float:
        """What was shrunk off in all: a bound on what the sketch has lost."""
        return state.loss


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
    unit = min(one.unit, other.unit)
    one, other = _in_unit(one, unit), _in_unit(other, unit)
    group = _Group(other.shift, other.sums, other.weight, other.total, other.reach)
    both = one._replace(
        loss=one.loss + other.loss,
        shrinks=one.shrinks + other.shrinks,
        rounding=one.rounding + other.rounding,
        n_directions=max(one.n_directions, other.n_directions),
    )
    depth = max(one.depth, other.depth)
    return _take(both, other.sketch[: other.used], group, depth, factor)


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
    xp = namespace(rows)
    offset = group.shift - state.shift
    offset = offset if factor is None else offset * factor
    distance = math.sqrt(float(offset @ offset))
    w1, w2 = state.weight, group.weight
    square = error = 0.0
    if state.center and w1 > 0:
        pull = math.sqrt(w1 / (w1 + w2)) * math.sqrt(w2)
        link = pull * (group.sums / w2 + offset - state.sums / w1)
        square = float(link @ link)
        error = 5 * _relative(state, depth) * pull
        error *= state.reach / w1 + group.reach / w2 + distance
        rows = xp.concat([xp.astype(rows, xp.float64, copy=False), link[None, :]], axis=0)
    state = state._replace(
        sums=state.sums + group.sums + w2 * offset,
        weight=w1 + w2,
        total=state.total + group.total + square,
        reach=state.reach + group.reach + w2 * distance,
        rounding=state.rounding + (2 * math.sqrt(square) + error) * error,
        depth=depth + 1,
    )
    return _fill(state, xp.astype(rows, state.sketch.dtype, copy=False))


def _fill(state: SketchState, rows: Array) -> SketchState:
    xp, taken = namespace(rows), 0
    while taken < rows.shape[0]:
        count = min(state.sketch.shape[0] - state.used, rows.shape[0] - taken)
        parts = [state.sketch[: state.used], rows[taken : taken + count]]
        sketch = xp.concat([*parts, state.sketch[state.used + count :]], axis=0)
        taken += count
        state = state._replace(sketch=sketch, used=state.used + count)
        if state.used == sketch.shape[0]:
            state = _shrink(state)
    return state


def _decompose(sketch: Array) -> tuple[np.ndarray, np.ndarray, float, float]:
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
    xp, half = namespace(state.sketch), state.sketch.shape[0] // 2
    squares, left, whole, floor = _decompose(state.sketch)
    lost = float(squares[half]) if squares.size > half else 0.0
    kept = squares[:half]
    factor = np.sqrt(np.maximum(kept - lost, 0.0) / kept)
    # In float64 also for a float32 sketch, so that storing it is the only coarse rounding.
    turn = xp.asarray(left[:, : kept.size].T * factor[:, None], device=state.sketch.device)
    rows = turn @ xp.astype(state.sketch, xp.float64, copy=False)
    rows = xp.astype(rows, state.sketch.dtype, copy=False)
    sketch = xp.concat([rows, xp.zeros_like(state.sketch[rows.shape[0] :])], axis=0)
    top = float(squares[0]) if squares.size else 0.0
    return state._replace(
        sketch=sketch,
        used=rows.shape[0],
        loss=state.loss + lost,
        shrinks=state.shrinks + 1,
        rounding=state.rounding + floor + _shrink_error(state.sketch, top, whole),
    )


def _shrink_error(sketch: Array, top: float, whole: float) -> float:
    """What one shrink may be off by: the Gram matrix, its vectors, the rows, their storage."""
    m, d = sketch.shape
    both = math.sqrt(top * whole)
    rows = (2 * m * math.sqrt(m / 2) + 12) * both
    return UNIT * (d * whole + 42 * m * top + rows) + 2 * _roundoff(sketch) * both
