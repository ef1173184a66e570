"""Random vectors that check the arithmetic of a priming and bound what it missed.

A few Gaussian vectors ``Omega`` are drawn and never shown to the priming, and ``Z = C Omega`` is
computed once in float64.  The priming works in any arithmetic.  Its errors do not depend on
``Omega``, so the inner products of the errors with ``Omega``, which are known from ``Z``, bound
them; see docs/certificates.md, section 9.  On the left side ``C`` stands for ``M M^T / n``.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from primedpca._certify.bounds import spectral_norm
from primedpca._certify.rounding import UNIT, rounding_of
from primedpca._core.arrays import to_numpy
from primedpca._core.orthonormal import combine, inner_products
from primedpca._operator.operator import Centred
from primedpca.priming.block_krylov import KrylovState
from primedpca.protocols import Array

__all__ = ["Check", "Findings", "Riders", "tau", "tau_of_sum"]

#: Number of random vectors: more make sharper bounds, and each costs a float64 column of a pass.
DENSE, SPARSE = 8, 16
#: Number of Gaussian vectors that test whether a basis is orthonormal.
SKEW = 6
#: Maximum number of passes that the random vectors take part in after one departure.
RIDES = 4


def tau(s: int, failure: float) -> float:
    """Return the length below which ``s`` standard normal numbers fall with this probability."""
    from scipy.special import gammaincinv

    return math.sqrt(2 * float(gammaincinv(s / 2, failure)))


@cache
def tau_of_sum(s: int, failure: float) -> float:
    """Return ``t`` with ``P(sum_j w_j |g_j|^2 < t^2) <= failure``, for any weights of sum 1.

    ``g_j`` are vectors of ``s`` standard normal numbers.  By Chernoff's bound, ``t^2 = s y`` with
    ``y e^(1 - y) = failure^(2 / s)`` and ``y <= 1``.
    """
    target, low, high = failure ** (2 / s), 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.exp(1 - middle) <= target else (low, middle)
    return math.sqrt(s * low)


class Findings(NamedTuple):
    """Bounds on the errors of a basis ``V`` with ``C V = V T + Q B E^T + F``.

    Attributes
    ----------
    error : float
        Bound on ``|F|_F``.
    skew : float
        Bound on ``|W^T W - I|`` of ``W = [V, Q]``.
    tests : ndarray of shape (s, m)
        ``Omega^T F``.
    noise : float
        Bound on the rounding errors of any column of the tests, times a unit vector.
    """

    error: float
    skew: float
    tests: np.ndarray
    noise: float


class Check:
    """Gaussian vectors and their exact images.

    Parameters
    ----------
    wide : Centred
        Multiplied in float64.
    side : {"right", "left"}
        Side on which the priming works.
    seed : tuple of int
        Seed of the vectors.
    """

    def __init__(self, wide: Centred, side: str, seed: Any) -> None:
        self.wide, self.side = wide, side
        self.s = SPARSE if wide.sparse else DENSE
        length = wide.shape[1] if side == "right" else wide.shape[0]
        drawn = np.random.default_rng(seed).standard_normal((length, self.s))
        self.omega = wide.like.asarray(drawn)
        self.lengths = np.linalg.norm(drawn, axis=0)
        self.norm = float(np.linalg.norm(drawn))
        self.taken, self._first = 0, None
        self.vo = self.vz = np.zeros((0, self.s))
        self.z: Array = None

    def multiply(self, vectors: Array) -> Array:
        """Form ``Z = C Omega``, and return ``C`` times other vectors from the same float64 pass."""
        wide, xp = self.wide, self.wide.like.xp
        product = wide.covariance_product if self.side == "right" else wide.gram_product
        both = product(xp.concat([self.omega, wide.wide(vectors)], axis=1))
        self.z = xp.asarray(both[:, : self.s], copy=True)
        self.norm_z = float(np.linalg.norm(to_numpy(self.z)))
        #: ``|fl(C w) - C w| <= unit_error |w|`` in float64.
        self.unit_error = rounding_of(wide, 1, wide.total)
        return both[:, self.s :]

    def take(self, basis: tuple[Array, ...]) -> None:
        """Form ``V^T Omega`` and ``V^T Z`` of the blocks that are new."""
        if basis[0] is not self._first:  # a restart has replaced the blocks
            self.taken, self.vo, self.vz = 0, self.vo[:0], self.vz[:0]
            self._first = basis[0]
        if len(basis) > self.taken:
            xp = self.wide.like.xp
            found = inner_products(basis[self.taken :], xp.concat([self.omega, self.z], axis=1))
            self.vo = np.concatenate([self.vo, found[:, : self.s]])
            self.vz = np.concatenate([self.vz, found[:, self.s :]])
            self.taken = len(basis)

    def look(self, state: KrylovState, share: float, seed: Any) -> Findings:
        """Bound the errors of a basis that was made without any knowledge of the vectors.

        Parameters
        ----------
        state : KrylovState
        share : float
            Probability that one of the bounds is false: a half for each.
        seed : tuple of int
            Seed of the vectors that test whether the basis is orthonormal.
        """
        self.take(state.basis)
        skew = self._skew((*state.basis, state.newest), share / 2, seed)
        projected = (state.projected + state.projected.T) / 2
        top = float(np.linalg.norm(state.variances[:1])) + spectral_norm(state.coupling)
        m, length = projected.shape[0], self.z.shape[0]
        noise = 1.01 * self.unit_error * self.norm
        noise += 2 * math.sqrt(m) * (length + m) * UNIT * (top * self.norm + self.norm_z)
        tests = self.tests(projected, state.coupling, state.newest)
        error = (float(np.linalg.norm(tests)) + 2 * noise) / tau_of_sum(self.s, share / 2)
        return Findings(error, skew, tests, noise)

    def tests(self, projected: np.ndarray, coupling: np.ndarray, newest: Array) -> np.ndarray:
        """Return ``Omega^T F`` of the first ``m`` vectors of the basis, ``(s, m)``."""
        m, w = projected.shape[0], coupling.shape[1]
        found = self.vz[:m] - projected @ self.vo[:m]
        found[m - w :] -= coupling.T @ inner_products((newest,), self.omega)
        return found.T

    def columns(self, findings: Findings, turn: np.ndarray, share: float) -> np.ndarray:
        """Bounds on ``|F x|`` for each column ``x`` of ``turn``, chosen without ``Omega``."""
        sizes = np.linalg.norm(findings.tests @ turn, axis=0)
        grown = np.linalg.norm(turn, axis=0) * findings.noise
        found: np.ndarray = (sizes + grown) / tau(self.s, share / turn.shape[1])
        return np.minimum(found, findings.error * np.linalg.norm(turn, axis=0))

    def _skew(self, blocks: tuple[Array, ...], share: float, seed: Any) -> float:
        """Bound on ``|W^T W - I|`` of the blocks, by random vectors of its own."""
        width, like = sum(block.shape[1] for block in blocks), self.wide.like
        g = np.random.default_rng(seed).standard_normal((width, SKEW))
        image = inner_products(blocks, combine(blocks, g, like))
        slip = 8 * blocks[0].shape[0] * UNIT * math.sqrt(g.size * width)
        return (spectral_norm(image - g) + slip) / tau(SKEW, share)


class Riders:
    """The checked vectors, deflated with a basis and multiplied again: bounds on what it missed.

    For the top eigenvector ``a`` of ``A = (I - P) C (I - P)``, with ``P`` the projection onto the
    basis at departure and ``alpha`` its eigenvalue, ``a^T X_l = alpha a^T X_(l-1) + a^T D_l``
    with ``X_0 = Omega``, whatever is subtracted along the basis.

    Parameters
    ----------
    check : Check
    state : KrylovState
        The basis at departure.
    """

    def __init__(self, check: Check, state: KrylovState) -> None:
        self.check, self.state, self.basis = check, state, state.basis
        check.take(state.basis)
        like, w = check.wide.like, state.coupling.shape[1]
        m = state.projected.shape[0]
        self.at = m
        image = check.z - combine(self.basis, check.vz, like)
        if state.newest.shape[1]:
            lift = state.coupling @ check.vo[m - w : m]
            image -= combine((state.newest,), lift, like)
        norms = _norms(check.z) + check.lengths * spectral_norm(state.coupling)
        self.images: list[Array] = []
        self.slips: list[np.ndarray] = []
        self.inside: list[np.ndarray] = []
        self.tests: list[np.ndarray] = []
        self.heights: list[float] = []
        self._next(image, 16 * m * UNIT * norms)

    @property
    def riding(self) -> bool:
        """Whether the vectors take part in the next pass."""
        return len(self.images) <= RIDES

    def board(self, dtype: Any) -> Array:
        """Return the vectors to multiply next, in this dtype; they lie outside the basis."""
        like, xp = self.check.wide.like, self.check.wide.like.xp
        image, slip = self.images.pop(), self.slips.pop()
        image = image - combine(self.basis, inner_products(self.basis, image), like)
        peaks = to_numpy(xp.max(xp.abs(image), axis=0))
        # Powers of two: neither overflow nor rounding.  Columns must not depend on each other.
        self.scale = like.asarray(2.0 ** -np.clip(np.frexp(peaks)[1], -1000, 1000))
        cast = xp.astype(image * self.scale, dtype)
        back = xp.astype(cast, xp.float64) / self.scale
        slip = slip + _norms(back - image) + 64 * self.at * UNIT * _norms(image)
        inside = np.linalg.norm(inner_products(self.basis, back), axis=0)
        blur = 4 * math.sqrt(self.at) * back.shape[0] * UNIT
        self.inside.append(inside + blur * _norms(back))
        self._next(back, slip)
        return cast

    def ride(self, product: Array) -> None:
        """Take in the product of ``C`` with the vectors that were boarded."""
        check, xp = self.check, self.check.wide.like.xp
        product = xp.astype(product, xp.float64) / self.scale
        before = self.images[-1]
        tests = to_numpy(check.omega.T @ product) - to_numpy(check.z.T @ before)
        self.tests.append(tests)
        sizes = _norms(product)
        self.heights.append(float(sizes.max()))
        # V^T C X lies along the last block of V, up to rounding: C maps the others into V.
        last = (self.basis[-1],)
        product -= combine(last, inner_products(last, product), check.wide.like)
        self._next(product, 64 * self.at * UNIT * sizes)

    def _next(self, image: Array, slip: np.ndarray) -> None:
        self.images.append(image)
        self.slips.append(slip)

    def missed(self, findings: Findings, share: float) -> float:
        """Bound on what the basis at departure has missed, and so every later one that has it.

        Parameters
        ----------
        findings : Findings
            Of a basis that contains the one at departure.
        share : float
            Probability that the bound is false: a half for the length of ``Omega^T a``, a quarter
            for the errors at departure and a quarter for those of the products.
        """
        errors = [float(np.linalg.norm(part)) for part in self._errors(findings, share)]
        t = tau(self.check.s, share / 2)
        tall = to_numpy(self.check.wide.like.xp.concat(self.images, axis=1))
        size = self.check.s
        square = (tall.T @ tall).reshape(len(errors), size, len(errors), size).swapaxes(1, 2)
        # The squares lose half of the digits: what may have cancelled is added.
        blur = max(1e-13, 2 * tall.shape[0] * UNIT)
        first = math.sqrt(max(0.0, float(np.linalg.eigvalsh(square[0, 0])[-1]))) * (1 + size * blur)
        best = (first + errors[0]) / t
        if len(errors) > 1 and math.isfinite(best):
            low, high = 3e-3 * best, best
            for count in (8, 5):
                rhos = np.geomspace(max(low, 1e-290), max(high, 1e-290), count)
                found = _bounds_by_degree(square, errors, rhos, t, blur)
                i = int(np.argmin(found))
                best = min(best, float(found[i]))
                low, high = rhos[max(i - 1, 0)], rhos[min(i + 1, count - 1)]
        return best * (1 + 1e-9)

    def _errors(self, findings: Findings, share: float) -> list[np.ndarray]:
        """Bounds on ``|D_l|`` of every column, ``(s,)`` each."""
        check, at, skew = self.check, self.at, findings.skew
        b = spectral_norm(self.state.coupling)
        projected = (self.state.projected + self.state.projected.T) / 2
        tests = check.tests(projected, self.state.coupling, self.state.newest)
        inside = check.vo[:at]
        sizes = np.linalg.norm(inside, axis=0)
        error = (float(np.linalg.norm(tests)) + 2 * findings.noise) / tau_of_sum(check.s, share / 8)
        noise = findings.noise * (1 + float(sizes.max()))
        tilt = 1.2 * skew / max(1e-3, 1 - skew)
        own = self._by_others(tests @ inside, noise, share / 8)
        found = [own + (error + b) * tilt * sizes + check.unit_error * check.lengths]
        reach = (1.001 * b * (1 + skew) + error) / max(0.5, 1 - skew)
        for tests, image, height, along in zip(
            self.tests, self.images, self.heights, self.inside, strict=False
        ):
            longest = float(_norms(image).max())
            noise = 1.01 * check.unit_error * check.norm * longest
            noise += 4 * image.shape[0] * UNIT * (check.norm * height + check.norm_z * longest)
            found.append(self._by_others(tests, noise, share / 4) + reach * along)
        return [part + slip for part, slip in zip(found, self.slips, strict=True)]

    def _by_others(self, tests: np.ndarray, noise: float, share: float) -> np.ndarray:
        """Sizes of columns of which each is tested by all random vectors but its own."""
        s = self.check.s
        sizes = np.linalg.norm(tests * (1 - np.eye(s)), axis=0)
        found: np.ndarray = (sizes + noise) / tau(s - 1, share / ((RIDES + 1) * s))
        return found


def _norms(columns: Array) -> np.ndarray:
    return np.linalg.norm(to_numpy(columns), axis=0)


@cache
def _coefficients(t: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Coefficients of ``q(y) = y T_(t-1)(2 y - 1)``: about 0, about 1, and of its quotients.

    The quotients ``q_[l](y) = sum_(i >= l) q_i y^(i - l)`` multiply the errors ``D_l``; of them,
    the sizes of the coefficients about 1 are returned.
    """
    y = Polynomial([0.0, 1.0])
    q = y * Chebyshev.basis(t - 1).convert(kind=Polynomial)(2 * y - 1)

    def about_one(p: Polynomial) -> np.ndarray:
        found: np.ndarray = p(y + 1).coef
        return found

    quotients = [np.abs(about_one(Polynomial(q.coef[i:]))) for i in range(1, t + 1)]
    return q.coef, about_one(q), quotients


def _bounds_by_degree(
    square: np.ndarray, errors: list[float], rhos: np.ndarray, t: float, blur: float
) -> np.ndarray:
    """For each ``rho`` the smallest bound over all degrees; infinite where there is none.

    Beyond ``rho``, ``t q(y) <= |sum_l q_l X_l / rho^l| + sum_l |q_[l](y)| |D_l| / rho^l`` with
    ``y = alpha / rho``.
    """
    best = np.full(rhos.size, np.inf)
    for degree in range(2, len(errors) + 1):
        q, taylor, quotients = _coefficients(degree)
        c = q[1:, None] / rhos ** np.arange(1, degree + 1)[:, None]
        some = square[:degree, :degree]
        total = np.einsum("in,jn,ijab->nab", c, c, some)
        height = np.maximum(np.linalg.eigvalsh(total)[:, -1], 0.0)
        parts = np.sqrt(np.einsum("iiaa->i", some))
        height = np.sqrt(height + blur * (np.abs(c) * parts[:, None]).sum(axis=0) ** 2)
        for n, rho in enumerate(rhos):
            f = t * taylor
            f[0] -= height[n]
            for i, quotient in enumerate(quotients):
                f[: quotient.size] -= quotient * errors[i] / rho ** (i + 1)
            best[n] = min(best[n], rho * _root(f))
    return best


def _root(f: np.ndarray) -> float:
    """Return 1 plus the positive root of ``f``, rounded up; infinity if it is not sure.

    All coefficients but the first must be positive: then there is one root, and Newton's method
    falls to it from above.
    """
    if f[1:].min() <= 0:
        return math.inf
    if f[0] >= 0:
        return 1.0
    v = float(min((-f[0] / f[1:]) ** (1 / np.arange(1, f.size))))
    for _ in range(40):
        value = slope = 0.0
        for coefficient in f[::-1]:
            slope = slope * v + value
            value = value * v + coefficient
        v -= value / slope
        if value / slope <= 1e-10 * v:
            break
    return (1.0 + v * (1 + 1e-8)) * (1 + 1e-12)
