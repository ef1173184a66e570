"""``primedpca report``: a page about a model and the data that it was fitted to."""

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
            "-o", "--out", metavar="PAGE.html", show_default=False, help="Where to write the page."
        ),
    ],
    *,
    reading: Reading,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Write one HTML page on MODEL and DATA: the certificate in words, pictures, a table.

    The page needs nothing but itself. --label colours the scores.

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
        say(f"{out}: open it with any browser")


def check_page(page: Path) -> None:
    """Refuse before anything is read: no pictures can be drawn, or what is there is no page."""
    for name in ("matplotlib", "jinja2"):
        if find_spec(name) is None:
            raise ImportError(f"a report needs {name}: pip install 'primedpca[plots]'.")
    from primedpca.report.page_file import check_page_path

    check_page_path(page)


def write(pca: Any, page: Path, source: DataSource, data: str, model: Path | None) -> None:
    """The page; labels are those of the source."""
    from primedpca.report import write_report

    labels = source.traits.labels()
    write_report(pca, page, data=source, labels=labels, title=Path(data).name, model_path=model)
