"""The command line: parse, call, print; no mathematics."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from primedpca.cli.datasets import list_datasets
from primedpca.cli.reproduce import reproduce_target

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
app.command("reproduce")(reproduce_target)


def main() -> None:
    """Run the command line; what data or request refuse is one sentence and exit code 1."""
    try:
        app()
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError) as error:
        print(f"primedpca: {error}", file=sys.stderr)
        sys.exit(1)
