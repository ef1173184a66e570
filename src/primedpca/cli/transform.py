"""``primedpca transform``: write the scores of a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from primedpca.cli import options as opt
from primedpca.cli.files import load_model, open_like
from primedpca.cli.groups import Reading, flat
from primedpca.cli.printing import print_json, say
from primedpca.cli.progress import read_through
from primedpca.cli.writing import check_output

__all__ = ["transform"]


@flat
def transform(
    data: opt.Data,
    model: opt.Model,
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            metavar="OUT",
            show_default=False,
            help="File for the scores: .npy, .csv, .tsv or .parquet.",
        ),
    ],
    *,
    reading: Reading,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Write the scores of DATA: its rows in the coordinates of the components.

    In a table, the columns that the model was fitted to are found by name.
    --id and --label name columns that are copied into a table of scores.
    The map that the model was fitted with is applied to each row. Data are read and scores are
    written in blocks.

    Example: primedpca transform flowers.csv model.safetensors -o scores.csv --label species
    """
    check_output(out, "-o", force, data, model)
    from primedpca._io.score_table import FORMATS

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
    shape = _write(pca, source, out, beside)
    if as_json:
        print_json({"out": str(out), "shape": shape, "columns": list(pca.get_feature_names_out())})
    else:
        say(f"{out}: {shape[0]:,} rows x {shape[1]:,} scores")


def _write(pca: Any, source: Any, out: Path, beside: dict[str | None, str]) -> tuple[int, ...]:
    """Write the scores to a temporary file, then in one step to ``out``."""
    from primedpca._io.score_table import write_table

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
        return tuple(scores.shape)
