"""Orthonormal bases: rank-revealing, completed, angle-safe; and the rule for signs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca.arrays import namespace, to_numpy
from primedpca.protocols import Array, Like

__all__ = ["basis_of", "complete", "fix_signs", "random_basis", "small_eigh"]


def unit_columns(directions: Array) -> Array:
    """Columns of length one; zero columns are left out.

    Each column is divided by its largest entry first, so that neither 1e300 nor 1e-300
    overflows when squared.
    """
    xp = namespace(directions)
    peak = xp.max(xp.abs(directions), axis=0)
    directions = directions[:, peak > 0] / peak[peak > 0]
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
    """
    xp = namespace(directions)
    columns = unit_columns(directions)
    if columns.shape[1] == 0:
        return columns
    q, r = xp.linalg.qr(columns)
    left, values, _ = np.linalg.svd(to_numpy(r).astype(np.float64))
    floor = 8 * math.sqrt(columns.shape[1]) * float(xp.finfo(columns.dtype).eps)
    keep = left[:, values > floor * values[0]]
    return q @ xp.asarray(keep, dtype=q.dtype, device=q.device)


def random_basis(like: Like, n_directions: int, seed: Any, start: Array | None = None) -> Array:
    """A random orthonormal basis ``(d, p)`` whose first columns span ``start``."""
    known = like.asarray(np.empty((like.n_features, 0)))
    if start is not None:
        known = basis_of(like.asarray(start))[:, :n_directions]
    return complete(known, like, n_directions, seed)


def complete(basis: Array, like: Like, n_directions: int, seed: Any) -> Array:
    """``basis`` and enough random orthonormal columns to make ``n_directions``."""
    missing = n_directions - basis.shape[1]
    if missing <= 0:
        return basis
    draws = np.random.default_rng(seed).standard_normal((like.n_features, missing))
    fresh = like.asarray(draws)
    for _ in range(2):  # twice is enough
        fresh = like.xp.linalg.qr(fresh - basis @ (basis.T @ fresh))[0]
    return like.xp.concat([basis, fresh], axis=1)


def fix_signs(components: Array) -> Array:
    """Make the entry of largest size in every row positive, as scikit-learn 1.5 and later."""
    xp = namespace(components)
    top = xp.argmax(xp.abs(components), axis=1)
    picked = xp.take_along_axis(components, top[:, None], axis=1)
    return components * xp.where(picked < 0, -1, 1)


def small_eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues in descending order, none below zero, and eigenvectors, in float64 on the host.

    A matrix of order ``p`` is small: on a GPU the launches would cost more than the work.
    """
    values, vectors = np.linalg.eigh(matrix.astype(np.float64))
    return np.maximum(values[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1])
