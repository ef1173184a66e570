"""The estimator's options: what is out of range, and what this version does not do."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["check_options"]

#: Options whose other values arrive with certificates, budgets and checkpoints.
NOT_YET = {
    "certificate": ("auto", "none"),
    "failure_probability": (1e-6,),
    "max_memory": (None,),
    "checkpoint": (None,),
}


def check_options(options: dict[str, Any]) -> None:
    """Refuse rather than ignore."""
    tol, share = options["tol"], options["refine_share"]
    if not (isinstance(tol, (int, float)) and 0 < tol < math.pi / 2):
        raise ValueError(f"`tol`={tol!r} must be an angle between 0 and pi/2 radians.")
    if not 0 < share <= 1:
        raise ValueError(f"`refine_share`={share} must lie in (0, 1].")
    for name, allowed in NOT_YET.items():
        if options[name] not in allowed:
            raise ValueError(
                f"`{name}`={options[name]!r} is not available in this version of primedpca; "
                "leave it at its default."
            )
