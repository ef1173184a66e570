"""Frequent Directions: one pass, fixed memory, a deterministic bound on the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from primedpca._core.arrays import namespace
from primedpca._core.parameters import check_count
from primedpca.priming.base import BasePriming
from primedpca.priming.sketch import SketchState, decompose, take_in
from primedpca.protocols import Array, Like, Operator, PrimingTraits

__all__ = ["FrequentDirections"]


@dataclass(frozen=True)
class FrequentDirections(BasePriming):
    r"""Sketch :math:`B` of few rows whose covariance approximates that of all rows.

    Rows are collected until there are :math:`3\ell`.  Then, with :math:`B = U \Sigma V^T`,

    .. math:: B \leftarrow \sqrt{\max(\Sigma^2 - \sigma_{\ell+1}^2 I,\, 0)}\; V^T,
              \qquad \Delta \leftarrow \Delta + \sigma_{\ell+1}^2,

    which frees :math:`2\ell` rows.  At the end
    :math:`0 \preceq M^T M - B^T B \preceq \Delta I`.

    The mean need not be known beforehand.  From every batch the rows minus the batch mean
    :math:`m_2` are added and, from the second batch on, the row
    :math:`\sqrt{n_1 n_2 / (n_1 + n_2)}\,(m_2 - m_1)`, where :math:`m_1` is the mean of all
    earlier rows.  The scatter of these rows equals that of the centred data, whatever the batch
    size.  Every row is therefore read once; only ``scale="std"`` and ``missing="mean"`` need an
    earlier pass.

    The sketch is dense, in the dtype of the data, and sparse rows are converted to dense ones
    batch by batch; both take ``d`` numbers a row.

    Parameters
    ----------
    sketch_size : int or None, default=None
        Directions that the sketch keeps, :math:`\ell` above; at least the number of directions
        wanted.  ``None`` means twice that number and at least 64.  A larger sketch takes more
        memory and time and loses less.

    References
    ----------
    M. Ghashami, E. Liberty, J. Phillips, D. Woodruff, "Frequent Directions: simple and
    deterministic matrix sketching", 2015.
    T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample variance", 1983.
    """

    sketch_size: int | None = None

    visits: ClassVar[Literal["rows"]] = "rows"
    traits: ClassVar[PrimingTraits] = PrimingTraits(certifier="sketch")

    def __post_init__(self) -> None:
        check_count("sketch_size", self.sketch_size, optional=True)

    def init(
        self, like: Like, n_directions: int, seed: Any, start: Array | None = None
    ) -> SketchState:
        """Return an empty sketch; a warm start is ignored."""
        size = self.sketch_size or max(2 * n_directions, 64)
        if size < n_directions:
            raise ValueError(
                f"`sketch_size`={size} is less than the {n_directions} directions wanted. "
                "Increase it, or lower `n_components` or `extra_components`."
            )
        empty = like.asarray(np.zeros((0, like.n_features)))
        nowhere = like.xp.zeros(like.n_features, dtype=like.xp.float64, device=like.device)
        return SketchState(
            sketch=empty,
            size=size,
            loss=0.0,
            shrinks=0,
            n_directions=n_directions,
            shift=nowhere,
            sums=nowhere,
            weight=0.0,
            total=0.0,
            reach=0.0,
            rounding=0.0,
            depth=0,
            unit=1.0,
            center=True,
        )

    def step(self, state: SketchState, data: Operator) -> SketchState:
        """Add the next rows to the sketch."""
        # In float64, as the bound on rounding assumes (docs/certificates.md, section 8).
        rows, root = data.wide(data.rows()), data.wide(data.root)
        factor, unit = data.wide(data.frame.columns.factor), data.frame.gain
        return take_in(state, rows, root, data.frame.mean if data.center else None, unit, factor)

    def directions(self, state: SketchState, data: Operator) -> Array:
        """Return the leading right singular vectors of the sketch, times their singular values."""
        xp, sketch = namespace(state.sketch), state.sketch
        squares, vectors = decompose(sketch)[:2] if sketch.shape[0] else (np.zeros(0),) * 2
        count = min(state.n_directions, squares.size)
        if not count:  # no rows yet, or all rows equal: nothing to refine
            return xp.zeros((sketch.shape[1], 1), dtype=sketch.dtype, device=sketch.device)
        # U^T B = Sigma V^T: refining needs the span alone, so the lengths may stay.
        left = xp.asarray(vectors[:, :count], dtype=sketch.dtype, device=sketch.device)
        return (left.T @ sketch).T

    def slack(self, state: SketchState) -> float:
        """Return ``Delta``, the proven bound on the scatter that the sketch has lost."""
        return state.loss
