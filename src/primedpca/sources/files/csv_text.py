"""Text files of numbers, parsed by pyarrow in pieces that end with a line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from primedpca._core.arrays import EXACT, check_python_numbers
from primedpca.protocols import Block
from primedpca.sources.files.common import (
    FileSource,
    check_matrix,
    need,
    reading,
    stamp_of,
    unpacked,
    whole_lines,
)
from primedpca.sources.files.table_columns import (
    NamedRows,
    TableColumns,
    as_block,
    choose,
    is_number,
    reads_as_number,
)

__all__ = ["SUFFIXES", "CSVSource", "NoNamesError", "csv_source"]

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
BLOCK_BYTES = 2**20  # parsed by pyarrow at a time
MOST_COLUMNS = 2**17  # each takes pyarrow 9 kB, so that a line of commas could fill the memory
LEAST_COUNTED = 3  # fewer names, such as 0 and 1, may well be a row of whole numbers


class NoNamesError(ValueError):
    """The line that should name the columns looks like a row of numbers."""


class CSVSource(NamedRows, FileSource):
    """Rows of text as float64.

    The file is parsed once when it is opened, to count its rows, so that an error in any line is
    reported then.  The first block is kept from that: several steps look at it, and of a small
    file it is all.  A quoted text must not continue on the next line.

    Attributes
    ----------
    column_names : tuple of str
    feature_names : ndarray of str or None
        The same, if the file has a header.
    row_names, labels : ndarray or None
        Contents of ``id_column`` and ``label_column``.
    """

    read_rate = 1e8

    def __init__(
        self,
        path: str,
        columns: Any,
        id_column: str | None,
        label_column: str | None,
        exclude: Any,
        delimiter: str,
        header: bool | None,
    ) -> None:
        self.path, self._delimiter = path, delimiter
        self._stamp = stamp_of(path)
        self._id, self._label = id_column, label_column
        self.dtype, self.axis = np.dtype(np.float64), 0
        self._names: list[str] | None = None
        schema, skip, texts = self._look(header)
        chosen = choose(schema, path, columns, id_column, label_column, exclude, texts)
        float64 = need("pyarrow", "CSV").float64()
        self._columns = TableColumns(chosen.names, (float64,) * len(chosen.names))
        self.column_names = self._columns.names
        named = header is not False
        self.feature_names = np.array(self.column_names, dtype=object) if named else None
        self._pieces: list[tuple[int, int]] = []
        self._first: Block | None = None
        counts: list[int] = []
        for begin, piece in self._cut():
            begin, piece = (begin + skip, piece[skip:]) if begin == 0 else (begin, piece)
            if not piece.strip():
                continue
            with reading(path, f"block {len(counts)}, bytes from {begin} on"):
                table = self._parse(piece, self._columns.names)
                block = as_block(table, self._columns, len(self._columns.names), self.dtype, "it")
                self._check_whole_numbers(piece, block)
            if table.num_rows:
                self._first = block if self._first is None else self._first
                self._pieces.append((begin, len(piece)))
                counts.append(table.num_rows)
        self.shape = check_matrix(path, (sum(counts), len(self._columns.names)), self.dtype)
        ends = np.cumsum(counts).tolist()
        self.blocks = tuple(zip([0, *ends[:-1]], ends, strict=True))

    def _look(self, header: bool | None) -> tuple[Any, int, Callable[[str], list[str | None]]]:
        """Schema by the first lines, bytes up to the first row, and a reader of columns as text."""
        arrow, csv = need("pyarrow", "CSV"), need("pyarrow.csv", "CSV")
        with reading(self.path, "its first lines"):
            first = next(self._cut(), (0, b""))[1]
        if not first.strip():
            raise ValueError(f"{self.path} is empty.")
        _check_delimiter(self.path, first, self._delimiter)
        named = header is not False
        options = csv.ReadOptions(autogenerate_column_names=not named, use_threads=False)
        if max(map(len, first[: 2 * BLOCK_BYTES].split(b"\n"))) > BLOCK_BYTES // 2:
            options.block_size = len(first)  # a line must not be longer
        parse = csv.ParseOptions(delimiter=self._delimiter)
        with reading(self.path, "its first lines"):
            table = csv.read_csv(arrow.BufferReader(first), options, parse)
            self._names = _decoded_names(table, self.path)
        # A column that is empty so far may hold numbers; text in it is reported where it stands.
        read_as = {arrow.null(): arrow.float64(), arrow.bool_(): arrow.string()}
        kinds = [read_as.get(kind, kind) for kind in table.schema.types]
        if header is None:
            _check_names(self.path, self._names, kinds)
        schema = arrow.schema(list(zip(self._names, kinds, strict=True)))
        skip = 0
        if named:
            lines = first.split(b"\n")
            blank = 0
            while not lines[blank].strip(b"\r"):
                blank += 1
            skip = sum(len(line) + 1 for line in lines[: blank + 1])
        absent = set(csv.ConvertOptions().null_values)  # pyarrow keeps them in columns of text
        return (
            schema,
            skip,
            lambda name: [
                None if entry in absent else entry for entry in table.column(name).to_pylist()
            ],
        )

    def _cut(self) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of whole lines, each with the byte at which it begins."""
        with unpacked(self.path) as file:
            yield from whole_lines(file, self.path)

    def _check_whole_numbers(self, piece: bytes, block: Block) -> None:
        """Refuse whole numbers that were rounded because float64 cannot hold them."""
        large = np.fmax.reduce(np.abs(block), axis=0, initial=0.0) > EXACT
        for name in np.array(self._columns.names, dtype=object)[large]:
            words = self._parse(piece, (name,), as_text=True).column(name).to_pylist()
            found = (word.strip() for word in words if word)
            check_python_numbers(
                [int(word) for word in found if word.lstrip("+-").isdecimal()], f"column {name!r}"
            )

    def _parse(self, piece: bytes, names: tuple[str, ...], as_text: bool = False) -> Any:
        """Parse some columns of some lines: numbers as float64, the others, or all, as text."""
        arrow, csv = need("pyarrow", "CSV"), need("pyarrow.csv", "CSV")
        numbers = () if as_text else self._columns.names
        kinds = {name: arrow.float64() if name in numbers else arrow.string() for name in names}
        return csv.read_csv(
            arrow.BufferReader(piece),
            csv.ReadOptions(
                column_names=self._names, use_threads=False, block_size=max(BLOCK_BYTES, len(piece))
            ),
            csv.ParseOptions(delimiter=self._delimiter),
            csv.ConvertOptions(column_types=kinds, include_columns=list(names)),
        )

    def _bytes(self, i: int) -> bytes:
        begin, length = self._pieces[i]
        with unpacked(self.path) as file:
            file.seek(begin)
            held = b""
            while len(held) < length:
                piece = file.read(length - len(held))
                if not piece:
                    raise OSError(f"{self.path} ends in {self._place(i)}: it was truncated.")
                held += piece
        return held

    def _table(self, i: int, names: tuple[str, ...]) -> Any:
        where = self._place(i)
        self._check_same(where)
        with reading(self.path, where):
            return self._parse(self._bytes(i), names)

    def read(self, i: int) -> Block:
        """Rows of a block: the first as parsed when the file was opened, others parsed again."""
        if i == 0 and self._first is not None:
            self._check_same(self._place(0))
            return self._first
        table, where = self._table(i, self._columns.names), self._place(i)
        start, stop = self.blocks[i]
        if table.num_rows != stop - start:
            raise OSError(f"{self.path} has {table.num_rows} rows in {where}: it has changed.")
        return as_block(table, self._columns, self.shape[1], self.dtype, where)

    def __getstate__(self) -> dict[str, Any]:
        """State without the first block: another process parses its own."""
        return self.__dict__ | {"_first": None}

    def _column(self, name: str) -> np.ndarray:
        parts = [self._table(i, (name,)).column(0).to_numpy() for i in range(len(self.blocks))]
        return np.concatenate(parts)


def _check_delimiter(path: str, first: bytes, delimiter: str) -> None:
    """Refuse a first line with too many columns or another delimiter."""
    line = first.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")
    if line.count(delimiter) >= MOST_COLUMNS:
        raise ValueError(
            f"{path} has {line.count(delimiter) + 1} columns in its first line, more than the "
            f"{MOST_COLUMNS} that are read from text. Store it as .npy or Parquet."
        )
    other = next((sign for sign in ";\t|" if sign in line), None)
    if delimiter not in line and other is not None:
        raise ValueError(
            f"{path} has no {delimiter!r} in its first line, but {other!r}; pass "
            f"`delimiter`={other!r}."
        )


def _decoded_names(table: Any, path: str) -> list[str]:
    try:
        return list(table.schema.names)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(
            f"{path} is not UTF-8 text: its first line has the byte {byte:#x}. Save it as UTF-8."
        ) from error


def _check_names(path: str, names: list[str], kinds: list[Any]) -> None:
    """Refuse a header that may be a row: the name of every column of numbers is a number.

    Counted columns, 0, 1, 2, ... or 1, 2, 3, ..., pass: frames without names are written so.
    """
    arrow = need("pyarrow", "CSV")
    found = [name for name, kind in zip(names, kinds, strict=True) if is_number(arrow, kind)]
    found = [name for name in found if name]  # empty: a missing value, or an index without a name
    if not found or not all(map(reads_as_number, found)):
        return
    counted = [[str(i) for i in range(first, first + len(found))] for first in (0, 1)]
    if len(found) >= LEAST_COUNTED and found in counted:
        return
    shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
    raise NoNamesError(
        f"{path} has numbers in its first line instead of column names ({shown}); pass "
        "`header`=False if it is a row like the others, `header`=True if these are names."
    )


def csv_source(
    path: str | os.PathLike[str],
    *,
    columns: Any = None,
    id_column: str | None = None,
    label_column: str | None = None,
    exclude: Any = None,
    delimiter: str | None = None,
    header: bool | None = None,
) -> CSVSource:
    """Source of a text file with one row per line, read as float64; empty fields are missing.

    Parameters
    ----------
    path : path
    columns : sequence of str, optional
        Columns to read, in this order; by default all others than those named below.
    id_column, label_column : str, optional
        Columns that are not data but, as text, ``row_names`` and ``labels``.
    exclude : str or sequence of str, optional
        More columns to leave out.
    delimiter : str, optional
        One character; by default a tab for `.tsv`, else a comma.
    header : bool, optional
        Whether the first line names the columns; if not, they are called ``f0``, ``f1``, ...  By
        default it does, and is refused if it looks like a row of numbers, other than columns
        counted from 0 or 1.
    """
    name = os.fspath(path)
    if delimiter is None:
        delimiter = "\t" if name.lower().endswith((".tsv", ".tsv.gz")) else ","
    if len(delimiter) != 1:
        raise ValueError(f"`delimiter`={delimiter!r} must be one character, such as ';'.")
    return CSVSource(name, columns, id_column, label_column, exclude, delimiter, header)
