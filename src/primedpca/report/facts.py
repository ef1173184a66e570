"""What the page states: what was asked, what was done, and a row for every component."""

from __future__ import annotations

import math
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np

import primedpca
from primedpca._core.outward_rounding import round_down, round_up
from primedpca._core.parameters import DEFAULTS
from primedpca.report.inputs import Given
from primedpca.report.words import angle_words, bound_words, certainty_words

__all__ = ["MOST_ROWS", "Row", "asked", "done", "figures", "options", "rows", "spaced", "versions"]

MOST_ROWS = 500  # of the table; the page of a thousand components must still open on a phone
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "dask", "matplotlib")


class Row(NamedTuple):
    """A component: what is written, and the numbers to sort by."""

    number: int
    variance: str
    interval: str
    share: str
    total: str
    bound: str
    cluster: str
    keys: tuple[float, ...]


def asked(model: Any, known: Given) -> list[tuple[str, str]]:
    """The request, a name and a value each."""
    n, d = model.n_samples_, model.n_features_in_
    said = [("Data", known.name)] if known.name else []
    said.append(("Size", f"{spaced(n)} rows × {spaced(d)} columns"))
    if known.shape is not None and known.shape[0] != n:
        said.append(("Shown here", f"{spaced(known.shape[0])} rows, not those of the fit"))
    said.append(("Numbers", known.dtype or f"{model.components_.dtype} components"))
    if getattr(model, "map_", None) is not None:
        said.append(("Rows", f"each through {model.map_} first"))
    said.append(("Components", _count_words(model)))
    if model.certificate != "none":
        said.append(("Angle", f"each within {_angle_asked(model.tol)} of the exact one"))
        proof = model.certificate_
        if proof is None or proof.kind == "probabilistic":
            said.append(("Certainty", f"{certainty_words(model.failure_probability)} or more"))
    return said


def options(model: Any) -> list[tuple[str, str, str]]:
    """Parameters that are not at their default: name, value, default."""
    params = model.get_params(deep=False)
    return [
        (name, _shown(params[name]), _shown(default))
        for name, default in DEFAULTS.items()
        if not _same(params[name], default)
    ]


def done(model: Any) -> list[tuple[str, str]]:
    """How it went, a name and a value each."""
    said = [] if model.plan_ is None else [("Plan", str(model.plan_))]
    times = f"{model.n_passes_:.3g}"
    often = {"1": "once", "2": "twice"}.get(times, f"{times} times")
    said.append(("Passes", f"the data were read {often}"))
    if model.history_:
        said.append(("Time", f"{_time(model.history_[-1]['seconds'])} in those passes"))
    said.append(("Where", getattr(model, "where_", "this machine")))
    return [*said, ("Ended", str(model.status_))]


def figures(model: Any) -> list[tuple[str, str]]:
    """The few numbers at the top of the page: a value and what it is."""
    k, share = model.n_components_, float(np.sum(model.explained_variance_ratio_))
    said = [(str(k), "component" if k == 1 else "components")]
    if share > 0:
        said.append((f"{_percent(share)} %", "of the variance"))
    if model.certificate_ is not None:
        met = model.certificate_.met(model.tol)
        if met.all():
            worst = float(model.certificate_.counted_bounds().max(initial=0.0))
            said.append((_degrees(worst), "the worst angle, at most"))
        else:
            said.append((f"{met.sum()} of {k}", f"proven within {angle_words(model.tol)}"))
    said.append((f"{model.n_passes_:.3g}", "pass" if model.n_passes_ == 1 else "passes"))
    return said


def rows(model: Any) -> list[Row]:
    """The table, at most :data:`MOST_ROWS` of it."""
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
            Row(
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


def versions(model: Any) -> list[tuple[str, str]]:
    """Of this package and of those it leans on, where the page was written."""
    found = [("primedpca", primedpca.__version__), ("Python", platform.python_version())]
    for name in LIBRARIES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return [*found, ("System", platform.platform(terse=True))]


def spaced(count: int) -> str:
    """Thousands set apart by a narrow space, as no country reads it wrongly."""
    return f"{count:,}".replace(",", "\u202f")


def _count_words(model: Any) -> str:
    wanted, k = model.n_components, model.n_components_
    if wanted is None:
        return f"as many as there are, {k}"
    if isinstance(wanted, str):
        return f"as many as is likeliest ({wanted}), {k}"
    if isinstance(wanted, (float, np.floating)):
        return f"the fewest that hold {100 * wanted:g} % of the variance, {k}"
    return str(wanted) if wanted == k else f"{wanted}, of which there are {k} so far"


def _angle_asked(tol: float) -> str:
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
    """A number and the sign, set apart from a power that it would seem to belong to."""
    words = bound_words(angle)
    return f"{words}\u202f°" if "×" in words else f"{words}°"


def _cluster(proof: Any, i: int) -> tuple[float, str, float | None]:
    """Where the cluster of component ``i`` begins, how it is written, and its own bound."""
    for start, stop, angle in () if proof is None else proof.clusters:
        if start <= i < stop:
            return start, f"{start + 1} to {stop}", angle
    return math.inf, "–", None


def _percent(share: float) -> str:
    return f"{100 * share:.2f}" if share >= 0.0001 else f"{100 * share:.1g}"


def _interval(low: float, high: float) -> str:
    """Six digits, rounded so that the interval only grows."""
    return f"{_six(round_down(low, 6))} to {_six(round_up(high, 6))}"


def _six(value: float) -> str:
    """Six digits, also where the last are zeros: a column of numbers is easier to read."""
    return f"{value:#.6g}".rstrip(".").replace("inf", "∞")


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} seconds" if seconds < 600 else f"{seconds / 60:.3g} minutes"
