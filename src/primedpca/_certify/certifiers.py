"""Residuals, gaps and probes made into a certificate, while the components are found."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from primedpca._certify.bounds import (
    Evidence,
    angle_bounds,
    carried,
    clusters,
    fewest,
    lower,
    spectral_norm,
    upper,
)
from primedpca._certify.probes import UNIT, Probes, Riding, unevenness
from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred
from primedpca._solve.prime import prime
from primedpca._solve.refine import bounds_in_unit_of_data, decomposition
from primedpca.priming import BlockKrylov
from primedpca.priming.block_krylov import KrylovState, looked
from primedpca.priming.exact import principal, spectrum
from primedpca.protocols import Array
from primedpca.result import Certificate, Cluster, Decomposition, Snapshot

__all__ = [
    "NEGLIGIBLE",
    "Certified",
    "certificate_of",
    "certified_exact",
    "certified_krylov",
    "preparation_error",
    "rounding_of",
]

#: The share of the variance below which rounding may call a variance none.  Rounding that is
#: larger cannot tell it from zero, and proves nothing.
NEGLIGIBLE = 1e-9
READY = 0.3  # radians that the components still move by when probes set out


def rounding_of(data: Any, width: int, largest: float, skew: float = 0.0) -> float:
    """A bound ``e`` on the error of ``C U`` for ``width`` orthonormal columns, in float64.

    ``4 sqrt(p) (d + n_b + log2(blocks) + 10) u T + 2 theta_1 |U^T U - I| + (10 p + 64 sqrt(p))
    u theta_1`` with ``T`` the mean squared norm of the rows as they are multiplied: of sparse
    rows, before the mean is taken off; in the first pass, about a guess.  The 4 covers the
    products that take a block out of the span, the 64 what is dropped from each block as
    rounding.  :func:`preparation_error` adds what mean, scale and filled values are off by.
    """
    n, d = data.shape
    blocks = data.source.blocks
    longest = max(stop - start for start, stop in blocks)
    along, across = (longest, d) if data.source.axis == 0 else (n, longest)
    rows = _rows_as_multiplied(data)
    steps = along + across + d * (data.source.axis == 1) + math.log2(len(blocks)) + 10
    products = 4 * math.sqrt(width) * steps * UNIT * rows
    small = (10 * width + 64 * math.sqrt(width)) * UNIT * largest
    return products + 2 * largest * skew + small + preparation_error(data, largest)


def _rows_as_multiplied(data: Any) -> float:
    """The mean squared norm of the rows before what cannot be subtracted from them is."""
    offset = data.frame.offset
    shifted = 0.0 if offset is None else float(data.wide(offset) @ data.wide(offset))
    return max(data.total + shifted, data.frame.first)


def preparation_error(data: Any, largest: float) -> float:
    """A bound on the error of ``C`` because mean, scale and filled values are rounded.

    A mean that is off by ``delta`` everywhere adds ``delta delta^T``.  Columns that are scaled
    with a relative error ``s`` turn ``C`` into ``D C D`` with ``|D - I| <= s``.  Values that
    were filled with a rounded mean are off by ``delta`` in some rows and not in others, so that
    ``delta`` acts in first order.
    """
    delta, slip = data.frame.astray, data.frame.slip
    error = 2 * delta**2 + (2 + slip) * slip * largest
    if data.missing == "mean":
        error += 2 * math.sqrt(_rows_as_multiplied(data)) * delta
    return error


def certificate_of(evidence: Evidence, k: int, data: Any, kind: str, failure: float) -> Certificate:
    """The certificate that the evidence allows; variances are in the unit of ``data``, if given.

    Of components beyond the Ritz vectors at hand only ``0 <= lambda <= mu`` is claimed.
    """
    up, size = upper(evidence), min(k, evidence.values.size)
    runs = [Cluster(*run) for run in clusters(evidence, size, up)]
    angles = np.full(k, np.pi / 2)
    angles[:size] = angle_bounds(evidence, size, up)
    low = np.zeros(k)
    low[:size] = lower(evidence)[:size]
    up = np.concatenate([up[:size], np.full(k - size, evidence.above)])
    # The trace bound alone is off by (sqrt(p) + 2) e, and upper() adds a few e to it.
    few = 4.0 if kind == "exact" else 2 * math.sqrt(evidence.values.size) + 12
    zero = (up <= min(few * evidence.rounding, evidence.negligible)) & (low == 0)
    bounds = np.stack([low, up], axis=1)
    if data is not None:
        bounds = bounds_in_unit_of_data(data, bounds)
    return Certificate(
        angle_bounds=angles,
        eigenvalue_bounds=bounds,
        clusters=runs,
        kind=kind,
        failure_probability=failure,
        zero=zero,
    )


def certified_exact(data: Centred, wanted: int | float) -> tuple[Decomposition, Certificate, bool]:
    """A full decomposition, what rounding leaves of its certainty, and of the number wanted.

    The matrix is formed with an error of at most ``(n_b + log2(blocks) + 10) u T`` and
    decomposed with one of at most ``10 m u theta_1``.

    Parameters
    ----------
    data : Centred
        Multiplied in float64.
    wanted : int or float
        How many components, or the share of the variance that they are to hold.
    """
    m = min(data.shape)
    # A few more than wanted: a run of ties that begins before k may end soon after.
    more = m if isinstance(wanted, float) else wanted + max(8, wanted // 4)
    values, vectors = spectrum(data, more + 1)
    p = min(more, m)
    beyond, values = float(values[p]) if p < m else 0.0, values[:p]
    e = rounding_of(data, 1, float(values[0])) + 10 * m * UNIT * float(values[0])
    # The residuals are not formed: all that they can be is in the rounding.
    floor = NEGLIGIBLE * max(0.0, data.total - 3 * m * e)
    evidence = Evidence(values, np.zeros((0, p)), beyond, 3 * e, floor)
    k, counted = wanted, True
    if isinstance(k, float):
        least, k = fewest(evidence, upper(evidence), data.total, k)
        k, counted = min(k, p), least == k
    basis = principal(data, values[:k], vectors[:, :k])
    certificate = certificate_of(evidence, k, data, "exact", 0.0)
    if data.shape[0] < data.shape[1]:
        certificate = _on_the_right(certificate, lower(evidence), 3 * e)
    return decomposition(data, basis, values[:k]), certificate, counted


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


class Certified(NamedTuple):
    """A snapshot, what is proven of it, and from what; whether the number wanted is known."""

    snapshot: Snapshot
    certificate: Certificate
    evidence: Evidence
    counted: bool

    def at_floor(self, tol: float) -> bool:
        """Whether what is short of ``tol`` is so because of rounding, which no pass removes."""
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


def _settling(state: KrylovState, k: int) -> float:
    """About how far the first ``k`` together are from what is outside the span, in radians."""
    ahead = state.variances[:k] - state.rest
    sizes = np.linalg.norm(state.residual[:, :k], axis=0)
    found = np.where(ahead > 0, np.arctan2(sizes, np.maximum(ahead, 0.0)), np.pi / 2)
    return float(np.where(sizes == 0, 0.0, found).max())


def _passes(
    data: Centred,
    priming: BlockKrylov,
    n_directions: int,
    max_passes: int,
    seed: int,
    start: Array | None,
) -> Iterator[Snapshot]:
    """Block Krylov, and on when nothing more comes out of its span.

    An invariant span can miss whole eigenvectors: it goes on with random vectors beside it.
    """
    done, seconds = 0, 0.0
    block = priming.block_size or n_directions
    while True:
        left = max_passes - done
        for snapshot in prime(
            data, priming, n_directions, max_passes=left, random_state=seed, start=start
        ):
            own = snapshot
            yield replace(own, step=done + own.step, seconds=seconds + own.seconds)
        done, seconds = done + own.step, seconds + own.seconds
        used = own.state.projected.shape[0]
        if not priming.finished(own.state) or used >= data.shape[1] or done >= max_passes:
            return
        start = priming.refined(own.state._replace(n_directions=used), data)[0]
        n_directions = min(used + block, data.shape[1])
        priming = replace(priming, block_size=n_directions)


def certified_krylov(
    data: Centred,
    priming: BlockKrylov,
    wanted: int | float,
    n_directions: int,
    *,
    failure_probability: float,
    seed: int,
    max_passes: int,
    start: Array | None = None,
    missed: Callable[[tuple[Array, ...], float], float] | None = None,
) -> Iterator[Certified]:
    """Run block Krylov and say after every pass what is proven.

    ``wanted`` is the number of components, or the share of the variance that they are to hold.
    ``missed(basis, skew)`` is what a basis can have missed, if something better than the trace
    is known for certain.

    With ``failure_probability`` 0 only deterministic bounds are used.  Otherwise probes set out
    as soon as all ``k`` have nearly settled, deflated with the basis of that moment.  They ride
    on the next passes, prove more with each, and hold for every later basis that contains that
    one.  Where they cannot prove enough, or not in eight passes, another set sets out, with its
    share of the probability.  A restart of the basis ends a ride; what is known by then of the
    true eigenvalues still bounds what the new basis misses.
    """
    riding = Riding(data)
    # Directions to begin with may have been chosen by the probes of an earlier fit.
    origin = 0 if start is None else zlib.crc32(np.ascontiguousarray(to_numpy(start)).tobytes())
    best, spent, rounds, blocks, columns = math.inf, 0.0, 0, 0, 0
    uneven, worn, ceiling = 0.0, 0.0, np.zeros(0)
    for snapshot in _passes(riding, priming, n_directions, max_passes, seed, start):
        state, probes = looked(snapshot.state), riding.probes
        values, size = state.variances, state.variances.size
        restarted = len(state.basis) <= blocks
        if restarted:
            # What the probes were kept from has been dropped from the basis.  What rounding had
            # done to it until then is in the vectors that were kept.
            probes = riding.probes = None
            worn += math.sqrt(uneven)
        if restarted or not blocks:
            uneven = unevenness(state.basis[-1], ())
        blocks = len(state.basis)
        columns += state.basis[-1].shape[1]
        # Before it is multiplied: a restart may leave no other chance.
        uneven += unevenness(state.newest, state.basis)
        skew = worn + math.sqrt(uneven)
        # At least as large as |C U|, also where the top has been missed so far.
        largest = math.hypot(values[0], spectral_norm(state.residual))
        e = rounding_of(data, columns, largest, skew)
        if restarted:
            best = carried(Evidence(values, state.residual, 0.0, e), ceiling)
        if probes is not None and probes.passes:
            # They may have found more than the basis has.
            most = math.hypot(largest, spectral_norm(probes.small))
            width = probes.small.shape[1]
            rounding = rounding_of(data, width, most, skew + probes.skew)
            best = min(best, probes.missed(most, rounding))
        blur = (math.sqrt(size) + 2) * e
        trace = max(0.0, data.total - float(values.sum())) + blur
        if missed is not None:
            trace = min(trace, missed(state.basis, skew))
        kind = "deterministic" if trace <= best or spent == 0 else "probabilistic"
        floor = NEGLIGIBLE * max(0.0, data.total - blur)
        evidence = Evidence(values, state.residual, min(trace, best), e, floor)
        ceiling = upper(evidence)
        k, counted = int(wanted), True
        if isinstance(wanted, float):
            least, k = fewest(evidence, ceiling, data.total, wanted)
            counted = least == k
        failure = spent if kind == "probabilistic" else 0.0
        certificate = certificate_of(evidence, k, data, kind, failure)
        yield Certified(snapshot, certificate, evidence, counted)
        ready = size >= k and _settling(state, k) < READY
        idle = probes is None or not probes.riding
        if ready and probes is not None and probes.passes >= 3:
            idle = idle or probes.reached > 0.9 * values[k - 1]
        if failure_probability > 0 and ready and idle:
            rounds += 1
            share = failure_probability / (rounds * (rounds + 1))
            spent += share
            basis = (*state.basis, state.newest)
            riding.probes = Probes(basis, data, share, (seed, 4, rounds, origin))
