"""The ways to a decomposition that were priced before it was made."""

from __future__ import annotations

from typing import Any

from primedpca.plots.canvas import BLUE, canvas, ink

__all__ = ["plans"]


def plans(plan: Any, ax: Any = None) -> Any:
    """Draw what each way that was weighed would take: seconds, passes and memory.

    Parameters
    ----------
    plan : Plan or PrimedPCA
        What :func:`primedpca.plan` returned, or a fitted model, whose ``plan_`` is drawn.
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
            "this plan weighed nothing: its priming was asked for, or a share of the variance "
            "was, or its file does not hold it; draw that of `plan(X, n_components)` with "
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
    return f"{_seconds(way.seconds)}, {passes}, {_bytes(way.memory)}"


def _seconds(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


def _bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _wrapped(name: str) -> str:
    """What comes after ``with`` on a line of its own."""
    return name.replace(" with ", "\nwith ")
