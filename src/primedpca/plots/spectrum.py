"""Scree plots: the variances of the components."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca._core.outward_rounding import round_up
from primedpca.plots.canvas import (
    BLUE,
    RED,
    canvas,
    fitted,
    is_scaled,
    legend_above,
    number_components,
    plain,
    write_out,
)

__all__ = ["scree"]

WIDEST = 3.0  # times the largest variance; longer intervals are cut at the top


def scree(model: Any, ax: Any = None, *, log: bool = False) -> Any:
    """Draw the variance of each component, its proven interval, and the cumulative ratio.

    Parameters
    ----------
    model : PrimedPCA
        Fitted.  Without a certificate there are no intervals, and constant data have no ratio.
        Very long intervals are cut at the top, so that the variances stay visible; the legend
        gives the length of the longest.
    ax : matplotlib.axes.Axes, optional
    log : bool, default=False
        Whether the axis of variances is logarithmic; it omits variances of zero.

    Returns
    -------
    matplotlib.axes.Axes
        The cumulative ratio has axes of its own on the right: the last of ``ax.figure.axes``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> ax = plots.scree(PrimedPCA(3).fit(load_iris().data))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('component', 'variance (units of the data²)')
    """
    variances = np.asarray(fitted(model).explained_variance_, dtype=np.float64)
    ax = canvas(ax)
    numbers = np.arange(1, variances.size + 1)
    size = 5.0 if variances.size <= 40 else 2.5
    certificate = getattr(model, "certificate_", None)
    top = variances.max(initial=0.0)
    ax.plot(numbers, variances, "o-", color=BLUE, markersize=size, linewidth=1, label="variance")
    if certificate is not None:
        top = max(top, _intervals(ax, numbers, certificate.eigenvalue_bounds, size))
    number_components(ax, variances.size)
    ax.set_ylabel(
        "variance " + ("(of scaled data)" if is_scaled(model) else "(units of the data²)")
    )
    if log and (variances > 0).any():
        ax.set_yscale("log", nonpositive="mask")
        ax.set_ylim(min(variances[variances > 0].min() / 2, top / 10), 2 * top)
    else:
        seen = WIDEST * variances.max(initial=0.0)
        ax.set_ylim(0.0, 1.08 * (min(top, seen) or top) or 1.0)
        write_out(ax.yaxis)
    summed = _cumulative_ratio(model, ax, numbers, size)
    handles, labels = ax.get_legend_handles_labels()
    legend_above(ax, 3, [*handles, *summed], [*labels, *(line.get_label() for line in summed)])
    return ax


def _intervals(ax: Any, numbers: np.ndarray, bounds: np.ndarray, size: float) -> float:
    """Draw each interval, or an arrow if it has no upper end, and return the largest end."""
    low, high = np.asarray(bounds, dtype=np.float64).T
    closed = np.isfinite(high)
    # Most intervals are too short to be visible, so the legend gives the longest.
    width = float((high - low)[closed].max(initial=0.0))
    look: dict[str, Any] = {"color": RED, "zorder": 3}
    label = f"certified, to {plain(round_up(width, 1), 1)}" if width > 0 else "certified"
    ax.vlines(numbers[closed], low[closed], high[closed], linewidth=1.6, label=label, **look)
    for ends in (low[closed], high[closed]):
        ax.plot(numbers[closed], ends, "_", markersize=1.8 * size, markeredgewidth=size / 4, **look)
    if not closed.all():
        mark = {"marker": "^", "linestyle": "", "color": RED, "markersize": size}
        ax.plot(numbers[~closed], low[~closed], label="lower bound", **mark)
    return float(np.where(closed, high, low).max(initial=0.0))


def _cumulative_ratio(model: Any, ax: Any, numbers: np.ndarray, size: float) -> list[Any]:
    ratio = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    if not ratio.sum() > 0:
        return []
    right = ax.twinx()
    look = {"color": ax.xaxis.label.get_color(), "linestyle": "--", "linewidth": 1, "alpha": 0.8}
    marks = {"marker": "s", "markersize": 0.7 * size, "label": "cumulative ratio (right)"}
    lines: list[Any] = right.plot(numbers, 100 * np.cumsum(ratio), **look, **marks)
    right.set_ylim(0, 104)
    right.set_ylabel("explained variance ratio (%)")
    right.grid(False)
    right.spines["right"].set_visible(True)
    return lines
