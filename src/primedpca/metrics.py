"""How right components are: angles, streaks, captured variance, subspace error."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred
from primedpca._operator.scaling import in_unit_of_data

__all__ = ["angles", "captured_variance", "longest_correct_streak", "subspace_error"]


def angles(components: Any, reference: Any) -> np.ndarray:
    """The angle between each component and its reference, whatever their signs and lengths.

    Parameters
    ----------
    components, reference : arrays of shape (k, d)

    Returns
    -------
    ndarray of shape (k,)
        Radians in [0, pi/2], right to rounding for the smallest angles too: the arc cosine
        would lose everything below 1e-8.

    Examples
    --------
    >>> from primedpca.metrics import angles
    >>> angles([[1.0, 0.0]], [[1.0, 1.0]]).round(4).tolist()
    [0.7854]
    """
    u, v = _pair(components, reference)
    v = np.where((u * v).sum(axis=1, keepdims=True) < 0, -v, v)
    found = 2 * np.arctan2(np.linalg.norm(u - v, axis=1), np.linalg.norm(u + v, axis=1))
    return np.minimum(found, np.pi / 2)


def longest_correct_streak(components: Any, reference: Any, threshold: float) -> int:
    """How many leading components are within ``threshold`` radians of their reference.

    Parameters
    ----------
    components, reference : arrays of shape (k, d)
    threshold : float
        The paper's ``V``, in (0, pi/2).

    Returns
    -------
    int

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca.metrics import longest_correct_streak
    >>> longest_correct_streak(np.eye(3)[[0, 2, 1]], np.eye(3), np.pi / 8)
    1
    """
    if not 0 < threshold < np.pi / 2:
        raise ValueError(f"`threshold`={threshold} must lie in (0, pi/2), in radians.")
    wrong = np.flatnonzero(angles(components, reference) >= threshold)
    return int(wrong[0]) if wrong.size else _pair(components, reference)[0].shape[0]


def captured_variance(X: Any, components: Any, **preparation: Any) -> np.ndarray:  # noqa: N803
    """The variance ``v^T C v`` of the data along each component, divided by ``n - 1``.

    Parameters
    ----------
    X : data of shape (n, d)
        Anything that :func:`primedpca.as_source` reads.
    components : array of shape (k, d)
        Taken at unit length.
    **preparation
        ``sample_weight``, ``center``, ``scale``, ``missing`` and ``engine``, as the estimator
        has them.

    Returns
    -------
    ndarray of shape (k,)
    """
    data = Centred.of(X, **preparation)
    units = _units(components)
    if units.shape[1] != data.shape[1]:
        raise ValueError(
            f"`components` have {units.shape[1]} features, but `X` has {data.shape[1]}."
        )
    inside = data.projected_covariance(data.like.asarray(units.T))
    found: np.ndarray = in_unit_of_data(data, np.diag(inside))
    return found


def subspace_error(components: Any, reference: Any) -> float:
    """The share of the reference subspace that is missed: the mean of sin^2 of all angles.

    Parameters
    ----------
    components, reference : arrays of shape (k, d)
        With orthonormal rows, in any order.

    Returns
    -------
    float
        0 is the same subspace, 1 an orthogonal one; inside the subspaces order and rotation do
        not matter.
    """
    u, v = _pair(components, reference)
    for name, rows in (("components", u), ("reference", v)):
        if np.abs(rows @ rows.T - np.eye(rows.shape[0])).max() > 1e-3:
            raise ValueError(f"`{name}` must have orthonormal rows.")
    return float(np.sum((v - (v @ u.T) @ u) ** 2) / v.shape[0])


def _pair(components: Any, reference: Any) -> tuple[np.ndarray, np.ndarray]:
    u, v = _units(components), _units(reference)
    if u.shape != v.shape:
        raise ValueError(f"`components` {u.shape} and `reference` {v.shape} differ in shape.")
    return u, v


def _units(rows: Any) -> np.ndarray:
    values = np.atleast_2d(to_numpy(rows)).astype(np.float64)
    peak = np.abs(values).max(axis=1, keepdims=True)
    if not (np.isfinite(peak).all() and (peak > 0).all()):
        raise ValueError("components must be finite and not zero.")
    values = values / peak
    return values / np.linalg.norm(values, axis=1, keepdims=True)
