"""The estimator's options: what they are by default, and what is out of range."""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from typing import Any

import numpy as np

from primedpca._core.units import as_bytes

__all__ = ["DEFAULTS", "as_bytes", "check_options", "is_proven"]

DEFAULTS: dict[str, Any] = {
    "priming": "auto",
    "extra_components": "auto",
    "tol": math.pi / 1024,
    "max_passes": 60,
    "batch_size": 1000,
    "center": True,
    "scale": None,
    "whiten": False,
    "missing": "error",
    "refine_share": 1.0,
    "certificate": "auto",
    "failure_probability": 1e-6,
    "device": None,
    "engine": None,
    "max_memory": None,
    "checkpoint": None,
    "warm_start": False,
    "random_state": None,
    "verbose": 0,
}

CERTIFICATES = ("auto", "none", "deterministic", "probabilistic")


def check_options(options: dict[str, Any]) -> None:
    """Refuse rather than ignore."""
    tol, share = options["tol"], options["refine_share"]
    if not (_is_number(tol) and 0 < tol < math.pi / 2):
        raise ValueError(f"`tol`={tol!r} must be an angle in radians, above 0 and below pi/2.")
    if not (_is_number(share) and 0 < share <= 1):
        raise ValueError(f"`refine_share`={share!r} must lie in (0, 1].")
    for name in ("max_passes", "batch_size"):
        value = options[name]
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"`{name}`={value!r} must be a whole number, at least 1.")
    kind, failure = options["certificate"], options["failure_probability"]
    if kind not in CERTIFICATES:
        raise ValueError(f"`certificate`={kind!r} must be one of {', '.join(CERTIFICATES)}.")
    if not (_is_number(failure) and 0 < failure < 1):
        raise ValueError(
            f"`failure_probability`={failure!r} must lie between 0 and 1, both excluded."
        )
    if kind in ("deterministic", "probabilistic") and share < 1:
        raise ValueError(
            f"`refine_share`={share} proves nothing and does not go with `certificate`={kind!r}; "
            "leave one of them at its default."
        )
    count = options["n_components"]
    if isinstance(count, (float, np.floating)) and (kind == "none" or share < 1):
        raise ValueError(
            f"`n_components`={count} asks for what must be proven; leave `certificate` and "
            "`refine_share` at their defaults."
        )
    as_bytes(options["max_memory"])
    for name in ("center", "whiten", "warm_start"):
        if not isinstance(options[name], (bool, np.bool_)):
            raise ValueError(f"`{name}`={options[name]!r} must be True or False.")
    folder = options["checkpoint"]
    if folder is not None and (not isinstance(folder, (str, os.PathLike)) or folder == ""):
        raise ValueError(f"`checkpoint`={folder!r} must be the path of a folder, or None.")


def is_proven(options: dict[str, Any]) -> bool:
    """Whether a certificate is made: always, unless declined or refined with a share of rows."""
    return bool(options["certificate"] != "none" and options["refine_share"] == 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
