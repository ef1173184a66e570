"""``primedpca certify``: the audit of any components, from whatever program."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from primedpca._core.outward_rounding import round_down, round_up
from primedpca.cli import options as opt
from primedpca.cli.errors import DONE, NOT_CONVERGED
from primedpca.cli.files import check_no_model, is_csv, open_data, open_like
from primedpca.cli.groups import Reading, flat
from primedpca.cli.printing import print_json, to_terminal

__all__ = ["certify"]


@flat
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
    *,
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
    reading: Reading,
    scale: opt.Scale = None,
    missing: opt.Missing = None,
    seed: opt.Seed = None,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> int:
    """Prove how far COMPONENTS are from the exact principal components of DATA, at most.

    Exit code 3 if --tol is given and not every component is proven within it.
    Of a model, its own map, scale and rule for missing values are used.

    Example: primedpca certify data.npy components.npy --tol 1deg
    """
    check_no_model(data)
    vectors, model = _components(components, reading)
    preparation: dict[str, Any] = {"scale": scale, "missing": missing or "error"}
    if model is not None:
        for option, value in (("--scale", scale), ("--missing", missing)):
            if value is not None:
                raise ValueError(f"`{option}` {value} is the model's to say; leave it out.")
        preparation = {"center": model.center, "scale": model.scale_, "missing": model.missing}
    if is_csv(components) and not is_csv(data):  # they were said of the components alone
        reading = replace(reading, delimiter=None, header=None)
    source = open_like(data, model, reading)
    from primedpca._solve.audit import certify as audited

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


def _components(path: str, reading: Reading) -> tuple[Any, Any]:
    """Vectors ``(k, d)``, and the model that they are of, if they are of one."""
    if path.endswith(".safetensors"):
        from primedpca.cli.files import load_model

        model = load_model(path)
        return model.components_, model
    from primedpca.sources.base import whole
    from primedpca.sources.files.csv_text import NoNamesError

    own = Reading(delimiter=reading.delimiter) if is_csv(path) else Reading()
    try:
        return whole(open_data(path, own)), None
    except NoNamesError:
        # Names that are numbers would not be orthonormal to the rest, and be refused as such.
        return whole(open_data(path, replace(own, header=False))), None
    except (OSError, ValueError) as error:
        kind = type(error) if isinstance(error, OSError) else ValueError  # others take more
        raise kind(str(error).replace("`X`", "`components`")) from error


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
