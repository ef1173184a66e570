"""AnnData: ``.h5ad`` files whose matrix is read block by block, and objects in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, work_dtype
from primedpca.protocols import Block, DataSource
from primedpca.sources import base
from primedpca.sources.base import BlockSource, cut_evenly
from primedpca.sources.files.common import Stamp, split_part, stamp_of
from primedpca.sources.files.compressed_rows import CompressedFile
from primedpca.sources.files.hdf5_checks import check_chunks, check_inside, find, open_hdf5
from primedpca.sources.files.regular_files import check_regular, open_regular
from primedpca.sources.files.strips import count_missing

__all__ = ["H5adDense", "H5adSparse", "h5ad_source", "is_anndata", "is_h5ad"]

HEAP_BYTES = 2**24
TEXT_BYTES = 2**28
FILTER_RATIO = 2**16  # bytes that one stored byte can plausibly become


class _InFile:
    """A matrix inside an ``.h5ad`` file, and the names of its rows and columns."""

    path: str
    node: str
    shape: tuple[int, int]
    follow_links: bool = False
    _stamp: Stamp | None = None

    def _begin_file(self, path: str, node: str, follow_links: bool) -> None:
        self.path, self.node, self.follow_links = path, node, follow_links
        self._seen: set[tuple[Any, ...]] = set()

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the file for one read; errors of HDF5 then name the file."""
        if not os.path.exists(self.path):
            raise FileNotFoundError(f"File not found: {self.path}. Name an .h5ad file.")
        now = stamp_of(self.path)
        self._stamp = self._stamp or now
        self._stamp.check(now, self.path, f"`{self.node}`")
        try:
            with open_hdf5(self.path) as file:
                yield file
        except (PermissionError, MemoryError, ImportError):
            raise
        except Exception as error:  # h5py raises many kinds: KeyError, RuntimeError, TypeError ...
            if str(error).startswith(self.path):
                raise
            raise ValueError(f"{self.path} is damaged or truncated: {error}.") from error

    @property
    def row_names(self) -> np.ndarray | None:
        """Names of the observations, ``obs_names``, of shape (n,)."""
        return self._names("obs", 0)

    @property
    def feature_names(self) -> np.ndarray | None:
        """Names of the variables, ``var_names``, of shape (d,)."""
        return self._names("raw/var" if self.node.startswith("raw/") else "var", 1)

    def _names(self, frame: str, axis: int) -> np.ndarray | None:
        with self._opened() as file:
            group = find(file, frame, self.follow_links)
            if not isinstance(group, _h5py().Group):
                return None
            index = group.attrs.get("_index", "_index")
            column = find(file, f"{frame}/{index}", self.follow_links)
            if not isinstance(column, _h5py().Dataset):
                return None
            if column.shape != (self.shape[axis],):
                raise ValueError(
                    f"{self.path} is damaged: `{frame}` has names of shape {column.shape}, but "
                    f"`{self.node}` has shape {self.shape}."
                )
            if column.dtype.kind == "O":
                return self._texts(column)
            text = column.dtype.kind == "S"
            self._check_dataset(column, 1, ((0, column.shape[0]),))
            return np.asarray((column.asstr() if text else column)[...], dtype=object)

    def _texts(self, column: Any) -> np.ndarray:
        """Read texts of any length, a few at a time: in the file many names can share one text."""
        self._check_dataset(column, 1, ((0, column.shape[0]),))
        size, total = os.path.getsize(self.path), 0
        found = np.empty(column.shape, dtype=object)
        step = max(64, TEXT_BYTES // size)
        for start in range(0, column.shape[0], step):
            found[start : start + step] = column.asstr()[start : start + step]
            total += sum(map(len, found[start : start + step]))
            if total > max(TEXT_BYTES, size):
                raise ValueError(
                    f"{self.path} is damaged: `{column.name}` holds more text than the file has "
                    f"bytes, {size}."
                )
        return found

    def _check_dataset(self, dataset: Any, ndim: int, region: tuple[tuple[int, int], ...]) -> None:
        """Refuse a dataset, and chunks in a region of it, that are damaged or implausible."""
        if ndim != dataset.ndim:
            raise ValueError(
                f"{self.path} is damaged: `{dataset.name}` has {dataset.ndim} dimensions instead "
                f"of {ndim}."
            )
        label = f"{self.path}::{dataset.name}"
        if check_inside(label, dataset, self.follow_links):
            _check_room(self.path, dataset)
            check_chunks(label, dataset, region, self._seen)


class H5adSparse(_InFile, CompressedFile):
    """A CSR or CSC matrix of an ``.h5ad`` file: rows or columns are read, never densified."""

    def __init__(self, path: str, node: str, follow_links: bool = False) -> None:
        self._begin_file(path, node, follow_links)
        with self._opened() as file:
            group = find(file, node, follow_links)
            kind = str(group.attrs.get("encoding-type", group.attrs.get("h5sparse_format", "")))
            shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
            if shape is None or len(shape) != 2:
                raise ValueError(f"{path} is damaged: `{node}` does not say its shape.")
            parts = {name: self._part(file, name) for name in ("data", "indices", "indptr")}
            for part in parts.values():
                self._check_dataset(part, 1, ((0, 0),))
            self._check_dataset(parts["indptr"], 1, ((0, parts["indptr"].shape[0]),))
            entries = min(parts["data"].shape[0], parts["indices"].shape[0])
            self._begin(
                *(kind.removesuffix("_matrix"), shape, parts["data"].dtype),
                *(parts["indptr"][...], entries),
            )

    def _part(self, file: Any, name: str) -> Any:
        part = find(file, f"{self.node}/{name}", self.follow_links)
        if not isinstance(part, _h5py().Dataset):
            raise ValueError(f"{self.path} is damaged: `{self.node}` has no dataset {name!r}.")
        return part

    def _stored(self, name: str, start: int, stop: int) -> np.ndarray:
        with self._opened() as file:
            part = self._part(file, name)
            self._check_dataset(part, 1, ((start, stop),))
            stored: np.ndarray = part[start:stop]
            return stored


class H5adDense(_InFile, BlockSource):
    """A dense matrix of an ``.h5ad`` file, read in whole strips of chunks."""

    library = "numpy"

    def __init__(self, path: str, node: str, follow_links: bool = False) -> None:
        self._begin_file(path, node, follow_links)
        with self._opened() as file:
            dataset = find(file, node, follow_links)
            self._check_dataset(dataset, 2, ((0, 0), (0, 0)))
            self.shape = (int(dataset.shape[0]), int(dataset.shape[1]))
            self.dtype, chunks = dataset.dtype, dataset.chunks or (1, self.shape[1])
        work_dtype(self.dtype)
        # Strips of whole chunks along the axis on which they take fewer bytes.
        strips = [chunks[axis] * self.shape[1 - axis] for axis in (0, 1)]
        self.axis = 0 if strips[0] <= strips[1] else 1
        strip = strips[self.axis] * self.dtype.itemsize
        length = chunks[self.axis] * max(1, base.READ_BYTES // max(strip, 1))
        edges = range(0, self.shape[self.axis], length)
        self.blocks = tuple((a, min(a + length, self.shape[self.axis])) for a in edges)
        self.blocks = self.blocks or cut_evenly(0, 1)

    def read(self, i: int) -> Block:
        """The block, in a fresh array."""
        along, across = self.blocks[i], (0, self.shape[1 - self.axis])
        place = slice(*along)
        with self._opened() as file:
            dataset = find(file, self.node, self.follow_links)
            self._check_dataset(dataset, 2, (along, across) if self.axis == 0 else (across, along))
            block = dataset[place] if self.axis == 0 else dataset[:, place]
        return base.read_only(block)

    def __repr__(self) -> str:
        n, d = self.shape
        return f"H5adDense({self.path!r}, {n} x {d}, {dtype_name(self.dtype)})"


def _check_room(path: str, dataset: Any) -> None:
    """Refuse a header that declares more than the file can hold."""
    packed = dataset.compression is not None or dataset.id.get_create_plist().get_nfilters()
    most = dataset.id.get_storage_size() * (FILTER_RATIO if packed else 1)
    most = min(most, os.path.getsize(path) * (FILTER_RATIO if packed else 1))
    if dataset.size * dataset.dtype.itemsize > most:
        raise ValueError(
            f"{path} is damaged: `{dataset.name}` declares {dataset.shape} of {dataset.dtype}, "
            f"but {dataset.id.get_storage_size()} bytes are stored."
        )
    if dataset.chunks is not None:
        stored = int(dataset.id.get_num_chunks())
        label = f"{path}::{dataset.name}"
        count_missing(label, dataset.shape, dataset.chunks, dataset.dtype.itemsize, stored)


def _check_heaps(path: str) -> None:
    """Check the heaps of strings at both ends of the file, on which HDF5 could loop for ever.

    A heap is ``GCOL``, a version, its size, and then entries: a number, a size and the text,
    padded to a multiple of 8 bytes; the entry numbered 0 is the free space at the end.
    """
    size = os.path.getsize(path)
    for first in sorted({0, max(0, size - HEAP_BYTES) // 8 * 8}):
        with open_regular(path) as file:
            file.seek(first)
            held = file.read(HEAP_BYTES)
        for found in re.finditer(rb"GCOL\x01\0\0\0", held):
            place, end = found.start() + 16, found.start()
            end += int.from_bytes(held[place - 8 : place], "little")
            while end <= len(held) and place + 16 <= end:
                number = int.from_bytes(held[place : place + 2], "little")
                length = int.from_bytes(held[place + 8 : place + 16], "little")
                place += 16 + -(-length // 8) * 8 if number else length
                if place > end or (number == 0 and place < end):
                    raise ValueError(
                        f"{path} is damaged: the texts of the heap at byte "
                        f"{first + found.start()} do not fill it."
                    )


def h5ad_source(
    x: str | os.PathLike[str], *, part: str | None = None, follow_links: bool = False
) -> DataSource:
    """Source of the matrix of an AnnData file, without loading it.

    Parameters
    ----------
    x : path
        ``"file.h5ad"`` for ``X``, or ``"file.h5ad::layers/counts"`` for another matrix.
    part : str, optional
        Name of another matrix than ``X``, if the path does not name it.
    follow_links : bool, default=False
        Allow data in other files: external links, external storage and virtual datasets.  Only
        for files you trust.

    Returns
    -------
    DataSource
        With ``row_names`` (``obs_names``) and ``feature_names`` (``var_names``).
    """
    path, inside = split_part(x)
    node = part or inside or "X"
    top = _InFile()
    top._begin_file(path, node, follow_links)
    if os.path.exists(path):
        check_regular(path)
        _check_heaps(path)
    with top._opened() as file:
        found = find(file, node, follow_links)
        if found is None:
            there = ", ".join(_matrices(file, follow_links))
            raise ValueError(f"{path} has no `{node}`; it has {there}.")
        sparse = isinstance(found, _h5py().Group)
        if not sparse and not isinstance(found, _h5py().Dataset):
            raise ValueError(f"{path} is damaged: `{node}` is not a matrix.")
    return (H5adSparse if sparse else H5adDense)(path, node, follow_links)


def _matrices(file: Any, follow_links: bool) -> list[str]:
    """Names of matrices that can follow the two colons."""
    names = [name for name in ("X", "raw/X") if find(file, name, follow_links) is not None]
    for folder in ("layers", "obsm"):
        group = find(file, folder, follow_links)
        names += [f"{folder}/{name}" for name in (() if group is None else group)]
    return names


def is_h5ad(x: Any) -> bool:
    """Whether ``x`` names an AnnData file, with or without a matrix inside it."""
    if not isinstance(x, (str, os.PathLike)):
        return False
    return split_part(x)[0].lower().endswith(".h5ad")


def is_anndata(x: Any) -> bool:
    """Whether ``x`` is an AnnData object."""
    return type(x).__module__.split(".")[0] == "anndata" and hasattr(x, "obs_names")


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("Reading .h5ad needs h5py: pip install 'primedpca[disk]'.") from error
    return h5py
