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

from primedpca._core.arrays import (
    EXACT,
    dtype_name,
    is_numpy_array,
    is_sparse,
    namespace,
    whole_difference,
)
from primedpca.protocols import Array, Block

__all__ = [
    "Columns",
    "own_shift",
    "positions",
    "prepare",
    "present_rows",
    "stored_counts",
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
        Square roots of the weights.  Finite rows of weight zero become zero, however large.
    unit : float
        A power of two that everything is multiplied with first, so that squares stay in range.
    """
    if is_sparse(block):
        return _prepare_sparse(block, dtype, columns, root, unit)
    if is_numpy_array(block):
        return _prepare_numpy(block, np.dtype(dtype), columns, root, unit)
    xp = namespace(block)
    if unit == 1.0 and _is_far(block, columns.shift):
        out = whole_difference(block, columns.shift)
    else:
        out = xp.astype(block, dtype, copy=False)
        out = out * unit if unit != 1.0 else out
        if columns.fill is not None:
            out = xp.where(xp.isnan(out), columns.fill, out)
        out = out - columns.shift if columns.shift is not None else out
    out = out * columns.factor if columns.factor is not None else out
    if root is None:
        return out
    nothing = xp.astype(_absent(block, columns), dtype, copy=False)
    return xp.where(root[:, None] == 0, nothing, out * root[:, None])


def _prepare_numpy(
    block: Block, dtype: np.dtype[Any], columns: Columns, root: Array | None, unit: float
) -> Block:
    asked = any(value is not None for value in (*columns[:3], root)) or unit != 1.0
    if not asked and block.dtype == dtype and block.flags.c_contiguous:
        return np.asarray(block)
    out = _buffer(block.shape, dtype)
    if block.dtype.itemsize > 8:  # wider than float64: subtracted from before it is rounded
        wide = block * block.dtype.type(unit)
        wide = wide if columns.fill is None else np.where(np.isnan(wide), columns.fill, wide)
        out[...] = wide if columns.shift is None else wide - columns.shift
    elif unit == 1.0 and _is_far(block, columns.shift):
        out[...] = whole_difference(block, columns.shift)
    elif unit == 1.0 and columns.shift is not None and columns.fill is None:
        # Straight from the block's own type into the buffer: one reading, one writing.
        np.subtract(block, columns.shift, out=out, dtype=dtype, casting="unsafe")
    else:
        if unit == 1.0:
            np.copyto(out, block, casting="unsafe")
        else:
            np.multiply(block, unit, out=out, dtype=dtype, casting="unsafe")
        if columns.fill is not None:
            np.copyto(out, columns.fill, where=np.isnan(out))
        if columns.shift is not None:
            out -= columns.shift
    if columns.factor is not None:
        out *= columns.factor
    if root is not None:
        out *= root[:, None]
        absent = np.flatnonzero(root == 0)
        if absent.size:  # where numbers far beyond the others may have left the range
            out[absent] = _absent(block[absent], columns)
    return out


def _absent(rows: Array, columns: Columns) -> Array:
    """Rows of weight zero: zero where they are finite, or missing and filled; else no number."""
    xp = namespace(rows)
    kind = xp.float32 if dtype_name(rows.dtype) == "float32" else xp.float64
    nothing = xp.astype(rows, kind) * 0
    if columns.fill is not None:
        nothing = xp.where(xp.isnan(rows), xp.zeros_like(nothing), nothing)
    return nothing


def _is_far(block: Block, shift: Array | None) -> bool:
    """Whether whole numbers are shifted by so much that they must not be rounded before."""
    if shift is None or dtype_name(block.dtype) not in ("int64", "uint64"):
        return False
    xp = namespace(shift)
    return bool(xp.any(xp.abs(shift) > EXACT / 2))


def _prepare_sparse(
    block: Block, dtype: Any, columns: Columns, root: Array | None, unit: float
) -> Block:
    data = block.data.astype(dtype, copy=False)
    data = data * np.dtype(dtype).type(unit) if unit != 1.0 else data
    if any(value is not None for value in columns[:3]):
        column = _spread(block, 1)
        if columns.fill is not None:
            data = np.where(np.isnan(data), columns.fill[column], data)
        if columns.shift is not None:
            far, shift = unit == 1.0 and _is_far(block, columns.shift), columns.shift[column]
            data = whole_difference(block.data, shift) if far else data - shift
        data = data * columns.factor[column] if columns.factor is not None else data
    if root is not None:
        here = root[_spread(block, 0)]
        data = np.where(here == 0, _absent(block.data, columns), data * here)
        data = data.astype(dtype, copy=False)
    prepared = copy(block)  # shallow: the constructor would copy the indices
    prepared.data = data
    return prepared


def positions(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Row and column number of every stored entry."""
    return _spread(block, 0), _spread(block, 1)


def _spread(block: Block, axis: int) -> np.ndarray:
    """Row or column number of every stored entry."""
    if (block.format == "csr") == (axis == 1):
        indices: np.ndarray = block.indices
        return indices
    return np.repeat(np.arange(block.indptr.size - 1), np.diff(block.indptr))


def own_shift(
    block: Block, dtype: Any, columns: Columns, unit: float, root: Array | None
) -> Columns:
    """``columns`` with the shift that a block of whole columns finds in itself."""
    if not columns.own:
        return columns
    shift = stored_means(block, dtype, unit, root)
    if is_sparse(block):
        # An entry that is not stored would have to become minus the shift: only full columns.
        full = stored_counts(block, root) == present_rows(block, root)
        shift = np.where(full, shift, 0)
    return columns._replace(shift=shift, own=False)


def present_rows(block: Block, root: Array | None) -> float:
    """How many rows of a block count: those of positive weight."""
    return float(block.shape[0]) if root is None else float((root > 0).sum())


def stored_counts(block: Block, root: Array | None) -> np.ndarray:
    """How many entries ``(d,)`` of each column a sparse block stores, in rows that count."""
    rows, columns = positions(block)
    columns = columns if root is None else columns[root[rows] > 0]
    return np.bincount(columns, minlength=block.shape[1])


def stored_means(block: Block, dtype: Any, unit: float = 1.0, root: Array | None = None) -> Array:
    """The weighted mean ``(d,)`` of the finite entries that are stored of every column, else zero.

    Rows of weight zero are not looked at unless there are no others.  The mean of a dense column
    that is constant is exactly that constant, so that nothing of it is left once it is shifted.
    """
    if root is not None:
        root = root if bool((root > 0).any()) else None
    with np.errstate(all="ignore"):
        means = (_sparse_means if is_sparse(block) else _dense_means)(block, unit, root)
    xp = namespace(means)
    # Zero where the sum overflowed, so that what is no number in the results comes from the data.
    return xp.astype(xp.where(xp.isfinite(means), means, xp.zeros_like(means)), dtype)


def _sparse_means(block: Block, unit: float, root: Array | None) -> np.ndarray:
    rows, columns = positions(block)
    data = block.data.astype(np.float64) * unit
    weight = np.ones(data.size) if root is None else (root[rows] / root.max()) ** 2
    there = np.isfinite(data) & (weight > 0)
    columns, data, weight = columns[there], data[there], weight[there]
    totals = np.bincount(columns, data * weight, minlength=block.shape[1])
    counts = np.bincount(columns, weight, minlength=block.shape[1])
    return totals / np.where(counts > 0, counts, 1.0)


def _dense_means(block: Block, unit: float, root: Array | None) -> Array:
    xp = namespace(block)
    wide = xp.astype(block, xp.float64, copy=False)
    wide = wide * unit if unit != 1.0 else wide
    weight = None if root is None else (xp.astype(root, xp.float64) / float(xp.max(root))) ** 2
    if weight is None:
        means, some = xp.mean(wide, axis=0), wide[0, :]
    else:
        means, some = (weight @ wide) / xp.sum(weight), wide[int(xp.argmax(weight)), :]
    there = None if weight is None else (weight > 0)[:, None]
    if not bool(xp.all(xp.isfinite(means))):
        there = xp.isfinite(wide) if there is None else xp.isfinite(wide) & there
        kept = xp.where(there, wide, xp.zeros_like(wide))
        some = kept[xp.argmax(xp.astype(there, xp.int8), axis=0), xp.arange(kept.shape[1])]
        counted = xp.astype(there, xp.float64)
        weight = xp.ones_like(kept[:, 0]) if weight is None else weight
        counts = weight @ counted
        means = (weight @ kept) / xp.where(counts > 0, counts, xp.ones_like(counts))
    # Of a constant column exactly the constant; few others have means so near to one entry.
    near = xp.abs(means - some) <= 2.0**-40 * xp.abs(some)
    if bool(xp.any(near)):
        same = wide == some if there is None else (wide == some) | ~there
        means = xp.where(near & xp.all(same, axis=0), some, means)
    return means
