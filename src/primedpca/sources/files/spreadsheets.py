"""Spreadsheets: Excel (`.xlsx`, `.xlsm`) and OpenDocument (`.ods`), read by calamine.

Values only: formulas are not run (their saved values are read), links are not followed, and macros
are ignored.  A sheet is read whole.
"""

import io
import math
import os
import re
import zipfile
from collections.abc import Iterator, Set
from contextlib import contextmanager
from datetime import date, datetime, time
from typing import Any
from xml.parsers import expat

import numpy as np

from primedpca._core.arrays import EXACT
from primedpca.protocols import Block
from primedpca.sources import base
from primedpca.sources.column_choice import check_flag
from primedpca.sources.files import common, table_columns
from primedpca.sources.files.common import need, reading
from primedpca.sources.files.csv_text import check_names
from primedpca.sources.files.number_text import TRUTH, Notation, remedy

SUFFIXES = (".xlsx", ".xlsm", ".ods")
FILE_BYTES = 2**30  # unpacked; a sheet of 10 million cells has about 500 MB
#: The reader holds a rectangle with all cells of a sheet, which may have this many cells, or this
#: many times those that are filled.
MOST_CELLS, SPREAD = 2**24, 4
#: Of a sheet, the reader leaves out what is beyond the limits of Excel, which OpenDocument has not.
MOST_ROWS, MOST_COLUMNS = 2**20, 2**14
TEXT_BYTES = 2**31  # of all cells of text
LINES = 30  # rows in which the header is looked for
#: Start of a row, of a cell, their attribute with a place, and a value, with any prefix.
ROW = re.compile(rb"<(?:\w+:)?row\b")
CELL = re.compile(rb"<(?:\w+:)?c[\s/>]")
PLACE = re.compile(rb"""\sr\s*=\s*(?:"([^"]*)"|'([^']*)')""")
REFERENCE = re.compile(rb"([A-Za-z]*)(\d{0,9})")
VALUE = re.compile(rb"<(?:\w+:)?v>(\d{1,9})</")
#: A cell of Excel that holds an error, up to its end, and the error's name in it.  Neither reaches
#: beyond the next cell, so that a search takes time in proportion to the size of the sheet.
ERROR = re.compile(
    rb"""(<(?:\w+:)?c(?=\s)[^<>]{0,500}?\st\s{0,9}=\s{0,9})(?:"e"|'e')([^<>]{0,500}(?<!/)>)"""
    rb"""((?:(?!<(?:\w+:)?c\s).)*?)(?=</(?:\w+:)?c\s*>)""",
    re.DOTALL,
)
ERROR_NAME = re.compile(rb"<(?:\w+:)?v(?:\s[^<>]*)?>([^<]*)</")
#: The same of OpenDocument: a cell of empty text, or of the number 0, with the name as its text.
OPEN_ERROR = re.compile(
    rb"""(<table:table-cell(?=\s)[^<>]{0,9999}?)\s\w+:value-type\s{0,9}=\s{0,9}(?:"error"|'error')"""
    rb"""([^<>]{0,9999}(?<!/)>)((?:(?!<table:table-cell\s).)*?)(?=</table:table-cell\s*>)""",
    re.DOTALL,
)
OPEN_ERROR_NAME = re.compile(rb"<text:p(?:\s[^<>]*)?>([^<]*)</")
OPEN_VALUE = re.compile(rb"""\soffice:(?:value-type|value|string-value)=(?:"[^"<>]*"|'[^'<>]*')""")
EXCEL = (
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
    "http://purl.oclc.org/ooxml/spreadsheetml/main",
)
OPEN = "urn:oasis:names:tc:opendocument:xmlns:"
NUMBERS = ("float", "percentage", "currency")  # types of cells of OpenDocument
STRING_END = re.compile(rb"</(?:\w+:)?si>")


class SheetSource(table_columns.TableRows):
    """A sheet of a workbook as float64, read whole into memory; empty cells are missing.

    Columns without any value are left out with a warning, unless ``columns`` names them.  True and
    False are 1 and 0.

    Parameters
    ----------
    path : path
    sheet : str, optional
        Name of the sheet; by default the only one that is not empty.
    header : bool, optional
        As for CSV files.
    columns, id_column, label_column, exclude, numeric_only
        As for :class:`~primedpca.sources.files.tables.TableSource`.
    decimal, thousands, strip, na_values
        Notation of numbers in cells of text, as for CSV files.
    skip_rows : int, default=0
        Number of rows of the sheet above the table, empty ones included.

    Attributes
    ----------
    column_names, feature_names, row_names, labels, left_out
        As of a ``TableSource``.
    """

    on_disk = False  # after it was opened

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sheet: str | None = None,
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
        skip_rows: int | None = None,
    ) -> None:
        self.path = os.fspath(path)
        header = check_flag(header, "header")
        self._notation = Notation.of(decimal, thousands, strip, na_values)
        self._absent = frozenset(self._notation.absent)
        self._stamp = common.stamp_of(self.path)
        above, rows = self._rows(sheet)
        skipped = max(0, table_columns.check_skip_rows(skip_rows) - above)
        filled = (i for i, row in enumerate(rows) if i >= skipped and any(map(_text, row)))
        first = next(filled, len(rows))
        rows = rows[first:]
        if not rows:
            raise table_columns.nothing_left(self.path, skip_rows or 0)
        names, raw = self._header(rows, header is not False, above + first)
        sign = self._notation.decimal
        with reading(self.path, "its cells"):
            below = zip(*rows[header is not False :], strict=True)
            cells = [_column(column, sign) for column in below]
        if not cells:
            raise ValueError(f"{self.path} has no rows below its column names.")
        arrow = need("pyarrow", "spreadsheets")
        plain = arrow.table(dict(zip(names, cells, strict=True)))
        cells = [_truth_values(column, self._absent) for column in cells]
        table = arrow.table(dict(zip(names, cells, strict=True)))
        kinds = [self._kind(column) for column in cells]
        if header is None:
            check_names(self.path, raw, kinds, self._notation)
        if header is not False:
            table_columns.warn_of_renamed(self.path, raw, names)
        schema = arrow.schema(list(zip(names, kinds, strict=True)))
        others = [id_column, label_column]

        def texts(name: str) -> list[Any]:
            found: list[Any] = table.column(name).to_pylist()
            return found

        def remedied(name: str) -> tuple[str, str]:
            # Numbers are written with the decimal sign that was passed: they fit any other.
            held = [row[names.index(name)] for row in rows[header is not False :]]
            pairs = zip(held, texts(name), strict=True)
            own = [None if type(cell) in (int, float) else text for cell, text in pairs]
            return remedy(own, self._notation)

        self._choose(schema, columns, others, exclude, numeric_only, remedied)
        if columns is None:
            self._check_index(names[0], lambda: texts(names[0]), numeric_only)
        self._fill(table, columns is None)
        named = {name: plain.column(name).to_pylist() for name in others if name is not None}
        self._texts = {
            name: np.array([*map(self._name, found)], dtype=object) for name, found in named.items()
        }
        if header is not False:
            self.feature_names = np.array(self.column_names, dtype=object)

    def _rows(self, sheet: str | None) -> tuple[int, list[list[Any]]]:
        """Number of empty rows above the cells of a sheet, and all these cells."""
        with reading(self.path, "its sheets"), _opened(self.path, self._absent) as book:
            if sheet is not None:
                if sheet not in book.sheet_names:
                    shown = ", ".join(map(repr, book.sheet_names[:9]))
                    raise common.UnfitError(f"there is no `sheet`={sheet!r}; there are {shown}.")
                return self._all_cells(book.get_sheet_by_name(sheet))
            known = (one.name for one in book.sheets_metadata if _is_shown(one))
            filled = [name for name in known if book.get_sheet_by_name(name).start is not None]
            if len(filled) > 1:
                shown = ", ".join(map(repr, filled[:9])) + ", ..." * (len(filled) > 9)
                words = f"pass `sheet`={filled[0]!r} or another"
                raise common.UnfitError(f"it has {len(filled)} sheets, {shown}; {words}.")
            if not filled:
                raise common.UnfitError("it has no filled sheet.")
            return self._all_cells(book.get_sheet_by_name(filled[0]))

    def _all_cells(self, sheet: Any) -> tuple[int, list[list[Any]]]:
        """Cells of a sheet as :func:`_cells` returns them, if the reader has left none out."""
        last = sheet.end or (0, 0)
        reaches = last[0] >= MOST_ROWS - 1 or last[1] >= MOST_COLUMNS - 1
        if reaches and self.path.lower().endswith(".ods"):
            most = f"{MOST_ROWS:,} rows and {MOST_COLUMNS:,} columns"
            raise common.UnfitError(f"it reaches {most}, the most that are read; save it as CSV.")
        return _cells(sheet)

    def _header(
        self, rows: list[list[Any]], named: bool, above: int
    ) -> tuple[list[str], list[str]]:
        """Names of the columns, unique and not empty, and as they stand in the first row.

        ``above`` is the number of rows of the sheet above these, for messages.
        """
        raw = [_text(cell).strip() for cell in rows[0]]
        if not named:
            return [f"f{j}" for j in range(len(raw))], raw
        texts = [[_text(cell) for cell in row] for row in rows[:LINES]]
        late = table_columns.late_header(texts, self._notation)
        if late is not None:
            title = next(text for text in (*raw, "a blank row") if text)
            place = above + late
            raise ValueError(
                f"{self.path} has {title!r} above its column names; pass `skip_rows`={place} if "
                f"the table begins in row {place + 1}."
            )
        return table_columns.unique_names(raw), raw

    def _kind(self, column: Any) -> Any:
        arrow, kind = need("pyarrow", "spreadsheets"), column.type
        if kind == arrow.null():
            return arrow.float64()
        if kind == arrow.string() and self._notation.numbers(column)[1] is None:
            return arrow.float64()
        return kind

    def _name(self, cell: Any) -> Any:
        """A cell that names or labels a row, or None for a missing one."""
        return None if _text(cell) in self._absent else _whole(cell)

    def _fill(self, table: Any, drop: bool) -> None:
        """Convert the chosen columns to numbers; with ``drop``, leave out those without any."""
        arrow, parts = need("pyarrow", "spreadsheets"), {}
        for name in self.column_names:
            column = table.column(name).combine_chunks()
            if column.type == arrow.string():
                texts = column
                column, wrong = self._notation.numbers(texts)
                if wrong is not None:
                    what, option = remedy(texts.to_pylist(), self._notation)
                    raise table_columns.NotNumberError(self.path, name, what, option)
                far = np.flatnonzero(np.abs(column.to_numpy(zero_copy_only=False)) >= EXACT)
                with reading(self.path, "its cells"):
                    self._notation.check_whole_numbers(texts.take(arrow.array(far)), name)
            parts[name] = column.cast(arrow.uint8()) if column.type == arrow.bool_() else column
        values = [
            part.cast(arrow.float64()).to_numpy(zero_copy_only=False) for part in parts.values()
        ]
        boolean = [table.column(name).type == arrow.bool_() for name in parts]
        array = self._notation.without_absent(np.stack(values, axis=1), boolean)
        empty = np.isnan(array).all(axis=0)
        if drop and empty.any() and not empty.all():
            names = np.array(self.column_names, dtype=object)
            self._leave_out(dict.fromkeys(names[empty], table_columns.NO_VALUES))
            self._use(names[~empty].tolist())
            array = np.ascontiguousarray(array[:, ~empty])
        self.dtype = array.dtype
        self.shape = common.check_matrix(self.path, array.shape, array.dtype)
        self._array = base.read_only(array)
        step = max(1, base.READ_BYTES // (self.shape[1] * array.itemsize))
        self.blocks = base.cut_evenly(self.shape[0], step)

    def read(self, i: int) -> Block:
        """Rows of a block."""
        start, stop = self.blocks[i]
        return self._array[start:stop]

    def _column(self, name: str) -> np.ndarray:
        return self._texts[name]


def _cells(sheet: Any) -> tuple[int, list[list[Any]]]:
    """Number of empty rows above the cells of a sheet, and its cells, without empty ones around."""
    return (sheet.start or (0,))[0], list(sheet.to_python())


def _is_shown(sheet: Any) -> bool:
    """Whether a sheet has cells, and people see it."""
    return str(sheet.typ).endswith("WorkSheet") and str(sheet.visible).endswith(".Visible")


def _whole(cell: Any) -> Any:
    """The cell, an integer if it holds a whole number: workbooks store every number as a float."""
    whole = isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15
    return int(cell) if whole else cell


def _text(cell: Any, decimal: str = ".") -> str:
    """A cell as text; numbers as people write them."""
    cell = _whole(cell)
    if isinstance(cell, float):
        return repr(cell).replace(".", decimal)
    return "" if cell is None else str(cell)


def _column(cells: tuple[Any, ...], decimal: str) -> Any:
    """Cells as an Arrow array: numbers, booleans, dates or text, with this decimal sign."""
    arrow = need("pyarrow", "spreadsheets")
    held = [None if cell == "" else cell for cell in cells]
    if not all(math.isfinite(cell) for cell in held if isinstance(cell, float)):
        raise ValueError("a cell holds a number that is not finite.")
    kinds = {type(cell) for cell in held if cell is not None}
    if not kinds:
        return arrow.nulls(len(held))
    # As in CSV: True and False may stand beside 1 and 0, beside other numbers they are text.
    if bool in kinds and all(cell is None or cell in (0, 1) for cell in held):
        return arrow.array([None if cell is None else bool(cell) for cell in held], arrow.bool_())
    if kinds <= {int, float}:
        return arrow.array([None if cell is None else float(cell) for cell in held])
    if str not in kinds and not kinds & {int, float, bool}:
        return _dates(held)
    texts = [None if cell is None else _text(cell, decimal) for cell in held]
    return arrow.array(texts, arrow.string())


def _truth_values(column: Any, absent: Set[str]) -> Any:
    """A column of the texts true and false, in any spelling, as booleans, as in CSV; others as is.

    1 and 0 may stand beside them, and texts for a missing value.
    """
    arrow = need("pyarrow", "spreadsheets")
    if column.type != arrow.string():
        return column
    found = [
        None if text is None or text in absent else text.lower() for text in column.to_pylist()
    ]
    known = {*found} - {None}
    if not known <= {*TRUTH, "1", "0"} or known.isdisjoint(TRUTH):
        return column
    return arrow.array([None if text is None else text in ("true", "1") for text in found])


def _dates(held: list[Any]) -> Any:
    """Dates, times or durations as such; a mixture of them as text."""
    arrow = need("pyarrow", "spreadsheets")
    kinds = {type(cell) for cell in held if cell is not None}
    if kinds == {date, datetime}:  # the reader makes a date of a time at midnight
        midnight, kinds = time(), {datetime}
        held = [datetime.combine(one, midnight) if type(one) is date else one for one in held]
    if len(kinds) == 1:
        return arrow.array(held)
    # Of a mixture, pyarrow may take the type of the first one and cut the others.
    return arrow.array([None if cell is None else str(cell) for cell in held], arrow.string())


# -- workbooks from anywhere -------------------------------------------------------------------


@contextmanager
def _opened(path: str, absent: Set[str]) -> Iterator[Any]:
    """Open a workbook whose parts were unpacked here, within bounds.

    The reader takes errors such as ``#DIV/0!`` for empty cells; all that are not ``absent`` become
    cells of text, as in a CSV file.
    """
    calamine = need("python_calamine", "spreadsheets")
    with common.open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > FILE_BYTES:
            raise common.UnfitError("it has over 1 GB. Save it as CSV or Parquet.")
        packed = zipfile.is_zipfile(file)
        file.seek(0)
        held = _unpacked(file, absent) if packed else io.BytesIO(file.read())
    try:
        yield calamine.CalamineWorkbook.from_filelike(held)
    except calamine.PasswordError as error:
        raise common.UnfitError("it has a password. Save it without one.") from error
    except BaseException as error:
        # A panic of the reader, which pyo3 makes a BaseException.
        if type(error).__name__ == "PanicException":
            raise ValueError(f"its reader has failed: {error}") from None
        raise


def _unpacked(file: Any, absent: Set[str]) -> io.BytesIO:
    """Copy an archive without compression, each part checked, so that no reader unpacks a bomb."""
    out, left, parts = io.BytesIO(), FILE_BYTES, dict[str, bytes]()
    with zipfile.ZipFile(file) as packed:
        for info in packed.infolist():
            if info.is_dir() or not info.filename.lower().endswith((".xml", ".rels", "mimetype")):
                continue  # pictures, macros, printer settings
            left -= info.file_size
            if left < 0:
                raise common.UnfitError("it unpacks to over 1 GB. Save it as CSV or Parquet.")
            parts[info.filename] = packed.read(info)
    strings = parts.get("xl/sharedStrings.xml", b"")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as plain:
        for name, part in parts.items():
            if "/worksheets/" in name.lower():
                _check_sheet(name, part, strings)
                if b'"e"' in part or b"'e'" in part:  # which takes far less time
                    part = ERROR.sub(lambda cell: _error_as_text(cell, absent), part)
            elif name.lower() == "content.xml":
                if b"error" in part:
                    part = OPEN_ERROR.sub(lambda cell: _open_error_as_text(cell, absent), part)
                found = _Extent(part)
                _check_area(name, found.rows, found.width, found.cells)
            plain.writestr(name, part)
    out.seek(0)
    return out


def _error_as_text(cell: re.Match[bytes], absent: Set[str]) -> bytes:
    """Return a cell of Excel that holds an error as one of text, empty if that is ``absent``."""
    before, after, content = cell.groups()
    name = ERROR_NAME.search(content)
    known = name is None or name[1].decode(errors="replace").strip() in absent
    return before + b'"str"' + after + (b"" if known else content)


def _open_error_as_text(cell: re.Match[bytes], absent: Set[str]) -> bytes:
    """Return a cell of OpenDocument that holds an error likewise."""
    before, after, content = (OPEN_VALUE.sub(b"", part) for part in cell.groups())
    name = OPEN_ERROR_NAME.search(content)
    known = name is None or name[1].decode(errors="replace").strip() in absent
    return before + b' office:value-type="string"' + after + (b"" if known else content)


def _check_area(name: str, rows: int, width: int, cells: int) -> None:
    """Refuse a sheet whose few cells lie so far apart that all between them fill the memory."""
    if rows * width > max(MOST_CELLS, SPREAD * cells):
        raise common.UnfitError(
            f"{name} has {cells} cells, which reach to row {rows} and column {width}. Delete those "
            "that lie far from the table, or save it as CSV."
        )


def _check_sheet(name: str, part: bytes, strings: bytes) -> None:
    """Refuse a sheet of Excel that is malformed or would fill the memory."""
    _check_xml(name, part)
    lines = ROW.split(part)
    per_row = [len(CELL.findall(row)) for row in lines]
    rows, width = 0, {b""}
    for line in lines[1:]:
        places = [_place(name, one or other) for one, other in PLACE.findall(line)]
        numbers = {int(number) for _, number in places if number}
        if len(numbers) > 1:
            raise common.UnfitError(f"{name} has cells of rows {sorted(numbers)[:2]} in one row.")
        rows = max(rows, *numbers, 0)
        width.update(letters.upper() for letters, _ in places)
    # A row or cell without a place follows the one before.
    _check_area(name, rows + len(per_row), max(map(_number, width)) + max(per_row), sum(per_row))
    lengths = np.diff([0, *(found.end() for found in STRING_END.finditer(strings))])
    if lengths.size and lengths.max() * sum(per_row) > TEXT_BYTES:
        found = np.array(VALUE.findall(part), dtype="S9").astype(np.int64)
        if lengths[found[found < lengths.size]].sum() > TEXT_BYTES:
            raise common.UnfitError(f"{name} has over 2 GB of text. Save it as CSV.")


def _place(name: str, text: bytes) -> tuple[bytes, bytes]:
    """Return the letters and the number of a reference such as ``B3``; a row has no letters."""
    place = REFERENCE.fullmatch(text)
    if place is None or len(place[1]) > 5:
        raise common.UnfitError(f"{name} has a cell at {text[:20]!r}.")
    return place[1], place[2]


def _check_xml(name: str, part: bytes) -> None:
    """Refuse a sheet that is not well-formed, or not a sheet of Excel."""
    parser = _parser()

    def begin(tag: str, _: Any) -> None:
        if tag.rpartition(":")[0] not in EXCEL:
            raise common.UnfitError(f"{name} is not a sheet of Excel.")
        parser.StartElementHandler = None  # the others need no time

    parser.StartElementHandler = begin
    parser.Parse(part, True)


class _Extent:
    """Rows, columns and filled cells of the sheets of an OpenDocument, repeats included."""

    def __init__(self, part: bytes) -> None:
        self.rows = self.width = self.cells = 0
        self._row = self._column = self._last = 0
        self._repeat = 1
        self._found: set[str] = set()
        parser = _parser()
        parser.StartElementHandler, parser.EndElementHandler = self._begin, self._end
        parser.Parse(part, True)
        # The reader goes by prefixes alone.
        if not {f"{OPEN}office:1.0:document-content", f"{OPEN}table:1.0:table"} <= self._found:
            raise common.UnfitError("it has no table.")

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        kind = tag.rpartition(":")[2]
        own = {key.rpartition(":")[2]: value for key, value in attributes.items()}
        if kind in ("table", "document-content"):
            self._found.add(tag)
            self._row = 0
        elif kind == "table-row":
            self._repeat = int(own.get("number-rows-repeated", 1))
            self._column = self._last = 0
        elif kind in ("table-cell", "covered-table-cell"):
            self._column += int(own.get("number-columns-repeated", 1))
        if kind == "p" or "value-type" in own:
            self._last = self._column
        if (own.get("value-type") in NUMBERS) != ("value" in own):
            raise common.UnfitError(f"row {self._row + 1} has a cell with half of a number.")

    def _end(self, tag: str) -> None:
        if tag.rpartition(":")[2] == "table-row":
            self._row += self._repeat
            if self._last:
                self.rows, self.width = max(self.rows, self._row), max(self.width, self._last)
                self.cells += self._last


def _parser() -> Any:
    """Return a strict parser of XML: the reader of workbooks takes what is malformed, too."""

    def refuse(*_: Any) -> None:
        raise common.UnfitError("it defines entities.")

    parser = expat.ParserCreate(namespace_separator=":")
    parser.EntityDeclHandler = refuse
    return parser


def _number(letters: bytes) -> int:
    """Number of a column from its letters: 1 for A, 27 for AA."""
    total = 0
    for letter in letters:
        total = 26 * total + letter - 64
    return total
