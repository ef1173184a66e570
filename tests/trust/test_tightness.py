"""Bounds, decisions and estimates of standard fits are those recorded, neither looser nor tighter.

After a change that is meant to alter them: ``python tests/trust/tightness.py --write``.
"""

import numpy as np
import pytest
from trust.tightness import cases, changed, recorded

from primedpca._certify.bounds import Evidence, _tops, spectral_norm, topmost, tops_of
from primedpca._certify.checks import _root
from primedpca._certify.probes import _inverse

KNOWN = recorded()


def test_every_case_is_recorded():
    assert list(cases()) == list(KNOWN)


@pytest.mark.integration
@pytest.mark.parametrize("name", KNOWN)
def test_numbers_are_those_recorded(name):
    words = changed(name, KNOWN[name])
    remedy = "If this is meant, record anew: python tests/trust/tightness.py --write"
    assert not words, "\n".join([*words[:20], remedy])


@pytest.mark.parametrize(
    ("found", "true", "part"),
    [
        (lambda: spectral_norm(np.diag([3.0, 4.0])), 4.0, 1e-12),
        (lambda: spectral_norm(np.array([[3.0, 4.0]])), 5.0, 1e-12),
        (lambda: _inverse(1, 7.0), 7.0, 1e-12),
        (lambda: _inverse(2, 15.0), 3.0, 1e-12),  # 3 (2 * 3 - 1)
        (lambda: _root(np.array([-2.0, 1.0])), 2.0, 1e-8),
        (lambda: _root(np.array([-3.0, 2.0, 1.0])), 1.0, 1e-8),
        (lambda: tops_of(np.array([[[3.0]]]))[0], 3.0, 1e-9),
        (
            lambda: _tops(np.array([[2.0]]), np.ones((1, 1)), np.zeros((1, 1)))[0],
            4.0,
            1e-9,
        ),
    ],
)
def test_bounds_are_rounded_up_by_as_much_as_they_say(found, true, part):
    assert found() / true - 1 == pytest.approx(part, rel=0.05)


def test_the_top_of_a_matrix_of_two_is_found_to_a_few_digits():
    held = Evidence(np.array([2.0]), np.array([[1.0]]), 1.0, 0.0)
    top = (3 + np.sqrt(5)) / 2  # of [[2, 1], [1, 1]]
    assert top <= topmost(held) <= top * (1 + 1e-6)
    held = Evidence(np.array([2.0]), np.array([[1.0]]), 1.0, 0.25)
    top = np.linalg.eigvalsh([[2.0, 1.0], [1.0, 1.25]])[-1]
    assert top + 0.5 <= topmost(held) <= (top + 0.5) * (1 + 1e-6)
