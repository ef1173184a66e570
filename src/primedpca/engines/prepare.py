"""How a block is made ready: shifted, filled, scaled and weighted, in cache.

``prepare`` turns a block ``B`` into ``A`` so that the block's part of
``M = W^(1/2) (X - 1 mean^T) S^-1`` is ``A - a offset^T``, with ``a`` the square roots of the
weights.  Dense blocks are shifted by the mean in cache, and then ``offset`` is zero; sparse
blocks keep their zeros, and the caller corrects by ``offset``.
"""

from __future__ import annotations

import threading
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from primedpca.arrays import is_numpy_array, is_sparse, namespace
from primedpca.protocols import Array, Block

__all__ = ["Columns", "own_shift", "positions", "prepare", "stored_means"]


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
    asked = any(value is not None for value in (*columns[:3], root)) or unit != 1.0
    if not asked and block.dtype == dtype and block.flags.c_contiguous:
        return np.asarray(block)
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
    if any(value is not None for value in columns[:3]):
        column = _spread(block, 1)
        if columns.fill is not None:
            data = np.where(np.isnan(data), columns.fill[column], data)
        data = data - columns.shift[column] if columns.shift is not None else data
        data = data * columns.factor[column] if columns.factor is not None else data
    data = data * root[_spread(block, 0)] if root is not None else data
    prepared = copy(block)  # shallow: the constructor would copy the indices
    prepared.data = data
    return prepared


def positions(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Row and column number of every stored entry."""
    return _spread(block, 0), _spread(block, 1)


def _spread(block: Block, axis: int) -> np.ndarray:
    """Row or column number of every stored entry."""
    if (block.format == "csr") == (axis == 1):
        return block.indices
    return np.repeat(np.arange(block.indptr.size - 1), np.diff(block.indptr))


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
    """The mean ``(d,)`` of the finite entries that are stored of every column, else zero."""
    with np.errstate(all="ignore"):
        means = (_sparse_means if is_sparse(block) else _dense_means)(block, unit)
    xp = namespace(means)
    # Zero where the sum overflowed, so that what is no number in the results comes from the data.
    return xp.astype(xp.where(xp.isfinite(means), means, xp.zeros_like(means)), dtype)


def _sparse_means(block: Block, unit: float) -> np.ndarray:
    _, columns = positions(block)
    data = block.data.astype(np.float64) * unit
    there = np.isfinite(data)
    totals = np.bincount(columns[there], data[there], minlength=block.shape[1])
    counts = np.bincount(columns[there], minlength=block.shape[1])
    return totals / np.maximum(counts, 1)


def _dense_means(block: Block, unit: float) -> Array:
    xp = namespace(block)
    wide = xp.astype(block, xp.float64, copy=False)
    wide = wide * unit if unit != 1.0 else wide
    means = xp.mean(wide, axis=0)
    if bool(xp.all(xp.isfinite(means))):
        return means
    there = xp.isfinite(wide)
    counts = xp.astype(xp.sum(there, axis=0), xp.float64)
    totals = xp.sum(xp.where(there, wide, xp.zeros_like(wide)), axis=0)
    return totals / xp.where(counts > 0, counts, xp.ones_like(counts))
