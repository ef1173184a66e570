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
    NEGLIGIBLE,
    UNIT,
    Evidence,
    angle_bounds,
    carried,
    certificate_of,
    fewest,
    rounding_of,
    spectral_norm,
    topmost,
    upper,
)
from primedpca._certify.certifiers import NoCertifier, Proof
from primedpca._certify.checks import RIDES, Check, Findings, Riders, norms
from primedpca._core.arrays import dtype_name, namespace, to_numpy
from primedpca._core.orthonormal import (
    combine,
    complete,
    inner_products,
    orthonormalise,
    triangle,
)
from primedpca._operator.gpu_products import COLUMNS_WIDE
from primedpca._operator.operator import Centred
from primedpca._operator.scaling import decomposition
from primedpca.priming import BlockKrylov
from primedpca.priming.block_krylov import KrylovState, looked
from primedpca.protocols import Array
from primedpca.result import Certificate, Snapshot

__all__ = ["CheckedCertifier", "Mapped", "Passengers", "rayleigh_ritz", "relief_of"]

#: Ritz vectors beyond the wanted ones that are refined, at most.
MORE = 32
#: Ratio of a variance to the last wanted one at which enough left vectors are mapped.
FALLEN = 0.93
#: Estimated error of the components, in radians, below which the random vectors may depart.
READY = 1.0
#: A proof is not worth its price if the random vectors would need more rides than this.
ALONG = 10
#: If they need more rides than this, they wait for a basis in which the components are this good.
FEW, GOOD = 4, 0.02
#: Steps that the priming goes on after it has settled, before they ride alone.
PATIENCE = 2
#: Ratio of variances below which rounding errors in float64 are far below the unit of float32.
MILD = 1e4
#: Smallest variance that is looked for, in the largest.
LEAST = 1e-12
#: Dimensions up to which a basis that has become invariant is completed to one of everything.
COMPLETED = 512
#: Number of times that they ride alone before a proof is given up as too costly.
ATTEMPTS = 2
NOTHING_FOUND = Findings(0.0, 0.0, np.zeros(0), 0.0)


class Passengers:
    """Operator that multiplies more vectors in the same passes as those of a priming.

    The vectors of a check are multiplied first, in float64.  Where a pass has a price of its own,
    the first product of the priming is made in the same pass.

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

    def _is_apart(self, width: int) -> bool:
        """Whether the first ``width`` columns are cheaper in a pass of their own.

        In memory a pass costs no more than its columns, and those of float64 more than twice.  A
        GPU multiplies some of them in the time of one.
        """
        data = self.data
        if not (data.traits.in_memory and dtype_name(data.like.dtype) == "float32"):
            return False
        there = not data.sparse and data.source.device not in (None, "cpu")
        return not there or self.check.s + width > COLUMNS_WIDE

    def _together(self, multiply: Any, vectors: Array) -> Array:
        if self.check.z is None:
            apart = self._is_apart(vectors.shape[1])
            product = self.check.multiply(self.check.omega[:, :0] if apart else vectors)
            self.shared = self.data.share(self.check.wide)
            if apart and self.shared:
                product = multiply(vectors)
                # Rows of tiny weight may be too large for float32 in the unit of the others.
                self.shared = bool(self.like.xp.all(self.like.xp.isfinite(product)))
            # If not, nothing comes of this priming, and float32 may not hold the product.
            return self.data.narrow(product) if self.shared else 0 * vectors
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
    max_passes : int, default=100
        Maximum number of passes of the priming and of rides without it, together.

    Attributes
    ----------
    exhausted : bool
        Whether this arithmetic, or this kind of proof, cannot prove more.
    spent : float
        Probability that one of the proofs so far is false.
    """

    needs_all = True
    #: Number of random vectors, if not that of :class:`Check`, and of their stream.
    checks: int | None = None
    stream = 6
    #: Kind of operator that the priming works on.
    multiplies: Any = Passengers

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
        max_passes: int = 100,
    ) -> None:
        # A start may depend on the random vectors of an earlier fit, so it is part of the seed.
        origin = 0 if start is None else zlib.crc32(np.ascontiguousarray(to_numpy(start)).tobytes())
        self.wide, self.priming, self.wanted, self.tol = wide, priming, wanted, tol
        # NumPy pads seeds with zeros, and block Krylov draws by (seed, step): a 1 in between.
        self.check = Check(wide, priming.side, (seed, self.stream, 1, origin), self.checks)
        self.operator = self.multiplies(data, self.check)
        self.exhausted = self.hopeless = False
        self._settled, self._tried, self._attempts = 0, -3, 0
        self._last_pass, self._alone = wide.passes + max_passes, 0
        self._failure, self._seed, self._origin = failure_probability, seed, origin
        self._riders: Riders | None = None
        self._looking, self._looks, self._counted, self._departures = False, 0, 0, 0
        self.spent = 0.0
        # The least bound on what is missed, and the size of the basis outside of which it holds.
        self._best, self._at = math.inf, 0
        self._blocks, self._restarted = 0, False
        self._ceiling, self._guessed, self._rode = np.zeros(0), math.inf, RIDES
        self._changes: list[float] = []

    @property
    def sound(self) -> bool:
        """Whether the priming could use the mean and scale that float64 has found."""
        return bool(self.operator.shared)

    @property
    def _out_of_passes(self) -> bool:
        """Whether the passes of the priming and of the rides have come to their maximum."""
        return bool(self.wide.passes >= self._last_pass)

    # -- what depends on the priming alone ---------------------------------------------------

    def look(self, snapshot: Snapshot) -> Proof | None:
        """Return the proof after this step, or None if it is too early for one."""
        if not self.sound:
            self.exhausted = True
            return None
        if snapshot.state.is_open:  # on a GPU, the first steps are not looked at
            self._blocks = len(snapshot.state.basis)
            self._changes.append(math.inf)
            return None
        state, product, self.operator.product = snapshot.state, self.operator.product, None
        if self._riders is not None and product is not None:
            self._riders.ride(product)
        if len(state.basis) <= self._blocks:  # a restart: vectors that were known are gone
            self._riders, self._best, self._restarted = None, math.inf, True
        self._blocks = len(state.basis)
        if not state.is_looked and state.variances.size:
            self._changes.append(self._changes[-1])  # on a GPU, looks cost as much as steps
            return None
        state = looked(state)
        k = self._count(state)
        change = float(state.change[:k].max()) if state.change.size >= k else math.inf
        self._changes.append(change)
        full = state.projected.shape[0] >= self.check.z.shape[0]
        if full:
            return self._last(state, k, full)
        if self.priming.finished(state):
            left = self.wide.total - float(np.trace(state.projected))
            if self.check.z.shape[0] <= COMPLETED and left > 1e-6 * self.wide.total:
                return None  # on to a basis of everything: equal variances are missed so
            # Beside an invariant span there is nothing but rounding, or what it has missed, which
            # a basis of everything would show at its price.  Probes in float64 show it in a pass.
            proof = self._last(state, k, full)
            self.exhausted = self.exhausted or proof is None or not self._is_met(proof)
            return proof
        if state.variances.size <= k or not change < READY:
            return None
        if change <= self.tol:
            # From a good start, or to a coarse angle, components settle at once, but the basis is
            # too small for a proof.
            least = 8 + 4 * k // max(1, state.basis[-1].shape[1])
            self._settled = self._settled or max(state.step, least)
        rides = self._rides(state, k)
        small = 3 * state.projected.shape[0] > self.check.z.shape[0]  # soon a basis of everything
        spent = self._alone > 0 and self._out_of_passes
        late = self._settled and state.step > 1.3 * self._settled + PATIENCE
        dear = self._settled and state.step >= self._settled and rides > ALONG
        along = self._looking and self._riders is not None and self._riders.riding
        if spent or ((late or dear) and not (along or small)):
            self._attempts = ATTEMPTS  # the proof would cost more than the fit
            return self._last(state, k, full)
        if self._attempts:
            # Cheaper without the priming, once that is as good as the proof needs.
            missed = min(1.17 * self._guess(state, k), 0.98 * float(state.variances[k - 1]))
            early = state.step < self._tried + 5
            # On a very flat spectrum, the neighbours of the last component must settle, too.
            unsettled = change > self.tol / 1000
            if early or unsettled or self._within(state, k, missed) > 0.7 * self.tol:
                self._share()
                return None
            self._ride_alone(state, k)
            return self._last(state, k, full)
        guess = self._guess(state, k)
        self._looking = self._looking or self._is_near(change, rides, guess)
        self._guessed, self._rode = guess, rides
        if self._looking and (self._riders is None or not self._riders.riding):
            self._depart(state, self._edge(state, k))
        if change > self.tol:
            return None
        if state.step > self._settled + PATIENCE and change <= self.tol / 1000:
            self._ride_alone(state, k)
            return self._last(state, k, full)
        self._share()  # whether or not the look is made
        return self._prove(state, k, full, False) if self._may_prove(state, k) else None

    def _last(self, state: KrylovState, k: int, full: bool) -> Proof | None:
        """Return the proof of the last look: more steps are not worth their price."""
        proof = self._prove(state, k, full, True)
        met = proof is not None and self._is_met(proof)
        self._attempts += 1
        self._tried = state.step
        self.exhausted = not met and full
        small = 3 * state.projected.shape[0] > self.check.z.shape[0]
        spent = self._out_of_passes
        self.hopeless = not (met or full) and (spent or (self._attempts >= ATTEMPTS and not small))
        return proof

    def _is_met(self, proof: Proof) -> bool:
        """Whether every component is proven, and their number."""
        return proof.counted and bool(proof.certificate.met(self.tol).all())

    def _depart(self, state: KrylovState, rho: float) -> None:
        """Deflate the random vectors with the basis as it is."""
        seed = (self._seed, 8, len(self._changes), self._origin)
        self._riders = Riders(self.check, state, rho, self._share_of_departure(), seed)

    def _share_of_departure(self) -> float:
        """Return the part of the failure probability that the next departure has."""
        # The parts of all departures, the sum of 1 / (r (r + 1)), add up to at most 1.
        self._departures += 1
        share = self._failure / 2 / (self._departures * (self._departures + 1))
        self.spent += share
        return share

    def _ride_alone(self, state: KrylovState, k: int) -> None:
        """Multiply the random vectors in passes of their own until they show what is missed."""
        self._depart(state, 0.95 * self._guess(state, k))
        # Whether they ride along may not depend on them, and from here it would.
        self._looking = False
        data, riders = self.operator.data, self._riders
        assert riders is not None
        right = self.priming.side == "right"
        multiply = data.covariance_product if right else data.gram_product
        # Far above rho the images grow without end, and the first of them show as much.
        while riders.riding and max(riders.heights, default=0.0) < 1e100 * self.wide.total:
            if self._out_of_passes:
                break
            self._alone += 1
            riders.ride(multiply(riders.board(data.like.dtype)))
            missed = riders.missed(NOTHING_FOUND)
            if self._within(state, k, missed) < 0.7 * self.tol:
                break

    def _within(
        self, state: KrylovState, k: int, missed: float, relief: np.ndarray | None = None
    ) -> float:
        """Return the angle that could be proven if at most ``missed`` was missed."""
        if missed >= float(state.variances[k - 1]):
            return math.pi / 2
        whole = Evidence(state.variances, state.residual, missed, 0.0, relief=relief)
        left = self.priming.side == "left"
        # Of the left vectors, and where float32 is too coarse, only the leading ones are refined.
        p = _mapped_size(whole.values, k) if left else _enough(whole, k)
        evidence = _cut(whole, p)
        return float(certificate_of(evidence, k, None, "", 0.0).counted_bounds().max())

    def _may_prove(self, state: KrylovState, k: int) -> bool:
        """Whether the random vectors could prove ``tol`` if nothing had been rounded."""
        trace = self.wide.total - float(state.variances.sum())
        best = min(self._best, trace)
        if self._riders is not None:
            best = min(best, self._riders.missed(NOTHING_FOUND))
        best, values = max(best, 0.0), state.variances[:k]
        if not best < float(values[-1]):
            return False
        sizes = np.linalg.norm(state.residual[:, :k], axis=0)
        if self.priming.side == "left":
            sizes *= np.sqrt(best / values)
        # No bound on an angle is smaller than this.
        return bool((sizes <= self.tol * (values - best)).all())

    def _count(self, state: KrylovState) -> int:
        """Return the number of components, by the variances as they are."""
        if not isinstance(self.wanted, float):
            return self.wanted
        reached = np.cumsum(state.variances) >= self.wanted * self.wide.total
        return 1 + int(np.argmax(reached)) if reached.any() else state.variances.size + 1

    def _is_near(self, change: float, rides: int, guess: float) -> bool:
        """Whether as few steps are left as the random vectors have to ride."""
        before = self._changes[-2] if len(self._changes) > 1 else math.inf
        if change <= self.tol:
            # From a good start, or to a coarse angle.  The estimate means little until it falls;
            # while it falls fast, the basis grows faster than they would ride.
            falls = len(self._changes) > 3 and guess < self._guessed
            return falls and (rides <= FEW or self._rode <= rides <= ALONG)
        rate = change / before if 0 < before < math.inf else 0.05
        least = 0.15 if self.wide.sparse else 0.02
        near = change * min(max(rate, least), 0.3) ** rides <= self.tol
        return near and (rides <= FEW or (rides <= ALONG and change <= GOOD))

    def _rides(self, state: KrylovState, k: int) -> int:
        """Estimate how often the random vectors must ride until they show what is missed.

        Their polynomial must grow, from the largest variance that is missed to the smallest that
        is wanted, to the length of what is left of them.
        """
        smallest = float(state.variances[k - 1])
        left = max(0.0, self.wide.total - float(state.variances.sum()))
        if smallest <= 0:
            return 1
        rest = max(0.0, state.rest) / smallest
        height = math.sqrt(1 + min(left / smallest * rest / 2, 1e300)) / 0.4
        # A little less than the smallest, so that a gap is left.
        y = 1 / min(max(self._guess(state, k) / smallest / 0.95, 1e-3), 0.97)
        return min(
            RIDES, max(1, math.ceil(math.acosh(max(1.0, height / y)) / math.acosh(2 * y - 1)))
        )

    def _edge(self, state: KrylovState, k: int) -> float:
        """Choose ``rho`` for the random vectors, a little below what is missed.

        Few rides gain more from a polynomial that grows early than from a sharp edge.
        """
        if self._rides(state, k) < 2:
            return 0.7 * max(state.rest, LEAST * float(state.variances[0])) or 1.0
        return 0.95 * self._guess(state, k)

    def _guess(self, state: KrylovState, k: int) -> float:
        """Estimate the largest variance that is missed.

        If the iteration went on as in its last step, with the same diagonal blocks and couplings,
        the variances outside would reach up to their mean plus twice the coupling.
        """
        values, last = state.variances, min(k, state.variances.size) - 1
        found, width = state.rest, state.coupling.shape[1]
        if state.coupling.size:
            found = float(np.trace(state.projected[-width:, -width:])) / width
            found += 2 * float(np.median(np.linalg.svd(state.coupling, compute_uv=False)))
        found = min(max(found, 1e-3 * float(values[last])), 0.97 * float(values[last]))
        return max(found, LEAST * float(values[0])) or 1.0

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """Return a proof of what was found, however little that is."""
        state = looked(self.priming.closed(snapshot.state, self.operator))
        if not self.sound or state.variances.size == 0:
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
        share = self._share()
        # A half for the errors, a quarter for columns on either side.
        seed = (self._seed, 7, self._looks, self._origin)
        findings = self.check.look(state, share / 2, seed)
        evidence = self._evidence(state, findings, k, share, full)
        if evidence is None:
            return None
        self._ceiling = upper(evidence)
        counted = True
        if isinstance(self.wanted, float):
            least, k = fewest(evidence, self._ceiling, self.wide.total, self.wanted)
            counted = least == k
            if k > evidence.values.size:
                return None
        mapped = self._on_the_right(state, findings, evidence, k, share, last)
        if mapped is None:
            return None
        found, certificate = mapped
        # A basis may still be too small: the other components are any, with variance zero.
        variances = np.zeros(k)
        variances[: found.evidence.values.size] = found.evidence.values[:k]
        vectors = complete(found.vectors, self.wide.like, k, 0)[:, :k]
        find = partial(decomposition, self.wide, vectors, variances)
        return Proof(certificate, find, counted, found.evidence)

    def _on_the_right(
        self,
        state: KrylovState,
        findings: Findings,
        evidence: Evidence,
        k: int,
        share: float,
        last: bool,
    ) -> tuple[Mapped, Certificate] | None:
        """Return the right vectors and their certificate, or None: not worth half a pass."""
        size = min(k, evidence.values.size)
        within = partial(self._within, state, size, evidence.missed, evidence.relief)
        found: Mapped | None
        if self.priming.side == "right":
            sharpest = _sharpest(evidence, k, self._ceiling, self.tol)
            found = Mapped(sharpest, self._ceiling, *self._vectors(state, k))
            certificate = self._certificate(found, k)
            if certificate.met(self.tol).all() or within() >= 0.8 * self.tol:
                return found, certificate
            found = self._refined(state, findings, evidence, k, share) or found
        elif last or (state.step >= self._tried + 3 and within() < 0.8 * self.tol):
            found, self._tried = self._mapped(state, findings, evidence, k, share), state.step
        else:
            return None
        return None if found is None else (found, self._certificate(found, k))

    def _share(self) -> float:
        """Return the part of the failure probability that a look at this step has.

        Where the random vectors decide whether a look is made or the fit ends, every step counts:
        they may not choose the step that has a share.  A second look at a step repeats the first.
        """
        step = len(self._changes)
        if step > self._counted:
            self._counted, self._looks = step, self._looks + 1
            self.spent += self._failure / 2 / (self._looks * (self._looks + 1))
        # The parts of all looks together, the sum of 1 / (r (r + 1)), never exceed 1.
        return self._failure / 2 / (self._looks * (self._looks + 1))

    def _certificate(self, found: Mapped, k: int) -> Certificate:
        certificate = certificate_of(
            found.evidence, k, self.wide, "probabilistic", self.spent, found.up
        )
        return certificate.rounded(2 * found.turned)

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
        columns = self.check.columns(findings, turn[:, :p], share / 4) + left[:p]
        residual = (1 + skew) * state.residual
        evidence = Evidence(values, residual, math.inf, e, math.inf, columns, skew, skew)
        if self._restarted:
            self._best, self._restarted = carried(evidence, self._ceiling), False
            self._at = 0
        if self._riders is not None:
            found = self._riders.missed(findings)
            if found < self._best:
                self._best, self._at = found, self._riders.at
        blur = (values.size + 2) * e + 2 * self.check.unit_error
        trace = max(0.0, self.wide.total - float(values.sum())) + blur
        floor = NEGLIGIBLE * max(0.0, self.wide.total - blur)
        missed = 0.0 if full else min(self._best, trace)
        evidence = replace(evidence, missed=missed, negligible=floor)
        return evidence if full or self._best > trace else self._relieved(state, evidence)

    def _relieved(self, state: KrylovState, evidence: Evidence) -> Evidence:
        """Return the evidence with what is known of the steps since the departure.

        What is missed is bounded outside of the basis at departure.  That bound includes the
        blocks since then, whose variances are known, so less remains for those to come.
        """
        at = self._at
        if not 0 < at < state.projected.shape[0] or not state.coupling.size:
            return evidence
        e, skew, missed = evidence.rounding, evidence.skew, evidence.missed
        missed += 2 * e + 2 * skew * (spectral_norm(_square(state)[:at, at:]) + skew * missed)
        found = replace(evidence, missed=missed)
        relief = relief_of(state, at, found.above)
        return evidence if relief is None else replace(found, relief=relief)

    def _vectors(self, state: KrylovState, k: int) -> tuple[Array, float]:
        """Return the Ritz vectors as an orthonormal basis, and the angle by which that turns them.

        The basis is orthonormal only up to the arithmetic of the priming.
        """
        like = self.wide.like
        ritz = combine(state.basis, state.turn[:, :k], like)
        ritz /= like.xp.linalg.vector_norm(ritz, axis=0)
        basis, _ = orthonormalise(like.xp.asarray(ritz, copy=True))
        moved = norms(basis - ritz).max()
        return basis, float(1.01 * moved + 4 * UNIT * like.n_features)

    def _refined(
        self, state: KrylovState, findings: Findings, evidence: Evidence, k: int, share: float
    ) -> Mapped | None:
        """Refine the leading Ritz vectors by a pass in float64, where float32 is too coarse."""
        data, p = self.wide, _enough(evidence, k)
        basis, _ = orthonormalise(combine(state.basis, state.turn[:, :p], data.like))
        images = data.covariance_product(basis)
        theta, y = rayleigh_ritz(to_numpy(basis.T @ basis), to_numpy(basis.T @ images))
        if y is None:
            return None
        turn = data.like.asarray(y)
        vectors = basis @ turn
        rest = images @ turn - vectors * data.like.asarray(theta)
        b = triangle(rest)
        slip = UNIT * p * data.shape[1]  # of the vectors from orthonormal ones
        e = rounding_of(data, p, float(theta[0]) + spectral_norm(b), slip)
        found = Evidence(theta, b, _left_out(evidence, p), e, evidence.negligible)
        up = np.minimum(upper(found), self._ceiling[: p + 1])
        return Mapped(found, up, vectors, 4 * UNIT * data.shape[1])

    def _mapped(
        self, state: KrylovState, findings: Findings, evidence: Evidence, k: int, share: float
    ) -> Mapped | None:
        """Map the leading left vectors to right ones by half a pass in float64.

        With ``U'`` the left Ritz vectors of an exact Rayleigh-Ritz step and ``R'`` their
        residuals, ``W = M^T U' (n Theta')^(-1/2)`` is orthonormal and
        ``C W = W Theta' + M^T R' (n Theta')^(-1/2)``.  As ``R'`` is orthogonal to ``U'``, the
        last term is at most ``sqrt(alpha) R' Theta'^(-1/2)`` in every combination of columns.
        """
        values, skew, data = evidence.values, findings.skew, self.wide
        k = min(k, values.size)
        # For an explained variance ratio, the proven number may be larger than the estimated one.
        more = 4 * isinstance(self.wanted, float)
        p = _mapped_size(values, self._count(state) + more)
        if p < k:
            return None
        left = combine(state.basis, state.turn[:, :p], data.like)
        images = data.adjoint(left)
        square = inner_products((images,), images) / data.weight
        theta, y = rayleigh_ritz(inner_products((left,), left), square)
        if y is None or theta[-1] <= 0:
            return None
        turn = state.turn[:, :p] @ y
        known = state.coupling @ turn[turn.shape[0] - state.coupling.shape[1] :]
        b = (1 + skew) * known
        m = values.size
        slip = UNIT * (p * data.shape[0] + m * math.sqrt(m * p))  # of the left vectors
        largest = float(theta[0]) + spectral_norm(b)
        e, each = (2 * rounding_of(data, width, largest, slip) for width in (p, 1))
        phi = self.check.columns(findings, turn, share / 4) + each
        floor, alpha = evidence.negligible, _left_out(evidence, p)
        found = self._right(theta, b, (e, each), phi, floor, alpha)
        scale = y[:, :k] / np.sqrt(data.weight * theta[:k])
        vectors = combine((images,), scale, data.like)
        mapped = Mapped(*found, vectors, 4 * each / float(theta[k - 1]))
        for part in (0.5, 0.0):
            bounds = np.full(p, np.pi / 2)
            bounds[:k] = self._certificate(mapped, k).counted_bounds()
            if bounds[:k].max() <= self.tol:
                break
            # The other half of the pass computes residuals, of vectors that need it or of all.
            these = np.flatnonzero(bounds[: k if part else p] > part * self.tol)
            rotation = data.like.asarray(y[:, these])
            rest = data.forward(images @ rotation) / data.weight
            rest -= (left @ rotation) * data.like.asarray(theta[these])
            phi[these] = each
            b = _small(self.wide.wide(state.newest), known, rest, these)
            found = self._right(theta, b, (e, each), phi, floor, alpha)
            mapped = mapped._replace(evidence=found[0], up=found[1])
        # They are orthonormal up to rounding in float64, about its unit times theta_1 / theta_k.
        near = float(theta[0]) < MILD * float(theta[k - 1])
        if near and dtype_name(self.operator.like.dtype) == "float32":
            return mapped  # the cast to float32 makes them more skew than they are
        return mapped._replace(vectors=orthonormalise(mapped.vectors, times=1)[0])

    def _right(
        self,
        theta: np.ndarray,
        b: np.ndarray,
        rounding: tuple[float, float],
        phi: np.ndarray,
        floor: float,
        alpha: float,
    ) -> tuple[Evidence, np.ndarray]:
        """Return the evidence of right vectors, and upper bounds on the eigenvalues.

        Parameters
        ----------
        theta, b : ndarray of shape (p,) and (q, p)
            Ritz values and residuals of the left vectors.
        rounding : tuple of float
            Bounds on the rounding errors of float64, of all columns together and of each.
        phi : ndarray of shape (p,)
            Bounds on the part of each residual that is not in ``b``.
        floor : float
            Variances up to this size count as zero.
        alpha : float
            Bound on the variance outside the span of the left vectors.  It bounds that outside
            the right vectors, too: ``M (I - W W^T) = (I - U' U'^T) M (I - W W^T)``.
        """
        e, each = rounding
        up = self._up(Evidence(theta, b, alpha, e), phi)
        root = np.sqrt(alpha / theta)
        rest = np.linalg.norm(phi / np.sqrt(theta))
        cross = (spectral_norm(b / np.sqrt(theta)) + float(rest)) / math.sqrt(alpha)
        errors = phi * root + each
        skew = 2 * e / float(theta[-1])
        found = Evidence(theta, b * root, alpha, e, floor, errors, skew, cross, outside=True)
        sizes = np.linalg.norm(b * root, axis=0) + errors
        return replace(found, crosses=np.minimum(sizes / alpha, cross)), up

    def _up(self, evidence: Evidence, phi: np.ndarray) -> np.ndarray:
        """Upper bounds on the eigenvalues where parts ``phi`` of the residuals are not known.

        Young's inequality separates them from the known parts.  Each column pays for itself: the
        errors of the first ones are larger than small variances.
        """
        ahead = evidence.values - evidence.missed
        eta = 0.2 * float(ahead[ahead > 0].min(initial=evidence.values[0]))
        grown = evidence.values + phi * (float(phi.sum()) / eta)
        found = upper(replace(evidence, values=grown, missed=evidence.missed + eta))
        least: np.ndarray = np.minimum(found, self._ceiling[: phi.size + 1])
        return least


def relief_of(state: KrylovState, at: int, above: float) -> np.ndarray | None:
    """Return ``S``: outside of the basis, ``above - S`` bounds the covariance where it leads.

    ``above`` bounds it outside of the first ``at`` vectors of the basis.
    """
    if not 0 < at < state.projected.shape[0] or not state.coupling.size:
        return None
    values, turn = np.linalg.eigh(_square(state)[at:, at:])
    ahead = above - values
    if ahead[0] <= 0 or ahead[-1] <= 1e-6 * above:
        return None
    lift = state.coupling @ turn[turn.shape[0] - state.coupling.shape[1] :]
    found: np.ndarray = (1 - 1e-6) * (lift / ahead) @ lift.T
    return found


def _square(state: KrylovState) -> np.ndarray:
    found: np.ndarray = (state.projected + state.projected.T) / 2
    return found


def _sharpest(evidence: Evidence, k: int, up: np.ndarray, tol: float) -> Evidence:
    """Return the evidence of all Ritz vectors or, if it proves more, of the leading ones.

    ``up`` is the result of :func:`upper` for all of them; ``tol`` is enough.

    Where other variances are close to the k-th, unconverged Ritz vectors among them spoil the
    bounds of all: better count them as a part of the rest.
    """
    size = min(k, evidence.values.size)
    whole = angle_bounds(evidence, size, up).max()
    if whole <= tol:
        return evidence
    cut = _cut(evidence, _enough(evidence, k))
    return cut if angle_bounds(cut, size, up).max() < whole else evidence


def _cut(evidence: Evidence, p: int) -> Evidence:
    """Return the evidence of the first ``p`` Ritz vectors, the others as a part of the rest."""
    return replace(
        evidence,
        values=evidence.values[:p],
        residual=evidence.residual[:, :p],
        missed=_left_out(evidence, p),
        columns=None if evidence.columns is None else evidence.columns[:p],
        relief=evidence.relief if p == evidence.values.size else None,
    )


def _enough(evidence: Evidence, k: int) -> int:
    """Return the number of Ritz vectors above what may have been missed: ``k`` and a few more."""
    above = int((evidence.values > evidence.above).sum())
    return min(max(above, k), k + MORE, evidence.values.size)


def _mapped_size(values: np.ndarray, k: int) -> int:
    """Return how many left vectors are mapped for the first ``k``, by their variances alone.

    Bounds on the errors of columns hold for columns that do not depend on the random vectors.
    """
    low = np.flatnonzero(values < FALLEN * values[min(k, values.size) - 1])
    p = min(int(low[0]) if low.size else values.size, k + MORE, values.size)
    return min(max(p, k), int((values > 1e-6 * values[0]).sum()))


def _left_out(evidence: Evidence, p: int) -> float:
    """Bound on the variance outside the span of the first ``p`` Ritz vectors."""
    rest = Evidence(
        evidence.values[p:],
        evidence.residual[:, p:],
        evidence.missed,
        evidence.rounding,
        relief=evidence.relief,
    )
    return topmost(rest)


def _small(newest: Array, known: np.ndarray, rest: Array, these: np.ndarray) -> np.ndarray:
    """Return ``B`` with ``B^T B = R^T R`` for ``R = Q known``, where ``rest`` are some columns."""
    r = triangle(namespace(rest).concat([newest, rest], axis=1))
    found: np.ndarray = r[:, : known.shape[0]] @ known
    found[:, these] = r[:, known.shape[0] :]
    return found


def rayleigh_ritz(own: np.ndarray, square: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the Ritz values in the span of some vectors and the rotation to the Ritz vectors.

    ``own`` are their inner products and ``square`` is the covariance inside the span.  The rotation
    is None if they are dependent.
    """
    try:
        low = np.linalg.cholesky(own)
    except np.linalg.LinAlgError:
        return np.zeros(1), None
    half = np.linalg.solve(low, np.linalg.solve(low, square).T)
    theta, y = np.linalg.eigh((half + half.T) / 2)
    return theta[::-1].copy(), np.linalg.solve(low.T, y[:, ::-1])
