"""From Ritz values and residuals to bounds: the inequalities of docs/certificates.md.

Let ``U`` hold all Ritz vectors at hand, ``theta_1 >= ... >= theta_p`` their values, and
``R = C U - U diag(theta)``.  Everything below needs only ``theta``, a small matrix ``B`` with
``B^T B = R^T R``, a number ``mu`` at least as large as the top eigenvalue of what is left,
``(I - U U^T) C (I - U U^T)``, and ``e``, a bound on the error of the computed ``C U``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import arcsin_up, arctan_up
from primedpca._operator.scaling import bounds_in_unit_of_data
from primedpca.result import Certificate, Cluster

__all__ = [
    "Evidence",
    "angle_bounds",
    "carried",
    "certificate_of",
    "clusters",
    "fewest",
    "lower",
    "spectral_norm",
    "stream_bounds",
    "upper",
]

#: Shares of the variance that differ by less are the same share.
LITTLE = 1e-7


@dataclass(frozen=True)
class Evidence:
    """What a certificate is drawn from.

    Attributes
    ----------
    values : ndarray of shape (p,)
        Ritz values, largest first.
    residual : ndarray of shape (q, p)
        The matrix ``B``.
    missed : float
        The bound ``mu`` on what could have been missed.
    rounding : float
        The bound ``e``.
    negligible : float
        Variances up to this size count as none where they cannot be told from zero.
    """

    values: np.ndarray
    residual: np.ndarray
    missed: float
    rounding: float
    negligible: float = math.inf

    @property
    def above(self) -> float:
        """``mu`` with its rounding."""
        return self.missed + self.rounding


def lower(evidence: Evidence) -> np.ndarray:
    """``lambda_i >= theta_i - e`` (Cauchy), ``(p,)``."""
    return np.maximum(evidence.values - evidence.rounding, 0.0)


def upper(evidence: Evidence) -> np.ndarray:
    """``lambda_i <= max(mu, i-th eigenvalue of [[Theta, B^T], [B, mu I]]) + 2 e``, ``(p + 1,)``.

    The last entry is the bound on ``lambda_{p+1}``, which is ``mu`` itself.
    """
    theta, b, mu = evidence.values, evidence.residual, evidence.above
    p, q = theta.size, b.shape[0]
    if q == 0:
        return np.append(np.maximum(theta, mu) + 2 * evidence.rounding, mu)
    whole = np.zeros((p + q, p + q))
    whole[:p, :p] = np.diag(theta)
    whole[p:, :p] = b
    whole[:p, p:] = b.T
    whole[p:, p:] = mu * np.eye(q)
    top = np.maximum(np.linalg.eigvalsh(whole)[::-1][:p], theta)
    return np.append(np.maximum(top, mu) + 2 * evidence.rounding, mu)


def angle_bounds(evidence: Evidence, k: int, up: np.ndarray) -> np.ndarray:
    """The angle between each of the first ``k`` Ritz vectors and the truth, ``(k,)``.

    The smaller of Davis and Kahan's bound and the block bound; pi/2 where neither holds.
    """
    found = np.full(k, np.pi / 2)
    sizes = np.linalg.norm(evidence.residual, axis=0) + evidence.rounding
    for i in range(k):
        gap = _gap(evidence, i, i, up)
        if gap > sizes[i]:
            found[i] = arcsin_up(sizes[i] / gap)
        found[i] = min(found[i], _block(evidence, i, i, up))
    return found


def _gap(evidence: Evidence, a: int, b: int, up: np.ndarray) -> float:
    """From the run ``a..b`` of Ritz values to the other true eigenvalues, less rounding."""
    theta = evidence.values
    before = math.inf if a == 0 else theta[a - 1] - theta[a]
    return float(min(before, theta[b] - up[b + 1])) - 4 * evidence.rounding


def _block(evidence: Evidence, a: int, b: int, up: np.ndarray) -> float:
    """The block bound (after Nakatsukasa) for the run ``a..b``, an angle; pi/2 if it does not hold.

    ``tan <= |R_J|_F sqrt(1 + kappa^2) / (theta_b - mu - s)``: the wide gap to what was missed
    acts in first order, the neighbours only in second.
    """
    theta, residual, e = evidence.values, evidence.residual, evidence.rounding
    outside = np.ones(theta.size, dtype=bool)
    outside[a : b + 1] = False
    g = np.concatenate([theta[:a] - up[a], theta[b] - theta[b + 1 :]]) - 4 * e
    if g.size and g.min() <= 0:
        return np.pi / 2
    others = residual[:, outside]
    blur = e / float(g.min()) if g.size else 0.0
    kappa = (spectral_norm(others / g) + blur) * (1 + blur)
    if a == b:
        difference = theta[a] - theta[outside]
        s = _top((others / difference) @ others.T)
    else:
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
    if a == b:
        return arctan_up(bound)
    return arcsin_up(bound)


def clusters(evidence: Evidence, k: int, up: np.ndarray) -> list[tuple[int, int, float]]:
    """Runs that the certificate does not tell apart, as ``(start, stop, angle bound)``.

    Cuts are where ``theta_i > up_{i+1}`` for sure.  Every run between two cuts that holds one
    of the first ``k`` and is longer than one is given whole, past ``k`` if need be; after the
    last cut nothing is claimed.
    """
    p, e = evidence.values.size, evidence.rounding
    cuts = [0, *(i + 1 for i in range(p) if evidence.values[i] - e > up[i + 1])]
    found = []
    for start, stop in pairwise(cuts):
        if start < k and stop - start > 1:
            gap = _gap(evidence, start, stop - 1, up)
            size = spectral_norm(evidence.residual[:, start:stop]) + e
            angle = arcsin_up(size / gap) if gap > size else np.pi / 2
            found.append((start, stop, min(angle, _block(evidence, start, stop - 1, up))))
    return found


def carried(evidence: Evidence, ceiling: np.ndarray) -> float:
    """What a basis can have missed, if ``lambda_i <= ceiling_i`` is known from another one.

    For any ``j`` with ``rho = ceiling_{j+1} < theta_j``, ``C - rho`` has no more positive
    eigenvalues than the ``j`` of ``Theta_j - rho``, so that (Haynsworth) what is left is at most
    ``rho + |R_j (Theta_j - rho)^(-1/2)|^2``.  ``evidence.missed`` is not looked at.
    """
    theta, e, best = evidence.values, evidence.rounding, math.inf
    for j in range(1, min(theta.size, ceiling.size - 1) + 1):
        rho = float(ceiling[j])
        ahead = theta[:j] - e - rho
        if ahead[-1] > 0:
            size = spectral_norm(evidence.residual[:, :j] / np.sqrt(ahead)) + e / math.sqrt(
                ahead[-1]
            )
            best = min(best, rho + size**2)
    return best


def fewest(evidence: Evidence, up: np.ndarray, total: float, fraction: float) -> tuple[int, int]:
    """How many components hold ``fraction`` of the ``total`` variance: at least, at most.

    No fewer than the first number can, because ``sum(lambda_i) <= sum(up_i)``; the Ritz vectors
    at hand do with the second, because they hold ``sum(theta_i)``.  It is one more than there
    are where they do not hold so much yet.  Both are equal once the number is known, or once
    they differ only by what rounding does to the sums, if that is little.  Of no variance at all,
    one component holds any share.
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
    """What a sketch ``S`` with ``-e I <= C - S^T S <= (Delta + e) I`` proves of the first ``k``.

    ``sigma_i^2 - e <= lambda_i <= sigma_i^2 + Delta + e``, and where a run of eigenvalues of
    ``S^T S`` is farther than ``Delta`` from the others, its span is within
    ``arcsin(Delta / gap) / 2`` of the true one.

    Parameters
    ----------
    squares : ndarray of shape (r,)
        The eigenvalues of ``S^T S``, largest first; those that follow are zero.
    slack, rounding : float
        ``Delta`` and ``e``.
    k : int

    Returns
    -------
    intervals : ndarray of shape (k, 2)
        Between which numbers each eigenvalue of ``C`` lies.
    angles : ndarray of shape (k,)
    runs : list of (start, stop, angle bound)
        As :func:`clusters` gives them.
    """
    values = np.concatenate([squares, np.zeros(max(1, k + 1 - squares.size))])
    low = np.maximum(values[:k] - rounding, 0.0)
    intervals = np.stack([low, values[:k] + slack + rounding], axis=1)
    loose = slack + 2 * rounding
    gaps = values[:-1] - values[1:] - 2 * rounding  # the squares are computed, too
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


def spectral_norm(matrix: np.ndarray) -> float:
    """Return the largest singular value; 0 for an empty matrix, which NumPy 2.0 refuses."""
    return float(np.linalg.norm(matrix, ord=2)) if matrix.size else 0.0


def _top(matrix: Any) -> float:
    return max(0.0, float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[-1])) if matrix.size else 0.0


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
