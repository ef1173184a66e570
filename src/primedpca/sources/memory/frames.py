"""pandas and polars frames (and whatever else narwhals reads)."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca._core.arrays import check_whole_numbers
from primedpca.sources.base import MemorySource
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.sparse import SparseSource

__all__ = ["column_names", "frame_source", "is_frame"]


def is_frame(x: Any) -> bool:
    """Whether ``x`` is a data frame of a library that narwhals knows and that is loaded."""
    library = type(x).__module__.split(".")[0]
    return library in ("pandas", "polars", "pyarrow", "modin", "cudf") and hasattr(x, "columns")


def frame_source(x: Any) -> MemorySource:
    """Numbers of a data frame; every column must be numeric, and missing entries become NaN.

    A pandas frame of one dtype is read in place; other frames take one dense copy.  The names of
    the columns, where all are text, become the source's ``feature_names``.
    """
    source = _values_of(x)
    names = column_names(x)
    if all(isinstance(name, str) for name in names):
        source.feature_names = names
    return source


def column_names(x: Any) -> list[Any]:
    """Names of the columns of a data frame."""
    return list(getattr(x, "column_names", x.columns))  # pyarrow's `columns` are the data


def _values_of(x: Any) -> MemorySource:
    try:
        import narwhals.stable.v2 as nw
    except ImportError as error:
        raise ImportError(
            "Reading data frames needs narwhals: pip install 'primedpca[frames]'."
        ) from error
    sparse = [hasattr(dtype, "fill_value") for dtype in getattr(x, "dtypes", ())]
    if sparse and all(sparse):
        return SparseSource(x.sparse.to_coo())
    names = column_names(x)
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"`X` has {names.count(double)} columns named {double!r}. Rename them.")
    if any(sparse):  # pandas; the dense columns beside the sparse ones need a dense copy anyway
        x = x.astype({c: t.subtype for c, t in x.dtypes.items() if hasattr(t, "fill_value")})
    frame = nw.from_native(x, eager_only=True)
    text = [
        name
        for name, dtype in frame.schema.items()
        if not (dtype.is_numeric() or dtype == nw.Boolean)
    ]
    if text:
        first = ", ".join(repr(name) for name in text[:5]) + (" ..." if len(text) > 5 else "")
        raise ValueError(
            f"`X` has {len(text)} column(s) that do not hold numbers ({first}). Drop or encode "
            "them."
        )
    values = _numbers(frame.to_numpy(), frame)
    if values.dtype.kind == "f":
        for name, dtype in frame.schema.items():
            if dtype in (nw.Int64, nw.UInt64):
                check_whole_numbers(frame[name].drop_nulls().to_numpy(), f"column {name!r}")
    return DenseSource(values)


def _numbers(values: np.ndarray, frame: Any) -> np.ndarray:
    """Numbers of a frame whose nullable columns came as objects: floats, NaN where missing."""
    if values.dtype != object:
        return values
    columns = [frame[name].cast(_float64()).to_numpy().astype(np.float64) for name in frame.columns]
    return np.stack(columns, axis=1)


def _float64() -> Any:
    import narwhals.stable.v2 as nw

    return nw.Float64
