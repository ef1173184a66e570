"""Conversion of arrays of any library to NumPy and back, with their memory layout.

BLAS uses different code for different layouts, so the layout affects the last bits of a product.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import Array, Like, is_dense, is_numpy_array, is_torch_array, to_numpy

__all__ = ["Packed", "as_columns", "as_rows", "lies_in_columns", "pack", "unpack"]


class Packed(NamedTuple):
    """NumPy array, whether it was transposed (stored by columns), and the library of the original.

    ``home`` is "numpy", "scalar" (a NumPy scalar) or "data" (the library of the data).
    """

    values: np.ndarray
    turned: bool
    home: str


def pack(value: Any) -> Any:
    """Return ``value`` with every array in it packed."""
    if isinstance(value, np.generic):
        return Packed(np.asarray(value), False, "scalar")
    if is_dense(value):
        turned = lies_in_columns(value)
        home = "numpy" if is_numpy_array(value) else "data"
        return Packed(to_numpy(value.T if turned else value), turned, home)
    return _inside(value, pack)


def unpack(value: Any, like: Like) -> Any:
    """Undo :func:`pack`: new arrays in the library and on the device of ``like``."""
    if not isinstance(value, Packed):
        return _inside(value, lambda part: unpack(part, like))
    if value.home == "scalar":
        return value.values[()]
    found: Array = np.array(value.values, order="C")
    if value.home == "data":
        found = like.xp.asarray(found, device=like.device)
    return found.T if value.turned else found


def lies_in_columns(x: Array) -> bool:
    """Whether ``x`` is stored in memory column by column, and not row by row."""
    if len(x.shape) != 2:
        return False
    # A single row or column is contiguous both ways and counts as stored by rows.
    if is_torch_array(x):
        return bool(x.T.is_contiguous() and not x.is_contiguous())
    return bool(x.flags.f_contiguous and not x.flags.c_contiguous)


def _inside(value: Any, change: Any) -> Any:
    if isinstance(value, tuple):
        parts = [change(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [change(part) for part in value]
    if isinstance(value, dict):
        return {name: change(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        inner = {field.name: change(getattr(value, field.name)) for field in fields(value)}
        return replace(value, **inner)
    return value


def as_columns(rows: list[dict[str, Any]]) -> list[Any]:
    """Return rows of numbers as columns, which take less memory; other rows unchanged."""

    def kind(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple((name, type(value)) for name, value in row.items())

    found: list[Any] = []
    for names, group in groupby(rows, kind):
        many = list(group)
        if all(known in (int, float) for _, known in names):
            found.append({name: np.array([row[name] for row in many]) for name, _ in names})
        else:
            found.extend([row] for row in many)
    return found


def as_rows(columns: list[Any]) -> list[dict[str, Any]]:
    """Undo :func:`as_columns`."""
    found: list[dict[str, Any]] = []
    for part in columns:
        if isinstance(part, list):
            found.extend(part)
            continue
        lists = [values.tolist() for values in part.values()]
        found.extend(dict(zip(part, row, strict=True)) for row in zip(*lists, strict=True))
    return found
