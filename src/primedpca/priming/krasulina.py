"""Matrix Krasulina: stochastic updates of a whole subspace."""

from __future__ import annotations

from dataclasses import dataclass

from primedpca._core.orthonormal import orthonormalise
from primedpca.priming.stochastic import Stochastic
from primedpca.protocols import Array

__all__ = ["Krasulina"]


@dataclass(frozen=True, kw_only=True)
class Krasulina(Stochastic):
    r"""Krasulina's rule for a whole subspace.

    Each row :math:`x` of a batch moves the basis towards the residual of the row; the batch moves
    it by the average:

    .. math:: \Delta V = \alpha\, (x - V V^T x)(V^T x)^T, \qquad
              \Delta V = \alpha\, (I - V V^T)\, C V.

    Then ``V`` is orthonormalised.  The algorithm finds the span without ordering the directions;
    refining does that.

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
    C. Tang, "Exponentially convergent stochastic k-PCA without variance reduction", 2019.
    """

    def ascent(self, v: Array, z: Array, g: Array) -> Array:
        """Return ``(I - V V^T) C V``."""
        # Z - V G is the projection (I - V V^T) Z because V is orthonormal.
        return z - v @ g

    def keep(self, v: Array) -> Array:
        """Return an orthonormal basis of the same span."""
        return orthonormalise(v)[0]
