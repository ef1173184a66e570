"""A short comparison of PrimedPCA with scikit-learn's solvers, every result audited."""

from __future__ import annotations

import statistics
import timeit
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from primedpca._core.arrays import is_sparse
from primedpca._solve.audit import certify
from primedpca.sources import as_source
from primedpca.sources.base import whole

SOLVERS = ("auto", "covariance_eigh", "randomized", "arpack")


@dataclass(frozen=True)
class Row:
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


def race(name: str, data: Any, k: int, repeats: int) -> list[Row]:
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
        rows.append(Row(name, solver, seconds, worst, solver == "PrimedPCA"))
    return rows


def _median_time(fit: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a fit; a first fit, not timed, warms the caches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit()
        return statistics.median(timeit.repeat(fit, repeat=repeats, number=1))
