"""Model files: one safetensors file for a fitted model, never a pickle."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._io.model_checks import NOT_KEPT, check_fitted, check_parameters
from primedpca._io.tensor_file import read_file, write_file
from primedpca.priming import REGISTRY, Given
from primedpca.priming.sketch import SketchState, Stream
from primedpca.result import Certificate, Cluster, Plan, Status, Way
from primedpca.sources.files.regular_files import check_regular

__all__ = ["read_model", "write_model"]

KIND = "model"
TYPES: dict[str, Any] = {
    known.__name__: known
    for known in (
        *REGISTRY.values(),
        *(Given, Certificate, Cluster, Plan, Status, Way, SketchState, Stream),
    )
}
PLAIN = (type(None), bool, int, float, str, np.generic, np.ndarray)


def write_model(
    path: str | os.PathLike[str], params: dict[str, Any], fitted: dict[str, Any], overwrite: bool
) -> None:
    """Write parameters and fitted attributes of a model; see :meth:`primedpca.PrimedPCA.save`."""
    if "components_" not in fitted:
        raise ValueError("this PrimedPCA is not fitted, so there is nothing to save; fit it first.")
    if Path(path).exists() and not overwrite:
        raise FileExistsError(
            f"{os.fspath(path)} is there already; name another file, or pass `overwrite`=True."
        )
    params = {name: value for name, value in params.items() if name not in NOT_KEPT}
    lost = [name for name, value in params.items() if not _is_plain(value)]
    if lost:
        warnings.warn(
            f"`{'`, `'.join(lost)}` cannot be kept in a file; a model loaded from it has the "
            "default there. Its components are not affected.",
            UserWarning,
            stacklevel=3,
        )
    kept = {name: _as_array(value) for name, value in params.items() if name not in lost}
    if fitted["plan_"] is not None and not _is_plain(fitted["plan_"].priming):
        fitted = fitted | {"plan_": None}
    if fitted.get("where_", "").startswith("Dask, "):  # whose address is nobody else's
        fitted = fitted | {"where_": "Dask"}
    try:
        check_parameters(kept)
        check_fitted(fitted)
    except ValueError as error:
        raise ValueError(f"this model cannot be saved: {error}") from error
    write_file(path, KIND, {"params": kept, "fitted": fitted}, TYPES)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read parameters and fitted attributes, every value checked; see :func:`primedpca.load`."""
    check_regular(path)
    held = read_file(path, KIND, TYPES)
    try:
        params, fitted = _parts(held)
        check_parameters(params)
        check_fitted(fitted)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is not a valid model: {error}") from error
    return params, fitted


def _parts(held: Any) -> tuple[dict[str, Any], Any]:
    if not isinstance(held, dict) or held.keys() != {"params", "fitted"}:
        raise ValueError("it does not hold parameters and fitted attributes.")
    params = held["params"]
    if not isinstance(params, dict):
        raise ValueError("its parameters have no names.")
    # Files of earlier versions name places; nothing is read, written or asked there.
    params = {name: value for name, value in params.items() if name not in NOT_KEPT}
    # They also hold NumPy's numbers as arrays of no dimension.
    scalars = (name for name, value in params.items() if getattr(value, "ndim", None) == 0)
    return params | {name: params[name].item() for name in scalars}, held["fitted"]


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(part) for part in value)
    if isinstance(value, PLAIN) or type(value) in TYPES.values():
        return True
    return hasattr(value, "shape") and hasattr(value, "__array__")


def _as_array(value: Any) -> Any:
    """Tensors and other arrays as NumPy's, NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    return to_numpy(value) if hasattr(value, "shape") else value
