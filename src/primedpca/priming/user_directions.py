"""Directions that the user supplies: an array, or a function of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from primedpca._core.arrays import dtype_name, namespace, to_numpy
from primedpca.priming.base import BasePriming
from primedpca.protocols import Array, Like, PrimingTraits

__all__ = ["FromFunction", "Given"]


class GivenState(NamedTuple):
    """The directions, once they are there, and how many were asked for."""

    directions: Array | None
    n_directions: int


@dataclass(frozen=True, eq=False)
class Given(BasePriming):
    """Directions taken as they are.

    Parameters
    ----------
    array : array of shape (d, q)
        Of any library; it must span as many dimensions as components are wanted.
    """

    array: Array

    visits: ClassVar[Literal["whole"]] = "whole"
    traits: ClassVar[PrimingTraits] = PrimingTraits(
        own_end=True, replayed=True, user_directions=True
    )

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> GivenState:
        """The directions, in the type of the data."""
        return GivenState(check_directions(self.array, like), n_directions)

    def step(self, state: GivenState, data: Any) -> GivenState:
        """Nothing is left to do."""
        return state

    def directions(self, state: GivenState, data: Any) -> Array:
        """The directions."""
        return state.directions

    def finished(self, state: GivenState) -> bool:
        """They were there from the start."""
        return state.directions is not None


@dataclass(frozen=True)
class FromFunction(Given):
    """A function ``(X, n_directions) -> (d, q)``, called once.

    ``X`` is the array, sparse matrix or tensor that was given (a frame arrives as an array),
    or the source itself where the data are not in memory.
    """

    array: Callable[[Any, int], Array]

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> GivenState:
        """Nothing yet."""
        return GivenState(None, n_directions)

    def step(self, state: GivenState, data: Any) -> GivenState:
        """Call the function."""
        asked = {"n_directions": state.n_directions}
        found = data.engine.once("function", asked, lambda: self._call(state, data))
        data.count(1)
        return state._replace(directions=found)

    def _call(self, state: GivenState, data: Any) -> Array:
        held = data.source.traits.array
        found = self.array(data.source if held is None else held, state.n_directions)
        return check_directions(found, data.like)


def check_directions(directions: Any, like: Like) -> Array:
    """Directions from outside as ``(d, q)`` finite numbers that fit the data."""
    values = directions
    if not hasattr(values, "shape") or len(values.shape) != 2:
        raise ValueError(
            "directions must be an array of shape (n_features, n_directions), got "
            f"{getattr(values, 'shape', type(values).__name__)}."
        )
    if values.shape[0] != like.n_features or values.shape[1] == 0:
        turned = values.shape[1] == like.n_features
        hint = "transpose them" if turned else "one row for each feature of `X` is needed"
        raise ValueError(
            f"directions have shape {tuple(values.shape)}, but `X` has {like.n_features} "
            f"features; {hint}."
        )
    if type(values).__module__.split(".")[0] != like.xp.__name__.split(".")[-1]:
        values = to_numpy(values)
    xp = namespace(values)
    if not bool(xp.all(xp.isfinite(values))):
        i, j = np.argwhere(~np.isfinite(to_numpy(values)))[0]
        raise ValueError(f"directions must be finite; entry ({i}, {j}) is {values[i, j]}.")
    if dtype_name(values.dtype) == "float64" and dtype_name(like.dtype) == "float32":
        peak = xp.max(xp.abs(values), axis=0)  # only the span counts, and 1e300 is no float32
        values = values / xp.where(peak > 0, peak, xp.ones_like(peak))
    return like.asarray(values)
