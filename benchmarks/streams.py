"""Streams: ``partial_fit`` against scikit-learn's IncrementalPCA on the same batches.

``PRIMEDPCA_DATA=folder python benchmarks/streams.py [ROWS] [K]`` reads CIFAR-10 and prints for
both the seconds, the largest true angle of a component, and that of the span, in degrees.  The
truth is LAPACK's, of the covariance in float64.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import IncrementalPCA

from primedpca import PrimedPCA

BATCH = 1000


def images(rows: int) -> np.ndarray:
    """So many images of CIFAR-10, as rows of float32."""
    folder, parts = Path(os.environ["PRIMEDPCA_DATA"]), []
    for path in sorted(folder.glob("cifar10_train_*.npz")):
        with np.load(path) as held:
            parts.append(held[held.files[0]].reshape(-1, 3072))
    return np.concatenate(parts)[:rows].astype(np.float32)


def true_components(X: np.ndarray, k: int) -> np.ndarray:
    """The ``k`` leading components ``(k, d)``, in float64."""
    rows = X.astype(np.float64)
    rows -= rows.mean(axis=0)
    return np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :k].T


def race(model: Any, X: np.ndarray, truth: np.ndarray) -> tuple[float, float, float]:
    """Seconds to see all batches and know the components; their worst angle; that of the span."""
    start = time.perf_counter()
    for a in range(0, len(X), BATCH):
        model.partial_fit(X[a : a + BATCH])
    found = model.components_.astype(np.float64)
    seconds = time.perf_counter() - start
    single = np.abs((found * truth).sum(axis=1)).min()
    span = np.linalg.svd(found @ truth.T, compute_uv=False).min()
    angles = np.degrees(np.arccos(np.minimum([single, span], 1.0)))
    return seconds, float(angles[0]), float(angles[1])


def main() -> None:
    """Print one line for each."""
    words = sys.argv[1:]
    rows, k = (int(word) for word in (*words, *("20000", "16")[len(words) :]))
    X = images(rows)
    truth = true_components(X, k)
    print(f"{rows} x {X.shape[1]}, k = {k}, batches of {BATCH} rows")
    for model in (PrimedPCA(k), IncrementalPCA(k)):
        seconds, worst, span = race(model, X, truth)
        name = type(model).__name__
        print(f"{name:15s} {seconds:6.1f} s   worst {worst:7.3f} deg   span {span:7.3f} deg")


if __name__ == "__main__":
    main()
