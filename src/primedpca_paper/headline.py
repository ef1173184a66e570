"""The abstract's numbers: the speed-up of pPCA over its priming alone.

For each set, the time of the priming alone to a streak of 16 at V = pi/8 is divided by that of the
best pPCA_l; then comes the mean over sets, without those where either missed the streak.  The
paper's table gives its abstract's 10.5 (EigenGame) and 7.2 (Oja) in this way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from primedpca_paper.comparison import like_for_like
from primedpca_paper.datasets import SETS
from primedpca_paper.protocol import EXTRAS, OURS, PAPERS, THRESHOLDS
from primedpca_paper.published import ABSTRACT, published
from primedpca_paper.tables import NAMES, as_printed, number, ratio
from primedpca_paper.tabular import MISSING, Cell, Table, tidy
from primedpca_paper.traces import ALONE, Results, Trace, name_of

__all__ = ["SpeedUp", "headline_files", "mean_speed_up", "our_speed_up", "their_speed_up"]

V = THRESHOLDS[0]


class SpeedUp(NamedTuple):
    """Times on one set, NaN if some run missed the streak, and the best ``l``."""

    alone: float
    refined: float
    extra: int | None

    @property
    def ratio(self) -> float:
        """Time of the priming alone over that of pPCA; NaN if one is not known."""
        return self.alone / self.refined if self.refined else math.nan


NEVER = SpeedUp(math.nan, math.nan, None)


def our_speed_up(
    results: Results, dataset: str, method: str, unit: str = "seconds"
) -> SpeedUp | None:
    """Return our speed-up in seconds or in steps; ``None`` if the priming was not run."""
    alone = results.time(dataset, method, ALONE, V, unit)
    best = results.best(dataset, method, V, unit)
    if alone is None:
        return None
    return SpeedUp(alone.mean, best[1].mean if best else math.nan, best[0] if best else None)


def their_speed_up(dataset: str, method: str) -> SpeedUp:
    """Return the speed-up of the paper's table, in seconds."""
    alone = published(dataset, method, ALONE, V)
    times = [(published(dataset, method, extra, V), extra) for extra in EXTRAS]
    known = [(time.mean, extra) for time, extra in times if time and math.isfinite(time.mean)]
    return SpeedUp(alone.mean if alone else math.nan, *min(known, default=NEVER[1:]))


def mean_speed_up(found: Iterable[SpeedUp | None]) -> float:
    """Return the mean over the sets where the speed-up is known; NaN if there are none.

    Examples
    --------
    >>> from primedpca_paper.datasets import SETS
    >>> from primedpca_paper.headline import mean_speed_up, their_speed_up
    >>> round(mean_speed_up(their_speed_up(name, "eigengame") for name in SETS), 1)
    10.5
    """
    ratios = [speed_up.ratio for speed_up in found if speed_up]
    known = [value for value in ratios if math.isfinite(value)]
    return float(np.mean(known)) if known else math.nan


def headline_files(results: Results) -> dict[str, str]:
    """Return ``headline.md``, ``.tex`` and ``.csv``, name to text."""
    tables = [
        *(_means(results), like_for_like(results), _referee(results)),
        *(_splits(results), _against_ours(results)),
    ]
    return {
        "headline.md": "\n".join(table.markdown() for table in tables),
        "headline.tex": "\n".join(table.latex() for table in tables),
        "headline.csv": _csv(results),
    }


def _means(results: Results) -> Table:
    rows = []
    for method in PAPERS:
        seconds = [our_speed_up(results, name, method) for name in SETS]
        steps = [our_speed_up(results, name, method, "steps") for name in SETS]
        theirs = [their_speed_up(name, method) for name in SETS]
        said = ABSTRACT.get(method)
        cells = [mean_speed_up(seconds), mean_speed_up(steps), mean_speed_up(theirs)]
        texts = [number(value) for value in cells]
        counts = [
            sum(1 for speed_up in found if speed_up and math.isfinite(speed_up.ratio))
            for found in (seconds, theirs)
        ]
        texts += [MISSING if said is None else str(said), f"{counts[0]} / {counts[1]}"]
        rows.append([Cell(NAMES[method]), *map(Cell, texts)])
    head = [
        "priming",
        "ours, seconds",
        "ours, steps",
        "paper's table",
        "abstract",
        "sets (ours / paper's)",
    ]
    notes = [
        f"Time of the priming alone over that of the best pPCAₗ to a streak of 16 at V = "
        f"{name_of(V)}; mean over the sets where every run of both reached the streak.",
        f"Each priming runs at its best setting of the paper's grid. Machine: {results.machine}.",
    ]
    return Table("headline", "Speed-up over the priming alone", head, [("", rows)], notes)


def _referee(results: Results) -> Table:
    """Return the table of our and the paper's speed-ups for each set, with what they consist of."""
    sections = []
    for method in PAPERS:
        rows = []
        for name in SETS:
            ours, theirs = our_speed_up(results, name, method), their_speed_up(name, method)
            if ours is None:
                continue
            texts = [
                f"{number(ours.alone)} / {as_printed(theirs.alone)}",
                f"{number(ours.refined)}{_of(ours)} / {as_printed(theirs.refined)}{_of(theirs)}",
                f"{number(ours.ratio)} / {number(theirs.ratio)}",
                number(ratio(theirs.alone, ours.alone), 2, "×"),
                number(ratio(theirs.refined, ours.refined), 2, "×"),
                number(_ratio_of(our_speed_up(results, name, method, "steps"))),
                number(_without_refining(results, name, method)),
            ]
            rows.append([Cell(results.title(name)), *map(Cell, texts)])
        if rows:
            sections.append((NAMES[method], rows))
    head = [
        *("set", "alone, s", "best pPCA, s", "speed-up"),
        *("alone: paper's / ours", "pPCA: paper's / ours"),
        *("our speed-up in steps", "ours, refining not timed"),
    ]
    notes = [
        "Ours / the paper's. The last two columns tell what the speed-up in seconds loses: the "
        "time of refining, and the longer steps of extra directions.",
    ]
    return Table("headline-sets", "The speed-up on each set", head, sections, notes)


def _ratio_of(speed_up: SpeedUp | None) -> float:
    return speed_up.ratio if speed_up else math.nan


def _of(speed_up: SpeedUp) -> str:
    return "" if speed_up.extra is None else f" (l = {speed_up.extra})"


def _without_refining(results: Results, dataset: str, method: str) -> float:
    """Return the speed-up in seconds if refining took no time."""
    cost, ours = cost_of(results, dataset, method), our_speed_up(results, dataset, method)
    if cost is None or ours is None:
        return math.nan
    return ours.alone / (ours.refined - cost.refining_ms / 1e3)


def _splits(results: Results) -> Table:
    """Return the table of steps, time per step and time of refining."""
    sections = []
    for method in PAPERS:
        rows = []
        for name in SETS:
            cost = cost_of(results, name, method)
            if cost is None:
                continue
            pairs = [(cost.steps_alone, cost.steps_refined), (cost.ms_alone, cost.ms_refined)]
            texts = [f"{number(a)} → {number(b)}" for a, b in pairs]
            texts.insert(1, number(ratio(cost.steps_alone, cost.steps_refined), 3, "×"))
            texts += [number(cost.refining_ms), number(cost.epochs, 2), number(cost.share, 2, " %")]
            rows.append([Cell(results.title(name)), *map(Cell, texts)])
        if rows:
            sections.append((NAMES[method], rows))
    head = [
        *("set", "steps", "fewer by", "ms per step", "one refining (l = 0), ms"),
        *("in epochs", "refining, % of pPCA's time"),
    ]
    notes = [
        "Priming alone → the pPCAₗ that is fastest in seconds. The time per step is the slope of "
        "time over steps in a run. The time of one refining is the median difference of the "
        "times with and without it, and in epochs that of all steps of one epoch is the unit.",
    ]
    return Table(
        "headline-costs", "Steps, time per step and time of refining", head, sections, notes
    )


class Cost(NamedTuple):
    """Steps and times of the priming alone and of the best pPCA_l; NaN if not known."""

    steps_alone: float
    steps_refined: float
    ms_alone: float
    ms_refined: float
    refining_ms: float
    epochs: float  # time of one refining over that of an epoch of the priming alone
    share: float


def cost_of(results: Results, dataset: str, method: str) -> Cost | None:
    """Return the costs on one set, or ``None`` if the priming was not run."""
    alone = results.traces(dataset, method, ALONE)
    steps = results.time(dataset, method, ALONE, V, "steps")
    if steps is None:
        return None
    refining = _refining_ms(alone, results.traces(dataset, method, 0))
    per_epoch = results.per_epoch(dataset, method)
    epochs = refining / (per_epoch * _ms_per_step(alone)) if per_epoch else math.nan
    best = results.best(dataset, method, V)
    if best is None:
        nan = math.nan
        return Cost(steps.mean, nan, _ms_per_step(alone), nan, refining, epochs, nan)
    extra, time = best
    fewer = results.time(dataset, method, extra, V, "steps")
    refined = results.traces(dataset, method, extra)
    share = 100 * refining / 1e3 / time.mean
    fewest = fewer.mean if fewer else math.nan
    slopes = (_ms_per_step(alone), _ms_per_step(refined))
    return Cost(steps.mean, fewest, *slopes, refining, epochs, share)


def _ms_per_step(traces: list[Trace]) -> float:
    """Return the slope of time over steps, in which the time of refining cancels."""
    slopes = [
        (trace.seconds[-1] - trace.seconds[0]) / (trace.steps[-1] - trace.steps[0])
        for trace in traces
        if len(trace.steps) > 1
    ]
    return 1e3 * float(np.mean(slopes)) if slopes else math.nan


def _refining_ms(alone: list[Trace], refined: list[Trace]) -> float:
    """Return the median difference of the times of the same runs, refined and not."""
    by_seed = {trace.seed: trace for trace in refined}
    differences = []
    for trace in alone:
        other = by_seed.get(trace.seed)
        if other is not None:
            _, mine, its = np.intersect1d(trace.steps, other.steps, return_indices=True)
            differences.append(np.median(other.seconds[its] - trace.seconds[mine]))
    return 1e3 * float(np.mean(differences)) if differences else math.nan


def _against_ours(results: Results) -> Table:
    """Return the table of our methods against the best of the paper's, at every threshold."""
    sections = []
    for method in OURS:
        rows = []
        for threshold in THRESHOLDS:
            cells = []
            for name in SETS:
                best = _best_of_the_papers(results, name, threshold)
                time = results.time(name, method, 0, threshold)
                cells.append(number(ratio(best, time and time.mean), 3, "×"))
            rows.append([Cell(name_of(threshold)), *map(Cell, cells)])
        sections.append((NAMES[method], rows))
    notes = ["Time of the best of the paper's lines, as run here, over that of our own method."]
    head = ["V", *(results.title(name) for name in SETS)]
    title = "Speed-up of our own methods to a streak of 16"
    return Table("headline-ours", title, head, sections, notes)


def _best_of_the_papers(results: Results, dataset: str, threshold: float) -> float | None:
    times = [
        results.time(dataset, method, extra, threshold)
        for method in PAPERS
        for extra in (ALONE, *EXTRAS)
    ]
    run = [time for time in times if time]
    return min((time.mean for time in run if time.known), default=math.nan) if run else None


def _csv(results: Results) -> str:
    columns = [
        *("set", "method", "unit", "alone", "best_ppca", "best_l", "speed_up"),
        *("paper_alone", "paper_best_ppca", "paper_best_l", "paper_speed_up"),
        *("ms_per_step_alone", "ms_per_step_ppca", "refining_ms", "refining_epochs", "machine"),
    ]
    rows = []
    for method in PAPERS:
        for name in SETS:
            cost, theirs = cost_of(results, name, method), their_speed_up(name, method)
            for unit in ("seconds", "steps"):
                ours = our_speed_up(results, name, method, unit)
                if ours is None or cost is None:
                    continue
                paper = [*theirs, theirs.ratio] if unit == "seconds" else [None] * 4
                costs = [cost.ms_alone, cost.ms_refined, cost.refining_ms, cost.epochs]
                rows.append(
                    [name, method, unit, *ours, ours.ratio, *paper, *costs, results.machine]
                )
    return tidy(columns, rows)
