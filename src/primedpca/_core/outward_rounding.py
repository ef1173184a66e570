"""Numbers that are claimed: a bound is rounded up, an interval only grows.

``f"{0.0031499:.2g}"`` reads 0.0031, which is less than what was proven.  Everything that prints a
bound goes through here, and so do angles near pi/2, where rounding is magnified.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["arcsin_up", "arctan_up", "degrees_up", "round_down", "round_up"]

LAST_BITS = 2.0**-50  # what a change of units is off by
NEAR = 1e-6  # radians from pi/2 in which a sine hangs on its last bits, and nothing is proven


def arcsin_up(sine: float) -> float:
    """At least the angle of a sine that is right to its last bits; pi/2 from 1 on.

    The angle of ``1 - 2**-52`` is 2e-8 below pi/2: so near to it, pi/2 is all that can be said.

    Examples
    --------
    >>> arcsin_up(1 - 2**-52) == arcsin_up(2.0) == math.pi / 2, arcsin_up(0.5) >= math.pi / 6
    (True, True)
    """
    sine *= 1 + LAST_BITS
    return _angle_up(math.asin(sine)) if sine < 1 else math.pi / 2


def arctan_up(tangent: float) -> float:
    """At least the angle of a tangent that is right to its last bits."""
    return _angle_up(math.atan(tangent * (1 + LAST_BITS)))


def _angle_up(angle: float) -> float:
    angle *= 1 + LAST_BITS
    return angle if angle < math.pi / 2 - NEAR else math.pi / 2


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
