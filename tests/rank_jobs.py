"""Jobs that ranks run in tests.

``python rank_jobs.py JOB [JOB ...]`` runs jobs one after the other on this rank of torchrun, or
alone, and prints one JSON object for each.  See ``rank_starts.py`` for how tests start them.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
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
from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred
from primedpca.engines.torch.engine import TorchDistributed
from primedpca.priming import EigenGame, Oja
from primedpca.protocols import Parts
from primedpca.sources import RankRows, base
from primedpca.sources.memory import dense, sparse

RANK, SIZE, LIMIT, STRUCK, WITH = 0, 1, 0.0, 0, {}

#: Small data in many blocks.
SMALL = [(module, "BLOCK_BYTES", 2**10) for module in (base, dense)]
SMALL += [(module, "READ_BYTES", 2**10) for module in (base,)]
SMALL += [(sparse, "BLOCK_ENTRIES", 100), (sparse, "OUTPUT_RATIO", 1)]


def become():
    """Become the rank that the environment names; a rank silent for LIMIT seconds is lost."""
    global RANK, SIZE, LIMIT, STRUCK
    RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    LIMIT = float(os.environ.get("RANKS_LIMIT", 60))
    STRUCK = int(os.environ.get("RANKS_STRUCK", SIZE - 1))
    if "RANKS_RESTARTS" in os.environ:  # as agents of several machines count, each for itself
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(RANK)
    WITH.update(engine=TorchDistributed(LIMIT), random_state=0)
    for module, name, value in SMALL:
        setattr(module, name, value)


def noise(*shape):
    """Numbers whose sum depends on the order of addition."""
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 2, shape)


def thinned(X):
    return X * (np.random.default_rng(1).random(X.shape) < 0.3)


def bits(pca):
    """Hash of all results of a fit."""
    found = [pca.components_, pca.explained_variance_, pca.mean_, pca.noise_variance_]
    found += [] if pca.angle_bounds_ is None else [pca.angle_bounds_]
    return hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in found)).hexdigest()[:16]


def make_files(folder):
    """Files that any engine reads: chunks both ways, rows, and sparse rows."""
    where = {"shape": (900, 24), "chunks": (40, 7), "dtype": "f8"}
    zarr.create_array(folder / "both.zarr", **where)[...] = noise(900, 24)
    np.save(folder / "rows.npy", noise(1300, 18))
    sp.save_npz(folder / "thin.npz", sp.csr_array(thinned(noise(500, 40))), compressed=False)


def file(name):
    return f"{os.environ['RANKS_FILES']}/{name}"


def opened(path):
    if path.endswith("zarr"):
        return zarr.open_array(path)[:]
    return np.load(path) if path.endswith("npy") else sp.load_npz(path)


def mine(X):
    """Rows of this rank, in uneven shares, so that some blocks lie on two ranks."""
    X = opened(X) if isinstance(X, str) else X
    edges = [round(X.shape[0] * (r / SIZE) ** 1.5) for r in range(SIZE + 1)]
    return X[edges[RANK] : edges[RANK + 1]]


# -- jobs that end well: each gives the same on every rank, on any number of them ---------------

FITS = {
    "zarr": lambda: (file("both.zarr"), {"priming": "block_krylov"}),
    "npy": lambda: (file("rows.npy"), {}),
    "npz": lambda: (file("thin.npz"), {"priming": "block_krylov"}),
    "tall": lambda: (noise(1700, 18), {}),
    "wide": lambda: (noise(18, 700), {"priming": "block_krylov"}),
    "few blocks": lambda: (noise(90, 6), {}),  # fewer than ranks
    "one block": lambda: (noise(21, 5), {}),  # held by the first rank alone
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
    """Fit rows that every rank has in its own file."""
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


class Stops:
    """Callback that stops the fit after a number of passes that differs between ranks."""

    def __init__(self, after):
        self.after, self.passes = after, 0

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.passes += context.task_name == "pass"
        return context.task_name == "pass" and self.passes >= self.after

    def teardown(self, estimator, context):
        pass


def stopped(after):
    """Stop a fit by the callback of rank 0 alone."""
    pca = PrimedPCA(3, priming="block_krylov", tol=1e-9, extra_components=0, **WITH)
    if after is not None:
        pca.set_callbacks(Stops(after))
    pca.fit(noise(700, 40))
    return {"bits": bits(pca), "passes": pca.n_passes_, "status": pca.status_.name}


def drawn():
    """Fit without a seed: all ranks use that of rank 0."""
    pca = PrimedPCA(3, engine=WITH["engine"], priming=Oja(steps=20)).fit(noise(300, 12))
    return {"bits": bits(pca), "seconds": pca.history_[-1]["seconds"]}


# -- jobs that end with an error on every rank --------------------------------------------------


def named(work):
    """Return the error of a job, and the bits of a fit that the ranks make after it."""
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
    """Rows with one block that the last rank cannot read."""

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
    from primedpca._solve import driver as solve

    before = solve.in_unit_of_data
    try:
        if last():
            solve.in_unit_of_data = lambda *_: exec("raise MemoryError('no room here')")
        PrimedPCA(3, priming="block_krylov", **WITH).fit(noise(700, 18))
    finally:
        solve.in_unit_of_data = before


def product(turn):
    """Make a pass in which the last rank has another operand."""
    vectors = noise(18, 4)
    data = Centred(noise(700, 18), WITH["engine"])
    return data.covariance_product(turn(vectors) if last() else vectors)


ERRORS = {
    "other signs": lambda: product(lambda vectors: -vectors),
    "other order of columns": lambda: product(lambda vectors: vectors[:, ::-1].copy()),
    "control characters": lambda: PrimedPCA(3, **WITH).fit(Fails(OSError("\x01" * 900), 20)),
    "no Unicode": lambda: PrimedPCA(3, **WITH).fit(Fails(OSError("torn: \udc80"), 20)),
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

# -- jobs in which a rank is struck: RANKS_STRUCK, or the last one -------------------------------

STROKES = {
    "nothing": lambda: None,
    "kill once": lambda: kill_once(Path(os.environ["RANKS_MARK"])),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": lambda: time.sleep(1000),
    "memory": lambda: out_of_memory(),
}
#: Phase -> name of a kernel (or of an exchange) and the number of its call.
PHASES = {
    "moments": ("moments", 1),
    "pass": ("product", 2),
    "reduce": ("swap", 3),
    "certify": ("product", 5),
    "refine": ("refine", 1),
}


def kill_once(mark):
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def little_memory(more=2**24):
    """Limit this process to so many bytes more than it has."""
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))


def out_of_memory():
    little_memory()
    np.ones(2**28)


def strike(stroke):
    """Strike this rank if it is STRUCK; rank RANKS_SLOW is late by RANKS_LATE seconds there."""
    if RANK == STRUCK and SIZE > 1:
        STROKES[stroke]()
    elif str(RANK) == os.environ.get("RANKS_SLOW"):
        time.sleep(float(os.environ["RANKS_LATE"]))


def lonely(work):
    """Do ``work`` on a rank that stays alive after an error: others must not wait for it."""
    try:
        return work()
    except MemoryError:
        traceback.print_exc()
        sys.stderr.flush()
        time.sleep(1000)


#: Exchanges that need 64 MiB for received data; the struck rank has a quarter of it.
ROOM = {
    "share": lambda: WITH["engine"].share(lambda: np.ones(2**23)),
    "collect": lambda: WITH["engine"].collect(np.ones(2**23 if RANK == 0 else 1)),
    "sums": lambda: WITH["engine"].sweep(as_source(np.ones((3, 4))), long_sums, {}, {}),
    "rows": lambda: rows_of_all(),
}


def long_sums(block):
    return Parts((np.ones(2**23),))


def rows_of_all():
    rows = RankRows(np.ones((2**17 if RANK == 0 else 1, 64)), WITH["engine"])
    if RANK == STRUCK:
        little_memory()
    return rows.rows(np.arange(2**17))


def no_room(where):
    """Let one rank run out of memory for received data."""
    fit("few blocks")  # so that threads and connections exist
    if RANK == STRUCK and where != "rows":
        little_memory()
    return lonely(ROOM[where]) is None


def struck(stroke, phase):
    """Strike a rank in one of the phases of a fit.

    It is kept in the folder RANKS_FOLDER, if there is one; ``swept`` are the passes it makes.
    """
    from primedpca.engines.local import LocalEngine
    from primedpca.engines.torch.ranks import Ranks

    where, nth = PHASES[phase]
    part, swap, calls = LocalEngine.part, Ranks.swap, []

    def count(name):
        calls.append(name)
        if name == where and calls.count(name) == nth:
            strike(stroke)

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
    pca = lonely(lambda: PrimedPCA(4, **options).fit(X))
    LocalEngine.part, Ranks.swap = part, swap
    return {"bits": bits(pca), "swept": len(calls) - calls.count("swap")}


def listening():
    """Return the addresses on which this process listens after a fit."""
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
    "stopped": lambda: stopped(3 + 2 * RANK),
    "stopped by rank 0": lambda: stopped(None if RANK else 3),
    **{f"no room {where}": lambda where=where: no_room(where) for where in ROOM},
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


if __name__ == "__main__":
    run(sys.argv[1:])
