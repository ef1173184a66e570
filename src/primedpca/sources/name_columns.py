"""Columns of names and labels as NumPy arrays, every entry as the table has it."""

from collections.abc import Collection, Sequence
from datetime import time, timedelta, timezone
from typing import Any

import numpy as np

from primedpca.sources.base import needed


def array_of(column: Any) -> np.ndarray:
    """Return a column of Arrow; a missing entry is None, or NaN or NaT in an array of such.

    Arrow's own conversion takes a missing category for the last one, makes floats of integers
    with missing entries, leaves out the offset of a time zone, and has no times of nanoseconds.
    """
    arrow, compute = (
        needed(name, "Reading tables", "disk") for name in ("pyarrow", "pyarrow.compute")
    )
    if arrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if arrow.types.is_timestamp(kind) and kind.tz is not None:
        universal = column.cast(arrow.timestamp(kind.unit))
        return with_offsets(compute.local_timestamp(column).to_numpy(), universal.to_numpy())
    if kind == arrow.time64("ns"):
        return times_of_day(column.cast(arrow.int64()).to_pylist())
    if arrow.types.is_integer(kind) and column.null_count:
        return np.array(column.to_pylist(), dtype=object)
    found: np.ndarray = column.to_numpy()
    return found


def with_offsets(local: np.ndarray, universal: np.ndarray) -> np.ndarray:
    """Return times as text with their offset from UTC, and None for missing ones.

    Examples
    --------
    >>> times = np.array(["2020-01-01T00:30", "2019-12-31T23:30"], "M8[m]")
    >>> with_offsets(times[:1], times[1:])
    array(['2020-01-01T00:30+01:00'], dtype=object)
    """
    offsets = (local - universal).astype("m8[s]").astype(object)
    pairs = zip(np.datetime_as_string(local), offsets, strict=True)
    found = [None if by is None else f"{text}{_clock(by)}" for text, by in pairs]
    return np.array(found, dtype=object)


def times_of_day(nanoseconds: Sequence[int | None]) -> np.ndarray:
    """Return times since midnight as times of Python, or as text if those cannot hold them all.

    Examples
    --------
    >>> times_of_day([1, None])
    array(['00:00:00.000000001', None], dtype=object)
    """
    fine = any(count % 1000 for count in nanoseconds if count is not None)
    found = [None if count is None else _time_of_day(count, fine) for count in nanoseconds]
    return np.array(found, dtype=object)


def _time_of_day(count: int, fine: bool) -> time | str:
    seconds, rest = divmod(count, 10**9)
    whole = time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest // 1000)
    return f"{whole.replace(microsecond=0)}.{rest:09d}" if fine else whole


def _clock(offset: timedelta) -> str:
    return str(timezone(offset)).removeprefix("UTC") or "+00:00"


def index_columns(schema: Any, but: Collection[Any] = ()) -> list[str]:
    """Columns of an Arrow schema that pandas has written as the index of the rows.

    Parameters
    ----------
    schema : pyarrow.Schema
    but : collection of name
        Columns that have another role.
    """
    try:
        stored = list((schema.pandas_metadata or {}).get("index_columns", ()))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"The metadata of pandas in the Arrow schema cannot be read: {error}. Remove it from "
            "the table by `replace_schema_metadata()`."
        ) from error
    found = (name for name in stored if isinstance(name, str) and name in schema.names)
    return [name for name in found if name not in but]
