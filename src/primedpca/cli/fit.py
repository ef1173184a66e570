"""``primedpca fit``: components of a file, with a proven bound on each."""

from __future__ import annotations

import shlex
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primedpca.cli import options as opt
from primedpca.cli.errors import DONE, NOT_CONVERGED, Interrupted, in_words_of_the_command_line
from primedpca.cli.files import MODEL, in_memory, open_data
from primedpca.cli.groups import Output, Preparation, Reading, Search, flat
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
    search: Search,
    reading: Reading,
    preparation: Preparation,
    output: Output,
    as_json: opt.AsJson = False,
    debug: opt.Debug = False,
) -> int:
    """Find the principal components of DATA, and prove how right each is.

    Exit codes: 0 done, 1 refused, 2 not understood, 3 not all proven, 130 interrupted.
    With 3, what was found is printed and saved all the same.

    Example: primedpca fit flowers.csv -k 2 --id plant --label species -o model.safetensors
    """
    check_written(output, search.checkpoint, data)
    source = open_data(data, reading)
    from primedpca.estimator import PrimedPCA

    model = PrimedPCA(k, **asdict(search), **asdict(preparation))
    begun = time.monotonic()
    said = _fitted(model, source if model.device is None else in_memory(source), output.verbose)
    seconds = time.monotonic() - begun
    model.map_ = reading.map_rows  # data that were brought into memory do not know it
    if output.out is not None:
        model.save(output.out, overwrite=output.force)
    if output.report is not None:
        from primedpca.cli.report import write

        write(model, output.report, source, data, output.out)
    _show(model, source, data, seconds, output, said, as_json)
    return DONE if model.converged_ or model.status_.name == "FINISHED" else NOT_CONVERGED


def check_written(output: Output, checkpoint: Path | None, data: str) -> None:
    """Refuse what could not be written, before anything is read."""
    check_outputs({"-o": output.out, "--report": output.report}, output.force, data)
    if output.out is not None and output.out.suffix != MODEL:
        raise ValueError(
            f"`-o` {output.out} is to be a model; name it {output.out.stem}{MODEL} (scores are "
            "what transform writes)."
        )
    check_checkpoint(checkpoint, data)
    if output.report is not None:
        from primedpca.cli.report import check_page

        check_page(output.report)


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
    output: Output,
    said: list[str],
    as_json: bool,
) -> None:
    from primedpca.cli.summary import model_json, show_model

    for words in said:
        say(f"primedpca: warning: {words}", error=True)
    out, report = output.out, output.report
    if as_json:
        found = model_json(model) | {"data": data, "seconds": seconds, "warnings": said}
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
