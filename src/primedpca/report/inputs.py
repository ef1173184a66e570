"""Inputs of a report besides the model: data, scores, labels and names, all checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, is_dense, to_numpy
from primedpca.protocols import DataSource
from primedpca.sources import as_source

SHOWN = 4  # components whose scores are plotted, two to a plot


@dataclass(frozen=True)
class Inputs:
    """Description of the data that a model was fitted to; ``None`` where not known.

    Attributes
    ----------
    name, dtype : str or None
    is_file : bool
        Whether ``name`` is the name of a file or folder.
    shape : tuple of int or None
    image_shape : tuple of int or None
        Height, width and channels, if each row of the data is an image.
    scores : ndarray of shape (n, <= k) or None
    labels : ndarray of shape (n,) or None
    names : ndarray of shape (d,) or None
        Names of the columns.
    """

    name: str | None = None
    is_file: bool = False
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    image_shape: tuple[int, ...] | None = None
    scores: np.ndarray | None = None
    labels: np.ndarray | None = None
    names: np.ndarray | None = None


def check_inputs(model: Any, data: Any, scores: Any, labels: Any, names: Any) -> Inputs:
    """Check the inputs against a fitted model; missing scores are computed in one pass."""
    k, d = model.n_components_, model.n_features_in_
    known: dict[str, Any] = {}
    if data is not None:
        source: Any = as_source(data)
        if source.shape[1] != d:
            raise ValueError(
                f"`data` has {source.shape[1]} columns, but the model was fitted to {d}. Pass the "
                "data that it was fitted to."
            )
        known = {"name": _name(data), "is_file": bool(data_paths(data))}
        known |= {"shape": source.shape, "dtype": dtype_name(source.dtype)}
        known["image_shape"] = source.traits.image_shape
        if scores is None and k > 0:
            scores = _first_scores(model, data)
    if scores is not None:
        scores = to_numpy(scores) if is_dense(scores) else np.asarray(scores)
        if scores.ndim != 2 or not 1 <= scores.shape[1] <= k:
            raise ValueError(
                f"`scores` must have shape (rows, at most n_components_={k}), got {scores.shape}."
            )
    if labels is not None:
        labels, rows = np.asarray(labels), known.get("shape") if scores is None else scores.shape
        if rows is None:
            raise ValueError("`labels` colour the scores: pass `data` or `scores` as well.")
        if labels.shape != rows[:1]:
            raise ValueError(
                f"`labels` must have one entry for each of the {rows[0]} rows, got shape "
                f"{labels.shape}."
            )
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    names = None if names is None else np.asarray(names, dtype=object)
    if names is not None and names.shape != (d,):
        raise ValueError(
            f"`names` must have one name for each of the {d} columns, got shape {names.shape}."
        )
    return Inputs(scores=scores, labels=labels, names=names, **known)


def data_paths(data: Any) -> list[Path]:
    """Return the files or folders that hold ``data``, as far as ``data`` name them."""
    found: Sequence[Any] = [data, getattr(data, "filename", None)]  # of maps and backed AnnData
    if isinstance(data, DataSource):
        found = as_source(data).traits.paths
    known = (os.fspath(part) for part in found if isinstance(part, (str, os.PathLike)))
    return [Path(part.split("::")[0]) for part in known]


def _name(data: Any) -> str:
    if paths := data_paths(data):
        return paths[0].parent.name if len(paths) > 1 else paths[0].name
    kind = type(data)
    return f"{kind.__module__.split('.')[0]}.{kind.__name__}, in memory"


def _first_scores(model: Any, data: Any) -> Any:
    """Compute the scores of the first components: all of them might not fit into memory."""
    # A device would need all data in memory; one pass is cheap enough where the data are.
    near = copy(model).set_params(device=None)
    seen = near._seen(data)
    weights = (model.components_ / model._stretch())[:SHOWN]
    return seen.forward(seen.like.asarray(weights.T))


def spaced(count: int) -> str:
    """Separate thousands by a narrow space, which no country reads as a decimal sign."""
    return f"{count:,}".replace(",", "\u202f")
