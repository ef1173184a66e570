"""Orthonormal bases of tall matrices: rank, completion, Gram-Schmidt; and the rule for signs."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise, starmap
from typing import Any

import numpy as np

from primedpca._core.arrays import (
    Array,
    Like,
    device,
    dtype_name,
    is_numpy_array,
    is_torch_array,
    namespace,
    to_numpy,
)
from primedpca._core.process import in_threads, one_blas_thread

__all__ = [
    "as_components",
    "basis_of",
    "centred_product",
    "combine",
    "complete",
    "continued",
    "draw",
    "inner_products",
    "multiplied",
    "orthonormalise",
    "random_basis",
    "side_by_side",
    "small_eigh",
    "smallest",
    "triangle",
]

SLICE_ENTRIES = 2**17  # of rows that are centred and multiplied while they are in cache
FAST = 900_000  # multiplications up to which BLAS makes a product without copying its factors
LARGE = 192  # order from which a GPU decomposes a matrix faster than a processor
WORTH_THREADS = 2**25  # multiplications, some milliseconds: below, waking threads costs more


def unit_columns(directions: Array) -> Array:
    """Return the columns at unit length, without zero columns.

    Each column is first divided by its largest entry, so that the squares of 1e300 and 1e-300
    neither overflow nor underflow.
    """
    xp = namespace(directions)
    peak = xp.max(xp.abs(directions), axis=0)
    if not bool(xp.all(peak > 0)):
        directions, peak = directions[:, peak > 0], peak[peak > 0]
    if is_numpy_array(directions):
        directions = np.ascontiguousarray(directions)  # the memory layout affects the bits
    directions = directions / peak
    # The norm of the quotients: dividing by a subnormal peak need not leave entries near 1.
    return directions / xp.linalg.vector_norm(directions, axis=0)


def basis_of(directions: Array) -> Array:
    """Return an orthonormal basis of the span of ``directions``, of their numerical rank.

    Parameters
    ----------
    directions : array of shape (d, q)
        Finite; columns may be linearly dependent, zero, tiny or huge.

    Returns
    -------
    array of shape (d, r)
        ``r`` is the number of singular values of the normalised columns above rounding.
        If all columns are independent, the first j columns span the first j directions.
    """
    xp = namespace(directions)
    columns = unit_columns(directions)
    if columns.shape[1] == 0:
        return columns
    q, r = orthonormalise(columns)
    # The diagonal of R does not reveal the rank; the singular values of R do.
    left, values, _ = np.linalg.svd(r.astype(np.float64))
    floor = 8 * math.sqrt(columns.shape[1]) * float(xp.finfo(columns.dtype).eps)
    keep = left[:, values > floor * values[0]]
    if keep.shape[1] == columns.shape[1]:
        return q
    return q @ xp.asarray(keep, dtype=q.dtype, device=q.device)


def random_basis(like: Like, n_directions: int, seed: Any, start: Array | None = None) -> Array:
    """Return a random orthonormal basis ``(d, p)``.

    Parameters
    ----------
    like : Like
        Library, device, dtype and ``d`` of the basis.
    n_directions : int
        Number of columns, ``p``.
    seed : int or sequence of int
        Seed of the random numbers.
    start : array of shape (d, q) or None, default=None
        Directions that the first columns span.

    Returns
    -------
    array of shape (d, p)
    """
    known = like.asarray(np.empty((like.n_features, 0)))
    if start is not None:
        known = basis_of(like.asarray(start))[:, :n_directions]
    return complete(known, like, n_directions, seed)


def draw(like: Like, n_directions: int, seed: Any, there: bool = False) -> Array:
    """Draw random Gaussian directions ``(d, p)``, not orthonormal.

    With ``there``, PyTorch draws them on its device: other numbers than NumPy's, and no transfer.
    """
    if there:
        import torch

        made = torch.Generator(like.device)
        made.manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1))
        size, kind = (like.n_features, n_directions), like.dtype
        return torch.randn(size, generator=made, dtype=kind, device=like.device)
    kind, rng = np.dtype(dtype_name(like.dtype)), np.random.default_rng(seed)
    return like.asarray(rng.standard_normal((like.n_features, n_directions), dtype=kind))


def complete(basis: Array, like: Like, n_directions: int, seed: Any) -> Array:
    """Append random orthonormal columns to ``basis`` until there are ``n_directions``."""
    missing = n_directions - basis.shape[1]
    if missing <= 0:
        return basis
    fresh = draw(like, missing, seed)
    if basis.shape[1] == 0:
        return orthonormalise(fresh)[0]
    for _ in range(2):  # Gram-Schmidt twice leaves no more than rounding along the basis
        fresh -= basis @ (basis.T @ fresh)
        fresh = orthonormalise(fresh)[0]
    return like.xp.concat([basis, fresh], axis=1)


def as_components(basis: Array) -> Array:
    """Return the columns of ``basis`` as rows ``(k, d)`` with their signs fixed.

    The loading of largest absolute value in each component is positive, as in scikit-learn since
    version 1.5.  Only one copy is made, because a basis may take gigabytes.
    """
    xp = namespace(basis)
    if is_numpy_array(basis):
        components = np.array(basis.T, order="C")
    else:
        components = xp.empty(basis.T.shape, dtype=basis.dtype, device=device(basis))
        components[...] = basis.T
    if 0 in components.shape:
        return components
    largest, least = xp.max(components, axis=1), -xp.min(components, axis=1)
    down, tied = least > largest, least == largest
    if bool(tied.any()):
        # Of two loadings of the same size the first counts, as numpy.argmax of the sizes has it.
        first = xp.argmin(components, axis=1) < xp.argmax(components, axis=1)
        down = down | (tied & first)
    components *= xp.where(down, -1.0, 1.0)[:, None]
    return components


def orthonormalise(a: Array, times: int = 2, triangle: bool = True) -> tuple[Array, Array]:
    """QR decomposition of a tall matrix by repeated Cholesky QR.

    The Gram matrix is formed in float64.  Products of tall matrices are faster than the many small
    steps of Householder's method and need little memory: a few rows at a time, in place.  Columns
    that are too nearly dependent for this go to LAPACK.

    Parameters
    ----------
    a : array of shape (d, p)
        May be overwritten.
    times : int, default=2
        Maximum number of Cholesky QR steps.  One suffices for columns that are nearly orthonormal
        or are orthonormalised again later, and where errors of float32 do not matter.
    triangle : bool, default=True
        Whether the small factor must be upper triangular.

    Returns
    -------
    q : array of shape (d, p)
        Orthonormal columns.
    r : ndarray of shape (p, p)
        ``a = q r``.  With ``triangle`` its diagonal is not negative and the error of the product
        is up to 1e5 ulps, the largest inverse of a triangle that is accepted; without, the error
        is a few ulps.
    """
    xp = namespace(a)
    done: np.ndarray | None = None
    for _ in range(times):
        step = _gram_step(a, triangle)
        if step is None:
            q, r = xp.linalg.qr(a)
            sign = xp.astype(xp.where(xp.linalg.diagonal(r) < 0, -1, 1), a.dtype)
            q, r = q * sign, to_numpy(r * sign[:, None])
            return q, r if done is None else r @ done
        upper, skew = step
        done = upper if done is None else upper @ done
        if skew <= float(xp.finfo(a.dtype).eps):  # as orthonormal as the dtype can show
            break
    return a, done


def continued(
    z: Array, basis: tuple[Array, ...], near: range | tuple[int, ...]
) -> tuple[Array, np.ndarray, np.ndarray]:
    """Split ``z = V H + Q B`` with orthonormal ``Q`` that is orthogonal to the basis ``V``.

    Parameters
    ----------
    z : array of shape (d, w)
        Overwritten.
    basis : tuple of arrays of shape (d, w_i)
        Blocks of ``V``.
    near : range or tuple of int
        Indices of the blocks along which ``z`` has more than rounding.  The projection onto the
        other blocks is subtracted once, after ``z`` has been normalised: only then is the
        rounding along them large enough to be measured.

    Returns
    -------
    Q : array of shape (d, <= w)
        Narrower than ``z`` where the rest of ``z`` is rounding.
    H : ndarray of shape (m, w)
    B : ndarray of shape (<= w, w)
    """
    xp = namespace(z)
    edges = _edges(basis)
    held = np.zeros((edges[-1], z.shape[1]))

    def take_out(x: Array, which: range | tuple[int, ...], factor: np.ndarray | None) -> None:
        parts: list[Array] = []
        rows: list[int] = []
        for i in which:
            parts.append(basis[i].T @ x)
            x -= basis[i] @ parts[-1]
            rows += range(edges[i], edges[i + 1])
        if not parts:
            return
        # One transfer for all: on a GPU each transfer to the host costs as much as the products.
        small = to_numpy(xp.concat(parts, axis=0)).astype(np.float64)
        held[rows] += small if factor is None else small @ factor

    take_out(z, near, None)
    eps = float(xp.finfo(z.dtype).eps)
    size = np.sqrt(np.linalg.eigvalsh(held.T @ held)[-1])
    newest, coupling = _above(32 * eps * float(size), z)
    take_out(newest, range(len(basis)), coupling)
    # A direction that loses half of its length here was rounding, most of it along the basis.
    newest, upper = _above(0.5, newest)
    return newest, held, upper @ coupling


def _above(floor: float, z: Array) -> tuple[Array, np.ndarray]:
    """Split ``z = Q B``, ``Q`` nearly orthonormal, without directions shorter than ``floor``."""
    xp = namespace(z)
    q, upper = orthonormalise(z, times=1, triangle=False)
    upper = upper.astype(np.float64)
    if smallest(upper) > floor:
        return q, upper
    left, sizes, right = np.linalg.svd(upper)
    kept = int(np.sum(sizes > floor))
    if kept == sizes.size:
        return q, upper
    turn = xp.asarray(left[:, :kept], dtype=q.dtype, device=device(q))
    return q @ turn, sizes[:kept, None] * right[:kept]


def smallest(square: np.ndarray) -> float:
    """Return a lower bound on the smallest singular value, usually close to it."""
    apart = float(np.linalg.norm(square.T @ square - np.eye(square.shape[1])))
    if apart < 0.5:  # nearly orthonormal
        return math.sqrt(1 - apart)
    try:
        return 1.0 / float(np.linalg.norm(np.linalg.inv(square)))
    except (np.linalg.LinAlgError, ZeroDivisionError):
        return 0.0


def _gram_step(a: Array, triangle: bool) -> tuple[np.ndarray, float] | None:
    """Make the columns nearly orthonormal in place.

    Returns
    -------
    tuple of ndarray of shape (p, p) and float, or None
        The small factor, and a bound on the departure from orthonormality that the rounding of
        the Gram matrix causes: ``|R^-1|^2`` times an error of ``d`` ulps in every entry.
        ``None`` if the columns are nearly dependent; ``a`` is then unchanged.
    """
    xp = namespace(a)
    if a.shape[1] == 0 or a.shape[0] < a.shape[1]:
        return None

    def square(rows: slice) -> np.ndarray:
        wide = xp.astype(a[rows], xp.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            return to_numpy(wide.T @ wide)

    gram = sum(_over_rows(a, a.shape[1], square), np.zeros((a.shape[1], a.shape[1])))
    size = np.sqrt(np.diag(gram))
    if not (np.isfinite(size).all() and (size > 0).all()):
        return None
    # Scaled to unit columns first: lengths of different size would look like dependence.
    factors = _factors(gram / size / size[:, None], triangle)
    if factors is None:
        return None
    skew = float(np.sum(factors[1] ** 2)) * a.shape[1] * a.shape[0] * 2.0**-53
    factor, inverse = factors[0] * size, factors[1] / size[:, None]
    inverse = xp.asarray(inverse, device=device(a))

    def turn(rows: slice) -> None:
        a[rows] = xp.astype(xp.astype(a[rows], xp.float64, copy=False) @ inverse, a.dtype)

    _over_rows(a, a.shape[1], turn)
    return factor, skew


def _factors(gram: np.ndarray, triangle: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """Return ``F`` with ``F^T F = gram`` and its inverse, or ``None`` near dependence.

    ``F`` is upper triangular, or ``L^(1/2) R^T`` from ``gram = R L R^T``.  Then the product of the
    absolute values of ``F^T`` and ``F`` is entry by entry at most ``|R| |R|^T``, so that rounding
    errors of small directions stay small in the product ``Q B``.
    """
    if triangle:
        try:
            upper = np.linalg.cholesky(gram).T
            inverse = np.linalg.inv(upper)
        except np.linalg.LinAlgError:
            return None
        # The inverse shows near dependence, which the diagonal of a triangle can hide.
        return (upper, inverse) if np.abs(inverse).max() <= 1e5 else None
    values, turn = np.linalg.eigh(gram)
    if not values[0] > 1e-10 * values[-1]:
        return None
    roots = np.sqrt(values)
    return roots[:, None] * turn.T, turn / roots


def side_by_side(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return tensors that are neighbouring columns of one as one block, others unchanged.

    On a GPU every product has the price of a launch, however small it is.
    """
    first = blocks[0]
    base = first._base if len(blocks) > 1 else None
    if base is None:
        return blocks
    start = end = first.storage_offset() - base.storage_offset()
    for block in blocks:
        beside = block._base is base and block.storage_offset() - base.storage_offset() == end
        if not beside or block.stride() != base.stride():
            return blocks
        end += block.shape[1]
    return (base[:, start:end],)


def combine(blocks: tuple[Array, ...], turn: np.ndarray, like: Like) -> Array:
    """Return ``V turn``, ``(d, p)`` in the dtype of ``like``, from the blocks of ``V``."""
    blocks, parts = side_by_side(blocks) if is_torch_array(blocks[0]) else blocks, []
    for first, last in pairwise(_edges(blocks)):
        parts.append(like.asarray(np.ascontiguousarray(turn[first:last])))
    xp, shape = like.xp, (blocks[0].shape[0], turn.shape[1])
    out = xp.empty(shape, dtype=like.dtype, device=device(blocks[0]))

    def some(rows: slice) -> None:
        total = xp.astype(blocks[0][rows], like.dtype, copy=False) @ parts[0]
        for block, part in zip(blocks[1:], parts[1:], strict=True):
            total += xp.astype(block[rows], like.dtype, copy=False) @ part
        out[rows] = total

    _over_rows(out, turn.shape[0], some)
    return out


def multiplied(square: Array, vectors: Array) -> Array:
    """Return ``S V``, ``(m, p)``, for a square matrix; the bits do not depend on threads."""
    xp, (m, p) = namespace(square), vectors.shape
    if not is_numpy_array(square):
        return square @ vectors
    out = xp.empty((m, p), dtype=vectors.dtype)
    step = max(1, FAST // (m * max(p, 1)))
    each = step * max(1, 2**18 // (m * step))  # some 2 MB of the matrix for a thread

    def some(rows: slice) -> None:
        for i in range(rows.start, rows.stop, step):
            stop = min(i + step, rows.stop)
            np.matmul(square[i:stop], vectors, out=out[i:stop])

    slices = [slice(i, min(i + each, m)) for i in range(0, m, each)]
    if m * m * p > WORTH_THREADS // 2:
        in_threads(some, slices)
    else:
        some(slice(0, m))
    return out


def inner_products(blocks: tuple[Array, ...], side: Array) -> np.ndarray:
    """Return ``V^T X``, ``(m, p)`` in float64 on the host, from the blocks of ``V``."""
    xp, blocks = namespace(side), side_by_side(blocks) if is_torch_array(side) else blocks

    def some(rows: slice) -> Array:
        wide = xp.astype(side[rows], xp.float64, copy=False)
        parts = []
        for block in blocks:
            parts.append(xp.astype(block[rows], xp.float64, copy=False).T @ wide)
        return xp.concat(parts, axis=0)

    return to_numpy(sum(_over_rows(side, _edges(blocks)[-1], some)))


def centred_product(
    x: np.ndarray, mean: np.ndarray, scale: np.ndarray | None, vectors: np.ndarray
) -> np.ndarray:
    """Return ``((x - mean) / scale) vectors``, ``(n, k)``, of few rows at a time.

    The slices, which determine the bits, depend on the shape alone.
    """
    found = np.empty((x.shape[0], vectors.shape[1]), dtype=x.dtype)

    def work(rows: slice) -> None:
        with np.errstate(all="ignore"):
            shifted = x[rows] - mean
            if scale is not None:
                shifted /= scale
            np.matmul(shifted, vectors, out=found[rows])

    step = max(1, SLICE_ENTRIES // x.shape[1])
    rows = [slice(a, a + step) for a in range(0, x.shape[0], step)]
    with one_blas_thread:
        in_threads(work, rows)
    return found


def _edges(blocks: tuple[Array, ...]) -> list[int]:
    """Return the columns at which the blocks of a basis begin, and the number of all columns."""
    edges = [0]
    for block in blocks:
        edges.append(edges[-1] + block.shape[1])
    return edges


def _over_rows(a: Array, width: int, work: Callable[[slice], Any]) -> list[Any]:
    """Apply ``work`` to slices of the rows of ``a``, nearly equal in size; return the results.

    A slice is about a megabyte, so that it stays in cache; on an accelerator it is all rows.
    ``work`` multiplies a row with a matrix of ``width`` rows or columns.  Threads share the slices
    if there is enough work; the slices, and so the bits, do not depend on it.
    """
    step = a.shape[0] if str(device(a)) != "cpu" else max(1, 2**17 // max(a.shape[1], 1))
    pieces = max(1, -(-a.shape[0] // max(step, 1)))
    edges = (a.shape[0] * np.arange(pieces + 1) // pieces).tolist()
    rows = list(starmap(slice, pairwise(edges)))
    if is_numpy_array(a) and a.shape[0] * a.shape[1] * width > WORTH_THREADS:
        return in_threads(work, rows)
    return list(map(work, rows))


def triangle(columns: Array) -> np.ndarray:
    """Return ``R`` of tall columns ``Q R``, on the host: it has the lengths of all combinations."""
    if not is_torch_array(columns):
        return np.asarray(np.linalg.qr(to_numpy(columns), mode="r"))
    import torch

    return to_numpy(torch.linalg.qr(columns, mode="r")[1])


def small_eigh(
    matrix: np.ndarray, few: int | None = None, there: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues in descending order, negative ones as 0, and eigenvectors.

    Computed in float64 on the host: for a matrix of order ``p``, launching kernels on a GPU would
    cost more than the work.  A larger one is decomposed by PyTorch on the device ``there``, if one
    is given.  With ``few``, only that many of the leading ones.
    """
    if few is not None:
        from scipy.linalg import eigh

        order = matrix.shape[0]
        values, vectors = eigh(matrix, subset_by_index=(order - few, order - 1), driver="evr")
        return np.maximum(values[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1])
    if there is not None and matrix.shape[0] >= LARGE:
        import torch

        found = torch.linalg.eigh(torch.from_numpy(matrix).to(there))
        values, vectors = map(to_numpy, found)
    else:
        values, vectors = np.linalg.eigh(matrix.astype(np.float64))
    # torch rejects negative strides, and np.ascontiguousarray keeps those of a single column.
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1].copy()
