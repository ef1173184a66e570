"""``primedpca report``: a page about a model and the data that it was fitted to."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from primedpca.cli import options as opt
from primedpca.cli.files import check_output, load_model, open_like
from primedpca.cli.printing import print_json

if TYPE_CHECKING:
    from primedpca.protocols import DataSource

__all__ = ["need_plots", "report", "write"]


def report(
    model: opt.Model,
    data: opt.Data,
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", metavar="PAGE.html", show_default=False, help="Where to write the page."
        ),
    ],
    columns: opt.Columns = None,
    exclude: opt.Exclude = None,
    id_column: opt.Id = None,
    label_column: opt.Label = None,
    delimiter: opt.Delimiter = None,
    no_header: opt.NoHeader = False,
    map_rows: opt.Map = None,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Write one HTML page on MODEL and DATA: the certificate in words, pictures, a table.

    The page needs nothing but itself. --label colours the scores.

    Example: primedpca report model.safetensors flowers.csv -o page.html --label species
    """
    need_plots()
    check_output(out, "-o", force, data, model)
    pca = load_model(model)
    opened = {"columns": columns, "exclude": exclude, "id_column": id_column}
    opened |= {"label_column": label_column, "delimiter": delimiter, "map": map_rows}
    source = open_like(data, pca, no_header=no_header, **opened)
    write(pca, out, source, data, model)
    if as_json:
        print_json({"page": str(out), "model": str(model), "data": data})
    else:
        print(f"{out}: open it with any browser")


def need_plots() -> None:
    """Refuse before anything is worked out if pictures cannot be drawn."""
    for name in ("matplotlib", "jinja2"):
        if find_spec(name) is None:
            raise ImportError(f"a report needs {name}: pip install 'primedpca[plots]'.")


def write(pca: Any, page: Path, source: DataSource, data: str, model: Path | None) -> None:
    """The page; labels are those of the source."""
    from primedpca.report import write_report

    labels = getattr(source, "labels", None)
    write_report(pca, page, data=source, labels=labels, title=Path(data).name, model_path=model)
