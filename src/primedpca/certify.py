"""Residuals, gaps and probes made into a certificate; and the audit of any components."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from primedpca.arrays import to_numpy
from primedpca.bounds import Evidence, angle_bounds, clusters, lower, upper, vector_bounds
from primedpca.centred import Centred
from primedpca.prime import as_seed, prime
from primedpca.priming import BlockKrylov, Exact
from primedpca.probes import UNIT, Probes, Riding, unevenness
from primedpca.protocols import Array
from primedpca.refine import decomposition
from primedpca.result import Certificate, Cluster, Decomposition, Snapshot

__all__ = [
    "Certified",
    "certificate_of",
    "certified_exact",
    "certified_krylov",
    "certify",
    "rounding_of",
]

READY = 0.3  # radians that the components still move by when probes set out


def rounding_of(data: Any, width: int, largest: float, skew: float = 0.0) -> float:
    """A bound ``e`` on the error of ``C U`` for ``width`` orthonormal columns, in float64.

    ``4 sqrt(p) (d + n_b + log2(blocks) + 10) u T + 2 theta_1 |U^T U - I| + (10 p + 64) u
    theta_1`` with ``T`` the mean squared norm of the rows as they are multiplied: of sparse
    rows, before the mean is taken off.  The 4 covers the products that take a block out of the
    span, the 64 what is dropped from a block as rounding.
    """
    n, d = data.shape
    blocks = data.source.blocks
    longest = max(stop - start for start, stop in blocks)
    along, across = (longest, d) if data.source.axis == 0 else (n, longest)
    offset = data.frame.offset
    shifted = 0.0 if offset is None else float(data.wide(offset) @ data.wide(offset))
    rows = data.total + shifted
    steps = along + across + d * (data.source.axis == 1) + math.log2(len(blocks)) + 10
    products = 4 * math.sqrt(width) * steps * UNIT * rows
    return products + 2 * largest * skew + (10 * width + 64) * UNIT * largest


def certificate_of(
    evidence: Evidence, k: int, unit: float, kind: str, failure: float
) -> Certificate:
    """The certificate that the evidence allows; ``unit`` turns variances into the user's.

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
    zero = up <= (2 * math.sqrt(evidence.values.size) + 12) * evidence.rounding
    return Certificate(
        angle_bounds=angles,
        eigenvalue_bounds=np.stack([low, up], axis=1) * unit,
        clusters=runs,
        kind=kind,
        failure_probability=failure,
        zero=zero,
    )


def certified_exact(data: Centred, k: int) -> tuple[Decomposition, Certificate]:
    """A full decomposition and what rounding leaves of its certainty.

    The matrix is formed with an error of at most ``(n_b + log2(blocks) + 10) u T`` and
    decomposed with one of at most ``10 m u theta_1``.  Right vectors made from left ones,
    ``M^T u / |M^T u|``, carry the error of ``u`` larger by ``sqrt(theta_1 / theta_i)``.
    """
    priming = Exact()
    p = min(k, *data.shape)
    state = priming.step(priming.init(data.like, p, 0), data)
    values = np.asarray(state.variances)
    m = min(data.shape)
    e = rounding_of(data, m, float(values[0])) / math.sqrt(m)
    worse = np.ones(p)
    if data.shape[0] < data.shape[1]:
        worse = np.sqrt(values[0] / np.maximum(values, e)) if values[0] > 0 else worse
    evidence = Evidence(values, np.diag(2 * e * worse), state.beyond, e)
    unit = data.weight / (data.weight - 1) / data.frame.gain / data.frame.gain
    found = decomposition(data, state.basis, values)
    return found, certificate_of(evidence, k, unit, "exact", 0.0)


class Certified(NamedTuple):
    """A snapshot, what is proven of it, and from what."""

    snapshot: Snapshot
    certificate: Certificate
    evidence: Evidence


def certified_krylov(
    data: Centred,
    priming: BlockKrylov,
    k: int,
    n_directions: int,
    *,
    failure_probability: float,
    seed: int,
    max_passes: int,
    start: Array | None = None,
) -> Iterator[Certified]:
    """Run block Krylov and say after every pass what is proven of the first ``k``.

    With ``failure_probability`` 0 only deterministic bounds are used.  Otherwise probes set out
    as soon as all ``k`` have nearly settled, deflated with the basis of that moment.  They ride
    on the next passes, prove more with each, and hold for every later basis that contains that
    one.  Where they cannot prove enough, or not in eight passes, another set sets out, with its
    share of the probability.
    """
    riding = Riding(data)
    best, spent, rounds, blocks, uneven = math.inf, 0.0, 0, 0, 0.0
    unit = data.weight / (data.weight - 1)
    for snapshot in prime(
        riding, priming, n_directions, max_passes=max_passes, random_state=seed, start=start
    ):
        state = snapshot.state
        values, size = state.variances, state.variances.size
        if len(state.basis) <= blocks:
            # A restart has dropped what the probes were kept from.
            best, uneven, riding.probes = math.inf, 0.0, None
        blocks = len(state.basis)
        uneven += unevenness(state.basis[-1], state.basis[:-1])
        # At least as large as |C U|, also where the top has been missed so far.
        largest = math.hypot(values[0], np.linalg.norm(state.residual, ord=2))
        e = rounding_of(data, size, largest, math.sqrt(uneven))
        probes = riding.probes
        if probes is not None and probes.passes:
            skew = math.sqrt(uneven) + probes.skew
            rounding = rounding_of(data, probes.small.shape[1], largest, skew)
            best = min(best, probes.missed(largest, rounding))
        trace = max(0.0, data.total - float(values.sum())) + (math.sqrt(size) + 2) * e
        kind = "deterministic" if trace <= best else "probabilistic"
        evidence = Evidence(values, state.residual, min(trace, best), e)
        gain = unit / data.frame.gain / data.frame.gain
        failure = spent if kind == "probabilistic" else 0.0
        certificate = certificate_of(evidence, k, gain, kind, failure)
        yield Certified(snapshot, certificate, evidence)
        ready = size >= k and state.change[:k].max() < READY
        idle = probes is None or not probes.riding
        if probes is not None and probes.passes >= 3:
            idle = idle or probes.reached > 0.9 * values[k - 1]
        if failure_probability > 0 and ready and idle:
            rounds += 1
            share = failure_probability / (rounds * (rounds + 1))
            spent += share
            basis = (*state.basis, state.newest)
            riding.probes = Probes(basis, data, share, (seed, 4, rounds))


def certify(
    X: Any,  # noqa: N803
    components: Any,
    *,
    tol: float | None = None,
    failure_probability: float = 1e-6,
    sample_weight: Any = None,
    max_passes: int = 20,
    random_state: Any = None,
    **preparation: Any,
) -> Certificate:
    """Audit components, from this library or any other: how wrong, at most, is each?

    Parameters
    ----------
    X : data of shape (n, d)
        The data that they are said to be the principal components of.
    components : array of shape (k, d)
        Orthonormal rows, in order.
    tol : float, optional
        Stop as soon as every component is proven within this angle; otherwise go on until the
        bounds stop falling.
    failure_probability : float
        The probability that the certificate is false; 0 asks for deterministic bounds only.
    sample_weight : array of shape (n,), optional
    max_passes : int
    random_state : int, RandomState, Generator or None
    **preparation
        ``center``, ``scale``, ``missing`` and ``engine``, as the estimator has them.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import certify
    >>> X = np.random.default_rng(0).normal(size=(500, 30)) * 0.7 ** np.arange(30)
    >>> components = np.linalg.svd(X - X.mean(axis=0))[2][:3]
    >>> certify(X, components, random_state=0).streak(1e-6)
    3
    >>> certify(X, components[[1, 2]], random_state=0).streak(0.1)
    0
    """
    data = Centred.of(X, sample_weight=sample_weight, float64=True, **preparation)
    vectors = _check_components(components, data)
    k = vectors.shape[1]
    product = data.covariance_product(vectors)
    sigma = to_numpy(data.like.xp.vecdot(vectors, product, axis=0))
    rest = product - vectors * data.like.asarray(sigma)
    sizes = to_numpy(data.like.xp.linalg.vector_norm(rest, axis=0))
    extra = min(k + max(4, -(-k // 4)), min(data.shape))
    found: Certificate | None = None
    for certified in certified_krylov(
        data,
        BlockKrylov(block_size=extra),
        k,
        extra,
        failure_probability=failure_probability,
        seed=as_seed(random_state),
        max_passes=max_passes,
        start=vectors,
    ):
        evidence, certificate = certified.evidence, certified.certificate
        if evidence.values.size < k:
            continue
        bounds = vector_bounds(evidence, upper(evidence), sigma, sizes)
        better = found is None or bounds.sum() < 0.99 * found.angle_bounds.sum()
        if found is None or bounds.sum() <= found.angle_bounds.sum():
            found = Certificate(
                bounds,
                certificate.eigenvalue_bounds,
                [],
                certificate.kind,
                certificate.failure_probability,
                certificate.zero,
            )
        if tol is not None and found.met(tol).all():
            break
        if not better and certificate.met(1e-3).all():
            break
    assert found is not None
    return found


def _check_components(components: Any, data: Centred) -> Array:
    if hasattr(components, "components_"):
        raise TypeError("`components` is a fitted model; pass its `components_`.")
    values = to_numpy(components).astype(np.float64)
    if values.ndim != 2 or values.shape[1] != data.shape[1]:
        raise ValueError(
            f"`components` have shape {values.shape}, but `X` has {data.shape[1]} features; give "
            "one row for each component."
        )
    off = float(np.abs(values @ values.T - np.eye(values.shape[0])).max())
    if not off <= 1e-4:
        raise ValueError(
            f"`components` must have orthonormal rows; their products miss the identity by "
            f"{off:.2g}."
        )
    vectors = data.like.asarray(np.ascontiguousarray(values.T))
    # Exactly unit length: a vector of length 1 + eps would carry that into its Rayleigh quotient.
    return vectors / data.like.xp.linalg.vector_norm(vectors, axis=0)
