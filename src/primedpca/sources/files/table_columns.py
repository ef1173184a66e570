"""Columns of tables: the choice of columns, their types, and their conversion to a block."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from primedpca._core.arrays import check_whole_numbers
from primedpca.protocols import Block
from primedpca.sources.files.common import FileSource, need

Texts = Callable[[str], Iterable[str | None]] | None


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

    def _choose(
        self, schema: Any, columns: Any, others: list[str | None], exclude: Any, texts: Texts = None
    ) -> None:
        """Choose the columns to read: those named, or all but ``exclude`` and ``others``.

        The two ``others`` are the columns of names and labels.  Columns that do not hold numbers
        are refused by name, never dropped silently.  ``texts`` returns the entries of a column of
        a text file, so that the first one that is not a number can be quoted: it may be the only
        one.
        """
        path, (self._id, self._label) = self.path, others
        wanted, left_out = _names(columns, "columns"), _names(exclude, "exclude")
        known = list(schema.names)
        for name in [*wanted, *left_out, *(one for one in others if one is not None)]:
            if name not in known:
                shown = ", ".join(map(repr, known[:9])) + (" ..." if len(known) > 9 else "")
                raise ValueError(f"{path} has no column {name!r}; it has {shown}.")
            if (count := known.count(name)) > 1:
                raise ValueError(f"{path} has {count} columns named {name!r}; rename them.")
        if columns is None:
            wanted = [name for name in known if name not in {*left_out, *others}]
        if not wanted:
            raise ValueError(f"{path} has no column of numbers left to read.")
        if len(set(wanted)) < len(wanted):
            double = next(name for name in wanted if wanted.count(name) > 1)
            raise ValueError(f"{path}: `columns` names {double!r} twice; name each column once.")
        if both := [name for name in wanted if name in left_out]:
            raise ValueError(f"column {both[0]!r} is both in `columns` and in `exclude`.")
        types = {name: schema.field(name).type for name in wanted}
        lists = [name for name, kind in types.items() if _is_a(kind, LISTS)]
        bad = [name for name, kind in types.items() if not is_number(kind)]
        if lists and len(wanted) == 1 and is_number(types[wanted[0]].value_type):
            kind = types[wanted[0]]
            width = kind.list_size if _is_a(kind, ["fixed_size_list"]) else None
            self._columns = TableColumns((wanted[0],), (kind.value_type,), True, width)
        elif bad:
            shown = ", ".join(f"{name!r} ({_what(types[name], name, texts)})" for name in bad[:5])
            many = "a column that is" if len(bad) == 1 else f"{len(bad)} columns that are"
            alone = "; a column of vectors must be the only one" if lists else ""
            raise ValueError(
                f"{path} has {many} not all numbers: {shown}{', ...' if len(bad) > 5 else ''}. "
                "Use `exclude`, `id_column`, `label_column` or `columns`, or correct the entries"
                f"{alone}."
            )
        else:
            self._columns = TableColumns(tuple(wanted), tuple(types.values()))
        self.column_names = self._columns.names

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


def _names(given: Any, argument: str) -> list[str]:
    """One name or several, as a list."""
    found = [given] if isinstance(given, str) else [] if given is None else list(given)
    if not all(isinstance(name, str) for name in found):
        raise TypeError(f"`{argument}`={given!r} must be the names of columns.")
    return found


def _what(kind: Any, name: str, texts: Texts) -> str:
    """Description of a column that is not numbers: its first entry that is not one, or its type."""
    for i, entry in enumerate(texts(name) if texts and str(kind) == "string" else ()):
        if entry and not reads_as_number(entry):
            shown = entry if len(entry) <= 20 else f"{entry[:20]}..."
            return f"{shown!r} in row {i}"
    return str(kind)


def reads_as_number(text: str) -> bool:
    """Whether a text is a number as text files write them."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python allows underscores among digits


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
        raise ValueError(
            f"column {name!r} has {chunk.null_count} nulls in {where} although the file declares "
            f"none, and {dtype} cannot hold them. Store it as floats."
        )
    if arrow.types.is_decimal(kind):
        chunk = chunk.cast(arrow.float64())
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
                f"column {name!r} holds vectors of {width} and of {lengths[row]} numbers (row "
                f"{row} of {where}); all must be equally long."
            )
    values = _numbers(chunk.flatten(), out.dtype, name, where).reshape(-1, width)
    if not chunk.null_count:
        out[...] = values
        return
    if out.dtype.kind != "f":
        raise ValueError(f"column {name!r} has {chunk.null_count} null rows in {where}. Fill them.")
    out[...] = np.nan
    out[chunk.is_valid().to_numpy(zero_copy_only=False)] = values
