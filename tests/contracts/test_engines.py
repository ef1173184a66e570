"""Promises of an engine: the same bits however the work is divided, and no side effects."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from primedpca import PrimedPCA, as_source
from primedpca._core.arrays import to_numpy
from primedpca._core.process import one_blas_thread
from primedpca._operator.operator import Centred
from primedpca.engines import LocalEngine, as_engine
from primedpca.engines.base import CountedEngine, FixedTree, RecordedEngine, read_and_apply
from primedpca.engines.torch.engine import TorchDistributed
from primedpca.priming import SubspaceIteration
from primedpca.protocols import Engine, Parts

pytestmark = pytest.mark.usefixtures("small_blocks")


def noise(*shape):
    """Numbers whose sum depends on the order of addition."""
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, shape)


def thinned(X):
    return X * (np.random.default_rng(1).random(X.shape) < 0.3)


DATA = {
    "dense tall": lambda: noise(700, 18),
    "dense wide": lambda: noise(18, 700),
    "float32": lambda: noise(700, 18).astype(np.float32),
    "csr tall": lambda: sp.csr_array(thinned(noise(700, 18))),
    "csr wide": lambda: sp.csr_array(thinned(noise(40, 90))),
    "csc tall": lambda: sp.csc_array(thinned(noise(90, 40))),
    "csc wide": lambda: sp.csc_array(thinned(noise(18, 700))),
    "torch": lambda: torch.tensor(noise(700, 18)),
}

ENGINES = [LocalEngine(1), LocalEngine(2), LocalEngine(4), TorchDistributed()]  # one rank

PRODUCTS = {
    "covariance_product": lambda data, right, left: data.covariance_product(right),
    "forward": lambda data, right, left: data.forward(right),
    "adjoint": lambda data, right, left: data.adjoint(left),
    "covariance": lambda data, right, left: data.covariance(),
    "gram": lambda data, right, left: data.gram(),
    "projected_covariance": lambda data, right, left: data.projected_covariance(right),
    "mean": lambda data, right, left: data.mean,
    "standardised": lambda data, right, left: data.frame.scale,
}


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("name", DATA)
def test_the_number_of_workers_changes_no_bit(name, product):
    X = DATA[name]()
    found = []
    for engine in ENGINES:
        scale = "std" if product == "standardised" else None
        data = Centred(X, engine, scale=scale)
        assert len(data.source.blocks) > 8
        right, left = (data.like.asarray(noise(size, 3)) for size in reversed(data.shape))
        passes = [PRODUCTS[product](data, right, left) for _ in range(2)]  # first and later
        found.append(b"".join(to_numpy(one).tobytes() for one in passes if one is not None))
    assert set(found) == {found[0]}


def test_who_is_slow_changes_no_bit():
    source = as_source(noise(700, 18))

    def kernel(block, number):
        time.sleep(0.003 * int(3 - number[0] % 4))  # the first of every four comes last
        return Parts((block.T @ block,), (block[:, 0],))

    number = np.repeat(np.arange(len(source.blocks)), [b - a for a, b in source.blocks])
    slow = LocalEngine(4).sweep(source, kernel, {}, {"number": number})
    quick = LocalEngine(1).sweep(
        source, lambda block, number: kernel(block, [3]), {}, {"number": number}
    )
    np.testing.assert_array_equal(slow.sums[0], quick.sums[0])
    np.testing.assert_array_equal(slow.stacks[0], source.array[:, 0])


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_kernel_gets_what_belongs_to_its_block(workers, axis):
    X = noise(700, 18) if axis == 0 else noise(18, 700)
    source = as_source(X)
    assert source.axis == axis

    def kernel(block, *, whole, mine, several):
        assert several[1] is None
        assert block.shape[axis] == mine.shape[0] == several[0].shape[0]
        first = block[:, 0] if axis == 0 else block[0]
        return Parts((np.float64(whole * block.sum()),), (first + mine + several[0],))

    class Pair(tuple):
        def __new__(cls, *parts):
            return super().__new__(cls, parts)

    own = np.arange(700.0)
    found = LocalEngine(workers).sweep(
        source, kernel, {"whole": 2.0}, {"mine": own, "several": Pair(2 * own, None)}
    )
    np.testing.assert_allclose(found.sums[0], 2 * X.sum())
    np.testing.assert_array_equal(found.stacks[0], (X[:, 0] if axis == 0 else X[0]) + own + 2 * own)


# -- the fixed tree ---------------------------------------------------------------------------


def left_to_right(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def in_sixteens(parts):
    """Add sixteen neighbours, then sixteen such sums, and so on; the remainder last."""
    left_over = []
    while parts:
        whole = len(parts) // 16 * 16
        if parts[whole:]:
            left_over.append(left_to_right(parts[whole:]))
        parts = [left_to_right(parts[i : i + 16]) for i in range(0, whole, 16)]
    total = left_over[0]
    for larger in left_over[1:]:
        total = larger + total
    return total


def tree_sum(parts):
    tree = FixedTree(tuple((i, i + 1) for i in range(len(parts))))
    for i, part in enumerate(parts):
        tree.add(Parts((part,), (np.array([i]),)))
    total = tree.total()
    np.testing.assert_array_equal(total.stacks[0], np.arange(len(parts)))
    return total.sums[0]


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40, 256, 257, 300, 4099])
def test_the_tree_adds_in_a_fixed_order(count):
    parts = list(noise(count, 5))
    found = tree_sum(parts)
    np.testing.assert_array_equal(found, in_sixteens(parts))
    if count >= 40:  # other orders give other bits
        assert (found != left_to_right(parts)).any()


@pytest.mark.parametrize("library", [np.array, torch.tensor])
def test_the_tree_adds_in_float64(library):
    parts = [library(np.array([1.0, 2.0**-30], np.float32)) for _ in range(300)]
    found = tree_sum(parts)
    assert "float64" in str(found.dtype)
    np.testing.assert_array_equal(to_numpy(found), [300.0, 300 * 2.0**-30])
    small = tree_sum([library(np.array(1.0, np.float32)), library(np.array(1e-9, np.float32))])
    assert float(small) == 1.0 + float(np.float32(1e-9))


def test_the_tree_does_not_write_to_the_parts():
    parts = list(noise(40, 5))
    before = [part.copy() for part in parts]
    tree_sum(parts)
    np.testing.assert_array_equal(parts, before)


# -- errors, forks, threads -------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("bad", [0, 5, -1])
def test_an_error_comes_through_and_the_engine_goes_on(workers, bad):
    engine, source = LocalEngine(workers), as_source(noise(700, 18))
    before = blas_threads()
    bad %= len(source.blocks)

    def kernel(block, mine):
        if mine[0] == source.blocks[bad][0]:
            raise ZeroDivisionError(f"in block {bad}")
        return Parts((block.sum(axis=0),))

    with pytest.raises(ZeroDivisionError, match=f"in block {bad}"):
        engine.sweep(source, kernel, {}, {"mine": np.arange(700)})
    assert blas_threads() == before
    good = engine.sweep(source, kernel, {}, {"mine": np.arange(700) + 0.5})
    np.testing.assert_allclose(good.sums[0], source.array.sum(axis=0))


def test_works_in_a_forked_child():
    X, vectors = noise(700, 18), noise(18, 3)
    engine = LocalEngine(2)

    def product():
        return Centred(X, engine).covariance_product(vectors).tobytes()

    expected = product()  # so that the pool and its threads exist before the fork
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: the point here
        child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            os.write(write, product())
        finally:
            os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], 30)
    if not ready:
        os.kill(child, signal.SIGKILL)
    found = os.read(read, len(expected) + 1) if ready else b""
    os.waitpid(child, 0)
    os.close(read)
    assert ready, "the child hangs"
    assert found == expected


def blas_threads():
    return {
        library["filepath"]: library["num_threads"]
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_has_one_thread_inside_a_sweep_and_its_own_number_after():
    before = blas_threads()
    assert 2 in before.values()
    seen = []

    def kernel(block):
        seen.append(blas_threads())
        return Parts((block.sum(axis=0),))

    LocalEngine(2).sweep(as_source(noise(700, 18)), kernel, {}, {})
    assert len(seen) > 8
    assert all(set(threads.values()) == {1} for threads in seen)
    assert blas_threads() == before


def test_a_sweep_that_ends_leaves_the_limit_to_the_others():
    before = blas_threads()
    source = as_source(noise(700, 18))

    def total(block):
        return Parts((block.sum(axis=0),))

    def kernel(block):
        other = threading.Thread(target=LocalEngine(1).sweep, args=(source, total, {}, {}))
        other.start()
        other.join()
        assert set(blas_threads().values()) == {1}
        return total(block)

    LocalEngine(1).sweep(source, kernel, {}, {})
    assert blas_threads() == before


def test_whoever_leaves_last_takes_the_limit_away():
    before = blas_threads()
    inside, go_on = threading.Event(), threading.Event()
    seen = []

    def stay():
        with one_blas_thread:
            inside.set()
            go_on.wait(30)
            seen.append(blas_threads())

    other = threading.Thread(target=stay)
    with one_blas_thread:  # first in, first out
        other.start()
        inside.wait(30)
    go_on.set()
    other.join()
    assert set(seen[0].values()) == {1}
    assert blas_threads() == before


def test_the_limit_holds_in_a_thread_that_is_not_the_first():
    before = blas_threads()
    with one_blas_thread:
        pass
    seen = []

    def kernel(block):
        seen.append(blas_threads())
        return Parts((block.sum(axis=0),))

    def sweep():
        LocalEngine(1).sweep(as_source(noise(700, 18)), kernel, {}, {})

    other = threading.Thread(target=sweep)
    other.start()
    other.join()
    assert seen
    assert all(set(threads.values()) == {1} for threads in seen)
    assert blas_threads() == before


def test_a_limit_of_the_user_comes_back():
    before = blas_threads()
    with threadpool_limits(2, user_api="blas"):
        set_by_the_user = blas_threads()
        with one_blas_thread:
            assert set(blas_threads().values()) == {1}
        assert blas_threads() == set_by_the_user
    assert blas_threads() == before


@pytest.mark.usefixtures("two_blas_threads")
def test_two_fits_at_once():
    before = blas_threads()
    data = [noise(700, 18), noise(18, 700)]

    def fit(X):
        model = PrimedPCA(3, priming=SubspaceIteration(), engine=LocalEngine(2), random_state=0)
        return model.fit(X).components_.tobytes()

    alone = [fit(X) for X in data]
    together = [[], []]
    start = threading.Barrier(2)

    def repeat(i):
        start.wait()
        for _ in range(8):
            together[i].append(fit(data[i]))

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(2):
        assert together[i] == [alone[i]] * 8
    assert blas_threads() == before


# -- choosing an engine -----------------------------------------------------------------------


class Bare:
    """An engine of a user that has only ``sweep``."""

    def __init__(self):
        self.passes = 0

    def sweep(self, source, kernel, whole, mine):
        self.passes += 1
        tree = FixedTree(source.blocks)
        for i in range(len(source.blocks)):
            tree.add(read_and_apply(source, kernel, whole, mine, i))
        return tree.total()


def test_as_engine():
    engine = LocalEngine(3)
    assert as_engine(engine) is engine
    assert isinstance(as_engine(None), LocalEngine)
    assert isinstance(engine, Engine)
    with pytest.raises(ValueError, match="`engine`='cluster' is not available"):
        as_engine("cluster")
    with pytest.raises(TypeError, match=r"`engine` is the class LocalEngine. Pass an instance"):
        PrimedPCA(2, engine=LocalEngine).fit(np.eye(5))
    for workers in (0, 1.5, "2", True):
        with pytest.raises(ValueError, match=f"`workers`={workers!r} must be an integer of at"):
            LocalEngine(workers)


def test_an_object_with_only_sweep_is_an_engine_to_the_same_bits(tmp_path):
    X, own = noise(700, 18), Bare()
    fits = [PrimedPCA(3, engine=engine, random_state=0).fit(X) for engine in (None, own)]
    assert fits[0].components_.tobytes() == fits[1].components_.tobytes()
    assert own.passes > 0
    assert [fit.where_ for fit in fits] == ["this machine", "Bare"]
    kept = PrimedPCA(3, engine=own, checkpoint=tmp_path / "kept", random_state=0).fit(X)
    assert kept.components_.tobytes() == fits[0].components_.tobytes()


@pytest.mark.parametrize("name", [name for name in vars(Engine) if not name.startswith("_")])
def test_every_engine_has_every_member(name):
    told = []
    journal = SimpleNamespace()
    wrapped = RecordedEngine(CountedEngine(LocalEngine(2), told.append), journal)
    for engine in (*ENGINES, as_engine(Bare()), wrapped):
        assert hasattr(engine, name)
    assert wrapped.traits == LocalEngine(2).traits
    assert wrapped.journal is journal
    assert wrapped.collect(7) == [7]


@pytest.mark.parametrize("priming", ["auto", "block_krylov", "subspace_iteration"])
def test_a_fit_of_a_file_has_the_same_bits_with_any_number_of_workers(tmp_path, priming):
    np.save(tmp_path / "x.npy", noise(700, 80))
    found = {
        PrimedPCA(3, priming=priming, engine=LocalEngine(workers), random_state=0)
        .fit(tmp_path / "x.npy")
        .components_.tobytes()
        for workers in (1, 2, 4)
    }
    assert len(found) == 1
