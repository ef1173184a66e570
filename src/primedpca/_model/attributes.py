"""Fitted attributes of the estimator, with the names of scikit-learn's PCA."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca.result import Decomposition

#: Maximum number of columns whose names are kept: more names would take too much memory.
MOST_NAMES = 2**20
#: Largest sum of weights that counts as a number of rows.
MOST_ROWS = 2**62
#: Distance from a whole number of rows that rounding may cause.
LITTLE = 1e-6
#: Ratio to the largest variance up to which a variance is rounding error of float64.  Data beyond
#: their rank leave at most 4 eps, as 5,000 x 1,000 of rank 3 do; this is 64 eps.
LEAST_VARIANCE = 2.0**-46
#: What a fit stores besides attributes whose names end with an underscore.
PRIVATE = ("_frames", "_stream_components", "_sketch", "_fit_svd_solver")


def attributes(
    found: Decomposition,
    k: int | None = None,
    *,
    present: int,
    center: bool,
    standardised: bool,
) -> dict[str, Any]:
    """Return the fitted attributes that describe the data, as a dict.

    Parameters
    ----------
    found : Decomposition
    k : int, optional
        Number of components to keep, by default all.
    present : int
        Number of rows whose weight is not zero.
    center : bool
        Whether the mean was subtracted.
    standardised : bool
        Whether the columns were divided by their standard deviations.
    """
    k = found.explained_variance.size if k is None else k
    components = np.ascontiguousarray(to_numpy(found.components)[:k])
    dtype, total = components.dtype, found.total_variance
    variances = found.explained_variance[:k]
    # Rounding may leave less in the total than in its parts.
    whole = max(total, float(variances.sum()))
    ratio = variances / whole if whole > 0 else np.zeros_like(variances)
    if found.deviations is not None:  # some variances are below the range of float64
        roots = found.deviations[:k]
        size = max(found.total_deviation, math.hypot(*roots))
        ratio = (roots / size) ** 2 if size > 0 else np.zeros_like(roots)
    # A row of weight 2 counts as two.  Weights that are no frequencies, such as fractions that add
    # up to little more than 1, do not make rows fewer.
    # Squares of the roots of whole weights add up to a whole number but for rounding.
    near = round(min(found.n_samples, MOST_ROWS))
    rows = near if abs(found.n_samples - near) < LITTLE else int(min(found.n_samples, MOST_ROWS))
    rows = max(present, rows) if present else 0
    left = min(rows, components.shape[1]) - k
    rest, eps = total - float(variances.sum()), float(np.finfo(dtype).eps)
    least = 10 * eps
    if not math.isnan(found.left_out):
        # Variances were computed in float64.  Components in float32 leave d eps^2 in rows that lie
        # in their span.
        rest = found.left_out + float(found.explained_variance[k:].sum())
        least = 10 * max(float(np.finfo(np.float64).eps), components.shape[1] * eps**2)
    rest = rest if rest > least * total else 0.0  # otherwise rounding, not noise
    return {
        "components_": components,
        "mean_": to_numpy(found.mean),
        "scale_": None if found.scale is None else to_numpy(found.scale),
        "center_": center,
        "standardised_": standardised,
        "fill_": None if found.fill is None else to_numpy(found.fill),
        "n_components_": k,
        "n_samples_": rows,
        "explained_variance_": _fitting(variances, dtype),
        "explained_variance_ratio_": ratio.astype(dtype),
        "singular_values_": _fitting(found.singular_values[:k], dtype),
        "noise_variance_": rest / left if left > 0 else 0.0,
    }


@contextmanager
def unchanged_by_errors(model: Any) -> Iterator[None]:
    """Context of a fit in which an error leaves the model as it was, fitted or not.

    Otherwise a model could have the components of one fit and the columns of another.  Parameters
    and the callbacks of scikit-learn are not restored.
    """
    before = vars(model).copy()
    try:
        yield
    except BaseException:
        names = before.keys() | vars(model).keys()
        for name in (name for name in names if name.endswith("_") or name in PRIVATE):
            if name in before:
                vars(model)[name] = before[name]
            else:
                del vars(model)[name]
        raise


def check_names(model: Any, source: Any, reset: bool) -> bool:
    """Store the column names of a source in the model, or compare them with the stored ones.

    Parameters
    ----------
    model : PrimedPCA
    source : DataSource
    reset : bool
        Whether to store the names (in a fit) or to compare them (for new rows).

    Returns
    -------
    bool
        Whether the source has column names.
    """
    names = source.traits.feature_names() if source.shape[1] <= MOST_NAMES else None
    if names is None:
        return False
    names = np.asarray(names, dtype=object)
    known = getattr(model, "feature_names_in_", None)
    if reset:
        model.feature_names_in_ = names
    elif known is not None and known.size == names.size and (known != names).any():
        j = int(np.flatnonzero(known != names)[0])
        raise ValueError(
            f"`X` has {names[j]!r} as column {j} (counted from 0), but the model was fitted with "
            f"{known[j]!r}. Put the columns in the order of `feature_names_in_`."
        )
    return True


def with_variance(variances: np.ndarray, least: float = LEAST_VARIANCE) -> np.ndarray:
    """Mask of the components whose variance exceeds ``least`` times the largest, ``(k,)``."""
    values = np.asarray(variances, dtype=np.float64)
    return np.asarray(values > least * values.max(initial=0.0))


def divisible(model: Any) -> np.ndarray:
    """Mask of the components of a fitted model with a variance to divide by, ``(k,)``.

    A fit in float32 leaves up to about eps / 2 of the largest variance; one with a certificate
    computes variances in float64.
    """
    least = LEAST_VARIANCE
    if getattr(model, "certificate_", None) is None:
        least = max(least, 10 * float(np.finfo(model.components_.dtype).eps))
    return with_variance(model.explained_variance_, least)


def deviations(model: Any) -> np.ndarray:
    """Divisors for whitening, ``(k,)``: standard deviations, or 1 where rounding hides them."""
    found = np.where(divisible(model), np.sqrt(model.explained_variance_), 1.0)
    return found.astype(model.components_.dtype)


def _fitting(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Return a copy in ``dtype``, or ``values`` in float64 if the largest is out of range."""
    if dtype == np.float64:
        return values.copy()
    info = np.finfo(dtype)
    largest = np.abs(values).max(initial=0.0)
    return values.astype(dtype) if largest == 0 or info.tiny <= largest <= info.max else values
