"""Full PCA, by the covariance matrix or by the Gram matrix, whichever is smaller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from primedpca._core.arrays import is_numpy_array, is_torch_array, namespace, to_numpy
from primedpca._core.few_eigenpairs import LEAST, few_eigenpairs
from primedpca._core.orthonormal import complete, orthonormalise
from primedpca.priming.base import BasePriming
from primedpca.protocols import Array, Like, Operator, PrimingTraits

__all__ = ["Exact", "right_vectors", "spectrum"]


class ExactState(NamedTuple):
    """Number of directions, and after the step the leading eigenpairs of the smaller matrix."""

    n_directions: int
    variances: np.ndarray | None
    vectors: Array | None


@dataclass(frozen=True)
class Exact(BasePriming):
    r"""Full PCA by an eigendecomposition.

    With :math:`d \le n` the directions are eigenvectors of :math:`C = M^T M / n`.  Otherwise they
    are :math:`M^T u_i / \|M^T u_i\|` with the eigenvectors :math:`u_i` of the Gram matrix
    :math:`M M^T / n`, which has the same eigenvalues.  The matrix is summed and decomposed in
    float64.
    """

    visits: ClassVar[Literal["whole"]] = "whole"
    traits: ClassVar[PrimingTraits] = PrimingTraits(certifier="exact", own_end=True, replayed=True)

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> ExactState:
        """Return an empty state; a warm start is ignored."""
        return ExactState(n_directions, None, None)

    def step(self, state: ExactState, data: Operator) -> ExactState:
        """Form the smaller matrix in one pass and decompose it."""
        return ExactState(state.n_directions, *spectrum(data, state.n_directions))

    def directions(self, state: ExactState, data: Operator) -> Array:
        """Return the principal directions; takes one more pass with the Gram matrix."""
        return self.refined(state, data)[0]

    def refined(self, state: ExactState, data: Operator) -> tuple[Array, np.ndarray]:
        """Return the principal directions ``(d, p)`` and their variances."""
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


def spectrum(data: Operator, count: int) -> tuple[np.ndarray, Array]:
    """Return the ``count`` leading eigenvalues and eigenvectors of the smaller matrix.

    That is the covariance matrix if ``d <= n``, else the Gram matrix.
    """
    n, d = data.shape
    make = data.covariance if d <= n else data.gram
    return leading(make, min(count, n, d))


def leading(make: Callable[[], Array], count: int) -> tuple[np.ndarray, Array]:
    """Return the ``count`` largest eigenvalues of the matrix that ``make`` returns, and vectors."""
    values, vectors = _eigh(make(), count)
    if values.size < count:  # LAPACK may drop some of a tie when asked for a subset
        values, vectors = _eigh(make(), count, few=False)  # formed again: eigh overwrote it
    return values, vectors


def right_vectors(images: Array, values: np.ndarray, data: Operator) -> Array:
    """Orthonormalise ``M^T U``; random orthonormal columns replace those of zero variance."""
    xp, p = namespace(images), images.shape[1]
    sizes = to_numpy(xp.linalg.vector_norm(images, axis=0)).astype(np.float64)
    eps = float(xp.finfo(images.dtype).eps)
    # Below this ratio the image of a vector is rounding and has no direction of its own.
    rank = int(np.sum((values > eps * values[0]) & (sizes > 0)))
    images = images[:, :rank] if rank < p else images
    images /= data.like.asarray(sizes[:rank])
    return complete(orthonormalise(images)[0], data.like, p, 0)


def _eigh(matrix: Array, p: int, few: bool = True) -> tuple[np.ndarray, Array]:
    """Return the ``p`` largest eigenvalues, negative ones as 0, and their eigenvectors."""
    xp = namespace(matrix)
    order = matrix.shape[0]
    if few and is_torch_array(matrix) and matrix.is_cuda and 6 * p < order and order >= LEAST:
        found = few_eigenpairs(matrix, p)
        if found is not None:
            return found
    if few and is_numpy_array(matrix) and 6 * p < order:
        from scipy.linalg import eigh

        # Most of the work of a full eigh goes into the eigenvectors that are not wanted.
        values, vectors = eigh(
            matrix, subset_by_index=(order - p, order - 1), driver="evr", overwrite_a=True
        )
        vectors = np.ascontiguousarray(vectors[:, ::-1])
    else:
        values, vectors = xp.linalg.eigh(matrix)
        # PyTorch has no negative strides, and for NumPy a view is faster.
        flipped = vectors[:, ::-1] if is_numpy_array(vectors) else xp.flip(vectors, axis=1)
        vectors = flipped[:, :p]
    # The matrix is positive semidefinite: negative eigenvalues are rounding.
    return np.maximum(to_numpy(values)[::-1][:p].astype(np.float64), 0.0), vectors
