"""Full PCA, by the covariance matrix or by the Gram matrix, whichever is smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from primedpca._core.arrays import is_numpy_array, namespace, to_numpy
from primedpca._core.orthonormal import complete, orthonormalise
from primedpca.priming.base import BasePriming
from primedpca.protocols import Array, Like, PrimingTraits

__all__ = ["Exact", "right_vectors", "spectrum"]


class ExactState(NamedTuple):
    """Once done: the leading eigenvalues ``(p,)`` and eigenvectors of the smaller matrix."""

    n_directions: int
    variances: np.ndarray | None
    vectors: Array | None


@dataclass(frozen=True)
class Exact(BasePriming):
    r"""The paper's "full PCA".

    With :math:`d \le n`, eigenvectors of :math:`C = M^T M / n`.  Otherwise eigenvectors
    :math:`u_i` of the Gram matrix :math:`M M^T / n`, with the same eigenvalues, and
    :math:`M^T u_i / \|M^T u_i\|`.  The matrix is summed and decomposed in float64.
    """

    visits: ClassVar[Literal["whole"]] = "whole"
    traits: ClassVar[PrimingTraits] = PrimingTraits(certifier="exact", own_end=True, replayed=True)

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> ExactState:
        """Nothing yet; a warm start has nothing to add."""
        return ExactState(n_directions, None, None)

    def step(self, state: ExactState, data: Any) -> ExactState:
        """Form the smaller matrix in one pass and decompose it."""
        return ExactState(state.n_directions, *spectrum(data, state.n_directions))

    def directions(self, state: ExactState, data: Any) -> Array:
        """The principal directions; one pass more if they come from the Gram matrix."""
        return self.refined(state, data)[0]

    def refined(self, state: ExactState, data: Any) -> tuple[Array, np.ndarray]:
        """The principal directions ``(d, p)`` and their variances."""
        assert state.variances is not None
        assert state.vectors is not None
        p = state.n_directions
        values, vectors = state.variances[:p], state.vectors[:, :p]
        if data.shape[1] <= data.shape[0]:
            return data.narrow(vectors), values
        return right_vectors(data.adjoint(data.narrow(vectors)), values, data), values

    def finished(self, state: ExactState) -> bool:
        """Whether the one step is done."""
        return state.variances is not None


def spectrum(data: Any, count: int) -> tuple[np.ndarray, Array]:
    """The ``count`` largest eigenvalues, and eigenvectors of the smaller of the two matrices."""
    n, d = data.shape
    make = data.covariance if d <= n else data.gram
    count = min(count, n, d)
    values, vectors = _eigh(make(), count)
    if values.size < count:  # LAPACK may leave out some of a tie where only a few are wanted
        values, vectors = _eigh(make(), count, few=False)
    return values, vectors


def right_vectors(images: Array, values: np.ndarray, data: Any) -> Array:
    """Orthonormal vectors from ``M^T U``; where the variance is zero, any that fit."""
    xp, p = namespace(images), images.shape[1]
    sizes = to_numpy(xp.linalg.vector_norm(images, axis=0)).astype(np.float64)
    eps = float(xp.finfo(images.dtype).eps)
    rank = int(np.sum((values > eps * values[0]) & (sizes > 0)))
    images = images[:, :rank] if rank < p else images
    images /= data.like.asarray(sizes[:rank])
    return complete(orthonormalise(images)[0], data.like, p, 0)


def _eigh(matrix: Array, p: int, few: bool = True) -> tuple[np.ndarray, Array]:
    """The ``p`` largest eigenvalues, none below zero, and their eigenvectors."""
    xp = namespace(matrix)
    order = matrix.shape[0]
    if few and is_numpy_array(matrix) and 4 * p < order:
        from scipy.linalg import eigh

        # A few vectors of a large matrix: most of the work of eigh is in the other ones.
        values, vectors = eigh(
            matrix, subset_by_index=(order - p, order - 1), driver="evr", overwrite_a=True
        )
        vectors = np.ascontiguousarray(vectors[:, ::-1])
    else:
        values, vectors = xp.linalg.eigh(matrix)
        vectors = xp.flip(vectors, axis=1)[:, :p]
    return np.maximum(to_numpy(values)[::-1][:p].astype(np.float64), 0.0), vectors
