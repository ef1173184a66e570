"""Computing on a Dask cluster: bounded waiting, retries, and errors that name the block.

This module knows tasks and futures but not engines, so that sources can compute Dask arrays as
well as the engine can.
"""

from __future__ import annotations

import re
import time
from collections.abc import Container, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

__all__ = ["check_client", "compute", "naming", "threads_of"]

RETRIES = 2  # of a task that raises, before its error is raised here
TIMEOUT = 300.0  # seconds without progress after which waiting ends
LOOK = 2.0  # seconds between two checks of the cluster
ANSWER = 30.0  # seconds in which a scheduler must answer


def check_client(client: Any) -> None:
    """Raise unless ``client`` is a synchronous Dask client."""
    if not all(hasattr(client, name) for name in ("scatter", "compute", "sync")):
        raise TypeError(f"`client`={client!r} is not a distributed.Client. Pass one.")
    if client.asynchronous:
        raise ValueError(
            "`engine` is an asynchronous client, but fits wait for their results. Pass "
            "distributed.Client(address) without `asynchronous`."
        )


def threads_of(client: Any) -> list[int]:
    """Return the number of threads of each worker."""
    try:
        found = client.sync(client.scheduler.ncores, workers=None, callback_timeout=ANSWER)
    except (OSError, TimeoutError, CancelledError, AttributeError):
        _check_reachable(client)
        raise
    return list(found.values())


def compute(client: Any, wanted: Any, timeout: float = TIMEOUT) -> Any:
    """Return the value of a delayed object, or the values of a list of them.

    Parameters
    ----------
    client : distributed.Client
    wanted : delayed object, or list of delayed objects
    timeout : float, default=300.0
        Seconds without progress after which waiting ends.

    Raises
    ------
    TimeoutError
        If for ``timeout`` seconds the cluster had no worker, or no task finished.
    ConnectionError
        If the scheduler does not answer.
    """
    several = wanted if isinstance(wanted, list) else [wanted]
    keys = {key for one in several for key in one.__dask_graph__()}
    with client.as_current():
        futures = client.compute(several, retries=RETRIES)
        try:
            values = _finished(client, futures, timeout, keys)
        finally:
            # An error keeps its frames alive, and these would keep the results on the workers.
            for future in futures:
                future.release()
    return values if isinstance(wanted, list) else values[0]


def _finished(client: Any, futures: list[Any], timeout: float, keys: Container[Any]) -> list[Any]:
    """Wait for all futures; ``keys`` are those of the tasks that they depend on."""
    from distributed import KilledWorker

    watch = _Watch(client, timeout, keys)
    try:
        while not _all_done(futures):
            watch.look()
        return [future.result(timeout=timeout) for future in futures]
    except CancelledError as error:
        _check_reachable(client)
        raise RuntimeError(
            f"the pass was cancelled on {client.scheduler.address}: by another user of the "
            "cluster, or because scattered data were lost with their worker. Fit again, and pass "
            "data that can be read again."
        ) from error
    except KilledWorker as error:
        raise RuntimeError(
            f"{_suspects(client, error.task, keys)} could not be processed: "
            f"{error.allowed_failures + 1} workers died on it one after the other, most often "
            "because they ran out of memory. Give workers more memory, or use smaller chunks."
        ) from error
    except Exception as error:
        chunk = _failed_chunk(client, futures)
        if chunk is None:
            raise
        raise _located(error, f"chunk {chunk} of the Dask array") from error


def _suspects(client: Any, task: Any, keys: Container[Any]) -> str:
    """Name the blocks that workers may have died on.

    Dask also blames a task that only waited for its turn on a worker that died.
    """

    def blamed(dask_scheduler: Any) -> list[Any]:  # pickled by value: runs on the scheduler
        tasks = dask_scheduler.tasks.values()
        return [one.key for one in tasks if one.state == "erred" and one.exception_blame is one]

    try:
        found = [key for key in client.run_on_scheduler(blamed) if key in keys]
    except Exception:  # some clusters refuse to run functions on the scheduler
        found = []
    return " or ".join(sorted(map(_block_of, {task, *found})))


def _failed_chunk(client: Any, futures: list[Any]) -> tuple[int, ...] | None:
    """Return the position of the chunk whose own task failed, if that is the cause."""
    failed = [future.key for future in futures if future.status == "error"]
    if not failed or client.status != "running":
        return None
    ask = client.scheduler.get_error_cause
    key = client.sync(ask, keys=failed, callback_timeout=ANSWER)
    return tuple(key[1:]) if isinstance(key, (list, tuple)) else None


def _all_done(futures: list[Any]) -> bool:
    """Wait for ``LOOK`` seconds; return whether all are done, and raise if one has failed."""
    from distributed import wait

    try:
        wait(futures, timeout=LOOK)
    except TimeoutError:
        for future in futures:
            if future.status == "error":
                future.result()  # raises
        return False
    return True


class _Watch:
    """Checks whether the tasks of a computation make progress."""

    def __init__(self, client: Any, timeout: float, keys: Container[Any]) -> None:
        self.client, self.timeout, self.keys = client, timeout, keys
        self.state: Any = None
        self.since = time.monotonic()

    def look(self) -> None:
        """Raise if nothing has changed for ``timeout`` seconds."""
        _check_reachable(self.client)
        ask = self.client.scheduler.processing
        found = self.client.sync(ask, workers=None, callback_timeout=ANSWER)
        # Tasks of other users of the cluster say nothing about these.
        now = sorted(str(key) for held in found.values() for key in held if key in self.keys)
        if now != self.state:
            self.state, self.since = now, time.monotonic()
        elif time.monotonic() - self.since > self.timeout:
            remedy = "DaskEngine(client, timeout=...)"
            if not found:
                raise TimeoutError(
                    f"the Dask cluster at {self.client.scheduler.address} has had no worker for "
                    f"{self.timeout:g} s. Start workers, or allow more time with {remedy}."
                )
            what = _block_of(now[0]) if now else "the pass"
            raise TimeoutError(
                f"{what} has not finished within {self.timeout:g} s, nor has any other task. "
                f"Check the workers' logs, or allow more time with {remedy}."
            )


def _check_reachable(client: Any) -> None:
    """Raise if the scheduler does not answer."""
    where = client.scheduler.address if client.scheduler is not None else "the cluster"
    try:
        if client.status == "running":
            client.sync(client.scheduler.identity, n_workers=0, callback_timeout=ANSWER)
            return
        error: Exception | None = None
    except (OSError, TimeoutError, CancelledError) as found:
        error = found
    raise ConnectionError(
        f"the Dask scheduler at {where} does not answer. Restart it and fit again: with "
        "`checkpoint` the fit resumes after the last complete pass."
    ) from error


def _block_of(key: Any) -> str:
    """Name the block that a task is about."""
    found = re.match(r"block-(\d+)(?:\.\.(\d+))?-", str(key))
    if not found:
        return f"task {key!r}"
    return f"one of blocks {found[1]} to {found[2]}" if found[2] else f"block {found[1]}"


@contextmanager
def naming(i: int, place: tuple[int, int], axis: int) -> Iterator[None]:
    """Add the block's number and rows (or columns), counted from 0, to errors raised inside."""
    try:
        yield
    except Exception as error:
        words = f"block {i}"
        if re.search(rf"\b{words}\b", str(error)):
            raise
        where = f"{words}, {('rows', 'columns')[axis]} {place[0]}:{place[1]}"
        raise _located(error, where) from error


def _located(error: Exception, where: str) -> Exception:
    """Return an error of the same kind whose message names the place."""
    kind = next((k for k in (OSError, ValueError, MemoryError) if isinstance(error, k)), None)
    return (kind or RuntimeError)(
        f"{where} could not be processed: {type(error).__name__}: {error}"
    )
