"""The plots of the page as SVG, with their titles, captions and descriptions."""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from html import escape
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from primedpca import plots
from primedpca._core.wording import angle_words, count_words, numbered
from primedpca._solve.history import counted_bounds
from primedpca.plots.canvas import colours, matplotlib_or_error, new_figure
from primedpca.plots.plane import MANY
from primedpca.report.inputs import Inputs, spaced
from primedpca.report.words import how_proven

SIZE = (4.3, 3.1)  # inches; small, so that text of 9 points stays legible on a phone
SQUARE = (4.3, 4.1)
LARGEST = 12  # loadings of a component that are plotted
MOST_POINTS = 20_000  # of a biplot
DARK_RED = "#A84300"  # red text needs more contrast than red lines do
#: A colour that no plot uses: it marks what follows the text colour of the page.
INK = "#010203"


class PagePlot(NamedTuple):
    """A plot and its texts.

    Attributes
    ----------
    title, caption : str
    alt : str
        Description for readers who cannot see the plot.
    draw : callable
        Draws on the axes that it is passed, and returns them.
    change : callable, optional
        Called with the axes after ``draw``.
    wide : bool, default=False
        Whether ``draw`` makes a figure of its own, as wide as the page.
    square : bool, default=False
        Whether the figure is nearly as high as it is wide.
    svg : str, default=""
        The drawn plot.
    """

    title: str
    caption: str
    alt: str
    draw: Callable[..., Any]
    change: Callable[[Any], Any] = lambda ax: None
    wide: bool = False
    square: bool = False
    svg: str = ""


def page_plots(model: Any, known: Inputs) -> dict[str, list[PagePlot]]:
    """Draw every plot of the data that the model and the inputs allow, by section."""
    matplotlib_or_error()
    if model.n_components_ == 0:
        return {"variances": [], "components": [], "rows": []}
    loadings = [] if known.image_shape is not None else [*_loadings(model, known, 4)]
    wanted = {
        "variances": [*_scree(model)],
        "components": [*_images(model, known), *loadings],
        "rows": [*_biplot(model, known), *_scores(model, known)],
    }
    return {
        name: [drawn(plot, f"{name[0]}{i}-") for i, plot in enumerate(some, start=1)]
        for name, some in wanted.items()
    }


def proof_plots(model: Any) -> list[PagePlot]:
    """Draw the certificate, the convergence and the plan."""
    if model.n_components_ == 0:
        return []
    wanted = [*_proof(model), *_plans(model)]
    return [drawn(plot, f"p{i}-") for i, plot in enumerate(wanted, start=1)]


def drawn(plot: PagePlot, prefix: str) -> PagePlot:
    """Draw a plot, transparent and with text as text; all its identifiers get the prefix."""
    settings: Any = colours("none", INK)
    settings |= {"svg.fonttype": "none", "svg.hashsalt": prefix, "savefig.dpi": 150}
    settings["font.sans-serif"] = ["DejaVu Sans", "Verdana"]
    context = matplotlib_or_error().rc_context(settings)
    with plots.style(), context, warnings.catch_warnings():
        # The browser has fonts for the characters that Matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # Wide labels leave the axes no room in a small plot; they are then drawn over each other.
        warnings.filterwarnings("ignore", message=".*_layout not applied")
        own = {} if plot.wide else {"ax": new_figure(*(SQUARE if plot.square else SIZE)).subplots()}
        axes = plot.draw(**own)
        plot.change(axes)
        return plot._replace(svg=_inline_svg(np.ravel(axes)[0].figure, plot.alt, prefix))


def _inline_svg(figure: Any, alt: str, prefix: str) -> str:
    """Return ``figure`` as an SVG element that fills the width that the page gives it."""
    held = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(held, format="svg", metadata=nothing)
    text = held.getvalue()
    text = text[text.index("<svg") :]
    # Styles and identifiers would apply to all plots of the page, so drop or prefix them.
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, count=1, flags=re.S)
    text = re.sub(r'(\sid=")([^"]*")', rf"\1{prefix}\2", text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\1{prefix}", text)
    text = text.replace(INK, "currentColor")
    # Without width and height the page decides the size; the view box keeps the proportions.
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    head = f'<svg role="img" aria-label="{escape(alt)}" viewBox="{box[1]}">'
    return head + text[text.index(">") + 1 :].strip()


def _scree(model: Any) -> Iterator[PagePlot]:
    variances, k = model.explained_variance_, model.n_components_
    ratio = float(np.sum(model.explained_variance_ratio_))
    they = "It explains" if k == 1 else "Together they explain"
    explained = f" {they} {100 * ratio:.3g} % of the variance." if ratio > 0 else ""
    falls = f"the variance is {variances[0]:.4g}."
    if k > 1:
        falls = f"the variance falls from {variances[0]:.4g} to {variances[-1]:.4g}."
    proven = ", the proven interval of the true variance," if model.certificate_ is not None else ""
    yield PagePlot(
        "Variances",
        f"Variance of each component{proven} and cumulative explained variance ratio.",
        f"Scree plot of {count_words(k)}: {falls}{explained}",
        partial(plots.scree, model),
    )


def _proof(model: Any) -> Iterator[PagePlot]:
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
        bounds, end = counted_bounds(rows[-1]), rows[-1]
        what, worst = "the estimated remaining change", end.get("change")
        caption = "Estimated remaining change after every pass over the data (not a proof)."
        if bounds is not None:
            what, worst = "the largest bound", float(bounds.max())
            caption = "Proven bound of each component after every pass over the data."
        yield PagePlot(
            "Convergence",
            caption,
            f"Convergence over {end['passes']:.3g} passes: {what} ends at {angle_words(worst)}.",
            partial(plots.convergence, model),
        )


def _images(model: Any, known: Inputs) -> Iterator[PagePlot]:
    if known.image_shape is not None:
        count = min(16, model.n_components_)
        yield PagePlot(
            "Components as images",
            "Positive loadings above, negative loadings below.",
            f"The first {count_words(count)} drawn as images, positive and negative parts apart.",
            partial(plots.component_images, model, known.image_shape, range(count)),
            wide=True,
        )


def _scores(model: Any, known: Inputs) -> Iterator[PagePlot]:
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
        shown, kind = f"Each of {spaced(n)} rows as a point", "Scatter plot"
        coloured = "" if labels is None else ", coloured by label"
        if n > MANY:
            shown, kind = f"Density of {spaced(n)} rows", "Density plot"
            by = "its number of rows" if labels is None else "the labels of its rows"
            coloured = f", each cell coloured by {by}"
        yield PagePlot(
            f"Scores of {named}",
            f"{shown}{coloured}.",
            f"{kind} of {n} rows along {named}{coloured}.",
            partial(plots.scores, known.scores, (i, j), labels, model=part),
            _short_labels,
        )


def _biplot(model: Any, known: Inputs) -> Iterator[PagePlot]:
    """Draw rows and columns in the plane of the first two components."""
    variances = np.asarray(model.explained_variance_[:2], dtype=np.float64)
    if known.scores is None or known.image_shape is not None or known.scores.shape[1] < 2:
        return
    if len(known.scores) < 2 or not (variances > 0).all():
        return
    few = -(-len(known.scores) // MOST_POINTS)
    part = SimpleNamespace(
        components_=model.components_[:2],
        explained_variance_=variances,
        explained_variance_ratio_=model.explained_variance_ratio_[:2],
        n_samples_=model.n_samples_,
        whiten=model.whiten,
    )
    some = f" Of the rows, one in {few} is drawn." if few > 1 else ""
    names, labels = known.names, known.labels
    labels = None if labels is None else np.asarray(labels)[::few]
    largest = np.argsort(-np.linalg.norm(model.components_[:2], axis=0), kind="stable")[:3]
    words = ", ".join(f"x{j}" if names is None else str(names[j]) for j in largest)
    yield PagePlot(
        "Biplot",
        "Rows as points, columns as arrows: rows lie in the direction of the columns in which they "
        f"are large, and arrows in one direction are columns that rise together.{some}",
        f"Biplot of components 1 and 2; the longest arrows are those of {words}.",
        partial(plots.biplot, part, known.scores[::few, :2], names=names, labels=labels),
        _on_the_page,
        square=True,
    )


def _on_the_page(ax: Any) -> None:
    """Remove the grounds behind names, and darken the numbers of the arrows' axes."""
    _short_labels(ax)
    for text in ax.texts:
        text.set_bbox(None)  # the ground of the page is not known here
    for axis in ax.child_axes:
        axis.tick_params(labelcolor=DARK_RED)


def _short_labels(ax: Any) -> None:
    """Shorten the axis labels, because the axes are narrow."""
    ax.set_xlabel(ax.get_xlabel().replace(" of the variance", ""))
    ax.set_ylabel(ax.get_ylabel().replace(" of the variance", ""))


def _loadings(model: Any, known: Inputs, count: int) -> Iterator[PagePlot]:
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
            partial(plots.loadings, model, i, LARGEST, names=names),
            lambda ax: ax.set_title(""),  # the caption replaces it
        )


def _plans(model: Any) -> Iterator[PagePlot]:
    ways = () if model.plan_ is None else model.plan_.ways
    if len(ways) > 1:
        times = ", ".join(f"{way.name} {way.seconds:.2g}" for way in ways)
        yield PagePlot(
            "Methods that were compared",
            "Expected time of each method before the fit; the fastest was chosen.",
            f"Bar chart of expected times in seconds: {times}.",
            partial(plots.plans, model.plan_),
            # Room for the text behind the bars, because the axes are narrow.
            lambda ax: ax.set_xlim(0, 2.2 * max(way.seconds for way in ways)),
        )
