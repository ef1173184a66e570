"""Random vectors that check the arithmetic of a priming and bound what it missed.

A few Gaussian vectors ``Omega`` are drawn and never shown to the priming, and ``Z = C Omega`` is
computed once in float64.  The priming works in any arithmetic.  Its errors do not depend on
``Omega``, so the inner products of the errors with ``Omega``, which are known from ``Z``, bound
them; see docs/certificates.md, section 9.  On the left side ``C`` stands for ``M M^T / n``.
"""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import Polynomial

from primedpca._certify.bounds import UNIT, rounding_of, spectral_norm
from primedpca._core.arrays import is_torch_array, namespace, to_numpy
from primedpca._core.orthonormal import combine, draw, inner_products, side_by_side
from primedpca._operator.operator import Centred
from primedpca.priming.block_krylov import KrylovState
from primedpca.protocols import Array

__all__ = ["Check", "Findings", "Riders", "norms", "tau", "tau_of_sum"]

#: Number of random vectors: more make sharper bounds, and each costs a float64 column of a pass.
#: Dense data on a GPU are multiplied with as many in the time of one.
DENSE, SPARSE, ON_DEVICE = 8, 16, 16
#: Number of Gaussian vectors that test whether a basis is orthonormal.
SKEW = 6
#: Maximum number of passes that the random vectors take part in after one departure.
RIDES = 14
#: Number of random vectors that ride on a processor: of the others it is enough that they check.
RIDERS = 8


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
    for _ in range(200):  # the root may be tiny
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
    s : int, optional
        Number of vectors, by default more for sparse data and on a GPU.

    Attributes
    ----------
    riding : int
        Number of vectors that ride, the first ones.
    """

    def __init__(self, wide: Centred, side: str, seed: Any, s: int | None = None) -> None:
        self.wide, self.side = wide, side
        there = not wide.sparse and wide.source.device not in (None, "cpu")
        self.s = s or (SPARSE if wide.sparse else ON_DEVICE if there else DENSE)
        self.riding = self.s if there else min(RIDERS, self.s)
        length = wide.shape[1] if side == "right" else wide.shape[0]
        # PyTorch draws on its own GPU.
        own = is_torch_array(wide.like.asarray([])) and str(wide.like.device).startswith("cuda")
        self.omega = draw(replace(wide.like, n_features=length), self.s, seed, own)
        self.lengths = norms(self.omega)
        self.norm = float(norms(self.omega, None))
        self._taken: tuple[Array, ...] = ()
        self.vo = self.vz = np.zeros((0, self.s))
        self.z: Array = None

    def multiply(self, vectors: Array) -> Array:
        """Form ``Z = C Omega``, and return ``C`` times other vectors from the same float64 pass."""
        wide, xp = self.wide, self.wide.like.xp
        product = wide.covariance_product if self.side == "right" else wide.gram_product
        both = product(xp.concat([self.omega, wide.wide(vectors)], axis=1))
        self.receive(xp.asarray(both[:, : self.s], copy=True))
        return both[:, self.s :]

    def receive(self, z: Array) -> None:
        """Use ``z`` as ``C Omega``, made by a float64 pass."""
        self.z, self.norm_z = z, float(norms(z, None))
        #: ``|fl(C w) - C w| <= unit_error |w|`` in float64.
        self.unit_error = rounding_of(self.wide, 1, self.wide.total)

    def take(self, basis: tuple[Array, ...]) -> None:
        """Form ``V^T Omega`` and ``V^T Z`` of the blocks that are new."""
        done = len(self._taken)
        if len(basis) < done or any(map(operator.is_not, self._taken, basis)):
            # A restart has replaced the blocks, or some have been joined.
            done, self.vo, self.vz = 0, self.vo[:0], self.vz[:0]
        if len(basis) > done:
            xp = self.wide.like.xp
            found = inner_products(basis[done:], xp.concat([self.omega, self.z], axis=1))
            self.vo = np.concatenate([self.vo, found[:, : self.s]])
            self.vz = np.concatenate([self.vz, found[:, self.s :]])
        self._taken = basis

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
        least: np.ndarray = np.minimum(found, findings.error * np.linalg.norm(turn, axis=0))
        return least

    def _skew(self, blocks: tuple[Array, ...], share: float, seed: Any) -> float:
        """Bound on ``|W^T W - I|`` of the blocks, by random vectors of its own."""
        width, like = sum(block.shape[1] for block in blocks), self.wide.like
        g = np.random.default_rng(seed).standard_normal((width, SKEW))
        image = inner_products(blocks, combine(blocks, g, like))
        slip = 8 * blocks[0].shape[0] * UNIT * math.sqrt(g.size * width)
        return float(spectral_norm(image - g) + slip) / tau(SKEW, share)


class Riders:
    """The checked vectors, deflated with a basis and multiplied again: bounds on what it missed.

    Let ``P`` be the projection onto the basis at departure, ``alpha`` the top eigenvalue of
    ``A = (I - P) C (I - P)`` and ``a`` its eigenvector.  The images are Chebyshev polynomials,
    ``Y_0 = A Omega / rho`` and ``Y_l = T_l(2 A / rho - 1) Y_0``, up to errors ``E_l``: whatever is
    subtracted along the basis, ``a^T Y_(l+1) = 2 x a^T Y_l - a^T Y_(l-1) + a^T E_(l+1)`` with
    ``x = 2 alpha / rho - 1``.

    Parameters
    ----------
    check : Check
    state : KrylovState
        The basis at departure.
    rho : float
        Estimate of ``alpha``, preferably too low, that does not depend on the random vectors.
    share : float
        Probability that any of the bounds is false: a half for the length of ``Omega^T a``, a
        quarter for the errors at departure and a quarter for those of the images.
    seed : tuple of int
        Seed of the vectors that test how much of the images lies along the basis.
    """

    def __init__(
        self, check: Check, state: KrylovState, rho: float, share: float, seed: Any
    ) -> None:
        self.check, self.state, self.basis, self.rho = check, state, state.basis, rho
        self.share, self._count = share, check.riding
        self._own: np.ndarray | None = None
        self._lengths: list[float] = []
        check.take(state.basis)
        self.at = m = state.projected.shape[0]
        like, w, r = check.wide.like, state.coupling.shape[1], check.riding
        drawn = np.random.default_rng(seed).standard_normal((m, SKEW))
        inside, lift = check.vz[:, :r], state.coupling @ check.vo[m - w : m, :r]
        both = combine(self.basis, np.concatenate([inside, drawn], axis=1), like)
        #: ``V G`` with Gaussian ``G``, and the rounding error of its product with a unit vector.
        self._along = like.xp.asarray(both[:, r:], copy=True)
        self._blur = 4 * (check.z.shape[0] + m) * UNIT * float(np.linalg.norm(drawn))
        image, along = check.z[:, :r] - both[:, :r], check.vo[:m].T @ inside
        if state.newest.shape[1]:
            image -= combine((state.newest,), lift, like)
            along += inner_products((state.newest,), check.omega).T @ lift
        #: The images, and the inner products of ``Omega`` with the errors of each, ``(s, r)``.
        self.images: list[Array] = [image / rho]
        expected = to_numpy(check.omega.T @ check.z[:, :r]) - along
        self.tests: list[np.ndarray] = [to_numpy(check.omega.T @ self.images[0]) - expected / rho]
        #: Of each image the length of all that it was computed from, in one column.
        self.reach: list[float] = [float(norms(check.z).max() + spectral_norm(lift)) / rho]
        #: Of each image that was multiplied: ``|V^T Y|``, and the length of its product.
        self.inside: list[np.ndarray] = []
        self.heights: list[float] = []

    @property
    def riding(self) -> bool:
        """Whether the vectors take part in the next pass."""
        return len(self.images) <= RIDES

    def board(self, dtype: Any) -> Array:
        """Return the vectors to multiply next, in this dtype; they lie outside the basis."""
        check, like, xp = self.check, self.check.wide.like, self.check.wide.like.xp
        image = self.images[-1]
        peaks = to_numpy(xp.max(xp.abs(image), axis=0))
        # Powers of two: neither overflow nor rounding.  Columns must not depend on each other.
        self.scale = like.asarray(2.0 ** -np.clip(np.frexp(peaks)[1], -1000, 1000))
        # In the arithmetic of the priming, at a third of the price: the tests show what it rounds.
        cast = xp.astype(image * self.scale, dtype)
        blocks = side_by_side(self.basis) if is_torch_array(cast) else self.basis
        parts = [xp.astype(block.T @ cast, dtype, copy=False) for block in blocks]
        for block, part in zip(blocks, parts, strict=True):
            cast -= block @ part
        back = xp.astype(cast, xp.float64) / self.scale
        taken = to_numpy(xp.concat(parts, axis=0)).astype(np.float64) / to_numpy(self.scale)
        self.tests[-1] = self.tests[-1] + to_numpy(check.omega.T @ (back - image))
        self.tests[-1] += check.vo[: self.at].T @ taken
        self.reach[-1] += 2 * float(norms(image).max() + np.linalg.norm(taken, axis=0).max())
        sizes = np.linalg.norm(to_numpy(self._along.T @ back), axis=0)
        least = tau(SKEW, self.share / (8 * RIDES * self._count))
        self.inside.append((sizes + self._blur * norms(back)) / least)
        self.images[-1] = back
        return cast

    def ride(self, product: Array) -> None:
        """Take in the product of ``C`` with the vectors that were boarded."""
        check, xp, now, rho = self.check, self.check.wide.like.xp, self.images[-1], self.rho
        product = xp.astype(product, xp.float64) / self.scale
        self.heights.append(float(norms(product).max()))
        factor, known = (2 / rho, now) if len(self.images) == 1 else (4 / rho, 2 * now)
        if len(self.images) > 1:
            known = known + self.images[-2]
        # V^T C Y lies along the last block of V, up to rounding: C maps the others into V.
        last = (self.basis[-1],)
        taken = inner_products(last, product)
        following = factor * (product - combine(last, taken, check.wide.like)) - known
        m, w = self.at, last[0].shape[1]
        expected = factor * (to_numpy(check.z.T @ now) - check.vo[m - w : m].T @ taken)
        self.tests.append(to_numpy(check.omega.T @ (following + known)) - expected)
        self.reach.append(factor * 2 * self.heights[-1] + 2 * float(norms(known).max()))
        self.images.append(following)

    def missed(self, findings: Findings) -> float:
        """Bound on what the basis at departure has missed, and so every later one that has it.

        For every degree, ``tau (alpha / rho) T_n(x) <= |Y_n| + T_n(x) |E_0| + sum_j U_(n-j)(x)
        |E_j|`` where ``alpha > rho``; all terms are polynomials in ``x - 1``.

        Parameters
        ----------
        findings : Findings
            Of a basis that contains the one at departure.
        """
        errors = [float(np.linalg.norm(part)) for part in self._errors(findings)]
        t, best = tau(self._count, self.share / 2), math.inf
        for n in range(len(self.images)):
            first, *others = _chebyshev(n)
            f = t * np.convolve(first, [1.0, 0.5])
            f[0] -= self._length(n)
            for polynomial, error in zip((first, *others), errors, strict=False):
                f[: polynomial.size] -= polynomial * error
            best = min(best, self.rho * (1 + _root(f) / 2))
        return best * (1 + 1e-9)

    def _length(self, n: int) -> float:
        """Bound on ``|Y_n|``; only the last image may still change, when it boards."""
        if n < len(self._lengths):
            return self._lengths[n]
        image = self.images[n]
        # From the Gram matrix: a decomposition of the tall matrix would cost as much as a ride.
        found = math.sqrt(float(np.linalg.eigvalsh(to_numpy(image.T @ image))[-1])) * (1 + 1e-9)
        if n == len(self._lengths) < len(self.images) - 1:
            self._lengths.append(found)
        return found

    def _errors(self, findings: Findings) -> list[np.ndarray]:
        """Bounds on ``|E_l|`` of every column, ``(r,)`` each."""
        check, at, skew, share = self.check, self.at, findings.skew, self.share
        b = spectral_norm(self.state.coupling)
        projected = (self.state.projected + self.state.projected.T) / 2
        if self._own is None:
            self._own = check.tests(projected, self.state.coupling, self.state.newest)
        tests, inside = self._own, check.vo[:at, : self._count]
        sizes = np.linalg.norm(inside, axis=0)
        error = (float(np.linalg.norm(tests)) + 2 * findings.noise) / tau_of_sum(check.s, share / 8)
        noise = findings.noise * (1 + float(sizes.max()))
        tilt = 1.2 * skew / max(1e-3, 1 - skew)
        own = self._by_others(tests @ inside, noise, share / 8)
        first = own + (error + b) * tilt * sizes + check.unit_error * check.lengths[: self._count]
        found = [first / self.rho]
        along = (1.001 * b * (1 + skew) + error) / max(0.5, 1 - skew)
        for n in range(1, len(self.images)):
            found.append((2 if n == 1 else 4) / self.rho * along * self.inside[n - 1])
        for n, part in enumerate(found):
            found[n] = part + self._by_others(self.tests[n], self._noise(n), share / 8)
        return found

    def _noise(self, n: int) -> float:
        """Bound on the rounding errors of the test of one column of an image, in float64."""
        check, steps = self.check, self.images[n].shape[0] + self.at
        found: float = 4 * math.sqrt(self.at) * steps * UNIT * check.norm * self.reach[n]
        if n == 0:
            found += 4 * steps * UNIT * check.norm * check.norm_z / self.rho
            return found
        longest = 4 / self.rho * float(norms(self.images[n - 1]).max())
        found += 4 * steps * UNIT * check.norm_z * longest
        found += 1.01 * check.unit_error * check.norm * longest
        return found

    def _by_others(self, tests: np.ndarray, noise: float, share: float) -> np.ndarray:
        """Sizes of columns of which each is tested by all random vectors but its own."""
        s = self.check.s
        sizes = np.linalg.norm(tests * (1 - np.eye(s)[:, : self._count]), axis=0)
        # An image is tested when it is made, and again when it boards.
        found: np.ndarray = (sizes + noise) / tau(s - 1, share / (2 * (RIDES + 1) * self._count))
        return found


def norms(columns: Array, axis: int | None = 0) -> np.ndarray:
    """Return the lengths of the columns, or of all; only these numbers leave a GPU."""
    if is_torch_array(columns):
        return to_numpy(namespace(columns).linalg.vector_norm(columns, axis=axis))
    return np.asarray(np.linalg.norm(to_numpy(columns), axis=axis))


@cache
def _chebyshev(n: int) -> list[np.ndarray]:
    """Coefficients in ``v = x - 1`` of ``T_n(x)``, then of ``U_(n-1)(x)``, ..., ``U_0(x)``."""
    x = Polynomial([1.0, 1.0])
    firsts, seconds = [Polynomial([1.0]), x], [Polynomial([1.0]), 2 * x]
    for kind in (firsts, seconds):
        while len(kind) <= n:
            kind.append(2 * x * kind[-1] - kind[-2])
    return [p.coef for p in (firsts[n], *seconds[n - 1 :: -1])] if n else [firsts[0].coef]


def _root(f: np.ndarray) -> float:
    """Return the positive root of ``f``, rounded up, or 0; infinity if it is not sure.

    All coefficients but the first must be positive: then there is one root, and Newton's method
    falls to it from above.
    """
    if f[1:].min() <= 0:
        return math.inf
    if f[0] >= 0:
        return 0.0
    v = float(min((-f[0] / f[1:]) ** (1 / np.arange(1, f.size))))
    for _ in range(60):
        value = slope = 0.0
        for coefficient in f[::-1]:
            slope = slope * v + value
            value = value * v + coefficient
        v -= value / slope
        if value / slope <= 1e-10 * v:
            break
    return v * (1 + 1e-8)
