"""Variances, proven bounds, loadings and images of components."""

import math
from typing import Any

import numpy as np

from primedpca._core.outward_rounding import round_up
from primedpca._core.wording import angle_words
from primedpca._solve.history import counted_bounds
from primedpca.plots import canvas
from primedpca.result import USEFUL, Certificate

WIDEST = 3.0  # times the largest variance; longer intervals are cut at the top
LEAST = 1e-12  # degrees; stands for an angle of zero on a logarithmic axis
PROVEN = "bound on the angle to\nthe true component (degrees)"
FEW = 8  # lines with a legend entry each; more get a colour bar
MOST_NAMES = 60  # of more loadings, only some are named
FIRST = 16  # components drawn by default
ACROSS = 8  # components side by side


@canvas.figure_if_new
def scree(model: Any, ax: Any = None, *, log: bool = False) -> Any:
    """Draw the variance of each component, its proven interval, and the cumulative ratio.

    Parameters
    ----------
    model : PrimedPCA
        Fitted.  Without a certificate there are no intervals, and constant data have no ratio.
        Very long intervals are cut at the top, so that the variances stay visible; the legend
        gives the length of the longest.
    ax : matplotlib.axes.Axes, optional
    log : bool, default=False
        Whether the axis of variances is logarithmic; it omits variances of zero.

    Returns
    -------
    matplotlib.figure.Figure
        Or ``ax``, if that was given.  The cumulative ratio has axes of its own on the right: the
        last of the figure.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> figure = plots.scree(PrimedPCA(3).fit(load_iris().data))
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('component', 'variance (units of the data²)')
    """
    variances = np.asarray(canvas.fitted(model).explained_variance_, dtype=np.float64)
    ax = canvas.axes(ax)
    numbers = np.arange(1, variances.size + 1)
    size = 5.0 if variances.size <= 40 else 2.5
    certificate = getattr(model, "certificate_", None)
    top = variances.max(initial=0.0)
    look = {"color": canvas.BLUE, "markersize": size, "linewidth": 1}
    ax.plot(numbers, variances, "o-", label="variance", **look)
    if certificate is not None:
        top = max(top, _intervals(ax, numbers, certificate.eigenvalue_bounds, size))
    canvas.number_components(ax, variances.size)
    ax.set_ylabel(f"variance {canvas.squared_unit(model)}")
    if log and (variances > 0).any():
        ax.set_yscale("log", nonpositive="mask")
        ax.set_ylim(min(variances[variances > 0].min() / 2, top / 10), 2 * top)
    else:
        seen = WIDEST * variances.max(initial=0.0)
        ax.set_ylim(0.0, 1.08 * (min(top, seen) or top) or 1.0)
        canvas.write_out(ax.yaxis)
    handles = ax.get_legend_handles_labels()[0] + _cumulative_ratio(model, ax, numbers, size)
    canvas.legend_above(ax, 3, handles, [handle.get_label() for handle in handles])
    return ax


def _intervals(ax: Any, numbers: np.ndarray, bounds: np.ndarray, size: float) -> float:
    """Draw each interval, or an arrow if it has no upper end, and return the largest end."""
    low, high = np.asarray(bounds, dtype=np.float64).T
    closed = np.isfinite(high)
    # Most intervals are too short to be visible, so the legend gives the longest.
    width = float((high - low)[closed].max(initial=0.0))
    look: dict[str, Any] = {"color": canvas.RED, "zorder": 3}
    label = f"certified, to {canvas.plain(round_up(width, 1), 1)}" if width > 0 else "certified"
    ax.vlines(numbers[closed], low[closed], high[closed], linewidth=1.6, label=label, **look)
    for ends in (low[closed], high[closed]):
        ax.plot(numbers[closed], ends, "_", markersize=1.8 * size, markeredgewidth=size / 4, **look)
    if not closed.all():
        look = {"color": canvas.RED, "markersize": size, "label": "lower bound"}
        ax.plot(numbers[~closed], low[~closed], "^", **look)
    return float(np.where(closed, high, low).max(initial=0.0))


def _cumulative_ratio(model: Any, ax: Any, numbers: np.ndarray, size: float) -> list[Any]:
    ratio = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    if not ratio.sum() > 0:
        return []
    right = ax.twinx()
    look = {"color": canvas.ink(ax), "linewidth": 1, "alpha": 0.8, "markersize": 0.7 * size}
    summed, label = 100 * np.cumsum(ratio), "cumulative ratio (right)"
    lines: list[Any] = right.plot(numbers, summed, "s--", label=label, **look)
    right.set(ylim=(0, 104), ylabel="explained variance ratio (%)")
    right.grid(False)
    right.spines["right"].set_visible(True)
    return lines


@canvas.figure_if_new
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
    matplotlib.figure.Figure
        Or ``ax``, if that was given.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> figure = plots.certificate(PrimedPCA(3).fit(load_iris().data))
    >>> ax = figure.axes[0]
    >>> ax.get_yscale(), ax.get_legend().get_texts()[0].get_text()
    ('log', 'proven within tol')
    """
    given = isinstance(model, Certificate)
    proof = model if given else getattr(canvas.fitted(model), "certificate_", None)
    if proof is None:
        raise ValueError("This model has no certificate. Fit it with `certificate`='auto'.")
    if tol is None and not given:
        tol = model.tol
    ax = canvas.axes(ax)
    counted = np.where(proof.zero, proof.angle_bounds, proof.counted_bounds())
    bounds, tied = np.maximum(np.degrees(counted), LEAST), counted < proof.angle_bounds
    met = proof.met(np.nextafter(np.pi / 2, 0.0) if tol is None else tol)
    within = "" if tol is None else " within tol"
    numbers = np.arange(1, bounds.size + 1)
    size = 5.5 if bounds.size <= 40 else 3.0
    groups = (
        (met & ~tied & ~proof.zero, f"proven{within}", canvas.BLUE, "o"),
        (met & tied & ~proof.zero, f"subspace proven{within}", canvas.GREEN, "s"),
        (proof.zero, "no variance", canvas.ink(ax), "d"),
        (~met & ~proof.zero, f"not proven{within}", canvas.RED, "X"),
    )
    for chosen, label, colour, mark in groups:
        if chosen.any():
            look: dict[str, Any] = {"color": colour, "markersize": size, "label": label}
            ax.plot(numbers[chosen], bounds[chosen], mark, **look)
    label = "not distinguished"
    for start, stop, angle in proof.clusters:
        height = max(math.degrees(angle), LEAST)
        # A cluster that reaches past the last component is drawn to the edge of the axes.
        ends = (start + 1, min(stop, bounds.size + 1))
        look = {"color": canvas.GREEN, "linewidth": 5, "alpha": 0.4, "zorder": 1}
        ax.plot(ends, (height, height), solid_capstyle="round", label=label, **look)
        label = "_"  # the others are not in the legend
    if tol is not None:
        canvas.dashed(ax, math.degrees(tol), f"tol = {angle_words(tol)}")
    canvas.number_components(ax, bounds.size)
    _angle_axis(ax, PROVEN)
    canvas.legend_above(ax, 2)
    return ax


@canvas.figure_if_new
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
    matplotlib.figure.Figure
        Or ``ax``, if that was given.
    """
    rows = list(getattr(canvas.fitted(model), "history_", []))
    proven = [row for row in rows if "angle_bounds" in row]
    expected = [row for row in rows if np.isfinite(row.get("change", np.nan))]
    if not proven and not expected:
        raise ValueError("The history has neither bounds nor changes. Use `certificate`='auto'.")
    ax = canvas.axes(ax)
    if proven:
        _bound_lines(ax, proven)
    if expected:
        passes = [row["passes"] for row in expected]
        changes = np.maximum(np.degrees([row["change"] for row in expected]), LEAST)
        look: dict[str, Any] = {"color": canvas.ink(ax), "markersize": 4}
        ax.plot(passes, changes, ":.", label="estimated change", **look)
    canvas.dashed(ax, math.degrees(model.tol), f"tol = {angle_words(model.tol)}")
    canvas.whole_ticks(ax.xaxis)
    ax.set_xlabel("passes over the data")
    _angle_axis(ax, PROVEN if proven else "estimated change (degrees)")
    canvas.legend_above(ax, 4)
    return ax


def _bound_lines(ax: Any, rows: list[dict[str, Any]]) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

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
    look = {"markersize": 3.0, "linewidth": 1.2 if k <= 40 else 0.6}
    for i in range(k):
        label = f"component {i + 1}" if k <= FEW else None
        ax.plot(passes, bounds[:, i], "o-", color=colours[i], label=label, **look)
    if k > FEW:
        shades = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.85, 256)))
        ax.figure.colorbar(ScalarMappable(Normalize(1, k), shades), ax=ax, label="component")


def _angle_axis(ax: Any, label: str) -> None:
    ax.set_yscale("log")
    # Include horizontal lines, and span at least three decades, so that ticks are powers of ten.
    levels = [float(y) for line in ax.lines for y in line.get_ydata()]
    low, high = min(levels) / 2.5, min(2.5 * max(levels), 250.0)
    ax.set(ylim=(min(low, high / 1e3), high), ylabel=label)


@canvas.figure_if_new
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
    matplotlib.figure.Figure
        Or ``ax``, if that was given.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> iris = load_iris(as_frame=True)
    >>> figure = plots.loadings(PrimedPCA(2).fit(iris.data))
    >>> figure.axes[0].get_yticklabels()[0].get_text()
    'petal length (cm)'
    """
    i = canvas.check_component(canvas.fitted(model), component)
    values = model.components_[i].astype(np.float64)
    ax, order = _bars(model, i, values, values, n_largest, ax, names)
    shown, places = values[order], np.arange(order.size)
    label, proof = "loading (components have length 1)", getattr(model, "certificate_", None)
    if proof is not None and proof.angle_bounds[i] < USEFUL:
        error = 2 * math.sin(proof.angle_bounds[i] / 2)
        ax.hlines(places, shown - error, shown + error, color=canvas.ink(ax), linewidth=1.2)
        label += f"\nerror bars: each is certified to ± {round_up(error, 1):.1g}"
    ax.axvline(0, color=canvas.ink(ax), linewidth=0.8)
    ax.set_xlabel(label)
    return ax


@canvas.figure_if_new
def contributions(
    model: Any, component: int = 0, n_largest: int = 20, ax: Any = None, *, names: Any = None
) -> Any:
    """Draw the largest contributions of columns to a component, in percent.

    The contribution of a column is its squared loading; a line marks what each would contribute if
    all contributed alike.

    Parameters
    ----------
    model : PrimedPCA
        Fitted.
    component : int, default=0
        Index from 0.
    n_largest : int, default=20
        Number of contributions, the largest.
    ax : matplotlib.axes.Axes, optional
    names : sequence of str of length d, optional
        Names of the columns, default=those that the model was fitted with.

    Returns
    -------
    matplotlib.figure.Figure
        Or ``ax``, if that was given.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA, plots
    >>> figure = plots.contributions(PrimedPCA(2).fit(load_iris(as_frame=True).data))
    >>> figure.axes[0].get_yticklabels()[0].get_text()
    'petal length (cm)'
    """
    i = canvas.check_component(canvas.fitted(model), component)
    values = model.components_[i].astype(np.float64)
    ax, _ = _bars(model, i, 100 * values**2, values, n_largest, ax, names)
    ax.axvline(100 / values.size, color=canvas.ink(ax), linestyle="--", linewidth=1)
    words = "dashed: if all contributed alike\nhatched: negative loadings"
    ax.set_xlabel(f"contribution (%)\n{words}")
    return ax


def _bars(
    model: Any, i: int, lengths: np.ndarray, signs: np.ndarray, most: int, ax: Any, names: Any
) -> tuple[Any, np.ndarray]:
    """Draw the largest of d bars of a component, and return the axes and which bars they are."""
    if not isinstance(most, (int, np.integer)) or most < 1:
        raise ValueError(f"`n_largest`={most!r} must be an integer of at least 1.")
    order = np.argsort(-np.abs(lengths), kind="stable")[:most]
    words = canvas.feature_names(model, order, names)
    shown, places, negative = lengths[order], np.arange(order.size), signs[order] < 0
    ax = canvas.axes(ax, 5.6, 1.2 + 0.2 * max(3, min(order.size, MOST_NAMES)))
    for chosen, colour, hatch in ((~negative, canvas.BLUE, None), (negative, canvas.RED, "///")):
        look = {"color": colour, "hatch": hatch, "edgecolor": ax.get_facecolor(), "linewidth": 0}
        ax.barh(places[chosen], shown[chosen], **look)
    every = -(-order.size // MOST_NAMES)
    ax.set_yticks(places[::every], words[::every])
    ax.tick_params(axis="y", length=0, labelsize="small")
    ax.grid(False, axis="y")
    ratio, title = canvas.percent(model, i), f"component {i + 1}"
    title += f": {ratio} of the variance" if ratio else ""
    if order.size < lengths.size:
        what = "loadings" if lengths is signs else "contributions"
        title += f"\n{order.size} largest of {lengths.size:,} {what}"
    ax.set(ylim=(max(order.size, 3) - 0.4, -0.6), title=title)
    return ax, order


@canvas.figure_if_new
def component_images(model: Any, shape: Any, components: Any = None, axes: Any = None) -> Any:
    """Draw components as images: positive loadings above, negative loadings below.

    Parameters
    ----------
    model : PrimedPCA
        Fitted to images, one per row.
    shape : tuple of int
        Height and width of an image in pixels and, for colours, the number of channels.
    components : sequence of int, optional
        Indices from 0, default=the first 16.
    axes : array of matplotlib.axes.Axes of shape (2, m), optional
        The first row is for positive parts, the second for negative parts.

    Returns
    -------
    matplotlib.figure.Figure
        Or ``axes``, if they were given.

    Notes
    -----
    Each component has its own colour scale, which saturates for one loading in two hundred.
    """
    size = _image_shape(canvas.fitted(model), shape)
    count = model.components_.shape[0]
    asked = range(min(count, FIRST)) if components is None else components
    chosen = [canvas.check_component(model, i, "components") for i in asked]
    if not chosen:
        raise ValueError("`components` is empty. Pass at least one, or None for the first ones.")
    across = ACROSS if axes is None else len(chosen)
    axes = _grid(len(chosen), size) if axes is None else np.asarray(axes, dtype=object)
    if axes.shape != (2, len(chosen)):
        raise ValueError(f"`axes` has shape {axes.shape}, but needs (2, {len(chosen)}).")
    for i, pair in zip(chosen, axes.T, strict=True):
        vector = model.components_[i].astype(np.float64).reshape(size)
        for sign, ax in zip((1, -1), pair, strict=True):
            ax.imshow(displayable(contrast(sign * vector, vector)), interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.grid(False)
            ax.spines[:].set_visible(False)
        pair[0].set_title(_title(model, i), fontsize="small")
    for name, row in zip(("+", "−"), axes[:, ::across], strict=True):
        for ax in row:
            ax.set_ylabel(name, rotation=0, ha="right", va="center")
    return axes


def _image_shape(model: Any, shape: Any) -> tuple[int, int, int]:
    d = model.components_.shape[1]
    sides = tuple(shape) if hasattr(shape, "__len__") else (shape,)
    whole = all(isinstance(side, (int, np.integer)) and side > 0 for side in sides)
    if len(sides) not in (2, 3) or not whole or math.prod(sides) != d:
        raise ValueError(f"`shape`={shape!r} must be (height, width[, channels]) of {d} features.")
    height, width, channels = (*sides, 1)[:3]
    return int(height), int(width), int(channels)


def _title(model: Any, i: int) -> str:
    """Return the number, the explained variance ratio, and the proven angle if there is one."""
    bounds = getattr(model, "angle_bounds_", None)
    ratio = canvas.percent(model, i)
    proven = f"\n≤ {angle_words(bounds[i])}" if bounds is not None and bounds[i] < np.pi / 2 else ""
    return f"{i + 1}" + (f": {ratio}" if ratio else "") + proven


def _grid(count: int, size: tuple[int, int, int]) -> np.ndarray:
    """Return axes of shape (2, count), laid out in pairs of rows of at most eight."""
    across = min(count, ACROSS)
    bands = -(-count // across)
    width = 1.05 if count > 2 else 1.8
    height = width * float(np.clip(size[0] / size[1], 0.3, 3.0))
    figure = canvas.new_figure(width * across + 0.4, (2 * height + 0.5) * bands)
    parts = figure.subplots(2 * bands, across, squeeze=False)
    found = np.concatenate([parts[2 * b : 2 * b + 2] for b in range(bands)], axis=1)
    for ax in found[:, count:].flat:
        ax.remove()
    return found[:, :count]


def contrast(part: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Scale the part above zero to [0, 1]; one pixel in two hundred saturates."""
    top = np.quantile(np.abs(vector), 0.995)
    return np.clip(part / (top or np.abs(vector).max() or 1.0), 0.0, 1.0)


def displayable(picture: np.ndarray) -> np.ndarray:
    """Convert an image to RGB bytes: one channel is repeated, a fourth is dropped."""
    colours = picture[:, :, [0, 0, 0] if picture.shape[2] < 3 else [0, 1, 2]]
    return colours if colours.dtype == np.uint8 else np.rint(255 * colours).astype(np.uint8)
