"""Rows in the plane of two components: scores, their labels, and biplots."""

from itertools import cycle, islice
from typing import Any

import numpy as np

from primedpca._core.arrays import as_real, is_dense, to_numpy
from primedpca._io.score_file import is_missing
from primedpca._model.columns import correlations
from primedpca._model.tables import check_score_names
from primedpca.plots import canvas
from primedpca.sources.memory.frames import without_index

MANY = 100_000  # points; of more, the density is drawn
LARGE = 2_000  # points; more are rasterised, also in vector formats
MOST_ARROWS = 500
SHORTEST = 0.15  # of the longest arrow; the name of a shorter one would hide the arrow
SECOND_AXES = (36.0, 18.0)  # points that the ticks of arrows take, right and above
ROOM = 0.06  # margin, as a fraction of the range of the data
ARROW = 0.8  # R draws arrows to this fraction of their length, to leave room for names
#: After Okabe and Ito, the highest contrast first; marks distinguish equal colours.
COLOURS = (
    *(canvas.BLUE, canvas.RED, canvas.GREEN, canvas.PURPLE, "#E69F00", "#56B4E9"),
    *("#8C8C8C", "#7B5CD6", "#B8A800", "#A6761D"),
)
MARKS = "os^DvPX*"
ABOVE, ONE_COLUMN = 5, 16  # names in a legend above the axes, and in one column beside them
MOST = 24  # labels with a mark of their own; the rarest of more are put together
#: Hexagonal cells without visible edges.
CELLS: dict[str, Any] = {"gridsize": 70, "mincnt": 1, "linewidths": 0.3, "edgecolors": "face"}
HEAD = {"arrowstyle": "->", "color": canvas.RED, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}
WHOLE = 12  # up to so many different integers are names, not numbers
UNKNOWN = "unknown"  # what stands for a missing label
GREY = "#999999"  # of unknown labels beside numbers
#: Numbers or indices into names, the names or None for numbers, and the title.
Labels = tuple[np.ndarray, list[str] | None, str]


@canvas.figure_if_new
def scores(
    scores: Any,
    components: tuple[int, int] = (0, 1),
    labels: Any = None,
    ax: Any = None,
    model: Any = None,
) -> Any:
    """Draw rows in the plane of two components.

    Parameters
    ----------
    scores : array of shape (n, k)
        Result of ``model.transform(X)``.  Above 100,000 rows the density is drawn: the number of
        rows in each cell, or their mean or most frequent label.
    components : pair of int, default=(0, 1)
        Indices from 0; a single component is drawn against the row number.
    labels : array of shape (n,), optional
        Strings, booleans and at most 12 different integers get a legend, other numbers a colour
        bar.  Missing labels, such as None, NaN, empty and masked ones, are called unknown.
    ax : matplotlib.axes.Axes, optional
    model : PrimedPCA, optional
        Source of the explained variance ratios in the axis labels.

    Returns
    -------
    matplotlib.figure.Figure
        Or ``ax``, if that was given.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> iris = load_iris()
    >>> pca = PrimedPCA(2)
    >>> figure = plots.scores(pca.fit_transform(iris.data), labels=iris.target, model=pca)
    >>> figure.axes[0].get_xlabel()
    'component 1 (92.5 % of the variance)'
    """
    rows = _checked_scores(scores, None if model is None else canvas.fitted(model))
    n, k = rows.shape
    i, j = _pair(components, k)
    x, y, across = rows[:, i], rows[:, j], _axis_name(i, model)
    if k == 1:
        x, across = np.arange(1.0, n + 1), "row"
    known = None if labels is None else _as_labels(labels, n)
    ax = canvas.axes(ax, 5.0 + _room_for(known), 4.2)
    (_density if n > MANY else _points)(ax, x, y, known)
    ax.set(xlabel=across, ylabel=_axis_name(j, model))
    from matplotlib.ticker import MaxNLocator

    if isinstance(ax.xaxis.get_major_locator(), MaxNLocator):  # the user may have set another one
        # A legend beside the axes leaves room for so many ticks.
        ax.xaxis.get_major_locator().set_params(nbins=5 if np.abs(x).max() >= 1e4 else 7)
    return ax


def _checked_scores(scores: Any, model: Any) -> np.ndarray:
    """Return ``scores`` as a finite array ``(n, k)`` that matches the model, if there is one."""
    scores = without_index(scores)
    check_score_names(scores, "scores")
    rows = as_real(scores, "scores")
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"`scores` must have shape (n > 0, k), got {rows.shape}. Use `transform`.")
    k = rows.shape[1] if model is None else model.components_.shape[0]
    if rows.shape[1] != k:
        raise ValueError(f"`scores` must be of this model, with {k} columns, got {rows.shape[1]}.")
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if wrong.size:
        raise ValueError(f"`scores`[{wrong[0]}] has a non-finite value. Remove such rows.")
    return rows


def _pair(components: Any, k: int) -> tuple[int, int]:
    """Return two valid indices, from 0; the only component of a model is returned twice."""
    pair = tuple(components) if hasattr(components, "__len__") else (components,)
    if k == 1 and pair == (0, 1):
        return 0, 0
    whole = all(isinstance(i, (int, np.integer)) and 0 <= i < k for i in pair)
    if k == 1 or len(pair) != 2 or not whole:
        raise ValueError(
            f"`components`={components!r} must be two indices from 0 to {k - 1}, of {k} components."
        )
    return int(pair[0]), int(pair[1])


def _axis_name(component: int, model: Any) -> str:
    """Return an axis label such as ``component 1 (23.4 % of the variance)``."""
    ratio = "" if model is None else canvas.percent(model, component)
    words = f" ({ratio} of the variance)" if ratio else ""
    whitened = ", whitened" if getattr(model, "whiten", False) else ""
    return f"component {component + 1}{whitened}{words}"


@canvas.figure_if_new
def correlation_circle(
    model: Any,
    X: Any = None,  # noqa: N803
    components: tuple[int, int] = (0, 1),
    names: Any = None,
    ax: Any = None,
    *,
    n_names: int = 20,
    sample_weight: Any = None,
) -> Any:
    """Draw the correlations of columns with two components as arrows in the unit circle.

    An arrow that nearly reaches the circle is a column that the two components explain; two such
    arrows side by side are correlated columns, opposite ones negatively correlated, and arrows at a
    right angle uncorrelated.

    Parameters
    ----------
    model : PrimedPCA
        Fitted, with at least two components.
    X : data of shape (n, d), optional
        Rows from which the correlations are computed, in three passes.  Not needed for those of
        the fit with ``scale="std"``.
    components : pair of int, default=(0, 1)
        Indices from 0.
    names : sequence of str of length d, optional
        Names of the columns, default=those that the model was fitted with.
    ax : matplotlib.axes.Axes, optional
    n_names : int, default=20
        Maximum number of named arrows: the longest, as in :func:`biplot`.
    sample_weight : array of shape (n,), optional
        Weights of the rows of ``X``: those of the fit, if it had any.

    Returns
    -------
    matplotlib.figure.Figure
        Or ``ax``, if that was given.
    """
    canvas.fitted(model)
    k = model.components_.shape[0]
    if k < 2:
        raise ValueError(f"The circle needs two components, but the model has {k}. Fit more.")
    i, j = _pair(components, k)
    ends = correlations(model, X, sample_weight)[:, [i, j]]
    ax = canvas.axes(ax, 5.0, 5.0)
    from matplotlib.patches import Circle

    ax.add_patch(Circle((0, 0), 1.0, fill=False, edgecolor=canvas.ink(ax), linewidth=0.8))
    order = np.argsort(-np.linalg.norm(ends, axis=1), kind="stable")[:MOST_ARROWS]
    _named_arrows(ax, ends[order], canvas.feature_names(model, order, names), n_names)
    ax.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
    ax.set(xlabel=_axis_name(i, model), ylabel=_axis_name(j, model))
    return ax


@canvas.figure_if_new
def biplot(
    model: Any,
    scores: Any,
    components: tuple[int, int] = (0, 1),
    scale: float = 1.0,
    names: Any = None,
    ax: Any = None,
    *,
    labels: Any = None,
    n_names: int = 12,
) -> Any:
    r"""Draw rows as points and columns as arrows, scaled as ``biplot`` of R scales ``prcomp``.

    With :math:`s_i = (\sqrt{\lambda_i n})^{scale}` points lie at :math:`t_i / s_i` and arrows
    end at :math:`0.8\, v_{ji} s_i`.  The arrows have axes of their own (top and right), scaled by
    one factor so that the largest coordinates of points and arrows coincide.  ``scale=1``
    preserves inner products of arrows (covariances of columns, times n), and ``scale=0``
    preserves distances between points.

    Parameters
    ----------
    model : PrimedPCA
        Fitted, with at least two components.
    scores : array of shape (n, k)
        Result of ``model.transform(X)``, or some rows of it.
    components : pair of int, default=(0, 1)
        Indices from 0.
    scale : float in [0, 1], default=1.0
    names : sequence of str of length d, optional
        Names of the columns, default=those that the model was fitted with.
    ax : matplotlib.axes.Axes, optional
    labels : array of shape (n,), optional
        Classes or numbers that colour the points, as in :func:`scores`.
    n_names : int, default=12
        Maximum number of named arrows: the longest.  Names keep clear of each other and of the
        heads of arrows; a line joins a name to its arrow where there is no room beside it, and a
        name for which there is no room at all is left out.  At most the 500 longest arrows are
        drawn, those without a name faint.

    Returns
    -------
    matplotlib.figure.Figure
        Or ``ax``, if that was given.
    """
    rows = _checked_scores(scores, canvas.fitted(model))
    k = model.components_.shape[0]
    if k < 2:
        raise ValueError(f"A biplot needs two components, but the model has {k}. Fit more.")
    pair = _pair(components, k)
    points, arrows = _scaled(model, rows, pair, scale)
    known = None if labels is None else _as_labels(labels, len(rows))
    ax = canvas.axes(ax, 5.0 + _room_for(known, all_kinds=True), 5.0)
    low, high, ratio = _ranges(points, arrows)
    span = high - low
    _points(ax, points[:, 0], points[:, 1], known, SECOND_AXES, {"alpha": 0.6})
    order = np.argsort(-np.linalg.norm(arrows, axis=1), kind="stable")[:MOST_ARROWS]
    _named_arrows(
        ax, ARROW * arrows[order] / ratio, canvas.feature_names(model, order, names), n_names
    )
    limits = (low - ROOM * span, high + ROOM * span)
    ax.set(xlim=limits, ylim=limits, aspect="equal")
    if _room_for(known):
        ax.set_anchor("W")  # what square axes leave free is then beside them, for the legend
    ax.set(xlabel=_axis_name(pair[0], model), ylabel=_axis_name(pair[1], model))
    from matplotlib.ticker import MaxNLocator

    for second, place in ((ax.secondary_xaxis, "top"), (ax.secondary_yaxis, "right")):
        own = second(place, functions=(lambda v: v * ratio, lambda v: v / ratio), color=canvas.RED)
        axis = own.xaxis if place == "top" else own.yaxis
        axis.set_major_locator(MaxNLocator(6))
        canvas.write_out(axis)
    return ax


def _scaled(
    model: Any, rows: np.ndarray, pair: tuple[int, int], scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the points ``(n, 2)`` and the ends of the arrows ``(d, 2)``."""
    if not 0 <= scale <= 1:
        raise ValueError(f"`scale`={scale} must lie in [0, 1]. The default of R is 1.")
    chosen = list(pair)
    deviations = np.sqrt(np.asarray(model.explained_variance_, dtype=np.float64)[chosen])
    if scale > 0 and not (deviations > 0).all():
        raise ValueError(f"`components`={pair} have no variance. Choose others, or `scale`=0.")
    stretch = (deviations * np.sqrt(model.n_samples_)) ** scale
    points = rows[:, chosen] * (deviations if getattr(model, "whiten", False) else 1.0)
    return points / stretch, model.components_[chosen].T.astype(np.float64) * stretch


def _ranges(points: np.ndarray, arrows: np.ndarray) -> tuple[float, float, float]:
    """Return the limits of both axes, and the ratio of the arrows' limits to them.

    As in R: each range is widened to contain zero, the points have one range for both axes, and
    the ratio is the largest over all four ends.
    """
    reach = [-np.abs(points.min(axis=0)).max(), np.abs(points.max(axis=0)).max()]
    ends = np.stack([-np.abs(arrows.min(axis=0)), np.abs(arrows.max(axis=0))])
    return float(reach[0]), float(reach[1]), float((ends / np.array(reach)[:, None]).max())


def _named_arrows(ax: Any, ends: np.ndarray, words: list[str], n_names: int) -> None:
    """Draw arrows from zero, the longest first: so many with heads and names, the others faint."""
    from matplotlib.collections import LineCollection

    from primedpca.plots.placement import Names

    lengths = np.linalg.norm(ends, axis=1)
    count = int((lengths[:n_names] > SHORTEST * lengths[0]).sum())
    others = ends[count:]
    faint = np.stack([np.zeros_like(others), others], axis=1)
    ax.add_collection(LineCollection(list(faint), colors=canvas.RED, linewidths=0.6, alpha=0.25))
    for end in ends[:count]:
        ax.annotate("", xy=end, xytext=(0, 0), arrowprops=HEAD)
    Names(ax, ends[:count], words[:count], origin=(0.0, 0.0))


def _as_labels(labels: Any, n: int) -> Labels:
    """Classify labels: strings, booleans and few integers are names, others are numbers."""
    (title,) = canvas.literals([str(getattr(labels, "name", None) or "")], [""])
    values = label_values(labels)
    if values.shape != (n,):
        raise ValueError(f"`labels` has shape {values.shape}. Pass one for each of {n} rows.")
    kind = values.dtype.kind
    words, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if kind == "f" or (kind in "iu" and words.size > WHOLE):
        return values.astype(np.float64), None, title
    names = canvas.literals([str(word) for word in words], [str(i + 1) for i in range(words.size)])
    if len(names) <= MOST:
        return codes, names, title
    kept = np.sort(np.argsort(-counts, kind="stable")[: MOST - 1])
    place = np.full(len(names), MOST - 1)
    place[kept] = np.arange(MOST - 1)
    rest = f"{len(names) - MOST + 1} others"
    return place[codes], [*(names[i] for i in kept), rest], title


def label_values(labels: Any) -> np.ndarray:
    """Return labels as numbers, NaN where one is missing, or as text, ``UNKNOWN`` there.

    Examples
    --------
    >>> label_values(["a", None, b"b", ""])
    array(['a', 'unknown', 'b', 'unknown'], dtype=object)
    """
    if isinstance(labels, np.ma.MaskedArray) and np.ma.is_masked(labels):
        mask, number = np.ma.getmaskarray(labels), labels.dtype.kind in "iuf"
        labels = np.array(labels.data, dtype=np.float64 if number else object)
        labels[mask] = np.nan if number else None
    values = to_numpy(labels) if is_dense(labels) else np.asarray(labels)
    if values.dtype.kind in "iubf":
        return values
    # Objects, because the longest of many texts would set the width of all.
    words = np.array([_word(value) for value in values.ravel()], dtype=object)
    return words.reshape(values.shape)


def _word(value: Any) -> str:
    if is_missing(value):
        return UNKNOWN
    if isinstance(value, bytes):  # as HDF5 stores text
        value = value.decode(errors="backslashreplace")
    return str(value) or UNKNOWN


def _room_for(labels: Labels | None, all_kinds: bool = False) -> float:
    """Return the width in inches of what stands beside the axes: a long legend or a colour bar.

    Axes that are square leave no room for a colour bar either: ``all_kinds`` counts it.
    """
    if labels is None or (labels[1] is not None and len(labels[1]) <= ABOVE):
        return 0.0
    if labels[1] is None:
        return 0.9 if all_kinds else 0.0
    columns = 1 + (len(labels[1]) > ONE_COLUMN)
    beside = SECOND_AXES[0] / 72 if all_kinds else 0.0
    return beside + columns * (0.55 + 0.08 * max(map(len, labels[1])))


def _points(
    ax: Any,
    x: np.ndarray,
    y: np.ndarray,
    labels: Labels | None,
    room: tuple[float, float] = (0.0, 0.0),
    more: Any = None,
) -> None:
    """Draw points with a colour and a mark for each name, or with a colour bar.

    ``room`` is the space in points to leave right of and above the axes, before a legend.
    """
    size = float(np.clip(12000 / x.size, 3.0, 24.0))
    look = {"s": size, "linewidths": 0, "alpha": 0.8, "rasterized": x.size > LARGE} | (more or {})
    if labels is None:
        ax.scatter(x, y, color=canvas.BLUE, **look)
        return
    values, names, title = labels
    if names is None:
        known = np.isfinite(values)
        if not known.all():
            ax.scatter(x[~known], y[~known], color=GREY, label=UNKNOWN, **look)
            ax.legend(loc="best")
        drawn = ax.scatter(x[known], y[known], c=values[known], cmap="viridis", **look)
        ax.figure.colorbar(drawn, ax=ax, label=title or "label")
        return
    if x.size > LARGE:
        # In random order, so that no label covers the others.
        order = np.random.default_rng(0).permutation(x.size)
        ax.scatter(x[order], y[order], c=np.array(_colours(len(names)))[values[order]], **look)
        look["rasterized"] = False
        x = y = values = np.empty(0)  # only the legend remains to be drawn
    handles = []
    for i, (name, colour) in enumerate(zip(names, _colours(len(names)), strict=True)):
        here = values == i
        # Repeated colours get another mark.
        mark = MARKS[(i + i // len(COLOURS)) % len(MARKS)]
        handles.append(ax.scatter(x[here], y[here], color=colour, marker=mark, label=name, **look))
    _legend(ax, handles, names, title, room)
    for handle in ax.get_legend().legend_handles:
        handle.set(alpha=1.0, sizes=[24.0])


def _density(ax: Any, x: np.ndarray, y: np.ndarray, labels: Labels | None) -> None:
    """Colour each cell by its number of rows, mean number, or most frequent name."""
    values, names, title = labels or (np.zeros(x.size), None, "")
    if names is None:
        known, words = np.isfinite(values), "rows in a cell"
        look: dict[str, Any] = {"bins": "log"}
        if labels is not None:
            look, words = {"C": values[known]}, f"mean of {title or 'the label'} in a cell"
        if not known.all():
            _unknown_cells(ax, x, y, known)
            look["extent"] = (x.min(), x.max(), y.min(), y.max())  # the same cells for both
        cells = ax.hexbin(x[known], y[known], cmap="viridis", **look, **CELLS)
        ax.figure.colorbar(cells, ax=ax, label=words)
        return
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    colours = _colours(len(names))
    limits = {"cmap": ListedColormap(colours), "vmin": -0.5, "vmax": len(names) - 0.5}
    ax.hexbin(x, y, C=values, reduce_C_function=_most_frequent, **limits, **CELLS)
    pairs = zip(colours, names, strict=True)
    handles = [Patch(color=colour, label=name) for colour, name in pairs]
    _legend(ax, handles, names, "most frequent" + (f" {title}" if title else ""))


def _unknown_cells(ax: Any, x: np.ndarray, y: np.ndarray, known: np.ndarray) -> None:
    """Draw the cells of rows without a label in grey, where rows with labels do not cover them."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    extent = (x.min(), x.max(), y.min(), y.max())
    ax.hexbin(x[~known], y[~known], extent=extent, cmap=ListedColormap([GREY]), **CELLS)
    ax.legend(handles=[Patch(color=GREY, label=UNKNOWN)], loc="best")


def _colours(count: int) -> list[str]:
    return list(islice(cycle(COLOURS), count))


def _most_frequent(codes: Any) -> int:
    return int(np.bincount(np.asarray(codes, dtype=np.int64)).argmax())


def _legend(
    ax: Any,
    handles: list[Any],
    names: list[str],
    title: str,
    room: tuple[float, float] = (0.0, 0.0),
) -> None:
    """Put a short legend above the axes and a long one beside them, never on points."""
    from matplotlib.transforms import ScaledTranslation

    marks = [str(i) for i in range(len(names))]
    moved = ScaledTranslation(room[0] / 72, 0, ax.figure.dpi_scale_trans)
    if len(names) <= ABOVE:
        moved = ScaledTranslation(0, room[1] / 72, ax.figure.dpi_scale_trans)
        longest = max(map(len, names))
        columns = max(1, 50 // (longest + 6))
        where = {"bbox_transform": ax.transAxes + moved}
        canvas.legend_above(ax, columns, handles, marks, title=title or None, **where)
    else:
        beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        beside |= {"ncols": 1 + (len(names) > ONE_COLUMN), "bbox_transform": ax.transAxes + moved}
        ax.legend(handles, marks, title=title or None, **beside)
    # Matplotlib leaves out names that begin with an underscore, so names are written afterwards.
    for text, name in zip(ax.get_legend().get_texts(), names, strict=True):
        text.set_text(name)
