"""How long a pass takes on more workers and larger data: measured here, fitted, extrapolated.

``python benchmarks/scale.py`` times passes over Zarr stores on 1, 2 and 4 workers and fits

    seconds = entries * (read + columns * multiply) / min(workers, cores) + tasks * task + start

by least squares with no negative terms.  With what the fit leaves over as its error it then says
what two large problems would take on other clusters; docs/scale.md has what came out.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
from clusters import cluster, store
from scipy.optimize import nnls

from primedpca.centred import Centred
from primedpca.engines.dask import DaskEngine

SHAPES = [(20_000, 1000), (20_000, 4000), (60_000, 2000)]
COLUMNS = [8, 64]
REPEATS = 3
BLOCK = 16 * 2**23  # bytes of a task: sixteen blocks
#: n, d, bytes of an entry as stored, directions, steps, readings a step.
PROBLEMS = {
    "UK Biobank, 500,000 x 6,100,000, k=40": (5e5, 6.1e6, 1, 56, 8, 2),
    "single cells, 1,300,000 x 28,000, k=50, as if dense": (1.3e6, 2.8e4, 4, 66, 8, 1),
}
#: workers, bytes a second of all storage, of one network card.
CLUSTERS = {
    "20 cores, a disk of 1 GB/s": (20, 1e9, 1.2e9),
    "320 cores, 10 GB/s": (320, 1e10, 1.2e9),
}


def measure(folder):
    """Rows of (entries, columns, workers, blocks, seconds)."""
    found = []
    for n, d in SHAPES:
        path = store(folder / f"{n}x{d}.zarr", n, d, (max(1, 2_000_000 // d), d))
        for workers in (1, 2, 4):
            with cluster(workers) as client:
                client.run(lambda: __import__("primedpca.estimator") and None)
                data = Centred(path, DaskEngine(client))
                data.learn()
                for p in COLUMNS:
                    vectors = np.ones((d, p), "float32")
                    times = []
                    for _ in range(REPEATS):
                        start = time.perf_counter()
                        data.covariance_product(vectors)
                        times.append(time.perf_counter() - start)
                    row = (n * d, p, workers, len(data.source.blocks), float(np.median(times)))
                    print(f"{n} x {d}, {p} columns, {workers} workers: {row[-1]:.2f} s", flush=True)
                    found.append(row)
    return np.array(found)


def fitted(found, cores):
    """The four constants, and the relative error that is left."""
    entries, columns, workers, blocks, seconds = found.T
    each = entries / np.minimum(workers, cores)
    design = np.stack([each, each * columns, blocks, np.ones_like(blocks)], axis=1)
    constants, _ = nnls(design / seconds[:, None], np.ones_like(seconds))
    left = design @ constants / seconds - 1
    return constants, float(np.sqrt(np.mean(left**2)))


def predicted(constants, problem, machines):
    """Hours of a fit: work, tasks, storage and the parts that travel."""
    n, d, size, p, steps, readings = problem
    workers, storage, network = machines
    read, multiply, task, start = constants
    stored, tasks = n * d * size, n * d * 4 / BLOCK
    work = n * d * (readings * read + p * multiply) / workers
    # Sums are as long as the side across the blocks; each sixteenth of them is sent on.
    travels = 8 * min(n, d) * p * tasks / 16 / (network * max(1, workers / 20))
    seconds = work + readings * (tasks * task + start + stored / storage) + travels
    return steps * seconds / 3600


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name))
    values, error = fitted(rows, len(os.sched_getaffinity(0)))
    print(
        "read {:.2e} s and multiply {:.2e} s an entry, {:.1e} s a task, {:.2f} s a pass".format(
            *values
        )
    )
    print(f"root mean square error of the fit: {100 * error:.0f} %")
    for title, problem in PROBLEMS.items():
        for words, machines in CLUSTERS.items():
            hours = predicted(values, problem, machines)
            low, high = hours / (1 + 2 * error) / 1.5, hours * (1 + 2 * error) * 2
            print(f"{title}; {words}: {hours:.2f} h ({low:.2f} to {high:.2f})")
