"""The command line: parse the arguments, call the library, print the results.

It computes nothing itself, may import everything, and is imported by nothing.  Commands import
NumPy, rich and the rest of the library inside their functions, so that ``--help`` answers at once.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from primedpca.cli.demo import bench, demo
from primedpca.cli.errors import discard_unwritten, run
from primedpca.cli.fit import choose, fit, plan
from primedpca.cli.models import certify, inspect, loadings, report, transform
from primedpca.cli.options import flat

__all__ = ["app", "main"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"primedpca {version('primedpca')}")
        raise typer.Exit


_VERSION = typer.Option(
    "--version", callback=_version, is_eager=True, help="Print the version and exit."
)


@app.callback()
def _root(version: Annotated[bool, _VERSION] = False) -> None:
    """Top-k principal components of data of any kind and size, each with a proven error bound.

    Start with: primedpca demo, or primedpca fit DATA -k 10

    Exit codes: 0 done, 1 invalid data or request, 2 usage error, 3 not all proven, 130 interrupted.
    """


#: Commands in the order of the help.
OWN = (demo, choose, fit, transform, loadings, certify, plan, inspect, report, bench)
COMMANDS: dict[str, Callable[..., Any]] = {command.__name__: command for command in OWN}
# Commands of other installed packages, such as `reproduce` of primedpca_paper.
_found = sorted(entry_points(group="primedpca.commands"), key=lambda entry: entry.name)
COMMANDS |= {entry.name: entry.load() for entry in _found}
for _name, _command in COMMANDS.items():
    app.command(_name)(flat(_command))


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process; any error is reported in one sentence."""
    code = run(app, sys.argv[1:] if words is None else words)
    discard_unwritten()
    sys.exit(code)
