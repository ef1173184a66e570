"""Numbers that are claimed: rounded up, or outwards, and never by more than a digit."""

import math

import numpy as np
import pytest

from primedpca._core.outward_rounding import (
    arcsin_up,
    arcsines_up,
    degrees_up,
    round_down,
    round_up,
)

RNG = np.random.default_rng(0)
VALUES = [*10.0 ** RNG.uniform(-15, 15, 200), 0.1, 0.3, 1e-6, 99.5, 1 / 3]


@pytest.mark.parametrize("digits", [1, 2, 4, 6])
def test_what_is_printed_is_not_below_nor_above(digits):
    for value in [*VALUES, *(np.nextafter(v, w) for v in (0.1, 2.0) for w in (0, 9))]:
        above = float(f"{round_up(value, digits):.{digits}g}")
        below = float(f"{round_down(value, digits):.{digits}g}")
        unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
        assert below <= value <= above
        assert above - below <= unit * (1 + 1e-9)


def test_decimals_stay_as_they_are():
    assert [round_up(v) for v in (0.1, 0.3, 1e-6, 0.0, 42.0)] == [0.1, 0.3, 1e-6, 0.0, 42.0]
    assert round_up(math.inf, 4) == math.inf
    assert round_down(0.0, 4) == 0.0
    assert math.isnan(round_up(math.nan))


def test_degrees_are_those_that_were_asked_for():
    for tenths in range(1, 900):
        asked = tenths / 10
        assert degrees_up(math.radians(asked), 3) == asked
    for parts in range(3, 2000):  # pi/500 is 0.36
        said = degrees_up(math.pi / parts, 3)
        assert said in (round(180 / parts, 12), round_up(180 / parts, 3))
    for radians in 10.0 ** RNG.uniform(-12, 0.19, 200):
        assert math.degrees(radians) <= degrees_up(radians) <= 1.11 * math.degrees(radians)


def test_angles_near_a_right_one_are_right_ones():
    half = math.pi / 2
    for ulps in range(2000):
        assert arcsin_up(1 - ulps * 2.0**-53) == half
    assert arcsin_up(1.0) == arcsin_up(7.0) == arcsin_up(math.inf) == arcsin_up(math.nan) == half
    for sine in (0.0, 1e-300, 1e-9, 0.3, 0.999, 1 - 1e-9):
        assert math.asin(sine) <= arcsin_up(sine) <= math.asin(sine) + 1e-10
        assert arcsines_up(np.array([sine, 2.0])).tolist() == [arcsin_up(sine), half]
