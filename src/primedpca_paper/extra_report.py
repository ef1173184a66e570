"""Results of the study of extra directions, as tables and a figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from primedpca_paper.records import write_whole

__all__ = ["Choice", "Curves", "Row", "write_report"]

Key = tuple[str, str, int]  # priming, data, k


@dataclass(frozen=True)
class Row:
    """One run: ``visits`` until the streak is ``k`` (infinite if it was never reached)."""

    data: str
    priming: str
    k: int
    rule: str
    l: int  # noqa: E741
    overhead: float
    seed: int
    visits: float
    columns: float
    d: int = 0
    n: int = 0  # 0 for primings that read all rows: only the covariance matters


@dataclass(frozen=True)
class Choice:
    """Number ``l`` that a rule chooses if a visit has a fixed cost of ``overhead`` columns."""

    data: str
    priming: str
    k: int
    rule: str
    overhead: float
    l: int  # noqa: E741


class Curves:
    """Median number of visits as a function of ``l``, for each priming, spectrum and ``k``."""

    def __init__(self, rows: Iterable[Row]) -> None:
        runs: dict[Key, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.most: dict[str, float] = defaultdict(
            float
        )  # visits of any run that reached the streak
        for row in rows:
            if row.rule == "fixed":
                runs[row.priming, row.data, row.k][row.l].append(row.visits)
                if np.isfinite(row.visits):
                    self.most[row.priming] = max(self.most[row.priming], row.visits)
        self.visits = {
            key: {extra: float(np.median(seen)) for extra, seen in sorted(by.items())}
            for key, by in runs.items()
        }

    def cost(self, key: Key, overhead: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return every ``l``, its cost in columns, and whether the streak was reached.

        Where it was not, the cost is that of the longest run that reached it, a lower bound.
        """
        extra = np.array(list(self.visits[key]))
        visits = np.array(list(self.visits[key].values()))
        reached = np.isfinite(visits)
        visits = np.where(reached, visits, self.most[key[0]])
        return extra, visits * (overhead + key[2] + extra), reached

    def best(self, key: Key, overhead: float) -> float:
        """Return the lowest cost of any ``l``; infinite if none reached the streak."""
        _, cost, reached = self.cost(key, overhead)
        return float(np.min(cost[reached], initial=np.inf))

    def regret(self, choice: Choice) -> float:
        """Return the cost of the choice relative to that of the best ``l``, minus 1.

        The cost is interpolated between the ``l`` that were run, on logarithmic axes.
        """
        key = (choice.priming, choice.data, choice.k)
        best = self.best(key, choice.overhead)
        if not np.isfinite(best):
            return np.nan
        extra, cost, _ = self.cost(key, choice.overhead)
        at = np.interp(np.log1p(choice.l), np.log1p(extra), np.log(cost))
        return max(0.0, float(np.exp(at)) / best - 1)


def write_report(rows: list[Row], taken: list[Choice], folder: Path) -> None:
    """Write ``extra_components.md`` and, with matplotlib, ``extra_components.png``."""
    curves = Curves(rows)
    text = "\n\n".join([regret_table(rows, taken, curves), *visit_tables(curves)])
    write_whole(folder / "extra_components.md", text + "\n")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return
    _figure(curves, folder / "extra_components.png")


def regret_table(rows: list[Row], taken: list[Choice], curves: Curves) -> str:
    """Return mean and worst regret of each rule over all spectra and ``k``, in percent."""
    found: dict[tuple[str, float], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for choice in taken:
        found[choice.priming, choice.overhead][choice.rule].append(curves.regret(choice))
    for (rule, overhead), regrets in _regrets_of_runs(rows, curves).items():
        found["subspace_iteration", overhead][rule] = regrets
    names = list(dict.fromkeys(name for by in found.values() for name in by))
    lines = [_line(["priming", "c", *names]), _line(["---"] * (len(names) + 2))]
    for (priming, overhead), by in found.items():
        cells = [_mean_and_worst(by.get(name, [])) for name in names]
        lines.append(_line([priming, f"{overhead:g}", *cells]))
    return "\n".join(lines)


def _regrets_of_runs(rows: list[Row], curves: Curves) -> dict[tuple[str, float], list[float]]:
    """Return the regrets of runs that changed their width, the cost before that included."""
    costs: dict[tuple[str, float, Key], list[float]] = defaultdict(list)
    for row in rows:
        if row.rule != "fixed":
            key = (row.priming, row.data, row.k)
            costs[row.rule, row.overhead, key].append(row.visits * row.overhead + row.columns)
    found: dict[tuple[str, float], list[float]] = defaultdict(list)
    for (rule, overhead, key), seen in costs.items():
        best = curves.best(key, overhead)
        if np.isfinite(best):
            found[rule, overhead].append(max(0.0, float(np.median(seen)) / best - 1))
    return found


def _mean_and_worst(regrets: list[float]) -> str:
    known = [100 * regret for regret in regrets if not np.isnan(regret)]
    return f"{np.mean(known):.0f} / {np.max(known):.0f}" if known else ""


def visit_tables(curves: Curves) -> Iterable[str]:
    """Yield the visits to a streak of ``k``, one table for each priming and ``k``."""
    for priming, k in dict.fromkeys((key[0], key[2]) for key in curves.visits):
        keys = [key for key in curves.visits if (key[0], key[2]) == (priming, k)]
        extras = list(curves.visits[keys[0]])
        lines = [_line([f"{priming}, k = {k}", *(f"l = {extra}" for extra in extras)])]
        lines.append(_line(["---"] * (len(extras) + 1)))
        for key in keys:
            seen = curves.visits[key].values()
            cells = [f"{visits:.0f}" if np.isfinite(visits) else "-" for visits in seen]
            lines.append(_line([key[1], *cells]))
        yield "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _figure(curves: Curves, path: Path) -> None:
    """Plot visits and the cost for data in memory against ``l``, for three primings."""
    from matplotlib.figure import Figure

    names = [("subspace_iteration", "passes"), ("block_krylov", "passes"), ("eigengame", "steps")]
    counts = {key[2] for key in curves.visits}
    k = 16 if 16 in counts else max(counts)
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True)
    for column, (name, unit) in enumerate(names):
        keys = [key for key in curves.visits if (key[0], key[2]) == (name, k)]
        for key in keys:
            extra, visits, reached = curves.cost(key, 0.0)
            visits = visits / (k + extra)
            cost = visits * (16.0 + k + extra)
            best = curves.best(key, 16.0)
            axes[0, column].plot(extra[reached], visits[reached], marker=".", label=key[1])
            axes[1, column].plot(extra[reached], cost[reached] / best, marker=".")
        axes[0, column].set(title=name, yscale="log", ylabel=unit)
        axes[1, column].set(yscale="log", xlabel="extra directions l", ylabel="cost / best")
        axes[1, column].set(xscale="symlog", xticks=extra, xticklabels=map(str, extra))
        axes[1, column].set_xticks([], minor=True)
        _plain_ticks(axes[0, column], (3, 5, 10, 20, 50, 100, 200))
        _plain_ticks(axes[1, column], (1, 1.5, 2, 3, 5, 10))
    figure.suptitle(f"Visits to a streak of k = {k}, and their cost at 16 + k + l columns each")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=90)


def _plain_ticks(axis: Any, ticks: tuple[float, ...]) -> None:
    """Set the ticks that are inside the axis limits, written without exponents."""
    low, high = axis.get_ylim()
    seen = [tick for tick in ticks if low <= tick <= high]
    axis.set_yticks(seen, [f"{tick:g}" for tick in seen])
    axis.set_yticks([], minor=True)
    axis.grid(alpha=0.3)
