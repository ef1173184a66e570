"""Files of commands: DATA and models that are read, and checks of those that are written.

The checks are made before anything is read.  An existing file is replaced only with ``--force``;
the data and the model read are never replaced.
"""

import glob
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from primedpca.cli import printing
from primedpca.cli.options import MAPS, Reading

#: Suffix of model files.
MODEL = ".safetensors"
#: The order of arguments, which is easily confused.
ORDER = "MODEL comes after DATA in transform and certify, and before DATA in report"


def open_data(path: str, reading: Reading, warned: list[str] | None = None) -> Any:
    """Open DATA as a source; print warnings, and append them to ``warned``."""
    from primedpca.sources import as_source

    if path.endswith(MODEL):
        raise ValueError(f"DATA={path!r} is a model, not data. {ORDER}.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        source = as_source(path, **reading.given())
    for warning in caught:
        printing.say(f"primedpca: warning: {warning.message}", error=True)
    if warned is not None:
        warned += [str(warning.message) for warning in caught]
    return source


def open_like(path: str, model: Any, reading: Reading) -> Any:
    """Open DATA for a model: with its map and, in a table, the columns it was fitted to."""
    asked, names = reading, getattr(model, "feature_names_in_", None)
    known = getattr(model, "map_", None)
    row_map = _map_for(known, reading.map_rows) if hasattr(model, "map_") else reading.map_rows
    # Totals are those of whole rows, of which a model may have only some columns.
    totals = known != row_map if hasattr(model, "map_") else row_map is not None
    named = not (reading.columns or reading.header is False or (reading.exclude and not totals))
    remedy: AbstractContextManager[None] = nullcontext()
    if names is not None and _is_table(path) and named:
        from primedpca.sources.files.table_columns import REMEDY

        # Columns beside those of the model are read for the totals only, and may be left out.
        remedy = remedy if totals else printing.other_remedy(REMEDY, _CORRECT)
        # The first line of a CSV file holds these names, even if they are numbers.
        header = True if is_csv(path) or is_sheet(path) else reading.header
        only = reading.numeric_only if totals else None
        reading = replace(reading, columns=list(names), header=header, numeric_only=only)
    if names is not None and path.lower().endswith(".h5ad") and not reading.mask_var:
        # A model of masked variables finds them by name; others are compared in order.
        whole = open_data(path, replace(reading, map_rows=None))
        reading = reading if whole.shape[1] == len(names) else replace(reading, columns=list(names))
    try:
        with remedy:
            source = open_data(path, replace(reading, map_rows=row_map if totals else None))
    except ValueError as error:
        if "has no column" in str(error) and asked.header is None:
            _check_first_line(path, asked)
        raise
    if row_map is not None and not totals:  # of the columns of the model alone
        from primedpca.sources import as_source, maps

        source = as_source(source, map=getattr(maps, row_map))
    if totals:
        from primedpca._model.stream import check_same_map

        with printing.other_remedy(*_SAME_COLUMNS):
            check_same_map(known, source.traits.map_name)
    if source.shape[1] != (wanted := getattr(model, "n_features_in_", source.shape[1])):
        raise ValueError(f"{path} has {source.shape[1]} columns, but the model has {wanted}.")
    return source


def _check_first_line(path: str, asked: Reading) -> None:
    """Refuse a first line of numbers in the words of fit, which names the option it needs."""
    from primedpca.sources import as_source
    from primedpca.sources.files.csv_text import NoNamesError

    with warnings.catch_warnings(), suppress(ValueError):
        warnings.simplefilter("ignore")
        try:
            as_source(path, **replace(asked, map_rows=None).given())
        except NoNamesError as error:
            raise TypeError(str(error)) from error


#: What to do where a column that a model was fitted to does not hold numbers.
_CORRECT = (
    "The model needs the numbers: correct the entries, or in CSV and Excel name those that stand "
    "for missing values by `na_values`"
)
#: What to do where a model's totals are of other columns, in Python and here.
_SAME_COLUMNS = (
    "Pass the rows as in the fit, with `columns` or `mask_var`, or map the data before columns are "
    "chosen.",
    "Give DATA with all columns of the fit, and the same `--exclude`, `--id` and `--label`.",
)


def _map_for(known: str | None, asked: str | None) -> str | None:
    """Return the map that a model was fitted with; requesting another one is an error."""
    # The model stores only the name of a map; a function of the user's cannot be found by name.
    known = known if known is None else known.partition(" of ")[0]
    if known is not None and known not in MAPS:
        raise ValueError(f"the model was fitted with the map {known}. Use it in Python.")
    if asked is not None and asked != known:
        fitted = "without a map" if known is None else f"with --map {known}"
        raise ValueError(f"`--map` {asked}: the model was fitted {fitted}. Omit the option.")
    return known


def foreign_options(path: str) -> tuple[str, ...]:
    """Return the options of text that the data at ``path`` cannot have."""
    inside = os.listdir(path) if os.path.isdir(path) else [path]
    if any(map(is_csv, inside)):
        return ()
    return ("delimiter",) if any(map(is_sheet, inside)) else ("delimiter", "header", "decimal")


def is_csv(path: str) -> bool:
    """Whether a path names a CSV file, by its suffix."""
    from primedpca.sources.files.csv_text import SUFFIXES

    return path.lower().endswith(SUFFIXES)


def is_sheet(path: str) -> bool:
    """Whether a path names a spreadsheet, by its suffix."""
    from primedpca.sources.files.spreadsheets import SUFFIXES

    return path.lower().endswith(SUFFIXES)


def _is_table(path: str) -> bool:
    from primedpca.sources.files.tables import TABLES

    names = os.listdir(path) if os.path.isdir(path) else [path]
    return (
        is_csv(path)
        or is_sheet(path)
        or any(name.lower().endswith(tuple(TABLES)) for name in names)
    )


def load_model(path: str | Path) -> Any:
    """Load a model; the error for another file says what a model is."""
    from primedpca.estimator import load

    try:
        return load(path)
    except ValueError as error:
        if os.fspath(path).endswith(MODEL):
            raise
        raise ValueError(f"{path} is not a model, which fit -o writes. {ORDER}.") from error


def check_outputs(named: Mapping[str, Path | None], force: bool, *inputs: str | Path) -> None:
    """Check that files can be written, are not inputs, and do not exist unless ``force``."""
    taken: dict[str, str] = {}
    for option, path in named.items():
        if path is None:
            continue
        if path.is_dir() and path.suffix == ".zarr":
            raise FileExistsError(
                f"`{option}` {path} already exists. A store is not replaced, even with `--force`: "
                "remove it first, or name another one."
            )
        if path.is_dir():
            raise IsADirectoryError(f"`{option}` {path} is a folder. Name a file.")
        if not (folder := path.parent).is_dir():
            raise FileNotFoundError(f"`{option}` {path}: folder not found. Create {folder} first.")
        check_outside(path, option, *inputs)
        for part in _files_of(*inputs):
            if path.exists() and part.exists() and os.path.samefile(path, part):
                raise FileExistsError(f"`{option}` {path} is an input. Name another file.")
        if os.path.lexists(path) and not force:
            raise FileExistsError(f"{path} already exists. Name another file, or add `--force`.")
        # Permissions do not tell everything (a read-only file system, a full disk): try it.
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise OSError(f"`{option}` {path} cannot be written: {error.strerror}.") from error
        other = taken.setdefault(os.path.realpath(path), option)  # names may be links to one file
        if other != option:
            raise ValueError(f"`{other}` and `{option}` are both {path}. Name two files.")


def check_outside(path: Path, option: str, *inputs: str | Path) -> None:
    """Check that a path is not, and is not inside, a folder or store that is read."""
    # The path may be a link into the folder, or lie in the folder as a link to elsewhere.
    places = (os.path.realpath(path), os.path.join(os.path.realpath(path.parent), path.name))
    for part in _files_of(*inputs):
        whole = os.path.realpath(part)
        if part.is_dir() and any(Path(place).is_relative_to(whole) for place in places):
            raise ValueError(f"`{option}` {path} is inside {part}, an input. Name another place.")


def check_beside(folder: Path, named: Mapping[str, Path | None]) -> None:
    """Check that no output is, or lies in, the folder of a checkpoint, which holds nothing else."""
    whole = os.path.realpath(folder)
    for option, path in named.items():
        if path is not None and Path(os.path.realpath(path)).is_relative_to(whole):
            raise ValueError(
                f"`{option}` {path} is inside `--checkpoint` {folder}. Name another place."
            )


def _files_of(*inputs: str | Path) -> Iterator[Path]:
    """Yield the files of DATA and models: a file or folder, or those of a pattern or a set."""
    from primedpca.sources.files.common import split_part
    from primedpca.sources.files.images import matching

    for given in inputs:
        name = split_part(given)[0]
        pattern = glob.has_magic(name) and not os.path.exists(name)
        yield from map(Path, matching(name) if pattern else [name])
        if name.lower().endswith(".bed"):  # a .bed file is useless without its two tables
            yield from (Path(name).with_suffix(end) for end in (".bim", ".fam"))


def check_page(page: Path) -> None:
    """Check that plots can be drawn and the page can be written, before anything is read."""
    from primedpca.report.page import check_page_path
    from primedpca.sources.base import needed

    for name in ("matplotlib", "jinja2"):
        needed(name, "A report", "plots")
    check_page_path(page)


def write_page(pca: Any, page: Path, source: Any, data: str, model: Path | None) -> None:
    """Write a report; the source has labels and names of its own."""
    from primedpca.report import write_report

    write_report(pca, page, data=source, title=Path(data).name, model_path=model)
