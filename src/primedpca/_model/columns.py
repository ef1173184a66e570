"""Columns as a model decomposes them: their variances, and correlations with components."""

from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred
from primedpca._operator.statistics import deviations_of

#: Excess of a correlation over 1 that components within the default tolerance may cause.
SLIGHT = 1e-3


def column_variances(source: Any, model: Any) -> tuple[np.ndarray, float]:
    """Return the variances of the columns ``(d,)``, scaled as in the model, and the passes taken.

    Divided by n - 1, like those of components; second moments if the model does not centre.
    Columns that are constant up to rounding have no variance if the model was standardised.
    """
    how = {"center": model.center_, "missing": model.missing}
    data = Centred(source, model.engine, scale="std", **how)
    frame, spread = deviations_of(data, constant=model.standardised_)
    n = data.shape[0]
    divisor = 1.0 if model.scale_ is None else model.scale_.astype(np.float64)
    squares = (to_numpy(spread) / divisor) ** 2
    if not model.center_:
        squares = squares + (to_numpy(frame.mean) / frame.unit / divisor) ** 2
    return squares * (n / (n - 1)), data.passes  # n times a variance may overflow


def standard_variance(model: Any) -> float | None:
    """Return the variance of each column that varies, after ``scale="std"``: W / (W - 1).

    Standard deviations divide by the sum W of the weights, variances by W - 1.  ``None`` for models
    whose columns do not have one variance in common: not standardised, or not centred.
    """
    standardised = getattr(model, "standardised_", False) and model.center_
    if not standardised or not model.explained_variance_.size:
        return None
    variance, value = (
        float(part[0]) for part in (model.explained_variance_, model.singular_values_)
    )
    # W - 1, which `n_samples_` is not if weights are fractions.
    return 1.0 + variance / value**2 if value > 0 else 1.0


def leading_above(variances: np.ndarray, thresholds: Any, dtype: Any) -> int:
    """Return how many of the first variances exceed their thresholds by more than rounding."""
    below = np.flatnonzero(variances <= np.asarray(thresholds) * (1 + rounding_of(dtype)))
    return int(below[0]) if below.size else variances.size


def rounding_of(dtype: Any) -> float:
    """Return the relative rounding error of variances of components in ``dtype``."""
    return max(1e-12, 10 * float(np.finfo(dtype).eps))


def scaled_loadings(model: Any) -> np.ndarray:
    """Return covariances of columns with components of unit variance, ``(d, k)``.

    Correlations if the columns were centred and standardised.
    """
    found = model.components_.T.astype(np.float64)
    found = found * np.sqrt(model.explained_variance_.astype(np.float64))
    variance = standard_variance(model)
    return np.asarray(found if variance is None else found / np.sqrt(variance))


def correlations(model: Any, x: Any = None, sample_weight: Any = None) -> np.ndarray:
    """Return the correlations of columns with components, ``(d, k)``.

    Without ``x`` they are those of the fit.  With it, they are computed from these rows, whatever
    the model was fitted to, and however accurate its components are.
    """
    if x is not None:
        return _of_rows(model, x, sample_weight)
    if sample_weight is not None:
        raise ValueError("`sample_weight` needs `X`. Pass the rows that the weights belong to.")
    if not getattr(model, "center_", True):
        raise ValueError(
            "A model with `center`=False does not determine correlations, which are about means. "
            "Pass `X`, or fit with `center`=True."
        )
    if standard_variance(model) is None:
        raise ValueError(
            "The variances of the columns are not known. Pass `X`, or fit with `scale`='std'."
        )
    found = scaled_loadings(model)
    most = float(np.abs(found).max(initial=0.0))
    if not most <= 1 + SLIGHT:
        raise ValueError(
            f"A correlation of {most:.4g} exceeds 1, because the components are not accurate "
            "enough. Pass `X`, or fit with a smaller `tol`."
        )
    return np.asarray(np.clip(found, -1.0, 1.0))


def _of_rows(model: Any, x: Any, sample_weight: Any) -> np.ndarray:
    """Return the correlations of the columns of ``x`` with its scores, in three passes."""
    source = model._source(x, reset=False)
    how = {"missing": model.missing, "sample_weight": sample_weight}
    columns = Centred(source, model.engine, scale="std", **how)
    spread = to_numpy(deviations_of(columns, constant=True)[1])
    scale = np.ones(spread.size) if model.scale_ is None else model.scale_.astype(np.float64)
    data = Centred(source, model.engine, scale=scale, float64=True, **how)
    vectors = model.components_.T.astype(np.float64)
    products = to_numpy(data.covariance_product(data.like.asarray(vectors))).astype(np.float64)
    deviations = np.sqrt(np.maximum((vectors * products).sum(axis=0), 0.0))
    least = 2.0**-23 * deviations.max(initial=0.0)  # rounding error, of no variance
    bottom = (spread / scale)[:, None] * deviations * data.frame.gain
    known = (bottom > 0) & (deviations > least)
    found = np.divide(products, bottom, out=np.zeros_like(products), where=known)
    return np.asarray(np.clip(found, -1.0, 1.0))  # beyond 1 by rounding only (Cauchy-Schwarz)
