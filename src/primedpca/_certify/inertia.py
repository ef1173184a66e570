"""Deterministic upper bound on an eigenvalue from one Cholesky factorisation.

Let ``G^`` be a computed symmetric matrix with ``|G^ - G| <= e_G`` and ``W`` any matrix of ``j``
columns.  If ``B = sigma I - G^ + W W^T`` is at least ``-e`` (in the order of symmetric matrices),
then ``G <= (sigma + e + e_G) I + W W^T``, and ``W W^T`` has rank ``j``, so that
``lambda_{j+1}(G) <= sigma + e + e_G`` (Weyl).  A Cholesky factorisation of the computed ``B`` that
runs to its end proves such an ``e``.  Nothing is assumed about ``W``; with ``W = U Theta^(1/2)``
from good Ritz pairs the factorisation succeeds.  docs/certificates.md has the proofs: the
statement in section 2, the constants in section 8.

The factorisation may also run in any arithmetic, with random vectors that check it
(section 9): :func:`factorised` and :func:`times_square`.
"""

from __future__ import annotations

import math
from itertools import islice, pairwise
from typing import TypeAlias

import numpy as np

from primedpca._certify.bounds import UNIT
from primedpca._core.arrays import Array, device, is_numpy_array, namespace
from primedpca._core.process import in_threads

__all__ = ["ceiling", "factorised", "times_square"]

#: Tiles of a lower triangular matrix, row by row, up to the diagonal.
Triangle: TypeAlias = list[list[Array]]
#: Positions of ``sigma`` in the gap between two Ritz values, tried in this order.
POSITIONS = (0.5, 0.875)
#: Bound on the norm of all underflow errors together, after scaling.
UNDERFLOW = 2.0**-900
#: Order of the tiles of a factorisation that threads share, about.
TILE = 320


def ceiling(
    matrix: np.ndarray,
    basis: np.ndarray,
    values: np.ndarray,
    error: float,
    wanted: int,
    overwrite: bool = False,
) -> np.ndarray:
    """Upper bounds on the eigenvalues of ``G`` from a Cholesky factorisation of order ``m``.

    Of all ``j`` from ``wanted`` to ``p - 1``, the one with the widest gap
    ``theta_j - theta_{j+1}`` is chosen, and the result bounds ``lambda_{j+1}`` and the eigenvalues
    after it by one number below ``theta_j``.  A factorisation that fails is repeated once with a
    larger ``sigma``.  Costs ``m^3 / 3 + m^2 j`` flops each time; with two BLAS threads these may
    wait for each other, so hold :func:`~primedpca._core.process.one_blas_thread`.

    Parameters
    ----------
    matrix : ndarray of shape (m, m)
        The computed ``G^``.  Each attempt reads one triangle only.
    basis : ndarray of shape (m, p)
        Approximate eigenvectors ``U``.  Poor ones make the factorisation fail, the bounds never
        false.  Leave out those that have not converged: the gaps between their Ritz values are
        wider than between eigenvalues, and would be chosen.
    values : ndarray of shape (p,)
        Their Ritz values ``theta``, largest first.
    error : float
        The bound ``e_G`` on ``|G^ - G|``, for either triangle of ``G^`` mirrored.  A bound on
        each entry that is itself symmetric, such as ``gamma |M|^T |M|``, holds for both.
    wanted : int
        Number of components ``k``, at least 1.
    overwrite : bool, default=False
        Whether ``matrix`` may be overwritten.  Otherwise it is copied.

    Returns
    -------
    ndarray of shape (p + 1,)
        Entry ``i``, counted from 0, bounds ``lambda_{i+1}(G)``; infinity where nothing is proven.
        :func:`~primedpca._certify.bounds.carried` turns the bounds into ``mu``.
    """
    bounds = np.full(values.size + 1, np.inf)
    if wanted < values.size:
        j = wanted + int(np.argmax(values[wanted - 1 : -1] - values[wanted:]))
        bounds[j:] = _bound(_fortran(matrix, overwrite), basis[:, :j], values[: j + 1], error)
    return bounds


def _fortran(matrix: np.ndarray, overwrite: bool) -> np.ndarray:
    """Return the matrix, transposed or not, as LAPACK can overwrite it; a copy unless allowed."""
    matrix = matrix.T if matrix.flags.c_contiguous else matrix
    if overwrite:
        return np.require(matrix, np.float64, ["F", "A", "W"])
    return np.array(matrix, np.float64, order="F")


def _bound(square: np.ndarray, basis: np.ndarray, values: np.ndarray, error: float) -> float:
    """Return a bound on ``lambda_{j+1}(G)`` below ``theta_j``, or infinity.

    ``square`` is overwritten: the first attempt works in its lower triangle, the second in its
    upper one, which still holds ``G^`` then.
    """
    high, low = float(values[-2]), float(values[-1])
    diagonal = square.T.reshape(-1)[:: square.shape[0] + 1]  # a view
    kept = diagonal.copy()
    # Powers of two: scaling is exact, and nothing that matters overflows or underflows.
    scale = 2.0 ** -_exponent(max(float(np.abs(kept).max()), abs(float(values[0]))))
    with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity end as "not proven"
        factor = basis * np.sqrt(np.maximum(values[:-1], 0.0) * scale)
        size = float(np.sum(factor**2))
        for lower, position in zip((True, False), POSITIONS, strict=True):
            sigma = (low + position * (high - low)) * scale
            diagonal[:] = kept
            _form(square, diagonal, factor, sigma, scale, lower)
            slack = _slack(factor.shape, float(np.sum(diagonal)), size, sigma)
            found = math.nextafter(sigma + slack, math.inf) / scale
            found = math.nextafter(found + error, math.inf)
            if not found < high:
                break  # useless even if it is proven
            if _is_factorised(square, diagonal, lower):
                return found
    return math.inf


def _exponent(size: float) -> int:
    """Return ``q`` with ``size <= 2^q``, between -1000 and 1000 so that ``2^-q`` is normal."""
    return min(max(math.frexp(size)[1], -1000), 1000)


def _form(
    square: np.ndarray,
    diagonal: np.ndarray,
    factor: np.ndarray,
    sigma: float,
    scale: float,
    lower: bool,
) -> None:
    """Replace one triangle of ``G^`` by that of ``sigma I - scale G^ + W W^T``."""
    from scipy.linalg.blas import dsyrk

    dsyrk(1.0, factor, -scale, square, lower=lower, overwrite_c=True)
    diagonal += sigma


def _slack(shape: tuple[int, ...], trace: float, size: float, sigma: float) -> float:
    """Bound ``e`` with ``B >= -e`` for a computed ``B`` that was factorised.

    ``1.01 u [(m + 2) tr B + (j + 2) (tr B + 2 |W|_F^2 + 2 sigma)]``: first the error of the
    factorisation, then that of forming ``B``.  The 1.01 covers terms of second order and the
    rounding of this formula for ``m`` up to ``2^22``.
    """
    m, j = shape
    forming = (j + 2) * (trace + 2 * size + 2 * sigma)
    return 1.01 * UNIT * ((m + 2) * trace + forming) + UNDERFLOW


def _is_factorised(square: np.ndarray, diagonal: np.ndarray, lower: bool) -> bool:
    """Overwrite a triangle with its Cholesky factor; return whether all pivots were positive."""
    from scipy.linalg.lapack import dpotrf

    _, info = dpotrf(square, lower=lower, clean=False, overwrite_a=True)
    # OpenBLAS goes on after a pivot that is NaN.
    return info == 0 and bool(np.all(diagonal > 0))


def factorised(square: Array, factor: Array, sigma: float) -> Triangle | None:
    """Return a triangular ``L``, about ``L L^T = sigma I - S + W W^T``, or None.

    Computed in the arithmetic of ``S`` by tiles, whose number depends on the order alone: threads
    share them, and the bits do not depend on their number.

    Parameters
    ----------
    square : array of shape (m, m)
        Symmetric matrix ``S``.
    factor : array of shape (m, j)
        The matrix ``W``.
    sigma : float

    Returns
    -------
    list of lists of arrays, or None
        Tiles of ``L``, row by row, up to the diagonal.  ``None`` if the matrix is not positive.
    """
    if not is_numpy_array(square):
        return _in_one_tile(square, factor, sigma)
    m = square.shape[0]
    count = max(1, round(m / TILE))
    edges = [slice(m * i // count, m * (i + 1) // count) for i in range(count)]
    places = [(i, j) for i in range(count) for j in range(i + 1)]

    def form(place: tuple[int, int]) -> Array:
        rows, columns = (edges[i] for i in place)
        # In the order of LAPACK, by the transpose: the matrix is symmetric.
        tile = factor[columns] @ factor[rows].T
        tile -= square[columns, rows]
        if rows == columns:
            tile.reshape(-1)[:: tile.shape[0] + 1] += sigma
        return tile.T

    formed = iter(in_threads(form, places))
    tiles: Triangle = [list(islice(formed, i + 1)) for i in range(count)]
    from scipy.linalg import get_blas_funcs, get_lapack_funcs

    (trsm,), (potrf,) = (
        get(names, (square,))
        for get, names in ((get_blas_funcs, ["trsm"]), (get_lapack_funcs, ["potrf"]))
    )
    for k in range(count):
        tiles[k][k], info = potrf(tiles[k][k], lower=True, clean=True, overwrite_a=True)
        # OpenBLAS goes on after a pivot that is NaN.
        if info or not bool(np.all(np.diagonal(tiles[k][k]) > 0)):
            return None

        def solve(i: int, k: int = k) -> None:
            tiles[i][k] = trsm(
                1.0, tiles[k][k], tiles[i][k], side=1, lower=True, trans_a=1, overwrite_b=True
            )

        def update(place: tuple[int, int], k: int = k) -> None:
            i, j = place
            tiles[i][j] -= tiles[i][k] @ tiles[j][k].T

        below = range(k + 1, count)
        in_threads(solve, below)
        in_threads(update, [(i, j) for i in below for j in range(k + 1, i + 1)])
    return tiles


def _in_one_tile(square: Array, factor: Array, sigma: float) -> Triangle | None:
    xp = namespace(square)
    eye = xp.eye(square.shape[0], dtype=square.dtype, device=device(square))
    try:
        lower = xp.linalg.cholesky(factor @ factor.T - square + sigma * eye)
    except (RuntimeError, ValueError):  # the errors of the libraries are of these kinds
        return None
    return [[lower]] if bool(xp.all(xp.isfinite(lower))) else None


def times_square(tiles: Triangle, vectors: Array) -> tuple[Array, float]:
    """Return ``L L^T V`` in float64 for a triangular ``L``, and ``|L|_F^2``."""
    xp = namespace(vectors)
    edges = [0]
    for row in tiles:
        edges.append(edges[-1] + row[0].shape[0])
    parts = [vectors[a:b] for a, b in pairwise(edges)]

    def column(k: int) -> tuple[list[Array], float]:
        wide = [xp.astype(tiles[i][k], xp.float64) for i in range(k, len(tiles))]
        inner = sum(tile.T @ part for tile, part in zip(wide, parts[k:], strict=True))
        size = sum(float(xp.linalg.vector_norm(tile)) ** 2 for tile in wide)
        return [tile @ inner for tile in wide], size

    found = in_threads(column, range(len(tiles)))
    rows = [sum(found[k][0][i - k] for k in range(i + 1)) for i in range(len(tiles))]
    return xp.concat(rows, axis=0), sum(size for _, size in found)
