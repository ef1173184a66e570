"""``primedpca plan``: what fit would do, and what that would cost."""

from __future__ import annotations

from typing import Any

from primedpca.cli import options as opt
from primedpca.cli.files import open_data
from primedpca.cli.printing import duration, print_json, size, to_terminal

__all__ = ["plan"]


def plan(
    data: opt.Data,
    k: opt.Components,
    tol: opt.Tol = "pi/1024",
    priming: opt.Priming = "auto",
    max_memory: opt.MaxMemory = None,
    columns: opt.Columns = None,
    exclude: opt.Exclude = None,
    id_column: opt.Id = None,
    label_column: opt.Label = None,
    delimiter: opt.Delimiter = None,
    no_header: opt.NoHeader = False,
    map_rows: opt.Map = None,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Say what fit would do with DATA, how long it takes and how much memory it needs.

    Of data on disk one block is read, to see how fast that is.

    Example: primedpca plan data.npy -k 10
    """
    source = open_data(
        data,
        columns=columns,
        exclude=exclude,
        id_column=id_column,
        label_column=label_column,
        delimiter=delimiter,
        no_header=no_header,
        map=map_rows,
    )
    from primedpca.planning import plan as planned

    found = planned(source, k, tol=tol, priming=priming, max_memory=max_memory)
    if as_json:
        ways = [_way(way) for way in found.ways]
        print_json({"shape": source.shape, "plan": str(found), "ways": ways})
    else:
        _show(found, source)


def _way(way: Any) -> dict[str, Any]:
    names = ("steps", "passes", "flops", "bytes", "memory", "seconds")
    return {"name": way.name} | {name: getattr(way, name) for name in names}


def _show(found: Any, source: Any) -> None:
    from rich.table import Table

    console = to_terminal()
    n, d = source.shape
    console.print(f"{n:,} rows x {d:,} columns of {source.dtype}", style="bold")
    console.print(str(found), soft_wrap=not console.is_terminal)
    if not found.ways:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("way", overflow="fold")
    for title in ("passes", "read", "memory", "time"):
        table.add_column(title, justify="right", no_wrap=True)
    for i, way in enumerate(found.ways):
        cells = (f"{way.passes:.0f}", size(way.bytes), size(way.memory), duration(way.seconds))
        table.add_row(way.name, *cells, style="green" if i == 0 else None)
    console.print()
    console.print(table)
