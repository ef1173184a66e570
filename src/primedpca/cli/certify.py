"""``primedpca certify``: the audit of any components, from whatever program."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from primedpca.cli import options as opt
from primedpca.cli.errors import DONE, NOT_CONVERGED
from primedpca.cli.files import open_data, open_like
from primedpca.cli.printing import print_json, to_terminal
from primedpca.outward import round_down, round_up

__all__ = ["certify"]


def certify(
    data: opt.Data,
    components: Annotated[
        str,
        typer.Argument(
            metavar="COMPONENTS",
            show_default=False,
            help="One component a row: .npy, .npz, .csv, any other DATA, or a model of fit.",
        ),
    ],
    tol: Annotated[
        Any,
        typer.Option(
            metavar="ANGLE",
            parser=opt.as_angle,
            show_default=False,
            help="Ask only whether each is within this angle: pi/128, 1deg, 0.01.",
        ),
    ] = None,
    max_passes: opt.MaxPasses = 20,
    columns: opt.Columns = None,
    exclude: opt.Exclude = None,
    id_column: opt.Id = None,
    label_column: opt.Label = None,
    delimiter: opt.Delimiter = None,
    no_header: opt.NoHeader = False,
    map_rows: opt.Map = None,
    scale: opt.Scale = None,
    missing: opt.Missing = "error",
    seed: opt.Seed = None,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> int:
    """Prove how far COMPONENTS are from the exact principal components of DATA, at most.

    Exit code 3 if --tol is given and not every component is proven within it.
    Of a model, its own scale and rule for missing values are used.

    Example: primedpca certify data.npy components.npy --tol 1deg
    """
    vectors, model = _components(components)
    opened = {"columns": columns, "exclude": exclude, "id_column": id_column}
    opened |= {"label_column": label_column, "delimiter": delimiter, "map": map_rows}
    source = open_like(data, model, no_header=no_header, **opened)
    preparation: dict[str, Any] = {"scale": scale, "missing": missing}
    if model is not None:
        preparation = {"center": model.center, "scale": model.scale_, "missing": model.missing}
    from primedpca.certify import certify as audited

    proof = audited(
        source, vectors, tol=tol, max_passes=max_passes, random_state=seed, **preparation
    )
    met = None if tol is None else bool(proof.met(tol).all())
    if as_json:
        from primedpca.cli.summary import certificate_json

        print_json({"tol": tol, "met": met, "certificate": certificate_json(proof)})
    else:
        _show(proof, tol)
    return NOT_CONVERGED if met is False else DONE


def _components(path: str) -> tuple[Any, Any]:
    """Vectors ``(k, d)``, and the model that they are of, if they are of one."""
    if path.endswith(".safetensors"):
        from primedpca.cli.files import load_model

        model = load_model(path)
        return model.components_, model
    from primedpca.sources.base import whole

    return whole(open_data(path)), None


def _show(proof: Any, tol: float | None) -> None:
    from primedpca.cli.summary import MOST, bound_cells, empty_table, show_certificate

    console = to_terminal()
    table = empty_table(console, "variance at least", "at most", "within")
    own, intervals = proof.angle_bounds, proof.eigenvalue_bounds[:MOST]
    near = 0.02 if tol is None else tol
    cells = bound_cells(own, proof.counted_bounds(), near, len(intervals))
    for i, (low, high) in enumerate(intervals):
        ends = (f"{round_down(low, 4):.4g}", f"{round_up(high, 4):.4g}")
        table.add_row(str(i + 1), *ends, cells[i])
    console.print(table)
    more = len(proof.angle_bounds) - MOST
    if more > 0:
        console.print(f"... and {more} more; --json prints them all.", style="dim")
    show_certificate(console, proof, tol)
