"""Columns of tables: the choice of columns, their types, and their conversion to a block."""

import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

import numpy as np

from primedpca._core.arrays import EXACT, check_python_numbers, check_whole_numbers
from primedpca.protocols import Block
from primedpca.sources.column_choice import check_flag, check_name, chosen_names, warn_left_out
from primedpca.sources.files.common import FileSource, need
from primedpca.sources.files.number_text import Notation, are_numbers

#: Describes a column of text by an entry that is not a number, and names the option for it.
Remedied = Callable[[str], tuple[str, str]] | None
UNNAMED = "Unnamed: {}"  # as pandas calls a column without a name
NO_VALUES = "no values"  # of a column that is empty in all rows
SHOWN = 5  # columns that a message describes
#: Kinds of Arrow types that are not numbers, and their names in messages.
NOT_NUMBERS = {
    "string": "text",
    "large_string": "text",
    "string_view": "text",
    "binary": "bytes",
    "large_binary": "bytes",
    "date": "dates",
    "timestamp": "dates and times",
    "time": "times of day",
    "duration": "durations",
    "dictionary": "categories",
    "null": NO_VALUES,
    "list": "lists",
    "large_list": "lists",
    "struct": "records",
}
#: What helps where any columns may be read.
REMEDY = (
    "Use `exclude`, `id_column`, `label_column` or `columns`, or `numeric_only`=True to leave out "
    "all such columns, or correct the entries"
)
ADVICE = {
    "date": "store a date as the number of days since the first one",
    "categories": "store a category as a column of 0 and 1 for each of its values",
    "NUL bytes": "NUL bytes are those of a binary file, or of an encoding such as UTF-16",
    "yes or no": "store yes and no, or true and false, as 1 and 0",
}


class NotNumberError(ValueError):
    """A column of numbers has an entry that is not a number."""

    def __init__(self, path: str, column: str, what: str, option: str) -> None:
        self.column, self.what = column, what
        super().__init__(f"{path} {_not_numbers({column: (what, option)}, False)}")

    def __reduce__(self) -> Any:
        return ValueError, (str(self),)  # which another process can rebuild


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table that are read.

    Attributes
    ----------
    names : tuple of str
        Names of the columns of numbers, in order.
    types : tuple of pyarrow.DataType
        Types of the numbers themselves.
    vector : bool, default=False
        Whether the one column holds a vector in every row.
    width : int or None
        Length of the vectors, if their type fixes it.
    """

    names: tuple[str, ...]
    types: tuple[Any, ...]
    vector: bool = False
    width: int | None = None

    @cached_property
    def alike(self) -> bool:
        """Whether all are columns of float32, or all of float64."""
        first = self.types[0]
        return str(first) in ("float", "double") and all(kind == first for kind in self.types)


class TableRows(FileSource):
    """Columns of a table that are data, and two that are not: names and labels of the rows."""

    #: Columns that were left out although no option names them, each with the reason.
    left_out: dict[str, str]

    def _choose(
        self,
        schema: Any,
        columns: Any,
        others: list[str | None],
        exclude: Any,
        numeric_only: bool | None = False,
        remedied: Remedied = None,
    ) -> None:
        """Choose the columns to read: those named, or all but ``exclude`` and ``others``.

        The two ``others`` are the columns of names and labels.  Columns that do not hold numbers
        are refused by name, or left out with a warning if ``numeric_only``.  ``remedied`` quotes
        the first entry of a column of a text file that is not a number: it may be the only one.
        """
        path, self.left_out = self.path, {}
        numeric_only = check_flag(numeric_only, "numeric_only")
        self._id, self._label = map(check_name, others, ("id_column", "label_column"))
        self.headings = self._id or "name", self._label or "label"
        wanted = chosen_names(path, list(schema.names), columns, others, exclude)
        types = {name: schema.field(name).type for name in wanted}
        if columns is None:
            empty = [name for name, kind in types.items() if _is_a(kind, ["null"])]
            self._leave_out(dict.fromkeys(empty, NO_VALUES))
        lists = [name for name, kind in types.items() if _is_a(kind, LISTS)]
        bad = [name for name, kind in types.items() if not is_number(kind)]
        bad = [name for name in bad if name not in self.left_out]
        wanted = [name for name in wanted if name not in self.left_out]
        if lists == wanted and len(lists) == 1 and is_number(types[lists[0]].value_type):
            kind = types[wanted[0]]
            width = kind.list_size if _is_a(kind, ["fixed_size_list"]) else None
            self._columns = TableColumns((wanted[0],), (kind.value_type,), True, width)
        else:
            described = {name: _what(types[name], name, remedied) for name in bad}
            if bad and not numeric_only:
                raise ValueError(f"{path} {_not_numbers(described, bool(lists))}")
            self._leave_out({name: what for name, (what, _) in described.items()})
            wanted = [name for name in wanted if name not in self.left_out]
            if not wanted:
                raise ValueError(f"{path} has no column of numbers left to read.")
            self._columns = TableColumns(tuple(wanted), tuple(types[name] for name in wanted))
        self.column_names = self._columns.names

    def _leave_out(self, reasons: dict[str, str]) -> None:
        """Note columns that are left out, and warn of them."""
        self.left_out |= reasons
        warn_left_out(self.path, reasons)

    def _use(self, names: list[str]) -> None:
        """Read only these columns from now on."""
        if not names:
            raise ValueError(f"{self.path} has no column of numbers left to read.")
        kinds = dict(zip(self._columns.names, self._columns.types, strict=True))
        self._columns = TableColumns(tuple(names), tuple(kinds[name] for name in names))
        self.column_names = self._columns.names

    def _check_index(
        self, name: str, entries: Callable[[], Any], numeric_only: Any, gaps: bool = True
    ) -> None:
        """Refuse a first column without a name that numbers the rows: it is an index, not data.

        Without ``gaps`` the numbers must be consecutive.
        """
        if name != UNNAMED.format(0) or name not in self.column_names:
            return
        if not _counts(entries(), gaps):
            return
        if numeric_only and len(self.column_names) > 1:
            self._leave_out({name: "numbers the rows"})
            self._use([one for one in self.column_names if one != name])
            return
        raise ValueError(
            f"{self.path} has a first column without a name that numbers the rows, as pandas and R "
            f"write it: pass `id_column`={name!r} if it names the rows, or `exclude`={name!r}. If "
            "it is data, give it a name."
        )

    @cached_property
    def row_names(self) -> np.ndarray | None:
        """Contents of ``id_column``, read when first needed."""
        return None if self._id is None else self._column(self._id)

    @cached_property
    def labels(self) -> np.ndarray | None:
        """Contents of ``label_column``, read when first needed."""
        return None if self._label is None else self._column(self._label)

    @abstractmethod
    def _column(self, name: str) -> np.ndarray:
        """All of one column."""


def _counts(entries: Iterable[Any], gaps: bool = True) -> bool:
    """Whether texts or numbers are whole numbers that increase, of at least two rows.

    With ``gaps``, some may be missing: pandas keeps the index of the rows that a filter leaves.
    """
    known = list(islice(entries, 1000))
    try:
        found = [int(entry) for entry in known]
    except (TypeError, ValueError, OverflowError):
        return False
    whole = all(isinstance(entry, str) or entry == int(entry) for entry in known)
    steps = {b - a for a, b in pairwise(found)}
    return whole and bool(steps) and min(steps) >= 1 and (gaps or steps == {1})


def check_skip_rows(given: Any) -> int:
    """Return the number of lines before a table."""
    known = isinstance(given, (int, np.integer)) and not isinstance(given, bool) and given >= 0
    if given is not None and not known:
        raise ValueError(f"`skip_rows`={given!r} must be a whole number of lines, 0 or more.")
    return int(given or 0)


def nothing_left(path: str, skip_rows: int, comment: str | None = None) -> ValueError:
    """Return the error on a table without a line, which options may have left out.

    Examples
    --------
    >>> print(nothing_left("a.csv", 9, "#"))
    a.csv has no line left to read with `skip_rows`=9 and `comment`='#'. Correct the options.
    """
    found = [f"`skip_rows`={skip_rows}"] if skip_rows else []
    found += [] if comment is None else [f"`comment`={comment!r}"]
    if not found:
        return ValueError(f"{path} is empty.")
    which = "option" if len(found) == 1 else "options"
    return ValueError(
        f"{path} has no line left to read with {' and '.join(found)}. Correct the {which}."
    )


def unique_names(names: Sequence[str]) -> list[str]:
    """Names of columns without empty and equal ones, renamed as pandas does.

    Examples
    --------
    >>> unique_names(["", "a", "a"])
    ['Unnamed: 0', 'a', 'a.1']
    """
    filled = [name or UNNAMED.format(j) for j, name in enumerate(names)]
    taken, last, found = set(filled), Counter[str](), dict[str, None]()
    for name in filled:
        own = name
        while own in found or (own != name and own in taken):
            last[name] += 1
            own = f"{name}.{last[name]}"
        found[own] = None
    return list(found)


def warn_of_renamed(path: str, names: Sequence[str], unique: Sequence[str]) -> None:
    """Warn of columns that have a number because another one has their name."""
    pairs = [(old, new) for old, new in zip(names, unique, strict=True) if old and old != new]
    if pairs:
        shown = ", ".join(f"{old!r} as {new!r}" for old, new in pairs[:SHOWN])
        more = ", ..." if len(pairs) > SHOWN else ""
        words = f"{path} has columns of the same name; they are read with a number: {shown}{more}."
        warnings.warn(words, UserWarning, stacklevel=2)


def late_header(rows: Sequence[Sequence[str]], notation: Notation) -> int | None:
    """Index of a later row that looks more like column names than the first one, or None.

    Spreadsheets with a title have blanks beside it, names below, and numbers below these.
    """
    filled = [sum(bool(field.strip()) for field in row) for row in rows]
    for i in range(1, len(rows) - 1):
        fields = [field for field in rows[i] if field.strip()]
        named = len(fields) == len(rows[0]) and not any(are_numbers(fields, notation))
        if named and filled[0] < filled[i] - 1 and any(are_numbers(rows[i + 1], notation)):
            return i
    return None


def _what(kind: Any, name: str, remedied: Remedied) -> tuple[str, str]:
    """Description of a column that is not numbers, and the option that makes it numbers."""
    described = next((word for one, word in NOT_NUMBERS.items() if _is_a(kind, [one])), str(kind))
    if remedied is None or described != "text":
        return described, ""
    return remedied(name)


def _not_numbers(described: dict[str, tuple[str, str]], lists: bool) -> str:
    """Message on columns that are not numbers: each with a reason, and the options that help."""
    shown = [
        f"{name!r} ({what}{f': pass {option}' if option else ''})"
        for name, (what, option) in [*described.items()][:SHOWN]
    ]
    many = "a column that is" if len(described) == 1 else f"{len(described)} columns that are"
    advice = [words for word, words in ADVICE.items() if any(word in one for one in shown)]
    advice += ["a column of vectors must be the only one"] if lists else []
    more = "".join(f"; {words}" for words in advice)
    return (
        f"has {many} not all numbers: {', '.join(shown)}{', ...' * (len(described) > SHOWN)}. "
        f"{REMEDY}{more}."
    )


LISTS = ("list", "large_list", "fixed_size_list")


def _is_a(kind: Any, names: Iterable[str]) -> bool:
    """Whether an Arrow type is of one of these kinds."""
    types = need("pyarrow", "tables").types
    return any(getattr(types, f"is_{name}")(kind) for name in names)


def is_number(kind: Any) -> bool:
    """Whether an Arrow type holds numbers."""
    return _is_a(kind, ("integer", "floating", "boolean", "decimal"))


def common_dtype(columns: TableColumns, with_nulls: Sequence[bool]) -> np.dtype:
    """The type that holds all columns; integers with nulls need floats."""
    found = []
    for kind, null in zip(columns.types, with_nulls, strict=True):
        dtype = np.dtype(np.float64 if _is_a(kind, ["decimal"]) else kind.to_pandas_dtype())
        if null and dtype.kind != "f":
            dtype = np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
        found.append(dtype)
    return np.result_type(*found)


def as_block(table: Any, columns: TableColumns, d: int, dtype: np.dtype, where: str) -> Block:
    """The chosen columns of a table as an array ``(rows, d)``; nulls become NaN."""
    out = np.empty((table.num_rows, d), dtype, order="C" if columns.vector else "F")
    if columns.vector:
        for place, chunk in _placed(table.column(columns.names[0]).chunks):
            _fill_vectors(out[place], chunk, columns.names[0], where)
    elif columns.alike:  # without a Python loop over columns
        for place, batch in _placed(table.select(list(columns.names)).to_batches()):
            out[place] = batch.to_tensor(null_to_nan=True, row_major=False)
    else:
        for j, name in enumerate(columns.names):
            for place, chunk in _placed(table.column(name).chunks):
                out[place, j] = _numbers(chunk, dtype, name, where)
    out.flags.writeable = False
    return out


def _placed(chunks: Iterable[Any]) -> Iterator[tuple[slice, Any]]:
    """Yield chunks, each with its place among the rows."""
    start = 0
    for chunk in chunks:
        yield slice(start, start + len(chunk)), chunk
        start += len(chunk)


def _numbers(chunk: Any, dtype: np.dtype, name: str, where: str) -> np.ndarray:
    """A column of numbers ``(rows,)``, ready to be copied into a block of ``dtype``."""
    arrow, kind = need("pyarrow", "tables"), chunk.type
    if chunk.null_count and dtype.kind != "f":
        words = f"column {name!r} has {chunk.null_count} nulls in {where}, but is {dtype}"
        raise ValueError(f"{words}. Store it as floats.")
    if arrow.types.is_decimal(kind):
        decimals, chunk = chunk, chunk.cast(arrow.float64())
        far = np.flatnonzero(np.abs(chunk.to_numpy(zero_copy_only=False)) > EXACT)
        check_python_numbers(decimals.take(arrow.array(far)).to_pylist(), f"column {name!r}")
    elif arrow.types.is_boolean(kind) and chunk.null_count:
        chunk = chunk.cast(arrow.uint8())
    if dtype.kind == "f" and arrow.types.is_integer(kind) and kind.bit_width == 64:
        whole = chunk.drop_null().to_numpy(zero_copy_only=False)
        check_whole_numbers(whole, f"column {name!r}")
    values: np.ndarray = chunk.to_numpy(zero_copy_only=False)
    return values


def _fill_vectors(out: np.ndarray, chunk: Any, name: str, where: str) -> None:
    width = out.shape[1]
    if not _is_a(chunk.type, ["fixed_size_list"]):
        lengths = need("pyarrow.compute", "tables").list_value_length(chunk).drop_null().to_numpy()
        if (lengths != width).any():
            row = int(np.flatnonzero(lengths != width)[0])
            raise ValueError(
                f"row {row} of {where}: column {name!r} has length {lengths[row]}, not {width}. "
                "All must be equally long."
            )
    values = _numbers(chunk.flatten(), out.dtype, name, where).reshape(-1, width)
    if not chunk.null_count:
        out[...] = values
        return
    if out.dtype.kind != "f":
        raise ValueError(f"column {name!r} has {chunk.null_count} null rows in {where}. Fill them.")
    out[...] = np.nan
    out[chunk.is_valid().to_numpy(zero_copy_only=False)] = values
