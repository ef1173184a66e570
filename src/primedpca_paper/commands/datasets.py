"""``primedpca datasets``: list and download the data sets of the experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from primedpca.cli import options as opt
from primedpca.cli.printing import other_remedy, print_json, printable

__all__ = ["list_datasets"]


def list_datasets(
    download: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Download this set first; may be repeated."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Data folder; default: PRIMEDPCA_DATA."),
    ] = None,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """List and download the data sets of the experiments.

    Example: primedpca datasets --download mnist --data-dir data
    """
    from primedpca_paper.datasets import SETS, data_folder

    folder = data_folder() if data_dir is None else data_dir
    if download:
        if folder is None:
            raise ValueError("No folder to download to. Set `--data-dir` or `PRIMEDPCA_DATA`.")
        with other_remedy("`name`=", "`--download`="):
            _fetch_all(download, folder)
    elif folder is not None and not folder.is_dir():
        raise FileNotFoundError(f"`--data-dir`={str(folder)!r} is not a folder. Correct it.")
    rows = [_row(name, folder) for name in SETS]
    if as_json:
        print_json({"folder": None if folder is None else str(folder), "sets": rows})
    else:
        _show(rows, folder)


def _row(name: str, folder: Path | None) -> dict[str, Any]:
    """Return the facts about a set that are known without reading it."""
    from primedpca_paper.datasets import FORMATS, PAPER_SHAPES, SHAPES, TITLES, find_format

    forms = FORMATS.get(name, ())
    row: dict[str, Any] = {"name": name, "title": TITLES[name], "shape": SHAPES[name]}
    row |= {"paper_shape": PAPER_SHAPES[name], "drawn": not forms}
    row |= {"found": None, "stand_in": False, "missing": []}
    row["files"] = [form.origin for form in forms]
    row["get"] = f"primedpca datasets --download {name}" if forms else None
    form = None if folder is None else find_format(name, folder)
    if folder is not None and form is not None:
        row |= {"found": form.origin, "missing": form.missing(folder)}
        row |= {"shape": form.shape, "stand_in": form.shape != SHAPES[name]}
    return row


def _fetch_all(names: list[str], folder: Path) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from primedpca_paper.downloads import download

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    bars = Progress(
        *columns, TransferSpeedColumn(), console=console, disable=not console.is_terminal
    )
    with bars as progress:
        for name in names:
            bar = _Bar(progress, name)
            path = download(name, folder, progress=bar)
            progress.console.print(f"{name}: {printable(path)}", highlight=False, markup=False)


class _Bar:
    """Progress bar of rich with the methods that pooch calls."""

    def __init__(self, progress: Any, name: str) -> None:
        self._progress, self._task = progress, progress.add_task(name, total=None)

    @property
    def total(self) -> Any:
        return self._progress.tasks[self._task].total

    @total.setter
    def total(self, value: int) -> None:
        # pooch passes 0 if the server does not send a size.
        self._progress.update(self._task, total=value or None)

    def update(self, n: int) -> None:
        self._progress.advance(self._task, n)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop_task(self._task)


def _show(rows: list[dict[str, Any]], folder: Path | None) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    if folder is None:
        console.print("No data folder. Set --data-dir or PRIMEDPCA_DATA.\n")
    else:
        console.print(f"Data folder: {escape(printable(folder))}\n")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title, justify in (("set", "left"), ("points × dims", "right"), ("in the paper", "right")):
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("data", overflow="fold")
    for row in rows:
        shapes = ("{} × {}".format(*row[key]) for key in ("shape", "paper_shape"))
        name = f"[bold]{row['name']}[/]\n[dim]{escape(row['title'])}[/]"
        table.add_row(name, *shapes, _whereabouts(row))
    console.print(table)
    console.print("\nDownload a missing set: primedpca datasets --download NAME --data-dir DIR")


def _whereabouts(row: dict[str, Any]) -> str:
    from rich.markup import escape

    if row["drawn"]:
        return "[green]drawn when needed[/]"
    if row["missing"]:
        return f"[red]incomplete[/], {escape(row['missing'][0])} missing"
    if row["found"]:
        return f"[green]{escape(row['found'])}[/]{', a stand-in' if row['stand_in'] else ''}"
    return f"[yellow]not found[/]\n--download {row['name']}"
