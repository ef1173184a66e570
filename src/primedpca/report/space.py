"""Scores of three components as a cloud of points that the reader can turn.

The page draws the points itself, from numbers in the page.  Without a script and on paper, a plot
of the same points from one side stands in their place.
"""

import base64
import json
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from primedpca.plots.canvas import BLUE, ink
from primedpca.plots.plane import COLOURS, GREY, LARGE, UNKNOWN, _as_labels
from primedpca.report.inputs import Inputs, spaced
from primedpca.report.page_plots import PagePlot, drawn

MOST_POINTS = 3_000
LONGEST = 40  # letters of a name
STEPS = 9  # colours of labels that are numbers
YAW, PITCH = 0.6, 0.45  # radians; the side that is shown first, also by the script


class Space(NamedTuple):
    """What the page needs for the cloud.

    Attributes
    ----------
    points, classes : str
        Coordinates from -32767 to 32767 and classes, as bytes in base64.
    colours : str
        Colours of the classes, separated by blanks.
    axes, rows : str
        Names of the axes and of the rows, as JSON.
    legend : list of (str, str)
        Colour and name of each class.
    plot : PagePlot
        The plot that stands in its place.
    """

    points: str
    classes: str
    colours: str
    axes: str
    rows: str
    legend: list[tuple[str, str]]
    plot: PagePlot


def space(model: Any, known: Inputs) -> Space | None:
    """Return the cloud of the first three components, or None if there are not so many."""
    scores = known.scores
    if scores is None or scores.shape[1] < 3 or scores.shape[0] < 4:
        return None
    n = scores.shape[0]
    # A fixed random choice: every third row may be of one kind.
    chosen = np.sort(np.random.default_rng(0).permutation(n)[:MOST_POINTS])
    points = np.asarray(scores[chosen, :3], dtype=np.float64)
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    reach = np.abs(points - middle).max(axis=0)
    if not (np.isfinite(points).all() and (reach > 0).all()):
        return None
    points = (points - middle) / reach
    classes, colours, legend = _classes(known, chosen)
    ratios = 100 * np.asarray(model.explained_variance_ratio_[:3], dtype=np.float64)
    axes = [f"component {i + 1}" + (f" ({r:.3g} %)" if r > 0 else "") for i, r in enumerate(ratios)]
    names = known.row_names
    rows = [f"row {row + 1}" + ("" if names is None else f": {names[row]}") for row in chosen]
    some = f", {spaced(chosen.size)} of them drawn" if chosen.size < n else ""
    plot = PagePlot(
        "Components 1 to 3",
        f"Scores of {spaced(n)} rows{some}. Each axis has a scale of its own.",
        f"Three-dimensional scatter plot of {chosen.size} rows along components 1, 2 and 3.",
        partial(_from_one_side, points, np.array(colours)[classes], axes),
        square=True,
    )
    return Space(
        points=_text(np.rint(32767 * points).astype("<i2")),
        classes=_text(classes.astype(np.uint8)),
        colours=" ".join(colours),
        axes=json.dumps(axes),
        rows=json.dumps([row[: LONGEST + 12] for row in rows]),
        legend=legend,
        plot=drawn(plot, "s1-"),
    )


def _text(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _classes(known: Inputs, chosen: np.ndarray) -> tuple[np.ndarray, list[str], Any]:
    """Return the class of each point, the colours of the classes, and the legend."""
    if known.labels is None:
        return np.zeros(chosen.size, dtype=np.int64), [BLUE], []
    values, names, _ = _as_labels(known.labels, known.labels.shape[0])
    values = values[chosen]
    if names is not None:
        colours = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
        shown = (name.replace("\\$", "$") for name in names)
        return values.astype(np.int64), colours, list(zip(colours, shown, strict=True))
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    here = np.isfinite(values)
    unknown = [] if here.all() else [(GREY, UNKNOWN)]
    if not here.any():
        return np.zeros(chosen.size, dtype=np.int64), [GREY], unknown
    known_values = values[here]
    edges = np.unique(np.quantile(known_values, np.linspace(0, 1, STEPS + 1)[1:-1]))
    colours = [to_hex(colormaps["viridis"](i / STEPS)) for i in range(edges.size + 1)]
    classes = np.where(here, np.searchsorted(edges, values), len(colours))
    ends = known_values.min(), known_values.max()
    legend = [(colours[0], f"{ends[0]:.4g}"), (colours[-1], f"{ends[1]:.4g}"), *unknown]
    return classes, [*colours, GREY], legend


def _from_one_side(points: np.ndarray, colours: Any, axes: list[str], ax: Any) -> Any:
    """Draw the points as the script shows them first."""
    turned = points @ _turn()
    order = np.argsort(turned[:, 2])
    look = {"s": float(np.clip(9000 / len(points), 4.0, 18.0)), "linewidths": 0, "alpha": 0.8}
    for i, end in enumerate(1.15 * _turn()):
        ax.plot([-end[0], end[0]], [-end[1], end[1]], color=ink(ax), linewidth=0.6, alpha=0.6)
        place = {"ha": "center", "va": "center", "fontsize": 8}
        ax.text(1.08 * end[0], 1.08 * end[1], axes[i], **place)
    x, y = turned[order, :2].T
    ax.scatter(x, y, c=colours[order], rasterized=len(points) > LARGE, zorder=3, **look)
    ax.set(xlim=(-1.75, 1.75), ylim=(-1.65, 1.65), xticks=[], yticks=[], aspect="equal")
    ax.axis("off")
    return ax


def _turn() -> np.ndarray:
    """Matrix ``(3, 3)`` that turns rows of coordinates: right, up, and towards the reader."""
    c, s = np.cos(YAW), np.sin(YAW)
    up, tilt = np.cos(PITCH), np.sin(PITCH)
    return np.array([[c, -s * tilt, s * up], [0.0, up, tilt], [-s, -c * tilt, c * up]])
