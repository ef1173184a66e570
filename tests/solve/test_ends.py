"""When a fit stops: rounding, and bounds that are just met."""

from types import SimpleNamespace

import numpy as np
import pytest

from primedpca._solve import audit
from primedpca._solve.driver import _Fit


def at_floor(changes, dtype=np.float64):
    like = SimpleNamespace(xp=np, dtype=dtype)
    rows = [{"change": change} for change in changes]
    return _Fit._at_floor(SimpleNamespace(history=rows, data=SimpleNamespace(like=like)))


def test_a_change_near_rounding_that_does_not_fall_is_the_floor():
    assert at_floor([1e-13] * 8)
    assert at_floor([1e-4] * 8, np.float32)
    assert not at_floor([1e-13] * 7)  # too few to tell
    assert not at_floor([1e-4] * 8)  # slow, but far above rounding
    assert not at_floor(list(1e-13 * 0.9 ** np.arange(12)))  # still falling


def test_the_rounding_of_an_angle_grows_with_the_vectors():
    assert audit._slip(1000, 5) > audit._slip(100, 5) >= 100 * 2.0**-52
    assert audit._slip(100, 50) > audit._slip(100, 5)


@pytest.mark.parametrize("k", [1, 4])
def test_the_angle_between_spans_is_never_too_small(k):
    """The exact angle of a rotation by 3, 4 and 5 in every plane, mixed by Householder vectors."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        a = np.eye(60)[:, :k]
        b = 0.6 * a + 0.8 * np.eye(60)[:, k : 2 * k]
        v = rng.normal(size=60)
        mix = np.eye(60) - 2 * np.outer(v, v) / (v @ v)
        turn = np.linalg.qr(rng.normal(size=(k, k)))[0]
        found = audit._between(mix @ a, mix @ b @ turn)
        exact = np.arctan2(4, 3)
        assert exact <= found < exact + 1e-12
