"""``primedpca race``: primings and other solvers compared on any data."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from primedpca.cli import options as opt
from primedpca.cli.printing import new_table, print_json, say, to_terminal

__all__ = ["race_primings"]


def as_seconds(words: str) -> float:
    """Parse a time such as ``60s``, ``2min`` or ``0.5``; seconds without a unit."""
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(s|min|h)?\s*", str(words).lower())
    if found is None or float(found[1]) <= 0:
        raise typer.BadParameter(f"Invalid time: {words!r}. Write 60s, 2min or 0.5.")
    return float(found[1]) * {"s": 1, None: 1, "min": 60, "h": 3600}[found[2]]


_PRIMING = (
    "A priming: a name, name(option=value), module:Class or file.py:Class, or a function "
    "(X, p) -> directions; may be repeated. Default: all of the library's."
)
_PEER = "Another solver: a name, or module:function (X, k) -> components; may be repeated."
_DATA = "A file, or a set of the paper: exponential, linear, mnist, cifar10, nips; may be repeated."
_MERGE = "A rows.csv of another race, also of another machine, to add; may be repeated."


def _many(text: str, *names: str) -> Any:
    return typer.Option(*names, metavar="NAME", help=text, show_default=False)


def race_primings(
    primings: Annotated[list[str] | None, _many(_PRIMING, "--priming")] = None,
    peers: Annotated[list[str] | None, _many(_PEER, "--peer")] = None,
    data: Annotated[list[str] | None, _many(_DATA, "--data")] = None,
    k: Annotated[int, opt.option("K", opt.whole(1), "Number of components.", "-k")] = 16,
    extra: Annotated[int, opt.option("L", opt.whole(0), "Extra directions of primings.")] = 4,
    seeds: Annotated[int, opt.option("N", opt.whole(1), "Runs of each, with seeds 0, 1, ...")] = 3,
    budget: Annotated[Any, opt.option("TIME", as_seconds, "Time for one run: 60s, 2min.")] = "60s",
    merge: Annotated[list[Path] | None, typer.Option(metavar="FILE", help=_MERGE)] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.")] = Path(
        "race"
    ),
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Data folder; default: PRIMEDPCA_DATA.")
    ] = None,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Race primings and other solvers: seconds, passes and flops to a given accuracy.

    Writes rows.csv (every evaluation), table.csv and page.html, which sorts by its headings.

    Example: primedpca race --priming my.py:Mine --priming oja --peer torch.pca_lowrank
    """
    from primedpca.priming import REGISTRY
    from primedpca_paper.race import board, contestants, running

    if (out / "rows.csv").exists() and not force:
        raise FileExistsError(f"`--out` {out} holds a race. Name another folder or add --force.")
    added = [row for path in merge or () for row in board.read_rows(path)]
    asked = primings or ([] if peers or (merge and not data) else sorted(REGISTRY))
    found = [contestants.priming_of(words) for words in asked]
    everyone = not (primings or peers or (merge and not data))
    known = contestants.known_peers() if everyone else peers or ()
    others = [contestants.peer_of(words) for words in known]
    names = data or ([] if merge and not (primings or peers) else ["exponential"])
    plan = running.Plan(k, extra, seeds, float(budget))
    start = time.perf_counter()

    def report(sentence: str) -> None:
        print(f"{time.perf_counter() - start:7.1f} s  {sentence}", file=sys.stderr, flush=True)

    rows, origins = list(added), {}
    for name in names:
        report(f"{name}: reading, and solving exactly")
        held = running.load_data(name, k, data_dir)
        origins[name] = held.origin
        rows += running.race([held], found, others, plan, report)
    written = board.write_board(rows, origins, out)
    if as_json:
        print_json({"written": [str(path) for path in written]})
        return
    _show(board.places(rows), board)
    for path in written:
        say(str(path))


def _show(places: Any, board: Any) -> None:
    """Print the table of every data set."""
    from primedpca_paper.traces import name_of

    console = to_terminal()
    console.print("Seconds to a full streak within each angle; n.a.: a run did not get there.\n")
    for name in dict.fromkeys(place.key[0] for place in places):
        shown = [name_of(v) for v in board.SHOWN]
        table = new_table(name, "", *shown, "passes", "Gflop", overflow="fold")
        for place in places:
            if place.key[0] == name:
                cells = (*place.reached, place.passes, place.gflop)
                kind = board.KINDS[place.key[2]]
                table.add_row(place.key[1], kind, *(board._cell(value) for value in cells))
        console.print(table)
