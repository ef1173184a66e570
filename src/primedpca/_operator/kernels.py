"""Kernels: the named functions that an engine applies to one block at a time.

Each kernel calls ``prepare`` first, and then multiplies or sums the prepared block ``A``.
Throughout, ``a`` is the vector of the square roots of the row weights (``root`` in the code, all
ones if there are no weights), and ``axis`` is 0 for blocks of rows and 1 for blocks of columns.
"""

from __future__ import annotations

from copy import copy
from operator import add
from typing import Any

import numpy as np

from primedpca._core.arrays import device, is_device_sparse, is_numpy_array, is_sparse, namespace
from primedpca._core.process import in_threads
from primedpca._operator import gpu_products
from primedpca._operator.preparation import (
    Columns,
    by_host,
    in_float32,
    is_near_zero,
    own_shift,
    places,
    positions,
    prepare,
    present_rows,
    stored_counts,
    weighted_sum,
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

#: Largest prepared block in bytes that :func:`product` multiplies in one piece.
PREPARED_BYTES = 3 * 2**21
#: Multiplications up to which BLAS is three times as fast at products with a few columns.
FAST = 900_000
#: Multiplications of a matrix from which two threads share those of an only block.
SHARED = 2**27
#: Columns from which sorting a sparse block by its columns pays in :func:`adjoint`.
MANY = 48
#: Range in which the sum of squares of a column neither overflows nor underflows in any dtype.
ORDINARY = (2.0**-20, 2.0**50)


def stored(block: Block) -> Parts:
    """Return the block unchanged, for callers that hold rows in memory."""
    return Parts((), (block,))


def _row_squares(a: Block) -> Array:
    """Squared norms of the rows, ``(n,)`` in float64."""
    if is_sparse(a):
        return np.asarray(a.multiply(a).sum(axis=1), dtype=np.float64).ravel()
    xp = namespace(a)
    if str(device(a)) == "cpu":
        return xp.astype(xp.vecdot(a, a), xp.float64)
    return xp.astype(xp.linalg.vector_norm(a, axis=1), xp.float64) ** 2  # no copy of the squares


def _squares_about(a: Block, root: Array | None, offset: Array | None) -> Array:
    """Squared norms of the rows of ``A - a offset^T``, ``(n,)``.

    In a sparse block, each stored entry is shifted by the offset, and each entry that is not
    stored contributes the square of the offset.  The second sum is computed as the sum over all
    columns minus the sum over the stored entries.  Columns that are stored in every row are left
    out of both sums, so that the square of a large mean does not cancel.
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
    return np.maximum(whole, 0.0)  # rounding may make the difference slightly negative


def _with_statistics(
    found: Parts,
    a: Block,
    root: Array | None,
    axis: int,
    columns: Columns | None = None,
    square: Array | None = None,
) -> Parts:
    """Append to a kernel's results what the first pass collects: sums of squares and of columns.

    A block of columns also returns the shift that it computed from its own entries, and the rest of
    the shift.  The trace of ``square``, ``A^T A`` or ``A A^T``, is the sum of all squares.
    """
    if square is None and root is None and gpu_products.sums(a):
        norm, sums = gpu_products.statistics(a)
        return _of_first_pass(found, norm, sums, axis, columns)
    sums = weighted_sum(a, root)
    if square is not None and square.dtype == a.dtype:
        norm = square.diagonal().sum(dtype=namespace(square).float64)
    elif is_sparse(a):
        # NumPy would otherwise sum float32 entries in float32.
        norm = namespace(a).sum(a.data * a.data, dtype=namespace(a).float64)
    else:
        # Row by row first: short sums in the dtype of the block, then one long sum in float64.
        norm = namespace(a).sum(_row_squares(a))
    return _of_first_pass(found, norm, sums, axis, columns)


def _of_first_pass(
    found: Parts, norm: Array, sums: Array, axis: int, columns: Columns | None
) -> Parts:
    """Append the sum of squares, the sums of columns and, of columns, their shift and its rest."""
    if axis == 0:
        return Parts((*found.sums, norm, sums), found.stacks)
    columns = Columns() if columns is None else columns
    shift = _or_zeros(columns.shift, sums)
    return Parts((*found.sums, norm), (*found.stacks, sums, shift, _or_zeros(columns.rest, shift)))


def _or_zeros(vector: Array | None, like: Array) -> Array:
    """Return the vector, or zeros like another one in its place."""
    return namespace(like).zeros_like(like) if vector is None else vector


def _ready(
    block: Block,
    vectors: Array,
    columns: Columns,
    root: Array | None,
    unit: float,
    copied: bool = False,
) -> Block:
    """Return the prepared block, or the block itself if a GPU multiplies it as it is stored."""
    plain = root is None and unit == 1.0 and columns.idle and not copied
    if plain and gpu_products.serves(block, vectors):
        return block
    return prepare(block, vectors.dtype, columns, root, unit)


def _forward(a: Block, vectors: Array) -> Array:
    """Return ``A V`` of a block that :func:`_ready` has returned."""
    return gpu_products.forward(a, vectors) if gpu_products.serves(a, vectors) else a @ vectors


def _adjoint(a: Block, y: Array) -> Array:
    """Return ``A^T Y`` of a block that :func:`_ready` has returned."""
    return gpu_products.adjoint(a, y) if gpu_products.serves(a, y) else a.T @ y


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
    """Return ``A^T Y`` and ``a^T Y`` for ``Y = A V - a lift^T``, of a block of rows.

    Both products are made while ``A`` is in cache, so the block is read from memory once.  With
    ``inside``, return ``Y^T Y``, the covariance inside the span of ``V``, instead of ``A^T Y``.
    """
    size = block.shape[0] * block.shape[1] * getattr(vectors.dtype, "itemsize", 8)
    if is_numpy_array(block) and block.shape[0] >= 64 and size > PREPARED_BYTES:
        # float32 data multiplied in float64 take twice the cache: use half the rows at a time.
        options: Any = {"vectors": vectors, "lift": lift, "columns": columns, "unit": unit}
        options |= {"gather": gather, "inside": inside}
        half = block.shape[0] // 2
        roots = (None, None) if root is None else (root[:half], root[half:])
        first = product(block[:half], root=roots[0], **options)
        second = product(block[half:], root=roots[1], **options)
        return Parts(tuple(map(add, first.sums, second.sums)))
    a = _ready(block, vectors, columns, root, unit, inside)
    y = _forward(a, vectors)
    if lift is not None:
        y = y - (lift if root is None else root[:, None] * lift)
    found = Parts((y.T @ y if inside else _adjoint(a, y), weighted_sum(y, root)))
    if not gather:
        return found
    return _with_statistics(found, a, root, 0)


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
    """Return ``A V``: the rows of a block of rows, or the summand from a block of columns.

    With ``squares``, also return the squared norms of the rows of ``A - a offset^T``.
    """
    if squares and is_device_sparse(block):
        options: Any = {"vectors": vectors, "columns": columns, "root": root, "unit": unit}
        options |= {"axis": axis, "gather": gather, "squares": True, "offset": offset}
        return Parts(*by_host(forward, block, **options))
    if columns.own:
        columns = own_shift(block, vectors.dtype, columns, unit, root)
    a = _ready(block, vectors, columns, root, unit, squares)
    y = _forward(a, vectors)
    rows = (y, _squares_about(a, root, offset)) if squares else (y,)
    found = Parts((), rows) if axis == 0 else Parts(rows)
    return _with_statistics(found, a, root, axis, columns) if gather else found


def adjoint(
    block: Block, *, left: Array, columns: Columns, root: Array | None, unit: float, axis: int
) -> Parts:
    """Return ``A^T U``: the summand from a block of rows, or the rows of a block of columns."""
    a = _ready(block, left, columns, root, unit)
    if is_sparse(a) and left.shape[1] >= MANY:
        # Sorted by columns, the product writes one row after the other.  SciPy's product with a
        # transposed matrix jumps between rows, which soon do not fit into the cache.
        a = a.tocsc()
    z = _adjoint(a, left)
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
    """Return ``A Z - a (offset^T Z)`` for ``Z = A^T U - offset lift^T``, of a block of columns.

    ``lift`` is ``a^T U``.  Both corrections together subtract the mean from ``A`` on each side.
    """
    a = _ready(block, left, columns, root, unit)
    z = _adjoint(a, left)
    if offset is not None:
        z -= offset[:, None] * lift
    z = namespace(z).astype(z, left.dtype, copy=False)
    y = _forward(a, z)
    if offset is None:
        return Parts((y,))
    lift = offset @ z
    return Parts((y - (lift if root is None else root[:, None] * lift),))


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
    checks: Array | None = None,
    rounded: bool = False,
    alone: bool = False,
) -> Parts:
    """Return ``A^T A`` of a block of rows, or the Gram matrix ``A A^T`` of a block of columns.

    With ``checks``, return its product with the checks as well, made in the arithmetic of ``A``.
    With ``rounded``, multiply the matrix itself in float32; with ``alone``, in two threads.
    """
    sparse = is_sparse(block)
    if sparse and is_device_sparse(block):
        options: Any = {"dtype": dtype, "columns": columns, "root": root, "unit": unit}
        options |= {"axis": axis, "gather": gather, "checks": checks, "rounded": rounded}
        return Parts(*by_host(covariance, block, **options))
    plain = root is None and unit == 1.0
    own = axis == 1 and gather and columns.own and plain and columns.factor is None
    if own and checks is None and gpu_products.counts(block):
        square, sums, shift = gpu_products.counted_square(block)
        norm = namespace(square).linalg.trace(square)
        one = namespace(sums).ones_like(sums)
        return Parts((square, norm), (sums, shift * one, 0 * one))
    if columns.own:
        if is_near_zero(block, dtype):
            columns = columns._replace(own=False)
        else:
            columns = own_shift(block, dtype, columns, unit, root)
    # A sparse product adds one entry after the other, so rounding errors grow with the length
    # of the sum.  Float64 keeps them small.
    a = prepare(block, np.float64 if sparse else dtype, columns, root, unit)
    some = a
    if rounded and plain and columns.idle and is_numpy_array(block):
        some = prepare(block, np.float32, columns)  # as it was before the cast to float64
    elif rounded:
        some = in_float32(a)
    some = some if axis == 0 else some.T
    shared = alone and is_numpy_array(some) and some.shape[0] * some.shape[1] ** 2 > SHARED
    square = _in_three(some) if shared else some.T @ some
    square = square.toarray() if sparse else square
    product = () if checks is None else (_times_square(a if axis == 0 else a.T, checks),)
    found = Parts((square, *product))
    return _with_statistics(found, a, root, axis, columns, square) if gather else found


def _in_three(a: Array) -> Array:
    """Return ``A^T A`` of the only block: two threads share its three parts, half of the work each.

    The parts, and so the bits, are the same on any number of threads.
    """
    half = a.shape[1] // 2
    out = np.empty((a.shape[1], a.shape[1]), a.dtype)

    def part(which: int) -> None:
        with np.errstate(all="ignore"):  # set per thread; what is not finite is found later
            if which:
                np.matmul(a[:, :half].T, a[:, half:], out=out[:half, half:])
                out[half:, :half] = out[:half, half:].T
            else:
                out[:half, :half] = a[:, :half].T @ a[:, :half]
                out[half:, half:] = a[:, half:].T @ a[:, half:]

    in_threads(part, (0, 1))
    return out


def _times_square(a: Array, vectors: Array) -> Array:
    """Return ``A^T A V`` for a few vectors, by products that are small enough to be fast."""
    step = FAST // (vectors.shape[0] * vectors.shape[1])
    if not is_numpy_array(a) or step < 32:
        return a.T @ (a @ vectors)
    total = np.zeros_like(vectors)
    for i in range(0, a.shape[0], step):
        total += a[i : i + step].T @ (a[i : i + step] @ vectors)
    return total


def moments(
    block: Block, *, dtype: Any, columns: Columns, root: Array | None, unit: float, axis: int
) -> Parts:
    """Return six arrays ``(d,)`` of statistics of the columns, relative to the shift.

    In this order: the weight of the values that are present, their weighted sum, their weighted
    sum of squares, the number of entries stored in rows of positive weight, the number of missing
    values, and the unweighted sum of the distances from the shift.  The distances are summed only
    where the squares may have overflowed or underflowed, and are zero elsewhere.  Entries that a
    sparse block does not store are zeros that are present.  A block of columns also returns the
    shift that it computed from its own entries, and the rest of the shift.
    """
    there = is_device_sparse(block)
    if there and (root is not None or columns.own):
        options: Any = {"dtype": dtype, "columns": columns, "root": root, "unit": unit}
        return Parts(*by_host(moments, block, axis=axis, **options))
    if columns.own:
        columns = own_shift(block, dtype, columns, unit, root)
    shift = columns.shift
    a = prepare(block, dtype, columns._replace(fill=None), None, unit)
    of_kind = _sparse_moments if is_sparse(block) else _dense_moments
    *parts, reach = (_moments_there if there else of_kind)(a, root, shift, columns)
    if root is not None and not _is_finite(block):
        # The sums leave out rows of weight zero, but infinity is an error in them, too.
        reach = reach + np.inf
    if axis == 0:
        return Parts((*parts, reach))
    return Parts((), (*parts, reach, shift, _or_zeros(columns.rest, shift)))


def _is_finite(block: Block) -> bool:
    """Whether a block has no infinite entry; NaN is a missing value."""
    raw = block.data if is_sparse(block) else block
    xp = namespace(raw)
    return not xp.isdtype(raw.dtype, "real floating") or not bool(xp.any(xp.isinf(raw)))


def _dense_moments(
    a: Array, root: Array | None, shift: Array, columns: Columns
) -> tuple[Array, ...]:
    """Return the arrays of :func:`moments` for a dense block."""
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
        # Not by multiplying with the weight: 0 times an overflowed square would be NaN.
        a = xp.where(present, a, xp.zeros_like(a))
    weighted, rooted = xp.astype(present, a.dtype).T @ (root * root), a * root[:, None]
    squares = xp.vecdot(rooted, rooted, axis=0)
    return weighted, rooted.T @ root, squares, *counts, _reach(a, squares)


def _reach(a: Array, squares: Array) -> Array:
    """Sum of the distances from the shift, ``(d,)``; zero where the squares are in range."""
    xp = namespace(a)
    ordinary = (squares >= ORDINARY[0]) & (squares <= ORDINARY[1])
    if bool(xp.all(ordinary)):
        return xp.zeros_like(xp.astype(squares, xp.float64))
    # Magnitudes, not squares: they overflow and underflow much later.
    distances = xp.sum(xp.abs(xp.astype(a, xp.float64, copy=False)), axis=0)
    return xp.where(ordinary, xp.zeros_like(distances), distances)


def _sparse_moments(
    a: Block, root: Array | None, shift: Array, given: Columns
) -> tuple[np.ndarray, ...]:
    """Return the arrays of :func:`moments` for a sparse block."""
    rows, columns = None if root is None else places(a, 0), places(a, 1).astype(np.intp)
    missing = np.isnan(a.data)
    known = not missing.any()
    data = (a.data if known else np.where(missing, 0, a.data)).astype(np.float64)
    data = data if root is None else np.where(root[rows] > 0, data, 0.0)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(columns, weights=values, minlength=a.shape[1])

    stored = stored_counts(a, root).astype(np.float64)
    zeros = a.shape[0] - stored if root is None else _weight_of_zeros(a, root)
    shift = shift.astype(np.float64)
    shift = shift if given.factor is None else shift * given.factor
    # Without weights, the sums of weights are counts; and counts or logarithms are not negative.
    weights, sums, rooted = stored, total(data), data
    sizes = sums if not data.size or data.min() >= 0 else total(np.abs(data))
    if root is not None:
        roots = root[rows].astype(np.float64)
        w, rooted = roots**2, data * roots
        weights, sums = total(w * ~missing), total(w * data)
    elif not known:
        weights = stored - total(missing.astype(np.float64))
    # An entry that is not stored is zero, so it lies at minus the shift.  Its weight enters the
    # squares as a root, because the square of the shift alone might underflow or overflow.
    return (
        zeros + weights,
        sums - zeros * shift,
        total(rooted * rooted) + (np.sqrt(zeros) * shift) ** 2,
        stored,
        np.zeros(a.shape[1]) if known else total(missing.astype(np.float64)),
        sizes + np.abs(shift) * (present_rows(a, root) - stored),
    )


def _moments_there(a: Block, root: None, shift: Array, given: Columns) -> tuple[Array, ...]:
    """Return the arrays of :func:`moments` for a sparse block on a GPU, without weights."""
    xp, n = namespace(a), a.shape[0]
    data = xp.astype(a.data, xp.float64)
    missing = xp.isnan(data)
    data = xp.where(missing, xp.zeros_like(data), data)
    summed, ones = copy(a), xp.ones(n, dtype=xp.float64, device=a.device)

    def total(values: Array) -> Array:
        summed.data = values
        return summed.T @ ones

    stored, absent = total(xp.ones_like(data)), total(xp.astype(missing, xp.float64))
    shift = xp.astype(shift, xp.float64)
    shift = shift if given.factor is None else shift * given.factor
    zeros = n - stored
    return (
        n - absent,
        total(data) - zeros * shift,
        total(data * data) + (xp.sqrt(zeros) * shift) ** 2,
        stored,
        absent,
        total(xp.abs(data)) + xp.abs(shift) * zeros,
    )


def _weight_of_zeros(a: Block, root: Array) -> np.ndarray:
    """Total weight ``(d,)`` of the rows in which a sparse block stores no entry of a column.

    This is the weight of all rows minus the weight of the rows that are stored.  One large weight
    would make this difference cancel.  So rows are grouped by the size of their weight, within a
    factor of 16, and the difference is taken in each group.  It is exactly 0 in a group whose
    rows are all stored.
    """
    (rows, columns), d = positions(a), a.shape[1]
    found: np.ndarray
    weight = root.astype(np.float64) ** 2
    # Four binary exponents to a group: weights in one group differ by less than 2^4.
    _, kind = np.unique(np.frexp(weight)[1] // 4, return_inverse=True)
    kinds = int(kind.max(initial=0)) + 1
    place = kind[rows] * d + columns
    count = np.bincount(place, minlength=kinds * d).reshape(kinds, d)
    stored = np.bincount(place, weight[rows], minlength=kinds * d).reshape(kinds, d)
    whole = np.bincount(kind, weight, minlength=kinds)[:, None]
    # Rounding may make a difference slightly negative.
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
    """Return the number of non-finite values, and the largest magnitudes, stored and prepared.

    With ``missing``, NaN is a missing value and not counted.  Both magnitudes are those of the
    whole block, repeated for each of its rows (axis 0) or columns (axis 1).
    """
    if is_device_sparse(block):
        options: Any = {"dtype": dtype, "columns": columns, "root": root, "unit": unit}
        return Parts(*by_host(extent, block, missing=missing, axis=axis, **options))
    if columns.own:
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
    """Largest magnitude of the finite entries; 0 if there are none."""
    if 0 in values.shape:
        return 0.0
    xp = namespace(values)
    sizes = xp.abs(values)
    return float(xp.max(xp.where(xp.isfinite(sizes), sizes, xp.zeros_like(sizes))))
