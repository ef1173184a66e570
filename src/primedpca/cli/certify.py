"""``primedpca certify``: audit the components of any program."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from primedpca._core.outward_rounding import round_down, round_up
from primedpca.cli import options as opt
from primedpca.cli.errors import DONE, NOT_CONVERGED
from primedpca.cli.files import MODEL, check_no_model, is_csv, load_model, open_data, open_like
from primedpca.cli.options import Reading
from primedpca.cli.printing import certificate_json, print_json, show_components, to_terminal

_COMPONENTS = "One component per row: .npy, .npz, .csv, any other DATA, or a model from fit."
_TOL = "Test whether each component is within this angle: pi/128, 1deg, 0.01 (radians)."


def certify(
    data: opt.Data,
    components: Annotated[
        str, typer.Argument(metavar="COMPONENTS", show_default=False, help=_COMPONENTS)
    ],
    *,
    tol: Annotated[Any, opt.option("ANGLE", opt.as_angle, _TOL, show_default=False)] = None,
    max_passes: opt.MaxPasses = 20,
    reading: Reading,
    scale: opt.Scale = None,
    missing: opt.Missing = None,
    seed: opt.Seed = None,
    as_json: opt.AsJson = False,
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
        print_json({"tol": tol, "met": met, "certificate": certificate_json(proof)})
    else:
        low, high = proof.eigenvalue_bounds.T
        columns = {
            "variance at least": [f"{round_down(value, 4):.4g}" for value in low],
            "at most": [f"{round_up(value, 4):.4g}" for value in high],
        }
        show_components(to_terminal(), columns, proof, tol)
    return NOT_CONVERGED if met is False else DONE


def _components(path: str, reading: Reading) -> tuple[Any, Any]:
    """Return the vectors ``(k, d)``, and the model if the file is one, else None."""
    if path.endswith(MODEL):
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
