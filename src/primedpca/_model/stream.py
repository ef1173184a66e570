"""Streams of rows that arrive in batches and are read once: ``partial_fit`` and ``merge``."""

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from primedpca._certify.sketch_bounds import sketch_certificate
from primedpca._core.arrays import (
    as_real,
    check_extended,
    check_whole_numbers,
    is_sparse,
    to_numpy,
    work_dtype,
)
from primedpca._core.parameters import is_whole
from primedpca._core.process import keep_freed, one_blas_thread
from primedpca._core.units import as_bytes
from primedpca._core.wording import memory_words
from primedpca._model.attributes import attributes
from primedpca._operator import statistics
from primedpca._operator.one_pass import stream
from primedpca._operator.operator import Centred
from primedpca._operator.preparation import stored_means
from primedpca._operator.scaling import decomposition
from primedpca.priming import FrequentDirections
from primedpca.priming.column_sums import LEAST, ColumnSums, column_sums
from primedpca.priming.sketch import FOLD, ROOM, SketchState, Stream, merge, rescaled, take_in
from primedpca.protocols import DataSource, Traits, check_block, check_rows
from primedpca.result import Certificate, Decomposition, Plan, Status
from primedpca.sources.base import OneBlock
from primedpca.sources.maps import base_name

#: Maximum number of columns for which ``n_components=None`` keeps all directions.
ALL_TO = 512
#: Directions of a sketch per component, and in addition.  Measured on 20,000 images of CIFAR-10
#: with 16 components: 44, 64, 88, 128, 200 and 400 directions leave the worst component 1.5, 0.6,
#: 0.3, 0.14, 0.05 and 0.01 degrees off, in 0.7, 0.9, 1, 1.4, 2 and 4.7 times the time.
EACH, BESIDE = 1.5, 64
#: Peak memory per row of the sketch, in rows of ``d`` numbers, as measured.  It covers the old and
#: the new sketch, waiting rows, copies of them, and memory that the allocator keeps.
ROWS_ALIVE = 28
#: Rows that at least are folded together: every group takes a fixed time besides.
FOLDED = 1024
#: Growth of a deviation's power of two from which on the sketch is rescaled.
GROWN = 4
#: Largest change of a deviation without a warning where the intervals are wide.
CHANGED = 4.0
#: Magnitude below which distances between numbers may have squares that underflow.
TINY = 2.0**60 * LEAST
#: Fitted attributes that are computed from the sketch when one of them is first read.
LEARNT = (
    *(
        "components_",
        "mean_",
        "scale_",
        "center_",
        "standardised_",
        "fill_",
        "n_components_",
        "n_samples_",
        "explained_variance_",
    ),
    *("explained_variance_ratio_", "singular_values_", "noise_variance_", "status_"),
    *("converged_", "certificate_", "angle_bounds_", "n_passes_", "plan_", "history_"),
    "where_",
)


def component_count(n_components: Any, d: int) -> int:
    """Return the number of components to compute, checked against the ``d`` columns.

    Parameters
    ----------
    n_components : int or None
        ``None`` means all, for up to ``ALL_TO`` columns.
    d : int
        Number of columns.
    """
    k = n_components
    if k is None and d <= ALL_TO:
        return d
    if not is_whole(k) or k < 1:
        raise ValueError(f"`n_components`={k!r} must be a whole number, at least 1, for a stream.")
    if k > d:
        raise ValueError(f"`n_components`={k} exceeds n_features={d}. Use a smaller value.")
    return int(k)


def empty_stream(d: int, k: int, parameters: Mapping[str, Any]) -> Stream:
    """Return a stream before its first row.

    Parameters
    ----------
    d : int
        Number of columns.
    k : int
        Number of components, which determines the size of the sketch.
    parameters : mapping
        Parameters of the estimator.  ``priming``, ``scale``, ``center`` and ``max_memory`` are
        used.
    """
    priming = parameters["priming"]
    size = priming.sketch_size if isinstance(priming, FrequentDirections) else None
    if size is None:
        size = min(int(EACH * k) + BESIDE, max(k, d))
        budget, each = as_bytes(parameters["max_memory"]), 8.0 * d * ROWS_ALIVE
        if k * each > budget:
            words = f"`max_memory`={memory_words(budget)} is less than the"
            words = f"{words} {memory_words(k * each, up=True)}"
            raise ValueError(f"{words} that a sketch for `n_components`={k} needs. Raise it.")
        size = int(min(budget / each, size))
    keep_freed()  # each group of rows allocates and frees a few arrays of the sketch's size
    like = Centred(OneBlock(np.zeros((1, d)))).like
    center = bool(parameters["center"])
    sketch = FrequentDirections(size).init(like, k, 0)._replace(center=center)
    scaled, filled = _from_columns(parameters)
    columns = column_sums(d, scaled, filled) if scaled or filled else None
    return Stream(sketch, (), (), size, 0, 0, True, _as_scale(parameters["scale"]), columns)


def _from_columns(parameters: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether the deviations of the columns are the scale, and their means fill gaps."""
    scale = parameters["scale"]
    return isinstance(scale, str) and scale == "std", parameters["missing"] == "mean"


def check_source(source: Any, parameters: Mapping[str, Any]) -> None:
    """Raise ValueError for data that need all rows before the first is used."""
    scale, missing = parameters["scale"], parameters["missing"]
    known = Traits() if source is None else source.traits
    if isinstance(scale, str) and scale != "std":
        raise ValueError(f"`scale`={scale!r} must be None, 'std' or one number for each column.")
    if known.missing == "mean" and missing == "error":
        words = f"{source!r} fills gaps by the means of all rows. Open it with `missing`='error'"
    elif known.scale is not None and (scale is None or isinstance(scale, str)):
        words = f"{source!r} has a scale of its own. Pass one array as `scale` for all batches"
    else:
        return
    raise ValueError(f"{words}, or use `fit`.")


def check_unchanged(known: Stream, k: int, parameters: Mapping[str, Any]) -> None:
    """Raise ValueError for parameters that were changed since the first batch."""
    if k > known.size:
        words = f"`n_components`={k} exceeds {known.size}, the size of the sketch"
    elif known.sketch.center != bool(parameters["center"]):
        words = f"`center`={parameters['center']} differs from that of earlier batches"
    elif _from_columns(parameters) != _kinds(known):
        words = "`scale` or `missing` differs from that of earlier batches"
    elif not _kinds(known)[0] and not same_scale(_as_scale(parameters["scale"]), known.scale):
        words = "`scale` differs from that of earlier batches"
    else:
        return
    raise ValueError(f"{words}. Restore the earlier value, or start with a new model.")


def check_map(known: str | None, found: str | None) -> None:
    """Raise ValueError if rows to be added went through another map than those before them."""
    if known != found:
        before, now = ("no map" if name is None else f"the map {name}" for name in (known, found))
        raise ValueError(
            f"The rows have {now}, but those before them had {before}. Use the same for all rows."
        )


def check_same_map(fitted: str | None, found: str | None) -> None:
    """Raise ValueError if new rows have another map than a model; arrays may be mapped already."""
    if fitted is None or found is None or fitted == found:
        return
    remedy = "Use the same for all rows."
    if base_name(fitted) == base_name(found):
        remedy = (
            "The totals must be those of the same columns. Pass the rows as in the fit, "
            "with `columns` or `mask_var`, or map the data before columns are chosen."
        )
    raise ValueError(
        f"The rows have the map {found}, but the model was fitted with the map {fitted}. {remedy}"
    )


def check_layout(known: str | None, found: str | None) -> None:
    """Raise ValueError if columns mean something else than those of a model; arrays do not say."""
    if None not in (known, found) and known != found:
        raise ValueError(
            f"The columns of `X` are {found!r}, but those of the model are {known!r}. Bring fields "
            "to the same order, coordinates and mask (`transpose`, `sortby`, `mask`), genotypes to "
            "the same first alleles (plink --a1-allele), images to the same size."
        )


def _kinds(known: Stream) -> tuple[bool, bool]:
    return (False, False) if known.columns is None else known.columns[:2]


def _as_scale(scale: Any) -> np.ndarray | None:
    return None if scale is None or isinstance(scale, str) else as_real(scale, "scale")


def merged(one: Stream, other: Stream) -> Stream:
    """Return the stream of the rows of both, with a sketch of the size of the first."""
    mine, theirs = (worked_in(part, bool(part.sketch.center)) for part in (one, other))
    if _kinds(mine) != _kinds(theirs):
        raise ValueError("The models differ in `scale` or `missing`. Fit both with the same ones.")
    columns = mine.columns
    if columns is not None and theirs.columns is not None:
        columns = columns.joined(theirs.columns)
    if _kinds(mine)[0] and mine.scale is not None and theirs.scale is not None:
        mine, theirs = _in_one_scale(mine, theirs, columns)
    elif _kinds(mine)[0]:  # one of them has no rows
        mine = mine._replace(scale=theirs.scale if mine.scale is None else mine.scale)
    elif not same_scale(mine.scale, theirs.scale):
        raise ValueError("The two models have different `scale`. Fit both with the same one.")
    factor = None if mine.scale is None else 1 / mine.scale
    with one_blas_thread:
        sketch = merge(mine.sketch, theirs.sketch, factor)
    return mine._replace(
        sketch=sketch,
        rows=mine.rows + theirs.rows,
        counted=mine.counted + theirs.counted,
        single=mine.single and theirs.single,
        columns=columns,
    )


def fitted_by(
    known: Stream, n_components: int | None, tol: float, certified: bool
) -> dict[str, Any]:
    """Return the fitted attributes after the rows so far; the stream itself is not changed.

    Parameters
    ----------
    known : Stream
    n_components : int or None
        Number of components; ``None`` means all.
    tol : float
        Angle in radians that must be proven for ``converged_``.
    certified : bool
        Whether to return the certificate as well.
    """
    known = worked_in(known, known.sketch.center)
    whole = _finished(known)
    sketch, scale = whole.sketch, whole.scale
    d = sketch.sketch.shape[1]
    # Variances are divided by the weight minus 1, which must exceed its rounding error.
    enough = sketch.weight - 1 > (sketch.depth + 16) * 2.0**-50 * sketch.weight
    most = known.counted - bool(sketch.center) if enough else 0
    wanted = d if n_components is None else int(n_components)
    k = min(wanted, known.size, d, most)
    with one_blas_thread:
        found, proof = found_by(whole, k, _kinds(known)[1])
    if whole.change > CHANGED and _is_wide(proof):
        warnings.warn(_changed_words(whole.change), UserWarning, stacklevel=4)
    if known.single and (_kinds(known)[0] or not statistics.beyond_float32(scale)):
        cast = {"components": found.components.astype(np.float32)}
        cast["mean"] = found.mean.astype(np.float32)
        if scale is not None:
            statistics.check_deviations(scale, "float32")
            cast["scale"] = scale.astype(np.float32)
        if found.fill is not None:
            cast["fill"] = found.fill.astype(np.float32)
        # The sketch is of float64, so that the difference has more digits than float32.
        rest = found.total_variance - float(found.explained_variance.sum())
        found, proof = replace(found, **cast, left_out=rest), proof.rounded(2.0**-23)
    proven = k == wanted and bool(proof.met(tol).all())
    reason = "rows come in batches and are seen once"
    return {
        **attributes(
            found,
            max(k, 0),
            present=known.counted,
            center=bool(sketch.center),
            standardised=known.columns is not None and bool(known.columns.scaled),
        ),
        "status_": Status.CERTIFIED if proven else Status.STREAMED,
        "converged_": proven,
        "certificate_": proof if certified else None,
        "angle_bounds_": proof.angle_bounds.copy() if certified else None,
        "n_passes_": 1.0,
        "where_": "this machine",
        "history_": [],
        "plan_": Plan(FrequentDirections(known.size), wanted, known.size, reason),
    }


def taken_in(known: Stream, source: DataSource, weights: np.ndarray | None, center: bool) -> Stream:
    """Return the stream with the rows of a batch added.

    Rows wait until there are enough of them for an update of the sketch.

    Parameters
    ----------
    known : Stream
    source : DataSource
        The batch.
    weights : ndarray of shape (n,) or None
        Weights of its rows; ``None`` means 1.
    center : bool
        Whether the mean is subtracted.
    """
    single = known.single and work_dtype(source.dtype) == "float32"
    known = known._replace(single=single, rows=known.rows + source.shape[0])
    # As many as a shrunk sketch has room for, less one for the row that corrects the mean.  If
    # the sketch holds every direction, many rows are folded at a time.
    group, d = max(1, (ROOM - 1) * known.size - 1), source.shape[1]
    group = max(group, FOLDED, 2 * FOLD * d) if known.size >= d else group
    before, peaks = known, [_peaks(rows) for rows in known.waiting]
    tiny = False
    for start, piece in _pieces(source, group):
        kept = to_numpy(piece.toarray() if is_sparse(piece) else piece)
        # No shift is known before all batches have been read.
        check_whole_numbers(kept, "`X`")
        check_extended(kept, "`X`")
        rows = np.array(kept, np.float64)
        filled = known.columns is not None and known.columns.filled
        if np.isinf(rows).any() or not (filled or math.isfinite(_peak(rows))):
            missing = "mean" if filled else "error"
            whole = Centred(source, missing=missing, float64=True)
            statistics.refuse_non_finite(whole, whole.frame)
        here = np.ones(len(rows)) if weights is None else weights[start : start + len(rows)]
        if not (here > 0).all():  # rows of weight zero count as absent
            rows, here = rows[here > 0], here[here > 0]
        _refuse_huge(rows, here, known.columns is not None)
        if known.columns is not None:
            tiny |= bool(((rows != 0) & (np.abs(rows) < TINY)).any())
            peaks.append(_peaks(rows))
        known = known._replace(counted=known.counted + len(rows))
        while len(rows):
            room = group - sum(map(len, known.weights))
            known = known._replace(
                waiting=(*known.waiting, rows[:room]), weights=(*known.weights, here[:room])
            )
            rows, here = rows[room:], here[room:]
            if sum(map(len, known.weights)) == group:
                known = worked_in(known, center)
    if tiny:
        _refuse_tiny(before.columns, peaks)
    return known


def _peaks(rows: np.ndarray) -> np.ndarray:
    """Return the largest magnitude of every column; missing values count as 0."""
    found: np.ndarray = np.nan_to_num(np.abs(rows)).max(axis=0, initial=0.0)
    return found


def _refuse_tiny(columns: Any, peaks: list[np.ndarray]) -> None:
    """Refuse rows with a column of tiny numbers alone, as :func:`_refuse_huge` does.

    The squares of their distances from each other would underflow.

    Parameters
    ----------
    columns : ColumnSums
        Of the rows that were added before those of the ``peaks``.
    peaks : list of ndarray of shape (d,)
        Largest magnitudes of the rows that waited, and of those that came after them.
    """
    peak = np.max(peaks, axis=0, initial=0.0)
    known = np.abs(columns.mean) + columns.deviation
    peak = np.where(known >= TINY, np.maximum(peak, known), peak)
    below = np.flatnonzero((peak > 0) & (peak < TINY))
    if below.size:
        j = below[0]
        raise ValueError(
            f"Column {j} of `X` (counted from 0) holds nothing larger than {peak[j]:g}. In a "
            f"stream, sums of squares of numbers below {TINY:.1e} may be below the range of "
            "float64. Give the column in another unit."
        )


def _refuse_huge(rows: np.ndarray, weights: np.ndarray, scaled: bool) -> None:
    """Refuse rows after which no result could ever be computed, before they enter the sketch.

    A variance beyond float64 is an error where results are computed.  By then the row cannot be
    taken out again, and all rows before it would be lost.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Missing values are NaN.
    weights : ndarray of shape (n,)
        Positive.
    scaled : bool
        Whether sums of the columns are kept, which are not in a unit of their own.
    """
    # With sums, twice the largest value, times the root of its weight, must stay below 1 / LEAST.
    high = 0.25 / LEAST / math.sqrt(weights.max(initial=1.0)) if scaled else 2.0**512
    beyond = np.argwhere(np.abs(rows) >= high)
    if beyond.size:
        i, j = beyond[0]
        raise ValueError(
            f"`X` holds {rows[i, j]:g} in column {j} (counted from 0). In a stream, sums of "
            f"squares of numbers above {high:.1e} may be beyond the range of float64. Remove the "
            "row, or give the column in another unit."
        )


def _pieces(source: DataSource, size: int) -> Iterator[tuple[int, Any]]:
    """Yield the index of the first row, counted from 0, and at most ``size`` rows, in order."""
    if source.axis == 1:
        for index, piece in source.batches(size, None):
            check_rows(piece, index, source)
            yield int(index[0]), piece
        return
    for i, block in source.scan():
        check_block(block, source, i)
        for a in range(0, block.shape[0], size):
            yield source.blocks[i][0] + a, block[a : a + size]


def worked_in(known: Stream, center: bool) -> Stream:
    """Return the stream with its waiting rows added to the sketch."""
    if not known.waiting:
        return known
    with one_blas_thread:
        return _worked_in(known, center)


def _worked_in(known: Stream, center: bool) -> Stream:
    """Return the same as :func:`worked_in`, for a stream that has waiting rows."""
    rows, here = np.concatenate(known.waiting), np.concatenate(known.weights)
    if known.columns is not None:
        known, rows = _with_columns(known, rows, here)
    low, high, _ = statistics.SAFE["float64"]
    ordinary = known.scale is None and known.sketch.unit == 1.0 and bool((here == 1).all())
    top, bottom = rows.max(axis=0), rows.min(axis=0)
    ordinary = ordinary and low <= max(top.max(), -bottom.min()) <= high
    if ordinary and center:
        # A large constant column must not hide that squares of the other columns underflow.
        spread = float(np.max(top - bottom))
        ordinary = spread == 0 or spread >= low
    if ordinary:  # a shortcut that shifts the rows in place
        shift = stored_means(rows, np.float64) if center else None
        rows -= 0.0 if shift is None else shift
        return known._replace(
            sketch=take_in(known.sketch, rows, None, shift), waiting=(), weights=()
        )
    data = Centred(OneBlock(rows), center=center, scale=known.scale, float64=True)
    if (here != 1).any():  # not by `sample_weight`, whose sum would have to exceed 1
        data = data.view(root=np.sqrt(here), weight=float(here.sum()))
    sketch, priming = known.sketch, FrequentDirections(known.size)
    for _, part in stream(data, len(rows)):
        sketch = priming.step(sketch, part)
    return known._replace(sketch=sketch, waiting=(), weights=())


def _with_columns(known: Stream, rows: np.ndarray, here: np.ndarray) -> tuple[Stream, np.ndarray]:
    """Return the stream with the statistics of more rows, and the rows without gaps.

    The first rows determine the powers of two by which columns are divided, so that columns of
    large numbers do not fill the sketch.
    """
    columns: Any = known.columns
    center = bool(known.sketch.center)
    columns, rows = columns.add(rows, here).fill(rows, here)
    if columns.scaled and known.scale is None:
        known = known._replace(scale=columns.power_of_two(center))
    elif columns.scaled:
        known = _in_scale(known, _suited(known.scale, _undecided(known), columns, center))
    return known._replace(columns=columns), rows


def _suited(scale: Any, undecided: np.ndarray, columns: ColumnSums, center: bool) -> np.ndarray:
    """Return powers of two for rows that are to be added, with which the sums are up to date.

    Where a deviation has grown much, its power grows.  Otherwise the new rows would fill the
    sketch, and what they take from it would be lost in every other column, too.
    """
    found = columns.power_of_two(center)
    fresh = (undecided & ~columns.constant()) | (found >= GROWN * scale)
    chosen: np.ndarray = np.where(fresh, found, scale)
    return chosen


def _undecided(known: Stream) -> np.ndarray:
    """Mask of the columns that have been constant, so that any scale suits their rows so far."""
    columns: Any = known.columns
    # Values that were filled in may differ from those that are present.
    found: np.ndarray = columns.constant() & (columns.fills[0] == 0) & known.sketch.center
    return found


def _in_one_scale(mine: Stream, theirs: Stream, columns: Any) -> tuple[Stream, Stream]:
    """Return two streams by the larger scale of both, in which no loss grows."""
    free, other = _undecided(mine), _undecided(theirs)
    one, two = np.asarray(mine.scale), np.asarray(theirs.scale)
    larger = np.where(other, one, np.where(free, two, np.maximum(one, two)))
    common = _suited(larger, free & other, columns, bool(mine.sketch.center))
    return _in_scale(mine, common), _in_scale(theirs, common)


def _in_scale(known: Stream, scale: np.ndarray) -> Stream:
    """Return the stream with its rows divided by other powers of two, which rounds nothing.

    Columns that have been constant are zero in the exact sketch: there, rounding is left out, and
    nothing grows with their factors.
    """
    sketch, columns = known.sketch, known.columns
    if columns is None or known.scale is None or same_scale(known.scale, scale):
        return known._replace(scale=scale)
    factor = known.scale / scale
    free = _undecided(known) & (factor != 1)
    moved, sums = rescaled(sketch, np.where(free, 0.0, factor)), sketch.sums * factor
    spread = (columns.spread + columns.error) * free
    left = math.sqrt(float(np.sum(_times_square(spread, sketch.unit / scale))))
    # All rows of a constant column are equally far from the shift, up to its rounding.
    away = float(np.abs(sums[free]).sum()) + math.sqrt(sketch.weight) * left
    size = math.sqrt(float(np.sum(moved.sketch**2)) + moved.loss + moved.rounding)
    rounding = moved.rounding + (2 * size + left) * left
    moved = moved._replace(sums=sums, reach=moved.reach + 2 * away, rounding=rounding)
    return known._replace(sketch=moved, scale=scale)


class Finished(NamedTuple):
    """Sketch of all rows in the final scale.

    Attributes
    ----------
    sketch : SketchState
    scale : array of shape (d,) or None
    most : float, default=inf
        Upper bound on the total, where the columns are summed up.
    change : float, default=1.0
        Largest factor by which a deviation has become smaller than what rows were divided by.
    """

    sketch: SketchState
    scale: np.ndarray | None
    most: float = math.inf
    change: float = 1.0


def _finished(known: Stream) -> Finished:
    """Return the sketch with the deviations of all rows as the scale.

    What was filled in for missing values differs from the final means, and deviations are rounded.
    Both errors of the scatter are bounded, and added to those of rounding.
    """
    sketch, scale, columns = known.sketch, known.scale, known.columns
    if columns is None or not sketch.weight:
        return Finished(sketch, scale)
    slip, factor, loss = 0.0, np.ones_like(columns.spread), sketch.loss
    if columns.scaled:
        first, (scale, slip) = scale, columns.deviations(sketch.weight, bool(sketch.center))
        still = columns.constant() & sketch.center  # no rounding errors are left of them
        factor = np.where(still, 0.0, first / scale)
        sketch = rescaled(sketch, factor)
    unit = sketch.unit / (1.0 if scale is None else scale)
    with np.errstate(over="ignore"):
        gaps = math.sqrt(float(np.sum(_times_square(columns.fill_error() * (factor > 0), unit))))
        square = columns.spread * (factor > 0)
        square = square if sketch.center else square + columns.mean**2 * sketch.weight
        total = float(np.sum(_times_square(square, unit)))
    top = float(np.linalg.norm(sketch.sketch, 2)) ** 2 if len(sketch.sketch) else 0.0
    size = math.sqrt(top + sketch.loss + sketch.rounding)
    error = (2 * size + gaps) * gaps + (2 + slip) * slip * (size + gaps) ** 2
    mean = (columns.mean * sketch.unit - sketch.shift) / (1.0 if scale is None else scale)
    sketch = sketch._replace(
        sums=mean * sketch.weight, total=total, rounding=sketch.rounding + error
    )
    each = columns.upper_squares(sketch.weight, sketch.center) * (factor > 0)
    each = _times_square(each, unit) * (1 + slip) ** 2 * (1 + (sketch.depth + 64) * 2.0**-50)
    if columns.scaled:
        sketch = sketch._replace(loss=_loss_of(sketch, loss * factor**2, each))
    most = float(each.sum()) * (1 + each.size * 2.0**-50)
    return Finished(sketch, scale, most, float(factor.max(initial=0.0)))


def _loss_of(sketch: SketchState, losses: np.ndarray, each: np.ndarray) -> float:
    """Return the smallest bound on the scatter that a rescaled sketch has lost in any direction.

    It is the loss of some columns, those with the smallest, plus all that the sketch lacks of the
    variances of the others.  ``docs/certificates.md``, section 7, derives it.

    Parameters
    ----------
    sketch : SketchState
        With the rounding errors of all that was done.
    losses : ndarray of shape (d,)
        Bound on what was lost in directions within columns of this loss or a smaller one.
    each : ndarray of shape (d,)
        Upper bound on the sum of squares of each column.
    """
    held = np.sum(sketch.sketch**2, axis=0) * (1 - (len(sketch.sketch) + 8) * 2.0**-52)
    lacking = np.maximum(each - held, 0.0) + 2 * sketch.rounding
    order = np.argsort(losses)
    # Beyond the columns of each split, summed up from the column of the largest loss.
    beyond = np.concatenate([np.cumsum(lacking[order][::-1])[::-1], [0.0]])
    within = np.concatenate([[0.0], losses[order]])
    return min(sketch.loss, float(np.min(within + beyond)) * (1 + losses.size * 2.0**-50))


def _times_square(values: np.ndarray, unit: np.ndarray | float) -> np.ndarray:
    """Return ``values * unit**2`` where squares of some units may leave the range of float64."""
    power = np.ldexp(1.0, np.frexp(unit)[1])
    product: np.ndarray = values * power * power * (unit / power) ** 2
    return product


def _peak(rows: np.ndarray) -> float:
    """Return the largest magnitude; NaN if there is a NaN."""
    return float(np.maximum(np.max(rows), -np.min(rows)))


def as_weights(sample_weight: Any, n: int) -> np.ndarray | None:
    """Return the checked weights of ``n`` rows in float64, or None.

    Their sum may be 1 or less, because more rows may follow.
    """
    if sample_weight is None:
        return None
    weights = as_real(sample_weight, "sample_weight")
    statistics.check_weights(weights, n)
    return weights


def same_scale(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Whether two scales are equal, or both None."""
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def _is_wide(proof: Certificate) -> bool:
    """Whether a variance is known only within a factor of more than two."""
    low, high = proof.eigenvalue_bounds.T
    return bool((high > 2 * low)[~proof.zero].any())


def _changed_words(change: float) -> str:
    return (
        f"The standard deviation of a column became {change:.0e} times smaller after its first "
        "batches, so little is known of the variances. Divide the columns by known numbers "
        "(`scale`=array), or use `fit`."
    )


def found_by(whole: Finished, k: int, filled: bool) -> tuple[Decomposition, Certificate]:
    """Return the first ``k`` components of the rows in a sketch, and their certificate."""
    data = _seen_whole(whole.sketch, whole.scale, "mean" if filled else "error")
    if k <= 0:
        return _of_nothing(data)
    basis, variances, proof = sketch_certificate(whole.sketch, data, k, whole.most)
    return decomposition(data, basis, variances), proof


def _seen_whole(sketch: SketchState, scale: np.ndarray | None, missing: str) -> Centred:
    """Return a placeholder operator that has the mean, total and weight of the sketched rows.

    Its rows are zeros: only its statistics are used.
    """
    d = sketch.sketch.shape[1]
    rows, center = OneBlock(np.zeros((1, d))), sketch.center
    data = Centred(rows, center=center, scale=scale, missing=missing, float64=True)
    away = sketch.sums / sketch.weight if sketch.weight else sketch.sums
    mean = sketch.shift + (away if scale is None else away * scale)
    total = sketch.total / sketch.weight if sketch.weight else 0.0
    frame = replace(data.frame, mean=mean, total=total, unit=sketch.unit, gain=sketch.unit)
    return data.view(weight=sketch.weight, frame=frame)


def _of_nothing(data: Centred) -> tuple[Decomposition, Certificate]:
    """Return a decomposition without components, for fewer than two rows, and its certificate."""
    none = np.zeros(0)
    found = Decomposition(
        components=np.zeros((0, data.shape[1])),
        explained_variance=none,
        mean=data.mean,
        scale=data.frame.scale,
        total_variance=0.0,
        n_samples=max(1.0, data.weight),
        fill=data.fill,
    )
    return found, Certificate(none, np.zeros((0, 2)), [], "deterministic", 0.0, none > 0)
