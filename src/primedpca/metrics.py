"""Accuracy of components: angles, streaks, captured variance, subspace error."""

from typing import Any

import numpy as np

from primedpca._core.arrays import as_real
from primedpca._operator.operator import Centred
from primedpca._operator.scaling import in_unit_of_data
from primedpca.sources.memory.frames import (
    aligned,
    column_labels,
    labels_along,
    without_index,
)

__all__ = ["angles", "captured_variance", "longest_correct_streak", "subspace_error"]

SLICE = 2**16  # entries that are compared at a time


def angles(components: Any, reference: Any) -> np.ndarray:
    """Return the angle between each component and its reference, ignoring signs and lengths.

    Parameters
    ----------
    components, reference : arrays of shape (k, d)
        Vectors as rows; row i of one is compared with row i of the other.

    Returns
    -------
    ndarray of shape (k,)
        Angles in radians, in [0, pi/2], accurate to rounding also for the smallest angles.

    Examples
    --------
    >>> from primedpca.metrics import angles
    >>> angles([[1.0, 0.0]], [[1.0, 1.0]]).round(4).tolist()
    [0.7854]
    """
    return angles_of_units(*_pair(components, reference))


def angles_of_units(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the angles between rows of length 1, as :func:`angles`."""
    squares = np.zeros((2, u.shape[0]))
    step = max(1, SLICE // u.shape[0])  # differences of long vectors would not fit into cache
    for i in range(0, u.shape[1], step):
        a, b = u[:, i : i + step], v[:, i : i + step]
        for total, w in zip(squares, (a - b, a + b), strict=True):
            total += np.einsum("ij,ij->i", w, w)
    # Kahan's formula: the arc cosine of a product would lose all angles below 1e-8.
    less, more = np.sqrt(squares)
    return np.asarray(2 * np.arctan2(np.minimum(less, more), np.maximum(less, more)))


def longest_correct_streak(components: Any, reference: Any, threshold: float) -> int:
    """Count the leading components within ``threshold`` radians of their reference.

    Parameters
    ----------
    components, reference : arrays of shape (k, d)
        Vectors as rows.
    threshold : float
        Angle in radians, between 0 and pi/2; the paper's ``V``.

    Returns
    -------
    int
        Number of components before the first whose angle is at least ``threshold``.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca.metrics import longest_correct_streak
    >>> longest_correct_streak(np.eye(3)[[0, 2, 1]], np.eye(3), np.pi / 8)
    1
    """
    check_threshold(threshold)
    wrong = np.flatnonzero(angles(components, reference) >= threshold)
    return int(wrong[0]) if wrong.size else _pair(components, reference)[0].shape[0]


def check_threshold(threshold: float) -> None:
    """Raise ValueError unless ``threshold`` is an angle in radians, above 0 and below pi/2."""
    if not 0 < threshold < np.pi / 2:
        raise ValueError(f"`threshold`={threshold} must be an angle in radians in (0, pi/2).")


def captured_variance(X: Any, components: Any, **preparation: Any) -> np.ndarray:  # noqa: N803
    """Return the variance ``v^T C v`` of the data along each component, divided by ``n - 1``.

    Parameters
    ----------
    X : data of shape (n, d)
        Anything that :func:`primedpca.as_source` reads.
    components : array of shape (k, d)
        Vectors as rows; they are normalised to unit length.
    **preparation
        ``sample_weight``, ``center``, ``scale``, ``missing`` and ``engine``, as in
        :class:`primedpca.PrimedPCA`.

    Returns
    -------
    ndarray of shape (k,)
        Variances in squared units of the data (after scaling).
    """
    data = Centred.of(X, **preparation)
    components = without_index(components)
    units = _units(components)
    labels = labels_along(components, 1)
    units = units if labels is None else aligned(units, labels, column_labels(data.source))
    found, wanted = units.shape[1], data.shape[1]
    if found != wanted:
        raise ValueError(f"`components` have {found} features, but `X` has {wanted}.")
    inside = data.projected_covariance(data.like.asarray(units.T))
    variances: np.ndarray = in_unit_of_data(data, np.diag(inside))
    return variances


def subspace_error(components: Any, reference: Any) -> float:
    """Return the mean of sin^2 of the principal angles between two subspaces.

    Parameters
    ----------
    components, reference : arrays of shape (k, d)
        Orthonormal rows that span the subspaces, in any order and rotation.

    Returns
    -------
    float
        0 for equal subspaces, 1 for orthogonal ones.
    """
    u, v = _pair(components, reference)
    for name, rows in (("components", u), ("reference", v)):
        if np.abs(rows @ rows.T - np.eye(rows.shape[0])).max() > 1e-3:
            raise ValueError(f"`{name}` must have orthonormal rows. Orthonormalise them first.")
    # From the residual, not as 1 - cos^2, which would lose errors below the rounding of 1.
    return float(np.sum((v - (v @ u.T) @ u) ** 2) / v.shape[0])


def _pair(components: Any, reference: Any) -> tuple[np.ndarray, np.ndarray]:
    components, reference = without_index(components), without_index(reference)
    u, v = _units(components), _units(reference)
    if u.shape != v.shape:
        raise ValueError(f"`components` have shape {u.shape}, but `reference` has {v.shape}.")
    names = labels_along(components, 1), labels_along(reference, 1)
    return aligned(u, *names, "`reference`"), v


def _units(rows: Any) -> np.ndarray:
    values = np.atleast_2d(as_real(rows, "components"))
    peak = np.abs(values).max(axis=1, keepdims=True)
    if not (np.isfinite(peak).all() and (peak > 0).all()):
        raise ValueError("components must be finite and not zero. Remove such rows.")
    values = values / peak  # squares of 1e300 would overflow in the norm
    units: np.ndarray = values / np.linalg.norm(values, axis=1, keepdims=True)
    return units
