"""The three seams of the library, their promises, and its notation.

``n`` rows (samples), ``d`` columns (features), ``k`` components, ``l`` extra directions,
``p = k + l``.  Three words name three invariants of a set of vectors:

* **directions** ``(d, p)``: full rank, nothing else;
* **basis** ``(d, p)``: orthonormal columns;
* **components** ``(k, d)``: orthonormal rows, sorted by variance, signs fixed.

A **pass** is one reading of all the data.  Inside the library covariances are divided by the
number of rows (the sum of the weights) so that batches average cleanly;
``_operator/scaling.py`` alone rescales to ``n - 1``.

A new kind of data is a :class:`DataSource`, a new algorithm a :class:`Priming`, a new place to
compute an :class:`Engine`: one file and one registry line each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from primedpca._core.arrays import (
    Array,
    Block,
    Like,
    check_unmasked,
    is_dense_block,
    is_sparse,
    is_sparse_tensor,
    work_dtype,
)

__all__ = ["Array", "Block", "DataSource", "Engine", "EngineTraits", "Journal", "Kernel", "Like"]
__all__ += ["Operands", "Operator", "Parts", "Priming", "PrimingTraits", "SharedRows", "State"]
__all__ += ["Traits", "check_block", "check_blocks", "check_rows", "class_of", "is_spread"]
__all__ += ["makes_square"]

#: A named tuple of arrays and numbers, nothing else, so that it can be saved.  Methods that take
#: one accept ``Any``: each priming declares the named tuple that it returns, which is narrower.
State: TypeAlias = tuple[Any, ...]


def _unknown() -> None:
    """Answer of a source that knows nothing of the kind."""


class Traits(NamedTuple):
    """Facts about a source beyond its blocks.  Every field has a default.

    Functions are called only when their answer is needed: names may stand in a file, and to count
    non-zeros may take reading.

    Attributes
    ----------
    feature_names, row_names, labels : callable
        Return the names of the columns, the names of the rows and one label per row, each an
        array or None.
    headings : tuple of two str
        Headings of the columns of row names and of labels in a table of scores.
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
    reading_options : callable
        Returns the options that change what is read, in words, which a checkpoint compares.
    client : callable
        Returns the Dask client that works on the data unless an engine is named, or None.
    map_name : str or None
        Name of the function that is applied to the rows; in brackets unless the library has it.
    layout : str or None
        Meaning of the columns beyond their names: a grid, the shape of images, counted alleles.
    spread : bool, default=False
        Whether each of several ranks has some of the blocks, even if one of them has all.
    shared : SharedRows or None
        The source itself, where every rank has rows of its own.
    release : callable
        Frees memory that only saves readings; called when memory is short.
    """

    feature_names: Callable[[], Any] = _unknown
    row_names: Callable[[], Any] = _unknown
    labels: Callable[[], Any] = _unknown
    headings: tuple[str, str] = ("name", "label")
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
    reading_options: Callable[[], Any] = _unknown
    client: Callable[[], Any] = _unknown
    map_name: str | None = None
    layout: str | None = None
    spread: bool = False
    shared: SharedRows | None = None
    release: Callable[[], None] = _unknown

    @property
    def in_memory(self) -> bool:
        """Whether nothing is read from a disk in a pass: an array, or rows held by ranks."""
        return self.array is not None or self.read_rate == math.inf

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
        """Return a random fraction of the rows as a source."""


class SharedRows(Protocol):
    """Rows that are distributed over several ranks."""

    @property
    def own(self) -> DataSource:
        """The rows of this rank alone."""

    def of_all(self, values: Any) -> Any:
        """Return values for the rows of all ranks, such as weights, from those of this rank."""

    def whose(self, row: int) -> tuple[int, int]:
        """Return the rank that holds a row, and the index of the row on that rank."""


def is_spread(source: DataSource) -> bool:
    """Whether blocks lie on several ranks, so that all ranks must take part in a request.

    Every rank gives the same answer, also where one happens to have all blocks.
    """
    return source.traits.spread or len(source.local) < len(source.blocks)


def check_blocks(source: DataSource) -> None:
    """Raise an error unless the shape, axis and blocks that a source declares fit together."""
    name = class_of(source)
    shape: Any = source.shape
    if not _is_pair(tuple(shape) if hasattr(shape, "__iter__") else shape):
        raise TypeError(
            f"`shape` of {name} is {shape!r}. Set it to (n_samples, n_features), two whole numbers."
        )
    if source.axis not in (0, 1):
        words = "Set it to 0 for blocks of rows, or to 1 for blocks of columns."
        raise ValueError(f"`axis` of {name} is {source.axis!r}. {words}")
    words = "Set it to a tuple of pairs of whole numbers: ((start, stop), ...)."
    if not isinstance(source.blocks, (tuple, list)):
        raise TypeError(f"`blocks` of {name} has type {type(source.blocks).__name__}. {words}")
    odd = [block for block in source.blocks if not _is_pair(block)]
    if odd:
        raise TypeError(f"`blocks` of {name} holds {odd[0]!r}. {words}")
    end, length = 0, source.shape[source.axis]
    for start, stop in source.blocks:
        if start != end or stop < start:
            break
        end = stop
    else:
        if end == length and source.blocks:
            return
        start, stop = end, length
    raise ValueError(
        f"`blocks` of {name} do not cover its {length} "
        f"{'columns' if source.axis else 'rows'} one after another: block {start}:{stop} follows "
        f"the end {end}. Correct `blocks` or `shape`."
    )


def _is_pair(value: Any) -> bool:
    pair = isinstance(value, (tuple, list)) and len(value) == 2
    return pair and all(isinstance(part, Integral) for part in value)


def class_of(source: Any) -> str:
    """Name of the class of a source; of one that the library has completed, the user's own."""
    return type(getattr(source, "completed", source)).__name__


def check_block(block: Any, source: DataSource, i: int) -> None:
    """Raise an error if block ``i`` is not an array of real numbers of the declared shape."""
    start, stop = source.blocks[i]
    n, d = source.shape
    wanted = (stop - start, d) if source.axis == 0 else (n, stop - start)
    if getattr(block, "shape", None) != wanted:
        _check_shape(block, wanted, f"Block {i} of {class_of(source)}", "`read`")
    if type(block) is np.ndarray:  # it cannot be masked, and its kind is known
        work_dtype(block.dtype)
    else:
        _check_numbers(block, source, i)


def check_rows(rows: Any, index: Any, source: DataSource) -> None:
    """Raise an error if a mini-batch is not an array of real numbers with a row for each index."""
    wanted = (len(index), source.shape[1])
    if getattr(rows, "shape", None) != wanted:
        _check_shape(rows, wanted, f"A batch of {class_of(source)}", "`batches`")
    _check_numbers(rows, source, None)


def _check_shape(block: Any, wanted: tuple[int, int], name: str, method: str) -> None:
    found = getattr(block, "shape", None)
    if found is None or tuple(found) != wanted:
        what = f"is a {type(block).__name__}" if found is None else f"has shape {tuple(found)}"
        raise ValueError(
            f"{name} {what}, but `blocks` and `shape` declare an array of shape {wanted}. Correct "
            f"{method}."
        )


def _check_numbers(block: Any, source: DataSource, i: int | None) -> None:
    """Raise an error for a block that products cannot read, or of which they would drop a part.

    The ``dtype`` that a source declares is a promise: the block itself decides.
    """
    sparse = is_sparse(block)
    if is_dense_block(block) or (sparse and block.format in ("csr", "csc")):
        work_dtype(block.dtype)
        check_unmasked(block, "`X`")
        return
    name = f"{'A batch' if i is None else f'Block {i}'} of {class_of(source)}"
    method = "`batches`" if i is None else "`read`"
    if sparse:
        words = f"is sparse in the format {block.format!r}. Return block.tocsr() from {method}."
    else:
        dense = "block.to_dense()" if is_sparse_tensor(block) else "numpy.asarray(block)"
        words = f"is a {type(block).__name__}. Return {dense} from {method}."
    raise TypeError(f"{name} {words}")


class Parts(NamedTuple):
    """Result of a kernel for one block: arrays to add up, and arrays to put end to end."""

    sums: tuple[Array, ...] = ()
    stacks: tuple[Array, ...] = ()


#: Arrays and numbers that a kernel needs beside the block, by name.
Operands = Mapping[str, Any]
#: A function of a block and keyword operands.  One that is marked by :func:`makes_square` adds
#: square matrices as large as the covariance, for which an engine may need to save memory.
Kernel = Callable[..., Parts]


def makes_square(kernel: Kernel) -> Kernel:
    """Mark a kernel whose sums are square matrices, as wide as a block is across."""
    kernel.__dict__["makes_square"] = True
    return kernel


class Journal(Protocol):
    """Results of passes, kept in the order in which they were computed.

    ``history`` holds the rows of the fit that the results belong to.
    """

    history: list[dict[str, Any]]

    def held(self, name: str, operands: Operands) -> tuple[Any] | None:
        """Return the kept result of the next step in a tuple, or ``None`` if there is none."""

    def keep(self, name: str, operands: Operands, result: Any) -> None:
        """Keep the result of the next step."""

    def resume_loop(self) -> dict[str, Any] | None:
        """Return the state of a loop over mini-batches or rows, or ``None`` if it starts now."""

    def keep_loop(self, loop: dict[str, Any], known: int, last: bool) -> None:
        """Keep the state of such a loop, before its step is reported as row ``known``."""


class EngineTraits(NamedTuple):
    """Facts about an engine that plans and reports use; none of them changes a result.

    Attributes
    ----------
    where : str
        Name of the place, as fitted models show it in ``where_``.
    workers : int, default=1
        Blocks that are processed at the same time; the seconds that a plan reports follow it.
    remote : bool, default=False
        Whether other processes read the blocks, so that the source must be sent to them.
    rank : int, default=0
        Number of this process among those that run the same fit together, from 0.
    ranks : int, default=1
        How many such processes there are.
    """

    where: str
    workers: int = 1
    remote: bool = False
    rank: int = 0
    ranks: int = 1


@runtime_checkable
class Engine(Protocol):
    """The place where blocks are processed.

    Inherit :class:`primedpca.engines.BaseEngine` to write only :meth:`sweep`; the other members
    have the defaults of an engine that works in this process.
    """

    @property
    def traits(self) -> EngineTraits:
        """Facts for plans and reports."""

    @property
    def journal(self) -> Journal | None:
        """The record of passes, if results are kept."""

    def sweep(self, source: DataSource, kernel: Kernel, whole: Operands, mine: Operands) -> Parts:
        """Make one pass: ``kernel(block, **whole, **mine)`` over all blocks of ``source``.

        Of every array in ``mine`` a block gets the entries that belong to its own rows (or
        columns, where the source is cut into columns).  ``sums`` are added in float64 and in a
        tree that depends on the number of blocks alone; ``stacks`` are joined in block order.
        """

    def once(self, name: str, operands: Operands, make: Callable[[], Any]) -> Any:
        """Return ``make()``, kept as a whole if results are kept.

        For work that holds data in memory between passes: its own passes are not kept one by one.
        """

    def view(self, source: DataSource) -> DataSource:
        """Return the source as this engine reads single blocks and rows of it."""

    def blocks_in_memory(self) -> int:
        """Return the largest number of blocks that one process holds at a time."""

    def together(self, task: str) -> AbstractContextManager[None]:
        """Context in which errors reach all ranks, left when all ranks have ended ``task``."""

    def share(self, make: Callable[[], Any]) -> Any:
        """Return on every rank the result of ``make`` on rank 0."""

    def collect(self, value: Any) -> list[Any]:
        """Return on every rank the ``value`` of each rank, in order."""


class Operator(Protocol):
    """The data as the matrix ``M = W^(1/2) (X - 1 mean^T) S^-1``, which is never formed.

    ``W`` are the row weights, ``mean`` the weighted mean and ``S`` the column scale.  A priming is
    shown an operator: all the data, or a mini-batch with the mean and scale of all.
    """

    @property
    def source(self) -> DataSource:
        """The data as they are stored."""

    @property
    def engine(self) -> Engine:
        """The place where blocks are processed."""

    @property
    def like(self) -> Like:
        """Library, device and type of the arrays to multiply with."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def weight(self) -> float:
        """Sum of the row weights: the number of rows without weights."""

    @property
    def root(self) -> Array | None:
        """Square roots of the row weights, ``(n,)``."""

    @property
    def sparse(self) -> bool:
        """Whether blocks are sparse."""

    @property
    def center(self) -> bool:
        """Whether the mean is subtracted."""

    @property
    def implicit(self) -> bool:
        """Whether dense blocks are centred after the products instead of before."""

    @property
    def missing(self) -> str:
        """``"error"`` or ``"mean"``, the treatment of NaN."""

    @property
    def standardise(self) -> bool:
        """Whether columns are divided by their standard deviations."""

    @property
    def room(self) -> float:
        """Bytes of rows that may be held in memory at a time."""

    @property
    def frame(self) -> Any:
        """Mean, scale and unit, as far as they are known."""

    @property
    def passes(self) -> float:
        """Number of readings of the data so far."""

    @property
    def total(self) -> float:
        """Mean squared norm of the rows of ``M``: the total variance."""

    def covariance_product(self, vectors: Array) -> Array:
        """``M^T M V / weight``, ``(d, p)``."""

    def gram_product(self, left: Array) -> Array:
        """``M M^T U / weight``, ``(n, p)``."""

    def forward(self, vectors: Array) -> Array:
        """``M V``, ``(n, p)``."""

    def adjoint(self, left: Array) -> Array:
        """``M^T U``, ``(d, p)``."""

    def covariance(self) -> Array:
        """``M^T M / weight``, ``(d, d)`` in float64."""

    def gram(self) -> Array:
        """``M M^T / weight``, ``(n, n)`` in float64."""

    def rows(self) -> Array:
        """All rows of ``M``, dense: for mini-batches."""

    def narrow(self, x: Array) -> Array:
        """``x`` in the type of ``like``."""

    def wide(self, x: Array) -> Array:
        """``x`` in float64."""

    def run(self, kernel: Kernel, operands: dict[str, Any], frame: Any = None) -> Parts:
        """Make one pass, with every operand cut along its axis."""

    def first_block(self) -> Block:
        """The block that the mean is guessed from."""

    def learn(self) -> Any:
        """The frame with its mean known; costs a pass unless one was made before."""

    def learned(self, frame: Any) -> None:
        """Keep the results of a first pass."""

    def count(self, passes: float, since: float | None = None) -> None:
        """Count readings of the data."""

    def part(self, source: Any, index: Any, engine: Engine, **changes: Any) -> Operator:
        """The rows with these numbers, read from ``source``."""

    def view(self, *, frame: Any = None, **changes: Any) -> Operator:
        """The same operator with other fields."""


@dataclass(frozen=True)
class PrimingTraits:
    """Facts about a priming that the library acts on; the defaults are those of most.

    Attributes
    ----------
    certifier : {"exact", "probes", "sketch"} or None, default=None
        The certifier that can look at the states of this priming while it runs.  With ``None``
        block Krylov, started from the directions found, makes the proof afterwards.
    own_end : bool, default=False
        Whether ``finished`` ends the run, rather than the number of passes.
    replayed : bool, default=False
        Whether a resumed fit repeats the small algebra from the results of passes that a
        checkpoint holds, instead of loading a state.
    adaptive : bool, default=False
        Whether the number of directions may be changed after two steps, by ``variances``.
    user_directions : bool, default=False
        Whether the directions were given by the user, so that their rank is checked.
    tolerance : float, default=0.0
        Angle in radians by which a step may still change the components where ``unsettled`` is 0.
        A fit with a smaller ``tol`` has not converged then.
    """

    certifier: Literal["exact", "probes", "sketch"] | None = None
    own_end: bool = False
    replayed: bool = False
    adaptive: bool = False
    user_directions: bool = False
    tolerance: float = 0.0


class Priming(Protocol):
    """Algorithm that finds the initial directions: a frozen dataclass, its fields its options.

    A priming that inherits :class:`primedpca.priming.BasePriming` defines ``visits``, ``init``,
    ``step`` and ``directions``; the other members have defaults there.
    """

    @property
    def visits(self) -> Literal["whole", "batches", "rows"]:
        """Data shown to one step.

        ``"whole"`` is all the data, to multiply with; ``"batches"`` one shuffled mini-batch;
        ``"rows"`` the next rows, each once, seen from a provisional mean: the true one is known
        only after the last.
        """

    @property
    def traits(self) -> PrimingTraits:
        """Facts that the library acts on."""

    def init(self, like: Like, n_directions: int, seed: int, start: Array | None = None) -> State:
        """Return the first state; reads no data.  ``start`` ``(d, q)`` is a warm start."""

    def step(self, state: Any, data: Operator) -> State:
        """Visit ``data``, an operator, once."""

    def directions(self, state: Any, data: Operator) -> Array:
        """Return the directions found so far, ``(d, <= p)``; may cost one pass."""

    def finished(self, state: Any) -> bool:
        """Whether the algorithm has come to its own end."""

    def change(self, state: Any) -> Any:
        """Estimated angles ``(p,)`` by which directions still move, in radians; or ``None``."""

    def variances(self, state: Any) -> Any:
        """Variances ``(p,)`` along the directions so far, or ``None``."""

    def refined(self, state: Any, data: Operator) -> Any:
        """Principal components of the span, ``(basis, variances)``, if they are known already.

        ``None`` where they are not and :func:`primedpca.refine` is still to be done.
        """

    def unsettled(self, state: Any) -> int | None:
        """First component, counted from 1, that ran out of steps; 0 if none has.

        ``None`` where the algorithm does not track that.
        """

    def limited(self, max_passes: int) -> Priming:
        """Return the same priming, with ``max_passes`` where its own limit was left open."""

    def width(self) -> int | None:
        """Number of directions if it is fixed by the user, or ``None``."""

    def remedy(self, state: Any, data: Operator) -> str:
        """End of the sentence that says that this state has diverged: what to try."""
