"""What is proven of the components: at the end, and after every pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca._solve.history import counted_bounds
from primedpca.plots.canvas import (
    BLUE,
    GREEN,
    RED,
    canvas,
    degrees,
    fitted,
    ink,
    legend_above,
    number_components,
)
from primedpca.result import Certificate

__all__ = ["certificate", "convergence"]

LEAST = 1e-12  # degrees; what is drawn of an angle of zero on a logarithmic axis
PROVEN = "angle to the true component,\nat most (degrees)"
FEW = 8  # lines up to here are numbered one by one, more have a colour bar


def certificate(model: Any, ax: Any = None, *, tol: float | None = None) -> Any:
    """Draw how far each component is from the true one, at most, in degrees.

    Dots are components proven within ``tol``, crosses those that fall short.  Components that the
    certificate does not tell apart are joined, at the height of their span; squares are those of
    them that are all here.

    Parameters
    ----------
    model : PrimedPCA or Certificate
    ax : matplotlib.axes.Axes, optional
    tol : float, optional
        The angle asked for, in radians; that of the model by default.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> ax = plots.certificate(PrimedPCA(3).fit(load_iris().data))
    >>> ax.get_yscale(), ax.get_legend().get_texts()[0].get_text()
    ('log', 'proven within tol')
    """
    proof, tol = _proof(model, tol)
    ax = canvas(ax)
    counted = np.where(proof.zero, proof.angle_bounds, proof.counted_bounds())
    bounds, tied = np.maximum(np.degrees(counted), LEAST), counted < proof.angle_bounds
    met = proof.met(np.nextafter(np.pi / 2, 0.0) if tol is None else tol)
    within = "" if tol is None else " within tol"
    numbers = np.arange(1, bounds.size + 1)
    size = 5.5 if bounds.size <= 40 else 3.0
    groups = (
        (met & ~tied & ~proof.zero, f"proven{within}", BLUE, "o"),
        (met & tied & ~proof.zero, f"their span proven{within}", GREEN, "s"),
        (proof.zero, "no variance: nothing to find", ink(ax), "d"),
        (~met & ~proof.zero, f"not proven{within}", RED, "X"),
    )
    for chosen, label, colour, mark in groups:
        if chosen.any():
            look: dict[str, Any] = {"color": colour, "marker": mark, "markersize": size}
            ax.plot(numbers[chosen], bounds[chosen], linestyle="", label=label, **look)
    _join_clusters(ax, proof, bounds.size)
    if tol is not None:
        line = {"color": ink(ax), "linestyle": "--", "linewidth": 1}
        ax.axhline(math.degrees(tol), label=f"tol = {degrees(tol)}", **line)
    number_components(ax, bounds.size)
    _angle_axis(ax, PROVEN)
    legend_above(ax, 2)
    return ax


def _proof(model: Any, tol: float | None) -> tuple[Certificate, float | None]:
    if isinstance(model, Certificate):
        return model, tol
    found = getattr(fitted(model), "certificate_", None)
    if found is None:
        raise ValueError(
            "this model has no certificate to draw; fit it with `certificate`='auto', or draw "
            "what `primedpca.certify(X, model.components_)` returns."
        )
    return found, model.tol if tol is None else tol


def _join_clusters(ax: Any, proof: Certificate, k: int) -> None:
    label: str | None = "not told apart"
    for start, stop, angle in proof.clusters:
        height = max(math.degrees(angle), LEAST)
        # Beyond the components that were kept, as far as the picture goes.
        ends = (start + 1, min(stop, k + 1))
        look: dict[str, Any] = {"color": GREEN, "linewidth": 5, "alpha": 0.4, "zorder": 1}
        ax.plot(ends, (height, height), solid_capstyle="round", label=label, **look)
        label = None


def convergence(model: Any, ax: Any = None) -> Any:
    """Draw what was proven of each component after every pass over the data.

    Of components that were not told apart by then, that is the bound of the span they make.

    Parameters
    ----------
    model : PrimedPCA
        Where nothing was proven, the change that the priming still expected is drawn.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    rows = list(getattr(fitted(model), "history_", []))
    proven = [row for row in rows if "angle_bounds" in row]
    expected = [row for row in rows if np.isfinite(row.get("change", np.nan))]
    if not proven and not expected:
        raise ValueError(
            "the history of this model holds neither bounds nor changes (a stream, or a full "
            "decomposition without a certificate); fit it with `certificate`='auto'."
        )
    ax = canvas(ax)
    if proven:
        _bound_lines(ax, proven)
    if expected:
        passes = [row["passes"] for row in expected]
        changes = np.maximum(np.degrees([row["change"] for row in expected]), LEAST)
        look: dict[str, Any] = {"color": ink(ax), "linestyle": ":", "marker": ".", "markersize": 4}
        ax.plot(passes, changes, label="change still expected", **look)
    line = {"color": ink(ax), "linestyle": "--", "linewidth": 1}
    ax.axhline(math.degrees(model.tol), label=f"tol = {degrees(model.tol)}", **line)
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel("passes over the data")
    _angle_axis(ax, PROVEN if proven else "change still expected (degrees)")
    legend_above(ax, 4)
    return ax


def _bound_lines(ax: Any, rows: list[dict[str, Any]]) -> None:
    from matplotlib import colormaps

    passes = np.array([row["passes"] for row in rows], dtype=np.float64)
    k = max(row["angle_bounds"].size for row in rows)
    bounds = np.full((len(rows), k), np.nan)  # how many a share takes is found on the way
    for at, row in enumerate(rows):
        own, counted = np.asarray(row["angle_bounds"]), np.asarray(counted_bounds(row))
        # Of no variance 0 counts, which would seem proven to a hair.
        bounds[at, : own.size] = np.where(counted == 0, own, counted)
    bounds = np.maximum(np.degrees(bounds), LEAST)
    colours = colormaps["viridis"](np.linspace(0.0, 0.85, k))
    marks = {"marker": "o", "markersize": 3.0, "linewidth": 1.2 if k <= 40 else 0.6}
    for i in range(k):
        label = f"component {i + 1}" if k <= FEW else None
        ax.plot(passes, bounds[:, i], color=colours[i], label=label, **marks)
    if k > FEW:
        _component_bar(ax, k)


def _component_bar(ax: Any, k: int) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    shades = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.85, 256)))
    bar = ax.figure.colorbar(ScalarMappable(Normalize(1, k), shades), ax=ax)
    bar.set_label("component")


def _angle_axis(ax: Any, label: str) -> None:
    ax.set_yscale("log")
    # Lines across the axes count too; at least three decades, so that the ticks are powers.
    levels = [float(y) for line in ax.lines for y in line.get_ydata()]
    low, high = min(levels) / 2.5, min(2.5 * max(levels), 250.0)
    ax.set_ylim(min(low, high / 1e3), high)
    ax.set_ylabel(label)
