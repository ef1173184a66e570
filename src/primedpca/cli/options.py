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
Components = Annotated[
    Any,
    typer.Option(
        "-k",
        "--components",
        metavar="K",
        parser=as_count,
        show_default=False,
        help="Number of components: 10, a fraction of the variance such as 0.95, or mle.",
    ),
]
Tol = Annotated[
    Any,
    typer.Option(
        metavar="ANGLE",
        parser=as_angle,
        help="Iterate until every component is proven within this angle: pi/1024, 0.1deg, 0.003 "
        "(radians).",
    ),
]
Priming = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        parser=_one_of("priming", *PRIMINGS),
        help="Algorithm that finds the initial directions, which are then refined; auto takes the "
        f"cheapest: {', '.join(PRIMINGS)}.",
    ),
]
MaxPasses = Annotated[
    int, typer.Option(metavar="N", parser=whole(), help="Maximum number of passes over the data.")
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", parser=as_memory, help="Memory limit besides the data, such as 2GB."
    ),
]
ColumnNames = Annotated[
    Any,
    typer.Option(metavar="A,B,...", parser=as_names, rich_help_panel=TABLE, help="Columns to use."),
]
Exclude = Annotated[
    Any,
    typer.Option(
        metavar="A,B,...", parser=as_names, rich_help_panel=TABLE, help="Columns to leave out."
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id", metavar="COLUMN", rich_help_panel=TABLE, help="Column with the row names."
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label", metavar="COLUMN", rich_help_panel=TABLE, help="Column with the class labels."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="SIGN",
        parser=as_sign,
        rich_help_panel=TABLE,
        help="CSV: character between fields.",
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        rich_help_panel=TABLE,
        show_default=False,
        help="CSV: whether the first line holds column names; required if it holds numbers.",
    ),
]
Shape = Annotated[
    Any,
    typer.Option(
        metavar="N,D", parser=as_shape, rich_help_panel=RAW, help="Numbers of rows and columns."
    ),
]
Dtype = Annotated[
    Any,
    typer.Option(
        metavar="NAME",
        parser=as_dtype,
        rich_help_panel=RAW,
        help="Type of the numbers: float32, >f4.",
    ),
]
Offset = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        parser=whole(0),
        rich_help_panel=RAW,
        help="Bytes before the first number.",
    ),
]
FollowLinks = Annotated[
    bool | None,
    typer.Option(
        "--follow-links",
        rich_help_panel=TREE,
        show_default=False,
        help="Follow links to other files. Only for data you trust.",
    ),
]
Map = Annotated[
    str | None,
    typer.Option(
        "--map",
        metavar="NAME",
        parser=_one_of("map", *MAPS),
        help=f"Function to apply to every row first: {', '.join(MAPS)}.",
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(
        metavar="std",
        parser=_one_of("scale", "std"),
        help="Divide every column by its standard deviation.",
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        parser=_one_of("rule for missing values", "error", "mean"),
        help="Missing values (NaN): error raises an error, mean uses the mean of the column.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", parser=whole(0), help="Random seed, for bitwise identical results."
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Save every pass there, to resume after a crash."),
]
Device = Annotated[
    str | None, typer.Option(metavar="NAME", help="Device to compute on, such as cuda.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o", "--out", metavar="MODEL", help="Save the model, for example to model.safetensors."
    ),
]
Report = Annotated[Path | None, typer.Option(metavar="PAGE.html", help="Write an HTML report.")]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Print a line for every pass to standard error.")
]
Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", show_default=False, help="A model written by fit."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files (never the data).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
