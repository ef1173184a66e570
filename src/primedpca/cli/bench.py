"""``primedpca bench``: a short race against scikit-learn on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from primedpca.cli import options as opt
from primedpca.cli.files import open_data
from primedpca.cli.groups import Reading, flat
from primedpca.cli.printing import angle, print_json, to_terminal

__all__ = ["bench"]


@flat
def bench(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]", show_default=False, help="Data that fit into memory; else drawn ones."
        ),
    ] = None,
    k: Annotated[
        int, typer.Option("-k", metavar="K", parser=opt.whole(1), help="How many components.")
    ] = 16,
    repeats: Annotated[
        int,
        typer.Option(metavar="N", parser=opt.whole(1), help="Runs of each; the median counts."),
    ] = 3,
    *,
    reading: Reading,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Race PrimedPCA against scikit-learn's solvers, all at their defaults, and audit each.

    Every answer is audited alike: how far is its worst component off, at most?
    Only PrimedPCA says so by itself, and its time includes that.
    The full benchmark, every solver tuned to one accuracy, is in benchmarks/.

    Example: primedpca bench
    """
    from primedpca._demo.bench import race, races

    if data is None:
        if reading != Reading():
            raise ValueError("options on how to read DATA need some; name a file, or drop them.")
        rows = [row for name, x in races() for row in race(name, x, k, repeats)]
    else:
        rows = race(data, open_data(data, reading), k, repeats)
    if as_json:
        print_json({"rows": [row.as_dict() for row in rows]})
    else:
        _show(rows, k)


def _show(rows: list[Any], k: int) -> None:
    from rich.table import Table

    console = to_terminal()
    console.print(f"{k} components; seconds are medians; worst: no component is farther off.\n")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", overflow="fold")
    for title in ("seconds", "worst", "known"):
        table.add_column(title, justify="right", no_wrap=True)
    seen = ""
    for row in rows:
        if row.data != seen:
            table.add_row(row.data, style="bold")
            seen = row.data
        known = "yes" if row.proves else "no"
        table.add_row(f"  {row.solver}", f"{row.seconds:.3f}", angle(row.bound), known)
    console.print(table)
    console.print("\nknown: whether the solver itself tells how far off it is.", style="dim")
