"""When refining helps: the paper's theoretical analysis, made checkable.

Notation: ``C`` the covariance with eigenpairs ``(lambda_i, e_i)``; ``S`` the span of the
directions, ``P`` the projection onto it; ``(theta_i, u_i)`` the eigenpairs of ``C`` restricted
to ``S`` (Ritz pairs), so that ``u_i`` is what refining returns.  ``docs/theory.md`` tells the
whole story, with the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import null_space

from primedpca._core.arrays import describe, to_numpy
from primedpca._core.orthonormal import basis_of, small_eigh
from primedpca._operator.operator import Centred
from primedpca.metrics import angles
from primedpca.priming import check_directions
from primedpca.protocols import Array

__all__ = ["Counterexample", "Refining", "angle_bounds", "counterexample", "when_refining_helps"]

#: The truth is a full decomposition, which takes seconds to minutes and 1.5 GB at this size.
MAX_FEATURES = 5000


class Counterexample(NamedTuple):
    """Data ``X`` ``(6, 3)`` and ``directions`` ``(3, 2)`` that refining makes worse."""

    X: np.ndarray
    directions: np.ndarray


def counterexample(epsilon: float = 0.1) -> Counterexample:
    """Section 4.1 of the paper: a span that has nearly lost the first component.

    The data are ``+-3 (1, 0, 0), +-2 (0, 1, 0), +-(0, 0, 1)``, the directions
    ``(epsilon, 0, sqrt(1 - epsilon^2))`` and ``(0, 1, 0)``.  In the basis of the directions the
    covariance is ``diag(9 epsilon^2 + (1 - epsilon^2), 4) / 3``; the paper prints
    ``2 (1 - epsilon^2)``.  Refining swaps the two directions where ``epsilon < sqrt(3/8)``.

    Parameters
    ----------
    epsilon : float in (0, 1)
        The share of the first principal component in the first direction.

    Returns
    -------
    Counterexample

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
        raise ValueError(f"`epsilon`={epsilon} must lie in (0, 1); the paper thinks of 0.1.")
    half = np.diag([3.0, 2.0, 1.0])
    directions = np.array([[epsilon, 0.0], [0.0, 1.0], [np.sqrt(1 - epsilon**2), 0.0]])
    return Counterexample(np.concatenate([half, -half]), directions)


@dataclass(frozen=True)
class Refining:
    """What refining does to each component.  All angles are radians in [0, pi/2].

    Attributes
    ----------
    condition_angles : ndarray of shape (k,)
        By how much condition i of Propositions 1 to 3 is missed: the angle between ``P e_i``
        and the nearest direction that maximises the variance on ``S``, orthogonally to
        ``P e_1, ..., P e_(i-1)``.  The propositions ask for zero up to component i.
    angles_before : ndarray of shape (k,)
        Between direction i, as it was given, and ``e_i``.
    angles_after : ndarray of shape (k,)
        Between ``u_i`` and ``e_i``.
    angles_to_span : ndarray of shape (k,)
        Between ``e_i`` and ``S``: what the best direction of the span would reach.
    angle_bounds : ndarray of shape (k,)
        Proven bounds on ``angles_after``; pi/2 where nothing is proven.

    Notes
    -----
    Where ``lambda_i`` is repeated, ``e_i`` is one of many eigenvectors.  The bound holds for any
    of them, and is pi/2 where the span holds more than one, as nothing tells these apart.
    """

    condition_angles: np.ndarray
    angles_before: np.ndarray
    angles_after: np.ndarray
    angles_to_span: np.ndarray
    angle_bounds: np.ndarray

    def safe(self, threshold: float) -> np.ndarray:
        """Which components are within ``threshold`` after refining, by the bound alone: ``(k,)``.

        Where all of the first i are, the longest correct streak is at least i.
        """
        if not 0 < threshold < np.pi / 2:
            raise ValueError(f"`threshold`={threshold} must lie in (0, pi/2), in radians.")
        # Strictly, because a streak counts angles below its threshold.
        return self.angle_bounds < threshold


def when_refining_helps(
    X: Any,  # noqa: N803
    directions: Array,
    n_components: int | None = None,
    **preparation: Any,
) -> Refining:
    """Compare directions, their refinement and the truth, with what can be proven beforehand.

    The bound (Saad) is ``sin(u_i, e_i) <= sqrt(1 + gamma^2 / delta_i^2) sin(e_i, S)`` with
    ``gamma = ||P C (I - P)||`` and ``delta_i`` the distance from ``lambda_i`` to the Ritz values
    other than ``theta_i``.  The truth comes from a full decomposition in float64.

    Parameters
    ----------
    X : data of shape (n, d)
        Anything that :func:`primedpca.as_source` reads, with ``d`` at most 5000.
    directions : array of shape (d, q)
        As :func:`primedpca.refine` takes them; column i stands for component i.
    n_components : int, optional
        By default as many as the directions span.
    **preparation
        ``sample_weight``, ``center``, ``scale``, ``missing`` and ``engine``, as the estimator
        has them.

    Returns
    -------
    Refining
        The bounds allow for the rounding of the float64 decompositions.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca.theory import when_refining_helps
    >>> X = np.random.default_rng(0).normal(size=(100, 5)) * [9, 5, 3, 2, 1]
    >>> found = when_refining_helps(X, X.T @ X @ np.eye(5)[:, :3], n_components=2)
    >>> found.safe(np.pi / 8).tolist()
    [True, True]
    """
    # A Centred is prepared already: given more options, it is refused as a source.
    data = Centred.of(X, **preparation)
    _check_features(data)
    # First in the type of the data, so that the span is the one that `refine` works in.
    given = check_directions(directions, data.like)
    basis = basis_of(to_numpy(basis_of(given)).astype(np.float64))
    k = _checked_count(n_components, basis, directions)
    square = to_numpy(data.covariance())
    return _compare((square + square.T) / 2, to_numpy(given)[:, :k], basis)


def _compare(covariance: np.ndarray, directions: np.ndarray, basis: np.ndarray) -> Refining:
    """Directions ``(d, k)``, refined in the span of ``basis`` ``(d, p)``, against the truth."""
    k = directions.shape[1]
    values, vectors = small_eigh(covariance)
    if values[0] <= 0:
        raise ValueError("`X` has no variance; give at least two rows that differ.")
    truth, image = vectors[:, :k], covariance @ basis
    inside = basis.T @ image
    _, turn = small_eigh(inside)
    sines, cosines = _parts(truth, basis)
    return Refining(
        condition_angles=_missed(inside, basis.T @ truth, _rounding(len(values))),
        angles_before=_angles_before(directions, truth),
        angles_after=_angles(basis @ turn[:, :k], truth),
        angles_to_span=np.arctan2(sines, cosines),
        angle_bounds=angle_bounds(values[:k], truth, basis, image),
    )


def angle_bounds(
    values: np.ndarray, truth: np.ndarray, basis: np.ndarray, image: np.ndarray
) -> np.ndarray:
    """Condition (b): how far refining may be from the truth, by Saad's bound.

    Parameters
    ----------
    values : ndarray of shape (k,)
        The leading eigenvalues of the covariance ``C``.
    truth : ndarray of shape (d, k)
        Their eigenvectors.
    basis : ndarray of shape (d, p)
        Orthonormal, of the span that is refined in.
    image : ndarray of shape (d, p)
        ``C basis``.

    Returns
    -------
    ndarray of shape (k,)
        Radians; pi/2 where nothing is promised.
    """
    inside = basis.T @ image
    sines, cosines = _parts(truth, basis)
    gamma = np.linalg.norm(image - basis @ inside, ord=2)
    rounding = _rounding(len(basis))
    gaps = _distances_to_others(values, small_eigh(inside)[0])
    tilt = _tilt(gamma * sines, gaps, rounding * values[0])
    return _bounds(sines, cosines, tilt, rounding)


def _rounding(order: int) -> float:
    """A stable eigensolver is exact for a matrix this near, relative to the largest eigenvalue."""
    return 10 * order * float(np.finfo(np.float64).eps)


def _check_features(data: Centred) -> None:
    if data.shape[1] > MAX_FEATURES:
        raise ValueError(
            f"`X` has {data.shape[1]} features, but the truth is found by a full decomposition, "
            f"for at most {MAX_FEATURES}; select or project columns first."
        )


def _checked_count(n_components: int | None, basis: np.ndarray, directions: Array) -> int:
    rank = basis.shape[1]
    k = rank if n_components is None else n_components
    if rank == 0:
        raise ValueError("directions are all zero, so they span nothing; give non-zero ones.")
    if not 1 <= k <= rank:
        raise ValueError(
            f"`n_components`={k} must lie between 1 and {rank}, the number of dimensions that "
            f"the directions ({describe(directions)}) span."
        )
    return k


def _parts(vectors: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How much of each column lies outside the span of ``basis``, and how much inside."""
    inside = basis.T @ vectors
    outside = vectors - basis @ inside
    return np.linalg.norm(outside, axis=0), np.linalg.norm(inside, axis=0)


def _distances_to_others(values: np.ndarray, ritz_values: np.ndarray) -> np.ndarray:
    """``delta_i``: from ``values[i]`` to the nearest Ritz value other than the i-th."""
    distances = np.abs(values[:, None] - ritz_values)
    np.fill_diagonal(distances, np.inf)
    nearest: np.ndarray = distances.min(axis=1)
    return nearest


def _tilt(pull: np.ndarray, gaps: np.ndarray, rounding: float) -> np.ndarray:
    """How far ``u_i`` may turn from ``P e_i``: ``pull / gaps``, infinite where gaps vanish."""
    tilt = np.full_like(gaps, np.inf)
    np.divide(pull + rounding, gaps - rounding, out=tilt, where=gaps > rounding)
    return tilt


def _bounds(
    sines: np.ndarray, cosines: np.ndarray, tilt: np.ndarray, rounding: float
) -> np.ndarray:
    """``arcsin(sqrt(sines^2 + tilt^2))``; pi/2 where that exceeds 1."""
    # From sine and cosine both: the arc sine alone loses half of the digits near pi/2.
    cosine = np.sqrt(np.maximum(cosines**2 - tilt**2 - rounding, 0.0))
    bounds: np.ndarray = np.arctan2(np.hypot(sines, tilt) + rounding, cosine)
    return bounds


def _missed(inside: np.ndarray, projected: np.ndarray, rounding: float) -> np.ndarray:
    """``condition_angles``, in coordinates of the span.

    Parameters
    ----------
    inside : ndarray of shape (p, p)
        The covariance on the span.
    projected : ndarray of shape (p, k)
        ``P e_i``.  A projection that is zero up to rounding has no direction: pi/2.
    """
    missed = np.full(projected.shape[1], np.pi / 2)
    slack = rounding * np.linalg.norm(inside, ord=2)
    rest = np.eye(len(inside))
    for i, vector in enumerate(projected.T):
        values, turn = small_eigh(rest.T @ inside @ rest)
        if np.linalg.norm(vector) > rounding:
            best = rest @ turn[:, values >= values[0] - slack]
            missed[i] = np.arctan2(*_parts(vector, best))
        left = vector @ rest
        if np.linalg.norm(left) > rounding:
            rest = rest @ null_space(left[None])
    return missed


def _angles_before(directions: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """``angles_before``; a column of zeros has no direction: pi/2."""
    found = np.full(truth.shape[1], np.pi / 2)
    there = directions.any(axis=0)
    if there.any():
        found[there] = _angles(directions[:, there], truth[:, there])
    return found


def _angles(columns: np.ndarray, truth: np.ndarray) -> np.ndarray:
    # The measured angle of orthogonal vectors may exceed pi/2 by a rounding.
    measured: np.ndarray = np.minimum(angles(columns.T, truth.T), np.pi / 2)
    return measured
