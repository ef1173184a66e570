"""The audit of any components: how wrong, at most, is each?"""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from primedpca._certify.certifiers import certified_exact, certified_krylov
from primedpca._core.arrays import to_numpy
from primedpca._core.blas import one_blas_thread
from primedpca._core.orthonormal import complete
from primedpca._operator.operator import Centred
from primedpca._planning.plan import make_plan
from primedpca._solve.prime import as_seed
from primedpca.metrics import angles
from primedpca.priming import BlockKrylov, Exact
from primedpca.protocols import Array
from primedpca.result import USEFUL, Certificate, Cluster

__all__ = ["audit", "certify"]


@one_blas_thread()
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

    The data are decomposed to the accuracy that the question needs, beginning with the
    components themselves, and what was found is compared with them: if ``u`` is proven within
    ``a`` of the truth, a component at an angle ``b`` from ``u`` is within ``a + b`` of it.

    Parameters
    ----------
    X : data of shape (n, d)
        The data that they are said to be the principal components of.
    components : array of shape (k, d)
        Orthonormal rows, in order.
    tol : float, optional
        Stop as soon as every component is proven within this angle, or proven not to be;
        otherwise go on until the bounds are about as small as the angles themselves.
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
    # Not NaN, which is neither above nor below anything.
    if tol is not None and not 0 < tol < math.pi / 2:
        raise ValueError(f"`tol`={tol!r} must be an angle in radians, above 0 and below pi/2.")
    if not 0 <= failure_probability < 1:
        raise ValueError(f"`failure_probability`={failure_probability!r} must lie in [0, 1).")
    if not isinstance(max_passes, Integral) or max_passes < 1:
        raise ValueError(f"`max_passes`={max_passes!r} must be a whole number, at least 1.")
    if "float64" in preparation:
        raise TypeError("`float64` is no option here; proofs are always made in float64.")
    data = Centred.of(X, sample_weight=sample_weight, float64=True, **preparation)
    vectors = _check_components(components, data)
    k = vectors.shape[1]
    plan = make_plan(data, min(k, *data.shape), "auto", "auto")
    if isinstance(plan.priming, Exact) and k <= min(data.shape):
        found, certificate, _ = certified_exact(data, k)
        return _audit(vectors, found.components.T, certificate, tol)[0]
    # Not the probes of a fit with the same seed, which may have ended when it did because of them.
    seed = int(np.random.SeedSequence((as_seed(random_state), 5)).generate_state(1)[0])
    return audit(data, vectors, tol, failure_probability, seed, max_passes)


def audit(
    data: Centred,
    vectors: Array,
    tol: float | None,
    failure_probability: float,
    seed: int,
    max_passes: int,
) -> Certificate:
    """What block Krylov, begun with the ``vectors`` ``(d, k)``, proves of them."""
    k = vectors.shape[1]
    width = min(k + max(4, -(-k // 4)), data.shape[1])
    krylov = BlockKrylov(block_size=width)
    best: Certificate | None = None
    for snapshot, certificate, _, _ in certified_krylov(
        data,
        krylov,
        k,
        width,
        failure_probability=failure_probability,
        seed=seed,
        max_passes=max_passes,
        start=vectors,
    ):
        known = complete(krylov.refined(snapshot.state, data)[0], data.like, k, 0)[:, :k]
        audited, apart = _audit(vectors, known, certificate, tol)
        stalled = best is not None and audited.angle_bounds.sum() > 0.99 * best.angle_bounds.sum()
        if best is None or audited.angle_bounds.sum() <= best.angle_bounds.sum():
            best = audited
        sharp = certificate.angle_bounds <= np.maximum(apart / 10, 1e-7)
        if tol is not None:
            # Whether those of no variance are met is a matter of the others.
            sharp = best.met(tol) | certificate.zero | (apart - certificate.angle_bounds > tol)
        if sharp.all() or (stalled and certificate.met(1e-3).all()):
            break
    assert best is not None
    return best


def _audit(
    vectors: Array, known: Array, certificate: Certificate, tol: float | None
) -> tuple[Certificate, Any]:
    """What the certificate of ``known`` says of ``vectors``, both ``(d, k)``; how far apart.

    Let ``E`` be the span of the true components that have a variance, and ``V`` that of as many
    given ones, which come first.  A given vector ``v`` beyond them is orthogonal to ``V``, so that
    the part of it in ``E`` is no longer than the sine of the angle between ``V`` and ``E``: it has
    no variance to speak of if all of ``V`` is right, and may be anything if one of ``V`` is not.
    """
    apart = angles(vectors.T, known.T) + _slip(vectors.shape[0], 1)
    turned = np.minimum(certificate.angle_bounds + apart, np.pi / 2)
    runs = []
    for start, stop, bound in certificate.clusters:
        if stop <= apart.size:  # of a run past k the given components hold only a part
            between = _between(to_numpy(vectors[:, start:stop]), to_numpy(known[:, start:stop]))
            runs.append(Cluster(start, stop, min(bound + between, np.pi / 2)))
    audited = replace(certificate, angle_bounds=turned, clusters=runs)
    right = audited.met(np.nextafter(USEFUL, 0.0) if tol is None else tol).all()
    return replace(audited, zero=audited.zero & right), apart


def _between(a: np.ndarray, b: np.ndarray) -> float:
    """At least the largest angle between two spans of the same dimension.

    By sine and cosine: near pi/2 the sine alone is right to half of the digits.
    """
    a, b = np.linalg.qr(a)[0], np.linalg.qr(b)[0]
    inside = b.T @ a
    sine = float(np.linalg.norm(a - b @ inside, ord=2))
    cosine = float(np.linalg.norm(inside, ord=-2))
    return math.atan2(sine, cosine) + _slip(*a.shape)


def _slip(d: int, k: int) -> float:
    """What rounding may do to an angle between spans of ``k`` vectors of length ``d``."""
    return 2.0**-52 * (d + 10 * k)


def _check_components(components: Any, data: Centred) -> Array:
    if hasattr(components, "components_"):
        raise TypeError("`components` is a fitted model; pass its `components_`.")
    values = to_numpy(components).astype(np.float64)
    if values.ndim != 2 or values.shape[1] != data.shape[1]:
        raise ValueError(
            f"`components` have shape {values.shape}, but `X` has {data.shape[1]} features; give "
            "one row for each component"
            + ("." if values.shape[:1] != data.shape[1:] else ": transpose them.")
        )
    off = float(np.abs(values @ values.T - np.eye(values.shape[0])).max())
    if not off <= 1e-4:
        raise ValueError(
            f"`components` must have orthonormal rows; their products miss the identity by "
            f"{off:.2g}. Give components of a PCA, one a row and of length 1."
        )
    vectors = data.like.asarray(np.ascontiguousarray(values.T))
    # Exactly unit length: a vector of length 1 + eps would carry that into its Rayleigh quotient.
    return vectors / data.like.xp.linalg.vector_norm(vectors, axis=0)
