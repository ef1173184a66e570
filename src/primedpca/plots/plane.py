"""Scores in the plane of two components."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca.plots.canvas import BLUE, canvas, fitted, percent
from primedpca.plots.labels import SEAMLESS, Labels, as_labels, density_by_label, points_by_label

__all__ = ["LARGE", "MANY", "axis_name", "checked_scores", "pair_of", "scores"]

MANY = 100_000  # points; of more, the density is drawn
LARGE = 2_000  # points; more are rasterised, also in vector formats


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
        bar.
    ax : matplotlib.axes.Axes, optional
    model : PrimedPCA, optional
        Source of the explained variance ratios in the axis labels.

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
    rows = checked_scores(scores, None if model is None else fitted(model))
    x, y, names = _coordinates(rows, components, model)
    known = None if labels is None else as_labels(labels, x.size)
    ax = canvas(ax, 5.0, 4.2)
    if x.size > MANY:
        _density(ax, x, y, known)
    else:
        _points(ax, x, y, known)
    ax.set(xlabel=names[0], ylabel=names[1])
    from matplotlib.ticker import MaxNLocator

    if isinstance(ax.xaxis.get_major_locator(), MaxNLocator):  # the user may have set another one
        # A legend beside the axes leaves room for so many ticks.
        ax.xaxis.get_major_locator().set_params(nbins=5 if np.abs(x).max() >= 1e4 else 7)
    return ax


def checked_scores(scores: Any, model: Any) -> np.ndarray:
    """Return ``scores`` as a finite array ``(n, k)`` that matches the model, if there is one."""
    rows = to_numpy(scores)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(
            f"`scores` must have shape (n, k) with n >= 1, got {rows.shape}. Pass the result of "
            "`transform`."
        )
    if model is not None and rows.shape[1] != model.components_.shape[0]:
        raise ValueError(
            f"`scores` has {rows.shape[1]} columns, but the model has "
            f"{model.components_.shape[0]} components. Pass the result of its `transform`."
        )
    rows = rows.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if wrong.size:
        raise ValueError(f"`scores`[{wrong[0]}] has a non-finite value. Remove such rows.")
    return rows


def _coordinates(
    rows: np.ndarray, components: Any, model: Any
) -> tuple[np.ndarray, np.ndarray, tuple[str, str]]:
    n, k = rows.shape
    i, j = pair_of(components, k)
    if k == 1:
        return np.arange(1.0, n + 1), rows[:, 0], ("row", axis_name(0, model))
    return rows[:, i], rows[:, j], (axis_name(i, model), axis_name(j, model))


def pair_of(components: Any, k: int) -> tuple[int, int]:
    """Return two valid indices, from 0; the only component of a model is returned twice."""
    pair = tuple(components) if hasattr(components, "__len__") else (components,)
    if k == 1 and pair == (0, 1):
        return 0, 0
    if k == 1:
        raise ValueError(
            f"`components`={components!r} cannot be drawn: the model has 1 component. Omit the "
            "argument to draw it against the rows, or fit more."
        )
    whole = all(isinstance(i, (int, np.integer)) and 0 <= i < k for i in pair)
    if len(pair) != 2 or not whole:
        raise ValueError(
            f"`components`={components!r} must be two integers from 0 to {k - 1}: there are {k} "
            "components, indexed from 0. Choose two of these, or fit more."
        )
    return int(pair[0]), int(pair[1])


def axis_name(component: int, model: Any) -> str:
    """Return an axis label such as ``component 1 (23.4 % of the variance)``."""
    ratio = "" if model is None else percent(model, component)
    words = f" ({ratio} of the variance)" if ratio else ""
    whitened = ", whitened" if getattr(model, "whiten", False) else ""
    return f"component {component + 1}{whitened}{words}"


def _points(ax: Any, x: np.ndarray, y: np.ndarray, labels: Labels | None) -> None:
    size = float(np.clip(12000 / x.size, 3.0, 24.0))
    look = {"s": size, "linewidths": 0, "alpha": 0.8, "rasterized": x.size > LARGE}
    if labels is None:
        ax.scatter(x, y, color=BLUE, **look)
    else:
        points_by_label(ax, x, y, labels, look)


def _density(ax: Any, x: np.ndarray, y: np.ndarray, labels: Labels | None) -> None:
    if labels is not None:
        density_by_label(ax, x, y, labels)
        return
    cells = ax.hexbin(x, y, gridsize=70, bins="log", mincnt=1, cmap="viridis", **SEAMLESS)
    ax.figure.colorbar(cells, ax=ax, label="rows in a cell")
