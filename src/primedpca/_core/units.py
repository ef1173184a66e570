"""Memory limits: parsing, and a check of square matrices against a limit."""

from __future__ import annotations

import math
import os
import re
import sys
from numbers import Real
from typing import Any

import numpy as np

__all__ = ["as_bytes", "check_square"]

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def as_bytes(budget: Any, name: str = "max_memory") -> float:
    """Return a memory limit in bytes.

    Parameters
    ----------
    budget : float, str or None
        Bytes, text such as ``"2GB"`` or ``"500 MB"`` (powers of 1000), or ``None`` for no limit.
    name : str, default="max_memory"
        Name of the argument, for the error message.
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
            f"`{name}`={budget!r} must be a positive number of bytes, or text such as '2GB' "
            f"(units: {', '.join(UNITS)})."
        )
    return math.inf if found > sys.float_info.max else float(found)


def check_square(d: int, budget: float) -> None:
    """Raise MemoryError if a square matrix of order ``d`` does not fit.

    Parameters
    ----------
    d : int
        Order of the matrix, in float64.
    budget : float
        Limit in bytes; infinite means a quarter of the machine's memory.
    """
    # Three such matrices exist at the peak: the product, its scaled copy and the result.
    needed, limit, source = 3 * 8.0 * d * d, budget, "`max_memory`"
    if budget == math.inf and hasattr(os, "sysconf"):
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 4
        source = "a quarter of the memory of this machine"
    if needed > limit:
        raise MemoryError(
            f"A matrix of {d} x {d} numbers takes {8 * d * d:,} bytes, and {needed / 1e9:.3g} GB "
            f"while it is computed, more than {source} ({limit / 1e9:.3g} GB). Use `components_`, "
            "`explained_variance_` and `noise_variance_`, which hold the same information, use "
            "`score_samples`, which does not form this matrix, or raise `max_memory`."
        )
