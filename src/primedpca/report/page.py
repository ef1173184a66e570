"""The page: its facts as text, its template filled, and the file written."""

import base64
import hashlib
import inspect
import math
import os
import platform
import re
import shlex
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import primedpca
from primedpca._core.atomic_files import atomic_write
from primedpca._core.outward_rounding import round_down, round_up
from primedpca._core.parameters import check_is_path
from primedpca._core.wording import angle_words, certainty_words, count_words, passes_words
from primedpca.report.findings import find
from primedpca.report.inputs import check_inputs, data_paths
from primedpca.report.page_plots import page_plots, proof_plots
from primedpca.report.space import space
from primedpca.report.words import bound_words, outcome, verdict
from primedpca.result import certificate_sentences
from primedpca.sources import maps
from primedpca.sources.base import needed

#: How a report begins, what its head names as its author, and the bytes in which both stand.
BEGINNING, GENERATOR = b"<!doctype html", b'<meta name="generator" content="primedpca">'
LOOKED_AT = 4096
MOST_ROWS = 500  # of the table; the page of a thousand components must still open on a phone
SHORT = 16  # letters of code that stay on one line
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "dask", "matplotlib")


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
        File to write, by custom ``something.html``.  An existing report is replaced in one step;
        any other file is never overwritten.
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
    html = _html(model, title, model_path, data, scores, labels, names)
    page = check_page_path(page, data)  # another file may have appeared in the meantime
    # ``atomic_write`` replaces symbolic links, so resolve the link first.
    with atomic_write(os.path.realpath(page), overwrite=page.exists()) as draft:
        draft.write_bytes(html.encode(errors="backslashreplace"))  # names may hold lone surrogates
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
    return _html(model, title, model_path, data, scores, labels, names)


def _html(model: Any, title: str | None, model_path: Any, *inputs: Any) -> str:
    template = _template()
    if not hasattr(model, "n_components_"):
        raise ValueError("`model` is not fitted, so there is nothing to report. Fit it first.")
    if not hasattr(model, "certificate_"):
        raise TypeError(f"`model` must be a PrimedPCA, got {type(model).__name__}; see `certify`.")
    known = check_inputs(model, *inputs)
    whose = f" of {known.name}" if known.is_file else ""
    style, script = (_read(name) for name in ("page.css", "page.js"))
    kind, sentence = verdict(model)
    # The page's security policy allows this one script, by its hash, and no other.
    text: str = template.render(
        title=title or f"Principal components{whose}",
        style=style,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        kind=kind,
        verdict=sentence,
        status=str(model.status_),
        figures=key_numbers(model),
        sentences=certificate_sentences(model.certificate_, model.tol),
        request=request(model),
        found=find(model, known),
        space=space(model, known),
        options=options(model),
        outcome=outcome(model),
        rows=component_rows(model),
        clusters=bool(model.certificate_ is not None and model.certificate_.clusters),
        k=model.n_components_,
        plots=page_plots(model, known),
        proofs=proof_plots(model),
        code=_code(model, model_path),
        seed=model.random_state,
        versions=versions(),
        written=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
    )
    return text


def _template() -> Any:
    jinja2 = needed("jinja2", "A report", "plots")
    # Everything that the template does not mark as safe is escaped: names come from users.
    options = {"undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    made = jinja2.Environment(autoescape=True, **options)
    made.filters["code"] = _code_spans
    return made.from_string(_read("page.html.jinja"))


def _code_spans(words: str) -> Any:
    """Mark text between backticks as code; a short one, such as an option, is not broken."""
    from markupsafe import Markup, escape

    def marked(match: re.Match[str]) -> str:
        kind = ' class="one"' if len(match[1]) <= SHORT else ""
        return f"<code{kind}>{match[1]}</code>"

    return Markup(re.sub(r"`([^`]*)`", marked, str(escape(words))))


def _read(name: str) -> str:
    return files("primedpca.report").joinpath(name).read_text(encoding="utf-8")


def check_page_path(path: str | os.PathLike[str], data: Any = None) -> Path:
    """Check that a page can be written to ``path``, before anything is computed.

    Parameters
    ----------
    path : path
        An existing report may be replaced; any other existing file is an error.
    data : data, optional
        The data of the report.  None of their files may be the page.

    Returns
    -------
    Path
    """
    check_is_path(path)
    page = Path(path)
    folder = page.parent
    if page.is_dir():
        raise IsADirectoryError(f"{page} is a folder. Name a file in it: {page / 'page.html'}")
    if not folder.is_dir():
        raise FileNotFoundError(f"Folder not found: {folder}. Create it, then write {page.name}.")
    for part in data_paths(data):
        if page.exists() and part.exists() and os.path.samefile(page, part):
            raise FileExistsError(f"{page} holds the data. Name another file for the page.")
    if (page.exists() or page.is_symlink()) and not _is_report(page):
        raise FileExistsError(f"{page} exists and is not a report. Name another file.")
    if page.suffix.lower() not in (".html", ".htm"):  # a browser would not show it as a page
        raise ValueError(f"{page} must end in .html. Name it {page.stem}.html.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"No permission to write {page.name} to {folder}.")
    return page


def _is_report(path: Path) -> bool:
    """Whether a file is a report of ours or empty; pipes and devices are not opened."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        head = file.read(LOOKED_AT)
    return not head or (head.lower().startswith(BEGINNING) and GENERATOR in head)


def _code(model: Any, model_path: str | os.PathLike[str] | None) -> list[tuple[str, str, str]]:
    """Return code to use the model with: heading, sentence and lines to copy for each."""
    k, d = model.n_components_, model.n_features_in_
    where = os.fspath(model_path) if model_path is not None else "model.safetensors"
    kept = "" if model_path is not None else f"pca.save({where!r})  # once, after the fit\n\n"
    map_ = getattr(model, "map_", None)
    ready = map_ is not None and not map_.startswith("<")
    imports, mapping = "from primedpca import load\n", ""
    if ready and map_ is not None:
        imports = "from primedpca import as_source, load\nfrom primedpca.sources import maps\n"
        name, of, count = map_.partition(maps.OF)
        known = hasattr(model, "feature_names_in_")
        chosen = ", columns=pca.feature_names_in_" if of and known else ""
        note = f"  # totals of {count}" if of else ""
        mapping = f"X = as_source(X, map=maps.{name}{chosen}){note}\n"
    python = f"{kept}{imports}\npca = load({where!r})\n{mapping}"
    if k == 0:
        more = "X: more rows with the same columns, which give the model components."
        return [("In Python", more, f"{python}pca.partial_fit(X)\n")]
    python += (
        f"scores = pca.transform(X)               # (rows, {k})\n"
        f"back = pca.inverse_transform(scores)    # (rows, {d}), rebuilt from {count_words(k)}\n"
        f"first = pca.components_[0]              # component 1: Python counts from 0\n"
    )
    if model.certificate_ is not None:
        python += "bounds = pca.certificate_.angle_bounds  # radians, proven\n"
    else:
        python += "\nfrom primedpca import certify\n\n"
        python += "print(certify(X, pca.components_))      # bounds on their error\n"
    own = f", after your own map {map_}" if map_ is not None and not ready else ""
    ways = [("In Python", f"X: rows with the same columns as the data above{own}.", python)]
    if not own:  # the command line knows only the maps of this library
        shell = f"primedpca transform DATA {shlex.quote(where)} -o scores.npy\n"
        unsaved = "" if model_path is not None else f" fit saves the model with -o {where}."
        same = f"DATA: a file with the same columns.{unsaved}"
        ways.append(("On the command line", same, shell))
    return ways


def request(model: Any) -> list[tuple[str, str]]:
    """Describe what was requested, as pairs of name and value."""
    said = [("Components", _count_words(model))]
    if model.certificate != "none":
        parts, proof = math.pi / model.tol, model.certificate_
        whole = abs(parts - round(parts)) < 1e-9 * parts
        exact = f"pi/{parts:.0f}" if whole else f"{model.tol:.4g}"
        angle = f"{angle_words(model.tol)} ({exact} radians)"
        said.append(("Tolerance", f"{angle} between each component and the true one"))
        if proof is None or proof.kind == "probabilistic":
            said.append(("Probability", f"{certainty_words(model.failure_probability)} or more"))
    return said


def options(model: Any) -> list[tuple[str, str, str]]:
    """Return the parameters that differ from their defaults: name, value, default."""
    found = []
    for name, known in inspect.signature(type(model)).parameters.items():
        value, default = getattr(model, name), known.default
        same = type(value) in (type(default), np.float64) and bool(value == default)
        if name != "n_components" and not same:
            found.append((name, _shown(value), _shown(default)))
    return found


def key_numbers(model: Any) -> list[tuple[str, str]]:
    """Return the few numbers at the top of the page, as pairs of value and name."""
    k, ratio = model.n_components_, float(np.sum(model.explained_variance_ratio_))
    said = [(str(k), "component" if k == 1 else "components")]
    if ratio > 0:
        said.append((f"{_percent(ratio)} %", "explained variance"))
    if model.certificate_ is not None:
        met = model.certificate_.met(model.tol)
        if met.all():
            worst = float(model.certificate_.counted_bounds().max(initial=0.0))
            said.append((angle_words(worst), "largest angle bound"))
        else:
            said.append((f"{met.sum()} of {k}", f"proven within {angle_words(model.tol)}"))
    said.append((passes_words(model.n_passes_), "pass" if model.n_passes_ == 1 else "passes"))
    return said


def component_rows(model: Any) -> list[tuple[tuple[float, ...], tuple[object, ...]]]:
    """Return the table, at most :data:`MOST_ROWS` rows: the numbers to sort by, and the cells."""
    # In float64, so that the sums of many float32 ratios do not drift.
    variances = model.explained_variance_.astype(np.float64)
    ratios = model.explained_variance_ratio_.astype(np.float64)
    sums, proof, k = np.cumsum(ratios), model.certificate_, variances.size
    own, intervals = np.full(k, np.inf), np.full((k, 2), np.nan)
    counted, clusters, names = own, np.full(k, np.inf), ["–"] * k
    if proof is not None:
        own, counted = proof.angle_bounds, proof.counted_bounds()
        intervals = proof.eigenvalue_bounds
        for start, stop, _ in proof.clusters:
            clusters[start:stop] = start
            names[start:stop] = [f"{start + 1} to {stop}"] * (min(stop, k) - start)
    rows: list[Any] = []
    for i in range(min(k, MOST_ROWS)):
        low, high = intervals[i]
        shares = (f"{_percent(v)} %" if ratios.sum() > 0 else "–" for v in (ratios[i], sums[i]))
        # Rounded so that the interval only grows.
        ends = f"{_six(round_down(low, 6))} to {_six(round_up(high, 6))}" if proof else "–"
        bound = bound_words(own[i], counted[i]) if proof else "–"
        keys = (i + 1, variances[i], low, ratios[i], sums[i], counted[i], clusters[i])
        rows.append((keys, (i + 1, _six(variances[i]), ends, *shares, bound, names[i])))
    return rows


def versions() -> list[tuple[str, str]]:
    """Return the versions of this package and its dependencies on this machine."""
    found = [("primedpca", primedpca.__version__), ("Python", platform.python_version())]
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found.append((name, version(name)))
    return [*found, ("System", platform.platform(terse=True))]


def _count_words(model: Any) -> str:
    wanted, k = model.n_components, model.n_components_
    if wanted is None:
        return f"{k}, as many as possible"
    if isinstance(wanted, str):
        return f"{k}, by maximum likelihood ({wanted})"
    if isinstance(wanted, (float, np.floating)):
        return f"{k}, the fewest that explain {100 * wanted:g} % of the variance"
    return str(wanted) if wanted == k else f"{wanted}, of which {k} so far"


def _shown(value: Any) -> str:
    if len(getattr(value, "shape", ())) > 0:
        return f"array of shape {tuple(value.shape)}"
    if callable(value) and hasattr(value, "__name__"):
        return f"the function {value.__name__}"
    words = repr(value)
    return words if len(words) <= 120 else words[:117] + "..."


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2f}" if ratio >= 0.0001 else f"{100 * ratio:.1g}"


def _six(value: float) -> str:
    """Format six digits with trailing zeros, which keep a column of numbers aligned."""
    return f"{value:#.6g}".rstrip(".").replace("inf", "∞")
