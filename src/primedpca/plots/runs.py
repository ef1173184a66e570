"""Runs and their costs, and control charts of new rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._core.wording import duration, size
from primedpca.metrics import longest_correct_streak
from primedpca.monitoring import Limits, Statistics, limits, statistics
from primedpca.plots import canvas
from primedpca.plots.plane import LARGE
from primedpca.result import Snapshot

LOOKS = ("-o", "--s", ":^", "-.D")
COLOURS = (canvas.BLUE, canvas.RED, canvas.GREEN, canvas.PURPLE)
UNITS = {"passes": "passes over the data", "step": "step", "seconds": "time (s)"}
FAR = 30.0  # times the limit; a row beyond that makes the axis logarithmic


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
    where, found, axis = [], [], UNITS["step"]
    steps = run.items() if isinstance(run, Mapping) else enumerate(run, start=1)
    for step, components in steps:
        if isinstance(components, Snapshot):
            step, axis = getattr(components, unit), UNITS[unit]
            components = to_numpy(components.directions).T
        components = np.atleast_2d(to_numpy(components))
        least = min(len(components), len(reference))  # early on there may be fewer
        pair = components[:least], reference[:least]
        where.append(step)
        found.append([longest_correct_streak(*pair, float(level)) for level in levels])
    if not where:
        raise ValueError("`run` is empty. Pass at least one set of components.")
    ax, k = canvas.axes(ax), reference.shape[0]
    for i, level in enumerate(levels):
        # With many steps, space the marks evenly and shift them from line to line.
        every = (0.03 * i, 0.15) if len(where) > 25 else None
        look = {"color": COLOURS[i % 4], "markersize": 4.5, "markevery": every}
        label = f"V = {canvas.name_of_angle(level)}"
        ax.plot(where, [row[i] for row in found], LOOKS[(i + i // 4) % 4], label=label, **look)
    if min(where) > 0 and max(where) > 50 * min(where):
        ax.set_xscale("log")
    elif axis != UNITS["seconds"]:
        canvas.whole_ticks(ax.xaxis)
    canvas.whole_ticks(ax.yaxis, 8)
    name = "longest correct streak (components)"
    ax.set(ylim=(-0.03 * k, 1.04 * k), xlabel=axis, ylabel=name)
    canvas.legend_above(ax, 4)
    return ax


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
    bounds = limits(canvas.fitted(model), level) if known is None else known
    if axes is None:
        axes = canvas.new_figure(6.4, 4.2).subplots(2, 1, sharex=True)
    axes = np.asarray(axes, dtype=object).ravel()
    if axes.shape != (2,):
        raise ValueError(f"`axes` has {axes.size} axes, but two are needed: for T² and for SPE.")
    whose = ", if normal" if known is None else " of new rows"
    words = f"limit for {100 * bounds.level:g} %{whose}"
    _chart(axes[0], found.t2, bounds.t2, words)
    _chart(axes[1], found.spe, bounds.spe, words)
    axes[0].set_ylabel("T² (no unit)")
    axes[1].set(xlabel="row", ylabel=f"SPE {canvas.squared_unit(model)}")
    return axes


def _chart(ax: Any, values: np.ndarray, limit: float, name: str) -> None:
    rows, beyond = np.arange(values.size), values > limit
    size = float(np.clip(6000 / max(values.size, 1), 1.5, 16.0))
    look = {"s": size, "linewidths": 0, "rasterized": values.size > LARGE}
    ax.scatter(rows[~beyond], values[~beyond], color=canvas.BLUE, **look)
    cross = {"marker": "x", "s": max(2 * size, 12.0), "linewidths": 1.0}
    count = f"beyond: {beyond.sum():,} of {values.size:,} ({beyond.mean():.2%})"
    ax.scatter(rows[beyond], values[beyond], color=canvas.RED, label=count, **cross)
    canvas.dashed(ax, limit, f"{name}: {canvas.plain(limit, 3)}")
    top = float(values.max(initial=0.0))
    if limit > 0 and top > FAR * limit:
        ax.set_yscale("log", nonpositive="mask")
        ax.set_ylim(bottom=limit / 1e3)
    else:
        ax.set_ylim(0, 1.08 * max(top, limit) or 1.0)
        canvas.write_out(ax.yaxis)
    ax.margins(x=0.01)
    above = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 2, "borderpad": 0.1}
    ax.legend(frameon=False, **above)


def plans(plan: Any, ax: Any = None) -> Any:
    """Draw the expected time, passes and memory of each method that the planner compared.

    Parameters
    ----------
    plan : Plan or PrimedPCA
        Result of :func:`primedpca.plan`, or a fitted model, whose ``plan_`` is drawn.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import plan, plots
    >>> ax = plots.plans(plan(np.ones((4000, 2000), dtype="float32"), 8))
    >>> ax.get_xlabel()
    'expected time (s)'
    """
    ways = getattr(getattr(plan, "plan_", plan), "ways", None)
    if not ways:
        raise ValueError(
            "This plan compared no methods: a priming or a fraction of the variance was requested, "
            "or the model's file does not hold them. Draw `plan(X, n_components)` with "
            "`priming`='auto'."
        )
    ax = canvas.axes(ax, 6.4, 0.9 + 0.42 * len(ways))
    longest = max(way.seconds for way in ways)
    for at, way in enumerate(ways):
        colour, hatch = (canvas.BLUE, None) if at == 0 else ("none", "///")
        look = {"height": 0.62, "edgecolor": canvas.BLUE, "linewidth": 1}
        ax.barh(at, way.seconds, color=colour, hatch=hatch, **look)
        passes = f"{way.passes:.0f} pass" + "es" * (round(way.passes) != 1)
        price = f"{duration(way.seconds)}, {passes}, {size(way.memory)}"
        ax.text(way.seconds + 0.015 * longest, at, price, va="center", fontsize="small")
    names = [way.name.replace(" with ", "\nwith ") for way in ways]
    names[0] = f"chosen: {names[0]}"
    ax.set_yticks(range(len(ways)), names)
    ax.set(ylim=(len(ways) - 0.5, -0.5), xlim=(0, 1.6 * longest), xlabel="expected time (s)")
    ax.tick_params(axis="y", length=0, labelcolor=canvas.ink(ax))
    ax.grid(False, axis="y")
    return ax
