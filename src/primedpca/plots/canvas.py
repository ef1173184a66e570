"""Helpers of all plots: figures, colours, number formats, and checks of arguments."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import signature
from typing import Any

import numpy as np

from primedpca.sources.base import needed

#: Four of Okabe and Ito's colours: colour-blind readers can distinguish them, and their contrast is
#: at least 3 on white and on the dark background of :func:`style`.
BLUE, RED, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"

SETTINGS: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.3,
}
GROUNDS = {"white": ("white", "#222222"), "dark": ("#16181d", "#e6e6e6")}
LONGEST_NAME = 28


#: Import Matplotlib; the error names the extra that installs it.
matplotlib_or_error = partial(needed, "matplotlib", "A plot", "plots")


@contextmanager
def style(ground: str = "white") -> Iterator[None]:
    """Context in which new figures have the style of this library.

    All settings of Matplotlib are restored when the context ends.

    Parameters
    ----------
    ground : {"white", "dark"}, default="white"
        Background of the figures.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> pca = PrimedPCA(2).fit(load_iris().data)
    >>> with plots.style("dark"):
    ...     figure = plots.scree(pca)
    """
    if ground not in GROUNDS:
        raise ValueError(f"`ground`={ground!r} must be one of {', '.join(map(repr, GROUNDS))}.")
    with matplotlib_or_error().rc_context(SETTINGS | colours(*GROUNDS[ground])):
        yield


def colours(behind: str, text: str) -> dict[str, Any]:
    """Return the settings of Matplotlib for a background and a text colour."""
    found = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), behind)
    names = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return found | dict.fromkeys((*names, "grid.color", "legend.labelcolor"), text)


def axes(ax: Any, width: float = 5.6, height: float = 3.4) -> Any:
    """Return ``ax``, or the axes of a new figure of this size in inches, without pyplot."""
    if ax is not None:
        if not hasattr(ax, "transAxes"):
            raise TypeError(f"`ax` must be Matplotlib axes or None, got {type(ax).__name__}.")
        return ax
    return new_figure(width, height).subplots()


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure with constrained layout; the size is in inches."""
    matplotlib_or_error()
    from primedpca.plots.figure import NotebookFigure

    return NotebookFigure(figsize=(width, height), layout="constrained")


def figure_if_new(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Let a plot return its figure where it made one; it returns the axes that it was given.

    A notebook shows a figure that is the last line of a cell, but not axes.
    """
    parameters = signature(draw)

    @wraps(draw)
    def drawn(*args: Any, **options: Any) -> Any:
        found = draw(*args, **options)
        given = parameters.bind(*args, **options).arguments
        own = given.get("ax") is None and given.get("axes") is None
        return np.ravel(found)[0].figure if own else found

    return drawn


def ink(ax: Any) -> Any:
    """Return the colour of the text on these axes, which depends on the background."""
    return ax.xaxis.label.get_color()


def fitted(model: Any) -> Any:
    """Return ``model`` if it is fitted; most plots also work for scikit-learn's PCA."""
    if hasattr(model, "_check_fitted"):
        model._check_fitted()
    elif not hasattr(model, "components_"):
        raise TypeError(f"`model` must be a fitted PrimedPCA, got {type(model).__name__}.")
    return model


def check_component(model: Any, component: Any, name: str = "component") -> int:
    """Return the index of a component, from 0, after checking that the model has it."""
    k = model.components_.shape[0]
    whole = isinstance(component, (int, np.integer)) and not isinstance(component, bool)
    if not whole or not 0 <= component < k:
        raise ValueError(
            f"`{name}`={component!r} must be an index from 0 to {k - 1}: the model has {k}."
        )
    return int(component)


def percent(model: Any, component: int) -> str:
    """Return the explained variance ratio as ``23.4 %``; empty if there is no variance."""
    ratio = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    if not ratio.sum() > 0:
        return ""
    value = 100 * float(ratio[component])
    return f"{value:.1f} %" if value >= 0.1 else f"{value:.2g} %"


def squared_unit(model: Any) -> str:
    """Return the unit of variances in brackets; scaled columns have none."""
    scaled = getattr(model, "scale_", None) is not None
    return "(of scaled data)" if scaled else "(units of the data²)"


def whole_ticks(axis: Any, most: Any = "auto") -> None:
    """Put ticks at integers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=most, integer=True, min_n_ticks=1))


def dashed(ax: Any, level: float, label: str) -> None:
    """Draw a horizontal line for a tolerance or a limit."""
    ax.axhline(level, label=label, color=ink(ax), linestyle="--", linewidth=1)


def number_components(ax: Any, k: int) -> None:
    """Label the horizontal axis with component numbers from 1 to ``k``."""
    room = max(0.6, 0.02 * k)
    ax.set_xlim(1 - room, k + room)
    whole_ticks(ax.xaxis, 10)
    ax.xaxis.set_major_formatter(lambda value, position: f"{value:g}" if value >= 1 else "")
    ax.set_xlabel("component")


def name_of_angle(angle: float) -> str:
    """Return ``π/8`` or the like for such angles, else the nearest degrees (not a bound)."""
    parts = math.pi / angle
    if abs(parts - round(parts)) < 1e-6 * parts:
        return f"π/{round(parts)}"
    value = math.degrees(angle)
    return f"{value:.0f}°" if value >= 10 else f"{value:.2g}°"


def feature_names(model: Any, chosen: np.ndarray, names: Any = None) -> list[str]:
    """Return the names of the chosen columns: from ``names``, the model, or ``x0, x1, …``.

    Only the chosen names are formatted, as there may be millions of others.
    """
    d = model.components_.shape[1]
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [f"x{j}" for j in chosen]
    known = np.asarray(names, dtype=object)
    if known.shape != (d,):
        raise ValueError(f"`names` has {known.size} entries. Pass one for each of {d} features.")
    return literals([str(known[j]) for j in chosen], [f"x{j}" for j in chosen])


def literals(words: list[str], marks: list[str]) -> list[str]:
    """Shorten long names; where that makes two equal, put their marks before them.

    Dollar signs are escaped, because Matplotlib reads text between them as mathematics, and so are
    lone surrogates, which it cannot draw.
    """
    words = [word.encode(errors="backslashreplace").decode() for word in words]
    shown = [_cut(word) for word in words]
    if len(set(shown)) < len(set(words)):
        pairs = zip(marks, words, strict=True)
        shown = [_cut(f"{mark}: {word}" if _cut(word) != word else word) for mark, word in pairs]
    return [re.sub(r"(?<!\\)\$", r"\\$", word) for word in shown]


def _cut(word: str) -> str:
    """Remove the middle of a long name: long names often differ at the end."""
    if len(word) <= LONGEST_NAME:
        return word
    half = LONGEST_NAME // 2
    return word[:half] + "…" + word[1 - half :]


def plain(value: float, digits: int) -> str:
    """Format with so many digits; a power of ten only from a million on or for tiny numbers."""
    return f"{float(f'{value:.{digits}g}'):g}"


def write_out(axis: Any) -> None:
    """Write the power of ten at every tick: a common one would overlap a legend."""

    def shown(value: float, position: int) -> str:
        top = max(map(abs, axis.get_view_interval()))
        sign, size = "−" if value < 0 else "", abs(value)
        if value == 0 or 1e-3 <= top < 1e6:
            return f"{sign}{size:g}"
        power = math.floor(math.log10(top))
        return f"{sign}{size / 10.0**power:g}e{power:+03d}"

    axis.set_major_formatter(shown)


def legend_above(ax: Any, columns: int, *handles: Any, **look: Any) -> None:
    """Put the legend above the axes, where it covers no data."""
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "frameon": False}
    ax.legend(*handles, ncols=columns, **above, **look)
