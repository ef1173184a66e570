"""A fitted model as JSON, and as a table with the certificate in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primedpca.cli.errors import in_words_of_the_command_line
from primedpca.cli.printing import angle

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    *("bound_cells", "certificate_json", "component_table", "empty_table", "model_json"),
    *("show_certificate", "show_model", "show_rest"),
]

NARROW = 60  # columns; a narrower terminal gets a narrower table
MOST = 40  # rows of a table; --json prints all


def model_json(model: Any) -> dict[str, Any]:
    """Return the facts about a model as plain values."""
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
    """Return a certificate as plain values: angles in radians, components counted from 0."""
    if proof is None:
        return None
    return {
        "kind": proof.kind,
        "failure_probability": proof.failure_probability,
        "angle_bounds": proof.angle_bounds,
        "eigenvalue_bounds": proof.eigenvalue_bounds,
        "clusters": [run._asdict() for run in proof.clusters],
        "zero": proof.zero,
    }


def show_model(console: Console, model: Any) -> None:
    """Print the table of components, the certificate, and the status unless converged."""
    console.print(component_table(console, model, model.tol))
    show_rest(console, model.n_components_)
    show_certificate(console, model.certificate_, model.tol)
    if not model.converged_:
        console.print()
        status = in_words_of_the_command_line(str(model.status_))
        console.print(status, style="yellow", soft_wrap=not console.is_terminal)


def show_rest(console: Console, count: int) -> None:
    """Say how many of ``count`` components the table leaves out, if any."""
    if count > MOST:
        console.print(f"... and {count - MOST} more; --json prints all.", style="dim")


def show_certificate(console: Console, proof: Any, tol: float | None) -> None:
    """Print the certificate in words."""
    from primedpca.report.words import certificate_words

    console.print()
    console.print(certificate_words(proof, tol), soft_wrap=not console.is_terminal)


def component_table(console: Console, model: Any, tol: float) -> Table:
    """Return a table of the first components, with fewer columns on a narrow terminal."""
    ratios, total = model.explained_variance_ratio_, 0.0
    proof, shown = model.certificate_, min(model.n_components_, MOST)
    counted = None if proof is None else proof.counted_bounds()
    bounds = bound_cells(model.angle_bounds_, counted, tol, shown)
    table = empty_table(console, "variance", "ratio", "cumulative", "proven within")
    for i in range(shown):
        total += float(ratios[i])
        cells = [f"{model.explained_variance_[i]:.4g}", f"{100 * ratios[i]:.2f} %"]
        if console.width >= NARROW:
            cells.append(f"{100 * total:.2f} %")
        table.add_row(str(i + 1), *cells, bounds[i])
    return table


def empty_table(console: Console, *titles: str) -> Table:
    """Return a table without lines; a narrow terminal gets no third column."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    narrow = console.width < NARROW
    table.add_column("#", justify="right", no_wrap=True, style="dim")
    for i, title in enumerate(titles):
        if not (narrow and i == 2 and len(titles) > 3):
            table.add_column(title, justify="right", no_wrap=True)
    return table


def bound_cells(own: Any, counted: Any, tol: float, count: int) -> list[Any]:
    """Return a cell for each of ``count`` components: its bound, or a dash if there is none.

    ``own`` are the angle bounds of the single vectors and ``counted`` the
    :meth:`~primedpca.result.Certificate.counted_bounds`; both may be ``None``.
    """
    from rich.text import Text

    known = [] if own is None else list(zip(own, counted, strict=True))[:count]
    cells = [_bound_cell(alone, bound, tol) for alone, bound in known]
    return cells + [Text("-", "dim")] * (count - len(cells))


def _bound_cell(own: float, counted: float, tol: float) -> Any:
    """Return the counted bound and what it bounds; green if it is within ``tol``."""
    from rich.text import Text

    words = angle(counted)
    if counted < own:  # the component meets ``tol`` as part of a cluster, or without variance
        words = "no variance" if counted == 0 else f"{words} (span)"
    return Text(words, "green" if counted <= tol else "dim" if words == "not proven" else "yellow")
