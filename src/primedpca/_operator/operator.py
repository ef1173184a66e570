"""The data as an operator: centred, weighted, scaled, missing values filled; never formed.

``M = W^(1/2) (X - 1 mean^T) S^-1`` with ``W`` the row weights, ``mean`` the weighted mean and
``S`` the column scale.  Primings, refining and everything after see only this.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from primedpca._core.arrays import is_sparse, like_block, subtract_outer, to_numpy, wide_dot
from primedpca._operator import kernels
from primedpca._operator import statistics as frames
from primedpca._operator.preparation import Columns, prepare
from primedpca._operator.statistics import Frame
from primedpca._operator.wide_rows import (
    HELD_BYTES,
    adjoint_of_rows,
    are_wide_rows,
    by_slices,
    gram_of_rows,
)
from primedpca.engines import LocalEngine, as_engine, batches_of
from primedpca.protocols import Array, DataSource, Engine, Like, Parts
from primedpca.sources import as_source
from primedpca.sources.base import OneBlock

__all__ = ["Centred"]

OPTIONS = ("center", "engine", "float64", "missing", "sample_weight", "scale")


class Centred:
    """A source as the matrix ``M``, ready to be multiplied.

    Parameters
    ----------
    x : anything that :func:`~primedpca.as_source` reads
    engine : Engine, optional
    sample_weight : array of shape (n,), optional
        Frequencies: a row of weight 2 is that row twice.
    center : bool
    scale : None, "std" or array of shape (d,)
        What the centred columns are divided by; ``"std"`` as scikit-learn's StandardScaler.
    missing : {"error", "mean"}
    float64 : bool
        Multiply in float64 whatever the type of the data.

    Attributes
    ----------
    shape : (n, d)
    weight : float
        The number of rows, or the sum of the weights divided by ``weight_unit``.
    weight_unit : float
        A power of four, other than 1 only where the weights add up to more than 2^64.
    passes : float
        How often the data have been read so far.
    room : float
        Bytes of rows that may be held at a time where wide data are read in rows.
    position : tuple or None
        Where in its batches or rows a visit stands: all that it needs to be gone on with.
    """

    def __init__(
        self,
        x: Any,
        engine: Engine | None = None,
        *,
        sample_weight: Any = None,
        center: bool = True,
        scale: Any = None,
        missing: str = "error",
        float64: bool = False,
    ) -> None:
        if missing not in ("error", "mean"):
            raise ValueError(f"`missing`={missing!r} must be 'error' or 'mean'.")
        self.source: DataSource = as_source(x)
        self.engine = as_engine(engine, self.source)
        if missing == "error" and self.source.traits.missing == "mean":
            missing = "mean"  # the custom of this kind of data
        self.center, self.missing = center, missing
        self.shape = self.source.shape
        self.passes, self.room = 0.0, HELD_BYTES
        self.position: Any = None
        self.own_mean = True  # not that of an earlier fit, or of more rows than these
        block = frames.first_block(self)
        self.like: Like = like_block(block, self.shape[1], float64)
        self.sparse = is_sparse(block)
        self.root, self.weight, self.weight_unit = frames.roots_of(sample_weight, self)
        scale = self.source.traits.scale if scale is None else scale
        self.standardise = isinstance(scale, str)
        self.frame = frames.before_any_pass(self, scale)

    @classmethod
    def of(cls, x: Any, **preparation: Any) -> Centred:
        """``x`` itself if it is a Centred, which brings its own preparation; else a new one."""
        unknown = preparation.keys() - OPTIONS
        if unknown:
            raise TypeError(f"`{min(unknown)}` is no option here; there are {', '.join(OPTIONS)}.")
        if not isinstance(x, Centred):
            return cls(x, **preparation)
        asked = [name for name, value in preparation.items() if value is not None]
        if asked:
            raise TypeError(f"`{asked[0]}` cannot be changed for data that are prepared already.")
        return x

    @classmethod
    def given(cls, x: Any, mean: Any, scale: Any = None, missing: str = "error") -> Centred:
        """New rows, seen with the mean and scale of an earlier fit."""
        self = cls(x, scale=scale, missing=missing)
        known = None if scale is None else self.frame.scale
        self.frame, self.own_mean = frames.given(self, mean, known), False
        return self

    # -- products ----------------------------------------------------------------------------

    def covariance_product(self, vectors: Array) -> Array:
        """``M^T M V / weight``, ``(d, p)``: one pass over rows, two over columns."""
        if self.source.axis == 1:
            return self.adjoint(self.forward(vectors) / self.weight)
        parts, away = self._pass(kernels.product, vectors=vectors)
        z, t = parts.sums
        if away is not None:
            subtract_outer(z, away, t)
        z /= self.weight  # sums are ours
        return self.narrow(z)

    def projected_covariance(self, basis: Array) -> np.ndarray:
        """``V^T M^T M V / weight``, ``(p, p)`` in float64 on the host: one pass."""
        if self.source.axis == 1:
            y = self.wide(self.forward(basis))
            return to_numpy(y.T @ y) / self.weight
        about_a_guess = self.center and self.frame.mean is None
        parts, _ = self._pass(kernels.product, vectors=basis, inside=True)
        square, t = (to_numpy(part) / self.weight for part in parts.sums)
        return square - np.outer(t, t) if about_a_guess else square

    def forward(self, vectors: Array) -> Array:
        """``M V``, ``(n, p)``: one pass."""
        parts, away = self._pass(kernels.forward, vectors=vectors, axis=self.source.axis)
        y = (parts.stacks or parts.sums)[0]
        if away is not None:
            lift = wide_dot(away, vectors)
            y = y - (lift if self.root is None else self.root[:, None] * lift)
        return self.narrow(y)

    def scores_and_squares(self, vectors: Array) -> tuple[Array, Array]:
        """``M V``, ``(n, p)``, and the squared norms of the rows of ``M``, ``(n,)``: one pass."""
        offset = self.learn().offset
        operands = {"vectors": vectors, "axis": self.source.axis, "squares": True}
        parts, _ = self._pass(kernels.forward, **operands)
        y, squares = parts.stacks or parts.sums
        if offset is not None:
            y = y - self._row_roots()[:, None] * wide_dot(offset, vectors)
        return self.narrow(y), squares

    def adjoint(self, left: Array) -> Array:
        """``M^T U``, ``(d, p)``: one pass."""
        if are_wide_rows(self):
            return adjoint_of_rows(self, left)
        self.learn()
        parts, away = self._pass(kernels.adjoint, left=left, axis=self.source.axis)
        z = (parts.stacks or parts.sums)[0]
        if away is not None:
            subtract_outer(z, away, self.wide(left).T @ self._row_roots())
        return self.narrow(z)

    def gram_product(self, left: Array) -> Array:
        """``M M^T U / weight``, ``(n, p)``: one pass over columns, two over rows."""
        frame = self.learn()
        if self.source.axis == 0:
            y = self.forward(self.adjoint(left))
        else:
            lift = None if frame.offset is None else self.narrow(self._row_roots()) @ left
            parts = self.run(kernels.gram_product, {"left": left, "lift": lift})
            y = parts.sums[0]
        y /= self.weight
        return self.narrow(y)

    def covariance(self) -> Array:
        """``M^T M / weight``, ``(d, d)`` in float64: one pass over rows."""
        if self.source.axis == 1 or self._off_centre:
            return by_slices(self, 1)
        parts, away = self._pass(kernels.covariance, dtype=self.like.dtype, axis=0)
        square = parts.sums[0] / self.weight
        return square if away is None else square - away[:, None] * away

    def gram(self) -> Array:
        """``M M^T / weight``, ``(n, n)`` in float64: one pass over columns, or over held rows."""
        if self.source.axis == 0 or self._off_centre:
            return gram_of_rows(self) if are_wide_rows(self) else by_slices(self, 0)
        parts, away = self._pass(kernels.covariance, dtype=self.like.dtype, axis=1)
        square = parts.sums[0] / self.weight
        if away is None:
            return square
        # M = P A with the projection P = I - a a^T / weight, because M^T a = 0.
        a = self._row_roots()
        side = (square @ a) / self.weight
        middle = (a @ side) / self.weight
        return square - side[:, None] * a - a[:, None] * side + middle * (a[:, None] * a)

    def batches(
        self, size: int, seed: int | None, epoch: int = 0, start: int = 0
    ) -> Iterator[Centred]:
        """Mini-batches as small operators that share mean and scale; every row once an epoch."""
        self.learn()
        for i, (index, block) in enumerate(batches_of(self, size, seed, epoch, start), start):
            self.passes += len(index) / self.shape[0]
            self.position = (epoch, i + 1)
            part = self.part(OneBlock(block), index, LocalEngine(1))
            if part.weight > 0:  # rows of weight zero are not there
                yield part

    def sample(self, share: float, seed: int) -> Centred:
        """A random share of the rows, with the mean and scale of all of them."""
        self.learn()
        source: Any = self.source.sample(share, seed)
        part = self.part(source, source.index, self.engine)
        if part.weight <= 1:
            raise ValueError(
                f"`sample_weight` of the {part.shape[0]} rows drawn adds up to {part.weight:g}, "
                "but must exceed 1; draw a larger share of the rows."
            )
        return part

    def widened(self) -> Centred:
        """The same operator, multiplied in float64 whatever the type of the data."""
        frame = self.learn()
        shift, fill, factor, _ = (self.wide(part) for part in frame.columns)
        shift = frame.mean if self.center and not self.sparse else shift
        part = copy(self)
        part.like = dataclasses.replace(self.like, dtype=self.wide(self.like.asarray([])).dtype)
        part.root = self.wide(self.root)
        columns, offset = Columns(shift, fill, factor), self.wide(frame.offset)
        part.frame = dataclasses.replace(frame, columns=columns, offset=offset)
        return part

    def rows(self) -> Array:
        """All rows of ``M``, dense: for mini-batches, which are one block."""
        self.learn()
        block = frames.first_block(self)
        a = prepare(block, self.like.dtype, self.frame.columns, self.root, self.frame.unit)
        if not self.sparse:
            return self.like.xp.asarray(a, copy=True)
        dense = a.toarray()
        if self.frame.offset is None:
            return dense
        return dense - np.outer(self.narrow(self._row_roots()), self.frame.offset)

    def part(self, source: Any, index: np.ndarray, engine: Engine) -> Centred:
        """The rows with these numbers, read from ``source``, as an operator of their own."""
        part = copy(self)
        part.source, part.engine, part.shape, part.passes = source, engine, source.shape, 0.0
        part.own_mean = False
        part.weight = float(len(index))
        if self.root is not None:
            xp = self.like.xp
            part.root = xp.take(self.root, xp.asarray(index, device=self.like.device), axis=0)
            part.weight = float(xp.sum(part.root * part.root))
        return part

    # -- what a first pass learns ------------------------------------------------------------

    def learn(self) -> Frame:
        """The frame with its mean known; costs a pass unless one was made before."""
        if self.frame.mean is None and (self.sparse or self.standardise or self.missing == "mean"):
            self.frame = frames.measure(self)
        elif self.frame.mean is None:
            # Sums alone: the moments of very wide rows would be several times as long.
            self._pass(
                kernels.forward,
                vectors=self.like.asarray(np.empty((self.shape[1], 0))),
                axis=self.source.axis,
            )
        return self.frame

    @property
    def mean(self) -> Array:
        """The weighted mean of the columns ``(d,)``; zero where nothing is centred."""
        mean: Any = self.learn().mean
        return self.narrow(mean / self.frame.unit if self.center else mean * 0)

    @property
    def total(self) -> float:
        """The mean squared norm of the rows of ``M``: the sum of all variances."""
        return self.learn().total

    def check_finite(self, result: Array) -> None:
        """Refuse data whose products are not finite, and say why they are not."""
        if not bool(self.like.xp.all(self.like.xp.isfinite(result))):
            frames.refuse_non_finite(self)

    def _pass(self, kernel: Any, **operands: Any) -> tuple[Parts, Array | None]:
        """One pass, and the offset by which its results are still to be corrected."""
        if self.frame.mean is None:
            self.frame = frames.guess(self)
        first, offset, more = self.frame.mean is None, self.frame.offset, {}
        if kernel is kernels.product:
            more["lift"] = None if first or offset is None else offset @ operands["vectors"]
        if kernel is not kernels.adjoint:
            more["gather"] = first
        parts = self.run(kernel, operands | more)
        if not first:
            return parts, offset
        if self.source.axis == 0:
            *sums, norm, weighted = parts.sums
            rest, shift = Parts(tuple(sums), parts.stacks), self.frame.columns.shift
        else:
            *sums, norm = parts.sums
            *stacks, weighted, shift = parts.stacks
            rest = Parts(tuple(sums), tuple(stacks))
        if not frames.in_range(self, float(norm)):
            return self._pass(kernel, **operands)
        found, away = frames.learn(self, float(norm), weighted, shift)
        if frames.nearer(self, found):
            return self._pass(kernel, **operands)
        self.frame = found
        return rest, away

    def run(self, kernel: Any, operands: dict[str, Any]) -> Parts:
        """One sweep of the engine, every operand cut along the axis that it belongs to."""
        by_column: dict[str, Any] = {"columns": self.frame.columns}
        if kernel is kernels.gram_product or operands.get("squares"):
            by_column["offset"] = self.frame.offset
        by_row: dict[str, Any] = {"root": self.root}
        whole: dict[str, Any] = {"unit": self.frame.unit}
        for name, value in operands.items():
            {"vectors": by_column, "left": by_row}.get(name, whole)[name] = value
        mine, others = (by_row, by_column) if self.source.axis == 0 else (by_column, by_row)
        self.passes += 1
        return self.engine.sweep(self.source, kernel, whole | others, mine)

    def narrow(self, x: Array) -> Array:
        """``x`` in the dtype that blocks are multiplied in."""
        return self.like.xp.astype(x, self.like.dtype, copy=False)

    def wide(self, x: Array) -> Array:
        """``x`` in float64; ``None`` and flags are left as they are."""
        if x is None or isinstance(x, bool):
            return x
        return self.like.xp.astype(x, self.like.xp.float64, copy=False)

    @property
    def _off_centre(self) -> bool:
        """Whether the offset of sparse rows is not their own mean, as shortcuts take it to be."""
        return not self.own_mean and self.frame.offset is not None

    def _row_roots(self) -> Array:
        if self.root is not None:
            return self.wide(self.root)
        xp = self.like.xp
        return xp.ones(self.shape[0], dtype=xp.float64, device=self.like.device)
