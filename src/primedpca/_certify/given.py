"""Certifier of given components: what they leave out is looked for, not they themselves.

One float64 pass multiplies the given components and shows their residuals.  Beside them block
Krylov extends the basis by narrow blocks, until the random vectors of :mod:`._certify.checks` show
in a few rides that nothing large was missed; see docs/certificates.md, section 10.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from primedpca._certify.bounds import (
    NEGLIGIBLE,
    UNIT,
    Evidence,
    rounding_of,
    spectral_norm,
    topmost,
)
from primedpca._certify.certifiers import Proof
from primedpca._certify.checked import (
    CheckedCertifier,
    Mapped,
    Passengers,
    rayleigh_ritz,
    relief_of,
)
from primedpca._certify.checks import RIDERS, RIDES, Check, Findings, tau, tau_of_sum
from primedpca._core.orthonormal import combine, complete, inner_products, small_eigh
from primedpca._core.outward_rounding import arcsin_up
from primedpca._operator.operator import Centred
from primedpca.priming import BlockKrylov
from primedpca.priming.block_krylov import KrylovState
from primedpca.protocols import Array
from primedpca.result import Certificate, Cluster, Snapshot

__all__ = ["Beside", "GivenCertifier"]

#: Columns of the blocks beside the given components: with the random vectors, a line of the cache.
NARROW = 12
#: Number of random vectors: those that ride, and for sparse data some that only check.
DENSE, SPARSE = 8, 12
#: Found vectors beside the given ones that are refined with them, at most.
MORE = 16
#: The smallest variance, in the largest, at which left vectors are mapped.
LEAST = 1e-6
#: Part of the smallest variance to which residuals may push what may be missed.
NEEDED = 0.85
#: Estimated number of rides at which the random vectors depart at once; below which they may.
FEW, MANY = 5, RIDES - 4
#: The edge of the polynomials, in the estimate of what is missed.
EDGE = 0.95
#: Components with variances up to this, in the last of them, decide whether all are proven.
NEAR = 1.3
#: Steps beside the components.
LONGEST = 40


class Opened(NamedTuple):
    """What one pass shows of given components ``V``.

    Attributes
    ----------
    values : ndarray of shape (k,)
        Ritz values in their span, largest first.
    turn, back : ndarray of shape (k, k)
        ``V turn`` are the Ritz vectors, orthonormal, and ``back`` is the inverse.
    root : ndarray of shape (k, k)
        ``|root x|`` is the length of ``R x``, with ``R`` the residuals of the Ritz vectors; on the
        left, of ``R Theta^(-1/2) x``.
    images : array of shape (d, k)
        ``C V`` in float64.
    block : array of shape (length, k)
        The Ritz vectors in float64; on the left ``M`` times these, at unit length.
    """

    values: np.ndarray
    turn: np.ndarray
    back: np.ndarray
    root: np.ndarray
    images: Array
    block: Array


class Found(NamedTuple):
    """Ritz vectors of the blocks beside given components.

    Attributes
    ----------
    values, turn : ndarray of shape (m,) and (m, m)
        Ritz values, largest first, and coordinates.
    residual : ndarray of shape (b, m)
        Coordinates of the residuals in the newest block.
    """

    values: np.ndarray
    turn: np.ndarray
    residual: np.ndarray

    @classmethod
    def beside(cls, state: KrylovState, k: int) -> Found:
        """Return the Ritz vectors of all blocks but the first, of ``k`` columns."""
        square = state.projected[k:, k:]
        values, turn = small_eigh((square + square.T) / 2)
        last = turn[turn.shape[0] - state.coupling.shape[1] :]
        return cls(values, turn, state.coupling @ last)


class Given(Passengers):
    """Operator whose first pass multiplies given components, and the vectors of a check.

    Parameters
    ----------
    data : Centred
    check : Check
    vectors : array of shape (d, k)
        The components, in float64.
    own : ndarray of shape (k, k)
        Their inner products, nearly the identity.
    """

    def __init__(self, data: Centred, check: Check, vectors: Array, own: np.ndarray) -> None:
        super().__init__(data, check)
        self.vectors, self.own = vectors, own

    @cached_property
    def opened(self) -> Opened | None:
        """What the first pass shows; None if that is no start for a proof."""
        check, wide, v = self.check, self.check.wide, self.vectors
        left = check.side == "left"
        y = wide.forward(v) if left else v
        images = wide.adjoint(y) if left else check.multiply(v)
        if left:
            images /= wide.weight
            check.multiply(check.omega[:, :0])
        # If float32 cannot hold the scale of the data, nothing comes of it.
        self.shared = self.data.share(wide)
        t = inner_products((v,), images)
        if not (self.shared and np.isfinite(t).all()):
            return None
        sizes, vectors = np.linalg.eigh(self.own)
        half = (vectors / np.sqrt(sizes)) @ vectors.T
        values, s = small_eigh(half @ ((t + t.T) / 2) @ half)
        if not values[-1] > LEAST * values[0]:
            return None
        turn, back = half @ s, s.T @ ((vectors * np.sqrt(sizes)) @ vectors.T)
        rest = combine((v,), half @ (half @ t), wide.like)
        rest -= images
        lengths, axes = small_eigh(inner_products((rest,), rest))
        root = np.sqrt(lengths)[:, None] * (axes.T @ turn)
        root = root / np.sqrt(values) if left else root
        scaled = turn / np.sqrt(wide.weight * values) if left else turn
        block = combine((y,), scaled, wide.like)
        return Opened(values, turn, back, root, images, block)


class Beside(BlockKrylov):
    """Block Krylov beside given components, by narrow blocks that are orthogonal to them.

    With ``U`` the given components on the side of the iteration and ``C U = U T + R``, where ``R``
    is small, the blocks ``K`` satisfy ``C K = U H + K T_K + Q B E^T``: only they are multiplied.
    """

    def step(self, state: KrylovState, data: Any) -> KrylovState:
        """Multiply the given components in the first step, and then the newest block."""
        if state.step:
            return self._careful_step(state, data)
        opened = data.opened
        if opened is None:
            return state._replace(step=1, newest=state.newest[:, :0])
        like = replace(data.like, n_features=opened.block.shape[0])
        block, k = data.data.narrow(opened.block), opened.block.shape[1]
        width = min(self.block_size or k, like.n_features - k)
        newest = complete(block, like, k + width, (state.seed, 1))[:, k:]
        return state._replace(
            basis=(block,),
            newest=newest,
            projected=np.diag(opened.values),
            coupling=np.zeros((width, 0)),
            step=1,
        )


class GivenCertifier(CheckedCertifier):
    """Certifier of given components, by a basis that is extended beside them.

    Parameters
    ----------
    data, wide : Centred
        The data, and the same multiplied in float64.
    side : {"right", "left"}
        Side on which the basis is extended.
    vectors : array of shape (d, k)
        The components as given, of unit length, in float64.
    own : ndarray of shape (k, k)
        Their inner products.
    failure_probability : float
    seed : int
    tol : float
        Angle to prove, in radians.
    max_passes : int

    Attributes
    ----------
    certificate : Certificate or None
        Of the given components, if all are proven to ``tol``.
    exhausted : bool
        Whether they are not: too inaccurate, or wrong, or the proof would take too long.
    """

    def __init__(
        self,
        data: Centred,
        wide: Centred,
        side: Any,
        vectors: Array,
        own: np.ndarray,
        failure_probability: float,
        seed: int,
        tol: float,
        max_passes: int,
    ) -> None:
        k = vectors.shape[1]
        # The products of the components themselves are in float64, and need no checks.
        self.checks = SPARSE if wide.sparse else DENSE
        priming = Beside(block_size=NARROW, side=side)
        super().__init__(
            data, wide, priming, k, failure_probability, seed, tol, vectors, max_passes
        )
        self.operator: Given = Given(data, self.check, vectors, own)
        self.certificate: Certificate | None = None
        self._rides_before, self._guessed, self._level = math.inf, 0.0, 0.0

    # -- what depends on the priming alone ---------------------------------------------------

    def look(self, snapshot: Snapshot) -> Proof | None:
        """Return None: the certificate of the given components is :attr:`certificate`."""
        state, opened = snapshot.state, self.operator.opened
        self._changes.append(math.inf)
        # Too inaccurate, or already a basis of everything.
        good = opened is not None and self._target(opened) >= NEEDED * opened.values[-1]
        self.exhausted = not (good and state.newest.shape[1])
        if opened is not None and not self.exhausted and state.step > 1:
            state = state._replace(variances=opened.values)
            beside = Found.beside(state, opened.values.size)
            self.exhausted = self._is_lost(state, opened, beside)
            if self._riders is not None and not self.exhausted:
                self._ride(state, opened, beside)
            elif not self.exhausted:
                rho = self._edge_of_rides(state, opened, beside)
                if rho is not None:
                    self._depart(state, rho)
                    self._looking = True
        return None

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """Return None: nothing is proven in part."""
        return None

    def _target(self, opened: Opened) -> float:
        """The bound on what was missed at which the components are about proven."""
        # Vectors in another order, or rotated, are compared with those of a fit.
        if np.abs(np.abs(opened.back) - np.eye(opened.values.size)).max() > self.tol / 2:
            return -math.inf
        return float((opened.values - 1.3 * self._lengths_of(opened) / self.tol).min())

    def _is_lost(self, state: KrylovState, opened: Opened, beside: Found) -> bool:
        """Whether there is more variance beside the components than in the last of them."""
        full = state.projected.shape[0] + NARROW > state.basis[0].shape[0]
        long = state.step > LONGEST or self._out_of_passes
        more = beside.values[0] >= opened.values[-1]
        return bool(more or full or long or not state.newest.shape[1])

    def _edge_of_rides(self, state: KrylovState, opened: Opened, beside: Found) -> float | None:
        """Return ``rho`` for the random vectors, or None if more steps would save rides."""
        target, width = self._target(opened), state.coupling.shape[1]
        newest = state.projected[-width:, -width:]
        sizes = np.linalg.svd(state.coupling, compute_uv=False)
        guess = float(np.trace(newest)) / width + 2 * float(np.median(sizes))
        # It means little in the first steps, and goes up and down.
        guess, self._guessed = max(guess, self._guessed), guess
        # Of a found vector that has not converged, a part is still outside.
        ahead = np.maximum(beside.values - guess, 0.0)
        lengths = np.linalg.norm(beside.residual, axis=0) ** 2
        top = guess + float((ahead * lengths / np.maximum(lengths + ahead**2, 1e-300)).max())
        before, self._rides_before = self._rides_before, math.inf
        if not (state.step > 3 and 0.0 < top < target):
            return None
        left = max(0.0, self.wide.total - opened.values.sum() - beside.values.sum())
        rest = float(np.linalg.eigvalsh((newest + newest.T) / 2)[-1])
        height = math.sqrt(1 + left * max(rest, 0.0) / top**2 / 2) / tau(RIDERS, self._failure / 8)
        rides = math.acosh(max(height, 1.0)) / math.acosh(2 * target / top - 1)
        self._rides_before = rides
        ready = rides <= FEW or (rides <= MANY and rides > before - 1.2)
        # What they are expected to show, and what is refined above that.
        self._level = (top + target) / 2
        return EDGE * top if ready else None

    # -- the proof ---------------------------------------------------------------------------

    def _ride(self, state: KrylovState, opened: Opened, beside: Found) -> None:
        """Take in a ride of the random vectors; after the last with the basis, let them go on."""
        riders = self._riders
        assert riders is not None
        riders.ride(self.operator.product)
        if not riders.riding or self._is_settled(state, opened, beside):
            self._looking = False
            self._ride_on(state, opened, beside)
            self.exhausted = self.certificate is None

    def _is_settled(self, state: KrylovState, opened: Opened, beside: Found) -> bool:
        """Whether the vectors found beside the components are good enough for the proof."""
        return self._predicted(state, opened, beside, self._level) <= 0.7 * self.tol

    def _wanted(self, beside: Found) -> int:
        """Return how many of the vectors found beside the components are refined with them."""
        return max(1, min(MORE, int((beside.values > self._level).sum())))

    def _predicted(self, state: KrylovState, opened: Opened, beside: Found, missed: float) -> float:
        """Return about the angle that is proven if at most ``missed`` was missed."""
        f, theta = self._wanted(beside), opened.values
        if missed >= theta[-1]:
            return math.pi / 2
        b, alpha = beside.residual[:, :f], self._outside(f, state, beside, missed, 0.0)
        lengths, worst, size = self._lengths_of(opened), 0.0, spectral_norm(b)
        # On the left, residuals have a part along the span.
        cross = size / float(theta[-1]) if self.check.side == "left" else 0.0
        for i in np.flatnonzero(theta < NEAR * theta[-1]):
            ahead = theta[i] - beside.values[:f]
            kappa = spectral_norm(b / ahead)
            gap = theta[i] - alpha - spectral_norm(b / np.sqrt(ahead)) ** 2
            gap -= kappa**2 * size * cross
            if gap <= 0:
                return math.pi / 2
            more = kappa * cross * (lengths[i] + size * kappa * cross)
            z = (lengths[i] + more) / gap
            worst = max(worst, float(math.hypot(1.0, kappa) * z + lengths[i] / theta[i]))
        return worst

    def _outside(
        self, f: int, state: KrylovState, beside: Found, missed: float, blur: float
    ) -> float:
        """Bound on the variance outside of the given vectors and ``f`` of those beside them."""
        assert self._riders is not None
        above = missed + blur
        relief = relief_of(state, self._riders.at, above)
        rest = Evidence(beside.values[f:], beside.residual[:, f:], above, 0.0, relief=relief)
        return topmost(rest) + blur

    def _lengths_of(self, opened: Opened) -> np.ndarray:
        """Lengths of the residuals of the given components, ``(k,)``."""
        found: np.ndarray = np.linalg.norm(opened.root, axis=0)
        return found * np.sqrt(opened.values) if self.check.side == "left" else found

    def _ride_on(self, state: KrylovState, opened: Opened, beside: Found) -> None:
        """Let the random vectors ride alone until the components are proven, or cannot be."""
        riders, data, share = self._riders, self.operator.data, self._share()
        assert riders is not None
        multiply = data.covariance_product if self.check.side == "right" else data.gram_product
        findings = self.check.look(state, share / 2, (self._seed, 7, 1, self._origin))
        refined, most = None, 0.9 * self.tol
        while True:
            missed = riders.missed(findings)
            predicted = self._predicted(state, opened, beside, missed)
            if predicted <= most:
                refined = refined or self._refined_by(state, opened, beside, findings, share)
                if refined is None:
                    return
                certificate = self._of_given(refined, state, opened, missed)
                if certificate.met(self.tol).all() and not certificate.zero.any():
                    self.certificate = certificate
                    return
                most = 0.7 * predicted
            spent = self._out_of_passes
            # Far above rho the images grow without end.
            if spent or not riders.riding or max(riders.heights) > 1e100 * self.wide.total:
                return
            self._alone += 1
            riders.ride(multiply(riders.board(data.like.dtype)))

    def _refined_by(
        self, state: KrylovState, opened: Opened, beside: Found, findings: Findings, share: float
    ) -> Refined | None:
        """Refine the given vectors, and those found beside them, by half a pass in float64."""
        wide, k, left = self.wide, opened.values.size, self.check.side == "left"
        if findings.skew > 0.01:
            return None
        # How many does not depend on the random vectors.
        f = self._wanted(beside)
        more = combine(state.basis[1:], beside.turn[:, :f], wide.like)
        both = wide.like.xp.concat([opened.block, more], axis=1)
        images = wide.adjoint(more) if left else wide.forward(more)
        square = np.zeros((k + f, k + f))
        # (C V)^T (C V) = T^2 + R^T R: the image of M V has the length of C V.
        square[:k, :k] = np.diag(opened.values) + (opened.root.T @ opened.root if left else 0.0)
        across = inner_products((opened.images,), images if left else more)
        scale = np.sqrt(wide.weight * opened.values) if left else 1.0
        square[:k, k:] = (opened.turn / scale).T @ across
        square[k:, :k] = square[:k, k:].T
        square[k:, k:] = inner_products((images,), images) / wide.weight
        own = inner_products((both,), both)
        theta, y = rayleigh_ritz(own, square)
        if y is None or theta[-1] <= 0:
            return None
        # A quarter for all errors beside the components together, a quarter for single columns.
        tests = findings.tests[:, k:]
        error = float(np.linalg.norm(tests)) + 2 * findings.noise
        error /= tau_of_sum(self.check.s, share / 4)
        only = findings._replace(tests=tests, error=error)
        lapack = UNIT * 10 * beside.values.size * float(beside.values[0])
        columns = self.check.columns(only, beside.turn[:, :f], share / 4) + lapack
        skew, b = findings.skew, spectral_norm(state.coupling)
        between = spectral_norm(state.projected[:k, k:])
        away = spectral_norm(opened.root) * math.sqrt(self.wide.total if left else 1.0)
        blur = 2.2 * (error + lapack) + 2 * skew**2 * float(opened.values[0])
        blur += 4 * skew * (between + float(opened.values[-1]) + b + away)
        grown = beside._replace(residual=(1 + skew) * beside.residual)
        return Refined(theta, y, square, own, grown, columns, blur)

    def _of_given(
        self, refined: Refined, state: KrylovState, opened: Opened, missed: float
    ) -> Certificate:
        """Return the certificate of the given components if at most ``missed`` was missed."""
        theta, y, beside, wide = refined.theta, refined.y, refined.beside, self.wide
        k, p, left = opened.values.size, theta.size, self.check.side == "left"
        f = p - k
        alpha, whole = (self._outside(i, state, beside, missed, refined.blur) for i in (f, 0))
        reach = np.linalg.norm(opened.root @ y[:k], axis=0)
        if left:
            reach *= math.sqrt(whole + spectral_norm(opened.root) ** 2)
        b = beside.residual[:, :f] @ y[k:]
        slip = UNIT * (p * max(wide.shape) + beside.values.size**1.5 * math.sqrt(p))
        largest = float(theta[0]) + spectral_norm(b)
        e, each = (2 * rounding_of(wide, width, largest, slip) for width in (p, 1))
        phi = reach + refined.columns @ np.abs(y[k:]) + each
        floor, self._ceiling = NEGLIGIBLE * wide.total, np.full(p + 1, math.inf)
        if left:
            evidence, up = self._right(theta, b, (e, each), phi, floor, alpha)
        else:
            up = self._up(Evidence(theta, b, alpha, e), phi)
            evidence = Evidence(theta, b, alpha, e, floor, phi, slip, outside=True)
        certificate = self._certificate(
            Mapped(evidence, up, opened.images, 4 * each / float(theta[k - 1])), k
        )
        return self._compared(certificate, refined, opened)

    def _compared(self, certificate: Certificate, refined: Refined, opened: Opened) -> Certificate:
        """Convert the certificate of the refined vectors to one of the given ones.

        In the basis of the first Ritz vectors, the refined ones have the coordinates ``c`` up to a
        part of a known length, and the given ones ``back``.
        """
        k, left = opened.values.size, self.check.side == "left"
        y, inside = refined.y[:k, :k], refined.y[k:, :k]
        if left:
            c = np.sqrt(opened.values)[:, None] * y / np.sqrt(refined.theta[:k])
            far = np.linalg.norm(opened.root @ y, axis=0)
            far += _lengths(refined.square[k:, k:], inside)
            far /= np.sqrt(refined.theta[:k])
        else:
            c, far = y, _lengths(refined.own[k:, k:], inside)
        far = far * (1 + 1e-9) + 64 * UNIT * self.wide.shape[1]
        # Of single vectors, the nearest multiple.
        z = (c * opened.back).sum(axis=0) / (c * c).sum(axis=0)
        apart = np.linalg.norm(c * z - opened.back, axis=0) + far * np.abs(z)
        apart /= np.linalg.norm(opened.back, axis=0)
        turned = certificate.angle_bounds + np.array([arcsin_up(float(x)) for x in apart])
        turned = np.minimum(turned, np.pi / 2)
        runs = []
        for start, stop, bound in certificate.clusters:
            if stop <= k:  # of a run that extends past k, only a part of the span is given
                between = _angle(c, far, opened.back, start, stop)
                runs.append(Cluster(start, stop, min(bound + between, np.pi / 2)))
        return replace(certificate, angle_bounds=turned, clusters=runs)


class Refined(NamedTuple):
    """Ritz vectors of given components and of vectors found beside them.

    Attributes
    ----------
    theta, y : ndarray of shape (p,) and (p, p)
        Their Ritz values, and their coordinates.
    square, own : ndarray of shape (p, p)
        Covariance and inner products of the vectors that they are made of.
    beside : Found
    columns : ndarray of shape (f,)
        Bounds on the errors of the products of the found vectors.
    blur : float
        Bound on what these errors add to the variance outside.
    """

    theta: np.ndarray
    y: np.ndarray
    square: np.ndarray
    own: np.ndarray
    beside: Found
    columns: np.ndarray
    blur: float


def _lengths(square: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Lengths of ``X c`` for columns ``c``, where ``square`` is ``X^T X``."""
    found: np.ndarray = np.sqrt(np.maximum(((square @ columns) * columns).sum(axis=0), 0.0))
    return found


def _angle(c: np.ndarray, far: np.ndarray, given: np.ndarray, start: int, stop: int) -> float:
    """Bound on the largest angle between the spans of some given and refined vectors."""
    ours, theirs = c[:, start:stop], given[:, start:stop]
    z = np.linalg.lstsq(ours, theirs, rcond=None)[0]
    apart = float(np.linalg.norm(ours @ z - theirs))
    apart += float(np.linalg.norm(far[start:stop])) * float(np.linalg.norm(z))
    return arcsin_up(apart / float(np.linalg.norm(theirs, ord=-2)))
