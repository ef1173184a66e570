"""Variances along directions, raw and refined, from one projection of the data.

With ``Y = M V`` only small matrices are needed to refine in ``span(V)``: the Gram matrix
``G = V^T V`` gives an orthonormal basis ``V T`` of the span, ``T^T G T = I``, and the eigenvectors
``W`` of ``(Y T)^T (Y T)`` give the refined components ``V T W``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from primedpca._core.arrays import namespace, to_numpy
from primedpca._operator.operator import Centred
from primedpca._operator.scaling import in_unit_of_data
from primedpca.protocols import Array

__all__ = ["Measured", "measure"]

SLICE = 2**21


@dataclass(frozen=True)
class Measured:
    """Scores of the directions, and each method's components as combinations of directions.

    Attributes
    ----------
    scores : ndarray of shape (n, p)
        Scores ``Y = M V``.
    turns : dict of str to ndarray of shape (p, k)
        Coefficients of each method's components ``V turn``, which have unit length.
    variances : dict of str to ndarray of shape (k,)
        Variance of all data along each component.
    """

    scores: np.ndarray
    turns: dict[str, np.ndarray]
    variances: dict[str, np.ndarray]

    def angles(self, method: str, truth: np.ndarray) -> np.ndarray:
        """Return the angles ``(k,)`` to components with the scores ``truth`` ``(n, k)``.

        A principal component ``e`` with scores ``s`` is ``M^T s / |s|^2``, so that
        ``e . v = s . (M v) / |s|^2`` needs no vector of length ``d``.  Angles below 0.1 degrees are
        not reliable, because they come from the cosine of float32 scores.
        """
        along = self.scores @ self.turns[method]
        squares = (truth**2).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            cosines = np.abs((truth * along).sum(axis=0)) / squares
        found: np.ndarray = np.arccos(np.clip(np.nan_to_num(cosines), 0.0, 1.0))
        return found

    def components(self, method: str, directions: Array) -> Array:
        """Return the components ``(k, d)``."""
        xp = namespace(directions)
        turn = xp.asarray(self.turns[method], dtype=directions.dtype, device=directions.device)
        return (directions @ turn).T


def measure(data: Centred, directions: Array, k: int, chosen: np.ndarray) -> Measured:
    """Measure directions raw, refined, and refined with some of the rows, in one pass.

    Parameters
    ----------
    data : Centred
        The data.
    directions : array of shape (d, p)
        The directions.
    k : int
        Number of refined components, and of leading directions that are measured raw.
    chosen : ndarray of int
        Rows of the third method; the mean is that of all rows.
    """
    scores = to_numpy(data.forward(directions)).astype(np.float64)
    square = _gram(directions)
    basis = _orthonormal(square)
    inside = scores @ basis
    turns = {
        "eigengame": np.diag(1 / np.sqrt(np.diag(square)))[:, :k],
        "ppca": basis @ _leading(inside, k),
        "ppca_share": basis @ _leading(inside[chosen], k),
    }
    variances = {
        method: in_unit_of_data(data, ((scores @ turn) ** 2).sum(axis=0) / data.weight)
        for method, turn in turns.items()
    }
    return Measured(scores, turns, variances)


def _gram(directions: Array) -> np.ndarray:
    """Return ``V^T V`` in float64, by slices, to avoid a float64 copy of ``V``."""
    xp, p = namespace(directions), directions.shape[1]
    total = np.zeros((p, p))
    step = max(1, SLICE // p)
    for start in range(0, directions.shape[0], step):
        wide = xp.astype(directions[start : start + step], xp.float64)
        total += to_numpy(wide.T @ wide)
    return total


def _orthonormal(square: np.ndarray) -> np.ndarray:
    """Return ``T`` ``(p, r)`` with ``T^T G T = I``, without dependent directions."""
    values, vectors = np.linalg.eigh(square)
    kept = values > 1e-10 * values[-1]
    turn: np.ndarray = vectors[:, kept] / np.sqrt(values[kept])
    return turn


def _leading(inside: np.ndarray, k: int) -> Any:
    """Return eigenvectors of ``Y^T Y``, largest first, padded with zeros to ``k`` columns."""
    vectors = np.linalg.eigh(inside.T @ inside)[1][:, ::-1][:, :k]
    return np.pad(vectors, ((0, 0), (0, k - vectors.shape[1])))
