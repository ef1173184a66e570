"""Probabilistic PCA: the normal distribution given by components and noise variance.

With components ``V`` in rows, variances ``l`` and noise variance ``s``, the scaled data have the
covariance ``V^T diag(l - s) V + s I``; undoing the scale ``D`` gives ``D (...) D``.  See Tipping &
Bishop, "Probabilistic principal component analysis", 1999.
"""

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import to_numpy


class Model(NamedTuple):
    """Parameters of the distribution.

    Attributes
    ----------
    components : ndarray of shape (k, d)
        Orthonormal rows.
    variances : ndarray of shape (k,)
        Variances of the components, in the unit of the scaled data.
    noise : float
        Variance in every direction outside the span of the components.
    scale : ndarray of shape (d,) or None
        Divisors of the columns.
    """

    components: np.ndarray
    variances: np.ndarray
    noise: float
    scale: np.ndarray | None


def covariance(model: Model) -> np.ndarray:
    """Return the covariance ``(d, d)`` in the units of the data."""
    v, above = model.components, np.maximum(model.variances - model.noise, 0.0)
    dense = (v.T * above) @ v
    dense.flat[:: v.shape[1] + 1] += model.noise
    found: np.ndarray = dense if model.scale is None else dense * _products(model.scale)
    return found


def precision(model: Model) -> np.ndarray:
    """Return the inverse of :func:`covariance`, ``(d, d)``."""
    _check_definite(model)
    # In closed form, because the components are orthonormal: no matrix is inverted.
    v = model.components
    if model.noise > 0:
        dense = (v.T * (1 / model.variances - 1 / model.noise)) @ v
        dense.flat[:: v.shape[1] + 1] += 1 / model.noise
    else:
        dense = (v.T / model.variances) @ v
    found: np.ndarray = dense if model.scale is None else dense / _products(model.scale)
    return found


def _products(scale: np.ndarray) -> np.ndarray:
    """Return the product of every two divisors, ``(d, d)``; in float32 it could overflow."""
    wide = scale.astype(np.float64)
    return np.outer(wide, wide)


def log_likelihood(model: Model, data: Any) -> np.ndarray:
    """Return the log density of each row of ``data``, ``(n,)``, in one pass.

    No ``(d, d)`` matrix is formed.

    Parameters
    ----------
    model : Model
    data : Centred
        Multiplied in float64, because the distance of a row from the span of the components is
        a small difference of squared norms.
    """
    _check_definite(model)
    k, d = model.components.shape
    scores, squares = data.scores_and_squares(data.like.asarray(model.components.T))
    scores, squares = to_numpy(scores), to_numpy(squares)
    distance = (scores**2 / model.variances).sum(axis=1)
    log_det = float(np.log(model.variances).sum())
    if model.noise > 0:
        # Squared distance from the span, which rounding may make slightly negative.
        distance += np.maximum(squares - (scores**2).sum(axis=1), 0.0) / model.noise
        log_det += (d - k) * math.log(model.noise)
    if model.scale is not None:
        log_det += 2 * float(np.log(model.scale.astype(np.float64)).sum())
    densities: np.ndarray = -0.5 * (distance + log_det + d * math.log(2 * math.pi))
    return densities


def _check_definite(model: Model) -> None:
    """Raise ValueError if the covariance is singular."""
    k, d = model.components.shape
    least = sys.float_info.min  # smaller numbers have few digits, and no finite reciprocal
    if (k < d and model.noise < least) or not (model.variances >= least).all():
        raise ValueError(
            "The model is rank-deficient, or has variances below the range of float64, and has no "
            "density. Lower `n_components`, or multiply small numbers `X` by a constant."
        )
