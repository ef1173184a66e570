"""Bounds on angles and eigenvalues from Ritz values and residuals (docs/certificates.md).

Let ``C`` be the covariance with eigenvalues ``lambda_1 >= lambda_2 >= ...``, let ``U`` hold all
Ritz vectors computed so far, ``theta_1 >= ... >= theta_p`` their Ritz values, and
``R = C U - U diag(theta)`` their residuals.  The bounds need only ``theta``, a small matrix ``B``
with ``B^T B = R^T R``, an upper bound ``mu`` on the top eigenvalue of the rest of the covariance,
``(I - U U^T) C (I - U U^T)``, and a bound ``e`` on the rounding error of the computed ``C U``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, starmap
from operator import sub
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import arcsin_up, arcsines_up
from primedpca._operator.operator import Centred
from primedpca._operator.scaling import bounds_in_unit_of_data
from primedpca.result import Certificate, Cluster

__all__ = [
    *("NEGLIGIBLE", "UNIT", "Evidence", "angle_bounds", "carried", "certificate_of", "clusters"),
    *(
        "fewest",
        "largest_within",
        "lower",
        "preparation_error",
        "rounding_of",
        "spectral_norm",
        "stream_bounds",
    ),
    *("topmost", "upper"),
]

#: Unit roundoff of float64, in which all proofs are made.
UNIT = 2.0**-53
#: Fraction of the total variance up to which a variance may count as zero.  If rounding errors are
#: larger than this, it is not proven whether a variance is zero, and none counts as zero.
NEGLIGIBLE = 1e-9
#: Explained variance ratios that differ by less than this count as equal.
LITTLE = 1e-7
#: Second-order terms up to this part of those of first order are bounded by a trace.
MINOR = 0.01
#: Bytes of weighted matrices that are made at a time.
TOPS_BYTES = 2**25


@dataclass(frozen=True)
class Evidence:
    """Quantities from which a certificate is computed.

    Attributes
    ----------
    values : ndarray of shape (p,)
        Ritz values, largest first.
    residual : ndarray of shape (q, p)
        The matrix ``B``.
    missed : float
        The bound ``mu`` on the variance in any direction outside the span of the Ritz vectors.
    rounding : float
        The bound ``e`` on the rounding error.
    negligible : float, default=inf
        Variances up to this size count as zero if rounding errors may have caused them.
    columns : ndarray of shape (<= p,), optional
        Bounds ``phi_j <= e`` on the errors of the first residuals, where they are known one by
        one.  By default ``e`` bounds each of them.
    skew : float, default=0.0
        Bound on ``|U^T U - I|`` of the Ritz vectors as stored.
    cross : float, default=0.0
        Bound on ``|U^T Q|``, where ``R = Q B``.
    crosses : ndarray of shape (p,), optional
        Bounds on ``|Q^T u_i|`` of single Ritz vectors.  By default ``cross`` bounds each of them.
    outside : bool, default=False
        Whether the errors ``columns`` are orthogonal to the Ritz vectors, as the residuals are.
    relief : ndarray of shape (q, q), optional
        ``S >= 0``: where the residuals lead, ``mu - S`` bounds the covariance instead of ``mu``.
    """

    values: np.ndarray
    residual: np.ndarray
    missed: float
    rounding: float
    negligible: float = math.inf
    columns: np.ndarray | None = None
    skew: float = 0.0
    cross: float = 0.0
    outside: bool = False
    crosses: np.ndarray | None = None
    relief: np.ndarray | None = None

    @property
    def above(self) -> float:
        """``mu + e``, an upper bound that includes rounding errors."""
        return self.missed + self.rounding

    def error_of(self, weights: np.ndarray) -> np.ndarray:
        """Bounds on ``|E diag(w)|`` of the residuals' errors ``E``, for each row ``w`` of weights.

        Known columns are added up one by one, all others together.
        """
        known = np.zeros(0) if self.columns is None else self.columns
        first, rest = weights[..., : known.size] * known, weights[..., known.size :]
        found: np.ndarray = np.hypot(
            np.linalg.norm(first, axis=-1), self.rounding * rest.max(axis=-1, initial=0.0)
        )
        return found


def lower(evidence: Evidence) -> np.ndarray:
    """Lower bounds on the eigenvalues, ``lambda_i >= theta_i - e`` (Cauchy), ``(p,)``."""
    return np.maximum(evidence.values - evidence.rounding, 0.0)


def upper(evidence: Evidence) -> np.ndarray:
    """Upper bounds on the eigenvalues, ``(p + 1,)``.

    ``lambda_i <= max(mu, i-th eigenvalue of [[Theta, B^T], [B, mu I - S]]) + 2 e``.  The last
    entry is the bound on ``lambda_{p+1}``, which is ``mu`` itself.
    """
    known: np.ndarray | None = vars(evidence).get("_upper")
    if known is not None:
        return known
    theta, b, mu = evidence.values, evidence.residual, evidence.above
    p, q = theta.size, b.shape[0]
    top = theta
    if q:
        whole = np.zeros((p + q, p + q))
        whole[:p, :p] = np.diag(theta)
        whole[p:, :p] = b
        whole[:p, p:] = b.T
        whole[p:, p:] = mu * np.eye(q) - (0.0 if evidence.relief is None else evidence.relief)
        # By Cauchy's interlacing these eigenvalues are at least theta; rounding may lose that.
        top = np.maximum(np.linalg.eigvalsh(whole)[::-1][:p], theta)
    found = np.empty(p + 1)
    found[:p], found[p] = np.maximum(top, mu) + 2 * evidence.rounding, mu
    # Asked for several times in a look.  Not a cached_property: before Python 3.12 these share a
    # lock, which a fork in another thread may leave locked.
    vars(evidence)["_upper"] = found
    return found


def topmost(evidence: Evidence) -> float:
    """Return the first of the bounds :func:`upper`, at a fraction of the price of all.

    ``x`` above ``mu`` and all ``theta`` is an upper bound if the Schur complement
    ``(x - mu) I + S - B (x - Theta)^-1 B^T`` has no negative eigenvalue.
    """
    theta, b, mu = evidence.values, evidence.residual, evidence.above
    low = max(float(theta.max(initial=0.0)), mu)
    size = 2 * spectral_norm(b) if theta.size else 0.0
    relief, eye = 0.0 if evidence.relief is None else evidence.relief, np.eye(b.shape[0])
    high = low + size
    for _ in range(24 if size > 0 else 0):
        x = (low + high) / 2
        if x <= low:
            break
        square = (x - mu) * eye + relief - (b / (x - theta)) @ b.T
        fine = np.linalg.eigvalsh(square)[0] > 1e-10 * x
        low, high = (low, x) if fine else (x, high)
    return high + 2 * evidence.rounding


def angle_bounds(evidence: Evidence, k: int, up: np.ndarray) -> np.ndarray:
    """Bounds on the angles between the first ``k`` Ritz vectors and the true ones, ``(k,)``.

    In radians: the smaller of Davis and Kahan's bound and the block bound, and pi/2 (nothing is
    proven) where neither applies.  ``up`` is the result of :func:`upper`.
    """
    known: tuple[Any, ...] = vars(evidence).get("_angles", (0, None, None))
    if known[0] == k and known[1] is up:
        return np.array(known[2])
    theta, e = evidence.values, evidence.rounding
    gap = theta[:k] - up[1 : k + 1]
    gap[1:] = np.minimum(theta[: k - 1] - e - theta[1:k], gap[1:])
    sizes = _sizes(evidence)[:k] / math.sqrt(max(0.0, 1 - evidence.skew) or math.nan)
    sine = np.divide(sizes, gap, out=np.ones(k), where=gap > sizes)
    if evidence.residual.size or evidence.columns is not None or evidence.skew:
        sine = np.minimum(sine, _block_sines(evidence, k, up))
    # else: of a full decomposition, the block bound is never smaller by more than 2 e / gap.
    found = arcsines_up(sine)
    vars(evidence)["_angles"] = (k, up, np.array(found))  # asked for twice in a look
    return found


def _sizes(evidence: Evidence) -> np.ndarray:
    """Bounds on the norms of the residuals, ``(p,)``."""
    found, known = np.full(evidence.values.size, evidence.rounding), evidence.columns
    if known is not None:
        found[: known.size] = known
    return found + np.linalg.norm(evidence.residual, axis=0) if evidence.residual.size else found


def _block_sines(evidence: Evidence, k: int, up: np.ndarray) -> np.ndarray:
    """Block bound on the sines of the angles of the first ``k`` Ritz vectors; 1 where it fails.

    The gap to the rest of the covariance, which is usually wide, enters in first order; the gaps
    to the other Ritz values, which may be narrow, enter only in second order: section 4 of
    docs/certificates.md has the names and the proof.
    """
    theta, b, e = evidence.values, evidence.residual, evidence.rounding
    i, low = np.arange(k)[:, None], theta[:k] - e
    g = np.where(np.arange(theta.size) < i, theta - up[:k, None], low[:, None] - theta)
    g[np.arange(k), np.arange(k)] = np.inf
    found = np.ones(k)
    fine = np.flatnonzero((g > 0).all(axis=1))
    if fine.size == 0 or evidence.skew > 0.5:
        return found
    g, cross = g[fine], evidence.cross / math.sqrt(1 - evidence.skew)
    delta = evidence.skew * math.sqrt(1 + evidence.skew) / (1 - evidence.skew)
    g = np.maximum(g, 1e-150)  # so that squares do not overflow
    kappa, psi = np.sqrt(_tops(b, g**-2, enough=MINOR)), evidence.error_of(1 / g)
    whole, wide = spectral_norm(b), low[fine] - evidence.above
    # Only later Ritz values can bring the rest nearer: the summands of the others are negative.
    later = np.where(np.arange(theta.size) > fine[:, None], 1 / g, 0.0)
    s = _tops(b, later, evidence.relief, MINOR * wide)
    if evidence.outside:  # the errors are a part of the residuals that is only known by its size
        kappa, psi = kappa + psi, e / g.min(axis=1)
        s = (np.sqrt(s) + evidence.error_of(np.sqrt(later))) ** 2
        whole += float(evidence.error_of(np.ones(theta.size)))
    # Along the span, the residuals meet u_i itself and, in second order, the other Ritz vectors.
    along, second = np.full(fine.size, cross), np.zeros(fine.size)
    if evidence.crosses is not None:
        along = evidence.crosses[fine] / math.sqrt(1 - evidence.skew)
        along += cross * (np.minimum(kappa * cross + psi, 1.0) + delta)
        second = cross * kappa
    ahead = wide - s - e * kappa - kappa * whole * second
    z = _sizes(evidence)[fine] * (1 + 2 * delta) + kappa * (whole * along + (1 + cross) * e)
    z += whole * delta + e * (psi + delta)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(ahead > 0, z / ahead, np.inf)
        inside = (kappa * (z + along + second * z) + psi + delta) * math.sqrt(1 + evidence.skew)
        sines = np.hypot(inside, z)
    found[fine] = np.where(np.isfinite(sines), np.minimum(sines, 1.0), 1.0)
    return found


def _tops(
    b: np.ndarray,
    weights: np.ndarray,
    relief: np.ndarray | None = None,
    enough: float | np.ndarray = 0.0,
) -> np.ndarray:
    """Bounds on the top eigenvalue of ``B diag(w) B^T - S``, or 0, for each row ``w >= 0``.

    The trace is such a bound.  It is all that is computed where it is at most ``enough``.
    """
    if not b.size:
        return np.zeros(weights.shape[0])
    # Of columns at unit length, so that no square underflows.
    peaks = np.maximum(np.abs(b).max(axis=0), 1e-300)
    sizes = peaks * np.linalg.norm(b / peaks, axis=0)
    found: np.ndarray = (weights * sizes * sizes).sum(axis=1) * (1 + 1e-9)
    large = np.flatnonzero(~(found <= enough))
    rows = max(1, TOPS_BYTES // (8 * len(b) * max(b.shape)))
    for start in range(0, large.size, rows):
        some = large[start : start + rows]
        square = b @ (weights[some, :, None] * b.T)
        if relief is None:
            found[some] = tops_of(square)
        else:
            blur = 1e-9 * np.trace(square, axis1=1, axis2=2)
            top = np.linalg.eigvalsh(square - relief)[:, -1]
            found[some] = np.maximum(top + blur, 0.0)
    return found


def tops_of(squares: np.ndarray) -> np.ndarray:
    """Bounds on the top eigenvalues of positive semidefinite matrices ``(..., q, q)``.

    ``|A^32|_F^(1/32)`` is at least the top eigenvalue and at most ``q^(1/64)`` times that: a few
    products of all matrices at once are much faster than as many eigenproblems.
    """
    trace = np.trace(squares, axis1=-2, axis2=-1)
    scale = np.where(trace > 0, trace, 1.0)
    power = squares / scale[..., None, None]
    for _ in range(5):
        power = power @ power
    grown: np.ndarray = np.linalg.norm(power, axis=(-2, -1)) ** (1 / 32) * scale * (1 + 1e-9)
    return grown


def _gap(evidence: Evidence, a: int, b: int, up: np.ndarray) -> float:
    """Gap between the Ritz values ``a..b``, counted from 0, and all other true eigenvalues.

    Rounding errors are subtracted, so that the true gap is at least as large.
    """
    theta = evidence.values
    before = math.inf if a == 0 else theta[a - 1] - theta[a]
    return float(min(before, theta[b] - up[b + 1])) - 4 * evidence.rounding


def _block(evidence: Evidence, a: int, b: int, up: np.ndarray) -> float:
    """Block bound (after Nakatsukasa) on the angle of the run ``a..b`` of Ritz vectors, from 0.

    ``sin <= |R_J|_F sqrt(1 + kappa^2) / (theta_b - mu - s)``, and pi/2 where it does not apply.
    Vectors that are not quite Ritz vectors count as an error of the covariance.
    """
    theta, residual = evidence.values, evidence.residual
    more = float(evidence.error_of(np.ones(theta.size))) if evidence.outside else 0.0
    e = evidence.rounding + more + 2 * evidence.cross * (spectral_norm(residual) + more)
    e += 2 * float(theta[0]) * evidence.skew
    outside = np.ones(theta.size, dtype=bool)
    outside[a : b + 1] = False
    g = np.concatenate([theta[:a] - up[a], theta[b] - theta[b + 1 :]]) - 4 * e
    if g.size and g.min() <= 0:
        return np.pi / 2
    blur = e / float(g.min()) if g.size else 0.0
    kappa = (spectral_norm(residual[:, outside] / g) + blur) * (1 + blur)
    s = spectral_norm(residual[:, b + 1 :] / np.sqrt(g[a:])) ** 2
    ahead = float(theta[b]) - evidence.above - s
    safe = ahead - 4 * e * (1 + kappa) ** 2
    if safe <= 0:
        return np.pi / 2
    members = b - a + 1
    size = float(np.linalg.norm(residual[:, a : b + 1])) + e * math.sqrt(members)
    nearest = min(float(g.min(initial=math.inf)), ahead)
    bound = size * math.sqrt(1 + kappa**2) / safe
    bound += 2 * e * (1 + kappa) ** 2 / nearest * math.sqrt(members)
    return arcsin_up(bound)


def clusters(evidence: Evidence, k: int, up: np.ndarray) -> list[tuple[int, int, float]]:
    """Return runs of components that are proven only as a subspace.

    Each run is ``(start, stop, angle bound)``, with indices counted from 0 and ``stop`` after the
    last component.  Components are separated where ``theta_i > up_{i+1}`` is proven.  Every run
    between two separations that has more than one member and contains one of the first ``k`` is
    returned as a whole, even if it extends past ``k``.  After the last separation nothing is
    claimed.
    """
    p, e = evidence.values.size, evidence.rounding
    cuts = [0, *(np.flatnonzero(evidence.values - e > up[1 : p + 1]) + 1).tolist()]
    found = []
    for start, stop in pairwise(cuts):
        if start < k and stop - start > 1:
            gap, ours = _gap(evidence, start, stop - 1, up), slice(start, stop)
            size = spectral_norm(evidence.residual[:, ours])
            size += float(evidence.error_of(_among(p, ours))) + 2 * evidence.skew * gap
            angle = arcsin_up(size / gap) if gap > size else np.pi / 2
            found.append((start, stop, min(angle, _block(evidence, start, stop - 1, up))))
    return found


def _among(p: int, members: slice) -> np.ndarray:
    """Return ``(p,)`` zeros with ones at the members."""
    found = np.zeros(p)
    found[members] = 1.0
    return found


def carried(evidence: Evidence, ceiling: np.ndarray) -> float:
    """Bound ``mu`` for a new basis, from upper bounds ``lambda_i <= ceiling_i`` of an earlier one.

    For any ``j`` with ``rho = ceiling_{j+1} < theta_j``, ``C - rho`` has at most ``j`` positive
    eigenvalues, as many as ``Theta_j - rho``.  Then, by Haynsworth's inertia additivity, the top
    eigenvalue of the rest is at most ``rho + |R_j (Theta_j - rho)^(-1/2)|^2``.  The smallest of
    these bounds is returned, infinity if there is none.  ``evidence.missed`` is not used.
    """
    theta, e, best = evidence.values, evidence.rounding, math.inf
    for j in range(1, min(theta.size, ceiling.size - 1) + 1):
        rho = float(ceiling[j])
        ahead = theta[:j] - e - rho
        if ahead[-1] > 0:
            weights = np.zeros(theta.size)
            weights[:j] = 1 / np.sqrt(ahead)
            size = spectral_norm(evidence.residual * weights)
            size += float(evidence.error_of(weights))
            # Vectors that are not quite orthonormal mix the columns.
            size *= 1 + evidence.skew * math.sqrt(ahead[0] / ahead[-1])
            best = min(best, rho + size**2)
    return best


def fewest(evidence: Evidence, up: np.ndarray, total: float, fraction: float) -> tuple[int, int]:
    """Return bounds on the number of components that explain ``fraction`` of the variance.

    The lower bound holds because fewer components explain at most ``sum(up_i)``.  The upper bound
    holds because that many Ritz vectors explain ``sum(theta_i)``; it is ``p + 1`` if all ``p`` Ritz
    vectors do not explain enough.  The bounds are equal once the number is proven.  They are also
    made equal if only rounding errors of the sums separate them and these are small.  If the
    total variance is zero, both are 1.

    Parameters
    ----------
    evidence : Evidence
    up : ndarray of shape (p + 1,)
        Result of :func:`upper`.
    total : float
        Total variance, with divisor ``n``.
    fraction : float
        Explained variance ratio to reach, between 0 and 1.
    """
    theta, e = evidence.values, evidence.rounding
    p, blur = theta.size, (math.sqrt(theta.size) + 2) * e
    if total == 0:
        return 1, 1
    held, most = np.cumsum(lower(evidence)), np.cumsum(up[:p])
    enough = 1 + int(np.searchsorted(held, fraction * (total + blur)))
    least = 1 + int(np.searchsorted(most, fraction * (total - blur)))
    little = min(4 * p * e, LITTLE * total)
    if 1 < enough <= p and most[enough - 2] - held[enough - 2] <= little:
        least = enough
    return min(least, enough), enough


def stream_bounds(
    squares: np.ndarray, slack: float, rounding: float, k: int
) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int, float]]]:
    """Bounds for the first ``k`` components of a sketch ``S`` of the covariance ``C``.

    The sketch satisfies ``-e I <= C - S^T S <= (Delta + e) I``.  Hence
    ``sigma_i^2 - e <= lambda_i <= sigma_i^2 + Delta + e``.  If the gap between a run of
    eigenvalues of ``S^T S`` and the others exceeds ``Delta``, the span of the run is within
    ``arcsin(Delta / gap) / 2`` of the true one.

    Parameters
    ----------
    squares : ndarray of shape (r,)
        Eigenvalues ``sigma_i^2`` of ``S^T S``, largest first; all further ones are zero.
    slack : float
        ``Delta``, the variance that the sketch may have lost in any direction.
    rounding : float
        ``e``, the bound on the rounding errors.
    k : int
        Number of components.

    Returns
    -------
    intervals : ndarray of shape (k, 2)
        Lower and upper bound on each eigenvalue of ``C``.
    angles : ndarray of shape (k,)
        Bounds on the angles in radians; pi/2 where nothing is proven.
    runs : list of (start, stop, angle bound)
        Components proven only as a subspace, as in :func:`clusters`.
    """
    # At least one zero follows, so that the last value has a gap to the eigenvalues beyond.
    values = np.concatenate([squares, np.zeros(max(1, k + 1 - squares.size))])
    low = np.maximum(values[:k] - rounding, 0.0)
    intervals = np.stack([low, values[:k] + slack + rounding], axis=1)
    loose = slack + 2 * rounding
    gaps = values[:-1] - values[1:] - 2 * rounding  # both squares have rounding errors
    cuts = [0, *(np.flatnonzero(gaps > loose) + 1)]
    angles, runs = np.full(k, np.pi / 2), []
    for start, stop in pairwise(map(int, cuts)):
        if start >= k:
            break
        gap = float(min(gaps[start - 1], gaps[stop - 1])) if start else float(gaps[stop - 1])
        angle = arcsin_up(loose / gap) / 2
        if stop - start == 1:
            angles[start] = angle
        else:
            runs.append((start, stop, angle))
    return intervals, angles, runs


def largest_within(lower: np.ndarray, total: float, k: int) -> np.ndarray:
    """Return the largest values of the first ``k`` eigenvalues that their sum allows, rounded up.

    If ``lambda_m`` to ``lambda_i`` are all at least ``lambda_i``, and the others at least their
    lower bounds, ``(i - m + 1) lambda_i`` is at most what the total leaves.  The least over all
    ``m <= i`` is reached by a spectrum with these bounds.

    Parameters
    ----------
    lower : ndarray of shape (r,)
        Lower bounds, largest first; those of all further eigenvalues are zero.
    total : float
        Upper bound on the sum of all eigenvalues.
    k : int
        Number of eigenvalues.
    """
    if total == math.inf:
        return np.full(k, np.inf)
    kept = np.concatenate([lower, np.zeros(max(0, k - lower.size))])
    before = np.concatenate([[0.0], np.cumsum(kept)])
    error = 4 * (kept.size + 4) * UNIT * (total + before[-1])
    found = np.empty(k)
    for i in range(1, k + 1):
        left = total - before[:i] - (before[-1] - before[i]) + error
        found[i - 1] = np.min(left / np.arange(i, 0, -1))
    return np.maximum(found * (1 + 4 * UNIT), 0.0)


def spectral_norm(matrix: np.ndarray) -> float:
    """Return the largest singular value, rounded up; 0 for an empty matrix.

    Of a flat or tall matrix the Gram matrix of the short side is decomposed, which is faster.
    """
    peak = float(np.abs(matrix).max(initial=0.0))
    if not 0.0 < peak < math.inf:
        return peak
    scaled = matrix / peak
    square = scaled @ scaled.T if matrix.shape[0] <= matrix.shape[1] else scaled.T @ scaled
    top = max(float(np.linalg.eigvalsh(square)[-1]), 1.0)  # an entry is 1, and rounding is not
    return peak * math.sqrt(top) * (1 + 1e-12)


def certificate_of(
    evidence: Evidence,
    k: int,
    data: Any,
    kind: str,
    failure: float,
    up: np.ndarray | None = None,
) -> Certificate:
    """Return the certificate of the first ``k`` components that follows from the evidence.

    For components beyond the ``p`` Ritz vectors, only ``0 <= lambda <= mu`` is claimed.

    Parameters
    ----------
    evidence : Evidence
    k : int
        Number of components.
    data : Centred or None
        Data in whose unit the eigenvalue bounds are given; ``None`` leaves them as they are.
    kind : {"exact", "deterministic", "probabilistic"}
        Kind of the certificate.
    failure : float
        Probability that the certificate is false.
    up : ndarray of shape (p + 1,), optional
        Upper bounds on the eigenvalues.  By default those of :func:`upper`.
    """
    up, size = upper(evidence) if up is None else up, min(k, evidence.values.size)
    runs = [Cluster(*run) for run in clusters(evidence, size, up)]
    angles, bounds = np.full(k, np.pi / 2), np.zeros((k, 2))
    angles[:size] = angle_bounds(evidence, size, up)
    bounds[:size, 0], bounds[:, 1] = lower(evidence)[:size], evidence.above
    bounds[:size, 1] = up[:size]
    low, high = bounds.T
    # A variance counts as zero if rounding errors alone explain its upper bound.  The trace bound
    # is off by (sqrt(p) + 2) e, and upper() adds a few e to it.
    few = 4.0 if kind == "exact" else 2 * math.sqrt(evidence.values.size) + 12
    zero = (high <= min(few * evidence.rounding, evidence.negligible)) & (low == 0)
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


# -- rounding errors of products with the data (docs/certificates.md, section 8) --------------


def rounding_of(data: Centred, width: int, largest: float, skew: float = 0.0) -> float:
    """Bound ``e`` on the error of ``C U`` for ``width`` orthonormal columns, in float64.

    ``4 sqrt(p) (d + n_b + log2(blocks) + 10) u T + 2 theta_1 |U^T U - I| + (10 p + 64 sqrt(p))
    u theta_1`` with ``p`` the width, ``n_b`` the rows of a block, ``u`` the unit roundoff, and
    ``T`` the mean squared norm of the rows as they are multiplied.  For sparse rows, ``T`` is taken
    before the mean is subtracted; in the first pass, it is relative to a guess of the mean.  The
    factor 4 covers the products that orthogonalise a block against the basis, the 64 the parts
    of each block that are dropped as rounding errors.  :func:`preparation_error` adds the errors
    of mean, scale and filled values.

    Parameters
    ----------
    data : Centred
    width : int
        Number of columns of ``U``.
    largest : float
        Upper bound on ``|C U|``.
    skew : float, default=0.0
        Upper bound on ``|U^T U - I|``.
    """
    n, d = data.shape
    blocks = data.source.blocks
    longest = -min(starmap(sub, blocks))  # start minus stop
    along, across = (longest, d) if data.source.axis == 0 else (n, longest)
    rows = _rows_as_multiplied(data)
    steps = along + across + d * (data.source.axis == 1) + math.log2(len(blocks)) + 10
    products = 4 * math.sqrt(width) * steps * UNIT * rows
    small = (10 * width + 64 * math.sqrt(width)) * UNIT * largest
    return products + 2 * largest * skew + small + preparation_error(data, largest)


def _rows_as_multiplied(data: Centred) -> float:
    """Mean squared norm of the rows in the products, before the offset is subtracted."""
    offset = data.frame.offset
    shifted = 0.0 if offset is None else float(data.wide(offset) @ data.wide(offset))
    return max(data.total + shifted, data.frame.first)


def preparation_error(data: Centred, largest: float) -> float:
    """Bound on the error of ``C`` from the rounding of mean, scale and filled values.

    An error ``delta`` of the mean in all rows adds ``delta delta^T`` to ``C``.  Factors of the
    columns with a relative error ``s`` turn ``C`` into ``D C D`` with ``|D - I| <= s``.  Values
    filled with a rounded mean are off by ``delta`` in some rows only, so there ``delta`` enters in
    first order.
    """
    delta, slip = data.frame.astray, data.frame.slip
    error = 2 * delta**2 + (2 + slip) * slip * largest
    if data.missing == "mean":
        error += 2 * math.sqrt(_rows_as_multiplied(data)) * delta
    return error
