"""Biplots: rows as points and columns as arrows, scaled as in R."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca.plots.canvas import BLUE, RED, canvas, feature_names, fitted, ink, write_out
from primedpca.plots.plane import LARGE, axis_name, checked_scores, pair_of

__all__ = ["biplot"]

MOST_ARROWS = 500
SHORTEST = 0.15  # of the longest arrow; the name of a shorter one would hide the arrow
LETTER = 0.017  # approximate width of a letter, as a fraction of the axes
ROOM = 0.06  # margin, as a fraction of the range of the data
ARROW = 0.8  # R draws arrows to this fraction of their length, to leave room for names


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
    n_names : int, default=12
        Maximum number of named arrows: the longest, except those whose name would cover
        another name or the arrow itself.  At most the 500 longest arrows are drawn.

    Returns
    -------
    matplotlib.axes.Axes
    """
    rows = checked_scores(scores, fitted(model))
    k = model.components_.shape[0]
    if k < 2:
        raise ValueError(f"A biplot needs two components, but the model has {k}. Fit more.")
    pair = pair_of(components, k)
    points, arrows = _scaled(model, rows, pair, scale)
    ax = canvas(ax, 5.0, 5.0)
    reach, ratio = _ranges(points, arrows)
    look = {"s": float(np.clip(8000 / rows.shape[0], 3.0, 16.0)), "linewidths": 0, "alpha": 0.6}
    ax.scatter(*points.T, color=BLUE, rasterized=rows.shape[0] > LARGE, **look)
    order = np.argsort(-np.linalg.norm(arrows, axis=1), kind="stable")[:MOST_ARROWS]
    words, ends = feature_names(model, order, names), arrows[order] / ratio
    places = _places(ends, words, reach)
    named = _apart(places, words, reach[1] - reach[0])
    lengths = np.linalg.norm(ends, axis=1)
    named = [i for i in named if lengths[i] > SHORTEST * lengths[0]][:n_names]
    _arrows(ax, ARROW * ends, named)
    for i in named:
        _name(ax, places[i], words[i])
    room = ROOM * (reach[1] - reach[0])
    limits = (reach[0] - room, reach[1] + room)
    ax.set(xlim=limits, ylim=limits, aspect="equal")
    ax.set(xlabel=axis_name(pair[0], model), ylabel=axis_name(pair[1], model))
    from matplotlib.ticker import MaxNLocator

    for second, place in ((ax.secondary_xaxis, "top"), (ax.secondary_yaxis, "right")):
        own = second(place, functions=(lambda v: v * ratio, lambda v: v / ratio), color=RED)
        axis = own.xaxis if place == "top" else own.yaxis
        axis.set_major_locator(MaxNLocator(6))
        write_out(axis)
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
        raise ValueError(
            f"`components`={pair} have no variance to divide by. Choose others, or `scale`=0."
        )
    stretch = (deviations * np.sqrt(model.n_samples_)) ** scale
    points = rows[:, chosen] * (deviations if getattr(model, "whiten", False) else 1.0)
    return points / stretch, model.components_[chosen].T.astype(np.float64) * stretch


def _ranges(points: np.ndarray, arrows: np.ndarray) -> tuple[tuple[float, float], float]:
    """Return the limits of both axes, and the ratio of the arrows' limits to them.

    As in R: each range is widened to contain zero, the points have one range for both axes, and
    the ratio is the largest over all four ends.
    """
    low, high = -np.abs(points.min(axis=0)), np.abs(points.max(axis=0))
    reach = (float(low.min()), float(high.max()))
    ends = np.stack([-np.abs(arrows.min(axis=0)), np.abs(arrows.max(axis=0))])
    ratio = float((ends / np.array(reach)[:, None]).max())
    return reach, ratio


def _places(ends: np.ndarray, words: list[str], reach: tuple[float, float]) -> np.ndarray:
    """Return the centres of the names ``(m, 2)``: beyond the arrows, but within the axes."""
    span = reach[1] - reach[0]
    halves = LETTER / 2 * span * np.array([len(word) for word in words])
    lengths = np.linalg.norm(ends, axis=1)
    across = np.divide(ends[:, 0], lengths, out=np.zeros_like(lengths), where=lengths > 0)
    room = halves - ROOM * span
    low, high = np.minimum(0.0, reach[0] + room), np.maximum(0.0, reach[1] - room)
    return np.stack([np.clip(ends[:, 0] + halves * across, low, high), ends[:, 1]], axis=1)


def _apart(places: np.ndarray, words: list[str], span: float) -> list[int]:
    """Return the first names that do not overlap, from the approximate width of letters."""
    found: list[int] = []
    for i, place in enumerate(places):
        wide = [LETTER / 2 * span * (len(words[i]) + len(words[j])) for j in found]
        away = np.abs(places[found] - place) if found else np.empty((0, 2))
        if not ((away[:, 0] < wide) & (away[:, 1] < 0.04 * span)).any():
            found.append(i)
    return found


def _arrows(ax: Any, ends: np.ndarray, named: list[int]) -> None:
    """Draw named arrows strong and with heads, and the others faint."""
    from matplotlib.collections import LineCollection

    others = np.delete(ends, named, axis=0)
    faint = np.stack([np.zeros_like(others), others], axis=1)
    ax.add_collection(LineCollection(list(faint), colors=RED, linewidths=0.6, alpha=0.25))
    for end in ends[named]:
        look = {"arrowstyle": "->", "color": RED, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", xy=end, xytext=(0, 0), arrowprops=look)


def _name(ax: Any, place: np.ndarray, word: str) -> None:
    look = {"ha": "center", "va": "center", "fontsize": "small", "color": ink(ax)}
    behind = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    ax.text(*place, word, bbox=behind, **look)
