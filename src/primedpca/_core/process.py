"""Settings of this process: threads, their pools and locks, the threads of BLAS, freed memory.

A forked child has none of its parent's other threads, and the locks that these held stay locked.
Objects that hold a lock or a position in a file therefore make new ones in the child.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ContextDecorator, contextmanager
from functools import cache
from numbers import Integral
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

__all__ = [
    *("in_threads", "keep_freed", "limit_threads", "lock_of", "one_blas_thread", "pool_of"),
    *("processors", "renewed_after_fork", "reusing_memory"),
]

VARIABLE = "PRIMEDPCA_NUM_THREADS"

TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt
KEPT = 2**27  # bytes that may stay at the end of the heap
LARGEST = 2**25  # bytes of one block: the most that glibc learns by itself
USUAL = 2**17  # bytes of one block that glibc starts with

_locks: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_renewed: WeakSet[Any] = WeakSet()
_left: list[Any] = []
_limit: int | None = None  # of `limit_threads`


def processors(least: int = 1, shared_by: int = 1) -> int:
    """Return the number of threads to work in.

    It is what :func:`limit_threads` or the environment variable ``PRIMEDPCA_NUM_THREADS`` says,
    or else the number of processors that affinity and the CPU quota of the container allow.

    Parameters
    ----------
    least : int, default=1
        Smallest number unless the user set one.
    shared_by : int, default=1
        Number of processes that share the processors unless the user set a number.
    """
    if _limit is not None:
        return _limit
    words = os.environ.get(VARIABLE, "").strip()
    if words:
        if not (words.isdecimal() and int(words) >= 1):
            raise ValueError(f"{VARIABLE}={words!r} must be an integer of at least 1, or unset.")
        return int(words)
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    found = min(len(allowed(0)) if allowed else os.cpu_count() or 1, cpu_quota())
    return max(least, int(found) // shared_by)


@contextmanager
def limit_threads(n_threads: int | None) -> Iterator[None]:
    """Use at most ``n_threads`` threads inside the ``with`` block, in the whole process.

    The results have the same bits with any number.  The limit takes precedence over the
    environment variable ``PRIMEDPCA_NUM_THREADS``.

    Parameters
    ----------
    n_threads : int or None
        Number of threads, at least 1; ``None`` changes nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from primedpca import PrimedPCA
    >>> from primedpca.engines import limit_threads
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> with limit_threads(1):
    ...     pca = PrimedPCA(2).fit(X)
    """
    global _limit
    whole = isinstance(n_threads, Integral) and not isinstance(n_threads, bool)
    if n_threads is not None and not (whole and n_threads >= 1):
        raise ValueError(f"`n_threads`={n_threads!r} must be an integer of at least 1, or None.")
    before = _limit
    _limit = before if n_threads is None else int(n_threads)
    try:
        yield
    finally:
        _limit = before


@cache
def cpu_quota(proc: Path = Path("/proc/self"), root: Path = Path("/sys/fs/cgroup")) -> float:
    """Return how many processors the control groups of this process allow, rounded up.

    Containers are limited this way: affinity shows all processors of the machine, but threads
    beyond the quota only wait for each other.  Every group above the process may have a limit.

    Parameters
    ----------
    proc : Path, default=/proc/self
        Folder of the process, of which ``cgroup`` is read.
    root : Path, default=/sys/fs/cgroup
        Where the control groups are mounted.

    Returns
    -------
    float
        Infinity without a quota, and where there are no control groups.
    """
    try:
        lines = (proc / "cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return math.inf
    quotas = [math.inf]
    for line in lines:  # number:kinds:path, without kinds in the second version
        kinds, _, place = line.partition(":")[2].partition(":")
        if kinds and "cpu" not in kinds.split(","):
            continue
        # Inside a container the path is that of the host, while the mount shows its own group.
        own = PurePosixPath(place.lstrip("/"))
        for folder in (own, *own.parents):
            quotas.append(_quota_in(root / (kinds or "") / folder, bool(kinds)))
    return min(quotas)


def _quota_in(folder: Path, first_version: bool) -> float:
    """Return the quota of one control group, infinity if it has none."""
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if first_version else ("cpu.max",)
    try:
        words = " ".join((folder / name).read_text() for name in names).split()
        quota, period = (float(word) for word in words[:2])
    except (OSError, ValueError):  # no such file, or "max"
        return math.inf
    return math.ceil(quota / period) if quota > 0 and period > 0 else math.inf


@cache
def pool_of(workers: int, name: str = "primedpca") -> ThreadPoolExecutor:
    """Return a pool of this many threads, which live as long as the process."""
    return ThreadPoolExecutor(workers, thread_name_prefix=name)


def lock_of(owner: Any) -> Any:
    """Return the reentrant lock of an object, which is not copied or pickled with it."""
    # Atomic, so that two threads that ask at the same time get the same lock.
    return _locks.setdefault(owner, threading.RLock())


def renewed_after_fork(owner: Any) -> None:
    """Call ``owner._renew()`` in every child that is forked while ``owner`` lives."""
    _renewed.add(owner)


def _after_fork() -> None:
    pool_of.cache_clear()
    _locks.clear()
    for owner in list(_renewed):
        # Kept alive: closing a file that another thread was reading may hang.
        _left.append(dict(vars(owner)))
        owner._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def in_threads(work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Apply ``work`` to each part, such as a slice of rows; return the results in order.

    The parts determine the bits of a result; the number of processors does not.
    """
    workers = min(processors(), len(parts)) if len(parts) > 1 else 1
    if workers == 1:
        return [work(some) for some in parts]
    found: list[Any] = [None] * len(parts)
    left = deque(range(len(parts)))

    def take() -> None:
        while left:
            try:
                i = left.popleft()
            except IndexError:  # another thread was faster
                return
            found[i] = work(parts[i])

    # This thread works as well: it need not be woken, nor wait for threads that are busy.
    helpers = [pool_of(workers - 1, "primedpca-rows").submit(take) for _ in range(workers - 1)]
    try:
        take()
    finally:
        left.clear()
        wait([helper for helper in helpers if not helper.cancel()])
    for helper in helpers:
        if not helper.cancelled():
            helper.result()  # raises what went wrong there
    return found


class _Limit(ContextDecorator):
    """Limit of one BLAS thread: with more threads BLAS adds in another order.

    On GPUs, products of float32 are made in float32, whatever PyTorch's switches for TF32 say.
    Nested and concurrent uses are counted.  Otherwise two fits in two threads would restore each
    other's limit.
    """

    def __init__(self) -> None:
        # Reentrant: a signal handler that forks may interrupt a thread that holds the lock.
        self.lock, self.users = threading.RLock(), 0
        self.before: list[int] | None = None  # numbers of threads, while the limit is set
        self.switches: list[tuple[Any, str, Any]] = []  # of PyTorch, with their earlier values
        self.libraries: Any = None
        self.let_any_thread_set: list[Any] = []

    def __enter__(self) -> None:
        """Set the limit for the first user."""
        with self.lock:
            self.users += 1
            if self.users > 1:
                return
            if self.libraries is None:
                import scipy.linalg  # noqa: F401  (only a library that is loaded can be limited)
                from threadpoolctl import ThreadpoolController

                self.libraries = ThreadpoolController().select(user_api="blas").lib_controllers
                # Since version 3.8 threadpoolctl obeys only the first thread that set a limit, but
                # the last thread to leave may be another one.  All libraries of a kind share this.
                for kind in {type(library) for library in self.libraries}:
                    if hasattr(kind, "clear_controlling_thread"):
                        self.let_any_thread_set.append(kind.clear_controlling_thread)
            if self.before is None:
                self.before = list(map(attrgetter("num_threads"), self.libraries))
                self._set([1] * len(self.before))
            if "torch" in sys.modules:
                self.switches = _full_precision()

    def __exit__(self, *error: object) -> None:
        """Restore the earlier number of threads after the last user."""
        with self.lock:
            self.users -= 1
            if self.users == 0:
                for owner, name, value in self.switches:
                    setattr(owner, name, value)
                self.switches = []
            if self.users == 0 and self.before is not None:
                self._set(self.before, release=True)
                self.before = None

    def forget_users(self) -> None:
        """Reset the count in a forked child, where no other thread exists; the limit stays set.

        The next :meth:`__exit__` removes the limit: BLAS may not be usable during the fork itself.
        """
        self.lock, self.users = threading.RLock(), 0

    def _set(self, threads: list[int], release: bool = False) -> None:
        """Set the number of threads of each library; ``release`` lets others set it afterwards."""
        for let in self.let_any_thread_set:
            let(force=True)
        for library, number in zip(self.libraries, threads, strict=True):
            library.set_num_threads(number)
        for let in self.let_any_thread_set if release else ():
            let(force=True)


def _full_precision() -> list[tuple[Any, str, Any]]:
    """Turn products of PyTorch in TF32 off; return what to set again afterwards."""
    # None while PyTorch is being imported, or after an import that was refused.
    backends = getattr(sys.modules["torch"], "backends", None)
    if backends is None or not hasattr(backends, "cuda"):
        return []
    owner = backends.cuda.matmul
    # Since version 2.9 PyTorch has a switch of another name, and refuses a mixture of both.
    name, full = ("fp32_precision", "ieee") if _has_precisions(owner) else ("allow_tf32", False)
    before = getattr(owner, name)
    if before == full:
        return []
    setattr(owner, name, full)
    return [(owner, name, before)]


@cache
def _has_precisions(owner: Any) -> bool:
    try:
        return isinstance(owner.fp32_precision, str)
    except AttributeError:
        return False


#: Limits BLAS to one thread inside a ``with`` block or a decorated function, for the whole process.
one_blas_thread = _Limit()
if hasattr(os, "register_at_fork"):
    # Holding the lock during a fork keeps a half-made change of the limit out of the child.
    os.register_at_fork(
        before=lambda: one_blas_thread.lock.acquire(),
        after_in_parent=lambda: one_blas_thread.lock.release(),
        after_in_child=one_blas_thread.forget_users,
    )


# -- freed memory ----------------------------------------------------------------------------
#
# glibc returns large freed blocks to the system.  Every page of the next block then faults in
# again, which can cost as much as the work on the block.  By itself glibc learns to keep blocks of
# the sizes that it has seen freed, up to twice the largest in all; Dask starts its workers with
# even this learning turned off.

_lock = threading.Lock()
_users = 0


def _forget_users() -> None:
    """Reset the count in a forked child, in which the parent's other threads do not exist."""
    global _lock, _users
    _lock, _users = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_users)


def keep_freed() -> None:
    """Allocate and free the largest block that glibc learns from, without touching a page."""
    np.empty(LARGEST - 2**16, dtype=np.uint8)


@cache
def _mallopt() -> Any:
    """Return glibc's ``mallopt``, unless the environment has set the size of blocks."""
    chosen = "MALLOC_MMAP_THRESHOLD_" in os.environ
    if chosen or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return None
    try:
        return ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return None


@contextmanager
def reusing_memory(wanted: bool = True) -> Iterator[None]:
    """Keep freed blocks inside the ``with`` block, if ``wanted``.

    Afterwards the settings of the environment apply again, or else the largest values that glibc
    learns by itself.

    Parameters
    ----------
    wanted : bool, default=True
        False changes nothing.
    """
    global _users
    change = _mallopt() if wanted else None
    if change is None:
        yield
        return
    # The settings belong to the process: the first fit makes them, the last one undoes them.
    with _lock:
        _users += 1
        if _users == 1:
            change(MMAP, LARGEST)
            change(TRIM, KEPT)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                chosen = os.environ.get("MALLOC_TRIM_THRESHOLD_")
                change(MMAP, LARGEST if chosen is None else USUAL)
                change(TRIM, 2 * LARGEST if chosen is None else int(chosen))
