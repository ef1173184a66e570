"""What is done to one block: a few named kernels on blocks made ready by ``prepare``."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca._core.arrays import device, is_numpy_array, is_sparse, namespace
from primedpca._operator.preparation import (
    Columns,
    own_shift,
    positions,
    prepare,
    present_rows,
    stored_counts,
)
from primedpca.protocols import Array, Block, Parts, makes_square

__all__ = [
    "adjoint",
    "covariance",
    "extent",
    "forward",
    "gram_product",
    "moments",
    "product",
    "stored",
]

PREPARED_BYTES = 3 * 2**21
#: Sums of squares of a block that are far from the limits of any type.
ORDINARY = (2.0**-20, 2.0**50)


def stored(block: Block) -> Parts:
    """The block as it is: to be held in memory."""
    return Parts((), (block,))


def _weighted_sum(a: Block, root: Array | None) -> Array:
    """``root^T A``: the sum of the rows, ``(d,)``."""
    if root is not None:
        return a.T @ root
    if is_sparse(a):
        return a.T @ np.ones(a.shape[0], dtype=a.dtype)
    return namespace(a).sum(a, axis=0)


def _squared_norm(a: Block) -> Array:
    """The sum of all squares: of a sparse block in float64, of a dense one row by row before."""
    if is_sparse(a):
        return np.sum(a.data * a.data, dtype=np.float64)
    return namespace(a).sum(_row_squares(a))


def _row_squares(a: Block) -> Array:
    if is_sparse(a):
        return np.asarray(a.multiply(a).sum(axis=1), dtype=np.float64).ravel()
    xp = namespace(a)
    return xp.astype(xp.vecdot(a, a), xp.float64)


def _squares_about(a: Block, root: Array | None, offset: Array | None) -> Array:
    """The squared norms of the rows of ``A - a offset^T``.

    Of a sparse block, stored entries are shifted, and entries that are not stored add squares of
    the offset: all of those less the stored ones, where columns that are full do not count, so
    that the square of a mean far from zero need not cancel.
    """
    if offset is None:
        return _row_squares(a)
    rows, columns = positions(a)
    root = np.ones(a.shape[0]) if root is None else root.astype(np.float64)
    offset = offset.astype(np.float64)
    some = np.where(stored_counts(a, None) == a.shape[0], 0.0, offset)
    shifted = a.data - root[rows] * offset[columns]
    added = shifted**2 - (root[rows] * some[columns]) ** 2
    whole = np.bincount(rows, added, minlength=a.shape[0]) + root**2 * (some @ some)
    return np.maximum(whole, 0.0)


def _gathered(
    a: Block, root: Array | None, axis: int, gather: bool, shift: Array | None = None
) -> Parts:
    """The by-products of a first pass: the sum of all squares, and of every column.

    Blocks of columns also hand back the shift that they found for themselves.
    """
    if not gather:
        return Parts()
    sums, norm = _weighted_sum(a, root), _squared_norm(a)
    if axis == 0:
        return Parts((norm, sums))
    return Parts((norm,), (sums, namespace(sums).zeros_like(sums) if shift is None else shift))


def _join(first: Parts, second: Parts) -> Parts:
    return Parts(first.sums + second.sums, first.stacks + second.stacks)


def product(
    block: Block,
    *,
    vectors: Array,
    lift: Array | None,
    columns: Columns,
    root: Array | None,
    unit: float,
    gather: bool,
    inside: bool = False,
) -> Parts:
    """``Y = A V - a lift^T``, then ``A^T Y`` while ``A`` is in cache, and ``a^T Y``.

    With ``inside``, ``Y^T Y`` instead: the covariance inside the span of ``V``.
    """
    if _outgrows_cache(block, vectors.dtype):
        # Data of four bytes multiplied in eight: half the rows at a time.
        options: Any = {"vectors": vectors, "lift": lift, "columns": columns, "unit": unit}
        options |= {"gather": gather, "inside": inside}
        half = block.shape[0] // 2
        roots = (None, None) if root is None else (root[:half], root[half:])
        first = product(block[:half], root=roots[0], **options)
        second = product(block[half:], root=roots[1], **options)
        return Parts(tuple(x + y for x, y in zip(first.sums, second.sums, strict=True)))
    a = prepare(block, vectors.dtype, columns, root, unit)
    y = _lifted(a @ vectors, lift, root)
    square = y.T @ y if inside else a.T @ y
    return _join(Parts((square, _weighted_sum(y, root))), _gathered(a, root, 0, gather))


def _outgrows_cache(block: Block, dtype: Any) -> bool:
    if not is_numpy_array(block) or block.shape[0] < 64:
        return False
    itemsize: int = np.dtype(dtype).itemsize
    return int(np.prod(block.shape)) * itemsize > PREPARED_BYTES


def _lifted(y: Array, lift: Array | None, root: Array | None) -> Array:
    if lift is None:
        return y
    return y - (lift if root is None else root[:, None] * lift)


def forward(
    block: Block,
    *,
    vectors: Array,
    columns: Columns,
    root: Array | None,
    unit: float,
    axis: int,
    gather: bool = False,
    squares: bool = False,
    offset: Array | None = None,
) -> Parts:
    """``A V``: this block's own rows, or its share of every row where it holds columns.

    With ``squares``, the squared norms of the rows of ``A - a offset^T`` as well.
    """
    columns = own_shift(block, vectors.dtype, columns, unit, root)
    a = prepare(block, vectors.dtype, columns, root, unit)
    rows = (a @ vectors, _squares_about(a, root, offset)) if squares else (a @ vectors,)
    done = Parts((), rows) if axis == 0 else Parts(rows)
    return _join(done, _gathered(a, root, axis, gather, columns.shift))


def adjoint(
    block: Block, *, left: Array, columns: Columns, root: Array | None, unit: float, axis: int
) -> Parts:
    """``A^T U``, the mirror image of :func:`forward`."""
    z = prepare(block, left.dtype, columns, root, unit).T @ left
    return Parts((z,)) if axis == 0 else Parts((), (z,))


def gram_product(
    block: Block,
    *,
    left: Array,
    lift: Array | None,
    offset: Array | None,
    columns: Columns,
    root: Array | None,
    unit: float,
) -> Parts:
    """``Z = A^T U - offset lift^T``, then ``A Z - a (offset^T Z)``, of a block of whole columns.

    ``lift`` is ``a^T U``.
    """
    a = prepare(block, left.dtype, columns, root, unit)
    z = a.T @ left
    if offset is None:
        return Parts((a @ z,))
    z -= offset[:, None] * lift
    return Parts((_lifted(a @ z, offset @ z, root),))


@makes_square
def covariance(
    block: Block,
    *,
    dtype: Any,
    columns: Columns,
    root: Array | None,
    unit: float,
    axis: int,
    gather: bool = False,
) -> Parts:
    """``A^T A`` of a block of rows, ``A A^T`` of a block of columns (the Gram matrix)."""
    columns = own_shift(block, dtype, columns, unit, root)
    # A sparse product adds one entry after the other, so it is made in float64.
    a = prepare(block, np.float64 if is_sparse(block) else dtype, columns, root, unit)
    square = a.T @ a if axis == 0 else a @ a.T
    square = square.toarray() if is_sparse(square) else square
    return _join(Parts((square,)), _gathered(a, root, axis, gather, columns.shift))


def moments(
    block: Block, *, dtype: Any, columns: Columns, root: Array | None, unit: float, axis: int
) -> Parts:
    """Per column, about the shift: weight present, sum, sum of squares; entries stored, missing.

    Entries stored are those of rows that count.  The last is the sum of the distances from the
    shift, without weights, where squares may have left the range, else zero.  Missing values count
    as absent; entries that a sparse block does not store are zeros that are present.  Blocks of
    columns also hand back the shift that they found for themselves.
    """
    shift = own_shift(block, dtype, columns, unit, root).shift
    a = prepare(block, dtype, Columns(shift=shift, factor=columns.factor), None, unit)
    parts = (_sparse_moments if is_sparse(block) else _dense_moments)(a, root, shift, columns)
    return Parts(parts) if axis == 0 else Parts((), (*parts, shift))


def _dense_moments(
    a: Array, root: Array | None, shift: Array, columns: Columns
) -> tuple[Array, ...]:
    xp = namespace(a)
    present = ~xp.isnan(a)
    a = xp.where(present, a, xp.zeros_like(a))
    if root is None:
        there = xp.astype(xp.sum(present, axis=0), xp.float64)
        counts = (there, a.shape[0] - there)
        squares = xp.vecdot(a, a, axis=0)
        return there, xp.sum(a, axis=0), squares, *counts, _reach(a, squares)
    absent = xp.sum(xp.astype(~present, xp.float64), axis=0)
    counts = (a.shape[0] - absent, absent)
    if bool(xp.any(root == 0)):
        present = present & (root > 0)[:, None]
        counts = (xp.sum(xp.astype(present, xp.float64), axis=0), absent)
        a = xp.where(present, a, xp.zeros_like(a))  # also where 0 a^2 would be no number
    weighted, rooted = xp.astype(present, a.dtype).T @ (root * root), a * root[:, None]
    squares = xp.vecdot(rooted, rooted, axis=0)
    return weighted, rooted.T @ root, squares, *counts, _reach(a, squares)


def _reach(a: Array, squares: Array) -> Array:
    """The sum of the distances from the shift ``(d,)`` where squares may have left the range."""
    xp = namespace(a)
    ordinary = (squares >= ORDINARY[0]) & (squares <= ORDINARY[1])
    if bool(xp.all(ordinary)):
        return xp.zeros_like(xp.astype(squares, xp.float64))
    distances = xp.sum(xp.abs(xp.astype(a, xp.float64, copy=False)), axis=0)
    return xp.where(ordinary, xp.zeros_like(distances), distances)


def _sparse_moments(
    a: Block, root: Array | None, shift: Array, given: Columns
) -> tuple[np.ndarray, ...]:
    rows, columns = positions(a)
    missing = np.isnan(a.data)
    data = np.where(missing, 0, a.data).astype(np.float64)
    data = data if root is None else np.where(root[rows] > 0, data, 0.0)
    w = np.ones(data.size) if root is None else root[rows].astype(np.float64) ** 2

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(columns, weights=values, minlength=a.shape[1])

    stored, zeros = stored_counts(a, root).astype(np.float64), _weight_of_zeros(a, root)
    shift = shift.astype(np.float64)
    shift = shift if given.factor is None else shift * given.factor
    rooted = data if root is None else data * root[rows].astype(np.float64)
    return (
        zeros + total(w * ~missing),
        total(w * data) - zeros * shift,
        total(rooted * rooted) + (np.sqrt(zeros) * shift) ** 2,
        stored,
        total(missing.astype(np.float64)),
        total(np.abs(data)) + np.abs(shift) * (present_rows(a, root) - stored),
    )


def _weight_of_zeros(a: Block, root: Array | None) -> np.ndarray:
    """The weight ``(d,)`` of the rows in which a sparse block stores nothing of a column.

    It is the weight of all rows less that of those stored, which would cancel beside one large
    weight: so it is counted among rows of like weight, and is exactly none where all are stored.
    """
    (rows, columns), d = positions(a), a.shape[1]
    found: np.ndarray
    if root is None:
        found = a.shape[0] - np.bincount(columns, minlength=d).astype(np.float64)
        return found
    weight = root.astype(np.float64) ** 2
    _, kind = np.unique(np.frexp(weight)[1] // 4, return_inverse=True)
    kinds = int(kind.max(initial=0)) + 1
    place = kind[rows] * d + columns
    count = np.bincount(place, minlength=kinds * d).reshape(kinds, d)
    stored = np.bincount(place, weight[rows], minlength=kinds * d).reshape(kinds, d)
    whole = np.bincount(kind, weight, minlength=kinds)[:, None]
    rest = np.where(count == np.bincount(kind, minlength=kinds)[:, None], 0.0, whole - stored)
    found = np.maximum(rest, 0.0).sum(axis=0)
    return found


def extent(
    block: Block,
    *,
    dtype: Any,
    columns: Columns,
    root: Array | None,
    unit: float,
    missing: bool,
    axis: int,
) -> Parts:
    """How many entries are no finite numbers; the largest size as stored, and as prepared.

    Missing values are let pass where ``missing``.  Sizes are those of the whole block, once
    for each of its rows (columns).
    """
    columns = own_shift(block, dtype, columns, unit, root)
    raw = block.data if is_sparse(block) else block
    ready = prepare(block, dtype, columns, root, unit)
    ready = ready.data if is_sparse(ready) else ready
    xp = namespace(raw)
    wide = xp.astype(raw, xp.float64)
    bad = xp.isinf(wide) if missing else ~xp.isfinite(wide)
    count = xp.sum(xp.astype(bad, xp.float64))
    sizes = (_peak(wide), _peak(xp.astype(ready, xp.float64)))
    length = (block.shape[axis],)
    where = {"dtype": xp.float64, "device": device(wide)}
    return Parts((count,), tuple(xp.full(length, size, **where) for size in sizes))


def _peak(values: Array) -> float:
    """The largest size among the finite entries."""
    if 0 in values.shape:
        return 0.0
    xp = namespace(values)
    sizes = xp.abs(values)
    return float(xp.max(xp.where(xp.isfinite(sizes), sizes, xp.zeros_like(sizes))))
