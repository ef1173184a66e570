"""Labels of rows: which are words and which numbers, and how points show them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import is_dense, to_numpy
from primedpca.plots.canvas import BLUE, GREEN, PURPLE, RED, legend_above, literals

__all__ = ["SEAMLESS", "Labels", "as_labels", "density_by_label", "points_by_label"]

#: After Okabe and Ito, those of most contrast first; marks tell apart what colours do not.
COLOURS = (
    *(BLUE, RED, GREEN, PURPLE, "#E69F00", "#56B4E9"),
    *("#8C8C8C", "#7B5CD6", "#B8A800", "#A6761D"),
)
MARKS = "os^DvPX*"
MOST = 24  # labels with a mark of their own; of more, the rarest are put together
#: Cells whose edges do not show.
SEAMLESS: dict[str, Any] = {"linewidths": 0.3, "edgecolors": "face"}
WHOLE = 12  # different whole numbers that are taken for names


class Labels(NamedTuple):
    """Labels as numbers to colour by.

    Attributes
    ----------
    values : ndarray of shape (n,)
        Numbers, or which of the names.
    names : list of str or None
        ``None`` for numbers.
    title : str
    """

    values: np.ndarray
    names: list[str] | None
    title: str


def as_labels(labels: Any, n: int) -> Labels:
    """Words, truth values and few whole numbers are names; other numbers are numbers."""
    (title,) = literals([str(getattr(labels, "name", None) or "")], [""])
    values = to_numpy(labels) if is_dense(labels) else np.asarray(labels)
    if values.shape != (n,):
        raise ValueError(
            f"`labels` have shape {values.shape}, but there are {n} rows of scores; give one "
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
    """A colour and a mark for each name, or a colour bar."""
    values, names, title = labels
    if names is None:
        known = np.isfinite(values)
        if not known.all():
            ax.scatter(x[~known], y[~known], color="0.6", label="not known", **look)
            ax.legend(loc="best")
        drawn = ax.scatter(x[known], y[known], c=values[known], cmap="viridis", **look)
        ax.figure.colorbar(drawn, ax=ax, label=title or "label")
        return
    if look["rasterized"]:
        _mixed(ax, x, y, values, look)
        look = look | {"rasterized": False}
        x = y = values = np.empty(0)  # the legend is all that is left to draw
    for i, name in enumerate(names):
        here = values == i
        # All colours with the first marks, then again with others.
        mark = MARKS[(i + i // len(COLOURS)) % len(MARKS)]
        ax.scatter(x[here], y[here], color=_colour(i), marker=mark, label=name, **look)
    _legend(ax, names, title)
    for handle in ax.get_legend().legend_handles:
        handle.set(alpha=1.0, sizes=[24.0])


def _mixed(ax: Any, x: np.ndarray, y: np.ndarray, codes: np.ndarray, look: Any) -> None:
    """So many that marks are no longer seen, in random order: none lies on top of all others."""
    order = np.random.default_rng(0).permutation(x.size)
    colours = np.array([_colour(i) for i in range(int(codes.max()) + 1)])[codes[order]]
    ax.scatter(x[order], y[order], c=colours, **look)


def density_by_label(ax: Any, x: np.ndarray, y: np.ndarray, labels: Labels) -> None:
    """The mean of numbers, or the most frequent name, in each cell."""
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
    """Above the axes where there are few, beside them where there are many: never on points."""
    if len(names) <= 5:
        longest = max(map(len, names))
        legend_above(ax, max(1, 50 // (longest + 6)), title=title or None, **handles)
    else:
        columns = 1 + (len(names) > 16)
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "ncols": columns}
        ax.legend(title=title or None, **beside, **handles)
