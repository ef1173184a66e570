"""Runs and their costs, rules for the number of components, outliers and control charts."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._core.wording import duration, size
from primedpca.choosing import Choice
from primedpca.metrics import longest_correct_streak
from primedpca.monitoring import Limits, Outliers, Statistics, limits, statistics
from primedpca.monitoring import outliers as row_p_values
from primedpca.plots import canvas
from primedpca.plots.plane import LARGE
from primedpca.result import Snapshot
from primedpca.sources import as_source
from primedpca.sources.memory.frames import aligned, labels_along

LOOKS = ("-o", "--s", ":^", "-.D")
COLOURS = (canvas.BLUE, canvas.RED, canvas.GREEN, canvas.PURPLE)
UNITS = {"passes": "passes over the data", "step": "step", "seconds": "time (s)"}
FARTHEST = 1e300  # distances beyond it have no room on an axis
FAR = 30.0  # times the limit; a row beyond that makes the axis logarithmic


@canvas.figure_if_new
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
    matplotlib.figure.Figure
        Or ``ax``, if that was given.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import plots
    >>> swapped = np.eye(3)[[0, 2, 1]]
    >>> figure = plots.streaks([swapped, np.eye(3)], np.eye(3), np.pi / 8)
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [1, 3]
    """
    if unit not in UNITS:
        raise ValueError(f"`unit`={unit!r} must be one of {', '.join(map(repr, UNITS))}.")
    names, levels = labels_along(reference, 1), np.atleast_1d(thresholds)
    reference = np.atleast_2d(to_numpy(reference))
    where, found, axis = [], [], UNITS["step"]
    steps = run.items() if isinstance(run, Mapping) else enumerate(run, start=1)
    for step, components in steps:
        if isinstance(components, Snapshot):
            step, axis = getattr(components, unit), UNITS[unit]
            components = to_numpy(components.directions).T
        given = labels_along(components, 1)
        components = np.atleast_2d(to_numpy(components))
        components = aligned(components, given, names, "`reference`")
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


@canvas.figure_if_new
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
    matplotlib.figure.Figure
        Or ``axes``, if they were given.
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


@canvas.figure_if_new
def outliers(
    model: Any,
    X: Any,  # noqa: N803
    level: float = 0.01,
    ax: Any = None,
    *,
    names: Any = None,
    n_names: int = 10,
    **options: Any,
) -> Any:
    """Draw T² and SPE of rows against each other, and mark and name the outliers.

    Rows far to the right are extreme within the span of the components, rows far up are far from
    the span.

    Parameters
    ----------
    model : PrimedPCA
        Fitted.
    X : data of shape (n, d), or Outliers
        Rows to check, or the result of :func:`primedpca.monitoring.outliers` for them.
    level : float in (0, 1), default=0.01
        Rows with a p-value below it are marked.
    ax : matplotlib.axes.Axes, optional
    names : sequence of length n, optional
        Names of the rows, default=those of ``X``, or their numbers from 0.
    n_names : int, default=10
        Maximum number of named rows: those with the smallest p-values.
    **options
        Of :func:`primedpca.monitoring.outliers`, such as ``new=True``.

    Returns
    -------
    matplotlib.figure.Figure
        Or ``ax``, if that was given.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> X = load_iris().data
    >>> figure = plots.outliers(PrimedPCA(2).fit(X), X)
    >>> figure.axes[0].get_xlabel()
    'T² (no unit): distance within the span'
    """
    if not 0 < level < 1:
        raise ValueError(f"`level`={level} must lie in (0, 1), such as 0.01.")
    found = X if isinstance(X, Outliers) else row_p_values(canvas.fitted(model), X, **options)
    words = _row_names(X, names, found.t2.size)
    ax = canvas.axes(ax, 5.6, 4.0)
    beyond = found.p_value < level
    size = float(np.clip(6000 / max(beyond.size, 1), 1.5, 16.0))
    look = {"s": size, "linewidths": 0, "rasterized": beyond.size > LARGE}
    ax.scatter(found.t2[~beyond], found.spe[~beyond], color=canvas.BLUE, label="ordinary", **look)
    count = f"p < {level:g}: {beyond.sum():,} of {beyond.size:,} rows"
    cross = {"marker": "x", "s": max(2 * size, 14.0), "linewidths": 1.0, "color": canvas.RED}
    ax.scatter(found.t2[beyond], found.spe[beyond], label=count, **cross)
    for axis, values in ((ax.xaxis, found.t2), (ax.yaxis, found.spe)):
        _wide_axis(axis, values)
    from primedpca.plots.placement import Names

    farthest = np.argsort(found.p_value, kind="stable")[: min(n_names, int(beyond.sum()))]
    at = np.stack([found.t2, found.spe], axis=1)[farthest]
    shown = canvas.literals([words[i] for i in farthest], [str(i) for i in farthest])
    Names(ax, at, shown, avoid=np.stack([found.t2, found.spe], axis=1)[beyond])
    ax.set_xlabel("T² (no unit): distance within the span")
    ax.set_ylabel(f"SPE {canvas.squared_unit(model)}:\ndistance from the span")
    canvas.legend_above(ax, 2)
    return ax


def _row_names(x: Any, names: Any, n: int) -> list[str]:
    if names is None and not isinstance(x, Outliers):
        names = as_source(x).traits.row_names()
    if names is None:
        return [str(i) for i in range(n)]
    if len(names) != n:
        raise ValueError(f"`names` has {len(names)} entries. Pass one for each of {n} rows.")
    return [str(name) for name in names]


def _wide_axis(axis: Any, values: np.ndarray) -> None:
    """Make an axis logarithmic if its values span orders of magnitude, with room at both ends.

    Infinite distances, as where a variance is zero, are not drawn.
    """
    values = values[np.abs(values) < FARTHEST]
    top, middle = float(values.max(initial=0.0)), float(np.median(values)) if values.size else 0.0
    if middle > 0 and top > FAR * middle:
        low = float(values[values > 0].min())
        getattr(axis.axes, f"set_{axis.axis_name}scale")("log", nonpositive="mask")
        ends = (max(low, middle / 1e3) / 2, 3 * top)
    else:
        # Values far from zero, as of many columns, would be pressed together.
        low = float(values.min(initial=top))
        low = low if low > 0.3 * top else 0.0
        ends = (low - 0.04 * (top - low), top + 0.15 * (top - low) if top > low else top + 1.0)
        canvas.write_out(axis)
    getattr(axis.axes, f"set_{axis.axis_name}lim")(ends)


@canvas.figure_if_new
def choose_k(found: Any, axes: Any = None) -> Any:
    """Draw what rules for the number of components compare, and what each suggests.

    Above, the variances with bootstrap intervals, and the variances that the rules ask for; below,
    the number that each rule suggests, with a triangle where it may be more.

    Parameters
    ----------
    found : Choice
        Result of :func:`primedpca.choose_k`.
    axes : pair of matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.figure.Figure
        Or ``axes``, if they were given.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from primedpca import choose_k, plots
    >>> figure = plots.choose_k(choose_k(load_wine().data, scale="std", random_state=0))
    >>> len(figure.axes)
    2
    """
    if not isinstance(found, Choice):
        raise TypeError(f"`found` must be the result of choose_k, got {type(found).__name__}.")
    if axes is None:
        parts = {"height_ratios": (1.6, 1.0)}
        axes = canvas.new_figure(6.4, 5.0).subplots(2, 1, sharex=True, gridspec_kw=parts)
    axes = np.asarray(axes, dtype=object).ravel()
    if axes.shape != (2,):
        raise ValueError(f"`axes` has {axes.size} axes, but two are needed.")
    above, below = axes
    p = found.variances.size
    numbers = np.arange(1, p + 1)
    size = 4.5 if p <= 40 else 2.5
    look = {"color": canvas.BLUE, "markersize": size, "linewidth": 1}
    above.plot(numbers, found.variances, "o-", label="variance", **look)
    interval = f"{100 * found.level:g} % interval"
    above.vlines(numbers, *found.intervals.T, color=canvas.BLUE, linewidth=1.4, label=interval)
    for (rule, least), line, colour in zip(
        found.thresholds.items(),
        ("--", "-.", ":"),
        (canvas.RED, canvas.GREEN, canvas.PURPLE),
        strict=True,
    ):
        above.plot(np.arange(1, least.size + 1), least, line, color=colour, label=rule)
    above.set_yscale("log", nonpositive="mask")
    seen = found.variances[found.variances > 1e-6 * found.variances[0]]
    above.set_ylim(seen.min() / 2, 2 * np.nanmax(found.intervals[0]))
    above.set_ylabel(f"variance {canvas.squared_unit(found.model)}")
    canvas.legend_above(above, 3)
    _suggestions(below, found.suggestions, p)
    return axes


def _suggestions(ax: Any, suggestions: Any, p: int) -> None:
    """Draw the number of components of each rule on a line of its own."""
    look = {"color": canvas.BLUE, "markersize": 6}
    for at, one in enumerate(suggestions):
        if one.n_components is None:
            ax.text(
                0.5,
                at,
                one.why,
                transform=ax.get_yaxis_transform(),
                ha="center",
                va="center",
                fontsize="small",
            )
            continue
        ax.plot(one.n_components, at, ">" if one.at_least else "o", **look)
        # To the left of numbers in the right half, where the text would leave the axes.
        left = one.n_components > p / 2
        side = {"xytext": (-7 if left else 7, 0), "ha": "right" if left else "left", "va": "center"}
        ax.annotate(
            one.words.replace(">=", "≥"), (one.n_components, at), textcoords="offset points", **side
        )
    canvas.number_components(ax, p)
    ax.set_xlim(min(ax.get_xlim()[0], -0.02 * p - 0.4))
    ax.set_yticks(range(len(suggestions)), [one.rule for one in suggestions])
    ax.set(ylim=(len(suggestions) - 0.4, -0.6), xlabel="number of components")
    ax.tick_params(axis="y", length=0, labelcolor=canvas.ink(ax))


@canvas.figure_if_new
def plans(plan: Any, ax: Any = None) -> Any:
    """Draw the expected time, passes and memory of each method that the planner compared.

    Parameters
    ----------
    plan : Plan or PrimedPCA
        Result of :func:`primedpca.plan`, or a fitted model, whose ``plan_`` is drawn.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.figure.Figure
        Or ``ax``, if that was given.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import plan, plots
    >>> figure = plots.plans(plan(np.ones((4000, 2000), dtype="float32"), 8))
    >>> figure.axes[0].get_xlabel()
    'expected time (s)'
    """
    ways = getattr(getattr(plan, "plan_", plan), "ways", None)
    if not ways:
        raise ValueError("This plan compared no methods. Draw one of `plan` with `priming`='auto'.")
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
