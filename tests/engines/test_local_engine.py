"""Blocks in threads: the order of results and of errors, and the threads that work."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

from primedpca import PrimedPCA
from primedpca._core.process import in_threads
from primedpca.engines import LocalEngine
from primedpca.protocols import Parts
from primedpca.sources.base import BlockSource
from primedpca.sources.memory.sparse import BLOCK_ENTRIES, OUTPUT_RATIO, cut_by_entries


class Numbers(BlockSource):
    """Blocks that hold their own number; some take longer to read than others."""

    axis, device, dtype = 0, None, np.dtype(float)

    def __init__(self, count, array=None):
        self.shape, self.blocks = (count, 1), tuple((i, i + 1) for i in range(count))
        self.array = array
        self.threads = set()

    def read(self, i):
        self.threads.add(threading.current_thread().name)
        time.sleep(0.002 * (i % 3))
        return np.full((1, 1), float(i))


def halves(block):
    """Numbers of decreasing size, whose sum depends on the order of addition."""
    return Parts((0.1**block,), (block,))


@pytest.mark.parametrize("array", [None, np.zeros(1)])
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
def test_results_come_in_block_order(workers, array):
    source = Numbers(40, array)
    found = LocalEngine(workers).sweep(source, halves, {}, {})
    assert found.stacks[0].ravel().tolist() == list(range(40))
    assert found.sums[0] == LocalEngine(1).sweep(Numbers(40), halves, {}, {}).sums[0]


@pytest.mark.parametrize("workers", [2, 3])
def test_no_more_threads_than_workers_and_the_caller_is_one(workers):
    source = Numbers(30)
    LocalEngine(workers).sweep(source, halves, {}, {})
    assert threading.current_thread().name in source.threads
    assert len(source.threads) <= workers


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_first_error_is_told_and_the_next_sweep_is_well(workers):
    def fails(block):
        if block >= 7:
            raise ValueError(f"block {block.item():.0f}")
        return halves(block)

    for _ in range(5):
        with pytest.raises(ValueError, match=r"^block 7$"):
            LocalEngine(workers).sweep(Numbers(20), fails, {}, {})
    found = LocalEngine(workers).sweep(Numbers(20), halves, {}, {})
    assert found.stacks[0].ravel().tolist() == list(range(20))


def test_sweeps_side_by_side_share_the_threads():
    def several(name):
        for _ in range(5):
            found = LocalEngine(2).sweep(Numbers(12), halves, {}, {})
            results[name].append(found.stacks[0].ravel().tolist())

    results = {name: [] for name in range(6)}
    callers = [threading.Thread(target=several, args=(name,)) for name in results]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert all(found == [list(range(12))] * 5 for found in results.values())


def test_slices_in_threads_keep_their_order():
    rows = [slice(i, i + 1) for i in range(50)]

    def late(some):
        time.sleep(0.001 * (some.start % 3))
        return some.start

    assert in_threads(late, rows) == list(range(50))


@pytest.mark.parametrize("times", [0.3, 1, 1.3, 2.4, 4.6, 5, 11, 40])
def test_sparse_blocks_are_a_power_of_two_and_near_equal(times):
    across = BLOCK_ENTRIES // OUTPUT_RATIO // 4
    X = sp.csr_array((np.ones(1), ([0], [0])), shape=(4000, across))
    entries = int(times * BLOCK_ENTRIES)
    counts = np.full(4000, entries // 4000) + (np.arange(4000) < entries % 4000)
    X.indptr = np.concatenate([[0], np.cumsum(counts)])
    blocks = cut_by_entries(X.indptr, across)
    assert len(blocks) in (1, 2, 4, 8, 16, 32, 64)
    assert (blocks[0][0], blocks[-1][1]) == (0, 4000)
    held = [X.indptr[b] - X.indptr[a] for a, b in blocks]
    assert max(held) - min(held) <= 2 * counts.max()
    assert len(blocks) == 1 or 0.7 * BLOCK_ENTRIES <= np.mean(held) <= 1.42 * BLOCK_ENTRIES


def test_an_engine_of_the_users_own_that_returns_nothing_is_named():
    class Forgetful:
        def sweep(self, source, kernel, whole, mine):
            LocalEngine(1).sweep(source, kernel, whole, mine)

    words = "`sweep` of Forgetful returned a NoneType, which must be a Parts"
    with pytest.raises(TypeError, match=words):
        PrimedPCA(2, engine=Forgetful()).fit(np.eye(5))
