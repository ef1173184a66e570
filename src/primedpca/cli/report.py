"""``primedpca report``: write a report about a model and the data it was fitted to."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from primedpca.cli import options as opt
from primedpca.cli.files import load_model, open_like
from primedpca.cli.groups import Reading, flat
from primedpca.cli.printing import print_json, say
from primedpca.cli.writing import check_output

if TYPE_CHECKING:
    from primedpca.protocols import DataSource

__all__ = ["check_page", "report", "write"]


@flat
def report(
    model: opt.Model,
    data: opt.Data,
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", metavar="PAGE.html", show_default=False, help="HTML page to write."
        ),
    ],
    *,
    reading: Reading,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Write an HTML report on MODEL and DATA: the certificate in words, plots, a table.

    The page is a single file. --label colours the scores.

    Example: primedpca report model.safetensors flowers.csv -o page.html --label species
    """
    check_output(out, "-o", force, data, model)
    check_page(out)
    pca = load_model(model)
    source = open_like(data, pca, reading)
    write(pca, out, source, data, model)
    if as_json:
        print_json({"page": str(out), "model": str(model), "data": data})
    else:
        say(f"{out}: open it in a browser")


def check_page(page: Path) -> None:
    """Check that plots can be drawn and the page can be written, before anything is read."""
    for name in ("matplotlib", "jinja2"):
        if find_spec(name) is None:
            raise ImportError(f"A report needs {name}: pip install 'primedpca[plots]'.")
    from primedpca.report.page_file import check_page_path

    check_page_path(page)


def write(pca: Any, page: Path, source: DataSource, data: str, model: Path | None) -> None:
    """Write the page, with the labels of the source."""
    from primedpca.report import write_report

    labels = source.traits.labels()
    write_report(pca, page, data=source, labels=labels, title=Path(data).name, model_path=model)
