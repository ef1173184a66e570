"""Data of any kind on the device that works on them: kept there as far as they fit, else streamed.

Blocks go to a GPU through page-locked memory and on a stream of their own: while the GPU works on
one block, the next is copied, and the one after that is read.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import (
    dtype_name,
    is_sparse,
    is_sparse_tensor,
    is_torch_array,
    to_numpy,
    work_dtype,
)
from primedpca._core.device_sparse import DeviceSparse
from primedpca._core.process import pool_of, processors
from primedpca.protocols import Array, Block, DataSource
from primedpca.sources.base import Batches, MemorySource, View, cut_evenly, needed
from primedpca.sources.memory.dense import DEVICE_BLOCK_BYTES, DenseSource
from primedpca.sources.memory.sparse import SparseSource

__all__ = ["OnDevice", "device_matrix_source", "is_device_matrix", "on_device", "torch_on"]

#: Arrays in memory up to this size are copied at once.
AT_ONCE = 2**28
#: Part of the device's free memory for data that are kept; the rest is for vectors and products.
SHARE = 0.7
#: Bytes of a block, as it is multiplied, of data that do not fit and are streamed.
STREAM_BYTES = 2**28
#: Bytes that one thread reads, or copies into page-locked memory, at a time.
PIECE_BYTES = 2**25
#: Stored entries in a block of sparse data in memory.
DEVICE_ENTRIES = 2**27
#: Blocks that are on their way while another is worked on.
AHEAD = 2
#: Bytes a second from host memory to a data-centre GPU, through page-locked memory.
TRANSFER = 4e10
#: Types that a device computes with, or converts block by block.
TYPES = {"bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"}
TYPES |= {"float16", "bfloat16", "float32", "float64"}


def torch_on(device: Any) -> Any:
    """PyTorch, if it is installed and has the device."""
    torch = needed("torch", f"`device`={device!r}", "torch")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).split(". ")[0].rstrip(".")
        words = "Use 'cpu', or 'cuda' where PyTorch finds a GPU."
        raise ValueError(f"`device`={device!r} is not available: {reason}. {words}") from error
    return torch


def on_device(source: DataSource, device: Any, max_memory: float = math.inf) -> DataSource:
    """Return ``source`` with its blocks on ``device``, as tensors of PyTorch.

    Parameters
    ----------
    source : DataSource
    device : str, torch.device or None
        Such as ``"cuda"`` or ``"cuda:1"``.  None leaves the source alone.
    max_memory : float, default=inf
        Limit in bytes on the memory of the device.
    """
    here = str(source.device or "cpu")
    if device is None or str(device) == here:
        return source
    torch = torch_on(device)
    device = _exactly(torch, device)
    if str(device) == here:
        return source
    if source.traits.spread:
        raise ValueError(
            f"`device`={str(device)!r} cannot move {source!r}, whose rows are on several ranks. "
            "Pass rows that are on the device of each rank, and leave `device` unset."
        )
    array = source.traits.array
    dense = array is not None and not is_sparse(array)
    if dense and (here != "cpu" or array.nbytes <= min(AT_ONCE, max_memory / 4)):
        return _copied(torch, source, device)
    return OnDevice(source, device, _room(torch, device, max_memory), max_memory)


def is_device_matrix(x: Any) -> bool:
    """Whether ``x`` is a sparse tensor of PyTorch, or a sparse matrix of CuPy."""
    if is_torch_array(x):
        return is_sparse_tensor(x)
    return type(x).__module__.startswith("cupyx.scipy.sparse") and hasattr(x, "get")


def device_matrix_source(x: Any) -> DataSource:
    """Return a sparse tensor, or a sparse matrix of CuPy, as a source on its device.

    The host keeps a copy of a matrix that is on a GPU, for what is computed once.
    """
    if not is_torch_array(x):
        return on_device(SparseSource(x.get()), "cuda")
    return on_device(SparseSource(_as_scipy(x.detach())), x.device)


def _as_scipy(x: Any) -> Any:
    """Return a two-dimensional sparse tensor as a SciPy array."""
    import scipy.sparse as sp
    import torch

    if x.ndim != 2:
        raise ValueError(f"`X` must have two dimensions; got shape {tuple(x.shape)}.")
    if x.layout == torch.sparse_coo and x.dense_dim():
        raise TypeError("`X` is a hybrid tensor, which stores whole rows. Pass X.to_dense().")
    if x.layout not in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        raise TypeError(f"`X` is a tensor of layout {x.layout}. Pass X.to_sparse().")
    shape, x = tuple(x.shape), x.coalesce() if x.layout == torch.sparse_coo else x
    values = x.values()
    if values.dtype == torch.float16:
        values = values.float()  # SciPy has no float16
    if x.layout == torch.sparse_coo:
        rows, columns = to_numpy(x.indices())
        return sp.coo_array((to_numpy(values), (rows, columns)), shape=shape).tocsr()
    if x.layout == torch.sparse_csr:
        parts = values, x.col_indices(), x.crow_indices()
        return sp.csr_array(tuple(map(to_numpy, parts)), shape=shape)
    parts = values, x.row_indices(), x.ccol_indices()
    return sp.csc_array(tuple(map(to_numpy, parts)), shape=shape)


def _exactly(torch: Any, device: Any) -> Any:
    """Return the device with its number: ``"cuda"`` is the current one."""
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def _copied(torch: Any, source: DataSource, device: Any) -> DataSource:
    """Return a dense array of any library as a tensor on the device."""
    array, traits = source.traits.array, source.traits
    _check_type(array.dtype, device)
    if isinstance(array, np.ndarray) and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        # PyTorch warns that it cannot mark its view as read-only; the library never writes to it.
        warnings.simplefilter("ignore", UserWarning)
        found = DenseSource(torch.as_tensor(array, device=device))
    found.feature_names, found.row_names = traits.feature_names(), traits.row_names()
    found.labels, found.missing, found.scale = traits.labels(), traits.missing, traits.scale
    found.image_shape, found.paths = traits.image_shape, traits.paths
    found.layout = traits.layout
    found.column_names = getattr(source, "column_names", None)
    return found


def _check_type(dtype: Any, device: Any) -> None:
    work_dtype(dtype)  # complex numbers and text have messages of their own
    if dtype_name(dtype) not in TYPES:
        raise ValueError(
            f"`device`={str(device)!r} does not support `X` of dtype {dtype_name(dtype)}. Convert "
            "it to float64, or leave `device` unset."
        )


def _room(torch: Any, device: Any, max_memory: float) -> float:
    """Return the bytes of data that may stay on the device."""
    if device.type != "cuda":
        return max_memory / 2
    free, _ = torch.cuda.mem_get_info(device)
    # Memory that PyTorch has reserved and does not use is free, too.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(min(SHARE * free, max_memory / 2))


class _Loading(NamedTuple):
    """A block on its way to the device: its array, and what has to end before it is there."""

    block: Any
    parts: list[Future[Any]]


class OnDevice(View):
    """Another source, whose blocks arrive on a device; the first ones stay there.

    Parameters
    ----------
    source : DataSource
        Dense or sparse data in host memory, files, or a stream.
    device : torch.device or str
        Where blocks are sent to.
    room : float, default=inf
        Bytes of blocks that may stay on the device.  If all fit, the data are read once.
    max_memory : float, default=inf
        Limit in bytes on the memory of the device: blocks are at most a sixty-fourth of it.
    """

    kept = (
        *View.kept,
        "scale",
        "missing_chunks",
        "image_shape",
        "on_disk",
        "fingerprint",
        "reading_options",
        "map_name",
        "layout",
    )
    index: np.ndarray  # of a share of the rows: their numbers in the whole

    def __init__(
        self, source: Any, device: Any, room: float = math.inf, max_memory: float = math.inf
    ) -> None:
        self._torch = needed("torch", f"`device`={device!r}", "torch")
        self._place = self._torch.device(device)
        self.device = str(self._place)
        traits = source.traits
        sparse = traits.sparse
        if sparse is None:
            sparse = is_sparse(next(iter(source.scan()))[1])
        _check_type(source.dtype, device)
        self.shape, self.axis, self.is_sparse = source.shape, source.axis, sparse
        name = work_dtype(source.dtype) if sparse else dtype_name(source.dtype)
        self.dtype = getattr(self._torch, name)
        self.library = "scipy" if sparse else "torch"
        self.nnz = traits.nnz() if sparse else None
        size = _bytes_of(source, self.nnz)
        self._all = size <= room
        largest = max(2.0**20, max_memory / 64)
        self.source = _in_pieces(source, min(PIECE_BYTES, largest))
        self._groups = self._grouped(
            min(DEVICE_BLOCK_BYTES if self._all else STREAM_BYTES, largest)
        )
        cuts = self.source.blocks
        self.blocks = tuple((cuts[a][0], cuts[b - 1][1]) for a, b in self._groups)
        # Without the last block if not all fit: there must be room for those that pass through.
        count = len(self.blocks)
        self._most = count if self._all else int(count * min(1.0, room / max(size, 1)))
        self.cache_bytes = int(size * (self._most / count))
        self.read_rate = math.inf if self._all else traits.read_rate
        if not self._all and traits.in_memory:
            self.read_rate = TRANSFER / 2  # of each of the two workers that plans are made for
        self._held: dict[int, Block] = {}
        self._lock = threading.Lock()
        self._stream: Any = None

    def _grouped(self, most: float) -> list[tuple[int, int]]:
        """Return groups of neighbouring blocks of the source below, as ``(first, last + 1)``."""
        cuts, spread = self.source.blocks, self.source.traits.spread
        if self.is_sparse or spread or len(self.source.local) < len(cuts):
            return [(i, i + 1) for i in range(len(cuts))]
        each = (4 if work_dtype(self.dtype) == "float32" else 8) * self.shape[1 - self.axis]
        edges, begin = [0], 0
        for i, (_, stop) in enumerate(cuts):
            if (stop - begin) * each > most and i > edges[-1]:
                edges.append(i)
                begin = cuts[i][0]
        return list(pairwise([*edges, len(cuts)]))

    # -- as a source -------------------------------------------------------------------------

    @property
    def local(self) -> tuple[int, ...]:
        """Numbers of the blocks that this process can read."""
        if len(self.source.local) == len(self.source.blocks):
            return tuple(range(len(self.blocks)))
        return tuple(self.source.local)  # not grouped then

    def below(self, i: int) -> int:
        """Number of the first block of the source below that block ``i`` is made of."""
        return self._groups[i][0]

    def read(self, i: int) -> Block:
        """Return block ``i`` on the device."""
        held = self._held.get(i)
        return self._arrived(i, self._begun(i, self.source.read)) if held is None else held

    def scan(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """Yield ``(i, block)`` in order, while later blocks are on their way."""
        wanted = [i for i in self.local if i >= start]
        missing = deque(i for i in wanted if i not in self._held)
        feed = self._feed(missing[0]) if missing else None
        coming: dict[int, _Loading] = {}
        done: deque[Any] = deque()
        for i in wanted:
            if missing and missing[0] == i:
                coming[i] = self._begun(missing.popleft(), feed)
            block = self._held.get(i) if i not in coming else self._arrived(i, coming.pop(i))
            if block is None:  # given up since, because memory was short
                block = self.read(i)
            yield i, block
            del block
            # Only now: whoever takes the first block alone does not wait for others.
            done.append(self._mark())
            if len(done) > AHEAD:
                done.popleft()()  # so that memory is not filled faster than the device works
            while missing and len(coming) < AHEAD:
                j = missing.popleft()
                coming[j] = self._begun(j, feed)

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number, from the device if all are there."""
        if len(self._held) == len(self.blocks) and not self.is_sparse:
            return super().rows(index)
        return self._sent(self.source.rows(index))

    def batches(self, size: int, seed: int | None, epoch: int = 0, start: int = 0) -> Batches:
        """Mini-batches as the source below draws them, on the device."""
        if self._all and type(self.source).batches is MemorySource.batches:
            yield from MemorySource.batches(self, size, seed, epoch, start)
            return
        for index, rows in self.source.batches(size, seed, epoch, start):
            yield index, self._sent(rows)

    def sample(self, share: float, seed: int) -> DataSource:
        """A random share of the rows, as the source below draws it, on the device."""
        drawn: Any = self.source.sample(share, seed)
        found = OnDevice(drawn, self._place, 0.0)
        found.index = drawn.index
        return found

    def release(self) -> None:
        """Give up half of the blocks that are kept on the device."""
        with self._lock:
            kept = sorted(self._held)
            if not self.source.traits.sequential:  # a stream cannot go back to read them again
                self._most = len(kept) // 2
                for i in kept[self._most :]:
                    del self._held[i]
        if self._place.type == "cuda":
            self._torch.cuda.empty_cache()

    def __repr__(self) -> str:
        return f"OnDevice({self.source!r}, {self.device})"

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            f"{self!r} cannot be sent to other processes. Leave `device` unset with this engine."
        )

    # -- on the way --------------------------------------------------------------------------

    def _feed(self, first: int) -> Callable[[int], Block]:
        """Return a function that reads blocks of the source below, from that of ``first`` on."""
        read: Callable[[int], Block] = self.source.read
        if not self.source.traits.sequential:
            return read
        found = self.source.scan(self._groups[first][0])

        def next_block(number: int) -> Block:
            for i, block in found:
                if i == number:
                    return block
            raise RuntimeError(f"{self.source!r} ended before block {number}")

        return next_block

    def _begun(self, i: int, read: Any) -> _Loading:
        """Start to send block ``i``."""
        numbers = range(*self._groups[i])
        if self.is_sparse:
            return _Loading(None, [self._pool().submit(self._send_sparse, read, numbers[0])])
        block = self._empty(i)
        begin = self.blocks[i][0]
        calls = []
        for number in numbers:
            a, b = (edge - begin for edge in self.source.blocks[number])
            calls.append((number, block[a:b] if self.axis == 0 else block[:, a:b]))
        if self.source.traits.sequential:  # one after the other
            return _Loading(block, [self._pool().submit(self._send_all, read, calls)])
        return _Loading(block, [self._pool().submit(self._send, read, *call) for call in calls])

    def _empty(self, i: int) -> Array:
        """Return memory on the device for block ``i``; if there is none, blocks kept are freed."""
        start, stop = self.blocks[i]
        shape = list(self.shape)
        shape[self.axis] = stop - start
        while True:
            try:
                with self._side():
                    return self._torch.empty(shape, dtype=self.dtype, device=self._place)
            except self._torch.OutOfMemoryError as error:
                if not self._held:
                    raise MemoryError(
                        f"`device`={self.device!r} has no memory for a block of {shape[0]} x "
                        f"{shape[1]} numbers. Set `max_memory` to what is free there."
                    ) from error
                self.release()

    def _arrived(self, i: int, loading: _Loading) -> Block:
        """Return a block once it is on its way in full; the device waits for the rest."""
        events = [part.result() for part in loading.parts]
        block = events[0][0] if self.is_sparse else loading.block
        if self._place.type == "cuda":
            here = self._torch.cuda.current_stream(self._place)
            for _, event in events:
                here.wait_event(event)
            tensors = (block.data, block.indices, block.indptr) if self.is_sparse else (block,)
            for tensor in tensors:
                tensor.record_stream(here)
        with self._lock:
            if i < self._most:
                self._held[i] = block
        return block

    def _send_all(self, read: Any, calls: list[tuple[int, Array]]) -> tuple[None, Any]:
        """Send several blocks of the source below, one after the other."""
        for call in calls:
            _, event = self._send(read, *call)
        return None, event

    def _send(self, read: Any, number: int, target: Array) -> tuple[None, Any]:
        """Copy a block of the source below to its place; return an event that follows the copy."""
        torch, rows = self._torch, read(number)
        if self._place.type != "cuda":
            _filled(target, rows)
            return None, None
        # PyTorch gives page-locked memory to another copy only after this one has ended.
        locked = torch.empty(target.shape, dtype=self.dtype, pin_memory=True)
        _filled(locked, rows)
        with self._side() as stream:
            target.copy_(locked, non_blocking=True)
            return None, stream.record_event()

    def _send_sparse(self, read: Any, number: int) -> tuple[DeviceSparse, Any]:
        """Copy a sparse block of the source below; return an event that follows the copy."""
        with self._side() as stream:
            block = self._sent(read(number))
            return block, None if stream is None else stream.record_event()

    def _sent(self, rows: Block) -> Block:
        """Return rows of the source below on the device."""
        if self.is_sparse:
            return DeviceSparse.sent(rows, self._place, dtype_name(self.dtype))
        target = self._torch.empty(tuple(rows.shape), dtype=self.dtype)
        _filled(target, rows)
        return target.to(self._place)

    @contextmanager
    def _side(self) -> Iterator[Any]:
        """Send PyTorch's work in this thread to the stream for copies."""
        if self._place.type != "cuda":
            yield None
            return
        with self._lock:
            if self._stream is None:
                self._stream = self._torch.cuda.Stream(self._place)
        with self._torch.cuda.stream(self._stream):
            yield self._stream

    def _mark(self) -> Callable[[], Any]:
        """Return a function that waits for the work that the device was given so far."""
        if self._place.type != "cuda":
            return lambda: None
        event = self._torch.cuda.current_stream(self._place).record_event()
        wait: Callable[[], Any] = event.synchronize
        return wait

    def _pool(self) -> Any:
        """Return the threads that read and copy."""
        if self.source.traits.sequential:
            return pool_of(1, "primedpca-device-order")
        return pool_of(min(8, max(2, processors() // 2)), "primedpca-device")


def _filled(target: Array, rows: Array) -> None:
    """Copy rows of any library into a tensor in host memory."""
    if is_torch_array(rows):
        target.copy_(rows)
    else:  # NumPy lets other threads run while it copies
        np.copyto(target.numpy(), to_numpy(rows), casting="same_kind")


def _bytes_of(source: Any, nnz: int | None) -> float:
    """Return the bytes that the data take on a device."""
    n, d = source.shape
    if nnz is not None:  # entries, and both of their indices in two orders
        return float(nnz) * (24 + (4 if work_dtype(source.dtype) == "float32" else 8))
    return float(n * d * int(source.dtype.itemsize))


def _in_pieces(source: Any, most: float) -> Any:
    """Return data in memory in pieces that suit the copying; other sources as they are."""
    array = source.traits.array
    if array is None or source.traits.spread or type(source) not in (DenseSource, SparseSource):
        return source
    other: Any = type(source)(array)
    other.feature_names, other.row_names = source.feature_names, source.row_names
    other.labels, other.missing = source.labels, source.missing
    other.column_names = getattr(source, "column_names", None)
    if is_sparse(array):
        pieces = max(1, round(array.nnz / min(DEVICE_ENTRIES, most)))
        edges = np.searchsorted(array.indptr, np.linspace(0, array.nnz, pieces + 1)[1:-1])
        edges = np.unique([0, *edges, source.shape[source.axis]]).tolist()
        other.blocks = tuple(pairwise(edges))
        return other
    across = source.shape[1 - source.axis] * int(array.dtype.itemsize)
    other.blocks = cut_evenly(source.shape[source.axis], max(1, int(most) // across))
    return other
