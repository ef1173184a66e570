"""What directions capture, as they are and refined, from one projection of the data.

With ``Y = M V`` everything that a refining of ``span(V)`` needs is small: the Gram matrix
``G = V^T V`` gives an orthonormal basis ``V T`` of the span, ``T^T G T = I``, and the eigenvectors
``W`` of ``(Y T)^T (Y T)`` the refined components ``V T W``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from primedpca._core.arrays import namespace, to_numpy
from primedpca._operator.operator import Centred
from primedpca._solve.refine import in_unit_of_data
from primedpca.protocols import Array

__all__ = ["Measured", "measure"]

SLICE = 2**21


@dataclass(frozen=True)
class Measured:
    """Scores of the directions, and every method's components as combinations of them.

    Attributes
    ----------
    scores : ndarray of shape (n, p)
        ``Y = M V``.
    turns : dict of str to ndarray of shape (p, k)
        Components are ``V turn``, at unit length.
    variances : dict of str to ndarray of shape (k,)
        Of all data along each component.
    """

    scores: np.ndarray
    turns: dict[str, np.ndarray]
    variances: dict[str, np.ndarray]

    def angles(self, method: str, truth: np.ndarray) -> np.ndarray:
        """The angles ``(k,)`` to components with the scores ``truth`` ``(n, k)``.

        Principal components ``e`` with scores ``s`` are ``M^T s / |s|^2``, so that
        ``e . v = s . (M v) / |s|^2``: no vector of length ``d`` is needed.  From the cosine of
        float32 scores, angles below a tenth of a degree are not to be trusted.
        """
        along = self.scores @ self.turns[method]
        squares = (truth**2).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            cosines = np.abs((truth * along).sum(axis=0)) / squares
        return np.arccos(np.clip(np.nan_to_num(cosines), 0.0, 1.0))

    def components(self, method: str, directions: Array) -> Array:
        """The components ``(k, d)``."""
        xp = namespace(directions)
        turn = xp.asarray(self.turns[method], dtype=directions.dtype, device=directions.device)
        return (directions @ turn).T


def measure(data: Centred, directions: Array, k: int, chosen: np.ndarray) -> Measured:
    """One pass: what ``directions`` ``(d, p)`` capture raw, refined, and refined by a few rows.

    Parameters
    ----------
    data : Centred
    directions : array of shape (d, p)
    k : int
        How many components to refine to, and how many of the directions to look at raw.
    chosen : ndarray of int
        The rows that the third refining projects; the mean stays that of all rows.
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
    """``V^T V`` in float64, slice by slice so that no wide copy of ``V`` is made."""
    xp, p = namespace(directions), directions.shape[1]
    total = np.zeros((p, p))
    step = max(1, SLICE // p)
    for start in range(0, directions.shape[0], step):
        wide = xp.astype(directions[start : start + step], xp.float64)
        total += to_numpy(wide.T @ wide)
    return total


def _orthonormal(square: np.ndarray) -> np.ndarray:
    """``T`` ``(p, r)`` with ``T^T G T = I``; directions that depend on others are left out."""
    values, vectors = np.linalg.eigh(square)
    kept = values > 1e-10 * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])


def _leading(inside: np.ndarray, k: int) -> Any:
    """Eigenvectors of ``Y^T Y``, the largest first; zero where the span has no more."""
    vectors = np.linalg.eigh(inside.T @ inside)[1][:, ::-1][:, :k]
    return np.pad(vectors, ((0, 0), (0, k - vectors.shape[1])))
