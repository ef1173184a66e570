"""The plots of the page, with their titles, captions and descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.wording import angle_words, count_words, numbered
from primedpca._solve.history import counted_bounds
from primedpca.report.facts import spaced
from primedpca.report.inputs import Inputs
from primedpca.report.svg import drawing, inline_svg
from primedpca.report.words import how_proven

__all__ = ["PagePlot", "page_plots"]

SIZE = (4.3, 3.1)  # inches; small, so that text of 9 points stays legible on a phone
LARGEST = 12  # loadings of a component that are plotted


class PagePlot(NamedTuple):
    """A plot and its texts.

    Attributes
    ----------
    title, caption : str
    alt : str
        Description for readers who cannot see the plot.
    draw : callable
        Draws on the axes that it is passed, and returns them.
    wide : bool, default=False
        Whether ``draw`` makes a figure of its own, as wide as the page.
    svg : str, default=""
        The drawn plot.
    """

    title: str
    caption: str
    alt: str
    draw: Callable[..., Any]
    wide: bool = False
    svg: str = ""


def page_plots(model: Any, known: Inputs) -> list[PagePlot]:
    """Draw every plot that the model and the inputs allow."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("A report needs Matplotlib: pip install 'primedpca[plots]'.") from error
    from primedpca import plots

    if model.n_components_ == 0:
        return []
    wanted = [
        _scree(model, plots),
        *_proof(model, plots),
        *_images(model, known, plots),
        *_scores(model, known, plots),
        *_plans(model, plots),
    ]
    if known.image_shape is None:
        # The page shows two plots in a row: draw an even number.
        wanted += _loadings(model, known, plots, 2 + len(wanted) % 2)
    return [_drawn(plot, f"p{i}-") for i, plot in enumerate(wanted, start=1)]


def _drawn(plot: PagePlot, prefix: str) -> PagePlot:
    from matplotlib.figure import Figure

    with drawing(prefix):
        if plot.wide:
            figure = np.ravel(plot.draw())[0].figure
        else:
            figure = Figure(figsize=SIZE, layout="constrained")
            plot.draw(ax=figure.subplots())
        return plot._replace(svg=inline_svg(figure, plot.alt, prefix))


def _scree(model: Any, plots: Any) -> PagePlot:
    variances, k = model.explained_variance_, model.n_components_
    ratio = float(np.sum(model.explained_variance_ratio_))
    they = "It explains" if k == 1 else "Together they explain"
    explained = f" {they} {100 * ratio:.3g} % of the variance." if ratio > 0 else ""
    falls = f"the variance is {variances[0]:.4g}."
    if k > 1:
        falls = f"the variance falls from {variances[0]:.4g} to {variances[-1]:.4g}."
    proven = ", the proven interval of the true variance," if model.certificate_ is not None else ""
    return PagePlot(
        "Variances",
        f"Variance of each component{proven} and cumulative explained variance ratio.",
        f"Scree plot of {count_words(k)}: {falls}{explained}",
        partial(plots.scree, model),
    )


def _proof(model: Any, plots: Any) -> Iterator[PagePlot]:
    proof = model.certificate_
    if proof is not None:
        met = proof.met(model.tol)
        words = f"{numbered(met)} {'are' if met.sum() > 1 else 'is'}" if met.any() else "None is"
        yield PagePlot(
            "Certificate",
            "Largest possible angle to the true component. Proven components lie below the line.",
            f"Plot of error bounds: {words.lower()} proven within the requested "
            f"{angle_words(model.tol)}{how_proven(proof, model.tol)}.",
            partial(plots.certificate, model),
        )
    rows = [row for row in model.history_ if "angle_bounds" in row or "change" in row]
    if len(rows) > 1:
        last = rows[-1]
        yield PagePlot(
            "Convergence",
            "Proven bound of each component after every pass over the data."
            if "angle_bounds" in last
            else "Estimated remaining change after every pass over the data (not a proof).",
            f"Convergence over {last['passes']:.3g} passes: {_ending(last)}.",
            partial(plots.convergence, model),
        )


def _ending(row: dict[str, Any]) -> str:
    bounds = counted_bounds(row)
    worst = row["change"] if bounds is None else float(bounds.max())
    what = "the estimated remaining change" if bounds is None else "the largest bound"
    return f"{what} ends at {angle_words(worst)}"


def _images(model: Any, known: Inputs, plots: Any) -> Iterator[PagePlot]:
    if known.image_shape is not None:
        count = min(16, model.n_components_)
        yield PagePlot(
            "Components as images",
            "Positive loadings above, negative loadings below.",
            f"The first {count_words(count)} drawn as images, positive and negative parts apart.",
            partial(plots.component_images, model, known.image_shape, range(count)),
            wide=True,
        )


def _scores(model: Any, known: Inputs, plots: Any) -> Iterator[PagePlot]:
    if known.scores is None or known.scores.shape[0] == 0:
        return
    n, m = known.scores.shape
    part = SimpleNamespace(
        components_=model.components_[:m],
        explained_variance_ratio_=model.explained_variance_ratio_[:m],
        whiten=model.whiten,
    )
    labels = known.labels
    for i, j in [(0, 1), (2, 3)] if m >= 4 else [(0, 1)]:
        named = f"components {i + 1} and {j + 1}" if m > 1 else "component 1"
        shown, kind = f"Scores of {spaced(n)} rows", "Scatter plot"
        coloured = "" if labels is None else ", coloured by label"
        if n > plots.plane.MANY:
            shown, kind = f"Density of {spaced(n)} rows", "Density plot"
            by = "its number of rows" if labels is None else "the labels of its rows"
            coloured = f", each cell coloured by {by}"
        yield PagePlot(
            f"Scores of {named}",
            f"{shown}{coloured}.",
            f"{kind} of {n} rows along {named}{coloured}.",
            partial(_points, plots, known.scores, (i, j), labels, part),
        )


def _points(plots: Any, scores: Any, pair: Any, labels: Any, part: Any, ax: Any) -> Any:
    """Plot scores with short axis labels, because the axes are narrow."""
    plots.scores(scores, pair, labels, ax, part)
    ax.set_xlabel(ax.get_xlabel().replace(" of the variance", ""))
    ax.set_ylabel(ax.get_ylabel().replace(" of the variance", ""))
    return ax


def _loadings(model: Any, known: Inputs, plots: Any, count: int) -> Iterator[PagePlot]:
    d, names = model.n_features_in_, known.names
    for i in range(min(count, model.n_components_)):
        largest = int(np.argmax(np.abs(model.components_[i])))
        name = f"x{largest}" if names is None else str(names[largest])
        few, ratio = min(LARGEST, d), 100 * float(model.explained_variance_ratio_[i])
        held = f" It explains {ratio:.3g} % of the variance." if ratio > 0 else ""
        yield PagePlot(
            f"Loadings of component {i + 1}",
            f"{f'The {few} largest of {spaced(d)}' if few < d else 'All'} loadings.{held}",
            f"Bar chart of the {few} largest loadings of component {i + 1}; the largest is "
            f"{model.components_[i, largest]:.2g}, of {name}.",
            partial(_bars, plots, model, i, names),
        )


def _bars(plots: Any, model: Any, i: int, names: Any, ax: Any) -> Any:
    """Plot loadings without a title, which the caption replaces."""
    plots.loadings(model, i, LARGEST, ax, names=names)
    ax.set_title("")
    return ax


def _plans(model: Any, plots: Any) -> Iterator[PagePlot]:
    ways = () if model.plan_ is None else model.plan_.ways
    if len(ways) > 1:
        yield PagePlot(
            "Methods that were compared",
            "Expected time of each method before the fit; the fastest was chosen.",
            "Bar chart of expected times in seconds: "
            + ", ".join(f"{way.name} {way.seconds:.2g}" for way in ways)
            + ".",
            partial(_ways, plots, model.plan_),
        )


def _ways(plots: Any, plan: Any, ax: Any) -> Any:
    """Plot the plan with room for the text behind the bars, because the axes are narrow."""
    plots.plans(plan, ax)
    ax.set_xlim(0, 2.2 * max(way.seconds for way in plan.ways))
    return ax
