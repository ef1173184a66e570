"""Numbers in the prose of pages, computed from result files.

A page holds ``<!--= EXPRESSION -->TEXT<!--=-->``, which readers see as TEXT.  The command
``python -m primedpca_paper.prose`` replaces each TEXT by the value of its EXPRESSION, and with
``--check`` reports those that differ.  An expression calls the functions of :class:`Facts`; what
follows ``|`` is a format: ``.2f`` and the like, or ``3s`` for three significant digits.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from primedpca_paper import protocol
from primedpca_paper.agreement import TAKEN
from primedpca_paper.comparison import (
    Tidy,
    agreement,
    comparison_files,
    gain,
    like_for_like,
    means_of,
    paper_gain,
)
from primedpca_paper.datasets import PAPER_SHAPES, SETS, SHAPES, TITLES
from primedpca_paper.extra_components import N_ROWS, NARROW, SIZES
from primedpca_paper.protocol import EXTRAS, PAPERS, THRESHOLDS
from primedpca_paper.published import ABSTRACT, published
from primedpca_paper.records import streak_of
from primedpca_paper.result_files import write_whole
from primedpca_paper.tables import number
from primedpca_paper.traces import ALONE, name_of

__all__ = ["MARK", "Facts", "changed", "stray_numbers", "updated"]

#: Order of the reasons why n.a. differs.
REASONS = (
    "run length",
    "rate",
    "ε",
    "mini-batches",
    "draw of the set",
    "touched",
    "not explained",
)
EXTRA_ROWS = "docs/results/extra_components/extra_components.csv.gz"
SIZES_ROWS = "docs/results/extra_components/extra_sizes.csv.gz"
MARK = re.compile(r"<!--= (.*?) -->(.*?)<!--=-->", re.S)
FORMAT = re.compile(r"(.*?)\s*\|\s*([^|\"')\]]+)", re.S)

#: Text that may hold digits without being a measurement: names, settings of the paper in its
#: notation, places in the paper, code and links.
NAMES_WITH_DIGITS = [
    r"```.*?```",
    r"`[^`]*`",
    r"\[\d+\]\([^)]*\)",
    r"\]\([^)]*\)",
    r"<!--.*?-->",
    r"^\s*\d+\. ",
    r"π/\d+",
    r"\bk = (?:16|5|8)\b",
    r'"[^"\n]*"|\btable-\d|\bfigure-\d+',
    r"\bl = 0, 2, 4\b",
    r"\bl = [024]\b",
    r"n − 1\b|pixels from 0 to 1",
    r"\b10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+",
    r"CIFAR-10|ResNet-\d+|[hH]200|RTX 3090|A100|float(?:32|64)|EPYC|[Pp]ropositions? \d(?: to \d)?",
    r"[Ff]igures? \d+(?:(?:,| and| to) \d+)*|[Tt]ables? \d(?: and \d)?|[Ss]ection \d(?:\.\d)?",
    r"\((?:19|20)\d\d\)|, (?:19|20)\d\d\)|1987[-–]20\d\d",
    r"p?PCA_\d",
]


class Facts:
    """Functions that expressions call.

    Parameters
    ----------
    root : Path
        The repository.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.tidy = cache(self._tidy)
        self.rows = cache(self._rows)
        self.json = cache(self._json)

    # -- files -------------------------------------------------------------------------------

    def _tidy(self, folder: str) -> Tidy:
        return Tidy(self.root / "docs" / "results" / folder / "table-2.csv")

    def _rows(self, file: str) -> list[dict[str, str]]:
        path = self.root / file
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))

    def _json(self, file: str) -> Any:
        return json.loads((self.root / file).read_text(encoding="utf-8"))

    def matching(self, file: str, **where: Any) -> list[dict[str, str]]:
        """Return the rows of a CSV file whose cells are these."""
        wanted = {name: str(value) for name, value in where.items()}
        rows = self.rows(file)
        return [row for row in rows if all(row[name] == value for name, value in wanted.items())]

    def cell(self, file: str, column: str, **where: Any) -> float:
        """Return the number in one cell; the row must be the only one that matches."""
        (row,) = self.matching(file, **where)
        return float(row[column] or "nan")

    def count(self, file: str, **where: Any) -> int:
        """Return the number of rows that match."""
        return len(self.matching(file, **where))

    def printed(self, file: str, pattern: str) -> float:
        """Return the number that the first group of a pattern finds in a text file."""
        found = re.search(pattern, (self.root / file).read_text(encoding="utf-8"))
        assert found is not None, f"{file} does not hold {pattern!r}."
        return float(found[1].replace(",", ""))

    def largest(self, file: str, column: str, **where: Any) -> float:
        """Return the largest number in a column."""
        return max(float(row[column]) for row in self.matching(file, **where))

    # -- the tables --------------------------------------------------------------------------

    def time(
        self, folder: str, dataset: str, method: str, extra: Any, v: int, unit: str = "seconds"
    ) -> float:
        """Return our mean time to a streak of 16 at pi/v."""
        found = self.tidy(folder).time(dataset, method, _extra(extra), math.pi / v, unit)
        return math.nan if found is None else found.mean

    def reached(self, folder: str, dataset: str, method: str, extra: Any, v: int) -> int:
        """Return the number of runs that reached the streak at pi/v."""
        found = self.tidy(folder).time(dataset, method, _extra(extra), math.pi / v)
        return 0 if found is None else found.reached

    def paper(self, dataset: str, method: str, extra: Any, v: int) -> float:
        """Return the paper's mean time."""
        found = published(dataset, method, _extra(extra), math.pi / v)
        return math.nan if found is None else found.mean

    def gain(
        self, folder: str, dataset: str, method: str, extra: Any = "best", unit: str = "seconds"
    ) -> float:
        """Return our speed-up at pi/8."""
        return gain(self.tidy(folder), dataset, method, extra, unit)

    def paper_gain(self, dataset: str, method: str, extra: Any = "best") -> float:
        """Return the paper's speed-up at pi/8."""
        return paper_gain(dataset, method, extra)

    def mean_gain(
        self, folder: str, method: str, extra: Any = "best", unit: str = "seconds"
    ) -> float:
        """Return the mean of our speed-ups over the sets where they are known."""
        found = [gain(self.tidy(folder), name, method, extra, unit) for name in SETS]
        known = [value for value in found if math.isfinite(value)]
        return sum(known) / len(known)

    def alike(self, folder: str, method: str, extra: Any = "best", whose: str = "seconds") -> float:
        """Return a mean speed-up over the sets of both: "seconds", "steps" or "paper"."""
        seconds, steps, paper, _ = means_of(self.tidy(folder), method, extra)
        return {"seconds": seconds, "steps": steps, "paper": paper}[whose]

    def agreeing(self, folder: str) -> int:
        """Return the number of cells of the paper's table 2 in which n.a. agrees."""
        return sum(cell.agrees for cell in agreement(self.tidy(folder)))

    def fitted(self, folder: str, choice: str) -> int:
        """Return the agreeing cells of all sets: "ours", "length", "epsilon", "rates" or "cells".

        Each but "ours" is fitted to the paper's cells, on top of the one before it.
        """
        columns = ("ours", "length", "epsilon", "rates", "cells")
        before = 4 + columns.index(choice)
        file = f"docs/results/{folder}/agreement.md"
        return int(self.printed(file, rf"\| all \|(?:[^|\n]*\|){{{before}}} (\d+) \|"))

    def protocol(self, folder: str, title: str = TAKEN, which: str = "") -> int:
        """Return the agreeing cells of a protocol: all, ", printed times" or ", n.a."."""
        file = f"docs/results/{folder}/agreement.csv"
        return int(self.cell(file, "agreeing", question=f"protocol{which}", choice=title))

    def protocols(self, folder: str) -> str:
        """Return the table of protocols."""
        text = (self.root / f"docs/results/{folder}/agreement.md").read_text(encoding="utf-8")
        return _rows_of(
            [
                [cell.strip() for cell in line.strip("| ").split("|")]
                for line in text.partition("\n- ")[0].split("\n")
                if line.startswith("|")
            ]
        )

    def all_cells_agree(self, row: dict[str, str]) -> bool:
        """Return whether n.a. of the power method on a draw of a set is the paper's."""
        return all(
            (row[f"{line} pi/{v}"] == row["runs"])
            == math.isfinite(self.paper(row["set"], "power_method", line.removeprefix("l="), v))
            for line in ("alone", "l=0")
            for v in (8, 32, 128)
        )

    def reasons(self, folder: str, file: str = "agreement-cells") -> str:
        """Return the table of the cells where n.a. differs, by what makes them agree."""
        rows = self.rows(f"docs/results/{folder}/{file}.csv")
        lines = [["reason", "cells", "which"], ["---"] * 3]
        for reason in dict.fromkeys(REASONS) | dict.fromkeys(row["reason"] for row in rows):
            mine = [row for row in rows if row["reason"] == reason]
            lines_of: dict[str, list[str]] = {}
            for row in mine:
                line = row["method"].replace("_", " ").replace("eigengame", "EigenGame")
                line = line.replace("oja", "Oja") + (
                    " alone" if row["l"] == "alone" else f", l = {row['l']}"
                )
                name = self.tidy(folder).title(row["set"]).partition(" (")[0]
                place = f"{name}, {line}"
                lines_of.setdefault(place, []).append(row["V"].replace("pi", "π"))
            which = "; ".join(f"{place}: {', '.join(vs)}" for place, vs in lines_of.items())
            if mine:
                lines.append([reason, str(len(mine)), which])
        return _rows_of(lines)

    def like_for_like(self, folder: str) -> str:
        """Return the table of speed-ups over the same sets and with the same l."""
        return _block(like_for_like(self.tidy(folder)).markdown())

    def speed_ups(self, folder: str) -> str:
        """Return the table of speed-ups on each set, the paper's and ours."""
        tidy = self.tidy(folder)
        head = ["speed-up at π/8", *(tidy.title(name) for name in SETS)]
        lines = [head, ["---"] * len(head)]
        for method, title in (("eigengame", "EigenGame"), ("oja", "Oja")):
            paper = [number(paper_gain(name, method, "best"), 3) for name in SETS]
            lines.append([f"over {title}, the paper's", *paper])
            for unit in ("seconds", "steps"):
                ours = [number(gain(tidy, name, method, "best", unit), 3) for name in SETS]
                lines.append([f"over {title}, ours in {unit}", *ours])
        return _rows_of(lines)

    def best_line(self, folder: str, dataset: str, v: int) -> float:
        """Return the least time of the paper's lines, as run here."""
        lines = [(method, extra) for method in PAPERS for extra in ("alone", *EXTRAS)]
        times = [self.time(folder, dataset, method, extra, v) for method, extra in lines]
        return min((value for value in times if math.isfinite(value)), default=math.nan)

    def krylov(self, folder: str, sets: tuple[str, ...] = SETS) -> str:
        """Return the table of the best of the paper's lines over block Krylov, for every V."""
        tidy, lines = self.tidy(folder), []
        head = ["V", *(tidy.title(name) for name in sets)]
        for threshold in THRESHOLDS:
            v = round(math.pi / threshold)
            own = [self.time(folder, name, "block_krylov", 0, v) for name in sets]
            best = [self.best_line(folder, name, v) for name in sets]
            cells = [number(a / b, 2) for a, b in zip(best, own, strict=True)]
            lines.append([name_of(threshold), *cells])
        return _rows_of([head, ["---"] * len(head), *lines])

    def streak_at(self, folder: str, method: str, step: int, seed: int = 0, v: int = 8) -> int:
        """Return the streak at pi/v of a large-scale run."""
        rows = self.rows(f"docs/results/large_scale/{folder}/rows--s{seed}.csv")
        (row,) = (r for r in rows if (r["method"], r["step"]) == (method, str(step)))
        angles = [float(row[f"angle {i + 1}"]) for i in range(8)]
        return streak_of(np.array(angles), math.pi / v)

    def streaks_between(
        self, folder: str, method: str, first: int, v: int = 8, seeds: int = 3
    ) -> tuple[int, int]:
        """Return the least and the largest streak from a step on, over all seeds."""
        found = [
            self.streak_at(folder, method, int(row["step"]), seed, v)
            for seed in range(seeds)
            for row in self.rows(f"docs/results/large_scale/{folder}/rows--s{seed}.csv")
            if row["method"] == method and int(row["step"]) >= first
        ]
        return min(found), max(found)

    def trained(self, folder: str, seed: int) -> float:
        """Return the seconds of EigenGame's steps in a large-scale run."""
        rows = self.matching(
            f"docs/results/large_scale/{folder}/rows--s{seed}.csv", method="eigengame"
        )
        return max(float(row["seconds"]) for row in rows)

    def first_step(self, folder: str, method: str, streak: int = 8, seed: int = 0) -> int:
        """Return the first evaluated step of a large-scale run with a streak at pi/8."""
        rows = self.rows(f"docs/results/large_scale/{folder}/rows--s{seed}.csv")
        steps = [int(row["step"]) for row in rows if row["method"] == method]
        return next(s for s in steps if self.streak_at(folder, method, s, seed) >= streak)

    def visits(self, priming: str, data: str, k: int, extra: int) -> float:
        """Return the median number of passes or steps of the study of extra directions."""
        rows = self.matching(EXTRA_ROWS, priming=priming, data=data, k=k, rule="fixed", l=extra)
        return float(np.median([float(row["visits"]) for row in rows]))

    def best_extras(self, overhead: int = 16) -> str:
        """Return the table of the best l for each priming and k: median over spectra."""
        rows = self.matching(EXTRA_ROWS, rule="fixed")
        return _best_table(rows, "k", sorted({int(row["k"]) for row in rows}), overhead)

    def visits_by_size(self, priming: str, data: str, extra: int, d: int, n: int) -> float:
        """Return the median number of passes or steps in the study of sizes."""
        rows = self.matching(SIZES_ROWS, priming=priming, data=data, l=extra, d=d, n=n)
        return float(np.median([float(row["visits"]) for row in rows]))

    def best_extras_by_size(self, column: str, overhead: int = 16) -> str:
        """Return the same by the number of features "d" or of rows "n", for k = 16."""
        rows = self.rows(SIZES_ROWS)
        if column == "n":
            rows = [row for row in rows if row["n"] != "0" and row["d"] == "200"]
        else:
            rows = [row for row in rows if row["n"] in ("0", "4000")]
        return _best_table(rows, column, sorted({int(row[column]) for row in rows}), overhead)

    def names(self) -> dict[str, Any]:
        """Return everything that an expression may use."""
        own = {name: getattr(self, name) for name in dir(self) if not name.startswith("_")}
        settings = {name: getattr(protocol, name) for name in ("BATCH", "MOMENTUM", "STEPS")}
        plain = {"min": min, "max": max, "sum": sum, "len": len, "round": round, "abs": abs}
        more = {"SHAPES": SHAPES, "PAPER_SHAPES": PAPER_SHAPES, "TITLES": TITLES, "SETS": SETS}
        more |= {"SIZES": SIZES, "N_ROWS": N_ROWS, "NARROW": NARROW}
        types = {"float": float, "int": int, "ABSTRACT": ABSTRACT, "TAKEN": TAKEN}
        return {"__builtins__": {}, **own, **settings, **plain, **more, **types}


def _best_table(rows: list[dict[str, str]], column: str, sizes: list[int], overhead: int) -> str:
    """Return the best l of each priming by a column: median and range over spectra."""
    lines = []
    for priming in dict.fromkeys(row["priming"] for row in rows):
        cells = []
        for size in sizes:
            mine = [r for r in rows if (r["priming"], r[column]) == (priming, str(size))]
            found = [_best_extra(mine, data, overhead) for data in {r["data"] for r in mine}]
            known = [extra for extra in found if extra is not None]
            if known:
                low, middle, high = np.percentile(known, [0, 50, 100])
                cells.append(f"{middle:.0f} ({low:.0f} to {high:.0f})")
            else:
                cells.append("n.a.")
        lines.append([priming.replace("_", " "), *cells])
    head = ["priming", *(f"{column} = {size:,}" for size in sizes)]
    return _rows_of([head, ["---"] * len(head), *lines])


def _best_extra(rows: list[dict[str, str]], data: str, overhead: int) -> int | None:
    """Return the ``l`` of least cost, visits times their fixed cost and columns, if any is known.

    An ``l`` counts if most of its runs reached the streak.
    """
    visits: dict[int, list[float]] = {}
    for row in rows:
        if row["data"] == data:
            visits.setdefault(int(row["l"]), []).append(float(row["visits"]))
    costs = {
        extra: float(np.median(seen)) * (overhead + int(rows[0]["k"]) + extra)
        for extra, seen in visits.items()
        if math.isfinite(float(np.median(seen)))
    }
    return min(costs, key=lambda extra: (costs[extra], extra), default=None)


def _rows_of(lines: list[list[str]]) -> str:
    return _block("\n".join("| " + " | ".join(line) + " |" for line in lines))


def _extra(extra: Any) -> int | None:
    return ALONE if extra == "alone" else int(extra)


def _block(markdown: str) -> str:
    """Return the tables of a text as a block of their own; headings become bold lines."""
    lines = [line for line in markdown.strip().split("\n") if not line.startswith("# ")]
    text = "\n".join(f"**{line[3:]}**" if line.startswith("## ") else line for line in lines)
    return f"\n\n{text.strip()}\n\n"


def value_of(expression: str, names: dict[str, Any]) -> str:
    """Return the text of an expression with its format."""
    found = FORMAT.fullmatch(expression)
    code, form = (found[1], found[2].strip()) if found else (expression, "")
    value = eval(code, names)
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "n.a."
    if form.endswith("s"):
        return number(value, int(form[:-1]))
    return format(value, form)


def updated(text: str, facts: Facts) -> str:
    """Return a page with the value of every expression."""
    names = facts.names()
    return MARK.sub(lambda mark: f"<!--= {mark[1]} -->{value_of(mark[1], names)}<!--=-->", text)


def changed(text: str, facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield expression, text and value of every number that differs from its file."""
    names = facts.names()
    for expression, shown in MARK.findall(text):
        value = value_of(expression, names)
        if value != shown:
            yield expression, shown, value


def stray_numbers(text: str) -> list[str]:
    """Return the numbers of a page that no expression gives.

    Examples
    --------
    >>> from primedpca_paper.prose import stray_numbers
    >>> stray_numbers("At π/8 it is 7 times, not <!--= 2 * 3 -->6<!--=--> times faster.")
    ['7']
    """
    bare = MARK.sub(" ", text)
    for pattern in NAMES_WITH_DIGITS:
        bare = re.sub(pattern, " ", bare, flags=re.S | re.M)
    return re.findall(r"\d[\d.,]*\d|\d", bare)


def main(words: list[str] | None = None) -> int:
    """Update the pages, or with ``--check`` list what differs."""
    parser = argparse.ArgumentParser(prog="python -m primedpca_paper.prose")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository")
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args(words)
    facts, wrong = Facts(options.root), 0
    for folder in () if options.check else ("h200", "two_cores_quick"):
        for name, text in comparison_files(facts.tidy(folder)).items():
            write_whole(options.root / "docs" / "results" / folder / name, text)
    for page in sorted((options.root / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for expression, shown, value in changed(text, facts):
            wrong += 1
            print(
                f"{page.name}: {expression} is {value.strip()[:60]!r}, not {shown.strip()[:60]!r}"
            )
        if not options.check and (new := updated(text, facts)) != text:
            write_whole(page, new)
    return int(options.check and wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
