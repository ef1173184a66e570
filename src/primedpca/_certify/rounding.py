"""Bounds on the rounding errors of products with the data, section 8 of docs/certificates.md."""

from __future__ import annotations

import math

from primedpca._operator.operator import Centred

__all__ = ["NEGLIGIBLE", "UNIT", "preparation_error", "rounding_of"]

#: Unit roundoff of float64, in which all proofs are made.
UNIT = 2.0**-53
#: Fraction of the total variance below which rounding may count a variance as zero.  Rounding
#: errors that are larger cannot tell a variance from zero, and prove nothing.
NEGLIGIBLE = 1e-9


def rounding_of(data: Centred, width: int, largest: float, skew: float = 0.0) -> float:
    """A bound ``e`` on the error of ``C U`` for ``width`` orthonormal columns, in float64.

    ``4 sqrt(p) (d + n_b + log2(blocks) + 10) u T + 2 theta_1 |U^T U - I| + (10 p + 64 sqrt(p))
    u theta_1`` with ``T`` the mean squared norm of the rows as they are multiplied: of sparse
    rows, before the mean is taken off; in the first pass, about a guess.  The 4 covers the
    products that take a block out of the span, the 64 what is dropped from each block as
    rounding.  :func:`preparation_error` adds what mean, scale and filled values are off by.
    """
    n, d = data.shape
    blocks = data.source.blocks
    longest = max(stop - start for start, stop in blocks)
    along, across = (longest, d) if data.source.axis == 0 else (n, longest)
    rows = _rows_as_multiplied(data)
    steps = along + across + d * (data.source.axis == 1) + math.log2(len(blocks)) + 10
    products = 4 * math.sqrt(width) * steps * UNIT * rows
    small = (10 * width + 64 * math.sqrt(width)) * UNIT * largest
    return products + 2 * largest * skew + small + preparation_error(data, largest)


def _rows_as_multiplied(data: Centred) -> float:
    """The mean squared norm of the rows before what cannot be subtracted from them is."""
    offset = data.frame.offset
    shifted = 0.0 if offset is None else float(data.wide(offset) @ data.wide(offset))
    return max(data.total + shifted, data.frame.first)


def preparation_error(data: Centred, largest: float) -> float:
    """A bound on the error of ``C`` because mean, scale and filled values are rounded.

    A mean that is off by ``delta`` everywhere adds ``delta delta^T``.  Columns that are scaled
    with a relative error ``s`` turn ``C`` into ``D C D`` with ``|D - I| <= s``.  Values that
    were filled with a rounded mean are off by ``delta`` in some rows and not in others, so that
    ``delta`` acts in first order.
    """
    delta, slip = data.frame.astray, data.frame.slip
    error = 2 * delta**2 + (2 + slip) * slip * largest
    if data.missing == "mean":
        error += 2 * math.sqrt(_rows_as_multiplied(data)) * delta
    return error
