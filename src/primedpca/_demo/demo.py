"""The improvement from refining: each of the paper's primings before and after."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from primedpca._demo.data import data_folder, mnist, synthetic
from primedpca._operator.operator import Centred
from primedpca._solve.prime import prime
from primedpca._solve.refine import refine
from primedpca.metrics import angles, longest_correct_streak
from primedpca.priming import EigenGame, Oja, PowerMethod

N_COMPONENTS = 16
EXTRAS = (0, 2, 4)
THRESHOLD = np.pi / 8
STEPS = 100


@dataclass(frozen=True)
class Row:
    """One data set and priming.

    Attributes
    ----------
    streak_before : int
        Number of leading components within pi/8 of the true ones, before refining.
    streaks : list of int
        The same after refining, with 0, 2 and 4 extra directions.
    angle_before : float
        Largest angle of the 16 components to the true ones before refining, in degrees.
    angles : list of float
        The same after refining, with 0, 2 and 4 extra directions.
    """

    data: str
    priming: str
    steps: int
    streak_before: int
    streaks: list[int]
    angle_before: float
    angles: list[float]


@dataclass(frozen=True)
class Proven:
    """Result of ``PrimedPCA(16)`` with the defaults on one data set.

    Attributes
    ----------
    plan : str
        Plan of the fit, in words.
    bound : float
        Proven bound on the largest angle of a component to the true one, in degrees.
    true : float
        That largest angle itself, in degrees.
    """

    data: str
    plan: str
    seconds: float
    bound: float
    true: float
    certificate: str


def prove_demo() -> Iterator[Proven]:
    """Fit every set with the defaults; the reference is LAPACK in float64."""
    from primedpca.estimator import PrimedPCA

    for name, x in demo_sets():
        clock = time.perf_counter()
        pca = PrimedPCA(N_COMPONENTS, random_state=0).fit(x)
        seconds = time.perf_counter() - clock
        bound = float(np.degrees(pca.certificate_.counted_bounds().max()))
        true = _worst(pca.components_, _reference(x))
        yield Proven(name, str(pca.plan_), seconds, bound, true, str(pca.certificate_))


def demo_sets() -> Iterator[tuple[str, np.ndarray]]:
    """Yield scikit-learn's digits, the paper's synthetic sets, and MNIST if it is at hand."""
    from sklearn.datasets import load_digits

    folder = data_folder()  # first, so that a mistake in it is reported at once
    yield "digits 1797 x 64", load_digits().data
    yield "exponential 5000 x 50", synthetic("exponential")[0]
    yield "linear 5000 x 50", synthetic("linear")[0]
    if folder is not None and (digits := mnist(folder)) is not None:
        yield "MNIST 60000 x 784", digits


def run_demo() -> Iterator[Row]:
    """Run every priming on every set; the reference is LAPACK in float64."""
    primings = (EigenGame(steps=STEPS), Oja(steps=STEPS), PowerMethod(epsilon=1e-3))
    for name, x in demo_sets():
        data, reference = Centred(x), _reference(x)
        for priming in primings:
            yield _compare(name, data, priming, reference)


def _compare(name: str, data: Centred, priming: Any, reference: np.ndarray) -> Row:
    before, streaks, worst, steps = None, [], [], 0
    for extra in EXTRAS:
        *_, last = prime(data, priming, N_COMPONENTS + extra, max_passes=60, random_state=0)
        if before is None:
            before, steps = last.directions.T[:N_COMPONENTS], last.step
        refined = refine(data, last.directions, N_COMPONENTS).components
        streaks.append(longest_correct_streak(refined, reference, THRESHOLD))
        worst.append(_worst(refined, reference))
    streak = longest_correct_streak(before, reference, THRESHOLD)
    kind = type(priming).__name__
    return Row(name, kind, steps, streak, streaks, _worst(before, reference), worst)


def _reference(x: np.ndarray) -> np.ndarray:
    return np.linalg.eigh(np.cov(x.T, dtype=np.float64))[1].T[::-1][:N_COMPONENTS]


def _worst(components: Any, reference: np.ndarray) -> float:
    return float(np.degrees(angles(components, reference).max()))
