"""Datasets of HDF5 files, read in strips along their chunks."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.files.common import (
    FileSource,
    check_matrix,
    check_plausible,
    need,
    reading,
    stamp_of,
)
from primedpca.sources.files.hdf5_checks import check_chunks, check_inside, find, open_hdf5
from primedpca.sources.files.strips import count_missing, outside, strips

__all__ = ["HDF5Source", "hdf5_source"]


class HDF5Source(FileSource):
    """A dataset of two dimensions.

    Checksums (``fletcher32``) are compared by HDF5 itself at every reading.

    Parameters
    ----------
    dataset : h5py.Dataset
    strict : bool, default=False
        Refuse a dataset of which chunks were never written; they read as its fill value.
    follow_links : bool, default=False
        Allow a dataset whose values lie in other files: external storage or a virtual dataset.

    Attributes
    ----------
    missing_chunks : int
        How many chunks were never written.
    """

    read_rate = 5e8  # one thread at a time

    def __init__(self, dataset: Any, *, strict: bool = False, follow_links: bool = False) -> None:
        self._dataset, self._seen = dataset, set[tuple[Any, ...]]()
        self.path = str(dataset.file.filename)
        label = f"{self.path}::{dataset.name}"
        with reading(self.path, f"dataset {dataset.name}"):
            if dataset.shape is None:
                raise ValueError(f"{label} is empty: it has no shape.")
            self.shape = check_matrix(label, dataset.shape, dataset.dtype)
            self.dtype = np.dtype(dataset.dtype)
            inside = check_inside(label, dataset, follow_links)
            chunks = dataset.chunks or (1, self.shape[1])
            stored = int(dataset.id.get_storage_size())
        # Whoever has it open for writing may write to it.
        kept = dataset.file.mode == "r" and os.path.isfile(self.path)
        self._stamp = stamp_of(self.path) if kept else None
        self.missing_chunks = 0
        if inside:
            check_plausible(label, self.shape, self.dtype.itemsize, stored)
            self.missing_chunks = self._count_missing(dataset, stored, label)
        if strict and self.missing_chunks:
            raise ValueError(
                f"{label} lacks {self.missing_chunks} of its chunks, which would be read as the "
                f"fill value {dataset.fillvalue}; `strict`=False allows that."
            )
        self.axis, self.blocks = strips(self.shape, chunks, self.dtype.itemsize)
        self.cache_bytes = outside(self.shape, chunks, self.axis) * self.dtype.itemsize

    def _count_missing(self, dataset: Any, stored: int, label: str) -> int:
        n, d = self.shape
        if dataset.chunks is not None:
            with reading(self.path, "the index of its chunks"):
                present = int(dataset.id.get_num_chunks())
            return count_missing(label, self.shape, dataset.chunks, self.dtype.itemsize, present)
        if stored == 0:
            return 1
        if stored < n * d * self.dtype.itemsize:
            raise ValueError(
                f"{label} has room for {stored} bytes, but {n} x {d} numbers of {self.dtype} "
                "need more: its header is wrong."
            )
        return 0

    def read(self, i: int) -> Block:
        """The strip, in its own dtype."""
        where = self._place(i)
        if not self._dataset:
            raise ValueError(f"{self.path} was closed; keep it open while it is read ({where}).")
        self._check_same(where)
        start, stop = self.blocks[i]
        place = (slice(start, stop),) if self.axis == 0 else (slice(None), slice(start, stop))
        across = (0, self.shape[1 - self.axis])
        region = ((start, stop), across) if self.axis == 0 else (across, (start, stop))
        with reading(self.path, where):
            check_chunks(f"{self.path} ({where})", self._dataset, region, self._seen)
            block = np.asarray(self._dataset[place])
        block.flags.writeable = False
        return block

    def __getstate__(self) -> dict[str, Any]:
        """By path and name: another process opens the file for itself."""
        name = self._dataset.name if self._dataset else None
        return self.__dict__ | {"_dataset": None, "_name": name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        name = state.pop("_name")
        self.__dict__.update(state)
        if name is not None:
            with reading(self.path, "opening"):
                self._dataset = open_hdf5(self.path)[name]


def hdf5_source(
    given: Any, part: str | None = None, *, strict: bool = False, follow_links: bool = False
) -> HDF5Source:
    """A dataset, by ``path`` and name or as an h5py object.

    Parameters
    ----------
    given : path or h5py.Dataset
    part : str, optional
        The name of the dataset, such as ``"group/data"``; by default the only one of two
        dimensions.
    strict : bool, default=False
        Refuse a dataset with chunks that were never written.
    follow_links : bool, default=False
        Read other files that the file names: external links, external storage and virtual
        datasets.  Only for files you trust.
    """
    if not isinstance(given, (str, os.PathLike)):
        if not given:
            raise ValueError("`X` is a dataset of an HDF5 file that was closed; open it again.")
        return HDF5Source(given, strict=strict, follow_links=follow_links)
    path = os.fspath(given)
    stamp_of(path)
    with reading(path, "opening"):
        file = open_hdf5(path)
    try:
        with reading(path, "looking for the dataset"):
            dataset = _dataset(file, path, part, follow_links)
        return HDF5Source(dataset, strict=strict, follow_links=follow_links)
    except BaseException:
        file.close()
        raise


def _dataset(file: Any, path: str, part: str | None, follow_links: bool) -> Any:
    h5py = need("h5py", "HDF5")
    if part is not None:
        dataset = find(file, part, follow_links)
        if isinstance(dataset, h5py.Dataset):
            return dataset
    found: list[Any] = []

    def look(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset):
            found.append(thing)

    file.visititems(look)  # which follows no links but hard ones
    if part is not None:
        names = ", ".join(thing.name.lstrip("/") for thing in found[:9]) or "none"
        raise ValueError(f"{path} has no dataset {part!r}; there: {names}.")
    if not found:
        raise ValueError(f"{path} holds no dataset.")
    flat = [thing for thing in found if len(thing.shape or ()) == 2]
    if len(flat) == 1:
        return flat[0]
    names = ", ".join(thing.name for thing in flat[:9])
    raise ValueError(
        f"{path} must have one dataset of two dimensions, it has {len(flat)} ({names}); name "
        f"one as '{path}::dataset'."
    )
