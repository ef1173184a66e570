"""What the numbers depend on: run length, evaluation grid, scale of the gradient, choice of ε.

All of it is computed from the rows of one results folder, without further runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from primedpca_paper.datasets import SETS
from primedpca_paper.protocol import BATCH, EXTRAS, PAPERS, THRESHOLDS
from primedpca_paper.records import Records, Row
from primedpca_paper.selection import best_setting
from primedpca_paper.tables import NAMES, label, number
from primedpca_paper.tabular import NOT_REACHED, Cell, Table, tidy
from primedpca_paper.traces import ALONE, Results, Trace, name_of

__all__ = ["LENGTHS", "chosen_by_length", "sensitivity_files"]

#: Lengths of a run in steps; longer runs are cut.
LENGTHS = (500, 1000, 2000, 4000, 10_000, 20_000)
STOCHASTIC = ("eigengame", "oja")


def sensitivity_files(results: Results, selection: Records) -> dict[str, str]:
    """Return ``sensitivity.md`` and ``sensitivity.csv``, name to text."""
    rows = list(selection.rows())
    found = [*_by_length(results, rows), *_by_grid(results), *_by_epsilon(results, rows)]
    found += _by_scale(results, rows)
    tables = [
        _table(results, found, which, title, head, note) for which, title, head, note in TABLES
    ]
    columns = ["question", "set", "method", "l", "choice", "result"]
    return {
        "sensitivity.md": "\n".join(table.markdown() for table in tables),
        "sensitivity.csv": tidy(columns, found),
    }


TABLES = (
    (
        "run length",
        "Run length and the setting that the paper's rule chooses",
        "steps of a run",
        "Setting with the least angular error if all runs are cut at this length, and the speed-up "
        "in steps of the fastest pPCA at π/8 where that setting was timed.",
    ),
    (
        "evaluation grid",
        "Evaluation grid and runs that reach the streak at π/128",
        "evaluations",
        "Runs that reach a streak of 16 at π/128 / all runs, by the evaluations that count.",
    ),
    (
        "epsilon",
        "ε of the power method and runs that reach the streak alone",
        "ε",
        "Runs that reach a streak of 16 at π/8 and at π/128 / all runs. The paper's rule chooses "
        "the ε with the least angular error, summed over steps.",
    ),
    (
        "gradient scale",
        "Scale of the gradient",
        "scale",
        f"Runs that reach π/8 alone / all runs, at the best of the rates that the paper's grid "
        f"means. With gradients that are summed over a batch of {BATCH:,} rows, a rate of the grid "
        f"is a rate {BATCH:,} times as large here; of those only the ones that were run count.",
    ),
)
Found = tuple[str, str, str, str, str, str]


def _table(
    results: Results, found: list[Found], which: str, title: str, head: str, note: str
) -> Table:
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for question, name, method, extra, choice, result in found:
        if question == which:
            lines.setdefault((name, method, extra), {})[choice] = result
    choices = list(dict.fromkeys(choice for cells in lines.values() for choice in cells))
    rows = [
        [Cell(f"{results.title(name)}, {NAMES[method]}{extra and ', ' + extra}")]
        + [Cell(cells.get(choice, "")) for choice in choices]
        for (name, method, extra), cells in lines.items()
    ]
    name = f"sensitivity-{which.replace(' ', '-')}"
    return Table(name, title, [head, *choices], [("", rows)], [note])


def chosen_by_length(rows: list[Row], name: str, method: str) -> dict[int, float]:
    """Return the setting that the paper's rule chooses if runs are cut: length to setting."""
    mine = [row for row in rows if row.run[:2] == (name, method)]
    last = max((row.step for row in mine), default=0)
    return {
        length: best_setting((row for row in mine if row.step <= length), name, method)
        for length in LENGTHS
        if length <= last
    }


def _by_length(results: Results, rows: list[Row]) -> Iterator[Found]:
    for name in SETS:
        for method in STOCHASTIC:
            for length, best in chosen_by_length(rows, name, method).items():
                gain = _cut_gain(results, name, method, best, length)
                shown = f"{best:g}; {number(gain)}×" if math.isfinite(gain) else f"{best:g}"
                yield "run length", name, method, "", f"{length:,}", shown


def _cut_gain(results: Results, name: str, method: str, setting: float, length: int) -> float:
    """Return the speed-up in steps of runs that are cut; NaN if they were not timed."""

    def steps(extra: int | None) -> float:
        traces = results.at((name, method, extra or 0, extra is not ALONE), setting)
        cut = [trace.only(trace.steps <= length) for trace in traces]
        at = [trace.reached(THRESHOLDS[0]) for trace in cut]
        if not at or None in at:
            return math.nan
        return float(np.mean([trace.steps[i] for trace, i in zip(cut, at, strict=True)]))

    known = [value for value in map(steps, EXTRAS) if math.isfinite(value)]
    return steps(ALONE) / min(known) if known else math.nan


def _by_grid(results: Results) -> Iterator[Found]:
    threshold = THRESHOLDS[4]
    for name in SETS:
        for method in STOCHASTIC:
            per_epoch = results.per_epoch(name, method)
            for extra in (ALONE, *EXTRAS):
                traces = results.traces(name, method, extra)
                if not traces or per_epoch is None:
                    continue
                line = "alone" if extra is ALONE else label(method, extra).strip(" +")
                ends = [trace.steps % per_epoch == 0 for trace in traces]
                for choice, kept in (
                    ("all", [end | True for end in ends]),
                    ("ends of epochs only", ends),
                    ("not on ends of epochs", [~end for end in ends]),
                ):
                    cut = [trace.only(mask) for trace, mask in zip(traces, kept, strict=True)]
                    result = _reaching(cut, threshold)
                    yield "evaluation grid", name, method, line, choice, result


def _runs_of(rows: list[Row], name: str, method: str) -> dict[float, list[Trace]]:
    """Return the runs of the grid, setting to traces."""
    found: dict[float, dict[int, list[Row]]] = {}
    for row in rows:
        if row.run[:2] == (name, method):
            found.setdefault(row.run.setting, {}).setdefault(row.run.seed, []).append(row)
    return {setting: [Trace.of(run) for run in runs.values()] for setting, runs in found.items()}


def _reaching(traces: list[Trace], threshold: float) -> str:
    reached = sum(trace.reached(threshold) is not None for trace in traces)
    return f"{reached} / {len(traces)}"


def _by_epsilon(results: Results, rows: list[Row]) -> Iterator[Found]:
    for name in SETS:
        runs = _runs_of(rows, name, "power_method")
        for threshold in (THRESHOLDS[0], THRESHOLDS[4]):
            for setting in sorted(runs, reverse=True):
                line, choice = name_of(threshold), f"{setting:g}"
                result = _reaching(runs[setting], threshold)
                yield "epsilon", name, "power_method", line, choice, result


def _by_scale(results: Results, rows: list[Row]) -> Iterator[Found]:
    for name in SETS:
        for method in STOCHASTIC:
            runs = _runs_of(rows, name, method)
            for choice, factor in (("mean of a batch", 1), ("sum of a batch", BATCH)):
                grid = [rate * factor for rate in PAPERS[method]]
                both = [
                    s for s in runs if any(math.isclose(s, rate, rel_tol=1e-3) for rate in grid)
                ]
                if runs:
                    counts = [_reaching(runs[s], THRESHOLDS[0]) for s in both]
                    best = max(counts, key=lambda c: int(c.split()[0]), default=NOT_REACHED)
                    yield "gradient scale", name, method, "", choice, best
