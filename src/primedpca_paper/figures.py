"""Figures 1, 2, 3 and 7 to 11 of the paper, drawn from a results folder.

The paper does not say how its axes are scaled.  Ours are logarithmic along a run, because runs are
evaluated at logarithmically spaced steps and the primings differ by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.plots.canvas import new_figure
from primedpca_paper.claims import below
from primedpca_paper.datasets import SETS, TITLES
from primedpca_paper.protocol import EXTRAS, N_COMPONENTS, OURS, PAPERS, THRESHOLDS
from primedpca_paper.records import write_whole
from primedpca_paper.style import (
    COLOURS,
    MARKS,
    component_colours,
    house_style,
    legend_handles,
    look,
    save,
)
from primedpca_paper.tables import missing_from
from primedpca_paper.traces import ALONE, Curve, Results, Trace, curve, name_of

__all__ = ["APPENDIX", "appendix_figure", "figure_1", "figure_2", "figure_3"]

#: Set that each figure of the appendix shows.
APPENDIX = {f"figure-{7 + i}": name for i, name in enumerate(SETS)}
#: The exponential set run with five components, for figure 3.
FIVE = "exponential-k5"
#: Number of last evaluations by whose mean a curve is normalised.
TAIL = 5
UNITS = {"seconds": "time (s)", "steps": "step"}

STREAKS = """\
Mean streak over runs; shading: ± the standard error of the mean. Dashed: the priming alone at its \
best setting; solid: pPCA primed by the method of that colour, with l = 0, 2, 4 extra directions.
Over time, a point is at the mean time of its step, which for pPCA includes one refining; black \
marks above the top line are our own methods with tolerance V at their mean time, if every run of \
them had a streak of 16.
Over steps, a step is a mini-batch for EigenGame and Oja's method and a pass over all data for \
the power method. After the first epoch only evaluations at ends of epochs are drawn; between \
them streaks at fine V are shorter.
A cross (×) marks where the mean of pPCA lies below its priming's at the same step and condition \
(b) of the theory fails in some run there; a plus sign where it lies below for another reason \
(claims.md lists both)."""


def figure_2(results: Results, folder: Path) -> list[Path]:
    """Draw the longest correct streak on every set at V = pi/8, over time and over steps."""
    threshold = THRESHOLDS[0]
    paths = []
    for unit in UNITS:
        with house_style():
            figure = new_figure(7.5, 4.6)
            axes = figure.subplots(2, 3, sharey=True)
            for axis, name in zip(axes.flat, SETS, strict=False):
                begin = _streaks(axis, results, name, threshold, unit)
                axis.set_xlim(left=begin)
                axis.set_title(TITLES[name])
                axis.set_xlabel(UNITS[unit])
            _finish(axes, unit)
            axes[1, 2].axis("off")
            handles = legend_handles(_drawn(results, SETS), axes)
            axes[1, 2].legend(handles=handles, loc="center", fontsize=7)
            paths += save(figure, folder / ("figure-2" + _suffix(unit)))
    title = f"Figure 2. The longest correct streak at V = {name_of(threshold)} on the small sets."
    return [*paths, _caption(folder / "figure-2.txt", results, title, STREAKS)]


def appendix_figure(target: str, results: Results, folder: Path) -> list[Path]:
    """Draw the longest correct streak on one set at every V, over time and over steps."""
    name = APPENDIX[target]
    paths = []
    for unit in UNITS:
        with house_style():
            figure = new_figure(9.0, 5.2)
            axes = figure.subplots(2, 4, sharex=True, sharey=True)
            begins = []
            for axis, threshold in zip(axes.flat, THRESHOLDS, strict=True):
                begins.append(_streaks(axis, results, name, threshold, unit))
                axis.set_title(f"V = {name_of(threshold)}")
            for axis in axes[-1]:
                axis.set_xlabel(UNITS[unit])
            axes[0, 0].set_xlim(left=min((x for x in begins if x is not None), default=None))
            _finish(axes, unit)
            figure.suptitle(TITLES[name], fontsize=10)
            handles = legend_handles(_drawn(results, [name]), axes)
            figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=7)
            paths += save(figure, folder / (target + _suffix(unit)))
    number = target.removeprefix("figure-")
    title = f"Figure {number}. The longest correct streak on {TITLES[name]} at every V."
    return [*paths, _caption(folder / f"{target}.txt", results, title, STREAKS)]


def _suffix(unit: str) -> str:
    return "" if unit == "seconds" else f"-{unit}"


def _drawn(results: Results, names: Sequence[str]) -> list[tuple[str, int | None]]:
    """Return the lines that were run on any of these sets."""
    return [
        (method, extra)
        for method in PAPERS
        for extra in (ALONE, *EXTRAS)
        if any(results.traces(name, method, extra) for name in names)
    ]


def _streaks(axis: Any, results: Results, name: str, threshold: float, unit: str) -> float | None:
    """Draw the curves of one panel, with marks for our methods and for failed conditions.

    Returns the left limit of the axis, somewhat before the first streak.
    """
    lines = _drawn(results, [name])
    begins = _mark_ours(axis, results, name, threshold) if unit == "seconds" else []
    for i, (method, extra) in enumerate(lines):
        traces = results.traces(name, method, extra)
        every = curve(traces, lambda trace: trace.streaks(threshold))
        traces = _on_ends(traces, results.per_epoch(name, method))
        found = curve(traces, lambda trace: trace.streaks(threshold))
        x = getattr(found, unit)
        begins += list(x[found.mean > 0][:1])
        # Offsets keep the marks of different lines apart.
        axis.plot(x, found.mean, markevery=(i % 7, 7), **look(method, extra))
        low, high = found.mean - found.error, found.mean + found.error
        axis.fill_between(x, low, high, color=COLOURS[method], alpha=0.15, linewidth=0)
        if extra is not ALONE:
            _mark_below(axis, results, (name, method, extra, threshold), every, unit)
    if begins or lines:
        axis.set_xscale("log")
    else:
        _not_run(axis)
    return min(begins) / 2 if begins else None


def _on_ends(traces: list[Trace], per_epoch: int | None) -> list[Trace]:
    """Return the runs without the evaluations that follow the first epoch and end none.

    Curves through both kinds would go up and down with each of them at fine V.
    """
    if per_epoch is None:
        return traces
    return [
        trace.only((trace.steps < per_epoch) | (trace.steps % per_epoch == 0)) for trace in traces
    ]


def _not_run(axis: Any) -> None:
    axis.text(0.5, 0.5, "not run", transform=axis.transAxes, ha="center", color="0.4")
    axis.set_xticks([])


def _mark_below(
    axis: Any, results: Results, which: tuple[str, str, int, float], found: Curve, unit: str
) -> None:
    for point in below(results, *which):
        at = int(np.searchsorted(found.steps, point.step))
        x = getattr(found, unit)[at]
        mark = "x" if point.verdict == "b fails" else "+"
        axis.plot(x, found.mean[at], **MARKS[mark] | {"color": COLOURS[point.method]}, zorder=5)


def _mark_ours(axis: Any, results: Results, name: str, threshold: float) -> list[float]:
    """Draw a mark for each of our methods, one above the other; return their times."""
    times = []
    for i, method in enumerate(OURS):
        time = results.time(name, method, 0, threshold)
        if time is not None and time.known:
            axis.plot(time.mean, N_COMPONENTS + 1.1 * (i + 1), **MARKS[method])
            times.append(time.mean)
    return times


def _finish(axes: Any, unit: str) -> None:
    room = 1.1 * len(OURS) + 0.3 if unit == "seconds" else 0.0
    for axis in axes.flat:
        axis.set_ylim(-0.4, N_COMPONENTS + 0.4 + room)
        axis.set_yticks(range(0, N_COMPONENTS + 1, 4))
        axis.spines["left"].set_bounds(-0.4, N_COMPONENTS + 0.4)
    for axis in axes[:, 0]:
        axis.set_ylabel("longest correct streak")


def figure_1(results: Results, folder: Path) -> list[Path]:
    """Draw the variances in an example run, before and after refining, and the eigenvalues."""
    name = "exponential"
    pairs = _pairs(results, name, 0)
    with house_style():
        figure = new_figure(5.2, 3.6)
        axis = figure.subplots()
        if pairs:
            alone, refined = pairs[0]
            _variances(axis, [alone], [refined])
            truth = np.geomspace(1000.0, 1.0, 50)[: _measured(refined)]
            axis.hlines(truth, *axis.get_xlim(), linestyles=":", colors="0.35", linewidth=0.7)
            axis.set_yscale("log")
        _label(axis, pairs, "captured variance", eigenvalues=True)
        paths = save(figure, folder / "figure-1")
    about = (
        "One run (the smallest seed) of EigenGame with k = 16 at its best learning rate. Dotted: "
        "the eigenvalues of the covariance; dashed: the variance along each direction of "
        "EigenGame; solid: along each component of pPCA (l = 0) from the same directions. "
        "Each component has its colour; some are numbered on the right."
    )
    title = f"Figure 1. An example run on {TITLES[name]} data."
    return [*paths, _caption(folder / "figure-1.txt", results, title, about)]


def figure_3(results: Results, folder: Path) -> list[Path]:
    """Draw the captured variance during training with k = 5, raw and normalised."""
    alone = results.traces(FIVE, "eigengame", ALONE)
    refined = results.traces(FIVE, "eigengame", 0)
    with house_style():
        figure = new_figure(7.0, 3.1)
        for axis, normalised in zip(figure.subplots(1, 2), (False, True), strict=True):
            if alone and refined:
                _variances(axis, alone, refined, normalised)
            what = "captured variance" + (" / final" if normalised else "")
            _label(axis, alone and refined, what)
            axis.set_xlabel(UNITS["steps"])
            axis.set_title("EigenGame and pPCA" + (", normalised" if normalised else ""))
        paths = save(figure, folder / "figure-3")
    about = (
        "EigenGame (dashed) and pPCA primed by it (solid), k = 5; each component has its colour "
        "and is numbered on the right. Mean over runs; shading: ± the standard error of the mean. "
        f"Normalised: each curve divided by the mean of its last {TAIL} evaluations. A step is a "
        "mini-batch."
    )
    title = f"Figure 3. Captured variance on {TITLES['exponential']} data."
    return [*paths, _caption(folder / "figure-3.txt", results, title, about)]


def _pairs(results: Results, name: str, extra: int) -> list[tuple[Trace, Trace]]:
    """Return the runs of EigenGame paired with their refined runs."""
    refined = {trace.seed: trace for trace in results.traces(name, "eigengame", extra)}
    alone = results.traces(name, "eigengame", ALONE)
    return [(trace, refined[trace.seed]) for trace in alone if trace.seed in refined]


def _measured(trace: Trace) -> int:
    """Return the number of components of a run whose variance was measured."""
    return int(np.isfinite(trace.variances).any(axis=0).sum())


def _variances(
    axis: Any, alone: list[Trace], refined: list[Trace], normalised: bool = False
) -> None:
    count = _measured(refined[0])
    colours = component_colours(count)
    for traces, extra in ((alone, ALONE), (refined, 0)):
        found = curve(traces, lambda trace: _estimates(trace, count, normalised))
        for i, colour in enumerate(colours):
            low, high = found.mean[:, i] - found.error[:, i], found.mean[:, i] + found.error[:, i]
            axis.plot(found.steps, found.mean[:, i], **look("eigengame", extra) | {"color": colour})
            axis.fill_between(found.steps, low, high, color=colour, alpha=0.15, linewidth=0)
        # Number the components, from 1, where the refined curves end.
        for i in range(0, count if extra == 0 and not normalised else 0, max(1, count // 5)):
            end = {"xy": (1.01, found.mean[-1, i]), "xycoords": ("axes fraction", "data")}
            if np.isfinite(found.mean[-1, i]):
                axis.annotate(str(i + 1), **end, va="center", fontsize=6.5, color=colours[i])
    axis.set_xscale("log")
    axis.set_xlim(found.steps[0], found.steps[-1])


def _estimates(trace: Trace, count: int, normalised: bool) -> np.ndarray:
    values = trace.variances[:, :count]
    return values / values[-TAIL:].mean(axis=0) if normalised else values


def _label(axis: Any, there: Any, what: str, eigenvalues: bool = False) -> None:
    from matplotlib.lines import Line2D

    axis.set_xlabel(UNITS["steps"])
    axis.set_ylabel(what)
    if not there:
        _not_run(axis)
        return
    grey: dict[str, Any] = {"color": "0.35"}
    handles = [Line2D([], [], label="eigenvalues", linestyle=":", **grey)] if eigenvalues else []
    handles.append(Line2D([], [], label="EigenGame", **look("eigengame", ALONE) | grey))
    handles.append(Line2D([], [], label="pPCA", **look("eigengame", 0) | grey))
    if eigenvalues:
        axis.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    else:
        axis.legend(handles=handles, loc="best", fontsize=7)


def _caption(path: Path, results: Results, title: str, about: str) -> Path:
    missing = missing_from(results)
    parts = [title, about, f"Machine: {results.machine}."]
    parts += [f"Not run: {'; '.join(missing)}."] if missing else []
    write_whole(path, "\n".join(parts) + "\n")
    return path
