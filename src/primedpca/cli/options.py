"""Options of the command line: their names, help texts, parsers, and groups that commands share.

A command declares a group as one parameter; :func:`flat` replaces it by the group's options.
"""
# ruff: noqa: RUF009  (the calls in the dataclasses return fields)

import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

PRIMINGS = (
    *("auto", "exact", "block_krylov", "subspace_iteration", "power_method", "oja", "eigengame"),
    *("mu_eigengame", "krasulina", "frequent_directions"),
)
MAPS = ("log1p", "sqrt", "counts_per_million", "log_cp10k", "log_cpm", "normalise_rows")
NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?"
ANGLE = re.compile(
    rf"(?:(?P<times>{NUMBER})\s*\*\s*)?(?P<pi>pi|π)(?:\s*/\s*(?P<over>{NUMBER}))?"
    rf"|(?P<value>{NUMBER})\s*(?P<unit>rad|deg|°)?"
)
#: One of several texts, and the comma behind it.
TEXT = re.compile(r'\s*(?:"((?:[^"]|"")*+)"\s*|([^,]*))(,|\Z)')
ESCAPES = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


def _invalid(what: str, words: str, remedy: str) -> Exception:
    return typer.BadParameter(f"Invalid {what}: {words!r}. {remedy}")


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
        raise _invalid("angle", words, "Write pi/1024, 0.1deg, or 0.003 for radians.")
    if found["pi"]:
        return float(found["times"] or 1) * math.pi / over
    value = float(found["value"])
    return math.radians(value) if found["unit"] in ("deg", "°") else value


def as_count(words: str) -> Any:
    """Parse a number of components, a fraction of the variance, or ``mle``."""
    if words == "mle":
        return words
    for kind in (int, float):
        with suppress(ValueError):
            return kind(words)
    remedy = "Use an integer such as 10, a fraction of the variance such as 0.95, or mle."
    raise _invalid("number of components", words, remedy)


def as_memory(words: str) -> str:
    """Check a size such as ``2GB`` and return it unchanged."""
    if re.fullmatch(r"\s*(\d+|\d*\.\d+)\s*[kmgt]?b\s*", words.lower()):
        return words
    raise _invalid("size", words, "Write 500MB or 2GB.")


def _one_of(what: str, *known: str) -> Any:
    def choose(words: str) -> str:
        if words not in known:
            raise typer.BadParameter(f"Unknown {what}: {words!r}. Use one of {', '.join(known)}.")
        return words

    return choose


def as_texts(words: str) -> list[str]:
    """Parse texts separated by commas; one with a comma, or with blanks at its ends, is quoted.

    Examples
    --------
    >>> as_texts('$, "kg, net"')
    ['$', 'kg, net']
    """
    found, more, place = list[str](), ",", 0
    while more:
        part = TEXT.match(words, place)
        assert part is not None  # the second branch matches any text
        quoted, plain, more = part.groups()
        found.append(plain.strip() if quoted is None else quoted.replace('""', '"'))
        place = part.end()
    if not all(found):
        remedy = """Write a,b,c, or 'a,"b, c"' if a name has a comma."""
        raise typer.BadParameter(f"Empty name in {words!r}. {remedy}")
    return found


def as_name(words: str) -> str:
    r"""Parse one column name; a line break or tab may be written as messages show it.

    Examples
    --------
    >>> as_name(r"site\nname") == "site\nname"
    True
    """
    if not re.search(r"\\[nrt]", words):  # other backslashes need not be doubled
        return words
    return re.sub(r"\\([\\nrt])", lambda found: ESCAPES[found[1]], words)


def as_names(words: str) -> list[str]:
    """Parse column names separated by commas, as :func:`as_texts` and :func:`as_name` do.

    Examples
    --------
    >>> as_names('age, "income, yearly"')
    ['age', 'income, yearly']
    """
    return [as_name(name) for name in as_texts(words)]


def as_marks(words: str, signs: str) -> list[str]:
    """Parse texts separated by commas; refuse one that may also be one of the ``signs`` of numbers.

    Examples
    --------
    >>> as_marks("-99,-98", signs=",")
    ['-99', '-98']
    """
    plain = re.sub(r'"[^"]*"', "", words)
    if "," in signs and (found := re.search(r"[^\s,]*\d,\d[^\s,]*", plain)):
        first, last = found[0].split(",", 1)
        remedy = f"""Write '"{found[0]}"' for one number, or '{first}, {last}' for two."""
        raise typer.BadParameter(
            f"`--na-values` has {found[0]}, in which the comma is doubtful. {remedy}"
        )
    return [text.strip() for text in as_texts(words)]  # entries are compared without blanks


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
        raise _invalid("shape", words, "Write rows and columns as 1000,50.")
    return int(found[1]), int(found[2])


def as_dtype(words: str) -> str:
    """Check the name of a NumPy dtype and return it unchanged."""
    import numpy as np

    try:
        np.dtype(words)
    except TypeError:
        remedy = "Write float32, uint8, or >f4 for big-endian."
        raise _invalid("dtype", words, remedy) from None
    return words


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        show_default=False,
        help="A file (.npy, .npz, .csv, .xlsx, .parquet, .h5, .zarr, .h5ad, .mtx, .bed, a video, "
        "...), file.h5::dataset, or a folder of tables or images.",
    ),
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", show_default=False, help="A model written by fit.")
]


def option(metavar: str | None, parser: Any, text: str, *names: str, **more: Any) -> Any:
    """Return an option; one without a parser takes text, a path, or no value, as its type says."""
    return typer.Option(*names, metavar=metavar, parser=parser, help=text, **more)


# The help texts below name types, units and effects; Typer adds the defaults.
_COUNT = "Number of components: 10, a fraction of the variance such as 0.95, or mle."
Components = Annotated[Any, option("K", as_count, _COUNT, "-k", "--components", show_default=False)]
MaxPasses = Annotated[int, option("N", whole(), "Maximum number of passes over the data.")]
_SCALE = "Divide every column by its standard deviation."
Scale = Annotated[str | None, option("std", _one_of("scale", "std"), _SCALE)]
_MISSING = "Missing values (NaN): error raises an error, mean uses the mean of the column."
_RULE = _one_of("rule for missing values", "error", "mean")
Missing = Annotated[str | None, option("RULE", _RULE, _MISSING)]
_ROTATION = "Rotate the scaled loadings: varimax or promax."
Rotation = Annotated[
    str | None, option("NAME", _one_of("rotation", "varimax", "promax"), _ROTATION)
]
_SEED = "Random seed, for bitwise identical results."
Seed = Annotated[int | None, option("N", whole(0), _SEED, "--seed")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files (never the data).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
_THREADS = "Number of threads; results do not depend on it (default: as many as processors)."
Threads = Annotated[int | None, option("N", whole(1), _THREADS, show_default=False)]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def _own(*words: Any, default: Any = None, panel: str | None = None) -> Any:
    """Return a field of a group with its :func:`option`, default, and heading in the help."""
    shown: dict[str, Any] = {"rich_help_panel": panel, "show_default": default is not None}
    return field(default=default, metadata={"option": option(*words, **shown)})


_table, _raw = partial(_own, panel="Tables"), partial(_own, panel="Raw binary files")
_more = partial(_own, panel="More about the fit")
_MASK = ".h5ad: column of var that selects the variables to use, such as highly_variable."
_LABEL = "Column with the class labels; .h5ad: a column of obs."
_NUMERIC = "Leave out columns that are not numbers, and list them."
_DELIMITER = "CSV: character between fields; a blank stands for any number."
_THOUSANDS = "CSV, Excel: separator of thousands, such as '.'."
_MARKS = (
    "CSV, Excel: more texts for missing values; one with a decimal comma is quoted: '\"-9,9\"'."
)
_SIGNS = "CSV, Excel: signs beside numbers, such as '$,%,kg'."
_BAD_LINES = "CSV: leave out lines with too few or too many fields."
_HEADER = "CSV, Excel: whether the first line holds column names; required if it holds numbers."
_MAP = f"Function to apply to every row first: {', '.join(MAPS)}."
_LINKS = "Follow links to other files. Only for data you trust."


@dataclass(frozen=True)
class Reading:
    """Options for reading DATA."""

    # An option with several texts may be repeated: taking the last would read columns that are to
    # be left out.
    columns: list[Any] | None = _table("A,B,...", as_names, "Columns to use.")
    exclude: list[Any] | None = _table("A,B,...", as_names, "Columns to leave out.")
    id_column: str | None = _table("COLUMN", as_name, "Column with the row names.", "--id")
    label_column: str | None = _table("COLUMN", as_name, _LABEL, "--label")
    mask_var: str | None = _table("COLUMN", as_name, _MASK, "--mask")
    numeric_only: bool | None = _table(None, None, _NUMERIC, "--numeric-only")
    delimiter: str | None = _table("SIGN", as_sign, _DELIMITER)
    header: bool | None = _table(None, None, _HEADER, "--header/--no-header")
    decimal: str | None = _table("SIGN", as_sign, "CSV, Excel: decimal sign of text, such as ','.")
    thousands: str | None = _table("SIGN", as_sign, _THOUSANDS)
    strip: list[Any] | None = _table("A,B,...", as_texts, _SIGNS)
    na_values: list[str] | None = _table("A,B,...", None, _MARKS, "--na-values")
    encoding: str | None = _table("NAME", None, "CSV: encoding if not UTF-8, such as cp1252.")
    comment: str | None = _table("SIGN", as_sign, "CSV: ignore lines from this sign on.")
    skip_rows: int | None = _table("N", whole(0), "CSV, Excel: lines above the column names.")
    skip_bad_lines: bool | None = _table(None, None, _BAD_LINES, "--skip-bad-lines")
    sheet: str | None = _table("NAME", None, "Excel: sheet to read, if there are several.")
    map_rows: str | None = _own("NAME", _one_of("map", *MAPS), _MAP, "--map")
    shape: Any = _raw("N,D", as_shape, "Numbers of rows and columns.")
    dtype: Any = _raw("NAME", as_dtype, "Type of the numbers: float32, >f4.")
    offset: int | None = _raw("BYTES", whole(0), "Bytes before the first number.")
    follow_links: bool | None = _own(
        None, None, _LINKS, "--follow-links", panel="HDF5, .h5ad and Zarr"
    )

    def given(self) -> dict[str, Any]:
        """Return the options that were given, as arguments of ``as_source``."""
        found = {name: value for name, value in values(self, Reading).items() if value is not None}
        if self.na_values is not None:
            signs = f"{self.decimal or ''}{self.thousands or ''}"
            marks = [as_marks(words, signs) for words in self.na_values]
            found["na_values"] = joined(marks)
        if "map_rows" in found:
            from primedpca.sources import maps

            found["map"] = getattr(maps, found.pop("map_rows"))
        return found


_TOL = (
    "Iterate until every component is proven within this angle: pi/1024, 0.1deg, 0.003 (radians)."
)
_PRIMING = (
    "Algorithm that finds the initial directions, which are then refined; auto takes the cheapest: "
    f"{', '.join(PRIMINGS)}."
)
_PASSES = (
    "Maximum number of passes over the data; for power_method, of steps per component. The "
    "stochastic primings have a number of steps of their own."
)
_MEMORY = "Memory limit besides the data, such as 2GB."
_CHECKPOINT = "Save every pass there, to resume after a crash."
_CERTIFICATES = ("auto", "none", "deterministic", "probabilistic")
_CERTIFICATE = f"Kind of proof: {', '.join(_CERTIFICATES)}."
_EXTRA = "Number of directions beyond K that are searched, or auto."
_FAILURE = "Probability that a probabilistic certificate is false."
_BATCH = "Rows in a mini-batch of the stochastic primings."
_SHARE = "Fraction of the rows that refining uses; below 1 nothing is proven."
_WARM = "Start from the components of this model."


def as_extra(words: str) -> Any:
    """Parse a number of extra directions, or ``auto``."""
    return words if words == "auto" else whole(0)(words)


def as_fraction(words: Any) -> float:
    """Parse a number; the estimator checks its range."""
    try:
        return float(words)
    except ValueError:
        raise typer.BadParameter(f"{words!r} is not a number.") from None


@dataclass(frozen=True)
class Search:
    """Options for finding the components."""

    # Defaults are those of the estimator, which a test compares: importing it would take a second.
    tol: Any = _own("ANGLE", as_angle, _TOL, default="pi/1024")
    priming: str = _own("NAME", _one_of("priming", *PRIMINGS), _PRIMING, default="auto")
    max_passes: int = _own("N", whole(), _PASSES, default=100)
    max_memory: str | None = _own("SIZE", as_memory, _MEMORY)
    checkpoint: Path | None = _own("FOLDER", None, _CHECKPOINT)
    certificate: str = _more(
        "KIND", _one_of("certificate", *_CERTIFICATES), _CERTIFICATE, default="auto"
    )
    failure_probability: float = _more("P", as_fraction, _FAILURE, default=1e-6)
    extra_components: Any = _more("L", as_extra, _EXTRA, default="auto")
    batch_size: int = _more("ROWS", whole(1), _BATCH, default=1000)
    refine_share: float = _more("FRACTION", as_fraction, _SHARE, default=1.0)


@dataclass(frozen=True)
class Preparation:
    """Options for preparing the columns, the device and the seed."""

    center: bool = _own(
        None, None, "Subtract the mean of every column.", "--center/--no-center", default=True
    )
    scale: Scale = None
    missing: Missing = "error"
    whiten: bool = _own(None, None, "Scale the scores to unit variance.", "--whiten", default=False)
    device: str | None = _own("NAME", None, "Device to compute on, such as cuda.")
    random_state: Seed = None


_OUT = "Save the model, for example to model.safetensors."
_VERBOSE = "Print a line for every pass to standard error."


@dataclass(frozen=True)
class Output:
    """Options for files to write and messages."""

    warm_start: Path | None = _more("MODEL", None, _WARM)
    out: Path | None = _own("MODEL", None, _OUT, "-o", "--out")
    report: Path | None = _own("PAGE.html", None, "Write an HTML report.")
    force: Force = False
    verbose: bool = _own(None, None, _VERBOSE, "-v", "--verbose", default=False)


@dataclass(frozen=True)
class FitOptions(Output, Preparation, Reading, Search):
    """All options of fit, which plan takes too; the help lists the last base first."""

    def parameters(self) -> dict[str, Any]:
        """Return the options that are parameters of the estimator."""
        return values(self, Search) | values(self, Preparation)


def values(options: Any, group: Any = None) -> dict[str, Any]:
    """Return the options of a group by name, by default all."""
    return {own.name: getattr(options, own.name) for own in fields(group or options)}


def joined(given: Any) -> Any:
    """Return the texts of an option that was repeated as one list, None if it was not given.

    Examples
    --------
    >>> joined([["age", "income"], ["year"]])
    ['age', 'income', 'year']
    """
    if not isinstance(given, list):
        return given
    return [text for part in given for text in (part if isinstance(part, list) else [part])] or None


def _typed(part: Any, hints: dict[str, Any]) -> Any:
    """Return the type of a field with its option."""
    known = part.metadata.get("option")
    return hints[part.name] if known is None else Annotated[hints[part.name], known]


def flat(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with each group replaced by its options, and with ``--debug``.

    Commands that read data have ``--threads`` as well.
    """
    kinds: dict[str, Any] = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
    own: dict[str, tuple[Any, Any]] = {}
    for name, declared in signature(command).parameters.items():
        if name in groups:
            hints = get_type_hints(kinds[name], include_extras=True)
            own |= {part.name: (_typed(part, hints), part.default) for part in fields(kinds[name])}
        else:
            own[name] = kinds[name], declared.default
    takes_debug = "debug" in own
    if groups:
        own["threads"] = Threads, None
    own["debug"] = Debug, False

    @wraps(command)
    def called(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{part.name: joined(given.pop(part.name)) for part in fields(kind)})
        if not takes_debug:  # the function that reports errors looks for it
            del given["debug"]
        threads = given.pop("threads", None)
        if threads is None:
            return command(**given)
        from primedpca._core.process import limit_threads

        with limit_threads(threads):
            return command(**given)

    # Typer reads the options from the signature and the annotations.
    called.__annotations__ = {name: kind for name, (kind, _) in own.items()}
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in own.items()
    ]
    called.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return called
