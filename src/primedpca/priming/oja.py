"""Oja's rule for several components: Sanger's generalised Hebbian algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from primedpca._core.arrays import namespace
from primedpca.priming.stochastic import Stochastic
from primedpca.protocols import Array

__all__ = ["Oja"]


@dataclass(frozen=True, kw_only=True)
class Oja(Stochastic):
    r"""Sanger's rule in mini-batches (section 2.2 of the paper).

    With :math:`y_m = w_m^T x` every row :math:`x` of a batch asks for

    .. math:: \Delta w_m = \alpha\, y_m \Big(x - \sum_{l \le m} y_l w_l\Big),

    and averaged over the batch, with :math:`C` its covariance,

    .. math:: \Delta V = \alpha\, \big(C V - V\, \mathrm{triu}(V^T C V)\big),

    where :math:`w_m` are the columns of ``V`` and :math:`\alpha` is ``learning_rate``.  The
    vectors reach unit length by themselves; a rate near the reciprocal of the largest variance
    throws them out of bounds, which is reported.

    Parameters
    ----------
    learning_rate : float or "auto"
    steps : int
    momentum : float in [0, 1)
    schedule : {"constant", "1/t"}
        As in :class:`~primedpca.priming.stochastic.Stochastic`.

    References
    ----------
    E. Oja, "Simplified neuron model as a principal component analyzer", 1982; T. Sanger,
    "Optimal unsupervised learning in a single-layer linear feedforward neural network", 1989.
    """

    def ascent(self, v: Array, z: Array, g: Array) -> Array:
        """``C V - V triu(G)``."""
        return z - v @ namespace(v).triu(g)
