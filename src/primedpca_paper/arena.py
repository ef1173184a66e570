"""A data set on a device, its true components, and measurements that are not timed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy.linalg import eigh

from primedpca._core.arrays import is_sparse, like_block, to_numpy
from primedpca._core.orthonormal import basis_of
from primedpca._operator.operator import Centred
from primedpca._solve.refine import refine_span
from primedpca.protocols import Array
from primedpca.result import Decomposition
from primedpca.theory import angle_bounds
from primedpca_paper.datasets import Dataset
from primedpca_paper.lockstep import wait_for

__all__ = ["Arena", "true_components"]


class Arena:
    """A data set prepared for runs of primings.

    Parameters
    ----------
    dataset : Dataset
        The data.
    device : str
        ``"cpu"`` or a CUDA device.
    n_components : int
        Number of components k.

    Attributes
    ----------
    rows : array of shape (n + 1, d)
        Centred rows in float32 on the device, and a row of zeros.
    like : Like
        Array library, device and type of the rows.
    values : ndarray of shape (k,)
        True variances, by LAPACK in float64.
    truth : ndarray of shape (d, k)
        True principal components, by LAPACK in float64.
    """

    def __init__(self, dataset: Dataset, device: str, n_components: int) -> None:
        self.name, self.device, self.n_components = dataset.name, device, n_components
        x = dataset.X
        wide = centred_rows(x)
        self.shape: tuple[int, int] = wide.shape
        self.values, self.truth, square = true_components(wide, n_components)
        padded = np.concatenate([wide, np.zeros((1, wide.shape[1]))], dtype=np.float32)
        self._x = x if device == "cpu" else _sent(as_dense(x), device)
        self._data = self.fresh()
        self._data.learn()  # untimed, as is the subtraction of the mean from the rows
        self.rows = _sent(padded, device)
        self.like = like_block(self.rows, wide.shape[1])
        self._truth = _sent(self.truth, device)
        # Keep C or the rows, whichever is smaller.
        self._square = None if square is None else _sent(square, device)
        self._wide: Any = _sent(wide, device) if square is None else None
        self._wait = wait_for(self.like)

    def fresh(self) -> Centred:
        """Return an operator of the data that has computed nothing yet."""
        return Centred(self._x)

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        self._wait()

    def angles(self, vectors: Array) -> np.ndarray:
        """Return the angles of the leading columns of ``(..., d, p)`` to the true components.

        The result has shape ``(..., min(k, p))``; vectors that are not finite get pi/2.
        """
        xp = self.like.xp
        v = xp.astype(vectors[..., : self.n_components], xp.float64)
        truth = self._truth[:, : v.shape[-1]]
        with np.errstate(invalid="ignore", divide="ignore"):
            v = v / xp.max(xp.abs(v), axis=-2, keepdims=True)
            length = xp.linalg.vector_norm(v, axis=-2)
            cosines = to_numpy(xp.abs(xp.sum(v * truth, axis=-2)) / length)
            found: np.ndarray = np.arccos(np.minimum(cosines, 1.0))
        angles: np.ndarray = np.nan_to_num(found, nan=np.pi / 2)
        return angles

    def covariance_product(self, vectors: Array) -> Array:
        """Return ``C V`` in float64, with ``C`` divided by ``n - 1``."""
        v = self.like.xp.astype(vectors, self.like.xp.float64)
        if self._square is not None:
            return self._square @ v
        return self._wide.T @ (self._wide @ v) / (self.shape[0] - 1)

    def variances(self, vectors: Array) -> np.ndarray:
        """Return the variance along each leading column of ``(d, p)``, ``(min(k, p),)``."""
        xp = self.like.xp
        v = xp.astype(vectors[:, : self.n_components], xp.float64)
        v = v / xp.linalg.vector_norm(v, axis=0)
        return to_numpy(xp.sum(v * self.covariance_product(v), axis=0))

    def refine(self, directions: Array, seed: int) -> tuple[Decomposition, float]:
        """Refine, the paper's full-PCA step; return the result and the seconds it took."""
        self._wait()
        start = time.perf_counter()
        found = refine_span(self._data, basis_of(directions), self.n_components, seed)
        self._wait()
        return found, time.perf_counter() - start

    def promised(self, directions: Array) -> np.ndarray:
        """Return condition (b)'s bounds on the angles after refining, ``(k,)``."""
        basis = np.linalg.qr(to_numpy(basis_of(directions)).astype(np.float64))[0]
        image = self.covariance_product(_sent(basis, self.device))
        return angle_bounds(self.values, self.truth, basis, to_numpy(image))


def _sent(x: np.ndarray, device: str) -> Array:
    if device == "cpu":
        return x
    import torch

    return torch.as_tensor(x, device=device)


def as_dense(x: Any) -> np.ndarray:
    """Return ``x`` as a dense array."""
    return np.asarray(x.toarray() if is_sparse(x) else x)


def centred_rows(x: Any) -> np.ndarray:
    """Return ``X - mean`` in float64."""
    dense = as_dense(x).astype(np.float64)
    dense -= dense.mean(axis=0)
    return dense


def true_components(
    rows: np.ndarray, n_components: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return leading variances ``(k,)`` and components ``(d, k)`` of centred rows, by LAPACK.

    The third value is the covariance ``(d, d)``, or ``None`` if the Gram matrix was smaller.
    """
    n, d = rows.shape
    tall = d <= n
    square = (rows.T @ rows if tall else rows @ rows.T) / (n - 1)
    order = len(square)
    values, vectors = eigh(square, subset_by_index=[order - n_components, order - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    if tall:
        return values, np.ascontiguousarray(vectors), square
    vectors = np.linalg.qr(rows.T @ vectors)[0]
    return values, vectors, None
