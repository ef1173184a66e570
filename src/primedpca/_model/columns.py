"""Variances of the columns as a model decomposes them."""

from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred


def column_variances(source: Any, model: Any) -> tuple[np.ndarray, float]:
    """Return the variances of the columns ``(d,)``, scaled as in the model, and the passes taken.

    Divided by n - 1, like those of components; second moments if the model does not centre.
    """
    how = {"center": model.center_, "missing": model.missing}
    data = Centred(source, model.engine, scale="std", **how)
    frame, n = data.learn(), data.shape[0]
    divisor = 1.0 if model.scale_ is None else model.scale_.astype(np.float64)
    spread = to_numpy(frame.scale).astype(np.float64) / divisor
    # Constant columns have scale 1 and are multiplied by zero.
    squares = np.where(to_numpy(frame.columns.factor) == 0, 0.0, spread**2)
    if not model.center_:
        squares = squares + (to_numpy(frame.mean) / frame.unit / divisor) ** 2
    return squares * n / (n - 1), data.passes
