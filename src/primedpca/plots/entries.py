"""The entries of a component."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
    words, entries = feature_names(model, names), model.components_[i].astype(np.float64)
    order = np.argsort(-np.abs(entries), kind="stable")[:n_largest]
    shown, places = entries[order], np.arange(order.size)
    ax = canvas(ax, 5.6, 1.1 + 0.2 * max(3, min(order.size, 60)))
    for chosen, colour, hatch in ((shown >= 0, BLUE, None), (shown < 0, RED, "///")):
        ax.barh(places[chosen], shown[chosen], color=colour, hatch=hatch, edgecolor="white", lw=0)
    _whiskers(ax, places, shown, model, i)
    ax.axvline(0, color=ink(ax), linewidth=0.8)
    ax.set_yticks(places, [words[j] for j in order])
    ax.tick_params(axis="y", length=0, labelsize="small" if order.size <= 60 else 4)
    ax.set_ylim(order.size - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.set_xlabel("entry of the component (of length 1)")
    share = percent(model, i)
    few = f"{order.size} largest of {entries.size:,} entries" if order.size < entries.size else ""
    parts = [f"{share} of the variance" if share else "", few]
    ax.set_title(": ".join([f"component {i + 1}", ", ".join(filter(None, parts))]).rstrip(": "))
    return ax


def _whiskers(ax: Any, places: np.ndarray, shown: np.ndarray, model: Any, i: int) -> None:
    proof = getattr(model, "certificate_", None)
    if proof is None or not proof.angle_bounds[i] < USEFUL:
        return
    error = 2 * math.sin(proof.angle_bounds[i] / 2)
    label = f"certified: within {error:.1g}"
    ax.hlines(places, shown - error, shown + error, color=ink(ax), linewidth=1.2, label=label)
    ax.legend(loc="best", handlelength=1.2)
