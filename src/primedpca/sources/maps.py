"""Ready-made functions for ``as_source(X, map=...)``: usual transforms of counts before PCA.

Each works on dense blocks of any library and on sparse blocks, which stay sparse because zero
stays zero.  Results are float32 for types that float32 holds exactly, else float64.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from primedpca._core.arrays import is_sparse, namespace, work_dtype
from primedpca.protocols import Array, Block

__all__ = ["RowMap", "counts_per_million", "log1p", "log_cp10k", "log_cpm"]
__all__ += ["normalise_rows", "sqrt"]

#: Smallest argument of each function.
LEAST = {"log1p": -1, "sqrt": 0}
Sizes: TypeAlias = tuple[Array | None, Array | None]


@dataclass(frozen=True)
class RowMap:
    """The function ``f(row * to / total(row))``, which keeps zero at zero.

    It can also be applied to blocks of columns, once the totals of whole rows are known.

    Attributes
    ----------
    name : str
    total : {"none", "sum", "squares"}
        Divide a row by nothing, by its sum, or by the root of its sum of squares.  Rows whose
        total is zero stay as they are.
    to : float, default=1.0
        The total of a row afterwards.
    then : {"", "log1p", "sqrt"}, default=""
        Function of the array library that is applied last.
    """

    name: str
    total: str = "none"
    to: float = 1.0
    then: str = ""

    @property
    def whole_rows(self) -> bool:
        """Whether an entry of the result depends on the other entries of its row."""
        return self.total != "none"

    def __call__(self, block: Block) -> Block:
        """A block of whole rows, mapped."""
        work = work_dtype(block.dtype)
        return self.apply(block, self.sizes(lambda unit: self.totals(block, unit), work))

    def totals(self, block: Block, unit: float = 1.0) -> Array | None:
        """Totals of the rows of a block, ``(rows,)`` in float64; those of parts of rows add up.

        Entries are multiplied by ``unit`` before they are squared or added.
        """
        if self.total == "none":
            return None
        values = _floats(block.data if is_sparse(block) else block, wide=True)
        values = values if unit == 1.0 else values * unit
        values = values * values if self.total == "squares" else values
        if is_sparse(block):
            summed = copy(block)
            summed.data = values
            return summed.sum(axis=1)
        return namespace(values).sum(values, axis=1)

    def sizes(self, totals: Callable[[float], Array | None], work: str) -> Sizes:
        """Divisors of the rows, and the units in which they are; both None without totals.

        Parameters
        ----------
        totals : callable
            Return the totals of whole rows for a unit.
        work : str
            Type of the results.  Rows whose size is near the ends of its range, where squares or
            reciprocals leave it, get another unit.
        """
        with np.errstate(over="ignore"):  # such rows get another unit
            return self._sizes(totals, work)

    def _sizes(self, totals: Callable[[float], Array | None], work: str) -> Sizes:
        found = self._size(totals(1.0))
        if found is None:
            return None, None
        xp, units, bits = namespace(found), None, 100 if work == "float32" else 480
        for sign in (-1, 1):
            beyond = found > 2.0**bits if sign < 0 else found < 2.0**-bits
            # Sums of nothing are exact; squares that are all zero may have underflowed.
            if self.total == "sum" or work == "float32":
                beyond = beyond & (found != 0)
            if bool(xp.any(beyond)):
                unit = 2.0 ** (sign * 5 * bits // 4)
                units = xp.ones_like(found) if units is None else units
                units = xp.where(beyond, xp.full_like(found, unit), units)
                found = xp.where(beyond, self._size(totals(unit)), found)
        if not bool(xp.all(xp.isfinite(found))):
            raise self._without_total(found)
        return found, units

    def _without_total(self, found: Array) -> ValueError:
        """Of a row with NaN or infinity, whose other entries would become NaN or 0."""
        bad = float(found[~namespace(found).isfinite(found)][0])
        return ValueError(
            f"`map`={self!r} cannot divide a row by its total {bad}. Drop or replace its missing "
            "or infinite values first; a fit without `map` says where they are."
        )

    def _size(self, totals: Array | None) -> Array | None:
        return namespace(totals).sqrt(totals) if self.total == "squares" else totals

    def apply(self, block: Block, sizes: Sizes) -> Block:
        """A block of whole rows or of columns, mapped, given the sizes of its rows."""
        size, units = sizes
        factors = None
        if size is not None:
            xp = namespace(size)
            factors = self.to / xp.where(size == 0, xp.full_like(size, self.to), size)
        if not is_sparse(block):
            across = [None if part is None else part[:, None] for part in (factors, units)]
            return self._finished(block, *across)
        mapped = copy(block)
        if factors is not None:
            major = np.repeat(np.arange(block.indptr.size - 1), np.diff(block.indptr))
            place = major if block.format == "csr" else block.indices
            factors, units = factors[place], None if units is None else units[place]
        mapped.data = self._finished(block.data, factors, units)
        return mapped

    def _finished(self, values: Array, factors: Array | None, units: Array | None) -> Array:
        out = _floats(values)
        xp = namespace(out)
        if self.total == "sum":  # of negative counts the sum may be negative, and flip all signs
            self._refuse_below(0, out, "scale")
        for factor in (units, factors):
            if factor is not None:
                out = out * xp.astype(factor, out.dtype, copy=False)
        if not self.then:
            return out
        # A NaN made here would pass for a missing value, and be filled silently.
        self._refuse_below(LEAST[self.then], out, f"take {self.then} of")
        return getattr(xp, self.then)(out)

    def _refuse_below(self, least: int, values: Array, what: str) -> None:
        if bool(namespace(values).any(below := values < least)):
            words = f"cannot {what} {float(values[below][0]):.4g}, which is below {least}"
            raise ValueError(f"`map`={self!r} {words}; choose another map, or drop such values.")

    def __repr__(self) -> str:
        return f"maps.{self.name}"


#: Between the name of a map and the number of columns whose totals it took, of which some are kept.
OF = " of "


def of_columns(name: str, count: int) -> str:
    """Return the name of a map that was applied to rows of so many columns before their choice."""
    inner, end = (name[:-1], ">") if name.startswith("<") else (name, "")
    return f"{inner}{OF}{count} columns{end}"


def base_name(name: str) -> str:
    """Return the name of a ready-made map without the number of columns.

    Examples
    --------
    >>> base_name("log_cp10k of 2000 columns")
    'log_cp10k'
    """
    return name if name.startswith("<") else name.partition(OF)[0]


def _floats(values: Array, wide: bool = False) -> Array:
    xp = namespace(values)
    name = "float64" if wide else work_dtype(values.dtype)
    return xp.astype(values, getattr(xp, name), copy=False)


#: log(1 + x)
log1p = RowMap("log1p", then="log1p")
#: The square root, which makes the variances of counts similar.
sqrt = RowMap("sqrt", then="sqrt")
#: Every row scaled to the sum 1,000,000.
counts_per_million = RowMap("counts_per_million", "sum", 1e6)
#: log(1 + counts per 10,000), the usual transform of single-cell counts.
log_cp10k = RowMap("log_cp10k", "sum", 1e4, "log1p")
#: log(1 + counts per million)
log_cpm = RowMap("log_cpm", "sum", 1e6, "log1p")
#: Every row scaled to unit length, as for cosine similarity.
normalise_rows = RowMap("normalise_rows", "squares")
