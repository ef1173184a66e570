"""Validation of model files: every parameter and every fitted attribute.

A model file may come from an untrusted place.  Types, shapes and ranges are checked before any
method uses them, so that no method sees values that :meth:`primedpca.PrimedPCA.fit` never makes.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np

from primedpca._core.parameters import DEFAULTS, check_options
from primedpca.priming import REGISTRY, Given
from primedpca.priming.checks import is_real
from primedpca.priming.sketch import ROOM, SketchState, Stream
from primedpca.result import Certificate, Cluster, Plan, Status, Way
from primedpca.sources import maps

__all__ = ["NOT_KEPT", "check_fitted", "check_parameters"]

#: Parameters that name a path or describe a machine; they are not saved with a model.
NOT_KEPT = ("checkpoint", "device", "engine", "max_memory")
#: Fitted attributes that every model has (NEEDED) or may have (OPTIONAL).
NEEDED = (
    *("components_", "mean_", "scale_", "n_components_", "n_samples_", "n_features_in_"),
    *("explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_"),
    *("status_", "converged_", "certificate_", "angle_bounds_", "n_passes_", "plan_", "history_"),
)
OPTIONAL = ("feature_names_in_", "map_", "stream_", "where_")
KINDS = ("exact", "deterministic", "probabilistic")
READY_MAPS = tuple(name for name in maps.__all__ if name.islower())


def check_parameters(params: Any) -> None:
    """Raise ValueError for unknown parameters of :class:`primedpca.PrimedPCA` or invalid values."""
    _named("parameters", params, {"n_components", *DEFAULTS})
    given = DEFAULTS | {"n_components": None} | params
    for name in ("max_passes", "batch_size"):
        _whole(name, given[name], 1)
    if not isinstance(given["certificate"], str):
        raise ValueError("`certificate` must be a string.")
    check_options(given)
    count, extra, seed = given["n_components"], given["extra_components"], given["random_state"]
    if isinstance(count, str):
        _one_of("n_components", count, ("mle",))
    elif _is_whole(count):
        _whole("n_components", count, 1)
    elif count is not None:
        _number("n_components", count, 0, 1)
    if extra != "auto" or not isinstance(extra, str):
        _whole("extra_components", extra, 0)
    if seed is not None and not (_is_whole(seed) and seed >= 0):
        raise ValueError("`random_state` must be an integer of at least 0, or None.")
    if not isinstance(given["verbose"], (bool, np.bool_)):
        _whole("verbose", given["verbose"], -(2**31))
    _one_of("missing", given["missing"], ("error", "mean"))
    _check_scale("scale", given["scale"])
    _check_priming("priming", given["priming"])


def check_fitted(fitted: Any) -> None:
    """Raise ValueError for fitted attributes that are missing, unknown or inconsistent."""
    _named("fitted attributes", fitted, {*NEEDED, *OPTIONAL})
    if missing := [name for name in NEEDED if name not in fitted]:
        raise ValueError(f"`{missing[0]}` is missing.")
    components = fitted["components_"]
    _floats("components_", components, (None, None))
    k, d = components.shape
    if not d >= 1 or k > d:
        raise ValueError(f"`components_` has shape {(k, d)}: more components than columns.")
    _floats("mean_", fitted["mean_"], (d,))
    if fitted["scale_"] is not None:
        _floats("scale_", fitted["scale_"], (d,))
        _check_scale("scale_", fitted["scale_"])
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_"):
        _floats(name, fitted[name], (k,), 0.0)
    spread = np.sqrt(fitted["explained_variance_"], dtype=np.float64)
    if ((fitted["singular_values_"] > 2.0**500 * spread) & (spread > 0)).any():
        raise ValueError("`singular_values_` is inconsistent with `explained_variance_`.")
    for name, size in (("n_components_", k), ("n_features_in_", d)):
        if _whole(name, fitted[name], 0) != size:
            raise ValueError(f"`{name}`={fitted[name]}, but `components_` has shape {(k, d)}.")
    _whole("n_samples_", fitted["n_samples_"], 1)
    _number("noise_variance_", fitted["noise_variance_"], 0.0)
    _number("n_passes_", fitted["n_passes_"], 0.0)
    _instance("status_", fitted["status_"], Status)
    _instance("converged_", fitted["converged_"], bool)
    _check_certificate(fitted["certificate_"], fitted["angle_bounds_"], k, d)
    _check_plan(fitted["plan_"])
    _check_history(fitted["history_"])
    _check_names(fitted, d)
    if "stream_" in fitted:
        _check_stream(fitted["stream_"], d)


def _check_names(fitted: dict[str, Any], d: int) -> None:
    names, function = fitted.get("feature_names_in_"), fitted.get("map_")
    if "feature_names_in_" in fitted and not (
        isinstance(names, np.ndarray)
        and names.shape == (d,)
        and all(isinstance(name, str) for name in names)
    ):
        raise ValueError(f"`feature_names_in_` must hold {d} strings, one for each column.")
    _instance("where_", fitted.get("where_", ""), str)
    if function is not None:
        _instance("map_", function, str)
        # Reports print names without brackets as code: an unknown one could be an injection.
        if function not in READY_MAPS and not (function[:1] == "<" and function[-1:] == ">"):
            raise ValueError("`map_` is neither a function of primedpca nor a name in <brackets>.")


def _check_certificate(proof: Any, bounds: Any, k: int, d: int) -> None:
    if proof is None:
        if bounds is not None:
            raise ValueError("`angle_bounds_` are present without a `certificate_`.")
        return
    _instance("certificate_", proof, Certificate)
    for name, found in (("angle_bounds_", bounds), ("certificate_", proof.angle_bounds)):
        _floats(name, found, (k,), 0.0)
    if not np.array_equal(bounds, proof.angle_bounds):
        raise ValueError("`angle_bounds_` differ from those of `certificate_`.")
    _floats("certificate_", proof.eigenvalue_bounds, (k, 2), -math.inf, infinite=True)
    _one_of("certificate_", proof.kind, KINDS)
    _number("failure_probability", proof.failure_probability, 0.0, 1.0)
    if proof.kind == "probabilistic" and proof.failure_probability == 0:
        raise ValueError(
            "`failure_probability` is 0, but a probabilistic `certificate_` needs more than 0."
        )
    zero = proof.zero
    if not (isinstance(zero, np.ndarray) and zero.dtype == bool and zero.shape == (k,)):
        raise ValueError(f"`certificate_` must have {k} booleans in `zero`.")
    _instance("clusters", proof.clusters, list)
    if len(proof.clusters) > k:
        raise ValueError(f"`certificate_` has more clusters than the {k} components.")
    for run in proof.clusters:
        _instance("clusters", run, Cluster)
        start, stop = _whole("clusters", run.start, 0), _whole("clusters", run.stop, 0)
        if not (start < stop <= d and start < k):
            raise ValueError(
                f"`certificate_` has a cluster {start}:{stop} (from 0), but only {k} components."
            )
        _number("clusters", run.angle_bound, 0.0)


def _check_plan(plan: Any) -> None:
    if plan is None:
        return
    _instance("plan_", plan, Plan)
    _check_priming("plan_", plan.priming)
    if _is_whole(plan.n_components):
        _whole("plan_", plan.n_components, 0)
    else:
        _number("plan_", plan.n_components, 0.0, 1.0)
    _whole("plan_", plan.n_directions, 0)
    _instance("plan_", plan.reason, str)
    for value in (plan.overhead, plan.room):
        if value is not None:
            _number("plan_", value, 0.0, infinite=True)
    for value in (plan.patience, plan.max_basis):
        if value is not None:
            _whole("plan_", value, 0)
    for way in _instance("plan_", plan.ways, tuple):
        _instance("plan_", way, Way)
        _check_priming("plan_", way.priming)
        _whole("plan_", way.steps, 0)
        for value in (way.passes, way.flops, way.bytes, way.memory, way.seconds, way.room):
            _number("plan_", value, 0.0, infinite=True)


def _check_history(history: Any) -> None:
    for row in _instance("history_", history, list):
        _instance("history_", row, dict)
        _whole("history_", row.get("step"), 0)
        for name in ("passes", "seconds"):
            _number("history_", row.get(name), 0.0)
        for name, value in row.items():
            if name in ("variances", "angle_bounds", "counted_bounds"):
                _floats("history_", value, (None,), 0.0)
            elif name not in ("step", "passes", "seconds"):
                _number("history_", value, -math.inf, infinite=True)


def _check_stream(known: Any, d: int) -> None:
    _instance("stream_", known, Stream)
    sketch = _instance("stream_", known.sketch, SketchState)
    size = _whole("stream_", known.size, 1)
    if _whole("stream_", sketch.size, 1) != size:
        raise ValueError("`stream_` has two different sizes of its sketch.")
    _floats("stream_", sketch.sketch, (None, d))
    for values in (sketch.shift, sketch.sums):
        _floats("stream_", values, (d,))
    numbers = ("loss", "weight", "total", "reach", "rounding")
    for name in numbers:
        _number("stream_", getattr(sketch, name), 0.0)
    for value in (sketch.shrinks, sketch.depth):
        _whole("stream_", value, 0)
    if _whole("stream_", sketch.n_directions, 1) > size or len(sketch.sketch) > ROOM * size:
        raise ValueError(f"`stream_` has more directions or rows than its size {size} allows.")
    _number("stream_", sketch.unit, 0.0)
    # Changes of unit are exact only between powers of two.
    if not (sketch.unit > 0 and math.frexp(sketch.unit)[0] == 0.5):
        raise ValueError("`stream_` has a unit that is not a power of two.")
    for value in (sketch.center, known.single):
        _instance("stream_", value, bool)
    if _whole("stream_", known.counted, 0) > _whole("stream_", known.rows, 0):
        raise ValueError("`stream_` has more rows of positive weight than rows.")
    pairs = [_instance("stream_", part, tuple) for part in (known.waiting, known.weights)]
    if len(pairs[0]) != len(pairs[1]):
        raise ValueError("`stream_` has rows without weights.")
    for rows, weights in zip(*pairs, strict=True):
        _floats("stream_", rows, (None, d))
        _floats("stream_", weights, (len(rows),), np.nextafter(0.0, 1.0))
    if known.scale is not None:
        _floats("stream_", known.scale, (d,))
        _check_scale("stream_", known.scale)


def _check_priming(name: str, value: Any) -> None:
    if isinstance(value, str):
        _one_of(name, value, ("auto", *REGISTRY))
        return
    if type(value) in REGISTRY.values():  # its constructor has checked its fields
        return
    array = value.array if type(value) is Given else value
    if not (
        isinstance(array, np.ndarray)
        and array.ndim == 2
        and array.size
        and array.dtype.kind in "fiub"
        and np.isfinite(array).all()
    ):
        raise ValueError(f"`{name}` holds an unknown priming.")


def _check_scale(name: str, value: Any) -> None:
    if value is None or isinstance(value, str):
        _one_of(name, value, (None, "std"))
        return
    if isinstance(value, (list, tuple)) and all(is_real(entry) for entry in value):
        value = np.array(value, dtype=np.float64)
    if not (isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "fiu"):
        raise ValueError(f"`{name}` must be None, 'std' or one number for each column.")
    if not (np.isfinite(value) & (value > 0)).all():
        raise ValueError(f"`{name}` must be finite and positive for every column.")


# -- single values ---------------------------------------------------------------------------


def _named(what: str, value: Any, known: set[str]) -> None:
    _instance(what, value, dict)
    if strange := sorted(value.keys() - known):
        raise ValueError(f"among the {what}, {strange[0][:40]!r} is not known.")


def _instance(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"`{name}` holds a {type(value).__name__}, not a {kind.__name__}.")
    return value


def _one_of(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if (value is not None and not isinstance(value, str)) or value not in choices:
        known = ", ".join(map(repr, choices))
        raise ValueError(f"`{name}` holds {_short(value)}, not one of {known}.")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, (bool, np.bool_))


def _whole(name: str, value: Any, least: int) -> int:
    if not _is_whole(value) or not least <= value < 2**63:
        raise ValueError(f"`{name}` holds {_short(value)}, not an integer of at least {least}.")
    return int(value)


def _number(
    name: str, value: Any, least: float, most: float = math.inf, *, infinite: bool = False
) -> None:
    fits = is_real(value) and least <= value <= most
    sized = not _is_whole(value) or abs(value) < 2**63  # NumPy overflows beyond
    if not (fits and sized) or not (infinite or -math.inf < value < math.inf):
        raise ValueError(f"`{name}` holds {_short(value)}, not a number of at least {least:g}.")


def _floats(
    name: str,
    value: Any,
    shape: tuple[int | None, ...],
    least: float = -math.inf,
    *,
    infinite: bool = False,
) -> None:
    if not isinstance(value, np.ndarray) or value.dtype not in (np.float32, np.float64):
        raise ValueError(f"`{name}` holds {_short(value)}, not an array of floats.")
    sides = zip(value.shape, shape, strict=False)
    if value.ndim != len(shape) or any(b is not None and a != b for a, b in sides):
        wanted = " x ".join("any" if side is None else str(side) for side in shape)
        raise ValueError(f"`{name}` has shape {value.shape}, not {wanted}.")
    if not (infinite or np.isfinite(value).all()) or not (value >= least).all():
        raise ValueError(f"`{name}` holds numbers out of range.")


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, (str, int, float)):
        words = repr(value)
        return words if len(words) <= 40 else f"{words[:37]}..."
    return f"a {type(value).__name__}"
