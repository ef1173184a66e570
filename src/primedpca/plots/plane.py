"""Rows in the plane of two components, alone or with the columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca.arrays import to_numpy
from primedpca.plots.canvas import (
    BLUE,
    RED,
    canvas,
    feature_names,
    fitted,
    ink,
    percent,
)
from primedpca.plots.labels import Labels, as_labels, density_by_label, points_by_label

__all__ = ["biplot", "scores"]

MANY = 100_000  # points; above, how dense they lie is drawn
LARGE = 2_000  # points; above, they are drawn as pixels also in vector formats
MOST_ARROWS = 500
ARROW = 0.8  # R draws arrows to this part of their length, so that names stand at the end


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
        What ``model.transform(X)`` returned.  Above 100,000 rows the picture is one of
        densities: how many rows lie in a cell, or their mean or most frequent label.
    components : pair of int
        Which ones, counted from 0; with one component only, rows are drawn along their number.
    labels : array of shape (n,), optional
        Words, truth values or at most 12 different whole numbers get a legend, other numbers a
        colour bar.
    ax : matplotlib.axes.Axes, optional
    model : PrimedPCA, optional
        For the shares of the variance in the names of the axes.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> iris = load_iris()
    >>> pca = PrimedPCA(2)
    >>> ax = plots.scores(pca.fit_transform(iris.data), labels=iris.target, model=pca)
    >>> ax.get_xlabel()
    'component 1 (92.5 % of the variance)'
    """
    rows = _checked_scores(scores, None if model is None else fitted(model))
    x, y, names = _coordinates(rows, components, model)
    known = None if labels is None else as_labels(labels, x.size)
    ax = canvas(ax, 5.0, 4.2)
    if x.size > MANY:
        _density(ax, x, y, known)
    else:
        _points(ax, x, y, known)
    ax.set(xlabel=names[0], ylabel=names[1])
    return ax


def _checked_scores(scores: Any, model: Any) -> np.ndarray:
    rows = to_numpy(scores)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(
            f"`scores` must have shape (n, k), at least one row, got {rows.shape}; give what "
            "`transform` returned."
        )
    if model is not None and rows.shape[1] != model.components_.shape[0]:
        raise ValueError(
            f"`scores` have {rows.shape[1]} columns, but the model has "
            f"{model.components_.shape[0]} components; give what its `transform` returned."
        )
    rows = rows.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if wrong.size:
        raise ValueError(f"`scores` are not finite in row {wrong[0]}; leave such rows out.")
    return rows


def _coordinates(
    rows: np.ndarray, components: Any, model: Any
) -> tuple[np.ndarray, np.ndarray, tuple[str, str]]:
    n, k = rows.shape
    i, j = _pair(components, k)
    if k == 1:
        return np.arange(1.0, n + 1), rows[:, 0], ("row", _axis_name(0, model))
    return rows[:, i], rows[:, j], (_axis_name(i, model), _axis_name(j, model))


def _pair(components: Any, k: int) -> tuple[int, int]:
    pair = tuple(components) if hasattr(components, "__len__") else (components,)
    if k == 1 and pair == (0, 1):
        return 0, 0
    whole = all(isinstance(i, (int, np.integer)) and 0 <= i < k for i in pair)
    if len(pair) != 2 or not whole:
        raise ValueError(
            f"`components`={components!r} must be two whole numbers from 0 to {k - 1}, as there "
            f"are {k} components; choose two of these, or fit the model with more."
        )
    return int(pair[0]), int(pair[1])


def _axis_name(component: int, model: Any) -> str:
    share = "" if model is None else percent(model, component)
    words = f" ({share} of the variance)" if share else ""
    whitened = ", whitened" if getattr(model, "whiten", False) else ""
    return f"component {component + 1}{whitened}{words}"


def _points(ax: Any, x: np.ndarray, y: np.ndarray, labels: Labels | None) -> None:
    size = float(np.clip(4000 / x.size, 2.0, 22.0))
    look = {"s": size, "linewidths": 0, "alpha": 0.8, "rasterized": x.size > LARGE}
    if labels is None:
        ax.scatter(x, y, color=BLUE, **look)
    else:
        points_by_label(ax, x, y, labels, look)


def _density(ax: Any, x: np.ndarray, y: np.ndarray, labels: Labels | None) -> None:
    if labels is not None:
        density_by_label(ax, x, y, labels)
        return
    cells = ax.hexbin(x, y, gridsize=70, bins="log", mincnt=1, cmap="viridis", linewidths=0)
    ax.figure.colorbar(cells, ax=ax, label="rows in a cell")


def biplot(
    model: Any,
    scores: Any,
    components: tuple[int, int] = (0, 1),
    scale: float = 1.0,
    names: Any = None,
    ax: Any = None,
    *,
    n_names: int = 12,
) -> Any:
    r"""Draw rows as points and columns as arrows, scaled as ``biplot`` of R scales ``prcomp``.

    With :math:`s_i = (\sqrt{\lambda_i n})^{scale}` points lie at :math:`t_i / s_i` and arrows
    end at :math:`0.8\, v_{ji} s_i`, on axes of their own (above and on the right) that are
    stretched by one factor, so that the longest coordinates of points and arrows go equally
    far.  ``scale=1`` keeps the inner products of arrows (covariances of columns, times n), and
    ``scale=0`` distances between points.

    Parameters
    ----------
    model : PrimedPCA
    scores : array of shape (n, k)
        What ``model.transform(X)`` returned; a part of the rows will do.
    components : pair of int
        Counted from 0.
    scale : float in [0, 1]
    names : sequence of str of length d, optional
        Of the columns; those that the model was fitted with by default.
    ax : matplotlib.axes.Axes, optional
    n_names : int
        How many arrows, the longest, are named.  Of many columns the 500 longest are drawn.

    Returns
    -------
    matplotlib.axes.Axes
    """
    rows = _checked_scores(scores, fitted(model))
    k = model.components_.shape[0]
    if k < 2:
        raise ValueError(f"a biplot needs two components, and the model has {k}; fit it with more.")
    pair = _pair(components, k)
    words = feature_names(model, names)
    points, arrows = _scaled(model, rows, pair, scale)
    ax = canvas(ax, 5.0, 5.0)
    reach, ratio = _ranges(points, arrows)
    look = {"s": float(np.clip(4000 / rows.shape[0], 2.0, 16.0)), "linewidths": 0, "alpha": 0.6}
    ax.scatter(*points.T, color=BLUE, rasterized=rows.shape[0] > LARGE, **look)
    order = np.argsort(-np.linalg.norm(arrows, axis=1), kind="stable")[:MOST_ARROWS]
    _arrows(ax, ARROW * arrows[order] / ratio, n_names)
    _names(ax, arrows[order[:n_names]] / ratio, [words[j] for j in order[:n_names]])
    ax.set(xlim=reach, ylim=reach, aspect="equal")
    ax.set(xlabel=_axis_name(pair[0], model), ylabel=_axis_name(pair[1], model))
    for second in (ax.secondary_xaxis, ax.secondary_yaxis):
        place = "top" if second == ax.secondary_xaxis else "right"
        second(place, functions=(lambda v: v * ratio, lambda v: v / ratio), color=RED)
    return ax


def _scaled(
    model: Any, rows: np.ndarray, pair: tuple[int, int], scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Points ``(n, 2)`` and the ends of arrows ``(d, 2)``."""
    if not 0 <= scale <= 1:
        raise ValueError(f"`scale`={scale} must lie in [0, 1]; 1 is what R takes by default.")
    chosen = list(pair)
    deviations = np.sqrt(np.asarray(model.explained_variance_, dtype=np.float64)[chosen])
    if scale > 0 and not (deviations > 0).all():
        raise ValueError(
            f"`components`={pair} have no variance to divide by; choose others, or `scale`=0."
        )
    stretch = (deviations * np.sqrt(model.n_samples_)) ** scale
    points = rows[:, chosen] * (deviations if getattr(model, "whiten", False) else 1.0)
    return points / stretch, model.components_[chosen].T.astype(np.float64) * stretch


def _ranges(points: np.ndarray, arrows: np.ndarray) -> tuple[tuple[float, float], float]:
    """The limits of both axes, and by how much those of the arrows are longer.

    As R: each set's range is widened to hold zero, points share theirs between the axes, and
    the ratio is the largest that any end of an axis has.
    """
    low, high = -np.abs(points.min(axis=0)), np.abs(points.max(axis=0))
    reach = (float(low.min()), float(high.max()))
    ends = np.stack([-np.abs(arrows.min(axis=0)), np.abs(arrows.max(axis=0))])
    ratio = float((ends / np.array(reach)[:, None]).max())
    return reach, ratio


def _arrows(ax: Any, ends: np.ndarray, n_names: int) -> None:
    """The first ``n_names`` strong and with heads, the others faint."""
    from matplotlib.collections import LineCollection

    faint = np.stack([np.zeros_like(ends[n_names:]), ends[n_names:]], axis=1)
    ax.add_collection(LineCollection(list(faint), colors=RED, linewidths=0.6, alpha=0.25))
    for end in ends[:n_names]:
        look = {"arrowstyle": "->", "color": RED, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", xy=end, xytext=(0, 0), arrowprops=look)


def _names(ax: Any, ends: np.ndarray, words: list[str]) -> None:
    look = {"ha": "center", "va": "center", "fontsize": "small", "color": ink(ax)}
    behind = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "alpha": 0.6, "pad": 0.8}
    for end, word in zip(ends, words, strict=True):
        ax.text(*end, word, bbox=behind, clip_on=False, **look)
