"""Files that commands read: DATA, also as a model needs them, and models."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primedpca.cli.groups import Reading
from primedpca.cli.options import MAPS

if TYPE_CHECKING:
    from primedpca.protocols import DataSource

#: Suffix of model files.
MODEL = ".safetensors"
#: The order of arguments, which is easily confused.
ORDER = "MODEL comes after DATA in transform and certify, and before DATA in report"

__all__ = ["MODEL", "check_no_model", "in_memory", "is_csv", "load_model", "open_data", "open_like"]


def open_data(path: str, reading: Reading) -> DataSource:
    """Open DATA as a source."""
    from primedpca.sources import as_source

    check_no_model(path)
    return as_source(path, **reading.given())


def check_no_model(path: str) -> None:
    """Raise ValueError if DATA is a model file."""
    if path.endswith(MODEL):
        raise ValueError(f"DATA={path!r} is a model, not data. {ORDER}.")


def open_like(path: str, model: Any, reading: Reading) -> DataSource:
    """Open DATA for a model: with its map and, in a table, the columns it was fitted to."""
    names = getattr(model, "feature_names_in_", None)
    named = not (reading.columns or reading.exclude or reading.header is False)
    if names is not None and _is_table(path) and named:
        reading = replace(reading, columns=list(names))
        if is_csv(path):  # the first line holds these names, even if they are numbers
            reading = replace(reading, header=True)
    if model is not None:
        reading = replace(reading, map_rows=_map_for(model, reading.map_rows))
    source, wanted = open_data(path, reading), getattr(model, "n_features_in_", None)
    if wanted is not None and source.shape[1] != wanted:
        raise ValueError(
            f"{path} has {source.shape[1]} columns, but the model was fitted to {wanted}. Use "
            "data with the same columns; for a table, select them with --columns."
        )
    return source


def _map_for(model: Any, asked: str | None) -> str | None:
    """Return the map that a model was fitted with; requesting another one is an error."""
    if not hasattr(model, "map_"):
        return asked
    known: str | None = model.map_
    # The model stores only the name of a map; a function of the user's cannot be found by name.
    if known is not None and known not in MAPS:
        raise ValueError(
            f"the model was fitted with the map {known}, which the command line does not have. "
            "Use the model in Python."
        )
    if asked is not None and asked != known:
        fitted = "without a map" if known is None else f"with --map {known}"
        raise ValueError(f"`--map` {asked}: the model was fitted {fitted}. Omit the option.")
    return known


def is_csv(path: str) -> bool:
    """Whether a path names a CSV file, by its suffix."""
    from primedpca.sources.files.csv_text import SUFFIXES

    return path.lower().endswith(SUFFIXES)


def _is_table(path: str) -> bool:
    from primedpca.sources.files.tables import TABLES

    names = os.listdir(path) if os.path.isdir(path) else [path]
    return is_csv(path) or any(name.lower().endswith(tuple(TABLES)) for name in names)


def in_memory(source: Any) -> Any:
    """Load all of the data into memory, as a device needs them, with their column names."""
    from primedpca.sources import as_source
    from primedpca.sources.base import whole

    held: Any = as_source(whole(source))
    held.feature_names = source.traits.feature_names()
    return held


def load_model(path: str | Path) -> Any:
    """Load a model; the error for another file says what a model is."""
    from primedpca.estimator import load

    try:
        return load(path)
    except ValueError as error:
        if os.fspath(path).endswith(MODEL):
            raise
        raise ValueError(
            f"{path} is not a model, which is a file written by fit -o. {ORDER}."
        ) from error
