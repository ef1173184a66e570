"""The sets of the panel: those of the race and those that users bring every day.

Each is prepared as its users prepare it, and made anew whenever it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from cases import CASES, Case, _counts, _file, by_arpack, by_covariance, by_gram

#: ``--quick`` keeps this many rows and columns.
QUICK = (400, 1_000)


# -- dense ---------------------------------------------------------------------------------------


def bundled(name: str) -> Callable[[], np.ndarray]:
    """A set that comes with scikit-learn."""

    def make() -> np.ndarray:
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")().data

    return make


def power_law(n: int, d: int, exponent: float) -> Callable[[], np.ndarray]:
    """Normal rows whose standard deviations along the components are ``i^-exponent``."""

    def make() -> np.ndarray:
        rng = np.random.default_rng(0)
        q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        spread = np.arange(1, d + 1) ** -exponent
        return ((rng.standard_normal((n, d)) * spread) @ q.T).astype(np.float32)

    return make


def noise(n: int = 5_000, d: int = 2_000) -> np.ndarray:
    """White noise: no component stands out, so no proof is cheap."""
    return np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)


def genotypes() -> np.ndarray:
    """HapMap3 decoded once for everyone: missing values are means, variants standardised."""
    from primedpca import as_source

    source = as_source(_file("hapmap3/hapmap3.bed"), standardise=True)
    X = np.concatenate([block for _, block in source.scan()], axis=1)
    X = np.where(np.isnan(X), (2 * source.frequencies).astype(np.float32), X)
    return np.ascontiguousarray(X / source.scale.astype(np.float32))


# -- text and cells ------------------------------------------------------------------------------


def tfidf() -> Any:
    """20 Newsgroups weighted as for latent semantic analysis."""
    from sklearn.feature_extraction.text import TfidfTransformer

    counts = _counts("newsgroups20_bow.npz")().astype(np.float32)
    return sp.csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(counts))


def log_normalised() -> Any:
    """PBMC3k: genes in at least 3 cells, 10,000 counts a cell, ``log(1 + x)``."""
    counts = _counts("pbmc3k_counts.npz")().astype(np.float64)
    counts = counts[:, (counts > 0).sum(axis=0) >= 3]
    X = sp.csr_array(sp.diags_array(1e4 / counts.sum(axis=1)) @ counts)
    X.data = np.log1p(X.data)
    return X.astype(np.float32)


def scaled_variable_genes(genes: int = 2_000, most: float = 10.0) -> np.ndarray:
    """The most variable genes of PBMC3k, scaled to unit variance and clipped, as scanpy does."""
    X = log_normalised().astype(np.float64)
    dispersion = normalised_dispersion(X)
    kept = np.sort(np.argsort(-dispersion, kind="stable")[:genes])
    X = X[:, kept].toarray()
    X -= X.mean(axis=0)
    X /= X.std(axis=0, ddof=1)
    return np.clip(X, -most, most).astype(np.float32)


def normalised_dispersion(X: Any, bins: int = 20) -> np.ndarray:
    """``highly_variable_genes(flavor="seurat")``: log(variance / mean) of the counts, ``(d,)``.

    It is standardised among genes of similar mean; a gene that is alone in its bin gets 1.
    """
    counts = X.copy()
    counts.data = np.expm1(counts.data)
    n, mean = X.shape[0], np.asarray(counts.mean(axis=0)).ravel()
    square = np.asarray(counts.power(2).mean(axis=0)).ravel()
    dispersion = np.log((square - mean**2) * n / (n - 1) / mean)
    level = np.log1p(mean)
    edges = np.linspace(level.min(), level.max(), bins + 1)
    where = np.clip(np.searchsorted(edges, level) - 1, 0, bins - 1)
    result = np.ones_like(dispersion)
    for b in np.unique(where):
        own = dispersion[where == b]
        if own.size > 1:
            result[where == b] = (own - own.mean()) / own.std(ddof=1)
    return result


# -- all of them ---------------------------------------------------------------------------------

_OWN = (
    Case("iris", "iris", 2, bundled("iris"), by_covariance, dtype=np.float64),
    Case("cancer", "breast cancer", 10, bundled("breast_cancer"), by_covariance, dtype=np.float64),
    Case("digits", "digits", 16, bundled("digits"), by_covariance, dtype=np.float64),
    Case("10000x100", "i^-0.5, 10,000 x 100", 20, power_law(10_000, 100, 0.5), by_covariance),
    Case("1000x1000", "i^-0.5, 1,000 x 1,000", 20, power_law(1_000, 1_000, 0.5), by_covariance),
    Case("5000x500", "i^-1, 5,000 x 500", 30, power_law(5_000, 500, 1.0), by_covariance),
    Case("100000x50", "i^-0.5, 100,000 x 50", 10, power_law(100_000, 50, 0.5), by_covariance),
    Case("tfidf50", "20 Newsgroups TF-IDF", 50, tfidf, by_arpack),
    Case("tfidf100", "20 Newsgroups TF-IDF", 100, tfidf, by_arpack),
    Case("pbmc-log", "PBMC3k log-normalised", 50, log_normalised, by_gram),
    Case("pbmc-scaled", "PBMC3k scaled variable genes", 50, scaled_variable_genes, by_covariance),
    Case("hapmap", "HapMap genotypes", 10, genotypes, by_gram),
    Case("noise", "white noise", 10, noise, by_covariance),
)
_ORDER = (
    *("iris", "cancer", "digits", "10000x100", "1000x1000", "5000x500", "100000x50"),
    *("mnist", "cifar", "half", "wide", "nips", "newsgroups", "tfidf50", "tfidf100"),
    *("pbmc", "pbmc-log", "pbmc-scaled", "hapmap", "noise"),
)
PANEL = {name: (CASES | {case.name: case for case in _OWN})[name] for name in _ORDER}


def cut(X: Any) -> Any:
    """A corner of the data, to see that everything runs."""
    rows, columns = QUICK
    return X[:rows, :columns].copy()
