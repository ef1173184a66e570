"""The audit of any components: how wrong, at most, is each?"""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from primedpca._certify.certifiers import ProbeCertifier, Proof
from primedpca._core.arrays import to_numpy
from primedpca._core.blas import one_blas_thread
from primedpca._core.orthonormal import complete
from primedpca._core.parameters import as_seed
from primedpca._operator.operator import Centred
from primedpca._planning.plan import make_plan
from primedpca._solve.driver import Stage, exact_stage, follow
from primedpca.metrics import angles
from primedpca.priming import BlockKrylov
from primedpca.protocols import Array
from primedpca.result import USEFUL, Certificate, Cluster, Snapshot

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
    if plan.priming.traits.certifier == "exact" and k <= min(data.shape):
        proof = follow(exact_stage(data, k), lambda step: True).proof
        assert proof is not None
        return _compared(vectors, proof.find().components.T, proof.certificate, tol)[0]
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
    """Certificate of the ``vectors`` ``(d, k)``, by block Krylov started from them."""
    k = vectors.shape[1]
    width = min(k + max(4, -(-k // 4)), data.shape[1])
    krylov = BlockKrylov(block_size=width)
    probes = ProbeCertifier(data, krylov, k, failure_probability, seed, vectors)
    certifier = AuditCertifier(probes, vectors, tol)
    follow(Stage(krylov, width, max_passes, seed, certifier, vectors), lambda step: certifier.done)
    assert certifier.best is not None
    return certifier.best


class AuditCertifier:
    """Compares given components with those that another certifier proves on the way.

    Parameters
    ----------
    probes : ProbeCertifier
    vectors : array of shape (d, k)
    tol : float or None

    Attributes
    ----------
    best : Certificate
        Of the given components, the sharpest so far.
    done : bool
        Whether another pass would not tell more.
    """

    needs_all = True

    def __init__(self, probes: ProbeCertifier, vectors: Array, tol: float | None) -> None:
        self.operator: Any = probes.operator
        self.best: Certificate | None = None
        self.done = False
        self._probes, self._vectors, self._tol = probes, vectors, tol

    def look(self, snapshot: Snapshot) -> Proof:
        """Certificate of the given components after this step."""
        proof, vectors, tol = self._probes.look(snapshot), self._vectors, self._tol
        data, k = self._probes.data, vectors.shape[1]
        known = self._probes.priming.refined(snapshot.state, data)[0]
        known = complete(known, data.like, k, 0)[:, :k]
        certificate, best = proof.certificate, self.best
        audited, apart = _compared(vectors, known, certificate, tol)
        stalled = best is not None and audited.angle_bounds.sum() > 0.99 * best.angle_bounds.sum()
        if best is None or audited.angle_bounds.sum() <= best.angle_bounds.sum():
            best = audited
        sharp = certificate.angle_bounds <= np.maximum(apart / 10, 1e-7)
        if tol is not None:
            # Whether those of no variance are met is a matter of the others.
            sharp = best.met(tol) | certificate.zero | (apart - certificate.angle_bounds > tol)
        self.best = best
        self.done = bool(sharp.all()) or (stalled and bool(certificate.met(1e-3).all()))
        return proof._replace(certificate=best)

    def go_on(self) -> None:
        """Let probes set out."""
        self._probes.go_on()

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """Nothing beyond the last look."""
        return None


def _compared(
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
