"""A fitted model, and a fit in progress, as HTML for notebooks."""

from typing import Any

import numpy as np

from primedpca._core.html import angle_plot, bar, block, paragraph, table
from primedpca._core.wording import angle_words, count_words, duration
from primedpca._solve.history import Row, counted_bounds
from primedpca.result import certificate_sentences

__all__ = ["model_html", "progress_html"]

MOST_ROWS = 10


def model_html(model: Any) -> str:
    """Describe a fitted model: size, variances with bars, and what is proven."""
    k, ratios = model.n_components_, np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    size = f"{model.n_samples_:,} rows × {model.n_features_in_:,} columns"
    share = (
        f", which explain {100 * ratios.sum():.4g} % of the variance" if ratios.sum() > 0 else ""
    )
    said = [paragraph(f"Fitted to {size}: {count_words(k)}{share}.")]
    if k:
        said.append(_components(model, ratios))
    proof = model.certificate_
    if proof is not None:
        said.append(angle_plot(proof.angle_bounds, proof.counted_bounds(), model.tol))
    said.append(paragraph(" ".join(certificate_sentences(proof, model.tol))))
    if not model.converged_ and k:
        said.append(paragraph(str(model.status_)))
    return block(*said)


def _components(model: Any, ratios: np.ndarray) -> str:
    rows = []
    for i in range(min(model.n_components_, MOST_ROWS)):
        variance = f"{model.explained_variance_[i]:.4g}"
        share = f"{100 * ratios[i]:.2f} %" if ratios.sum() > 0 else "–"
        rows.append([str(i + 1), variance, share, bar(ratios[i] / (ratios[0] or 1.0), True)])
    if model.n_components_ > MOST_ROWS:
        rows.append(["…", f"{count_words(model.n_components_ - MOST_ROWS, 'more component')}"])
    return table(["component", "variance", "explained", ""], rows)


def progress_html(row: Row, tol: float, end: str = "") -> str:
    """Describe a row of the history; ``end`` is the sentence of a fit that has ended."""
    words = [f"pass {row['passes']:.0f}", duration(row["seconds"])]
    bounds, drawn = counted_bounds(row), ""
    if bounds is not None and bounds.size:
        met = int((bounds <= tol).sum())
        words.append(f"{met} of {bounds.size} components proven within {angle_words(tol)}")
        drawn = angle_plot(row.get("angle_bounds", bounds), bounds, tol)
    if "change" in row and not end:
        words.append(f"estimated remaining change {angle_words(row['change'])}")
    state = "done" if end else "running"
    return block(
        paragraph(f"primedpca, {state}: {', '.join(words)}"), drawn, paragraph(end) if end else ""
    )
