"""Labels of rows: names or numbers, and how points show them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import is_dense, to_numpy
from primedpca.plots.canvas import BLUE, GREEN, PURPLE, RED, legend_above, literals

__all__ = ["SEAMLESS", "Labels", "as_labels", "density_by_label", "points_by_label"]

#: After Okabe and Ito, the highest contrast first; marks distinguish equal colours.
COLOURS = (
    *(BLUE, RED, GREEN, PURPLE, "#E69F00", "#56B4E9"),
    *("#8C8C8C", "#7B5CD6", "#B8A800", "#A6761D"),
)
MARKS = "os^DvPX*"
MOST = 24  # labels with a mark of their own; the rarest of more are put together
#: Cells without visible edges.
SEAMLESS: dict[str, Any] = {"linewidths": 0.3, "edgecolors": "face"}
WHOLE = 12  # up to so many different integers are names, not numbers


class Labels(NamedTuple):
    """Labels as numbers to colour by.

    Attributes
    ----------
    values : ndarray of shape (n,)
        Numbers, or indices into ``names``.
    names : list of str or None
        ``None`` for numbers.
    title : str
        Name of the labels, or empty.
    """

    values: np.ndarray
    names: list[str] | None
    title: str


def as_labels(labels: Any, n: int) -> Labels:
    """Classify labels: strings, booleans and few integers are names, others are numbers."""
    (title,) = literals([str(getattr(labels, "name", None) or "")], [""])
    values = to_numpy(labels) if is_dense(labels) else np.asarray(labels)
    if values.shape != (n,):
        raise ValueError(
            f"`labels` has shape {values.shape}, but there are {n} rows of scores. Pass one "
            "label for each row."
        )
    if values.dtype.kind == "f":
        return Labels(values.astype(np.float64), None, title)
    words, codes, counts = np.unique(
        values if values.dtype.kind in "iub" else values.astype(str),
        return_inverse=True,
        return_counts=True,
    )
    if values.dtype.kind in "iu" and words.size > WHOLE:
        return Labels(values.astype(np.float64), None, title)
    names = literals([str(word) for word in words], [str(i + 1) for i in range(words.size)])
    if len(names) <= MOST:
        return Labels(codes, names, title)
    kept = np.sort(np.argsort(-counts, kind="stable")[: MOST - 1])
    place = np.full(len(names), MOST - 1)
    place[kept] = np.arange(MOST - 1)
    rest = f"{len(names) - MOST + 1} others"
    return Labels(place[codes], [*(names[i] for i in kept), rest], title)


def points_by_label(ax: Any, x: np.ndarray, y: np.ndarray, labels: Labels, look: Any) -> None:
    """Draw points with a colour and a mark for each name, or with a colour bar."""
    values, names, title = labels
    if names is None:
        known = np.isfinite(values)
        if not known.all():
            ax.scatter(x[~known], y[~known], color="0.6", label="unknown", **look)
            ax.legend(loc="best")
        drawn = ax.scatter(x[known], y[known], c=values[known], cmap="viridis", **look)
        ax.figure.colorbar(drawn, ax=ax, label=title or "label")
        return
    if look["rasterized"]:
        _mixed(ax, x, y, values, look)
        look = look | {"rasterized": False}
        x = y = values = np.empty(0)  # only the legend remains to be drawn
    for i, name in enumerate(names):
        here = values == i
        # Repeated colours get another mark.
        mark = MARKS[(i + i // len(COLOURS)) % len(MARKS)]
        ax.scatter(x[here], y[here], color=_colour(i), marker=mark, label=name, **look)
    _legend(ax, names, title)
    for handle in ax.get_legend().legend_handles:
        handle.set(alpha=1.0, sizes=[24.0])


def _mixed(ax: Any, x: np.ndarray, y: np.ndarray, codes: np.ndarray, look: Any) -> None:
    """Draw many points in random order, so that no label covers the others."""
    order = np.random.default_rng(0).permutation(x.size)
    colours = np.array([_colour(i) for i in range(int(codes.max()) + 1)])[codes[order]]
    ax.scatter(x[order], y[order], c=colours, **look)


def density_by_label(ax: Any, x: np.ndarray, y: np.ndarray, labels: Labels) -> None:
    """Colour each cell by the mean of its numbers, or by its most frequent name."""
    values, names, title = labels
    look = {"gridsize": 70, "mincnt": 1, **SEAMLESS}
    if names is None:
        known = np.isfinite(values)
        cells = ax.hexbin(x[known], y[known], C=values[known], cmap="viridis", **look)
        ax.figure.colorbar(cells, ax=ax, label=f"mean of {title or 'the label'} in a cell")
        return
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    shades = ListedColormap([_colour(i) for i in range(len(names))])
    limits = {"cmap": shades, "vmin": -0.5, "vmax": len(names) - 0.5}
    ax.hexbin(x, y, C=values, reduce_C_function=_most_frequent, **limits, **look)
    handles = [Patch(color=_colour(i), label=name) for i, name in enumerate(names)]
    _legend(ax, names, "most frequent" + (f" {title}" if title else ""), handles=handles)


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _most_frequent(codes: Any) -> int:
    return int(np.bincount(np.asarray(codes, dtype=np.int64)).argmax())


def _legend(ax: Any, names: list[str], title: str, **handles: Any) -> None:
    """Put a short legend above the axes and a long one beside them, never on points."""
    if len(names) <= 5:
        longest = max(map(len, names))
        legend_above(ax, max(1, 50 // (longest + 6)), title=title or None, **handles)
    else:
        columns = 1 + (len(names) > 16)
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "ncols": columns}
        ax.legend(title=title or None, **beside, **handles)
