"""Threads: any number of BLAS threads, two threads that use one model, and forks."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import ThreadpoolController, threadpool_limits

from primedpca import PrimedPCA, as_source, certify, prime, refine
from primedpca._core.process import lock_of, one_blas_thread
from primedpca.sources.files.common import InOrder

X = np.random.default_rng(0).normal(size=(3200, 300)) * np.arange(1, 301) ** -0.5
START = np.random.default_rng(1).normal(size=(300, 40))


def streamed():
    model = PrimedPCA(40).partial_fit(X[:1500]).partial_fit(X[1500:2000])
    model.merge(PrimedPCA(40).partial_fit(X[2000:]))
    return model.components_, model.certificate_.eigenvalue_bounds


WAYS = {
    "partial_fit": streamed,
    "fit": lambda: (PrimedPCA(9, priming="block_krylov", random_state=0).fit(X).components_,),
    "refine": lambda: (refine(X, START, 9).components,),
    "certify": lambda: (certify(X, np.eye(300)[:5], random_state=0).angle_bounds,),
    "prime": lambda: (
        [*prime(X, "subspace_iteration", 40, max_passes=3, random_state=0)][-1].directions,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_bits_do_not_hang_on_the_threads_of_blas(way):
    found = []
    for count in (1, 2, 4):
        with threadpool_limits(count, user_api="blas"):
            found.append([part.tobytes() for part in WAYS[way]()])
    assert found[0] == found[1] == found[2]


def test_another_thread_cannot_lift_the_limit_of_a_fit():
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    if not all(hasattr(library, "clear_controlling_thread") for library in libraries):
        pytest.skip("threadpoolctl before 3.8, or a BLAS other than OpenBLAS")
    before = [library.num_threads for library in libraries]
    with one_blas_thread:
        other = threading.Thread(target=lambda: [lib.set_num_threads(2) for lib in libraries])
        other.start()
        other.join()
        assert {library.num_threads for library in libraries} == {1}
    assert [library.num_threads for library in libraries] == before


def in_parallel(*calls):
    """Make the calls in threads that start at the same time; raise their errors."""
    errors, gate = [], threading.Barrier(len(calls))

    def run(call):
        gate.wait()
        try:
            call()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.fixture
def often():
    """Switch between threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_no_row_is_lost_when_threads_share_a_model(often):
    model, rows = PrimedPCA(3), X[:, :20]

    def feed(part):
        for start in range(0, len(part), 20):
            model.partial_fit(part[start : start + 20])
            assert model.components_.shape == (3, 20)

    in_parallel(*(lambda i=i: feed(rows[i::4]) for i in range(4)))
    assert model.n_samples_ == 3200
    np.testing.assert_allclose(model.mean_, rows.mean(axis=0), atol=1e-12)


def test_fits_merges_and_batches_wait_for_each_other(often):
    rows = X[:, :20]
    one, two = (PrimedPCA(3).partial_fit(rows[:100]) for _ in range(2))
    # Each merges the other: a thread that took both locks in its own order could deadlock.
    in_parallel(*(lambda a=a, b=b: a.merge(b) for a, b in ((one, two), (two, one)) * 3))
    assert one.n_samples_ >= 400
    assert two.n_samples_ >= 400
    model = PrimedPCA(3, random_state=0)
    in_parallel(lambda: model.fit(rows), lambda: model.partial_fit(rows), lambda: model.fit(rows))
    assert model.n_samples_ in (3200, 6400)


def test_a_lock_is_no_part_of_a_model():
    model = PrimedPCA(3).partial_fit(X[:50])
    for twin in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.partial_fit(X[:50]).n_samples_ == 100
        assert model.n_samples_ == 50
    assert clone(model).partial_fit(X[:50]).n_samples_ == 50
    assert not any("lock" in name for name in vars(model))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_forked_while_others_fit_do_not_hang():
    code = """
        import os, signal, threading, warnings
        import numpy as np
        from primedpca import PrimedPCA

        warnings.simplefilter("ignore", DeprecationWarning)  # forks with threads, from 3.12 on
        X = np.random.default_rng(0).normal(size=(300, 20))
        want, over = PrimedPCA(3).fit(X).components_.tobytes(), threading.Event()

        def work():
            while not over.is_set():
                PrimedPCA(3).fit(X)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        ends = []
        for _ in range(40):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                os._exit(0 if PrimedPCA(3).fit(X).components_.tobytes() == want else 3)
            ends.append(os.waitpid(child, 0)[1])
        over.set()
        print(ends.count(0), set(ends))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "40 {0}", done.stderr


def in_child(check):
    """Exit status of a forked child that makes a call: 0 if the result is true."""
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(30)
        os._exit(0 if check() else 3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_other_threads_held_is_free_in_a_child(tmp_path):
    path = tmp_path / "x.csv"
    np.savetxt(path, X[:200, :5], delimiter=",", header="a,b,c,d,e", comments="")
    source, model = as_source(path), PrimedPCA(2).partial_fit(X[:50, :5])
    held, leave = threading.Event(), threading.Event()

    def hold():
        lock = getattr(source, "_lock", None) or threading.Lock()
        with lock, lock_of(model), one_blas_thread:
            held.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    try:
        assert in_child(lambda: model.partial_fit(X[:50, :5]).n_samples_ == 100) == 0
        assert in_child(lambda: len(source.read(0)) > 0) == 0
    finally:
        leave.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_begins_a_file_anew():
    class Counting(InOrder):
        path, blocks, started = __file__, ((0, 1), (1, 2), (2, 3)), 0

        def _place(self, i):
            return f"block {i}"

        def _check_same(self, where):
            pass

        def _from(self, i):
            self.started += 1
            return iter(enumerate("abc"))

    source = Counting()
    assert source.read(0) == "a"
    assert in_child(lambda: source.read(1) == "b" and source.started == 2) == 0
    assert source.read(1) == "b"
    assert source.started == 1
