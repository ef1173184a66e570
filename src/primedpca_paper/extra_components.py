"""Study of extra directions: the cost of reaching a streak of ``k`` for each number ``l``.

``python -m primedpca_paper.extra_components --out DIR [--quick | --check]`` writes
``extra_components.csv`` (a row for each run), ``extra_components_choices.csv`` (the choice of
each rule), ``extra_components.md`` (tables) and, if matplotlib is installed,
``extra_components.png``.  With ``--sizes`` the numbers of features and rows vary, and
``extra_sizes.csv`` is written.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from primedpca._core.atomic_files import atomic_write
from primedpca._core.orthonormal import basis_of
from primedpca._operator.operator import Centred
from primedpca._solve.prime import prime
from primedpca._solve.refine import refine_span
from primedpca.metrics import longest_correct_streak
from primedpca.priming import BlockKrylov, EigenGame, Krasulina, MuEigenGame, Oja, SubspaceIteration
from primedpca.priming.extra_directions import best_extra, by_count, by_rate
from primedpca.result import Snapshot
from primedpca_paper.datasets import data_folder, mnist
from primedpca_paper.extra_report import Choice, Row, write_report

__all__ = [
    "OVERHEADS",
    "PRIMINGS",
    "SUITES",
    "Choice",
    "Problem",
    "Row",
    "Suite",
    "main",
    "study",
    "study_sizes",
]

#: Number of columns for primings that read all rows, and for those that read mini-batches.
WIDE, NARROW = 1000, 200
N_ROWS, BATCH = 4000, 500
#: Fixed cost of a visit, in columns: none, the cost measured for dense data in memory, and
#: roughly that of a slow disk or a network.
OVERHEADS = (0.0, 16.0, 200.0)
#: Number of rows from which the spectrum of a stochastic run is estimated.
SAMPLE = 1000

#: Priming, threshold of the streak in radians, and maximum number of visits.
PRIMINGS: dict[str, tuple[Any, float, int]] = {
    "subspace_iteration": (SubspaceIteration(), math.pi / 128, 300),
    "block_krylov": (BlockKrylov(), math.pi / 128, 300),
    "eigengame": (EigenGame(steps=250), math.pi / 8, 250),
    "oja": (Oja(steps=250), math.pi / 8, 250),
    "mu_eigengame": (MuEigenGame(steps=250), math.pi / 8, 250),
    "krasulina": (Krasulina(steps=250), math.pi / 8, 250),
}


def _flat_tail(k: int, d: int) -> np.ndarray:
    """1/i up to k, then nearly constant at 0.8 to 0.75 of the k-th."""
    return np.concatenate([1 / np.arange(1, k + 1), np.linspace(0.8, 0.75, d - k) / k])


def _step(k: int, d: int) -> np.ndarray:
    return np.concatenate([np.linspace(1.0, 0.5, k), np.linspace(0.1, 0.05, d - k)])


#: Variances ``(d,)``, largest first, given ``k`` and ``d``.
SPECTRA: dict[str, Callable[[int, int], np.ndarray]] = {
    "exponential": lambda k, d: np.pad(np.geomspace(1.0, 1e-3, 200), (0, d - 200), mode="edge"),
    "linear": lambda k, d: np.pad(np.linspace(1.0, 1e-3, 200), (0, d - 200), mode="edge"),
    "1/i": lambda k, d: 1 / np.arange(1, d + 1),
    "1/sqrt(i)": lambda k, d: 1 / np.sqrt(np.arange(1, d + 1)),
    "step": _step,
    "flat tail": _flat_tail,
}


#: Spectra on which no rule was fitted.
UNSEEN: dict[str, Callable[[int, int], np.ndarray]] = {
    "1/i^2": lambda k, d: np.arange(1.0, d + 1) ** -2,
    "i^-0.75": lambda k, d: np.arange(1.0, d + 1) ** -0.75,
    "0.95^i": lambda k, d: np.maximum(0.95 ** np.arange(d), 1e-6),
    "step after 2k": lambda k, d: np.where(np.arange(d) < 2 * k, 1, 0.2) * (1 - np.arange(d) / 2e3),
    "noise": lambda k, d: 1 / np.arange(1, d + 1) + 0.5 / k,
}


@dataclass(frozen=True)
class Suite:
    """Spectra, numbers of components, numbers of extra directions and seeds of a study."""

    spectra: dict[str, Callable[[int, int], np.ndarray]]
    counts: tuple[int, ...]
    extras: tuple[int, ...] = (0, 1, 2, 4, 8, 16, 32, 64)
    seeds: int = 3

    def extras_for(self, k: int) -> list[int]:
        """Return the numbers of extra directions; the full study adds k/4 and k."""
        return sorted({*self.extras, *((-(-k // 4), k) if self.seeds > 1 else ())})


SUITES = {
    "full": Suite(SPECTRA, (4, 16, 50)),
    "quick": Suite(SPECTRA, (4,), (0, 4, 16), seeds=1),
    "check": Suite(UNSEEN, (8, 30), (0, 2, 4, 8, 16, 32, 64), seeds=1),
}


#: Numbers of features and rows of the study with ``--sizes``; 16 components.
SIZES = (
    *((d, N_ROWS) for d in (100, 200, 400, 800, 1600)),
    *((NARROW, n) for n in (1000, 16_000)),
)
SIZES_SPECTRA = ("1/i", "1/sqrt(i)", "flat tail")
SIZES_PRIMINGS = ("subspace_iteration", "block_krylov", "eigengame", "oja")
SIZES_EXTRAS = (0, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Problem:
    """A spectrum and data with this spectrum; the true components are the axes.

    Every priming starts from random directions, so that the results do not depend on where the
    components point.  The diagonal ``root`` ``(d, d)`` therefore represents all data with this
    covariance for primings that read all rows; ``rows`` ``(n, d')`` have the leading variances
    and are for mini-batches.
    """

    name: str
    k: int
    spectrum: np.ndarray
    scores: np.ndarray

    def n_features(self, name: str) -> int:
        """Return the number of features of the data that a priming reads."""
        whole = PRIMINGS[name][0].visits == "whole"
        return self.spectrum.size if whole else self.scores.shape[1]

    def root(self, d: int) -> Any:
        """Return the diagonal matrix whose covariance has the first ``d`` variances."""
        values = self.spectrum[:d]
        return sp.diags_array(np.sqrt(values * values.size), format="csr")

    def rows(self) -> np.ndarray:
        """Return Gaussian rows whose covariance has exactly the first variances."""
        n, d = self.scores.shape
        found: np.ndarray = (self.scores * np.sqrt(self.spectrum[:d] * n)).astype(np.float32)
        return found


def problems(suite: Suite) -> Iterator[Problem]:
    """Yield every spectrum with every k; MNIST's too if ``PRIMEDPCA_DATA`` names a folder."""
    scores = np.random.default_rng(0).standard_normal((N_ROWS, NARROW))
    scores = np.linalg.qr(scores)[0]
    spectra, folder = dict(suite.spectra), data_folder()
    if folder is not None and suite.spectra is SPECTRA:
        seen = _mnist_spectrum(folder)
        spectra["MNIST"] = lambda k, d: seen
    for name, spectrum in spectra.items():
        for k in suite.counts:
            yield Problem(name, k, spectrum(k, WIDE), scores)


def _mnist_spectrum(folder: Path) -> np.ndarray:
    images = mnist(folder).astype(np.float32)
    images -= images.mean(axis=0)
    values = np.linalg.eigvalsh((images.T @ images).astype(np.float64))[::-1]
    spectrum: np.ndarray = np.maximum(values / values[0], 0.0)
    return spectrum


def study(suite: Suite) -> Iterator[Row | Choice]:
    """Yield the result of every run and the choice of every rule."""
    for problem in problems(suite):
        for name in PRIMINGS:
            yield from choices(problem, name)
            for seed in range(suite.seeds):
                for extra in suite.extras_for(problem.k):
                    yield _fixed(problem, name, extra, seed)
                if name == "subspace_iteration":
                    for overhead in OVERHEADS:
                        first = by_count(problem.k, name, overhead=overhead)
                        yield _adaptive(problem, "adaptive", first, 2, overhead, seed)
                        yield _adaptive(problem, "adaptive from k + 4", 4, 3, overhead, seed)


def study_sizes(seeds: int = 3, sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[Row]:
    """Yield the result of every run with other numbers of features and rows."""
    for d, n in sizes:
        scores = np.linalg.qr(np.random.default_rng(0).standard_normal((n, d)))[0]
        for spectrum in SIZES_SPECTRA:
            problem = Problem(spectrum, 16, SPECTRA[spectrum](16, d), scores)
            for name in SIZES_PRIMINGS:
                # The number of rows does not matter to a priming that reads all of them.
                if n == N_ROWS or PRIMINGS[name][0].visits != "whole":
                    for seed in range(seeds):
                        for extra in SIZES_EXTRAS:
                            yield _fixed(problem, name, extra, seed)


def choices(problem: Problem, name: str) -> Iterator[Choice]:
    """Yield the number of extra directions that each rule chooses."""
    k = problem.k
    accelerated = name != "subspace_iteration"  # Krylov, or momentum
    seen = _seen(problem, name)
    for c in OVERHEADS:
        taken = {
            "4": 4,
            "max(4, k/4)": max(4, -(-k // 4)),
            "max(10, k)": max(10, k),
            "formula": by_count(k, name, overhead=c),
        }
        for rule, values in (("rate, true", problem.spectrum), ("rate, seen", seen)):
            taken[rule] = by_rate(values, k, overhead=c, limit=64, accelerated=accelerated)
        yield from (Choice(problem.name, name, k, rule, c, taken[rule]) for rule in taken)


def _seen(problem: Problem, name: str) -> np.ndarray:
    """Return Ritz values after three passes with k + 4 directions, or variances of 1000 rows."""
    priming, _, _ = PRIMINGS[name]
    if priming.visits == "whole":
        options: dict[str, Any] = {"max_passes": 3, "random_state": 0, "center": False}
        *_, last = prime(problem.root(WIDE), priming, problem.k + 4, **options)
        return np.asarray(last.state.variances)
    sample = problem.rows()[:SAMPLE].astype(np.float64)
    return np.linalg.svd(sample, compute_uv=False) ** 2 / SAMPLE


def _fixed(problem: Problem, name: str, extra: int, seed: int) -> Row:
    """Run with a fixed number of extra directions."""
    priming, threshold, limit = PRIMINGS[name]
    p = problem.k + extra
    whole = priming.visits == "whole"
    d = problem.n_features(name)
    snapshots = prime(
        problem.root(d) if whole else problem.rows(),
        priming,
        p,
        batch_size=BATCH,
        max_passes=limit,
        random_state=seed,
        center=False,
    )
    visits = _first_hit(problem, d, snapshots, threshold)
    # Only subspace iteration pays a pass for refining that the others do not: block Krylov knows
    # its Ritz vectors, and a stochastic run refines once at its end.
    visits += name == "subspace_iteration"
    n = 0 if whole else problem.scores.shape[0]
    return Row(problem.name, name, problem.k, "fixed", extra, 0.0, seed, visits, visits * p, d, n)


def _adaptive(
    problem: Problem, rule: str, first: int, passes: int, overhead: float, seed: int
) -> Row:
    """Run subspace iteration, choosing its width from the Ritz values of the first passes."""
    name, k, root = "subspace_iteration", problem.k, problem.root(WIDE)
    priming, threshold, limit = PRIMINGS[name]
    options: dict[str, Any] = {"random_state": seed, "center": False}
    look = list(prime(root, priming, k + first, max_passes=passes, **options))
    before, p, later = _first_hit(problem, WIDE, iter(look), threshold), k + first, 1.0
    if before > passes:
        before, last = passes, look[-1]
        p = k + best_extra(last.state.variances, k, name, overhead=overhead)
        more = prime(root, priming, p, max_passes=limit, start=last.directions, **options)
        later += _first_hit(problem, WIDE, more, threshold)
    columns = before * (k + first) + later * p
    return Row(problem.name, name, k, rule, p - k, overhead, seed, before + later, columns, WIDE)


def _first_hit(problem: Problem, d: int, snapshots: Iterator[Snapshot], threshold: float) -> float:
    """Return the number of visits until refining gives a streak of ``k``, or infinity."""
    data = Centred(problem.root(d), center=False)
    truth = np.eye(problem.k, data.shape[1])
    due = 1
    for snapshot in snapshots:
        if snapshot.step < due:
            continue
        due = max(snapshot.step + 1, math.ceil(1.04 * snapshot.step))
        basis = basis_of(snapshot.directions.astype(np.float64))
        found = refine_span(data, basis, problem.k, 0)
        if longest_correct_streak(found.components, truth, threshold) == problem.k:
            return snapshot.step
    return math.inf


def write_rows(rows: list[Any], path: Path) -> None:
    """Write dataclasses of one kind as a CSV file."""
    with atomic_write(path, overwrite=True) as draft, draft.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(rows[0])])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def main(arguments: list[str] | None = None) -> None:
    """Run the study and write its results."""
    parser = argparse.ArgumentParser(prog="python -m primedpca_paper.extra_components")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    kind = parser.add_mutually_exclusive_group()
    for name, text in (
        ("quick", "k = 4 and three l"),
        ("check", "spectra that no rule was fitted on"),
        ("sizes", "other numbers of features and rows"),
    ):
        kind.add_argument(f"--{name}", dest="suite", action="store_const", const=name, help=text)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.suite == "sizes":
        write_rows(list(study_sizes()), options.out / "extra_sizes.csv")
        return
    found = list(study(SUITES[options.suite or "full"]))
    rows = [row for row in found if isinstance(row, Row)]
    taken = [choice for choice in found if isinstance(choice, Choice)]
    write_rows(rows, options.out / "extra_components.csv")
    write_rows(taken, options.out / "extra_components_choices.csv")
    write_report(rows, taken, options.out)


if __name__ == "__main__":
    main()
