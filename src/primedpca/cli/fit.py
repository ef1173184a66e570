"""``primedpca fit``: components of a file, with a proven bound on each."""

from __future__ import annotations

import shlex
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from primedpca.cli import options as opt
from primedpca.cli.errors import DONE, NOT_CONVERGED, Interrupted, in_words_of_the_command_line
from primedpca.cli.files import check_output, open_data
from primedpca.cli.printing import duration, print_json, to_terminal

if TYPE_CHECKING:
    from primedpca.protocols import DataSource

__all__ = ["fit"]


def fit(
    data: opt.Data,
    k: opt.Components,
    tol: opt.Tol = "pi/1024",
    priming: opt.Priming = "auto",
    max_passes: opt.MaxPasses = 60,
    max_memory: opt.MaxMemory = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep every pass there, to go on after a kill."),
    ] = None,
    columns: opt.Columns = None,
    exclude: opt.Exclude = None,
    id_column: opt.Id = None,
    label_column: opt.Label = None,
    delimiter: opt.Delimiter = None,
    no_header: opt.NoHeader = False,
    map_rows: opt.Map = None,
    scale: opt.Scale = None,
    missing: opt.Missing = "error",
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where to compute, such as cuda.")
    ] = None,
    seed: opt.Seed = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="MODEL", help="Save the model: model.safetensors."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="PAGE.html", help="Write a page about the model.")
    ] = None,
    force: opt.Force = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="A line for every pass, on the error stream.")
    ] = False,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> int:
    """Find the principal components of DATA, and prove how right each is.

    Exit codes: 0 done, 1 refused, 2 not understood, 3 not all proven, 130 interrupted.
    With 3, what was found is printed and saved all the same.

    Example: primedpca fit flowers.csv -k 2 --label species -o model.safetensors
    """
    check_output(out, "-o", force, data)
    check_output(report, "--report", force, data)
    if report is not None:
        from primedpca.cli.report import need_plots

        need_plots()
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
    from primedpca.estimator import PrimedPCA

    given = source if device is None else _in_memory(source)
    model = PrimedPCA(
        k,
        tol=tol,
        priming=priming,
        max_passes=max_passes,
        max_memory=max_memory,
        checkpoint=checkpoint,
        scale=scale,
        missing=missing,
        device=device,
        random_state=seed,
    )
    begun = time.monotonic()
    said = _fitted(model, given, verbose)
    seconds = time.monotonic() - begun
    if out is not None:
        model.save(out, overwrite=force)
    if report is not None:
        from primedpca.cli.report import write

        write(model, report, source, data, out)
    _show(model, source, data, seconds, (out, report), said, as_json)
    return DONE if model.converged_ or model.status_.name == "FINISHED" else NOT_CONVERGED


def _in_memory(source: Any) -> Any:
    """All of the data, as a device takes them, with the names of their columns."""
    from primedpca.sources import as_source
    from primedpca.sources.base import whole

    held: Any = as_source(whole(source))
    held.feature_names = getattr(source, "feature_names", None)
    return held


def _fitted(model: Any, source: DataSource, verbose: bool) -> list[str]:
    """Fit, show how that goes, and give back what was warned of."""
    from primedpca.cli.live import watched

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with watched(model, verbose):
                model.fit(source)
        except KeyboardInterrupt:
            raise Interrupted(_how_to_go_on(model.checkpoint)) from None
    found = [warning for warning in caught if warning.category.__name__ != "ConvergenceWarning"]
    return [in_words_of_the_command_line(str(warning.message)) for warning in found]


def _how_to_go_on(checkpoint: Path | None) -> str:
    if checkpoint is None or not any(checkpoint.glob("*.safetensors")):
        return "interrupted; nothing was kept (--checkpoint FOLDER would let it go on)."
    command = shlex.join(["primedpca", *sys.argv[1:]])
    return f"interrupted; what was found is kept in {checkpoint}. Go on with: {command}"


def _show(
    model: Any,
    source: DataSource,
    data: str,
    seconds: float,
    written: tuple[Path | None, Path | None],
    said: list[str],
    as_json: bool,
) -> None:
    from primedpca.cli.summary import model_json, show_model

    for words in said:
        print(f"primedpca: warning: {words}", file=sys.stderr)
    out, report = written
    if as_json:
        found = model_json(model) | {"data": data, "seconds": seconds, "warnings": said}
        paths = {"model": out, "report": report}
        print_json(found | {name: None if p is None else str(p) for name, p in paths.items()})
        return
    console = to_terminal()
    n, d = source.shape
    passes = "one pass" if model.n_passes_ == 1 else f"{model.n_passes_:.3g} passes"
    done = f"{data}: {n:,} rows x {d:,} columns; {passes}, {duration(seconds)}"
    console.print(done, style="bold", soft_wrap=not console.is_terminal)
    console.print()
    show_model(console, model)
    for name, path in (("Model", out), ("Report", report)):
        if path is not None:
            console.print(f"{name}: {path}", soft_wrap=True)
    if out is None:
        console.print("Not saved: add -o model.safetensors.", style="dim")
