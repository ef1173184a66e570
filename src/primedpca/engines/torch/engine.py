"""Ranks of torch.distributed: each processes its own blocks, sums in one fixed tree.

Every rank runs the same fit.  A pass is divided by block number, and its result is the same on
every rank, to the bit; every rank repeats the small algebra between passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import (
    device,
    dtype_name,
    is_sparse,
    is_torch_array,
    namespace,
)
from primedpca._core.checksum import checksum
from primedpca._core.packing import lies_in_columns
from primedpca.engines.base import BaseEngine, kernel_name
from primedpca.engines.local import LocalEngine
from primedpca.engines.torch.ranks import Ranks
from primedpca.engines.torch.rendezvous import connect
from primedpca.engines.tree import FAN_IN, FixedTree, Node
from primedpca.protocols import Array, DataSource, EngineTraits, Kernel, Operands, Parts, is_spread

__all__ = ["TorchDistributed", "shares"]

PIECE_BYTES = 2**25  # sums are exchanged in pieces of this many bytes
SIXTEENS = 128  # with this many blocks per rank, shares begin at a multiple of sixteen


@dataclass(frozen=True)
class TorchDistributed(BaseEngine):
    """Process blocks on all ranks of ``torch.distributed``.

    Every rank makes the same calls in the same order, as it does in a script under ``torchrun``.
    If there is no process group, one is started from torchrun's environment: gloo for CPUs,
    NCCL for GPUs, over the loopback interface alone if all ranks are on one machine.  Without
    such an environment this process is the only rank, and no connection is opened.

    Parameters
    ----------
    timeout : float, default=1800
        Seconds after which a rank that does not answer counts as lost, and the others raise.
        It must exceed the time by which one rank's share of a pass takes longer than another's.
    """

    timeout: float = 1800.0

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise ValueError(f"`timeout`={self.timeout} must be a positive number of seconds.")

    @property
    def ranks(self) -> Ranks:
        """Ranks of this process group; the first time, waits until all are connected."""
        return connect(self.timeout)

    @property
    def traits(self) -> EngineTraits:
        """Facts for plans and reports; workers are those of rank 0, so that all plan alike."""
        ranks = self.ranks
        return EngineTraits(
            "torch_distributed", ranks.processors, rank=ranks.rank, ranks=ranks.size
        )

    def together(self, task: str) -> AbstractContextManager[None]:
        """Context in which errors reach all ranks, left when all ranks have ended ``task``."""
        return self.ranks.together(task)

    def share(self, make: Callable[[], Any]) -> Any:
        """Return on every rank the result of ``make`` on rank 0."""
        return self.ranks.share(make)

    def collect(self, value: Any) -> list[Any]:
        """Return on every rank the ``value`` of each rank, in order."""
        return self.ranks.collect(value)

    def sweep(self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands) -> Parts:
        """Make one pass over all blocks, each on one rank."""
        ranks, local = self.ranks, LocalEngine(self.ranks.threads)
        if ranks.size == 1:
            return local.sweep(source, kernel, whole, mine)
        with ranks.together():
            numbers = _numbers(source, ranks)
            tree = local.part(source, kernel, whole, mine, numbers)
            nodes, stacks = tree.nodes(), tree.stacks
            home = _Home.of([*stacks, *(nodes[0].sums if nodes else ())], source)
            notes = ranks.meet(
                f"a pass: {kernel_name(kernel)}",
                [len(source.blocks), checksum([whole, mine])],
                blocks=[numbers.start, numbers.stop],
                sums=[_form(part) for part in nodes[0].sums] if nodes else None,
                stacks=[_form(part) for part in stacks] if nodes else None,
            )
            held = _all_numbers(notes, len(source.blocks))
            sums_like, stacks_like = _forms(notes)
            with ranks.exchange():
                if not nodes:
                    stacks = tuple(home.empty(*form[:2]) for form in stacks_like)
                sums = _Flat(sums_like, home)
                _add_up(ranks, nodes, held, sums)
                starts = [source.blocks[part.start][0] if part else None for part in held]
                for stack in stacks:
                    ranks.fill(stack, _edges(starts, stack.shape[0]))
            return Parts(sums.arrays(), stacks)


def shares(blocks: int, ranks: int) -> list[range]:
    """Return neighbouring block numbers for each rank, nearly equally many.

    If there are many blocks, shares begin at multiples of sixteen, so that each sixteen is added
    on one rank and less is sent.
    """
    edges = [blocks * r // ranks for r in range(ranks + 1)]
    if blocks >= SIXTEENS * ranks:
        edges = [*(round(edge / FAN_IN) * FAN_IN for edge in edges[:-1]), blocks]
    return [range(a, b) for a, b in pairwise(edges)]


def _numbers(source: DataSource, ranks: Ranks) -> range:
    """Return the blocks that this rank processes: those it alone holds, or its share of all."""
    if not is_spread(source):
        return shares(len(source.blocks), ranks.size)[ranks.rank]
    own = source.local
    return range(own[0], own[-1] + 1) if own else range(0)


def _all_numbers(notes: list[dict[str, Any]], blocks: int) -> list[range]:
    held = [range(*note["blocks"]) for note in notes]
    if [i for part in held for i in part] != list(range(blocks)):
        raise ValueError(
            f"the ranks hold the blocks {[(part.start, part.stop) for part in held]} of {blocks}. "
            "Together they must hold every block once, in the order of the ranks."
        )
    return held


def _form(part: Array) -> list[Any]:
    """Return shape, type and memory layout, which later products depend on to the bit."""
    return [list(part.shape), dtype_name(part.dtype), lies_in_columns(part)]


def _forms(notes: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the forms of sums and stacks, which must be the same on all ranks that have any."""
    known = [(r, note) for r, note in enumerate(notes) if note["sums"] is not None]
    first, model = known[0]
    for r, note in known:
        if note["sums"] != model["sums"] or note["stacks"] != model["stacks"]:
            raise ValueError(
                f"rank {r} computed sums of form {note['sums']}, and rank {first} of form "
                f"{model['sums']}. All ranks must hold rows of the same width and type."
            )
    return model["sums"], model["stacks"]


class _Home(NamedTuple):
    """The array library and device that results belong to."""

    xp: Any
    device: Any

    @classmethod
    def of(cls, known: list[Array], source: DataSource) -> _Home:
        x = known[0] if known else next(iter(source.scan()))[1]
        x = np.empty(0) if is_sparse(x) else x
        return cls(namespace(x), device(x))

    def empty(self, shape: Any, dtype: str = "float64") -> Array:
        return self.xp.empty(tuple(shape), dtype=getattr(self.xp, dtype), device=self.device)


def _edges(starts: list[int | None], length: int) -> list[int]:
    """Return the first row of each rank; for a rank without rows, that of the next rank."""
    edges = [length]
    for start in reversed(starts):
        edges.append(edges[-1] if start is None else start)
    return edges[::-1]


@cache
def _outline(first: int, last: int) -> tuple[tuple[int, int], ...]:
    """Return level and count of the nodes in the tree of these blocks."""
    tree = FixedTree(tuple((0, 0) for _ in range(last)), first)
    for _ in range(first, last):
        tree.add(Parts())
    return tuple((node.level, node.added) for node in tree.nodes())


def _add_up(ranks: Ranks, nodes: list[Node], held: list[range], found: _Flat) -> None:
    """Add the sums of all ranks' nodes, in the order of the tree.

    Of every piece each rank receives one slice from all ranks, adds it, and sends the result to
    all: no rank receives more than another, and the choice of entries changes no bit.
    """
    outlines = [_outline(part.start, part.stop) for part in held]
    counts, size = [len(outline) for outline in outlines], ranks.size
    step = max(size, PIECE_BYTES // (8 * max(counts)) // size * size)
    for start in range(0, found.length, step):
        stop = min(start + step, found.length)
        length = -(-(stop - start) // size)
        sent = found.home.empty((len(nodes), size * length))
        sent[:, stop - start :] = 0.0
        for i, node in enumerate(nodes):
            found.read(node.sums, start, stop, sent[i])
        by_rank = namespace(sent).permute_dims(sent.reshape(len(nodes), size, length), (1, 0, 2))
        got = ranks.swap(_contiguous(by_rank), counts)
        tree, rows = FixedTree(()), iter(got)
        for level, count in (pair for outline in outlines for pair in outline):
            tree.graft(Node(level, count, (next(rows),)))
        found.write(ranks.join(tree.total().sums[0])[: stop - start], start)


class _Flat:
    """Arrays of several shapes as one long row of float64."""

    def __init__(self, forms: list[list[Any]], home: _Home) -> None:
        self.forms, self.home = forms, home
        self._rows = [home.empty((int(np.prod(shape)),)) for shape, _, _ in forms]
        self.length = sum(row.shape[0] for row in self._rows)

    def _places(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield for ``start:stop``: the array, start and stop within it, and its offset."""
        begin = 0
        for j, row in enumerate(self._rows):
            a, b = max(start - begin, 0), min(stop - begin, row.shape[0])
            if a < b:
                yield j, a, b, begin + a - start
            begin += row.shape[0]

    def read(self, parts: tuple[Array, ...], start: int, stop: int, out: Array) -> None:
        """Copy the entries ``start:stop`` of all parts to ``out``, in memory order."""
        for j, a, b, place in self._places(start, stop):
            part = parts[j].T if self.forms[j][2] else parts[j]
            out[place : place + b - a] = part.reshape(-1)[a:b]

    def write(self, piece: Array, start: int) -> None:
        """Copy a piece to its place."""
        for j, a, b, place in self._places(start, start + piece.shape[0]):
            self._rows[j][a:b] = piece[place : place + b - a]

    def arrays(self) -> tuple[Array, ...]:
        """Return the arrays in their own shapes."""
        return tuple(
            row.reshape(shape[::-1]).T if turned else row.reshape(tuple(shape))
            for row, (shape, _, turned) in zip(self._rows, self.forms, strict=True)
        )


def _contiguous(x: Array) -> Array:
    return x.contiguous() if is_torch_array(x) else np.ascontiguousarray(x)
