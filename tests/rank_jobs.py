"""What ranks do in tests, and how they are started: real processes that talk over loopback.

``python rank_jobs.py JOB [JOB ...]`` runs jobs one after the other on this rank of torchrun, or
alone, and prints one JSON object for each.  Without a job it reads orders from its input and
forks the ranks, so that PyTorch is imported once for all of them: see :class:`Ranks`.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch.distributed
import zarr

from primedpca import PrimedPCA, as_source, refine
from primedpca.arrays import to_numpy
from primedpca.engines.torch_distributed import TorchDistributed
from primedpca.priming import EigenGame, Oja
from primedpca.sources import base, dense, files, sparse
from primedpca.sources.rank_rows import RankRows

RANK, SIZE, LIMIT, WITH = 0, 1, 0.0, {}


def become():
    """The rank that the environment says; one that does not answer for LIMIT s is given up."""
    global RANK, SIZE, LIMIT
    RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    LIMIT = float(os.environ.get("RANKS_LIMIT", 60))
    WITH.update(engine=TorchDistributed(LIMIT), random_state=0)
    base.BLOCK_BYTES = dense.BLOCK_BYTES = files.READ_BYTES = 2**10  # small data in many blocks
    sparse.BLOCK_ENTRIES, sparse.OUTPUT_RATIO = 100, 1


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
    X = zarr.open_array(X)[:] if isinstance(X, str) else X
    edges = [round(X.shape[0] * (r / SIZE) ** 1.5) for r in range(SIZE + 1)]
    return X[edges[RANK] : edges[RANK + 1]]


# -- jobs that end well: each gives the same on every rank, on any number of them ---------------

FITS = {
    "zarr": lambda: (os.environ["RANKS_ZARR"], {"priming": "block_krylov"}),
    "tall": lambda: (noise(1700, 18), {}),
    "wide": lambda: (noise(18, 700), {"priming": "block_krylov"}),
    "few blocks": lambda: (noise(90, 6), {}),  # fewer than ranks
    "one block": lambda: (noise(21, 5), {}),  # which the first rank has whole
    "float32": lambda: (noise(700, 18).astype("f4"), {"priming": "block_krylov"}),
    "float32 sums": lambda: (noise(700, 18).astype("f4"), {"priming": "subspace_iteration"}),
    "sparse": lambda: (sp.csr_array(thinned(noise(700, 40))), {"priming": "block_krylov"}),
    "sparse columns": lambda: (sp.csc_array(thinned(noise(200, 90))), {"priming": "block_krylov"}),
    "torch": lambda: (torch.tensor(noise(700, 18)), {"priming": "block_krylov"}),
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


def own_files():
    """Every rank has its rows in a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/rows.npy", mine(noise(1700, 18)))
        rows = RankRows(f"{folder}/rows.npy", WITH["engine"])
        assert len(rows.blocks) > 8
        pca = PrimedPCA(3, priming=EigenGame(steps=20), batch_size=64, **WITH).fit(rows)
        assert pca.transform(rows).shape == (rows.own.shape[0], 3)
        return {"bits": bits(pca)}


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


def spoiled(n=700, d=18):
    X = noise(n, d)
    X[n - 50, d // 2] = np.nan
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
    "NaN in one block": lambda: PrimedPCA(1, **WITH).fit(
        RankRows(mine(spoiled(60, 2)), WITH["engine"])
    ),
    "unreadable block": lambda: PrimedPCA(3, **WITH).fit(Fails(OSError("block 7 is torn"), 20)),
    "memory": lambda: PrimedPCA(3, **WITH).fit(Fails(MemoryError("too much"), 20)),
    "memory between passes": algebra_fails,
    "other order": lambda: refined() if last() else PrimedPCA(3, **WITH).fit(noise(700, 18)),
    "weights missing": lambda: PrimedPCA(3, **WITH).fit(
        RankRows(mine(noise(700, 18)), WITH["engine"]),
        sample_weight=None if last() else np.ones(mine(noise(700, 18)).shape[0]),
    ),
}

# -- jobs in which the last rank is struck ------------------------------------------------------

STROKES = {
    "nothing": lambda: None,
    "kill once": lambda: (
        os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.kill(os.getpid(), signal.SIGKILL)
    ),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "memory": lambda: out_of_memory(),
}
#: Where: the name of a kernel (or of an exchange) and which call of it.
PHASES = {
    "moments": ("moments", 1),
    "pass": ("product", 2),
    "reduce": ("swap", 3),
    "certify": ("product", 5),
    "refine": ("refine", 1),
}


def out_of_memory():
    """Ask for more than this process may have."""
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**24, resource.RLIM_INFINITY))
    np.ones(2**28)


def struck(stroke, phase):
    """A fit in which something befalls the last rank, in one of its phases.

    It is kept in the folder RANKS_FOLDER, if there is one; ``swept`` are the passes it makes.
    """
    from primedpca.engines.local import LocalEngine
    from primedpca.engines.ranks import Ranks

    where, nth = PHASES[phase]
    part, swap, calls = LocalEngine.part, Ranks.swap, []

    def count(name):
        calls.append(name)
        if last() and SIZE > 1 and name == where and calls.count(name) == nth:
            STROKES[stroke]()

    def counted_part(self, source, kernel, whole, mine, numbers):
        count("refine" if whole.get("inside") else kernel.__name__)
        return part(self, source, kernel, whole, mine, numbers)

    def counted_swap(self, *given):
        count("swap")
        return swap(self, *given)

    LocalEngine.part, Ranks.swap = counted_part, counted_swap
    options = {"scale": "std", "priming": "block_krylov"} | WITH
    options["checkpoint"] = os.environ.get("RANKS_FOLDER")
    if phase == "refine":
        options |= {"priming": Oja(steps=20), "certificate": "none"}
    X = noise(1700, 40) * 0.9 ** np.arange(40)
    pca = PrimedPCA(4, **options).fit(X)
    LocalEngine.part, Ranks.swap = part, swap
    return {"bits": bits(pca), "swept": len(calls) - calls.count("swap")}


def listening():
    """The addresses at which this process waits for connections, after a fit."""
    fit("few blocks")
    own = {os.readlink(name) for name in Path("/proc/self/fd").iterdir() if name.is_symlink()}
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in own:
                found.add(local.split(":")[0])
    return sorted(found)


JOBS = {
    **{f"fit {name}": lambda name=name: fit(name) for name in FITS},
    **{f"rows {name}": lambda name=name: fit(name, rows=True) for name in FITS},
    **{f"error {name}": lambda work=work: named(work) for name, work in ERRORS.items()},
    **{f"local {name}": lambda name=name: fit(name, engine=False) for name in FITS},
    "weighted": lambda: weighted(False),
    "weighted rows": lambda: weighted(True),
    "refined": refined,
    "own files": own_files,
    "drawn": drawn,
    "listening": listening,
    **{
        f"{stroke} {phase}": lambda given=(stroke, phase): struck(*given)
        for stroke in STROKES
        for phase in PHASES
    },
}


def run(jobs):
    become()
    for job in jobs:
        print(json.dumps({job: JOBS[job]()}), flush=True)


# -- starting them -----------------------------------------------------------------------------


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def forked(order, rank, port):
    """A child that is this rank, its output in a file of its own."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        out = os.open(order["files"][rank], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        size = str(order["size"])
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": size}
        place |= {"LOCAL_WORLD_SIZE": size, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        os.environ.update(place | order["environment"])
        run(order["jobs"])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        atexit._run_exitfuncs()
        os._exit(code)


def ended(children, limit, struck):
    """Exit codes when all but the struck one are done; who is not by then hangs."""
    codes, end = {}, time.monotonic() + limit
    while time.monotonic() < end and any(r not in codes for r in children if r != struck):
        for r, child in children.items():
            if r not in codes and os.waitpid(child, os.WNOHANG)[0]:
                codes[r] = 0
        time.sleep(0.02)
    for r, child in children.items():
        if r not in codes:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return ["hangs" if r not in codes and r != struck else "ended" for r in children]


def serve():
    """Fork ranks for every order that comes in, and answer how they ended."""
    for line in sys.stdin:
        order, port = json.loads(line), free_port()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: none of ours
            children = {r: forked(order, r, port) for r in range(order["size"])}
        print(json.dumps(ended(children, order["limit"], order["struck"])), flush=True)


class Ranks:
    """Starts ranks, and tells what they gave."""

    def __init__(self, folder):
        self.folder = Path(folder)
        command = [sys.executable, "-W", "error", __file__]
        where = {"shape": (900, 24), "chunks": (40, 7), "dtype": "f8"}
        zarr.create_array(self.folder / "small.zarr", **where)[...] = noise(900, 24)
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        environment["RANKS_ZARR"] = str(self.folder / "small.zarr")
        self.server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, size, *jobs, limit=240, struck=None, **environment):
        """For every rank, job -> what it gave, or its output; none hangs."""
        files = [self.folder / f"rank{r}.txt" for r in range(size)]
        order = {"size": size, "jobs": jobs, "limit": limit, "struck": struck}
        order |= {"files": [str(file) for file in files], "environment": environment}
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        how = json.loads(self.server.stdout.readline())
        texts = [file.read_text() for file in files]
        assert "hangs" not in how, (how, texts)
        told = []
        for text in texts:
            gave = {"text": text}
            for line in text.splitlines():
                if line.startswith("{"):
                    gave |= json.loads(line)
            told.append(gave)
        return told

    def close(self):
        self.server.stdin.close()
        self.server.wait(60)
        self.server.stdout.close()


if __name__ == "__main__":
    run(sys.argv[1:]) if sys.argv[1:] else serve()
