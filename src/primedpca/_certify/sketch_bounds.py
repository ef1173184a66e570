"""What the sketch of a stream proves: alone, after its one pass, and of any basis after that."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca._certify.bounds import Evidence, certificate_of, spectral_norm, stream_bounds
from primedpca._certify.rounding import NEGLIGIBLE, UNIT, preparation_error, rounding_of
from primedpca._core.arrays import dtype_name, namespace, to_numpy
from primedpca._core.orthonormal import complete, small_eigh
from primedpca._operator.scaling import grown, widened
from primedpca.priming.sketch import SketchState
from primedpca.protocols import Array
from primedpca.result import Certificate, Cluster

__all__ = ["missed_by", "refined_certificate", "sketch_certificate"]


def sketch_certificate(
    state: SketchState, data: Any, k: int
) -> tuple[Array, np.ndarray, Certificate]:
    """Components, variances and what is proven of them, from a sketch alone: no pass is made.

    Parameters
    ----------
    state : SketchState
        What Frequent Directions ended with, best in float64: of a float32 sketch the rounding
        alone is most of the bound.
    data : Centred
        The data that it was shown.
    k : int

    Returns
    -------
    basis : array of shape (d, k)
        The leading right singular vectors of the sketch; past its rank, any that complete them.
    variances : ndarray of shape (k,)
        The middle of what each may be, at most ``Delta / 2`` off, divided by the weight as
        everywhere inside the library.
    certificate : Certificate
        Of kind "deterministic".
    """
    wide = to_numpy(state.sketch).astype(np.float64)
    # Not by the Gram matrix: from that the vectors of small singular values are not accurate.
    _, singular, rows = np.linalg.svd(wide, full_matrices=False)
    squares = singular**2
    ratio = state.unit / data.frame.gain
    top = (float(squares[:1].sum()) + state.loss) / ratio / ratio / state.weight
    prepared = preparation_error(data, top) * state.weight * ratio * ratio
    rounding = state.rounding + prepared + _decomposition_error(wide, squares)
    intervals, angles, runs = stream_bounds(squares, state.loss, rounding, k)
    middle = np.concatenate([squares, np.zeros(max(0, k - squares.size))])[:k] + state.loss / 2
    per_row = (data.frame.gain / state.unit) ** 2 / state.weight
    with np.errstate(over="ignore", under="ignore"):
        outside = intervals / (state.weight - 1) / state.unit / state.unit
        outside = grown(outside * widened(state.weight, state.depth + 16), intervals)
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


def _decomposition_error(sketch: np.ndarray, squares: np.ndarray) -> float:
    """How far the squares and vectors of LAPACK are from those of the sketch as it is stored."""
    m, d = sketch.shape
    top, whole = float(squares[:1].sum()), float(squares.sum())
    error: float = UNIT * (2 * d + 20 * m + 10) * math.sqrt(top) * math.sqrt(whole)
    return error


def refined_certificate(
    state: SketchState, data: Any, k: int, n_directions: int
) -> tuple[Array, np.ndarray, Certificate]:
    """The same after a second pass: the sketch's directions refined, and their residuals known.

    The bounds of Ritz vectors, with what they could have missed bounded by the sketch: far
    sharper than the sketch alone, and still nothing is left to probability.

    Parameters
    ----------
    state : SketchState
    data : Centred
        In float64.
    k, n_directions : int
        How many are wanted, and how many directions of the sketch are refined.
    """
    if dtype_name(data.like.dtype) != "float64":
        raise ValueError("the products of a certificate are made in float64: use `float64=True`.")
    p = min(max(k, n_directions), data.shape[1])
    basis = sketch_certificate(state, data, p)[0]
    products = data.covariance_product(basis)
    small = to_numpy(basis.T @ products)
    values, turn = small_eigh((small + small.T) / 2)
    rotation = data.like.asarray(turn)
    vectors = basis @ rotation
    residual = products @ rotation - vectors * data.like.asarray(values)
    b: np.ndarray = np.asarray(np.linalg.qr(to_numpy(residual), mode="r"))
    own = to_numpy(vectors.T @ vectors) - np.eye(p)
    skew = float(np.linalg.norm(own)) + data.shape[1] * UNIT
    e = rounding_of(data, p, math.hypot(values[0], spectral_norm(b)), skew)
    missed = missed_by((vectors,), state, data, skew)
    trace = max(0.0, data.total - float(values.sum())) + (math.sqrt(p) + 2) * e
    floor = NEGLIGIBLE * max(0.0, data.total - (math.sqrt(p) + 2) * e)
    evidence = Evidence(values, b, min(missed, trace), e, floor)
    certificate = certificate_of(evidence, k, data, "deterministic", 0.0)
    return vectors[:, :k], values[:k], certificate


def missed_by(basis: tuple[Array, ...], state: SketchState, data: Any, skew: float = 0.0) -> float:
    """A number at least the top eigenvalue of ``(I - U U^T) C (I - U U^T)``: no pass is made.

    ``|S (I - U U^T)|^2 + Delta``, the ``missed`` of Evidence: certain, valid for every basis, and
    much smaller than the bound by the trace where the spectrum decays slowly.

    Parameters
    ----------
    basis : tuple of arrays of shape (d, w)
        The orthonormal ``U``, in blocks.
    state : SketchState
        Of all rows of ``data``.
    data : Centred
    skew : float
        At least ``|U^T U - I|``.

    Returns
    -------
    float
        Divided by the weight, in the unit of ``data``, with its own rounding in it.
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
    # Forming the Gram matrix of the rest is off by so much of its own trace.
    left = left**2 + (sum(whole.shape) + 10) * UNIT * float(xp.sum(rest * rest))
    ratio = data.frame.gain / state.unit
    found: float = (left + state.loss + state.rounding) * ratio * ratio / state.weight
    return found + preparation_error(data, (size * ratio) ** 2 / state.weight)
