"""AnnData: ``.h5ad`` files whose matrix is read block by block, and objects in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from primedpca.protocols import Block, DataSource
from primedpca.sources import base
from primedpca.sources.files import chunked, common, hdf5
from primedpca.sources.files.compressed_rows import CompressedFile

HEAP_BYTES = 2**24
TEXT_BYTES = 2**28
FILTER_RATIO = 2**16  # bytes that one stored byte can plausibly become
_h5py = partial(common.need, "h5py", ".h5ad")


class _InFile:
    """A matrix inside an ``.h5ad`` file, and the names of its rows and columns."""

    shape: tuple[int, int]

    def __init__(self, path: str, node: str, follow_links: bool) -> None:
        self.path, self.node, self.follow_links = path, node, follow_links
        self._stamp, self._seen = common.stamp_of(path), set[tuple[Any, ...]]()
        with self._opened() as file:
            self._look(file)

    def _look(self, file: Any) -> None:
        """Read what is needed to cut the matrix into blocks."""

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the file for one read; errors of HDF5 then name the file."""
        self._stamp.check(self.path, f"`{self.node}`")
        with (
            common.reading(self.path, f"`{self.node}`", ValueError),
            hdf5.open_hdf5(self.path) as file,
        ):
            yield file

    @property
    def row_names(self) -> np.ndarray | None:
        """Names of the observations, ``obs_names``, of shape (n,)."""
        return self._names("obs", 0)

    @property
    def feature_names(self) -> np.ndarray | None:
        """Names of the variables, ``var_names``, of shape (d,)."""
        return self._names("raw/var" if self.node.startswith("raw/") else "var", 1)

    def _find(self, file: Any, name: str) -> Any:
        return hdf5.find(file, name, self.follow_links)

    def _names(self, frame: str, axis: int) -> np.ndarray | None:
        with self._opened() as file:
            group = self._find(file, frame)
            if not isinstance(group, _h5py().Group):
                return None
            column = self._find(file, f"{frame}/{group.attrs.get('_index', '_index')}")
            if not isinstance(column, _h5py().Dataset):
                return None
            if column.shape != (self.shape[axis],):
                raise ValueError(f"`{frame}` has {column.shape} names for {self.shape[axis]}")
            self._check_dataset(column, (0, column.shape[0]))
            if column.dtype.kind == "O":
                return self._texts(column)
            text = column.dtype.kind == "S"
            return np.asarray((column.asstr() if text else column)[...], dtype=object)

    def _texts(self, column: Any) -> np.ndarray:
        """Read texts of any length, a few at a time: in the file many names can share one text."""
        size, total = os.path.getsize(self.path), 0
        found = np.empty(column.shape, dtype=object)
        step = max(64, TEXT_BYTES // size)
        for start in range(0, column.shape[0], step):
            found[start : start + step] = column.asstr()[start : start + step]
            total += sum(map(len, found[start : start + step]))
            if total > max(TEXT_BYTES, size):
                raise ValueError(f"`{column.name}` holds more text than the file has bytes")
        return found

    def _check_dataset(self, dataset: Any, *region: tuple[int, int]) -> None:
        """Refuse a dataset, and chunks in a region of it, that are damaged or implausible."""
        if dataset.ndim != len(region):
            raise ValueError(f"`{dataset.name}` has {dataset.ndim} dimensions, not {len(region)}")
        label = f"{self.path}::{dataset.name}"
        if not hdf5.check_inside(label, dataset, self.follow_links):
            return
        stored, itemsize = dataset.id.get_storage_size(), dataset.dtype.itemsize
        ratio = FILTER_RATIO if dataset.id.get_create_plist().get_nfilters() else 1
        if dataset.size * itemsize > ratio * min(stored, os.path.getsize(self.path)):
            declared = f"`{dataset.name}` declares {dataset.shape} of {dataset.dtype}"
            raise ValueError(f"{declared}, but {stored} bytes are stored")
        if dataset.chunks is not None:
            present = int(dataset.id.get_num_chunks())
            chunked.count_missing(label, dataset.shape, dataset.chunks, itemsize, present)
            hdf5.check_chunks(label, dataset, region, self._seen)


class H5adSparse(_InFile, CompressedFile):
    """A CSR or CSC matrix of an ``.h5ad`` file: rows or columns are read, never densified."""

    def _look(self, file: Any) -> None:
        known = self._find(file, self.node).attrs
        kind = str(known.get("encoding-type", known.get("h5sparse_format", "")))
        shape = known.get("shape", known.get("h5sparse_shape"))
        if shape is None or len(shape) != 2:
            raise ValueError(f"`{self.node}` does not say its shape")
        data, indices, indptr = (self._part(file, name) for name in ("data", "indices", "indptr"))
        for part in (data, indices):
            self._check_dataset(part, (0, 0))
        self._check_dataset(indptr, (0, indptr.size))
        entries = min(data.shape[0], indices.shape[0])
        self._begin(kind.removesuffix("_matrix"), shape, data.dtype, indptr[...], entries)

    def _part(self, file: Any, name: str) -> Any:
        part = self._find(file, f"{self.node}/{name}")
        if not isinstance(part, _h5py().Dataset):
            raise ValueError(f"`{self.node}` has no dataset {name!r}")
        return part

    def _stored(self, name: str, start: int, stop: int) -> np.ndarray:
        with self._opened() as file:
            part = self._part(file, name)
            self._check_dataset(part, (start, stop))
            stored: np.ndarray = part[start:stop]
            return stored


class H5adDense(_InFile, common.FileSource):
    """A dense matrix of an ``.h5ad`` file, read in whole strips of chunks."""

    def _look(self, file: Any) -> None:
        dataset = self._find(file, self.node)
        self._check_dataset(dataset, (0, 0), (0, 0))
        self.shape = common.check_matrix(self.path, dataset.shape, dataset.dtype)
        self.dtype, chunks = dataset.dtype, dataset.chunks or (1, self.shape[1])
        # Strips of whole chunks along the axis on which they take fewer bytes.
        strips = [chunks[axis] * self.shape[1 - axis] for axis in (0, 1)]
        self.axis = 0 if strips[0] <= strips[1] else 1
        strip, end = strips[self.axis] * self.dtype.itemsize, self.shape[self.axis]
        length = chunks[self.axis] * max(1, base.READ_BYTES // strip)
        self.blocks = tuple((a, min(a + length, end)) for a in range(0, end, length))

    def read(self, i: int) -> Block:
        """The block, in a fresh array."""
        sides = chunked.region(self, i)
        with self._opened() as file:
            dataset = self._find(file, self.node)
            self._check_dataset(dataset, *sides)
            return base.read_only(dataset[tuple(slice(*side) for side in sides)])


def _check_heaps(path: str) -> None:
    """Check the heaps of strings at both ends of the file, on which HDF5 could loop for ever.

    A heap is ``GCOL``, a version, its size, and then entries: a number, a size and the text,
    padded to a multiple of 8 bytes; the entry numbered 0 is the free space at the end.
    """
    size = os.path.getsize(path)
    for first in sorted({0, max(0, size - HEAP_BYTES) // 8 * 8}):
        with common.open_regular(path) as file:
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
                    begin = first + found.start()
                    raise ValueError(f"{path} is damaged: texts do not fill their heap at {begin}.")


def h5ad_source(
    x: str | os.PathLike[str], part: str | None = None, *, follow_links: bool = False
) -> DataSource:
    """Source of the matrix of an AnnData file, without loading it.

    Parameters
    ----------
    x : path
    part : str, optional
        Name of another matrix than ``X``, such as ``"layers/counts"``.
    follow_links : bool, default=False
        Allow data in other files: external links, external storage and virtual datasets.  Only
        for files you trust.

    Returns
    -------
    DataSource
        With ``row_names`` (``obs_names``) and ``feature_names`` (``var_names``).
    """
    path, node = os.fspath(x), part or "X"
    common.check_regular(path)
    _check_heaps(path)
    top = _InFile(path, node, follow_links)
    with top._opened() as file:
        found = top._find(file, node)
        if found is None:
            names = [name for name in ("X", "raw/X") if top._find(file, name) is not None]
            for folder in ("layers", "obsm"):
                names += [f"{folder}/{name}" for name in top._find(file, folder) or ()]
            raise ValueError(f"{path} has no `{node}`; it has {', '.join(names)}.")
        sparse = isinstance(found, _h5py().Group)
        if not sparse and not isinstance(found, _h5py().Dataset):
            raise ValueError(f"`{node}` is not a matrix")
    return (H5adSparse if sparse else H5adDense)(path, node, follow_links)


def is_anndata(x: Any) -> bool:
    """Whether ``x`` is an AnnData object."""
    return type(x).__module__.split(".")[0] == "anndata" and hasattr(x, "obs_names")
