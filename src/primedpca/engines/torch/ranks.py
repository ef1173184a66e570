"""Processes that make the same calls in the same order: their messages, and how they connect.

Every exchange begins with a meeting: a short note from every rank to every other about its next
step or its error.  So an error on one rank is raised on all of them by name, and ranks that are
out of sync find out before they wait for each other.  Every wait has a limit.

Ranks connect from torchrun's environment, or through an existing process group.  A thread of
every rank then increments a counter in the rendezvous store, also while the rank works.  When an
exchange breaks, the remaining ranks look for counters that stand still.  The first verdict holds
for all, so that every rank raises the same error, and no rank leaves before all have read it: the
store ends with the process that hosts it.
"""

import atexit
import json
import os
import pickle
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np

from primedpca._core.arrays import is_numpy_array, is_torch_array
from primedpca._core.process import processors
from primedpca.protocols import Array
from primedpca.sources.base import needed

torch: Any = needed("torch", "`engine`='torch_distributed'", "torch")
dist: Any = needed("torch.distributed", "`engine`='torch_distributed'", "torch")

NOTE_BYTES = 4096
BEAT = 1.0  # seconds between two heartbeats
GRACE = 5.0  # seconds without a heartbeat after which a rank counts as lost
LOOK = 0.05  # seconds between two checks of the store
STORE = "the rendezvous store (often hosted by rank 0)"
WORDS = 600  # bytes of an error in a note; JSON writes each with up to six


class RankError(RuntimeError):
    """Another rank failed, was lost, or is out of sync."""


class Ranks:
    """One process of a group that runs the same fit.

    Parameters
    ----------
    rank, size : int
        Number of this process, from 0, and number of processes.
    group : process group, optional
        Group for notes and for arrays in host memory.

    Attributes
    ----------
    heartbeat : Heartbeat or None
        Finds the lost rank once the group is broken.
    broken : bool
        Whether the connections of the group are closed.
    device_group : process group or None
        Group for arrays on accelerators; without one they go through host memory.
    threads, processors : int
        Threads of this rank, and processors of rank 0, for which all ranks plan.
    world : process group or None
        The default group of torch.distributed when these ranks connected.
    """

    def __init__(self, rank: int = 0, size: int = 1, group: Any = None) -> None:
        self.rank, self.size, self._group, self.broken = rank, size, group, False
        self.heartbeat: Heartbeat | None = None
        self.device_group: Any = None
        self.world: Any = None
        self.threads = self.processors = max(2, processors())
        self._told: BaseException | None = None
        self._exchanging = False

    # -- meetings ----------------------------------------------------------------------------

    def meet(self, task: str, same: Any = None, **about: Any) -> list[dict[str, Any]]:
        """Exchange notes, and check that all ranks are at the same ``task``.

        ``same`` must not differ: ranks that round differently would be out of sync later.
        """
        notes = self._notes({"task": task, "same": same, **about})
        for r, note in enumerate(notes):
            if "error" in note:
                raise RankError(f"rank {r} of {self.size} failed: {note['error']}")
        for r, note in enumerate(notes):
            if note["task"] != notes[0]["task"]:
                raise RankError(
                    f"the ranks are out of sync: rank 0 is at {notes[0]['task']!r} and rank {r} at "
                    f"{note['task']!r}. Every rank must make the same calls in the same order."
                )
            if note["same"] != notes[0]["same"]:
                raise RankError(
                    f"the ranks are out of sync at {task!r}: rank {r} computes another product "
                    "than rank 0. Use machines and libraries of one kind, or set OPENBLAS_CORETYPE."
                )
        return notes

    def tell(self, error: BaseException) -> None:
        """Send an error of this rank to all others, before it is raised here."""
        if self.size == 1 or self.broken or error is self._told or isinstance(error, RankError):
            return
        self._told = error
        # A path in the message may hold bytes that no encoding knows.
        words = f"{type(error).__name__}: {error}".encode(errors="replace")[:WORDS]
        told = words.decode(errors="ignore")
        if self._exchanging:
            # The others wait for arrays, not for a note: leave the error in the store, and go.
            if self.heartbeat is not None:
                self.heartbeat.leave(told, self._close)
            self._close()
            return
        with suppress(RankError):
            self._notes({"error": told})

    @contextmanager
    def together(self, task: str | None = None) -> Iterator[None]:
        """Send errors inside to the others; with a ``task``, wait for all at its end."""
        try:
            yield
            if task is not None and self.size > 1:
                self.meet(f"the end of {task}")
        except Exception as error:
            self.tell(error)
            raise

    def _notes(self, note: dict[str, Any]) -> list[dict[str, Any]]:
        if self.size == 1:
            return [note]
        text = json.dumps(note, ensure_ascii=False).encode()
        mine = np.zeros(NOTE_BYTES, np.uint8)
        mine[: len(text)] = np.frombuffer(text, np.uint8)
        held = np.zeros((self.size, NOTE_BYTES), np.uint8)
        with self._limited():
            self._all_gather(as_tensor(held).reshape(-1), as_tensor(mine))
        return [json.loads(one.tobytes().rstrip(b"\0")) for one in held]

    # -- exchanges ---------------------------------------------------------------------------

    def share(self, make: Callable[[], Any]) -> Any:
        """Return on every rank the result of ``make`` on rank 0, or raise its error."""
        with self.together():
            return self.collect(make() if self.rank == 0 else None, "share")[0]

    def collect(self, value: Any, task: str = "collect") -> list[Any]:
        """Return on every rank the ``value`` of each rank, in order."""
        # Ranks of one fit trust each other: they run the same script.
        text = np.frombuffer(pickle.dumps(value), np.uint8)
        with self.together():
            sizes = [note["bytes"] for note in self.meet(task, bytes=text.size)]
            edges = np.cumsum([0, *sizes]).tolist()
            with self.exchange():
                held = np.empty(edges[-1], np.uint8)
                held[edges[self.rank] : edges[self.rank + 1]] = text
                self.fill(held, edges)
            return [pickle.loads(held[a:b].data) for a, b in pairwise(edges)]

    def fill(self, whole: Array, edges: Sequence[int]) -> None:
        """Send the rows ``edges[r]:edges[r + 1]``, which rank ``r`` has filled, to all ranks."""
        if self.size == 1:
            return
        with self.exchange():
            for r in range(self.size):
                part = whole[edges[r] : edges[r + 1]]
                if 0 in part.shape:
                    continue
                # Bytes, in the memory of the array; PyTorch lacks some of NumPy's types.
                if is_numpy_array(part):
                    tensor = torch.from_numpy(part.reshape(-1).view(np.uint8))
                else:
                    tensor = as_tensor(part).reshape(-1).view(torch.uint8)
                self._broadcast(tensor, dist.get_global_rank(self._group, r))

    def swap(self, sent: Array, counts: Sequence[int]) -> Array:
        """Send slice ``r`` of ``sent`` ``(ranks, mine, length)`` to rank ``r``; receive theirs.

        Returns ``(sum(counts), length)``: ``counts[r]`` rows from each rank, in order.
        """
        tensor = as_tensor(sent)
        length = tensor.shape[2]
        got = tensor.new_empty((sum(counts), length))
        sizes = [count * length for count in counts], [tensor.shape[1] * length] * self.size

        def call(group: Any, one: Any, two: Any) -> None:
            dist.all_to_all_single(one, two, *sizes, group=group)

        self._move(call, got.reshape(-1), tensor.reshape(-1))
        return got if is_torch_array(sent) else got.numpy()

    def join(self, part: Array) -> Array:
        """Return the parts ``(length,)`` of all ranks, end to end."""
        tensor = as_tensor(part)
        got = tensor.new_empty(self.size * tensor.shape[0])
        self._all_gather(got, tensor)
        return got if is_torch_array(part) else got.numpy()

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Context in which ranks wait for arrays: a rank that fails inside can only leave.

        Large arrays are allocated inside, where no other rank waits for a note.
        """
        with self._limited():
            before, self._exchanging = self._exchanging, True
            try:
                yield
            except Exception as error:
                if not _is_transport(error):
                    self.tell(error)
                raise
            finally:
                self._exchanging = before

    def _broadcast(self, tensor: Any, world: int) -> None:
        self._move(lambda group, one, _: dist.broadcast(one, world, group=group), tensor)

    def _all_gather(self, whole: Any, part: Any) -> None:
        def call(group: Any, one: Any, two: Any) -> None:
            dist.all_gather(list(one.reshape(self.size, -1)), two, group=group)

        self._move(call, whole, part)

    def _move(self, call: Callable[[Any, Any, Any], None], out: Any, given: Any = None) -> None:
        """Make the call with tensors in memory that its group can access."""
        if out.device.type == "cpu":
            call(self._group, out, given)
        elif self.device_group is not None:
            call(self.device_group, out, given)
        else:
            host = out.cpu()
            call(self._group, host, None if given is None else given.cpu())
            out.copy_(host)

    def end(self) -> None:
        """Release the groups, which joins their threads, while the interpreter still runs.

        A thread of gloo that frees the arrays of its last message after that aborts the process.
        """
        if self.heartbeat is not None:
            self.heartbeat.end()
        groups = [group for group in (self.device_group, self._group) if group is not None]
        if dist.is_initialized() and dist.group.WORLD is self.world:
            for group in groups:
                dist.destroy_process_group(group)
        self.broken, self._group, self.device_group, self.world = True, None, None, None

    # -- lost ranks --------------------------------------------------------------------------

    @contextmanager
    def _limited(self) -> Iterator[None]:
        if self.broken:
            raise RankError("the ranks lost their connection in an earlier fit. Restart them.")
        try:
            yield
        except RuntimeError as error:
            if not _is_transport(error):
                raise
            # First of all: others may be waiting for this rank rather than for the lost one.
            self._close()
            words = f"the ranks lost their connection while they connected ({error})"
            if self.heartbeat is not None:
                words = self.heartbeat.what_broke(str(error))
            raise RankError(words) from error

    def _close(self) -> None:
        """Close all connections of the group, so that no rank waits for this one."""
        self.broken, group, self._group = True, self._group, None
        if group is not None:
            with suppress(AttributeError, RuntimeError):  # early versions of PyTorch lack it
                group.abort()
            dist.destroy_process_group(group)


def as_tensor(x: Array) -> Any:
    """Return ``x`` as a tensor that shares its memory."""
    if is_torch_array(x):
        return x
    return torch.from_numpy(x) if is_numpy_array(x) else torch.from_dlpack(x)


def _is_transport(error: BaseException) -> bool:
    """Whether the connection caused an error; errors of ours and of memory have other types."""
    if type(error) is not RuntimeError and not type(error).__name__.startswith("Dist"):
        return False
    return "can't allocate memory" not in str(error)


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
            if known is not None:
                known.end()
            known = _joined[timeout] = _join(timeout)
            atexit.unregister(_end)
            atexit.register(_end)  # before what was registered earlier: the whole group ends last
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


def _end() -> None:
    for ranks in _joined.values():
        ranks.end()


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
    found.threads = processors(shared_by=beside)
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
