"""Files that commands read: data in the words of a command line, also as a model needs them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primedpca.cli.groups import Reading
from primedpca.cli.options import MAPS

if TYPE_CHECKING:
    from primedpca.protocols import DataSource

#: How the name of a model ends.
MODEL = ".safetensors"
#: Where it stands among the arguments, as it is easily mistaken.
ORDER = "MODEL stands after DATA in transform and certify, before it in report"

__all__ = ["MODEL", "check_no_model", "in_memory", "is_csv", "load_model", "open_data", "open_like"]


def open_data(path: str, reading: Reading) -> DataSource:
    """DATA as a source."""
    from primedpca.sources import as_source

    check_no_model(path)
    return as_source(path, **reading.given())


def check_no_model(path: str) -> None:
    """Refuse a model where DATA stand."""
    if path.endswith(MODEL):
        raise ValueError(f"DATA={path!r} is a model, not data; {ORDER}.")


def open_like(path: str, model: Any, reading: Reading) -> DataSource:
    """DATA for a model: its map, and of a table the columns that it was fitted with."""
    names = getattr(model, "feature_names_in_", None)
    named = not (reading.columns or reading.exclude or reading.header is False)
    if names is not None and _is_table(path) and named:
        reading = replace(reading, columns=list(names))
        if is_csv(path):  # in which these stand as names, even if they are numbers
            reading = replace(reading, header=True)
    if model is not None:
        reading = replace(reading, map_rows=_map_for(model, reading.map_rows))
    source, wanted = open_data(path, reading), getattr(model, "n_features_in_", None)
    if wanted is not None and source.shape[1] != wanted:
        raise ValueError(
            f"{path} has {source.shape[1]} columns, but the model was fitted to {wanted}; give "
            "data of the same kind, of a table with --columns."
        )
    return source


def _map_for(model: Any, asked: str | None) -> str | None:
    """The map that a model was fitted with; another one is refused."""
    if not hasattr(model, "map_"):
        return asked
    known: str | None = model.map_
    if known is not None and known not in MAPS:
        raise ValueError(
            f"the model was fitted to rows that went through {known}, which is not known here; "
            "use it in Python."
        )
    if asked is not None and asked != known:
        fitted = "as they are" if known is None else f"with --map {known}"
        raise ValueError(
            f"`--map` {asked} is not what the model was fitted with: rows {fitted}; leave it out."
        )
    return known


def is_csv(path: str) -> bool:
    """Whether a path is that of a file of CSV, by its name."""
    from primedpca.sources.files.csv_text import SUFFIXES

    return path.lower().endswith(SUFFIXES)


def _is_table(path: str) -> bool:
    from primedpca.sources.files.paths import TABLES

    names = os.listdir(path) if os.path.isdir(path) else [path]
    return is_csv(path) or any(name.lower().endswith(tuple(TABLES)) for name in names)


def in_memory(source: Any) -> Any:
    """All of the data, as a device takes them, with the names of their columns."""
    from primedpca.sources import as_source
    from primedpca.sources.base import whole

    held: Any = as_source(whole(source))
    held.feature_names = source.traits.feature_names()
    return held


def load_model(path: str | Path) -> Any:
    """A model, or a sentence on what the file is instead."""
    from primedpca._io.model_file import load

    try:
        return load(path)
    except ValueError as error:
        if os.fspath(path).endswith(MODEL):
            raise
        raise ValueError(
            f"{path} is no model, which is a file that fit -o has written; {ORDER}."
        ) from error
