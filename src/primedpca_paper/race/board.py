"""The results of a race: rows as CSV, the table of places, curves, and one HTML page."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from primedpca_paper.protocol import THRESHOLDS
from primedpca_paper.race.running import Entry
from primedpca_paper.result_files import number_cell, write_whole
from primedpca_paper.traces import name_of

__all__ = ["Place", "places", "read_rows", "write_board"]

#: Thresholds of the table; the rows have all.
SHOWN = tuple(THRESHOLDS[i] for i in (0, 2, 4, 7))
FIRST = ("data", "n", "d", "stored", "k", "method", "kind", "setting", "seed", "step")
NUMBERS = ("seconds", "passes", "gflop")
LAST = ("note", "machine", "date")
KINDS = {"priming": "alone", "refined": "refined", "solver": ""}
Key = tuple[str, str, str, str]  # data, method, kind, machine


class Place(NamedTuple):
    """A method on a data set: medians over seeds, NaN if a run did not get there.

    Attributes
    ----------
    reached, held : tuple of float
        Seconds to the first full streak at every threshold of :data:`SHOWN`, and to the first
        evaluation from which on the streak stays full.
    passes, gflop : float
        Up to the first full streak at the third threshold.
    best : float
        Smallest worst angle of the median run, in radians.
    """

    key: Key
    reached: tuple[float, ...]
    held: tuple[float, ...]
    passes: float
    gflop: float
    best: float
    seeds: int
    note: str


def places(rows: Iterable[Entry]) -> list[Place]:
    """Return a place for every data set, method, kind and machine, the fastest first."""
    groups: dict[Key, dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row.data, row.method, row.kind, row.machine][row.seed].append(row)
    found = [_place(key, list(runs.values())) for key, runs in groups.items()]

    def order(place: Place) -> Any:
        times = [math.inf if math.isnan(t) else t for t in reversed(place.reached)]
        return place.key[0], times[1], times[0], times[2:], place.best

    return sorted(found, key=order)


def _place(key: Key, runs: list[list[Entry]]) -> Place:
    for run in runs:
        run.sort(key=lambda row: row.step)
    reached = tuple(_median([_first(run, v) for run in runs], "seconds") for v in SHOWN)
    held = tuple(_median([_held(run, v) for run in runs], "seconds") for v in SHOWN)
    at = [_first(run, SHOWN[2]) for run in runs]
    best = statistics.median(min(float(row.angles.max()) for row in run) for run in runs)
    note = next((row.note for run in runs for row in run if row.note), "")
    return Place(
        key, reached, held, _median(at, "passes"), _median(at, "gflop"), best, len(runs), note
    )


def _first(run: Sequence[Entry], threshold: float) -> Entry | None:
    full = [row for row in run if row.streak(threshold) >= row.k]
    return min(full, key=lambda row: row.seconds, default=None)


def _held(run: Sequence[Entry], threshold: float) -> Entry | None:
    """Return the first row from which on every row has a full streak."""
    found: Entry | None = None
    for row in reversed(run):
        if row.streak(threshold) < row.k:
            break
        found = row
    return found


def _median(rows: Sequence[Entry | None], name: str) -> float:
    if any(row is None for row in rows):
        return math.nan
    return float(statistics.median(vars(row)[name] for row in rows))


# -- files -----------------------------------------------------------------------------------


def _header(k: int) -> list[str]:
    streaks = [f"streak {name_of(v)}" for v in THRESHOLDS]
    return [*FIRST, *NUMBERS, *streaks, *LAST, *(f"angle {i + 1}" for i in range(k))]


def rows_text(rows: Sequence[Entry]) -> str:
    """Return the rows as CSV; angles are in radians and counted from 1."""
    k = max((row.k for row in rows), default=0)
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(_header(k))
    for row in rows:
        held = vars(row)
        angles = [number_cell(a) for a in row.angles] + [""] * (k - row.k)
        lines.writerow(
            [
                *(held[name] for name in FIRST),
                *(number_cell(held[name]) for name in NUMBERS),
                *(row.streak(v) for v in THRESHOLDS),
                *(" ".join(str(held[name]).split()) for name in LAST),
                *angles,
            ]
        )
    return out.getvalue()


def read_rows(path: Path) -> list[Entry]:
    """Read rows that a race wrote, on this machine or another."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    try:
        return [_row(line) for line in lines]
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a file of rows that a race wrote ({error}).") from error


def _row(line: dict[str, str]) -> Entry:
    k = int(line["k"])
    first: list[Any] = [line[name] for name in FIRST]
    for name in ("n", "d", "stored", "k", "seed", "step"):
        first[FIRST.index(name)] = int(line[name])
    numbers: list[Any] = [float(line[name] or "nan") for name in NUMBERS]
    angles: Any = np.array([float(line[f"angle {i + 1}"]) for i in range(k)])
    return Entry(*first, *numbers, angles, *(line[name] for name in LAST))  # type: ignore[call-arg]


def table_text(found: Sequence[Place]) -> str:
    """Return the places as CSV: seconds, NaN as n.a."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    shown = [f"{word} {name_of(v)}" for v in SHOWN for word in ("reached", "held")]
    lines.writerow(
        ["data", "method", "", *shown, "passes", "gflop", "best", "seeds", "note", "machine"]
    )
    for place in found:
        data, method, kind, machine = place.key
        times = [t for pair in zip(place.reached, place.held, strict=True) for t in pair]
        cells = [_cell(t) for t in (*times, place.passes, place.gflop)]
        note = " ".join(place.note.split())
        lines.writerow(
            [data, method, KINDS[kind], *cells, f"{place.best:.3g}", place.seeds, note, machine]
        )
    return out.getvalue()


def _cell(value: float) -> str:
    return "n.a." if math.isnan(value) else f"{value:.3g}"


def write_board(rows: Sequence[Entry], origins: dict[str, str], out: Path) -> list[Path]:
    """Write ``rows.csv``, ``table.csv`` and ``page.html``.

    Parameters
    ----------
    rows : sequence of Entry
    origins : dict of str to str
        How the true components of each data set were computed.
    out : Path
        Folder.
    """
    found = places(rows)
    written = []
    for name, text in (
        ("rows.csv", rows_text(rows)),
        ("table.csv", table_text(found)),
        ("page.html", page(rows, found, origins)),
    ):
        write_whole(out / name, text)
        written.append(out / name)
    return written


# -- the page --------------------------------------------------------------------------------


def page(rows: Sequence[Entry], found: Sequence[Place], origins: dict[str, str]) -> str:
    """Return the page: for every data set a table that sorts by its headings, and the curves."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("primedpca_paper.race", "."),
        autoescape=True,
        undefined=StrictUndefined,
    )
    sets = []
    for name in dict.fromkeys(row.data for row in rows):
        own = [row for row in rows if row.data == name]
        sets.append(
            {
                "name": name,
                "size": f"{own[0].n:,} × {own[0].d:,}, {own[0].stored:,} stored entries",
                "k": own[0].k,
                "origin": origins.get(name, "as the merged results say"),
                "places": [place for place in found if place.key[0] == name],
                "curves": curves(own),
            }
        )
    machines = list(dict.fromkeys(row.machine for row in rows))
    template = environment.get_template("page.html.jinja")
    return template.render(
        sets=sets,
        machines=machines,
        kinds=KINDS,
        cell=_cell,
        nan=math.isnan,
        degrees=math.degrees,
        shown=[name_of(v) for v in SHOWN],
    )


def look(i: int) -> dict[str, Any]:
    """Return colour, dashes and mark of the i-th curve; no two of the first 70 are alike."""
    dashes = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)))
    return {
        "color": f"C{i % 10}",
        "linestyle": dashes[i // 10 % 3],
        "marker": "os^vDPX"[i % 7],
        "markersize": 3,
    }


def curves(rows: Sequence[Entry]) -> str:
    """Return an SVG picture of the worst angle over time, the median over seeds, for each method.

    A point is at the median seconds of its step.
    """
    from primedpca.plots.canvas import new_figure
    from primedpca_paper.style import house_style

    groups: dict[Any, dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.kind != "priming" and math.isfinite(row.seconds):
            groups[row.method, row.machine][row.step].append(row)
    with house_style():
        figure = new_figure(8.4, max(3.6, 0.22 * len(groups) + 0.6))
        axis = figure.subplots()
        for i, ((method, _), steps) in enumerate(groups.items()):
            x = [statistics.median(row.seconds for row in own) for own in steps.values()]
            y = [statistics.median(row.angles.max() for row in own) for own in steps.values()]
            order = np.argsort(x)
            axis.plot(
                np.array(x)[order],
                np.degrees(np.maximum(np.array(y)[order], 1e-8)),
                label=method,
                **look(i),
            )
        for threshold in SHOWN:
            axis.axhline(math.degrees(threshold), color="0.6", linewidth=0.6)
            axis.annotate(
                name_of(threshold), (1, math.degrees(threshold)), xycoords=("axes fraction", "data")
            )
        axis.set(xscale="log", yscale="log", xlabel="time (s)", ylabel="worst angle (degrees)")
        if groups:
            figure.legend(loc="outside right center", fontsize=7.5, handlelength=3.5)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
