"""Batches of rows, each seen once, as one sketch: what ``partial_fit`` keeps and works with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from primedpca._certify.sketch_bounds import sketch_certificate
from primedpca._core.arrays import check_whole_numbers, is_sparse, to_numpy, work_dtype
from primedpca._core.blas import one_blas_thread
from primedpca._operator import statistics as frames
from primedpca._operator.one_pass import stream
from primedpca._operator.operator import Centred
from primedpca._operator.preparation import stored_means
from primedpca._solve.refine import decomposition
from primedpca.priming import FrequentDirections
from primedpca.priming.sketch import ROOM, SketchState, take_in
from primedpca.protocols import DataSource
from primedpca.result import Certificate, Decomposition
from primedpca.sources.base import OneBlock

__all__ = ["Stream", "as_weights", "found_by", "same_scale", "taken_in", "worked_in"]


class Stream(NamedTuple):
    """All that is kept of the rows seen so far; nothing in it is ever written to.

    Attributes
    ----------
    sketch : SketchState
        Of the rows that are worked in.
    waiting : tuple of arrays of shape (r, d)
        Rows that came after, until there are enough to be worked in together.
    weights : tuple of arrays of shape (r,)
        Theirs.
    size : int
        Directions that the sketch keeps.
    rows, counted : int
        All rows seen, and those of positive weight.
    single : bool
        Whether all of them came in types that float32 holds.
    scale : array of shape (d,) or None
    """

    sketch: SketchState
    waiting: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...]
    size: int
    rows: int
    counted: int
    single: bool
    scale: np.ndarray | None


def taken_in(known: Stream, source: DataSource, weights: np.ndarray | None, center: bool) -> Stream:
    """The stream with the rows of a batch, worked in as often as enough of them wait."""
    single = known.single and work_dtype(source.dtype) == "float32"
    known = known._replace(single=single, rows=known.rows + source.shape[0])
    # With the row that leads from mean to mean as many as a shrunk sketch has room for.
    group = max(1, (ROOM - 1) * known.size - 1)
    for start, piece in _pieces(source, group):
        kept = to_numpy(piece.toarray() if is_sparse(piece) else piece)
        check_whole_numbers(kept, "`X`")  # no shift is fixed before all batches are seen
        rows = np.array(kept, np.float64)
        if not math.isfinite(_peak(rows)):
            frames.refuse_non_finite(Centred(source, float64=True))
        here = np.ones(len(rows)) if weights is None else weights[start : start + len(rows)]
        if not (here > 0).all():  # rows of weight zero are not there
            rows, here = rows[here > 0], here[here > 0]
        known = known._replace(counted=known.counted + len(rows))
        while len(rows):
            room = group - sum(map(len, known.weights))
            known = known._replace(
                waiting=(*known.waiting, rows[:room]), weights=(*known.weights, here[:room])
            )
            rows, here = rows[room:], here[room:]
            if sum(map(len, known.weights)) == group:
                known = worked_in(known, center)
    return known


def _pieces(source: DataSource, size: int) -> Iterator[tuple[int, Any]]:
    """Rows in order, at most ``size`` at a time, and the number of the first of them."""
    if source.axis == 1:
        for index, piece in source.batches(size, None):
            yield int(index[0]), piece
        return
    for i, block in source.scan():
        for a in range(0, block.shape[0], size):
            yield source.blocks[i][0] + a, block[a : a + size]


def worked_in(known: Stream, center: bool) -> Stream:
    """The stream with its waiting rows in the sketch."""
    if not known.waiting:
        return known
    with one_blas_thread():
        return _worked_in(known, center)


def _worked_in(known: Stream, center: bool) -> Stream:
    rows, here = np.concatenate(known.waiting), np.concatenate(known.weights)
    low, high, _ = frames.SAFE["float64"]
    ordinary = known.scale is None and known.sketch.unit == 1.0 and bool((here == 1).all())
    if ordinary and low <= _peak(rows) <= high:  # the same as below, in place
        shift = stored_means(rows, np.float64) if center else None
        rows -= 0.0 if shift is None else shift
        return known._replace(
            sketch=take_in(known.sketch, rows, None, shift), waiting=(), weights=()
        )
    data = Centred(OneBlock(rows), center=center, scale=known.scale, float64=True)
    if (here != 1).any():  # not by `sample_weight`, which asks for a sum above 1
        data.root, data.weight = np.sqrt(here), float(here.sum())
    sketch, priming = known.sketch, FrequentDirections(known.size)
    for part in stream(data, len(rows)):
        sketch = priming.step(sketch, part)
    return known._replace(sketch=sketch, waiting=(), weights=())


def _peak(rows: np.ndarray) -> float:
    """The largest entry without its sign; what is no number is no number."""
    return float(np.maximum(np.max(rows), -np.min(rows)))


def as_weights(sample_weight: Any, n: int) -> np.ndarray | None:
    """The weights of ``n`` rows, checked; their sum may be small, as more rows may come."""
    if sample_weight is None:
        return None
    weights = to_numpy(sample_weight).astype(np.float64)
    if weights.shape != (n,) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(
            f"`sample_weight` (shape {weights.shape}) must hold one finite number, at least 0, "
            f"for each of the {n} rows of `X`."
        )
    return weights


def same_scale(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Whether columns are divided by the same numbers."""
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def found_by(
    sketch: SketchState, scale: np.ndarray | None, k: int
) -> tuple[Decomposition, Certificate]:
    """The first ``k`` components of the rows in a sketch, and what is proven of them."""
    data = _seen_whole(sketch, scale)
    if k <= 0:
        return _of_nothing(data)
    basis, variances, proof = sketch_certificate(sketch, data, k)
    return decomposition(data, basis, variances), proof


def _seen_whole(sketch: SketchState, scale: np.ndarray | None) -> Centred:
    """The rows of a sketch as data whose mean and total variance are known, and nothing else."""
    d = sketch.sketch.shape[1]
    data = Centred(OneBlock(np.zeros((1, d))), center=sketch.center, scale=scale, float64=True)
    away = sketch.sums / sketch.weight if sketch.weight else sketch.sums
    mean = sketch.shift + (away if scale is None else away * scale)
    total = sketch.total / sketch.weight if sketch.weight else 0.0
    data.weight = sketch.weight
    data.frame = replace(data.frame, mean=mean, total=total, unit=sketch.unit, gain=sketch.unit)
    return data


def _of_nothing(data: Centred) -> tuple[Decomposition, Certificate]:
    """What is known of a single row: where it is."""
    none = np.zeros(0)
    found = Decomposition(
        components=np.zeros((0, data.shape[1])),
        explained_variance=none,
        mean=data.mean,
        scale=data.frame.scale,
        total_variance=0.0,
        n_samples=max(1.0, data.weight),
    )
    return found, Certificate(none, np.zeros((0, 2)), [], "deterministic", 0.0, none > 0)
