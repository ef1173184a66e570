"""Put the page together: facts, words and pictures into the template."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from primedpca.report import facts
from primedpca.report.figures import pictures
from primedpca.report.inputs import Given, given
from primedpca.report.page_file import check_page_path, write_page
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
    """Write a page about a fitted model: one file that needs nothing else, on any screen.

    Parameters
    ----------
    model : PrimedPCA
        Fitted, or from :func:`primedpca.load`.
    path : path
        Where to; by custom ``something.html``.  A page that is there is replaced, in one step;
        a file that is no HTML page is never overwritten.
    data : data of shape (n_samples, n_features), optional
        What the model was fitted to, as anything that :func:`primedpca.as_source` reads: for its
        name and type, and one pass for the scores of the first components.
    scores : array of shape (n_samples, <= n_components_), optional
        Where they are known already; then ``data`` are not read.
    labels : array of shape (n_samples,), optional
        What to colour the scores by.
    names : sequence of n_features str, optional
        Of the columns; ``model.feature_names_in_`` where there is one.
    title : str, optional
    model_path : path, optional
        Where the model was saved, for the code that the page offers.

    Returns
    -------
    Path
        Of the page.

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
    """The page of :func:`write_report`, as text."""
    template = _template()
    if not hasattr(model, "n_components_"):
        raise ValueError("this model is not fitted, so there is nothing to report; fit it first.")
    if not hasattr(model, "certificate_"):
        raise TypeError(
            f"`model` must be a PrimedPCA, got {type(model).__name__}; `certify(X, components)` "
            "audits the components of any other."
        )
    known = given(model, data, scores, labels, names)
    style, script = (_read(name) for name in ("page.css", "page.js"))
    kind, sentence = verdict(model)
    return template.render(
        title=title or _title(known),
        style=style,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        kind=kind,
        verdict=sentence,
        status=str(model.status_),
        figures=facts.figures(model),
        sentences=certificate_sentences(model.certificate_, model.tol),
        asked=facts.asked(model, known),
        options=facts.options(model),
        done=facts.done(model),
        rows=facts.rows(model),
        clusters=bool(model.certificate_ is not None and model.certificate_.clusters),
        k=model.n_components_,
        pictures=pictures(model, known),
        code=_code(model, model_path),
        seed=model.random_state,
        versions=facts.versions(model),
        written=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
    )


def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ImportError("Reports need Jinja2: pip install 'primedpca[plots]'.") from error
    # What is not marked as safe in the template is escaped, whoever named it.
    made = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["ticked"] = _ticked
    return made.from_string(_read("page.html.jinja"))


def _ticked(words: str) -> Any:
    """What stands between backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(words))))


def _read(name: str) -> str:
    return files("primedpca.report").joinpath(name).read_text(encoding="utf-8")


def _title(known: Given) -> str:
    return f"Principal components of {known.name}" if known.is_file else "Principal components"


def _code(model: Any, model_path: str | os.PathLike[str] | None) -> list[tuple[str, str, str]]:
    """Ways to go on: a heading, a sentence and lines to copy."""
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
        more = "X stands for more rows with the same columns; then there are components to use."
        return [("In Python", more, f"{python}pca.partial_fit(X)\n")]
    python += (
        f"scores = pca.transform(X)               # (rows, {k})\n"
        f"back = pca.inverse_transform(scores)    # (rows, {d}), what {_counted(k)}\n"
        f"first = pca.components_[0]              # component 1: Python counts from 0\n"
    )
    if model.certificate_ is None:
        python += (
            "\nfrom primedpca import certify\n\n"
            "print(certify(X, pca.components_))      # how right they are\n"
        )
    else:
        python += "bounds = pca.certificate_.angle_bounds  # radians, proven\n"
    own = f", each through your own {map_} first" if map_ is not None and not ready else ""
    ways = [
        ("In Python", f"X stands for rows with the same columns as the data above{own}.", python)
    ]
    if not own:  # which the command line does not have
        shell = f"primedpca transform DATA {_quoted(where)} -o scores.npy\n"
        unsaved = "" if model_path is not None else f" fit saves the model with -o {where}."
        same = f"DATA stands for a file with the same columns.{unsaved}"
        ways.append(("On the command line", same, shell))
    return ways


def _counted(k: int) -> str:
    return "1 component holds" if k == 1 else f"{k} components hold"


def _quoted(path: str) -> str:
    import shlex

    return shlex.quote(path)
