"""``primedpca reproduce``: the paper's tables and figures."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from primedpca.cli import options as opt
from primedpca.cli.printing import print_json, say

__all__ = ["reproduce_target"]


def reproduce_target(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="table-1, table-2, headline, figure-1 ... figure-11, lobsters, activations, all.",
            show_default=False,
        ),
    ] = None,
    list_targets: Annotated[
        bool, typer.Option("--list", help="List the targets and the data they need.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Results folder.")] = Path(
        "results"
    ),
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Data folder; default: PRIMEDPCA_DATA."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1.")] = "cpu",
    repeats: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=opt.whole(1), help="Runs of each setting; default: 10, quick: 2."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two settings of each method, few steps.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue in a results folder.")] = False,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME", help="Only this set; may be repeated."),
    ] = None,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> None:
    """Run a table or figure of the paper, and draw it.

    Finished runs are kept in the results folder. --resume continues from them: with another
    target, after an interruption, or to draw again.

    Example: primedpca reproduce table-1 --quick --out results
    """
    from primedpca_paper.reproduce import ABOUT, reproduce

    if list_targets or target is None:
        _list(ABOUT, as_json)
        return
    start = time.perf_counter()

    def report(sentence: str) -> None:
        print(f"{time.perf_counter() - start:7.1f} s  {sentence}", file=sys.stderr, flush=True)

    drawn = reproduce(
        target,
        out,
        data_dir=data_dir,
        device=device,
        repeats=repeats,
        quick=quick,
        resume=resume,
        sets=sets,
        progress=report,
    )
    if as_json:
        print_json({"drawn": [str(path) for path in drawn]})
        return
    for path in drawn:
        say(str(path))


def _list(about: dict[str, tuple[str, str]], as_json: bool) -> None:
    """Print every target, what it draws and the data that it needs."""
    if as_json:
        print_json({name: {"draws": draws, "data": data} for name, (draws, data) in about.items()})
        return
    for name, (draws, data) in about.items():
        say(f"{name:12} {draws}; data: {data}")
