"""A short comparison of PrimedPCA with scikit-learn's solvers, every result audited."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from primedpca._core.arrays import is_sparse
from primedpca._solve.audit import certify
from primedpca.sources import as_source
from primedpca.sources.base import whole

__all__ = ["Row", "race", "races"]

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

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain numbers."""
        return asdict(self)


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
    x = whole(source)
    rows = []
    for solver, fit in _solvers(x, k).items():
        seconds, components = _timed(fit, repeats)
        proof = certify(x, components, random_state=1)
        # Components of equal variance have no single direction, so that their span is compared.
        worst = float(proof.counted_bounds().max())
        rows.append(Row(name, solver, seconds, worst, solver == "PrimedPCA"))
    return rows


def _solvers(x: Any, k: int) -> dict[str, Callable[[], Any]]:
    from sklearn.decomposition import PCA

    from primedpca.estimator import PrimedPCA

    made: dict[str, Any] = {"PrimedPCA": PrimedPCA(k, random_state=0)}
    # Only these two solvers accept sparse data.
    for solver in ("covariance_eigh", "arpack") if is_sparse(x) else SOLVERS:
        made[f"scikit-learn, {solver}"] = PCA(k, svd_solver=solver, random_state=0)
    return {name: partial(_components, model, x) for name, model in made.items()}


def _components(model: Any, x: Any) -> Any:
    return model.fit(x).components_


def _timed(fit: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median time and the components; a first fit, not timed, warms the caches."""
    seconds = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        components = fit()
        for _ in range(repeats):
            clock = time.perf_counter()
            components = fit()
            seconds.append(time.perf_counter() - clock)
    return statistics.median(seconds), components
