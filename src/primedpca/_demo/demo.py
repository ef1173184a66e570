"""The paper's primings before and after refining, and a comparison with scikit-learn's solvers."""

from __future__ import annotations

import statistics
import time
import timeit
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from primedpca._core.arrays import is_sparse
from primedpca._demo.data import data_folder, mnist, synthetic
from primedpca._operator.operator import Centred
from primedpca._solve.audit import certify
from primedpca._solve.prime import prime
from primedpca._solve.refine import refine
from primedpca.metrics import angles, longest_correct_streak
from primedpca.priming import EigenGame, Oja, PowerMethod
from primedpca.sources import as_source
from primedpca.sources.base import whole

N_COMPONENTS = 16
EXTRAS = (0, 2, 4)
THRESHOLD = np.pi / 8
STEPS = 100
SOLVERS = ("auto", "covariance_eigh", "randomized", "arpack")


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


@dataclass(frozen=True)
class Race:
    """One solver on one data set.

    Attributes
    ----------
    seconds : float
        Median time of a fit.
    bound : float
        Proven bound on the largest angle of a component to the exact one, in radians.
    proves : bool
        Whether the solver itself gives such a bound.
    """

    data: str
    solver: str
    seconds: float
    bound: float
    proves: bool


def races() -> Iterator[tuple[str, np.ndarray]]:
    """Yield scikit-learn's digits (small, fast decay) and synthetic data (larger, slow decay)."""
    from sklearn.datasets import load_digits

    yield "digits, 1797 x 64", load_digits().data
    n, d = 8000, 500
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    drawn = rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -0.5
    yield f"drawn with deviations i^-1/2, {n} x {d}", drawn @ turn


def race(name: str, data: Any, k: int, repeats: int) -> list[Race]:
    """Fit ``k`` components with every solver at its defaults.

    Parameters
    ----------
    name : str
        Name of the data, for the table.
    data : data of shape (n, d)
        Anything that :func:`primedpca.as_source` reads; loaded into memory first.
    k : int
        Number of components.
    repeats : int
        Number of timed fits of each solver.
    """
    source = as_source(data)
    if not 1 <= k < min(source.shape):
        raise ValueError(
            f"`n_components`={k} must be less than min(n_samples, n_features)={min(source.shape)} "
            "in a comparison with ARPACK. Use a smaller value."
        )
    from sklearn.decomposition import PCA

    from primedpca.estimator import PrimedPCA

    x = whole(source)
    models: dict[str, Any] = {"PrimedPCA": PrimedPCA(k, random_state=0)}
    # Only two of scikit-learn's solvers accept sparse data.
    for solver in ("covariance_eigh", "arpack") if is_sparse(x) else SOLVERS:
        models[f"scikit-learn, {solver}"] = PCA(k, svd_solver=solver, random_state=0)
    rows = []
    for solver, model in models.items():
        seconds = _median_time(lambda model=model: model.fit(x), repeats)
        proof = certify(x, model.components_, random_state=1)
        # Components of equal variance have no single direction, so that their span is compared.
        worst = float(proof.counted_bounds().max())
        rows.append(Race(name, solver, seconds, worst, solver == "PrimedPCA"))
    return rows


def _median_time(fit: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a fit; a first fit, not timed, warms the caches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit()
        return statistics.median(timeit.repeat(fit, repeat=repeats, number=1))
