"""Files that commands read and write: opened as data, and never lost.

The rule: a file that is there is replaced only with ``--force``, the data never; whether all can
be written is looked at before anything is read.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primedpca.protocols import DataSource

__all__ = ["check_output", "load_model", "open_data", "open_like"]

TABLES = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq", ".arrow", ".feather", ".ipc")


def check_output(path: Path | None, option: str, force: bool, *inputs: str | Path) -> None:
    """Refuse a file that cannot be written, is there already, or is one of the inputs."""
    if path is None:
        return
    if path.is_dir():
        raise IsADirectoryError(f"`{option}` {path} is a folder; name a file.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"`{option}` {path}: {path.parent} is no folder; make it first.")
    for given in inputs:
        name = os.fspath(given).split("::")[0]
        if path.exists() and os.path.exists(name) and os.path.samefile(path, name):
            raise FileExistsError(f"`{option}` {path} is what is read; name another file.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} is there already; name another file, or add `--force`.")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise OSError(f"`{option}` {path} cannot be written: {error.strerror}.") from error


def open_data(
    path: str,
    *,
    columns: Any = None,
    exclude: Any = None,
    id_column: str | None = None,
    label_column: str | None = None,
    delimiter: str | None = None,
    no_header: bool = False,
    map: str | None = None,
) -> DataSource:
    """DATA as a source; only the options that were given are passed on."""
    from primedpca.sources import as_source, maps

    options: dict[str, Any] = {"exclude": exclude, "id_column": id_column}
    options |= {"label_column": label_column, "delimiter": delimiter, "columns": columns}
    given = {name: value for name, value in options.items() if value is not None}
    if no_header:
        given["header"] = False
    if map is not None:
        given["map"] = getattr(maps, map)
    return as_source(path, **given)


def open_like(path: str, model: Any, **options: Any) -> DataSource:
    """DATA for a model: of a table, the columns that the model was fitted with."""
    names = getattr(model, "feature_names_in_", None)
    chosen = {"columns", "exclude"} & {name for name, given in options.items() if given}
    if names is not None and _is_table(path) and not chosen and not options.get("no_header"):
        options["columns"] = list(names)
    source, wanted = open_data(path, **options), getattr(model, "n_features_in_", None)
    if wanted is not None and source.shape[1] != wanted:
        raise ValueError(
            f"{path} has {source.shape[1]} columns, but the model was fitted to {wanted}; give "
            "data of the same kind, of a table with --columns."
        )
    return source


def _is_table(path: str) -> bool:
    if os.path.isdir(path):
        return any(name.lower().endswith(TABLES) for name in os.listdir(path))
    return path.lower().endswith(TABLES)


def load_model(path: str | Path) -> Any:
    """A model, or a sentence on what the file is instead."""
    from primedpca.model_file import load

    try:
        return load(path)
    except ValueError as error:
        if os.fspath(path).endswith(".safetensors"):
            raise
        raise ValueError(f"{path} is no model; MODEL is a file that fit -o has written.") from error
