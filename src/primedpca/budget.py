"""Budgets of memory in words and numbers."""

from __future__ import annotations

import math
import re
from numbers import Real
from typing import Any

import numpy as np

__all__ = ["as_bytes"]

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def as_bytes(budget: Any, name: str = "max_memory") -> float:
    """A budget as a number of bytes: ``None`` is no limit, ``"2GB"`` and ``"500 MB"`` are words.

    ``name`` is the argument's, for the error message.
    """
    if budget is None:
        return math.inf
    found = budget
    if isinstance(budget, str):
        words = re.fullmatch(r"\s*(\d+|\d*\.\d+)\s*([KMGT]?B)\s*", budget.upper())
        found = float(words[1]) * UNITS[words[2]] if words else None
    number = isinstance(found, Real) and not isinstance(found, (bool, np.bool_))
    if not number or not found > 0:
        raise ValueError(
            f"`{name}`={budget!r} must be a number of bytes, or words such as '2GB' "
            f"(units: {', '.join(UNITS)})."
        )
    return float(found)
