"""Longest correct streaks along a run, as in the figures of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca.metrics import longest_correct_streak
from primedpca.plots.canvas import BLUE, GREEN, PURPLE, RED, canvas, legend_above, name_of_angle
from primedpca.result import Snapshot

__all__ = ["streaks"]

LOOKS = [("-", "o"), ("--", "s"), (":", "^"), ("-.", "D")]
COLOURS = (BLUE, RED, GREEN, PURPLE)
UNITS = {"passes": "passes over the data", "step": "step", "seconds": "time (s)"}


def streaks(
    run: Any,
    reference: Any,
    thresholds: Any = (np.pi / 8, np.pi / 128, np.pi / 1024),
    ax: Any = None,
    *,
    unit: str = "passes",
) -> Any:
    """Draw the number of correct leading components at every step of a run.

    Parameters
    ----------
    run : iterable of Snapshot, mapping of step to components, or sequence of components
        Snapshots from :func:`primedpca.prime`, or arrays of shape (k, d); components beyond those
        of ``reference`` are ignored.
    reference : array of shape (k, d)
        The true components, such as those of an exact fit.
    thresholds : float or sequence of float, default=(pi/8, pi/128, pi/1024)
        The paper's ``V``: angles in radians within which a component is correct.
    ax : matplotlib.axes.Axes, optional
    unit : {"passes", "step", "seconds"}, default="passes"
        Horizontal axis for snapshots.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import plots
    >>> swapped = np.eye(3)[[0, 2, 1]]
    >>> ax = plots.streaks([swapped, np.eye(3)], np.eye(3), np.pi / 8)
    >>> ax.lines[0].get_ydata().tolist()
    [1, 3]
    """
    if unit not in UNITS:
        raise ValueError(f"`unit`={unit!r} must be one of {', '.join(map(repr, UNITS))}.")
    reference, levels = np.atleast_2d(to_numpy(reference)), np.atleast_1d(thresholds)
    where, found, label = [], [], UNITS["step"]
    for step, components in _steps(run):
        if isinstance(components, Snapshot):
            step, label = getattr(components, unit), UNITS[unit]
            components = to_numpy(components.directions).T
        where.append(step)
        found.append(_streaks_of(to_numpy(components), reference, levels))
    if not where:
        raise ValueError("`run` is empty. Pass at least one set of components.")
    return _draw(canvas(ax), np.array(where), np.array(found), levels, reference.shape[0], label)


def _steps(run: Any) -> Iterable[tuple[Any, Any]]:
    return run.items() if isinstance(run, Mapping) else enumerate(run, start=1)


def _streaks_of(components: np.ndarray, reference: np.ndarray, levels: np.ndarray) -> list[int]:
    components = np.atleast_2d(components)
    k = min(components.shape[0], reference.shape[0])  # early on there may be fewer
    pair = components[:k], reference[:k]
    return [longest_correct_streak(*pair, float(level)) for level in levels]


def _draw(
    ax: Any, where: np.ndarray, found: np.ndarray, levels: np.ndarray, k: int, label: str
) -> Any:
    from matplotlib.ticker import MaxNLocator

    for i, level in enumerate(levels):
        line, mark = LOOKS[(i + i // 4) % 4]
        look = {"linestyle": line, "marker": mark, "color": COLOURS[i % 4]}
        # With many steps, space the marks evenly and shift them from line to line.
        marks = {"markersize": 4.5, "markevery": (0.03 * i, 0.15) if where.size > 25 else None}
        ax.plot(where, found[:, i], label=f"V = {name_of_angle(level)}", **look, **marks)
    if where.min() > 0 and where.max() > 50 * where.min():
        ax.set_xscale("log")
    elif label != UNITS["seconds"]:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    ax.set_ylim(-0.03 * k, 1.04 * k)
    ax.set(xlabel=label, ylabel="longest correct streak (components)")
    legend_above(ax, 4)
    return ax
