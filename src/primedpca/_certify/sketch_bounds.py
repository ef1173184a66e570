"""Proofs from a Frequent Directions sketch: by itself, after refinement, and for any basis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca._certify.bounds import (
    NEGLIGIBLE,
    UNIT,
    Evidence,
    certificate_of,
    largest_within,
    preparation_error,
    rounding_of,
    spectral_norm,
    stream_bounds,
)
from primedpca._core.arrays import dtype_name, namespace, to_numpy
from primedpca._core.orthonormal import complete, small_eigh, triangle
from primedpca._operator.scaling import grown
from primedpca.priming.sketch import SketchState
from primedpca.protocols import Array
from primedpca.result import Certificate, Cluster

__all__ = ["missed_by", "refined_certificate", "sketch_certificate"]


def sketch_certificate(
    state: SketchState, data: Any, k: int, most: float = math.inf
) -> tuple[Array, np.ndarray, Certificate]:
    """Return components, variances and their certificate from a sketch, without a pass.

    Parameters
    ----------
    state : SketchState
        Final state of Frequent Directions, preferably in float64: for a float32 sketch, rounding
        errors are most of the bound.
    data : Centred
        The data that were sketched.
    k : int
        Number of components.
    most : float, default=inf
        Upper bound on the sum of all variances, with rounding, as the sketch counts them.

    Returns
    -------
    basis : array of shape (d, k)
        Leading right singular vectors of the sketch; beyond its rank, arbitrary orthonormal ones.
    variances : ndarray of shape (k,)
        Midpoints of the proven intervals, at most ``Delta / 2`` off, or less where the total does
        not leave so much; with divisor ``n`` as everywhere inside the library.
    certificate : Certificate
        Of kind "deterministic".
    """
    wide = to_numpy(state.sketch).astype(np.float64)
    # Not from the Gram matrix: squaring would make vectors of small singular values inaccurate.
    _, singular, rows = np.linalg.svd(wide, full_matrices=False)
    squares = singular**2
    data.learn()  # the stream may not have settled the unit of the data
    ratio = state.unit / data.frame.gain
    top = (float(squares[:1].sum()) + state.loss) / ratio / ratio / state.weight
    prepared = preparation_error(data, top) * state.weight * ratio * ratio
    rounding = state.rounding + prepared + _decomposition_error(wide, squares)
    intervals, angles, runs = stream_bounds(squares, state.loss, rounding, k)
    lower = np.maximum(squares - rounding, 0.0)
    limits = largest_within(lower, most, k)
    intervals[:, 1] = np.maximum(np.minimum(intervals[:, 1], limits), intervals[:, 0])
    middle = np.clip(_estimates(state, squares, lower, k, most), *intervals.T)
    per_row = (data.frame.gain / state.unit) ** 2 / state.weight
    with np.errstate(over="ignore", under="ignore"):
        outside = intervals / (state.weight - 1) / state.unit / state.unit
        outside = grown(outside, intervals, state.weight, state.depth + 16)
    floor = NEGLIGIBLE * max(0.0, state.total - 4 * max(1, squares.size) * rounding)
    certificate = Certificate(
        angle_bounds=angles,
        eigenvalue_bounds=outside,
        clusters=[Cluster(*run) for run in runs],
        kind="deterministic",
        failure_probability=0.0,
        zero=intervals[:, 1] <= min(4 * rounding, floor),
    )
    basis = data.like.asarray(np.ascontiguousarray(rows[:k].T))
    return complete(basis, data.like, k, 0), middle * per_row, certificate


def _estimates(
    state: SketchState, squares: np.ndarray, lower: np.ndarray, k: int, most: float
) -> np.ndarray:
    """Return estimates of the first ``k`` variances, which add up to the total at most.

    They are half of the loss above the squares, unless the total does not leave that.  Before a
    sketch is rescaled, it has lost at least ``(size + 1) * loss`` of the total.
    """
    kept = squares
    if squares.sum() > most:  # values that were filled in far from the final means
        kept = lower + (squares - lower) * max(0.0, (most - lower.sum()) / (squares - lower).sum())
    lost = max(0.0, state.total - float(kept.sum()))
    share = min(state.loss / 2, lost / (k if most == math.inf else 2 * (state.size + 1)))
    found: np.ndarray = np.concatenate([kept, np.zeros(max(0, k - kept.size))])[:k] + share
    return found


def _decomposition_error(sketch: np.ndarray, squares: np.ndarray) -> float:
    """Bound on the error of LAPACK's SVD, as an error of ``S^T S``."""
    m, d = sketch.shape
    top, whole = float(squares[:1].sum()), float(squares.sum())
    error: float = UNIT * (2 * d + 20 * m + 10) * math.sqrt(top) * math.sqrt(whole)
    return error


def refined_certificate(
    state: SketchState, data: Any, k: int, n_directions: int
) -> tuple[Array, np.ndarray, Certificate]:
    """Return refined components, variances and their certificate, with one more pass.

    The pass refines directions of the sketch to Ritz vectors and computes their residuals.  The
    sketch bounds what the Ritz vectors can have missed.  The bounds are much sharper than those
    of the sketch alone, and still deterministic.

    Parameters
    ----------
    state : SketchState
        Final state of Frequent Directions.
    data : Centred
        The data that were sketched, multiplied in float64.
    k : int
        Number of components to return.
    n_directions : int
        Number of directions of the sketch to refine; at least ``k`` are refined.

    Returns
    -------
    basis, variances, certificate
        As :func:`sketch_certificate`.
    """
    if dtype_name(data.like.dtype) != "float64":
        raise ValueError(
            "A certificate needs products in float64. Prepare the data with `float64`=True."
        )
    p = min(max(k, n_directions), data.shape[1])
    basis = sketch_certificate(state, data, p)[0]
    products = data.covariance_product(basis)
    small = to_numpy(basis.T @ products)
    values, turn = small_eigh((small + small.T) / 2)
    rotation = data.like.asarray(turn)
    vectors = basis @ rotation
    residual = products @ rotation - vectors * data.like.asarray(values)
    b = triangle(residual)
    # Deviation from orthonormality as measured, plus the rounding error of the measurement.
    own = to_numpy(vectors.T @ vectors) - np.eye(p)
    skew = float(np.linalg.norm(own)) + data.shape[1] * UNIT
    e = rounding_of(data, p, math.hypot(values[0], spectral_norm(b)), skew)
    missed = missed_by((vectors,), state, data, skew)
    trace = max(0.0, data.total - float(values.sum())) + (math.sqrt(p) + 2) * e
    floor = NEGLIGIBLE * max(0.0, data.total - (math.sqrt(p) + 2) * e)
    # Both bounds are deterministic, so the smaller one holds as well.
    evidence = Evidence(values, b, min(missed, trace), e, floor)
    certificate = certificate_of(evidence, k, data, "deterministic", 0.0)
    return vectors[:, :k], values[:k], certificate


def missed_by(basis: tuple[Array, ...], state: SketchState, data: Any, skew: float = 0.0) -> float:
    """Upper bound on the top eigenvalue of ``(I - U U^T) C (I - U U^T)``, without a pass.

    The bound ``|S (I - U U^T)|^2 + Delta`` serves as ``missed`` of Evidence.  It is deterministic,
    holds for every basis, and is much smaller than the trace bound if the spectrum decays slowly.

    Parameters
    ----------
    basis : tuple of arrays of shape (d, w)
        The orthonormal ``U``, in blocks.
    state : SketchState
        Sketch of all rows of ``data``.
    data : Centred
    skew : float, default=0.0
        Upper bound on ``|U^T U - I|``.

    Returns
    -------
    float
        With divisor ``n``, in the unit of ``data``; rounding errors are included.
    """
    xp = namespace(state.sketch)
    rest = whole = xp.astype(state.sketch, xp.float64, copy=False)
    for block in basis:
        wide = xp.astype(block, xp.float64, copy=False)
        rest = rest - (rest @ wide) @ wide.T
    size = math.sqrt(float(xp.sum(whole * whole)))
    top = spectral_norm(to_numpy(rest @ rest.T)) if whole.shape[0] else 0.0
    width = sum(block.shape[1] for block in basis)
    steps = (sum(whole.shape) + width + 10) * math.sqrt(max(width, 1)) * UNIT
    left = math.sqrt(top) + (2 * steps + 2 * skew) * size
    # Rounding error of the Gram matrix of the rest, relative to its own trace.
    left = left**2 + (sum(whole.shape) + 10) * UNIT * float(xp.sum(rest * rest))
    ratio = data.frame.gain / state.unit
    found: float = (left + state.loss + state.rounding) * ratio * ratio / state.weight
    return found + preparation_error(data, (size * ratio) ** 2 / state.weight)
