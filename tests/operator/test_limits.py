"""Limits and margins of the operator: a change of one is a decision, not an accident."""

import importlib
import sys

import numpy as np
import pytest

from primedpca._operator import scaling

LIMITS = {
    "kernels": {"PREPARED_BYTES": 6_291_456, "FAST": 900_000, "SHARED": 134_217_728, "MANY": 48}
    | {"ORDINARY": (1 / 1_048_576, 1_125_899_906_842_624.0)},
    "non_finite": {"SHOWN": 5},
    "preparation": {"NEAR": {"float32": (1.0, 1.0), "float64": (4.0, 16.0)}, "NEAR_ROWS": 64}
    | {"LITTLE": 32_768, "_KEPT_BYTES": 67_108_864},
    "statistics": {"FAR": 8.0, "POOR": 64.0, "UNIT": np.finfo(np.float64).epsneg, "GUESSED": 256}
    | {"LOOKS": 12}
    | {
        "SAFE": {
            "float32": (np.ldexp(1.0, -30), np.ldexp(1.0, 30), 120),
            "float64": (np.ldexp(1.0, -100), np.ldexp(1.0, 100), 1000),
        }
    },
    "wide_rows": {"HELD_BYTES": 2_147_483_648.0, "PIECE_BYTES": 67_108_864},
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_limits(name):
    module = importlib.import_module(f"primedpca._operator.{name}")
    assert {key: getattr(module, key) for key in LIMITS[name]} == LIMITS[name]


def test_intervals_grow_by_the_rounding_of_the_weight():
    """The slip is steps * 2^-53 * weight / (weight - 1); the upper bound grows by twice as much."""
    bounds = np.array([[1.0, 3.0], [0.0, 0.0], [0.0, 2.0]])
    least = np.finfo(np.float64).smallest_subnormal
    for steps, weight, slip in ((2.0**40, 2.0, 2.0**-12), (2.0**40, 1.5, 3 * 2.0**-13)):
        wanted = bounds * [1 - slip, 1 + 2 * slip] + np.where(
            bounds > 0, [-2 * least, 2 * least], 0
        )
        np.testing.assert_array_equal(scaling.grown(bounds, bounds, weight, steps), wanted)
    tiny = np.array([[least, least], [4 * least, 4 * least]])
    wanted = np.array([[0, 3], [2, 6]]) * least
    np.testing.assert_array_equal(scaling.grown(tiny, tiny, 9.0, 0), wanted)
    # From a slip of a half on, there is no upper bound, and from 1 on no lower one.
    for steps, low in ((2.0**51, 0.5), (2.0**52, 0.0), (2.0**53, 0.0)):
        found = scaling.grown(np.ones((1, 2)), np.ones((1, 2)), 2.0, steps)
        np.testing.assert_array_equal(found, [[low, sys.float_info.max]])
    below = np.nextafter(2.0**51, 0)
    assert scaling.grown(np.ones((1, 2)), np.ones((1, 2)), 2.0, below)[0, 1] < 2.1
