"""What the sketch of a stream proves after its one pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca.arrays import to_numpy
from primedpca.bounds import stream_bounds
from primedpca.orthonormal import complete
from primedpca.priming.frequent_directions import UNIT, SketchState
from primedpca.protocols import Array
from primedpca.result import Certificate, Cluster

__all__ = ["sketch_certificate"]


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
        The middle of what each may be, at most ``Delta / 2`` off, divided by the weight as inside the library.
    certificate : Certificate
        Of kind "deterministic".
    """
    wide = to_numpy(state.sketch[: state.used]).astype(np.float64)
    # Not by the Gram matrix: from that the vectors of small singular values are not accurate.
    _, singular, rows = np.linalg.svd(wide, full_matrices=False)
    squares = singular**2
    rounding = state.rounding + _decomposition_error(wide, squares)
    intervals, angles, runs = stream_bounds(squares, state.loss, rounding, k)
    middle = np.concatenate([squares, np.zeros(max(0, k - squares.size))])[:k] + state.loss / 2
    per_row = (data.frame.gain / state.unit) ** 2 / state.weight
    scale = 1 / state.unit / state.unit / (state.weight - 1)
    certificate = Certificate(
        angle_bounds=angles,
        eigenvalue_bounds=intervals * scale,
        clusters=[Cluster(*run) for run in runs],
        kind="deterministic",
        failure_probability=0.0,
        zero=intervals[:, 1] <= 4 * rounding,
    )
    basis = data.like.asarray(np.ascontiguousarray(rows[:k].T))
    return complete(basis, data.like, k, 0), middle * per_row, certificate


def _decomposition_error(sketch: np.ndarray, squares: np.ndarray) -> float:
    """How far the squares and vectors of LAPACK are from those of the sketch as it is stored."""
    m, d = sketch.shape
    top, whole = float(squares[:1].sum()), float(squares.sum())
    return UNIT * (2 * d + 20 * m + 10) * math.sqrt(top * whole)
