"""A table, written as Markdown and as LaTeX with booktabs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from primedpca_paper.traces import Summary

__all__ = ["MISSING", "NOT_REACHED", "Cell", "Table", "digits", "spread_cell", "tidy"]

MISSING, NOT_REACHED = "—", "n.a."
#: Number of lines that fit on a page of LaTeX.
PAGE = 45

#: LaTeX for the special characters in cells.
_LATEX = {
    "\\": r"\textbackslash ",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"\textasciitilde ",
    "^": r"\textasciicircum ",
    "±": r"$\pm$",
    "×": r"$\times$",
    "π": r"$\pi$",
    "ε": r"$\varepsilon$",
    "≥": r"$\geq$",
    "<": r"$<$",
    ">": r"$>$",
    "—": "---",
    "₀": "$_0$",
    "₂": "$_2$",
    "₄": "$_4$",
    "ₗ": "$_l$",
    "→": r"$\rightarrow$",
}


class Cell(NamedTuple):
    """Text of a cell, and the value by which the best cell is found (NaN for none)."""

    text: str
    value: float = math.nan


@dataclass(frozen=True)
class Table:
    """Sections of lines under one head.

    Attributes
    ----------
    name : str
        Name of the file, and LaTeX label.
    title : str
        Heading of the table.
    head : list of str
        Heading of each column; the first is that of the lines' names.
    sections : list of (str, list of lines)
        Heading and lines; a line is a list of cells, its name first.  The least value of each
        column is bold, in each group of lines.
    notes : list of str
        Sentences below the table.
    groups : int, default=0
        Number of lines at the end of each section that form a second group.
    """

    name: str
    title: str
    head: list[str]
    sections: list[tuple[str, list[list[Cell]]]]
    notes: list[str] = field(default_factory=list)
    groups: int = 0

    def markdown(self) -> str:
        """Return one table for each section, then the notes."""
        parts = [f"# {self.title}"]
        for heading, lines in self.sections:
            shown = [_markdown_line(self.head), _markdown_line(["---"] * len(self.head))]
            for cells, bold in zip(lines, self._bold(lines), strict=True):
                texts = [_strong(cell.text, best) for cell, best in zip(cells, bold, strict=True)]
                shown.append(_markdown_line(texts))
            parts += [*([f"## {heading}"] if heading else []), "\n".join(shown)]
        parts += ["\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n\n".join(parts) + "\n"

    def latex(self) -> str:
        """Return a floating ``table*`` with booktabs rules and the notes in its caption.

        A table that does not fit on a page is a ``longtable``.
        """
        columns = "l" + "c" * (len(self.head) - 1)
        about = _escape(" ".join([f"{self.title}.", *self.notes]))
        caption = rf"\caption{{{about}}}\label{{{self.name}}}"
        head = [r"\toprule", _latex_line(_escape(title) for title in self.head)]
        body = [*self._latex_body(), r"\bottomrule"]
        if sum(len(rows) for _, rows in self.sections) > PAGE:
            lines = [
                r"% \usepackage{booktabs,longtable}",
                rf"{{\footnotesize\begin{{longtable}}{{{columns}}}",
                *(caption + r" \\", *head, r"\endhead", *body, r"\end{longtable}}"),
            ]
        else:
            lines = [
                r"% \usepackage{booktabs,adjustbox}",
                *(r"\begin{table*}[t]", r"\centering"),
                r"\begin{adjustbox}{max width=\textwidth}",
                rf"\begin{{tabular}}{{{columns}}}",
                *(*head, *body, r"\end{tabular}", r"\end{adjustbox}", caption, r"\end{table*}"),
            ]
        return "\n".join(lines) + "\n"

    def _latex_body(self) -> Iterator[str]:
        width = len(self.head)
        for heading, rows in self.sections:
            yield r"\midrule"
            if heading:
                yield rf"\multicolumn{{{width}}}{{c}}{{{_escape(heading)}}} \\"
                yield r"\midrule"
            for i, (cells, bold) in enumerate(zip(rows, self._bold(rows), strict=True)):
                if self.groups and i == len(rows) - self.groups:
                    yield rf"\cmidrule(lr){{1-{width}}}"
                pairs = zip(cells, bold, strict=True)
                yield _latex_line(_latex_cell(cell.text, best) for cell, best in pairs)

    def _bold(self, lines: Sequence[Sequence[Cell]]) -> list[list[bool]]:
        bold = [[False] * len(self.head) for _ in lines]
        cut = len(lines) - self.groups
        for group in (range(cut), range(cut, len(lines))):
            for column in range(1, len(self.head)):
                values = [lines[i][column].value for i in group]
                known = [value for value in values if math.isfinite(value)]
                for i, value in zip(group, values, strict=True):
                    bold[i][column] = bool(known) and value == min(known)
        return bold


def digits(value: float, significant: int = 3) -> int:
    """Return the number of decimals that show ``significant`` digits of a value."""
    if not math.isfinite(value) or value == 0:
        return 0
    return max(0, significant - 1 - math.floor(math.log10(abs(value))))


def spread_cell(summary: Summary | None, held: Summary | None = None) -> Cell:
    """Return mean ± standard deviation to three digits; for a single run, the mean only.

    ``held`` is the time from which on the streak stays; it is shown where it is another one.
    """
    if summary is None:
        return Cell(MISSING)
    if not summary.known:
        return Cell(NOT_REACHED)
    decimals = digits(summary.mean)
    text = f"{summary.mean:.{decimals}f}"
    if math.isfinite(summary.spread):
        text += f" ± {summary.spread:.{decimals}f}"
    if held is not None and not held.known:
        text += f"; held in {held.reached} of {held.runs}"
    elif held is not None and held.mean != summary.mean:
        text += f"; held {held.mean:.{digits(held.mean)}f}"
    return Cell(text, summary.mean)


def tidy(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return CSV text; NaN and ``None`` are empty cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_plain(value) for value in row])
    return text.getvalue()


def _plain(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _markdown_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _strong(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_cell(text: str, best: bool) -> str:
    # Two leading spaces become a quad: pPCA is indented under its priming.
    inner = _escape(text.strip())
    inner = rf"\textbf{{\boldmath {inner}}}" if best else inner
    return rf"\quad {inner}" if text.startswith("  ") else inner


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
