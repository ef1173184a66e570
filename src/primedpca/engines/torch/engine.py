"""On the ranks of torch.distributed: each works on its own blocks, sums in one fixed tree.

Every rank runs the same fit.  A pass is shared out by block number, and what it comes to is the
same on every rank, to the bit; the small algebra between passes is done by all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from primedpca.engines.local import FixedTree, LocalEngine, Node
from primedpca.engines.torch.ranks import Ranks
from primedpca.engines.torch.rendezvous import connect
from primedpca.protocols import Array, DataSource, Kernel, Parts, is_spread

__all__ = ["TorchDistributed", "shares"]

PIECE_BYTES = 2**25  # of sums that are on their way at a time
SIXTEENS = 128  # blocks a rank from which on shares begin at a multiple of sixteen


@dataclass(frozen=True)
class TorchDistributed:
    """Work on blocks on all ranks of ``torch.distributed``.

    Every rank makes the same calls in the same order, as it does in a script under ``torchrun``.
    If no process group is there it is begun from torchrun's environment: gloo for processors,
    NCCL for GPUs, over the loopback interface alone if all ranks are on one machine.  Without
    such an environment this process is the only rank, and no connection is opened.

    Parameters
    ----------
    timeout : float
        Seconds after which a rank that does not answer is given up, with an error on the others.
        It must exceed the time by which one rank's share of a pass takes longer than another's.
    """

    timeout: float = 1800.0

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise ValueError(f"`timeout`={self.timeout} must be a positive number of seconds.")

    @property
    def ranks(self) -> Ranks:
        """All of them; the first time, this waits until they are there."""
        return connect(self.timeout)

    @property
    def workers(self) -> int:
        """Processors of the first rank: what the plan is made for, however many ranks there are."""
        return self.ranks.processors

    def together(self, task: str) -> AbstractContextManager[None]:
        """Errors inside reach all ranks, and nobody leaves before all are done."""
        return self.ranks.together(task)

    def share(self, make: Callable[[], Any]) -> Any:
        """What ``make`` gives on rank 0, on every rank."""
        return self.ranks.share(make)

    def collect(self, value: Any) -> list[Any]:
        """The ``value`` of every rank, on every rank."""
        return self.ranks.collect(value)

    def sweep(
        self,
        source: DataSource,
        kernel: Kernel,
        whole: Mapping[str, Any],
        mine: Mapping[str, Any],
    ) -> Parts:
        """One pass over all blocks, each on one rank; see :class:`primedpca.protocols.Engine`."""
        ranks, local = self.ranks, LocalEngine(self.ranks.threads)
        if ranks.size == 1:
            return local.sweep(source, kernel, whole, mine)
        with ranks.together():
            numbers = _numbers(source, ranks)
            tree = local.part(source, kernel, whole, mine, numbers)
            nodes, stacks = tree.nodes(), tree.stacks
            home = _Home.of([*stacks, *(nodes[0].sums if nodes else ())], source)
            notes = ranks.meet(
                f"a pass: {getattr(kernel, '__name__', type(kernel).__name__)}",
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
    """Neighbouring block numbers for each rank, near equal in number.

    Of many blocks, shares begin at multiples of sixteen, so that each sixteen is added up where
    it is and less is sent.
    """
    edges = [blocks * r // ranks for r in range(ranks + 1)]
    if blocks >= SIXTEENS * ranks:
        edges = [*(round(edge / 16) * 16 for edge in edges[:-1]), blocks]
    return [range(a, b) for a, b in pairwise(edges)]


def _numbers(source: DataSource, ranks: Ranks) -> range:
    """The blocks that this rank works on: those it alone holds, or its share of all."""
    if not is_spread(source):
        return shares(len(source.blocks), ranks.size)[ranks.rank]
    own = source.local
    return range(own[0], own[-1] + 1) if own else range(0)


def _all_numbers(notes: list[dict[str, Any]], blocks: int) -> list[range]:
    held = [range(*note["blocks"]) for note in notes]
    if [i for part in held for i in part] != list(range(blocks)):
        raise ValueError(
            f"the ranks hold the blocks {[(part.start, part.stop) for part in held]} of {blocks}; "
            "they must hold all of them, each once and in the order of the ranks."
        )
    return held


def _form(part: Array) -> list[Any]:
    """Shape, type, and whether it lies in columns, on which the bits of later products hang."""
    return [list(part.shape), dtype_name(part.dtype), lies_in_columns(part)]


def _forms(notes: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Of the sums and stacks, from the ranks that have any; they must be alike."""
    known = [(r, note) for r, note in enumerate(notes) if note["sums"] is not None]
    first, model = known[0]
    for r, note in known:
        if note["sums"] != model["sums"] or note["stacks"] != model["stacks"]:
            raise ValueError(
                f"rank {r} made sums of {note['sums']} and rank {first} of {model['sums']}; all "
                "ranks must hold rows of the same width and type."
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
    """Where the rows of each rank begin; those of a rank without any, where the next begin."""
    edges = [length]
    for start in reversed(starts):
        edges.append(edges[-1] if start is None else start)
    return edges[::-1]


@cache
def _outline(first: int, last: int) -> tuple[tuple[int, int], ...]:
    """Level and count of the nodes that the tree of these blocks has."""
    tree = FixedTree(tuple((0, 0) for _ in range(last)), first)
    for _ in range(first, last):
        tree.add(Parts())
    return tuple((node.level, node.added) for node in tree.nodes())


def _add_up(ranks: Ranks, nodes: list[Node], held: list[range], found: _Flat) -> None:
    """The sums of all ranks' nodes, in the order of the tree.

    Of every piece each rank gets one slice from all, adds it up, and hands the result to all: no
    rank receives more than any other, and which entries it adds changes no bit.
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
        """Of ``start:stop``: the array, from where to where in it, and where that begins."""
        begin = 0
        for j, row in enumerate(self._rows):
            a, b = max(start - begin, 0), min(stop - begin, row.shape[0])
            if a < b:
                yield j, a, b, begin + a - start
            begin += row.shape[0]

    def read(self, parts: tuple[Array, ...], start: int, stop: int, out: Array) -> None:
        """Entries ``start:stop`` of all parts, in the order in which they lie in memory."""
        for j, a, b, place in self._places(start, stop):
            part = parts[j].T if self.forms[j][2] else parts[j]
            out[place : place + b - a] = part.reshape(-1)[a:b]

    def write(self, piece: Array, start: int) -> None:
        """Put a piece where it belongs."""
        for j, a, b, place in self._places(start, start + piece.shape[0]):
            self._rows[j][a:b] = piece[place : place + b - a]

    def arrays(self) -> tuple[Array, ...]:
        """The arrays themselves."""
        return tuple(
            row.reshape(shape[::-1]).T if turned else row.reshape(tuple(shape))
            for row, (shape, _, turned) in zip(self._rows, self.forms, strict=True)
        )


def _contiguous(x: Array) -> Array:
    return x.contiguous() if is_torch_array(x) else np.ascontiguousarray(x)
