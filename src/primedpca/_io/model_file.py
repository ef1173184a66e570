"""Model files: one safetensors file for a fitted model, never a pickle.

A model file may come from an untrusted place.  The types, shapes and ranges of all parameters and
fitted attributes are checked before any method uses them, so that no method sees values that
:meth:`primedpca.PrimedPCA.fit` never makes.
"""

import math
import os
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._core.parameters import DEFAULTS, check_is_path, check_options, is_real, is_whole
from primedpca._io.tensor_file import read_file, write_file
from primedpca.priming import REGISTRY, Given
from primedpca.priming.column_sums import ColumnSums
from primedpca.priming.sketch import ROOM, SketchState, Stream
from primedpca.result import Certificate, Cluster, Plan, Status, Way
from primedpca.sources import maps
from primedpca.sources.files.common import check_regular

#: Classes that a file may hold.
RECORDS = (Given, Certificate, Cluster, Plan, Status, Way, SketchState, Stream, ColumnSums)
TYPES: dict[str, Any] = {kind.__name__: kind for kind in (*REGISTRY.values(), *RECORDS)}
PLAIN = (type(None), bool, int, float, str, np.generic, np.ndarray)
#: Parameters that name a path or describe a machine; they are not saved with a model.
NOT_KEPT = ("checkpoint", "device", "engine", "max_memory")
#: Fitted attributes that only some models have.
OPTIONAL = {
    "center_",
    "standardised_",
    "feature_names_in_",
    "fill_",
    "layout_",
    "map_",
    "stream_",
    "where_",
}
TINY = np.nextafter(0.0, 1.0)


def write_model(
    path: str | os.PathLike[str], params: dict[str, Any], fitted: dict[str, Any], overwrite: bool
) -> None:
    """Write parameters and fitted attributes of a model; see :meth:`primedpca.PrimedPCA.save`.

    Parameters
    ----------
    path : path
        File to write.
    params, fitted : dict
        Parameters and fitted attributes by name.  Parameters of NOT_KEPT are left out.
    overwrite : bool
        Whether to replace an existing file; if False, it raises FileExistsError.
    """
    if "components_" not in fitted:
        raise ValueError("This PrimedPCA is not fitted. Call `fit` before saving it.")
    check_is_path(path)
    if Path(path).is_dir():
        raise IsADirectoryError(f"`path`={str(path)!r} is a folder. Name a file in it.")
    if (Path(path).exists() or Path(path).is_symlink()) and not overwrite:
        raise FileExistsError(f"{path} already exists. Use another name, or pass `overwrite`=True.")
    params = {name: value for name, value in params.items() if name not in NOT_KEPT}
    if lost := [name for name, value in params.items() if not _is_plain(value)]:
        warnings.warn(
            f"`{'`, `'.join(lost)}` cannot be saved in a file. The loaded model has the default "
            "instead; its components are not affected.",
            UserWarning,
            stacklevel=3,
        )
    kept = {name: _as_array(value) for name, value in params.items() if name not in lost}
    if (plan := fitted["plan_"]) is not None:
        plan = replace(plan, priming=_as_array(plan.priming)) if _is_plain(plan.priming) else None
        fitted = fitted | {"plan_": plan}
    if fitted.get("where_", "").startswith("Dask, "):  # without the address of the scheduler
        fitted = fitted | {"where_": "Dask"}
    held = {"params": kept, "fitted": fitted}
    try:
        _checked(held)
    except ValueError as error:
        raise ValueError(f"The model cannot be saved: {error}") from error
    write_file(path, "model", held, TYPES, overwrite)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read and check parameters and fitted attributes; see :func:`primedpca.load`."""
    check_is_path(path)
    check_regular(path)
    held = read_file(path, "model", TYPES)
    try:
        return _checked(held)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is not a valid model: {error}") from error


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(part) for part in value)
    if isinstance(value, PLAIN) or type(value) in TYPES.values():
        return True
    return hasattr(value, "shape") and hasattr(value, "__array__")


def _as_array(value: Any) -> Any:
    """Return arrays of any library as NumPy arrays, and NumPy scalars as Python numbers."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is Given:
        return Given(to_numpy(value.array))
    return to_numpy(value) if hasattr(value, "shape") else value


def _checked(held: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return parameters and fitted attributes; raise ValueError if anything is not valid."""
    if not isinstance(held, dict) or held.keys() != {"params", "fitted"}:
        raise ValueError("it does not hold parameters and fitted attributes.")
    params, fitted = (_instance(name, held[name], dict) for name in ("params", "fitted"))
    # Files of earlier versions hold paths and addresses; loading a model must not use them.
    params = {name: value for name, value in params.items() if name not in NOT_KEPT}
    # They also hold NumPy scalars as arrays of dimension 0.
    scalars = (name for name, value in params.items() if getattr(value, "ndim", None) == 0)
    params |= {name: params[name].item() for name in scalars}
    _check_parameters(params)
    _check_fitted(fitted)
    return params, fitted


def _check_parameters(params: dict[str, Any]) -> None:
    _known("parameters", params, {"n_components", *DEFAULTS})
    given = DEFAULTS | {"n_components": None} | params
    for name in ("max_passes", "batch_size"):
        _whole(name, given[name], 1)
    _instance("certificate", given["certificate"], str)
    check_options(given)
    count, extra = given["n_components"], given["extra_components"]
    if isinstance(count, str):
        _one_of("n_components", count, ("mle",))
    else:
        _optional("n_components", count, _count, 1)
    if extra != "auto" or not isinstance(extra, str):
        _whole("extra_components", extra, 0)
    _optional("random_state", given["random_state"], _whole, 0, math.inf)
    if not isinstance(given["verbose"], (bool, np.bool_)):
        _whole("verbose", given["verbose"], -(2**31))
    _one_of("missing", given["missing"], ("error", "mean"))
    _scale("scale", given["scale"])
    _priming("priming", given["priming"])


def _check_fitted(fitted: dict[str, Any]) -> None:
    _floats("components_", fitted.get("components_"), (None, None))
    k, d = fitted["components_"].shape
    if not d >= 1 or k > d:
        raise ValueError(f"`components_` has shape {(k, d)}: more components than columns.")
    rules = {
        "components_": (_floats, (None, None)),
        "mean_": (_floats, (d,)),
        "scale_": (_optional, _floats, (d,), TINY),
        "fill_": (_optional, _floats, (d,)),
        "explained_variance_ explained_variance_ratio_ singular_values_": (_floats, (k,), 0.0),
        "n_components_ n_features_in_": (_whole, 0),
        "n_samples_": (_whole, min(k, 1)),  # no rows, no components
        "noise_variance_ n_passes_": (_number, 0.0),
        "status_": (_instance, Status),
        "center_ converged_ standardised_": (_instance, bool),
        "certificate_": (_optional, _certificate, k, d),
        "angle_bounds_": (_optional, _floats, (k,), 0.0),
        "plan_": (_optional, _record, Plan, PLAN),
        "history_": (_history,),
        "feature_names_in_": (_names, d),
        "map_": (_optional, _map),
        "layout_": (_optional, _instance, str),
        "stream_": (_stream, d),
        "where_": (_instance, str),
    }
    each = _single(rules)
    _known("fitted attributes", fitted, set(each))
    if missing := sorted(each.keys() - OPTIONAL - fitted.keys()):
        raise ValueError(f"`{missing[0]}` is missing.")
    for name, value in fitted.items():
        check, *limits = each[name]
        check(name, value, *limits)
    spread = np.sqrt(fitted["explained_variance_"], dtype=np.float64)
    if ((fitted["singular_values_"] > 2.0**500 * spread) & (spread > 0)).any():
        raise ValueError("`singular_values_` is inconsistent with `explained_variance_`.")
    for name, size in (("n_components_", k), ("n_features_in_", d)):
        if fitted[name] != size:
            raise ValueError(f"`{name}`={fitted[name]}, but `components_` has shape {(k, d)}.")
    bounds: Any = getattr(fitted["certificate_"], "angle_bounds", None)
    if not np.array_equal(fitted["angle_bounds_"], bounds):
        raise ValueError("`angle_bounds_` differ from those of `certificate_`.")


def _certificate(name: str, proof: Any, k: int, d: int) -> None:
    _record(name, proof, Certificate, CERTIFICATE)
    _floats(f"{name}.angle_bounds", proof.angle_bounds, (k,), 0.0)
    _floats(f"{name}.eigenvalue_bounds", proof.eigenvalue_bounds, (k, 2), -math.inf, True)
    if proof.kind == "probabilistic" and proof.failure_probability == 0:
        raise ValueError("`failure_probability` of a probabilistic `certificate_` must exceed 0.")
    zero = proof.zero
    if not (isinstance(zero, np.ndarray) and zero.dtype == bool and zero.shape == (k,)):
        raise ValueError(f"`certificate_` must have {k} booleans in `zero`.")
    if len(proof.clusters) > k:
        raise ValueError(f"`certificate_` has more clusters than the {k} components.")
    for run in proof.clusters:
        _record(name, run, Cluster, CLUSTER)
        if not (run.start < run.stop <= d and run.start < k):
            raise ValueError(f"`certificate_` has a cluster {run.start}:{run.stop} beyond {k}.")


def _history(name: str, history: Any) -> None:
    for row in _instance(name, history, list):
        for key in ("step", "passes", "seconds", *_instance(name, row, dict)):
            check, *limits = HISTORY.get(key, (_number, -math.inf, math.inf, True))
            check(name, row.get(key), *limits)


def _names(name: str, names: Any, d: int) -> None:
    fits = isinstance(names, np.ndarray) and names.shape == (d,)
    if not (fits and all(isinstance(entry, str) for entry in names)):
        raise ValueError(f"`{name}` must hold {d} strings, one for each column.")


def _map(what: str, function: Any) -> None:
    _instance(what, function, str)
    # Reports print names without brackets as code: an unknown one could be an injection.
    name, of, count = function.partition(maps.OF)
    ready = name in maps.__all__ and name.islower()
    ready = ready and (not of or re.fullmatch(r"\d{1,19} columns", count, re.ASCII) is not None)
    if not ready and not (function[:1] == "<" and function[-1:] == ">"):
        raise ValueError(f"`{what}` is neither a function of primedpca nor a name in <brackets>.")


def _stream(name: str, known: Any, d: int) -> None:
    _record(name, known, Stream, STREAM)
    sketch, size = known.sketch, known.size
    _record(name, sketch, SketchState, SKETCH)
    if sketch.size != size:
        raise ValueError("`stream_` has two different sizes of its sketch.")
    _floats(name, sketch.sketch, (None, d))
    for values in (sketch.shift, sketch.sums):
        _floats(name, values, (d,))
    if sketch.n_directions > size or len(sketch.sketch) > ROOM * size:
        raise ValueError(f"`stream_` has more directions or rows than its size {size} allows.")
    # Changes of unit are exact only between powers of two.
    if not (sketch.unit > 0 and math.frexp(sketch.unit)[0] == 0.5):
        raise ValueError("`stream_` has a unit that is not a power of two.")
    if known.counted > known.rows:
        raise ValueError("`stream_` has more rows of positive weight than rows.")
    if len(known.waiting) != len(known.weights):
        raise ValueError("`stream_` has rows without weights.")
    _optional(name, known.columns, _column_sums, d)
    gaps = known.columns is not None and known.columns.filled
    for rows, weights in zip(known.waiting, known.weights, strict=True):
        _floats(name, np.nan_to_num(rows, nan=0.0) if gaps else rows, (None, d))
        _floats(name, weights, (len(rows),), TINY)
    _optional(name, known.scale, _floats, (d,), TINY)


def _column_sums(name: str, columns: Any, d: int) -> None:
    _record(name, columns, ColumnSums, {"scaled filled": (_instance, bool), "depth": (_whole, 0)})
    for field in ("shift", "sums"):
        _floats(f"{name}.{field}", getattr(columns, field), (d,))
    for field in ("weight", "spread", "error", "reach"):
        _floats(f"{name}.{field}", getattr(columns, field), (d,), 0.0)
    _floats(f"{name}.fills", columns.fills, (3, d))


def _ways(name: str, ways: Any) -> None:
    for way in _instance(name, ways, tuple):
        _record(name, way, Way, WAY)


def _priming(name: str, value: Any) -> None:
    if isinstance(value, str):
        _one_of(name, value, ("auto", *REGISTRY))
        return
    if type(value) in REGISTRY.values():  # its constructor has checked its fields
        return
    array = value.array if type(value) is Given else value
    matrix = isinstance(array, np.ndarray) and array.ndim == 2 and array.dtype.kind in "fiub"
    if not (matrix and array.size and np.isfinite(array).all()):
        raise ValueError(f"`{name}` holds an unknown priming.")


def _planned(name: str, value: Any) -> None:
    """Check the priming of a plan: an object, where the parameter may be a name or an array."""
    if isinstance(value, (str, np.ndarray)):
        raise ValueError(f"`{name}` holds an unknown priming.")
    _priming(name, value)


def _scale(name: str, value: Any) -> None:
    if value is None or isinstance(value, str):
        _one_of(name, value, (None, "std"))
        return
    if isinstance(value, (list, tuple)) and all(is_real(entry) for entry in value):
        value = np.array(value, dtype=np.float64)
    if not (isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "fiu"):
        raise ValueError(f"`{name}` must be None, 'std' or one number for each column.")
    if not (np.isfinite(value) & (value > 0)).all():
        raise ValueError(f"`{name}` must be finite and positive for every column.")


# -- single values: each raises ValueError with the name of the value ------------------------


def _known(what: str, value: dict[str, Any], names: set[str]) -> None:
    if strange := sorted(value.keys() - names):
        raise ValueError(f"among the {what}, {strange[0][:40]!r} is not known.")


def _single(rules: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Return the rules of single names: a line of rules may be for several, with spaces between."""
    return {name: rule for names, rule in rules.items() for name in names.split()}


def _record(name: str, value: Any, kind: type, rules: dict[str, tuple[Any, ...]]) -> None:
    """Check the class of a value, and each field by the function and limits of its rule."""
    _instance(name, value, kind)
    for field, (check, *limits) in _single(rules).items():
        check(f"{name}.{field}", getattr(value, field), *limits)


def _optional(name: str, value: Any, check: Any, *limits: Any) -> None:
    if value is not None:
        check(name, value, *limits)


def _instance(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"`{name}` holds a {type(value).__name__}, not a {kind.__name__}.")
    return value


def _one_of(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if (value is not None and not isinstance(value, str)) or value not in choices:
        known = ", ".join(map(repr, choices))
        raise ValueError(f"`{name}` holds {_short(value)}, not one of {known}.")


def _whole(name: str, value: Any, least: int, below: float = 2**63) -> None:
    if not is_whole(value) or not least <= value < below:
        raise ValueError(f"`{name}` holds {_short(value)}, not an integer of at least {least}.")


def _count(name: str, value: Any, least: int) -> None:
    """Check a number of components or a fraction of the variance."""
    if is_whole(value):
        _whole(name, value, least)
    else:
        _number(name, value, 0.0, 1.0)


def _number(
    name: str, value: Any, least: float, most: float = math.inf, infinite: bool = False
) -> None:
    fits = is_real(value) and least <= value <= most
    sized = not is_whole(value) or abs(value) < 2**63  # NumPy overflows beyond
    if not (fits and sized) or not (infinite or -math.inf < value < math.inf):
        raise ValueError(f"`{name}` holds {_short(value)}, not a number of at least {least:g}.")


def _floats(
    name: str, value: Any, shape: tuple[Any, ...], least: float = -math.inf, infinite: bool = False
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


# -- rules for the fields of records: a function, and its limits -----------------------------

CERTIFICATE = {
    "kind": (_one_of, ("exact", "deterministic", "probabilistic")),
    "failure_probability": (_number, 0.0, 1.0),
    "clusters": (_instance, list),
}
CLUSTER = {"start stop": (_whole, 0), "angle_bound": (_number, 0.0)}
WAY = {
    "priming": (_planned,),
    "steps": (_whole, 0),
    "passes flops bytes memory seconds room": (_number, 0.0, math.inf, True),
}
PLAN = {
    "priming": (_planned,),
    "n_components": (_count, 0),
    "n_directions": (_whole, 0),
    "reason": (_instance, str),
    "overhead room": (_optional, _number, 0.0, math.inf, True),
    "patience max_basis early": (_optional, _whole, 0),
    "ways": (_ways,),
}
HISTORY = _single(
    {
        "step": (_whole, 0),
        "passes seconds": (_number, 0.0),
        "variances angle_bounds counted_bounds": (_floats, (None,), 0.0),
    }
)
SKETCH = {
    "loss weight total reach rounding unit": (_number, 0.0),
    "size n_directions": (_whole, 1),
    "shrinks depth": (_whole, 0),
    "center": (_instance, bool),
}
STREAM = {
    "waiting weights": (_instance, tuple),
    "size": (_whole, 1),
    "rows counted": (_whole, 0),
    "single": (_instance, bool),
}
