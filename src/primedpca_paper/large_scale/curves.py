"""Plots of captured variance and streaks during training, on given axes (figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

__all__ = ["LAST", "Curve", "draw_streaks", "draw_variances", "normalised"]

#: Number of last points by whose mean a curve is normalised.
LAST = 5


class Curve(NamedTuple):
    """A method's captured variances during training, from one run or several.

    Attributes
    ----------
    steps : ndarray of shape (t,)
        Steps of the evaluations.
    variances : ndarray of shape (runs, t, k)
        Variance along each component.
    style : str, default="-"
        Matplotlib's style of the line.
    """

    steps: np.ndarray
    variances: np.ndarray
    style: str = "-"


def normalised(variances: np.ndarray) -> np.ndarray:
    """Return every curve divided by the mean of its last five points, ``(runs, t, k)``."""
    final = variances[:, -LAST:].mean(axis=1, keepdims=True)
    return variances / np.where(final > 0, final, 1.0)


def draw_variances(
    axis: Any,
    curves: Mapping[str, Curve],
    *,
    divide: bool = False,
    certified: np.ndarray | None = None,
) -> None:
    """Draw a line for each component and method; the colour shows the component.

    Parameters
    ----------
    axis : matplotlib axes
        Axes to draw on.
    curves : dict of str to Curve
        Curves of each method.  Means over runs are drawn; of several runs the standard error is
        shaded.
    divide : bool, default=False
        Divide every curve by the mean of its last five points.
    certified : array of shape (k,), optional
        Certified variances, marked at the right edge.
    """
    k = next(iter(curves.values())).variances.shape[2]
    colours = component_colours(k)
    for curve in curves.values():
        values = normalised(curve.variances) if divide else curve.variances
        for i in range(k):
            _band(axis, curve.steps, values[:, :, i], colours[i], curve.style)
    axis.set_xlabel("training steps")
    axis.margins(x=0.01)
    if divide:
        axis.axhline(1.0, color="0.6", linewidth=0.6, zorder=0)
        axis.set(ylim=(0, 1.6), ylabel="normalised captured variance")
        return
    final = np.concatenate([curve.variances[:, -1].ravel() for curve in curves.values()])
    known = final if certified is None else np.asarray(certified)
    axis.set(yscale="log", ylabel="captured variance $v^TCv$ (data units²)")
    axis.set_ylim(known[known > 0].min() / 20, 2 * max(known.max(), final.max()))
    if certified is not None:
        edge = axis.get_xlim()[1]
        options = {"marker": "<", "markersize": 4.5, "clip_on": False, "linestyle": "none"}
        for value, colour in zip(certified, colours, strict=True):
            axis.plot([edge], [value], color=colour, zorder=5, **options)


def draw_streaks(
    axis: Any, curves: Mapping[str, tuple[np.ndarray, np.ndarray, str]], k: int
) -> None:
    """Draw longest correct streaks, from ``(steps, streaks (runs, t), style)`` of each method."""
    for steps, streaks, style in curves.values():
        _band(axis, steps, streaks.astype(float), "black", style)
    axis.set(xlabel="training steps", ylim=(-0.2, k + 0.2), yticks=range(0, k + 1, max(1, k // 4)))
    axis.set_ylabel("longest correct streak")
    axis.margins(x=0.01)


def component_colours(k: int) -> Any:
    """Return a colour for each component, the first the darkest."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0.0, 0.92, k))


def _band(axis: Any, steps: np.ndarray, values: np.ndarray, colour: Any, style: str) -> None:
    mean = values.mean(axis=0)
    axis.plot(steps, mean, style, color=colour, linewidth=1.1)
    if values.shape[0] > 1:
        error = values.std(axis=0, ddof=1) / np.sqrt(values.shape[0])
        axis.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
