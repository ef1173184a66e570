"""``primedpca fit``, ``choose``, which helps to choose K, and ``plan``, the cost of a fit."""

import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from primedpca._core.wording import duration, passes_words, size
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
    read: list[str] = []
    source = _checked_source(data, options, read)
    from primedpca.estimator import PrimedPCA

    model = PrimedPCA(k, **options.parameters())
    if options.warm_start is not None:
        _start_from(model, options.warm_start, source.shape[1])
    begun = time.monotonic()
    warned = _fitted(model, source, options.verbose)
    seconds = time.monotonic() - begun
    model.set_params(warm_start=False)  # how this fit began is no property of the model
    out, report = options.out, options.report
    if out is not None:
        model.save(out, overwrite=options.force)
    if report is not None:
        with _model_written(out):
            files.write_page(model, report, source, data, out)
    for words in warned:
        printing.say(f"primedpca: warning: {words}", error=True)
    if as_json:
        found = printing.model_json(model) | {"data": data, "seconds": seconds}
        printing.print_json(found | {"warnings": read + warned, "model": out, "report": report})
    else:
        _show_fit(model, source, f"{printing.printable(data)}: ", duration(seconds), options)
    # A priming that ran to its own end without a certificate did what was requested.
    return DONE if model.converged_ or model.status_.name == "FINISHED" else NOT_CONVERGED


@contextmanager
def _model_written(out: Path | None) -> Iterator[None]:
    """Say in an error of what follows a fit that the model is written."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, OSError) as error:
        if out is None:
            raise
        raise ValueError(f"the report was not written, but the model {out} was: {error}") from error


def _start_from(model: Any, path: Path, d: int) -> None:
    """Let a fit begin with the components of an earlier model."""
    known = files.load_model(path).components_
    if known.shape[1] != d:
        raise ValueError(f"`--warm-start` {path} has {known.shape[1]} columns, DATA have {d}.")
    model.set_params(warm_start=True).components_ = known


def _checked_source(data: str, options: opt.FitOptions, warned: list[str] | None = None) -> Any:
    """Check that all outputs can be written, before anything is read, and open DATA."""
    out, report = options.out, options.report
    start = [] if options.warm_start is None else [options.warm_start]
    outputs = {"-o": out, "--report": report}
    files.check_outputs(outputs, options.force, data, *start)
    if out is not None and out.suffix != files.MODEL:
        raise ValueError(f"`-o` {out} must end in {files.MODEL} (transform writes scores).")
    if options.checkpoint is not None:  # the fit checks the folder itself
        files.check_outside(options.checkpoint, "--checkpoint", data)
        files.check_beside(options.checkpoint, outputs)
    if report is not None:
        files.check_page(report)
    return files.open_data(data, options, warned)


def _check_start(k: Any, source: Any, options: opt.FitOptions) -> None:
    """Check the model and the checkpoint that a fit would start from."""
    from primedpca._session.session import check_resumable
    from primedpca.estimator import PrimedPCA

    model = PrimedPCA(k, **options.parameters())
    if options.warm_start is not None:
        _start_from(model, options.warm_start, source.shape[1])
    if options.checkpoint is not None:
        source = model._source(source, reset=True)
        start = model._warm_directions() if model.warm_start else None
        check_resumable(source, model._options(), start)


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
    passes = "one pass" if model.n_passes_ == 1 else f"{passes_words(model.n_passes_)} passes"
    n, d = source.shape
    console.print(f"{name}{n:,} rows x {d:,} columns; {passes}, {took}", style="bold")
    console.print()
    printing.show_model(console, model)
    for line in _in_words(model):
        console.print(printing.printable(line))
    for title, path in (("Model", options.out), ("Report", options.report)):
        if path is not None:
            browser = " (open it in a browser)" if title == "Report" else ""
            console.print(f"{title}: {printing.printable(path)}{browser}", soft_wrap=True)
    if options.out is None:
        console.print("Not saved: add -o model.safetensors.", style="dim")


def _in_words(model: Any) -> list[str]:
    """Describe the first components of a table by its columns, and hint at a missing scale."""
    names = getattr(model, "feature_names_in_", None)
    if names is None or model.n_components_ == 0:
        return []
    from primedpca.report.findings import component_words, quoted

    def name(j: int) -> str:
        return quoted(names[j]).strip("`")

    few = range(min(3, model.n_components_))
    said = ["", *(f"Component {i + 1} {component_words(model, i, name)}." for i in few)]
    largest = float(model.components_[0].max() ** 2)
    alone = largest > 0.95 and model.explained_variance_ratio_[0] > 0.8
    if alone and model.scale_ is None and len(names) > 1:
        said.append("If the columns have different units, add --scale std.")
    return [*said, ""]


_MOST = "Number of components to compute; default: all of small data, 50 of others."
_SHARE = "Fraction of the variance that the rule of that name asks for."


def choose(
    data: opt.Data,
    *,
    max_components: Annotated[int | None, opt.option("N", opt.whole(1), _MOST)] = None,
    variance_ratio: Annotated[float, opt.option("FRACTION", opt.as_fraction, _SHARE)] = 0.9,
    reading: opt.Reading,
    preparation: opt.Preparation,
    as_json: opt.AsJson = False,
) -> None:
    """Compare rules for the number of components of DATA: what to pass as -k.

    Parallel analysis, broken stick, Kaiser, the variance ratio, maximum likelihood and
    cross-validation, with bootstrap intervals of the variances.

    Example: primedpca choose flowers.csv --exclude plant,species --scale std
    """
    source = files.open_data(data, reading)
    from primedpca.choosing import choose_k

    options = opt.values(preparation)
    found = choose_k(source, max_components, variance_ratio=variance_ratio, **options)
    if as_json:
        rules = {one.rule: one._asdict() for one in found.suggestions}
        numbers = {"variances": found.variances, "intervals": found.intervals}
        printing.print_json({"data": data, "rules": rules, "passes": found.passes} | numbers)
        return
    console = printing.to_terminal()
    table = printing.new_table("rule", "k", no_wrap=True)
    table.add_column("because", overflow="fold")
    for one in found.suggestions:
        table.add_row(one.rule, one.words, one.why)
    console.print(table)
    parallel = found["parallel analysis"]
    advice = f"Parallel analysis: primedpca fit DATA -k {parallel.n_components}"
    if not parallel.n_components:
        advice = "Parallel analysis finds no more than noise in any component."
    elif parallel.at_least:
        advice = "Parallel analysis asks for more components: raise --max-components."
    console.print(f"\n{advice}", style="dim")


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

    if options.checkpoint is not None or options.warm_start is not None:
        _check_start(k, source, options)
    found = planned(source, k, **options.parameters())
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
