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
from primedpca.sources.files.common import check_regular

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
    if Path(path).exists() and not overwrite:
        raise FileExistsError(
            f"{os.fspath(path)} already exists. Choose another name, or pass `overwrite`=True."
        )
    params = {name: value for name, value in params.items() if name not in NOT_KEPT}
    lost = [name for name, value in params.items() if not _is_plain(value)]
    if lost:
        warnings.warn(
            f"`{'`, `'.join(lost)}` cannot be saved in a file. The loaded model has the default "
            "instead; its components are not affected.",
            UserWarning,
            stacklevel=3,
        )
    kept = {name: _as_array(value) for name, value in params.items() if name not in lost}
    if fitted["plan_"] is not None and not _is_plain(fitted["plan_"].priming):
        fitted = fitted | {"plan_": None}
    if fitted.get("where_", "").startswith("Dask, "):  # without the address of the scheduler
        fitted = fitted | {"where_": "Dask"}
    try:
        check_parameters(kept)
        check_fitted(fitted)
    except ValueError as error:
        raise ValueError(f"The model cannot be saved: {error}") from error
    write_file(path, KIND, {"params": kept, "fitted": fitted}, TYPES)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read and check parameters and fitted attributes; see :func:`primedpca.load`."""
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
        raise ValueError("its parameters are not a dictionary.")
    # Files of earlier versions hold paths and addresses; loading a model must not use them.
    params = {name: value for name, value in params.items() if name not in NOT_KEPT}
    # They also hold NumPy scalars as arrays of dimension 0.
    scalars = (name for name, value in params.items() if getattr(value, "ndim", None) == 0)
    return params | {name: params[name].item() for name in scalars}, held["fitted"]


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
    return to_numpy(value) if hasattr(value, "shape") else value
