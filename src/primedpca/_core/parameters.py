"""Parameters of the estimator: their defaults, and checks of their values and of other options."""

from __future__ import annotations

import math
import os
import secrets
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.units import as_bytes

__all__ = [
    *("DEFAULT", "DEFAULTS", "as_seed", "check_choice", "check_count", "check_device"),
    *("check_options",),
    *("is_proven", "is_real", "is_whole"),
]


class Parameters(NamedTuple):
    """Parameters of the estimator besides ``n_components``, and their defaults."""

    priming: Any = "auto"
    extra_components: Any = "auto"
    tol: float = math.pi / 1024
    max_passes: int = 100
    batch_size: int = 1000
    center: bool = True
    scale: Any = None
    whiten: bool = False
    missing: str = "error"
    refine_share: float = 1.0
    certificate: str = "auto"
    failure_probability: float = 1e-6
    device: Any = None
    engine: Any = None
    max_memory: Any = None
    checkpoint: Any = None
    warm_start: bool = False
    random_state: Any = None
    verbose: Any = 0


DEFAULT = Parameters()
#: The defaults by name.
DEFAULTS: dict[str, Any] = DEFAULT._asdict()

CERTIFICATES = ("auto", "none", "deterministic", "probabilistic")


def check_device(device: Any) -> None:
    """Refuse the device of PyTorch that holds no numbers."""
    if str(device) == "meta":
        raise ValueError("`device`='meta' holds shapes but no numbers. Use 'cpu' or 'cuda'.")


def check_options(options: dict[str, Any]) -> None:
    """Validate the values of the estimator's parameters; raise ValueError for an invalid one."""
    tol, share = options["tol"], options["refine_share"]
    if not (is_real(tol) and 0 < tol < math.pi / 2):
        raise ValueError(f"`tol`={tol!r} must be an angle in radians, above 0 and below pi/2.")
    if not (is_real(share) and 0 < share <= 1):
        raise ValueError(f"`refine_share`={share!r} must be a number above 0 and at most 1.")
    for name in ("max_passes", "batch_size"):
        if not is_whole(options[name]) or options[name] < 1:
            raise ValueError(f"`{name}`={options[name]!r} must be an integer of at least 1.")
    kind, failure = options["certificate"], options["failure_probability"]
    if kind not in CERTIFICATES:
        raise ValueError(f"`certificate`={kind!r} must be one of {', '.join(CERTIFICATES)}.")
    if not (is_real(failure) and 0 < failure < 1):
        raise ValueError(f"`failure_probability`={failure!r} must be a number above 0 and below 1.")
    if kind in ("deterministic", "probabilistic") and share < 1:
        raise ValueError(
            f"`refine_share`={share} allows no certificate, but `certificate`={kind!r} requires "
            "one. Leave one of them at its default."
        )
    count = options["n_components"]
    if isinstance(count, (float, np.floating)) and (kind == "none" or share < 1):
        raise ValueError(
            f"`n_components`={count}, a fraction of the variance, requires a certificate. Leave "
            "`certificate` and `refine_share` at their defaults."
        )
    if options["max_memory"] is not None:
        as_bytes(options["max_memory"])
    for name in ("center", "whiten", "warm_start"):
        if not isinstance(options[name], (bool, np.bool_)):
            raise ValueError(f"`{name}`={options[name]!r} must be True or False.")
    if options["device"] is not None:
        check_device(options["device"])
    verbose = options["verbose"]
    if not (callable(verbose) or isinstance(verbose, (bool, np.bool_, Integral))):
        raise ValueError(f"`verbose`={verbose!r} must be 0, 1 or a function.")
    folder = options["checkpoint"]
    if folder is not None and (not isinstance(folder, (str, os.PathLike)) or folder == ""):
        raise ValueError(f"`checkpoint`={folder!r} must be the path of a folder, or None.")


def check_is_path(path: Any, name: str = "path") -> None:
    """Raise TypeError for an argument that is not the path of a file."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"`{name}`={path!r} must be the path of a file.")


def as_seed(random_state: Any) -> int:
    """Return an integer seed for the estimator's parameter ``random_state``.

    Parameters
    ----------
    random_state : int, RandomState, Generator or None
        As in scikit-learn and NumPy; ``None`` draws a seed from the system.
    """
    if random_state is None:
        return secrets.randbits(32)
    if isinstance(random_state, (int, np.integer)):
        if random_state < 0:
            raise ValueError(f"`random_state`={random_state} is negative. Use 0 or more.")
        return int(random_state)
    draw = getattr(random_state, "integers", None) or getattr(random_state, "randint", None)
    if draw is None:
        raise ValueError(
            f"`random_state`={random_state!r} must be an integer, a NumPy RandomState or "
            "Generator, or None."
        )
    return int(draw(2**31))


def is_proven(options: dict[str, Any]) -> bool:
    """Whether a certificate is made: unless it is "none" or refining uses a sample of the rows."""
    return bool(options["certificate"] != "none" and options["refine_share"] == 1)


def is_real(value: Any) -> bool:
    """Whether ``value`` is a real number and not a boolean, which Python counts as one."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def is_whole(value: Any) -> bool:
    """Whether ``value`` is an integer and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_count(name: str, value: Any, *, optional: bool = False) -> None:
    """Raise ValueError unless ``value`` is an integer from 1 to ``2**63 - 1``.

    Parameters
    ----------
    name : str
        Name of the field, for the message.
    value : object
    optional : bool, default=False
        Whether ``None`` is valid as well.
    """
    if optional and value is None:
        return
    if not is_whole(value) or not 1 <= int(value) < 2**63:
        none = ", or None" if optional else ""
        raise ValueError(f"`{name}`={value!r} must be an integer of at least 1{none}.")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ValueError unless ``value`` is one of ``choices``."""
    if not isinstance(value, (str, bool, np.bool_)) or value not in choices:
        known = " or ".join(map(repr, choices))
        raise ValueError(f"`{name}`={value!r} must be {known}.")
