"""``primedpca fit``: find the components of a file, each with a proven error bound."""

from __future__ import annotations

import shlex
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primedpca.cli import options as opt
from primedpca.cli.errors import DONE, NOT_CONVERGED, Interrupted, in_words_of_the_command_line
from primedpca.cli.files import MODEL, in_memory, open_data
from primedpca.cli.groups import FitOptions, flat
from primedpca.cli.printing import duration, print_json, printable, say, to_terminal
from primedpca.cli.writing import check_checkpoint, check_outputs

if TYPE_CHECKING:
    from primedpca.protocols import DataSource

__all__ = ["check_written", "fit"]


@flat
def fit(
    data: opt.Data,
    k: opt.Components,
    *,
    options: FitOptions,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> int:
    """Find the principal components of DATA and prove a bound on the error of each.

    Exit codes: 0 done, 1 invalid data or request, 2 usage error, 3 not all proven, 130 interrupted.
    With 3, the results are printed and saved all the same.

    Example: primedpca fit flowers.csv -k 2 --id plant --label species -o model.safetensors
    """
    check_written(options, data)
    source = open_data(data, options)
    from primedpca.estimator import PrimedPCA

    model = PrimedPCA(k, **options.parameters())
    begun = time.monotonic()
    warned = _fitted(model, source if model.device is None else in_memory(source), options.verbose)
    seconds = time.monotonic() - begun
    model.map_ = options.map_rows  # a copy of the data in memory has lost the map's name
    if options.out is not None:
        model.save(options.out, overwrite=options.force)
    if options.report is not None:
        from primedpca.cli.report import write

        write(model, options.report, source, data, options.out)
    _show(model, source, data, seconds, options, warned, as_json)
    # A priming that ran to its own end without a certificate did what was requested.
    return DONE if model.converged_ or model.status_.name == "FINISHED" else NOT_CONVERGED


def check_written(options: FitOptions, data: str) -> None:
    """Check that all outputs can be written, before anything is read."""
    out, report = options.out, options.report
    check_outputs({"-o": out, "--report": report}, options.force, data)
    if out is not None and out.suffix != MODEL:
        raise ValueError(
            f"`-o` {out} must end in {MODEL}. Name the model {out.stem}{MODEL} (use transform to "
            "write scores)."
        )
    check_checkpoint(options.checkpoint, data)
    if report is not None:
        from primedpca.cli.report import check_page

        check_page(report)


def _fitted(model: Any, source: DataSource, verbose: bool) -> list[str]:
    """Fit, show progress, and return the warnings."""
    from primedpca.cli.progress import watched

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with watched(model, verbose):
                model.fit(source)
        except KeyboardInterrupt:
            raise Interrupted(_how_to_resume(model.checkpoint)) from None
    # The printed status and the exit code already say that a fit has not converged.
    found = [warning for warning in caught if warning.category.__name__ != "ConvergenceWarning"]
    return [in_words_of_the_command_line(str(warning.message)) for warning in found]


def _how_to_resume(checkpoint: Path | None) -> str:
    if checkpoint is None or not any(checkpoint.glob("*.safetensors")):
        return "interrupted; nothing was saved (use --checkpoint FOLDER to be able to resume)."
    command = shlex.join(["primedpca", *sys.argv[1:]])
    return f"interrupted; the progress is saved in {checkpoint}. Resume with: {command}"


def _show(
    model: Any,
    source: DataSource,
    data: str,
    seconds: float,
    options: FitOptions,
    warned: list[str],
    as_json: bool,
) -> None:
    from primedpca.cli.summary import model_json, show_model

    for words in warned:
        say(f"primedpca: warning: {words}", error=True)
    out, report = options.out, options.report
    if as_json:
        found = model_json(model) | {"data": data, "seconds": seconds, "warnings": warned}
        paths = {"model": out, "report": report}
        print_json(found | {name: None if p is None else str(p) for name, p in paths.items()})
        return
    console = to_terminal()
    n, d = source.shape
    passes = "one pass" if model.n_passes_ == 1 else f"{model.n_passes_:.3g} passes"
    done = f"{printable(data)}: {n:,} rows x {d:,} columns; {passes}, {duration(seconds)}"
    console.print(done, style="bold", soft_wrap=not console.is_terminal)
    console.print()
    show_model(console, model)
    for name, path in (("Model", out), ("Report", report)):
        if path is not None:
            console.print(f"{name}: {printable(path)}", soft_wrap=True)
    if out is None:
        console.print("Not saved: add -o model.safetensors.", style="dim")
