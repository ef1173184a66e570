"""EigenGame: principal components as the Nash equilibrium of a game on the sphere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from primedpca._core.arrays import namespace
from primedpca.priming.stochastic import Stochastic
from primedpca.protocols import Array

__all__ = ["EigenGame", "on_the_sphere", "tangent"]


@dataclass(frozen=True, kw_only=True)
class EigenGame(Stochastic):
    r"""EigenGame with all players in parallel, by gradient ascent (section 2.3 of the paper).

    Player :math:`j` has the utility

    .. math:: U_j = v_j^T C v_j - \sum_{i<j} \frac{(v_j^T C v_i)^2}{v_i^T C v_i}

    and the gradient

    .. math:: \nabla U_j = 2 C \Big(v_j - \sum_{i<j} \frac{v_i^T C v_j}{v_i^T C v_i} v_i\Big).

    For all players at once, with :math:`G = V^T C V`,

    .. math:: \nabla U = 2\, C V\, (I - N), \qquad N = \mathrm{striu}(\mathrm{diag}(G)^{-1} G):

    two products with the batch and one correction of order ``p``.  The gradient is projected onto
    the tangent space at each :math:`v_j`, and each vector is normalised after its step.

    Parameters
    ----------
    learning_rate : float or "auto", default="auto"
        Step size; ``"auto"`` is 0.1 divided by the largest variance of the first batch.
    steps : int, default=1000
        Number of mini-batches to visit.
    momentum : float, default=0.9
        Nesterov momentum, in [0, 1).
    schedule : {"constant", "1/t"}, default="constant"
        Decay of the step size; see :class:`~primedpca.priming.stochastic.Stochastic`.

    References
    ----------
    I. Gemp, B. McWilliams, C. Vernade, T. Graepel, "EigenGame: PCA as a Nash equilibrium", 2020.
    """

    replays: ClassVar[bool] = True

    def ascent(self, v: Array, z: Array, g: Array) -> Array:
        """Return ``2 C V (I - N)``, tangent to the sphere."""
        xp = namespace(v)
        own = xp.linalg.diagonal(g)
        # A direction without variance has zeros in its row of G: dividing them by 1 leaves zeros.
        own = xp.where(own > 0, own, xp.ones_like(own))
        return tangent(v, 2 * (z - z @ xp.triu(g / own[..., None], k=1)))

    def keep(self, v: Array) -> Array:
        """Return the vectors at unit length."""
        return on_the_sphere(v)


def tangent(v: Array, g: Array) -> Array:
    """Project each column of ``g`` onto the tangent space at ``v`` (the Riemannian gradient)."""
    return g - v * namespace(v).sum(v * g, axis=-2, keepdims=True)


def on_the_sphere(v: Array) -> Array:
    """Return every column at unit length."""
    return v / namespace(v).linalg.vector_norm(v, axis=-2, keepdims=True)
