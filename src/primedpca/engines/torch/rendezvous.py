"""Connecting to the other ranks, and finding out which of them was lost.

Ranks connect from torchrun's environment, or through an existing process group.  A thread of
every rank then increments a counter in the rendezvous store, also while the rank works.  When an
exchange breaks, the remaining ranks look for counters that stand still.  The first verdict holds
for all, so that every rank raises the same error, and no rank leaves before all have read it: the
store ends with the process that hosts it.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from primedpca._core.threads import processors
from primedpca.engines.torch.ranks import RankError, Ranks

BEAT = 1.0  # seconds between two heartbeats
GRACE = 5.0  # seconds without a heartbeat after which a rank counts as lost
LOOK = 0.05  # seconds between two checks of the store
STORE = "the rendezvous store (often hosted by rank 0)"

_joined: dict[float, Ranks] = {}


def connect(timeout: float) -> Ranks:
    """Return the ranks of this process group, started from torchrun's environment if needed.

    Without such an environment this process is the only rank, and no connection is opened.
    """
    launched = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
    if not (dist.is_available() and (dist.is_initialized() or launched)):
        return Ranks()
    try:
        if not dist.is_initialized():
            _begin(timeout)
        known = _joined.get(timeout)
        if known is None or known.world is not dist.group.WORLD:  # a later group, in tests say
            if known is not None and known.heartbeat is not None:
                known.heartbeat.end()
            known = _joined[timeout] = _join(timeout)
    except RuntimeError as error:
        if isinstance(error, RankError):
            raise
        raise RankError(
            f"not all of the {os.environ.get('WORLD_SIZE', '')} ranks connected within "
            f"{timeout:g} s (`timeout`): {error}"
        ) from error
    return known


def _begin(timeout: float) -> None:
    names = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if names and _on_one_machine():  # then no other interface is used
        os.environ.setdefault("GLOO_SOCKET_IFNAME", min(names))
        os.environ.setdefault("NCCL_SOCKET_IFNAME", min(names))
    backend, devices = "gloo", torch.cuda.device_count()
    if devices:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % devices)
        if dist.is_nccl_available():
            backend = "cpu:gloo,cuda:nccl"
    limit = timedelta(seconds=timeout)
    dist.init_process_group(backend, timeout=limit, **_agents_store(limit))
    atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())


def _agents_store(limit: timedelta) -> dict[str, Any]:
    """Return a fresh part of torchrun's store, if torchrun hosts one for its ranks.

    In a shared part, restarted ranks would find the addresses of the ranks before them.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")
    if not _on_one_machine():  # the agents of several machines count restarts separately
        if restarts != "0":
            warnings.warn(
                f"torchrun --max-restarts={restarts} cannot reconnect ranks on several machines. "
                "Start it with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment.",
                stacklevel=2,
            )
        return {}
    given, again = os.environ, os.environ["TORCHELASTIC_RESTART_COUNT"]
    place = given["MASTER_ADDR"], int(given["MASTER_PORT"])
    store = dist.TCPStore(*place, is_master=False, timeout=limit, wait_for_workers=False)
    part = dist.PrefixStore(f"primedpca/{again}", store)
    return {"store": part, "rank": int(given["RANK"]), "world_size": int(given["WORLD_SIZE"])}


def _on_one_machine() -> bool:
    return os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")


def _join(timeout: float) -> Ranks:
    """Connect in a separate group, so that messages never mix with those of the user."""
    rank, size = dist.get_rank(), dist.get_world_size()
    limit = timedelta(seconds=timeout)
    found = Ranks(rank, size, dist.new_group(backend="gloo", timeout=limit))
    found.world = dist.group.WORLD
    allowed, gpu = getattr(os, "sched_getaffinity", None), None  # not on every system
    if torch.cuda.is_available():
        gpu = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    notes = found.meet(
        "the first meeting",
        name=uuid.uuid4().hex,
        place=f"{socket.gethostname()} {sorted(allowed(0)) if allowed else ''}"[:500],
        processors=found.processors,
        gpu=gpu,
    )
    if size > 1:
        # A store may outlive restarted ranks: rank 0 chooses a new name for their part of it.
        # The part has a connection of its own if possible.
        store = dist.distributed_c10d._get_default_store()
        store = store.clone() if hasattr(store, "clone") else store
        store = dist.PrefixStore(f"primedpca/{notes[0]['name']}", store)
        found.heartbeat = Heartbeat(store, rank, size, timeout)
    # Processors that several ranks may use are divided among them.
    beside = sum(note["place"] == notes[rank]["place"] for note in notes)
    found.threads = max(1, processors() // beside)
    found.processors = notes[0]["processors"]
    devices = [note["gpu"] for note in notes]
    if None not in devices and len(set(devices)) == size and dist.is_nccl_available():
        found.device_group = dist.new_group(backend="nccl", timeout=limit)
    return found


class Heartbeat:
    """Signs of life of this rank, and its view of the others once the group is broken.

    Parameters
    ----------
    store : Store
        A store that only these ranks use, over a connection on which no other thread waits.
    rank, size : int
    timeout : float
        Seconds after which a rank that does not answer counts as lost, for the error message.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: float) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self._store, self._lock = store, threading.Lock()
        self._verdict: tuple[str, list[int]] | None = None
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="primedpca beat", daemon=True)
        self._beating.start()
        # A thread that returns from C++ into an interpreter that has ended crashes.
        atexit.register(self.end)

    def end(self) -> None:
        """Stop the heartbeat."""
        atexit.unregister(self.end)
        self._ended.set()
        self._beating.join(GRACE)  # longer only if the machine or the store is busy

    def leave(self, words: str, close: Callable[[], None]) -> None:
        """Store an error of this rank, then ``close`` the connections others wait on."""
        verdict = f"rank {self.rank} of {self.size} failed: {words}"
        self._limited(lambda: self._say(verdict, [self.rank]))
        close()
        self._limited(self._let_others_hear)

    def what_broke(self, why: str) -> str:
        """Return the cause of the broken group, the same on all ranks; ``why`` was seen here."""

        def ask() -> None:
            self._store.set(f"here/{self.rank}", why)
            while not self._heard():
                self._say(*self._judged(why))
            self._let_others_hear()

        trouble = self._limited(ask)
        return self._verdict[0] if self._verdict else f"{STORE} {trouble} ({why})"

    # -- the store ---------------------------------------------------------------------------

    def _beat(self) -> None:
        with suppress(RuntimeError):  # no store any more, which the next exchange reports
            while not self._ended.wait(BEAT):
                self._store.add(f"beat/{self.rank}", 1)
                self._heard()

    def _heard(self) -> bool:
        """Whether there is a verdict; the first time, this rank confirms that it has read it."""
        with self._lock:
            if self._verdict is None and self._store.check(["verdict"]):
                words, lost = json.loads(self._store.get("verdict"))
                self._verdict = words, lost
                self._store.set(f"heard/{self.rank}", "yes")
            return self._verdict is not None

    def _say(self, words: str, lost: list[int]) -> None:
        self._store.compare_set("verdict", "", json.dumps([words, lost]))

    def _let_others_hear(self) -> None:
        """Wait until all remaining ranks have read the verdict."""
        self._heard()
        lost = self._verdict[1] if self._verdict else []
        left = [f"heard/{r}" for r in range(self.size) if r not in lost]
        end = time.monotonic() + GRACE
        while time.monotonic() < end and not self._store.check(left):
            time.sleep(LOOK)

    def _limited(self, ask: Callable[[], None]) -> str:
        """Ask the store with a time limit, and return its trouble, if any.

        A store whose process was stopped never answers.
        """
        trouble = ["does not answer: its process was stopped or hangs"]

        def work() -> None:
            try:
                ask()
                trouble[0] = ""
            except RuntimeError:
                trouble[0] = "is lost: its process has ended"

        asking = threading.Thread(target=work, name="primedpca ask", daemon=True)
        try:
            asking.start()
        except RuntimeError:  # no memory for a thread, which may be why this rank leaves
            work()
        else:
            asking.join(3 * GRACE)
        return trouble[0]

    # -- the verdict -------------------------------------------------------------------------

    def _judged(self, why: str) -> tuple[str, list[int]]:
        """Return the most likely cause, and the lost ranks."""
        others = [r for r in range(self.size) if r != self.rank]
        first = {r: self._store.add(f"beat/{r}", 0) for r in others}
        end = time.monotonic() + GRACE
        while time.monotonic() < end and not self._heard():
            if self._store.check([f"here/{r}" for r in others]):
                break
            time.sleep(LOOK)
        here = [r for r in others if self._store.check([f"here/{r}"])]
        reasons = [why, *(self._store.get(f"here/{r}").decode() for r in here)]
        absent = [r for r in others if r not in here]
        silent = [r for r in absent if self._store.add(f"beat/{r}", 0) == first[r]]
        lost = silent or absent
        names = f"rank {', '.join(map(str, lost))} of {self.size}"
        if lost and any("imed out" in reason for reason in reasons):
            how = "it is alive, but hangs or has much more to do. Check it, or raise the limit."
            if silent:
                how = (
                    "it gives no sign of life. Check whether it was stopped or its machine is down."
                )
            return f"{names} did not answer for {self.timeout:g} s (`timeout`): {how}", lost
        if silent:
            return (
                f"{names} is lost: it was killed, ran out of memory, ended or lost its network. "
                "Read its own output, and resume from a `checkpoint`."
            ), silent
        return f"the connection between the ranks broke, although all are alive ({why})", []
