"""The pictures of the page: which ones there are, and what is said about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from primedpca._solve.history import counted_bounds
from primedpca.report.facts import spaced
from primedpca.report.inputs import Given
from primedpca.report.svg import drawing, inline_svg
from primedpca.report.words import angle_words, how_proven, numbered

__all__ = ["Picture", "pictures"]

SIZE = (4.3, 3.1)  # inches; small, so that text of 9 points is still read on a phone
LARGEST = 12  # entries of a component that are drawn


class Picture(NamedTuple):
    """A picture and its words.

    Attributes
    ----------
    title, caption : str
    alt : str
        What a reader who does not see it is told.
    draw : callable
        Draws on the axes it is given, and returns them.
    wide : bool
        Whether it makes a figure of its own, as wide as the page.
    svg : str
    """

    title: str
    caption: str
    alt: str
    draw: Callable[..., Any]
    wide: bool = False
    svg: str = ""


def pictures(model: Any, known: Given) -> list[Picture]:
    """All that can be drawn of a model and of what is known beside it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("Reports need Matplotlib: pip install 'primedpca[plots]'.") from error
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
        # Two in a row: as many as leave no hole.
        wanted += _loadings(model, known, plots, 2 + len(wanted) % 2)
    return [_drawn(picture, f"p{i}-") for i, picture in enumerate(wanted, start=1)]


def _drawn(picture: Picture, prefix: str) -> Picture:
    from matplotlib.figure import Figure

    with drawing(prefix):
        if picture.wide:
            figure = np.ravel(picture.draw())[0].figure
        else:
            figure = Figure(figsize=SIZE, layout="constrained")
            picture.draw(ax=figure.subplots())
        return picture._replace(svg=inline_svg(figure, picture.alt, prefix))


def _scree(model: Any, plots: Any) -> Picture:
    variances, k = model.explained_variance_, model.n_components_
    share = float(np.sum(model.explained_variance_ratio_))
    who = "It holds" if k == 1 else "Together they hold"
    held = f" {who} {100 * share:.3g} % of all variance." if share > 0 else ""
    falls = f"the variance is {variances[0]:.4g}."
    if k > 1:
        falls = f"the variance falls from {variances[0]:.4g} to {variances[-1]:.4g}."
    return Picture(
        "Variances",
        "How much each component explains, the interval in which the true value is proven to "
        "lie, and the sum so far."
        if model.certificate_ is not None
        else "How much each component explains, and the sum so far.",
        f"Scree plot of {_counted(k)}: {falls}{held}",
        partial(plots.scree, model),
    )


def _proof(model: Any, plots: Any) -> Iterator[Picture]:
    proof = model.certificate_
    if proof is not None:
        met = proof.met(model.tol)
        words = f"{numbered(met)} {'are' if met.sum() > 1 else 'is'}" if met.any() else "None is"
        yield Picture(
            "Certificate",
            "The angle to the exact component, at most. What is proven lies below the line.",
            f"Plot of error bounds: {words.lower()} proven within the "
            f"{angle_words(model.tol)} asked for{how_proven(proof, model.tol)}.",
            partial(plots.certificate, model),
        )
    rows = [row for row in model.history_ if "angle_bounds" in row or "change" in row]
    if len(rows) > 1:
        last = rows[-1]
        yield Picture(
            "On the way",
            "What was proven of each component after every pass over the data."
            if "angle_bounds" in last
            else "The change still expected, after every pass over the data.",
            f"Convergence over {last['passes']:.3g} passes: {_ending(last)}.",
            partial(plots.convergence, model),
        )


def _ending(row: dict[str, Any]) -> str:
    bounds = counted_bounds(row)
    worst = row["change"] if bounds is None else float(bounds.max())
    what = "the change still expected" if bounds is None else "the largest bound"
    return f"{what} ends at {angle_words(worst)}"


def _images(model: Any, known: Given, plots: Any) -> Iterator[Picture]:
    if known.image_shape is not None:
        count = min(16, model.n_components_)
        yield Picture(
            "Components as images",
            "Above, what adds to a score; below, what takes away from it.",
            f"{_first(count)} drawn as {'an image' if count == 1 else 'images'}, positive and "
            "negative parts apart.",
            partial(plots.component_images, model, known.image_shape, range(count)),
            wide=True,
        )


def _scores(model: Any, known: Given, plots: Any) -> Iterator[Picture]:
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
        shown, kind = f"Each of {spaced(n)} rows", "Scatter plot"
        coloured = "" if labels is None else ", coloured by label"
        if n > plots.plane.MANY:
            shown, kind = f"How {spaced(n)} rows lie", "Density plot"
            by = "how many rows it holds" if labels is None else "the labels in it"
            coloured = f", each cell coloured by {by}"
        yield Picture(
            f"Scores of {named}",
            f"{shown}{coloured}.",
            f"{kind} of {n} rows along {named}{coloured}.",
            partial(_points, plots, known.scores, (i, j), labels, part),
        )


def _points(plots: Any, scores: Any, pair: Any, labels: Any, part: Any, ax: Any) -> Any:
    """With short names of the axes: these are narrow."""
    plots.scores(scores, pair, labels, ax, part)
    ax.set_xlabel(ax.get_xlabel().replace(" of the variance", ""))
    ax.set_ylabel(ax.get_ylabel().replace(" of the variance", ""))
    return ax


def _loadings(model: Any, known: Given, plots: Any, count: int) -> Iterator[Picture]:
    d, names = model.n_features_in_, known.names
    for i in range(min(count, model.n_components_)):
        largest = int(np.argmax(np.abs(model.components_[i])))
        name = f"x{largest}" if names is None else str(names[largest])
        few, share = min(LARGEST, d), 100 * float(model.explained_variance_ratio_[i])
        held = f" It holds {share:.3g} % of the variance." if share > 0 else ""
        yield Picture(
            f"Entries of component {i + 1}",
            f"{f'The {few} largest of its {spaced(d)}' if few < d else 'All its'} entries.{held}",
            f"Bar chart of the {few} largest entries of component {i + 1}; the largest is "
            f"{model.components_[i, largest]:.2g}, of {name}.",
            partial(_bars, plots, model, i, names),
        )


def _bars(plots: Any, model: Any, i: int, names: Any, ax: Any) -> Any:
    """Without a title: the words below say what it would."""
    plots.loadings(model, i, LARGEST, ax, names=names)
    ax.set_title("")
    return ax


def _plans(model: Any, plots: Any) -> Iterator[Picture]:
    ways = () if model.plan_ is None else model.plan_.ways
    if len(ways) > 1:
        yield Picture(
            "Ways that were weighed",
            "The seconds expected of each before the fit; the shortest was taken.",
            "Bar chart of expected seconds: "
            + ", ".join(f"{way.name} {way.seconds:.2g}" for way in ways)
            + ".",
            partial(_ways, plots, model.plan_),
        )


def _ways(plots: Any, plan: Any, ax: Any) -> Any:
    """With room for the words behind the bars: these axes are narrow."""
    plots.plans(plan, ax)
    ax.set_xlim(0, 2.2 * max(way.seconds for way in plan.ways))
    return ax


def _first(k: int) -> str:
    return "The first component" if k == 1 else f"The first {k} components"


def _counted(k: int) -> str:
    return "one component" if k == 1 else f"{k} components"
