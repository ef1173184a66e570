"""Commands for a saved model: ``primedpca transform``, ``inspect`` and ``report``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from primedpca.cli import options as opt
from primedpca.cli.files import check_outputs, check_page, load_model, open_like, write_page
from primedpca.cli.printing import model_json, print_json, printable, say, show_model, to_terminal

SCORES = "File for the scores: .npy, .csv, .tsv or .parquet."
OUT: dict[str, Any] = {"show_default": False}


def transform(
    data: opt.Data,
    model: opt.Model,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help=SCORES, **OUT)],
    *,
    reading: opt.Reading,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Write the scores of DATA: its rows in the coordinates of the components.

    In a table, the columns that the model was fitted to are found by name.
    --id and --label name columns that are copied into a table of scores.
    The map that the model was fitted with is applied to each row. Data are read and scores are
    written in blocks.

    Example: primedpca transform flowers.csv model.safetensors -o scores.csv --label species
    """
    check_outputs({"-o": out}, force, data, model)
    from primedpca._io.score_file import FORMATS

    if out.suffix not in FORMATS:
        raise ValueError(f"`-o` {out}: unsupported suffix. Use one of {', '.join(FORMATS)}.")
    if out.suffix == ".npy" and (reading.id_column or reading.label_column):
        raise ValueError(
            f"`-o` {out} holds numbers only. Omit --id and --label, or write a .csv file."
        )
    # A device would need all data in memory; without one, scores are computed block by block.
    pca = load_model(model).set_params(device=None)
    source = open_like(data, pca, reading)
    beside = {reading.id_column: "row_names", reading.label_column: "labels"}
    n, k = _write_scores(pca, source, out, beside)
    if as_json:
        columns = list(pca.get_feature_names_out())
        print_json({"out": str(out), "shape": (n, k), "columns": columns})
    else:
        say(f"{out}: {n:,} rows x {k:,} scores")


def _write_scores(pca: Any, source: Any, out: Path, beside: dict[str | None, str]) -> Any:
    """Write the scores to a temporary file, then in one step to ``out``, and return their shape."""
    from primedpca._io.score_file import write_table
    from primedpca.cli.progress import read_through

    # On the same file system as ``out``, so that the last step is a rename.
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        draft = Path(folder) / "scores.npy"
        with read_through(source) as shown:
            scores = pca.transform(shown, out=draft)
        if out.suffix == ".npy":
            os.replace(draft, out)
        else:
            named = {name: getattr(source.traits, kind)() for name, kind in beside.items() if name}
            write_table(out, scores, list(pca.get_feature_names_out()), named)
        return scores.shape


def inspect(model: opt.Model, as_json: opt.AsJson = False) -> None:
    """Show a model written by fit or PrimedPCA.save: its components and what is proven.

    Every byte of the file is checked, and nothing in it is executed.

    Example: primedpca inspect model.safetensors
    """
    pca = load_model(model)
    names = getattr(pca, "feature_names_in_", None)
    if as_json:
        found = model_json(pca) | {"parameters": pca.get_params(deep=False)}
        print_json(found | {"model": str(model), "feature_names": names})
        return
    from primedpca.report.page import outcome

    console, said = to_terminal(), []
    size = f"{pca.n_samples_:,} rows x {pca.n_features_in_:,} columns"
    console.print(f"{printable(model)}: fitted to {size}", style="bold")
    if names is not None:
        # As ``--columns`` reads them.
        shown = (f'"{name}"' if "," in name else name for name in names[:8])
        said.append(("Columns", ", ".join(shown) + (", ..." if len(names) > 8 else "")))
    if getattr(pca, "map_", None) is not None:
        said.append(("Map", f"{pca.map_}, applied to each row"))
    if pca.scale is not None:
        how = "their standard deviations" if isinstance(pca.scale, str) else "given numbers"
        said.append(("Scale", f"columns divided by {how}"))
    if pca.missing == "mean":
        said.append(("Missing values", "replaced by the mean of their column"))
    for name, value in (*said, *outcome(pca)):
        if name != "Status":  # it follows the table, unless the fit has converged
            console.print(f"{name}: {printable(value)}")
    console.print()
    show_model(console, pca)


def report(
    model: opt.Model,
    data: opt.Data,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="PAGE.html", help="HTML page to write.", **OUT)
    ],
    *,
    reading: opt.Reading,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Write an HTML report on MODEL and DATA: the certificate in words, plots, a table.

    The page is a single file. --label colours the scores.

    Example: primedpca report model.safetensors flowers.csv -o page.html --label species
    """
    check_outputs({"-o": out}, force, data, model)
    check_page(out)
    pca = load_model(model)
    write_page(pca, out, open_like(data, pca, reading), data, model)
    if as_json:
        print_json({"page": str(out), "model": str(model), "data": data})
    else:
        say(f"{out}: open it in a browser")
