"""Certifier of block Krylov in any arithmetic: float32 does the work, a few float64 columns check.

The priming runs exactly as without a certificate, on either side.  :mod:`._certify.checks` bounds
its errors and what it missed; here these become bounds on the components.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from primedpca._certify.bounds import (
    Evidence,
    carried,
    certificate_of,
    fewest,
    spectral_norm,
    upper,
)
from primedpca._certify.certifiers import NoCertifier, Proof
from primedpca._certify.checks import Check, Findings, Riders
from primedpca._certify.rounding import NEGLIGIBLE, UNIT, rounding_of
from primedpca._core.arrays import to_numpy
from primedpca._core.orthonormal import combine, complete, orthonormalise
from primedpca._operator.operator import Centred
from primedpca._operator.scaling import decomposition
from primedpca.priming import BlockKrylov
from primedpca.priming.block_krylov import KrylovState, looked
from primedpca.protocols import Array
from primedpca.result import Snapshot

__all__ = ["CheckedCertifier"]

#: Components beyond the wanted ones that are mapped from the left, and the ratio of variances at
#: which there are enough of them.
MORE, FALLEN = 16, 0.85


class Passengers:
    """Operator that multiplies more vectors in the same passes as those of a priming.

    The first product of either side is made in float64, together with the vectors of a check.

    Parameters
    ----------
    data : Centred
        Multiplied in every later pass.
    check : Check

    Attributes
    ----------
    riders : array or None
        Vectors that take part in the next product of either side.
    product : array or None
        Their product with ``M^T M / n`` or ``M M^T / n``, once it is made.
    """

    def __init__(self, data: Centred, check: Check) -> None:
        self.data, self.check, self.weight = data, check, data.weight
        self.like, self.shape, self.engine = data.like, data.shape, data.engine
        self.riders: Array | None = None
        self.product: Array | None = None
        #: Whether the mean that float64 found can be used in the arithmetic of the priming.
        self.shared = False

    @property
    def passes(self) -> float:
        """Number of passes over the data so far."""
        return self.data.passes

    def forward(self, vectors: Array) -> Array:
        """Return ``M V`` in float64: it starts a priming from the left, and finds the mean."""
        return self.data.narrow(self.check.wide.forward(self.data.wide(vectors)))

    def adjoint(self, left: Array) -> Array:
        """Return ``M^T U``."""
        return self.data.adjoint(left)

    def covariance_product(self, vectors: Array) -> Array:
        """Return ``M^T M V / n``."""
        return self._together(self.data.covariance_product, vectors)

    def gram_product(self, left: Array) -> Array:
        """Return ``M M^T U / n``."""
        return self._together(self.data.gram_product, left)

    def _together(self, multiply: Any, vectors: Array) -> Array:
        if self.check.z is None:
            product = self.check.multiply(vectors)
            self.shared = self.data.share(self.check.wide)
            return self.data.narrow(product)
        if self.riders is None:
            return multiply(vectors)
        xp, width = self.like.xp, vectors.shape[1]
        product = multiply(xp.concat([vectors, self.riders], axis=1))
        self.riders = None
        own, self.product = (
            xp.asarray(part, copy=True) for part in (product[:, :width], product[:, width:])
        )
        return own


class Mapped(NamedTuple):
    """Right vectors of left ones, with their evidence."""

    evidence: Evidence
    up: np.ndarray
    vectors: Array
    turned: float


class CheckedCertifier(NoCertifier):
    """Certifier of block Krylov whose products may be made in any arithmetic.

    Whether it looks, and when the random vectors depart and ride, depends on the priming alone
    and never on the vectors themselves: otherwise the priming would depend on them.

    Parameters
    ----------
    data : Centred
        Multiplied by the priming.
    wide : Centred
        The same data, multiplied in float64.
    priming : BlockKrylov
    wanted : int or float
        Number of components, or the explained variance ratio that they are to reach.
    failure_probability : float
        Probability that the certificate is false, for the whole fit; positive.
    seed : int
        Seed of the random vectors.
    tol : float
        Angle to prove, in radians.
    start : array of shape (d, q), optional
        Directions that block Krylov starts from.

    Attributes
    ----------
    exhausted : bool
        Whether this arithmetic, or this kind of proof, cannot prove more.
    spent : float
        Probability that one of the proofs so far is false.
    """

    needs_all = True

    def __init__(
        self,
        data: Centred,
        wide: Centred,
        priming: BlockKrylov,
        wanted: int | float,
        failure_probability: float,
        seed: int,
        tol: float,
        start: Array | None = None,
    ) -> None:
        # A start may depend on the random vectors of an earlier fit, so it is part of the seed.
        origin = 0 if start is None else zlib.crc32(np.ascontiguousarray(to_numpy(start)).tobytes())
        self.wide, self.priming, self.wanted, self.tol = wide, priming, wanted, tol
        # NumPy pads seeds with zeros, and block Krylov draws by (seed, step): a 1 in between.
        self.check = Check(wide, priming.side, (seed, 6, 1, origin))
        self.operator: Any = Passengers(data, self.check)
        self.exhausted = False
        self._failure, self._seed, self._origin = failure_probability, seed, origin
        self._riders: Riders | None = None
        self.spent = 0.0
        self._looking, self._looks = False, 0
        self._best, self._blocks, self._restarted = math.inf, 0, False
        self._ceiling = np.zeros(0)
        self._changes: list[float] = []

    # -- what depends on the priming alone ---------------------------------------------------

    def look(self, snapshot: Snapshot) -> Proof | None:
        """Return the proof after this step, or None if it is too early for one."""
        if not self.operator.shared:
            self.exhausted = True
            return None
        state = looked(snapshot.state)
        product, self.operator.product = self.operator.product, None
        if self._riders is not None and product is not None:
            self._riders.ride(product)
        if len(state.basis) <= self._blocks:  # a restart: vectors that were known are gone
            self._riders, self._best, self._restarted = None, math.inf, True
        self._blocks = len(state.basis)
        k = self._count(state)
        change = float(state.change[:k].max()) if state.change.size >= k else math.inf
        self._changes.append(change)
        full = state.projected.shape[0] >= self.check.z.shape[0]
        self._looking = self._looking or full or self._is_near(state, k)
        if not self._looking:
            return None
        if not full and (self._riders is None or not self._riders.riding):
            self._riders = Riders(self.check, state)
        if state.variances.size < k or (change > self.tol and not full):
            return None
        proof = self._prove(state, k, full, full or change < self.tol / 100)
        met = proof is not None and proof.counted and bool(proof.certificate.met(self.tol).all())
        self.exhausted = not met and (full or change < self.tol / 100)
        return proof

    def _count(self, state: KrylovState) -> int:
        """Return the number of components, by the variances as they are."""
        if not isinstance(self.wanted, float):
            return self.wanted
        reached = np.cumsum(state.variances) >= self.wanted * self.wide.total
        return 1 + int(np.argmax(reached)) if reached.any() else state.variances.size + 1

    def _is_near(self, state: KrylovState, k: int) -> bool:
        """Whether as many steps are left as the random vectors have to ride."""
        now, *before = self._changes[::-1]
        if state.variances.size <= k or not math.isfinite(now):
            return False
        rate = now / before[0] if before and 0 < before[0] < math.inf else 0.05
        # Where much variance is left beside the smallest that is wanted, a second ride pays.
        rest = self.wide.total - float(state.variances.sum())
        rides = 2 if rest > 25 * state.variances[k - 1] else 1
        least = 0.15 if self.wide.sparse else 0.02
        return now * min(max(rate, least), 1.0) ** rides <= self.tol

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """Return a proof of what was found, however little that is."""
        state = looked(snapshot.state)
        if not self.operator.shared or state.variances.size == 0:
            return None
        full = state.projected.shape[0] >= self.check.z.shape[0]
        k = self._count(state)
        if isinstance(self.wanted, float):
            k = min(k, state.variances.size)
        return self._prove(state, k, full, True)

    def go_on(self) -> None:
        """Let the random vectors ride on the next pass."""
        if self._looking and self._riders is not None and self._riders.riding:
            self.operator.riders = self._riders.board(self.operator.like.dtype)

    # -- the proof ---------------------------------------------------------------------------

    def _prove(self, state: KrylovState, k: int, full: bool, last: bool) -> Proof | None:
        """Return the proof of a basis, or None if none is near and this is not the last look."""
        self._looks += 1
        # The parts of all looks together, the sum of 1 / (r (r + 1)), never exceed 1.
        share = self._failure / (self._looks * (self._looks + 1))
        self.spent += share
        # A quarter for the errors, 5/8 for what was missed, 1/16 for columns on either side.
        seed = (self._seed, 7, self._looks, self._origin)
        findings = self.check.look(state, share / 4, seed)
        evidence = self._evidence(state, findings, k, share, full)
        if evidence is None:
            return None
        self._ceiling = upper(evidence)
        counted, p = True, _mapped_size(evidence.values, k)
        if isinstance(self.wanted, float):
            least, k = fewest(evidence, self._ceiling, self.wide.total, self.wanted)
            counted = least == k
            if k > evidence.values.size:
                return None
        if self.priming.side == "right":
            vectors, moved = self._vectors(state, k)
            found = Mapped(evidence, self._ceiling, vectors, moved)
        else:
            ideal = Evidence(evidence.values, evidence.residual, evidence.missed, 0.0)
            ahead = certificate_of(ideal, k, None, "", 0.0)
            if p < k or not (last or ahead.met(0.8 * self.tol).all()):
                return None  # not worth the half pass that maps the vectors
            mapped = self._mapped(state, findings, evidence, (k, p), share)
            if mapped is None:
                return None
            found = mapped
        certificate = certificate_of(
            found.evidence, k, self.wide, "probabilistic", self.spent, found.up
        )
        certificate = certificate.rounded(2 * found.turned)
        variances = found.evidence.values[:k]
        variances = np.concatenate([variances, np.zeros(k - variances.size)])
        find = partial(decomposition, self.wide, found.vectors[:, :k], variances)
        return Proof(certificate, find, counted, found.evidence)

    def _evidence(
        self, state: KrylovState, findings: Findings, k: int, share: float, full: bool
    ) -> Evidence | None:
        """Return the evidence on the side of the priming, or None if the basis is too skew."""
        values, turn, skew = state.variances, state.turn, findings.skew
        if skew > 0.01:
            return None
        b, top = spectral_norm(state.coupling), float(values[0])
        # LAPACK's own errors, and eigenvalues below zero, which count as zero.
        projected = (state.projected + state.projected.T) / 2
        left = np.linalg.norm(projected @ turn - turn * values, axis=0) + UNIT * values.size * top
        e = 1.1 * findings.error + 4 * b * skew + skew**2 * (top + b)
        e += float(np.linalg.norm(left))
        p = min(values.size, k + 8)
        columns = self.check.columns(findings, turn[:, :p], share / 16) + left[:p]
        residual = (1 + skew) * state.residual
        evidence = Evidence(values, residual, math.inf, e, math.inf, columns, skew, skew)
        if self._restarted:
            self._best, self._restarted = carried(evidence, self._ceiling), False
        if self._riders is not None:
            self._best = min(self._best, self._riders.missed(findings, share * 5 / 8))
        blur = (values.size + 2) * e + 2 * self.check.unit_error
        trace = max(0.0, self.wide.total - float(values.sum())) + blur
        floor = NEGLIGIBLE * max(0.0, self.wide.total - blur)
        missed = 0.0 if full else min(self._best, trace)
        return replace(evidence, missed=missed, negligible=floor)

    def _vectors(self, state: KrylovState, k: int) -> tuple[Array, float]:
        """Return the Ritz vectors as an orthonormal basis, and the angle by which that turns them.

        The basis is orthonormal only up to the arithmetic of the priming.
        """
        like = self.wide.like
        ritz = combine(state.basis, state.turn[:, :k], like)
        ritz /= like.xp.linalg.vector_norm(ritz, axis=0)
        basis, _ = orthonormalise(like.xp.asarray(ritz, copy=True))
        moved = np.linalg.norm(to_numpy(basis - ritz), axis=0).max()
        basis = complete(basis, like, k, 0)  # nothing is claimed about vectors beyond the basis
        return basis, float(1.01 * moved + 4 * UNIT * like.n_features)

    def _mapped(
        self,
        state: KrylovState,
        findings: Findings,
        evidence: Evidence,
        sizes: tuple[int, int],
        share: float,
    ) -> Mapped | None:
        """Map the leading left vectors to right ones by half a pass in float64.

        With ``U'`` the left Ritz vectors of an exact Rayleigh-Ritz step and ``R'`` their
        residuals, ``W = M^T U' (n Theta')^(-1/2)`` is orthonormal and
        ``C W = W Theta' + M^T R' (n Theta')^(-1/2)``.  As ``R'`` is orthogonal to ``U'``, the
        last term is at most ``sqrt(alpha) R' Theta'^(-1/2)`` in every combination of columns.
        """
        (k, p), skew, data, m = sizes, findings.skew, self.wide, evidence.values.size
        like = replace(data.like, n_features=data.shape[0])
        left = combine(state.basis, state.turn[:, :p], like)
        images = data.adjoint(left)
        theta, y = _rayleigh_ritz(left, images, data.weight)
        if y is None or theta[-1] <= 0:
            return None
        turn = state.turn[:, :p] @ y
        w = state.coupling.shape[1]
        b = (1 + skew) * (state.coupling @ turn[turn.shape[0] - w :])
        slip = UNIT * (p * data.shape[0] + m * math.sqrt(m * p))  # of the left vectors
        e = rounding_of(data, p, float(theta[0]) + spectral_norm(b), slip)
        phi = self.check.columns(findings, turn, share / 16) + 4 * e
        exact = Evidence(theta, b, 0.0, e, columns=phi)
        alpha = min(carried(exact, self._ceiling), float(self._ceiling[0]))
        # Young's inequality separates the unknown part of the residual from the known one.
        ahead = theta[:k] - alpha
        eta = 0.2 * float(ahead[ahead > 0].min(initial=theta[0]))
        whole = Evidence(theta, b, alpha + eta, e)
        up = np.minimum(upper(whole) + float(phi @ phi) / eta, self._ceiling[: p + 1])
        root = np.sqrt(alpha / theta)
        rest = np.linalg.norm(phi / np.sqrt(theta))
        cross = (spectral_norm(b / np.sqrt(theta)) + float(rest)) / math.sqrt(alpha)
        errors, slip = phi * root + 8 * e, 4 * e / float(theta[-1])
        found = Evidence(
            theta, b * root, 0.0, 8 * e, evidence.negligible, errors, slip, cross, outside=True
        )
        found = replace(found, missed=carried(found, up))
        vectors = images @ data.like.asarray(y / np.sqrt(data.weight * theta))
        vectors, _ = orthonormalise(vectors)
        vectors = complete(vectors, data.like, k, 0)
        return Mapped(found, up, vectors, 8 * e / float(theta[k - 1]))


def _mapped_size(values: np.ndarray, k: int) -> int:
    """Return how many left vectors are mapped for the first ``k``, by their variances alone."""
    low = np.flatnonzero(values < FALLEN * values[min(k, values.size) - 1])
    p = min(int(low[0]) if low.size else values.size, k + MORE, values.size)
    return min(max(p, k), int((values > 1e-6 * values[0]).sum()))


def _rayleigh_ritz(
    left: Array, images: Array, weight: float
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return Ritz values of ``M M^T / n`` in the span of ``left`` and the rotation to its vectors.

    ``images`` are ``M^T left``.  The rotation is None if the vectors are dependent.
    """
    own = to_numpy(left.T @ left)
    square = to_numpy(images.T @ images) / weight
    try:
        low = np.linalg.cholesky(own)
    except np.linalg.LinAlgError:
        return np.zeros(1), None
    half = np.linalg.solve(low, np.linalg.solve(low, square).T)
    theta, y = np.linalg.eigh((half + half.T) / 2)
    return theta[::-1].copy(), np.linalg.solve(low.T, y[:, ::-1])
