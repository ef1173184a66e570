"""Random probes that ride on the passes of a priming and bound what it could have missed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev, polynomial

from primedpca.arrays import namespace, to_numpy
from primedpca.centred import Centred
from primedpca.protocols import Array

__all__ = ["Probes", "Riding"]

COUNT = 8
PASSES = 6
GRID = 60


class Probes:
    r"""Gaussian vectors, images of which under what is left bound its top eigenvalue.

    With ``A = (I - V V^T) C (I - V V^T)``, top eigenvalue ``alpha`` and its eigenvector ``a``,
    ``|q(alpha)| |Omega^T a| <= |q(A) Omega|`` for every polynomial ``q``, and ``|Omega^T a|``
    is at least ``tau`` but with probability ``failure``.

    Parameters
    ----------
    basis : tuple of arrays (d, w)
        The orthonormal ``V``, in blocks; must not depend on the probes.
    data : Centred
    failure : float
    seed : object
    """

    def __init__(self, basis: tuple[Array, ...], data: Any, failure: float, seed: Any) -> None:
        from scipy.special import gammaincinv

        self.basis, self.failure = basis, failure
        draws = np.random.default_rng(seed).standard_normal((data.shape[1], COUNT))
        self.norm = float(np.linalg.norm(draws, ord=2))
        self.tau = math.sqrt(2 * gammaincinv(COUNT / 2, failure))
        self.images = [self._outside(data.like.asarray(draws))]

    def _outside(self, vectors: Array) -> Array:
        for _ in range(2):
            for block in self.basis:
                vectors = vectors - block @ (block.T @ vectors)
        return vectors

    @property
    def riding(self) -> bool:
        """Whether more passes are wanted."""
        return len(self.images) <= PASSES

    def take(self, product: Array) -> None:
        """Take the product of the data with the newest image."""
        self.images.append(self._outside(product))

    def missed(self, largest: float, rounding: float) -> float:
        """The bound ``mu`` on the top eigenvalue of what is left; infinite if none is found.

        ``q(x) = (x / rho) T_{t-1}(2 x / rho - 1)`` is at least 1 beyond ``rho`` and grows there,
        so ``alpha <= max(rho, q^-1(|q(A) Omega| / tau))``, for every ``rho`` and every degree at
        once.  ``q(A) Omega`` is put together from powers, with coefficients that add up to
        ``T_{t-1}(3)``, which is what their rounding is multiplied with.
        """
        xp, best = namespace(self.images[0]), math.inf
        # One QR: squaring the images in a Gram matrix would lose half the digits.
        small = to_numpy(xp.linalg.qr(xp.concat(self.images[1:], axis=1))[1])
        for t in range(2, len(self.images)):
            q = _polynomial(t)
            growth = 4 * t * float(np.abs(q).sum()) * rounding * self.norm
            for rho in largest * np.geomspace(1e-6, 1.0, GRID):
                tau = self.tau - growth / rho
                if tau > 0:
                    parts = [
                        q[j] / rho**j * small[:, (j - 1) * COUNT : j * COUNT]
                        for j in range(1, t + 1)
                    ]
                    height = float(np.linalg.norm(sum(parts), ord=2)) / tau
                    best = min(best, rho * _inverse(q, height))
        return best


def _polynomial(t: int) -> np.ndarray:
    """Coefficients of ``y T_{t-1}(2 y - 1)`` in powers of ``y``."""
    inner = chebyshev.cheb2poly([0.0] * (t - 1) + [1.0])
    total: Any = np.zeros(1)
    for power, factor in enumerate(inner):
        total = polynomial.polyadd(total, factor * polynomial.polypow([-1.0, 2.0], power))
    return np.concatenate([[0.0], total])


def _inverse(q: np.ndarray, height: float) -> float:
    """The largest ``y`` with ``q(y) <= height``, at least 1, rounded up."""
    if height <= 1.0:
        return 1.0
    low, high = 1.0, height  # q(y) >= y beyond 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if polynomial.polyval(middle, q) < height else (low, middle)
    return high * (1 + 1e-12)


class Riding(Centred):
    """A Centred on whose right-hand products probes ride along."""

    def __init__(self, data: Centred) -> None:
        self.__dict__ = data.__dict__  # one and the same: what either learns, both know
        self.probes: Probes | None = None

    def covariance_product(self, vectors: Array) -> Array:
        """``C V``; the newest images of the probes are multiplied in the same pass."""
        if self.probes is None or not self.probes.riding:
            return super().covariance_product(vectors)
        width = vectors.shape[1]
        both = self.like.xp.concat([vectors, self.probes.images[-1]], axis=1)
        product = super().covariance_product(both)
        self.probes.take(product[:, width:])
        return self.like.xp.asarray(product[:, :width], copy=True)
