"""Defaults of the members that most primings need not define."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from primedpca.protocols import Array, Operator, Priming, PrimingTraits

__all__ = ["BasePriming", "UserPriming"]


class BasePriming:
    """Base class of primings, with defaults for the optional members.

    A subclass defines ``visits``, ``init``, ``step`` and ``directions``, as
    :class:`primedpca.protocols.Priming` describes them.
    """

    traits: ClassVar[PrimingTraits] = PrimingTraits()

    def finished(self, state: Any) -> bool:
        """Return False: the run ends after the number of visits that the caller allows."""
        return False

    def change(self, state: Any) -> np.ndarray | None:
        """Return ``None``: the remaining change is not estimated."""
        return None

    def variances(self, state: Any) -> np.ndarray | None:
        """Return ``None``: the variances are not known before refining."""
        return None

    def refined(self, state: Any, data: Operator) -> tuple[Array, np.ndarray] | None:
        """Return ``None``: the directions are not refined yet."""
        return None

    def unsettled(self, state: Any) -> int | None:
        """Return ``None``: the algorithm does not limit the steps of one component."""
        return None

    def limited(self, max_passes: int) -> Any:
        """Return the same priming: it has no option that limits the number of steps."""
        return self

    def width(self) -> int | None:
        """Return ``None``: as many directions as are asked for."""
        return None

    def remedy(self, state: Any, data: Operator) -> str:
        """Return the end of the error message for a state that has diverged."""
        return "; its state is not finite."


class UserPriming(BasePriming):
    """Adapter that gives a user's object the optional members of a Priming.

    Parameters
    ----------
    priming : object
        Has ``visits``, ``init``, ``step`` and ``directions``; its own optional members are used
        in place of the defaults.
    """

    def __init__(self, priming: Any) -> None:
        self.priming = priming
        self.visits: Literal["whole", "batches", "rows"] = priming.visits
        self.init, self.step, self.directions = priming.init, priming.step, priming.directions
        for name in ("finished", "change", "refined", "variances", "unsettled"):
            if hasattr(priming, name):
                setattr(self, name, getattr(priming, name))
        # A priming of whole visits ends by itself only if it limits its own steps.
        ends = "max_steps" if self.visits == "whole" else "finished"
        self.traits = PrimingTraits(own_end=hasattr(priming, ends))  # type: ignore[misc]

    def limited(self, max_passes: int) -> UserPriming:
        """Return the same priming, with ``max_passes`` in place of a ``max_steps`` of ``None``."""
        if getattr(self.priming, "max_steps", 0) is not None:
            return self
        return UserPriming(replace(self.priming, max_steps=max_passes))

    def __repr__(self) -> str:
        return repr(self.priming)


def _is_priming(priming: UserPriming) -> Priming:
    """Let the type checker verify that the adapter has every member of the protocol."""
    return priming
