"""Save and load: one safetensors file for a fitted model, never a pickle."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.arrays import to_numpy
from primedpca.costs import Way
from primedpca.estimator import PrimedPCA
from primedpca.priming import REGISTRY, Given
from primedpca.priming.sketch import SketchState
from primedpca.result import Certificate, Cluster, Plan, Status
from primedpca.sketching import Stream
from primedpca.sources.regular import check_regular
from primedpca.tensor_file import read_file, write_file

__all__ = ["load", "save"]

KIND = "model"
TYPES: dict[str, Any] = {
    known.__name__: known
    for known in (
        *REGISTRY.values(),
        *(Given, Certificate, Cluster, Plan, Status, Way, SketchState, Stream),
    )
}
PLAIN = (type(None), bool, int, float, str, np.generic, np.ndarray, os.PathLike)


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
    lost = [name for name, value in params.items() if not _is_plain(value)]
    if lost:
        warnings.warn(
            f"`{'`, `'.join(lost)}` cannot be kept in a file; a model loaded from it has the "
            "default there. Its components are not affected.",
            UserWarning,
            stacklevel=3,
        )
    kept = {name: _as_array(value) for name, value in params.items() if name not in lost}
    if not _is_plain(fitted["plan_"].priming):
        fitted["plan_"] = None
    write_file(path, KIND, {"params": kept, "fitted": fitted}, TYPES)


def load(path: str | os.PathLike[str]) -> PrimedPCA:
    """A model that :meth:`PrimedPCA.save` wrote.

    Parameters
    ----------
    path : path
        Nothing in the file is run, and every byte is checked: one that is damaged is refused.

    Returns
    -------
    PrimedPCA
        As it was: parameters, components, certificate, history.  Continue from it on new data
        with ``load(path).set_params(warm_start=True).fit(X)``.

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
    model = PrimedPCA(**held["params"])
    for name, value in held["fitted"].items():
        setattr(model, name, value)
    return model


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(part) for part in value)
    if isinstance(value, PLAIN) or type(value) in TYPES.values():
        return True
    return hasattr(value, "shape") and hasattr(value, "__array__")


def _as_array(value: Any) -> Any:
    """Tensors and other arrays as NumPy's, paths as text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return to_numpy(value) if hasattr(value, "shape") else value
