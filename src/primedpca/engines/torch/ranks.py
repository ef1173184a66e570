"""Processes that make the same calls in the same order, and their messages.

Every exchange begins with a meeting: a short note from every rank to every other about its next
step or its error.  So an error on one rank is raised on all of them by name, and ranks that are
out of sync find out before they wait for each other.  Every wait has a limit.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from primedpca._core.arrays import is_numpy_array, is_torch_array
from primedpca._core.threads import processors
from primedpca.protocols import Array

NOTE_BYTES = 4096
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
        self.heartbeat: Any = None
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
                    "than rank 0, so its machine or libraries round differently. Use machines of "
                    "one kind, or set OPENBLAS_CORETYPE (for example Haswell) for all of them."
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
