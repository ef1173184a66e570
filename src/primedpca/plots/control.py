"""Control charts of Hotelling's T² and SPE."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca.monitoring import Limits, Statistics, limits, statistics
from primedpca.plots.canvas import BLUE, RED, fitted, ink, is_scaled, new_figure, plain, write_out

__all__ = ["monitor"]

LARGE = 2_000  # points; more are rasterised, also in vector formats
FAR = 30.0  # times the limit; a row beyond that makes the axis logarithmic


def monitor(
    model: Any,
    X: Any,  # noqa: N803
    level: float = 0.99,
    axes: Any = None,
    *,
    known: Limits | None = None,
) -> Any:
    """Draw Hotelling's T² and SPE of rows, with limits that ordinary new rows rarely exceed.

    Parameters
    ----------
    model : PrimedPCA
        Fitted.
    X : data of shape (n, d), or Statistics
        Rows to check, or the result of :func:`primedpca.monitoring.statistics` for them.
    level : float in (0, 1), default=0.99
        Fraction of ordinary rows below each limit.
    axes : pair of matplotlib.axes.Axes, optional
        Axes for T² and for SPE.
    known : Limits, optional
        Result of :func:`primedpca.monitoring.limits`, such as limits calibrated on ordinary
        rows; by default the limits of the model alone, which assume normal rows.

    Returns
    -------
    ndarray of two Axes
    """
    found = X if isinstance(X, Statistics) else statistics(model, X)
    bounds = limits(fitted(model), level) if known is None else known
    if axes is None:
        axes = new_figure(6.4, 4.2).subplots(2, 1, sharex=True)
    axes = np.asarray(axes, dtype=object).ravel()
    if axes.shape != (2,):
        raise ValueError(f"`axes` has {axes.size} axes, but two are needed: for T² and for SPE.")
    words = f"limit for {100 * bounds.level:g} %" + (
        ", if normal" if known is None else " of new rows"
    )
    _chart(axes[0], found.t2, bounds.t2, words)
    axes[0].set_ylabel("T² (no unit)")
    _chart(axes[1], found.spe, bounds.spe, words)
    axes[1].set_ylabel("SPE " + ("(scaled data)" if is_scaled(model) else "(units of the data²)"))
    axes[1].set_xlabel("row")
    return axes


def _chart(ax: Any, values: np.ndarray, limit: float, name: str) -> None:
    rows, beyond = np.arange(values.size), values > limit
    size = float(np.clip(6000 / max(values.size, 1), 1.5, 16.0))
    look = {"s": size, "linewidths": 0, "rasterized": values.size > LARGE}
    ax.scatter(rows[~beyond], values[~beyond], color=BLUE, **look)
    cross = {"marker": "x", "s": max(2 * size, 12.0), "linewidths": 1.0}
    count = f"beyond: {beyond.sum():,} of {values.size:,} ({beyond.mean():.2%})"
    ax.scatter(rows[beyond], values[beyond], color=RED, label=count, **cross)
    line = {"color": ink(ax), "linestyle": "--", "linewidth": 1}
    ax.axhline(limit, label=f"{name}: {plain(limit, 3)}", **line)
    top = float(values.max(initial=0.0))
    if limit > 0 and top > FAR * limit:
        ax.set_yscale("log", nonpositive="mask")
        ax.set_ylim(bottom=limit / 1e3)
    else:
        ax.set_ylim(0, 1.08 * max(top, limit) or 1.0)
        write_out(ax.yaxis)
    ax.margins(x=0.01)
    above = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 2, "borderpad": 0.1}
    ax.legend(frameon=False, **above)
