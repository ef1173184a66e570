"""Commands for given components: ``primedpca transform``, ``loadings``, ``certify``, ``report``.

And ``inspect``, which prints what a model file holds.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from primedpca._core.atomic_files import rename_new
from primedpca._core.outward_rounding import round_down, round_up
from primedpca.cli import files, printing
from primedpca.cli import options as opt
from primedpca.cli.errors import DONE, NOT_CONVERGED

SCORES = "File for the scores: .npy, .csv, .tsv, .parquet or .zarr."
LOADINGS = "File for the loadings: .csv, .tsv or .parquet; default: print them."
PAGE = "HTML page to write."


def transform(
    data: opt.Data,
    model: opt.Model,
    out: Annotated[Path, opt.option("OUT", None, SCORES, "-o", "--out", show_default=False)],
    *,
    reading: opt.Reading,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Write the scores of DATA: its rows in the coordinates of the components.

    In a table, the columns that the model was fitted to are found by name.
    Tables also hold the row names that DATA has (.bed, .h5ad) or --id names, and the --label.
    The map that the model was fitted with is applied to each row. Data are read and scores are
    written in blocks.

    Example: primedpca transform flowers.csv model.safetensors -o scores.csv --label species
    """
    files.check_outputs({"-o": out}, force, data, model)
    from primedpca._io.score_file import FORMATS

    if out.suffix not in FORMATS:
        raise ValueError(f"`-o` {out}: unsupported suffix. Use one of {', '.join(FORMATS)}.")
    if out.suffix in (".npy", ".zarr") and (reading.id_column or reading.label_column):
        raise ValueError(f"`-o` {out} holds numbers only. Omit --id and --label, or write a .csv.")
    # A device would need all data in memory; without one, scores are computed block by block.
    pca = files.load_model(model).set_params(device=None)
    source = files.open_like(data, pca, reading)
    _write_scores(pca, source, out, force)
    n, k = source.shape[0], pca.n_components_
    if as_json:
        columns = list(pca.get_feature_names_out())
        printing.print_json({"out": str(out), "shape": (n, k), "columns": columns})
    else:
        printing.say(f"{out}: {n:,} rows x {k:,} scores")


def _write_scores(pca: Any, source: Any, out: Path, force: bool) -> None:
    """Write the scores to a temporary place, then in one step to ``out``."""
    from primedpca.cli.progress import read_through

    # On the same file system as ``out``, so that the last step is a rename.
    draft_of = tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent)
    with _terminated_by_exit(), draft_of as folder:
        draft = Path(folder) / f"scores{out.suffix}"
        try:
            with read_through(source) as shown, _rules_of_the_model():
                pca.transform(shown, out=draft)
        except OSError as error:
            if str(draft) not in str(error):
                raise
            raise OSError(str(error).replace(str(draft), f"`-o` {out}")) from error
        if force:
            os.replace(draft, out)
        else:
            try:
                rename_new(draft, out)
            except FileExistsError as error:  # it has appeared since the start
                words = "already exists. Name another file, or add `--force`."
                raise FileExistsError(f"{out} {words}") from error


@contextmanager
def _terminated_by_exit() -> Iterator[None]:
    """Let SIGTERM raise SystemExit, so that temporary files are removed."""

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _rules_of_the_model() -> AbstractContextManager[None]:
    """Name the right remedy for missing values: the rule is the model's, set in its fit."""
    rule = "`missing`='mean'"
    return printing.other_remedy(f"Use {rule}", f"Fit the model with {rule}")


_SCALED = "Covariances with components of unit variance; after --scale std, correlations."


def loadings(
    model: opt.Model,
    out: Annotated[Path | None, opt.option("OUT", None, LOADINGS, "-o", "--out")] = None,
    *,
    scaled: Annotated[bool, opt.option(None, None, _SCALED, "--scaled")] = False,
    rotation: opt.Rotation = None,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Print or write the loadings: the components, a row for every column of the data.

    Example: primedpca loadings model.safetensors -o loadings.csv
    """
    files.check_outputs({"-o": out}, force, model)
    from primedpca._io.score_file import TABLES, write_table
    from primedpca._model.tables import column_names

    if out is not None and out.suffix not in TABLES:
        raise ValueError(f"`-o` {out}: unsupported suffix. Use one of {', '.join(TABLES)}.")
    pca = files.load_model(model)
    titles, numbers = pca._loadings(scaled, rotation)
    names = column_names(pca)
    if out is not None:
        write_table(out, [numbers], titles, {"feature": names}, overwrite=force)
    if as_json:
        found = {"out": out, "features": names, "components": titles}
        printing.print_json(found | ({"loadings": numbers} if out is None else {}))
    elif out is not None:
        printing.say(f"{out}: {len(names):,} features x {len(titles):,} components")
    else:
        _show_loadings(names, titles, numbers)


def _show_loadings(names: Any, titles: list[str], numbers: Any) -> None:
    """Print as many loadings as fit: the first features and components."""
    console = printing.to_terminal()
    wide = max(1, (console.width - 24) // 10)
    table = printing.new_table("feature", *titles[:wide], overflow="fold")
    for name, row in zip(names[: printing.MOST], numbers[:, :wide], strict=False):
        table.add_row(printing.printable(name), *(f"{value: .4f}" for value in row))
    console.print(table)
    left = max(0, len(names) - printing.MOST), max(0, len(titles) - wide)
    if any(left):
        words = f"... and {left[0]:,} more features, {left[1]:,} more components"
        console.print(f"{words}; -o and --json write all.", style="dim")


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
    reading: opt.Reading,
    scale: opt.Scale = None,
    missing: opt.Missing = None,
    seed: opt.Seed = None,
    as_json: opt.AsJson = False,
) -> int:
    """Prove how far COMPONENTS are, at most, from the true principal components of DATA.

    Exit code 3 if --tol is given and not every component is proven within it.
    Columns that have names in both DATA and COMPONENTS are found by name.
    For a model, its own map, scale and rule for missing values are used.

    Example: primedpca certify data.npy components.npy --tol 1deg
    """
    vectors, names, model = _components(components, reading)
    prepared: dict[str, Any] = {"scale": scale, "missing": missing or "error"}
    if model is not None:
        for option, value in (("--scale", scale), ("--missing", missing)):
            if value is not None:
                raise ValueError(f"`{option}` {value} is set by the model. Omit it.")
        prepared = {"center": model.center_, "scale": model.scale_, "missing": model.missing}
    if files.is_csv(components):
        # Options that DATA cannot have describe the components only.
        reading = replace(reading, **dict.fromkeys(files.foreign_options(data)))
    source = files.open_like(data, model, reading)
    from primedpca._model.attributes import check_names
    from primedpca._solve.audit import certify as audited
    from primedpca.sources.memory.frames import aligned

    if model is not None:  # its scale, too, has the order of its columns
        check_names(model, source, reset=False)
    vectors = aligned(vectors, names, source.traits.feature_names())
    with nullcontext() if model is None else _rules_of_the_model():
        options = {"tol": tol, "max_passes": max_passes, "random_state": seed}
        proof = audited(source, vectors, **options, **prepared)
    met = None if tol is None else bool(proof.met(tol).all())
    if as_json:
        found = {"tol": tol, "met": met, "certificate": printing.certificate_json(proof)}
        printing.print_json(found)
    else:
        low, high = proof.eigenvalue_bounds.T
        columns = {
            "variance at least": [f"{round_down(value, 4):.4g}" for value in low],
            "at most": [f"{round_up(value, 4):.4g}" for value in high],
        }
        printing.show_components(printing.to_terminal(), columns, proof, tol)
    return NOT_CONVERGED if met is False else DONE


def _components(path: str, reading: opt.Reading) -> tuple[Any, Any, Any]:
    """Return the vectors ``(k, d)``, names of their columns, and the model if the file is one."""
    if path.endswith(files.MODEL):
        model = files.load_model(path)
        return model.components_, None, model
    ways = [opt.Reading()]
    if files.is_csv(path):
        # The options may describe DATA only.  A file that is read in a wrong way has text, or rows
        # that are not orthonormal.  Rows without names need no option, see `_vectors`.
        ways = [
            opt.Reading(delimiter=sign, header=header, decimal=decimal)
            for header in dict.fromkeys((reading.header or None, None))
            for decimal in dict.fromkeys((reading.decimal, None, ","))
            for sign in dict.fromkeys((reading.delimiter, *SIGNS))
        ]
    errors: list[Exception] = []
    for way in ways:
        try:
            return *_vectors(path, way), None
        except OSError as error:
            raise type(error)(str(error).replace("`X`", "`components`")) from error
        except (TypeError, ValueError) as error:
            errors.append(error)
    from primedpca.sources.files.csv_text import DelimiterError

    # That of the first way whose delimiter is in the file.
    chosen = next((one for one in errors if not isinstance(one, DelimiterError)), errors[0])
    raise ValueError(_about_components(path, str(chosen))) from chosen


#: Delimiters that files of components are tried with; None is the one that the suffix means.
SIGNS = (None, ";", "\t", "|", " ")
_REMEDY = re.compile(r"[.;:] (?=(use|pass|correct|for raw binary) )", re.IGNORECASE)


def _about_components(path: str, message: str) -> str:
    """Return a message on COMPONENTS without remedies that are options for reading DATA."""
    named = message.replace("`X`", "`components`")
    if named.startswith(path):
        named = f"`components`={path!r}{named.removeprefix(path)}"
    inside = re.sub(r": pass `[^)]*\)", ")", named)
    if any(f"`{own.name}`" in named for own in fields(opt.Reading)):
        words = "Write numbers alone, one component per row, or save them by numpy.save"
        named = f"{_REMEDY.split(inside)[0]}. {words}."
    return named if "`components`" in named else f"`components`={path!r}: {named}"


def _vectors(path: str, own: opt.Reading) -> tuple[Any, Any]:
    """Return the rows of a file of components, and the names of its columns."""
    from primedpca.sources.base import whole
    from primedpca.sources.files.csv_text import NoNamesError
    from primedpca.sources.files.table_columns import UNNAMED

    try:
        source = files.open_data(path, own)
    except NoNamesError:
        # Read the first line as a component: if it held names, the rows would not be orthonormal.
        return whole(files.open_data(path, replace(own, header=False))), None
    except ValueError:
        if not files.is_csv(path):
            raise
        with suppress(OSError, ValueError):  # an index, as pandas writes it
            source = files.open_data(path, replace(own, id_column=UNNAMED.format(0)))
            return whole(source), source.traits.feature_names()
        raise
    return whole(source), source.traits.feature_names()


def inspect(model: opt.Model, as_json: opt.AsJson = False) -> None:
    """Show a model written by fit or PrimedPCA.save: how it was fitted, variances, what is proven.

    Every byte of the file is checked, and nothing in it is executed.
    The components themselves: primedpca loadings MODEL.

    Example: primedpca inspect model.safetensors
    """
    pca = files.load_model(model)
    names = getattr(pca, "feature_names_in_", None)
    if as_json:
        found = printing.model_json(pca) | {"parameters": pca.get_params(deep=False)}
        printing.print_json(found | {"model": str(model), "feature_names": names})
        return
    from primedpca.report.words import outcome

    console, said = printing.to_terminal(), []
    size = f"{pca.n_samples_:,} rows x {pca.n_features_in_:,} columns"
    console.print(f"{printing.printable(model)}: fitted to {size}", style="bold")
    if names is not None:
        # As ``--columns`` reads them.
        shown = (f'"{name}"' if "," in name else name for name in names[:8])
        said.append(("Columns", ", ".join(shown) + (", ..." if len(names) > 8 else "")))
    if getattr(pca, "map_", None) is not None:
        said.append(("Map", f"{pca.map_}, applied to each row"))
    if pca.scale_ is not None:
        how = "their standard deviations" if pca.standardised_ else "given numbers"
        said.append(("Scale", f"columns divided by {how}"))
    if pca.missing == "mean":
        said.append(("Missing values", "replaced by the mean of their column"))
    for name, value in (*said, *outcome(pca)):
        if name != "Status":  # it follows the table, unless the fit has converged
            console.print(f"{name}: {printing.printable(value)}")
    console.print()
    printing.show_model(console, pca)


def report(
    model: opt.Model,
    data: opt.Data,
    out: Annotated[Path, opt.option("PAGE.html", None, PAGE, "-o", "--out", show_default=False)],
    *,
    reading: opt.Reading,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Write an HTML report on MODEL and DATA: an analysis in words and plots, and the proof.

    The page is a single file. --label colours the scores.

    Example: primedpca report model.safetensors flowers.csv -o page.html --label species
    """
    files.check_outputs({"-o": out}, force, data, model)
    files.check_page(out)
    pca = files.load_model(model)
    with _rules_of_the_model():
        files.write_page(pca, out, files.open_like(data, pca, reading), data, model)
    if as_json:
        printing.print_json({"page": str(out), "model": str(model), "data": data})
    else:
        printing.say(f"{out}: open it in a browser")
