"""Expected costs of the methods that the planner compared."""

from __future__ import annotations

from typing import Any

from primedpca._core.wording import duration, size
from primedpca.plots.canvas import BLUE, canvas, ink

__all__ = ["plans"]


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
    ax = canvas(ax, 6.4, 0.9 + 0.42 * len(ways))
    longest = max(way.seconds for way in ways)
    for at, way in enumerate(ways):
        look: dict[str, Any] = {"color": BLUE} if at == 0 else {"color": "none", "hatch": "///"}
        ax.barh(at, way.seconds, height=0.62, edgecolor=BLUE, linewidth=1, **look)
        ax.text(way.seconds + 0.015 * longest, at, _price(way), va="center", fontsize="small")
    names = [_wrapped(way.name) for way in ways]
    names[0] = f"chosen: {names[0]}"
    ax.set_yticks(range(len(ways)), names)
    ax.set(ylim=(len(ways) - 0.5, -0.5), xlim=(0, 1.6 * longest), xlabel="expected time (s)")
    ax.tick_params(axis="y", length=0, labelcolor=ink(ax))
    ax.grid(False, axis="y")
    return ax


def _price(way: Any) -> str:
    passes = f"{way.passes:.0f} pass" + "es" * (round(way.passes) != 1)
    return f"{duration(way.seconds)}, {passes}, {size(way.memory)}"


def _wrapped(name: str) -> str:
    """Break a name before ``with``."""
    return name.replace(" with ", "\nwith ")
