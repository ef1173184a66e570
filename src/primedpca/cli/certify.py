"""``primedpca certify``: audit the components of any program."""

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
            help="One component per row: .npy, .npz, .csv, any other DATA, or a model from fit.",
        ),
    ],
    *,
    tol: Annotated[
        Any,
        typer.Option(
            metavar="ANGLE",
            parser=opt.as_angle,
            show_default=False,
            help="Test whether each component is within this angle: pi/128, 1deg, 0.01 (radians).",
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
    """Prove how far COMPONENTS are, at most, from the true principal components of DATA.

    Exit code 3 if --tol is given and not every component is proven within it.
    For a model, its own map, scale and rule for missing values are used.

    Example: primedpca certify data.npy components.npy --tol 1deg
    """
    check_no_model(data)
    vectors, model = _components(components, reading)
    preparation: dict[str, Any] = {"scale": scale, "missing": missing or "error"}
    if model is not None:
        for option, value in (("--scale", scale), ("--missing", missing)):
            if value is not None:
                raise ValueError(f"`{option}` {value} is set by the model. Omit it.")
        preparation = {"center": model.center, "scale": model.scale_, "missing": model.missing}
    if is_csv(components) and not is_csv(data):  # both options describe the components only
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
    """Return the vectors ``(k, d)``, and the model if the file is one, else None."""
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
        # Read the first line as a component: if it held names, the rows would not be orthonormal.
        return whole(open_data(path, replace(own, header=False))), None
    except (OSError, ValueError) as error:
        # Subclasses of ValueError may take other arguments than a message.
        kind = type(error) if isinstance(error, OSError) else ValueError
        raise kind(str(error).replace("`X`", "`components`")) from error


def _show(proof: Any, tol: float | None) -> None:
    from primedpca.cli.summary import MOST, bound_cells, empty_table, show_certificate, show_rest

    console = to_terminal()
    table = empty_table(console, "variance at least", "at most", "proven within")
    own, intervals = proof.angle_bounds, proof.eigenvalue_bounds[:MOST]
    near = 0.02 if tol is None else tol
    cells = bound_cells(own, proof.counted_bounds(), near, len(intervals))
    for i, (low, high) in enumerate(intervals):
        ends = (f"{round_down(low, 4):.4g}", f"{round_up(high, 4):.4g}")
        table.add_row(str(i + 1), *ends, cells[i])
    console.print(table)
    show_rest(console, len(proof.angle_bounds))
    show_certificate(console, proof, tol)
