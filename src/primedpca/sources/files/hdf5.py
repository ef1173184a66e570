"""Datasets of HDF5 files, read in strips along their chunks."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.base import read_only
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

    HDF5 itself compares checksums (``fletcher32``) in every read.

    Parameters
    ----------
    dataset : h5py.Dataset
    strict : bool, default=False
        Refuse a dataset with chunks that were never written, which read as its fill value.
    follow_links : bool, default=False
        Allow a dataset with values in other files: external storage or a virtual dataset.

    Attributes
    ----------
    missing_chunks : int
        Number of chunks that were never written.
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
        # A file that the user has open for writing may be written to.
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
                f"{label} stores {stored} bytes, but {n} x {d} numbers of {self.dtype} need more: "
                "its header is wrong."
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
        return read_only(block)

    def __getstate__(self) -> dict[str, Any]:
        """State by path and name: another process opens the file for itself."""
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
    """Source of a dataset, by ``path`` and name or as an h5py object.

    Parameters
    ----------
    given : path or h5py.Dataset
    part : str, optional
        Name of the dataset, such as ``"group/data"``; by default the only one with two
        dimensions.
    strict : bool, default=False
        Refuse a dataset with chunks that were never written.
    follow_links : bool, default=False
        Allow data in other files: external links, external storage and virtual datasets.  Only
        for files you trust.
    """
    if not isinstance(given, (str, os.PathLike)):
        if not given:
            raise ValueError("`X` is a dataset of a closed HDF5 file; open it again.")
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

    file.visititems(look)  # it follows hard links only
    if part is not None:
        names = ", ".join(thing.name.lstrip("/") for thing in found[:9]) or "none"
        raise ValueError(f"{path} has no dataset {part!r}; it has {names}.")
    if not found:
        raise ValueError(f"{path} has no dataset.")
    flat = [thing for thing in found if len(thing.shape or ()) == 2]
    if len(flat) == 1:
        return flat[0]
    names = ", ".join(thing.name for thing in flat[:9])
    raise ValueError(
        f"{path} has {len(flat)} datasets of two dimensions ({names}), not one; name the dataset "
        f"as '{path}::dataset'."
    )
