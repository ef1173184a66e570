"""Certifiers: what looks at the steps of a priming and proves how far off its components are.

The main loop shows every step to one of them.  ``NoCertifier`` proves nothing, ``ExactCertifier``
looks at a full decomposition, ``ProbeCertifier`` at block Krylov, and ``SketchCertifier`` at
Frequent Directions.
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
    Evidence,
    carried,
    certificate_of,
    fewest,
    lower,
    spectral_norm,
    upper,
)
from primedpca._certify.probes import Probes, Riding, unevenness
from primedpca._certify.rounding import NEGLIGIBLE, UNIT, rounding_of
from primedpca._certify.sketch_bounds import missed_by, refined_certificate, sketch_certificate
from primedpca._core.arrays import to_numpy
from primedpca._core.orthonormal import complete
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

READY = 0.3  # radians that the components still move by when probes set out


class Proof(NamedTuple):
    """Outcome of one look.

    Attributes
    ----------
    certificate : Certificate
    find : callable
        Returns the components that it is about, as a Decomposition.
    counted : bool
        Whether the number of components that hold a share of the variance is proven.
    evidence : Evidence, optional
    """

    certificate: Certificate
    find: Callable[[], Decomposition]
    counted: bool = True
    evidence: Evidence | None = None

    def at_floor(self, tol: float) -> bool:
        """Whether rounding alone keeps components from ``tol``: no further pass would help."""
        if self.evidence is None:
            return False
        values, e = self.evidence.values, self.evidence.rounding
        short = np.flatnonzero(~self.certificate.met(tol))
        if short.size == 0 or short[-1] >= values.size:
            return False
        sizes = np.linalg.norm(self.evidence.residual[:, short], axis=0)
        if sizes.max() > 4 * e:
            return False
        missed = min(self.evidence.missed, float(values[-1]))
        ideal = replace(self.evidence, residual=0 * self.evidence.residual, missed=missed)
        best = certificate_of(ideal, self.certificate.angle_bounds.size, None, "", 0.0)
        return not best.met(tol)[short].any()


class Certifier(Protocol):
    """Looks at every step of a priming.

    Attributes
    ----------
    operator : Centred or a wrapper of one
        The data as the priming is to see them.
    needs_all : bool
        Whether a span that is invariant must be widened: it may have missed eigenvectors.
    """

    operator: Any
    needs_all: bool

    def look(self, snapshot: Snapshot) -> Proof | None:
        """Return what is proven after this step; costs no pass."""

    def go_on(self) -> None:
        """Prepare for another step."""

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """Return what is proven after the last step; may cost one pass."""


class NoCertifier:
    """Proves nothing."""

    needs_all = False

    def __init__(self, data: Centred) -> None:
        self.operator: Any = data

    def look(self, snapshot: Snapshot) -> Proof | None:
        """Nothing is proven."""
        return None

    def go_on(self) -> None:
        """Nothing to prepare."""

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """The same as after every step."""
        return self.look(snapshot)


def refined(data: Centred, priming: Priming, snapshot: Snapshot, k: int) -> Decomposition:
    """The first ``k`` components of a priming whose vectors are refined already.

    Beyond the rank of the data any orthonormal vectors complete them, with variance zero.
    """
    basis, variances = priming.refined(snapshot.state._replace(n_directions=k), data)
    basis = complete(basis, data.like, k, 0)
    variances = np.concatenate([variances, np.zeros(max(0, k - variances.size))])
    return decomposition(data, basis[:, :k], variances)


class ExactCertifier(NoCertifier):
    """Certifies a full decomposition: only rounding is left to account for.

    The matrix is formed with an error of at most ``(n_b + log2(blocks) + 10) u T`` and
    decomposed with one of at most ``10 m u theta_1``.

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
        # A few more than wanted: a run of ties that begins before k may end soon after.
        more = m if isinstance(wanted, float) else wanted + max(8, wanted // 4)
        self.count = min(more, m)

    def look(self, snapshot: Snapshot) -> Proof:
        """What rounding leaves of the certainty of the components, and of their number."""
        data, p, m = self.operator, self.count, min(self.operator.shape)
        values = snapshot.state.variances
        beyond, values = float(values[p]) if p < m else 0.0, values[:p]
        e = rounding_of(data, 1, float(values[0])) + 10 * m * UNIT * float(values[0])
        # The residuals are not formed: all that they can be is in the rounding.
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
    """What holds for ``M^T u / |M^T u|`` if ``left`` holds for the eigenvectors ``u`` of ``M M^T``.

    With ``u = cos(a) u_i + sin(a) b``, the tangent grows to ``tan(a) |M^T b| / sigma_i``, at most
    by ``sqrt(lambda_1 / lambda_i)``.  The product is off by ``e / sqrt(lambda_1)`` at most, and
    making the vectors orthonormal moves each by no more than what it and those before it are
    off.
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
    """Certifies Frequent Directions by what its sketch has lost, once all rows are seen.

    Parameters
    ----------
    data : Centred
        Multiplied in float64.
    k, n_directions : int
        Components wanted, and directions of the sketch that are refined for them.
    tol : float
        The angle that is to be proven, in radians.
    """

    def __init__(self, data: Centred, k: int, n_directions: int, tol: float) -> None:
        super().__init__(data)
        self.k, self.n_directions, self.tol = k, n_directions, tol
        self.missed: Callable[[tuple[Array, ...], float], float] | None = None

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """What the sketch proves by itself or, if that is too little, after one more pass."""
        data, state, k = self.operator, snapshot.state, self.k
        if not float(snapshot.passes).is_integer():  # stopped before the last rows
            return None
        basis, variances, certificate = sketch_certificate(state, data, k)
        if not certificate.met(self.tol).all():
            basis, variances, certificate = refined_certificate(state, data, k, self.n_directions)
        if certificate.met(self.tol).all():
            return Proof(certificate, partial(decomposition, data, basis, variances))
        # What any basis misses is still bounded by the sketch, for the proof that follows.
        self.missed = lambda basis, skew: missed_by(basis, state, data, skew)
        return None


class ProbeCertifier(NoCertifier):
    """Certifies block Krylov on the right side, pass by pass.

    With ``failure_probability`` 0 only deterministic bounds are used.  Otherwise probes set out
    as soon as all ``k`` have nearly settled, deflated with the basis of that moment.  They ride
    on the next passes, prove more with each, and hold for every later basis that contains that
    one.  Where they cannot prove enough, or not in eight passes, another set sets out, with its
    share of the probability.  A restart of the basis ends a ride; what is known by then of the
    true eigenvalues still bounds what the new basis misses.

    Parameters
    ----------
    data : Centred
        Multiplied in float64.
    priming : BlockKrylov
    wanted : int or float
        Number of components, or the explained variance ratio that they are to reach.
    failure_probability : float
        For the whole fit.
    seed : int
    start : array of shape (d, q), optional
        Directions that block Krylov starts from.
    missed : callable, optional
        ``missed(basis, skew)`` bounds what a basis can have missed, if something better than the
        trace is known for certain.
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
    ) -> None:
        self.data, self.priming, self.wanted = data, priming, wanted
        self.operator = Riding(data)
        # Directions to begin with may have been chosen by the probes of an earlier fit.
        origin = 0 if start is None else zlib.crc32(np.ascontiguousarray(to_numpy(start)).tobytes())
        self._failure, self._seed, self._origin = failure_probability, seed, origin
        self._certain = missed
        self._best, self._spent, self._rounds = math.inf, 0.0, 0
        self._blocks, self._columns = 0, 0
        self._uneven, self._worn, self._ceiling = 0.0, 0.0, np.zeros(0)
        self._state: KrylovState
        self._k = 0

    def look(self, snapshot: Snapshot) -> Proof:
        """Bounds from the residuals, the trace and the probes so far."""
        data, state = self.data, looked(snapshot.state)
        values = state.variances
        skew, restarted = self._skew(state)
        # At least as large as |C U|, also where the top has been missed so far.
        largest = math.hypot(values[0], spectral_norm(state.residual))
        e = rounding_of(data, self._columns, largest, skew)
        if restarted:
            self._best = carried(Evidence(values, state.residual, 0.0, e), self._ceiling)
        probes = self.operator.probes
        if probes is not None and probes.passes:
            # They may have found more than the basis has.
            most = math.hypot(largest, spectral_norm(probes.small))
            rounding = rounding_of(data, probes.small.shape[1], most, skew + probes.skew)
            self._best = min(self._best, probes.missed(most, rounding))
        blur = (math.sqrt(values.size) + 2) * e
        trace = max(0.0, data.total - float(values.sum())) + blur
        if self._certain is not None:
            trace = min(trace, self._certain(state.basis, skew))
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

    def _skew(self, state: KrylovState) -> tuple[float, bool]:
        """A bound on ``|V^T V - I|`` of the basis so far, and whether it was restarted."""
        restarted = len(state.basis) <= self._blocks
        if restarted:
            # What the probes were kept from has been dropped from the basis.  What rounding had
            # done to it until then is in the vectors that were kept.
            self.operator.probes = None
            self._worn += math.sqrt(self._uneven)
        if restarted or not self._blocks:
            self._uneven = unevenness(state.basis[-1], ())
        self._blocks = len(state.basis)
        self._columns += state.basis[-1].shape[1]
        # Before it is multiplied: a restart may leave no other chance.
        self._uneven += unevenness(state.newest, state.basis)
        return self._worn + math.sqrt(self._uneven), restarted

    def go_on(self) -> None:
        """Send out probes if the components have nearly settled and none are on their way."""
        state, k, probes = self._state, self._k, self.operator.probes
        ready = state.variances.size >= k and _settling(state, k) < READY
        idle = probes is None or not probes.riding
        if ready and probes is not None and probes.passes >= 3:
            idle = idle or probes.reached > 0.9 * state.variances[k - 1]
        if self._failure > 0 and ready and idle:
            self._rounds += 1
            share = self._failure / (self._rounds * (self._rounds + 1))
            self._spent += share
            seed = (self._seed, 4, self._rounds, self._origin)
            basis = (*state.basis, state.newest)
            self.operator.probes = Probes(basis, self.data, share, seed)


def _settling(state: KrylovState, k: int) -> float:
    """About how far the first ``k`` together are from what is outside the span, in radians."""
    ahead = state.variances[:k] - state.rest
    sizes = np.linalg.norm(state.residual[:, :k], axis=0)
    found = np.where(ahead > 0, np.arctan2(sizes, np.maximum(ahead, 0.0)), np.pi / 2)
    return float(np.where(sizes == 0, 0.0, found).max())
