"""Exact PCA in the span of given directions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from primedpca._core.arrays import describe
from primedpca._core.orthonormal import basis_of, complete, small_eigh
from primedpca._core.parameters import as_seed
from primedpca._core.process import one_blas_thread
from primedpca._operator.operator import Centred
from primedpca._operator.scaling import decomposition
from primedpca.priming import check_directions
from primedpca.protocols import Array
from primedpca.result import Decomposition, DivergenceError
from primedpca.sources.memory.frames import aligned_rows, column_labels

__all__ = ["refine", "refine_span"]


@one_blas_thread
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
        Anything that :func:`primedpca.as_source` reads, or prepared data (a Centred).
    directions : array of shape (d, q)
        Any directions.  They may be linearly dependent, tiny, huge or badly scaled, but must
        span at least ``n_components`` dimensions.
    n_components : int, optional
        Number of components.  By default the number of dimensions that the directions span.
    share : float in (0, 1], default=1.0
        Share of the rows to use, drawn at random.  Their mean is still that of all rows.
    sample_weight : array of shape (n,), optional
        Weights of the rows, as frequencies.  By default every weight is 1.
    random_state : int, RandomState, Generator or None, default=None
        Seed that draws the rows if ``share`` is below 1.
    **preparation
        ``center``, ``scale``, ``missing`` and ``engine``, as in :class:`~primedpca.PrimedPCA`.

    Returns
    -------
    Decomposition
        Components, variances and mean, computed in one pass over the data.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import refine
    >>> X = np.random.default_rng(0).normal(size=(100, 5)) * [5, 4, 3, 2, 1]
    >>> refine(X, np.eye(5)[:, :3], 2).components.shape
    (2, 5)
    """
    if not 0 < share <= 1:
        raise ValueError(f"`share`={share} must be above 0 and at most 1.")
    data = Centred.of(X, sample_weight=sample_weight, **preparation)
    data.check_rows()
    directions = aligned_rows(directions, partial(column_labels, data.source), "directions")
    basis = basis_of(check_directions(directions, data.like))
    rank = basis.shape[1]
    if rank == 0:
        raise ValueError(
            "`directions` are all zero, so they span no dimension. Pass non-zero directions."
        )
    k = rank if n_components is None else n_components
    if not 1 <= k <= rank:
        raise ValueError(
            f"`n_components`={k} must lie between 1 and {rank}, the number of dimensions that "
            f"`directions` ({describe(directions)}) span. Use a smaller value or more directions."
        )
    return refine_span(data, basis, k, as_seed(random_state) if share < 1 else 0, share)


def refine_span(
    data: Centred, basis: Array, n_components: int, seed: int, share: float = 1.0
) -> Decomposition:
    """Exact PCA inside the span of an orthonormal basis.

    Parameters
    ----------
    data : Centred
    basis : array of shape (d, q)
        Orthonormal columns.  If there are fewer than ``n_components``, random ones are added.
    n_components : int
    seed : int
        Seed of the added columns and of the rows that are drawn.
    share : float, default=1.0
        Share of the rows to use.
    """
    basis = complete(basis, data.like, n_components, (seed, 3))
    part = data if share == 1.0 else data.sample(share, seed)
    square = part.projected_covariance(basis)
    if not np.isfinite(square).all():  # the first pass has found the data finite
        raise DivergenceError(
            "The covariance inside the span of the directions is not finite. Either products with "
            "the data overflow, and smaller units help, or the data have changed since the first "
            "pass."
        )
    values, turn = small_eigh(square)
    # A sample has counted its pass on its own meter: here it is a fraction of a pass.
    data.count(0.0 if part is data else part.shape[0] / data.shape[0])
    return decomposition(data, basis @ data.like.asarray(turn[:, :n_components]), values)
