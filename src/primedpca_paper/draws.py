"""The power method on other draws of the linear set.

The paper draws its synthetic sets and does not state how.  The variances of our set are those of
the spectrum exactly, so that all gaps are equal.  Rows that are drawn from a normal distribution
with this spectrum have other sample variances, and gaps that differ from draw to draw.  The power
method ends when a step is shorter than ε, which leaves an angle of about ε over the relative gap,
so that n.a. depends on the draw::

    python -m primedpca_paper.draws docs/results/draws.csv
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from primedpca._core.arrays import like_block
from primedpca_paper.datasets import SHAPES
from primedpca_paper.lockstep import LockstepPower
from primedpca_paper.protocol import N_COMPONENTS, PAPERS, THRESHOLDS
from primedpca_paper.records import write_whole
from primedpca_paper.tabular import tidy
from primedpca_paper.traces import ALONE

__all__ = ["COLUMNS", "DRAWS", "Draw", "draw_rows", "draws_file", "power_on", "read_draws"]

#: Number of draws, and runs of each.
DRAWS, RUNS = 20, 10
#: Passes after which a run ends that has not converged.
MOST = 30_000
#: Thresholds of the paper's table 2.
SHOWN = (THRESHOLDS[0], THRESHOLDS[2], THRESHOLDS[4])
COLUMNS = [
    *("draw", "epsilon", "smallest_gap", "last_gap", "runs"),
    *(f"alone pi/{round(math.pi / v)}" for v in SHOWN),
    *(f"l=0 pi/{round(math.pi / v)}" for v in SHOWN),
]


class Draw(NamedTuple):
    """One draw of the set, and the runs of the power method that reach each streak."""

    draw: int
    epsilon: float
    smallest_gap: float  # between neighbours of the first 17 variances
    last_gap: float  # between variances 16 and 17
    runs: int
    alone: tuple[int, ...]
    refined: tuple[int, ...]

    @property
    def line(self) -> list[object]:
        """The line of the CSV file."""
        gaps = [round(self.smallest_gap, 2), round(self.last_gap, 2)]
        return [self.draw, self.epsilon, *gaps, self.runs, *self.alone, *self.refined]

    def has_streak(self, extra: int | None, threshold: float) -> bool:
        """Return whether all runs reach a streak."""
        counts = self.alone if extra is ALONE else self.refined
        return counts[SHOWN.index(threshold)] == self.runs


def draw_rows(seed: int) -> np.ndarray:
    """Draw centred rows of the linear set from a normal distribution."""
    n, d = SHAPES["linear"]
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = rng.standard_normal((n, d)) * np.sqrt(np.linspace(1000.0, 1.0, d)) @ axes.T
    centred: np.ndarray = rows - rows.mean(axis=0)
    return centred


def power_on(rows: np.ndarray, draw: int, epsilon: float, runs: int = RUNS) -> Draw:
    """Run the power method on centred rows and count the runs that reach each streak."""
    # R of X = QR has the same covariance as X and takes a hundredth of the time.
    square = np.linalg.qr(rows)[1]
    values, vectors = np.linalg.eigh(square.T @ square / (len(rows) - 1))
    values, truth = values[::-1], vectors[:, ::-1][:, :N_COMPONENTS]
    x = square.astype(np.float32)
    many = LockstepPower(x, like_block(x, x.shape[1]), [epsilon] * runs, N_COMPONENTS, range(runs))
    while not many.finished.all() and many.step < MOST:
        many.run_to(many.step + 50)
    found = [np.asarray(v, dtype=np.float64) for v in many.vectors]
    gaps = values[:N_COMPONENTS] - values[1 : N_COMPONENTS + 1]
    return Draw(
        *(draw, epsilon, float(gaps.min()), float(gaps[-1]), runs),
        _reached([_angles(v, truth) for v in found]),
        _reached([_angles(_refined(v, square), truth) for v in found]),
    )


def _refined(v: np.ndarray, square: np.ndarray) -> np.ndarray:
    basis = np.linalg.qr(v)[0]
    inside = square @ basis
    turned: np.ndarray = basis @ np.linalg.eigh(inside.T @ inside)[1][:, ::-1]
    return turned


def _angles(v: np.ndarray, truth: np.ndarray) -> np.ndarray:
    cosines = np.abs(np.sum(v * truth, axis=0)) / np.linalg.norm(v, axis=0)
    angles: np.ndarray = np.arccos(np.minimum(cosines, 1.0))
    return angles


def _reached(angles: list[np.ndarray]) -> tuple[int, ...]:
    return tuple(sum(bool((one < v).all()) for one in angles) for v in SHOWN)


def draws_file(draws: int = DRAWS) -> str:
    """Return the CSV file: every draw at the two largest epsilons of the paper's grid."""
    found = [
        power_on(rows, draw, epsilon)
        for draw in range(draws)
        for rows in [draw_rows(draw)]
        for epsilon in PAPERS["power_method"][:2]
    ]
    return tidy(COLUMNS, [one.line for one in found])


def read_draws(path: Path) -> list[Draw]:
    """Read the file that :func:`draws_file` makes."""
    found = []
    for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        counts = [int(line[name]) for name in COLUMNS[5:]]
        found.append(
            Draw(
                int(line["draw"]),
                float(line["epsilon"]),
                float(line["smallest_gap"]),
                float(line["last_gap"]),
                int(line["runs"]),
                tuple(counts[: len(SHOWN)]),
                tuple(counts[len(SHOWN) :]),
            )
        )
    return found


def main(words: list[str] | None = None) -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m primedpca_paper.draws")
    parser.add_argument("file", type=Path, help="the CSV file to write")
    write_whole(parser.parse_args(words).file, draws_file())
    return 0


if __name__ == "__main__":
    sys.exit(main())
