"""Processes that do the same things in the same order, and what they tell each other.

Every exchange begins with a meeting: a short note from every rank to every other that says what
it is about to do, or what went wrong.  So an error on one rank is an error with a name on all,
and ranks that go different ways find out before they wait for each other.  Every wait has a
limit.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import numpy as np

from primedpca._core.arrays import is_numpy_array, is_torch_array
from primedpca._core.threads import processors
from primedpca.engines.torch.heartbeat import Presence
from primedpca.protocols import Array

__all__ = ["RankError", "Ranks", "as_tensor"]

NOTE_BYTES = 4096
WORDS = 600  # bytes of an error that a note holds, each of which JSON writes with up to six


class RankError(RuntimeError):
    """Another rank failed, was lost, or went another way."""


class Ranks:
    """A process among those that work together.

    Parameters
    ----------
    rank, size : int
    timeout : float
        Seconds after which a rank that does not answer is given up.
    group : process group, optional
        For notes and arrays in host memory.

    Attributes
    ----------
    presence : Presence or None
        Where ranks leave word when they cannot meet any more.
    broken : bool
        Whether they cannot.
    device_group : process group or None
        For arrays on accelerators; without one they go through host memory.
    threads, processors : int
        With how many threads this rank works, and with how many processors all of them plan.
    world : process group or None
        The one that these ranks were found in.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        timeout: float = 0.0,
        group: Any = None,
    ) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self.presence: Presence | None = None
        self._group, self.broken = group, False
        self.device_group: Any = None
        self.world: Any = None
        self.threads = self.processors = max(2, processors())
        self._told: BaseException | None = None
        self._exchanging = False

    # -- meetings ----------------------------------------------------------------------------

    def meet(self, task: str, same: Any = None, **about: Any) -> list[dict[str, Any]]:
        """The notes of all ranks, who must be here for the same ``task``.

        ``same`` is what must not differ: ranks that round differently would part later on.
        """
        notes = self._notes({"task": task, "same": same, **about})
        for r, note in enumerate(notes):
            if "error" in note:
                raise RankError(f"rank {r} of {self.size} failed: {note['error']}")
        for r, note in enumerate(notes):
            if note["task"] != notes[0]["task"]:
                raise RankError(
                    f"the ranks have parted: rank 0 is at {notes[0]['task']!r} and rank {r} at "
                    f"{note['task']!r}; every rank must make the same calls in the same order."
                )
            if note["same"] != notes[0]["same"]:
                raise RankError(
                    f"the ranks have parted at {task!r}: rank {r} asks for another product than "
                    "rank 0, so its machine or libraries round differently; use machines of one "
                    "kind, or set OPENBLAS_CORETYPE (say, to Haswell) for all of them."
                )
        return notes

    def tell(self, error: BaseException) -> None:
        """Let all ranks know of an error of this one, before it is raised here."""
        if self.size == 1 or self.broken or error is self._told or isinstance(error, RankError):
            return
        self._told = error
        # A path may hold what no encoding knows.
        words = f"{type(error).__name__}: {error}".encode(errors="replace")[:WORDS]
        told = words.decode(errors="ignore")
        if self._exchanging:
            # The others wait for something else than a note: leave word, and let go of them.
            self._leave(told)
            return
        with suppress(RankError):
            self._notes({"error": told})

    @contextmanager
    def together(self, task: str | None = None) -> Iterator[None]:
        """Tell the others of errors inside; with a ``task``, leave it together."""
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
        self._check_whole()
        text = json.dumps(note, ensure_ascii=False).encode()
        mine = np.zeros(NOTE_BYTES, np.uint8)
        mine[: len(text)] = np.frombuffer(text, np.uint8)
        held = np.zeros((self.size, NOTE_BYTES), np.uint8)
        with self._limited():
            self._all_gather(as_tensor(held).reshape(-1), as_tensor(mine))
        return [json.loads(one.tobytes().rstrip(b"\0")) for one in held]

    # -- exchanges ---------------------------------------------------------------------------

    def share(self, make: Callable[[], Any], task: str = "share") -> Any:
        """What ``make`` gives on rank 0, on every rank; an error of it as well."""
        with self.together():
            # Ranks of one fit trust each other: they run the same script.
            text = pickle.dumps(make()) if self.rank == 0 else b""
            size = self.meet(task, bytes=len(text))[0]["bytes"]
            with self.exchange():
                held = np.empty(size, np.uint8)
                held[: len(text)] = np.frombuffer(text, np.uint8)
                self.fill(held, [0] + [size] * self.size)
            return pickle.loads(held.data)

    def collect(self, value: Any, task: str = "collect") -> list[Any]:
        """The ``value`` of every rank, on every rank."""
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
        """Send the rows ``edges[r]:edges[r + 1]``, which rank ``r`` has filled in, to all."""
        if self.size == 1:
            return
        with self.exchange():
            for r in range(self.size):
                part = whole[edges[r] : edges[r + 1]]
                if 0 not in part.shape:
                    self._broadcast(_as_bytes(part), r)

    def swap(self, sent: Array, counts: Sequence[int]) -> Array:
        """Slice ``r`` of ``sent`` ``(ranks, mine, length)`` to rank ``r``, and theirs to here.

        Returns ``(sum(counts), length)``: ``counts[r]`` rows from each rank, in order.
        """
        tensor = as_tensor(sent)
        length = tensor.shape[2]
        got = tensor.new_empty((sum(counts), length))
        sizes = [count * length for count in counts], [tensor.shape[1] * length] * self.size
        self._move(
            lambda dist, group, one, two: dist.all_to_all_single(one, two, *sizes, group=group),
            got.reshape(-1),
            tensor.reshape(-1),
        )
        return got if is_torch_array(sent) else got.numpy()

    def join(self, part: Array) -> Array:
        """The parts ``(length,)`` of all ranks, end to end."""
        tensor = as_tensor(part)
        got = tensor.new_empty(self.size * tensor.shape[0])
        self._all_gather(got, tensor)
        return got if is_torch_array(part) else got.numpy()

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Inside, ranks wait for arrays: who fails here can only leave.

        What one rank may have no memory for is made inside, where no other waits for a note.
        """
        self._check_whole()
        before, self._exchanging = self._exchanging, True
        with self._limited():
            try:
                yield
            except Exception as error:
                if not _is_transport(error):
                    self.tell(error)
                raise
            finally:
                self._exchanging = before

    def _broadcast(self, tensor: Any, source: int) -> None:
        world = _distributed().get_global_rank(self._group, source)
        self._move(lambda dist, group, one, _: dist.broadcast(one, world, group=group), tensor)

    def _all_gather(self, whole: Any, part: Any) -> None:
        def call(dist: Any, group: Any, one: Any, two: Any) -> None:
            dist.all_gather(list(one.reshape(self.size, -1)), two, group=group)

        self._move(call, whole, part)

    def _move(self, call: Callable[..., Any], out: Any, given: Any = None) -> None:
        """Make the call with tensors where its group can reach them."""
        dist = _distributed()
        if out.device.type == "cpu":
            call(dist, self._group, out, given)
        elif self.device_group is not None:
            call(dist, self.device_group, out, given)
        else:
            host = out.cpu()
            call(dist, self._group, host, None if given is None else given.cpu())
            out.copy_(host)

    # -- who is lost -------------------------------------------------------------------------

    @contextmanager
    def _limited(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if not _is_transport(error):
                raise
            raise RankError(self._what_broke(str(error))) from error

    def _check_whole(self) -> None:
        if self.broken:
            raise RankError(
                "the ranks have lost each other in an earlier fit; start all of them again."
            )

    def _what_broke(self, why: str) -> str:
        # First of all: others may wait for this rank, and not for the one that is lost.
        self._close()
        if self.presence is None:
            return f"the ranks lost each other when they had just come together ({why})"
        return self.presence.what_broke(why)

    def _leave(self, words: str) -> None:
        if self.presence is None:
            self._close()
        else:
            self.presence.leave(words, self._close)

    def _close(self) -> None:
        """End all connections of the group, so that nobody waits for this rank."""
        self.broken, group, self._group = True, self._group, None
        if group is not None:
            with suppress(AttributeError, RuntimeError):  # early versions of PyTorch cannot
                group.abort()
            _distributed().destroy_process_group(group)


def as_tensor(x: Array) -> Any:
    """``x`` as a tensor that shares its memory."""
    import torch

    if is_torch_array(x):
        return x
    return torch.from_numpy(x) if is_numpy_array(x) else torch.from_dlpack(x)


def _as_bytes(part: Array) -> Any:
    import torch

    if is_numpy_array(part):
        return torch.from_numpy(part.reshape(-1).view(np.uint8))
    return as_tensor(part).reshape(-1).view(torch.uint8)


def _distributed() -> Any:
    import torch.distributed as dist

    return dist


def _is_transport(error: BaseException) -> bool:
    """Whether an error is of the connection: errors of ours and of memory are other types."""
    if type(error) is not RuntimeError and not type(error).__name__.startswith("Dist"):
        return False
    return "can't allocate memory" not in str(error)
