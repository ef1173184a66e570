"""What all pictures share: the ground they are drawn on, colours, marks, and what they refuse."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import degrees_up

__all__ = [
    *("BLUE", "GREEN", "PURPLE", "RED", "SETTINGS"),
    *("canvas", "check_component", "degrees", "feature_names", "fitted", "ink", "is_scaled"),
    *("legend_above", "literals", "name_of_angle", "new_figure", "number_components", "percent"),
    *("plain", "style", "write_out"),
]

#: Four of Okabe and Ito's colours: told apart by colour-blind readers, and with a contrast of 3
#: and more on white as well as on the dark ground of :func:`style`.
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


def _matplotlib() -> Any:
    """Matplotlib, or an error that names the extra."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            "pictures need Matplotlib; install it with `pip install 'primedpca[plots]'`."
        ) from error
    return matplotlib


@contextmanager
def style(ground: str = "white") -> Iterator[None]:
    """Inside, new figures look like those of this library.

    Parameters
    ----------
    ground : {"white", "dark"}
        What they are seen on.  All settings are as before when the context is left.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> pca = PrimedPCA(2).fit(load_iris().data)
    >>> with plots.style("dark"):
    ...     ax = plots.scree(pca)
    """
    if ground not in GROUNDS:
        raise ValueError(f"`ground`={ground!r} must be one of {', '.join(map(repr, GROUNDS))}.")
    behind, text = GROUNDS[ground]
    names = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    colours = dict.fromkeys((*names, "grid.color", "legend.labelcolor"), text)
    colours |= dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), behind)
    with _matplotlib().rc_context(SETTINGS | colours):
        yield


def canvas(ax: Any, width: float = 5.6, height: float = 3.4) -> Any:
    """``ax``, or the axes of a new figure of so many inches, that pyplot does not know of."""
    _matplotlib()
    if ax is not None:
        if not hasattr(ax, "transAxes"):
            raise TypeError(f"`ax` must be Matplotlib axes or None, got {type(ax).__name__}.")
        return ax
    return new_figure(width, height).subplots()


def new_figure(width: float, height: float) -> Any:
    """An empty figure that lays itself out, in inches."""
    _matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def ink(ax: Any) -> Any:
    """The colour of the text on these axes, whatever they are drawn on."""
    return ax.xaxis.label.get_color()


def fitted(model: Any) -> Any:
    """``model`` if it has been fitted; scikit-learn's PCA will do where no proof is drawn."""
    if hasattr(model, "_check_fitted"):
        model._check_fitted()
    elif not hasattr(model, "components_"):
        raise TypeError(f"`model` must be a fitted PrimedPCA, got {type(model).__name__}.")
    return model


def check_component(model: Any, component: Any, name: str = "component") -> int:
    """The number of a component that the model has, counted from 0."""
    k = model.components_.shape[0]
    whole = isinstance(component, (int, np.integer)) and not isinstance(component, bool)
    if not whole or not 0 <= component < k:
        raise ValueError(
            f"`{name}`={component!r} must be a whole number from 0 to {k - 1}: the model has "
            f"{k} component{'s' * (k != 1)}; fit it with more, or choose one of these."
        )
    return int(component)


def percent(model: Any, component: int) -> str:
    """``23.4 %``, the share of the variance; empty where there is no variance."""
    ratio = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    if not ratio.sum() > 0:
        return ""
    share = 100 * float(ratio[component])
    return f"{share:.1f} %" if share >= 0.1 else f"{share:.2g} %"


def is_scaled(model: Any) -> bool:
    """Whether columns were divided by a scale, so that variances have no unit."""
    return getattr(model, "scale_", None) is not None


def number_components(ax: Any, k: int) -> None:
    """Whole numbers from 1 to ``k`` along the horizontal axis."""
    from matplotlib.ticker import MaxNLocator

    room = max(0.6, 0.02 * k)
    ax.set_xlim(1 - room, k + room)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    ax.xaxis.set_major_formatter(lambda value, position: f"{value:g}" if value >= 1 else "")
    ax.set_xlabel("component")


def degrees(angle: float) -> str:
    """A bound in radians in words, two figures, rounded up: ``0.18°``, ``1.2e-08°``, ``90°``."""
    return _two_figures(degrees_up(angle))


def name_of_angle(angle: float) -> str:
    """``π/8`` and the like where that is what it is, the nearest degrees elsewhere: no bound."""
    parts = math.pi / angle
    if abs(parts - round(parts)) < 1e-6 * parts:
        return f"π/{round(parts)}"
    return _two_figures(math.degrees(angle))


def _two_figures(value: float) -> str:
    return f"{value:.0f}°" if value >= 10 else f"{value:.2g}°"


def feature_names(model: Any, chosen: np.ndarray, names: Any = None) -> list[str]:
    """What the chosen columns are called: in ``names``, in the model, or ``x0, x1, …``.

    Only of those that are drawn, as there may be millions of others.
    """
    d = model.components_.shape[1]
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [f"x{j}" for j in chosen]
    known = np.asarray(names, dtype=object)
    if known.shape != (d,):
        raise ValueError(
            f"`names` are {known.size}, but the model has {d} features; give one name for each."
        )
    return literals([str(known[j]) for j in chosen], [f"x{j}" for j in chosen])


def literals(words: list[str], marks: list[str]) -> list[str]:
    """Words of the user's, as they are, or cut; where that makes any alike, with their marks.

    Dollars are escaped: Matplotlib would set what stands between them as mathematics.
    """
    shown = [_cut(word) for word in words]
    if len(set(shown)) < len(set(words)):
        pairs = zip(marks, words, strict=True)
        shown = [_cut(f"{mark}: {word}" if _cut(word) != word else word) for mark, word in pairs]
    return [re.sub(r"(?<!\\)\$", r"\\$", word) for word in shown]


def _cut(word: str) -> str:
    """Without its middle if it is long: long names often differ in how they end."""
    if len(word) <= LONGEST_NAME:
        return word
    half = LONGEST_NAME // 2
    return word[:half] + "…" + word[1 - half :]


def plain(value: float, digits: int) -> str:
    """So many digits, and a power of ten only for a million and more or a tiny number."""
    return f"{float(f'{value:.{digits}g}'):g}"


def write_out(axis: Any) -> None:
    """The power of ten at every number, the same: one for all would run into a legend."""

    def shown(value: float, position: int) -> str:
        top = max(map(abs, axis.get_view_interval()))
        sign, size = "−" if value < 0 else "", abs(value)
        if value == 0 or 1e-3 <= top < 1e6:
            return f"{sign}{size:g}"
        power = math.floor(math.log10(top))
        return f"{sign}{size / 10.0**power:g}e{power:+03d}"

    axis.set_major_formatter(shown)


def legend_above(ax: Any, columns: int, *handles: Any, **look: Any) -> None:
    """Where it covers nothing that is drawn."""
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "frameon": False}
    ax.legend(*handles, ncols=columns, **above, **look)
