"""Validation of the fields of primings."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = ["check_choice", "check_count", "is_real"]


def is_real(value: Any) -> bool:
    """Whether ``value`` is a real number and not a boolean, which Python counts as one."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


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
    whole = isinstance(value, Integral) and is_real(value)
    if not whole or not 1 <= int(value) < 2**63:
        none = ", or None" if optional else ""
        raise ValueError(f"`{name}`={value!r} must be an integer of at least 1{none}.")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ValueError unless ``value`` is one of ``choices``."""
    if not isinstance(value, (str, bool, np.bool_)) or value not in choices:
        known = " or ".join(map(repr, choices))
        raise ValueError(f"`{name}`={value!r} must be {known}.")
