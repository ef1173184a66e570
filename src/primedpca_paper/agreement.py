"""Cells where "n.a." differs from the paper, and the choice of the protocol that explains them.

Tables of the counts of :mod:`primedpca_paper.recount`: protocols beside each other, the one that
we take as the paper's as far as it can be determined, and a measurement for every cell that still
differs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from primedpca_paper.comparison import Agreement
from primedpca_paper.datasets import SETS
from primedpca_paper.draws import DRAWN, Draw, read_draws
from primedpca_paper.protocol import N_COMPONENTS, PAPERS
from primedpca_paper.raw_rows import open_raw
from primedpca_paper.records import Records, write_whole
from primedpca_paper.recount import (
    CUTS,
    POWER,
    RULES,
    STOCHASTIC,
    Again,
    Count,
    Setup,
    cut_at,
    on_grid,
)
from primedpca_paper.tables import NAMES, number
from primedpca_paper.tabular import Cell, Table, tidy
from primedpca_paper.traces import ALONE, Results, name_of

__all__ = ["CUTS", "TAKEN", "Again", "agreement_files", "agreement_of"]

#: Lengths of a run in epochs, for a protocol with one number for all sets.
EPOCHS = (10, 20, 50, 100, 200, 500, 1000, 2000)
#: Factors on the shortest lengths: the paper's runs may have been longer.
LONGER = (1.25, 1.5, 2.0)
#: Title of the protocol that we take as the paper's.
TAKEN = "shortest runs and largest ε with every printed time"


class Counted(NamedTuple):
    """A protocol, and the cells in which it agrees with the paper."""

    title: str
    fitted: str
    printed: Count  # cells with a time in the paper
    absent: Count  # cells with n.a. in the paper


Setups = Callable[[str, str], Setup]


def _counted(
    again: Again, sets: list[str], title: str, fitted: str, setups: Setups, rule: str = "reached"
) -> Counted:
    """Count the cells that agree under the setup of each set and method."""
    counts = []
    for printed in (True, False):
        cells = [c for c in again.cells if c.dataset in sets]
        cells = [c for c in cells if math.isfinite(c.theirs) == printed]
        found = [again.has_streak(c, setups(c.dataset, c.method), rule) for c in cells]
        counts.append(Count(found.count(printed), found.count(None), len(cells)))
    return Counted(title, fitted, *counts)


def _protocols(again: Again, sets: list[str]) -> Iterator[Counted]:
    """Yield the protocols of the comparison."""

    def shortest(rule: str = "reached", epsilon: bool = True, factor: float = 1.0) -> Setups:
        def setups(name: str, method: str) -> Setup:
            found = again.shortest(name, method, rule) if epsilon or method != POWER else None
            if found is None:
                return again.ours(name, method)
            longer = again.at(name, method, factor * found.length)
            return longer if factor > 1 and method != POWER else found

        return setups

    ours, nothing = again.ours, "nothing"
    yield _counted(again, sets, "our run lengths", nothing, ours)
    for rule, words in (
        ("held", "a streak counts if it is held to the end"),
        ("half", "half of the runs suffice"),
        ("mean", f"the mean streak of the runs is {N_COMPONENTS}"),
    ):
        yield _counted(again, sets, f"our run lengths; {words}", nothing, ours, rule)
    # One length for all sets, the best of several.
    best: list[Counted] = []
    for unit, lengths in (("steps", CUTS), ("epochs", EPOCHS)):
        made = []
        for length in lengths:

            def setups(name: str, method: str, length: int = length, unit: str = unit) -> Setup:
                per = again.results.per_epoch(name, method) if unit == "epochs" else 1
                return again.at(name, method, length * (per or 1))

            title = f"one length for all sets, {length:,} {unit}"
            made.append(_counted(again, sets, title, "one length, to all cells", setups))
        best.append(max(made, key=lambda one: one.printed.agreeing + one.absent.agreeing))
    yield from best
    times = "to the printed times only"
    lengths_of = f"a length per set and priming, {times}"
    both = f"these lengths and ε, {times}"
    title = "shortest runs with every printed time"
    yield _counted(again, sets, title, lengths_of, shortest(epsilon=False))
    yield _counted(again, sets, TAKEN, both, shortest())
    title = f"{TAKEN}; a streak counts if it is held"
    yield _counted(again, sets, title, both, shortest("held"), "held")
    for factor in LONGER:
        title = f"{TAKEN}; runs {factor:g} times as long"
        yield _counted(again, sets, title, both, shortest(factor=factor))
    yield from _fitted(again, sets)


def _fitted(again: Again, sets: list[str]) -> Iterator[Counted]:
    """Yield the protocols that are fitted to all cells, n.a. included."""
    best = {name: again.best(name) for name in sets}

    def lengths(name: str, method: str) -> Setup:
        return again.at(name, method, best[name].length)

    def epsilons(name: str, method: str) -> Setup:
        return Setup(best[name].epsilon) if method == POWER else lengths(name, method)

    def rates(name: str, method: str) -> Setup:
        if method == POWER:
            return epsilons(name, method)
        return Setup(best[name].rates[method], best[name].length)

    title, fitted = "fitted run lengths", "a length per set"
    yield _counted(again, sets, title, f"{fitted}, to all cells", lengths)
    title, fitted = f"{title} and ε", f"{fitted}, and ε"
    yield _counted(again, sets, title, f"{fitted}, to all cells", epsilons)
    title, fitted = "fitted run lengths, ε and rates", f"{fitted} and rates"
    yield _counted(again, sets, title, f"{fitted}, to all cells", rates)


def agreement_files(
    results: Results,
    selection: Records,
    others: Sequence[Results] = (),
    independent: Results | None = None,
    draws: Sequence[Draw] = (),
) -> dict[str, str]:
    """Return ``agreement.md`` and three CSV files, name to text.

    Parameters
    ----------
    results, selection : Results, Records
        The results whose cells are compared, and the runs of the grid.
    others : sequence of Results
        Runs at settings that ``results`` lacks.
    independent : Results, optional
        Runs with independent mini-batches.
    draws : sequence of Draw
        The power method on other draws of the sets.
    """
    again = Again(results, list(selection.rows()), others)
    drawn = None if independent is None else Again(independent, [])
    sets = [
        name
        for name in SETS
        if all(again.of(name, method) and again.rows[name, method] for method in PAPERS)
    ]
    protocols = list(_protocols(again, sets)) if sets else []
    cells = [cell for cell in again.cells if cell.dataset in sets]
    more = More(drawn, draws)
    differing = [_reason(again, cell, more) for cell in cells if not cell.agrees]
    remaining = [
        _reason(again, cell, more, taken)
        for cell in cells
        for taken in [_taken(again, cell.dataset, cell.method)]
        if again.has_streak(cell, taken) != math.isfinite(cell.theirs)
    ]
    tables = [
        _compared(protocols),
        _shortest_runs(again, sets),
        _remaining(results, remaining),
        _by_length(again, sets),
        _by_setting(again, sets),
        _by_rule(again),
        _calibrated(again, sets),
        _differing(results, differing),
    ]
    if drawn is not None:
        tables.append(_independent(again, drawn, sets))
    columns = ["question", "set", "method", "choice", "setting", "agreeing", "unknown", "cells"]
    found = [*_found(again, sets), *_found_protocols(again, sets, protocols)]
    if drawn is not None:
        found += _found_independent(drawn, sets)
    return {
        "agreement.md": "\n".join(table.markdown() for table in tables),
        "agreement.csv": tidy(columns, found),
        "agreement-cells.csv": tidy(CELL_COLUMNS, [reason.line for reason in differing]),
        "agreement-remaining.csv": tidy(CELL_COLUMNS, [reason.line for reason in remaining]),
    }


CELL_COLUMNS = [
    *("set", "method", "l", "V", "paper_seconds", "setting", "length", "runs", "reached", "held"),
    *("median_step", "first_step", "last_step", "reason", "explanation"),
]


def agreement_of(
    folder: Path,
    *others: Path,
    independent: Path | None = None,
    draws: Path | None = None,
) -> dict[str, str]:
    """Return the same files, computed from folders of raw rows."""
    with TemporaryDirectory() as work:
        records, selection = open_raw(folder, Path(work) / "own")
        more = [
            Results(open_raw(other, Path(work) / f"other-{i}")[0]) for i, other in enumerate(others)
        ]
        drawn = None
        if independent is not None:
            drawn = independent_results(open_raw(independent, Path(work) / "independent")[0])
        known = read_draws(draws) if draws else []
        return agreement_files(Results(records, selection), selection, more, drawn, known)


def independent_results(records: Records) -> Results:
    """Return runs that were all refined; the rule chooses among the settings that were run."""
    return Results(records, records)


def _taken(again: Again, name: str, method: str) -> Setup:
    """Return the setup of the protocol that we take as the paper's."""
    return again.shortest(name, method) or again.ours(name, method)


def _found_protocols(
    again: Again, sets: list[str], protocols: list[Counted]
) -> Iterator[tuple[object, ...]]:
    for one in protocols:
        yield "protocol", "", "", one.title, "", *(one.printed + one.absent)
        yield "protocol, printed times", "", "", one.title, "", *one.printed
        yield "protocol, n.a.", "", "", one.title, "", *one.absent
    for name in sets:
        for method in PAPERS:
            setup = _taken(again, name, method)
            length = "" if math.isinf(setup.length) else int(setup.length)
            count = _agreeing(again, again.of(name, method), setup)
            yield "shortest runs", name, method, length, setup.setting, *count


def _found_independent(drawn: Again, sets: list[str]) -> Iterator[tuple[object, ...]]:
    for name in sets:
        for method in STOCHASTIC:
            if cells := drawn.of(name, method):
                setup = drawn.ours(name, method)
                count = _agreeing(drawn, cells, setup)
                yield "independent mini-batches", name, method, "", setup.setting, *count


def _agreeing(again: Again, cells: Sequence[Agreement], setup: Setup) -> Count:
    found = [again.has_streak(cell, setup) for cell in cells]
    agree = [
        ours == math.isfinite(c.theirs)
        for ours, c in zip(found, cells, strict=True)
        if ours is not None
    ]
    return Count(sum(agree), found.count(None), len(cells))


def _compared(protocols: list[Counted]) -> Table:
    rows = []
    for one in protocols:
        both = one.printed + one.absent
        title = f"**{one.title}**" if one.title == TAKEN else one.title
        texts = [one.fitted, one.printed.text, one.absent.text, both.text]
        rows.append([Cell(title), *map(Cell, texts)])
    notes = [
        "Times are cells in which the paper prints a time: they agree if our runs have that "
        "streak. n.a. agrees if one of our runs or more lacks it. Without other words a run has a "
        "streak if it reaches it once, as in the paper's caption, and rates are those that the "
        "paper's rule chooses for runs of that length.",
        f"We take **{TAKEN}** as the paper's protocol as far as it can be determined. A printed "
        "time shows that the paper's runs were at least that long. The paper chooses 'the best "
        "ε' and does not define it. Its cells with n.a. are not used, so that they test the "
        "protocol. Longer runs are as possible, and agree less.",
        "Protocols that are fitted to all cells show what unstated settings can account for.",
    ]
    head = ["protocol", "fitted", "times that agree", "n.a. that agree", "cells that agree"]
    title = "Protocols, and the cells of the paper's table 2 that agree"
    return Table("agreement-protocols", title, head, [("", rows)], notes)


def _shortest_runs(again: Again, sets: list[str]) -> Table:
    rows = []
    for name in sets:
        for method in PAPERS:
            found = again.shortest(name, method)
            setup = _taken(again, name, method)
            length = "ends by itself" if method == POWER else f"{_length(again, name, setup):,}"
            if found is None:
                length += " (ours: no length has every printed time)"
            count = _agreeing(again, again.of(name, method), setup)
            texts = [NAMES[method], f"{setup.setting:g}", length, count.text]
            rows.append([Cell(again.results.title(name)), *map(Cell, texts)])
    notes = [
        "The shortest runs in which all runs reach every streak for which the paper prints a "
        "time, at the learning rate that the paper's rule chooses for that length; for the power "
        "method the largest ε of the paper's grid.",
    ]
    missing = _not_run(again, sets)
    if missing:
        notes.append(
            f"Rates that the rule chooses for shorter runs and that were not run: {missing}."
        )
    head = ["set", "priming", "rate or ε", "steps of a run", "cells that agree"]
    title = "Shortest runs and largest ε with every printed time"
    return Table("agreement-shortest", title, head, [("", rows)], notes)


def _length(again: Again, name: str, setup: Setup) -> int:
    return int(min(setup.length, again.lengths(name)[-1]))


def _not_run(again: Again, sets: list[str]) -> str:
    """Return the rates that the rule chooses for runs shorter than the shortest, and lack rows."""
    found = []
    for name in sets:
        for method in STOCHASTIC:
            last = _length(again, name, _taken(again, name, method))
            cell = next(c for c in again.of(name, method) if c.extra is not ALONE)
            rates = {again.chosen(name, method, cut) for cut in CUTS if cut < last}
            lacking = [rate for rate in sorted(rates) if not again.traces(cell, rate)]
            if lacking:
                words = ", ".join(f"{rate:g}" for rate in lacking)
                found.append(f"{NAMES[method]} on {again.results.title(name)}: {words}")
    return "; ".join(found)


def _independent(again: Again, drawn: Again, sets: list[str]) -> Table:
    rows = []
    for name in sets:
        for method in STOCHASTIC:
            if cells := drawn.of(name, method):
                setup, ours = drawn.ours(name, method), again.ours(name, method)
                texts = [
                    *(NAMES[method], f"{ours.setting:g}"),
                    _agreeing(again, again.of(name, method), ours).text,
                    *(f"{setup.setting:g}", _agreeing(drawn, cells, setup).text),
                ]
                rows.append([Cell(again.results.title(name)), *map(Cell, texts)])
    notes = [
        "Each mini-batch is drawn anew from all rows, in place of permutations of epochs, in which "
        "errors cancel. Runs of our length; the rate is the better of two by the paper's rule.",
    ]
    head = [
        *("set", "priming", "rate, epochs", "cells that agree, epochs"),
        *("rate, independent", "cells that agree, independent"),
    ]
    title = "Independent mini-batches"
    return Table("agreement-independent", title, head, [("", rows)], notes)


def _found(again: Again, sets: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield the lines of ``agreement.csv``."""
    for name in sets:
        for method in STOCHASTIC:
            for length in again.lengths(name):
                setting, count = again.at_length(name, method, length)
                yield "run length", name, method, length, setting, *count
        for method in PAPERS:
            for setting in again.settings(name, method):
                count = again.count(again.of(name, method), setting)
                yield "setting", name, method, "", setting, *count
        best = again.best(name)
        yield "best length", name, "", best.length, "", *best.stochastic
        yield "best epsilon", name, POWER, "", best.epsilon, *best.power
        yield "best rates", name, "", best.length, "", *best.rated
    for rule in RULES:
        yield "rule", "", "", rule, "", *again.at_rule(rule)


def _by_length(again: Again, sets: list[str]) -> Table:
    rows = []
    lengths = sorted({length for name in sets for length in again.lengths(name)})
    for name in sets:
        for method in STOCHASTIC:
            cells = []
            for length in lengths:
                if length in again.lengths(name):
                    setting, count = again.at_length(name, method, length)
                    cells.append(f"{count.text} ({setting:g})")
                else:
                    cells.append("")
            title = f"{again.results.title(name)}, {NAMES[method]}"
            rows.append([Cell(title), *map(Cell, cells)])
    notes = [
        "Cells of the paper's table 2 in which both or neither have n.a., if all runs end after "
        "this number of steps; in brackets the learning rate that the paper's rule then chooses. "
        "Not run: lines that were not refined at that rate."
    ]
    head = ["steps of a run", *(f"{length:,}" for length in lengths)]
    title = "Cells in which n.a. agrees, by run length"
    return Table("agreement-length", title, head, [("", rows)], notes)


def _by_setting(again: Again, sets: list[str]) -> Table:
    rows = []
    for name in sets:
        for method in PAPERS:
            ours = again.results.setting(name, method)
            for setting in again.settings(name, method):
                count = again.count(again.of(name, method), setting)
                texts = [
                    NAMES[method],
                    f"{setting:g}" + (" (the rule's choice)" if setting == ours else ""),
                    count.text,
                ]
                rows.append([Cell(again.results.title(name)), *map(Cell, texts)])
    notes = ["Learning rate, or ε of the power method; runs of our length."]
    head = ["set", "priming", "setting", "cells that agree"]
    title = "Cells in which n.a. agrees, by setting"
    return Table("agreement-setting", title, head, [("", rows)], notes)


def _by_rule(again: Again) -> Table:
    rows = [[Cell(rule), Cell(again.at_rule(rule).text)] for rule in RULES]
    notes = ["The settings and lengths are ours."]
    title = "Cells in which n.a. agrees, by the rule for a streak"
    return Table("agreement-rule", title, ["rule", "cells that agree"], [("", rows)], notes)


def _calibrated(again: Again, sets: list[str]) -> Table:
    rows, totals = [], [0] * 5
    for name in sets:
        best, cells = again.best(name), again.of(name, *PAPERS)
        power = sum(cell.agrees for cell in cells if cell.method == POWER)
        counts = [
            sum(cell.agrees for cell in cells),
            best.stochastic.agreeing + power,
            best.stochastic.agreeing + best.power.agreeing,
            best.rated.agreeing + best.power.agreeing,
            len(cells),
        ]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        rates = [f"{best.rates[method]:g}" for method in STOCHASTIC]
        texts = [f"{best.length:,}", f"{best.epsilon:g}", *rates, *map(str, counts)]
        rows.append([Cell(again.results.title(name)), *map(Cell, texts)])
    rows.append([Cell("all"), *[Cell("")] * 4, *(Cell(str(total)) for total in totals)])
    notes = [
        "The paper does not state its run lengths: these are the ones, of those in the first "
        "table, that agree best with its n.a., one for both stochastic primings of a set, with the "
        "learning rates that its rule then chooses. ε and then the rates are those of the paper's "
        "grid, of the ones that were run, that agree best.",
        "All are fitted to the paper's n.a.: that they agree is not evidence that the paper used "
        "them. Our tables keep our lengths and the rule's settings.",
    ]
    head = [
        *("set", "steps of a run", "ε", *(f"rate, {NAMES[method]}" for method in STOCHASTIC)),
        *("agree, ours", "agree, this length", "and this ε", "and these rates", "cells"),
    ]
    title = "Run lengths and settings that agree best with the paper's n.a."
    return Table("agreement-best", title, head, [("", rows)], notes)


class More(NamedTuple):
    """Measurements beside those of the results."""

    drawn: Again | None  # with independent mini-batches
    draws: Sequence[Draw]


class Reason(NamedTuple):
    """A cell that differs, and a measurement that explains it."""

    cell: Agreement
    setup: Setup
    runs: int
    held: int
    steps: np.ndarray  # steps at which our runs reach the streak
    reason: str
    explanation: str

    @property
    def line(self) -> list[object]:
        """The line of a CSV file."""
        cell = self.cell
        steps = [float(np.percentile(self.steps, q)) for q in (50, 0, 100) if len(self.steps)]
        return [
            *(cell.dataset, cell.method, "alone" if cell.extra is ALONE else cell.extra),
            *(name_of(cell.threshold).replace("π", "pi"), cell.theirs),
            *(self.setup.setting, "" if math.isinf(self.setup.length) else self.setup.length),
            *(self.runs, len(self.steps), self.held),
            *(steps or [math.nan] * 3),
            *(self.reason, self.explanation),
        ]


def _reason(again: Again, cell: Agreement, more: More, setup: Setup | None = None) -> Reason:
    """Return why a cell differs under a setup, by default ours."""
    now = setup or again.ours(cell.dataset, cell.method)
    traces = [cut_at(now.length)(trace) for trace in again.traces(cell, now.setting)]
    at = [(trace, trace.reached(cell.threshold)) for trace in traces]
    steps = np.array([trace.steps[i] for trace, i in at if i is not None])
    ended = cell.method == POWER
    held = sum(trace.held(cell.threshold, ended) is not None for trace in traces)
    lost = not ended and held < len(steps) == len(traces)
    reason, explanation = _explained(again, cell, now, more, lost)
    return Reason(cell, now, len(traces), held, steps, reason, explanation)


def _explained(
    again: Again, cell: Agreement, now: Setup, more: More, lost: bool
) -> tuple[str, str]:
    """Return the choice that makes a cell agree, and the measurement.

    A setting or a way to draw mini-batches explains a cell only if more cells of its set and
    priming agree with it: otherwise it would only move the difference to other cells.
    """
    name, method = cell.dataset, cell.method
    power, cells = method == POWER, again.of(name, method)
    agree = _agreeing(again, cells, now).agreeing
    taken = again.shortest(name, method)
    if taken is not None and taken != now and _agreeing(again, [cell], taken).agreeing:
        if power:
            return "ε", f"agrees at ε {taken.setting:g}, the largest with every printed time"
        rate = f", at rate {taken.setting:g}" if taken.setting != now.setting else ""
        return (
            "run length",
            f"agrees in runs of {taken.length:,.0f} steps{rate}, the shortest with every printed "
            "time",
        )
    others = [
        *_other_setups(again, cell, now, listed=True),
        *_independent_batches(more.drawn, cell),
        *_other_draws(again, cell, more.draws),
        *_other_setups(again, cell, now, listed=False),
    ]
    others = [other for other in others if other.agreeing > agree]
    if others:
        best = max(others, key=lambda other: other.agreeing)  # the first of equal ones
        ends = f"{best.agreeing} of {len(cells)} cells of this priming agree {best.where}"
        return best.reason, f"{best.explanation}; {ends}, {agree} here"
    if lost:
        return "touched", "all runs reach it, and not all hold it to the end"
    return "not explained", _conflict(again, cell, now)


class Other(NamedTuple):
    """Another choice with which a cell agrees, and how many cells of its priming."""

    agreeing: int
    reason: str
    explanation: str
    where: str = "there"


def _other_setups(again: Again, cell: Agreement, now: Setup, listed: bool) -> Iterator[Other]:
    """Yield other settings and run lengths, of the paper's grid or not."""
    name, method = cell.dataset, cell.method
    kind = "ε" if method == POWER else "rate"
    settings = [s for s in again.settings(name, method) if on_grid(method, s) == listed]
    for setting in settings:
        for setup in (Setup(setting), again.shortest_at(name, method, setting)):
            if setup is None or not _agreeing(again, [cell], setup).agreeing:
                continue
            count = _agreeing(again, again.of(name, method), setup).agreeing
            words, reason = f"agrees at {kind} {setting:g}", kind
            words += "" if listed else ", which the paper's grid lacks"
            if method != POWER and math.isfinite(setup.length):
                chosen = again.at(name, method, setup.length).setting
                words += f", in runs of {setup.length:,.0f} steps, the shortest with every printed "
                words += f"time, for which the rule chooses {chosen:g}"
                reason = "run length" if setting == now.setting else kind
            yield Other(count, reason, words)


def _independent_batches(drawn: Again | None, cell: Agreement) -> Iterator[Other]:
    """Yield independent mini-batches, if a cell agrees with them."""
    cells = drawn.of(cell.dataset, cell.method) if drawn else []
    if not drawn or not cells:
        return
    setup = drawn.ours(cell.dataset, cell.method)
    if not _agreeing(drawn, [cell], setup).agreeing:
        return
    traces = drawn.traces(cell, setup.setting)
    reached = sum(trace.reached(cell.threshold) is not None for trace in traces)
    yield Other(
        _agreeing(drawn, cells, setup).agreeing,
        "mini-batches",
        f"agrees with independent mini-batches at rate {setup.setting:g}, where {reached} of "
        f"{len(traces)} runs reach it",
    )


def _other_draws(again: Again, cell: Agreement, draws: Sequence[Draw]) -> Iterator[Other]:
    """Yield other draws of the set, if a cell of the power method agrees on some."""
    if cell.method != POWER:
        return
    draws = [draw for draw in draws if draw.dataset == cell.dataset]
    cells = again.of(cell.dataset, cell.method)
    for epsilon in dict.fromkeys(draw.epsilon for draw in draws):
        mine = [draw for draw in draws if draw.epsilon == epsilon]
        counts = [
            sum(d.has_streak(c.extra, c.threshold) == math.isfinite(c.theirs) for c in cells)
            for d in mine
            if d.has_streak(cell.extra, cell.threshold) == math.isfinite(cell.theirs)
        ]
        if counts:
            most = max(counts)
            yield Other(
                most,
                "draw of the set",
                f"agrees on {len(counts)} of {len(mine)} {DRAWN[cell.dataset]}, at ε {epsilon:g}",
                f"on {counts.count(most)} of them",
            )


def _conflict(again: Again, cell: Agreement, now: Setup) -> str:
    """Return the measurements that no setup that was run reconciles."""
    name, method = cell.dataset, cell.method
    if method == POWER or math.isfinite(cell.theirs):
        return _conflict_of_settings(again, cell)
    at = [(trace, trace.reached(cell.threshold)) for trace in again.traces(cell, now.setting)]
    last = max(trace.steps[i] for trace, i in at if i is not None)
    needed = again.shortest_at(name, method, now.setting)
    if needed is None:
        return (
            f"all runs reach it by step {last:,.0f}, and rate {now.setting:g} lacks printed times"
        )
    return (
        f"all runs reach it by step {last:,.0f}, and the printed times need runs of "
        f"{needed.length:,.0f} steps: no run length gives both"
    )


def _conflict_of_settings(again: Again, cell: Agreement) -> str:
    name, method = cell.dataset, cell.method
    kind = "ε" if method == POWER else "rate"
    parts = []
    for setting in again.settings(name, method):
        traces = again.traces(cell, setting)
        reached = sum(trace.reached(cell.threshold) is not None for trace in traces)
        count = _agreeing(again, again.of(name, method), Setup(setting))
        parts.append(f"{reached} of {len(traces)} at {setting:g} ({count.text} cells agree)")
    return f"runs that reach it, by {kind}: {', '.join(parts)}"


def _differing(results: Results, reasons: list[Reason]) -> Table:
    known = sum(reason.reason != "not explained" for reason in reasons)
    notes = [
        f"A choice that the paper may have made explains {known} of these {len(reasons)} cells.",
        "run length, ε: the cell agrees in the shortest runs, or at the largest ε, with every "
        "printed time. Other choices count only if more cells of the set and priming agree with "
        "them than with ours. rate, ε: another setting. mini-batches: drawn independently of each "
        "other. draw of the set: other rows of the synthetic set, or other documents. touched: "
        f"all runs have a streak of {N_COMPONENTS} at some evaluation, and not all keep it.",
    ]
    title = "Cells where n.a. differs with our run lengths, and what makes them agree"
    return Table("agreement-cells", title, CELL_HEAD, [("", _cell_rows(results, reasons))], notes)


CELL_HEAD = [
    *("set", "line", "V", "the paper's seconds", "our runs that reach the streak"),
    *("at step, median (range)", "held to the end", "reason", "measurement"),
]


def _remaining(results: Results, reasons: list[Reason]) -> Table:
    notes = [
        f"Cells that differ under the protocol that we take as the paper's: {len(reasons)}. "
        "The reasons are those of the table of our run lengths, below.",
    ]
    title = f"Cells that remain: {TAKEN}"
    return Table(
        "agreement-remaining", title, CELL_HEAD, [("", _cell_rows(results, reasons))], notes
    )


def _cell_rows(results: Results, reasons: list[Reason]) -> list[list[Cell]]:
    rows = []
    for reason in reasons:
        cell = reason.cell
        line = NAMES[cell.method] + ("" if cell.extra is ALONE else f" + pPCA, l = {cell.extra}")
        steps = reason.steps
        parts = [f"{np.percentile(steps, q):,.0f}" for q in (50, 0, 100) if len(steps)]
        when = "{} ({} to {})".format(*parts) if parts else ""
        texts = [
            *(line, name_of(cell.threshold), number(cell.theirs)),
            *(f"{len(steps)} of {reason.runs}", when, f"{reason.held} of {reason.runs}"),
            *(reason.reason, reason.explanation),
        ]
        rows.append([Cell(results.title(cell.dataset)), *map(Cell, texts)])
    return rows


def main(words: list[str] | None = None) -> int:
    """Write the files into a folder of raw rows; runs at other settings are in more folders."""
    parser = argparse.ArgumentParser(prog="python -m primedpca_paper.agreement")
    parser.add_argument("folders", type=Path, nargs="+", help="folders with rows.csv.gz")
    parser.add_argument("--independent", type=Path, help="folder with independent mini-batches")
    parser.add_argument("--draws", type=Path, help="file of other draws of the sets")
    asked = parser.parse_args(words)
    folder, *others = asked.folders
    made = agreement_of(folder, *others, independent=asked.independent, draws=asked.draws)
    for name, text in made.items():
        write_whole(folder / name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
