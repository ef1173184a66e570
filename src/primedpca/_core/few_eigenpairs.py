"""A few leading eigenpairs of a matrix on a GPU, where a full decomposition takes far longer.

Subspace iteration with Chebyshev polynomials finds them in products, and squares of the matrix
without them show that no larger eigenvalue was missed.
"""

from __future__ import annotations

import math

import numpy as np

from primedpca._core.arrays import Array, to_numpy

__all__ = ["LEAST", "few_eigenpairs"]

#: Smallest order for which this is faster than a full decomposition.
LEAST = 256
#: Most rounds of a polynomial and a small eigenproblem, and the largest degree of a polynomial.
ROUNDS, DEGREE = 10, 20
#: Part of the residuals that a round leaves, at most, or a full decomposition is faster.
FALL = 0.05
#: Products before the first small eigenproblem.
POWERS = 6
#: Largest part of the first vector in the last ones, beside what they are, after a polynomial.
MIXED = 1e4
#: Squarings after which the norm of a matrix is compared, and once more.
SQUARINGS = (6, 12)
#: Residuals up to this multiple of rounding errors may be rounding errors of dependent vectors.
NEAR = 1000
#: Largest condition of the vectors' Gram matrix in the last round: they are orthonormal then.
SKEWED = 4.0
UNIT = 2.0**-53


def few_eigenpairs(square: Array, count: int) -> tuple[np.ndarray, Array] | None:
    """Return the ``count`` largest eigenvalues and the eigenvectors, or None if that is not sure.

    They are those of a matrix that differs from ``square`` by at most ``10 m u lambda_1``, as
    LAPACK's are.

    Parameters
    ----------
    square : tensor of shape (m, m)
        Positive semidefinite, in float64.
    count : int

    Returns
    -------
    values : ndarray of shape (count,)
    vectors : tensor of shape (m, count)
    """
    import torch

    m = square.shape[0]
    q = min(m, 8 * -(-(count + max(8, count // 2)) // 8))
    made = torch.Generator(square.device)
    made.manual_seed(0)
    x = torch.randn((m, q), generator=made, dtype=square.dtype, device=square.device)
    for _ in range(POWERS):
        x = _orthonormal(square @ x)
    left = math.inf
    for _ in range(ROUNDS):
        image = square @ x
        small = to_numpy(x.T @ torch.cat([x, image], dim=1))
        found = _ritz(small[:, :q], small[:, q:])
        if found is None:  # columns were nearly dependent
            return None
        theta, turn, condition = found
        rotation = torch.from_numpy(turn).to(square.device)
        x, image = x @ rotation, image @ rotation
        values = torch.from_numpy(theta).to(square.device)
        lengths = to_numpy(torch.linalg.vector_norm(image - x * values, dim=0))
        rounding = m * UNIT * theta[0]
        wanted = _wanted(theta, lengths, count, rounding)
        before, left = left, float(lengths[:count].max())
        if condition > SKEWED and (wanted or left <= NEAR * rounding):
            continue  # once more, without another polynomial: dependent columns lose digits
        if wanted:
            beside = float(np.linalg.norm(lengths[wanted:]))
            limit = float(theta[wanted - 1]) - beside
            blur = 4 * (q + 4 + math.sqrt(m)) * UNIT * float(theta.sum())
            if not _is_below(square - (x * values) @ x.T, limit - blur):
                return None
            return theta[:count], x[:, :count]
        low = float(theta[-1])
        # The last rounds gain little: what is left is nearly rounding.
        slow = left > max(FALL * before, NEAR * rounding)
        if slow or not 0 < low < theta[count - 1]:
            return None
        degree = _degree(theta[:count], lengths[:count], low)
        # T_1 and T_0 of 2 C / low - 1; each column is divided by its growth at the end.
        now, before = image * (2 / low) - x, x
        for _ in range(degree - 1):
            now, before = torch.addmm(before, square, now, beta=-1, alpha=4 / low) - 2 * now, now
        x = now / torch.linalg.vector_norm(now, dim=0)
    return None


def _orthonormal(x: Array) -> Array:
    """Return a basis of the columns by Cholesky QR; NaN if they are nearly dependent."""
    import torch

    low = torch.linalg.cholesky_ex(x.T @ x)[0]
    return torch.linalg.solve_triangular(low.T, x, upper=True, left=False)


def _ritz(gram: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return Ritz values, largest first, the Ritz vectors and the condition of the Gram matrix."""
    sizes = np.sqrt(np.diag(gram))
    if not (np.isfinite(inside).all() and (sizes > 0).all()):
        return None
    gram, inside = (part / sizes / sizes[:, None] for part in (gram, inside))
    try:
        back = np.linalg.inv(np.linalg.cholesky((gram + gram.T) / 2))
    except np.linalg.LinAlgError:
        return None
    values, turn = np.linalg.eigh(back @ ((inside + inside.T) / 2) @ back.T)
    turn = (back.T @ turn) / sizes[:, None]
    condition = float(np.linalg.norm(back) ** 2 / len(back))
    return values[::-1].copy(), np.ascontiguousarray(turn[:, ::-1]), condition


def _degree(theta: np.ndarray, lengths: np.ndarray, low: float) -> int:
    """Return the degree of the next polynomial, which is small up to ``low`` and grows beyond.

    What the last vectors hold of an eigenvector, about the error of its Ritz vector, must not come
    to outweigh them.
    """
    reach = np.arccosh(2 * theta / low - 1)
    errors = np.maximum(lengths / (theta - low), UNIT)
    most = np.log(np.maximum(MIXED / errors, math.e)) / (reach + 1e-3)
    return int(min(max(float(most.min()), 2), DEGREE))


def _wanted(theta: np.ndarray, lengths: np.ndarray, count: int, unit: float) -> int:
    """Return how many vectors are eigenvectors up to rounding and apart from the others, or 0."""
    for c in range(count, min(count + 8, theta.size - 1)):
        if np.linalg.norm(lengths[:c]) > 3 * unit:
            return 0
        if theta[c] + 2 * np.linalg.norm(lengths[c:]) < theta[c - 1]:
            return c
    return 0


def _is_below(rest: Array, limit: float) -> bool:
    """Whether the norm of a matrix is below ``limit``.

    ``|A|^2 = |A^T A|``, so the Frobenius norm after ``j`` squarings, to the power ``2^-j``, is a
    bound that soon is close.  Every matrix is divided by its Frobenius norm, so that a product
    has an error of at most ``m u`` and a bit more.
    """
    import torch

    sizes, error, done = [torch.linalg.vector_norm(rest)], 1.1 * (rest.shape[0] + 4) * UNIT, 0
    for most in SQUARINGS:
        for _ in range(most - done):
            unit = rest / sizes[-1]
            rest = unit.T @ unit
            sizes.append(torch.linalg.vector_norm(rest))
        done = most
        *before, bound = to_numpy(torch.stack(sizes)).tolist()
        bound *= 1 + 1e-9  # of the sum of all squares
        for size in reversed(before):
            bound = size * math.sqrt(bound + error) * (1 + error)
        if bound < limit:
            return True
    return False
