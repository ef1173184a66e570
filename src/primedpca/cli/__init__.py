"""The command line: parse, call, print; no mathematics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from primedpca.cli.bench import bench
from primedpca.cli.certify import certify
from primedpca.cli.demo import demo
from primedpca.cli.errors import run
from primedpca.cli.fit import fit
from primedpca.cli.inspect import inspect
from primedpca.cli.plan import plan
from primedpca.cli.report import report
from primedpca.cli.transform import transform

__all__ = ["app", "main"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


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
    """Top-k principal components of data of any kind and size, each with a proven bound.

    Begin with: primedpca demo, or primedpca fit DATA -k 10

    Exit codes: 0 done, 1 refused, 2 not understood, 3 not all proven, 130 interrupted.
    """


COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "fit": fit,
    "transform": transform,
    "certify": certify,
    "plan": plan,
    "inspect": inspect,
    "report": report,
    "bench": bench,
}
# Commands of other installed packages, such as `reproduce` of primedpca_paper.
_found = sorted(entry_points(group="primedpca.commands"), key=lambda entry: entry.name)
COMMANDS |= {entry.name: entry.load() for entry in _found}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line and end the process; whatever goes wrong is one sentence."""
    sys.exit(run(app, sys.argv[1:] if words is None else words))
