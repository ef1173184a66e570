"""The estimator's options: what is out of range, and what this version does not do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["check_options"]

CERTIFICATES = ("auto", "none", "deterministic", "probabilistic")
#: Options whose other values arrive with budgets and checkpoints.
NOT_YET = {
    "max_memory": (None,),
    "checkpoint": (None,),
}


def check_options(options: dict[str, Any]) -> None:
    """Refuse rather than ignore."""
    tol, share = options["tol"], options["refine_share"]
    if not (isinstance(tol, (int, float)) and 0 < tol < math.pi / 2):
        raise ValueError(f"`tol`={tol!r} must be an angle in radians, above 0 and below pi/2.")
    if not 0 < share <= 1:
        raise ValueError(f"`refine_share`={share} must lie in (0, 1].")
    kind, failure = options["certificate"], options["failure_probability"]
    if kind not in CERTIFICATES:
        raise ValueError(f"`certificate`={kind!r} must be one of {', '.join(CERTIFICATES)}.")
    if not 0 < failure < 1:
        raise ValueError(
            f"`failure_probability`={failure!r} must lie between 0 and 1, both excluded."
        )
    proven = kind in ("deterministic", "probabilistic")
    if proven and share < 1:
        raise ValueError(
            f"`refine_share`={share} proves nothing and does not go with `certificate`={kind!r}; "
            "leave one of them at its default."
        )
    if proven and isinstance(options["n_components"], str):
        raise ValueError(
            f"`n_components`={options['n_components']!r} does not go with `certificate`={kind!r}; "
            "give a whole number."
        )
    for name in ("center", "whiten", "warm_start"):
        if not isinstance(options[name], (bool, np.bool_)):
            raise ValueError(f"`{name}`={options[name]!r} must be True or False.")
    for name, allowed in NOT_YET.items():
        if options[name] not in allowed:
            raise ValueError(
                f"`{name}`={options[name]!r} is not available in this version of primedpca; "
                "leave it at its default."
            )
