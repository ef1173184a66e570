"""Power method, one component at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

from primedpca._core.arrays import namespace
from primedpca._core.orthonormal import orthonormalise, random_basis
from primedpca._core.parameters import check_count, is_real
from primedpca.priming.base import BasePriming
from primedpca.protocols import Array, Like, Operator, PrimingTraits

__all__ = ["PowerMethod"]


class PowerState(NamedTuple):
    """State of the iteration.

    Attributes
    ----------
    vectors : array of shape (d, p)
        Orthonormal; columns before ``component`` have converged or used up their steps.
    component : int
        Index, from 0, of the component that is being iterated.
    iteration : int
        Steps made on this component.
    unsettled : int
        First component, counted from 1, that used up its steps; 0 if none has.
    """

    vectors: Array
    component: int
    iteration: int
    unsettled: int


@dataclass(frozen=True)
class PowerMethod(BasePriming):
    r"""Power method with deflation: :math:`x \leftarrow C x / \|C x\|`, one component at a time.

    After every step :math:`x` is made orthogonal to the earlier components.  A component has
    converged when :math:`\|x_i - x_{i+1}\| < \varepsilon` (section 2.1 of the paper).

    Parameters
    ----------
    epsilon : float, default=1e-5
        Tolerance :math:`\varepsilon`, between 0 and 2: the length by which one step may still
        change a unit vector.  A smaller value takes more steps.  A fit without a certificate
        counts as converged only if it is at most the ``tol`` of the fit.
    max_steps : int or None, default=None
        Maximum number of steps for one component.  ``None`` means the ``max_passes`` of the fit.

    References
    ----------
    A. Sharma, K. Paliwal, "Fast principal component analysis using fixed-point algorithm", 2007.
    """

    epsilon: float = 1e-5
    max_steps: int | None = None

    visits: ClassVar[Literal["whole"]] = "whole"

    @property
    def traits(self) -> PrimingTraits:  # type: ignore[override]
        """It ends by itself, as soon as steps change vectors by less than ``epsilon``."""
        return PrimingTraits(own_end=True, tolerance=self.epsilon)

    def __post_init__(self) -> None:
        if not (is_real(self.epsilon) and 0 < self.epsilon < 2):
            raise ValueError(f"`epsilon`={self.epsilon!r} must be a number between 0 and 2.")
        check_count("max_steps", self.max_steps, optional=True)

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> PowerState:
        """Return random orthonormal vectors."""
        return PowerState(random_basis(like, n_directions, seed, start), 0, 0, 0)

    def step(self, state: PowerState, data: Operator) -> PowerState:
        """Multiply the current vector with all the data."""
        vectors, j, iteration, unsettled = state
        xp = namespace(vectors)
        found, x = vectors[:, :j], vectors[:, j]
        new = data.covariance_product(x[:, None])[:, 0]
        # Length before the projection: rounding of the product is relative to it.
        size = float(xp.linalg.vector_norm(new))
        for _ in range(2):  # Gram-Schmidt twice leaves no more than rounding along `found`
            new = new - found @ (found.T @ new)
        rest = float(xp.linalg.vector_norm(new))
        # Only rounding is left outside the earlier components (zero variance): keep x.
        exhausted = rest <= 8 * float(xp.finfo(new.dtype).eps) * size
        new = x if exhausted else new / rest
        moved = float(xp.linalg.vector_norm(new - x))
        settled = exhausted or moved < self.epsilon
        iteration += 1
        last = self.max_steps is not None and iteration >= self.max_steps
        vectors = xp.concat([found, new[:, None], vectors[:, j + 1 :]], axis=1)
        if not (settled or last):
            return PowerState(vectors, j, iteration, unsettled)
        if j + 1 < vectors.shape[1]:  # later components start orthogonal to those found
            later = vectors[:, j + 1 :]
            for _ in range(2):
                later = later - vectors[:, : j + 1] @ (vectors[:, : j + 1].T @ later)
                later = orthonormalise(later)[0]
            vectors = xp.concat([vectors[:, : j + 1], later], axis=1)
        return PowerState(vectors, j + 1, 0, unsettled or (0 if settled else j + 1))

    def directions(self, state: PowerState, data: Operator) -> Array:
        """Return the components found and the one that is being iterated."""
        return state.vectors[:, : state.component + 1]

    def finished(self, state: PowerState) -> bool:
        """Whether every component has converged or used up its steps."""
        count: int = state.vectors.shape[1]
        return state.component >= count

    def unsettled(self, state: PowerState) -> int:
        """Return the first component, counted from 1, that used up its steps; 0 if none has."""
        return state.unsettled

    def limited(self, max_passes: int) -> PowerMethod:
        """Return the same priming, with ``max_passes`` in place of a ``max_steps`` of ``None``."""
        return self if self.max_steps is not None else replace(self, max_steps=max_passes)
