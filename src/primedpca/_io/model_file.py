"""Save and load: one safetensors file for a fitted model, never a pickle."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._io.model_checks import NOT_KEPT, check_fitted, check_parameters
from primedpca._io.tensor_file import read_file, write_file
from primedpca._model.sketching import Stream
from primedpca._planning.costs import Way
from primedpca.estimator import PrimedPCA
from primedpca.priming import REGISTRY, Given
from primedpca.priming.sketch import SketchState
from primedpca.result import Certificate, Cluster, Plan, Status
from primedpca.sources.files.regular_files import check_regular

__all__ = ["load", "save"]

KIND = "model"
TYPES: dict[str, Any] = {
    known.__name__: known
    for known in (
        *REGISTRY.values(),
        *(Given, Certificate, Cluster, Plan, Status, Way, SketchState, Stream),
    )
}
PLAIN = (type(None), bool, int, float, str, np.generic, np.ndarray)


def save(model: PrimedPCA, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a fitted model; see :meth:`primedpca.PrimedPCA.save`."""
    getattr(model, "components_", None)  # of a stream, attributes come when they are asked for
    fitted = {name: value for name, value in vars(model).items() if name.endswith("_")}
    if "components_" not in fitted:
        raise ValueError("this PrimedPCA is not fitted, so there is nothing to save; fit it first.")
    if Path(path).exists() and not overwrite:
        raise FileExistsError(
            f"{os.fspath(path)} is there already; name another file, or pass `overwrite`=True."
        )
    params = model.get_params(deep=False)
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
        fitted["plan_"] = None
    if fitted.get("where_", "").startswith("Dask, "):  # whose address is nobody else's
        fitted["where_"] = "Dask"
    try:
        check_parameters(kept)
        check_fitted(fitted)
    except ValueError as error:
        raise ValueError(f"this model cannot be saved: {error}") from error
    write_file(path, KIND, {"params": kept, "fitted": fitted}, TYPES)


def load(path: str | os.PathLike[str]) -> PrimedPCA:
    """Read a model that :meth:`PrimedPCA.save` wrote.

    Parameters
    ----------
    path : path
        The file may come from anywhere: nothing in it is run, every byte is compared with its
        checksum, and every value with what a fit leaves.  ValueError where one does not fit.

    Returns
    -------
    PrimedPCA
        As it was: parameters, components, certificate, history.  ``engine``, ``checkpoint``,
        ``device`` and ``max_memory`` belong to a machine and not to a model: they are not kept,
        and have their defaults.  Continue from it on new data with
        ``load(path).set_params(warm_start=True).fit(X)``.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from primedpca import PrimedPCA, load
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> PrimedPCA(2).fit(X).save(path)
    >>> load(path).transform(X).shape
    (100, 2)
    """
    check_regular(path)
    held = read_file(path, KIND, TYPES)
    try:
        params, fitted = _parts(held)
        check_parameters(params)
        check_fitted(fitted)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is not a valid model: {error}") from error
    model = PrimedPCA(**params)
    for name, value in fitted.items():
        setattr(model, name, value)
    return model


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
