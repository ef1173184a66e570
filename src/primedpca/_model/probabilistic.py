"""Probabilistic PCA: the normal distribution that components and noise make.

With components ``V``, variances ``l`` and noise ``s`` the scaled data have the covariance
``V^T diag(l - s) V + s I``; undoing the scale ``D`` gives ``D (...) D``.  See Tipping & Bishop,
"Probabilistic principal component analysis", 1999.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import to_numpy

__all__ = ["Model", "covariance", "log_likelihood", "precision"]


class Model(NamedTuple):
    """Components ``(k, d)``, their variances ``(k,)``, the noise, and the scale or ``None``."""

    components: np.ndarray
    variances: np.ndarray
    noise: float
    scale: np.ndarray | None


def covariance(model: Model) -> np.ndarray:
    """The covariance ``(d, d)`` in the units of the data."""
    v, above = model.components, np.maximum(model.variances - model.noise, 0.0)
    dense = (v.T * above) @ v
    dense.flat[:: v.shape[1] + 1] += model.noise
    found: np.ndarray = dense if model.scale is None else dense * np.outer(model.scale, model.scale)
    return found


def precision(model: Model) -> np.ndarray:
    """The inverse of :func:`covariance`."""
    _check_definite(model)
    v = model.components
    if model.noise > 0:
        dense = (v.T * (1 / model.variances - 1 / model.noise)) @ v
        dense.flat[:: v.shape[1] + 1] += 1 / model.noise
    else:
        dense = (v.T / model.variances) @ v
    found: np.ndarray = dense if model.scale is None else dense / np.outer(model.scale, model.scale)
    return found


def log_likelihood(model: Model, data: Any) -> np.ndarray:
    """The log density of every row of ``data``, ``(n,)``: in one pass and without ``(d, d)``.

    ``data`` multiplies in float64: the distance from the span is a small difference.
    """
    _check_definite(model)
    k, d = model.components.shape
    scores, squares = data.scores_and_squares(data.like.asarray(model.components.T))
    scores, squares = to_numpy(scores), to_numpy(squares)
    distance = (scores**2 / model.variances).sum(axis=1)
    log_det = float(np.log(model.variances).sum())
    if model.noise > 0:
        distance += np.maximum(squares - (scores**2).sum(axis=1), 0.0) / model.noise
        log_det += (d - k) * math.log(model.noise)
    if model.scale is not None:
        log_det += 2 * float(np.log(model.scale.astype(np.float64)).sum())
    densities: np.ndarray = -0.5 * (distance + log_det + d * math.log(2 * math.pi))
    return densities


def _check_definite(model: Model) -> None:
    k, d = model.components.shape
    if (k < d and model.noise <= 0) or not (model.variances > 0).all():
        raise ValueError(
            "the fitted model has no variance in some directions (rank-deficient data), so it "
            "has no density and its covariance no inverse; lower `n_components`."
        )
