"""Text files of numbers, parsed by pyarrow in pieces that end with a line."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from primedpca._core.arrays import EXACT, check_python_numbers
from primedpca.protocols import Block
from primedpca.sources.files import common, table_columns
from primedpca.sources.files.common import need, reading, unpacked

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
BLOCK_BYTES = 2**20  # parsed by pyarrow at a time
MOST_COLUMNS = 2**17  # each takes pyarrow 9 kB, so that a line of commas could fill the memory
LEAST_COUNTED = 3  # fewer names, such as 0 and 1, may well be a row of whole numbers


class NoNamesError(ValueError):
    """The line that should name the columns looks like a row of numbers."""


class CSVSource(table_columns.TableRows):
    """A text file with one row per line, read as float64; empty fields are missing.

    The file is parsed once when it is opened, to count its rows, so that an error in any line is
    reported then.  The first block is kept from that: several steps look at it, and of a small
    file it is all.  A quoted text must not continue on the next line.

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
        path: str | os.PathLike[str],
        *,
        columns: Any = None,
        id_column: str | None = None,
        label_column: str | None = None,
        exclude: Any = None,
        delimiter: str | None = None,
        header: bool | None = None,
    ) -> None:
        self.path = os.fspath(path)
        if delimiter is None:
            delimiter = "\t" if self.path.lower().endswith((".tsv", ".tsv.gz")) else ","
        if len(delimiter) != 1:
            raise ValueError(f"`delimiter`={delimiter!r} must be one character, such as ';'.")
        self._delimiter, self._stamp = delimiter, common.stamp_of(self.path)
        self.dtype, self._first = np.dtype(np.float64), None
        schema, skip, texts = self._look(header)
        self._choose(schema, columns, [id_column, label_column], exclude, texts)
        kinds = (need("pyarrow", "CSV").float64(),) * len(self.column_names)
        self._columns = table_columns.TableColumns(self.column_names, kinds)
        if header is not False:
            self.feature_names = np.array(self.column_names, dtype=object)
        self._pieces: list[tuple[int, int]] = []
        counts: list[int] = []
        for begin, piece in self._cut():
            begin, piece = (begin + skip, piece[skip:]) if begin == 0 else (begin, piece)
            if not piece.strip():
                continue
            with reading(self.path, f"block {len(counts)}, bytes from {begin} on"):
                block = self._block(self._parse(piece, self.column_names), "it")
                self._check_whole_numbers(piece, block)
            if len(block):
                self._first = block if self._first is None else self._first
                self._pieces.append((begin, len(piece)))
                counts.append(len(block))
        shape = sum(counts), len(self.column_names)
        self.shape = common.check_matrix(self.path, shape, self.dtype)
        self.blocks = tuple(pairwise(accumulate(counts, initial=0)))

    def _look(self, header: bool | None) -> tuple[Any, int, Callable[[str], list[str | None]]]:
        """Schema by the first lines, bytes up to the first row, and a reader of columns as text."""
        arrow, csv = need("pyarrow", "CSV"), need("pyarrow.csv", "CSV")
        with reading(self.path, "its first lines"):
            first = next(self._cut(), (0, b""))[1]
        if not first.strip():
            raise ValueError(f"{self.path} is empty.")
        self._check_delimiter(first)
        named = header is not False
        options = csv.ReadOptions(autogenerate_column_names=not named, use_threads=False)
        if max(map(len, first[: 2 * BLOCK_BYTES].split(b"\n"))) > BLOCK_BYTES // 2:
            options.block_size = len(first)  # a line must not be longer
        parse = csv.ParseOptions(delimiter=self._delimiter)
        with reading(self.path, "its first lines"):
            table = csv.read_csv(arrow.BufferReader(first), options, parse)
            try:
                self._names = list(table.schema.names)
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise ValueError(f"it has the byte {byte:#x}. Save it as UTF-8 text.") from error
        # A column that is empty so far may hold numbers; text in it is reported where it stands.
        read_as = {arrow.null(): arrow.float64(), arrow.bool_(): arrow.string()}
        kinds = [read_as.get(kind, kind) for kind in table.schema.types]
        if header is None:
            self._check_names(kinds)
        lines = first.split(b"\n")
        blank = next(i for i, line in enumerate(lines) if line.strip(b"\r"))
        skip = sum(len(line) + 1 for line in lines[: blank + 1]) if named else 0
        absent = set(csv.ConvertOptions().null_values)  # pyarrow keeps them in columns of text

        def texts(name: str) -> list[str | None]:
            return [None if entry in absent else entry for entry in table.column(name).to_pylist()]

        return arrow.schema(list(zip(self._names, kinds, strict=True))), skip, texts

    def _check_delimiter(self, first: bytes) -> None:
        """Refuse a first line with too many columns or another delimiter."""
        line = first.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")
        sign = self._delimiter
        count = line.count(sign) + 1
        if count > MOST_COLUMNS:
            raise ValueError(
                f"{self.path} has {count} columns in its first line, more than the {MOST_COLUMNS} "
                "that are read from text. Store it as .npy or Parquet."
            )
        other = next((mark for mark in ";\t|" if mark in line), None)
        if count == 1 and other is not None:
            raise ValueError(
                f"{self.path} has no {sign!r} in its first line, but {other!r}; pass "
                f"`delimiter`={other!r}."
            )

    def _check_names(self, kinds: list[Any]) -> None:
        """Refuse a header that may be a row: the name of every column of numbers is a number.

        Counted columns, 0, 1, 2, ... or 1, 2, 3, ..., pass: frames without names are written so.
        """
        numbers = map(table_columns.is_number, kinds)
        # An empty name is a missing value, or an index without a name.
        found = [name for name, number in zip(self._names, numbers, strict=True) if number and name]
        counted = [[str(i) for i in range(first, first + len(found))] for first in (0, 1)]
        if not found or not all(map(table_columns.reads_as_number, found)):
            return
        if found in counted and len(found) >= LEAST_COUNTED:
            return
        shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise NoNamesError(
            f"{self.path} has numbers in its first line instead of column names ({shown}); pass "
            "`header`=False if it is a row like the others, `header`=True if these are names."
        )

    def _cut(self) -> common.Lines:
        """Yield pieces of whole lines, each with the byte at which it begins."""
        with unpacked(self.path) as file:
            yield from common.whole_lines(file, self.path)

    def _check_whole_numbers(self, piece: bytes, block: Block) -> None:
        """Refuse whole numbers that were rounded because float64 cannot hold them."""
        large = np.fmax.reduce(np.abs(block), axis=0, initial=0.0) > EXACT
        for name in np.array(self.column_names, dtype=object)[large]:
            words = self._parse(piece, (name,), as_text=True).column(name).to_pylist()
            found = (word.strip() for word in words if word)
            whole = [int(word) for word in found if word.lstrip("+-").isdecimal()]
            check_python_numbers(whole, f"column {name!r}")

    def _parse(self, piece: bytes, names: tuple[str, ...], as_text: bool = False) -> Any:
        """Parse some columns of some lines: numbers as float64, the others, or all, as text."""
        arrow, csv = need("pyarrow", "CSV"), need("pyarrow.csv", "CSV")
        numbers = () if as_text else self.column_names
        kinds = {name: arrow.float64() if name in numbers else arrow.string() for name in names}
        size = max(BLOCK_BYTES, len(piece))
        return csv.read_csv(
            arrow.BufferReader(piece),
            csv.ReadOptions(column_names=self._names, use_threads=False, block_size=size),
            csv.ParseOptions(delimiter=self._delimiter),
            csv.ConvertOptions(column_types=kinds, include_columns=list(names)),
        )

    def _block(self, table: Any, where: str) -> Block:
        columns = self._columns
        return table_columns.as_block(table, columns, len(columns.names), self.dtype, where)

    def _table(self, i: int, names: tuple[str, ...]) -> Any:
        (begin, length), where = self._pieces[i], self._place(i)
        self._check_same(where)
        with reading(self.path, where), unpacked(self.path) as file:
            file.seek(begin)
            piece = file.read(length)
            if len(piece) < length:
                raise OSError(f"{self.path} ends in {where}: it was truncated.")
            return self._parse(piece, names)

    def read(self, i: int) -> Block:
        """Rows of a block: the first as parsed when the file was opened, others parsed again."""
        if i == 0 and self._first is not None:
            self._check_same(self._place(0))
            return self._first
        block = self._block(self._table(i, self.column_names), self._place(i))
        start, stop = self.blocks[i]
        if len(block) != stop - start:
            raise OSError(f"{self.path} has {len(block)} rows in {self._place(i)}: it has changed.")
        return block

    def __getstate__(self) -> dict[str, Any]:
        """State without the first block: another process parses its own."""
        return self.__dict__ | {"_first": None}

    def _column(self, name: str) -> np.ndarray:
        parts = [self._table(i, (name,)).column(0).to_numpy() for i in range(len(self.blocks))]
        return np.concatenate(parts)
