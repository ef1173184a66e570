"""The command line: parse, call, print; no mathematics."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from primedpca.cli.datasets import list_datasets

__all__ = ["app", "main"]

app = typer.Typer(
    help="Top-k principal components of data of any kind and size.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"primedpca {version('primedpca')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Top-k principal components of data of any kind and size."""


@app.command()
def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what refining buys and what is proven, on data that ship along.

    Example: primedpca demo
    """
    from primedpca.cli.demo import show, show_proofs
    from primedpca.experiments.demo import prove_demo, run_demo

    if as_json:
        rows, proofs = ([row.as_dict() for row in part] for part in (run_demo(), prove_demo()))
        print(json.dumps({"rows": rows, "proofs": proofs}))
    else:
        show(run_demo())
        show_proofs(prove_demo())


app.command("datasets")(list_datasets)


@app.command()
def reproduce(
    target: Annotated[
        str,
        typer.Argument(help="table-1, table-2, headline, figure-1 ... figure-11, lobsters, all."),
    ],
    out: Annotated[Path, typer.Option(help="The results folder.")] = Path("primedpca-results"),
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the data sets are [default: PRIMEDPCA_DATA].")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    repeats: Annotated[int | None, typer.Option(help="Runs of each [10; quick: 2].")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two settings each, few steps.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on in a folder.")] = False,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Only this set; may be given again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run one of the paper's tables or figures and draw it.

    Finished runs are kept in the results folder, and --resume goes on from them: a second
    target, a run that was stopped, or the same drawn again.

    Example: primedpca reproduce table-1 --quick --out results
    """
    from primedpca.cli.reproduce import run

    run(
        target,
        out,
        as_json=as_json,
        sets=sets or [],
        data_dir=data_dir,
        device=device,
        repeats=repeats,
        quick=quick,
        resume=resume,
    )


def main() -> None:
    """Run the command line; what data or request refuse is one sentence and exit code 1."""
    try:
        app()
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError) as error:
        print(f"primedpca: {error}", file=sys.stderr)
        sys.exit(1)
