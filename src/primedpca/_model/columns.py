"""Variances of the columns as a model decomposes them."""

from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred
from primedpca._operator.statistics import deviations_of


def column_variances(source: Any, model: Any) -> tuple[np.ndarray, float]:
    """Return the variances of the columns ``(d,)``, scaled as in the model, and the passes taken.

    Divided by n - 1, like those of components; second moments if the model does not centre.
    Columns that are constant up to rounding have no variance if the model was standardised.
    """
    how = {"center": model.center_, "missing": model.missing}
    data = Centred(source, model.engine, scale="std", **how)
    standardised = isinstance(model.scale, str)
    frame, spread = deviations_of(data, constant=standardised)
    n = data.shape[0]
    divisor = 1.0 if model.scale_ is None else model.scale_.astype(np.float64)
    squares = (to_numpy(spread) / divisor) ** 2
    if not model.center_:
        squares = squares + (to_numpy(frame.mean) / frame.unit / divisor) ** 2
    return squares * n / (n - 1), data.passes
