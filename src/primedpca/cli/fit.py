"""``primedpca fit``, and ``primedpca plan``, which shows what fit would do and its cost."""

from __future__ import annotations

import shlex
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from primedpca._core.wording import duration, size
from primedpca.cli import files, printing
from primedpca.cli import options as opt
from primedpca.cli.errors import DONE, NOT_CONVERGED, Interrupted


def fit(
    data: opt.Data, k: opt.Components, *, options: opt.FitOptions, as_json: opt.AsJson = False
) -> int:
    """Find the principal components of DATA and prove a bound on the error of each.

    Exit codes: 0 done, 1 invalid data or request, 2 usage error, 3 not all proven, 130 interrupted.
    With 3, the results are printed and saved all the same.

    Example: primedpca fit flowers.csv -k 2 --id plant --label species -o model.safetensors
    """
    source = _checked_source(data, options)
    from primedpca.estimator import PrimedPCA

    model = PrimedPCA(k, **options.parameters())
    begun = time.monotonic()
    rows = source if model.device is None else files.in_memory(source)
    warned = _fitted(model, rows, options.verbose)
    seconds = time.monotonic() - begun
    model.map_ = options.map_rows  # a copy of the data in memory has lost the map's name
    out, report = options.out, options.report
    if out is not None:
        model.save(out, overwrite=options.force)
    if report is not None:
        files.write_page(model, report, source, data, out)
    for words in warned:
        printing.say(f"primedpca: warning: {words}", error=True)
    if as_json:
        found = printing.model_json(model) | {"data": data, "seconds": seconds, "warnings": warned}
        printing.print_json(found | {"model": out, "report": report})
    else:
        _show_fit(model, source, f"{printing.printable(data)}: ", duration(seconds), options)
    # A priming that ran to its own end without a certificate did what was requested.
    return DONE if model.converged_ or model.status_.name == "FINISHED" else NOT_CONVERGED


def _checked_source(data: str, options: opt.FitOptions) -> Any:
    """Check that all outputs can be written, before anything is read, and open DATA."""
    out, report = options.out, options.report
    files.check_outputs({"-o": out, "--report": report}, options.force, data)
    if out is not None and out.suffix != files.MODEL:
        raise ValueError(
            f"`-o` {out} must end in {files.MODEL}. Name the model {out.stem}{files.MODEL} (use "
            "transform to write scores)."
        )
    if options.checkpoint is not None:  # the fit checks the folder itself
        files.check_outside(options.checkpoint, "--checkpoint", data)
    if report is not None:
        files.check_page(report)
    return files.open_data(data, options)


def _fitted(model: Any, source: Any, verbose: bool) -> list[str]:
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
    return [printing.in_words_of_the_command_line(str(warning.message)) for warning in found]


def _how_to_resume(checkpoint: Path | None) -> str:
    if checkpoint is None or not any(checkpoint.glob("*.safetensors")):
        return "interrupted; nothing was saved (use --checkpoint FOLDER to be able to resume)."
    command = shlex.join(["primedpca", *sys.argv[1:]])
    return f"interrupted; the progress is saved in {checkpoint}. Resume with: {command}"


def _show_fit(model: Any, source: Any, name: str, took: str, options: opt.FitOptions) -> None:
    console = printing.to_terminal()
    passes = "one pass" if model.n_passes_ == 1 else f"{model.n_passes_:.3g} passes"
    n, d = source.shape
    console.print(f"{name}{n:,} rows x {d:,} columns; {passes}, {took}", style="bold")
    console.print()
    printing.show_model(console, model)
    for title, path in (("Model", options.out), ("Report", options.report)):
        if path is not None:
            console.print(f"{title}: {printing.printable(path)}", soft_wrap=True)
    if options.out is None:
        console.print("Not saved: add -o model.safetensors.", style="dim")


def plan(
    data: opt.Data, k: opt.Components, *, options: opt.FitOptions, as_json: opt.AsJson = False
) -> None:
    """Show what fit would do with DATA, how long it would take and how much memory it needs.

    To plan a fit, replace the word fit by plan: all arguments are checked as fit checks them, but
    nothing is written. For data on disk, one block is read to measure the speed.

    Example: primedpca plan data.npy -k 10
    """
    source = _checked_source(data, options)
    from primedpca._planning.plan import plan as planned

    parameters = options.parameters()
    if device := parameters.pop("device"):
        source = _as_if_on(source, device)
    found = planned(source, k, **parameters)
    if as_json:
        names = ("name", "steps", "passes", "flops", "bytes", "memory", "seconds")
        ways = [{name: getattr(way, name) for name in names} for way in found.ways]
        printing.print_json({"shape": source.shape, "plan": str(found), "ways": ways})
        return
    console, (n, d) = printing.to_terminal(), source.shape
    console.print(f"{n:,} rows x {d:,} columns of {source.dtype}", style="bold")
    console.print(str(found))
    if found.ways:
        table = printing.new_table(
            "method", "passes", "bytes read", "memory", "time", overflow="fold"
        )
        for i, way in enumerate(found.ways):
            cells = (f"{way.passes:.0f}", size(way.bytes), size(way.memory), duration(way.seconds))
            table.add_row(way.name, *cells, style="green" if i == 0 else None)
        console.print()
        console.print(table)


def _as_if_on(source: Any, device: str) -> Any:
    """Stand in for the data as they would be in the memory of a device, without reading them."""
    import numpy as np

    from primedpca._core.arrays import is_sparse
    from primedpca.sources.memory.dense import DenseSource
    from primedpca.sources.wrappers.on_device import torch_on

    if is_sparse(next(iter(source.scan()))[1]):
        raise ValueError(f"`device`={device!r} needs dense data, got {source!r}. Omit `device`.")
    torch_on(device)
    # One zero, broadcast to the full shape, takes no memory.
    held = DenseSource(np.broadcast_to(np.zeros((), source.dtype), source.shape))
    held.device = device
    return held
