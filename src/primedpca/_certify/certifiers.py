"""Certifiers: objects that inspect the steps of a priming and prove bounds on its errors.

The main loop passes every step to one certifier.  ``NoCertifier`` proves nothing,
``ExactCertifier`` certifies a full decomposition, ``ProbeCertifier`` block Krylov, and
``SketchCertifier`` Frequent Directions.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from primedpca._certify.bounds import (
    NEGLIGIBLE,
    UNIT,
    Evidence,
    carried,
    certificate_of,
    fewest,
    lower,
    rounding_of,
    spectral_norm,
    upper,
)
from primedpca._certify.inertia import ceiling
from primedpca._certify.probes import Probes, Riding, unevenness
from primedpca._certify.sketch_bounds import missed_by, refined_certificate, sketch_certificate
from primedpca._core.arrays import to_numpy
from primedpca._core.orthonormal import basis_of, combine, complete
from primedpca._operator.operator import Centred
from primedpca._operator.scaling import decomposition
from primedpca.priming import BlockKrylov, Exact
from primedpca.priming.block_krylov import KrylovState, looked
from primedpca.protocols import Array, Priming
from primedpca.result import Certificate, Cluster, Decomposition, Snapshot

__all__ = [
    "Certifier",
    "ExactCertifier",
    "NoCertifier",
    "ProbeCertifier",
    "Proof",
    "SketchCertifier",
]

#: Estimated error of the components in radians below which probes are started.
READY = 0.3
#: Residual of a Ritz vector, in its Ritz value, from which it counts as settled.
SETTLED = 1e-3
#: Departure from orthonormality at which components are orthonormalised again.
SKEW = 1e-6


class Proof(NamedTuple):
    """Result of a certifier after one step.

    Attributes
    ----------
    certificate : Certificate
    find : callable
        Returns the certified components, as a Decomposition.
    counted : bool, default=True
        For a fractional ``n_components``, whether the number of components is proven.
    evidence : Evidence, optional
        Quantities from which the certificate was computed.
    """

    certificate: Certificate
    find: Callable[[], Decomposition]
    counted: bool = True
    evidence: Evidence | None = None

    def gain(self, tol: float) -> float:
        """Return how many times smaller more passes can make the bounds, if ``tol`` is too small.

        It is infinity while more than rounding errors keeps components from ``tol``.

        Parameters
        ----------
        tol : float
            Angle to prove, in radians.
        """
        if self.evidence is None:
            return math.inf
        values, e = self.evidence.values, self.evidence.rounding
        short = np.flatnonzero(~self.certificate.met(tol))
        if short.size == 0 or short[-1] >= values.size:
            return math.inf
        sizes = np.linalg.norm(self.evidence.residual[:, short], axis=0)
        if sizes.max() > 4 * e:
            return math.inf
        # The best that more passes could reach: no residuals, and nothing missed above theta_p.
        missed = min(self.evidence.missed, float(values[-1]))
        ideal = replace(self.evidence, residual=0 * self.evidence.residual, missed=missed)
        best = certificate_of(ideal, self.certificate.angle_bounds.size, None, "", 0.0)
        if best.met(tol)[short].any():
            return math.inf
        now, then = (proof.counted_bounds()[short] for proof in (self.certificate, best))
        return float((now / then).max())


class Certifier(Protocol):
    """Interface of the objects that inspect every step of a priming.

    Attributes
    ----------
    operator : Centred or a wrapper of one
        Operator to pass to the priming.
    needs_all : bool
        Whether the priming must widen a span that is invariant, because an invariant span may
        have missed eigenvectors.
    exhausted : bool
        Whether further steps of this priming could prove nothing more, but another may.
    hopeless : bool
        Whether the components have settled and a proof would cost much more than they did.
    """

    operator: Any
    needs_all: bool
    exhausted: bool
    hopeless: bool

    def look(self, snapshot: Snapshot) -> Proof | None:
        """Return the proof after this step, or None; costs no pass."""

    def go_on(self) -> None:
        """Prepare for another step."""

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """Return the proof after the last step, or None; may cost one pass."""


class NoCertifier:
    """Certifier that proves nothing.

    Parameters
    ----------
    data : Centred
    """

    needs_all = False
    exhausted = False
    hopeless = False

    def __init__(self, data: Centred) -> None:
        self.operator: Any = data

    def look(self, snapshot: Snapshot) -> Proof | None:
        """Return None: nothing is proven."""
        return None

    def go_on(self) -> None:
        """Do nothing."""

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """Return the same as :meth:`look`."""
        return self.look(snapshot)


def refined(data: Centred, priming: Priming, snapshot: Snapshot, k: int) -> Decomposition:
    """Return the first ``k`` components of a priming that yields refined vectors itself.

    Beyond the rank of the data, the components are arbitrary orthonormal vectors with variance
    zero.
    """
    basis, variances = priming.refined(snapshot.state._replace(n_directions=k), data)
    if not isinstance(priming, Exact):
        square = to_numpy(basis.T @ basis)
        if np.abs(square - np.eye(square.shape[0])).max(initial=0.0) > SKEW:
            # Data lost in rounding: nothing is proven, but this much is promised.
            basis = basis_of(basis)
        basis = complete(basis, data.like, k, 0)
        variances = np.concatenate([variances, np.zeros(max(0, k - variances.size))])
    return decomposition(data, basis[:, :k], variances)


class ExactCertifier(NoCertifier):
    """Certifier of a full decomposition, in which rounding errors are the only errors.

    Forming the matrix has an error of at most ``(n_b + log2(blocks) + 10) u T``, and decomposing
    it one of at most ``10 m u theta_1``, with ``m = min(n, d)`` and the other names as in
    :func:`~primedpca._certify.bounds.rounding_of`.

    Parameters
    ----------
    data : Centred
        Multiplied in float64.
    wanted : int or float
        Number of components, or the explained variance ratio that they are to reach.
    """

    def __init__(self, data: Centred, wanted: int | float) -> None:
        super().__init__(data)
        self.wanted = wanted
        m = min(data.shape)
        # A few more than wanted: a run of equal variances that begins before k may end soon after.
        more = m if isinstance(wanted, float) else wanted + max(8, wanted // 4)
        self.count = min(more, m)

    def look(self, snapshot: Snapshot) -> Proof:
        """Return the proof, whose bounds account for rounding errors only."""
        data, p, m = self.operator, self.count, min(self.operator.shape)
        values = snapshot.state.variances
        beyond, values = float(values[p]) if p < m else 0.0, values[:p]
        e = rounding_of(data, 1, float(values[0])) + 10 * m * UNIT * float(values[0])
        # The residuals are not computed: they are rounding errors, which 3 e covers.
        floor = NEGLIGIBLE * max(0.0, data.total - 3 * m * e)
        evidence = Evidence(values, np.zeros((0, p)), beyond, 3 * e, floor)
        k, counted = self.wanted, True
        if isinstance(k, float):
            least, k = fewest(evidence, upper(evidence), data.total, k)
            k, counted = min(k, p), least == k
        certificate = certificate_of(evidence, k, data, "exact", 0.0)
        if data.shape[0] < data.shape[1]:
            certificate = _on_the_right(certificate, lower(evidence), 3 * e)
        find = partial(refined, data, Exact(), snapshot, k)
        return Proof(certificate, find, counted, evidence)


def _on_the_right(left: Certificate, values: np.ndarray, e: float) -> Certificate:
    """Convert a certificate of the eigenvectors ``u`` of ``M M^T`` to one of ``M^T u / |M^T u|``.

    With ``u = cos(a) u_i + sin(a) b``, the tangent grows to ``tan(a) |M^T b| / sigma_i``, so by a
    factor of at most ``sqrt(lambda_1 / lambda_i)``.  The product ``M^T u`` has an error of at most
    ``e / sqrt(lambda_1)``.  Orthonormalisation moves each vector by no more than the errors of
    this vector and of those before it.

    Parameters
    ----------
    left : Certificate
        Of the eigenvectors of ``M M^T``.
    values : ndarray of shape (>= k,)
        Lower bounds on the eigenvalues.
    e : float
        Bound on the rounding errors.
    """
    top = values[0] + 2 * e
    factor = np.sqrt(top / np.maximum(values, UNIT * UNIT * top)) if top > 0 else values + 1
    blur = e / top if top > 0 else 0.0
    k = left.angle_bounds.size
    off = np.arctan(np.tan(left.angle_bounds) * factor[:k]) + blur * factor[:k]
    before = np.sqrt(np.cumsum(off**2) - off**2)
    turned = np.where(left.angle_bounds < np.pi / 2, 2 * off + before, np.pi / 2)
    runs = []
    for start, stop, angle in left.clusters:
        worst = factor[stop - 1]
        size = 2 * math.sqrt(stop) * (math.atan(math.tan(angle) * worst) + blur * worst)
        runs.append(Cluster(start, stop, min(size, np.pi / 2)))
    return replace(left, angle_bounds=np.minimum(turned, np.pi / 2), clusters=runs)


class SketchCertifier(NoCertifier):
    """Certifier of Frequent Directions, from the variance that its sketch has lost.

    It proves something only after all rows have been visited.

    Parameters
    ----------
    data : Centred
        Multiplied in float64.
    k : int
        Number of components.
    n_directions : int
        Number of directions of the sketch that are refined if the sketch alone does not suffice.
    tol : float
        Angle to prove, in radians.

    Attributes
    ----------
    missed : callable or None
        Set by :meth:`conclude` if ``tol`` is not proven: ``missed(basis, skew)`` bounds what a
        basis can have missed, for the certifier that follows.
    """

    def __init__(self, data: Centred, k: int, n_directions: int, tol: float) -> None:
        super().__init__(data)
        self.k, self.n_directions, self.tol = k, n_directions, tol
        self.missed: Callable[[tuple[Array, ...], float], float] | None = None

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """Return the proof from the sketch alone or, if that is too weak, after one more pass.

        Return None if ``tol`` is not proven for all components.
        """
        data, state, k = self.operator, snapshot.state, self.k
        if not float(snapshot.passes).is_integer():  # stopped before the last rows
            return None
        basis, variances, certificate = sketch_certificate(state, data, k)
        if not certificate.met(self.tol).all():
            basis, variances, certificate = refined_certificate(state, data, k, self.n_directions)
        if certificate.met(self.tol).all():
            return Proof(certificate, partial(decomposition, data, basis, variances))
        # The sketch still bounds what any basis misses: the next certifier uses this bound.
        self.missed = lambda basis, skew: missed_by(basis, state, data, skew)
        return None


class ProbeCertifier(NoCertifier):
    """Certifier of block Krylov iterations with the covariance, after every pass.

    With ``failure_probability=0``, only deterministic bounds are used.  Otherwise random probes
    are started as soon as all ``k`` components have nearly converged.  Probes are vectors that are
    orthogonal to the basis of that moment and are multiplied in the same passes as the basis
    (they "ride" on them).  Their bound becomes sharper with each pass, and holds for every later
    basis that contains the one they started from.  If they cannot prove enough, or not within
    eight passes, a new set is started with its own part of the failure probability.  A restart of
    the basis ends the probes; the upper bounds on the true eigenvalues that are proven by then
    still bound what the new basis misses.

    Parameters
    ----------
    data : Centred
        Multiplied in float64.
    priming : BlockKrylov
    wanted : int or float
        Number of components, or the explained variance ratio that they are to reach.
    failure_probability : float
        Probability that the certificate is false, for the whole fit.
    seed : int
        Seed of the probes.
    start : array of shape (d, q), optional
        Directions that block Krylov starts from.
    missed : callable, optional
        ``missed(basis, skew)`` returns a deterministic bound on what a basis can have missed.  By
        default only the trace bound is used.
    small : bool, default=False
        Whether the covariance matrix may be formed: with ``failure_probability=0``, a Cholesky
        factorisation then proves what was missed, once the components have settled.
    """

    operator: Riding
    needs_all = True

    def __init__(
        self,
        data: Centred,
        priming: BlockKrylov,
        wanted: int | float,
        failure_probability: float,
        seed: int,
        start: Array | None = None,
        missed: Callable[[tuple[Array, ...], float], float] | None = None,
        small: bool = False,
    ) -> None:
        self.data, self.priming, self.wanted = data, priming, wanted
        self._small = small and failure_probability == 0
        self._counted_by_inertia = np.zeros(0)
        self.operator = Riding(data)
        # The start may depend on the probes of an earlier fit with the same seed, but a basis must
        # not depend on its probes.  So the checksum of the start is part of the seed.
        origin = 0 if start is None else zlib.crc32(np.ascontiguousarray(to_numpy(start)).tobytes())
        self._failure, self._seed, self._origin = failure_probability, seed, origin
        self._certain = missed
        self._best, self._spent, self._rounds = math.inf, 0.0, 0
        self._blocks, self._columns = 0, 0
        self._uneven, self._worn, self._ceiling = 0.0, 0.0, np.zeros(0)
        self._state: KrylovState
        self._k = 0

    def look(self, snapshot: Snapshot) -> Proof:
        """Return the proof from the residuals, the trace and the probes so far."""
        data, state = self.data, looked(snapshot.state)
        values = state.variances
        skew, restarted = self._skew(state)
        # An upper bound on |C U|, even if the top eigenvector has been missed so far.
        largest = math.hypot(values[0], spectral_norm(state.residual))
        e = rounding_of(data, self._columns, largest, skew)
        if restarted:
            self._best = carried(Evidence(values, state.residual, 0.0, e), self._ceiling)
        probes = self.operator.probes
        if probes is not None and probes.passes:
            # The probes may have found a larger eigenvalue than the basis has.
            most = math.hypot(largest, spectral_norm(probes.small))
            rounding = rounding_of(data, probes.small.shape[1], most, skew + probes.skew)
            self._best = min(self._best, probes.missed(most, rounding))
        blur = (math.sqrt(values.size) + 2) * e
        trace = max(0.0, data.total - float(values.sum())) + blur
        if self._certain is not None:
            trace = min(trace, self._certain(state.basis, skew))
        self._use_inertia(state)
        known = Evidence(values, state.residual, 0.0, e)
        trace = min(trace, carried(known, self._counted_by_inertia))
        kind = "deterministic" if trace <= self._best or self._spent == 0 else "probabilistic"
        floor = NEGLIGIBLE * max(0.0, data.total - blur)
        evidence = Evidence(values, state.residual, min(trace, self._best), e, floor)
        self._ceiling = upper(evidence)
        k, counted = int(self.wanted), True
        if isinstance(self.wanted, float):
            least, k = fewest(evidence, self._ceiling, data.total, self.wanted)
            counted = least == k
        failure = self._spent if kind == "probabilistic" else 0.0
        certificate = certificate_of(evidence, k, data, kind, failure)
        self._state, self._k = state, k
        find = partial(refined, data, self.priming, snapshot, min(k, values.size))
        return Proof(certificate, find, counted, evidence)

    def _use_inertia(self, state: KrylovState) -> None:
        """Bound the eigenvalues by one Cholesky factorisation, once the components have settled.

        The bounds hold for every later basis, so this takes one pass in the whole fit.
        """
        if not self._small or isinstance(self.wanted, float):
            return
        k, sizes = self.wanted, np.linalg.norm(state.residual, axis=0)
        settled = int(np.argmax(np.append(sizes > SETTLED * state.variances, True)))
        if settled <= k:
            return
        self._small = False
        data, p = self.data, min(settled, k + 16)
        vectors = to_numpy(combine(state.basis, state.turn[:, :p], data.like))
        error = rounding_of(data, 1, float(state.variances[0]))
        matrix = to_numpy(data.covariance())
        self._counted_by_inertia = ceiling(
            matrix, vectors, state.variances[:p], error, k, overwrite=True
        )

    def _skew(self, state: KrylovState) -> tuple[float, bool]:
        """Return a bound on ``|V^T V - I|`` of the basis, and whether the basis was restarted."""
        restarted = len(state.basis) <= self._blocks
        if restarted:
            # The restart has dropped vectors to which the probes are orthogonal, so their bound
            # no longer applies.  The kept vectors still carry the rounding errors made so far.
            self.operator.probes = None
            self._worn += math.sqrt(self._uneven)
        if restarted or not self._blocks:
            self._uneven = unevenness(state.basis[-1], ())
        self._blocks = len(state.basis)
        self._columns += state.basis[-1].shape[1]
        # Measure the newest block now, before it is multiplied: a restart may drop it.
        self._uneven += unevenness(state.newest, state.basis)
        return self._worn + math.sqrt(self._uneven), restarted

    def go_on(self) -> None:
        """Start probes if the components have nearly converged and no useful probes are active."""
        state, k, probes = self._state, self._k, self.operator.probes
        ready = state.variances.size >= k and _settling(state, k) < READY
        idle = probes is None or not probes.riding
        # The bound of probes cannot fall below `reached`: near lambda_k they are of no more use.
        if ready and probes is not None and probes.passes >= 3:
            idle = idle or probes.reached > 0.9 * state.variances[k - 1]
        if self._failure > 0 and ready and idle:
            self._rounds += 1
            # The parts of all rounds together, the sum of 1 / (r (r + 1)), never exceed 1.
            share = self._failure / (self._rounds * (self._rounds + 1))
            self._spent += share
            seed = (self._seed, 4, self._rounds, self._origin)
            basis = (*state.basis, state.newest)
            self.operator.probes = Probes(basis, self.data, share, seed)


def _settling(state: KrylovState, k: int) -> float:
    """Estimate of the error of the first ``k`` vectors as a subspace, in radians."""
    ahead = state.variances[:k] - state.rest
    sizes = np.linalg.norm(state.residual[:, :k], axis=0)
    found = np.where(ahead > 0, np.arctan2(sizes, np.maximum(ahead, 0.0)), np.pi / 2)
    return float(np.where(sizes == 0, 0.0, found).max())
