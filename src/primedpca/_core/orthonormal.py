"""Orthonormal bases: rank-revealing, completed, angle-safe; and the rule for signs."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from primedpca._core.arrays import (
    Array,
    Like,
    device,
    dtype_name,
    is_numpy_array,
    namespace,
    to_numpy,
)
from primedpca._core.threads import in_threads

__all__ = [
    "as_components",
    "basis_of",
    "combine",
    "complete",
    "continued",
    "draw",
    "orthonormalise",
    "random_basis",
    "small_eigh",
]

WORTH_THREADS = 2**25  # multiplications: some milliseconds


def unit_columns(directions: Array) -> Array:
    """Columns of length one; zero columns are left out.

    Each column is divided by its largest entry first, so that neither 1e300 nor 1e-300
    overflows when squared.
    """
    xp = namespace(directions)
    peak = xp.max(xp.abs(directions), axis=0)
    if not bool(xp.all(peak > 0)):
        directions, peak = directions[:, peak > 0], peak[peak > 0]
    if is_numpy_array(directions):
        directions = np.ascontiguousarray(directions)  # the order in memory decides about bits
    directions = directions / peak
    # Once more: the reciprocal of a subnormal is not exact enough to keep the entries near 1.
    return directions / xp.linalg.vector_norm(directions, axis=0)


def basis_of(directions: Array) -> Array:
    """An orthonormal basis of the span of ``directions``, as wide as their numerical rank.

    Parameters
    ----------
    directions : array of shape (d, q)
        Finite; columns may be dependent, zero, tiny or huge.

    Returns
    -------
    array of shape (d, r)
        ``r`` is the number of singular values of the unit columns above rounding.
        The QR factor alone does not show the rank; the singular values of its small R do.
        Where all are independent, the first columns span the first directions, however many.
    """
    xp = namespace(directions)
    columns = unit_columns(directions)
    if columns.shape[1] == 0:
        return columns
    q, r = orthonormalise(columns)
    left, values, _ = np.linalg.svd(r.astype(np.float64))
    floor = 8 * math.sqrt(columns.shape[1]) * float(xp.finfo(columns.dtype).eps)
    keep = left[:, values > floor * values[0]]
    if keep.shape[1] == columns.shape[1]:
        return q
    return q @ xp.asarray(keep, dtype=q.dtype, device=q.device)


def random_basis(like: Like, n_directions: int, seed: Any, start: Array | None = None) -> Array:
    """A random orthonormal basis ``(d, p)`` whose first columns span ``start``."""
    known = like.asarray(np.empty((like.n_features, 0)))
    if start is not None:
        known = basis_of(like.asarray(start))[:, :n_directions]
    return complete(known, like, n_directions, seed)


def draw(like: Like, n_directions: int, seed: Any) -> Array:
    """Random directions ``(d, p)``, as they come."""
    kind, rng = np.dtype(dtype_name(like.dtype)), np.random.default_rng(seed)
    return like.asarray(rng.standard_normal((like.n_features, n_directions), dtype=kind))


def complete(basis: Array, like: Like, n_directions: int, seed: Any) -> Array:
    """``basis`` and enough random orthonormal columns to make ``n_directions``."""
    missing = n_directions - basis.shape[1]
    if missing <= 0:
        return basis
    fresh = draw(like, missing, seed)
    if basis.shape[1] == 0:
        return orthonormalise(fresh)[0]
    for _ in range(2):  # twice is enough
        fresh -= basis @ (basis.T @ fresh)
        fresh = orthonormalise(fresh)[0]
    return like.xp.concat([basis, fresh], axis=1)


def as_components(basis: Array) -> Array:
    """The columns of ``basis`` as rows ``(k, d)``, the entry of largest size in each positive.

    The rule of scikit-learn 1.5 and later.  In place on one copy: a basis may be gigabytes.
    """
    xp = namespace(basis)
    components = xp.empty(basis.T.shape, dtype=basis.dtype, device=device(basis))
    components[...] = basis.T
    if 0 in components.shape:
        return components
    high, low = xp.argmax(components, axis=1), xp.argmin(components, axis=1)
    numbers = xp.arange(components.shape[0], device=device(components))
    largest, least = components[numbers, high], -components[numbers, low]
    down = (least > largest) | ((least == largest) & (low < high))  # of two alike, the first
    components *= xp.astype(1 - 2 * xp.astype(down, xp.int8), components.dtype)[:, None]
    return components


def orthonormalise(a: Array, times: int = 2, triangle: bool = True) -> tuple[Array, Array]:
    """QR: an orthonormal ``(d, p)`` and the upper ``(p, p)``, its diagonal not negative.

    ``a`` may be overwritten.  Twice Cholesky QR with the Gram matrix in float64: products of
    tall matrices instead of Householder's many small steps, in place and a few rows at a time.
    Columns too near to dependence for that go to LAPACK.  Once is enough where the columns are
    nearly orthonormal before, or are made so again, or where what is left is less than the
    rounding of float32.

    The product of the two is off by as many ulps as the inverse of a triangle is large, 1e5 at
    most.  Without ``triangle`` the small factor is any that fits, and it is off by a few.
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
        if skew <= float(xp.finfo(a.dtype).eps):
            break
    return a, done


def continued(
    z: Array, basis: tuple[Array, ...], near: range | tuple[int, ...]
) -> tuple[Array, np.ndarray, np.ndarray]:
    """The next block of an orthonormal basis: ``z = V H + Q B`` with ``Q`` orthonormal to ``V``.

    Parameters
    ----------
    z : array of shape (d, w)
        Is overwritten.
    basis : tuple of arrays (d, w_i)
        The blocks of ``V``.
    near : range or tuple of int
        The blocks that ``z`` has more than rounding in.  The other ones are taken out only
        once, at unit length, when what rounding left of them has been blown up and shows.

    Returns
    -------
    Q : array of shape (d, <= w)
        Narrower where ``z`` holds no more above rounding.
    H : ndarray
    B : ndarray
    """
    xp = namespace(z)
    edges = np.cumsum([0, *(block.shape[1] for block in basis)])
    held = np.zeros((int(edges[-1]), z.shape[1]))

    def take_out(x: Array, which: range | tuple[int, ...], factor: np.ndarray | None) -> None:
        parts: list[Array] = []
        rows: list[int] = []
        for i in which:
            parts.append(basis[i].T @ x)
            x -= basis[i] @ parts[-1]
            rows += range(edges[i], edges[i + 1])
        if not parts:
            return
        # All at once: on a GPU each way to the host costs as much as these products.
        small = to_numpy(xp.concat(parts, axis=0)).astype(np.float64)
        held[rows] += small if factor is None else small @ factor

    take_out(z, near, None)
    eps = float(xp.finfo(z.dtype).eps)
    size = np.sqrt(np.linalg.eigvalsh(held.T @ held)[-1])
    newest, coupling = _above(32 * eps * float(size), z)
    take_out(newest, range(len(basis)), coupling)
    # What loses half of itself here was rounding, most of which lay in the span.
    newest, upper = _above(0.5, newest)
    return newest, held, upper @ coupling


def _above(floor: float, z: Array) -> tuple[Array, np.ndarray]:
    """Nearly orthonormal ``Q`` of what ``z`` holds above ``floor``, and ``B`` with ``z = Q B``."""
    xp = namespace(z)
    q, upper = orthonormalise(z, times=1, triangle=False)
    upper = upper.astype(np.float64)
    if _smallest(upper) > floor:
        return q, upper
    left, sizes, right = np.linalg.svd(upper)
    kept = int(np.sum(sizes > floor))
    if kept == sizes.size:
        return q, upper
    turn = xp.asarray(left[:, :kept], dtype=q.dtype, device=device(q))
    return q @ turn, sizes[:kept, None] * right[:kept]


def _smallest(square: np.ndarray) -> float:
    """No more than the least singular value, and as a rule not much less."""
    try:
        return 1.0 / float(np.linalg.norm(np.linalg.inv(square)))
    except (np.linalg.LinAlgError, ZeroDivisionError):
        return 0.0


def _gram_step(a: Array, triangle: bool) -> tuple[np.ndarray, float] | None:
    """Make the columns nearly orthonormal in place; ``None`` if they are nearly dependent.

    Returns the small factor, and how far from orthonormal the columns may be because of what
    the Gram matrix was rounded by: ``|R^-1|^2`` times an error of ``d`` ulps in every entry.
    """
    xp = namespace(a)
    if a.shape[1] == 0 or a.shape[0] < a.shape[1]:
        return None

    def square(rows: slice) -> np.ndarray:
        wide = xp.astype(a[rows], xp.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):  # looked for below
            return to_numpy(wide.T @ wide)

    gram = sum(_over_rows(a, a.shape[1], square), np.zeros((a.shape[1], a.shape[1])))
    size = np.sqrt(np.diag(gram))
    if not (np.isfinite(size).all() and (size > 0).all()):
        return None
    factors = (_cholesky if triangle else _roots)(gram / size / size[:, None])
    if factors is None:
        return None
    skew = float(np.sum(factors[1] ** 2)) * a.shape[1] * a.shape[0] * 2.0**-53
    factor, inverse = factors[0] * size, factors[1] / size[:, None]
    inverse = xp.asarray(inverse, device=device(a))

    def turn(rows: slice) -> None:
        a[rows] = xp.astype(xp.astype(a[rows], xp.float64, copy=False) @ inverse, a.dtype)

    _over_rows(a, a.shape[1], turn)
    return factor, skew


def _cholesky(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """``U`` with ``U^T U = gram``, and its inverse."""
    try:
        upper = np.linalg.cholesky(gram).T
        inverse = np.linalg.inv(upper)
    except np.linalg.LinAlgError:
        return None
    # The inverse, because the diagonal of a triangle can hide how near to dependence it is.
    return (upper, inverse) if np.abs(inverse).max() <= 1e5 else None


def _roots(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """``L^(1/2) R^T`` and its inverse, from ``gram = R L R^T``.

    Entry by entry their sizes multiply to no more than ``|R| |R|^T``, so that what rounding does
    to small directions stays small when they are put together again.
    """
    values, turn = np.linalg.eigh(gram)
    if not values[0] > 1e-10 * values[-1]:
        return None
    roots = np.sqrt(values)
    return roots[:, None] * turn.T, turn / roots


def combine(blocks: tuple[Array, ...], turn: np.ndarray, like: Like) -> Array:
    """``V turn`` from the blocks of ``V``, ``(d, p)``."""
    edges = np.cumsum([block.shape[1] for block in blocks])[:-1]
    parts = [like.asarray(np.ascontiguousarray(part)) for part in np.split(turn, edges)]
    shape, first = (blocks[0].shape[0], turn.shape[1]), blocks[0]
    out = namespace(first).empty(shape, dtype=first.dtype, device=device(first))

    def some(rows: slice) -> None:
        total = first[rows] @ parts[0]
        for block, part in zip(blocks[1:], parts[1:], strict=True):
            total += block[rows] @ part
        out[rows] = total

    _over_rows(out, turn.shape[0], some)
    return out


def _over_rows(a: Array, width: int, work: Callable[[slice], Any]) -> list[Any]:
    """What ``work`` makes of some rows of ``a`` at a time, near equal in number.

    About a megabyte of them, so that they stay in cache; all of them on an accelerator.
    Multiplying a row with a matrix of ``width`` rows or columns is the work, and threads share
    it where it is more than to wake them.
    """
    step = a.shape[0] if str(device(a)) != "cpu" else max(1, 2**17 // max(a.shape[1], 1))
    pieces = max(1, -(-a.shape[0] // max(step, 1)))
    edges = [a.shape[0] * i // pieces for i in range(pieces + 1)]
    rows = [slice(*pair) for pair in pairwise(edges)]
    if is_numpy_array(a) and a.shape[0] * a.shape[1] * width > WORTH_THREADS:
        return in_threads(work, rows)
    return [work(some) for some in rows]


def small_eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues in descending order, none below zero, and eigenvectors, in float64 on the host.

    A matrix of order ``p`` is small: on a GPU the launches would cost more than the work.
    """
    values, vectors = np.linalg.eigh(matrix.astype(np.float64))
    # A copy: a single column counts as contiguous even backwards, which torch does not take.
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1].copy()
