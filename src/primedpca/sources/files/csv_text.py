"""Text files of numbers, parsed by pyarrow in pieces that end with a line."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from primedpca._core.arrays import EXACT
from primedpca._core.wording import count_words
from primedpca.protocols import Block
from primedpca.sources import base
from primedpca.sources.column_choice import check_flag
from primedpca.sources.files import common, number_text, table_columns, text_lines
from primedpca.sources.files.common import need, reading, unpacked
from primedpca.sources.files.number_text import (
    Notation,
    are_numbers,
    may_be_row,
    reads_as_number,
    remedy,
    shortened,
)

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
BLOCK_BYTES = 2**20  # parsed by pyarrow at a time
MOST_COLUMNS = 2**17  # each takes pyarrow 9 kB, so that a line of commas could fill the memory
LEAST_COUNTED = 3  # fewer names, such as 0 and 1, may well be a row of whole numbers
LINES = 30  # in which the header and the number of fields are looked for
DELIMITERS = ";\t|,"  # the usual ones, as a message proposes them
COMMENTS = ("#", "%", "!")  # signs with which programs begin a comment
CONVERSION = re.compile(r"In CSV column #\d+: ")
RAGGED = re.compile(r"Expected (\d+) columns, got (\d+): ?(.*)", re.DOTALL)


class DelimiterError(ValueError):
    """The first line has another delimiter."""


class NoNamesError(ValueError):
    """The line that should name the columns looks like a row."""


class CSVSource(table_columns.TableRows):
    """A text file with one row per line, read as float64; empty fields are missing.

    The file is parsed once when it is opened, to count its rows, so that an error in any line is
    reported then.  The first block is kept from that: several steps look at it, and of a small
    file it is all.  Columns without any value are left out with a warning, unless ``columns``
    names them.  True and False are 1 and 0.

    Parameters
    ----------
    path : path
    delimiter : str, optional
        One character; by default a tab for `.tsv`, else a comma.  A blank stands for any number of
        blanks and tabs.
    header : bool, optional
        Whether the first line names the columns; if not, they are called ``f0``, ``f1``, ...  By
        default it does, and is refused if it looks like a row: nothing but numbers, true and
        false, and marks for a missing value, other than columns counted from 0 or 1.
    columns, id_column, label_column, exclude, numeric_only
        As for :class:`~primedpca.sources.files.tables.TableSource`; names and labels are text.
    decimal, thousands : str, optional
        Decimal sign, by default a point, and separator of groups of digits, by default none.
    strip : str or sequence of str, optional
        Texts to remove before and after numbers: a currency, ``"%"``, a unit.
    na_values : str, number, or sequence of them, optional
        More texts and numbers that stand for a missing value; ``-999`` also stands for ``-999.0``.
    encoding : str, optional
        Such as ``"cp1252"``; by default UTF-8, or what the byte order mark says.
    comment : str, optional
        Sign from which on a line is ignored.
    skip_rows : int, default=0
        Number of lines before the table.
    skip_bad_lines : bool, default=False
        Whether to leave out lines with too few or too many fields, with a warning.

    Attributes
    ----------
    column_names, feature_names, row_names, labels, left_out
        As of a ``TableSource``; ``feature_names`` only if the file has a header.
    """

    read_rate = 1e8

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        delimiter: str | None = None,
        header: bool | None = None,
        columns: Any = None,
        id_column: str | None = None,
        label_column: str | None = None,
        exclude: Any = None,
        numeric_only: bool | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
        strip: Any = None,
        na_values: Any = None,
        encoding: str | None = None,
        comment: str | None = None,
        skip_rows: int | None = None,
        skip_bad_lines: bool | None = None,
    ) -> None:
        self.path = os.fspath(path)
        if delimiter is None:
            delimiter = "\t" if self.path.lower().endswith((".tsv", ".tsv.gz")) else ","
        text_lines.check_delimiter(delimiter)
        header = check_flag(header, "header")
        self._delimiter, self._stamp = delimiter, common.stamp_of(self.path)
        self._notation = Notation.of(decimal, thousands, strip, na_values)
        if not self._notation.decimal.isascii():
            words = "is not ASCII, which CSV readers need. Replace it in the file by '.' or ','."
            raise ValueError(f"`decimal`={decimal!r} {words}")
        self.dtype, self._first = np.dtype(np.float64), None
        self._skipping = bool(check_flag(skip_bad_lines, "skip_bad_lines"))
        self._skipped = list[str]()
        encoding = text_lines.check_encoding(encoding)
        comment = text_lines.check_comment(comment, delimiter, self._notation.signs)
        with reading(self.path, "its first lines"), unpacked(self.path) as file:
            head = file.read(text_lines.LOOKED_AT)
            text_lines.check_container(head)
            self._lines = text_lines.Lines.of(head, encoding, comment, delimiter)
        given = columns, [id_column, label_column], exclude, numeric_only
        self._open(header, table_columns.check_skip_rows(skip_rows), given)
        if self._skipped:
            shown = ", ".join(repr(shortened(line)) for line in self._skipped[:3])
            words = (
                f"left out {len(self._skipped)} line(s) with too few or too many fields: {shown}"
            )
            warnings.warn(f"{self.path}: {words}.", UserWarning, stacklevel=2)
        self._skipped = []

    def _open(self, header: bool | None, skip_rows: int, given: Any) -> None:
        """Choose the columns by the first lines, then parse the whole file to count its rows."""
        columns, others, exclude, numeric_only = given
        schema, skip, texts = self._look(header, skip_rows)

        def remedied(name: str) -> tuple[str, str]:
            return self._remedy(name, texts(name))

        self._choose(schema, columns, others, exclude, numeric_only, remedied)
        chosen, nameless = list(self.column_names), self._nameless
        if columns is None:
            # A first line with a name too few is refused as such unless its rows are counted.
            first, gaps = self._names[0], nameless is None
            self._check_index(first, lambda: self._counted(texts(first)), numeric_only, gaps)
        elif nameless is not None and nameless not in (*chosen, *others):
            kind = schema.field(nameless).type
            if table_columns.is_number(kind):  # read as well, to see whether it is empty
                self._columns = table_columns.TableColumns(
                    (*chosen, nameless), (*self._columns.types, kind)
                )
                self.column_names = self._columns.names
        while True:
            try:
                present = self._count(skip)
                break
            except table_columns.NotNumberError as error:
                if not numeric_only:
                    raise
                self._leave_out({error.column: error.what})
                self._use([name for name in self.column_names if name != error.column])
        if columns is not None and nameless in self.column_names and nameless not in chosen:
            if present[-1]:
                self._refuse_short_header()
            self._use(list(self.column_names[:-1]))
            if self._first is not None:
                self._first = base.read_only(np.ascontiguousarray(self._first[:, :-1]))
        if columns is None and not present.all() and present.any() and self._first is not None:
            names = np.array(self.column_names, dtype=object)
            self._leave_out(dict.fromkeys(names[~present], table_columns.NO_VALUES))
            self._use(names[present].tolist())
            self._first = base.read_only(np.ascontiguousarray(self._first[:, present]))
        if columns is None and self._nameless in self.column_names:
            self._refuse_short_header()
        shape = self.shape[0], len(self.column_names)
        self.shape = common.check_matrix(self.path, shape, self.dtype)
        if header is not False:
            self.feature_names = np.array(self.column_names, dtype=object)

    def _counted(self, entries: list[str | None]) -> list[Any]:
        """Entries that may number the rows: texts of whole numbers, or others by their values."""
        if all(entry is None or entry.strip().lstrip("+-").isdecimal() for entry in entries):
            return entries  # which float64 might round
        arrow = need("pyarrow", "CSV")
        values, wrong = self._notation.numbers(arrow.array(entries, arrow.string()))
        return entries if wrong is not None else values.to_pylist()

    def _count(self, skip: int) -> np.ndarray:
        """Parse all rows once; return whether each column has a value, ``(d,)``."""
        self._pieces: list[tuple[int, int]] = []
        self._first, self._skipped, counts = None, [], list[int]()
        present = np.zeros(len(self.column_names), bool)
        for begin, piece in self._cut():
            begin, piece = (skip, piece[skip - begin :]) if begin < skip else (begin, piece)
            with reading(self.path, f"block {len(counts)}, bytes from {begin} on"):
                text = self._lines.decoded(piece)
                if self._is_blank(text):
                    continue
                if begin >= self._looked_at:
                    self._lines.check_quotations(text, self.path, begin)
                block = self._block(self._parse(text, sum(counts)), "it")
                self._check_whole_numbers(text, block)
            if len(block):
                self._first = block if self._first is None else self._first
                self._pieces.append((begin, len(piece)))
                counts.append(len(block))
                left = np.flatnonzero(~present)
                present[left] = ~np.isnan(block[:, left]).all(axis=0)
        if not counts:
            raise ValueError(f"{self.path} has no rows below its column names.")
        self.shape = sum(counts), len(self.column_names)
        self.blocks = tuple(pairwise(accumulate(counts, initial=0)))
        return present

    # -- the first lines -----------------------------------------------------------------------

    def _look(
        self, header: bool | None, skip_rows: int
    ) -> tuple[Any, int, Callable[[str], list[str | None]]]:
        """Schema by the first lines, bytes up to the first row, and a reader of columns as text."""
        arrow, named = need("pyarrow", "CSV"), header is not False
        with reading(self.path, "its first lines"):
            begin, first, lines = self._first_lines(skip_rows, named)
        if not lines:
            raise table_columns.nothing_left(self.path, skip_rows, self._lines.comment)
        if lines[0][2].startswith("##fileformat=VCF"):
            raise ValueError(f"{self.path} holds genotypes as VCF, not a table. {common.VCF}")
        self._names, raw = self._header(lines, named)
        rows = lines[0][1]
        if named:
            rows = lines[1][1] if len(lines) > 1 else len(first)
        with reading(self.path, "its first lines"):
            if self._lines.encoding == "utf-8":
                text_lines.check_utf8(first[lines[0][1] : rows])
            above = lines[0][1]
            named_rows = self._lines.decoded(first[above:])
            self._lines.check_quotations(named_rows, self.path, begin + above)
            self._looked_at = begin + len(first)
            text = self._lines.decoded(first[rows:])
            table = self._csv(text, None)
            if any(kind == arrow.binary() for kind in table.schema.types):
                text_lines.check_utf8(text)
        kinds = [self._kind(table.column(name)) for name in self._names]
        if header is None:
            check_names(self.path, raw, kinds, self._notation)
        if named:
            table_columns.warn_of_renamed(self.path, raw, self._names)
        as_text = list[Any]()

        def texts(name: str) -> list[str | None]:
            if not as_text:
                as_text.append(self._csv(text, dict.fromkeys(self._names, arrow.string())))
            found: list[str | None] = as_text[0].column(name).to_pylist()
            return found

        schema = arrow.schema(list(zip(self._names, kinds, strict=True)))
        return schema, begin + rows, texts

    def _first_lines(
        self, skip_rows: int, named: bool
    ) -> tuple[int, bytes, list[tuple[int, int, str]]]:
        """The pieces in which the names and the first row are, and their first lines.

        Lines that are skipped, blank or only a comment are not among them, however many there are.

        Returns
        -------
        begin : int
            Byte of the file at which the pieces begin.
        pieces : bytes
        lines : list of (int, int, str)
            Number of each line in the file, byte in the pieces at which it begins, and its text.
        """
        number, start, held, lines = 0, 0, b"", list[tuple[int, int, str]]()
        for begin, piece in self._cut():
            if not lines:  # nothing of the table so far
                start, held = begin, b""
            blank = self._lines.blank(piece) if number >= skip_rows else 0
            number += piece.count(self._lines.end, 0, blank)
            for place, line in self._lines.first(piece[blank:], len(piece)):
                if number < skip_rows:
                    # A stray quotation mark in a title would make one line of it and of rows.
                    if "\n" in line or "\r" in line:
                        self._lines.check_quotations(line.encode(), self.path, begin + place)
                elif not self._is_blank(line.encode()) and (lines or line.strip()):
                    lines.append((number, begin + blank + place - start, line))
                number += 1
                if len(lines) == LINES:
                    break
            held += piece
            if len(lines) > named:
                break
        return start, held, lines

    def _is_blank(self, text: bytes) -> bool:
        """Whether text has no row: a tab that separates fields is a row of empty ones."""
        return not text.strip(b" \r\n" if self._delimiter == "\t" else None)

    def _kind(self, column: Any) -> Any:
        """Type that a column is read as, by its first entries."""
        arrow, kind = need("pyarrow", "CSV"), column.type
        if kind == arrow.string():
            # pyarrow takes blanks around NA for text.  The first entries tell most names.
            parts = (column[: number_text.LOOKED_AT], column)
            texts = (part.combine_chunks() for part in parts)
            numbers = all(self._notation.numbers(part)[1] is None for part in texts)
            kind = arrow.float64() if numbers else kind
        # A column that is empty so far may hold numbers; text in it is reported where it stands.
        empty = kind == arrow.null()
        plain = table_columns.is_number(kind) and kind != arrow.bool_()
        return arrow.float64() if empty or plain else kind

    def _header(
        self, lines: list[tuple[int, int, str]], named: bool
    ) -> tuple[list[str], list[str]]:
        """Names of the columns, unique and not empty, and as they stand in the first line."""
        self._check_delimiter(lines, named)
        rows = [text_lines.fields(line, self._delimiter) for *_, line in lines]
        counts = Counter(map(len, rows[named:] or rows))
        usual = max(counts, key=lambda count: (counts[count], count))
        names = [name.strip() for name in rows[0]]
        below = next((row for row in rows[1:] if len(row) == usual), [])
        self._nameless: str | None = None
        if named and len(names) == usual - 1 and any(are_numbers(below, self._notation)):
            # R writes row names without a name for them; others end every row with a delimiter.
            ended = not any(row[-1].strip() for row in rows[1:] if len(row) == usual)
            place = usual - 1 if ended else 0
            names.insert(place, "")
            self._nameless = table_columns.UNNAMED.format(place)
        late = table_columns.late_header(rows, self._notation) if named else None
        if len(names) != usual:
            late = next(i for i, row in enumerate(rows) if len(row) == usual)
        if late is not None:
            self._refuse_first_line(lines, late, usual)
        if not named:
            return [f"f{j}" for j in range(usual)], names
        return table_columns.unique_names(names), names

    def _refuse_short_header(self) -> None:
        """Refuse a first line that lacks a name, unless row names or nothing are in its column.

        Any name may be the one that is missing, and others would stand at wrong columns.
        """
        usual, remedy = len(self._names), "correct the line"
        if self._nameless == self._names[0]:
            name = f"`id_column`={self._nameless!r}"
            remedy = (
                f"pass {name} if the first column names the rows, as R writes them, or {remedy}"
            )
        raise ValueError(
            f"{self.path} has {count_words(usual - 1, 'name')} in its first line for {usual} "
            f"columns: {remedy}."
        )

    def _refuse_first_line(self, lines: Any, begins: int, usual: int) -> None:
        """Refuse a table that begins in a later line, or has other lines between."""
        (number, _, line), place = lines[0], lines[begins][0]
        remedy = f"pass `skip_rows`={place} if the table begins in line {place + 1}"
        sign = line.lstrip()[:1]
        if sign in COMMENTS and self._lines.comment is None:
            remedy = f"pass `comment`={sign!r}, or {remedy}"
        if begins == 0:
            remedy = "correct the lines, or pass another `delimiter`"
        elif usual == 1 and (other := self._common_delimiter(lines)):
            remedy = f"pass `delimiter`={other!r}, or {remedy}"
        raise ValueError(
            f"{self.path} has {shortened(line, 40)!r} in line {number + 1}, which does not name "
            f"the {count_words(usual, 'column')} of the lines below; {remedy}."
        )

    def _common_delimiter(self, lines: list[tuple[int, int, str]]) -> str | None:
        """Return a sign that cuts all these lines into the same number of fields, at least two."""
        for mark in DELIMITERS:
            counts = {len(text_lines.fields(line, mark)) for *_, line in lines}
            if len(counts) == 1 and counts != {1}:
                return mark
        return None

    def _check_delimiter(self, lines: list[tuple[int, int, str]], named: bool) -> None:
        """Refuse a first line with too many columns or another delimiter."""
        line, sign = lines[0][2], self._delimiter
        count = line.count(sign) + 1
        if count > MOST_COLUMNS:
            raise ValueError(f"{self.path} has {count} columns, over {MOST_COLUMNS}. Use Parquet.")
        if count > 1 or (not named and all(are_numbers([line], self._notation))):
            return

        def parts(text: str, mark: str) -> bool:
            return len(text_lines.fields(text, mark)) > 1

        other = next((mark for mark in DELIMITERS if parts(line, mark)), None)
        if other is None:
            rows = [line.split() for *_, line in lines[:LINES]]
            numbers = rows[1:] and all(all(map(reads_as_number, row)) for row in rows[1:])
            other = " " if numbers and len({len(row) for row in rows} | {1}) == 2 else None
        if other is not None and all(parts(line, other) for *_, line in lines[:2]):
            number, remedy = lines[0][0] + 1, f"pass `delimiter`={other!r}"
            if other == self._notation.decimal:
                remedy += ", or put the name in quotation marks if there is one column"
            raise DelimiterError(f"{self.path} has no {sign!r} in line {number}; {remedy}.")

    # -- rows ----------------------------------------------------------------------------------

    def _cut(self) -> common.Lines:
        """Yield pieces of whole lines, each with the byte at which it begins."""
        with reading(self.path, "its lines"), unpacked(self.path) as file:
            yield from self._lines.cut(file, self.path)

    def _check_whole_numbers(self, text: bytes, block: Block) -> None:
        """Refuse whole numbers that were rounded because float64 cannot hold them."""
        large = np.fmax.reduce(np.abs(block), axis=0, initial=0.0) >= EXACT
        names = np.array(self.column_names, dtype=object)[large].tolist()
        for name in names:
            column = self._csv(text, {name: need("pyarrow", "CSV").string()}).column(name)
            self._notation.check_whole_numbers(column.combine_chunks(), name)

    def _parse(self, text: bytes, start: int = 0) -> Any:
        """Parse the columns of numbers of some lines, from row ``start`` on.

        What pyarrow does not read as a number may be one in the notation that the user has stated.
        """
        arrow = need("pyarrow", "CSV")
        numbers = dict(zip(self._columns.names, self._columns.types, strict=True))
        try:
            return self._csv(text, numbers)
        except arrow.ArrowInvalid as error:
            if not CONVERSION.search(str(error)):
                raise
        table = self._csv(text, dict.fromkeys(numbers, arrow.string()))
        found = {name: table.column(name).combine_chunks() for name in numbers}
        return arrow.table(
            {name: self._numbers(name, found[name], numbers[name], start) for name in numbers}
        )

    def _numbers(self, name: str, column: Any, kind: Any, start: int) -> Any:
        """A column of text as numbers; the first entry that is not one is named."""
        arrow = need("pyarrow", "CSV")
        if kind == arrow.bool_():
            try:
                return column.cast(kind)
            except arrow.ArrowInvalid:
                wrong: int | None = 0
        else:
            values, wrong = self._notation.numbers(column)
            if wrong is None:
                return values
        told = self._remedy(name, column.to_pylist(), start)
        raise table_columns.NotNumberError(self.path, name, *told)

    def _remedy(self, name: str, entries: list[str | None], start: int = 0) -> tuple[str, str]:
        """Description of a column of text, and the option with which it would be numbers."""
        begins = name == self._names[0] and self._lines.comment is None
        return remedy(entries, self._notation, start, COMMENTS if begins else ())

    def _csv(self, text: bytes, kinds: dict[str, Any] | None) -> Any:
        """Parse the columns of these types, or all of any type."""
        arrow, csv = need("pyarrow", "CSV"), need("pyarrow.csv", "CSV")
        notation = self._notation
        options: dict[str, Any] = {"null_values": notation.absent, "strings_can_be_null": True}
        options["decimal_point"] = notation.decimal
        if kinds is not None:
            options |= {"column_types": kinds, "include_columns": list(kinds)}
        if self._is_blank(text):
            return arrow.table({name: arrow.nulls(0) for name in kinds or self._names})
        parse = csv.ParseOptions(delimiter=self._delimiter)
        if self._skipping:
            parse.invalid_row_handler = self._skip
        size = max(BLOCK_BYTES, len(text))
        try:
            return csv.read_csv(
                arrow.BufferReader(text),
                csv.ReadOptions(column_names=self._names, use_threads=False, block_size=size),
                parse,
                csv.ConvertOptions(**options),
            )
        except arrow.ArrowInvalid as error:
            if "UTF8" in str(error):
                text_lines.check_utf8(text)
            if ragged := RAGGED.search(str(error)):
                raise self._fields_error(*ragged.groups()) from error
            raise

    def _skip(self, row: Any) -> str:
        self._skipped.append(row.text)
        return "skip"

    def _fields_error(self, usual: str, found: str, line: str) -> Exception:
        """Error on a line with another number of fields, with the option for it."""
        sign = line.lstrip()[:1]
        remedies = ["correct it", "pass `skip_bad_lines`=True to leave out such lines"]
        if sign in COMMENTS and self._lines.comment is None:
            remedies[0] = f"pass `comment`={sign!r}"
        shown = shortened(line.strip(), 40)
        return ValueError(
            f"{self.path} has a line with {count_words(int(found), 'field')} instead of {usual}, "
            f"{shown!r}; {', or '.join(remedies)}."
        )

    def _block(self, table: Any, where: str) -> Block:
        columns = self._columns
        block = table_columns.as_block(table, columns, len(columns.names), self.dtype, where)
        boolean = [kind == need("pyarrow", "CSV").bool_() for kind in columns.types]
        return base.read_only(self._notation.without_absent(block, boolean))

    def _table(self, i: int, parse: Callable[[bytes], Any]) -> Any:
        (begin, length), where = self._pieces[i], self._place(i)
        self._check_same(where)
        with reading(self.path, where), unpacked(self.path) as file:
            file.seek(begin)
            piece = file.read(length)
            if len(piece) < length:
                raise OSError(f"{self.path} ends in {where}: it was truncated.")
            return parse(self._lines.decoded(piece))

    def read(self, i: int) -> Block:
        """Rows of a block: the first as parsed when the file was opened, others parsed again."""
        if i == 0 and self._first is not None:
            self._check_same(self._place(0))
            return self._first
        start, stop = self.blocks[i]
        table = self._table(i, lambda text: self._parse(text, start))
        block = self._block(table, self._place(i))
        if len(block) != stop - start:
            raise OSError(f"{self.path} has {len(block)} rows in {self._place(i)}: it has changed.")
        return block

    def __getstate__(self) -> dict[str, Any]:
        """State without the first block: another process parses its own."""
        return self.__dict__ | {"_first": None}

    def _column(self, name: str) -> np.ndarray:
        # As text, even if the column is read as numbers, too: 007 is a name.
        kinds = {name: need("pyarrow", "CSV").string()}
        tables = (self._table(i, partial(self._csv, kinds=kinds)) for i in range(len(self.blocks)))
        return np.concatenate([table.column(0).to_numpy() for table in tables])


def check_names(path: str, names: list[str], kinds: list[Any], notation: Notation) -> None:
    """Refuse a header that may be a row: the names of the columns of numbers are values.

    Counted columns, 0, 1, 2, ... or 1, 2, 3, ..., pass: frames without names are written so.
    """
    numbers = map(table_columns.is_number, kinds)
    # An empty name is a missing value, or an index without a name.
    found = [name for name, number in zip(names, numbers, strict=True) if number and name]
    counted = [[str(i) for i in range(first, first + len(found))] for first in (0, 1)]
    if not may_be_row(found, notation):
        return
    if found in counted and len(found) >= LEAST_COUNTED:
        return
    shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
    raise NoNamesError(
        f"{path} has values in its first line instead of column names ({shown}); pass "
        "`header`=False if it is a row like the others, `header`=True if these are names."
    )
