"""Options of the command line: their names, help texts, parsers and errors."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    *("AsJson", "Checkpoint", "ColumnNames", "Components", "Data", "Debug", "Delimiter", "Device"),
    *("Dtype", "Exclude", "FollowLinks", "Force", "Header", "Id", "Label", "Map", "MaxMemory"),
    *("MaxPasses", "Missing", "Model", "Offset", "Out", "Priming", "Report", "Scale", "Seed"),
    *("Shape", "Tol", "Verbose", "as_angle", "as_count", "whole"),
]

PRIMINGS = (
    *("auto", "exact", "block_krylov", "subspace_iteration", "power_method", "oja", "eigengame"),
    *("mu_eigengame", "krasulina", "frequent_directions"),
)
MAPS = ("log1p", "sqrt", "counts_per_million", "log_cp10k", "log_cpm", "normalise_rows")
#: Headings in the help, for options of one kind of file.
TABLE, RAW, TREE = "Tables", "Raw binary files", "HDF5, .h5ad and Zarr"
NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?"
ANGLE = re.compile(
    rf"(?:(?P<times>{NUMBER})\s*\*\s*)?(?P<pi>pi|π)(?:\s*/\s*(?P<over>{NUMBER}))?"
    rf"|(?P<value>{NUMBER})\s*(?P<unit>rad|deg|°)?"
)


def as_angle(words: str) -> float:
    """Parse an angle such as ``pi/1024``, ``2*pi/128``, ``1deg``, ``0.5°`` or ``0.01`` (radians).

    Examples
    --------
    >>> as_angle("pi/2") == as_angle("90deg") == math.pi / 2
    True
    """
    found = ANGLE.fullmatch(words.strip().lower())
    over = float(found["over"] or 1) if found else 0.0
    if found is None or over == 0:
        raise typer.BadParameter(
            f"Invalid angle: {words!r}. Write pi/1024, 0.1deg, or 0.003 for radians."
        )
    if found["pi"]:
        return float(found["times"] or 1) * math.pi / over
    value = float(found["value"])
    return math.radians(value) if found["unit"] in ("deg", "°") else value


def as_count(words: str) -> Any:
    """Parse a number of components, a fraction of the variance, or ``mle``."""
    if words == "mle":
        return words
    for kind in (int, float):
        try:
            return kind(words)
        except ValueError:
            continue
    raise typer.BadParameter(
        f"Invalid number of components: {words!r}. Use an integer such as 10, a fraction of the "
        "variance such as 0.95, or mle."
    )


def as_memory(words: str) -> str:
    """Check a size such as ``2GB`` and return it unchanged."""
    if re.fullmatch(r"\s*(\d+|\d*\.\d+)\s*[kmgt]?b\s*", words.lower()):
        return words
    raise typer.BadParameter(f"Invalid size: {words!r}. Write 500MB or 2GB.")


def _one_of(what: str, *known: str) -> Any:
    def choose(words: str) -> str:
        if words not in known:
            raise typer.BadParameter(f"Unknown {what}: {words!r}. Use one of {', '.join(known)}.")
        return words

    return choose


def as_names(words: str) -> list[str]:
    """Parse column names separated by commas; a name with a comma is quoted.

    Examples
    --------
    >>> as_names('age, "income, yearly"')
    ['age', 'income, yearly']
    """
    found = next(csv.reader([words], skipinitialspace=True), [])
    found = [name.strip() for name in found]
    if not found or not all(found):
        raise typer.BadParameter(
            f"""Empty name in {words!r}. Write a,b,c, or 'a,"b, c"' if a name has a comma."""
        )
    return found


def as_sign(words: str) -> str:
    r"""Parse a delimiter: one character, or ``\t`` for a tab."""
    sign = "\t" if words == r"\t" else words
    if len(sign) != 1:
        raise typer.BadParameter(f"{words!r} is not a single character. Write ';' or '\\t'.")
    return sign


def whole(least: int | None = None) -> Any:
    """Return a parser of integers, which must be at least ``least``."""

    def read(words: str) -> int:
        known = re.fullmatch(r"[+-]?\d+", str(words)) is not None
        if not known or (least is not None and int(words) < least):
            bound = "" if least is None else f" of at least {least}"
            raise typer.BadParameter(f"{words!r} is not an integer{bound}.")
        return int(words)

    return read


def as_shape(words: str) -> tuple[int, int]:
    """Parse numbers of rows and columns such as ``1000,50``."""
    found = re.fullmatch(r"\s*(\d+)\s*[,x]\s*(\d+)\s*", words)
    if found is None:
        raise typer.BadParameter(f"Invalid shape: {words!r}. Write rows and columns as 1000,50.")
    return int(found[1]), int(found[2])


def as_dtype(words: str) -> str:
    """Check the name of a NumPy dtype and return it unchanged."""
    import numpy as np

    try:
        np.dtype(words)
    except TypeError:
        raise typer.BadParameter(
            f"Unknown dtype: {words!r}. Write float32, uint8, or >f4 for big-endian."
        ) from None
    return words


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        show_default=False,
        help="A file (.npy, .npz, .csv, .parquet, .h5, .zarr, .h5ad, .mtx, .bed, a video, ...), "
        "file.h5::dataset, or a folder of tables or images.",
    ),
]


def _value(
    metavar: str, parser: Any, text: str, *names: str, panel: str | None = None, **more: Any
) -> Any:
    """Return an option that takes a value, with its parser, help text and heading."""
    more |= {"metavar": metavar, "parser": parser, "help": text, "rich_help_panel": panel}
    return typer.Option(*names, **more)


def _switch(text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option that takes no value."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


# The help texts below name types, units and effects; Typer adds the defaults.
_COUNT = "Number of components: 10, a fraction of the variance such as 0.95, or mle."
Components = Annotated[Any, _value("K", as_count, _COUNT, "-k", "--components", show_default=False)]
_TOL = (
    "Iterate until every component is proven within this angle: pi/1024, 0.1deg, 0.003 (radians)."
)
Tol = Annotated[Any, _value("ANGLE", as_angle, _TOL)]
_PRIMING = (
    "Algorithm that finds the initial directions, which are then refined; auto takes the cheapest: "
    f"{', '.join(PRIMINGS)}."
)
Priming = Annotated[str, _value("NAME", _one_of("priming", *PRIMINGS), _PRIMING)]
MaxPasses = Annotated[int, _value("N", whole(), "Maximum number of passes over the data.")]
MaxMemory = Annotated[
    str | None, _value("SIZE", as_memory, "Memory limit besides the data, such as 2GB.")
]
ColumnNames = Annotated[Any, _value("A,B,...", as_names, "Columns to use.", panel=TABLE)]
Exclude = Annotated[Any, _value("A,B,...", as_names, "Columns to leave out.", panel=TABLE)]
Id = Annotated[
    str | None, _value("COLUMN", None, "Column with the row names.", "--id", panel=TABLE)
]
Label = Annotated[
    str | None, _value("COLUMN", None, "Column with the class labels.", "--label", panel=TABLE)
]
Delimiter = Annotated[
    str | None, _value("SIGN", as_sign, "CSV: character between fields.", panel=TABLE)
]
_HEADER = "CSV: whether the first line holds column names; required if it holds numbers."
Header = Annotated[
    bool | None, _switch(_HEADER, "--header/--no-header", panel=TABLE, show_default=False)
]
Shape = Annotated[Any, _value("N,D", as_shape, "Numbers of rows and columns.", panel=RAW)]
Dtype = Annotated[Any, _value("NAME", as_dtype, "Type of the numbers: float32, >f4.", panel=RAW)]
Offset = Annotated[
    int | None, _value("BYTES", whole(0), "Bytes before the first number.", panel=RAW)
]
_LINKS = "Follow links to other files. Only for data you trust."
FollowLinks = Annotated[
    bool | None, _switch(_LINKS, "--follow-links", panel=TREE, show_default=False)
]
_MAP = f"Function to apply to every row first: {', '.join(MAPS)}."
Map = Annotated[str | None, _value("NAME", _one_of("map", *MAPS), _MAP, "--map")]
_SCALE = "Divide every column by its standard deviation."
Scale = Annotated[str | None, _value("std", _one_of("scale", "std"), _SCALE)]
_MISSING = "Missing values (NaN): error raises an error, mean uses the mean of the column."
Missing = Annotated[
    str | None, _value("RULE", _one_of("rule for missing values", "error", "mean"), _MISSING)
]
Seed = Annotated[
    int | None, _value("N", whole(0), "Random seed, for bitwise identical results.", "--seed")
]
_CHECKPOINT = "Save every pass there, to resume after a crash."
Checkpoint = Annotated[Path | None, _value("FOLDER", None, _CHECKPOINT)]
Device = Annotated[str | None, _value("NAME", None, "Device to compute on, such as cuda.")]
_OUT = "Save the model, for example to model.safetensors."
Out = Annotated[Path | None, _value("MODEL", None, _OUT, "-o", "--out")]
Report = Annotated[Path | None, _value("PAGE.html", None, "Write an HTML report.")]
_VERBOSE = "Print a line for every pass to standard error."
Verbose = Annotated[bool, _switch(_VERBOSE, "-v", "--verbose")]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", show_default=False, help="A model written by fit.")
]
Force = Annotated[bool, _switch("Replace existing files (never the data).", "--force")]
AsJson = Annotated[bool, _switch("Print one JSON object and nothing else.", "--json")]
Debug = Annotated[bool, _switch("Show the traceback of an error.", "--debug")]
