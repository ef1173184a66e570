"""The three seams of the library, their promises, and its notation.

``n`` rows (samples), ``d`` columns (features), ``k`` components, ``l`` extra directions,
``p = k + l``.  Three words name three invariants of a set of vectors:

* **directions** ``(d, p)``: full rank, nothing else;
* **basis** ``(d, p)``: orthonormal columns;
* **components** ``(k, d)``: orthonormal rows, sorted by variance, signs fixed.

A **pass** is one reading of all the data.  Inside the library covariances are divided by the
number of rows (the sum of the weights) so that batches average cleanly;
:func:`primedpca._solve.refine.decomposition` rescales to ``n - 1``.

A new kind of data is a :class:`DataSource`, a new algorithm a :class:`Priming`, a new place to
compute an :class:`Engine`: one file and one registry line each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from primedpca._core.arrays import Array, Block, Like

__all__ = [
    "Array",
    "Block",
    "DataSource",
    "Engine",
    "Kernel",
    "Like",
    "Parts",
    "Priming",
    "SharedRows",
    "State",
    "Traits",
    "is_spread",
]

#: A named tuple of arrays and numbers, nothing else, so that it can be saved.
State = Any


def _unknown() -> None:
    """Answer of a source that knows nothing of the kind."""


@dataclass(frozen=True, eq=False)
class Traits:
    """Facts about a source beyond its blocks.  Every field has a default.

    Functions are called only when their answer is needed: names may stand in a file, and to count
    non-zeros may take reading.

    Attributes
    ----------
    feature_names, row_names, labels : callable
        Return the names of the columns, the names of the rows and one label per row, each an
        array or None.
    image_shape : (height, width, channels) or None
        Shape of the image that a row holds, flattened in this order.
    paths : tuple of str
        Files or folders that the rows are read from.
    array : array or None
        The whole data, where one array in memory holds them.
    library : str or None
        Package that blocks belong to, such as ``"numpy"``, ``"torch"`` or, for sparse blocks,
        ``"scipy"``.  None if only a block can tell.
    nnz : callable
        Returns about how many entries sparse blocks store in all, or None.
    read_rate : float or None
        Bytes per second that one worker decodes.  None if the speed of the disk decides.
    cache_bytes : int, default=0
        Bytes of decoded data that the source itself keeps or needs.
    on_disk : bool, default=False
        Whether blocks are read or computed again every time.
    sequential : bool, default=False
        Whether blocks are cheap in order only.
    missing : {"error", "mean"} or None
        Rule for missing values that is usual for this kind of data.
    scale : array of shape (d,) or None
        Numbers that columns are divided by unless the estimator is given a ``scale``.
    missing_chunks : int, default=0
        Number of chunks that a store lacks, which are read as its fill value.
    fingerprint : callable
        Returns plain values that distinguish these data from others, which a checkpoint compares,
        or None.
    client : callable
        Returns the Dask client that works on the data unless an engine is named, or None.
    spread : bool, default=False
        Whether each of several ranks has some of the blocks, even if one of them has all.
    shared : SharedRows or None
        The source itself, where every rank has rows of its own.
    """

    feature_names: Callable[[], Any] = _unknown
    row_names: Callable[[], Any] = _unknown
    labels: Callable[[], Any] = _unknown
    image_shape: tuple[int, int, int] | None = None
    paths: tuple[str, ...] = ()
    array: Any = None
    library: str | None = None
    nnz: Callable[[], int | None] = _unknown
    read_rate: float | None = None
    cache_bytes: int = 0
    on_disk: bool = False
    sequential: bool = False
    missing: str | None = None
    scale: Any = None
    missing_chunks: int = 0
    fingerprint: Callable[[], Any] = _unknown
    client: Callable[[], Any] = _unknown
    spread: bool = False
    shared: SharedRows | None = None

    @property
    def sparse(self) -> bool | None:
        """Whether blocks are sparse; None if only a block can tell."""
        return None if self.library is None else self.library == "scipy"


@runtime_checkable
class DataSource(Protocol):
    """The data: blocks of rows (``axis`` 0) or of columns (``axis`` 1).

    The cut into blocks is fixed by shape, dtype and storage, never by the number of workers.
    Blocks are never written to.  ``traits`` holds all else that the library asks of a source;
    :func:`primedpca.as_source` adds it to a source that comes without.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of all the data."""

    @property
    def dtype(self) -> Any:
        """Type of the entries as they are stored."""

    @property
    def device(self) -> Any:
        """Device that blocks arrive on; None is host memory."""

    @property
    def axis(self) -> Literal[0, 1]:
        """Whether blocks hold rows (0) or columns (1)."""

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Start and stop of every block along the axis."""

    @property
    def local(self) -> tuple[int, ...]:
        """Numbers of the blocks that this process can read."""

    if TYPE_CHECKING:
        # For type checkers only: `isinstance` accepts users' sources that lack it.
        @property
        def traits(self) -> Traits:
            """Names, paths, defaults of the kind, and more; see :class:`Traits`."""

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """Yield ``(i, block)`` in order, beginning with block ``start``."""

    def read(self, i: int) -> Block:
        """Block ``i``, at any time and in any order."""

    def batches(
        self, size: int, seed: int | None, epoch: int = 0, start: int = 0
    ) -> Iterator[tuple[Any, Block]]:
        """Yield ``(row numbers, rows)``: every row once an epoch, at most ``size`` at a time.

        The order is drawn from ``(seed, epoch)``; ``seed=None`` keeps the rows in order.
        ``start`` skips that many batches, so that an epoch can be re-entered.
        """

    def sample(self, share: float, seed: int) -> DataSource:
        """A random share of the rows, itself a source."""


class SharedRows(Protocol):
    """Rows that lie on several ranks, each rank bringing its own."""

    @property
    def own(self) -> DataSource:
        """The rows of this rank alone."""

    def of_all(self, values: Any) -> Any:
        """Numbers for this rank's rows, such as weights, joined with those of the others."""

    def whose(self, row: int) -> tuple[int, int]:
        """Rank that has a row, and the number of the row on that rank."""


def is_spread(source: DataSource) -> bool:
    """Whether blocks lie on several ranks, so that all must ask for what one of them needs.

    Every rank gives the same answer, also where one happens to have all blocks.
    """
    return source.traits.spread or len(source.local) < len(source.blocks)


class Parts(NamedTuple):
    """What a kernel makes of one block: arrays to add up, and arrays to put end to end."""

    sums: tuple[Array, ...] = ()
    stacks: tuple[Array, ...] = ()


Kernel = Callable[..., Parts]


@runtime_checkable
class Engine(Protocol):
    """Where blocks are worked on."""

    def sweep(
        self,
        source: DataSource,
        kernel: Kernel,
        whole: Mapping[str, Any],
        mine: Mapping[str, Any],
    ) -> Parts:
        """One pass: ``kernel(block, **whole, **mine)`` over all blocks of ``source``.

        Of every array in ``mine`` a block gets the entries that belong to its own rows (or
        columns, where the source is cut into columns).  ``sums`` are added in float64 and in a
        tree that depends on the number of blocks alone; ``stacks`` are joined in block order.
        """


class Priming(Protocol):
    """Who looks for the span.  A frozen dataclass whose fields are its options.

    ``visits`` says what one ``step`` is shown: ``"whole"`` (the data, to multiply with),
    ``"batches"`` (one shuffled mini-batch), or ``"rows"`` (the next rows, each once, seen from
    a provisional mean: the true one is known only after the last).

    Three members are optional.  ``finished(state) -> bool`` is the algorithm's own end;
    ``change(state) -> float`` the angle by which the wanted span still moves, compared with
    ``tol``; ``refined(state, data) -> (basis, variances)`` is for an algorithm whose vectors
    are principal components of their own span already, so that refining would add nothing.
    """

    @property
    def visits(self) -> Literal["whole", "batches", "rows"]:
        """What one step is shown."""

    def init(self, like: Like, n_directions: int, seed: int, start: Array | None = None) -> State:
        """The first state; reads no data.  ``start`` ``(d, q)`` is a warm start."""

    def step(self, state: State, data: Any) -> State:
        """One visit to ``data``, a :class:`~primedpca._operator.operator.Centred`."""

    def directions(self, state: State, data: Any) -> Array:
        """The directions found so far, ``(d, <= p)``; may cost one pass."""
