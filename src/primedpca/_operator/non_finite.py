"""Error messages that locate missing and non-finite values."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from primedpca._core.arrays import is_device_sparse, is_sparse, to_numpy
from primedpca._operator.preparation import positions
from primedpca.protocols import Array, Operator, is_spread

__all__ = ["check_present", "refuse"]

#: Maximum number of places that an error message names.
SHOWN = 5
TEXT_TABLE = re.compile(r"\.[ct]sv(\.gz)?: $", re.IGNORECASE)


def check_present(source: Any, there: Array) -> None:
    """Raise ValueError if every value of a column is missing.

    Parameters
    ----------
    source : DataSource
    there : array of shape (d,)
        Total weight of the values that are present in each column.
    """
    empty = np.flatnonzero(to_numpy(there) <= 0)
    if empty.size:
        names = source.traits.feature_names()
        remedy = "Remove them from the data"
        # A `map` takes whole rows.
        if names is not None and source.axis == 0:
            remedy = f"Use `exclude`={[str(names[j]) for j in empty[:SHOWN]]!r} of `as_source` if "
            remedy += "`X` is a table, or a `map` that returns the other columns"
        raise ValueError(
            f"`X` has {empty.size} column(s) in which every value is missing (first: "
            f"{_column(source, empty[0])}, counted from 0), so they have no mean. {remedy}."
        )


def _column(source: Any, j: int) -> str:
    """Describe a column by its index, counted from 0, and by its name if it has one."""
    names = source.traits.feature_names()
    return f"column {j}" + ("" if names is None else f" ({str(names[j])!r})")


def refuse(data: Operator, count: int, fillable: bool = True) -> None:
    """Raise ValueError that states the number of non-finite values and the first few places.

    Parameters
    ----------
    data : Operator
    count : int
        Number of non-finite values in all blocks.
    fillable : bool, default=True
        Whether ``missing="mean"`` would replace NaN.
    """
    source: Any = data.source
    found: list[tuple[int, int, str]] = []
    for i, block in source.scan():
        for row, column, value in _bad_entries(data, block, SHOWN - len(found)):
            start, rows = source.blocks[i][0], source.axis == 0
            kind = "NaN" if math.isnan(value) else "infinity"
            found.append((row + start * rows, column + start * (not rows), kind))
        if len(found) == min(SHOWN, count):
            break
    if is_spread(source):  # each process has scanned only its own blocks
        found = sorted({place for part in data.engine.collect(found) for place in part})[:SHOWN]
    row, column, kind = found[0]
    where = "row"
    if source.traits.shared is not None:
        where = "row {1} of rank {0}, row".format(*source.traits.shared.whose(row))
    then = ", ".join(str(place[:2]) for place in found[1:])
    more = (f", then at {then}" if then else "") + (" and so on" if len(found) < count else "")
    unfillable = not fillable or data.missing == "mean" or kind == "infinity"
    if kind == "infinity" and TEXT_TABLE.search(_file(source)):
        remedy = "Replace it, or use `na_values`='inf' and `missing`='mean'"
    elif data.missing == "unknown" and not unfillable:
        # Not zero, which is the mean that rows without centring subtract.
        remedy = "The model has no values to fill in. Fit it again with `missing`='mean'"
    elif unfillable:
        remedy = "Drop or replace it"
    else:
        remedy = "Use `missing`='mean', or drop or replace it"
    raise ValueError(
        f"{_file(source)}Input X contains {kind}: {count} non-finite value(s), the first at "
        f"{where} {row}, {_column(source, column)}{more} (rows and columns counted from 0). "
        f"{remedy}."
    )


def _file(source: Any) -> str:
    """Path of the file and a colon, if the source is a single file; else an empty string."""
    paths = source.traits.paths
    return f"{paths[0]}: " if len(paths) == 1 else ""


def _bad_entries(data: Operator, block: Any, most: int) -> list[tuple[int, int, float]]:
    """Return ``(row, column, value)`` of the first ``most`` non-finite entries of a block.

    Rows and columns are counted from 0 within the block.
    """
    block = block.host if is_device_sparse(block) else block
    with np.errstate(over="ignore"):
        wide = block.data.astype(np.float64) if is_sparse(block) else data.wide(block)
    values = to_numpy(wide)
    bad = np.isinf(values) if data.missing == "mean" else ~np.isfinite(values)
    if is_sparse(block):
        found = np.flatnonzero(bad)[:most]
        rows, columns = (part[found] for part in positions(block))
        kept = values[found]
    else:
        rows, columns = np.argwhere(bad)[:most].T
        kept = values[rows, columns]
    return list(zip(rows.tolist(), columns.tolist(), kept.tolist(), strict=True))
