"""``primedpca bench``: a short comparison with scikit-learn on this machine."""

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
            metavar="[DATA]",
            show_default=False,
            help="Data that fit into memory; default: synthetic data.",
        ),
    ] = None,
    k: Annotated[
        int, typer.Option("-k", metavar="K", parser=opt.whole(1), help="Number of components.")
    ] = 16,
    repeats: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=opt.whole(1),
            help="Number of fits of each solver; the median is shown.",
        ),
    ] = 3,
    *,
    reading: Reading,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Compare PrimedPCA with scikit-learn's solvers, all with their defaults.

    Every result is audited: the table shows a proven bound on its largest error.
    Only PrimedPCA gives such a bound itself, and its time includes it.
    The full benchmark, with every solver tuned to one accuracy, is in benchmarks/.

    Example: primedpca bench
    """
    from primedpca._demo.bench import race, races

    if data is None:
        if reading != Reading():
            raise ValueError(
                "Options on how to read DATA need DATA. Name a file, or leave them out."
            )
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
    console.print(f"{k} components. seconds: median; worst: bound on the largest error.\n")
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
    console.print("\nknown: whether the solver itself gives the bound.", style="dim")
