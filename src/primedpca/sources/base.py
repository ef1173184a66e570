"""Shared parts of all sources: the cut into blocks, mini-batches, shares of rows, fingerprints."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial, wraps
from importlib import import_module
from inspect import signature
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import numpy as np

from primedpca._core.arrays import (
    as_real,
    check_unmasked,
    dtype_name,
    is_sparse,
    is_torch_array,
    namespace,
    to_numpy,
)
from primedpca._core.digest import digest, written
from primedpca._core.process import pool_of, processors
from primedpca.protocols import Block, DataSource, Traits, check_block, class_of, is_spread

#: Row numbers and rows of one mini-batch after the other.
Batches: TypeAlias = Iterator[tuple[np.ndarray, Block]]

BLOCK_BYTES = 2**22  # as prepared: large enough for BLAS, small enough for the cache
READ_BYTES = 2**23  # of a block on disk: large reads are fast, and few fill the memory
GROUP_BYTES = 2**27  # rows gathered at a time where mini-batches cut across the blocks
HASHED = 4  # blocks hashed of data that are not in memory: the first, the last and two between
#: Arguments of sources that do not change which numbers are read, or stand in the file.
SAME_NUMBERS = {"cache", "verify", "strict", "follow_links", "exact", "stamp", "indptr"}


def cut_evenly(length: int, step: int) -> tuple[tuple[int, int], ...]:
    """Cut ``range(length)`` into the fewest pieces of at most ``step``, near equal in length."""
    pieces = max(1, -(-length // max(step, 1)))
    edges = [length * i // pieces for i in range(pieces + 1)]
    return tuple(pairwise(edges))


def matrix_shape(x: Any) -> tuple[int, int]:
    """Rows and columns of an array, which must have two dimensions."""
    if len(x.shape) != 2:
        raise ValueError(
            f"`X` must have two dimensions, (n_samples, n_features); got shape {tuple(x.shape)}. "
            "Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one sample."
        )
    return int(x.shape[0]), int(x.shape[1])


def check_entries(x: Any, name: str = "`X`") -> None:
    """Refuse an array with masked entries, which would be read, or with rows of many lengths."""
    check_unmasked(x, name)
    if not is_torch_array(x):
        return
    if type(x).__name__ == "MaskedTensor":
        words = "pass X.to_tensor(float('nan')) and `missing`='mean'."
        raise TypeError(f"{name} is a MaskedTensor, whose masked entries would be read; {words}")
    if x.is_nested:
        words = "torch.nested.to_padded_tensor(X, float('nan')) and `missing`='mean'"
        words = "torch.cat(X.unbind())" if x.dim() == 3 else words
        raise TypeError(f"{name} is a nested tensor, which is not a matrix. Pass {words}.")


def needed(library: str, what: str, extra: str) -> Any:
    """Import an optional library, or raise an error that names the extra to install."""
    try:
        return import_module(library)
    except ImportError as error:
        name = library.split(".")[0]
        raise ImportError(f"{what} needs {name}: pip install 'primedpca[{extra}]'.") from error


class Later:
    """An optional library that is imported when the first of its names is used.

    Parameters are those of :func:`needed`.
    """

    def __init__(self, library: str, what: str, extra: str) -> None:
        self._which = (library, what, extra)

    def __getattr__(self, name: str) -> Any:
        return getattr(needed(*self._which), name)


def tall_first(shape: tuple[int, int]) -> Literal[0, 1]:
    """The axis to cut where storage leaves the choice: rows of tall data, columns of wide ones.

    The products of a pass then add up matrices of the smaller side.
    """
    return 0 if shape[0] >= shape[1] else 1


class BlockSource(ABC):
    """The parts of a :class:`~primedpca.protocols.DataSource` that follow from ``read``.

    A subclass sets ``shape``, ``dtype``, ``axis`` and ``blocks`` and defines ``read``.  It
    overrides :meth:`rows` where single rows can be had without reading whole blocks.  All other
    attributes are optional; :class:`~primedpca.protocols.Traits` explains them.
    """

    shape: tuple[int, int]
    dtype: Any
    device: Any = None
    axis: Literal[0, 1] = 0
    blocks: tuple[tuple[int, int], ...]

    feature_names: Any = None
    row_names: Any = None
    labels: Any = None
    headings: tuple[str, str] = ("name", "label")
    image_shape: tuple[int, int, int] | None = None
    path: Any = None
    paths: Sequence[Any] = ()
    array: Any = None
    library: str | None = None
    nnz: int | None = None
    map_name: str | None = None
    layout: str | None = None
    missing: str | None = None
    scale: Any = None
    on_disk: bool = False
    sequential: bool = False
    spread: bool = False
    read_rate: float | None = None
    cache_bytes: int = 0
    missing_chunks: int = 0

    @property
    def traits(self) -> Traits:
        """The optional attributes in one record; names and counts only when they are asked for."""
        paths: tuple[str, ...] = ()
        if files := self.paths or ([] if self.path is None else [self.path]):
            paths = tuple(os.fspath(one) for one in files if isinstance(one, (str, os.PathLike)))
        return Traits(
            **dict(zip(_PLAIN, _plain_of(self), strict=True)),
            feature_names=partial(_one_each, self, "feature_names", 1),
            row_names=partial(_one_each, self, "row_names", 0),
            labels=partial(_one_each, self, "labels", 0),
            paths=paths,
            nnz=lambda: self.array.nnz if is_sparse(self.array) else self.nnz,
            fingerprint=self.fingerprint,
            reading_options=self.reading_options,
            client=self.dask_client,
            release=self.release,
        )

    def fingerprint(self) -> Any:
        """Plain values that distinguish these data from others; None leaves it to the blocks."""
        return None

    def reading_options(self) -> str | None:
        """Options that change what is read, in words; None without options."""
        return None

    def release(self) -> None:
        """Free memory that only saves readings; called when memory is short.  Here, none."""
        return

    def dask_client(self) -> Any:
        """The Dask client that works on the data unless an engine is named: none."""
        return None

    @property
    def local(self) -> tuple[int, ...]:
        """Numbers of the blocks that this process can read: here, all."""
        return tuple(range(len(self.blocks)))

    @abstractmethod
    def read(self, i: int) -> Block:
        """Block ``i``."""

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """Yield ``(i, block)`` in order."""
        for i in range(start, len(self.blocks)):
            block = self.read(i)
            check_block(block, self, i)
            yield i, block

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number, in this order, from as few blocks as hold them."""
        if self.axis == 1:
            pieces = [take_rows(block, index) for _, block in self.scan()]
            return join(pieces, axis=1)
        owner = np.searchsorted([stop for _, stop in self.blocks], index, side="right")
        places = {i: np.flatnonzero(owner == i) for i in np.unique(owner).tolist() or [0]}
        pieces = []
        for i, at in places.items():
            block = self.read(i)
            check_block(block, self, i)
            pieces.append(take_rows(block, index[at] - self.blocks[i][0]))
        return take_rows(join(pieces, axis=0), np.argsort(np.concatenate(list(places.values()))))

    def batches(self, size: int, seed: int | None, epoch: int = 0, start: int = 0) -> Batches:
        """Mini-batches from groups of neighbouring rows, so that a block is read once or twice."""
        n, d = self.shape
        cuts = cut_evenly(n, size)
        width = max(b - a for a, b in cuts)
        per_group = max(1, GROUP_BYTES // (8 * max(d, 1) * width))
        rng = None if seed is None else np.random.default_rng((seed, 1, epoch))
        groups = [cuts[i : i + per_group] for i in range(0, len(cuts), per_group)]
        for group in [groups[i] for i in rng.permutation(len(groups))] if rng else groups:
            first, last = group[0][0], group[-1][1]
            index = np.arange(first, last)
            if rng is not None:
                index = rng.permutation(index)
            if start >= len(group):
                start -= len(group)
                continue
            held = self.rows(index)
            for a, b in group[start:]:
                place = np.arange(a - first, b - first)
                yield index[place], take_rows(held, place)
            start, held = 0, None  # before the next are read: both would be in memory

    def sample(self, share: float, seed: int) -> DataSource:
        """A random share of the rows (at least two), read through this source."""
        n = self.shape[0]
        count = min(n, max(2, round(share * n)))
        chosen = np.random.default_rng((seed, 2)).choice(n, count, replace=False)
        return Subset(self, np.sort(chosen))


def _one_each(source: BlockSource, name: str, axis: Literal[0, 1]) -> Any:
    """An attribute of a source, which has one value for each of its rows or columns, or None."""
    values, length = getattr(source, name), source.shape[axis]
    if values is None:
        return None
    plain = isinstance(values, (str, bytes)) or not hasattr(values, "__len__")
    shape = None if plain else tuple(getattr(values, "shape", (len(values),)))
    if shape == (length,):
        return values
    found = type(values).__name__ if shape is None else f"of shape {shape}"
    each = ("row", "column")[axis]
    raise ValueError(
        f"`{name}` of {class_of(source)} is {found}, but `shape` declares {length} {each}s. Set it "
        f"to a sequence with one value for each {each}, or to None."
    )


#: Attributes that are traits as they are; the others are looked up when they are asked for.
_LATER = {"feature_names", "row_names", "labels", "paths", "nnz"}
_PLAIN = sorted(BlockSource.__annotations__.keys() & Traits.__annotations__.keys() - _LATER)
_plain_of = attrgetter(*_PLAIN)


class MemorySource(BlockSource):
    """A source whose rows can be gathered at no more than the cost of copying them.

    Attributes
    ----------
    column_names : list or None
        Names of the columns of a data frame, which need not be text; not set for other data.
    """

    column_names: list[Any] | None

    def batches(self, size: int, seed: int | None, epoch: int = 0, start: int = 0) -> Batches:
        """Mini-batches of a fresh permutation of all rows every epoch."""
        n = self.shape[0]
        order = np.arange(n)
        if seed is not None:
            order = np.random.default_rng((seed, 1, epoch)).permutation(n)
        for a, b in cut_evenly(n, size)[start:]:
            yield order[a:b], self.rows(order[a:b])


class WithOptions(BlockSource):
    """A source whose constructor keeps its arguments: they say how the data are read.

    Files are not hashed as a whole, so a checkpoint compares these options as well.
    """

    _given: dict[str, Any]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not hasattr(cls.__init__, "__wrapped__"):
            cls.__init__ = _keeping_arguments(cls.__init__)  # type: ignore[method-assign]

    def reading_options(self) -> str | None:
        """Arguments of the constructor but the data, unless they are the defaults, in words."""
        known = signature(type(self).__init__).parameters
        told = ((name, written(value)) for name, value in sorted(self._given.items()))
        others = (pair for pair in told if pair[1] != written(known[pair[0]].default))
        return ", ".join(map("=".join, others)) or None


def _keeping_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """The constructor, which keeps the arguments it is called with, but not the data."""
    names = [*signature(init).parameters][1:]
    left_out = {*names[:1], *SAME_NUMBERS}

    @wraps(init)
    def keeping(self: Any, *args: Any, **options: Any) -> None:
        options = {name: _lasting(value) for name, value in options.items()}
        if "_given" not in vars(self):  # not in the constructor of a parent class
            given = dict(zip(names, args, strict=False)) | options
            self._given = {name: given[name] for name in given.keys() - left_out}
        init(self, *args, **options)

    return keeping


def _lasting(value: Any) -> Any:
    """The value; of an iterator, which can be read only once, a list."""
    return list(value) if isinstance(value, Iterator) else value


class View(WithOptions):
    """Rows of another source, changed or chosen block by block.

    Attributes
    ----------
    source : BlockSource
        The source below.
    """

    source: Any
    #: Traits that hold for any rows of the source below.
    kept: tuple[str, ...] = ("paths", "sequential", "missing", "spread")

    @cached_property
    def feature_names(self) -> Any:
        """Names of the columns, where there are as many as in the source below."""
        same = self.shape[1] == self.source.shape[1]
        return self.source.traits.feature_names() if same else None

    @property
    def column_names(self) -> Any:
        """Labels of the columns of a data frame, where there are as many as in the source below."""
        same = self.shape[1] == self.source.shape[1]
        return getattr(self.source, "column_names", None) if same else None

    @cached_property
    def row_names(self) -> Any:
        """Names of the rows, where there are as many as in the source below."""
        same = self.shape[0] == self.source.shape[0]
        return self.source.traits.row_names() if same else None

    @cached_property
    def labels(self) -> Any:
        """One label per row, where there are as many rows as in the source below."""
        same = self.shape[0] == self.source.shape[0]
        return self.source.traits.labels() if same else None

    @property
    def traits(self) -> Traits:
        """The view's own traits, and those that hold for any rows of the source below."""
        below = self.source.traits
        return super().traits._replace(**{name: getattr(below, name) for name in self.kept})

    def reading_options(self) -> str | None:
        """Options of the view, and of the source below."""
        parts = (super().reading_options(), self.source.traits.reading_options())
        return "; ".join(part for part in parts if part) or None

    @property
    def local(self) -> tuple[int, ...]:
        """Numbers of the blocks that this process can read."""
        return tuple(self.source.local)

    def below(self, i: int) -> int:
        """Number of the block of the source below that block ``i`` is made of."""
        return i


class PartView(View):
    """Some rows or columns of another source: block ``i`` is part of its block ``_owner[i]``."""

    _owner: tuple[int, ...]

    @property
    def local(self) -> tuple[int, ...]:
        """Numbers of the blocks that this process can read."""
        known = set(self.source.local)
        return tuple(i for i, owner in enumerate(self._owner) if owner in known)

    def below(self, i: int) -> int:
        """Number of the block of the source below that block ``i`` is made of."""
        return self._owner[i]


class Subset(PartView):
    """Some rows of another source."""

    kept = (*View.kept, "scale", "library")

    def __init__(self, source: BlockSource, index: np.ndarray) -> None:
        self.source, self.index = source, index
        self.shape = (index.size, source.shape[1])
        self.dtype, self.device, self.axis = source.dtype, source.device, source.axis
        if source.axis == 1:
            self.blocks, self._owner = source.blocks, tuple(range(len(source.blocks)))
            return
        edges = np.searchsorted(index, [start for start, _ in source.blocks] + [source.shape[0]])
        held = [(i, pair) for i, pair in enumerate(pairwise(edges.tolist())) if pair[0] < pair[1]]
        self._owner, self.blocks = zip(*held, strict=True)

    def read(self, i: int) -> Block:
        """The chosen rows of one block of the source below."""
        owner = self._owner[i]
        block = self.source.read(owner)
        if self.axis == 1:
            return take_rows(block, self.index)
        start, stop = self.blocks[i]
        return take_rows(block, self.index[start:stop] - self.source.blocks[owner][0])

    def rows(self, index: np.ndarray) -> Block:
        """Rows by their number in the subset."""
        return self.source.rows(self.index[index])


def take_rows(block: Block, index: np.ndarray) -> Block:
    """Some rows of a block, gathered."""
    if isinstance(block, np.ndarray) or is_sparse(block):
        return block[index]
    xp = namespace(block)
    return xp.take(block, xp.asarray(index, device=block.device), axis=0)


def join(pieces: list[Block], axis: int) -> Block:
    """Blocks end to end; a single one as it is."""
    if len(pieces) == 1:
        return pieces[0]
    if len({is_sparse(piece) for piece in pieces}) > 1:
        raise TypeError("Some blocks of `X` are dense, others sparse. Return one kind from `read`.")
    if is_sparse(pieces[0]):
        from scipy.sparse import hstack, vstack

        return (vstack if axis == 0 else hstack)(pieces, format="csr")
    return namespace(pieces[0]).concat(pieces, axis=axis)


def read_only(block: Block) -> Block:
    """The block, which NumPy lets nobody write to; arrays of other libraries as they are."""
    if is_sparse(block):
        block.data.flags.writeable = block.indices.flags.writeable = False
    elif isinstance(block, np.ndarray):
        block = block.view()  # the flag must not reach an array that somebody else holds
        block.flags.writeable = False
    return block


def library_of(block: Block) -> str:
    """Name of the package that a block belongs to, such as ``"numpy"``; of sparse ones, SciPy."""
    return "scipy" if is_sparse(block) else type(block).__module__.split(".")[0]


def whole(source: DataSource) -> Block:
    """All blocks in one; data beyond half of the machine's memory are refused."""
    if source.traits.array is not None:
        return source.traits.array
    blocks, taken = [], 0
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    for _, block in source.scan():
        taken += getattr(block, "nbytes", 0)
        if 2 * taken > room:  # twice, as long as the parts stand beside the whole
            words = "does not fit into memory as a whole. Use a part of the rows"
            raise MemoryError(f"`X`, {source!r}, {words}.")
        blocks.append(block)
    return join(blocks, source.axis)


class OneBlock(MemorySource):
    """A block in memory, as a source of its own."""

    def __init__(self, block: Block) -> None:
        self.block, self.library = block, library_of(block)
        self.shape, self.dtype = matrix_shape(block), block.dtype
        self.blocks = ((0, self.shape[0]),)

    def read(self, i: int) -> Block:
        """The block."""
        return self.block

    def rows(self, index: np.ndarray) -> Block:
        """Some of its rows."""
        return take_rows(self.block, index)


def fingerprint(source: DataSource, sample_weight: Any = None) -> dict[str, Any]:
    """Shape, type and cut of the data, a hash of their entries, and of files their dates.

    A checkpoint recognises by it the data that it was made from: products computed before an
    interruption hold only for these, and a fit resumed on other data would prove nothing.  Data
    in memory are hashed whole.  Files may take hours to read, so their sizes, dates and a few
    blocks are compared: the system dates every change of a file (``ctime``), and that date cannot
    be set back.

    Parameters
    ----------
    source : DataSource
        If its traits have a ``fingerprint`` of their own, that is included.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    dict
        It changes with any entry of data in memory.  Of files, and of data with a fingerprint of
        their own, the first and last block and two between are hashed, and the options of reading
        are compared.
    """
    last, files, own = len(source.blocks) - 1, _files(source), source.traits.fingerprint()
    apart = files or own is not None or source.traits.on_disk
    chosen = [0]
    if not is_spread(source):  # a rank cannot read all blocks
        some = np.random.default_rng(last).integers(0, last + 1, HASHED - 2)
        chosen = sorted({0, last, *some.tolist()}) if apart else list(range(last + 1))
    known = {
        "shape": tuple(source.shape),
        "dtype": dtype_name(source.dtype),
        "axis": int(source.axis),
        "blocks": digest(source.blocks),
        "device": str(source.device),
        "contents": digest(chosen, _hashes(source, chosen)),
        "sample_weight": None if sample_weight is None else digest(_hashable(sample_weight)),
    }
    # Of data that are hashed as a whole, the absence of options says nothing more: checkpoints of
    # earlier versions do not have these.
    meant = _meaning(source.traits).items()
    known |= {name: value for name, value in meant if apart or value != "none"}
    if own is not None:
        known["source"] = digest(own)
    elif files:
        known["file"] = _dates(files)
    return known


def _hashable(weight: Any) -> np.ndarray:
    """Weights as an array of numbers: an array of objects has no bits of its own."""
    values = to_numpy(weight)
    return values if values.dtype.kind in "biuf" else as_real(values, "sample_weight")


def _meaning(traits: Traits) -> dict[str, str]:
    """How the numbers are read and used, in words."""
    return {
        "reading_options": traits.reading_options() or "none",
        "map": traits.map_name or "none",
        "layout": traits.layout or "none",
        "own_missing": traits.missing or "none",
        "own_scale": "none" if traits.scale is None else written(to_numpy(traits.scale)),
    }


def _hashes(source: DataSource, chosen: list[int]) -> list[str]:
    """A hash of each of these blocks."""
    in_order = len(chosen) == 1 or source.traits.sequential
    if in_order or source.device not in (None, "cpu"):
        return [digest(source.read(i)) for i in chosen]
    pool = pool_of(processors(), "primedpca-hashes")
    return list(pool.map(lambda i: digest(source.read(i)), chosen))


def _files(source: DataSource) -> list[str]:
    """Files that the rows are read from, including those in folders."""
    found: list[str] = []
    for name in source.traits.paths:
        while "::" in name and not os.path.exists(name):  # an array in a store
            name = name.rpartition("::")[0]
        if not os.path.exists(name):
            return []
        inside = [os.path.join(at, own) for at, _, names in os.walk(name) for own in names]
        found += sorted(inside) if os.path.isdir(name) else [name]
    return found


def _dates(files: list[str]) -> str:
    """Size and dates of a file; of several, as one hash."""
    about = [os.stat(path) for path in files]
    dates = [(one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in about]
    if len(files) > 1:
        return f"{len(files)} files, {digest(dates)}"
    return "{} bytes, changed at {} ns, by the system's own date at {} ns".format(*dates[0])
