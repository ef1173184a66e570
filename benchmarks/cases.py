"""The sets that are raced on, in float32, and their true components in float64.

References owe nothing to primedpca: LAPACK on the covariance or the Gram matrix, ARPACK at full
precision where both are too large.  Each is checked by its residuals before it is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh

from primedpca_paper.datasets import data_folder, mnist

CACHE = Path(__file__).parent / ".cache"
#: No reference may be further from the truth than this, in radians.
REFERENCE_ANGLE = 1e-5


@dataclass(frozen=True)
class Case:
    """A data set, how many components are wanted of it, and who knows the truth."""

    name: str
    title: str
    k: int
    make: Callable[[], Any]
    solve: Callable[[Any, int], np.ndarray]
    #: How much faster than the best tuned peer we want to be.
    target: float = 1.0
    #: Small enough to be made and solved anew every time.
    tiny: bool = False
    #: Dear to make, so kept on disk.
    keep: bool = False
    dtype: type = np.float32

    def load(self) -> Any:
        """The data: a C-ordered array or a CSR array of `dtype`."""
        path = CACHE / f"{self.name}.npy"
        if self.keep and path.is_file():
            return np.load(path)
        X = self.make()
        if self.keep:
            CACHE.mkdir(exist_ok=True)
            np.save(path, X)
        return X.astype(self.dtype) if X.dtype != self.dtype else X

    def reference(self, X: Any) -> np.ndarray:
        """The true components ``(k, d)`` in float64, from the cache if they are there."""
        path = CACHE / f"{self.name}_reference.npy"
        if path.is_file() and not self.tiny:
            return np.load(path)
        # One more than wanted: the last gap is to the first that is left out.
        vectors = self.solve(X, self.k + 1)
        check(X, vectors)
        if not self.tiny:
            CACHE.mkdir(exist_ok=True)
            np.save(path, vectors[:-1])
        return vectors[:-1]


# -- the data ------------------------------------------------------------------------------------


def _file(name: str) -> Path:
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError(f"set `PRIMEDPCA_DATA` to the folder that holds {name}.")
    if not (folder / name).is_file():
        raise FileNotFoundError(f"{name} is missing from the folder `PRIMEDPCA_DATA`.")
    return folder / name


def _mnist() -> np.ndarray:
    return mnist(_file("mnist_train.npz").parent)


def _cifar() -> np.ndarray:
    X = np.empty((50_000, 3_072), np.float32)
    row = 0
    for part in "abc":
        with np.load(_file(f"cifar10_train_{part}.npz")) as archive:
            images = archive["X"]
        X[row : row + len(images)] = images.reshape(len(images), -1)
        row += len(images)
    return X


def _counts(name: str) -> Callable[[], Any]:
    return lambda: sp.csr_array(sp.load_npz(_file(name)))


def half(n: int = 4_000, d: int = 2_000, seed: int = 0) -> np.ndarray:
    """Singular values ``i^-0.5``: as slow a fall as is still of interest."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n, d))
    left = np.linalg.qr(noise - noise.mean(axis=0))[0]
    right = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return ((left * np.arange(1, d + 1) ** -0.5) @ right).astype(np.float32)


def wide(n: int = 400, d: int = 500_000, rank: int = 60, seed: int = 0) -> np.ndarray:
    """``sum_i i^-0.5 a_i b_i^T`` over 60 terms, plus noise of 0.05 and a mean of size one."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((n, rank)))[0] * np.sqrt(n)
    left = (left * np.arange(1, rank + 1) ** -0.5).astype(np.float32)
    X = np.empty((n, d), np.float32)
    for start, stop in _slices(d):
        part = rng.standard_normal((n, stop - start), dtype=np.float32) * np.float32(0.05)
        part += left @ rng.standard_normal((rank, stop - start), dtype=np.float32)
        part += rng.standard_normal(stop - start, dtype=np.float32)
        X[:, start:stop] = part
    return X


def tiny_sparse(n: int = 500, d: int = 900, seed: int = 0) -> Any:
    """Counts with a few topics, about five in a hundred not zero."""
    rng = np.random.default_rng(seed)
    topics = rng.gamma(0.05, 1.0, size=(12, d))
    rates = rng.gamma(0.3, 1.0, size=(n, 12)) @ (topics * np.geomspace(4, 0.5, 12)[:, None])
    return sp.csr_array(rng.poisson(0.3 * rates).astype(np.int16))


# -- the truth -----------------------------------------------------------------------------------


def by_covariance(X: Any, k: int) -> np.ndarray:
    """LAPACK on ``X_c^T X_c``."""
    mean, d = _mean(X), X.shape[1]
    square = np.zeros((d, d))
    for start in range(0, X.shape[0], 4_096):
        rows = X[start : start + 4_096].astype(np.float64) - mean
        square += rows.T @ rows
    return scipy.linalg.eigh(square, subset_by_index=[d - k, d - 1])[1].T[::-1]


def by_gram(X: Any, k: int) -> np.ndarray:
    """LAPACK on ``X_c X_c^T``, then ``v = X_c^T u / |X_c^T u|``."""
    mean, n = _mean(X), X.shape[0]
    if sp.issparse(X):
        wider = X.astype(np.float64)
        gram = (wider @ wider.T).toarray()
        gram -= gram.mean(axis=0)
        gram -= gram.mean(axis=1, keepdims=True)
    else:
        gram = np.zeros((n, n))
        for start, stop in _slices(X.shape[1]):
            part = X[:, start:stop] - mean[start:stop]
            gram += part @ part.T
    left = scipy.linalg.eigh(gram, subset_by_index=[n - k, n - 1])[1][:, ::-1]
    return _right(X, mean, left)


def by_arpack(X: Any, k: int) -> np.ndarray:
    """ARPACK to the last bit on the implicitly centred ``X_c X_c^T``."""
    mean, wider = _mean(X), X.astype(np.float64)

    def multiply(u: np.ndarray) -> np.ndarray:
        v = wider.T @ u.ravel() - mean * u.sum()
        return wider @ v - mean @ v

    n = X.shape[0]
    operator = LinearOperator((n, n), matvec=multiply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    return _right(X, mean, eigsh(operator, k, tol=0, v0=start, ncv=min(4 * k, n))[1][:, ::-1])


def check(X: Any, vectors: np.ndarray) -> None:
    """Refuse a reference that its own residuals do not place within `REFERENCE_ANGLE`.

    ``sin(angle) <= |C v - theta v| / gap`` (Davis and Kahan), the gap taken between Ritz values.
    """
    images = _covariance_product(X, vectors.T).T
    values = (images * vectors).sum(axis=1)
    residuals = np.linalg.norm(images - values[:, None] * vectors, axis=1)
    gaps = -np.diff(values)
    nearest = np.minimum(gaps, np.concatenate([[np.inf], gaps[:-1]]))
    if not (nearest > 0).all() or (residuals[:-1] / nearest).max() > REFERENCE_ANGLE:
        raise ArithmeticError(
            f"the reference may be off by {(residuals[:-1] / nearest).max():.1e} rad, more than "
            f"{REFERENCE_ANGLE:g}."
        )


def _mean(X: Any) -> np.ndarray:
    return np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()


def _slices(d: int, width: int = 20_000) -> Iterator[tuple[int, int]]:
    return ((start, min(start + width, d)) for start in range(0, d, width))


def _right(X: Any, mean: np.ndarray, left: np.ndarray) -> np.ndarray:
    right = _adjoint(X, left) - np.outer(mean, left.sum(axis=0))
    return (right / np.linalg.norm(right, axis=0)).T


def _adjoint(X: Any, left: np.ndarray) -> np.ndarray:
    if sp.issparse(X):
        return X.T.astype(np.float64) @ left
    return np.concatenate([X[:, a:b].T.astype(np.float64) @ left for a, b in _slices(X.shape[1])])


def _covariance_product(X: Any, V: np.ndarray) -> np.ndarray:
    """``X_c^T X_c V`` in float64, a slice of columns at a time."""
    mean = _mean(X)
    if sp.issparse(X):
        scores = X.astype(np.float64) @ V
    else:
        scores = sum(X[:, a:b].astype(np.float64) @ V[a:b] for a, b in _slices(X.shape[1]))
    scores = scores - mean @ V
    return _adjoint(X, scores) - np.outer(mean, scores.sum(axis=0))


CASES = {
    case.name: case
    for case in (
        Case("mnist", "MNIST", 16, _mnist, by_covariance),
        Case("cifar", "CIFAR-10", 16, _cifar, by_covariance, target=1.2),
        Case("half", "singular values i^-0.5", 50, half, by_covariance, keep=True),
        Case(
            "newsgroups",
            "20 Newsgroups",
            50,
            _counts("newsgroups20_bow.npz"),
            by_arpack,
            target=1.2,
        ),
        Case("nips", "NIPS 1987-2003", 50, _counts("nips_1987-2003_bow.npz"), by_gram, target=1.2),
        Case("pbmc", "PBMC3k", 50, _counts("pbmc3k_counts.npz"), by_gram, target=1.2),
        Case("wide", "400 x 500,000", 16, wide, by_gram),
    )
}
TINY = {
    case.name: case
    for case in (
        Case("tiny", "i^-0.5, tiny", 6, lambda: half(600, 120), by_covariance, tiny=True),
        Case("tiny-sparse", "counts, tiny", 6, tiny_sparse, by_gram, tiny=True),
    )
}
