"""Random probes that ride on the passes of a priming and bound what it could have missed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca._certify.rounding import UNIT
from primedpca._core.arrays import to_numpy
from primedpca._core.orthonormal import continued
from primedpca._operator.operator import Centred
from primedpca.protocols import Array

__all__ = ["Probes", "Riding", "unevenness"]

COUNT = 16
PASSES = 8
GRID = 24


class Probes:
    r"""Gaussian vectors, images of which under what is left bound its top eigenvalue.

    With ``A = (I - V V^T) C (I - V V^T)``, top eigenvalue ``alpha`` and its eigenvector ``a``,
    ``|q(alpha)| |Omega^T a| <= |q(A) Omega|`` for every polynomial ``q``, and ``|Omega^T a|``
    is at least ``tau`` but with probability ``failure``.

    The images are kept as an orthonormal basis ``Q`` with ``A [Q_1 .. Q_t] = Q H``, begun at
    ``Omega = Q_1 R``, in which ``q(A) Omega`` is small and cheap for every ``q``.  Powers of
    ``A`` would have the rounding of their products multiplied by thousands.

    Parameters
    ----------
    basis : tuple of arrays (d, w)
        The orthonormal ``V``, in blocks, of which ``C`` maps all but the last into their own
        span; must not depend on the probes.
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
        everything = range(len(basis))
        self.newest, _, self.start = continued(data.like.asarray(draws), basis, everything)
        self.images: tuple[Array, ...] = ()
        self.small = np.zeros((self.newest.shape[1], 0))
        self._uneven = self._unevenness()

    @property
    def passes(self) -> int:
        """How many passes they have ridden on."""
        return len(self.images)

    @property
    def riding(self) -> bool:
        """Whether more passes are wanted."""
        return self.passes < PASSES and self.newest.shape[1] > 0

    @property
    def reached(self) -> float:
        """A lower estimate of ``alpha``: below this no number of passes will bring the bound."""
        width = self.small.shape[1]
        inside = self.small[:width]
        return float(np.linalg.eigvalsh((inside + inside.T) / 2)[-1])

    def take(self, product: Array) -> None:
        """Take the product of the data with the newest image."""
        images = (*self.images, self.newest)
        last = len(self.basis) - 1
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
        """How far the images are from being orthonormal to each other and to the basis."""
        return math.sqrt(self._uneven)

    def _unevenness(self) -> float:
        return unevenness(self.newest, (*self.basis, *self.images))

    def missed(self, largest: float, rounding: float) -> float:
        """The bound ``mu`` on the top eigenvalue of what is left; infinite if none is found.

        ``q(x) = (x / rho) T_{t-1}(2 x / rho - 1)`` is at least 1 beyond ``rho`` and grows there,
        so ``alpha <= max(rho, q^-1(|q(A) Omega| / tau))``, for every ``rho`` and every degree at
        once: a few are tried, then more of them about the best.
        """
        best, where = math.inf, largest
        for spread, about in ((1e-6, largest), (0.5, None)):
            top = about or min(largest, where * math.sqrt(2.0))
            for rho in np.geomspace(top * spread, top, GRID):
                bound = self._bound(float(rho), rounding)
                if bound < best:
                    best, where = bound, float(rho)
        return best

    def _bound(self, rho: float, rounding: float) -> float:
        """The least bound of all degrees for one ``rho``."""
        best, h = math.inf, self.small
        width, begun = h.shape[1], self.start.shape[0]
        before, now = None, h[:, :begun] @ self.start / rho
        for t in range(1, self.passes + 1):
            if t > 1:
                turned = 2 * (h @ now[:width]) / rho - now
                before, now = now, turned if before is None else 2 * turned - before
            tau = self.tau - 4 * t * t * rounding / rho * self.norm
            if tau > 0:
                height = float(np.linalg.norm(now, ord=2)) / tau
                best = min(best, rho * _inverse(t, height))
        return best


def unevenness(newest: Array, others: tuple[Array, ...]) -> float:
    """The squared size of what a block adds to ``V^T V - I`` of the whole basis."""
    own = to_numpy(newest.T @ newest) - np.eye(newest.shape[1])
    cross = sum(float(((block.T @ newest) ** 2).sum()) for block in others)
    square: float = 2 * cross + float((own**2).sum()) + (newest.shape[0] * UNIT) ** 2
    return square


def _inverse(t: int, height: float) -> float:
    """The largest ``y`` with ``y T_{t-1}(2 y - 1) <= height``, at least 1, rounded up."""
    if height <= 1.0:
        return 1.0
    low, high = 1.0, height ** (1 / t) * (1 + 1e-9)  # it is at least y^t beyond 1
    for _ in range(50):
        middle = (low + high) / 2
        value = middle * math.cosh((t - 1) * math.acosh(2 * middle - 1))
        low, high = (middle, high) if value < height else (low, middle)
    found: float = high * (1 + 1e-12)
    return found


class Riding:
    """An operator on whose products ``C V`` probes ride along.

    Parameters
    ----------
    data : Centred
        In float64.
    """

    def __init__(self, data: Centred) -> None:
        self.data = data
        self.like, self.shape, self.engine = data.like, data.shape, data.engine
        self.probes: Probes | None = None

    @property
    def passes(self) -> float:
        """Number of readings of the data so far."""
        return self.data.passes

    def covariance_product(self, vectors: Array) -> Array:
        """``C V``; the newest images of the probes are multiplied in the same pass."""
        if self.probes is None or not self.probes.riding:
            return self.data.covariance_product(vectors)
        xp, width = self.like.xp, vectors.shape[1]
        both = xp.concat([vectors, self.probes.newest], axis=1)
        product = self.data.covariance_product(both)
        own, theirs = (
            xp.asarray(part, copy=True) for part in (product[:, :width], product[:, width:])
        )
        del both, product  # tall, and not needed while the probes are made orthonormal
        self.probes.take(theirs)
        return own
