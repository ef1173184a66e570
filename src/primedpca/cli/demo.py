"""``primedpca demo`` and ``primedpca bench``: what refining and proofs give, on included data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from primedpca.cli import files, printing
from primedpca.cli import options as opt


def demo(as_json: opt.AsJson = False) -> None:
    """Show the improvement from refining, and proven bounds, on included data.

    Example: primedpca demo
    """
    from primedpca._demo import prove_demo, run_demo

    if as_json:
        rows, proofs = ([asdict(row) for row in part] for part in (run_demo(), prove_demo()))
        printing.print_json({"rows": rows, "proofs": proofs})
    else:
        _show(run_demo())
        _show_proofs(prove_demo())


def _show(rows: Iterable[Any]) -> None:
    """Print the table and how to read it."""
    from rich.text import Text

    from primedpca._demo import N_COMPONENTS, STEPS

    console = printing.to_terminal()
    console.print(
        f"Finding {N_COMPONENTS} principal components with the paper's three primings.\n"
        "  streak  number of leading components within 22.5° (pi/8) of the true ones,\n"
        f"          at most {N_COMPONENTS}: larger is better\n"
        "  worst   largest angle of a component to the true one: smaller is better\n"
        "Each cell has four numbers: before refining → refined → refined with 2 → with 4\n"
        "extra directions. Each number of directions is a run of its own.\n"
        f"EigenGame and Oja see {STEPS} mini-batches of 1000 rows; refining is one more pass.\n"
        "Refining works in the span that the priming found. If a component is not in it\n"
        "(the last one, for Oja), refining can turn that one further away: worst grows,\n"
        "although the streak grows as well. Extra directions make room for it.\n"
    )
    table = printing.new_table("priming", "steps", "streak", "worst", no_wrap=True)
    seen = ""
    with console.status("working"):
        for row in rows:
            if row.data != seen:
                table.add_row()
                table.add_row(row.data, style="bold")
                seen = row.data
            streaks = Text(" → ").join(
                Text(f"{streak:2d}", _colour(streak / N_COMPONENTS))
                for streak in (row.streak_before, *row.streaks)
            )
            angles = " → ".join(f"{angle:4.1f}°" for angle in (row.angle_before, *row.angles))
            table.add_row(row.priming, str(row.steps), streaks, angles)
    console.print(table)


def _colour(share: float) -> str:
    return "green" if share == 1 else "yellow" if share >= 0.5 else "red"


def _show_proofs(proofs: Iterable[Any]) -> None:
    """Print the table of fits with the defaults."""
    from primedpca._core.outward_rounding import round_up
    from primedpca._demo import N_COMPONENTS

    console = printing.to_terminal()
    console.print(
        f"\nPrimedPCA({N_COMPONENTS}).fit(X) with the defaults.\n"
        "  proven  bound on the largest angle of a component to the exact one\n"
        "  true    that angle itself, with LAPACK's components as the exact ones\n"
    )
    table = printing.new_table("data", "seconds", "proven", "true", no_wrap=True)
    for row in proofs:
        angles = (f"{round_up(row.bound):.1e}°", f"{row.true:.1e}°")
        table.add_row(row.data, f"{row.seconds:.2f}", *angles)
    console.print(table)
    console.print("\nYour own data: primedpca fit DATA -k 8 --scale std --report page.html")


_DATA = "Data that fit into memory; default: synthetic data."
_REPEATS = "Number of fits of each solver; the median is shown."


def bench(
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", show_default=False, help=_DATA)
    ] = None,
    k: Annotated[int, opt.option("K", opt.whole(1), "Number of components.", "-k")] = 16,
    repeats: Annotated[int, opt.option("N", opt.whole(1), _REPEATS)] = 3,
    *,
    reading: opt.Reading,
    as_json: opt.AsJson = False,
) -> None:
    """Compare PrimedPCA with scikit-learn's solvers, all with their defaults.

    Every result is audited: the table shows a proven bound on its largest error.
    Only PrimedPCA gives such a bound itself, and its time includes it.
    The full benchmark, with every solver tuned to one accuracy, is in benchmarks/.

    Example: primedpca bench
    """
    from primedpca._demo import race, races

    if data is None:
        if reading != opt.Reading():
            raise ValueError("Options on how to read DATA need DATA. Name a file, or omit them.")
        rows = [row for name, x in races() for row in race(name, x, k, repeats)]
    else:
        source = files.open_data(data, reading)
        # The solvers of scikit-learn have no rule for missing values.
        with printing.other_remedy("Use `missing`='mean', or drop", "Drop"):
            rows = race(data, source, k, repeats)
    if as_json:
        printing.print_json({"rows": [asdict(row) for row in rows]})
    else:
        _show_bench(rows, k)


def _show_bench(rows: list[Any], k: int) -> None:
    from primedpca.report.words import bound_words

    console = printing.to_terminal()
    console.print(f"{k} components. seconds: median; worst: bound on the largest error.\n")
    table = printing.new_table("", "seconds", "worst", "known", overflow="fold")
    seen = ""
    for row in rows:
        if row.data != seen:
            table.add_row(row.data, style="bold")
            seen = row.data
        bound, known = bound_words(row.bound, row.bound), "yes" if row.proves else "no"
        table.add_row(f"  {row.solver}", f"{row.seconds:.3f}", bound, known)
    console.print(table)
    console.print("\nknown: whether the solver itself gives the bound.", style="dim")
