"""pandas and polars frames (and whatever else narwhals reads)."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca._core.arrays import check_whole_numbers
from primedpca.sources.base import MemorySource, needed
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.sparse import SparseSource


def is_frame(x: Any) -> bool:
    """Whether ``x`` is a data frame of a library that narwhals knows and that is loaded."""
    library = type(x).__module__.split(".")[0]
    return library in ("pandas", "polars", "pyarrow", "modin", "cudf") and hasattr(x, "columns")


def frame_source(x: Any) -> MemorySource:
    """Numbers of a data frame; every column must be numeric, and missing entries become NaN.

    A pandas frame of one dtype is read in place; other frames take one dense copy.  The names of
    the columns, where all are text, become the source's ``feature_names``.
    """
    names = column_names(x)
    sparse = [hasattr(dtype, "fill_value") for dtype in getattr(x, "dtypes", ())]
    if sparse and all(sparse):
        source: MemorySource = SparseSource(x.sparse.to_coo())
    else:
        source = DenseSource(_values_of(x, names, any(sparse)))
    if all(isinstance(name, str) for name in names):
        source.feature_names = names
    return source


def column_names(x: Any) -> list[Any]:
    """Names of the columns of a data frame."""
    return list(getattr(x, "column_names", x.columns))  # pyarrow's `columns` are the data


def _values_of(x: Any, names: list[Any], partly_sparse: bool) -> np.ndarray:
    nw = needed("narwhals.stable.v2", "Reading data frames", "frames")
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"`X` has {names.count(double)} columns named {double!r}. Rename them.")
    if partly_sparse:  # pandas; the dense columns beside the sparse ones need a copy anyway
        x = x.astype({c: t.subtype for c, t in x.dtypes.items() if hasattr(t, "fill_value")})
    frame = nw.from_native(x, eager_only=True)
    kinds = frame.schema.items()
    text = [repr(name) for name, kind in kinds if not (kind.is_numeric() or kind == nw.Boolean)]
    if text:
        first = ", ".join(text[:5]) + (" ..." if len(text) > 5 else "")
        words = f"column(s) that do not hold numbers ({first}). Drop or encode them."
        raise ValueError(f"`X` has {len(text)} {words}")
    values: np.ndarray = frame.to_numpy()
    if values.dtype == object:  # nullable columns: floats, NaN where missing
        columns = (frame[name].cast(nw.Float64).to_numpy() for name in frame.columns)
        values = np.stack([column.astype(np.float64) for column in columns], axis=1)
    if values.dtype.kind == "f":
        for name, kind in kinds:
            if kind in (nw.Int64, nw.UInt64):
                check_whole_numbers(frame[name].drop_nulls().to_numpy(), f"column {name!r}")
    return values
