"""Clusters on this machine: the same bits, what a cluster costs, and how others fare.

``python benchmarks/clusters.py same`` fits MNIST, 20 Newsgroups (sparse), a Zarr store of 2 GB and
400 x 500,000 numbers in chunks both ways with the local engine, on 1, 2 and 4 workers of Dask and
on as many ranks of torch.distributed (gloo), and compares every bit.  ``cost`` times passes over
the store with 2 threads here and with 2 workers, and watches the memory of every worker during a
fit with a budget.  ``peers`` races dask-ml's PCA and Dask's own ``svd_compressed`` on the same Dask
array, with the true angles of each.  Files are made in a temporary folder and deleted; real data
are looked for in ``PRIMEDPCA_DATA``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import dask.array as da
import numpy as np
import psutil
import scipy.sparse as sp
import zarr
from distributed import Client, LocalCluster

from primedpca import PrimedPCA
from primedpca._operator.operator import Centred
from primedpca.engines import LocalEngine
from primedpca.engines.dask.engine import DaskEngine

DATA = Path(os.environ.get("PRIMEDPCA_DATA", "."))
BUDGET = "400MB"


@contextmanager
def cluster(workers):
    """Real processes with a thread each, on loopback."""
    started = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    )
    with started, Client(started) as client:
        yield client


# -- the data ---------------------------------------------------------------------------------


def rows(n, d, rank=64, seed=0):
    """Float32 rows with a slowly falling spectrum, a few at a time."""
    rng = np.random.default_rng(seed)
    axes = rng.standard_normal((rank, d), dtype="float32") / np.float32(d) ** 0.5
    axes *= (20 * np.arange(1, rank + 1, dtype="float32") ** -0.5)[:, None]
    step = max(1, 8_000_000 // d)
    for start in range(0, n, step):
        m = min(step, n - start)
        noise = rng.standard_normal((m, d), dtype="float32") * np.float32(0.3)
        yield start, rng.standard_normal((m, rank), dtype="float32") @ axes + noise + 1


def store(path, n, d, chunks):
    """A Zarr store of such rows."""
    array = zarr.create_array(path, shape=(n, d), chunks=chunks, dtype="float32", compressors=None)
    for start, block in rows(n, d):
        array[start : start + len(block)] = block
    return str(path)


def mnist():
    with np.load(DATA / "mnist_train.npz") as held:
        return held["X"]


def make_files(folder, size):
    """What is compared."""
    np.save(folder / "mnist.npy", mnist())
    words = sp.load_npz(DATA / "newsgroups20_bow.npz")
    sp.save_npz(folder / "newsgroups.npz", words, compressed=False)
    store(folder / "tall.zarr", int(size / 4 / 4000), 4000, (500, 4000))
    store(folder / "wide.zarr", 400, 500_000, (100, 25_000))


def given(folder):
    """Name -> (data as a user passes them, components)."""
    return {
        "MNIST": (str(folder / "mnist.npy"), 16),
        "20 Newsgroups": (str(folder / "newsgroups.npz"), 10),
        "Zarr": (str(folder / "tall.zarr"), 8),
        "400 x 500,000, chunks both ways": (da.from_zarr(str(folder / "wide.zarr")), 8),
    }


# -- the same bits ----------------------------------------------------------------------------


def bits(pca):
    names = ("components_", "explained_variance_", "mean_", "angle_bounds_")
    parts = (np.ascontiguousarray(getattr(pca, name)).tobytes() for name in names)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def fitted(folder, engine):
    """Fit everything, and give a hash of each."""
    found = {}
    for name, (x, k) in given(folder).items():
        start = time.perf_counter()
        pca = PrimedPCA(k, random_state=0, engine=engine).fit(x)
        seconds, how = time.perf_counter() - start, type(pca.plan_.priming).__name__
        about = f"{how}, {pca.n_passes_:g} passes, {pca.angle_bounds_.max():.1e} rad"
        found[name] = {"bits": bits(pca), "seconds": seconds, "about": about}
    return found


def on_ranks(folder, size):
    """What rank 0 of so many prints: each of them opens the same files."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launch, f"--nproc-per-node={size}", __file__, "rank", f"--folder={folder}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def rank(folder):
    """On a rank of torchrun."""
    found = fitted(folder, "torch_distributed")
    if os.environ["RANK"] == "0":
        print(json.dumps(found))


def same(folder, size):
    """Every bit on 1, 2 and 4 workers and ranks against the local engine."""
    make_files(folder, size)
    here = fitted(folder, LocalEngine())
    for name, one in here.items():
        print(f"{name}: local {one['seconds']:.1f} s, {one['about']}", flush=True)

    def compare(who, found):
        for name, one in found.items():
            word = "same bits" if one["bits"] == here[name]["bits"] else "OTHER BITS"
            print(f"{name}: {who} {one['seconds']:.1f} s, {word}", flush=True)

    for count in (1, 2, 4):
        with cluster(count) as client:
            compare(f"{count} workers", fitted(folder, client))
    for count in (1, 2, 4):
        compare(f"{count} ranks", on_ranks(folder, count))


# -- what it costs ----------------------------------------------------------------------------


class Peak(threading.Thread):
    """The largest growth of resident memory among some processes."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.processes = [psutil.Process(pid) for pid in pids]
        self.before = [process.memory_info().rss for process in self.processes]
        self.grown, self.stopped = [0] * len(pids), False

    def run(self):
        while not self.stopped:
            for i, process in enumerate(self.processes):
                now = process.memory_info().rss - self.before[i]
                self.grown[i] = max(self.grown[i], now)
            time.sleep(0.02)


def cost(folder, size):
    """Seconds of a pass here and there, and the memory of workers that keep to a budget."""
    n = int(size / 4 / 4000)
    path = store(folder / "tall.zarr", n, 4000, (500, 4000))
    vectors = np.random.default_rng(0).standard_normal((4000, 32)).astype("float32")
    with cluster(2) as client:
        client.run(lambda: __import__("primedpca.estimator") and None)
        seconds = {"here": [], "there": []}
        data = {
            "here": Centred(path, LocalEngine(2), float64=True),
            "there": Centred(path, DaskEngine(client), float64=True),
        }
        for each in data.values():
            each.learn()
        for _ in range(3):
            for name, each in data.items():
                start = time.perf_counter()
                each.covariance_product(vectors.astype("float64"))
                seconds[name].append(time.perf_counter() - start)
        here, there = (sorted(seconds[name])[1] for name in ("here", "there"))
        print(f"a pass with 32 columns in float64: {here:.2f} s here, {there:.2f} s there")
        print(f"ratio {there / here:.2f}; {len(data['here'].source.blocks)} blocks")
        timed = {}
        for name, engine in (("here", LocalEngine(2)), ("there", client)):
            start = time.perf_counter()
            pca = PrimedPCA(8, random_state=0, engine=engine).fit(path)
            timed[name] = time.perf_counter() - start
            print(f"fit {name}: {timed[name]:.1f} s, {pca.n_passes_:g} passes")
        print(f"ratio {timed['there'] / timed['here']:.2f}")
        peak = Peak([os.getpid(), *client.run(os.getpid).values()])
        peak.start()
        PrimedPCA(8, random_state=0, engine=client, max_memory=BUDGET).fit(path)
        peak.stopped = True
        grown = ", ".join(f"{size / 1e6:.0f} MB" for size in peak.grown)
        print(f"with max_memory={BUDGET} client and workers grew by {grown}")


# -- what there was before --------------------------------------------------------------------


def angles_to(components, truth):
    """The angle of each row to the true one, in degrees."""
    unit = components / np.linalg.norm(components, axis=1, keepdims=True)
    return np.degrees(np.arccos(np.clip(abs((unit * truth).sum(axis=1)), 0, 1)))


def peers(folder, _size):
    """dask-ml and Dask's own, at their defaults and with the iterations they need."""
    from dask_ml.decomposition import PCA

    k, values = 16, mnist() / 255.0  # float64, in which their powers do not overflow
    held = zarr.create_array(
        folder / "m.zarr", shape=values.shape, chunks=(5000, 784), dtype="float64", compressors=None
    )
    held[...] = values
    values -= values.mean(axis=0)
    truth = np.linalg.eigh(values.T @ values)[1][:, ::-1][:, :k].T
    x = da.from_zarr(str(folder / "m.zarr"))
    limit = np.degrees(np.pi / 1024)

    def compressed(power):
        v = da.linalg.svd_compressed(x - x.mean(axis=0), k, n_power_iter=power, seed=0)[2]
        return v.compute()

    def learned(solver, power=None):
        options = {} if power is None else {"iterated_power": power}
        return PCA(k, svd_solver=solver, random_state=0, **options).fit(x).components_

    def until(make, powers=(0, 1, 2, 4, 6, 8, 12, 16, 24, 32)):
        """The first number of iterations that is good enough, and its time."""
        for power in powers:
            start = time.perf_counter()
            worst = angles_to(make(power), truth).max()
            if worst <= limit:
                return power, worst, time.perf_counter() - start
        return power, worst, time.perf_counter() - start

    with cluster(2) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client.run(lambda: __import__("primedpca.estimator") and None)
        PrimedPCA(k, random_state=0).fit(x)  # so that nobody pays for the first imports
        start = time.perf_counter()
        pca = PrimedPCA(k, random_state=0).fit(x)
        seconds = time.perf_counter() - start
        worst = angles_to(pca.components_, truth).max()
        proven = np.degrees(pca.angle_bounds_.max())
        print(f"primedpca: {seconds:.2f} s, worst {worst:.4f} deg, proven {proven:.4f} deg")
        start = time.perf_counter()
        krylov = PrimedPCA(k, priming="block_krylov", random_state=0).fit(x)
        seconds = time.perf_counter() - start
        worst = angles_to(krylov.components_, truth).max()
        print(f"primedpca, block_krylov: {seconds:.2f} s, worst {worst:.4f} deg")
        contestants = {
            "dask-ml auto": lambda: learned("auto"),
            "dask-ml tsqr": lambda: learned("tsqr"),
            "dask-ml randomized": lambda: learned("randomized"),
            "svd_compressed": lambda: compressed(0),
        }
        for name, make in contestants.items():
            start = time.perf_counter()
            found = angles_to(make(), truth)
            seconds, wrong = time.perf_counter() - start, (found > 1).sum()
            print(f"{name}: {seconds:.2f} s, worst {found.max():.3f} deg, {wrong} beyond 1 deg")
        for name, make in (
            ("dask-ml randomized", lambda power: learned("randomized", power)),
            ("svd_compressed", compressed),
        ):
            power, worst, seconds = until(make)
            print(f"{name} with {power} iterations: {seconds:.2f} s, worst {worst:.4f} deg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["same", "cost", "peers", "rank"])
    parser.add_argument("--size", type=float, default=2e9, help="bytes of the Zarr store")
    parser.add_argument("--folder", type=Path, help="of `rank`, which `same` starts: the files")
    asked = parser.parse_args()
    if asked.part == "rank":
        rank(asked.folder)
    else:
        with tempfile.TemporaryDirectory() as name:
            {"same": same, "cost": cost, "peers": peers}[asked.part](Path(name), asked.size)
