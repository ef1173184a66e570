"""Random probes, which bound the variance that a priming could have missed.

Probes are random vectors that are multiplied by the data in the same passes as the vectors of the
priming: they ride on its passes, and cost no pass of their own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca._certify.bounds import UNIT
from primedpca._core.arrays import to_numpy
from primedpca._core.orthonormal import continued
from primedpca._operator.operator import Centred
from primedpca.protocols import Array

__all__ = ["Probes", "Riding", "unevenness"]

#: Number of random vectors.
COUNT = 16
#: Maximum number of passes that one set of probes rides on.
PASSES = 8
#: Number of values of ``rho`` tried in each of two searches.
GRID = 24


class Probes:
    r"""Gaussian vectors whose images bound the top eigenvalue of the rest of the covariance.

    Let ``A = (I - V V^T) C (I - V V^T)`` be the rest, ``alpha`` its top eigenvalue with the
    eigenvector ``a``, and ``Omega`` the random vectors.  Then
    ``|q(alpha)| |Omega^T a| <= |q(A) Omega|`` for every polynomial ``q``, and ``|Omega^T a|`` is at
    least ``tau`` except with probability ``failure``.

    The images are stored as an orthonormal basis ``Q`` with ``A [Q_1 .. Q_t] = Q H``, starting
    from ``Omega = Q_1 R``.  In this basis ``q(A) Omega`` is a small matrix, and cheap for every
    ``q``.  With explicit powers of ``A``, rounding errors would be multiplied by thousands.

    Parameters
    ----------
    basis : tuple of arrays of shape (d, w)
        The orthonormal ``V``, in blocks.  ``C`` maps all blocks but the last into the span of
        ``V``.  ``V`` must not depend on the probes.
    data : Centred
        Multiplied in float64.
    failure : float
        Probability that the bound is false.
    seed : int or tuple of int
        Seed of the random vectors, as :func:`numpy.random.default_rng` takes it.
    """

    def __init__(self, basis: tuple[Array, ...], data: Any, failure: float, seed: Any) -> None:
        from scipy.special import gammaincinv

        self.basis, self.failure = basis, failure
        draws = np.random.default_rng(seed).standard_normal((data.shape[1], COUNT))
        self.norm = float(np.linalg.norm(draws, ord=2))
        # |Omega^T a|^2 is chi-squared with COUNT degrees of freedom; tau^2 is its quantile.
        self.tau = math.sqrt(2 * gammaincinv(COUNT / 2, failure))
        everything = range(len(basis))
        self.newest, _, self.start = continued(data.like.asarray(draws), basis, everything)
        self.images: tuple[Array, ...] = ()
        self.small = np.zeros((self.newest.shape[1], 0))
        self._uneven = self._unevenness()

    @property
    def passes(self) -> int:
        """Number of passes that the probes have taken part in."""
        return len(self.images)

    @property
    def riding(self) -> bool:
        """Whether the probes take part in the next pass."""
        return self.passes < PASSES and self.newest.shape[1] > 0

    @property
    def reached(self) -> float:
        """Lower estimate of ``alpha``, below which no number of passes can reduce the bound."""
        width = self.small.shape[1]
        inside = self.small[:width]
        return float(np.linalg.eigvalsh((inside + inside.T) / 2)[-1])

    def take(self, product: Array) -> None:
        """Extend ``Q`` and ``H`` by the product ``(d, w)`` of ``C`` with the newest image."""
        images = (*self.images, self.newest)
        last = len(self.basis) - 1
        # As in block Lanczos, A is symmetric: the product has components along the two latest
        # images only, and along the last block of the basis, which C does not map into the span.
        near = (last, *range(max(last + 1, last + len(images) - 1), last + 1 + len(images)))
        blocks = (*self.basis, *images)
        newest, held, coupling = continued(product, blocks, near)
        held = held[held.shape[0] - sum(block.shape[1] for block in images) :]
        rows, columns = self.small.shape
        small = np.zeros((rows + newest.shape[1], columns + held.shape[1]))
        small[:rows, :columns] = self.small
        small[:rows, columns:] = held
        small[rows:, columns:] = coupling
        self.images, self.newest, self.small = images, newest, small
        self._uneven += self._unevenness()

    @property
    def skew(self) -> float:
        """Bound on the deviation of the images from being orthonormal, also to the basis."""
        return math.sqrt(self._uneven)

    def _unevenness(self) -> float:
        """Squared deviation that the newest image adds."""
        return unevenness(self.newest, (*self.basis, *self.images))

    def missed(self, largest: float, rounding: float) -> float:
        """Bound ``mu`` on the top eigenvalue ``alpha`` of the rest; infinity if there is none.

        ``q(x) = (x / rho) T_{t-1}(2 x / rho - 1)``, with the Chebyshev polynomial ``T``, is at
        least 1 beyond ``rho`` and grows there.  So ``alpha <= max(rho, q^-1(|q(A) Omega| / tau))``.
        This holds for all ``rho`` and all degrees ``t`` at once, so the smallest bound may be
        taken: first on a coarse grid of ``rho``, then on a finer one near the best.

        Parameters
        ----------
        largest : float
            Upper end of the values of ``rho``.
        rounding : float
            Bound on the rounding errors of the products.
        """
        best, where = math.inf, largest
        if largest <= 0:
            return best
        for spread, about in ((1e-6, largest), (0.5, None)):
            top = about or min(largest, where * math.sqrt(2.0))
            for rho in np.geomspace(top * spread, top, GRID):
                bound = self._bound(float(rho), rounding)
                if bound < best:
                    best, where = bound, float(rho)
        return best

    def _bound(self, rho: float, rounding: float) -> float:
        """Return the smallest bound over all degrees, for one ``rho``."""
        best, h = math.inf, self.small
        width, begun = h.shape[1], self.start.shape[0]
        before, now = None, h[:, :begun] @ self.start / rho
        for t in range(1, self.passes + 1):
            if t > 1:
                turned = 2 * (h @ now[:width]) / rho - now
                before, now = now, turned if before is None else 2 * turned - before
            # Rounding errors of q(A) Omega are covered by a smaller tau.
            tau = self.tau - 4 * t * t * rounding / rho * self.norm
            if tau > 0:
                height = float(np.linalg.norm(now, ord=2)) / tau
                best = min(best, rho * _inverse(t, height))
        return best


def unevenness(newest: Array, others: tuple[Array, ...]) -> float:
    """Squared norm of what a new block adds to ``V^T V - I`` of the whole basis."""
    own = to_numpy(newest.T @ newest) - np.eye(newest.shape[1])
    cross = sum(float(((block.T @ newest) ** 2).sum()) for block in others)
    square: float = 2 * cross + float((own**2).sum()) + (newest.shape[0] * UNIT) ** 2
    return square


def _inverse(t: int, height: float) -> float:
    """Return the largest ``y >= 1`` with ``y T_{t-1}(2 y - 1) <= height``, rounded up."""
    if height <= 1.0:
        return 1.0
    low, high = 1.0, height ** (1 / t) * (1 + 1e-9)  # the polynomial is at least y^t for y >= 1
    for _ in range(50):
        middle = (low + high) / 2
        value = middle * math.cosh((t - 1) * math.acosh(2 * middle - 1))
        low, high = (middle, high) if value < height else (low, middle)
    found: float = high * (1 + 1e-12)
    return found


class Riding:
    """Operator that multiplies probes in the same passes as the vectors of a priming.

    Parameters
    ----------
    data : Centred
        Multiplied in float64.

    Attributes
    ----------
    probes : Probes or None
        Probes that take part in the passes.
    """

    def __init__(self, data: Centred) -> None:
        self.data = data
        self.like, self.shape, self.engine = data.like, data.shape, data.engine
        self.probes: Probes | None = None

    @property
    def passes(self) -> float:
        """Number of passes over the data so far."""
        return self.data.passes

    def covariance_product(self, vectors: Array) -> Array:
        """Return ``C V``; the newest images of the probes are multiplied in the same pass."""
        if self.probes is None or not self.probes.riding:
            return self.data.covariance_product(vectors)
        xp, width = self.like.xp, vectors.shape[1]
        both = xp.concat([vectors, self.probes.newest], axis=1)
        product = self.data.covariance_product(both)
        own, theirs = (
            xp.asarray(part, copy=True) for part in (product[:, :width], product[:, width:])
        )
        del both, product  # free these tall arrays before the probes are orthonormalised
        self.probes.take(theirs)
        return own
