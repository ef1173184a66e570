"""Directions that the user supplies, an array or a function of the data, and checks of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from primedpca._core.arrays import (
    as_real,
    dtype_name,
    has_kernels,
    is_sparse,
    namespace,
    to_numpy,
)
from primedpca.priming.base import BasePriming
from primedpca.protocols import Array, Like, Operator, PrimingTraits
from primedpca.sources.memory.frames import aligned_rows, column_labels

__all__ = ["FromFunction", "Given"]

#: Largest deviation of products of columns from those of an orthonormal basis in float32.
CLOSE = 1e-3


class GivenState(NamedTuple):
    """Directions, ``None`` until they are known, and the number of directions wanted."""

    directions: Array | None
    n_directions: int


@dataclass(frozen=True, eq=False)
class Given(BasePriming):
    """Directions given as an array.

    Parameters
    ----------
    array : array or data frame of shape (d, q)
        Of any library.  Its rank must be at least the number of components wanted.  If both it
        and the data have labels of columns, they go by these.
    """

    array: Array

    visits: ClassVar[Literal["whole"]] = "whole"
    traits: ClassVar[PrimingTraits] = PrimingTraits(
        own_end=True, replayed=True, user_directions=True
    )

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> GivenState:
        """Return the directions in the library and dtype of the data."""
        return GivenState(check_directions(self.array, like), n_directions)

    def step(self, state: GivenState, data: Operator) -> GivenState:
        """Return the state unchanged."""
        return state

    def directions(self, state: GivenState, data: Operator) -> Array:
        """Return the directions."""
        return state.directions

    def finished(self, state: GivenState) -> bool:
        """Whether the directions are known."""
        return state.directions is not None

    def width(self) -> int | None:
        """Return the number of directions given."""
        _check_matrix(self.array)  # here, because a checkpoint keeps an array in another form
        return int(self.array.shape[-1])


@dataclass(frozen=True)
class FromFunction(Given):
    """Directions computed by a user's function, which is called once.

    Parameters
    ----------
    array : callable
        ``(X, n_directions) -> array of shape (d, q)``.  ``X`` is the array, sparse matrix or
        tensor of the fit (an array for a data frame), or the source if the data are not in memory.
    """

    array: Callable[[Any, int], Array]

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> GivenState:
        """Return an empty state."""
        return GivenState(None, n_directions)

    def step(self, state: GivenState, data: Operator) -> GivenState:
        """Call the function."""
        asked = {"n_directions": state.n_directions}
        # A checkpoint keeps the result as a whole: the function cannot be resumed halfway.
        found = data.engine.once("function", asked, lambda: self._call(state, data))
        data.count(1)  # an estimate: the library does not see how often the function reads
        return state._replace(directions=found)

    def width(self) -> int | None:
        """Return ``None``: the function is not called yet."""
        return None

    def _call(self, state: GivenState, data: Operator) -> Array:
        held = data.source.traits.array
        found = self.array(data.source if held is None else held, state.n_directions)
        found = aligned_rows(found, partial(column_labels, data.source), "priming")
        return check_directions(found, data.like)


def check_directions(directions: Any, like: Like) -> Array:
    """Return a user's directions in the library and dtype of the data, after checking them.

    Parameters
    ----------
    directions : array of shape (d, q)
        Array of any library.
    like : Like
        Library, device, dtype and number of features of the data.

    Raises
    ------
    ValueError
        If the shape does not fit the data or a value is not finite.
    """
    values = directions
    _check_matrix(values)
    if values.shape[0] != like.n_features or values.shape[1] == 0:
        turned = values.shape[1] == like.n_features
        hint = "Transpose them" if turned else "Pass one row for each feature"
        raise ValueError(
            f"directions have shape {tuple(values.shape)}, but `X` has {like.n_features} "
            f"features. {hint}."
        )
    kind = getattr(getattr(values, "dtype", None), "kind", "f")  # others have no `kind`
    if is_sparse(values) or np.ma.is_masked(values) or kind not in "biuf":
        values = as_real(values, "directions")
    if type(values).__module__.split(".")[0] != like.xp.__name__.split(".")[-1]:
        values = to_numpy(values)  # arrays of another library than the data's
    xp = namespace(values)
    if not bool(xp.all(xp.isfinite(values))):
        i, j = np.argwhere(~np.isfinite(to_numpy(values)))[0]
        raise ValueError(
            f"directions contain {values[i, j]} at index ({i}, {j}), counted from 0. Replace "
            "non-finite values."
        )
    if dtype_name(values.dtype) == "float64" and dtype_name(like.dtype) == "float32":
        # Only the span matters, and 1e300 would overflow in float32.
        peak = xp.max(xp.abs(values), axis=0)
        values = values / xp.where(peak > 0, peak, xp.ones_like(peak))
    return like.asarray(values)


def with_columns_of(priming: Any, labels: Callable[[], Any]) -> Any:
    """Return given directions as an array that a file can hold, in the order of the columns.

    Parameters
    ----------
    priming : str, Priming, callable or array of shape (d, q)
        All but directions, or a :class:`Given` of them, are returned unchanged.
    labels : callable
        Returns the labels of the columns of the data, or None.
    """
    if type(priming) is Given:
        return Given(with_columns_of(priming.array, labels))
    if not hasattr(priming, "shape") or callable(priming) or hasattr(priming, "visits"):
        return priming
    values = aligned_rows(priming, labels, "priming")
    plain = values.dtype.kind in "biuf" if type(values) is np.ndarray else has_kernels(values)
    return values if plain and not np.ma.is_masked(values) else as_real(values, "directions")


def check_change(change: Any, n_components: int) -> np.ndarray:
    """Return the remaining change that a user's priming estimates, after checking it.

    Parameters
    ----------
    change : array of shape (p,)
        Angles in radians; infinite or NaN where not known.
    n_components : int
        Number of directions whose change is needed.

    Raises
    ------
    ValueError
        If these are not as many angles, or one of them is negative.
    """
    angles = as_real(change, "change")
    if angles.ndim != 1 or angles.size < n_components or (angles < 0).any():
        found = f"an array of shape {angles.shape}"
        if angles.ndim == 1 and angles.size >= n_components:
            found = f"the angle {angles[angles < 0][0]:g}"
        raise ValueError(
            f"`change` of the priming returned {found}. Return one angle in radians, at least 0, "
            "for each direction."
        )
    return angles


def check_refined(found: Any, n_components: int, like: Like) -> tuple[Array, np.ndarray]:
    """Return the principal components of a span that a user's priming knows, after checking them.

    Parameters
    ----------
    found : (basis, variances)
        Orthonormal columns ``(d, p)``, and the variances ``(p,)`` along them.
    n_components : int
        Number of components that are needed.
    like : Like
        Library, device, dtype and number of features of the data.

    Raises
    ------
    ValueError
        If there are fewer, columns are not orthonormal, or a variance is not finite or negative.
    """
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise ValueError(
            f"`refined` of the priming returned a {type(found).__name__}. Return None, or the "
            "orthonormal basis and its variances."
        )
    basis, variances = check_directions(found[0], like), as_real(found[1], "variances")
    square = to_numpy(basis.T @ basis)
    off = float(np.abs(square - np.eye(len(square))).max())
    size = min(len(square), variances.size)
    sound = variances.ndim == 1 and ((variances >= 0) & (variances < np.inf)).all()
    if off > CLOSE or size < n_components or not sound:
        raise ValueError(
            f"`refined` of the priming returned {len(square)} columns whose products with each "
            f"other are up to {off:.1g} from those of an orthonormal basis, and variances "
            f"{variances}. Return at least `n_components`={n_components} orthonormal columns, and "
            "as many finite variances."
        )
    return basis, variances


def _check_matrix(directions: Any) -> None:
    """Raise ValueError unless directions are an array with two axes."""
    if not hasattr(directions, "shape") or len(directions.shape) != 2:
        raise ValueError(
            "directions must be an array of shape (n_features, n_directions), got "
            f"{getattr(directions, 'shape', type(directions).__name__)}."
        )
