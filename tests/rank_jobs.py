"""What ranks do in tests, and how they are started: real processes that talk over loopback.

``python rank_jobs.py JOB [JOB ...]`` runs jobs one after the other on this rank, or alone, and
prints one JSON object for each.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from primedpca import PrimedPCA, as_source, refine
from primedpca.arrays import to_numpy
from primedpca.engines.torch_distributed import TorchDistributed
from primedpca.priming import EigenGame, Oja
from primedpca.sources import base, dense, sparse
from primedpca.sources.rank_rows import RankRows

#: Seconds: a rank that does not answer for so long is given up.
LIMIT = float(os.environ.get("RANKS_LIMIT", "20"))
RANK, SIZE = (int(os.environ.get(name, value)) for name, value in (("RANK", 0), ("WORLD_SIZE", 1)))
WITH = {"engine": TorchDistributed(LIMIT), "random_state": 0}


def noise(*shape):
    """Sums of these depend on the order in which they are made."""
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 2, shape)


def thinned(X):
    return X * (np.random.default_rng(1).random(X.shape) < 0.3)


def bits(pca):
    """A hash of all that a fit has found."""
    found = [pca.components_, pca.explained_variance_, pca.mean_, pca.noise_variance_]
    found += [] if pca.angle_bounds_ is None else [pca.angle_bounds_]
    return hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in found)).hexdigest()[:16]


def mine(X):
    """Rows of this rank: uneven shares, so that blocks lie across the ranks."""
    edges = [round(X.shape[0] * (r / SIZE) ** 1.5) for r in range(SIZE + 1)]
    return X[edges[RANK] : edges[RANK + 1]]


# -- jobs that end well: each gives the same on every rank, on any number of them ---------------

FITS = {
    "tall": lambda: (noise(1700, 18), {}),
    "wide": lambda: (noise(18, 700), {"priming": "block_krylov"}),
    "few blocks": lambda: (noise(90, 6), {}),  # fewer than ranks
    "float32": lambda: (noise(700, 18).astype("f4"), {"priming": "block_krylov"}),
    "sparse": lambda: (sp.csr_array(thinned(noise(700, 40))), {"priming": "block_krylov"}),
    "sparse columns": lambda: (sp.csc_array(thinned(noise(200, 90))), {"priming": "block_krylov"}),
    "standardised": lambda: (noise(700, 18), {"scale": "std"}),
    "missing": lambda: (np.where(noise(700, 18) > 30, np.nan, noise(700, 18)), {"missing": "mean"}),
    "eigengame": lambda: (noise(700, 18), {"priming": EigenGame(steps=60), "batch_size": 64}),
    "frequent_directions": lambda: (noise(700, 30), {"priming": "frequent_directions"}),
    "subspace_iteration": lambda: (noise(700, 18), {"priming": "subspace_iteration"}),
    "share of rows": lambda: (noise(900, 18), {"refine_share": 0.3, "priming": Oja(steps=60)}),
    "share of variance": lambda: (noise(700, 18), {"n_components": 0.6}),
}


def fit(name, engine=True, rows=False):
    X, options = FITS[name]()
    given = {"n_components": 3} | options | (WITH if engine else {"random_state": 0})
    pca = PrimedPCA(**given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these data have no gap
        pca.fit(RankRows(mine(X), WITH["engine"]) if rows else X)
    own = mine(X)
    scores = pca.transform(RankRows(own, WITH["engine"]) if rows else own)
    assert scores.shape == (own.shape[0], pca.n_components_)
    return {"bits": bits(pca), "passes": pca.n_passes_, "status": pca.status_.name}


def weighted(rows):
    X, weights = noise(700, 18), np.arange(700) % 4
    data, own = (RankRows(mine(X), WITH["engine"]), mine(weights)) if rows else (X, weights)
    return {"bits": bits(PrimedPCA(3, **WITH).fit(data, sample_weight=own))}


def refined():
    found = refine(noise(700, 18), np.eye(18)[:, :5], engine=WITH["engine"])
    return {"bits": hashlib.sha256(to_numpy(found.components).tobytes()).hexdigest()[:16]}


def drawn():
    """Without a seed, all ranks draw the same."""
    pca = PrimedPCA(3, engine=WITH["engine"], priming=Oja(steps=20)).fit(noise(300, 12))
    return {"bits": bits(pca), "seconds": pca.history_[-1]["seconds"]}


# -- jobs that end with an error on every rank --------------------------------------------------


def named(work):
    """The error that it ends with, and that the ranks can go on after it."""
    begun = time.monotonic()
    try:
        work()
    except Exception as error:
        told = {"error": type(error).__name__, "words": str(error)}
    else:
        told = {"error": None, "words": ""}
    told["quick"] = time.monotonic() - begun < LIMIT / 2
    return told | {"after": fit("few blocks")["bits"]}


def last():
    return SIZE - 1 == RANK


class Fails(base.MemorySource):
    """Rows of which one block cannot be read on the last rank."""

    def __init__(self, error, phase=0):
        self.source, self.error, self.reads, self.phase = as_source(noise(700, 18)), error, 0, phase
        self.shape, self.dtype, self.blocks = (
            self.source.shape,
            self.source.dtype,
            self.source.blocks,
        )

    def read(self, i):
        self.reads += 1
        if last() and i == len(self.blocks) - 1 and self.reads > self.phase:
            raise self.error
        return self.source.read(i)

    def rows(self, index):
        return self.source.rows(index)


def spoiled():
    X = noise(700, 18)
    X[650, 7] = np.nan
    return X


def algebra_fails():
    """An error between two passes, where ranks do not wait for each other."""
    from primedpca import solve

    before = solve.in_unit_of_data
    try:
        if last():
            solve.in_unit_of_data = lambda *_: exec("raise MemoryError('no room here')")
        PrimedPCA(3, priming="block_krylov", **WITH).fit(noise(700, 18))
    finally:
        solve.in_unit_of_data = before


ERRORS = {
    "width": lambda: PrimedPCA(3, **WITH).fit(noise(700, 18 + last())),
    "width of own rows": lambda: RankRows(noise(70, 18 + last()), WITH["engine"]),
    "dtype": lambda: PrimedPCA(3, **WITH).fit(noise(700, 18).astype("f4" if last() else "f8")),
    "dtype of own rows": lambda: RankRows(
        noise(70, 18).astype("f4" if last() else "f8"), WITH["engine"]
    ),
    "parameter": lambda: PrimedPCA(3 + last(), **WITH).fit(noise(700, 18)),
    "other contents": lambda: PrimedPCA(3, **WITH).fit(noise(700, 18) + last()),
    "bad option": lambda: PrimedPCA(3, tol=-1 if last() else 0.1, **WITH).fit(noise(700, 18)),
    "no such file": lambda: PrimedPCA(3, **WITH).fit("/none.npy" if last() else noise(700, 18)),
    "NaN": lambda: PrimedPCA(3, **WITH).fit(spoiled()),
    "NaN in own rows": lambda: PrimedPCA(3, **WITH).fit(RankRows(mine(spoiled()), WITH["engine"])),
    "unreadable block": lambda: PrimedPCA(3, **WITH).fit(Fails(OSError("block 7 is torn"), 20)),
    "memory": lambda: PrimedPCA(3, **WITH).fit(Fails(MemoryError("too much"), 20)),
    "memory between passes": algebra_fails,
    "other order": lambda: (fit if last() else weighted)("tall" if last() else False),
    "weights missing": lambda: PrimedPCA(3, **WITH).fit(
        RankRows(mine(noise(700, 18)), WITH["engine"]),
        sample_weight=None if last() else np.ones(mine(noise(700, 18)).shape[0]),
    ),
}

JOBS = {
    **{f"fit {name}": lambda name=name: fit(name) for name in FITS},
    **{f"rows {name}": lambda name=name: fit(name, rows=True) for name in FITS},
    **{f"error {name}": lambda work=work: named(work) for name, work in ERRORS.items()},
    "weighted": lambda: weighted(False),
    "weighted rows": lambda: weighted(True),
    "refined": refined,
    "drawn": drawn,
}


def small_blocks():
    """Blocks of a few rows, so that small data have many."""
    base.BLOCK_BYTES = dense.BLOCK_BYTES = 2**10
    sparse.BLOCK_ENTRIES, sparse.OUTPUT_RATIO = 100, 1


# -- starting them -----------------------------------------------------------------------------


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Started:
    """Ranks of their own, each a process with its output in a file."""

    def __init__(self, size, *jobs, folder, script=__file__, **environment):
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        place |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
        place |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
        self.files = [Path(folder) / f"rank{r}.txt" for r in range(size)]
        self.processes = []
        for r, file in enumerate(self.files):
            own = {"RANK": str(r), "LOCAL_RANK": str(r)}
            with file.open("w") as out:
                command = [sys.executable, "-u", str(script), *jobs]
                env = os.environ | place | own | environment
                self.processes.append(
                    subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
                )

    def wait(self, limit):
        """Exit codes; whoever is not done by then is killed and counts as ``"hangs"``."""
        end, codes = time.monotonic() + limit, []
        for process in self.processes:
            try:
                codes.append(process.wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                codes.append("hangs")
        self.kill()
        return codes

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()

    def text(self, rank):
        return self.files[rank].read_text()

    def told(self, rank):
        """Job -> what it gave."""
        lines = [line for line in self.text(rank).splitlines() if line.startswith("{")]
        return {job: gave for line in lines for job, gave in json.loads(line).items()}


if __name__ == "__main__":
    small_blocks()
    for job in sys.argv[1:] or JOBS:
        print(json.dumps({job: JOBS[job]()}))
