"""EigenGame Unloaded (mu-EigenGame)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from primedpca._core.arrays import namespace
from primedpca.priming.eigengame import on_the_sphere, tangent
from primedpca.priming.stochastic import Stochastic
from primedpca.protocols import Array

__all__ = ["MuEigenGame"]


@dataclass(frozen=True, kw_only=True)
class MuEigenGame(Stochastic):
    r"""EigenGame with updates that are unbiased under mini-batches.

    .. math:: \Delta v_j \propto C v_j - \sum_{i<j} (v_i^T C v_j)\, v_i, \qquad
              \Delta V = C V - V\, \mathrm{striu}(V^T C V),

    projected onto the tangent space of the sphere; each vector is normalised after its step.

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
    I. Gemp, B. McWilliams, C. Vernade, T. Graepel, "EigenGame Unloaded: when playing games is
    better than optimizing", 2021.
    """

    replays: ClassVar[bool] = True

    def ascent(self, v: Array, z: Array, g: Array) -> Array:
        """Return ``C V - V striu(G)``, tangent to the sphere."""
        # Linear in C, unlike EigenGame's quotient: this makes mini-batches unbiased.
        return tangent(v, z - v @ namespace(v).triu(g, k=1))

    def keep(self, v: Array) -> Array:
        """Return the vectors at unit length."""
        return on_the_sphere(v)
