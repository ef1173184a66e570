"""``primedpca demo``: the improvement from refining, and proven bounds, on included data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from primedpca._core.outward_rounding import round_up
from primedpca.cli import options as opt
from primedpca.cli.printing import print_json

if TYPE_CHECKING:
    from primedpca._demo.demo import Proven, Row

__all__ = ["demo"]


def demo(as_json: opt.AsJson = False, debug: opt.Debug = False) -> None:
    """Show the improvement from refining, and proven bounds, on included data.

    Example: primedpca demo
    """
    from primedpca._demo.demo import prove_demo, run_demo

    if as_json:
        rows, proofs = ([row.as_dict() for row in part] for part in (run_demo(), prove_demo()))
        print_json({"rows": rows, "proofs": proofs})
    else:
        _show(run_demo())
        _show_proofs(prove_demo())


def _show(rows: Iterable[Row]) -> None:
    """Print the table and how to read it."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from primedpca._demo.demo import N_COMPONENTS, STEPS

    console = Console(highlight=False)
    console.print(
        f"Finding {N_COMPONENTS} principal components with the paper's three primings.\n"
        f"  streak  number of leading components within 22.5° (pi/8) of the true ones\n"
        f"  worst   largest angle of the {N_COMPONENTS} components to the true ones\n"
        "Each cell reads: before refining → refined → refined with 2 → with 4 extra directions.\n"
        f"EigenGame and Oja see {STEPS} mini-batches of 1000 rows; refining is one more pass.\n"
    )
    table = Table(box=None, pad_edge=False)
    for name, justify in (("priming", "left"), ("steps", "right"), ("streak", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("worst", justify="right", no_wrap=True)
    seen = ""
    with console.status("working"):
        for row in rows:
            if row.data != seen:
                table.add_row(*([] if not seen else [""]))
                table.add_row(f"[bold]{escape(row.data)}[/]")
                seen = row.data
            streaks = " → ".join(
                _streak(v, N_COMPONENTS) for v in (row.streak_before, *row.streaks)
            )
            angles = " → ".join(f"{angle:4.1f}°" for angle in (row.angle_before, *row.angles))
            table.add_row(row.priming, str(row.steps), streaks, angles)
    console.print(table)


def _show_proofs(proofs: Iterable[Proven]) -> None:
    """Print the table of fits with the defaults."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from primedpca._demo.demo import N_COMPONENTS

    console = Console(highlight=False)
    console.print(
        f"\nPrimedPCA({N_COMPONENTS}).fit(X) with the defaults.\n"
        "  proven  bound on the largest angle of a component to the exact one\n"
        "  true    that angle itself, with LAPACK's components as the exact ones\n"
    )
    table = Table(box=None, pad_edge=False)
    for name in ("data", "seconds", "proven", "true"):
        table.add_column(name, justify="left" if name == "data" else "right", no_wrap=True)
    for row in proofs:
        angles = (f"{round_up(row.bound):.1e}°", f"{row.true:.1e}°")
        table.add_row(escape(row.data), f"{row.seconds:.2f}", *angles)
    console.print(table)
    console.print("\nYour own data: primedpca fit DATA -k 10 --report page.html")


def _streak(value: int, best: int) -> str:
    colour = "green" if value == best else "yellow" if value >= best / 2 else "red"
    return f"[{colour}]{value:2d}[/]"
