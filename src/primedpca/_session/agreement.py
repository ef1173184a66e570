"""Facts in which two fits must agree for one to resume the other: data, options, versions."""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from primedpca._core.arrays import as_real
from primedpca._core.digest import digest
from primedpca.priming.user_directions import with_columns_of
from primedpca.protocols import DataSource
from primedpca.sources.base import fingerprint, library_of
from primedpca.sources.memory.frames import aligned_rows, column_labels

#: Options that do not change the result; `random_state` is compared only where it is a number.
FREE = {"checkpoint", "engine", "random_state", "verbose", "warm_start", "whiten"}


def agreement(
    source: DataSource, options: Mapping[str, Any], sample_weight: Any, start: Any
) -> dict[str, dict[str, Any]]:
    """All facts in which a resumed fit must agree with the one that wrote the checkpoint.

    Parameters
    ----------
    source : DataSource
    options : mapping
        The parameters of the estimator.
    sample_weight : array of shape (n,) or None
    start : array of shape (d, q) or None
        Directions to start from.

    Returns
    -------
    dict
        ``data``, ``options`` and ``versions``, each a dictionary of plain values.
    """
    options = {**options, **_numbers(source, options)}
    given = {name: _plain(value) for name, value in options.items() if name not in FREE}
    seed = options["random_state"]
    given["random_state"] = int(seed) if isinstance(seed, (int, np.integer)) else None
    given["start"] = None if start is None else digest(start)
    library = source.traits.library or library_of(source.read(0))
    libraries = ["primedpca", "numpy"] + [library] * (library not in ("numpy", "scipy"))
    versions = {name: str(import_module(name).__version__) for name in libraries}
    return {"data": fingerprint(source, sample_weight), "options": given, "versions": versions}


def _numbers(source: DataSource, options: Mapping[str, Any]) -> dict[str, Any]:
    """Scale and directions as the arrays that a fit uses; of other types only the name is hashed.

    The same numbers with other labels are another scale.
    """
    labels = partial(column_labels, source)
    scale = aligned_rows(options["scale"], labels, "scale")
    if scale is not None and not isinstance(scale, str):
        scale = as_real(scale, "scale")
    return {"scale": scale, "priming": with_columns_of(options["priming"], labels)}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{name} {digest(value)[:16]}"
