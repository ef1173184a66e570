"""Waiting for a Dask cluster, never for ever, and what goes wrong there in words."""

from __future__ import annotations

import re
import time
from collections.abc import Container, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

__all__ = ["check_client", "finished", "naming", "threads_of"]

LOOK = 2.0  # seconds between two looks at the cluster
ANSWER = 30.0  # seconds in which a scheduler must answer


def check_client(client: Any) -> None:
    """Refuse what is no client, or one that cannot be waited for."""
    if not all(hasattr(client, name) for name in ("scatter", "compute", "sync")):
        raise TypeError(f"`client`={client!r} must be a distributed.Client.")
    if client.asynchronous:
        raise ValueError(
            "`engine` is an asynchronous client, which cannot be waited for; pass "
            "distributed.Client(address) without `asynchronous`."
        )


def threads_of(client: Any) -> list[int]:
    """How many threads each worker has."""
    try:
        found = client.sync(client.scheduler.ncores, workers=None, callback_timeout=ANSWER)
    except (OSError, TimeoutError, CancelledError, AttributeError):
        _check_reachable(client)
        raise
    return list(found.values())


def finished(client: Any, futures: list[Any], timeout: float, keys: Container[Any]) -> list[Any]:
    """The values of all futures, as soon as they are there.

    Parameters
    ----------
    client : distributed.Client
    futures : list of Future
    timeout : float
    keys : container
        Of the tasks that they hang on.

    Raises
    ------
    TimeoutError
        If for ``timeout`` seconds there was no worker, or no task came to its end.
    ConnectionError
        If the scheduler is gone.
    """
    from distributed import KilledWorker

    watch = _Watch(client, timeout, keys)
    try:
        while not _all_done(futures):
            watch.look()
        return [future.result(timeout=timeout) for future in futures]
    except CancelledError as error:
        _check_reachable(client)
        raise RuntimeError(
            f"the pass was cancelled on {client.scheduler.address}: by somebody, or because "
            "data that were scattered went with their worker; fit again, and pass data that "
            "can be read again."
        ) from error
    except KilledWorker as error:
        raise RuntimeError(
            f"{_suspects(client, error.task, keys)} could not be worked on: "
            f"{error.allowed_failures + 1} "
            "workers died of it, one after the other, most often for want of memory; give "
            "them more, or cut the data into smaller chunks."
        ) from error
    except Exception as error:
        chunk = _chunk_to_blame(client, futures)
        if chunk is None:
            raise
        raise _in_words(error, f"chunk {chunk} of the Dask array") from error


def _suspects(client: Any, task: Any, keys: Container[Any]) -> str:
    """The blocks that workers may have died of: a task that waited for its turn is blamed, too."""

    def blamed(dask_scheduler: Any) -> list[Any]:  # sent as it is: no need for us over there
        tasks = dask_scheduler.tasks.values()
        return [one.key for one in tasks if one.state == "erred" and one.exception_blame is one]

    try:
        found = [key for key in client.run_on_scheduler(blamed) if key in keys]
    except Exception:  # a cluster that refuses such questions
        found = []
    return " or ".join(sorted(map(_block_of, {task, *found})))


def _chunk_to_blame(client: Any, futures: list[Any]) -> tuple[int, ...] | None:
    """The place of the chunk whose own task failed, if that is what happened."""
    failed = [future.key for future in futures if future.status == "error"]
    if not failed or client.status != "running":
        return None
    ask = client.scheduler.get_error_cause
    key = client.sync(ask, keys=failed, callback_timeout=ANSWER)
    return tuple(key[1:]) if isinstance(key, (list, tuple)) else None


def _all_done(futures: list[Any]) -> bool:
    """Whether all are there, or one has failed, within a short while."""
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
    """Looks whether tasks come and go."""

    def __init__(self, client: Any, timeout: float, keys: Container[Any]) -> None:
        self.client, self.timeout, self.keys = client, timeout, keys
        self.state: Any = None
        self.since = time.monotonic()

    def look(self) -> None:
        """Raise if nothing has changed for too long."""
        _check_reachable(self.client)
        ask = self.client.scheduler.processing
        found = self.client.sync(ask, workers=None, callback_timeout=ANSWER)
        # Tasks of others that share the cluster say nothing about these.
        now = sorted(str(key) for held in found.values() for key in held if key in self.keys)
        if now != self.state:
            self.state, self.since = now, time.monotonic()
        elif time.monotonic() - self.since > self.timeout:
            if not found:
                raise TimeoutError(_nobody(self.client, self.timeout))
            what = _block_of(now[0]) if now else "the pass"
            raise TimeoutError(
                f"{what} has not come to its end in {self.timeout:g} s, nor has any other task; "
                "look at the workers' logs, or allow more with DaskEngine(client, timeout=...)."
            )


def _check_reachable(client: Any) -> None:
    """Refuse a cluster whose scheduler does not answer."""
    where = client.scheduler.address if client.scheduler is not None else "the cluster"
    try:
        if client.status == "running":
            client.sync(client.scheduler.identity, n_workers=0, callback_timeout=ANSWER)
            return
        error: Exception | None = None
    except (OSError, TimeoutError, CancelledError) as found:
        error = found
    raise ConnectionError(
        f"the Dask scheduler at {where} is gone or does not answer; start it again and fit again: "
        "with `checkpoint` the fit goes on after the last pass that was finished."
    ) from error


def _nobody(client: Any, timeout: float) -> str:
    return (
        f"the Dask cluster at {client.scheduler.address} has had no worker for {timeout:g} s; "
        "start some, or allow more time with DaskEngine(client, timeout=...)."
    )


def _block_of(key: Any) -> str:
    """The block that a task is about, in words."""
    found = re.match(r"block-(\d+)(?:\.\.(\d+))?-", str(key))
    if not found:
        return f"task {key!r}"
    return f"one of blocks {found[1]} to {found[2]}" if found[2] else f"block {found[1]}"


@contextmanager
def naming(i: int, place: tuple[int, int], axis: int) -> Iterator[None]:
    """What is raised while block ``i`` is worked on names it."""
    try:
        yield
    except Exception as error:
        words = f"block {i}"
        if re.search(rf"\b{words}\b", str(error)):
            raise
        where = f"{words}, {('rows', 'columns')[axis]} {place[0]}:{place[1]}"
        raise _in_words(error, where) from error


def _in_words(error: Exception, where: str) -> Exception:
    """An error of the same kind that says where."""
    kind = next((k for k in (OSError, ValueError, MemoryError) if isinstance(error, k)), None)
    return (kind or RuntimeError)(
        f"{where} could not be worked on: {type(error).__name__}: {error}"
    )
