"""Dask clusters in which processes are killed: the same bits, or an error with a name, in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import dask.array as da
import numpy as np
import pytest
from clusters import bits, cluster, low_rank
from distributed import Client

from primedpca import PrimedPCA, as_source
from primedpca._core import dask_cluster
from primedpca.engines.dask.engine import DaskEngine
from primedpca.priming import BlockKrylov, Exact, Oja, SubspaceIteration
from primedpca.sources import base

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Sending large graph"),
    pytest.mark.parametrize("time_of_three", [1, 2, 3]),
]

LIMIT = 120.0  # seconds for any of these


@pytest.fixture(autouse=True)
def in_time():
    """Nothing hangs."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < LIMIT


@pytest.fixture
def x(tmp_path, monkeypatch):
    """Rows in a file, read so slowly that a pass can be disturbed."""
    monkeypatch.setattr(base, "READ_BYTES", 2**15)
    monkeypatch.setattr(dask_cluster, "LOOK", 0.2)
    np.save(tmp_path / "x.npy", low_rank(1500, 150, 0.9))

    def slowly(rows):
        time.sleep(0.02)
        return rows

    return as_source(tmp_path / "x.npy", map=slowly)


class Disturbed(DaskEngine):
    """While the ``n``-th pass with a kernel is made, something is done to the cluster."""

    def begin(self, kernel, n, act):
        self.__dict__.update(kernel=kernel, left=n, act=act, done=threading.Event())
        return self

    def sweep(self, source, kernel, whole, mine):
        self.disturb(kernel.__name__ + "-inside" * bool(whole.get("inside")))
        return super().sweep(source, kernel, whole, mine)

    def rows(self, source, index):
        self.disturb("rows")
        return super().rows(source, index)

    def disturb(self, name):
        if name == self.kernel and self.left:
            self.__dict__["left"] -= 1
            if not self.left:
                threading.Thread(target=self.when_busy, daemon=True).start()

    def when_busy(self):
        while not any(self.client.processing().values()):
            time.sleep(0.005)
        try:
            self.act(self.client)
        except Exception:  # too late, on a busy machine: `done` tells
            return
        self.done.set()


def pids(client):
    return list(client.run(os.getpid).values())


def kill_one(client):
    """Whoever is at work."""
    busy = [worker for worker, keys in client.processing().items() if keys]
    os.kill(client.run(os.getpid, workers=busy[:1]).popitem()[1], signal.SIGKILL)


def kill_holder(client):
    """Whoever holds parts that are to be added."""
    while True:
        holders = [who for key, who in client.who_has().items() if str(key).startswith("block-")]
        if holders and holders[0]:
            break
        time.sleep(0.002)
    os.kill(client.run(os.getpid, workers=list(holders[0])[:1]).popitem()[1], signal.SIGKILL)


def kill_all_but_one(client):
    for pid in pids(client)[1:]:
        os.kill(pid, signal.SIGKILL)


def kill_all(client):
    for pid in pids(client):
        os.kill(pid, signal.SIGKILL)


KRYLOV = {"priming": BlockKrylov(block_size=4)}
PHASES = {
    "moments": (KRYLOV | {"scale": "std"}, "moments", 1, kill_one),
    "first pass": (KRYLOV, "product", 1, kill_one),
    "a pass": (KRYLOV, "product", 3, kill_one),
    "reduce": (KRYLOV, "product", 2, kill_holder),
    "covariance": ({"priming": Exact()}, "covariance", 1, kill_one),
    "left": ({"priming": BlockKrylov(side="left"), "certificate": "none"}, "forward", 2, kill_one),
    "refine": (
        {"priming": SubspaceIteration(), "certificate": "none", "max_passes": 3, "tol": 1.0},
        "product-inside",
        1,
        kill_one,
    ),
    "certify": ({"priming": Oja(steps=5)}, "product", 2, kill_one),
    "mini-batches": (
        {"priming": Oja(steps=5), "batch_size": 500, "certificate": "none"},
        "rows",
        1,
        kill_one,
    ),
    "all but one": (KRYLOV, "product", 2, kill_all_but_one),
    "all": (KRYLOV, "product", 2, kill_all),
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_worker_changes_no_bit(x, phase, time_of_three):
    options, kernel, n, act = PHASES[phase]
    expected = bits(PrimedPCA(4, random_state=0, **options).fit(x))
    with cluster(4 if phase == "all but one" else 2) as client:
        engine = Disturbed(client).begin(kernel, n, act)
        found = PrimedPCA(4, random_state=0, engine=engine, **options).fit(x)
        assert engine.done.is_set()
    assert bits(found) == expected


def test_the_only_worker(x, time_of_three):
    expected = bits(PrimedPCA(4, random_state=0, **KRYLOV).fit(x))
    with cluster(1) as client:
        engine = Disturbed(client).begin("product", 2, kill_all)
        assert bits(PrimedPCA(4, random_state=0, engine=engine, **KRYLOV).fit(x)) == expected
        assert engine.done.is_set()


@pytest.mark.parametrize("kept", [False, True])
def test_chunks_of_an_array_that_were_lost(kept, time_of_three):
    values = da.from_array(low_rank(1500, 150, 0.9), chunks=(60, -1))

    def slowly(chunk):
        time.sleep(0.02)
        return chunk

    x = values.map_blocks(slowly, dtype=np.float32)
    expected = bits(PrimedPCA(4, random_state=0, **KRYLOV).fit(x))
    with cluster(2) as client, client.as_current():
        engine = Disturbed(client).begin("product", 2, kill_one)
        x = x.persist() if kept else x
        assert bits(PrimedPCA(4, random_state=0, engine=engine, **KRYLOV).fit(x)) == expected
        assert engine.done.is_set()


def test_a_block_that_kills_its_workers_is_named(tmp_path, monkeypatch, time_of_three):
    monkeypatch.setattr(base, "READ_BYTES", 2**14)
    values = low_rank(3000, 40)
    np.save(tmp_path / "x.npy", values)
    here, bad = os.getpid(), values[400, 0]

    def deadly(rows):
        if os.getpid() != here and bad in rows[:, 0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return rows

    source = as_source(tmp_path / "x.npy", map=deadly)
    number = next(i for i, (a, b) in enumerate(source.blocks) if a <= 400 < b)
    words = rf"block {number}\b.*workers died"
    with cluster(2) as client, pytest.raises(RuntimeError, match=words):
        PrimedPCA(4, engine=client, **KRYLOV).fit(source)


def test_a_block_that_takes_too_much_memory_is_named(tmp_path, monkeypatch, time_of_three):
    monkeypatch.setattr(base, "READ_BYTES", 2**14)
    values = low_rank(3000, 40)
    np.save(tmp_path / "x.npy", values)
    here, bad = os.getpid(), values[2900, 0]

    def greedy(rows):
        if os.getpid() != here and bad in rows[:, 0]:
            held = [np.ones(2**24) for _ in range(8)]
            time.sleep(20)
            del held
        return rows

    source = as_source(tmp_path / "x.npy", map=greedy)
    number = next(i for i, (a, b) in enumerate(source.blocks) if a <= 2900 < b)
    with (
        cluster(2, memory_limit="700MB") as client,
        pytest.raises(RuntimeError, match=rf"block {number}\b.*workers died"),
    ):
        PrimedPCA(4, engine=client, **KRYLOV).fit(source)


def test_workers_that_do_not_come_back(x, time_of_three):
    with started() as (_, workers, client):
        engine = Disturbed(client, timeout=4).begin(
            "product", 2, lambda client: [worker.kill() for worker in workers]
        )
        with pytest.raises(TimeoutError, match="no worker for 4 s"):
            PrimedPCA(4, random_state=0, engine=engine, **KRYLOV).fit(x)


def test_a_worker_that_hangs(x, time_of_three):
    with started() as (_, workers, client):
        engine = Disturbed(client, timeout=5).begin(
            "product", 2, lambda client: [worker.send_signal(signal.SIGSTOP) for worker in workers]
        )
        with pytest.raises(TimeoutError, match="has not finished within 5 s"):
            PrimedPCA(4, random_state=0, engine=engine, **KRYLOV).fit(x)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_without_its_scheduler_a_fit_ends_and_goes_on_from_its_checkpoint(
    x, tmp_path, monkeypatch, end, time_of_three
):
    monkeypatch.setattr(dask_cluster, "ANSWER", 3.0)
    options = KRYLOV | {"random_state": 0}
    expected = bits(PrimedPCA(4, **options).fit(x))
    options["checkpoint"] = tmp_path / "kept"
    with started() as (scheduler, _, client):
        engine = Disturbed(client, timeout=5).begin(
            "product", 3, lambda client: scheduler.send_signal(end)
        )
        with pytest.raises(ConnectionError, match=r"scheduler at .* does not answer"):
            PrimedPCA(4, engine=engine, **options).fit(x)
    assert len(list((tmp_path / "kept").glob("pass-*"))) == 2
    with cluster(2) as client:
        assert bits(PrimedPCA(4, engine=client, **options).fit(x)) == expected


class started:  # noqa: N801
    """A scheduler and two workers without nannies, each a process of its own."""

    def __enter__(self):
        run = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        self.scheduler = subprocess.Popen(
            [*run, "--host", "127.0.0.1", "--port", "0", "--no-dashboard"], **quiet
        )
        for line in self.scheduler.stderr:
            if "Scheduler at:" in line:
                address = line.split()[-1]
                break
        threading.Thread(target=self.scheduler.stderr.read, daemon=True).start()
        run = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
        quiet["stderr"] = subprocess.DEVNULL
        self.workers = [
            subprocess.Popen([*run, "--nthreads", "1", "--no-dashboard"], **quiet) for _ in range(2)
        ]
        self.client = Client(address, set_as_default=False, timeout=30)
        self.client.wait_for_workers(2, timeout=60)
        return self.scheduler, self.workers, self.client

    def __exit__(self, *_):
        for process in (*self.workers, self.scheduler):
            process.kill()
        for process in (*self.workers, self.scheduler):
            process.wait()
        self.scheduler.stderr.close()
        self.client.close(timeout=1)
