"""A decomposition in the words of scikit-learn's PCA."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred
from primedpca.result import Decomposition
from primedpca.sources import maps
from primedpca.sources.wrappers.mapped import Mapped

__all__ = ["attributes", "check_names", "circumstances", "deviations", "map_of", "write_scores"]

MOST_NAMES = 2**20  # beyond, names of columns would take more room than they are worth


def attributes(found: Decomposition, k: int, shape: tuple[int, int]) -> dict[str, Any]:
    """The fitted attributes that scikit-learn's PCA has too, for the first ``k`` components."""
    components = np.ascontiguousarray(to_numpy(found.components)[:k])
    dtype, total = components.dtype, found.total_variance
    variances = found.explained_variance[:k]
    ratio = variances / total if total > 0 else np.zeros_like(variances)
    left = min(shape) - k
    rest = max(0.0, total - float(variances.sum()))
    # A rest below rounding is no noise, but what is left of the sum.
    rest = 0.0 if rest <= 10 * float(np.finfo(dtype).eps) * total else rest
    return {
        "components_": components,
        "mean_": to_numpy(found.mean),
        "scale_": None if found.scale is None else to_numpy(found.scale),
        "n_components_": k,
        "n_samples_": shape[0],
        "explained_variance_": _fitting(variances, dtype),
        "explained_variance_ratio_": ratio.astype(dtype),
        "singular_values_": _fitting(found.singular_values[:k], dtype),
        "noise_variance_": rest / left if left else 0.0,
    }


def circumstances(data: Centred) -> dict[str, Any]:
    """The fitted attributes that say what the rows were and where they were worked on."""
    device = data.source.device
    on = "" if device in (None, "cpu") else f", on {device}"
    return {"map_": map_of(data.source), "where_": data.engine.traits.where + on}


def map_of(source: Any) -> str | None:
    """The name of what is done to the rows of a source before anything else, if anything is."""
    shared = source.traits.shared
    own = source if shared is None else shared.own
    if not isinstance(own, Mapped):
        return None
    function = own.function
    name = getattr(function, "name", "")
    if getattr(maps, name, None) == function:
        return str(name)
    # In brackets: it cannot be found by its name.
    return f"<{getattr(function, '__qualname__', function)}>"


def check_names(model: Any, source: Any, reset: bool) -> bool:
    """Keep the names that a source has for its columns, or compare them with those fitted.

    Returns whether it has any.
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
            f"`X` has {names[j]!r} as column {j}, where the model was fitted with {known[j]!r}; "
            "put the columns in the order of `feature_names_in_`."
        )
    return True


def deviations(variances: np.ndarray, dtype: Any) -> np.ndarray:
    """What whitening divides by, ``(k,)``; 1 where the variance is nothing but rounding."""
    deviation = np.sqrt(variances)
    floor = np.finfo(dtype).eps * deviation.max(initial=0.0)
    return np.where(deviation > floor, deviation, 1.0).astype(dtype)


def _fitting(values: np.ndarray, dtype: Any) -> np.ndarray:
    """``values`` in ``dtype``, or in float64 where they would not survive it."""
    info = np.finfo(dtype)
    largest = np.abs(values).max(initial=0.0)
    return values.astype(dtype) if largest == 0 or info.tiny <= largest <= info.max else values


def write_scores(out: Any, scores: Any) -> Any:
    """``scores`` in the array ``out``, which must have their shape."""
    if not hasattr(out, "shape") or tuple(out.shape) != tuple(scores.shape):
        raise ValueError(
            f"`out` must be an array of shape {tuple(scores.shape)}, got "
            f"{getattr(out, 'shape', repr(out))}."
        )
    out[...] = scores
    return out
