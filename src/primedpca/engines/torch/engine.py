"""Ranks of torch.distributed: each processes its own blocks, sums in one fixed tree.

Every rank runs the same fit.  A pass is divided by block number, and its result is the same on
every rank, to the bit; every rank repeats the small algebra between passes.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np

from primedpca._core.arrays import device, dtype_name, is_sparse, is_torch_array, namespace
from primedpca._core.checksum import checksum
from primedpca._core.packing import lies_in_columns
from primedpca.engines.base import FAN_IN, BaseEngine, FixedTree, Node, kernel_name
from primedpca.engines.local import LocalEngine
from primedpca.engines.torch.ranks import Ranks, connect
from primedpca.protocols import Array, DataSource, EngineTraits, Kernel, Operands, Parts, is_spread

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
        ranks = self.ranks
        local = LocalEngine(ranks.threads)
        if ranks.size == 1:
            return local.sweep(source, kernel, whole, mine)
        with ranks.together():
            numbers = _numbers(source, ranks)
            tree = local.part(source, kernel, whole, mine, numbers)
            nodes, stacks = tree.nodes(), tree.stacks
            known = [*stacks, *nodes[0].sums] if nodes else []
            like = known[0] if known else source.read(0)
            like = like.data if is_sparse(like) else like
            notes = ranks.meet(
                f"a pass: {kernel_name(kernel)}",
                [len(source.blocks), checksum([whole, mine])],
                blocks=[numbers.start, numbers.stop],
                forms=[[*map(_form, x)] for x in (nodes[0].sums, stacks)] if nodes else None,
            )
            held, forms = _held(notes, len(source.blocks)), _forms(notes)
            with ranks.exchange():
                if not nodes:
                    stacks = tuple(_empty(like, *form[:2]) for form in forms[1])
                outlines = [_outline(part.start, part.stop) for part in held]
                sums = tuple(
                    _added(source, ranks, [node.sums[j] for node in nodes], outlines, form, like)
                    for j, form in enumerate(forms[0])
                )
                for stack in stacks:
                    edges = [stack.shape[0]]  # a rank without rows begins where the next one does
                    for part in reversed(held):
                        edges.append(source.blocks[part.start][0] if part else edges[-1])
                    ranks.fill(stack, edges[::-1])
            return Parts(sums, stacks)


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


def _held(notes: list[dict[str, Any]], blocks: int) -> list[range]:
    held = [range(*note["blocks"]) for note in notes]
    if [i for part in held for i in part] != list(range(blocks)):
        places = [(part.start, part.stop) for part in held]
        words = f"the ranks hold the blocks {places} of {blocks}"
        raise ValueError(f"{words}. They must hold every block once, in the order of the ranks.")
    return held


def _form(part: Array) -> list[Any]:
    """Return shape, type and memory layout, which later products depend on to the bit."""
    return [list(part.shape), dtype_name(part.dtype), lies_in_columns(part)]


def _forms(notes: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the forms of sums and stacks, which must be the same on all ranks that have any."""
    known = [(r, note["forms"]) for r, note in enumerate(notes) if note["forms"] is not None]
    first, model = known[0]
    for r, forms in known:
        if forms != model:
            raise ValueError(
                f"rank {r} computed sums of form {forms[0]}, and rank {first} of form {model[0]}. "
                "All ranks must hold rows of the same width and type."
            )
    return list(model)


def _empty(like: Array, shape: Any, dtype: str = "float64") -> Array:
    """Return an array in the library and on the device of another."""
    xp = namespace(like)
    return xp.empty(tuple(shape), dtype=getattr(xp, dtype), device=device(like))


@cache
def _outline(first: int, last: int) -> tuple[tuple[int, int], ...]:
    """Return level and count of the nodes in the tree of these blocks."""
    tree = FixedTree(((0, 0),) * last, first)
    for _ in range(first, last):
        tree.add(Parts())
    return tuple((node.level, node.added) for node in tree.nodes())


def _added(
    source: DataSource,
    ranks: Ranks,
    parts: list[Array],
    outlines: list[Any],
    form: Any,
    like: Array,
) -> Array:
    """Add one sum of all ranks' nodes, in the order of the tree.

    Of every piece each rank receives one slice from all ranks, adds it, and sends the result to
    all: no rank receives more than another, and the choice of entries changes no bit.
    """
    shape, _, turned = form
    rows = [(part.T if turned else part).reshape(-1) for part in parts]  # in memory order
    total, counts, size = _empty(like, [math.prod(shape)]), list(map(len, outlines)), ranks.size
    step = max(size, PIECE_BYTES // (8 * max(counts)) // size * size)
    for start in range(0, total.shape[0], step):
        length = min(step, total.shape[0] - start)
        each = -(-length // size)
        sent = _empty(like, (len(rows), size * each))
        sent[:, length:] = 0.0
        for i, row in enumerate(rows):
            sent[i, :length] = row[start : start + length]
        sent = namespace(sent).permute_dims(sent.reshape(len(rows), size, each), (1, 0, 2))
        sent = sent.contiguous() if is_torch_array(sent) else np.ascontiguousarray(sent)
        tree, got = FixedTree(source.blocks), iter(ranks.swap(sent, counts))
        for level, count in chain(*outlines):
            tree.graft(Node(level, count, (next(got),)))
        total[start : start + length] = ranks.join(tree.total().sums[0])[:length]
    return total.reshape(shape[::-1]).T if turned else total.reshape(tuple(shape))
