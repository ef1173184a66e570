"""Frequent Directions: one pass, fixed memory, a deterministic bound on what is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from primedpca.arrays import namespace, to_numpy
from primedpca.orthonormal import small_eigh
from primedpca.protocols import Array, Like

__all__ = ["FrequentDirections"]


class SketchState(NamedTuple):
    """The sketch ``(2 size, d)``, its rows in use, what was shrunk off, and how often."""

    sketch: Array
    used: int
    loss: float
    shrinks: int
    n_directions: int


@dataclass(frozen=True)
class FrequentDirections:
    r"""A sketch :math:`B` of few rows whose covariance is near that of all of them.

    Rows are collected until there are :math:`2\ell`.  Then, with :math:`B = U \Sigma V^T`,

    .. math:: B \leftarrow \sqrt{\max(\Sigma^2 - \sigma_{\ell+1}^2 I,\, 0)}\; V^T,
              \qquad \Delta \leftarrow \Delta + \sigma_{\ell+1}^2,

    which frees :math:`\ell` rows, and at the end
    :math:`0 \preceq M^T M - B^T B \preceq \Delta I`.

    Parameters
    ----------
    sketch_size : int, optional
        The :math:`\ell` above, at least the number of directions looked for; by default twice
        that number, and at least 64.

    References
    ----------
    M. Ghashami, E. Liberty, J. Phillips, D. Woodruff, "Frequent Directions: simple and
    deterministic matrix sketching", 2015.
    """

    sketch_size: int | None = None

    visits: ClassVar[Literal["rows"]] = "rows"

    def __post_init__(self) -> None:
        if self.sketch_size is not None and self.sketch_size < 1:
            raise ValueError(f"`sketch_size`={self.sketch_size} must be at least 1, or None.")

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> SketchState:
        """An empty sketch; a warm start has nothing to add."""
        size = self.sketch_size or max(2 * n_directions, 64)
        if size < n_directions:
            raise ValueError(
                f"`sketch_size`={size} is less than the {n_directions} directions looked for; "
                "make it larger."
            )
        return SketchState(
            like.asarray(np.zeros((2 * size, like.n_features))), 0, 0.0, 0, n_directions
        )

    def step(self, state: SketchState, data: Any) -> SketchState:
        """Take in the next rows."""
        rows, taken = data.rows(), 0
        xp = namespace(rows)
        while taken < rows.shape[0]:
            count = min(state.sketch.shape[0] - state.used, rows.shape[0] - taken)
            parts = [state.sketch[: state.used], rows[taken : taken + count]]
            rest = state.sketch[state.used + count :]
            sketch = xp.concat([*parts, rest], axis=0)
            taken += count
            state = state._replace(sketch=sketch, used=state.used + count)
            if state.used == sketch.shape[0]:
                state = _shrink(state)
        return state

    def directions(self, state: SketchState, data: Any) -> Array:
        """The leading right singular vectors of the sketch."""
        squares, vectors = _decompose(state.sketch)
        count = min(state.n_directions, squares.size)
        return (vectors[:, :count].T @ state.sketch).T if count else state.sketch[:1].T

    def slack(self, state: SketchState) -> float:
        """What was shrunk off in all: a bound on what the sketch has lost."""
        return state.loss


def _decompose(sketch: Array) -> tuple[np.ndarray, Array]:
    """Squared singular values above rounding, and left singular vectors, by the small Gram."""
    xp = namespace(sketch)
    wide = xp.astype(sketch, xp.float64)
    squares, left = small_eigh(to_numpy(wide @ wide.T))
    kept = squares > squares[0] * squares.size * np.finfo(np.float64).eps
    vectors = xp.asarray(left[:, kept], dtype=sketch.dtype, device=sketch.device)
    return squares[kept], vectors


def _shrink(state: SketchState) -> SketchState:
    xp, half = namespace(state.sketch), state.sketch.shape[0] // 2
    squares, left = _decompose(state.sketch)
    if not np.isfinite(squares).all():
        return state._replace(used=0)
    lost = float(squares[half]) if squares.size > half else 0.0
    kept = squares[:half]
    factor = np.sqrt(np.maximum(kept - lost, 0.0) / kept)
    factor = xp.asarray(factor, dtype=state.sketch.dtype, device=state.sketch.device)
    rows = factor[:, None] * (left[:, : kept.size].T @ state.sketch)
    blank = xp.zeros_like(state.sketch[rows.shape[0] :])
    sketch = xp.concat([rows, blank], axis=0)
    return SketchState(
        sketch, rows.shape[0], state.loss + lost, state.shrinks + 1, state.n_directions
    )
