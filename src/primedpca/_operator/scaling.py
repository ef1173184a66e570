"""Conversion of variances to the unit of the data and to the divisor ``n - 1``.

Inside the library, products are divided by the weight ``n``, so that batches can be averaged, and
are in the unit of the operator.  Only this module converts them.
"""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any

import numpy as np

from primedpca._core.orthonormal import as_components
from primedpca._operator.operator import Centred
from primedpca.protocols import Array
from primedpca.result import Decomposition

__all__ = ["bounds_in_unit_of_data", "decomposition", "grown", "in_unit_of_data"]


#: Warning of variances that are rounded to 0, in two sentences.
BELOW_RANGE = "The variances of `X` are below the range of float64 and are rounded to 0."
UNIT = "Multiply `X` by a large number."
#: Half the smallest positive number, four times, down and up.
FOUR_HALVES = np.array([-2, 2]) * np.finfo(np.float64).smallest_subnormal


def in_unit_of_data(data: Centred, variances: Any) -> Any:
    """Return variances with divisor ``n - 1`` instead of ``n``, in the unit of the data."""
    scaled, gain = variances * (data.weight / (data.weight - 1)), data.frame.gain
    if gain == 1.0:
        return scaled
    # Divide by the gain twice: its square may overflow or underflow in float64.
    with np.errstate(over="ignore", under="ignore"):
        return scaled / gain / gain


def bounds_in_unit_of_data(data: Centred, bounds: np.ndarray) -> np.ndarray:
    """Return intervals ``(k, 2)`` in the unit of the data, rounded outward."""
    with np.errstate(over="ignore", under="ignore"):
        return grown(in_unit_of_data(data, bounds), bounds, data.weight, 4)


def grown(scaled: np.ndarray, bounds: np.ndarray, weight: float, steps: float) -> np.ndarray:
    """Widen intervals ``(k, 2)`` by the rounding errors of a change of unit.

    ``weight`` is a rounded sum with a relative error of at most ``steps`` times ``2^-53``.  The
    relative error of ``weight - 1`` is larger if the weight is near 1.

    Among subnormal numbers, each of up to four operations is off by at most half of the smallest
    positive number.  A positive upper bound therefore stays positive.

    Parameters
    ----------
    scaled : ndarray of shape (k, 2)
        Intervals after the change of unit.
    bounds : ndarray of shape (k, 2)
        The same intervals before it.  Bounds of exactly 0 are not widened.
    weight : float
        Sum of the weights, above 1.
    steps : float
        Number of roundings to cover.
    """
    slip = steps * 2.0**-53 * weight / (weight - 1)
    # Not infinity, which times a bound of 0 would be NaN.
    high = 1 + 2 * slip if slip < 0.5 else sys.float_info.max
    scaled = scaled * np.array([max(0.0, 1 - slip), high])
    return np.where(bounds > 0, np.maximum(scaled + FOUR_HALVES, 0.0), scaled)


def decomposition(data: Centred, basis: Array, variances: np.ndarray) -> Decomposition:
    """Return the decomposition with the principal directions ``basis`` and their variances.

    Parameters
    ----------
    data : Centred
    basis : array of shape (d, k)
        Orthonormal columns.
    variances : ndarray of shape (>= k,)
        Variances with divisor ``n`` in the unit of the operator, largest first.
    """
    scaled = in_unit_of_data(data, variances[: basis.shape[1]])
    total = float(in_unit_of_data(data, np.float64(data.total)))
    if not np.isfinite(scaled).all() or math.isinf(total):
        raise ValueError(
            "The variances of `X` exceed the range of float64. Divide `X` by a large number."
        )
    if data.total > 0 and total < sys.float_info.min:
        warnings.warn(f"{BELOW_RANGE} {UNIT}", RuntimeWarning, stacklevel=2)
    few = variances[: basis.shape[1]]
    scaled_by_user = data.frame.scale is not None and not data.standardise
    deviation = math.sqrt(data.total) / data.frame.gain
    if scaled_by_user and data.total > 0 and deviation < sys.float_info.min:
        raise ValueError(
            f"The standard deviations of `X` divided by `scale` are below "
            f"{sys.float_info.min:.2g}, the range of float64. Use a smaller `scale`."
        )
    small = bool(((few > 0) & (scaled < sys.float_info.min)).any())
    # The variances of numbers below 1e-154 are below the range of float64, not their roots.
    size = math.sqrt(data.weight / (data.weight - 1)) / data.frame.gain
    return Decomposition(
        components=as_components(basis),
        explained_variance=scaled,
        mean=data.mean,
        scale=data.frame.scale,
        total_variance=total,
        n_samples=data.weight * data.weight_unit,
        fill=None if data.center else data.fill,
        deviations=np.sqrt(np.maximum(few, 0.0)) * size if small else None,
        total_deviation=math.sqrt(data.total) * size if small else math.nan,
    )
