"""Names of arrows and points that cover neither each other nor the points that they name.

Imports Matplotlib, so import it only where names are drawn.
"""

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection
from matplotlib.transforms import IdentityTransform

from primedpca.plots import canvas

#: Distances in points between a name and its point, and angles in degrees to the direction in which
#: it would best stand.
GAPS = np.array([3.0, 10.0, 20.0, 32.0, 46.0, 62.0, 80.0, 100.0, 122.0])
ANGLES = np.array([0.0, 25, -25, 50, -50, 75, -75, 105, -105, 140, -140, 180])
HEAD = 3.0  # points around an arrowhead or a named point that names keep free
SPACE = 4.0  # points between names side by side
EDGE = 2.0  # points between names and the edge of the axes
LEADER = 8.0  # points; a name further away than this is joined to its point by a line
SHAFTS = 60  # arrows that names avoid to cross


class Names(Artist):
    """Texts beside points, placed anew whenever the figure is drawn, in any size and format.

    Each name takes the free place nearest to its point, the first names first.  A name without a
    free place inside the axes is not drawn.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    points : ndarray of shape (m, 2)
        Points to name, in the coordinates of the data.
    words : list of m str
    origin : pair of float or None, default=None
        Start of the arrows that end in the points.  Names stand beyond the ends and avoid the
        arrows.  Without it names stand above or below.
    avoid : ndarray of shape (o, 2), optional
        Other points that names must not cover.
    """

    axes: Any  # set when it is added to them

    def __init__(
        self,
        ax: Any,
        points: np.ndarray,
        words: list[str],
        origin: Any = None,
        avoid: Any = None,
    ) -> None:
        super().__init__()
        self._points, self._origin = np.asarray(points, dtype=np.float64).reshape(-1, 2), origin
        self._avoid = self._points if avoid is None else np.concatenate([self._points, avoid])
        behind = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small", "bbox": behind}
        look |= {"color": canvas.ink(ax), "transform": IdentityTransform(), "zorder": 4}
        self._texts = [ax.text(0, 0, word, **look) for word in words]
        lines: dict[str, Any] = {"colors": canvas.ink(ax), "linewidths": 0.6, "alpha": 0.7}
        self._lines = LineCollection([], transform=IdentityTransform(), zorder=3.5, **lines)
        ax.add_collection(self._lines, autolim=False)
        for artist in (*self._texts, self._lines, self):
            artist.set_in_layout(False)  # they stay inside the axes
        self.set_zorder(1)  # before the texts, whose places it sets
        ax.add_artist(self)

    def draw(self, renderer: Any) -> None:
        """Place the texts for the size that the axes have now."""
        point = renderer.points_to_pixels(1.0)
        at = self.axes.transData.transform(self._points)
        start = None if self._origin is None else self.axes.transData.transform(self._origin)
        sizes = np.array([_size(text, renderer) for text in self._texts]).reshape(-1, 2)
        inside = np.array(self.axes.bbox.extents) + np.array([1, 1, -1, -1]) * EDGE * point
        # Some space between names side by side.
        sizes = sizes + np.array([SPACE, 0.0]) * point
        others = self.axes.transData.transform(self._avoid)
        places = place(at, sizes, inside, start, point, others)
        leaders = []
        for text, tip, (width, height), (x, y) in zip(self._texts, at, sizes, places, strict=True):
            text.set_visible(bool(np.isfinite(x)))
            if np.isfinite(x):
                text.set_position((x, y))
                near = np.clip(
                    tip, [x - width / 2, y - height / 2], [x + width / 2, y + height / 2]
                )
                if np.hypot(*(near - tip)) > LEADER * point:
                    leaders.append(np.stack([tip, near]))
        self._lines.set_segments(leaders)


def _size(text: Any, renderer: Any) -> tuple[float, float]:
    """Return width and height in pixels, also of a text that is hidden."""
    text.set_visible(True)
    box = text.get_window_extent(renderer)
    return box.width, box.height


def place(
    points: np.ndarray,
    sizes: np.ndarray,
    inside: np.ndarray,
    start: Any,
    point: float,
    avoid: np.ndarray,
) -> np.ndarray:
    """Return the centres of names ``(m, 2)``, NaN for those without a place; all in pixels.

    Parameters
    ----------
    points, sizes : ndarray of shape (m, 2)
        Points to name; widths and heights of their names.
    inside : ndarray of shape (4,)
        Left, bottom, right and top of the room.
    start : ndarray of shape (2,) or None
        Start of the arrows.
    point : float
        Pixels in a typographic point.
    avoid : ndarray of shape (o, 2)
        Points that no name covers.
    """
    taken = np.concatenate([avoid - HEAD * point, avoid + HEAD * point], axis=1)
    centres = np.full(points.shape, np.nan)
    costs = (np.arange(GAPS.size)[:, None] + np.abs(ANGLES) / 45).ravel()
    for i, (tip, half) in enumerate(zip(points, sizes / 2, strict=True)):
        way = tip - start if start is not None else np.array([0.0, 1.0])
        best = np.arctan2(way[1], way[0]) if np.any(way) else np.pi / 2
        turned = best + np.radians(ANGLES)
        towards = np.stack([np.cos(turned), np.sin(turned)], axis=1)
        # So far that the box of the name just keeps the gap.
        reach = np.abs(towards) @ half if start is not None else _rim(towards, half)
        middle = tip + towards * (GAPS[:, None, None] * point + reach[:, None])
        middle = middle.reshape(-1, 2)
        boxes = np.concatenate([middle - half, middle + half], axis=1)
        held = np.concatenate([boxes[:, :2] >= inside[:2], boxes[:, 2:] <= inside[2:]], axis=1)
        free = np.asarray(held.all(axis=1))
        free[free] = ~_overlap(boxes[free], taken).any(axis=1)
        if free.any():
            cost = np.where(free, costs, np.inf)
            if start is not None:
                cost = cost + 1.5 * _crossed(boxes, start, points[:SHAFTS]).sum(axis=1)
            chosen = int(np.argmin(cost))
            centres[i], taken = middle[chosen], np.concatenate([taken, boxes[chosen : chosen + 1]])
    return centres


def _rim(towards: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Return the distances from the centre of a box to its rim."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.min(half / np.abs(towards), axis=1))


def _overlap(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return which boxes overlap, ``(b, o)``."""
    left, low, right, high = boxes.T[:, :, None]
    across = (left < others[:, 2]) & (right > others[:, 0])
    return np.asarray(across & (low < others[:, 3]) & (high > others[:, 1]))


def _crossed(boxes: np.ndarray, start: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return which boxes the lines from ``start`` cross, ``(b, lines)``, by the slab method."""
    ways = ends - start
    ways = np.where(ways == 0, 1e-9, ways)
    one = (boxes[:, None, :2] - start) / ways
    two = (boxes[:, None, 2:] - start) / ways
    enter, leave = np.minimum(one, two).max(axis=2), np.maximum(one, two).min(axis=2)
    return np.asarray((enter < leave) & (leave > 0) & (enter < 1))
