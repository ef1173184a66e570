"""Ready-made functions for ``as_source(X, map=...)``: usual transforms of counts before PCA.

Each works on dense blocks of any library and on sparse blocks, which stay sparse because zero
stays zero.  Results are float32 for types that float32 holds exactly, else float64.
"""

from copy import copy
from dataclasses import dataclass

import numpy as np

from primedpca._core.arrays import is_sparse, namespace, work_dtype
from primedpca.protocols import Array, Block

__all__ = ["RowMap", "counts_per_million", "log1p", "log_cp10k", "log_cpm"]
__all__ += ["normalise_rows", "sqrt"]

#: Smallest argument of each function.
LEAST = {"log1p": -1, "sqrt": 0}


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

    def __call__(self, block: Block) -> Block:
        """A block of whole rows, mapped."""
        return self.apply(block, self.totals(block))

    def totals(self, block: Block) -> Array | None:
        """Totals of the rows of a block, ``(rows,)`` in float64; those of parts of rows add up."""
        if self.total == "none":
            return None
        values = _floats(block.data if is_sparse(block) else block, wide=True)
        values = values * values if self.total == "squares" else values
        if is_sparse(block):
            summed = copy(block)
            summed.data = values
            return summed.sum(axis=1)
        return namespace(values).sum(values, axis=1)

    def apply(self, block: Block, totals: Array | None) -> Block:
        """A block of whole rows or of columns, mapped, given the totals of its rows."""
        factors = None
        if totals is not None:
            xp = namespace(totals)
            size = xp.sqrt(totals) if self.total == "squares" else totals
            empty = size == 0
            factors = self.to / xp.where(empty, xp.full_like(size, self.to), size)
        if not is_sparse(block):
            return self._finished(block, None if factors is None else factors[:, None])
        mapped = copy(block)
        if factors is not None:
            major = np.repeat(np.arange(block.indptr.size - 1), np.diff(block.indptr))
            factors = factors[major if block.format == "csr" else block.indices]
        mapped.data = self._finished(block.data, factors)
        return mapped

    def _finished(self, values: Array, factors: Array | None) -> Array:
        out = _floats(values)
        xp = namespace(out)
        if factors is not None:
            out = out * xp.astype(factors, out.dtype, copy=False)
        if not self.then:
            return out
        # A NaN made here would pass for a missing value, and be filled silently.
        if bool(xp.any(below := out < LEAST[self.then])):
            value = f"{float(out[below][0]):.4g}, which is below {LEAST[self.then]}"
            words = f"cannot take {self.then} of {value}; choose another map, or drop such values."
            raise ValueError(f"`map`={self!r} {words}")
        return getattr(xp, self.then)(out)

    def __repr__(self) -> str:
        return f"maps.{self.name}"


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
