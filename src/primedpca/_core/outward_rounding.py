"""Rounding of bounds: upper bounds are rounded up and intervals only grow.

``f"{0.0031499:.2g}"`` gives 0.0031, which is less than what was proven.  All code that prints a
bound uses these functions, and so does all code that turns a sine into an angle: near pi/2 that
conversion magnifies rounding.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["arcsin_up", "arcsines_up", "degrees_up", "round_down", "round_up"]

LAST_BITS = 2.0**-50  # relative error of a change of units
NEAR = 1e-6  # radians below pi/2 in which the last bits of a sine decide, so nothing is proven


def arcsin_up(sine: float) -> float:
    """Return an upper bound on the angle of a sine that may be wrong in its last bits.

    A sine of 1 or more gives pi/2.  The angle of ``1 - 2**-52`` is only 2e-8 below pi/2, so sines
    that close to 1 give pi/2 as well.

    Examples
    --------
    >>> arcsin_up(1 - 2**-52) == arcsin_up(2.0) == math.pi / 2, arcsin_up(0.5) >= math.pi / 6
    (True, True)
    """
    import numpy as np

    return float(arcsines_up(np.asarray(sine)))


def arcsines_up(sines: np.ndarray) -> np.ndarray:
    """Return :func:`arcsin_up` of an array of sines; NaN gives pi/2."""
    import numpy as np  # here, because the help of the command line must not load it

    # NumPy's arcsine may be off by four units in the last place, more than C's.
    angles = np.arcsin(np.minimum(sines * (1 + LAST_BITS), 1.0)) * (1 + 8 * LAST_BITS)
    return np.where(angles < math.pi / 2 - NEAR, angles, math.pi / 2)


def round_up(value: float, digits: int = 2) -> float:
    """Round up to ``digits`` significant digits.

    Formatting the result with as many digits (``.2g``, ``.1e``) does not round it again.

    Parameters
    ----------
    value : float
    digits : int, default=2

    Examples
    --------
    >>> round_up(0.0031499), round_up(0.1), round_up(12345.0, 4), round_up(0.0)
    (0.0032, 0.1, 12350.0, 0.0)
    """
    return _rounded(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 2) -> float:
    """Round down to ``digits`` significant digits, 2 by default."""
    return _rounded(value, digits, ROUND_FLOOR)


def degrees_up(radians: float, digits: int = 2) -> float:
    """Convert radians to degrees, rounded up to ``digits`` significant digits.

    The rounding error of the conversion itself does not push the result up.

    Examples
    --------
    >>> degrees_up(0.00035), degrees_up(math.radians(0.7)), degrees_up(math.pi / 500)
    (0.021, 0.7, 0.36)
    """
    degrees = math.degrees(radians)
    nearest = float(f"{degrees:.{digits - 1}e}")
    return nearest if degrees <= nearest * (1 + LAST_BITS) else round_up(degrees, digits)


def _rounded(value: float, digits: int, way: str) -> float:
    # repr is the shortest decimal of this float; the exact value of 0.1 would round up to 0.11.
    return float(Context(prec=digits, rounding=way).create_decimal(Decimal(repr(float(value)))))
