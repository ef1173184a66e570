"""Columns of tables: the choice of columns, their types, and their conversion to a block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from primedpca._core.arrays import check_whole_numbers
from primedpca.protocols import Block
from primedpca.sources.files.common import need

__all__ = [
    "NamedRows",
    "TableColumns",
    "as_block",
    "choose",
    "common_dtype",
    "is_number",
    "names_of",
    "reads_as_number",
]


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


class NamedRows(ABC):
    """The two columns of a table that are not data: names and labels of the rows."""

    _id: str | None
    _label: str | None

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


def names_of(given: Any, argument: str) -> list[str]:
    """One name or several, as a list."""
    if given is None:
        return []
    found = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in found):
        raise TypeError(f"`{argument}`={given!r} must be the names of columns.")
    return found


def choose(
    schema: Any,
    path: str,
    columns: Any = None,
    id_column: str | None = None,
    label_column: str | None = None,
    exclude: Any = None,
    texts: Callable[[str], Iterable[str | None]] | None = None,
) -> TableColumns:
    """Choose the columns to read: those named, or all but those left out by name.

    Columns that do not hold numbers are refused by name, never dropped silently.  ``texts``
    returns the entries of a column of a text file, so that the first one that is not a number can
    be quoted: it may be the only one.
    """
    wanted, left_out = names_of(columns, "columns"), names_of(exclude, "exclude")
    known = list(schema.names)
    others = [name for name in (id_column, label_column) if name is not None]
    for name in [*wanted, *left_out, *others]:
        if name not in known:
            shown = ", ".join(map(repr, known[:9])) + (" ..." if len(known) > 9 else "")
            raise ValueError(f"{path} has no column {name!r}; it has {shown}.")
        if known.count(name) > 1:
            raise ValueError(f"{path} has {known.count(name)} columns named {name!r}; rename them.")
    if columns is None:
        wanted = [name for name in known if name not in {*left_out, *others}]
    if not wanted:
        raise ValueError(f"{path} has no column of numbers left to read.")
    if len(set(wanted)) < len(wanted):
        double = next(name for name in wanted if wanted.count(name) > 1)
        raise ValueError(f"{path}: `columns` names {double!r} twice; name each column once.")
    if both := [name for name in wanted if name in left_out]:
        raise ValueError(
            f"column {both[0]!r} is both in `columns` and in `exclude`; remove it from one of them."
        )
    types = [schema.field(name).type for name in wanted]
    arrow = need("pyarrow", "tables")
    lists = [name for name, kind in zip(wanted, types, strict=True) if _is_list(arrow, kind)]
    if lists and len(wanted) == 1:
        kind = types[0]
        if is_number(arrow, kind.value_type):
            fixed = arrow.types.is_fixed_size_list(kind)
            return TableColumns(
                (wanted[0],), (kind.value_type,), True, kind.list_size if fixed else None
            )
    bad = [name for name, kind in zip(wanted, types, strict=True) if not is_number(arrow, kind)]
    if bad:
        kinds = [_what(schema.field(name).type, name, texts) for name in bad[:5]]
        shown = ", ".join(f"{name!r} ({kind})" for name, kind in zip(bad, kinds, strict=False))
        count = "a column that is" if len(bad) == 1 else f"{len(bad)} columns that are"
        alone = "; a column of vectors must be the only one" if lists else ""
        raise ValueError(
            f"{path} has {count} not all numbers: {shown}{', ...' if len(bad) > 5 else ''}. Use "
            "`exclude`, `id_column`, `label_column` or `columns`, or correct the entries"
            f"{alone}."
        )
    return TableColumns(tuple(wanted), tuple(types))


def _what(kind: Any, name: str, texts: Callable[[str], Iterable[str | None]] | None) -> str:
    """Description of a column that is not numbers: its first entry that is not one, or its type."""
    if str(kind) != "string" or texts is None:
        return str(kind)
    for i, entry in enumerate(texts(name)):
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


def _is_list(arrow: Any, kind: Any) -> bool:
    is_a = arrow.types
    found: bool = is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind)
    return found


def is_number(arrow: Any, kind: Any) -> bool:
    """Whether an Arrow type holds numbers."""
    is_a = arrow.types
    tests = (is_a.is_integer, is_a.is_floating, is_a.is_boolean, is_a.is_decimal)
    return any(test(kind) for test in tests)


def common_dtype(columns: TableColumns, with_nulls: Sequence[bool]) -> np.dtype:
    """The type that holds all columns; integers with nulls need floats."""
    found = []
    for kind, null in zip(columns.types, with_nulls, strict=True):
        try:
            dtype = np.dtype(kind.to_pandas_dtype())
        except NotImplementedError:
            dtype = np.dtype(object)
        if dtype.kind == "O":  # decimals
            dtype = np.dtype(np.float64)
        elif null and dtype.kind != "f":
            dtype = np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
        found.append(dtype)
    return np.result_type(*found)


def as_block(table: Any, columns: TableColumns, d: int, dtype: np.dtype, where: str) -> Block:
    """The chosen columns of a table as an array ``(rows, d)``; nulls become NaN."""
    if columns.vector:
        out = np.empty((table.num_rows, d), dtype)
        start = 0
        for chunk in table.column(columns.names[0]).chunks:
            _fill_vectors(out[start : start + len(chunk)], chunk, columns.names[0], where)
            start += len(chunk)
    elif columns.alike:
        out = _in_one(table.select(list(columns.names)), dtype)
    else:
        out = np.empty((table.num_rows, d), dtype, order="F")
        for j, name in enumerate(columns.names):
            start = 0
            for chunk in table.column(name).chunks:
                out[start : start + len(chunk), j] = _numbers(chunk, dtype, name, where)
                start += len(chunk)
    out.flags.writeable = False
    return out


def _in_one(table: Any, dtype: np.dtype) -> np.ndarray:
    """Columns of one type as an array ``(rows, d)``, without a Python loop over columns."""
    out = np.empty((table.num_rows, table.num_columns), dtype, order="F")
    start = 0
    for batch in table.to_batches():
        out[start : start + len(batch)] = batch.to_tensor(null_to_nan=True, row_major=False)
        start += len(batch)
    return out


def _numbers(chunk: Any, dtype: np.dtype, name: str, where: str) -> np.ndarray:
    """A column of numbers ``(rows,)``, ready to be copied into a block of ``dtype``."""
    arrow = need("pyarrow", "tables")
    if chunk.null_count and dtype.kind != "f":
        raise ValueError(
            f"column {name!r} has {chunk.null_count} nulls in {where} although the file declares "
            f"none, and {dtype} cannot hold them. Store it as floats."
        )
    kind = chunk.type
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
    compute = need("pyarrow.compute", "tables")
    width = out.shape[1]
    if not need("pyarrow", "tables").types.is_fixed_size_list(chunk.type):
        lengths = compute.list_value_length(chunk).drop_null().to_numpy()
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
