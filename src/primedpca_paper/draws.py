"""The power method on other draws of the linear set and of the documents of NIPS.

The paper draws its synthetic sets and does not state how.  The variances of our set are those of
the spectrum exactly, so that all gaps are equal.  Rows that are drawn from a normal distribution
with this spectrum have other sample variances, and gaps that differ from draw to draw.  The power
method ends when a step is shorter than ε, which leaves an angle of about ε over the relative gap,
so that n.a. depends on the draw.  The same holds for NIPS, where a stand-in takes the place of the
paper's documents: other draws are as many of its documents, drawn with replacement::

    python -m primedpca_paper.draws docs/results/draws.csv --device cuda
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from primedpca._core.arrays import like_block, to_numpy
from primedpca.sources.wrappers.on_device import torch_on
from primedpca_paper.datasets import SHAPES, load_set
from primedpca_paper.lockstep import LockstepPower
from primedpca_paper.protocol import N_COMPONENTS, PAPERS, THRESHOLDS
from primedpca_paper.records import write_whole
from primedpca_paper.tabular import tidy
from primedpca_paper.traces import ALONE

__all__ = ["COLUMNS", "DRAWN", "DRAWS", "Draw", "draw_rows", "draws_file", "power_on", "read_draws"]

#: Sets that are drawn again, and how.
DRAWN = {
    "linear": "sets drawn from a normal distribution",
    "nips": "sets of documents drawn with replacement",
}
#: Number of draws of each set, and runs of each.
DRAWS, RUNS = 20, 10
#: Components that the power method sees of data with fewer rows than columns.
LEADING = 500
#: Passes after which a run ends that has not converged.
MOST = 30_000
#: Thresholds of the paper's table 2.
SHOWN = (THRESHOLDS[0], THRESHOLDS[2], THRESHOLDS[4])
COLUMNS = [
    *("set", "draw", "epsilon", "smallest_gap", "last_gap", "runs"),
    *(f"alone pi/{round(math.pi / v)}" for v in SHOWN),
    *(f"l=0 pi/{round(math.pi / v)}" for v in SHOWN),
]


class Draw(NamedTuple):
    """One draw of the set, and the runs of the power method that reach each streak."""

    dataset: str
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
        counts = self.runs, *self.alone, *self.refined
        return [self.dataset, self.draw, self.epsilon, *gaps, *counts]

    def has_streak(self, extra: int | None, threshold: float) -> bool:
        """Return whether all runs reach a streak."""
        counts = self.alone if extra is ALONE else self.refined
        return counts[SHOWN.index(threshold)] == self.runs


def draw_rows(dataset: str, seed: int, folder: Path | None = None) -> np.ndarray:
    """Draw centred rows of a set of :data:`DRAWN` once more."""
    rng = np.random.default_rng(seed)
    if dataset == "linear":
        n, d = SHAPES["linear"]
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        rows = rng.standard_normal((n, d)) * np.sqrt(np.linspace(1000.0, 1.0, d)) @ axes.T
    else:
        counts = load_set(dataset, folder).X
        n = counts.shape[0]
        rows = counts[rng.integers(0, n, n)].toarray().astype(np.float64)
    centred: np.ndarray = rows - rows.mean(axis=0)
    return centred


def power_on(
    rows: np.ndarray,
    dataset: str,
    draw: int,
    epsilons: Sequence[float],
    runs: int = RUNS,
    device: str = "cpu",
) -> list[Draw]:
    """Run the power method on centred rows and count the runs that reach each streak."""
    # A square factor has the same variances and, but for a rotation, the same components as X;
    # products with it take a fraction of the time.
    n, d = rows.shape
    square = np.linalg.qr(rows)[1] if n >= d else _leading_factor(rows)
    values, vectors = np.linalg.eigh(square.T @ square / (n - 1))
    values, truth = values[::-1], vectors[:, ::-1][:, :N_COMPONENTS]
    gaps = values[:N_COMPONENTS] - values[1 : N_COMPONENTS + 1]
    x = square.astype(np.float32)
    if device != "cpu":
        x = torch_on(device).asarray(x, device=device)
    tolerances, seeds = np.repeat(epsilons, runs).tolist(), [*range(runs)] * len(epsilons)
    many = LockstepPower(x, like_block(x, x.shape[1]), tolerances, N_COMPONENTS, seeds)
    while not many.finished.all() and many.step < MOST:
        many.run_to(many.step + 50)
    found = to_numpy(many.vectors).astype(np.float64)
    alone = [_angles(v, truth) for v in found]
    refined = [_angles(_refined(v, square), truth) for v in found]
    return [
        Draw(
            *(dataset, draw, epsilon, float(gaps.min()), float(gaps[-1]), runs),
            _reached(alone[i * runs : (i + 1) * runs]),
            _reached(refined[i * runs : (i + 1) * runs]),
        )
        for i, epsilon in enumerate(epsilons)
    ]


def _leading_factor(rows: np.ndarray) -> np.ndarray:
    """Return a factor of the :data:`LEADING` largest variances, in the basis of their components.

    What a vector has in directions of less variance is lost within a few passes.
    """
    squares = np.linalg.eigvalsh(rows @ rows.T)[::-1][:LEADING]
    return np.diag(np.sqrt(np.maximum(squares, 0.0)))


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


def draws_file(draws: int = DRAWS, device: str = "cpu", folder: Path | None = None) -> str:
    """Return the CSV file: every draw at the two largest epsilons of the paper's grid."""
    grid, found = PAPERS["power_method"][:2], list[Draw]()
    for dataset in DRAWN:
        for draw in range(draws):
            rows = draw_rows(dataset, draw, folder)
            found += power_on(rows, dataset, draw, grid, device=device)
    return tidy(COLUMNS, [one.line for one in found])


def read_draws(path: Path) -> list[Draw]:
    """Read the file that :func:`draws_file` makes."""
    found = []
    for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        counts = [int(line[name]) for name in COLUMNS[6:]]
        found.append(
            Draw(
                line["set"],
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
    parser.add_argument("--device", default="cpu", help="cpu or a CUDA device, default cpu")
    asked = parser.parse_args(words)
    write_whole(asked.file, draws_file(device=asked.device))
    return 0


if __name__ == "__main__":
    sys.exit(main())
