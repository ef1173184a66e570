"""Assemble the page: fill the template with facts, sentences and plots."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from primedpca._core.wording import count_words
from primedpca.report import facts
from primedpca.report.inputs import Inputs, check_inputs
from primedpca.report.page_file import check_page_path, write_page
from primedpca.report.page_plots import page_plots
from primedpca.report.words import certificate_sentences, verdict

__all__ = ["report_html", "write_report"]


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    *,
    data: Any = None,
    scores: Any = None,
    labels: Any = None,
    names: Any = None,
    title: str | None = None,
    model_path: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a report about a fitted model: one HTML file that needs no other file.

    Parameters
    ----------
    model : PrimedPCA
        Fitted, or from :func:`primedpca.load`.
    path : path
        File to write, by custom ``something.html``.  An existing page is replaced in one step; a
        file that is not an HTML page is never overwritten.
    data : data of shape (n_samples, n_features), optional
        The data that the model was fitted to, in any form that :func:`primedpca.as_source`
        reads.  The report states their name and type, and plots scores after one pass.
    scores : array of shape (n_samples, <= n_components_), optional
        Scores to plot, if already computed; then ``data`` are not read.
    labels : array of shape (n_samples,), optional
        Labels that colour the scores.
    names : sequence of n_features str, optional
        Names of the columns, default=``model.feature_names_in_`` where it exists.
    title : str, optional
        Heading of the page, default=the name of the data file.
    model_path : path, optional
        File of the saved model, for the code that the page shows.

    Returns
    -------
    Path
        The page.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from primedpca import PrimedPCA
    >>> from primedpca.report import write_report
    >>> iris = load_iris()
    >>> pca = PrimedPCA(2, random_state=0).fit(iris.data)
    >>> page = pathlib.Path(tempfile.mkdtemp()) / "iris.html"
    >>> write_report(pca, page, data=iris.data, labels=iris.target, title="Iris").name
    'iris.html'
    """
    page = check_page_path(path, data)
    html = report_html(
        model,
        data=data,
        scores=scores,
        labels=labels,
        names=names,
        title=title,
        model_path=model_path,
    )
    write_page(page, html)
    return page


def report_html(
    model: Any,
    *,
    data: Any = None,
    scores: Any = None,
    labels: Any = None,
    names: Any = None,
    title: str | None = None,
    model_path: str | os.PathLike[str] | None = None,
) -> str:
    """Return the page of :func:`write_report` as text."""
    template = _template()
    if not hasattr(model, "n_components_"):
        raise ValueError("`model` is not fitted, so there is nothing to report. Fit it first.")
    if not hasattr(model, "certificate_"):
        raise TypeError(
            f"`model` must be a PrimedPCA, got {type(model).__name__}. For another estimator, use "
            "`certify(X, components)`."
        )
    known = check_inputs(model, data, scores, labels, names)
    style, script = (_read(name) for name in ("page.css", "page.js"))
    kind, sentence = verdict(model)
    # The page's security policy allows this one script, by its hash, and no other.
    text: str = template.render(
        title=title or _title(known),
        style=style,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        kind=kind,
        verdict=sentence,
        status=str(model.status_),
        figures=facts.key_numbers(model),
        sentences=certificate_sentences(model.certificate_, model.tol),
        request=facts.request(model, known),
        options=facts.options(model),
        outcome=facts.outcome(model),
        rows=facts.component_rows(model),
        clusters=bool(model.certificate_ is not None and model.certificate_.clusters),
        k=model.n_components_,
        plots=page_plots(model, known),
        code=_code(model, model_path),
        seed=model.random_state,
        versions=facts.versions(),
        written=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
    )
    return text


def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ImportError("Reports need Jinja2: pip install 'primedpca[plots]'.") from error
    # Everything that the template does not mark as safe is escaped: names come from users.
    made = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["code"] = _code_spans
    return made.from_string(_read("page.html.jinja"))


def _code_spans(words: str) -> Any:
    """Mark text between backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(words))))


def _read(name: str) -> str:
    return files("primedpca.report").joinpath(name).read_text(encoding="utf-8")


def _title(known: Inputs) -> str:
    return f"Principal components of {known.name}" if known.is_file else "Principal components"


def _code(model: Any, model_path: str | os.PathLike[str] | None) -> list[tuple[str, str, str]]:
    """Return code to use the model with: heading, sentence and lines to copy for each."""
    k, d = model.n_components_, model.n_features_in_
    where = os.fspath(model_path) if model_path is not None else "model.safetensors"
    kept = "" if model_path is not None else f"pca.save({where!r})  # once, after the fit\n\n"
    map_ = getattr(model, "map_", None)
    ready = map_ is not None and not map_.startswith("<")
    imports, mapping = "from primedpca import load\n", ""
    if ready:
        imports = "from primedpca import as_source, load\nfrom primedpca.sources import maps\n"
        mapping = f"X = as_source(X, map=maps.{map_})\n"
    python = f"{kept}{imports}\npca = load({where!r})\n{mapping}"
    if k == 0:
        more = "X: more rows with the same columns, which give the model components."
        return [("In Python", more, f"{python}pca.partial_fit(X)\n")]
    python += (
        f"scores = pca.transform(X)               # (rows, {k})\n"
        f"back = pca.inverse_transform(scores)    # (rows, {d}), rebuilt from {count_words(k)}\n"
        f"first = pca.components_[0]              # component 1: Python counts from 0\n"
    )
    if model.certificate_ is None:
        python += (
            "\nfrom primedpca import certify\n\n"
            "print(certify(X, pca.components_))      # bounds on their error\n"
        )
    else:
        python += "bounds = pca.certificate_.angle_bounds  # radians, proven\n"
    own = f", after your own map {map_}" if map_ is not None and not ready else ""
    ways = [("In Python", f"X: rows with the same columns as the data above{own}.", python)]
    if not own:  # the command line knows only the maps of this library
        shell = f"primedpca transform DATA {shlex.quote(where)} -o scores.npy\n"
        unsaved = "" if model_path is not None else f" fit saves the model with -o {where}."
        same = f"DATA: a file with the same columns.{unsaved}"
        ways.append(("On the command line", same, shell))
    return ways
