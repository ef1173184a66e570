"""Loadings of a component."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import round_up
from primedpca.plots.canvas import (
    BLUE,
    RED,
    canvas,
    check_component,
    feature_names,
    fitted,
    ink,
    percent,
)
from primedpca.result import USEFUL

__all__ = ["loadings"]

MOST_NAMES = 60  # of more loadings, only some are named


def loadings(
    model: Any, component: int = 0, n_largest: int = 20, ax: Any = None, *, names: Any = None
) -> Any:
    """Draw the largest loadings of a component, with proven error bars.

    A component within an angle a of the true one is within 2 sin(a/2) of it, and so is each
    loading: that is the error bar, where a useful angle is proven.

    Parameters
    ----------
    model : PrimedPCA
        Fitted.
    component : int, default=0
        Index from 0.
    n_largest : int, default=20
        Number of loadings, the largest in magnitude.
    ax : matplotlib.axes.Axes, optional
    names : sequence of str of length d, optional
        Names of the columns, default=those that the model was fitted with.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> iris = load_iris(as_frame=True)
    >>> ax = plots.loadings(PrimedPCA(2).fit(iris.data))
    >>> ax.get_yticklabels()[0].get_text()
    'petal length (cm)'
    """
    i = check_component(fitted(model), component)
    if not isinstance(n_largest, (int, np.integer)) or n_largest < 1:
        raise ValueError(f"`n_largest`={n_largest!r} must be an integer of at least 1.")
    values = model.components_[i].astype(np.float64)
    order = np.argsort(-np.abs(values), kind="stable")[:n_largest]
    words = feature_names(model, order, names)
    shown, places = values[order], np.arange(order.size)
    ax = canvas(ax, 5.6, 1.2 + 0.2 * max(3, min(order.size, MOST_NAMES)))
    for chosen, colour, hatch in ((shown >= 0, BLUE, None), (shown < 0, RED, "///")):
        look = {"color": colour, "hatch": hatch, "edgecolor": ax.get_facecolor(), "linewidth": 0}
        ax.barh(places[chosen], shown[chosen], **look)
    told = _error_bars(ax, places, shown, model, i)
    ax.axvline(0, color=ink(ax), linewidth=0.8)
    every = -(-order.size // MOST_NAMES)
    ax.set_yticks(places[::every], words[::every])
    ax.tick_params(axis="y", length=0, labelsize="small")
    ax.set_ylim(max(order.size, 3) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.set_xlabel("loading (components have length 1)" + told)
    ax.set_title(_title(model, i, order.size))
    return ax


def _title(model: Any, i: int, count: int) -> str:
    ratio, d = percent(model, i), model.components_.shape[1]
    name = f"component {i + 1}" + (f": {ratio} of the variance" if ratio else "")
    return name + (f"\n{count} largest of {d:,} loadings" if count < d else "")


def _error_bars(ax: Any, places: np.ndarray, shown: np.ndarray, model: Any, i: int) -> str:
    """Draw the error bars and return their label, where anything useful is proven."""
    proof = getattr(model, "certificate_", None)
    if proof is None or not proof.angle_bounds[i] < USEFUL:
        return ""
    error = 2 * math.sin(proof.angle_bounds[i] / 2)
    ax.hlines(places, shown - error, shown + error, color=ink(ax), linewidth=1.2)
    return f"\nerror bars: each is certified to ± {round_up(error, 1):.1g}"
