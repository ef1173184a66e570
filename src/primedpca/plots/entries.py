"""The entries of a component."""

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

MOST_NAMES = 60  # of more entries, only some are named


def loadings(
    model: Any, component: int = 0, n_largest: int = 20, ax: Any = None, *, names: Any = None
) -> Any:
    r"""Draw the largest entries of a component, with how wrong they can be.

    A component within an angle a of the true one is within 2 sin(a/2) of it, and so is each of
    its entries: that is the whisker, where a useful angle is proven.

    Parameters
    ----------
    model : PrimedPCA
    component : int
        Counted from 0.
    n_largest : int
        How many entries, the largest in magnitude.
    ax : matplotlib.axes.Axes, optional
    names : sequence of str of length d, optional
        Of the columns; those that the model was fitted with by default.

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
        raise ValueError(f"`n_largest`={n_largest!r} must be a whole number, at least 1.")
    entries = model.components_[i].astype(np.float64)
    order = np.argsort(-np.abs(entries), kind="stable")[:n_largest]
    words = feature_names(model, order, names)
    shown, places = entries[order], np.arange(order.size)
    ax = canvas(ax, 5.6, 1.2 + 0.2 * max(3, min(order.size, MOST_NAMES)))
    for chosen, colour, hatch in ((shown >= 0, BLUE, None), (shown < 0, RED, "///")):
        look = {"color": colour, "hatch": hatch, "edgecolor": ax.get_facecolor(), "linewidth": 0}
        ax.barh(places[chosen], shown[chosen], **look)
    told = _whiskers(ax, places, shown, model, i)
    ax.axvline(0, color=ink(ax), linewidth=0.8)
    every = -(-order.size // MOST_NAMES)
    ax.set_yticks(places[::every], words[::every])
    ax.tick_params(axis="y", length=0, labelsize="small")
    ax.set_ylim(max(order.size, 3) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.set_xlabel("entry of the component (of length 1)" + told)
    ax.set_title(_title(model, i, order.size))
    return ax


def _title(model: Any, i: int, count: int) -> str:
    share, d = percent(model, i), model.components_.shape[1]
    name = f"component {i + 1}" + (f": {share} of the variance" if share else "")
    return name + (f"\n{count} largest of {d:,} entries" if count < d else "")


def _whiskers(ax: Any, places: np.ndarray, shown: np.ndarray, model: Any, i: int) -> str:
    """Draw how wrong entries can be, and say so, where anything useful is proven."""
    proof = getattr(model, "certificate_", None)
    if proof is None or not proof.angle_bounds[i] < USEFUL:
        return ""
    error = 2 * math.sin(proof.angle_bounds[i] / 2)
    ax.hlines(places, shown - error, shown + error, color=ink(ax), linewidth=1.2)
    return f"\nwhiskers: each is certified to ± {round_up(error, 1):.1g}"
