"""Oja's rule for several components: Sanger's generalised Hebbian algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from primedpca._core.arrays import namespace
from primedpca.priming.stochastic import Stochastic
from primedpca.protocols import Array

__all__ = ["Oja"]


@dataclass(frozen=True, kw_only=True)
class Oja(Stochastic):
    r"""Sanger's rule in mini-batches (section 2.2 of the paper).

    With :math:`y_m = w_m^T x` every row :math:`x` of a batch contributes

    .. math:: \Delta w_m = \alpha\, y_m \Big(x - \sum_{l \le m} y_l w_l\Big),

    and the average over the batch, with :math:`C` its covariance, is

    .. math:: \Delta V = \alpha\, \big(C V - V\, \mathrm{triu}(V^T C V)\big),

    where :math:`w_m` are the columns of ``V`` and :math:`\alpha` is ``learning_rate``.  The
    vectors converge to unit length without normalisation.  With a rate near the reciprocal of the
    largest variance they diverge, which raises :class:`primedpca.result.DivergenceError`.

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
    E. Oja, "Simplified neuron model as a principal component analyzer", 1982; T. Sanger,
    "Optimal unsupervised learning in a single-layer linear feedforward neural network", 1989.
    """

    replays: ClassVar[bool] = True

    def ascent(self, v: Array, z: Array, g: Array) -> Array:
        """Return ``C V - V triu(G)``."""
        # With the diagonal, which pulls each vector to unit length.
        return z - v @ namespace(v).triu(g)
