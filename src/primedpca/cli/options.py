"""The words of the command line: what each option is called, takes and is refused for."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "AsJson",
    "Checkpoint",
    "Columns",
    "Components",
    "Data",
    "Debug",
    "Delimiter",
    "Device",
    "Dtype",
    "Exclude",
    "FollowLinks",
    "Force",
    "Header",
    "Id",
    "Label",
    "Map",
    "MaxMemory",
    "MaxPasses",
    "Missing",
    "Model",
    "Offset",
    "Out",
    "Priming",
    "Report",
    "Scale",
    "Seed",
    "Shape",
    "Tol",
    "Verbose",
    "as_angle",
    "as_count",
    "whole",
]

PRIMINGS = (
    *("auto", "exact", "block_krylov", "subspace_iteration", "power_method", "oja", "eigengame"),
    *("mu_eigengame", "krasulina", "frequent_directions"),
)
MAPS = ("log1p", "sqrt", "counts_per_million", "log_cp10k", "log_cpm", "normalise_rows")
#: The heading in the help of options that only tables take.
TABLE = "Of tables"
#: And of those that only files without any header take.
RAW = "Of raw binary files"
#: And of those that only files with a tree inside take.
TREE = "Of HDF5, .h5ad and Zarr"
NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?"
ANGLE = re.compile(
    rf"(?:(?P<times>{NUMBER})\s*\*\s*)?(?P<pi>pi|π)(?:\s*/\s*(?P<over>{NUMBER}))?"
    rf"|(?P<value>{NUMBER})\s*(?P<unit>rad|deg|°)?"
)


def as_angle(words: str) -> float:
    """An angle in radians from ``pi/1024``, ``2*pi/128``, ``1deg``, ``0.5°`` or ``0.01``.

    Examples
    --------
    >>> as_angle("pi/2") == as_angle("90deg") == math.pi / 2
    True
    """
    found = ANGLE.fullmatch(words.strip().lower())
    over = float(found["over"] or 1) if found else 0.0
    if found is None or over == 0:
        raise typer.BadParameter(
            f"{words!r} is no angle; write it as pi/1024, as 0.1deg, or in radians as 0.003."
        )
    if found["pi"]:
        return float(found["times"] or 1) * math.pi / over
    value = float(found["value"])
    return math.radians(value) if found["unit"] in ("deg", "°") else value


def as_count(words: str) -> Any:
    """How many components: a whole number, a share of the variance, or ``mle``."""
    if words == "mle":
        return words
    for kind in (int, float):
        try:
            return kind(words)
        except ValueError:
            continue
    raise typer.BadParameter(
        f"{words!r} is no number of components; give a whole number such as 10, a share of the "
        "variance such as 0.95, or mle."
    )


def as_memory(words: str) -> str:
    """Words such as ``2GB``, as they are, or refused."""
    if re.fullmatch(r"\s*(\d+|\d*\.\d+)\s*[kmgt]?b\s*", words.lower()):
        return words
    raise typer.BadParameter(f"{words!r} is no amount of memory; write it as 500MB or 2GB.")


def _one_of(what: str, *known: str) -> Any:
    def choose(words: str) -> str:
        if words not in known:
            raise typer.BadParameter(f"{words!r} is no {what}; choose from {', '.join(known)}.")
        return words

    return choose


def as_names(words: str) -> list[str]:
    """Names of columns, with commas between them; one with a comma in it stands in quotes.

    Examples
    --------
    >>> as_names('age, "income, yearly"')
    ['age', 'income, yearly']
    """
    found = next(csv.reader([words], skipinitialspace=True), [])
    found = [name.strip() for name in found]
    if not found or not all(found):
        raise typer.BadParameter(
            f"""{words!r} has an empty name; write a,b,c, or 'a,"b, c"' where a name has a comma."""
        )
    return found


def as_sign(words: str) -> str:
    r"""What stands between fields: one character; a tab may be written as ``\t``."""
    sign = "\t" if words == r"\t" else words
    if len(sign) != 1:
        raise typer.BadParameter(f"{words!r} is no single character; write ';' or '\\t'.")
    return sign


def whole(least: int | None = None) -> Any:
    """What reads a whole number, which must be no less than ``least``."""

    def read(words: str) -> int:
        known = re.fullmatch(r"[+-]?\d+", str(words)) is not None
        if not known or (least is not None and int(words) < least):
            bound = "" if least is None else f" from {least} on"
            raise typer.BadParameter(f"{words!r} is no whole number{bound}.")
        return int(words)

    return read


def as_shape(words: str) -> tuple[int, int]:
    """Rows and columns from ``1000,50``."""
    found = re.fullmatch(r"\s*(\d+)\s*[,x]\s*(\d+)\s*", words)
    if found is None:
        raise typer.BadParameter(f"{words!r} is no shape; write rows and columns as 1000,50.")
    return int(found[1]), int(found[2])


def as_dtype(words: str) -> str:
    """The name of a kind of numbers, as it is, or refused."""
    import numpy as np

    try:
        np.dtype(words)
    except TypeError:
        raise typer.BadParameter(
            f"{words!r} is no kind of numbers; write it as float32, uint8, or >f4 for big-endian."
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
        help="How many components: 10, a share of the variance such as 0.95, or mle.",
    ),
]
Tol = Annotated[
    Any,
    typer.Option(
        metavar="ANGLE",
        parser=as_angle,
        help="Go on until every component is proven within this angle: pi/1024, 0.1deg, 0.003.",
    ),
]
Priming = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        parser=_one_of("priming", *PRIMINGS),
        help="The algorithm that finds rough directions, which are then refined; auto takes the "
        f"cheapest: {', '.join(PRIMINGS)}.",
    ),
]
MaxPasses = Annotated[
    int, typer.Option(metavar="N", parser=whole(), help="The most passes over the data.")
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", parser=as_memory, help="Memory to use beside the data, such as 2GB."
    ),
]
Columns = Annotated[
    Any,
    typer.Option(
        metavar="A,B,...", parser=as_names, rich_help_panel=TABLE, help="The columns to use."
    ),
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
        "--id", metavar="COLUMN", rich_help_panel=TABLE, help="The column that names the rows."
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label", metavar="COLUMN", rich_help_panel=TABLE, help="The column with their classes."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="SIGN",
        parser=as_sign,
        rich_help_panel=TABLE,
        help="Of CSV: what stands between fields.",
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        rich_help_panel=TABLE,
        show_default=False,
        help="Of CSV: whether the first line holds names; to be said if they are numbers.",
    ),
]
Shape = Annotated[
    Any,
    typer.Option(
        metavar="N,D", parser=as_shape, rich_help_panel=RAW, help="How many rows and columns."
    ),
]
Dtype = Annotated[
    Any,
    typer.Option(
        metavar="NAME", parser=as_dtype, rich_help_panel=RAW, help="Of the numbers: float32, >f4."
    ),
]
Offset = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        parser=whole(0),
        rich_help_panel=RAW,
        help="Where in the file the first begins.",
    ),
]
FollowLinks = Annotated[
    bool | None,
    typer.Option(
        "--follow-links",
        rich_help_panel=TREE,
        show_default=False,
        help="Read other files that the data link to. Only for data you trust.",
    ),
]
Map = Annotated[
    str | None,
    typer.Option(
        "--map",
        metavar="NAME",
        parser=_one_of("map", *MAPS),
        help=f"What to do with every row first: {', '.join(MAPS)}.",
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(
        metavar="std",
        parser=_one_of("scale", "std"),
        help="std divides every column by its standard deviation.",
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        parser=_one_of("rule for missing values", "error", "mean"),
        help="Missing values (NaN): error refuses them, mean puts the column's mean there.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", parser=whole(0), help="For the same result to the last bit."
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Keep every pass there, to go on after a kill."),
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="Where to compute, such as cuda.")]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="MODEL", help="Save the model, as model.safetensors."),
]
Report = Annotated[
    Path | None, typer.Option(metavar="PAGE.html", help="Write a page about the model.")
]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="A line for every pass, on the error stream.")
]
Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", show_default=False, help="A model that fit has written."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace files that are there (never the data).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where in the code an error came up.")]
