"""pandas and polars frames (and whatever else narwhals reads)."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from primedpca._core.arrays import EXACT, check_python_numbers, check_whole_numbers
from primedpca.sources.base import MemorySource, needed
from primedpca.sources.column_choice import (
    check_flag,
    check_name,
    chosen_names,
    names_of,
    warn_left_out,
)
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.sparse import SparseSource
from primedpca.sources.name_columns import array_of, index_columns, times_of_day, with_offsets

#: Types that are not numbers, by narwhals' names, in words.
NOT_NUMBERS = {
    "String": "text",
    "Object": "objects",
    "Categorical": "categories",
    "Enum": "categories",
    "Date": "dates",
    "Datetime": "dates and times",
    "Time": "times of day",
    "Duration": "durations",
    "List": "lists",
}

#: Of these, what can be labels.
LABELS = ("text", "categories")


def is_frame(x: Any) -> bool:
    """Whether ``x`` is a data frame of a library that narwhals knows and that is loaded."""
    library = type(x).__module__.split(".")[0]
    if library in ("polars", "narwhals") and type(x).__name__ == "LazyFrame":
        raise TypeError(
            f"`X` is a {library} LazyFrame, which holds no numbers yet. Pass X.collect(), or for "
            "data that exceed the memory X.sink_parquet('x.parquet') and then the path 'x.parquet'."
        )
    known = ("pandas", "polars", "pyarrow", "modin", "cudf", "narwhals")
    return library in known and hasattr(x, "columns")


def as_native(x: Any) -> Any:
    """Return a frame as one that narwhals reads by itself; other data unchanged.

    A record batch of pyarrow becomes a table, and a frame of narwhals the one that it wraps.
    """
    if not is_frame(x):
        return x
    if type(x).__module__.split(".")[0] == "narwhals":
        return as_native(x.to_native())
    if type(x).__name__ != "RecordBatch":
        return x
    return needed("pyarrow", "Reading data frames", "frames").Table.from_batches([x])


def without_index(x: Any) -> Any:
    """Return a frame, as of :func:`as_native`, without an index of pandas that Arrow stores.

    Other data are returned unchanged.
    """
    x = as_native(x)
    index = index_columns(x.schema) if _is_arrow(x) else []
    return x.drop_columns(index) if index else x


def _is_arrow(x: Any) -> bool:
    """Whether ``x`` is a table of pyarrow."""
    return type(x).__module__.split(".")[0] == "pyarrow" and hasattr(x, "drop_columns")


def frame_source(
    x: Any,
    *,
    columns: Any = None,
    id_column: Any = None,
    label_column: Any = None,
    exclude: Any = None,
    numeric_only: bool | None = None,
) -> MemorySource:
    """Numbers of a data frame; every column must be numeric, and missing entries become NaN.

    A pandas frame of one dtype is read in place; other frames take one dense copy.  The names of
    the columns, where all are text, become the source's ``feature_names``, and the index of a
    pandas frame, unless it just counts the rows, its ``row_names``, also where pandas has stored
    it in an Arrow table.

    Parameters
    ----------
    x : data frame
    columns : name or sequence of names, optional
        Columns to read, in this order; by default all others than those named below.
    id_column, label_column : name, optional
        Columns that are not data but ``row_names`` and ``labels``.
    exclude : name or sequence of names, optional
        More columns to leave out.
    numeric_only : bool, default=False
        Whether to leave out columns that are not numbers, with a warning that lists them.
    """
    x, numeric_only = as_native(x), check_flag(numeric_only, "numeric_only")
    if _is_arrow(x):
        columns = None if columns is None else names_of(columns, "columns")
        stored = index_columns(x.schema, [id_column, label_column, *(columns or ())])
        id_column = stored[0] if id_column is None and len(stored) == 1 else id_column
        exclude = [*names_of(exclude, "exclude"), *stored] if stored else exclude
    others = {
        "row_names": check_name(id_column, "id_column"),
        "labels": check_name(label_column, "label_column"),
    }
    beside = {kind: _column(x, name) for kind, name in others.items() if name is not None}
    if columns is not None or exclude is not None or beside:
        x = _taken(x, chosen_names("`X`", column_names(x), columns, [*others.values()], exclude))
    names = column_names(x)
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"`X` has {names.count(double)} columns named {double!r}. Rename them, "
            "or leave them out by `exclude` of `as_source`."
        )
    if numeric_only:
        text = not_numbers(x)
        warn_left_out("`X`", text)
        x = _taken(x, [name for name in column_names(x) if name not in text]) if text else x
    names = column_names(x)
    sparse = [hasattr(dtype, "fill_value") for dtype in getattr(x, "dtypes", ())]
    # Only zeros can be left out; other fill values, such as the NaN of pandas, are stored.
    if sparse and all(sparse) and all(dtype.fill_value == 0 for dtype in x.dtypes):
        source: MemorySource = SparseSource(x.sparse.to_coo())
    else:
        source = DenseSource(_values_of(x, any(sparse)))
    source.column_names = names
    if all(isinstance(name, str) for name in names):
        source.feature_names = names
    index = getattr(x, "index", None)
    if index is not None and type(index).__name__ != "RangeIndex" and index.nlevels == 1:
        source.row_names = _names_in(index.to_series())
        source.headings = str(index.name or "name"), "label"
    for kind, values in beside.items():
        setattr(source, kind, values)
    if beside:
        source.headings = str(id_column or source.headings[0]), str(label_column or "label")
    return source


def _taken(x: Any, names: list[Any]) -> Any:
    """The frame with these columns."""
    if not names:
        raise ValueError("`X` has no column of numbers left to read.")
    return x.select(names) if hasattr(x, "select") else x[names]


def _column(x: Any, name: Any) -> np.ndarray:
    """Contents of one column."""
    chosen_names("`X`", column_names(x), [name], [], None)
    return _names_in(x.column(name) if hasattr(x, "column") else x[name])


def _names_in(values: Any) -> np.ndarray:
    """Names or labels, each as the frame has it, and None where one is missing."""
    if type(values).__module__.split(".")[0] == "pyarrow":
        return array_of(values)
    if type(values.dtype).__name__ == "CategoricalDtype":
        return _categories_in(values.cat)
    nw = needed("narwhals.stable.v2", "Reading data frames", "frames")
    column = nw.from_native(values, series_only=True)
    if column.dtype == nw.Time:  # NumPy has none, and those of Python have no nanoseconds
        if hasattr(values.dtype, "pyarrow_dtype"):
            return array_of(values.array.__arrow_array__())
        return times_of_day(column.cast(nw.Int64).to_list())
    found = values.to_numpy()
    if found.dtype.kind == "M" and getattr(column.dtype, "time_zone", None) is not None:
        zones = (column, column.dt.convert_time_zone("UTC"))
        return with_offsets(*(one.dt.replace_time_zone(None).to_numpy() for one in zones))
    # Integers with missing entries become floats in some libraries.
    if column.null_count() and (found.dtype.kind == "O" or column.dtype.is_integer()):
        pairs = zip(column.is_null().to_list(), column.to_list(), strict=True)
        return np.array([None if missing else entry for missing, entry in pairs], dtype=object)
    names: np.ndarray = found
    return names


def _categories_in(known: Any) -> np.ndarray:
    """Entries of a categorical column of pandas, which makes integers with missing ones floats."""
    names, codes = _names_in(known.categories.to_series()), known.codes.to_numpy()
    if (codes < 0).any():
        if names.dtype.kind not in "fmM":  # which have no value for a missing entry
            names = names.astype(object)
        names = np.append(names, np.array([None], names.dtype))
    found: np.ndarray = names[codes]
    return found


def not_numbers(x: Any) -> dict[Any, str]:
    """Columns that do not hold numbers, and what they hold."""
    nw = needed("narwhals.stable.v2", "Reading data frames", "frames")
    frame = nw.from_native(x, eager_only=True)
    return {
        name: NOT_NUMBERS.get(type(kind).__name__) or _type_of(frame.get_column(name), kind)
        for name, kind in frame.schema.items()
        if not (kind.is_numeric() or kind == nw.Boolean)
    }


def _type_of(column: Any, kind: Any) -> str:
    """Name of a column's type: of a type that narwhals does not know, its library's name."""
    if type(kind).__name__ != "Unknown":
        return str(kind)
    native = column.to_native()
    own = str(native.type if hasattr(native, "type") else native.dtype)
    return "no values" if own.lower().startswith("null") else own


def column_names(x: Any) -> list[Any]:
    """Names of the columns of a data frame."""
    return list(getattr(x, "column_names", x.columns))  # pyarrow's `columns` are the data


def _values_of(x: Any, partly_sparse: bool) -> np.ndarray:
    nw = needed("narwhals.stable.v2", "Reading data frames", "frames")
    if partly_sparse:  # pandas; the dense columns beside the sparse ones need a copy anyway
        x = x.astype({c: t.subtype for c, t in x.dtypes.items() if hasattr(t, "fill_value")})
    text = not_numbers(x)
    if text:
        shown = [f"{name!r} ({what})" for name, what in text.items()]
        first = ", ".join(shown[:5]) + (" ..." if len(text) > 5 else "")
        words = f"column(s) that do not hold numbers ({first}). Drop or encode them, or use"
        options = "`exclude`, `id_column`, `label_column` or `numeric_only` of `as_source`"
        raise ValueError(f"`X` has {len(text)} {words} {options}.")
    frame = nw.from_native(x, eager_only=True)
    kinds = frame.schema.items()
    wide = [name for name, kind in kinds if kind in (nw.Int128, nw.UInt128)]
    as_floats = [nw.col(name).cast(nw.Float64) for name in wide]  # NumPy has no such integers
    if not frame.columns:  # of which pyarrow cannot make an array
        return np.empty((len(frame), 0))
    values: np.ndarray = (frame.with_columns(as_floats) if wide else frame).to_numpy()
    # `frame[name]` would be a row where names are numbers.
    if values.dtype == object:  # nullable columns: floats, NaN where missing
        columns = (frame.get_column(name).cast(nw.Float64).to_numpy() for name in frame.columns)
        values = np.stack([column.astype(np.float64) for column in columns], axis=1)
    if values.dtype.kind == "f":
        for j, (name, kind) in enumerate(kinds):
            if kind in (nw.Int64, nw.UInt64):
                whole = frame.get_column(name).drop_nulls().to_numpy()
                check_whole_numbers(whole, f"column {name!r}")
            elif name in wide:
                whole = frame.get_column(name).drop_nulls().to_list()
                check_python_numbers(whole, f"column {name!r}")
            elif kind == nw.Decimal and (far := np.flatnonzero(np.abs(values[:, j]) > EXACT)).size:
                check_python_numbers(frame.get_column(name)[far].to_list(), f"column {name!r}")
    return values


def aligned(values: np.ndarray, labels: Any, known: Any, other: str = "`X`") -> np.ndarray:
    """Return components with their columns in the order of others, found by label.

    Without labels on both sides, or if one side only numbers its columns, the columns are in order
    already.

    Parameters
    ----------
    values : ndarray of shape (k, d)
    labels, known : sequence of length d, or None
        Labels of the columns of ``values``, and of the others.
    other : str, default="`X`"
        What the others are, for messages.
    """
    refusal = (
        f"`components` have the name {{}} in column {{}}, where {other} has {{}}, and not all "
        "names are the same. Rename the columns, or remove the names from `components` if the "
        f"order is that of {other}."
    )
    places = _places(labels, known, refusal)
    return values if places is None else values[:, places]


def aligned_rows(values: Any, columns: Callable[[], Any], name: str) -> Any:
    """Return numbers for each column, in the order of the columns if both have labels.

    Parameters
    ----------
    values : array, or Series, data frame or DataArray with labels, or other value
        A scale ``(d,)`` or directions ``(d, q)``; narwhals may wrap it.  A data frame without an
        index has its labels in a first column of text, as that of
        :meth:`~primedpca.PrimedPCA.loadings`.
    columns : callable
        Returns the labels of the columns, or None; called only for numbers with labels, as names
        may have to be read.
    name : str
        Of the argument, for messages.

    Returns
    -------
    ndarray
        Of numbers that may have labels; other values unchanged.
    """
    if type(values).__module__.split(".")[0] == "narwhals":
        values = values.to_native()
    values = as_native(values)
    labels = labels_along(values, 0)
    if is_frame(values) and _is_numbered(labels):
        names = column_names(values)
        if len(names) > 1 and not_numbers(values).get(names[0]) in LABELS:
            labels, values = _column(values, names[0]).tolist(), _taken(values, names[1:])
    elif labels is None:
        return values
    refusal = (
        f"`{name}` has the label {{}} for column {{}}, where `X` has {{}}, and not all labels are "
        f"the same. Use the labels of the columns, or pass `{name}.to_numpy()` if the order is "
        "that of `X`."
    )
    numbers = np.asarray(values)
    places = None if labels is None else _places(labels, columns(), refusal)
    return numbers if places is None else numbers[places]


def labels_along(values: Any, axis: Literal[0, 1]) -> list[Any] | None:
    """Return the labels along an axis of a data frame, Series or DataArray; of others None."""
    if is_frame(values) and axis == 1:
        return column_names(values)
    index = _index_along(values, axis)
    return None if index is None else list(index)


def check_row_order(weights: Any, source: Any) -> None:
    """Refuse weights that have the names of the rows in another order.

    They count by position, as in scikit-learn; of weights with other labels, or with none but the
    numbers of the rows, nothing else can be meant.
    """
    index = _index_along(weights, 0)
    names = None if index is None else source.traits.row_names()
    if names is None:
        return
    labels, names = np.asarray(index), np.asarray(names)
    if np.array_equal(labels, names) or np.array_equal(labels, np.arange(len(labels))):
        return
    if Counter(labels.tolist()) == Counter(names.tolist()):
        i = int(np.argmax(labels != names))
        raise ValueError(
            f"`sample_weight` has the label {str(labels[i])!r} for row {i + 1}, where `X` has "
            f"{str(names[i])!r}: the labels are the same in another order. Bring it into the order "
            "of `X`, or pass `sample_weight.to_numpy()` if it is."
        )


def _index_along(values: Any, axis: Literal[0, 1]) -> Any:
    """Return the index of pandas along an axis of a Series, data frame or DataArray, or None."""
    if type(values).__module__.split(".")[0] == "xarray" and hasattr(values, "ndim"):
        return values.indexes.get(values.dims[axis]) if values.ndim > axis else None
    index = getattr(values, "index", None)  # of lists and tuples, a method
    return None if axis or callable(index) or not hasattr(values, "shape") else index


def column_labels(source: Any) -> Any:
    """Return the labels of a source's columns: names, or what else a data frame has, or None."""
    names = source.traits.feature_names()
    if names is not None:
        return names
    labels = getattr(source, "column_names", None)
    # Files without a header have texts to call their columns by.
    named = labels is None or all(isinstance(label, str) for label in labels)
    return None if named else labels


def _places(labels: Any, known: Any, refusal: str) -> list[int] | None:
    """Return where the labels have those that are known, or None if they are in order already."""
    if labels is None or known is None:
        return None
    labels, known = (
        [str(label) if isinstance(label, str) else label for label in side]
        for side in (labels, known)
    )
    if labels == known or len(labels) != len(known):  # another length is refused as a shape
        return None
    place = {label: j for j, label in enumerate(labels)}
    if len(place) == len(labels) and place.keys() == set(known):
        return [place[label] for label in known]
    if _is_numbered(labels) or _is_numbered(known):
        return None
    j = next(j for j, pair in enumerate(zip(labels, known, strict=True)) if pair[0] != pair[1])
    raise ValueError(refusal.format(repr(labels[j]), j + 1, repr(known[j])))


def _is_numbered(labels: list[Any] | None) -> bool:
    """Whether labels only number the columns, as libraries do without names, or are missing."""
    if labels is None or all(isinstance(label, (int, float, np.number)) for label in labels):
        return True
    return any(
        labels == [f"{word}{j}" for j in range(first, first + len(labels))]
        for word in ("", "column_")
        for first in (0, 1)
    )
