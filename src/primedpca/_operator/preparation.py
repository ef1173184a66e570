"""Preparation of a block: shifted, filled, scaled and weighted while it is in cache.

``prepare`` turns a block ``B`` into ``A`` so that the block's part of
``M = W^(1/2) (X - 1 mean^T) S^-1`` is ``A - a offset^T``, with ``a`` the square roots of the
weights.  Dense blocks are shifted by the mean, and ``offset`` is zero.  Sparse blocks keep their
zeros, and the caller subtracts ``a offset^T`` from the product.
"""

from __future__ import annotations

import math
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
    """Operations on the columns of a block before it is multiplied; ``None`` omits one.

    Attributes
    ----------
    shift : array of shape (d,) or None
        Subtracted from every entry of a dense block, and from the stored entries of a sparse one.
    fill : array of shape (d,) or None
        Replaces missing values before the shift.  ``None`` does not look for missing values.
    factor : array of shape (d,) or None
        Reciprocal of the scale; multiplied after the shift.
    own : bool, default=False
        Whether to shift by the block's own means, in a first pass over blocks of columns.
    """

    shift: Array | None = None
    fill: Array | None = None
    factor: Array | None = None
    own: bool = False


_scratch = threading.local()
_KEPT_BYTES = 2**26  # largest buffer that a thread keeps between blocks


def _buffer(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return this thread's own buffer, which is reused for each block unless it is very large.

    Reuse keeps the prepared block in cache.
    """
    size = math.prod(shape)
    if size * dtype.itemsize > _KEPT_BYTES:
        return np.empty(shape, dtype)
    flat: np.ndarray | None = getattr(_scratch, dtype.char, None)
    if flat is None or flat.size < size:
        flat = np.empty(size, dtype)
        setattr(_scratch, dtype.char, flat)
    return flat[:size].reshape(shape)


def prepare(
    block: Block, dtype: Any, columns: Columns, root: Array | None = None, unit: float = 1.0
) -> Block:
    """Return the prepared block ``A``, valid until this thread prepares its next block.

    Parameters
    ----------
    block : dense or sparse block
    dtype : dtype
        Of the result.
    columns : Columns
        Operations on the columns of this block.
    root : array of shape (rows,), optional
        Square roots of the weights.  Finite rows of weight zero become exactly zero, even if
        their entries would overflow.  By default every weight is 1.
    unit : float, default=1.0
        A power of two by which every entry is multiplied first, so that squares stay in range.
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
    """Return a dense NumPy block, prepared in this thread's buffer; itself if nothing is to do."""
    shift, fill, factor, _ = columns
    plain = shift is None and fill is None and factor is None and root is None and unit == 1.0
    if plain and block.dtype == dtype and block.flags.c_contiguous:  # no copy is needed
        return np.asarray(block)
    out = _buffer(block.shape, dtype)
    if block.dtype.itemsize > 8:  # wider than float64: subtract the shift before rounding
        wide = block * block.dtype.type(unit)
        wide = wide if fill is None else np.where(np.isnan(wide), fill, wide)
        out[...] = wide if shift is None else wide - shift
    elif unit == 1.0 and _is_far(block, shift):
        out[...] = whole_difference(block, shift)
    elif unit == 1.0 and shift is not None and fill is None:
        # One operation from the block's dtype into the buffer: one read and one write of memory.
        np.subtract(block, shift, out=out, dtype=dtype, casting="unsafe")
    else:
        if unit == 1.0:
            np.copyto(out, block, casting="unsafe")
        else:
            np.multiply(block, unit, out=out, dtype=dtype, casting="unsafe")
        if fill is not None:
            np.copyto(out, fill, where=np.isnan(out))
        if shift is not None:
            out -= shift
    if factor is not None:
        out *= factor
    if root is not None:
        out *= root[:, None]
        absent = np.flatnonzero(root == 0)
        if absent.size:  # 0 times an entry that has overflowed would be NaN
            out[absent] = _absent(block[absent], columns)
    return out


def _absent(rows: Array, columns: Columns) -> Array:
    """Return the prepared rows of weight zero.

    Entries are zero if they are finite, or missing and to be filled.  Others stay NaN, so that
    non-finite values are found in these rows, too.
    """
    xp = namespace(rows)
    kind = xp.float32 if dtype_name(rows.dtype) == "float32" else xp.float64
    nothing = xp.astype(rows, kind) * 0
    if columns.fill is not None:
        nothing = xp.where(xp.isnan(rows), xp.zeros_like(nothing), nothing)
    return nothing


def _is_far(block: Block, shift: Array | None) -> bool:
    """Whether 64-bit integers are so large that the shift must be subtracted before rounding."""
    if shift is None or dtype_name(block.dtype) not in ("int64", "uint64"):
        return False
    xp = namespace(shift)
    return bool(xp.any(xp.abs(shift) > EXACT / 2))


def _prepare_sparse(
    block: Block, dtype: Any, columns: Columns, root: Array | None, unit: float
) -> Block:
    """Return a sparse block with the same pattern, its stored entries prepared."""
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
    prepared = copy(block)  # shallow: SciPy's constructor would copy the indices
    prepared.data = data
    return prepared


def positions(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the column index, counted from 0, of each stored entry."""
    return _spread(block, 0), _spread(block, 1)


def _spread(block: Block, axis: int) -> np.ndarray:
    """Row index (axis 0) or column index (axis 1) of each stored entry, counted from 0."""
    if (block.format == "csr") == (axis == 1):
        indices: np.ndarray = block.indices
        return indices
    return np.repeat(np.arange(block.indptr.size - 1), np.diff(block.indptr))


def own_shift(
    block: Block, dtype: Any, columns: Columns, unit: float, root: Array | None
) -> Columns:
    """Return ``columns`` with the means of this block as the shift, if ``columns.own`` is set."""
    if not columns.own:
        return columns
    shift = stored_means(block, dtype, unit, root)
    if is_sparse(block):
        # Only columns that are stored in full: elsewhere the shift would make zeros non-zero.
        full = stored_counts(block, root) == present_rows(block, root)
        shift = np.where(full, shift, 0)
    return columns._replace(shift=shift, own=False)


def present_rows(block: Block, root: Array | None) -> float:
    """Return the number of rows of positive weight in a block."""
    return float(block.shape[0]) if root is None else float((root > 0).sum())


def stored_counts(block: Block, root: Array | None) -> np.ndarray:
    """Return the number of stored entries ``(d,)`` per column, in rows of positive weight."""
    rows, columns = positions(block)
    columns = columns if root is None else columns[root[rows] > 0]
    return np.bincount(columns, minlength=block.shape[1])


def stored_means(block: Block, dtype: Any, unit: float = 1.0, root: Array | None = None) -> Array:
    """Return the weighted mean ``(d,)`` of the finite stored entries of each column.

    Columns without such entries have mean zero.  Rows of weight zero are ignored unless there are
    no others.  The mean of a constant dense column is exactly that constant, so that the shifted
    column is exactly zero.

    Parameters
    ----------
    block : dense or sparse block
    dtype : dtype
        Of the result.
    unit : float, default=1.0
        A power of two by which entries are multiplied first.
    root : array of shape (rows,), optional
        Square roots of the weights.  By default every weight is 1.
    """
    if root is not None:
        root = root if bool((root > 0).any()) else None
    with np.errstate(all="ignore"):
        means = (_sparse_means if is_sparse(block) else _dense_means)(block, unit, root)
    xp = namespace(means)
    # Zero if the sum overflowed, so that non-finite results can only come from the data.
    return xp.astype(xp.where(xp.isfinite(means), means, xp.zeros_like(means)), dtype)


def _sparse_means(block: Block, unit: float, root: Array | None) -> np.ndarray:
    """Return the means of :func:`stored_means` for a sparse block, in float64."""
    rows, columns = positions(block)
    data = block.data.astype(np.float64) * unit
    # Relative to the largest weight, so that weighted sums stay in range.
    weight = np.ones(data.size) if root is None else (root[rows] / root.max()) ** 2
    there = np.isfinite(data) & (weight > 0)
    columns, data, weight = columns[there], data[there], weight[there]
    totals = np.bincount(columns, data * weight, minlength=block.shape[1])
    counts = np.bincount(columns, weight, minlength=block.shape[1])
    return totals / np.where(counts > 0, counts, 1.0)


def _dense_means(block: Block, unit: float, root: Array | None) -> Array:
    """Return the means of :func:`stored_means` for a dense block, in float64."""
    xp = namespace(block)
    wide = xp.astype(block, xp.float64, copy=False)
    wide = wide * unit if unit != 1.0 else wide
    weight = None if root is None else (xp.astype(root, xp.float64) / float(xp.max(root))) ** 2
    if weight is None:
        means, some = xp.mean(wide, axis=0), wide[0, :]
    else:
        means, some = (weight @ wide) / xp.sum(weight), wide[int(xp.argmax(weight)), :]
    there = None if weight is None else (weight > 0)[:, None]
    if not bool(xp.isfinite(means).all()):
        there = xp.isfinite(wide) if there is None else xp.isfinite(wide) & there
        kept = xp.where(there, wide, xp.zeros_like(wide))
        some = kept[xp.argmax(xp.astype(there, xp.int8), axis=0), xp.arange(kept.shape[1])]
        counted = xp.astype(there, xp.float64)
        weight = xp.ones_like(kept[:, 0]) if weight is None else weight
        counts = weight @ counted
        means = (weight @ kept) / xp.where(counts > 0, counts, xp.ones_like(counts))
    # The rounded mean of a constant column may differ from the constant.  Comparing all entries
    # is expensive, so only columns whose mean is this near to one entry are compared.
    near = xp.abs(means - some) <= 2.0**-40 * xp.abs(some)
    if bool(near.any()):
        same = wide[:, near] == some[near]
        if there is not None:
            same = same | ~(there if there.shape[1] == 1 else there[:, near])
        means[near] = xp.where(xp.all(same, axis=0), some[near], means[near])
    return means
