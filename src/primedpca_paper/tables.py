"""Tables 1 and 2 of the paper: time to a streak of 16, in seconds and in steps.

The time of a run is that of its first evaluation with a full streak, and beside it that from
which on the streak stays full.  Evaluations are on ends of epochs and spaced logarithmically
between, so that every time may be too long by up to one spacing, for all methods alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from primedpca_paper.datasets import SETS, TITLES
from primedpca_paper.protocol import EXTRAS, OURS, PAPERS, THRESHOLDS
from primedpca_paper.published import published
from primedpca_paper.tabular import (
    MISSING,
    NOT_REACHED,
    Cell,
    Table,
    digits,
    spread_cell,
    tidy,
)
from primedpca_paper.traces import ALONE, Results, Summary, name_of

__all__ = [
    *("NAMES", "TABLE_1", "TABLE_2"),
    *("label", "missing_from", "settings_files", "table_files"),
    *("as_printed", "number", "ratio"),
]

NAMES = {
    "eigengame": "EigenGame",
    "oja": "Oja's method",
    "power_method": "Power method",
    "block_krylov": "Block Krylov",
    "certified": "Certified",
    "exact": "Exact",
}
#: Thresholds and ``l`` of the paper's two tables.
TABLE_1 = (THRESHOLDS[0], THRESHOLDS[2]), (ALONE, 0)
TABLE_2 = (THRESHOLDS[0], THRESHOLDS[2], THRESHOLDS[4]), (ALONE, *EXTRAS)

Line = tuple[str, int | None]  # method, l


def label(method: str, extra: int | None) -> str:
    """Return the name of a line: the priming's name, or pPCA indented under it."""
    if method in OURS or extra is ALONE:
        return NAMES[method]
    return "  + pPCA" + {0: "", 2: "₂", 4: "₄"}[extra]


def table_files(name: str, results: Results) -> dict[str, str]:
    """Return the files of "table-1" or "table-2", name to text.

    The tables hold seconds, steps, and seconds beside the paper's, as Markdown and LaTeX; a CSV
    file holds all numbers.  Table 2 also comes with every threshold.
    """
    thresholds, extras = TABLE_1 if name == "table-1" else TABLE_2
    lines = _lines(results, extras)
    tables = [
        _table(name, results, thresholds, lines, "seconds"),
        _table(f"{name}-steps", results, thresholds, lines, "steps"),
        _beside(f"{name}-beside", results, thresholds, lines),
    ]
    if name == "table-2":
        tables.append(_table(f"{name}-all", results, THRESHOLDS, lines, "seconds"))
        tables.append(_table(f"{name}-all-steps", results, THRESHOLDS, lines, "steps"))
        thresholds = THRESHOLDS
    files = {f"{table.name}.md": table.markdown() for table in tables}
    files |= {f"{table.name}.tex": table.latex() for table in tables}
    return files | {f"{name}.csv": _csv(results, thresholds, lines)}


def _lines(results: Results, extras: Sequence[int | None]) -> list[Line]:
    """Return the paper's lines, run or not, other lines that were run, and our methods."""
    lines: list[Line] = []
    for method in PAPERS:
        for extra in extras:
            printed = published(SETS[0], method, extra, THRESHOLDS[0]) is not None
            if printed or any(results.traces(name, method, extra) for name in SETS):
                lines.append((method, extra))
    return lines + [(method, 0) for method in OURS]


def _table(
    name: str, results: Results, thresholds: Sequence[float], lines: list[Line], unit: str
) -> Table:
    sections = []
    for threshold in thresholds:
        rows = []
        for method, extra in lines:
            which = [(key, method, extra, threshold, unit) for key in SETS]
            times = [spread_cell(results.time(*w), results.time(*w, "held")) for w in which]
            rows.append([Cell(label(method, extra)), *times])
        sections.append((f"V = {name_of(threshold)}", rows))
    what = "Seconds" if unit == "seconds" else "Steps"
    return Table(
        name,
        f"{what} to a streak of 16 components within V of the truth",
        ["", *(results.title(key) for key in SETS)],
        sections,
        _notes(results, unit, [extra for method, extra in lines if method in PAPERS]),
        groups=len(OURS),
    )


def _notes(results: Results, unit: str, extras: Sequence[int | None]) -> list[str]:
    """Return the notes below a table."""
    said = [
        "Mean ± standard deviation over runs (with n - 1)",
        f"{NOT_REACHED}: at least one run did not reach the streak",
    ]
    missing = missing_from(results, list(dict.fromkeys(extras)))
    if missing:
        said[-1] += f"; {MISSING}: not run ({'; '.join(missing)})"
    said.append(
        "The time of a run is that of its first evaluation with a full streak. Where the streak "
        'is lost again, "held" is the mean time from which on it stays full to the end of the '
        "run, or the number of runs in which it does"
    )
    said.append(
        f"Evaluations ({results.about.get('evaluations', 'spaced logarithmically')}) are not timed"
    )
    said += [f"Length of a run: {lengths}" for lengths in [_lengths(results)] if lengths]
    if unit == "seconds":
        said.append("The time of pPCA is that of its priming so far and of one refining")
    else:
        said.append(
            "A step is a mini-batch for EigenGame and Oja's method and a pass over all data for "
            "the others"
        )
    said += [
        "Bold: the least mean of the paper's lines, and of the last three, which are not in the "
        "paper: block Krylov with tolerance V, the same with a certificate that proves V, and a "
        "full decomposition",
        f"Machine: {results.machine}; runs: {_counts(results)}",
    ]
    return [f"{sentence}." for sentence in said]


def _lengths(results: Results) -> str:
    """Return the number of steps of the longest run of each priming on each set."""
    said = []
    for method in PAPERS:
        found = [(TITLES[key], results.length(key, method)) for key in SETS]
        parts = [f"{title} {length:,}" for title, length in found if length is not None]
        said += [f"{NAMES[method]}: {', '.join(parts)}"] if parts else []
    return "; ".join(said)


def missing_from(results: Results, extras: Sequence[int | None] = (ALONE, *EXTRAS)) -> list[str]:
    """Return the names of lines of the tables that the folder lacks."""
    said = []
    lines: list[Line] = [(method, extra) for method in PAPERS for extra in extras]
    for method, extra in [*lines, *((method, 0) for method in OURS)]:
        if method in PAPERS and published(SETS[0], method, extra, THRESHOLDS[0]) is None:
            continue
        lacking = [key for key in SETS if _lacks(results, key, method, extra)]
        if lacking:
            every = len(lacking) == len(SETS)
            where = "all sets" if every else ", ".join(TITLES[key] for key in lacking)
            said.append(f"{_full_name(method, extra)} on {where}")
    return said


def _lacks(results: Results, dataset: str, method: str, extra: int | None) -> bool:
    """Return whether runs are missing; pPCA without its priming is not listed a second time."""
    there = results.time(dataset, method, extra, THRESHOLDS[0]) is not None
    if method in OURS or extra is ALONE:
        return not there
    return not there and not _lacks(results, dataset, method, ALONE)


def _full_name(method: str, extra: int | None) -> str:
    own = label(method, extra)
    return f"{NAMES[method]} {own.strip()}" if own.startswith(" ") else own


def _counts(results: Results) -> str:
    """Return the number of runs, naming the lines that have fewer."""
    seen = {
        (name, method, extra): len(results.traces(name, method, extra))
        for name in SETS
        for method in PAPERS
        for extra in (ALONE, *EXTRAS)
    }
    counts = sorted({count for count in seen.values() if count}, reverse=True)
    if len(counts) < 2:
        return str(counts[0]) if counts else "none"
    fewer = [
        f"{_full_name(method, extra)} on {TITLES[name]} {count}"
        for (name, method, extra), count in seen.items()
        if 0 < count < counts[0]
    ]
    return f"{counts[0]}, but {', '.join(fewer)}"


def _beside(name: str, results: Results, thresholds: Sequence[float], lines: list[Line]) -> Table:
    """Return a table with cells ``ours / the paper's / the paper's over ours``."""
    sections = []
    for threshold in thresholds:
        rows = []
        for method, extra in lines:
            if method in PAPERS:
                cells = [_beside_cell(results, key, method, extra, threshold) for key in SETS]
                rows.append([Cell(label(method, extra)), *map(Cell, cells)])
        sections.append((f"V = {name_of(threshold)}", rows))
    said = [
        f"Each cell: our seconds / the paper's / the paper's over ours. {NOT_REACHED}: at least "
        f"one run did not reach the streak; {MISSING}: not run, or not in the paper.",
        f"Ours: {results.machine}; the paper's: NVIDIA RTX 3090.",
    ]
    title = "Our seconds to a streak of 16 beside the paper's"
    return Table(name, title, ["", *(results.title(key) for key in SETS)], sections, said)


def _beside_cell(
    results: Results, dataset: str, method: str, extra: int | None, threshold: float
) -> str:
    ours = results.time(dataset, method, extra, threshold)
    theirs = published(dataset, method, extra, threshold)
    cells = [number(None if ours is None else ours.mean)]
    cells.append(as_printed(theirs and theirs.mean))
    cells.append(number(ratio(theirs and theirs.mean, ours and ours.mean), 2, "×"))
    return " / ".join(cells)


def as_printed(value: float | None) -> str:
    """Return a number of the paper with its two decimals."""
    known = value is not None and math.isfinite(value)
    return f"{value:.2f}" if known else number(value)


def ratio(above: float | None, below: float | None) -> float | None:
    """Return the quotient of two times; NaN or ``None`` if one of them is."""
    if above is None or below is None:
        return None
    return above / below if below else math.nan


def number(value: float | None, significant: int = 3, unit: str = "") -> str:
    """Return a number with ``significant`` digits; ``n.a.`` for NaN, a dash for ``None``."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return NOT_REACHED
    return f"{value:.{digits(value, significant)}f}{unit}"


def _csv(results: Results, thresholds: Sequence[float], lines: list[Line]) -> str:
    columns = [
        *("set", "method", "l", "refined", "V", "setting", "runs", "reached"),
        *("seconds", "seconds_sd", "steps", "steps_sd"),
        *("held", "held_seconds", "held_steps", "held_at_ends", "held_at_ends_steps"),
        *("paper_seconds", "paper_spread", "n", "d", "origin", "run_length", "machine"),
    ]
    return tidy(columns, _tidy_rows(results, thresholds, lines))


def _tidy_rows(
    results: Results, thresholds: Sequence[float], lines: list[Line]
) -> Iterator[list[object]]:
    for threshold in thresholds:
        for method, extra in lines:
            for key in SETS:
                seconds = results.time(key, method, extra, threshold)
                steps = results.time(key, method, extra, threshold, "steps")
                theirs = published(key, method, extra, threshold)
                if seconds is None and theirs is None:
                    continue
                none = Summary(math.nan, math.nan, 0, 0)
                seconds, steps = seconds or none, steps or none
                held, held_steps, ends = (
                    results.time(key, method, extra, threshold, *which) or none
                    for which in (("seconds", "held"), ("steps", "held"), ("steps", "ends"))
                )
                about = results.data.get(key, {})
                setting = results.setting(key, method) if method in PAPERS else None
                yield [
                    *(key, method, extra or 0, int(extra is not ALONE)),
                    *(f"pi/{round(math.pi / threshold)}", setting, seconds.runs, seconds.reached),
                    *(seconds.mean, seconds.spread, steps.mean, steps.spread),
                    *(held.reached, held.mean, held_steps.mean, ends.reached, ends.mean),
                    *(theirs or (None, None)),
                    *(about.get("n"), about.get("d"), about.get("origin")),
                    results.length(key, method) if method in PAPERS else None,
                    results.machine,
                ]


def settings_files(results: Results) -> dict[str, str]:
    """Return the files of the best settings, with the errors of all settings, name to text."""
    sections = []
    for method, grid in PAPERS.items():
        name = "ε" if method == "power_method" else "learning rate"
        rows = []
        for setting in grid:
            errors = [_error(results, key, method, setting) for key in SETS]
            if any(error is not None for error in errors):
                cells = [
                    _error_cell(error, results.setting(key, method), setting)
                    for key, error in zip(SETS, errors, strict=True)
                ]
                rows.append([Cell(f"{name} {setting:g}"), *cells])
        if rows:
            sections.append((NAMES[method], rows))
    said = [
        "Angular error in radians, summed over runs, steps (by the trapezoid rule between "
        "evaluations) and components; a component that was not found counts as a right angle. "
        "Bold: the least error, whose setting is used.",
    ]
    if not sections:
        said = ["The grid was not run: every priming was run at one setting only."]
    head = ["", *(results.title(key) for key in SETS)]
    table = Table("settings", "The best setting of each priming", head, sections, said)
    rows_ = [
        [dataset, method, setting, error, int(setting == results.setting(dataset, method))]
        for (dataset, method), errors_ in results.errors.items()
        for setting, error in errors_.items()
    ]
    columns = ["set", "method", "setting", "angular_error", "kept"]
    return {
        "settings.md": table.markdown(),
        "settings.tex": table.latex(),
        "settings.csv": tidy(columns, rows_),
    }


def _error_cell(error: float | None, kept: float | None, setting: float) -> Cell:
    """Return a cell that has a value, and so is bold, only for the setting that is used."""
    if error is None:
        return Cell(MISSING)
    is_kept = kept is not None and math.isclose(kept, setting, rel_tol=1e-4)
    return Cell(f"{error:.4g}", error if is_kept else math.nan)


def _error(results: Results, dataset: str, method: str, setting: float) -> float | None:
    for found, error in results.errors.get((dataset, method), {}).items():
        if math.isclose(found, setting, rel_tol=1e-4):
            return error
    return None
