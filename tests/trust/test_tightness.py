"""Bounds, decisions and estimates of standard fits are those recorded, neither looser nor tighter.

After a change that is meant to alter them: ``python tests/trust/tightness.py --write``.
"""

import pytest
from trust.tightness import cases, changed, recorded

KNOWN = recorded()


def test_every_case_is_recorded():
    assert list(cases()) == list(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_numbers_are_those_recorded(name):
    words = changed(name, KNOWN[name])
    remedy = "If this is meant, record anew: python tests/trust/tightness.py --write"
    assert not words, "\n".join([*words[:20], remedy])
