"""Arrow's two formats: files with a footer (Feather), and streams, as Hugging Face uses them."""

from __future__ import annotations

from typing import Any

from primedpca.sources.files.common import need
from primedpca.sources.files.regular_files import open_regular
from primedpca.sources.files.table_columns import TableColumns

__all__ = ["ArrowReader", "ArrowStreamReader", "arrow_reader"]

MARK = b"\xff\xff\xff\xff"  # before every message of a stream
END = MARK + b"\0\0\0\0"


def arrow_reader(path: str) -> ArrowReader:
    """Reader of a file: a stream begins with a message, the other format with its name."""
    with open_regular(path) as file:
        stream = file.read(len(MARK)) == MARK
    return (ArrowStreamReader if stream else ArrowReader)(path)


class ArrowReader:
    """An Arrow IPC file (Feather, version 2)."""

    def __init__(self, path: str) -> None:
        self.path, self._arrow = path, need("pyarrow", "Arrow files")
        need("pyarrow.ipc", "Arrow files")
        with self._arrow.OSFile(path) as file, self._arrow.ipc.open_file(file) as opened:
            self.schema, count = opened.schema, opened.num_record_batches
        # One column of every batch is enough to count its rows.
        names = tuple(self.schema.names[:1])
        self.rows = [self.table(i, i + 1, names).num_rows for i in range(count)]

    def with_nulls(self, columns: TableColumns) -> list[bool]:
        """Return whether each column has nulls; columns of integers are read for this."""
        is_float = self._arrow.types.is_floating
        found = [False] * len(columns.names)
        whole = [j for j, kind in enumerate(columns.types) if not is_float(kind)]
        whole = [] if columns.vector else whole
        for group in range(len(self.rows) if whole else 0):
            table = self.table(group, group + 1, tuple(columns.names[j] for j in whole))
            for j in whole:
                found[j] = found[j] or table.column(columns.names[j]).null_count > 0
        return found

    def table(self, first: int, last: int, names: tuple[str, ...]) -> Any:
        """Read and check some record batches."""
        places = [self.schema.get_field_index(name) for name in names]
        options = self._arrow.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        with (
            self._arrow.OSFile(self.path) as file,
            self._arrow.ipc.open_file(file, options=options) as opened,
        ):
            table = self._arrow.Table.from_batches(
                [opened.get_batch(i) for i in range(first, last)]
            )
        table.validate(full=True)
        return table


class ArrowStreamReader(ArrowReader):
    """Record batches one after another without a footer: the file is read once to find them."""

    def __init__(self, path: str) -> None:
        self.path, self._arrow = path, need("pyarrow", "Arrow files")
        self._ipc = need("pyarrow.ipc", "Arrow files")
        self.rows, self._starts = [], []
        with self._arrow.OSFile(path) as file:
            self.schema = self._ipc.read_schema(file)
            list(self.schema.names)  # which are decoded only here
            while not self._at_end(file):
                self._starts.append(file.tell())
                self.rows.append(self._batch(file).num_rows)

    def _at_end(self, file: Any) -> bool:
        """Whether nothing follows; a file that ends without an end mark is truncated."""
        place = file.tell()
        following = file.read(len(END))
        file.seek(place)
        if len(following) < len(END):
            raise OSError(f"it ends after {len(self.rows)} batches without an end mark")
        return bool(following == END)

    def _batch(self, file: Any) -> Any:
        message = self._ipc.read_message(file)
        if message.type != "record batch":
            raise OSError(f"it holds a {message.type}; write it as a Feather or Parquet file")
        return self._ipc.read_record_batch(message, self.schema)

    def table(self, first: int, last: int, names: tuple[str, ...]) -> Any:
        """Read and check some record batches."""
        batches = []
        with self._arrow.OSFile(self.path) as file:
            for start in self._starts[first:last]:
                file.seek(start)
                batches.append(self._batch(file))
        table = self._arrow.Table.from_batches(batches, self.schema).select(list(names))
        table.validate(full=True)
        return table
