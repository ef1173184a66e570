"""The power method, one component at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

from primedpca._core.arrays import namespace
from primedpca._core.orthonormal import orthonormalise, random_basis
from primedpca.priming.base import BasePriming
from primedpca.priming.checks import check_count, is_real
from primedpca.protocols import Array, Like, PrimingTraits

__all__ = ["PowerMethod"]


class PowerState(NamedTuple):
    """Vectors ``(d, p)``: those before ``component`` are found, that one is being worked on."""

    vectors: Array
    component: int
    iteration: int
    unsettled: int


@dataclass(frozen=True)
class PowerMethod(BasePriming):
    r"""Repeat :math:`x \leftarrow M x / \|M x\|`, then the same beside what was found.

    After every step :math:`x` is made orthogonal to the components found before; a component
    ends at :math:`\|x_i - x_{i+1}\| < \varepsilon` (section 2.1 of the paper).

    Parameters
    ----------
    epsilon : float
        The :math:`\varepsilon` at which a component is taken as found.
    max_steps : int, optional
        The most steps for one component; ``None`` is the ``max_passes`` of whoever runs it.

    References
    ----------
    A. Sharma, K. Paliwal, "Fast principal component analysis using fixed-point algorithm", 2007.
    """

    epsilon: float = 1e-5
    max_steps: int | None = None

    visits: ClassVar[Literal["whole"]] = "whole"
    traits: ClassVar[PrimingTraits] = PrimingTraits(own_end=True)

    def __post_init__(self) -> None:
        if not (is_real(self.epsilon) and 0 < self.epsilon < 2):
            raise ValueError(f"`epsilon`={self.epsilon!r} must lie between 0 and 2.")
        check_count("max_steps", self.max_steps, optional=True)

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> PowerState:
        """Random orthonormal vectors, of which none is found."""
        return PowerState(random_basis(like, n_directions, seed, start), 0, 0, 0)

    def step(self, state: PowerState, data: Any) -> PowerState:
        """One multiplication with all the data."""
        vectors, j, iteration, unsettled = state
        xp = namespace(vectors)
        found, x = vectors[:, :j], vectors[:, j]
        new = data.covariance_product(x[:, None])[:, 0]
        size = float(xp.linalg.vector_norm(new))
        for _ in range(2):  # twice is enough
            new = new - found @ (found.T @ new)
        rest = float(xp.linalg.vector_norm(new))
        # Nothing but rounding is left beside what was found: x may stay as it is.
        exhausted = rest <= 8 * float(xp.finfo(new.dtype).eps) * size
        new = x if exhausted else new / rest
        moved = float(xp.linalg.vector_norm(new - x))
        settled = exhausted or moved < self.epsilon
        iteration += 1
        last = self.max_steps is not None and iteration >= self.max_steps
        vectors = xp.concat([found, new[:, None], vectors[:, j + 1 :]], axis=1)
        if not (settled or last):
            return PowerState(vectors, j, iteration, unsettled)
        if j + 1 < vectors.shape[1]:  # the next one starts beside what was found
            later = vectors[:, j + 1 :]
            for _ in range(2):
                later = later - vectors[:, : j + 1] @ (vectors[:, : j + 1].T @ later)
                later = orthonormalise(later)[0]
            vectors = xp.concat([vectors[:, : j + 1], later], axis=1)
        return PowerState(vectors, j + 1, 0, unsettled or (0 if settled else j + 1))

    def directions(self, state: PowerState, data: Any) -> Array:
        """What was found, and the one being worked on."""
        return state.vectors[:, : state.component + 1]

    def finished(self, state: PowerState) -> bool:
        """Whether every component is found or has used up its steps."""
        return state.component >= state.vectors.shape[1]

    def unsettled(self, state: PowerState) -> int:
        """First component, counted from 1, that used up its steps; 0 if none has."""
        return state.unsettled

    def limited(self, max_passes: int) -> PowerMethod:
        """The same, with at most ``max_passes`` steps a component if ``max_steps`` is ``None``."""
        return self if self.max_steps is not None else replace(self, max_steps=max_passes)
