"""What refining buys, at one glance: each of the paper's primings before and after."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from primedpca._operator.operator import Centred
from primedpca._solve.prime import prime
from primedpca._solve.refine import refine
from primedpca.experiments.datasets import data_folder, find_format, mnist, synthetic
from primedpca.metrics import angles, longest_correct_streak
from primedpca.priming import EigenGame, Oja, PowerMethod

__all__ = ["Proven", "Row", "demo_sets", "prove_demo", "run_demo"]

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
        Leading components within pi/8 of the truth, as the priming left them.
    streaks : list of int
        The same after refining, with 0, 2 and 4 extra directions.
    angle_before, angles : float, list of float
        The worst angle of the 16 components, in degrees, likewise.
    """

    data: str
    priming: str
    steps: int
    streak_before: int
    streaks: list[int]
    angle_before: float
    angles: list[float]

    def as_dict(self) -> dict[str, Any]:
        """The row as plain numbers."""
        return asdict(self)


@dataclass(frozen=True)
class Proven:
    """What ``PrimedPCA`` makes of a data set when nothing is asked for but 16 components.

    Attributes
    ----------
    plan : str
    bound : float
        How far any of the components is from the truth at most, in degrees.
    true : float
        How far one is, in degrees.
    """

    data: str
    plan: str
    seconds: float
    bound: float
    true: float
    certificate: str

    def as_dict(self) -> dict[str, Any]:
        """The row as plain numbers."""
        return asdict(self)


def prove_demo() -> Iterator[Proven]:
    """Fit every set with everything at its default; the reference is LAPACK in float64."""
    from primedpca.estimator import PrimedPCA

    for name, x in demo_sets():
        clock = time.perf_counter()
        pca = PrimedPCA(N_COMPONENTS, random_state=0).fit(x)
        seconds = time.perf_counter() - clock
        bound = float(np.degrees(pca.certificate_.counted_bounds().max()))
        true = _worst(pca.components_, _reference(x))
        yield Proven(name, str(pca.plan_), seconds, bound, true, str(pca.certificate_))


def demo_sets() -> Iterator[tuple[str, np.ndarray]]:
    """The digits that ship with scikit-learn, the paper's synthetic sets, MNIST where it is."""
    from sklearn.datasets import load_digits

    folder = data_folder()  # first of all, so that a mistake in it is told at once
    yield "digits 1797 x 64", load_digits().data
    yield "exponential 5000 x 50", synthetic("exponential")[0]
    yield "linear 5000 x 50", synthetic("linear")[0]
    if folder is not None and find_format("mnist", folder):
        yield "MNIST 60000 x 784", mnist(folder)


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
