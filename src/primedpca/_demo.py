"""The computations of ``primedpca demo`` and ``primedpca bench``, and their data.

May import the whole library except the command line.
"""

from __future__ import annotations

import gzip
import math
import os
import statistics
import struct
import time
import timeit
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from primedpca._core.arrays import is_sparse
from primedpca._operator.operator import Centred
from primedpca._solve.audit import certify
from primedpca._solve.prime import prime
from primedpca._solve.refine import refine
from primedpca.metrics import angles, longest_correct_streak
from primedpca.priming import EigenGame, Oja, PowerMethod
from primedpca.sources import as_source
from primedpca.sources.base import whole
from primedpca.sources.files.numpy_files import npz_source

N_COMPONENTS = 16
EXTRAS = (0, 2, 4)
THRESHOLD = np.pi / 8
STEPS = 100
MNIST_SHAPE = (60_000, 784)
IDX_MAGIC = 0x803  # unsigned bytes in three dimensions
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
    if min(source.shape) < 2:
        size = "{} x {}".format(*source.shape)
        raise ValueError(f"`X` is {size}; ARPACK needs at least 2 rows and 2 columns.")
    if not 1 <= k < min(source.shape):
        raise ValueError(f"`n_components`={k} must be less than {min(source.shape)} for ARPACK.")
    from sklearn.decomposition import PCA

    from primedpca.estimator import PrimedPCA

    x = whole(source)
    models: dict[str, Any] = {"PrimedPCA": PrimedPCA(k, random_state=0)}
    # Only two of scikit-learn's solvers accept sparse data.
    for solver in ("covariance_eigh", "arpack") if is_sparse(x) else SOLVERS:
        models[f"scikit-learn, {solver}"] = PCA(k, svd_solver=solver, random_state=0)
    rows = []
    for solver, model in models.items():
        seconds = _median_time(partial(model.fit, x), repeats)
        if not model.explained_variance_.any():  # ARPACK refuses to begin with zero
            raise ValueError("All columns of `X` are constant. Compare solvers on data that vary.")
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


def data_folder() -> Path | None:
    """Return the folder that the variable ``PRIMEDPCA_DATA`` names, or ``None`` if it is unset."""
    name = os.environ.get("PRIMEDPCA_DATA")
    if not name:
        return None
    folder = Path(name)
    if not folder.is_dir():
        raise FileNotFoundError(f"`PRIMEDPCA_DATA`={name!r} is not a folder. Correct or unset it.")
    return folder


def mnist(folder: Path) -> np.ndarray | None:
    """Return MNIST's training images, uint8, one per row; ``None`` if ``folder`` has no file."""
    for file, read in MNIST.items():
        path = folder / file
        if path.is_file():
            try:
                return read([path], MNIST_SHAPE)
            except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"{path} is not MNIST: {error}. Download it again.") from error
    return None


def synthetic(
    kind: Literal["exponential", "linear"],
    *,
    n_samples: int = 5000,
    n_features: int = 50,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the paper's synthetic data, whose variances fall from 1000 to 1.

    Parameters
    ----------
    kind : {"exponential", "linear"}
        How the variances fall.
    n_samples : int, default=5000
        Number of rows.
    n_features : int, default=50
        Number of columns.
    seed : int, default=0
        Seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Centred rows; their sample covariance (divided by ``n - 1``) has exactly these variances.
    components : ndarray of shape (n_features, n_features)
        True principal components, as rows.
    """
    if kind not in ("exponential", "linear"):
        raise ValueError(f"`kind`={kind!r} must be 'exponential' or 'linear'.")
    if n_samples <= n_features:
        raise ValueError(f"`n_samples`={n_samples} must exceed `n_features`={n_features}.")
    fall = np.geomspace if kind == "exponential" else np.linspace
    spectrum = fall(1000.0, 1.0, n_features)
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n_samples, n_features))
    scores = np.linalg.qr(noise - noise.mean(axis=0))[0]
    components = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0].T
    return scores * np.sqrt(spectrum * (n_samples - 1)) @ components, components


def read_idx(paths: Sequence[Path], shape: tuple[int, int]) -> np.ndarray:
    """Read the images of one IDX file, gzipped or not.

    Returns
    -------
    ndarray of shape (n, d), uint8
    """
    path = paths[0]
    end = 16 + math.prod(shape)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        raw = stream.read(end + 1)
    if len(raw) < 16:
        raise ValueError(f"it ends after {len(raw)} bytes, inside its header")
    magic, n, height, width = struct.unpack(">4I", raw[:16])
    if magic != IDX_MAGIC:
        raise ValueError(f"it starts with {magic:#010x}, where IDX images have {IDX_MAGIC:#010x}")
    if (n, height * width) != shape:
        raise ValueError(f"it declares {n} images of {height} x {width} pixels, not shape {shape}")
    if len(raw) != end:
        longer = "longer" if len(raw) > end else "shorter"
        raise ValueError(f"it is {longer} than its header says")
    return np.frombuffer(raw, np.uint8, offset=16).reshape(shape)


def read_images(paths: Sequence[Path], shape: tuple[int, int]) -> np.ndarray:
    """Read images as rows, from the array ``X`` of each ``.npz`` file in turn.

    Returns
    -------
    ndarray of shape (n, d), uint8
    """
    n, d = shape
    try:
        # Without a cache only headers are read here, so that a lie about the size costs nothing.
        parts = [npz_source(path, "X", cache=0) for path in paths]
        for path, part in zip(paths, parts, strict=True):
            if part.dtype != np.uint8 or part.shape[1] != d:
                raise ValueError(f"{path.name} holds {part.dtype} {part.shape}, not uint8 (n, {d})")
        rows = sum(int(part.shape[0] or 0) for part in parts)
        if rows != n:
            raise ValueError(f"it holds {rows} images, not {n}")
        return np.concatenate([whole(part) for part in parts])
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, TypeError) as error:  # damage, in the library's reader
        raise ValueError(str(error)) from error


#: Files that hold MNIST's training images, in order of preference, and their readers.
MNIST: dict[str, Callable[[Sequence[Path], tuple[int, int]], np.ndarray]] = {
    "train-images-idx3-ubyte.gz": read_idx,
    "train-images-idx3-ubyte": read_idx,
    "mnist_train.npz": read_images,
}
