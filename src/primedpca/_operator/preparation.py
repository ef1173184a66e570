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
    check_extended,
    dtype_name,
    is_device_sparse,
    is_numpy_array,
    is_sparse,
    is_torch_array,
    namespace,
    to_numpy,
    whole_difference,
    work_dtype,
)
from primedpca.protocols import Array, Block, DataSource

__all__ = [
    "Columns",
    "by_host",
    "check_whole_numbers",
    "in_float32",
    "is_near_zero",
    "own_shift",
    "places",
    "positions",
    "prepare",
    "present_rows",
    "stored_counts",
    "stored_means",
    "weighted_sum",
]

#: Types that every library subtracts float32 and float64 from; PyTorch not from bool or uint16.
ORDINARY = {"uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32", "float64"}


class Columns(NamedTuple):
    """Operations on the columns of a block before it is multiplied; ``None`` omits one.

    Attributes
    ----------
    shift : array of shape (d,) or None
        Subtracted from every entry of a dense block, and from the stored entries of a sparse one.
    fill : array of shape (d,) or None
        Replaces missing values after the shift and its rest: their distance from it.  ``None`` does
        not look for missing values.
    factor : array of shape (d,) or None
        Reciprocal of the scale; multiplied after the shift.
    own : bool, default=False
        Whether to shift by the block's own means, in a first pass over blocks of columns.
    rest : array of shape (d,) or None
        Subtracted after the shift: what rounding has left out of it.
    """

    shift: Array | None = None
    fill: Array | None = None
    factor: Array | None = None
    own: bool = False
    rest: Array | None = None

    @property
    def idle(self) -> bool:
        """Whether entries stay as they are."""
        return self.shift is None and self.fill is None and self.factor is None


#: Largest squares of the means of all columns together, and of each, in their variances, of a block
#: that products in this type need not shift; both of about this many rows.
NEAR, NEAR_ROWS = {"float32": (1.0, 1.0), "float64": (4.0, 16.0)}, 64
#: Entries of a block up to which it is always shifted.
LITTLE = 2**15
#: Shifted columns of a sparse block whose entries are looked for one by one.
FEW = 4
#: Part of the deviations by which the rounded mean of large integers may move scores.
COARSE = 1e-3
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

    A block of NumPy is prepared in this thread's buffer, or returned itself if nothing is to do.

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
    if not is_numpy_array(block):
        return _prepare_other(block, dtype, columns, root, unit)
    dtype, (shift, fill, factor, *_) = np.dtype(dtype), columns
    plain = columns.idle and root is None and unit == 1.0
    if plain and block.dtype == dtype and block.flags.c_contiguous:  # no copy is needed
        return np.asarray(block)
    out = _buffer(block.shape, dtype)
    if block.dtype.itemsize > 8:  # wider than float64: subtract the shift before rounding
        wide = block * block.dtype.type(unit)
        out[...] = wide if shift is None else wide - shift
    elif unit == 1.0 and shift is not None and _is_far(block, shift):
        out[...] = whole_difference(block, shift)
    elif unit == 1.0 and shift is not None and block.dtype == dtype:
        # One operation from the block into the buffer: one read and one write of memory.  With a
        # cast inside, NumPy takes twice the time of a cast and a subtraction in cache.
        np.subtract(block, shift, out=out, dtype=dtype, casting="unsafe")
    else:
        if unit == 1.0:
            np.copyto(out, block, casting="unsafe")
        else:
            np.multiply(block, unit, out=out, dtype=dtype, casting="unsafe")
        if shift is not None:
            out -= shift
    if columns.rest is not None:
        out -= columns.rest
    if fill is not None:
        np.copyto(out, fill, where=np.isnan(out))
    if factor is not None:
        out *= factor
    if root is not None:
        out *= root[:, None]
        absent = np.flatnonzero(root == 0)
        if absent.size:  # 0 times an entry that has overflowed would be NaN
            out[absent] = _absent(block[absent], columns)
    return out


def _prepare_other(
    block: Block, dtype: Any, columns: Columns, root: Array | None, unit: float
) -> Block:
    """Return a dense block of another library than NumPy, prepared in a new array."""
    xp = namespace(block)
    ordinary = unit == 1.0 and dtype_name(block.dtype) in ORDINARY
    shift = columns.shift if ordinary else None
    if unit == 1.0 and columns.shift is not None and _is_far(block, columns.shift):
        out = whole_difference(block, columns.shift)
    elif shift is not None and shift.dtype == dtype:
        out = block - shift  # cast and subtracted at once: no second copy of the block
    else:
        out = xp.astype(block, dtype, copy=False)
        out = out * unit if unit != 1.0 else out
        out = out - columns.shift if columns.shift is not None else out
    out = out - columns.rest if columns.rest is not None else out
    out = out if columns.fill is None else xp.where(xp.isnan(out), columns.fill, out)
    out = out * columns.factor if columns.factor is not None else out
    if root is None:
        return out
    nothing = xp.astype(_absent(block, columns), dtype, copy=False)
    return xp.where(root[:, None] == 0, nothing, out * root[:, None])


def in_float32(prepared: Array) -> Array:
    """Return a dense block that was prepared in float64, rounded to float32."""
    if not is_numpy_array(prepared):
        xp = namespace(prepared)
        return xp.astype(prepared, xp.float32)
    out = _buffer(prepared.shape, np.dtype(np.float32))
    np.copyto(out, prepared, casting="unsafe")
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


def _is_far(block: Block, shift: Array) -> bool:
    """Whether 64-bit integers are so large that the shift must be subtracted before rounding."""
    if dtype_name(block.dtype) not in ("int64", "uint64"):
        return False
    xp = namespace(shift)
    return bool(xp.any(xp.abs(shift) > EXACT / 2))


def _prepare_sparse(
    block: Block, dtype: Any, columns: Columns, root: Array | None, unit: float
) -> Block:
    """Return a sparse block with the same pattern, its stored entries prepared."""
    xp = namespace(block)
    check_extended(block.data, "`X`")  # the mean of sparse data is subtracted after the products
    data = xp.astype(block.data, dtype, copy=False)
    if unit != 1.0:
        data = data * (np.dtype(dtype).type(unit) if is_numpy_array(data) else unit)
    few = _few_shifted(block, columns) if unit == 1.0 else None
    if few is not None:
        data = data.copy() if few and data is block.data else data
        for shift, where in few:
            data[where] -= shift
    elif any(value is not None for value in columns[:3]):
        column = places(block, 1)
        if columns.shift is not None:
            far, shift = unit == 1.0 and _is_far(block, columns.shift), columns.shift[column]
            data = whole_difference(block.data, shift) if far else data - shift
        data = data - columns.rest[column] if columns.rest is not None else data
        if columns.fill is not None:
            data = xp.where(xp.isnan(data), columns.fill[column], data)
        data = data * columns.factor[column] if columns.factor is not None else data
    if root is not None:
        here = root[places(block, 0)]
        data = xp.where(here == 0, _absent(block.data, columns), data * here)
        data = xp.astype(data, dtype, copy=False)
    prepared = copy(block)  # shallow: SciPy's constructor would copy the indices
    prepared.data = data
    return prepared


def _few_shifted(block: Block, columns: Columns) -> list[tuple[Any, np.ndarray]] | None:
    """Return the shifts of compressed rows, column by column, and where those entries are stored.

    None if they are many, or something else is to be done, or a row does not store them in order:
    then the shift of every entry is looked up, which costs a third of a product.
    """
    shift, fill, factor, *_ = columns
    if shift is None or fill is not None or factor is not None or is_device_sparse(block):
        return None
    shifted, whole = np.flatnonzero(shift), dtype_name(block.dtype) in ("int64", "uint64")
    if whole or shifted.size > FEW or block.format != "csr" or not block.shape[0]:
        return None
    found = []
    for column in shifted:
        # Bisection in all rows at the same time.
        low, high = block.indptr[:-1].copy(), block.indptr[1:] - 1
        while (low < high).any():
            middle = (low + high) // 2
            before = block.indices[middle] < column
            low, high = np.where(before, middle + 1, low), np.where(before, high, middle)
        if (high < low).any() or (block.indices[low] != column).any():
            return None
        found.append((shift[column], low))
    return found


def by_host(function: Any, block: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function that is needed once or rarely with a sparse block of a device on the host.

    Arrays, also those in tuples, and types are converted both ways.
    """
    xp, where = namespace(block), block.device

    def here(value: Any) -> Any:
        if isinstance(value, xp.dtype):
            return np.dtype(dtype_name(value))
        return to_numpy(value) if is_torch_array(value) else value

    def there(value: Any) -> Any:
        is_array = isinstance(value, (np.ndarray, np.generic))
        return xp.asarray(value, device=where) if is_array else value

    options = {name: _each(here, value) for name, value in options.items()}
    return _each(there, function(block.host, *_each(here, arguments), **options))


def _each(change: Any, value: Any) -> Any:
    """Apply a function to a value, or to every value in a tuple."""
    if not isinstance(value, tuple):
        return change(value)
    parts = [_each(change, part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def positions(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the column index, counted from 0, of each stored entry."""
    return places(block, 0), places(block, 1)


def places(block: Block, axis: int) -> Array:
    """Row index (axis 0) or column index (axis 1) of each stored entry, counted from 0."""
    if is_device_sparse(block):
        places: Array = block.spread(axis)
        return places
    if (block.format == "csr") == (axis == 1):
        indices: np.ndarray = block.indices
        return indices
    return np.repeat(np.arange(block.indptr.size - 1), np.diff(block.indptr))


def own_shift(
    block: Block, dtype: Any, columns: Columns, unit: float, root: Array | None
) -> Columns:
    """Return ``columns`` with the means of this block as the shift, as ``columns.own`` asks.

    Of large 64-bit integers, what rounding leaves out of the means is the rest.
    """
    if is_device_sparse(block):
        return Columns(*by_host(own_shift, block, dtype, columns, unit, root))
    if not is_sparse(block):
        means = stored_means(block, dtype, unit, root)
        far = unit == 1.0 and _is_far(block, means)
        rest = _rest(block, means, root) if far else None
        return columns._replace(shift=means, rest=rest, own=False)
    # Only columns that are stored in full: elsewhere the shift would make zeros non-zero.
    full = np.flatnonzero(stored_counts(block, root) == present_rows(block, root))
    shift, rest = np.zeros(block.shape[1], dtype), None
    if full.size:
        some = block[:, full]
        means = shift[full] = stored_means(some, dtype, unit, root)
        if unit == 1.0 and _is_far(some, means):
            rest = np.zeros_like(shift)
            rest[full] = _rest(some, means, root)
    return columns._replace(shift=shift, rest=rest, own=False)


def _rest(block: Block, means: Array, root: Array | None) -> Array:
    """Return what rounding leaves out of the means of large 64-bit integers."""
    if not is_sparse(block):
        return stored_means(whole_difference(block, means), means.dtype, 1.0, root)
    left = block.astype(np.float64)
    left.data = whole_difference(block.data, means[places(block, 1)])
    return stored_means(left, means.dtype, 1.0, root)


def is_near_zero(block: Block, dtype: Any) -> bool:
    """Whether the columns of a dense block are so near to zero that they need no shift.

    Rounding errors are relative to the squares about the shift, which may be up to five times
    those about the mean in float64, and twice in float32.  A subtraction takes up to a third of
    the time of a small covariance matrix.  Blocks that are sparse, or so small that looking takes
    longer, are not looked at.
    """
    if is_sparse(block) or block.shape[0] * block.shape[1] < LITTLE:
        return False
    kind = dtype_name(dtype)
    if not is_numpy_array(block) and (kind, work_dtype(block.dtype)) != ("float64", "float32"):
        return False  # on a GPU, looking would wait for it
    xp, (most, each) = namespace(block), NEAR[kind]
    some = xp.astype(block[:: max(1, block.shape[0] // NEAR_ROWS)], xp.float64)
    with np.errstate(all="ignore"):  # overflow and NaN fail the comparisons
        mean = weighted_sum(some, None) / some.shape[0]
        squares = mean * mean
        variances = xp.sum(some * some, axis=0) / some.shape[0] - squares
        near = xp.sum(squares) <= most * xp.sum(variances)
        return bool(near & xp.all((squares <= each * variances) & (squares < xp.inf)))


def present_rows(block: Block, root: Array | None) -> float:
    """Return the number of rows of positive weight in a block."""
    return float(block.shape[0]) if root is None else float((root > 0).sum())


def stored_counts(block: Block, root: Array | None) -> np.ndarray:
    """Return the number of stored entries ``(d,)`` per column, in rows of positive weight."""
    columns = places(block, 1)
    columns = columns if root is None else columns[root[places(block, 0)] > 0]
    return np.bincount(columns, minlength=block.shape[1])


def weighted_sum(a: Block, root: Array | None) -> Array:
    """Return the weighted sum of the rows, ``root^T A``, ``(d,)``."""
    if root is not None:
        # On a GPU, products of float32 may be in float64, and PyTorch does not mix the two.
        return a.T @ (namespace(a).astype(root, a.dtype, copy=False) if is_torch_array(a) else root)
    # For rows in cache, a product is three times as fast as a sum, and of smaller error.
    if is_numpy_array(a) or (is_sparse(a) and not is_device_sparse(a)):
        return a.T @ np.ones(a.shape[0], dtype=a.dtype)
    if is_sparse(a):
        return a.T @ namespace(a).ones(a.shape[0], dtype=a.dtype, device=a.device)
    return namespace(a).sum(a, axis=0)


def stored_means(block: Block, dtype: Any, unit: float = 1.0, root: Array | None = None) -> Array:
    """Return the weighted mean ``(d,)`` of the finite stored entries of each column.

    Columns without such entries have mean zero.  Rows of weight zero are ignored unless there are
    no others.  The mean of a constant column is exactly that constant, so that the shifted column
    is exactly zero.

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
    return namespace(means).astype(means, dtype)


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
    means = totals / np.where(counts > 0, counts, 1.0)
    means = np.where(np.isfinite(means), means, 0.0)  # as where a dense sum overflows
    some = means.copy()
    some[columns] = data
    # The rounded mean of a constant column may differ from the constant, as in dense blocks.
    differ = np.bincount(columns, data != some[columns], minlength=block.shape[1])
    same = (differ == 0) & (np.abs(means - some) <= 2.0**-40 * np.abs(some))
    return np.where(same, some, means)


def _dense_means(block: Block, unit: float, root: Array | None) -> Array:
    """Return the means of :func:`stored_means` for a dense block, in float64."""
    xp = namespace(block)
    wide = xp.astype(block, xp.float64, copy=False)
    wide = wide * unit if unit != 1.0 else wide
    weight = None if root is None else (xp.astype(root, xp.float64) / float(xp.max(root))) ** 2
    if weight is None:
        numpy = is_numpy_array(wide)  # other libraries round a mean in their own way
        means = weighted_sum(wide, None) / wide.shape[0] if numpy else xp.mean(wide, axis=0)
        some = wide[0, :]
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
        # Zero if the sum overflowed, so that non-finite results can only come from the data.
        means = xp.where(xp.isfinite(means), means, xp.zeros_like(means))
    # The rounded mean of a constant column may differ from the constant.  Comparing all entries
    # is expensive, so only columns whose mean is this near to one entry are compared.
    near = (xp.abs(means - some) <= 2.0**-40 * xp.abs(some)) & (means != some)
    if bool(near.any()):
        same = wide[:, near] == some[near]
        if there is not None:
            same = same | ~(there if there.shape[1] == 1 else there[:, near])
        means[near] = xp.where(xp.all(same, axis=0), some[near], means[near])
    return means


def check_whole_numbers(
    source: DataSource, mean: np.ndarray, scale: np.ndarray | None, variances: np.ndarray
) -> None:
    """Raise ValueError if float64 holds the mean of large integers too coarsely for scores.

    A fit subtracts the mean of 64-bit integers and what rounding has left out of it; a model holds
    the rounded mean alone.

    Parameters
    ----------
    source : DataSource
    mean, scale : ndarray of shape (d,)
    variances : ndarray of shape (k,)
    """
    if dtype_name(source.dtype) not in ("int64", "uint64"):
        return
    sizes = np.abs(mean.astype(np.float64))
    steps = np.where(sizes >= EXACT, np.spacing(sizes), 0.0)
    lost = float(np.linalg.norm(steps if scale is None else steps / scale))
    total = math.sqrt(float(variances.sum(dtype=np.float64)))
    if lost > COARSE * total > 0:
        j = int(steps.argmax())
        raise ValueError(
            f"Column {j} of `X` (counted from 0) has a mean of {mean[j]:.3g}, which float64 holds "
            f"in steps of {steps[j]:g}: scores would be as coarse. Subtract a whole number from "
            "the column before the fit."
        )
