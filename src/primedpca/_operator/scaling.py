"""Components and variances in the unit of the data, divided by ``n - 1`` here and nowhere else.

Inside the library products are divided by the weight, so that batches average cleanly, and are
in the unit of the operator.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca._core.orthonormal import as_components
from primedpca._operator.operator import Centred
from primedpca.protocols import Array
from primedpca.result import Decomposition

__all__ = ["bounds_in_unit_of_data", "decomposition", "grown", "in_unit_of_data", "widened"]


def in_unit_of_data(data: Centred, variances: Any) -> Any:
    """The one place where variances are rescaled from ``n`` to ``n - 1`` and to the data's unit."""
    # By one gain at a time: its square may leave the range of float64.
    with np.errstate(over="ignore", under="ignore"):
        return variances * (data.weight / (data.weight - 1)) / data.frame.gain / data.frame.gain


def widened(weight: float, steps: float) -> np.ndarray:
    """What bounds from below and above are multiplied with, as ``weight`` is a sum, rounded.

    It is off by ``steps`` times ``2^-53`` of itself at most, less 1 by more where it is near 1.
    """
    slip = steps * 2.0**-53 * weight / (weight - 1)
    largest = np.finfo(np.float64).max  # times zero it is zero, unlike infinity
    return np.array([max(0.0, 1 - slip), 1 + 2 * slip if slip < 0.5 else largest])


def bounds_in_unit_of_data(data: Centred, bounds: np.ndarray) -> np.ndarray:
    """Intervals ``(k, 2)`` in the data's unit, rounded outward."""
    with np.errstate(over="ignore", under="ignore"):
        return grown(in_unit_of_data(data, bounds) * widened(data.weight, 4), bounds)


def grown(scaled: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """What became of intervals ``(k, 2)`` in another unit, rounded outward if it is subnormal.

    There each of up to four operations is off by half of the least number there is; nothing
    that was not zero before is zero.
    """
    steps = np.array([-2, 2]) * np.finfo(np.float64).smallest_subnormal
    return np.where(bounds > 0, np.maximum(scaled + steps, 0.0), scaled)


def decomposition(data: Centred, basis: Array, variances: np.ndarray) -> Decomposition:
    """What belongs to the principal directions ``basis`` ``(d, k)`` of these ``variances``."""
    with np.errstate(over="ignore"):
        scaled = in_unit_of_data(data, variances[: basis.shape[1]])
        total = in_unit_of_data(data, np.float64(data.total))
    if not (np.isfinite(scaled).all() and (math.isnan(total) or np.isfinite(total))):
        raise ValueError(
            "the variances of `X` exceed the range of float64; divide `X` by a large number."
        )
    return Decomposition(
        components=as_components(basis),
        explained_variance=scaled,
        mean=data.mean,
        scale=data.frame.scale,
        total_variance=float(total),
        n_samples=data.weight * data.weight_unit,
    )
