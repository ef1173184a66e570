"""Matrix Krasulina."""

from __future__ import annotations

from dataclasses import dataclass

from primedpca._core.orthonormal import orthonormalise
from primedpca.priming.stochastic import Stochastic
from primedpca.protocols import Array

__all__ = ["Krasulina"]


@dataclass(frozen=True, kw_only=True)
class Krasulina(Stochastic):
    r"""Krasulina's rule for a whole subspace.

    Each row :math:`x` of a batch asks to move the basis towards what it does not explain,

    .. math:: \Delta V = \alpha\, (x - V V^T x)(V^T x)^T, \qquad
              \Delta V = \alpha\, (I - V V^T)\, C V

    on average, after which ``V`` is made orthonormal again.  It finds the span and does not
    order it: made to be refined.

    Parameters
    ----------
    learning_rate : float or "auto"
    steps : int
    momentum : float in [0, 1)
    schedule : {"constant", "1/t"}
        As in :class:`~primedpca.priming.stochastic.Stochastic`.

    References
    ----------
    C. Tang, "Exponentially convergent stochastic k-PCA without variance reduction", 2019.
    """

    def ascent(self, v: Array, z: Array, g: Array) -> Array:
        """``(I - V V^T) C V``."""
        return z - v @ g

    def keep(self, v: Array) -> Array:
        """Orthonormal again."""
        return orthonormalise(v)[0]
