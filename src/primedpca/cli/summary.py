"""A fitted model in JSON, and in a table with the certificate in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primedpca.cli.printing import angle

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["certificate_json", "component_table", "model_json", "show_certificate", "show_model"]

NARROW = 60  # columns of a terminal that hold the whole table
MOST = 40  # rows of it; --json has them all


def model_json(model: Any) -> dict[str, Any]:
    """What is known about a model, as plain values."""
    return {
        "n_samples": model.n_samples_,
        "n_features": model.n_features_in_,
        "n_components": model.n_components_,
        "converged": bool(model.converged_),
        "status": model.status_.name.lower(),
        "plan": None if model.plan_ is None else str(model.plan_),
        "passes": model.n_passes_,
        "tol": model.tol,
        "map": getattr(model, "map_", None),
        "explained_variance": model.explained_variance_,
        "explained_variance_ratio": model.explained_variance_ratio_,
        "noise_variance": model.noise_variance_,
        "certificate": certificate_json(model.certificate_),
    }


def certificate_json(proof: Any) -> dict[str, Any] | None:
    """A certificate as plain values; angles are in radians."""
    if proof is None:
        return None
    return {
        "kind": proof.kind,
        "failure_probability": proof.failure_probability,
        "angle_bounds": proof.angle_bounds,
        "eigenvalue_bounds": proof.eigenvalue_bounds,
        "clusters": [run._asdict() for run in proof.clusters],
    }


def show_model(console: Console, model: Any) -> None:
    """The table of components, what is proven, and how it went."""
    console.print(component_table(console, model, model.tol))
    more = model.n_components_ - MOST
    if more > 0:
        console.print(f"... and {more} more; --json prints them all.", style="dim")
    show_certificate(console, model.certificate_, model.tol)
    if not model.converged_:
        console.print()
        console.print(_status(model), style="yellow", soft_wrap=not console.is_terminal)


def show_certificate(console: Console, proof: Any, tol: float | None) -> None:
    """What is proven, in words."""
    from primedpca.report.words import certificate_words

    console.print()
    console.print(certificate_words(proof, tol), soft_wrap=not console.is_terminal)


def _status(model: Any) -> str:
    from primedpca.cli.errors import in_words_of_the_command_line

    return in_words_of_the_command_line(str(model.status_))


def component_table(console: Console, model: Any, tol: float) -> Table:
    """The first components, a row each; with less beside them on a narrow terminal."""
    shares, total = model.explained_variance_ratio_, 0.0
    bounds = model.angle_bounds_
    table = empty_table(console, "variance", "share", "in all", "proven within")
    for i in range(min(model.n_components_, MOST)):
        total += float(shares[i])
        bound = None if bounds is None else float(bounds[i])
        cells = [f"{model.explained_variance_[i]:.4g}", f"{100 * shares[i]:.2f} %"]
        if console.width >= NARROW:
            cells.append(f"{100 * total:.2f} %")
        table.add_row(str(i + 1), *cells, bound_cell(bound, tol))
    return table


def empty_table(console: Console, *titles: str) -> Table:
    """A table without lines; the third column is left out where there is no room."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    narrow = console.width < NARROW
    table.add_column("#", justify="right", no_wrap=True, style="dim")
    for i, title in enumerate(titles):
        if not (narrow and i == 2 and len(titles) > 3):
            table.add_column(title, justify="right", no_wrap=True)
    return table


def bound_cell(bound: float | None, tol: float) -> Any:
    """A bound, green where it is what was asked for."""
    from rich.text import Text

    if bound is None:
        return Text("-", "dim")
    words = angle(bound)
    return Text(words, "green" if bound <= tol else "dim" if words == "not proven" else "yellow")
