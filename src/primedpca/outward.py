"""Numbers that are claimed, as people read them: a bound is rounded up, an interval only grows.

``f"{0.0031499:.2g}"`` reads 0.0031, which is less than what was proven.  Everything that prints a
bound goes through here.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["degrees_up", "round_down", "round_up"]

LAST_BITS = 2.0**-50  # what a change of units is off by


def round_up(value: float, digits: int = 2) -> float:
    """The least number of so many significant digits that is not below ``value``.

    Formatted with as many digits (``.2g``, ``.1e``), it is printed as it is.

    Examples
    --------
    >>> round_up(0.0031499), round_up(0.1), round_up(12345.0, 4), round_up(0.0)
    (0.0032, 0.1, 12350.0, 0.0)
    """
    return _rounded(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 2) -> float:
    """The largest number of so many significant digits that is not above ``value``."""
    return _rounded(value, digits, ROUND_FLOOR)


def degrees_up(radians: float, digits: int = 2) -> float:
    """An angle in degrees, rounded up; what only the change of units put there does not count.

    Examples
    --------
    >>> degrees_up(0.00035), degrees_up(math.radians(0.7)), degrees_up(math.pi / 500)
    (0.021, 0.7, 0.36)
    """
    degrees = math.degrees(radians)
    nearest = float(f"{degrees:.{digits - 1}e}")
    return nearest if degrees <= nearest * (1 + LAST_BITS) else round_up(degrees, digits)


def _rounded(value: float, digits: int, way: str) -> float:
    # The shortest decimal that is this float, so that 0.1 is not above itself.
    return float(Context(prec=digits, rounding=way).create_decimal(Decimal(repr(float(value)))))
