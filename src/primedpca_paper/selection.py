"""Choice of the best setting of a priming by the paper's rule, section 5.

The best setting has the least angular error, summed over runs, steps and components.  Runs are
evaluated after some of their steps only, so that the sum over steps is by the trapezoid rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from primedpca_paper.records import Row

__all__ = ["angular_errors", "best_setting"]

Pair = tuple[str, str]  # set, method


def best_setting(rows: Iterable[Row], dataset: str, method: str) -> float:
    """Return the setting with the least summed angular error; of equal ones, the larger.

    Parameters
    ----------
    rows : iterable of Row
        Rows of the grid; those of other sets and methods, refined ones and those with extra
        directions are ignored.
    dataset : str
        Name of the set.
    method : str
        Name of the priming.
    """
    errors = angular_errors(rows).get((dataset, method))
    if not errors:
        raise ValueError(
            f"No runs of {method!r} on {dataset!r} to choose a setting from. Run the grid."
        )
    return min(errors, key=lambda setting: (errors[setting], -setting))


def angular_errors(rows: Iterable[Row]) -> dict[Pair, dict[float, float]]:
    """Return the summed angular error of every setting, largest setting first.

    A component that was not found, or is not finite, counts as a right angle.  A run that
    converged early counts with its last result up to the last step of any run of that set and
    method.  Only seeds that all settings of a set and method share are summed.

    Returns
    -------
    dict of (set, method) to dict of setting to float
        Errors in radians times steps.
    """
    runs: dict[Pair, dict[float, dict[int, list[Row]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in rows:
        if not row.refined and row.run.extra == 0:
            pair = (row.run.dataset, row.run.method)
            runs[pair][row.run.setting][row.run.seed].append(row)
    return {pair: _sums(pair, found) for pair, found in runs.items()}


def _sums(pair: Pair, runs: dict[float, dict[int, list[Row]]]) -> dict[float, float]:
    seeds = set.intersection(*(set(found) for found in runs.values()))
    if not seeds:
        raise ValueError(
            f"The settings of {pair[1]!r} on {pair[0]!r} have no seed in common, so that their "
            "errors cannot be compared. Finish the grid with --resume."
        )
    last = max(row.step for found in runs.values() for seed in seeds for row in found[seed])
    return {
        setting: sum(_error(runs[setting][seed], last) for seed in sorted(seeds))
        for setting in sorted(runs, reverse=True)
    }


def _error(rows: list[Row], last: int) -> float:
    """Return the error of one run, from its first evaluation to step ``last``."""
    rows = sorted(rows, key=lambda row: row.step)
    steps = np.array([row.step for row in rows] + [last], dtype=np.float64)
    errors = [np.nan_to_num(row.angles, nan=np.pi / 2, posinf=np.pi / 2).sum() for row in rows]
    return float(np.trapezoid([*errors, errors[-1]], steps))
