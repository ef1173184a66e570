"""Exact PCA in the span of given directions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca._core.arrays import describe
from primedpca._core.blas import one_blas_thread
from primedpca._core.orthonormal import as_components, basis_of, complete, small_eigh
from primedpca._operator.operator import Centred
from primedpca._solve.prime import as_seed
from primedpca.priming import check_directions
from primedpca.protocols import Array
from primedpca.result import Decomposition

__all__ = [
    "bounds_in_unit_of_data",
    "check_rows",
    "decomposition",
    "grown",
    "in_unit_of_data",
    "refine",
    "refine_span",
    "widened",
]


@one_blas_thread()
def refine(
    X: Any,  # noqa: N803
    directions: Array,
    n_components: int | None = None,
    *,
    share: float = 1.0,
    sample_weight: Any = None,
    random_state: Any = None,
    **preparation: Any,
) -> Decomposition:
    """Exact PCA inside ``span(directions)``: steps 2 to 4 of the paper's Algorithm 1.

    With an orthonormal basis ``V`` of the span, the eigenvectors ``W`` of ``V^T C V`` give the
    components ``(V W)^T``.

    Parameters
    ----------
    X : data of shape (n, d)
    directions : array of shape (d, q)
        Any directions: they may be dependent, tiny, huge or badly scaled, and must span at
        least ``n_components`` dimensions.
    n_components : int, optional
        By default as many as the directions span.
    share : float in (0, 1]
        Project only this share of the rows, drawn at random, about the mean of all of them.
    sample_weight : array of shape (n,), optional
    random_state : int, RandomState, Generator or None
        Draws the share.
    **preparation
        ``center``, ``scale``, ``missing`` and ``engine``, as the estimator has them.

    Returns
    -------
    Decomposition
        From one pass over the data.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import refine
    >>> X = np.random.default_rng(0).normal(size=(100, 5)) * [5, 4, 3, 2, 1]
    >>> refine(X, np.eye(5)[:, :3], 2).components.shape
    (2, 5)
    """
    if not 0 < share <= 1:
        raise ValueError(f"`share`={share} must lie in (0, 1].")
    data = Centred.of(X, sample_weight=sample_weight, **preparation)
    check_rows(data)
    basis = basis_of(check_directions(directions, data.like))
    rank = basis.shape[1]
    if rank == 0:
        raise ValueError("directions are all zero, so they span nothing; give non-zero ones.")
    k = rank if n_components is None else n_components
    if not 1 <= k <= rank:
        raise ValueError(
            f"`n_components`={k} must lie between 1 and {rank}, the number of dimensions that "
            f"the directions ({describe(directions)}) span."
        )
    return refine_span(data, basis, k, as_seed(random_state) if share < 1 else 0, share)


def check_rows(data: Centred) -> None:
    """Refuse data of a single row."""
    if data.shape[0] < 2:
        raise ValueError(
            f"Found {data.shape[0]} sample in `X` while a minimum of 2 is required: one row has "
            "no variance."
        )


def refine_span(
    data: Centred, basis: Array, n_components: int, seed: int, share: float = 1.0
) -> Decomposition:
    """Exact PCA inside the span of an orthonormal basis, which is completed if it is narrow."""
    basis = complete(basis, data.like, n_components, (seed, 3))
    part = data if share == 1.0 else data.sample(share, seed)
    values, turn = small_eigh(part.projected_covariance(basis))
    data.passes += 0.0 if part is data else part.shape[0] / data.shape[0]
    return decomposition(data, basis @ data.like.asarray(turn[:, :n_components]), values)


def in_unit_of_data(data: Centred, variances: Any) -> Any:
    """The one place where variances are rescaled from ``n`` to ``n - 1`` and to the data's unit."""
    # By one gain at a time: its square may leave the range of float64.
    with np.errstate(over="ignore", under="ignore"):
        return variances * (data.weight / (data.weight - 1)) / data.frame.gain / data.frame.gain


def widened(weight: float, steps: float) -> np.ndarray:
    """What bounds from below and above are multiplied with, as ``weight`` is a sum, rounded.

    It is off by ``steps`` times ``2^-53`` of itself at most, less 1 by more where it is near 1.
    """
    slip = steps * 2.0**-53 * weight / (weight - 1)
    largest = np.finfo(np.float64).max  # times zero it is zero, unlike infinity
    return np.array([max(0.0, 1 - slip), 1 + 2 * slip if slip < 0.5 else largest])


def bounds_in_unit_of_data(data: Centred, bounds: np.ndarray) -> np.ndarray:
    """Intervals ``(k, 2)`` in the data's unit, rounded outward."""
    with np.errstate(over="ignore", under="ignore"):
        return grown(in_unit_of_data(data, bounds) * widened(data.weight, 4), bounds)


def grown(scaled: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """What became of intervals ``(k, 2)`` in another unit, rounded outward if it is subnormal.

    There each of up to four operations is off by half of the least number there is; nothing
    that was not zero before is zero.
    """
    steps = np.array([-2, 2]) * np.finfo(np.float64).smallest_subnormal
    return np.where(bounds > 0, np.maximum(scaled + steps, 0.0), scaled)


def decomposition(data: Centred, basis: Array, variances: np.ndarray) -> Decomposition:
    """What belongs to the principal directions ``basis`` ``(d, k)`` of these ``variances``."""
    with np.errstate(over="ignore"):
        scaled = in_unit_of_data(data, variances[: basis.shape[1]])
        total = in_unit_of_data(data, np.float64(data.total))
    if not (np.isfinite(scaled).all() and (math.isnan(total) or np.isfinite(total))):
        raise ValueError(
            "the variances of `X` exceed the range of float64; divide `X` by a large number."
        )
    return Decomposition(
        components=as_components(basis),
        explained_variance=scaled,
        mean=data.mean,
        scale=data.frame.scale,
        total_variance=float(total),
        n_samples=data.weight * data.weight_unit,
    )
