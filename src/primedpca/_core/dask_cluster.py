"""Computing on a Dask cluster: bounded waiting, retries, and errors that name the block.

This module knows tasks and futures but not engines, so that sources can compute Dask arrays as
well as the engine can.
"""

from __future__ import annotations

import re
import time
from collections.abc import Container, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

RETRIES = 2  # of a task that raises, before its error is raised here
TIMEOUT = 300.0  # seconds without progress after which waiting ends
LOOK = 2.0  # seconds between two checks of the cluster
ANSWER = 30.0  # seconds in which a scheduler must answer


def threads_of(client: Any) -> list[int]:
    """Return the number of threads of each worker."""
    try:
        found = client.sync(client.scheduler.ncores, workers=None, callback_timeout=ANSWER)
    except (OSError, TimeoutError, CancelledError, AttributeError):
        _check_reachable(client)
        raise
    return list(found.values())


def compute(client: Any, wanted: list[Any], timeout: float) -> list[Any]:
    """Return the values of delayed objects.

    Parameters
    ----------
    client : distributed.Client
    wanted : list of delayed objects
    timeout : float
        Seconds without progress after which waiting ends.

    Raises
    ------
    TimeoutError
        If for ``timeout`` seconds the cluster had no worker, or no task finished.
    ConnectionError
        If the scheduler does not answer, or the client is closed.
    """
    if client.status in ("closing", "closed"):
        _check_reachable(client)
    keys = {key for one in wanted for key in one.__dask_graph__()}
    with client.as_current():
        futures = client.compute(wanted, retries=RETRIES)
        try:
            return _finished(client, futures, timeout, keys)
        finally:
            # An error keeps its frames alive, and these would keep the results on the workers.
            for future in futures:
                future.release()


def _finished(client: Any, futures: list[Any], timeout: float, keys: Container[Any]) -> list[Any]:
    """Wait for all futures; ``keys`` are those of the tasks that they depend on."""
    from distributed import KilledWorker

    try:
        _wait(client, futures, timeout, keys)
        return [future.result(timeout=timeout) for future in futures]
    except CancelledError as error:
        _check_reachable(client)
        raise RuntimeError(
            f"the pass was cancelled on {client.scheduler.address}: by another user, or because "
            "scattered data were lost. Fit again, with data that can be read again."
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


def _wait(client: Any, futures: list[Any], timeout: float, keys: Container[Any]) -> None:
    """Wait until all futures are done; raise if one fails, or nothing changes for ``timeout``."""
    from distributed import wait

    state, since = None, time.monotonic()
    while True:
        with suppress(TimeoutError):
            wait(futures, timeout=LOOK)
            return
        for future in futures:
            if future.status == "error":
                future.result()  # raises
        _check_reachable(client)
        ask = client.scheduler.processing
        found = client.sync(ask, workers=None, callback_timeout=ANSWER)
        # Tasks of other users of the cluster say nothing about these.
        now = sorted(str(key) for held in found.values() for key in held if key in keys)
        if now != state:
            state, since = now, time.monotonic()
        elif time.monotonic() - since > timeout:
            words = (
                f"{_block_of(now[0]) if now else 'the pass'} has not finished within {timeout:g} "
                "s, nor has any other task. Check the workers' logs"
            )
            if not found:
                at = f"the Dask cluster at {client.scheduler.address}"
                words = f"{at} has had no worker for {timeout:g} s. Start workers"
            raise TimeoutError(f"{words}, or allow more time with DaskEngine(client, timeout=...).")


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
        f"the Dask scheduler at {where} does not answer, or its client is closed. Restart it, or "
        "pass an open client, and fit again: with `checkpoint` the fit resumes after the last "
        "complete pass."
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
