"""Dask clusters of real processes on this machine, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

FOUND = ("components_", "explained_variance_", "mean_", "noise_variance_", "angle_bounds_")


@contextmanager
def cluster(workers: int, threads: int = 1, **options: Any) -> Iterator[Client]:
    """Client of a cluster with this many worker processes, on loopback."""
    how = {"processes": True, "dashboard_address": "127.0.0.1:0", "silence_logs": 50} | options
    with (
        LocalCluster(n_workers=workers, threads_per_worker=threads, **how) as started,
        Client(started, set_as_default=False) as client,
    ):
        yield client


def bits(pca: Any) -> bytes:
    """Return all results of a fit as bytes."""
    found = [getattr(pca, name) for name in FOUND]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in found if part is not None)


def low_rank(n: int, d: int, fall: float = 0.8) -> np.ndarray:
    """Float32 rows with deviations that decay by ``fall``, and noise."""
    rng = np.random.default_rng(n)
    scores, axes = rng.standard_normal((n, 30)), rng.standard_normal((30, d))
    values = scores * fall ** np.arange(30) @ axes + 0.02 * rng.standard_normal((n, d)) + 3
    return values.astype(np.float32)
