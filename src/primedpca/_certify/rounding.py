"""Bounds on the rounding errors of products with the data (docs/certificates.md, section 8)."""

from __future__ import annotations

import math

from primedpca._operator.operator import Centred

__all__ = ["NEGLIGIBLE", "UNIT", "preparation_error", "rounding_of"]

#: Unit roundoff of float64, in which all proofs are made.
UNIT = 2.0**-53
#: Fraction of the total variance up to which a variance may count as zero.  If rounding errors are
#: larger than this, it is not proven whether a variance is zero, and none counts as zero.
NEGLIGIBLE = 1e-9


def rounding_of(data: Centred, width: int, largest: float, skew: float = 0.0) -> float:
    """Bound ``e`` on the error of ``C U`` for ``width`` orthonormal columns, in float64.

    ``4 sqrt(p) (d + n_b + log2(blocks) + 10) u T + 2 theta_1 |U^T U - I| + (10 p + 64 sqrt(p))
    u theta_1`` with ``p`` the width, ``n_b`` the rows of a block, ``u`` the unit roundoff, and
    ``T`` the mean squared norm of the rows as they are multiplied.  For sparse rows, ``T`` is taken
    before the mean is subtracted; in the first pass, it is relative to a guess of the mean.  The
    factor 4 covers the products that orthogonalise a block against the basis, the 64 the parts
    of each block that are dropped as rounding errors.  :func:`preparation_error` adds the errors
    of mean, scale and filled values.

    Parameters
    ----------
    data : Centred
    width : int
        Number of columns of ``U``.
    largest : float
        Upper bound on ``|C U|``.
    skew : float, default=0.0
        Upper bound on ``|U^T U - I|``.
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
    """Mean squared norm of the rows in the products, before the offset is subtracted."""
    offset = data.frame.offset
    shifted = 0.0 if offset is None else float(data.wide(offset) @ data.wide(offset))
    return max(data.total + shifted, data.frame.first)


def preparation_error(data: Centred, largest: float) -> float:
    """Bound on the error of ``C`` from the rounding of mean, scale and filled values.

    An error ``delta`` of the mean in all rows adds ``delta delta^T`` to ``C``.  Factors of the
    columns with a relative error ``s`` turn ``C`` into ``D C D`` with ``|D - I| <= s``.  Values
    filled with a rounded mean are off by ``delta`` in some rows only, so there ``delta`` enters in
    first order.
    """
    delta, slip = data.frame.astray, data.frame.slip
    error = 2 * delta**2 + (2 + slip) * slip * largest
    if data.missing == "mean":
        error += 2 * math.sqrt(_rows_as_multiplied(data)) * delta
    return error
