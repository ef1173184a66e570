"""Audit of given components: a proven bound on the error of each."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from primedpca._certify.bounds import NEGLIGIBLE
from primedpca._certify.certifiers import ProbeCertifier, Proof
from primedpca._certify.explicit import GivenMatrixCertifier
from primedpca._certify.given import GivenCertifier
from primedpca._core.arrays import as_real, to_numpy
from primedpca._core.orthonormal import complete
from primedpca._core.parameters import DEFAULT, as_seed, is_real, is_whole
from primedpca._core.process import one_blas_thread
from primedpca._operator.operator import Centred
from primedpca._planning.plan import make_plan
from primedpca._solve.driver import Goal, Stage, Step, follow, may_check, solve
from primedpca.metrics import angles_of_units
from primedpca.priming import BlockKrylov
from primedpca.protocols import Array
from primedpca.result import USEFUL, Certificate, Cluster, Snapshot
from primedpca.sources.memory.frames import (
    aligned,
    column_labels,
    labels_along,
    without_index,
)

__all__ = ["audit", "certify"]

#: Part of the angle to which data are decomposed: the rest is for the components to be audited.
PART = 0.75


@one_blas_thread
def certify(
    X: Any,  # noqa: N803
    components: Any,
    *,
    tol: float | None = None,
    failure_probability: float = 1e-6,
    sample_weight: Any = None,
    max_passes: int = 100,
    random_state: Any = None,
    **preparation: Any,
) -> Certificate:
    """Audit components from this library or any other: prove a bound on the error of each.

    Where a full decomposition would take long, one pass multiplies the components, and narrow
    blocks look for what they leave out; or one pass makes the covariance matrix, and a
    factorisation shows that it has no other component as large as the last.  Either takes about as
    long as a fit without a certificate.  If they turn out to be inaccurate, in another order or
    wrong, and where a fit would make the Gram matrix, the data are decomposed anew and the
    components are compared with the result.  If a computed vector ``u`` is proven within an angle
    ``a`` of the true component, a given component at an angle ``b`` from ``u`` is within ``a + b``
    of it.

    Parameters
    ----------
    X : data of shape (n, d)
        Data of which the components are to be the principal components.
    components : array, data frame or DataArray of shape (k, d)
        Orthonormal rows, in order of decreasing variance.  If both they and ``X`` have names of
        columns, the columns are found by name; names that differ are refused.
    tol : float, optional
        Angle in radians that is to be proven.  If the data are decomposed, they are to three
        quarters of it, so that components within the last quarter are proven.  By default pi/1024,
        as in a fit; a smaller angle gives sharper bounds and takes more passes.
    failure_probability : float, default=1e-6
        Probability that the certificate is false; 0 uses deterministic bounds only.
    sample_weight : array of shape (n,), optional
        Weights of the rows, as frequencies.  By default every weight is 1.
    max_passes : int, default=100
        Maximum number of steps, as in a fit.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random vectors.
    **preparation
        ``center``, ``scale``, ``missing`` and ``engine``, as in :class:`~primedpca.PrimedPCA`.

    Returns
    -------
    Certificate
        Of the given components.

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
    # Written so that NaN fails, too: every comparison with NaN is false.
    if tol is not None and not (is_real(tol) and 0 < tol < math.pi / 2):
        raise ValueError(f"`tol`={tol!r} must be an angle in radians, above 0 and below pi/2.")
    if not (is_real(failure_probability) and 0 <= failure_probability < 1):
        raise ValueError(f"`failure_probability`={failure_probability!r} must lie in [0, 1).")
    if not is_whole(max_passes) or max_passes < 1:
        raise ValueError(f"`max_passes`={max_passes!r} must be a whole number, at least 1.")
    if "float64" in preparation:
        raise TypeError(
            "`float64` is not an option of `certify`, whose products are always in float64. Leave "
            "it out."
        )
    data = Centred.of(X, sample_weight=sample_weight, **preparation)
    data.check_rows()
    wide = data.in_float64()
    vectors, own = _check_components(components, wide)
    k = vectors.shape[1]
    plan, seed, matrix = make_plan(data, min(k, *data.shape), "auto", "auto"), 0, None
    full, given = plan.priming.traits.certifier == "exact", as_seed(random_state)
    if not full or k > min(data.shape):
        # Another seed than a fit's: random vectors prove something only about what does not depend
        # on them, and a fit has stopped because of its own.
        seed = int(np.random.SeedSequence((given, 5)).generate_state(1)[0])
    # Without random vectors, an explicit matrix is decomposed in full.
    exact = full or plan.priming.explicit
    if k > min(data.shape) or (failure_probability == 0 and not exact):
        return audit(wide, vectors, tol, failure_probability, seed, max_passes)
    goal = Goal(
        tol=DEFAULT.tol if tol is None else tol,
        max_passes=max_passes,
        failure_probability=failure_probability,
        seed=seed,
    )
    if not full and may_check(data, goal):
        priming = plan.priming
        if not priming.explicit:
            quick = _beside(data, wide, (vectors, own), priming.side, goal)
            if quick.certificate is not None:
                return quick.certificate
            goal = goal._replace(failure_probability=failure_probability - quick.spent)
        elif priming.side == "right":
            # With a Gram matrix, a fit makes fewer products with the data than this would.
            options = (failure_probability, seed, PART * goal.tol, vectors)
            matrix = GivenMatrixCertifier(data, wide, priming, k, *options)
            proof = matrix.audit(vectors)
            if proof is not None and proof.certificate.met(PART * goal.tol).all():
                known = wide.like.asarray(proof.find().components).T
                return _compared(wide, vectors, known, proof.certificate, tol)[0]
    found = solve(data, plan, goal._replace(tol=PART * goal.tol), begun=matrix)
    assert found.certificate is not None
    known = wide.like.asarray(found.decomposition.components).T
    return _compared(wide, vectors, known, found.certificate, tol)[0]


def _beside(
    data: Centred, wide: Centred, given: tuple[Array, np.ndarray], side: Any, goal: Goal
) -> GivenCertifier:
    """Audit given components by what is found beside them, if they are good enough for that."""
    failure, passes = goal.failure_probability, goal.max_passes
    certifier = GivenCertifier(data, wide, side, *given, failure, goal.seed, goal.tol, passes)
    # As many directions as there are: the basis is looked at by the certifier alone.
    stage = Stage(certifier.priming, max(data.shape), passes, goal.seed, certifier, given[0])

    def done(step: Step) -> bool:
        return certifier.exhausted or certifier.certificate is not None

    follow(stage, done)
    return certifier


def audit(
    data: Centred,
    vectors: Array,
    tol: float | None,
    failure_probability: float,
    seed: int,
    max_passes: int,
) -> Certificate:
    """Return the certificate of given vectors, by block Krylov started from them.

    Parameters
    ----------
    data : Centred
        Multiplied in float64.
    vectors : array of shape (d, k)
        Orthonormal columns.
    tol : float or None
        Angle in radians at which to stop, as in :func:`certify`.
    failure_probability : float
    seed : int
    max_passes : int
    """
    k = vectors.shape[1]
    width = min(k + max(4, -(-k // 4)), data.shape[1])
    krylov = BlockKrylov(block_size=width)
    probes = ProbeCertifier(data, krylov, k, failure_probability, seed, vectors)
    certifier = AuditCertifier(probes, vectors, tol)
    follow(Stage(krylov, width, max_passes, seed, certifier, vectors), lambda step: certifier.done)
    assert certifier.best is not None
    return certifier.best


class AuditCertifier:
    """Certifier that compares given components with those that another certifier proves.

    Parameters
    ----------
    probes : ProbeCertifier
        Certifier of the components that block Krylov computes.
    vectors : array of shape (d, k)
        The given components, in columns.
    tol : float or None
        Angle in radians at which to stop, as in :func:`certify`.

    Attributes
    ----------
    best : Certificate or None
        Sharpest certificate of the given components so far.
    done : bool
        Whether the audit can end, because another pass would not improve it.
    """

    needs_all = True
    exhausted = False
    hopeless = False

    def __init__(self, probes: ProbeCertifier, vectors: Array, tol: float | None) -> None:
        self.operator: Any = probes.operator
        self.best: Certificate | None = None
        self.done = False
        self._probes, self._vectors, self._tol = probes, vectors, tol

    def look(self, snapshot: Snapshot) -> Proof:
        """Return the proof for the given components after this step."""
        proof, vectors, tol = self._probes.look(snapshot), self._vectors, self._tol
        data, k = self._probes.data, vectors.shape[1]
        known = self._probes.priming.refined(snapshot.state, data)[0]
        known = complete(known, data.like, k, 0)[:, :k]
        certificate, best = proof.certificate, self.best
        audited, apart = _compared(data, vectors, known, certificate, tol)
        stalled = best is not None and audited.angle_bounds.sum() > 0.99 * best.angle_bounds.sum()
        if best is None or audited.angle_bounds.sum() <= best.angle_bounds.sum():
            best = audited
        sharp = certificate.angle_bounds <= np.maximum(apart / 10, 1e-7)
        if tol is not None:
            # Components of zero variance need no pass of their own: the others decide on them.
            sharp = best.met(tol) | certificate.zero | (apart - certificate.angle_bounds > tol)
        self.best = best
        self.done = bool(sharp.all()) or (stalled and bool(certificate.met(1e-3).all()))
        return proof._replace(certificate=best)

    def go_on(self) -> None:
        """Start probes if they are due."""
        self._probes.go_on()

    def conclude(self, snapshot: Snapshot) -> Proof | None:
        """Return None: nothing is proven beyond the last :meth:`look`."""
        return None


def _compared(
    data: Centred, vectors: Array, known: Array, certificate: Certificate, tol: float | None
) -> tuple[Certificate, Any]:
    """Convert a certificate of ``known`` to one of ``vectors``, both ``(d, k)``.

    Also return the angles between them, ``(k,)`` in radians.  A fit that ended early may know fewer
    than ``k``.  Nothing is claimed about the vectors beyond those, and no more than the order of
    the eigenvalues about theirs.

    Components of zero variance need care.  Let ``E`` be the span of the true components of positive
    variance, and ``V`` the span of the same number of leading given vectors.  A given vector beyond
    them is orthogonal to ``V``, so its part in ``E`` is no longer than the sine of the angle
    between ``V`` and ``E``.  It therefore has negligible variance if all of ``V`` is right, and
    nothing is known about it if one vector of ``V`` is wrong.  As small an angle as is wanted does
    not mean a negligible variance, so that is measured by a product.
    """
    certificate = _lengthened(certificate, vectors.shape[1])
    count = known.shape[1]
    rows, others = (to_numpy(columns).T for columns in (vectors, known))
    others = others / np.sqrt(np.einsum("ij,ij->i", others, others))[:, None]
    apart = np.full(len(rows), np.pi / 2)
    apart[:count] = angles_of_units(rows[:count], others) + _slip(vectors.shape[0], 1)
    turned = np.minimum(certificate.angle_bounds + apart, np.pi / 2)
    runs = []
    for start, stop, bound in certificate.clusters:
        if stop <= count:  # of a longer run, only a part of the span is given or known
            between = _between(to_numpy(vectors[:, start:stop]), to_numpy(known[:, start:stop]))
            runs.append(Cluster(start, stop, min(bound + between, np.pi / 2)))
    audited = replace(certificate, angle_bounds=turned, clusters=runs)
    right = audited.met(np.nextafter(USEFUL, 0.0) if tol is None else tol).all()
    zero = audited.zero & right
    if zero.any():
        lengths = data.like.xp.linalg.vector_norm(data.forward(vectors), axis=0)
        zero &= to_numpy(lengths) ** 2 <= NEGLIGIBLE * data.total * data.weight
    return replace(audited, zero=zero), apart


def _lengthened(certificate: Certificate, k: int) -> Certificate:
    """Return a certificate of ``k`` components that claims nothing about the vectors added."""
    more = k - certificate.angle_bounds.size
    if more <= 0:
        return certificate
    bounds = certificate.eigenvalue_bounds
    return replace(
        certificate,
        angle_bounds=np.append(certificate.angle_bounds, np.full(more, np.pi / 2)),
        # Eigenvalues are in order, and not negative.
        eigenvalue_bounds=np.append(bounds, [[0.0, bounds[:, 1].min()]] * more, axis=0),
        zero=np.append(certificate.zero, np.zeros(more, dtype=bool)),
    )


def _between(a: np.ndarray, b: np.ndarray) -> float:
    """Upper bound on the largest angle between two spans of the same dimension, in radians.

    From sine and cosine together: near pi/2, the arcsine alone would lose half of the digits.
    """
    a, b = np.linalg.qr(a)[0], np.linalg.qr(b)[0]
    inside = b.T @ a
    sine = float(np.linalg.norm(a - b @ inside, ord=2))
    cosine = float(np.linalg.norm(inside, ord=-2))
    return math.atan2(sine, cosine) + _slip(*a.shape)


def _slip(d: int, k: int) -> float:
    """Bound on the rounding error of an angle between spans of ``k`` vectors of length ``d``."""
    return 2.0**-52 * (d + 10 * k)


def _check_components(components: Any, data: Centred) -> tuple[Array, np.ndarray]:
    """Return valid components as columns of unit length, ``(d, k)``, and their inner products."""
    if hasattr(components, "components_"):
        raise TypeError("`components` is a fitted model. Pass its `components_` instead.")
    components = without_index(components)
    values = as_real(components, "components")
    if values.ndim != 2 or values.shape[1] != data.shape[1]:
        remedy = ": `components[None]`" if values.ndim == 1 else ": transpose them"
        hint = remedy if values.shape[:1] == data.shape[1:] else ""
        raise ValueError(
            f"`components` have shape {values.shape}, but `X` has {data.shape[1]} features. Pass "
            f"one row for each component{hint}."
        )
    if not values.size:
        raise ValueError("`components` has no rows. Pass one row for each component.")
    if not np.isfinite(values).all():
        i, j = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"`components` has a non-finite value, {values[i, j]}, in row {i + 1}, column {j + 1}. "
            "Pass finite numbers."
        )
    labels = labels_along(components, 1)
    values = values if labels is None else aligned(values, labels, column_labels(data.source))
    own = values @ values.T
    off = float(np.abs(own - np.eye(values.shape[0])).max())
    if not off <= 1e-4:
        raise ValueError(
            f"`components` must have orthonormal rows, but their products differ from the identity "
            f"by {off:.2g}. Pass the components of a PCA, one per row, each of length 1."
        )
    # Normalise again: an error in the length of a vector would enter its Rayleigh quotient.
    lengths = np.sqrt(np.diag(own))
    values /= lengths[:, None]
    return data.like.asarray(np.ascontiguousarray(values.T)), own / lengths / lengths[:, None]
