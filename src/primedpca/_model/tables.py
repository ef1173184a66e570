"""Loadings and contributions as tables, in the data frames that the user works with."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca.sources.base import needed
from primedpca.sources.memory.frames import column_names as names_in
from primedpca.sources.memory.frames import is_frame

#: Libraries of data frames in the order in which they are tried.
LIBRARIES = ("pandas", "polars", "pyarrow")


def score_names(k: int) -> list[str]:
    """Return the names of scores and components, counted from 1: ``PC1``, ``PC2``, ...

    Examples
    --------
    >>> score_names(2)
    ['PC1', 'PC2']
    """
    return [f"PC{i}" for i in range(1, k + 1)]


def check_score_names(scores: Any, name: str) -> None:
    """Raise ValueError for a frame of scores that has left out or moved columns.

    Parameters
    ----------
    scores : array or data frame of shape (n, k)
        Only of a frame are the names known, and only if all of them are names of scores.
    name : str
        Of the argument, for messages.
    """
    given = list(map(str, names_in(scores))) if is_frame(scores) else []
    if not all(re.fullmatch("PC[1-9][0-9]*", column) for column in given):
        return
    for found, expected in zip(given, score_names(len(given)), strict=True):
        if found != expected:
            raise ValueError(
                f"`{name}` has the column {found}, where the scores have {expected}. Pass all "
                "columns, in the order of `transform`."
            )


def column_names(model: Any) -> np.ndarray:
    """Return the names of the model's columns ``(d,)``: its own, or ``x0, x1, ...``."""
    names = getattr(model, "feature_names_in_", None)
    d = model.components_.shape[1]
    return np.array([f"x{j}" for j in range(d)] if names is None else names, dtype=object)


def library_of_frame(x: Any) -> str | None:
    """Return the package of a data frame, such as ``"polars"``, or None for other data."""
    return type(x).__module__.split(".")[0] if is_frame(x) else None


def as_frame(columns: dict[str, Any], library: str | None, index: str | None = None) -> Any:
    """Return columns as a data frame.

    Parameters
    ----------
    columns : dict of array of shape (m,)
    library : str or None
        Package of the frame; None takes the first of pandas, polars and pyarrow that is installed.
    index : str, optional
        Column that becomes the index in libraries that have one.
    """
    package = _package(library)
    if package.__name__ == "pyarrow":
        return package.table(columns)
    frame = getattr(package, "pandas", package).DataFrame(columns)  # modin's are in modin.pandas
    return frame.set_index(index) if index is not None and hasattr(frame, "set_index") else frame


def _package(library: str | None) -> Any:
    for name in LIBRARIES if library is None else (library,):
        with suppress(ImportError):
            return import_module(name)
    return needed(library or LIBRARIES[0], "A data frame", "frames")


def row_table(model: Any, data: Any) -> dict[str, np.ndarray]:
    """Return contributions and squared cosines of rows, one entry for each row and component.

    Parameters
    ----------
    model : PrimedPCA
    data : Centred
        The rows, with the mean and scale of the model.
    """
    vectors = data.like.asarray(model._model().components.T)
    scores, squares = (
        to_numpy(part).astype(np.float64) for part in data.scores_and_squares(vectors)
    )
    inside, (n, k) = scores**2, scores.shape
    sums = inside.sum(axis=0)
    share = np.divide(100 * inside, sums, out=np.zeros_like(inside), where=sums > 0)
    # Rounding can put a row that lies in the span slightly beyond it.
    norms = np.maximum(squares, inside.sum(axis=1))[:, None]
    cos2 = np.divide(inside, norms, out=np.zeros_like(inside), where=norms > 0)
    names = data.traits.row_names()
    rows = np.arange(n) if names is None else np.asarray(names)
    return {
        "row": np.repeat(rows, k),
        "component": np.tile(np.array(score_names(k), dtype=object), n),
        "contribution": share.ravel(),
        "cos2": cos2.ravel(),
    }
