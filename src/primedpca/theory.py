"""Conditions under which refining helps: the paper's theoretical analysis as computations.

Notation: ``C`` is the covariance with eigenpairs ``(lambda_i, e_i)``; ``S`` is the span of the
directions and ``P`` the projection onto it; ``(theta_i, u_i)`` are the eigenpairs of ``C``
restricted to ``S`` (Ritz pairs), so that refining returns ``u_i``.  ``docs/theory.md`` has the
full analysis and the proofs.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import null_space

from primedpca._core.arrays import to_numpy
from primedpca._core.orthonormal import basis_of, small_eigh
from primedpca._operator.operator import Centred
from primedpca.metrics import angles, check_threshold
from primedpca.priming import check_directions
from primedpca.protocols import Array
from primedpca.sources.memory.frames import aligned_rows, column_labels

__all__ = ["Counterexample", "Refining", "angle_bounds", "counterexample", "when_refining_helps"]

#: The true components come from a full decomposition: up to minutes and 1.5 GB at this size.
MAX_FEATURES = 5000


class Counterexample(NamedTuple):
    """Data ``X`` ``(6, 3)`` and ``directions`` ``(3, 2)`` that refining makes worse."""

    X: np.ndarray
    directions: np.ndarray


def counterexample(epsilon: float = 0.1) -> Counterexample:
    """Return an example in which refining makes directions worse (section 4.1 of the paper).

    The span of the directions has nearly lost the first component.  The data are
    ``+-3 (1, 0, 0), +-2 (0, 1, 0), +-(0, 0, 1)``; the directions are
    ``(epsilon, 0, sqrt(1 - epsilon^2))`` and ``(0, 1, 0)``.  In the basis of the directions the
    covariance is ``diag(9 epsilon^2 + (1 - epsilon^2), 4) / 3``; the paper prints
    ``2 (1 - epsilon^2)``.  Refining swaps the two directions if ``epsilon < sqrt(3/8)``.

    Parameters
    ----------
    epsilon : float, default=0.1
        Coefficient of the first principal component in the first direction, between 0 and 1.

    Returns
    -------
    Counterexample
        Data and directions.

    Examples
    --------
    >>> from primedpca.theory import counterexample, when_refining_helps
    >>> found = when_refining_helps(*counterexample(epsilon=0.1))
    >>> [round(float(angle), 4) for angle in found.angles_before]
    [1.4706, 0.0]
    >>> [round(float(angle), 4) for angle in found.angles_after]
    [1.5708, 1.5708]
    """
    if not 0 < epsilon < 1:
        raise ValueError(f"`epsilon`={epsilon} must be above 0 and below 1, for example 0.1.")
    half = np.diag([3.0, 2.0, 1.0])
    directions = np.array([[epsilon, 0.0], [0.0, 1.0], [np.sqrt(1 - epsilon**2), 0.0]])
    return Counterexample(np.concatenate([half, -half]), directions)


@dataclass(frozen=True)
class Refining:
    """Effect of refining on each component.  All angles are in radians, in [0, pi/2].

    Attributes
    ----------
    condition_angles : ndarray of shape (k,)
        Violation of condition i of Propositions 1 to 3: the angle between ``P e_i`` and the
        nearest direction that maximises the variance on ``S``, orthogonally to
        ``P e_1, ..., P e_(i-1)``.  The propositions require zero up to component i.
    angles_before : ndarray of shape (k,)
        Angles between direction i, before refining, and ``e_i``.
    angles_after : ndarray of shape (k,)
        Angles between ``u_i`` and ``e_i``.
    angles_to_span : ndarray of shape (k,)
        Angles between ``e_i`` and ``S``: no direction of the span is closer to ``e_i``.
    angle_bounds : ndarray of shape (k,)
        Proven bounds on ``angles_after``; pi/2 where nothing is proven.

    Notes
    -----
    If ``lambda_i`` is repeated, ``e_i`` is one of many eigenvectors.  The bound holds for any of
    them.  It is pi/2 if the span contains more than one of them, because these cannot be
    distinguished.
    """

    condition_angles: np.ndarray
    angles_before: np.ndarray
    angles_after: np.ndarray
    angles_to_span: np.ndarray
    angle_bounds: np.ndarray

    def safe(self, threshold: float) -> np.ndarray:
        """Return a mask ``(k,)`` of components proven to be within ``threshold`` after refining.

        If it is True for the first i components, the longest correct streak is at least i.

        Parameters
        ----------
        threshold : float
            Angle in radians, between 0 and pi/2.
        """
        check_threshold(threshold)
        # Strict, because a streak counts angles below its threshold.
        return self.angle_bounds < threshold


def when_refining_helps(
    X: Any,  # noqa: N803
    directions: Array,
    n_components: int | None = None,
    **preparation: Any,
) -> Refining:
    """Compare directions and their refinement with the true components and with proven bounds.

    The bound (Saad) is ``sin(u_i, e_i) <= sqrt(1 + gamma^2 / delta_i^2) sin(e_i, S)`` with
    ``gamma = ||P C (I - P)||`` and ``delta_i`` the distance from ``lambda_i`` to the Ritz values
    other than ``theta_i``.  The true components come from a full decomposition in float64.

    Parameters
    ----------
    X : data of shape (n, d)
        Anything that :func:`primedpca.as_source` reads, with ``d`` at most 5000.
    directions : array of shape (d, q)
        Directions as for :func:`primedpca.refine`; column i is compared with component i.
    n_components : int or None, default=None
        Number of components to compare; ``None`` means the rank of the directions.
    **preparation
        ``sample_weight``, ``center``, ``scale``, ``missing`` and ``engine``, as in
        :class:`primedpca.PrimedPCA`.

    Returns
    -------
    Refining
        The bounds include the rounding errors of the float64 decompositions.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca.theory import when_refining_helps
    >>> X = np.random.default_rng(0).normal(size=(100, 5)) * [9, 5, 3, 2, 1]
    >>> found = when_refining_helps(X, X.T @ X @ np.eye(5)[:, :3], n_components=2)
    >>> found.safe(np.pi / 8).tolist()
    [True, True]
    """
    # A Centred is prepared already: further options beside it raise an error.
    data = Centred.of(X, **preparation)
    if data.shape[1] > MAX_FEATURES:
        raise ValueError(f"`X` has {data.shape[1]} features, at most {MAX_FEATURES} are allowed.")
    # First in the dtype of the data, so that the span is the one that `refine` uses.
    directions = aligned_rows(directions, partial(column_labels, data.source), "directions")
    given = check_directions(directions, data.like)
    basis = basis_of(to_numpy(basis_of(given)).astype(np.float64))
    rank = basis.shape[1]
    k = rank if n_components is None else n_components
    if rank == 0:
        raise ValueError("directions are all zero. Pass directions that are not zero.")
    if not 1 <= k <= rank:
        raise ValueError(f"`n_components`={k} must lie between 1 and {rank}, the rank found.")
    square = to_numpy(data.covariance())
    covariance = (square + square.T) / 2
    values, vectors = small_eigh(covariance)
    if values[0] <= 0:
        raise ValueError("`X` has no variance. Pass at least two different rows.")
    truth, image, before = vectors[:, :k], covariance @ basis, to_numpy(given)[:, :k]
    inside = basis.T @ image
    turn = small_eigh(inside)[1][:, :k]
    there = before.any(axis=0)  # a column of zeros has no direction, and an angle of pi/2
    angles_before = np.full(k, np.pi / 2)
    if there.any():
        angles_before[there] = angles(before[:, there].T, truth[:, there].T)
    return Refining(
        condition_angles=_missed(inside, basis.T @ truth, _rounding(len(values))),
        angles_before=angles_before,
        angles_after=angles((basis @ turn).T, truth.T),
        angles_to_span=np.arctan2(*_parts(truth, basis)),
        angle_bounds=angle_bounds(values[:k], truth, basis, image),
    )


def angle_bounds(
    values: np.ndarray, truth: np.ndarray, basis: np.ndarray, image: np.ndarray
) -> np.ndarray:
    """Return Saad's bound on the angles between refined and true components: condition (b).

    Parameters
    ----------
    values : ndarray of shape (k,)
        Leading eigenvalues of the covariance ``C``.
    truth : ndarray of shape (d, k)
        Eigenvectors of these eigenvalues.
    basis : ndarray of shape (d, p)
        Orthonormal basis of the span in which components are refined.
    image : ndarray of shape (d, p)
        ``C basis``.

    Returns
    -------
    ndarray of shape (k,)
        Bounds in radians; pi/2 where nothing is proven.
    """
    inside = basis.T @ image
    sines, cosines = _parts(truth, basis)
    gamma, rounding = np.linalg.norm(image - basis @ inside, ord=2), _rounding(len(basis))
    # delta_i: the distance of an eigenvalue to the nearest Ritz value but its own.
    distances = np.abs(values[:, None] - small_eigh(inside)[0])
    np.fill_diagonal(distances, np.inf)
    gaps, slack = distances.min(axis=1), rounding * values[0]
    # The part of u_i across P e_i; infinite without a gap.  Rounding is added above and
    # subtracted below, so that the quotient stays an upper bound.
    tilt = np.full_like(gaps, np.inf)
    np.divide(gamma * sines + slack, gaps - slack, out=tilt, where=gaps > slack)
    # From the sine and the cosine, because the arc sine loses half of the digits near pi/2.
    cosine = np.sqrt(np.maximum(cosines**2 - tilt**2 - rounding, 0.0))
    bounds: np.ndarray = np.arctan2(np.hypot(sines, tilt) + rounding, cosine)
    return bounds


def _rounding(order: int) -> float:
    """Backward error of a stable eigensolver, relative to the largest eigenvalue."""
    return 10 * order * float(np.finfo(np.float64).eps)


def _parts(vectors: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of each column's parts outside and inside the span of ``basis``."""
    inside = basis.T @ vectors
    outside = vectors - basis @ inside
    return np.linalg.norm(outside, axis=0), np.linalg.norm(inside, axis=0)


def _missed(inside: np.ndarray, projected: np.ndarray, rounding: float) -> np.ndarray:
    """Return ``condition_angles``, computed in coordinates of the span.

    Parameters
    ----------
    inside : ndarray of shape (p, p)
        Covariance restricted to the span.
    projected : ndarray of shape (p, k)
        ``P e_i``.  A projection that is zero up to rounding has no direction and gives pi/2.
    rounding : float
        Relative rounding error of the decompositions.
    """
    missed = np.full(projected.shape[1], np.pi / 2)
    slack = rounding * np.linalg.norm(inside, ord=2)
    rest = np.eye(len(inside))
    for i, vector in enumerate(projected.T):
        values, turn = small_eigh(rest.T @ inside @ rest)
        if np.linalg.norm(vector) > rounding:
            # All eigenvectors of a repeated maximum qualify, so the angle is to their span.
            best = rest @ turn[:, values >= values[0] - slack]
            missed[i] = np.arctan2(*_parts(vector, best))
        left = vector @ rest
        if np.linalg.norm(left) > rounding:
            rest = rest @ null_space(left[None])
    return missed
