"""Defaults of the members that most primings need not define."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from primedpca.protocols import Array, Priming, PrimingTraits, State

__all__ = ["BasePriming", "UserPriming"]


class BasePriming:
    """Base class of primings: only ``visits``, ``init``, ``step`` and ``directions`` are left."""

    traits: ClassVar[PrimingTraits] = PrimingTraits()

    def finished(self, state: State) -> bool:
        """Never: the number of visits ends it."""
        return False

    def change(self, state: State) -> np.ndarray | None:
        """Not estimated."""
        return None

    def variances(self, state: State) -> np.ndarray | None:
        """Not known before refining."""
        return None

    def refined(self, state: State, data: Any) -> tuple[Array, np.ndarray] | None:
        """Not principal components of their own span: refining is still to be done."""
        return None

    def unsettled(self, state: State) -> int | None:
        """Not tracked."""
        return None

    def limited(self, max_passes: int) -> Any:
        """The same: it has no limit of its own that could be left open."""
        return self

    def remedy(self, state: State, data: Any) -> str:
        """Say what to try after this state has diverged."""
        return "; its state is not finite."


class UserPriming(BasePriming):
    """A user's object with the four required members of a Priming, and any of the others.

    Parameters
    ----------
    priming : object
    """

    def __init__(self, priming: Any) -> None:
        self.priming = priming
        self.visits: Literal["whole", "batches", "rows"] = priming.visits
        self.init, self.step, self.directions = priming.init, priming.step, priming.directions
        for name in ("finished", "change", "refined", "variances", "unsettled"):
            if hasattr(priming, name):
                setattr(self, name, getattr(priming, name))
        ends = "max_steps" if self.visits == "whole" else "finished"
        self.traits = PrimingTraits(own_end=hasattr(priming, ends))  # type: ignore[misc]

    def limited(self, max_passes: int) -> UserPriming:
        """The same, with at most ``max_passes`` steps where its ``max_steps`` is ``None``."""
        if getattr(self.priming, "max_steps", 0) is not None:
            return self
        return UserPriming(replace(self.priming, max_steps=max_passes))

    def __repr__(self) -> str:
        return repr(self.priming)


def _is_priming(priming: UserPriming) -> Priming:
    """For the type checker: the adapter has every member of the protocol."""
    return priming
