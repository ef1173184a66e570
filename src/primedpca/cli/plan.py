"""``primedpca plan``: show what fit would do, and its cost."""

from __future__ import annotations

from typing import Any

from primedpca.cli import options as opt
from primedpca.cli.files import open_data
from primedpca.cli.fit import check_written
from primedpca.cli.groups import FitOptions, flat
from primedpca.cli.printing import duration, print_json, size, to_terminal

__all__ = ["plan"]


@flat
def plan(
    data: opt.Data,
    k: opt.Components,
    *,
    options: FitOptions,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Show what fit would do with DATA, how long it would take and how much memory it needs.

    To plan a fit, replace the word fit by plan: all arguments are checked as fit checks them, but
    nothing is written. For data on disk, one block is read to measure the speed.

    Example: primedpca plan data.npy -k 10
    """
    check_written(options, data)
    source = open_data(data, options)
    from primedpca._planning.plan import plan as planned

    parameters = options.parameters()
    if device := parameters.pop("device"):
        source = _as_if_on(source, device)
    found = planned(source, k, **parameters)
    if as_json:
        ways = [_way(way) for way in found.ways]
        print_json({"shape": source.shape, "plan": str(found), "ways": ways})
    else:
        _show(found, source)


def _as_if_on(source: Any, device: str) -> Any:
    """Stand in for the data as they would be in the memory of a device, without reading them."""
    import numpy as np

    from primedpca._core.arrays import is_sparse
    from primedpca.sources.memory.dense import DenseSource
    from primedpca.sources.wrappers.on_device import torch_on

    if is_sparse(next(iter(source.scan()))[1]):
        raise ValueError(f"`device`={device!r} needs dense data, got {source!r}. Omit `device`.")
    torch_on(device)
    # One zero, broadcast to the full shape, takes no memory.
    held = DenseSource(np.broadcast_to(np.zeros((), source.dtype), source.shape))
    held.device = device
    return held


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
    table.add_column("method", overflow="fold")
    for title in ("passes", "bytes read", "memory", "time"):
        table.add_column(title, justify="right", no_wrap=True)
    for i, way in enumerate(found.ways):
        cells = (f"{way.passes:.0f}", size(way.bytes), size(way.memory), duration(way.seconds))
        table.add_row(way.name, *cells, style="green" if i == 0 else None)
    console.print()
    console.print(table)
