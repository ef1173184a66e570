"""Subspace iteration, the block form of the power method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from primedpca._core.arrays import namespace, to_numpy
from primedpca._core.orthonormal import orthonormalise, random_basis, small_eigh
from primedpca.priming.base import BasePriming
from primedpca.protocols import Array, Like, Operator, PrimingTraits

__all__ = ["SubspaceIteration"]


class SubspaceState(NamedTuple):
    """Basis ``(d, p)`` sorted by variance, Ritz values, change in radians, number of steps."""

    basis: Array
    variances: np.ndarray
    change: np.ndarray
    step: int


@dataclass(frozen=True)
class SubspaceIteration(BasePriming):
    r"""Subspace iteration: multiply a basis by the covariance and orthonormalise it.

    .. math:: Z = C V, \qquad V^T Z = W \Theta W^T, \qquad V \leftarrow \mathrm{orth}(Z W).

    The small eigenproblem takes no pass.  It sorts the directions and gives, for each Ritz vector
    :math:`u_i = V w_i`, the angle by which :math:`C` still rotates the vector,
    :math:`\arctan(\|C u_i - \theta_i u_i\| / \theta_i)`.

    References
    ----------
    H. Rutishauser, "Simultaneous iteration method for symmetric matrices", 1970.
    """

    visits: ClassVar[Literal["whole"]] = "whole"
    traits: ClassVar[PrimingTraits] = PrimingTraits(adaptive=True)

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> SubspaceState:
        """Return a random orthonormal basis."""
        basis = random_basis(like, n_directions, seed, start)
        return SubspaceState(basis, np.zeros(n_directions), np.full(n_directions, np.inf), 0)

    def step(self, state: SubspaceState, data: Operator) -> SubspaceState:
        """Multiply the basis with all the data."""
        v = state.basis
        xp = namespace(v)
        z = data.covariance_product(v)
        inside = to_numpy(v.T @ z).astype(np.float64)
        theta, w = small_eigh((inside + inside.T) / 2)  # symmetric only up to rounding
        turn = data.like.asarray(w)
        z = z @ turn
        # C u_i - theta_i u_i, in place: each of these arrays is as large as the basis.
        rest = v @ turn
        rest *= data.like.asarray(-theta)
        rest += z
        moved = to_numpy(xp.linalg.vector_norm(rest, axis=0)).astype(np.float64)
        # Below this length a residual is rounding: directions of zero variance have converged.
        floor = 32 * float(xp.finfo(v.dtype).eps) * theta[0]
        change = np.where(moved <= floor, 0.0, np.arctan2(moved, theta))
        # A QR decomposition may fail on non-finite values; the caller reports the divergence.
        basis = orthonormalise(z)[0] if bool(xp.all(xp.isfinite(z))) else z
        return SubspaceState(basis, theta, change, state.step + 1)

    def directions(self, state: SubspaceState, data: Operator) -> Array:
        """Return the basis, largest variance first."""
        return state.basis

    def change(self, state: SubspaceState) -> np.ndarray:
        """Return the angle in radians by which each direction still moves, ``(p,)``."""
        return state.change

    def variances(self, state: SubspaceState) -> np.ndarray:
        """Return the Ritz values of the last pass, ``(p,)``."""
        return state.variances
