"""Output of commands: one JSON object, or text and tables that have colour only on a terminal."""

import ast
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from itertools import accumulate
from typing import Any

from primedpca.cli.options import FitOptions

#: Characters that a terminal interprets instead of showing: control characters, bidirectional
#: marks, line separators, and lone surrogates, which cannot be encoded at all.
CONTROLS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
    r"|[\U000e0000-\U000e007f]"
)
#: Names of the library's arguments, and what sets them here; longer ones come first.
WORDS = {
    "`n_components`": "`-k`",
    "`X`": "DATA",
    "`map`": "`--map`",
    "Input X contains": "DATA contain",
    "`id_column`": "`--id`",
    "`label_column`": "`--label`",
    "`mask_var`": "`--mask`",
    "`numeric_only`=True": "`--numeric-only`",
    "`skip_bad_lines`=True": "`--skip-bad-lines`",
    "`header`=False": "`--no-header`",
    "`header`=True": "`--header`",
    "`shape`=(n, d)": "`--shape N,D`",
    "`follow_links`=True": "`--follow-links`",
    "`missing`='mean'": "`--missing mean`",
    "`random_state`": "`--seed`",
    "`components`": "COMPONENTS",
    "'mle' or None": "or mle",
    "`overwrite`=True": "`--force`",
    "`out`": "`-o`",
    "`max_components`": "`--max-components`",
    "`variance_ratio`": "`--variance-ratio`",
}
#: The other options have the names of the arguments.
SAME = {f"`{own.name}`": f"`--{own.name.replace('_', '-')}`" for own in fields(FitOptions)}
NARROW = 60  # columns; a narrower terminal gets a narrower table
MOST = 40  # rows of a table; --json prints all


#: An argument of the reading of tables with its value, as messages write it.
VALUED = re.compile(
    r"`(decimal|thousands|strip|na_values|encoding|comment|skip_rows|sheet|delimiter|exclude"
    r"|id_column)`=('[^']*'|\"[^\"]*\"|\[[^]]*\]|\d+)"
)
#: The arguments of a kind of data, as the error on an unknown one lists them.
KNOWN = re.compile(r"its options are: ([a-z_, ]+)\.")
OPTIONS = {"id_column": "--id"}


def _quoted(text: str) -> str:
    """Return one of several texts as :func:`~primedpca.cli.options.as_texts` reads it."""
    quoted = re.search(r'[,"]|^\s|\s$', text)
    return '"{}"'.format(text.replace('"', '""')) if quoted else text


def _as_option(found: re.Match[str]) -> str:
    """Return an argument and its value as they are written on a command line."""
    name, value = found[1], ast.literal_eval(found[2])
    word = ",".join(map(_quoted, value)) if isinstance(value, list) else str(value)
    word = word.replace("\t", r"\t")
    return f"`{OPTIONS.get(name, '--' + name.replace('_', '-'))} {shlex.quote(word)}`"


def in_words_of_the_command_line(text: str) -> str:
    """Replace the library's argument names in a message by the options that set them.

    Examples
    --------
    >>> in_words_of_the_command_line("pass `decimal`=',', `na_values`=['-', '?']")
    "pass `--decimal ,`, `--na-values '-,?'`"
    """
    text = KNOWN.sub(_known_here, VALUED.sub(_as_option, text))
    for name, word in (*WORDS.items(), *SAME.items()):
        text = text.replace(name, word)
    return text


def _known_here(found: re.Match[str]) -> str:
    """Return a list of the library's arguments as the options that set them, if they have one."""
    named: dict[str, str] = {}
    for own in fields(FitOptions):
        first = getattr(own.metadata.get("option"), "default", None)  # Typer's first name, if any
        words = first if isinstance(first, str) else "--" + own.name.replace("_", "-")
        named[own.name] = words.partition("/")[0]
    known = [named[name] for name in found[1].split(", ") if name in named]
    return f"its options are: {', '.join(known) or 'none'}."


@contextmanager
def other_remedy(words: str, remedy: str) -> Iterator[None]:
    """Replace some words of a library's message, whose remedy a command does not have."""
    try:
        yield
    except ValueError as error:
        if words not in str(error):
            raise
        raise ValueError(str(error).replace(words, remedy)) from error


def printable(text: object, keep: str = "") -> str:
    r"""Escape the characters that a terminal would interpret, except those in ``keep``.

    Examples
    --------
    >>> print(printable("red \x1b[31m, a line\nanother"))
    red \x1b[31m, a line\nanother
    """

    def written(match: re.Match[str]) -> str:
        return match[0] if match[0] in keep else ascii(match[0])[1:-1]

    return CONTROLS.sub(written, str(text))


def say(text: str, *, error: bool = False) -> None:
    """Print a line, to standard error if it is about an error."""
    print(printable(text), file=sys.stderr if error else sys.stdout)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on one line; NaN and infinity become null, unknown types text."""
    # Two trips through json replace non-finite numbers without a walk of our own.
    text = json.dumps(value, default=lambda part: getattr(part, "tolist", part.__str__)())
    plain = json.loads(text, parse_constant=lambda name: None)
    text = json.dumps(plain, allow_nan=False, ensure_ascii=False)
    # Readable in any language, but control characters stay escaped on a terminal.
    text = CONTROLS.sub(lambda match: json.dumps(match[0])[1:-1], text)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:  # a pipe on Windows, or the locale C
        text = json.dumps(plain, allow_nan=False)
    print(text)


def to_terminal(*, stderr: bool = False) -> Any:
    """Return a console: coloured on a terminal, plain in a pipe, without markup in text."""
    from rich.console import Console

    class Terminal(Console):
        """A console that prints text literally, and in a pipe without line breaks of its own."""

        def print(self, *objects: Any, **look: Any) -> None:
            texts = [printable(part, "\n") if isinstance(part, str) else part for part in objects]
            whole = not self.is_terminal and all(isinstance(part, str) for part in texts)
            super().print(*texts, **{"soft_wrap": whole} | look)

    return Terminal(stderr=stderr, highlight=False, markup=False, emoji=False)


def new_table(first: str, *titles: str, **look: Any) -> Any:
    """Return a table without lines; ``look`` is for the first column, numbers are in the others."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, **look)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def model_json(model: Any) -> dict[str, Any]:
    """Return the facts about a model as plain values."""
    same = ("n_samples", "n_components", "explained_variance", "explained_variance_ratio")
    return {name: getattr(model, f"{name}_") for name in (*same, "noise_variance")} | {
        "n_features": model.n_features_in_,
        "converged": bool(model.converged_),
        "status": model.status_.name.lower(),
        "plan": None if model.plan_ is None else str(model.plan_),
        "passes": model.n_passes_,
        "tol": model.tol,
        "map": getattr(model, "map_", None),
        "certificate": certificate_json(model.certificate_),
    }


def certificate_json(proof: Any) -> dict[str, Any] | None:
    """Return a certificate as plain values: angles in radians, components counted from 0."""
    if proof is None:
        return None
    return asdict(proof) | {"clusters": [run._asdict() for run in proof.clusters]}


def show_model(console: Any, model: Any) -> None:
    """Print the table of components, the certificate, and the status unless converged."""
    ratios = model.explained_variance_ratio_
    columns = {
        "variance": [f"{value:.4g}" for value in model.explained_variance_],
        "ratio": [f"{100 * ratio:.2f} %" for ratio in ratios],
    }
    if console.width >= NARROW:
        sums = accumulate(map(float, ratios))
        columns["cumulative"] = [f"{100 * total:.2f} %" for total in sums]
    show_components(console, columns, model.certificate_, model.tol)
    if not model.converged_:
        console.print()
        console.print(in_words_of_the_command_line(str(model.status_)), style="yellow")


def show_components(
    console: Any, columns: dict[str, list[str]], proof: Any, tol: float | None
) -> None:
    """Print a table of the first components with their bounds, and the certificate in words."""
    from primedpca.report.words import certificate_words

    count = len(next(iter(columns.values())))
    own, counted = (None, None) if proof is None else (proof.angle_bounds, proof.counted_bounds())
    cells = bound_cells(own, counted, 0.02 if tol is None else tol, min(count, MOST))
    console.print(component_table(columns, "proven within", cells))
    if count > MOST:
        console.print(f"... and {count - MOST} more; --json prints all.", style="dim")
    console.print()
    console.print(certificate_words(proof, tol))


def component_table(columns: dict[str, list[str]], title: str, bounds: list[Any]) -> Any:
    """Return a table with a row for each bound, its component counted from 1."""
    table = new_table("#", *columns, title, justify="right", no_wrap=True, style="dim")
    for i, row in enumerate(zip(*columns.values(), bounds, strict=False), start=1):
        table.add_row(str(i), *row)
    return table


def bound_cells(own: Any, counted: Any, tol: float, count: int) -> list[Any]:
    """Return a cell for each of ``count`` components: its bound, or a dash if there is none.

    ``own`` are the angle bounds of the single vectors and ``counted`` the
    :meth:`~primedpca.result.Certificate.counted_bounds`; both may be ``None``.
    """
    from rich.text import Text

    from primedpca.report.words import bound_words

    cells = []
    for alone, bound in () if own is None else zip(own[:count], counted, strict=False):
        words = bound_words(alone, bound)
        colour = "green" if bound <= tol else "dim" if words == "not proven" else "yellow"
        cells.append(Text(words, colour))
    return cells + [Text("-", "dim")] * (count - len(cells))
