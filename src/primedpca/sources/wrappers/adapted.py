"""Sources that pass everything on to another: completed with traits, or watched while read."""

from collections.abc import Callable, Iterator
from typing import Any

from primedpca.protocols import Block, DataSource, Traits
from primedpca.sources.base import Batches, BlockSource


class Adapted(BlockSource):
    """A source of a user's own, completed with the traits that the library asks for.

    This is the only place that asks whether a source has an attribute.

    Parameters
    ----------
    source : object
        With all members of :class:`~primedpca.protocols.DataSource` but ``traits``.  Optional
        attributes of a ``BlockSource``, such as ``feature_names``, are used where it has them.
    """

    source: DataSource

    def __init__(self, source: Any) -> None:
        self.source = self.completed = source
        for name in (*BlockSource.__annotations__, "fingerprint", "rows"):
            if hasattr(source, name):
                setattr(self, name, getattr(source, name))

    @property
    def local(self) -> tuple[int, ...]:
        """Numbers of the blocks that this process can read."""
        return tuple(self.source.local)

    def read(self, i: int) -> Block:
        """Block ``i``."""
        return self.source.read(i)

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """Yield ``(i, block)`` in order."""
        yield from self.source.scan(start)

    def batches(self, size: int, seed: int | None, epoch: int = 0, start: int = 0) -> Batches:
        """Mini-batches as the other source draws them."""
        yield from self.source.batches(size, seed, epoch, start)

    def sample(self, share: float, seed: int) -> DataSource:
        """A random share of the rows, as the other source draws it."""
        drawn = self.source.sample(share, seed)
        return drawn if hasattr(drawn, "traits") else Adapted(drawn)

    def __repr__(self) -> str:
        return repr(self.source)


class Watched(Adapted):
    """A source that reports how many of its blocks have been read at least once.

    Parameters
    ----------
    source : DataSource
    report : callable
        Takes the number of different blocks read so far.
    """

    def __init__(self, source: DataSource, report: Callable[[int], None]) -> None:
        self.source, self._report, self._seen = source, report, set[int]()
        self.shape, self.dtype, self.device = source.shape, source.dtype, source.device
        self.axis, self.blocks = source.axis, source.blocks

    @property
    def traits(self) -> Traits:
        """The traits of the source that is watched."""
        return self.source.traits

    def read(self, i: int) -> Block:
        """Block ``i``."""
        block = self.source.read(i)
        self._count(i)
        return block

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """Yield ``(i, block)`` in order."""
        for i, block in self.source.scan(start):
            yield i, block
            self._count(i)

    def _count(self, i: int) -> None:
        self._seen.add(i)
        self._report(len(self._seen))
