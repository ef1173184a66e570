"""Parquet and Arrow (Feather) files, or a folder of them, read by row groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np

from primedpca.protocols import Block
from primedpca.sources import base
from primedpca.sources.files.arrow import arrow_reader
from primedpca.sources.files.common import (
    Stamp,
    check_matrix,
    check_plausible,
    need,
    reading,
    stamp_of,
)
from primedpca.sources.files.regular_files import check_regular
from primedpca.sources.files.sequential import InOrder
from primedpca.sources.files.table_columns import (
    NamedRows,
    TableColumns,
    as_block,
    choose,
    common_dtype,
)

__all__ = ["TABLES", "TableSource", "table_source"]

PARQUET = (".parquet", ".pq")
#: Suffixes of tables, of which a folder may hold several files.
TABLES = (*PARQUET, ".arrow", ".feather", ".ipc")
WHOLE = 4  # row groups up to so many blocks are read whole, larger ones in order


class Piece(NamedTuple):
    """Some rows of a file: whole row groups, or a part of one."""

    file: int
    first: int
    last: int
    skip: int
    rows: int
    whole: bool


class ParquetReader:
    """A Parquet file, its pages compared with their checksums."""

    def __init__(self, path: str) -> None:
        self._parquet = need("pyarrow.parquet", "Parquet")
        self.path = path
        with self._open(None) as file:
            self._metadata, self.schema = file.metadata, file.schema_arrow
        groups = range(self._metadata.num_row_groups)
        self.rows = [self._metadata.row_group(g).num_rows for g in groups]

    def _open(self, metadata: Any, buffer: int = 0) -> Any:
        return self._parquet.ParquetFile(
            self.path,
            metadata=metadata,
            page_checksum_verification=True,
            pre_buffer=not buffer,
            buffer_size=buffer,
        )

    def with_nulls(self, columns: TableColumns) -> list[bool]:
        """Return whether each column may have nulls, by the statistics in the footer."""
        without = dict.fromkeys(columns.names, True)
        for g in range(len(self.rows)):
            group = self._metadata.row_group(g)
            if group.num_columns != len(self._metadata.schema):
                raise OSError(f"row group {g} has {group.num_columns} columns in its footer")
            for c in range(group.num_columns):
                column, kind = group.column(c), self._metadata.schema.column(c).physical_type
                if column.physical_type != kind:  # its statistics would make pyarrow abort
                    raise OSError(
                        f"row group {g} holds {column.physical_type} in column {c}, not {kind}"
                    )
                if without.get(column.path_in_schema):
                    known = column.statistics
                    if known is None or not known.has_null_count or known.null_count:
                        without[column.path_in_schema] = False
        return [not without[name] for name in columns.names]

    def table(self, first: int, last: int, names: tuple[str, ...]) -> Any:
        """Read some row groups, in large reads; the engine has threads of its own."""
        with self._open(self._metadata) as file:
            groups = list(range(first, last))
            return file.read_row_groups(groups, list(names), use_threads=False)

    def batches(self, group: int, size: int, names: tuple[str, ...]) -> Iterator[Any]:
        """Yield one row group, a few rows at a time."""
        # Small buffers for each column, or the whole row group would come into memory at once.
        with self._open(self._metadata, max(2**12, 2**22 // len(names))) as file:
            yield from file.iter_batches(size, row_groups=[group], columns=list(names))


class TableSource(NamedRows, InOrder):
    """Numbers of tables: columns, or one column of vectors.

    Attributes
    ----------
    paths : list of str
        The files, in the order of their rows.
    column_names : tuple of str
    feature_names : ndarray of str or None
        The same, unless one column holds vectors.
    row_names, labels : ndarray or None
        Contents of ``id_column`` and ``label_column``.
    """

    read_rate = 5e8

    def __init__(
        self,
        paths: list[str],
        columns: Any = None,
        id_column: str | None = None,
        label_column: str | None = None,
        exclude: Any = None,
    ) -> None:
        super().__init__()
        self.paths, self.path = paths, paths[0]
        self._id, self._label = id_column, label_column
        self._stamps: list[Stamp] = [stamp_of(path) for path in paths]
        self._readers = [_reader(path) for path in paths]
        self._columns = choose(
            self._readers[0].schema, self.path, columns, id_column, label_column, exclude
        )
        self._compare_schemas()
        self.column_names = self._columns.names
        named = not self._columns.vector
        self.feature_names = np.array(self.column_names, dtype=object) if named else None
        with reading(self.path, "looking for nulls"):
            nulls = [reader.with_nulls(self._columns) for reader in self._readers]
            merged = np.any(nulls, axis=0).tolist()
            self.dtype = common_dtype(self._columns, merged)
        n = sum(sum(reader.rows) for reader in self._readers)
        width = self._width() if self._columns.vector and n else len(self._columns.names)
        self.shape = check_matrix(self.path, (n, width), self.dtype)
        stored = sum(stamp.size for stamp in self._stamps)
        check_plausible(self.path, self.shape, self.dtype.itemsize, stored)
        self._pieces = self._cut()
        ends = list(accumulate(piece.rows for piece in self._pieces))
        self.blocks = tuple(zip([0, *ends[:-1]], ends, strict=True))

    def _compare_schemas(self) -> None:
        """Refuse files whose columns differ."""
        first = self._readers[0].schema
        for reader in self._readers[1:]:
            for name in (*self._columns.names, self._id, self._label):
                if name is None:
                    continue
                if reader.schema.get_field_index(name) < 0:
                    raise ValueError(
                        f"{reader.path} has no column {name!r}, but {self.path} has; all files "
                        "must agree."
                    )
                here, there = reader.schema.field(name).type, first.field(name).type
                if here != there:
                    raise ValueError(
                        f"{reader.path} holds {here} in column {name!r}, but {self.path} holds "
                        f"{there}; all files must agree."
                    )
            if strange := set(reader.schema.names) - set(first.names):
                raise ValueError(
                    f"{reader.path} has a column {min(strange)!r}, which {self.path} lacks; all "
                    "files must agree."
                )

    def _width(self) -> int:
        """Length of the vectors, by their type or else by the first vector."""
        if self._columns.width is not None:
            return self._columns.width
        for reader in self._readers:
            for group, rows in enumerate(reader.rows):
                with reading(reader.path, f"row group {group}"):
                    batches = _batches(reader, group, 1024, self._columns.names)
                    for batch in batches if rows else ():
                        for value in batch.column(0):
                            if value.is_valid:
                                return len(value)
        raise ValueError(f"{self.path} holds no vector in column {self._columns.names[0]!r}.")

    def _cut(self) -> list[Piece]:
        """Cut into blocks: several whole row groups, one, or a part of a large one."""
        row_bytes = self.shape[1] * self.dtype.itemsize
        step = max(1, base.READ_BYTES // row_bytes)
        pieces: list[Piece] = []
        for f, reader in enumerate(self._readers):
            for g, rows in enumerate(reader.rows):
                last = pieces[-1] if pieces else None
                if not rows:
                    continue
                if rows > WHOLE * step and isinstance(reader, ParquetReader):
                    pieces += [
                        Piece(f, g, g + 1, a, min(step, rows - a), False)
                        for a in range(0, rows, step)
                    ]
                elif last and last.whole and last.file == f and last.rows + rows <= step:
                    pieces[-1] = last._replace(last=g + 1, rows=last.rows + rows)
                else:
                    pieces.append(Piece(f, g, g + 1, 0, rows, True))
        return pieces

    def _check_same(self, where: str) -> None:
        for path, stamp in zip(self.paths, self._stamps, strict=True):
            stamp.check(stamp_of(path), path, where)

    def _entry(self, i: int) -> int:
        while self._pieces[i].skip:
            i -= 1
        return i

    def read(self, i: int) -> Block:
        """Rows of a block, in their own dtype."""
        piece = self._pieces[i]
        if not piece.whole:
            return super().read(i)
        reader = self._readers[piece.file]
        self._check_same(self._place(i))
        with reading(reader.path, self._place(i)):
            return self._block(i, reader.table(piece.first, piece.last, self._columns.names))

    def _block(self, i: int, table: Any) -> Block:
        if table.num_rows != self._pieces[i].rows:
            raise OSError(
                f"it has {table.num_rows} rows, but its footer declares {self._pieces[i].rows}"
            )
        return as_block(table, self._columns, self.shape[1], self.dtype, self._place(i))

    def _from(self, i: int) -> Iterator[tuple[int, Block]]:
        arrow = need("pyarrow", "tables")
        start = self._entry(i)
        for (f, group), run in groupby(
            range(start, len(self._pieces)), key=lambda j: self._pieces[j][:2]
        ):
            numbers, held, have = list(run), [], 0
            if self._pieces[numbers[0]].whole:
                return
            step = self._pieces[numbers[0]].rows
            waiting = iter(numbers)
            number: int | None = next(waiting)
            for batch in self._readers[f].batches(group, step, self._columns.names):
                held.append(batch)
                have += batch.num_rows
                while number is not None and have >= self._pieces[number].rows:
                    table, rows = arrow.Table.from_batches(held), self._pieces[number].rows
                    yield number, self._block(number, table.slice(0, rows))
                    held, have = table.slice(rows).to_batches(), have - rows
                    number = next(waiting, None)
            if number is not None or have:
                raise OSError(f"row group {group} has other rows than its footer declares")

    def _column(self, name: str) -> np.ndarray:
        self._check_same(f"column {name!r}")
        found = []
        for reader in self._readers:
            with reading(reader.path, f"column {name!r}"):
                column = reader.table(0, len(reader.rows), (name,)).column(0)
                found.append(column.to_numpy())
        return np.concatenate(found)


def _reader(path: str) -> Any:
    check_regular(path)
    with reading(path, "its header and footer"):
        reader = (ParquetReader if path.lower().endswith(PARQUET) else arrow_reader)(path)
        for name in reader.schema.names:  # which are decoded only here
            name.encode()
        if any(rows < 0 for rows in reader.rows):
            raise OSError("it declares a negative number of rows")
        return reader


def _batches(reader: Any, group: int, size: int, names: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(reader, ParquetReader):
        return reader.batches(group, size, names)
    return iter(reader.table(group, group + 1, names).to_batches())


def table_source(
    path: str | os.PathLike[str],
    *,
    columns: Any = None,
    id_column: str | None = None,
    label_column: str | None = None,
    exclude: Any = None,
) -> TableSource:
    """Source of a Parquet or Arrow file, or of a folder of them in the order of their names.

    Parameters
    ----------
    path : path
    columns : sequence of str, optional
        Columns to read, in this order; by default all others than those named below.
    id_column, label_column : str, optional
        Columns that are not data but ``row_names`` and ``labels``.
    exclude : str or sequence of str, optional
        More columns to leave out.
    """
    name = os.fspath(path)
    paths = [name]
    if os.path.isdir(name):
        found = sorted(entry for entry in os.listdir(name) if not entry.startswith((".", "_")))
        paths = [os.path.join(name, entry) for entry in found if entry.lower().endswith(TABLES)]
    return TableSource(paths, columns, id_column, label_column, exclude)
