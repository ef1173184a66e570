"""Streams: ``partial_fit`` against scikit-learn's IncrementalPCA on the same batches.

``PRIMEDPCA_DATA=folder python benchmarks/streams.py`` reads CIFAR-10 and prints for batches of
several sizes and for both the seconds, the best of some in turn, the largest true angle of a
component, and that of the span, in degrees.  The truth is LAPACK's, of the covariance in float64.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import IncrementalPCA

from primedpca import PrimedPCA


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


def race(model: Any, X: np.ndarray, batch: int, truth: np.ndarray) -> tuple[float, float, float]:
    """Seconds to see all batches and know the components; their worst angle; that of the span."""
    start = time.perf_counter()
    for a in range(0, len(X), batch):
        model.partial_fit(X[a : a + batch])
    found = model.components_.astype(np.float64)
    seconds = time.perf_counter() - start
    single = np.abs((found * truth).sum(axis=1)).min()
    span = np.linalg.svd(found @ truth.T, compute_uv=False).min()
    angles = np.degrees(np.arccos(np.minimum([single, span], 1.0)))
    return seconds, float(angles[0]), float(angles[1])


def main() -> None:
    """Print one line for each size of batch and each of both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--components", type=int, default=16)
    parser.add_argument("--batches", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    X, k = images(asked.rows), asked.components
    truth = true_components(X, k)
    print(f"{X.shape[0]} x {X.shape[1]}, k = {k}, best of {asked.repeats}")
    for batch in asked.batches:
        found: dict[Any, list[tuple[float, float, float]]] = {PrimedPCA: [], IncrementalPCA: []}
        for _ in range(asked.repeats):
            for kind, runs in found.items():
                runs.append(race(kind(k), X, batch, truth))
        ours, theirs = (min(runs) for runs in found.values())
        print(
            f"batches of {batch} rows: IncrementalPCA takes {theirs[0] / ours[0]:.1f} times as long"
        )
        for kind, (seconds, worst, span) in zip(found, (ours, theirs), strict=True):
            words = f"{seconds:6.2f} s   worst {worst:7.3f} deg   span {span:7.3f} deg"
            print(f"    {kind.__name__:15s} {words}")


if __name__ == "__main__":
    main()
