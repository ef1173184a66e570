"""Proven bounds of the components: at the end, and after every pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca._core.wording import degrees
from primedpca._solve.history import counted_bounds
from primedpca.plots.canvas import (
    BLUE,
    GREEN,
    RED,
    canvas,
    fitted,
    ink,
    legend_above,
    number_components,
)
from primedpca.result import Certificate

__all__ = ["certificate", "convergence"]

LEAST = 1e-12  # degrees; stands for an angle of zero on a logarithmic axis
PROVEN = "bound on the angle to\nthe true component (degrees)"
FEW = 8  # lines with a legend entry each; more get a colour bar


def certificate(model: Any, ax: Any = None, *, tol: float | None = None) -> Any:
    """Draw the proven bound on the angle between each component and the true one, in degrees.

    Dots are components proven within ``tol``, and crosses are components that are not.
    Components that the certificate does not distinguish are joined by a bar at the bound of
    their subspace; squares are those of them whose subspace is proven within ``tol``.

    Parameters
    ----------
    model : PrimedPCA or Certificate
        Fitted with a certificate, or the result of :func:`primedpca.certify`.
    ax : matplotlib.axes.Axes, optional
    tol : float, optional
        Requested angle in radians, default=that of the model.

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
        (met & tied & ~proof.zero, f"subspace proven{within}", GREEN, "s"),
        (proof.zero, "no variance", ink(ax), "d"),
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
            "This model has no certificate to draw. Fit it with `certificate`='auto', or draw "
            "`primedpca.certify(X, model.components_)`."
        )
    return found, model.tol if tol is None else tol


def _join_clusters(ax: Any, proof: Certificate, k: int) -> None:
    label: str | None = "not distinguished"
    for start, stop, angle in proof.clusters:
        height = max(math.degrees(angle), LEAST)
        # A cluster that reaches past the last component is drawn to the edge of the axes.
        ends = (start + 1, min(stop, k + 1))
        look: dict[str, Any] = {"color": GREEN, "linewidth": 5, "alpha": 0.4, "zorder": 1}
        ax.plot(ends, (height, height), solid_capstyle="round", label=label, **look)
        label = None


def convergence(model: Any, ax: Any = None) -> Any:
    """Draw the proven bound of each component after every pass over the data.

    Components that were not distinguished by then have the bound of their subspace.

    Parameters
    ----------
    model : PrimedPCA
        Fitted.  Without a certificate, the estimated remaining change is drawn.
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
            "The history of this model has neither bounds nor changes (a stream, or a full "
            "decomposition without a certificate). Fit it with `certificate`='auto'."
        )
    ax = canvas(ax)
    if proven:
        _bound_lines(ax, proven)
    if expected:
        passes = [row["passes"] for row in expected]
        changes = np.maximum(np.degrees([row["change"] for row in expected]), LEAST)
        look: dict[str, Any] = {"color": ink(ax), "linestyle": ":", "marker": ".", "markersize": 4}
        ax.plot(passes, changes, label="estimated change", **look)
    line = {"color": ink(ax), "linestyle": "--", "linewidth": 1}
    ax.axhline(math.degrees(model.tol), label=f"tol = {degrees(model.tol)}", **line)
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel("passes over the data")
    _angle_axis(ax, PROVEN if proven else "estimated change (degrees)")
    legend_above(ax, 4)
    return ax


def _bound_lines(ax: Any, rows: list[dict[str, Any]]) -> None:
    from matplotlib import colormaps

    passes = np.array([row["passes"] for row in rows], dtype=np.float64)
    k = max(row["angle_bounds"].size for row in rows)
    # With a fraction of the variance, k grows during the fit: early rows have fewer bounds.
    bounds = np.full((len(rows), k), np.nan)
    for at, row in enumerate(rows):
        own, counted = np.asarray(row["angle_bounds"]), np.asarray(counted_bounds(row))
        # A component without variance counts as 0, which would look like a very tight bound.
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
    # Include horizontal lines, and span at least three decades, so that ticks are powers of ten.
    levels = [float(y) for line in ax.lines for y in line.get_ydata()]
    low, high = min(levels) / 2.5, min(2.5 * max(levels), 250.0)
    ax.set_ylim(min(low, high / 1e3), high)
    ax.set_ylabel(label)
