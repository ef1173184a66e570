"""What is done to one block: six named kernels on top of one way to prepare it.

``prepare`` turns a block ``B`` into ``A`` so that the block's part of
``M = W^(1/2) (X - 1 mean^T) S^-1`` is ``A - a offset^T``, with ``a`` the square roots of the
weights.  Dense blocks are shifted by the mean in cache, and then ``offset`` is zero; sparse
blocks keep their zeros, and the caller corrects by ``offset``.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from primedpca.arrays import is_numpy_array, is_sparse, namespace
from primedpca.protocols import Array, Block, Parts

__all__ = [
    "Columns",
    "adjoint",
    "covariance",
    "extent",
    "forward",
    "moments",
    "positions",
    "prepare",
    "product",
    "projected",
    "stored_means",
]


class Columns(NamedTuple):
    """What happens to the columns of a block before it is multiplied; ``None`` is nothing.

    Attributes
    ----------
    shift : array of shape (d,)
        Subtracted: from every entry of dense blocks, from the stored entries of sparse ones.
    fill : array of shape (d,)
        What a missing value becomes before the shift.  ``None`` where none is looked for.
    factor : array of shape (d,)
        Multiplied after the shift: the reciprocal of the scale.
    own : bool
        Shift by the block's own means, for a first pass over blocks of whole columns.
    """

    shift: Array | None = None
    fill: Array | None = None
    factor: Array | None = None
    own: bool = False


_scratch = threading.local()
_KEPT_BYTES = 2**26


def _buffer(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """A buffer of this thread's own, reused from block to block unless it is very large."""
    size = int(np.prod(shape))
    if size * dtype.itemsize > _KEPT_BYTES:
        return np.empty(shape, dtype)
    flat: np.ndarray | None = getattr(_scratch, dtype.name, None)
    if flat is None or flat.size < size:
        flat = np.empty(size, dtype)
        setattr(_scratch, dtype.name, flat)
    return flat[:size].reshape(shape)


def prepare(
    block: Block, dtype: Any, columns: Columns, root: Array | None = None, unit: float = 1.0
) -> Block:
    """The block as it is multiplied; valid until this thread prepares its next block.

    Parameters
    ----------
    block : dense or sparse block
    dtype : dtype of the result
    columns : Columns
        This block's columns only.
    root : array of shape (rows,), optional
        Square roots of the weights.
    unit : float
        A power of two that everything is multiplied with first, so that squares stay in range.
    """
    if is_sparse(block):
        return _prepare_sparse(block, dtype, columns, root, unit)
    if is_numpy_array(block):
        return _prepare_numpy(block, np.dtype(dtype), columns, root, unit)
    xp = namespace(block)
    out = xp.astype(block, dtype, copy=False)
    out = out * unit if unit != 1.0 else out
    if columns.fill is not None:
        out = xp.where(xp.isnan(out), columns.fill, out)
    out = out - columns.shift if columns.shift is not None else out
    out = out * columns.factor if columns.factor is not None else out
    return out if root is None else out * root[:, None]


def _prepare_numpy(
    block: Block, dtype: np.dtype[Any], columns: Columns, root: Array | None, unit: float
) -> Block:
    out = _buffer(block.shape, dtype)
    if unit != 1.0:
        np.multiply(block, unit, out=out, casting="unsafe")
    elif columns.shift is not None and columns.fill is None:
        # Straight from the block's own type into the buffer: one reading, one writing.
        np.subtract(block, columns.shift, out=out, dtype=dtype, casting="unsafe")
    else:
        np.copyto(out, block, casting="unsafe")
    if columns.fill is not None:
        np.copyto(out, columns.fill, where=np.isnan(out))
    if columns.shift is not None and (unit != 1.0 or columns.fill is not None):
        out -= columns.shift
    if columns.factor is not None:
        out *= columns.factor
    if root is not None:
        out *= root[:, None]
    return out


def _prepare_sparse(
    block: Block, dtype: Any, columns: Columns, root: Array | None, unit: float
) -> Block:
    data = block.data.astype(dtype, copy=False)
    data = data * np.dtype(dtype).type(unit) if unit != 1.0 else data
    if any(value is not None for value in (columns.fill, columns.shift, columns.factor, root)):
        row, column = positions(block)
        if columns.fill is not None:
            data = np.where(np.isnan(data), columns.fill[column], data)
        data = data - columns.shift[column] if columns.shift is not None else data
        data = data * columns.factor[column] if columns.factor is not None else data
        data = data * root[row] if root is not None else data
    return type(block)((data, block.indices, block.indptr), shape=block.shape, copy=False)


def positions(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Row and column number of every stored entry."""
    major = np.repeat(np.arange(block.indptr.size - 1), np.diff(block.indptr))
    return (major, block.indices) if block.format == "csr" else (block.indices, major)


def own_shift(block: Block, dtype: Any, columns: Columns, unit: float) -> Columns:
    """``columns`` with the shift that a block of whole columns finds in itself."""
    if not columns.own:
        return columns
    shift = stored_means(block, dtype, unit)
    if is_sparse(block):
        # An entry that is not stored would have to become minus the shift: only full columns.
        shift = np.where(np.diff(block.indptr) == block.shape[0], shift, 0)
    return columns._replace(shift=shift, own=False)


def stored_means(block: Block, dtype: Any, unit: float = 1.0) -> Array:
    """The mean ``(d,)`` of the entries of every column that are stored and not missing."""
    if is_sparse(block):
        _, columns = positions(block)
        data = block.data.astype(np.float64) * unit
        there = ~np.isnan(data)
        totals = np.bincount(columns[there], data[there], minlength=block.shape[1])
        counts = np.bincount(columns[there], minlength=block.shape[1])
        return (totals / np.maximum(counts, 1)).astype(dtype)
    xp = namespace(block)
    wide = xp.astype(block, xp.float64, copy=False)
    wide = wide * unit if unit != 1.0 else wide
    means = xp.mean(wide, axis=0)
    if bool(xp.any(xp.isnan(means))):
        there = ~xp.isnan(wide)
        counts = xp.astype(xp.sum(there, axis=0), xp.float64)
        totals = xp.sum(xp.where(there, wide, xp.zeros_like(wide)), axis=0)
        means = totals / xp.where(counts > 0, counts, xp.ones_like(counts))
    return xp.astype(means, dtype)


def _weighted_sum(a: Block, root: Array | None) -> Array:
    """``root^T A``: the sum of the rows, ``(d,)``."""
    if root is not None:
        return a.T @ root
    if is_sparse(a):
        return a.T @ np.ones(a.shape[0], dtype=a.dtype)
    return namespace(a).sum(a, axis=0)


def _squared_norm(a: Block) -> Array:
    """The sum of all squares, row by row and then in float64."""
    return namespace(a).sum(_row_squares(a))


def _row_squares(a: Block) -> Array:
    if is_sparse(a):
        return np.asarray(a.multiply(a).sum(axis=1), dtype=np.float64).ravel()
    xp = namespace(a)
    return xp.astype(xp.vecdot(a, a), xp.float64)


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
) -> Parts:
    """``Y = A V - a lift^T``, then ``A^T Y`` while ``A`` is in cache, and ``a^T Y``."""
    a = prepare(block, vectors.dtype, columns, root, unit)
    y = _lifted(a @ vectors, lift, root)
    return _join(Parts((a.T @ y, _weighted_sum(y, root))), _gathered(a, root, 0, gather))


def projected(
    block: Block,
    *,
    vectors: Array,
    lift: Array | None,
    columns: Columns,
    root: Array | None,
    unit: float,
    gather: bool,
) -> Parts:
    """``Y = A V - a lift^T``, then ``Y^T Y`` and ``a^T Y``: the covariance inside a span."""
    a = prepare(block, vectors.dtype, columns, root, unit)
    y = _lifted(a @ vectors, lift, root)
    return _join(Parts((y.T @ y, _weighted_sum(y, root))), _gathered(a, root, 0, gather))


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
) -> Parts:
    """``A V``: this block's own rows, or its share of every row where it holds columns.

    With ``squares``, the squared norms of the rows of ``A`` as well.
    """
    columns = own_shift(block, vectors.dtype, columns, unit)
    a = prepare(block, vectors.dtype, columns, root, unit)
    rows = (a @ vectors, _row_squares(a)) if squares else (a @ vectors,)
    done = Parts((), rows) if axis == 0 else Parts(rows)
    return _join(done, _gathered(a, root, axis, gather, columns.shift))


def adjoint(
    block: Block, *, left: Array, columns: Columns, root: Array | None, unit: float, axis: int
) -> Parts:
    """``A^T U``, the mirror image of :func:`forward`."""
    z = prepare(block, left.dtype, columns, root, unit).T @ left
    return Parts((z,)) if axis == 0 else Parts((), (z,))


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
    columns = own_shift(block, dtype, columns, unit)
    a = prepare(block, dtype, columns, root, unit)
    square = a.T @ a if axis == 0 else a @ a.T
    square = square.toarray() if is_sparse(square) else square
    return _join(Parts((square,)), _gathered(a, root, axis, gather, columns.shift))


def moments(
    block: Block, *, dtype: Any, columns: Columns, root: Array | None, unit: float, axis: int
) -> Parts:
    """Per column, about the shift: weight present, sum, sum of squares; entries stored, missing.

    Missing values count as absent; entries that a sparse block does not store are zeros that
    are present.  Blocks of columns also hand back the shift that they found for themselves.
    """
    shift = stored_means(block, dtype, unit) if columns.own else columns.shift
    a = prepare(block, dtype, Columns(shift=shift), None, unit)
    weight = None if root is None else root * root
    parts = (_sparse_moments if is_sparse(block) else _dense_moments)(a, weight, shift)
    return Parts(parts) if axis == 0 else Parts((), (*parts, shift))


def _dense_moments(a: Array, weight: Array | None, shift: Array) -> tuple[Array, ...]:
    xp = namespace(a)
    present = ~xp.isnan(a)
    a = xp.where(present, a, xp.zeros_like(a))
    there = xp.astype(xp.sum(present, axis=0), xp.float64)
    counts = (there, a.shape[0] - there)
    if weight is None:
        return there, xp.sum(a, axis=0), xp.vecdot(a, a, axis=0), *counts
    weighted = xp.astype(present, a.dtype).T @ weight
    return weighted, a.T @ weight, (a * a).T @ weight, *counts


def _sparse_moments(a: Block, weight: Array | None, shift: Array) -> tuple[np.ndarray, ...]:
    rows, columns = positions(a)
    missing = np.isnan(a.data)
    data = np.where(missing, 0, a.data).astype(np.float64)
    w = np.ones(data.size) if weight is None else weight[rows].astype(np.float64)
    everything = float(a.shape[0]) if weight is None else weight.sum(dtype=np.float64)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(columns, weights=values, minlength=a.shape[1])

    zeros = everything - total(w)  # the weight of what is not stored, each minus the shift
    shift = shift.astype(np.float64)
    return (
        everything - total(w * missing),
        total(w * data) - zeros * shift,
        total(w * data * data) + zeros * shift**2,
        total(np.ones_like(data)),
        total(missing.astype(np.float64)),
    )


def extent(
    block: Block, *, dtype: Any, columns: Columns, unit: float, missing: bool, axis: int
) -> Parts:
    """How many entries are no finite numbers; the largest size as stored, and as prepared.

    Missing values are let pass where ``missing``.  Sizes are those of the whole block, once
    for each of its rows (columns).
    """
    columns = own_shift(block, dtype, columns, unit)
    raw = block.data if is_sparse(block) else block
    ready = prepare(block, dtype, columns, None, unit)
    ready = ready.data if is_sparse(ready) else ready
    xp = namespace(raw)
    wide = xp.astype(raw, xp.float64)
    bad = xp.isinf(wide) if missing else ~xp.isfinite(wide)
    count = xp.sum(xp.astype(bad, xp.float64))
    sizes = (_peak(wide), _peak(xp.astype(ready, xp.float64)))
    return Parts((count,), tuple(xp.full((block.shape[axis],), size) for size in sizes))


def _peak(values: Array) -> float:
    """The largest size among the finite entries."""
    if 0 in values.shape:
        return 0.0
    xp = namespace(values)
    sizes = xp.abs(values)
    return float(xp.max(xp.where(xp.isfinite(sizes), sizes, xp.zeros_like(sizes))))
