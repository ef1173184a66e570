"""The data as a linear operator ``M``: centred, weighted, scaled, with missing values filled.

``M = W^(1/2) (X - 1 mean^T) S^-1`` with ``W`` the row weights, ``mean`` the weighted mean and
``S`` the column scale.  ``M`` is never formed.  Primings, refinement and certifiers access the
data only through products with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from primedpca._core.arrays import (
    as_real,
    check_held,
    dtype_name,
    is_sparse,
    like_block,
    subtract_outer,
    to_numpy,
    wide_dot,
    work_dtype,
)
from primedpca._operator import kernels, statistics
from primedpca._operator.preparation import Columns, prepare
from primedpca._operator.statistics import Frame
from primedpca._operator.wide_rows import (
    HELD_BYTES,
    adjoint_of_rows,
    are_wide_rows,
    by_slices,
    gram_of_rows,
    groups,
)
from primedpca.engines import LocalEngine, as_engine
from primedpca.protocols import (
    Array,
    Block,
    DataSource,
    Engine,
    Like,
    Parts,
    Traits,
    check_block,
    check_rows,
)
from primedpca.sources import as_source
from primedpca.sources.base import OneBlock
from primedpca.sources.memory.frames import aligned_rows, check_row_order, column_labels

__all__ = ["Centred"]

OPTIONS = ("center", "engine", "float64", "missing", "sample_weight", "scale")


@dataclass(slots=True)
class Meter:
    """Counter of the passes over the data, shared by the float32 and the float64 operator."""

    passes: float = 0.0


@dataclass(slots=True)
class Ledger:
    """Number of passes so far and the statistics of the first one: the mutable part of an operator.

    Views of one operator share a ledger, so statistics that one view finds are known to all.

    Attributes
    ----------
    frame : Frame
        Mean, scale and unit; incomplete until the first pass has ended.
    meter : Meter
        Counter of the passes.
    first : block or None
        The first block.  It is read once to find its type, and kept until the first pass has
        guessed the mean from it.
    """

    frame: Frame
    meter: Meter
    first: Block | None = None


class Centred:
    """A source of data as the matrix ``M``; immutable.

    Parameters
    ----------
    x : data of shape (n, d)
        Anything that :func:`~primedpca.as_source` reads.
    engine : Engine, optional
        Engine that sweeps over the blocks.  By default this machine, or for a Dask array the Dask
        client in scope.
    sample_weight : array of shape (n,), optional
        Frequencies: a row of weight 2 counts as that row twice.  By default every weight is 1.
    center : bool, default=True
        Whether to subtract the weighted mean of each column.
    scale : None, "std" or array of shape (d,), default=None
        Divisors of the centred columns.  ``"std"`` uses standard deviations, as scikit-learn's
        StandardScaler.  ``None`` uses the scale of the source, if it has one.
    missing : {"error", "mean"}, default="error"
        Whether NaN raises an error or is replaced by the mean of its column.  A source that has
        missing values by convention sets this to ``"mean"``.
    float64 : bool, default=False
        Whether to multiply in float64 even if the data are stored in float32.

    Attributes
    ----------
    shape : tuple of int, (n, d)
    weight : float
        Number of rows, or the sum of the weights divided by ``weight_unit``.
    weight_unit : float
        A power of four; 1 unless the weights add up to more than 2^64.
    passes : float
        Number of passes over the data so far.
    room : float
        Maximum number of bytes of rows held in memory at a time, for wide data read by rows.
    traits : Traits
        Those of the data as they were given; a source gathers them anew whenever it is asked.
    """

    source: DataSource
    traits: Traits
    engine: Engine
    center: bool
    missing: str
    shape: tuple[int, int]
    room: float
    own_mean: bool
    implicit: bool
    like: Like
    sparse: bool
    root: Array | None
    weight: float
    weight_unit: float
    standardise: bool
    _weights: Any
    _scale: Any
    _ledger: Ledger

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
        if not isinstance(center, (bool, np.bool_)):
            raise ValueError(f"`center`={center!r} must be True or False.")
        given = as_source(x)
        traits = given.traits
        engine = as_engine(traits.client() if engine is None else engine)
        source = engine.view(given)
        traits = traits if source is given else source.traits
        if missing == "error" and traits.missing == "mean":
            missing = "mean"  # the convention of this kind of data
        labels = partial(column_labels, given)
        scale = traits.scale if scale is None else aligned_rows(scale, labels, "scale")
        first, block = next(iter(source.scan()))  # for its type; kept for the first pass
        check_block(block, source, first)
        float64 = float64 or (scale is not None and statistics.beyond_float32(scale))
        like = like_block(block, source.shape[1], float64)
        root, weight, unit = None, float(source.shape[0]), 1.0
        if sample_weight is not None:
            check_row_order(sample_weight, given)
            root, weight, unit = statistics.roots_of(sample_weight, source.shape[0], like)
        frame = Frame() if scale is None else statistics.before_any_pass(like, scale)
        vars(self).update(
            source=source,
            traits=traits,
            engine=engine,
            center=center,
            missing=missing,
            shape=source.shape,
            room=HELD_BYTES,
            own_mean=True,  # False where the mean is that of an earlier fit or of more rows
            implicit=False,  # whether products are corrected instead of dense blocks shifted
            like=like,
            sparse=is_sparse(block),
            root=root,
            weight=weight,
            weight_unit=unit,
            standardise=isinstance(scale, str),
            _weights=sample_weight,
            _scale=scale,
            _ledger=Ledger(frame, Meter(), block),
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"`{name}` of an operator cannot be set. Use `view` to get a copy.")

    @classmethod
    def of(cls, x: Any, **preparation: Any) -> Centred:
        """Return ``x`` if it is a Centred already, otherwise ``Centred(x, **preparation)``.

        A Centred has its own preparation, so other options beside it raise TypeError.
        """
        unknown = preparation.keys() - OPTIONS
        if unknown:
            raise TypeError(f"Unknown option `{min(unknown)}`. Use one of {', '.join(OPTIONS)}.")
        if not isinstance(x, Centred):
            check_held(x, "`X`")  # not in the constructor: a shape is enough for `plan`
            x = as_source(x)
            check_own_scale(x, preparation.get("scale"))
            return cls(x, **preparation)
        asked = [name for name, value in preparation.items() if value is not None]
        if asked:
            raise TypeError(
                f"`{asked[0]}` cannot be changed for data that are prepared already. Set it when "
                "the data are prepared."
            )
        return x

    @classmethod
    def given(
        cls, x: Any, mean: Any, scale: Any = None, missing: str = "error", fill: Any = None
    ) -> Centred:
        """Return new rows as an operator with the mean, scale and fill values of an earlier fit.

        Where missing values are to be replaced and ``fill`` is None, they are refused.
        """
        self = cls(x, scale=scale, missing=missing)
        if self.missing == "mean" and fill is None:
            self = self.view(missing="unknown")
        known = None if scale is None else self.frame.scale
        return self.view(frame=statistics.given(self, mean, known, fill), own_mean=False)

    # -- views -------------------------------------------------------------------------------

    def view(self, *, frame: Frame | None = None, **changes: Any) -> Centred:
        """Return a copy with other fields; with a ``frame``, the copy has a ledger of its own."""
        if frame is not None:
            changes["_ledger"] = Ledger(frame, Meter())
        other = object.__new__(Centred)
        vars(other).update(vars(self), **changes)
        return other

    def in_float64(self) -> Centred:
        """Return the same data before any pass, multiplied in float64.

        Both operators count their passes together.  Mean and scale are computed again, because
        those of float32 passes are not accurate enough for proofs.
        """
        if dtype_name(self.like.dtype) == "float64":
            return self
        like = dataclasses.replace(self.like, dtype=self.wide(self.like.asarray([])).dtype)
        root, frame, ledger = None, Frame(), self._ledger
        if self._weights is not None:
            root, _, _ = statistics.roots_of(self._weights, self.shape[0], like)
        if self._scale is not None:
            frame = statistics.before_any_pass(like, self._scale)
        return self.view(like=like, root=root, _ledger=Ledger(frame, ledger.meter, ledger.first))

    def implicitly_centred(self) -> Centred:
        """Return the same data before any pass, centred after the products where that is faster.

        On a GPU a product takes as long as reading the data, and shifting them first three times
        as long.  Where the mean is so large that digits would cancel, blocks are shifted still.
        """
        plain = self.center and not (self.sparse or self.standardise or self.missing == "mean")
        if not plain or self.source.device in (None, "cpu"):
            return self
        ledger = self._ledger
        return self.view(implicit=True, _ledger=Ledger(ledger.frame, ledger.meter, ledger.first))

    def share(self, wide: Centred) -> bool:
        """Use the mean and scale that the float64 operator has found, if float32 can hold them."""
        frame = statistics.narrowed(self, wide.frame)
        if frame is not None:
            self.learned(frame)
        return frame is not None

    @property
    def frame(self) -> Frame:
        """Mean, scale and unit as far as they are known."""
        return self._ledger.frame

    @property
    def passes(self) -> float:
        """Number of passes over the data so far."""
        return self._ledger.meter.passes

    def count(self, passes: float, since: float | None = None) -> None:
        """Set the number of passes to ``since + passes``; ``since`` defaults to those so far."""
        meter = self._ledger.meter
        meter.passes = passes + (meter.passes if since is None else since)

    def learned(self, frame: Frame) -> None:
        """Store the frame that a first pass, or a checkpoint of one, has found."""
        self._ledger.frame = frame
        if frame.mean is not None:
            self._ledger.first = None

    def resume(self, frame: Frame, passes: float) -> None:
        """Restore the frame and the number of passes from a checkpoint of the same operator."""
        self.learned(frame)
        self._ledger.meter.passes = passes

    def first_block(self) -> Block:
        """Return the first block, from which the mean is guessed."""
        held = self._ledger.first
        return next(iter(self.source.scan()))[1] if held is None else held

    # -- products ----------------------------------------------------------------------------

    def covariance_product(self, vectors: Array) -> Array:
        """Return ``M^T M V / weight``, ``(d, p)``: one pass over rows, two over columns."""
        if self.source.axis == 1:
            return self.adjoint(self.forward(vectors) / self.weight)
        parts, away = self._pass(kernels.product, vectors=vectors)
        z, t = parts.sums
        # M = A - a away^T, so M^T Y = A^T Y - away (a^T Y).  In the first pass Y is A V instead
        # of M V, with the same result, because a^T A = weight away^T.
        if away is not None:
            subtract_outer(z, away, t)
        z /= self.weight  # in place: the engine does not use the sums again
        return self.narrow(z)

    def projected_covariance(self, basis: Array) -> np.ndarray:
        """Return ``V^T M^T M V / weight``, ``(p, p)`` in float64 on the host: one pass."""
        if self.source.axis == 1:
            y = self.wide(self.forward(basis))
            return to_numpy(y.T @ y) / self.weight
        about_a_guess = self.center and self.frame.mean is None
        parts, _ = self._pass(kernels.product, vectors=basis, inside=True)
        square, t = (to_numpy(part) / self.weight for part in parts.sums)
        # Products relative to a guess of the mean: subtract the outer product of their own mean.
        return square - np.outer(t, t) if about_a_guess else square

    def forward(self, vectors: Array) -> Array:
        """Return ``M V``, ``(n, p)``: one pass."""
        parts, away = self._pass(kernels.forward, vectors=vectors, axis=self.source.axis)
        y = (parts.stacks or parts.sums)[0]
        if away is not None:
            lift = wide_dot(away, vectors)
            y = y - (lift if self.root is None else self.root[:, None] * lift)
        return self.narrow(y)

    def scores_and_squares(self, vectors: Array) -> tuple[Array, Array]:
        """Return ``M V``, ``(n, p)``, and the squared row norms of ``M``, ``(n,)``: one pass.

        Raise ValueError if a row has a non-finite value, or one whose square overflows.
        """
        offset = self.learn().offset
        operands = {"vectors": vectors, "axis": self.source.axis, "squares": True}
        parts, _ = self._pass(kernels.forward, **operands)
        y, squares = parts.stacks or parts.sums
        if offset is not None:
            y = y - self._row_roots()[:, None] * wide_dot(offset, vectors)
        self.check_finite(squares)  # a non-finite value of a row reaches its norm
        return self.narrow(y), squares

    def adjoint(self, left: Array) -> Array:
        """Return ``M^T U``, ``(d, p)``: one pass."""
        self.learn()
        if are_wide_rows(self):
            z, away = adjoint_of_rows(self, left), self.frame.offset
        else:
            parts, away = self._pass(kernels.adjoint, left=left, axis=self.source.axis)
            z = (parts.stacks or parts.sums)[0]
        if away is not None:
            subtract_outer(z, away, self.wide(left).T @ self._row_roots())
        return self.narrow(z)

    def gram_product(self, left: Array) -> Array:
        """Return ``M M^T U / weight``, ``(n, p)``: one pass over columns, two over rows."""
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
        """Return ``M^T M / weight``, ``(d, d)`` in float64: one pass over rows."""
        if self.source.axis == 1 or self._off_centre:
            return by_slices(self, 1)
        return self._square()[0]

    def gram(self) -> Array:
        """Return ``M M^T / weight``, ``(n, n)`` in float64.

        One pass over columns, or over rows that all fit into memory.
        """
        if self.source.axis == 0 or self._off_centre:
            return gram_of_rows(self)[0] if are_wide_rows(self) else by_slices(self, 0)
        return self._square()[0]

    def checked_square(self, checks: Array) -> tuple[Array, Array]:
        """Return the smaller matrix, and its product with ``checks``, from one pass.

        The matrix is the covariance, or the Gram matrix if ``n < d``, as float32 products make it
        if the data are no finer.  Its product is made in the arithmetic of this operator; see
        :attr:`squares_at_once`.
        """
        along = self.source.axis == (0 if self.shape[1] <= self.shape[0] else 1)
        square, product = self._square(checks) if along else gram_of_rows(self, checks)
        return square, product

    @property
    def squares_at_once(self) -> bool:
        """Whether one pass over dense blocks adds up to the smaller matrix."""
        if self.source.axis == (0 if self.shape[1] <= self.shape[0] else 1):
            return not self.sparse
        return are_wide_rows(self) and len(groups(self.source, self.room)) == 1

    def _square(self, checks: Array | None = None) -> list[Array]:
        """Return the covariance of blocks of rows, or the Gram matrix of blocks of columns.

        With ``checks``, its product with them follows, and the matrix is made in float32 if that
        holds the data.
        """
        axis, operands = self.source.axis, dict[str, Any]()
        operands["alone"] = len(self.source.blocks) == 1 and not self.sparse
        projects = axis == 1 and self.center
        if checks is not None:
            operands["checks"] = self._projected(checks) if projects else checks
            operands["rounded"] = work_dtype(self.source.dtype) == "float32"
        parts, away = self._pass(kernels.covariance, dtype=self.like.dtype, axis=axis, **operands)
        square, *product = parts.sums
        for part in parts.sums:
            part /= self.weight  # in place: the engine does not use the sums again
        if axis == 0 and away is not None:
            subtract_outer(square, away, away)
            for part in product:
                subtract_outer(part, away, away @ checks)
            return [square, *product]
        if axis == 1 and (away is not None or (self.center and product)):
            # M = P A with the projection P = I - a a^T / weight, because M^T a = 0.
            square = self._projected(self._projected(square).T)
        return [square, *(map(self._projected, product) if projects else product)]

    def _projected(self, columns: Array) -> Array:
        """Return ``columns`` without their parts along the square roots of the weights."""
        a = self._row_roots()
        return columns - a[:, None] * ((a @ columns) / self.weight)

    def numbered_batches(
        self, size: int, seed: int | None, epoch: int = 0, start: int = 0
    ) -> Iterator[tuple[int, Centred]]:
        """Yield ``(start, batch)``, where ``start`` resumes the epoch after this batch.

        Batches are small operators with the mean and scale of all rows.

        Parameters
        ----------
        size : int
            Maximum number of rows in a batch.
        seed : int or None
            Seed of the random order; ``None`` keeps the order of the rows.
        epoch : int, default=0
            Number of the epoch, counted from 0.  Each row is visited once per epoch.
        start : int, default=0
            Number of batches of the epoch to skip.
        """
        self.learn()
        found = self.source.batches(size, seed, epoch, start)
        for i, (index, block) in enumerate(found, start + 1):
            check_rows(block, index, self.source)
            self.count(len(index) / self.shape[0])
            part = self.part(OneBlock(block), index, LocalEngine(1))
            if part.weight > 0:  # rows of weight zero count as absent
                yield i, part

    def sample(self, share: float, seed: int) -> Centred:
        """Return a random share of the rows as an operator with the mean and scale of all rows."""
        self.learn()
        source: Any = self.source.sample(share, seed)
        part = self.part(source, source.index, self.engine)
        if part.weight <= 1:
            raise ValueError(
                f"`sample_weight` of the {part.shape[0]} rows drawn adds up to {part.weight:g}, "
                "but must exceed 1. Draw a larger share of the rows."
            )
        return part

    def widened(self) -> Centred:
        """Return the same operator with the mean found so far, multiplied in float64."""
        frame = self.learn()
        shift, fill, factor, _, rest = (self.wide(part) for part in frame.columns)
        if self.center and not self.sparse:
            # The float64 mean itself: the shift of a float32 operator was rounded, or left out.
            shift, rest = frame.mean, frame.rest
        columns, offset = Columns(shift, fill, factor, rest=rest), self.wide(frame.offset)
        return self.view(
            like=self.in_float64().like,
            root=self.wide(self.root),
            frame=frame.changed(columns=columns, offset=offset),
        )

    def rows(self) -> Array:
        """Return all rows of ``M`` as a dense array, for mini-batches, which are one block."""
        self.learn()
        block = self.first_block()
        a = prepare(block, self.like.dtype, self.frame.columns, self.root, self.frame.unit)
        if not self.sparse:
            return self.like.xp.asarray(a, copy=True)
        dense = a.toarray()
        if self.frame.offset is None:
            return dense
        return dense - self.narrow(self._row_roots())[:, None] * self.frame.offset

    def part(self, source: Any, index: np.ndarray, engine: Engine, **changes: Any) -> Centred:
        """Return a subset of the rows as an operator with the same frame.

        Parameters
        ----------
        source : DataSource
            Source that holds only these rows.
        index : ndarray of shape (rows,)
            Indices of the rows, counted from 0, by which their weights are found.
        engine : Engine
        **changes
            Other fields, as for :meth:`view`.
        """
        root, weight = self.root, float(len(index))
        if root is not None:
            xp = self.like.xp
            root = xp.take(root, xp.asarray(index, device=self.like.device), axis=0)
            weight = float(xp.sum(root * root))
        fields = {"source": source, "engine": engine, "shape": source.shape, "own_mean": False}
        fields |= {"root": root, "weight": weight, "frame": self.frame}
        return self.view(**fields | changes)

    # -- statistics of the first pass --------------------------------------------------------

    def learn(self) -> Frame:
        """Return the frame with its mean known; costs a pass unless one was made before."""
        if self.frame.mean is None and (self.sparse or self.standardise or self.missing == "mean"):
            self.learned(statistics.measure(self, self.frame))
        elif self.frame.mean is None:
            # A product with no columns computes only the sums: one vector as long as a row, where
            # the moments are six.
            self._pass(
                kernels.forward,
                vectors=self.like.asarray(np.empty((self.shape[1], 0))),
                axis=self.source.axis,
            )
        return self.frame

    @property
    def mean(self) -> Array:
        """Weighted mean of the columns ``(d,)``; zero if ``center`` is False."""
        mean: Any = self.learn().mean
        return self.narrow(mean / self.frame.unit if self.center else mean * 0)

    @property
    def fill(self) -> Array | None:
        """What replaces missing values ``(d,)``; None where that is ``mean``, or nothing does."""
        if self.center or self.missing != "mean":
            return None
        mean: Any = self.learn().mean
        return self.narrow(mean / self.frame.unit)

    @property
    def total(self) -> float:
        """Total variance: the mean squared norm of the rows of ``M``, with divisor ``n``."""
        return self.learn().total

    def check_rows(self) -> None:
        """Raise ValueError if the data have fewer than two rows."""
        if self.shape[0] < 2:
            raise ValueError(
                f"Found {self.shape[0]} sample in `X` while a minimum of 2 is required: one row "
                "has no variance. Add rows."
            )

    def check_finite(self, result: Array) -> None:
        """Raise ValueError that names the cause if ``result`` has non-finite values."""
        if not bool(self.like.xp.all(self.like.xp.isfinite(result))):
            statistics.refuse_non_finite(self, self.frame)

    def _pass(self, kernel: Any, **operands: Any) -> tuple[Parts, Array | None]:
        """Make one pass; return its results and the offset that is still to be subtracted.

        The first pass also finds the mean.  It is repeated if its guess of the mean was too far
        off, or if its squares left the range of the dtype.
        """
        again: Frame | None = self.frame
        while again is not None:
            frame = statistics.guess(self, again) if again.mean is None else again
            first, offset, more = frame.mean is None, frame.offset, {}
            if kernel is kernels.product:
                more["lift"] = None if first or offset is None else offset @ operands["vectors"]
            if kernel is not kernels.adjoint:
                more["gather"] = first
            parts = self.run(kernel, operands | more, frame)
            if not first:
                self.learned(frame)  # it is new if guess() needed a pass for the moments
                return parts, offset
            sums, stacks = [*parts.sums], [*parts.stacks]
            if self.source.axis == 0:
                weighted, seen_from = sums.pop(), frame.columns
            else:
                rest, shift, weighted = stacks.pop(), stacks.pop(), stacks.pop()
                seen_from = Columns(shift, rest=rest)
            norm = float(sums.pop())
            found, away, again = statistics.learn(self, frame, norm, weighted, seen_from)
        self.learned(found)
        return Parts(tuple(sums), tuple(stacks)), away

    def run(self, kernel: Any, operands: dict[str, Any], frame: Frame | None = None) -> Parts:
        """Sweep the engine once over the blocks with a kernel.

        Operands that belong to rows or to columns are sorted by axis, so that the engine can
        cut those that run along the blocks.
        """
        frame = self.frame if frame is None else frame
        by_column: dict[str, Any] = {"columns": frame.columns}
        if kernel is kernels.gram_product or operands.get("squares"):
            by_column["offset"] = frame.offset
        by_row: dict[str, Any] = {"root": self.root}
        whole: dict[str, Any] = {"unit": frame.unit}
        for name, value in operands.items():
            {"vectors": by_column, "left": by_row}.get(name, whole)[name] = value
        mine, others = (by_row, by_column) if self.source.axis == 0 else (by_column, by_row)
        self._ledger.meter.passes += 1
        return self.engine.sweep(self.source, kernel, whole | others, mine)

    def narrow(self, x: Array) -> Array:
        """Return ``x`` in the dtype in which blocks are multiplied."""
        if x.dtype == self.like.dtype:
            return x
        return self.like.xp.astype(x, self.like.dtype, copy=False)

    def wide(self, x: Array) -> Array:
        """Return ``x`` in float64; ``None`` and bools are returned unchanged."""
        if x is None or isinstance(x, bool) or dtype_name(x.dtype) == "float64":
            return x
        return self.like.xp.astype(x, self.like.xp.float64, copy=False)

    @property
    def _off_centre(self) -> bool:
        """Whether the offset of sparse rows is not their own mean.

        The shortcuts of :meth:`covariance` and :meth:`gram` hold only for the rows' own mean.
        """
        return not self.own_mean and self.frame.offset is not None

    def _row_roots(self) -> Array:
        """Square roots of the row weights, ``(n,)`` in float64."""
        if self.root is not None:
            return self.wide(self.root)
        xp = self.like.xp
        return xp.ones(self.shape[0], dtype=xp.float64, device=self.like.device)


def check_own_scale(source: DataSource, scale: Any) -> None:
    """Refuse another scale than the one that the options of the data have set.

    Only of one that the user passes: new rows take the scale of their model.
    """
    own = None if scale is None else source.traits.scale
    if own is None:
        return
    values = None
    if not isinstance(scale, str):
        values = as_real(aligned_rows(scale, partial(column_labels, source), "scale"), "scale")
    if values is None or (values.shape == np.shape(own) and not np.allclose(values, own, atol=0)):
        shown = repr(scale) if values is None else "an array"
        raise ValueError(
            f"`scale`={shown} would replace the scale that {source!r} has from its own options "
            "(`weights` of fields, `standardise` of genotypes). Leave out one of the two."
        )
