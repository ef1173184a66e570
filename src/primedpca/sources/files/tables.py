"""Parquet and Arrow (Feather) files, or a folder of them, read by row groups."""

import base64
import os
from collections.abc import Iterator
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from primedpca.protocols import Block
from primedpca.sources import base
from primedpca.sources.column_choice import names_of
from primedpca.sources.files import common
from primedpca.sources.files.common import need, reading, stamp_of
from primedpca.sources.files.table_columns import (
    NO_VALUES,
    TableColumns,
    TableRows,
    as_block,
    common_dtype,
    is_number,
)
from primedpca.sources.name_columns import array_of, index_columns

PARQUET = (".parquet", ".pq")
#: Suffixes of tables, of which a folder may hold several files.
TABLES = (*PARQUET, ".arrow", ".feather", ".ipc")
WHOLE = 4  # row groups up to so many blocks are read whole, larger ones in order
MARK = b"\xff\xff\xff\xff"  # before every message of an Arrow stream
END = MARK + b"\0\0\0\0"
_arrow = partial(need, "pyarrow", "tables")
_ipc = partial(need, "pyarrow.ipc", "Arrow files")


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
        self.path = path
        with self._open(None) as file:
            self._metadata = file.metadata
            self.schema = _with_categories(file.schema_arrow, file.metadata)
        groups = range(self._metadata.num_row_groups)
        self.rows = [self._metadata.row_group(g).num_rows for g in groups]

    def _open(self, metadata: Any, buffer: int = 0) -> Any:
        options = {"metadata": metadata, "page_checksum_verification": True}
        options |= {"pre_buffer": not buffer, "buffer_size": buffer}
        return need("pyarrow.parquet", "Parquet").ParquetFile(self.path, **options)

    def with_nulls(self, columns: TableColumns) -> list[bool]:
        """Return whether each column may have nulls, by the statistics in the footer."""
        without, schema = set(columns.names), self._metadata.schema
        for g in range(len(self.rows)):
            group = self._metadata.row_group(g)
            if group.num_columns != len(schema):
                raise OSError(f"row group {g} has {group.num_columns} columns in its footer")
            for c in range(group.num_columns):
                column, kind = group.column(c), schema.column(c).physical_type
                if column.physical_type != kind:  # its statistics would make pyarrow abort
                    raise OSError(f"row group {g} has {column.physical_type} in column {c}")
                if column.path_in_schema in without:
                    known = column.statistics
                    if known is None or not known.has_null_count or known.null_count:
                        without.remove(column.path_in_schema)
        return [name not in without for name in columns.names]

    def table(self, first: int, last: int, names: tuple[str, ...]) -> Any:
        """Read some row groups, in large reads; the engine has threads of its own."""
        with self._open(self._metadata) as file:
            return file.read_row_groups(range(first, last), list(names), use_threads=False)

    def batches(self, group: int, size: int, names: tuple[str, ...]) -> Iterator[Any]:
        """Yield one row group, a few rows at a time."""
        # Small buffers for each column, or the whole row group would come into memory at once.
        with self._open(self._metadata, max(2**12, 2**22 // len(names))) as file:
            yield from file.iter_batches(size, row_groups=[group], columns=list(names))


class ArrowReader:
    """An Arrow IPC file (Feather, version 2)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._find()

    def _find(self) -> None:
        """Find the schema, and the number of rows of every record batch."""
        with _arrow().OSFile(self.path) as file, _ipc().open_file(file) as opened:
            self.schema, count = opened.schema, opened.num_record_batches
        # One column of every batch is enough to count its rows.
        names = tuple(self.schema.names[:1])
        self.rows = [self.table(i, i + 1, names).num_rows for i in range(count)]

    def with_nulls(self, columns: TableColumns) -> list[bool]:
        """Return whether each column has nulls; columns of integers are read for this."""
        is_float, nulls = _arrow().types.is_floating, set[str]()
        kinds = zip(columns.names, columns.types, strict=True)
        whole = tuple(name for name, kind in kinds if not columns.vector and not is_float(kind))
        for group in range(len(self.rows) if whole else 0):
            table = self.table(group, group + 1, whole)
            nulls |= {name for name in whole if table.column(name).null_count}
        return [name in nulls for name in columns.names]

    def table(self, first: int, last: int, names: tuple[str, ...]) -> Any:
        """Read and check some record batches."""
        table = _arrow().Table.from_batches(self._read(first, last, names))
        table.validate(full=True)
        return table

    def batches(self, group: int, size: int, names: tuple[str, ...]) -> Iterator[Any]:
        """Yield one record batch."""
        yield from self.table(group, group + 1, names).to_batches()

    def _read(self, first: int, last: int, names: tuple[str, ...]) -> list[Any]:
        # Schema.get_field_index finds no name that occurs twice; such columns are refused later.
        places = [self.schema.names.index(name) for name in names]
        options = _ipc().IpcReadOptions(included_fields=places, use_threads=False)
        with _arrow().OSFile(self.path) as file, _ipc().open_file(file, options=options) as opened:
            return [opened.get_batch(i) for i in range(first, last)]


class ArrowStreamReader(ArrowReader):
    """Record batches one after another without a footer: the file is read once to find them."""

    def _find(self) -> None:
        self.rows, self._starts = [], []
        with _arrow().OSFile(self.path) as file:
            self.schema = _ipc().read_schema(file)
            list(self.schema.names)  # which are decoded only here
            while self._goes_on(file):
                self._starts.append(file.tell())
                self.rows.append(self._batch(file).num_rows)

    def _goes_on(self, file: Any) -> bool:
        """Whether a batch follows; a file that ends without an end mark is truncated."""
        place, following = file.tell(), file.read(len(END))
        file.seek(place)
        if len(following) < len(END):
            raise OSError(f"it ends after {len(self.rows)} batches without an end mark")
        return bool(following != END)

    def _batch(self, file: Any) -> Any:
        message = _ipc().read_message(file)
        if message.type != "record batch":
            raise OSError(f"it holds a {message.type}; write it as a Feather or Parquet file")
        return _ipc().read_record_batch(message, self.schema)

    def _read(self, first: int, last: int, names: tuple[str, ...]) -> list[Any]:
        batches = []
        with _arrow().OSFile(self.path) as file:
            for start in self._starts[first:last]:
                file.seek(start)
                batches.append(self._batch(file).select(list(names)))
        return batches


class TableSource(TableRows, common.InOrder):
    """Numbers of tables: columns, or one column of vectors.

    Parameters
    ----------
    path : path
        A Parquet or Arrow file, or a folder of them, read in the order of their names.
    columns : sequence of str, optional
        Columns to read, in this order; by default all others than those named below.
    id_column, label_column : str, optional
        Columns that are not data but ``row_names`` and ``labels``.
    exclude : str or sequence of str, optional
        More columns to leave out.
    numeric_only : bool, default=False
        Whether to leave out columns that are not numbers, with a warning that lists them.

    Attributes
    ----------
    left_out : dict of str
        Columns that were left out although no option names them, each with the reason.
    paths : list of str
        The files, in the order of their rows.
    column_names : tuple of str
    feature_names : ndarray of str or None
        The same, unless one column holds vectors.
    row_names, labels : ndarray or None
        Contents of ``id_column`` and ``label_column``.  An index that pandas has stored is not
        data, and is ``row_names`` by default.
    """

    read_rate = 5e8

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Any = None,
        id_column: str | None = None,
        label_column: str | None = None,
        exclude: Any = None,
        numeric_only: bool | None = None,
    ) -> None:
        super().__init__()
        self.paths = [os.fspath(path)]
        if os.path.isdir(path):
            found = (one for one in sorted(os.listdir(path)) if one.lower().endswith(TABLES))
            self.paths = [os.path.join(path, one) for one in found if one[0] not in "._"]
        self.path, self._stamps = self.paths[0], [stamp_of(path) for path in self.paths]
        self._readers = [_reader(path) for path in self.paths]
        schema = self._readers[0].schema
        columns = None if columns is None else names_of(columns, "columns")
        with reading(self.path, "its metadata"):
            index = index_columns(schema, [id_column, label_column, *(columns or ())])
        exclude = [*names_of(exclude, "exclude"), *index]
        id_column = index[0] if id_column is None and len(index) == 1 else id_column
        self._choose(schema, columns, [id_column, label_column], exclude, numeric_only)
        self._compare_schemas()
        vector = self._columns.vector
        self.feature_names = None if vector else np.array(self.column_names, dtype=object)
        with reading(self.path, "looking for nulls"):
            nulls = [reader.with_nulls(self._columns) for reader in self._readers]
            self.dtype = common_dtype(self._columns, np.any(nulls, axis=0).tolist())
        n = sum(sum(reader.rows) for reader in self._readers)
        width = self._width() if vector and n else len(self.column_names)
        self.shape = common.check_matrix(self.path, (n, width), self.dtype)
        stored = sum(stamp.size for stamp in self._stamps)
        common.check_plausible(self.path, self.shape, self.dtype.itemsize, stored)
        self._pieces = self._cut()
        self.blocks = tuple(pairwise(accumulate((one.rows for one in self._pieces), initial=0)))

    def _compare_schemas(self) -> None:
        """Refuse files whose columns differ."""
        first = self._readers[0].schema
        names = [*self.column_names, *(one for one in (self._id, self._label) if one is not None)]
        empty = [name for name, why in self.left_out.items() if why == NO_VALUES]
        for reader in self._readers[1:]:
            schema, new = reader.schema, set(reader.schema.names) - set(first.names)
            absent = [name for name in names if name not in schema.names]
            wrong = [f"has no column {name!r}, but {self.path} has" for name in absent]
            wrong += [f"has a column {name!r}, which {self.path} lacks" for name in sorted(new)]
            filled = (n for n in empty if n in schema.names and is_number(schema.field(n).type))
            for name in () if wrong else (*names, *filled):
                here, there = schema.field(name).type, first.field(name).type
                if here != there:
                    wrong.append(f"holds {here} in column {name!r}, but {self.path} holds {there}")
            if wrong:
                raise ValueError(f"{reader.path} {wrong[0]}; all files must agree.")

    def _width(self) -> int:
        """Length of the vectors, by their type or else by the first vector."""
        if self._columns.width is not None:
            return self._columns.width
        groups = ((r, g) for r in self._readers for g, rows in enumerate(r.rows) if rows)
        for reader, group in groups:
            with reading(reader.path, f"row group {group}"):
                for batch in reader.batches(group, 1024, self.column_names):
                    valid = batch.column(0).drop_null()
                    if len(valid):
                        return len(valid[0])
        raise ValueError(f"{self.path} holds no vector in column {self.column_names[0]!r}.")

    def _cut(self) -> list[Piece]:
        """Cut into blocks: several whole row groups, one, or a part of a large one."""
        step = max(1, base.READ_BYTES // (self.shape[1] * self.dtype.itemsize))
        pieces: list[Piece] = []
        for f, reader in enumerate(self._readers):
            for g, rows in enumerate(reader.rows):
                last = pieces[-1] if pieces else None
                if isinstance(reader, ParquetReader) and rows > WHOLE * step:
                    cuts = ((a, min(step, rows - a)) for a in range(0, rows, step))
                    pieces += [Piece(f, g, g + 1, a, count, False) for a, count in cuts]
                elif last and last.whole and last.file == f and last.rows + rows <= step:
                    pieces[-1] = last._replace(last=g + 1, rows=last.rows + rows)
                elif rows:
                    pieces.append(Piece(f, g, g + 1, 0, rows, True))
        return pieces

    def _check_same(self, where: str, handle: int | None = None) -> None:
        for path, stamp in zip(self.paths, self._stamps, strict=True):
            stamp.check(path, where)

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
            return self._block(i, reader.table(piece.first, piece.last, self.column_names))

    def _block(self, i: int, table: Any) -> Block:
        rows = self._pieces[i].rows
        if table.num_rows != rows:
            raise OSError(f"it has {table.num_rows} rows, but its footer declares {rows}")
        return as_block(table, self._columns, self.shape[1], self.dtype, self._place(i))

    def _from(self, i: int) -> Iterator[tuple[int, Block]]:
        for j in range(self._entry(i), len(self._pieces)):
            piece = self._pieces[j]
            if piece.whole:
                return
            if piece.skip == 0:
                reader, held = self._readers[piece.file], list[Any]()
                batches = reader.batches(piece.first, piece.rows, self.column_names)
            while sum(map(len, held)) < piece.rows and (batch := next(batches, None)) is not None:
                held.append(batch)
            table = _arrow().Table.from_batches(held)
            yield j, self._block(j, table.slice(0, piece.rows))
            held = table.slice(piece.rows).to_batches()
            last = j + 1 == len(self._pieces) or self._pieces[j + 1].skip == 0
            if last and (held or next(batches, None) is not None):
                raise OSError(f"row group {piece.first} has more rows than its footer declares")

    def _column(self, name: str) -> np.ndarray:
        self._check_same(f"column {name!r}")
        found = []
        for reader in self._readers:
            with reading(reader.path, f"column {name!r}"):
                column = reader.table(0, len(reader.rows), (name,)).column(0)
                found.append(array_of(column))
        return np.concatenate(found)


def _reader(path: str) -> Any:
    with reading(path, "its header and footer"):
        with common.open_regular(path) as file:
            stream = file.read(len(MARK)) == MARK  # the other format begins with its name
        arrow = ArrowStreamReader if stream else ArrowReader
        reader = (ParquetReader if path.lower().endswith(PARQUET) else arrow)(path)
        for name in reader.schema.names:  # which are decoded only here
            name.encode()
        if any(rows < 0 for rows in reader.rows):
            raise OSError("it declares a negative number of rows")
        return reader


def _with_categories(schema: Any, metadata: Any) -> Any:
    """A schema of Parquet in which categories of numbers are such again.

    Parquet stores only their values, and pyarrow restores only categories of text.
    """
    arrow = _arrow()
    stored = (schema.pandas_metadata or {}).get("columns", ())
    named = {one["name"] for one in stored if one.get("pandas_type") == "categorical"}
    written = (metadata.metadata or {}).get(b"ARROW:schema")
    if written is not None:
        known = _ipc().read_schema(arrow.py_buffer(base64.b64decode(written)))
        named |= {one.name for one in known if arrow.types.is_dictionary(one.type)}
    if not named:
        return schema

    def restored(own: Any) -> Any:
        plain = own.name not in named or arrow.types.is_dictionary(own.type)
        return own if plain else own.with_type(arrow.dictionary(arrow.int32(), own.type))

    return arrow.schema([restored(own) for own in schema], schema.metadata)
