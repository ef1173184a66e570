"""Dask: arrays and files on a cluster of real processes, to the bits of the local engine."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from copy import copy, deepcopy

import dask
import dask.array as da
import numpy as np
import psutil
import pytest
import scipy.sparse as sp
import zarr
from catalogue import FILES, KINDS, sparse_chunks
from clusters import bits, cluster, low_rank
from distributed import Client
from sklearn.base import clone

from primedpca import PrimedPCA, as_source, certify, plan, prime
from primedpca._core import dask_cluster
from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred
from primedpca.engines import LocalEngine, as_engine
from primedpca.engines.dask import engine as dask_module
from primedpca.engines.dask.engine import DaskEngine
from primedpca.priming import BlockKrylov, FrequentDirections, MuEigenGame, Oja
from primedpca.report import report_html
from primedpca.sources import base

# Dask warns of data inside a graph, which small tests have.

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:Sending large graph"),
]


@pytest.fixture(scope="module")
def client():
    with cluster(2) as found:
        yield found


@pytest.fixture
def in_scope(client):
    with client.as_current():
        yield client


@pytest.fixture
def many_blocks(monkeypatch):
    """Strips of one chunk, so that there are more blocks than are added at once."""
    monkeypatch.setattr(base, "READ_BYTES", 2**12)


TALL, WIDE = low_rank(660, 40), low_rank(40, 660)
THIN = sp.csr_array(TALL * (np.random.default_rng(1).random(TALL.shape) < 0.2))

ARRAYS = {
    "rows": lambda: da.from_array(TALL, chunks=(30, -1)),
    "columns": lambda: da.from_array(WIDE, chunks=(-1, 30)),
    "both ways": lambda: da.from_array(WIDE, chunks=(17, 30)),
    "uneven": lambda: da.from_array(TALL, chunks=((100, 1, 0, 59, 500), (7, 33))),
    "wide rows": lambda: da.from_array(WIDE, chunks=(3, -1)),
    "csr": lambda: sparse_chunks(THIN, 40),
    "csr, both ways": lambda: sparse_chunks(THIN, 660).rechunk((660, 10)),
    "whole numbers": lambda: da.from_array((10 * TALL).astype(np.int16), chunks=(30, -1)),
}

# -- the same bits as on this machine ----------------------------------------------------------


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize(
    ("name", "priming"), [*((name, "block_krylov") for name in ARRAYS), ("both ways", "auto")]
)
def test_an_array_gives_the_bits_of_the_local_engine(client, name, priming):
    x = ARRAYS[name]()
    source = as_source(x)
    assert len(source.blocks) > 2
    here, there = (
        PrimedPCA(4, priming=priming, random_state=0, engine=engine).fit(x)
        for engine in (LocalEngine(2), client)
    )
    assert bits(there) == bits(here)
    assert there.converged_


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("name", ["rows", "columns", "uneven", "whole numbers"])
def test_an_explicit_matrix_gives_the_bits_of_the_local_engine(client, name):
    x = ARRAYS[name]()
    way = BlockKrylov(8, side="right" if x.shape[1] <= x.shape[0] else "left", explicit=True)
    here, there = (
        PrimedPCA(4, priming=way, random_state=0, engine=engine).fit(x)
        for engine in (LocalEngine(2), client)
    )
    assert bits(there) == bits(here)
    assert there.certificate_.kind == "probabilistic"
    assert there.status_.name == "CERTIFIED"


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("name", ["npy, rows", "hdf5, chunks", "zarr 3", "h5ad, csr", "npz, csc"])
def test_a_file_gives_the_bits_of_the_local_engine(client, tmp_path, name):
    path = (FILES | KINDS)[name](TALL, tmp_path)
    here, there = (
        PrimedPCA(4, priming="block_krylov", random_state=0, engine=engine).fit(path)
        for engine in (None, client)
    )
    assert bits(there) == bits(here)


PRODUCTS = {
    "covariance_product": lambda data, right, left: data.covariance_product(right),
    "forward": lambda data, right, left: data.forward(right),
    "adjoint": lambda data, right, left: data.adjoint(left),
    "scores": lambda data, right, left: data.scores_and_squares(right)[1],
    "square": lambda data, right, left: data.gram() if data.source.axis else data.covariance(),
}


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize(("name", "spread"), [("rows", True), ("rows", False), ("csr", True)])
def test_every_product_has_the_bits_of_the_local_engine(client, monkeypatch, name, spread):
    if not spread:  # each part is added to the sum before it
        monkeypatch.setattr(dask_module, "SPREAD_BYTES", 0)
    x = ARRAYS[name]()
    weights = np.random.default_rng(2).integers(0, 4, x.shape[0])
    rng = np.random.default_rng(3)
    left, right = (rng.standard_normal((m, 3)).astype(np.float32) for m in x.shape)
    found = []
    for engine in (LocalEngine(2), DaskEngine(client)):
        data = Centred(x, engine, sample_weight=weights, scale="std")
        found.append([to_numpy(make(data, right, left)) for make in PRODUCTS.values()])
    for product, here, there in zip(PRODUCTS, *found, strict=True):
        assert here.tobytes() == there.tobytes(), product


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("span", [1, 16, 256])
@pytest.mark.parametrize("spread", [True, False])
def test_runs_of_blocks_add_up_to_the_same_bits(client, tmp_path, monkeypatch, span, spread):
    monkeypatch.setattr(dask_module, "span_of", lambda count, threads: span)
    if not spread:
        monkeypatch.setattr(dask_module, "SPREAD_BYTES", 0)
    path, rng = tmp_path / "x.npy", np.random.default_rng(3)
    np.save(path, low_rank(9000, 40))
    right = rng.standard_normal((40, 3))
    here, there = (Centred(path, engine) for engine in (LocalEngine(2), DaskEngine(client)))
    assert len(here.source.blocks) > 300
    for product in ("covariance_product", "scores"):
        one, two = (to_numpy(PRODUCTS[product](data, right, None)) for data in (here, there))
        assert one.tobytes() == two.tobytes()


def test_tasks_are_runs_of_blocks_if_all_have_several():
    spans = [dask_module.span_of(count, 2) for count in (1, 127, 128, 2047, 2048, 40_000)]
    assert spans == [1, 1, 16, 16, 256, 4096]


@pytest.mark.usefixtures("many_blocks")
def test_the_number_of_workers_and_threads_changes_no_bit(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, low_rank(3000, 40))
    expected = bits(PrimedPCA(4, priming="block_krylov", random_state=0).fit(path))
    for workers, threads in ((1, 3), (4, 1)):
        with cluster(workers, threads) as client:
            pca = PrimedPCA(4, priming="block_krylov", random_state=0, engine=client).fit(path)
            assert bits(pca) == expected


@pytest.mark.parametrize(
    ("name", "priming"),
    [("rows", Oja(steps=30)), ("both ways", MuEigenGame(steps=5)), ("csr", FrequentDirections(30))],
)
def test_mini_batches_are_those_of_this_machine(client, monkeypatch, name, priming):
    monkeypatch.setattr(base, "GROUP_BYTES", 2**16)
    x = ARRAYS[name]()
    here, there = (
        PrimedPCA(
            3, priming=priming, batch_size=50, certificate="none", random_state=0, engine=engine
        ).fit(x)
        for engine in (LocalEngine(2), client)
    )
    assert bits(there) == bits(here)


def test_mini_batches_of_a_file_and_a_mapped_file(client, tmp_path):
    np.save(tmp_path / "x.npy", TALL)
    for source in (as_source(tmp_path / "x.npy"), as_source(tmp_path / "x.npy", map=np.square)):
        held = DaskEngine(client).view(source)
        for (i, here), (j, there) in zip(source.batches(50, 3), held.batches(50, 3), strict=True):
            np.testing.assert_array_equal(i, j)
            np.testing.assert_array_equal(here, there)


def test_refining_with_a_share_of_the_rows(client, tmp_path):
    np.save(tmp_path / "x.npy", TALL)
    here, there = (
        PrimedPCA(4, refine_share=0.5, priming=Oja(steps=9), random_state=0, engine=engine).fit(
            tmp_path / "x.npy"
        )
        for engine in (None, client)
    )
    assert bits(there) == bits(here)


# -- who works, and what travels -----------------------------------------------------------------


def with_marks(x, folder):
    """Return the array; each computed chunk leaves a file that names the chunk and the process."""
    folder = str(folder)

    def mark(chunk, block_info=None):
        where = block_info[0]["chunk-location"]
        open(f"{folder}/{where[0]}-{where[1]}-{os.getpid()}-{time.monotonic_ns()}", "x").close()
        return chunk

    return x.map_blocks(mark, dtype=x.dtype)


def marks(folder):
    """Return chunk and process of every such file."""
    names = [name.split("-") for name in os.listdir(folder)]
    return [((int(a), int(b)), int(pid)) for a, b, pid, _ in names]


@pytest.mark.usefixtures("many_blocks", "in_scope")
def test_workers_compute_each_chunk_once_a_pass(client, tmp_path):
    x = with_marks(ARRAYS["both ways"](), tmp_path)
    data = Centred(x)
    assert isinstance(data.engine, DaskEngine)
    vectors = np.ones((660, 2), np.float32)
    data.learn()
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    data.forward(vectors)
    found = marks(tmp_path)
    assert sorted(chunk for chunk, _ in found) == [(i, j) for i in range(3) for j in range(22)]
    pids = set(client.run(os.getpid).values())
    assert {pid for _, pid in found} <= pids
    assert os.getpid() not in pids


@pytest.mark.usefixtures("many_blocks")
def test_without_a_client_blocks_are_computed_here(tmp_path):
    x = with_marks(ARRAYS["rows"](), tmp_path)
    PrimedPCA(3, random_state=0).fit(x)
    assert {pid for _, pid in marks(tmp_path)} == {os.getpid()}


def test_no_cluster_is_started_unless_asked_for():
    code = (
        "import sys, threading, numpy as np, dask.array as da\n"
        "from primedpca import PrimedPCA\n"
        "X = da.from_array(np.random.default_rng(0).normal(size=(90, 6)), chunks=(20, 3))\n"
        "PrimedPCA(2).fit(X).transform(X).compute()\n"
        "from distributed import Client\n"
        "import psutil\n"
        "assert not psutil.Process().children()\n"
        "try:\n    Client.current()\nexcept ValueError:\n    sys.exit(0)\nsys.exit(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_client_in_scope_and_an_address(client, tmp_path, in_scope):
    np.save(tmp_path / "x.npy", TALL)
    x = ARRAYS["rows"]()
    assert as_engine(None, as_source(x)).client is client
    assert isinstance(as_engine(None, as_source(tmp_path / "x.npy")), LocalEngine)
    by_address = as_engine(client.scheduler.address)
    assert by_address.client is as_engine(client.scheduler.address).client
    expected = bits(PrimedPCA(3, random_state=0, engine=LocalEngine()).fit(TALL[:, :9]))
    np.save(tmp_path / "y.npy", TALL[:, :9])
    found = PrimedPCA(3, random_state=0, engine=client.scheduler.address).fit(tmp_path / "y.npy")
    assert len(bits(found)) == len(expected)
    assert Client.current() is client
    by_address.client.close()
    assert as_engine(client.scheduler.address).client.status == "running"
    as_engine(client.scheduler.address).client.close()


def test_only_loopback_is_listened_on(client):
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = {
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_persisted_chunks_are_worked_on_where_they_are(client, in_scope):
    x = ARRAYS["rows"]().persist()
    expected = bits(PrimedPCA(4, random_state=0, engine=LocalEngine(1)).fit(ARRAYS["rows"]()))
    assert bits(PrimedPCA(4, random_state=0).fit(x)) == expected


def test_blocks_are_computed_by_the_cluster_that_was_named(client, tmp_path):
    x = with_marks(ARRAYS["rows"](), tmp_path)
    for priming in ("block_krylov", "frequent_directions"):
        options = {"priming": priming, "checkpoint": tmp_path.with_name(priming)}
        PrimedPCA(3, engine=client, random_state=0, **options).fit(x)
    assert os.getpid() not in {pid for _, pid in marks(tmp_path)}


def test_an_array_that_is_kept_outlives_its_cluster():
    source = as_source(ARRAYS["rows"]())
    with cluster(1) as found:
        expected = bits(PrimedPCA(3, engine=found, random_state=0).fit(source))
    for kept in (source, as_source(source, map=np.positive)):
        model = PrimedPCA(3, random_state=0).fit(kept)
        assert bits(model) == expected
        assert model.where_ == "this machine"


@pytest.mark.parametrize("how", [{}, {"refine_share": 0.5, "priming": Oja(steps=9)}])
def test_persisted_chunks_of_a_cluster_that_is_not_in_scope(client, how):
    with client.as_current():
        x = ARRAYS["rows"]().persist()
    expected = PrimedPCA(3, random_state=0, engine=LocalEngine(1), **how).fit(ARRAYS["rows"]())
    assert bits(PrimedPCA(3, random_state=0, engine=client, **how).fit(x)) == bits(expected)


@pytest.mark.parametrize("name", ["rows", "csr"])
def test_a_mapped_array_goes_to_the_client_in_scope(client, in_scope, tmp_path, name):
    x = with_marks(ARRAYS[name](), tmp_path)
    here, there = (
        PrimedPCA(3, random_state=0, engine=engine).fit(as_source(x, map=abs))
        for engine in (LocalEngine(2), None)
    )
    assert bits(there) == bits(here)
    assert os.getpid() not in {pid for _, pid in marks(tmp_path)}


def test_the_plan_does_not_depend_on_the_cluster_and_keeps_memory_per_worker(client, tmp_path):
    zarr.create_array(tmp_path / "x.zarr", shape=(4000, 3000), chunks=(500, 3000), dtype="f4")
    here = plan(tmp_path / "x.zarr", 10)
    there = plan(tmp_path / "x.zarr", 10, engine=client)
    assert there.priming == here.priming
    assert there.n_directions == here.n_directions
    with pytest.raises(ValueError, match="max_memory"):
        plan(tmp_path / "x.zarr", 10, engine=client, max_memory="60MB")
    bounded = plan(tmp_path / "x.zarr", 10, engine=client, max_memory="500MB")
    assert bounded.ways[0].memory <= 500e6


def test_certifying_and_priming_on_a_cluster(client):
    x = ARRAYS["rows"]()
    pca = PrimedPCA(4, random_state=0).fit(TALL)
    proof = certify(x, pca.components_, engine=client, random_state=0)
    assert proof.met(0.01).all()
    *_, last = prime(x, "subspace_iteration", 6, engine=client, random_state=0, max_passes=3)
    *_, same = prime(x, "subspace_iteration", 6, engine=LocalEngine(), random_state=0, max_passes=3)
    assert last.directions.tobytes() == same.directions.tobytes()


def test_an_estimator_with_a_client_can_be_cloned(client):
    pca = PrimedPCA(2, engine=client)
    assert clone(pca).engine is client
    assert clone(pca).n_components == 2


def test_a_fit_that_was_broken_off_goes_on_with_or_without_the_cluster(client, tmp_path):
    class Stops(DaskEngine):
        def sweep(self, *arguments):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return super().sweep(*arguments)

    x = ARRAYS["both ways"]()
    options = {"priming": "block_krylov", "random_state": 0}
    expected = PrimedPCA(4, engine=LocalEngine(), **options).fit(x)
    for i, engine in enumerate((client, LocalEngine())):
        left = [2]
        options["checkpoint"] = tmp_path / str(i)
        with pytest.raises(KeyboardInterrupt):
            PrimedPCA(4, engine=Stops(client), **options).fit(x)
        again = PrimedPCA(4, engine=engine, **options).fit(x)
        assert bits(again) == bits(expected)
        assert len(again.history_) == len(expected.history_)


# -- scores stay lazy ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["both ways", "uneven", "csr"])
def test_scores_of_an_array_are_an_array(tmp_path, name):
    x = ARRAYS[name]()
    pca = PrimedPCA(3, whiten=True, scale="std", random_state=0).fit(x)
    marked = with_marks(x, tmp_path)
    lazy = pca.transform(marked)
    assert isinstance(lazy, da.Array)
    assert lazy.shape == (x.shape[0], 3)
    assert lazy.chunks[0] == tuple(size for size in x.chunks[0] if size)
    assert not marks(tmp_path)  # nothing was computed
    found = lazy.compute(scheduler="synchronous")
    assert found.dtype == lazy.dtype
    values = x.compute(scheduler="synchronous")
    values = values.toarray() if sp.issparse(values) else values
    size = abs(found).max()
    np.testing.assert_allclose(found, pca.transform(values), rtol=0, atol=2e-5 * size)


def test_scores_are_computed_by_the_cluster(client, in_scope, tmp_path):
    x = with_marks(ARRAYS["rows"](), tmp_path)
    scores = PrimedPCA(3, random_state=0).fit_transform(x)
    assert isinstance(scores, da.Array)
    assert scores.compute().shape == (660, 3)
    assert os.getpid() not in {pid for _, pid in marks(tmp_path)}


def test_rows_from_scores_stay_lazy():
    x = ARRAYS["rows"]()
    pca = PrimedPCA(30, random_state=0).fit(x)
    back = pca.inverse_transform(pca.transform(x))
    assert isinstance(back, da.Array)
    np.testing.assert_allclose(back.compute(), TALL, atol=0.2)


def test_scores_into_an_array_or_a_file(tmp_path):
    x = ARRAYS["rows"]()
    pca = PrimedPCA(3, random_state=0).fit(x)
    out = np.empty((660, 3), np.float32)
    assert pca.transform(x, out=out) is out
    written = pca.transform(x, out=tmp_path / "scores.npy")
    np.testing.assert_array_equal(written, out)


def test_a_missing_value_is_named_when_scores_are_computed():
    values = TALL.copy()
    values[333, 2] = np.nan
    scores = PrimedPCA(3, random_state=0).fit(TALL).transform(da.from_array(values, chunks=100))
    with pytest.raises(ValueError, match="row 333"):
        scores.compute(scheduler="synchronous")


# -- refusing -----------------------------------------------------------------------------------


class Blocks:
    def __iter__(self):
        return iter([TALL])


@pytest.mark.parametrize("x", [TALL, THIN, Blocks()], ids=["dense", "sparse", "blocks"])
def test_data_in_memory_are_not_sent_to_workers(client, x):
    with pytest.raises(ValueError, match="cannot be read by the workers"):
        PrimedPCA(2, engine=client).fit(x)


def test_unknown_chunk_sizes_are_refused_by_name():
    x = da.from_array(TALL, chunks=(100, -1))
    unknown = x[x[:, 0] > 0]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        PrimedPCA(2).fit(unknown)
    unknown.compute_chunk_sizes()
    assert PrimedPCA(2).fit(unknown).n_samples_ == unknown.shape[0]


def test_other_shapes_and_types_are_refused():
    with pytest.raises(ValueError, match="two dimensions"):
        as_source(da.ones((3, 3, 3)))
    with pytest.raises(ValueError, match="Complex"):
        as_source(da.ones((3, 3), dtype=complex))
    with pytest.raises(ValueError, match="0 sample"):
        as_source(da.ones((0, 3)))
    lying = da.map_blocks(lambda c: c[:1], da.ones((9, 3), chunks=(3, 3)), dtype=float)
    with pytest.raises(ValueError, match="chunk sizes"):
        PrimedPCA(2).fit(lying)


def test_engines_that_are_none(monkeypatch):
    with pytest.raises(ValueError, match="not available"):
        PrimedPCA(2, engine="dusk").fit(TALL)
    with pytest.raises(TypeError, match=r"distributed\.Client"):
        DaskEngine(3)
    monkeypatch.setattr(dask_cluster, "ANSWER", 0.3)
    with pytest.raises(ConnectionError, match=r"no Dask scheduler answered within 0\.3 s"):
        as_engine("tcp://127.0.0.1:9")


@pytest.mark.parametrize("duplicate", [copy, deepcopy, lambda pca: pickle.loads(pickle.dumps(pca))])
def test_a_model_with_a_client_is_copied_with_its_address(client, tmp_path, duplicate):
    np.save(tmp_path / "x.npy", TALL)
    pca = PrimedPCA(3, random_state=0, engine=client).fit(tmp_path / "x.npy")
    again = duplicate(pca)
    assert pca.engine is client
    assert again.engine == client.scheduler.address
    assert bits(again) == bits(pca) == bits(again.fit(tmp_path / "x.npy"))


def test_a_closed_client_is_named():
    with cluster(1, processes=False) as client:
        pca = PrimedPCA(3, engine=client).fit(ARRAYS["rows"]())
    with pytest.raises(ConnectionError, match="does not answer, or its client is closed"):
        pca.fit(ARRAYS["rows"]())
    assert deepcopy(pca).engine is None


def test_a_timeout_must_be_positive(client):
    with pytest.raises(ValueError, match="timeout"):
        DaskEngine(client, timeout=0)


# -- what fails is named ---------------------------------------------------------------------------


def failing(x, number, error):
    """Return the array with one chunk of rows that always fails."""

    def fail(chunk, block_info=None):
        if block_info[0]["chunk-location"][0] == number:
            raise error
        return chunk

    return x.map_blocks(fail, dtype=x.dtype)


@pytest.mark.usefixtures("many_blocks")
def test_a_block_that_always_fails_is_named(client, tmp_path):
    np.save(tmp_path / "x.npy", TALL)

    bad = TALL[100, 0]

    def odd(rows):
        if bad in rows[:, 0]:
            raise ArithmeticError("no such rows")
        return rows

    source = as_source(tmp_path / "x.npy", map=odd)
    number = next(i for i, (start, stop) in enumerate(source.blocks) if start <= 100 < stop)
    with pytest.raises(RuntimeError, match=f"block {number}, rows .*ArithmeticError: no such"):
        PrimedPCA(2, engine=client).fit(source)


@pytest.mark.usefixtures("many_blocks")
def test_a_chunk_that_always_fails_is_named(client):
    with pytest.raises(RuntimeError, match=r"chunk \(7, 0\) .*ArithmeticError: it is broken"):
        PrimedPCA(2, engine=client).fit(
            failing(ARRAYS["rows"](), 7, ArithmeticError("it is broken"))
        )


@pytest.mark.usefixtures("many_blocks")
def test_a_chunk_that_fails_is_named_while_others_are_worked_on(client, monkeypatch):
    monkeypatch.setattr(dask_cluster, "LOOK", 0.2)

    def slow(chunk, block_info=None):
        if block_info and block_info[0]["chunk-location"][0] == 4:
            time.sleep(3)
        return chunk

    x = failing(ARRAYS["rows"](), 3, ValueError("it is broken")).map_blocks(slow, dtype="f4")
    with pytest.raises(ValueError, match=r"chunk \(3, 0\) .*it is broken"):
        DaskEngine(client).rows(as_source(x), np.arange(660))


def test_a_damaged_file_is_named(client, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "READ_BYTES", 2**12)
    path = tmp_path / "x.zarr"
    array = zarr.create_array(path, shape=TALL.shape, chunks=(30, 40), dtype="f4")
    array[...] = TALL
    source = as_source(path)
    chunk = next(
        p for p in path.rglob("*") if p.is_file() and p.name == "0" and p.parent.name == "9"
    )
    chunk.write_bytes(chunk.read_bytes()[:50])
    with pytest.raises(OSError, match="block 9"):
        PrimedPCA(2, engine=client).fit(source)


def test_no_worker_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster, "LOOK", 0.2)
    monkeypatch.setattr(dask_cluster, "ANSWER", 2.0)
    np.save(tmp_path / "x.npy", TALL)
    with cluster(0) as client:
        for x in (tmp_path / "x.npy", ARRAYS["rows"]()):
            with pytest.raises(TimeoutError, match="no worker for 1 s"):
                PrimedPCA(2, engine=DaskEngine(client, timeout=1)).fit(x)


def test_a_task_that_hangs_is_named(client, monkeypatch):
    monkeypatch.setattr(dask_cluster, "LOOK", 0.2)

    def hang(chunk, block_info=None):
        if block_info and block_info[0]["chunk-location"][0] == 5:
            time.sleep(4)
        return chunk

    x = ARRAYS["rows"]().map_blocks(hang, dtype=np.float32)
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(TimeoutError, match=r"not finished within 1\.5 s"),
    ):
        Centred(x, DaskEngine(client, timeout=1.5)).forward(np.ones((40, 1), np.float32))


@pytest.mark.parametrize("how", ["in scope", "by address"])
def test_a_model_and_its_page_say_where_it_was_fitted(client, how):
    x, address = ARRAYS["rows"](), client.scheduler.address
    with client.as_current():
        model = PrimedPCA(2, engine=None if how == "in scope" else address).fit(x)
    assert model.where_ == f"Dask, {address}"
    assert f"Dask, {address}" in report_html(model)
