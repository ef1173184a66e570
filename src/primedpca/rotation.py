r"""Varimax and promax: loadings rotated so that each component has few large ones.

Components are ordered by variance, and one that mixes several groups of columns is hard to name.
A rotation of the first k components keeps their span, and so the variance that they explain
together, but gives up that they are ordered and that each explains as much as possible.

Rotate *scaled* loadings :math:`l_{ji} = v_{ji}\sqrt{\lambda_i}`, the covariances (with
``scale="std"`` the correlations) of columns with components of unit variance:
``PrimedPCA.loadings(rotation="varimax")`` does.
"""

import math
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import as_real
from primedpca._core.parameters import is_real

__all__ = ["Rotation", "promax", "varimax"]

SWEEPS = 200  # over all pairs; about ten suffice
#: Lengths up to which rows are rounding error, relative to the longest, by the type of loadings.
ROW = {"float32": 1e-5, "float64": 1e-12}
#: The same of columns, which are roots of variances: rounding error leaves up to 64 eps of them.
COLUMN = {"float32": 2.0**-9, "float64": 2.0**-23}
LOW_PRECISION = "float16", "bfloat16", "float32"


class Rotation(NamedTuple):
    """Rotated loadings.

    Attributes
    ----------
    loadings : ndarray of shape (d, k)
        ``loadings @ matrix`` of the given loadings, sorted by their sums of squares; the sum of
        the loadings of each component is positive.
    matrix : ndarray of shape (k, k)
        Orthogonal for varimax.
    correlations : ndarray of shape (k, k)
        Of the rotated components with each other; the identity for varimax.
    """

    loadings: np.ndarray
    matrix: np.ndarray
    correlations: np.ndarray


def varimax(loadings: Any, *, normalize: bool = True) -> Rotation:
    r"""Rotate loadings so that the variances of their squares are as large as possible.

    The criterion is :math:`\sum_i \left[\frac1d\sum_j l_{ji}^4 - \left(\frac1d\sum_j
    l_{ji}^2\right)^2\right]`.  Two components at a time are turned by the angle that maximises
    it, a closed form, until no pair improves.

    Parameters
    ----------
    loadings : array of shape (d, k)
        Columns of the data by components.
    normalize : bool, default=True
        Kaiser's normalisation: give every row of ``loadings`` length 1 while the rotation is
        found, so that columns with small loadings count as much as others.

    Returns
    -------
    Rotation

    References
    ----------
    H. F. Kaiser, "The varimax criterion for analytic rotation in factor analysis", Psychometrika
    23, 1958.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca.rotation import varimax
    >>> simple = np.array([[0.9, 0.0], [0.8, 0.0], [0.0, 0.7], [0.0, 0.6]])
    >>> turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    >>> bool(np.allclose(varimax(simple @ turn).loadings, simple))
    True
    """
    given, unit, kind = _checked(loadings)
    rows = _rows(given, normalize, kind)
    return _sorted(given, unit, _turned(rows), np.eye(given.shape[1]))


def promax(loadings: Any, *, power: float = 4.0, normalize: bool = True) -> Rotation:
    """Rotate loadings obliquely: components may correlate, which makes small loadings smaller.

    The varimax loadings with their magnitudes raised to ``power`` are the target, which the
    rotation approximates by least squares; it is scaled so that the components keep unit variance.

    Parameters
    ----------
    loadings : array of shape (d, k)
        Columns of the data by components.
    power : float, default=4.0
        Larger powers give smaller small loadings and larger correlations.
    normalize : bool, default=True
        As in :func:`varimax`.

    Returns
    -------
    Rotation

    References
    ----------
    A. E. Hendrickson and P. O. White, "Promax: a quick method for rotation to oblique simple
    structure", British Journal of Statistical Psychology 17, 1964.
    """
    if not is_real(power) or not 1 <= power < math.inf:
        raise ValueError(f"`power`={power!r} must be a number of at least 1, such as 4.")
    given, unit, kind = _checked(loadings)
    rows = _rows(given, normalize, kind)
    first = _turned(rows)
    simple = rows @ first
    # A target for rounding error would turn the other components by any angle.
    kept = _counted(simple, COLUMN[kind])
    if not kept.any():
        return _sorted(given, unit, first, np.eye(kept.size))
    simple = simple[:, kept]
    # The scale of a target's column is arbitrary.  Without a peak of 1, large powers underflow.
    peaks = np.abs(simple).max(axis=0)
    scaled = simple / peaks
    target = scaled * np.abs(scaled) ** (power - 1)
    turn = np.linalg.lstsq(simple, target, rcond=None)[0]
    # Scores turn by the inverse transpose: this scale gives them unit variance.
    turn = turn * np.linalg.norm(np.linalg.pinv(turn), axis=1)
    inverse = np.linalg.pinv(turn)
    whole, correlations = np.eye(kept.size), np.eye(kept.size)
    whole[np.ix_(kept, kept)] = turn
    correlations[np.ix_(kept, kept)] = inverse @ inverse.T
    return _sorted(given, unit, first @ whole, correlations)


def _checked(loadings: Any) -> tuple[np.ndarray, float, str]:
    """Return the loadings in a unit in which their powers stay in range, this unit, and the type.

    The type is that of the given loadings, which determines what is rounding error.
    """
    given = as_real(loadings, "loadings")
    single = str(getattr(loadings, "dtype", "")).removeprefix("torch.") in LOW_PRECISION
    if given.ndim != 2 or 0 in given.shape:
        raise ValueError(f"`loadings` must have shape (d > 0, k > 0), got {given.shape}.")
    if not np.isfinite(given).all():
        raise ValueError("`loadings` has a non-finite value. Use the loadings of a fitted model.")
    unit = 2.0 ** (math.frexp(float(np.abs(given).max()))[1] - 1)  # division by it is exact
    return given / unit, unit, "float32" if single else "float64"


def _counted(columns: np.ndarray, least: float) -> np.ndarray:
    """Return the mask of columns longer than ``least`` times the longest."""
    lengths = np.linalg.norm(columns, axis=0)
    return np.asarray(lengths > least * lengths.max())


def _rows(given: np.ndarray, normalize: bool, kind: str) -> np.ndarray:
    """Return the rows, with length 1 if ``normalize``; those of rounding error are zeros.

    Columns of rounding error are zeros as well.
    """
    given = np.where(_counted(given, COLUMN[kind]), given, 0.0)
    if not normalize:
        return given
    given = np.where(_counted(given.T, ROW[kind])[:, None], given, 0.0)
    lengths = np.linalg.norm(given, axis=1, keepdims=True)
    return given / np.where(lengths > 0, lengths, 1.0)


def _turned(rows: np.ndarray) -> np.ndarray:
    """Return the orthogonal matrix ``(k, k)`` that maximises the criterion."""
    k = rows.shape[1]
    turned, matrix = rows.copy(), np.eye(k)
    pairs = list(combinations(np.flatnonzero(rows.any(axis=0)), 2))
    for _ in range(SWEEPS):
        widest = 0.0
        for i, j in pairs:
            angle = _best_angle(turned[:, i], turned[:, j])
            c, s = math.cos(angle), math.sin(angle)
            for part in (turned, matrix):
                part[:, [i, j]] = part[:, [i, j]] @ np.array([[c, -s], [s, c]])
            widest = max(widest, abs(angle))
        if widest < 1e-10:
            break
    return matrix


def _best_angle(x: np.ndarray, y: np.ndarray) -> float:
    """Return the angle by which two components are turned, Kaiser's equation."""
    u, v = x * x - y * y, 2 * x * y
    a, b = u.sum(), v.sum()
    across = 2 * (u @ v) - 2 * a * b / x.size
    along = u @ u - v @ v - (a * a - b * b) / x.size
    # Without a preference, as for columns that no component has, leave them.
    return 0.0 if math.hypot(across, along) < 1e-300 else math.atan2(across, along) / 4


def _sorted(
    given: np.ndarray, unit: float, matrix: np.ndarray, correlations: np.ndarray
) -> Rotation:
    """Sort components by their sums of squares and make the sum of their loadings positive."""
    turned = given @ matrix
    order = np.argsort(-np.sum(turned**2, axis=0), kind="stable")
    signs = np.where(turned[:, order].sum(axis=0) < 0, -1.0, 1.0)
    both = np.outer(signs, signs)
    correlations = correlations[order][:, order] * both
    return Rotation(turned[:, order] * signs * unit, matrix[:, order] * signs, correlations)
