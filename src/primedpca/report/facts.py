"""Facts that the page states: the request, the outcome, and a table row for every component."""

from __future__ import annotations

import inspect
import math
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np

import primedpca
from primedpca._core.outward_rounding import round_down, round_up
from primedpca._core.wording import angle_words, bound_words, certainty_words, duration
from primedpca.report.inputs import Inputs

__all__ = [
    *("MOST_ROWS", "ComponentRow", "component_rows", "key_numbers", "options", "outcome"),
    *("request", "spaced", "versions"),
]

MOST_ROWS = 500  # of the table; the page of a thousand components must still open on a phone
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "dask", "matplotlib")


class ComponentRow(NamedTuple):
    """Table row of a component: the text of each cell, and the numbers to sort by."""

    number: int
    variance: str
    interval: str
    ratio: str
    total: str
    bound: str
    cluster: str
    keys: tuple[float, ...]


def request(model: Any, known: Inputs) -> list[tuple[str, str]]:
    """Describe what was requested, as pairs of name and value."""
    n, d = model.n_samples_, model.n_features_in_
    said = [("Data", known.name)] if known.name else []
    said.append(("Size", f"{spaced(n)} rows × {spaced(d)} columns"))
    if known.shape is not None and known.shape[0] != n:
        said.append(("Plotted", f"{spaced(known.shape[0])} rows, not those of the fit"))
    said.append(("Type", known.dtype or f"{model.components_.dtype} components"))
    if getattr(model, "map_", None) is not None:
        said.append(("Map", f"{model.map_}, applied to each row"))
    said.append(("Components", _count_words(model)))
    if model.certificate != "none":
        said.append(
            ("Tolerance", f"{_tolerance(model.tol)} between each component and the true one")
        )
        proof = model.certificate_
        if proof is None or proof.kind == "probabilistic":
            said.append(("Probability", f"{certainty_words(model.failure_probability)} or more"))
    return said


def options(model: Any) -> list[tuple[str, str, str]]:
    """Return the parameters that differ from their defaults: name, value, default."""
    params, known = model.get_params(deep=False), inspect.signature(type(model)).parameters
    return [
        (name, _shown(params[name]), _shown(known[name].default))
        for name in known
        if name != "n_components" and not _same(params[name], known[name].default)
    ]


def outcome(model: Any) -> list[tuple[str, str]]:
    """Describe how the fit went, as pairs of name and value."""
    said = [] if model.plan_ is None else [("Plan", str(model.plan_))]
    times = f"{model.n_passes_:.3g}"
    often = {"1": "once", "2": "twice"}.get(times, f"{times} times")
    said.append(("Passes", f"the data were read {often}"))
    if model.history_:
        said.append(("Time", f"{duration(model.history_[-1]['seconds'])} in these passes"))
    said.append(("Computed on", getattr(model, "where_", "this machine")))
    return [*said, ("Status", str(model.status_))]


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
            said.append((_degrees(worst), "largest angle bound"))
        else:
            said.append((f"{met.sum()} of {k}", f"proven within {angle_words(model.tol)}"))
    said.append((f"{model.n_passes_:.3g}", "pass" if model.n_passes_ == 1 else "passes"))
    return said


def component_rows(model: Any) -> list[ComponentRow]:
    """Return the table, at most :data:`MOST_ROWS` rows of it."""
    # In float64, so that the sums of many float32 ratios do not drift.
    variances = model.explained_variance_.astype(np.float64)
    ratios = model.explained_variance_ratio_.astype(np.float64)
    sums, proof = np.cumsum(ratios), model.certificate_
    known, told = bool(ratios.sum() > 0), []
    for i in range(min(variances.size, MOST_ROWS)):
        low, high = (math.nan, math.nan) if proof is None else proof.eigenvalue_bounds[i]
        bound = math.inf if proof is None else float(proof.angle_bounds[i])
        first, cluster, span = _cluster(proof, i)
        nearest = bound if span is None else span
        told.append(
            ComponentRow(
                i + 1,
                _six(variances[i]),
                "–" if proof is None else _interval(low, high),
                f"{_percent(ratios[i])} %" if known else "–",
                f"{_percent(sums[i])} %" if known else "–",
                bound_words(nearest) + (" (span)" if span is not None else ""),
                cluster,
                (i + 1, variances[i], low, ratios[i], sums[i], nearest, first),
            )
        )
    return told


def versions() -> list[tuple[str, str]]:
    """Return the versions of this package and its dependencies on this machine."""
    found = [("primedpca", primedpca.__version__), ("Python", platform.python_version())]
    for name in LIBRARIES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return [*found, ("System", platform.platform(terse=True))]


def spaced(count: int) -> str:
    """Separate thousands by a narrow space, which no country reads as a decimal sign."""
    return f"{count:,}".replace(",", "\u202f")


def _count_words(model: Any) -> str:
    wanted, k = model.n_components, model.n_components_
    if wanted is None:
        return f"{k}, as many as possible"
    if isinstance(wanted, str):
        return f"{k}, by maximum likelihood ({wanted})"
    if isinstance(wanted, (float, np.floating)):
        return f"{k}, the fewest that explain {100 * wanted:g} % of the variance"
    return str(wanted) if wanted == k else f"{wanted}, of which {k} so far"


def _tolerance(tol: float) -> str:
    parts = math.pi / tol
    exact = f"pi/{parts:.0f}" if abs(parts - round(parts)) < 1e-9 * parts else f"{tol:.4g}"
    return f"{angle_words(tol)} ({exact} radians)"


def _same(value: Any, default: Any) -> bool:
    return type(value) in (type(default), type(np.float64(0))) and bool(value == default)


def _shown(value: Any) -> str:
    if len(getattr(value, "shape", ())) > 0:
        return f"array of shape {tuple(value.shape)}"
    if callable(value) and hasattr(value, "__name__"):
        return f"the function {value.__name__}"
    words = repr(value)
    return words if len(words) <= 120 else words[:117] + "..."


def _degrees(angle: float) -> str:
    """Put a space between a power of ten and the degree sign, so that they stay separate."""
    words = bound_words(angle)
    return f"{words}\u202f°" if "×" in words else f"{words}°"


def _cluster(proof: Any, i: int) -> tuple[float, str, float | None]:
    """Return where the cluster of component ``i`` (from 0) begins, its text, and its bound."""
    for start, stop, angle in () if proof is None else proof.clusters:
        if start <= i < stop:
            return start, f"{start + 1} to {stop}", angle
    return math.inf, "–", None


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2f}" if ratio >= 0.0001 else f"{100 * ratio:.1g}"


def _interval(low: float, high: float) -> str:
    """Format an interval with six digits, rounded so that it only grows."""
    return f"{_six(round_down(low, 6))} to {_six(round_up(high, 6))}"


def _six(value: float) -> str:
    """Format six digits with trailing zeros, which keep a column of numbers aligned."""
    return f"{value:#.6g}".rstrip(".").replace("inf", "∞")
