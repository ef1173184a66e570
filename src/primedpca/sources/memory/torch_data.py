"""PyTorch datasets and data loaders: rows, or pairs of a row and its label."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, work_dtype
from primedpca._core.threads import renewed_after_fork
from primedpca.protocols import Block, DataSource
from primedpca.sources.base import MemorySource, cut_evenly, read_only
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.iterables import IteratedBlocks

__all__ = ["DatasetRows", "is_torch_data", "torch_source"]

BLOCK_BYTES = 2**22


class DatasetRows(MemorySource):
    """A dataset with random access to its rows.

    A row of any shape is flattened; of a pair (row, label) the label is ignored.  One thread at a
    time asks for one row at a time, as a worker of a data loader would.

    Parameters
    ----------
    dataset : torch.utils.data.Dataset
        With ``__len__`` and ``__getitem__``; it must give the same row for the same number.
    """

    library = "numpy"

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._renew()
        renewed_after_fork(self)
        n = len(dataset)
        if n == 0:
            raise ValueError("`X` is empty: the dataset has no rows.")
        first, again = self._row(0), self._row(0)
        if not np.array_equal(first, again, equal_nan=first.dtype.kind == "f"):
            raise ValueError(
                "`X` is a dataset whose row 0 differs each time it is read; remove random "
                "transforms."
            )
        work_dtype(first.dtype)
        self.shape, self.dtype = (n, first.size), first.dtype
        self.blocks = cut_evenly(n, max(1, BLOCK_BYTES // max(first.nbytes, 1)))

    def _renew(self) -> None:
        """Make a lock that no thread of the parent process holds."""
        self._lock = threading.Lock()

    def _row(self, number: int) -> np.ndarray:
        return _numbers(_without_label(self.dataset[number]), f"row {number}").reshape(-1)

    def read(self, i: int) -> Block:
        """Rows of the block, in a fresh array."""
        return self.rows(np.arange(*self.blocks[i]))

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number."""
        out = np.empty((index.size, self.shape[1]), self.dtype)
        with self._lock:
            for place, number in enumerate(index.tolist()):
                row = self._row(number)
                if row.size != self.shape[1] or row.dtype != self.dtype:
                    raise ValueError(
                        f"`X` is a dataset whose row {number} has {row.size} entries of "
                        f"{dtype_name(row.dtype)}, but row 0 has {self.shape[1]} of "
                        f"{dtype_name(self.dtype)}; all must be alike."
                    )
                out[place] = row
        return read_only(out)

    def __repr__(self) -> str:
        n, d = self.shape
        return f"DatasetRows({type(self.dataset).__name__}, {n} x {d}, {dtype_name(self.dtype)})"


def is_torch_data(x: Any) -> bool:
    """Whether ``x`` is a PyTorch dataset or data loader (PyTorch is not imported to find out)."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "utils"):
        return False
    return isinstance(x, (torch.utils.data.Dataset, torch.utils.data.DataLoader))


def torch_source(x: Any) -> DataSource:
    """A dataset with random access where it has that; iterable ones and loaders in order only."""
    from torch.utils import data

    if isinstance(x, data.DataLoader):
        if isinstance(x.sampler, data.RandomSampler):
            raise ValueError(
                "`X` is a data loader that shuffles; PCA reads the rows several times and needs "
                "them in one order: pass its dataset, or a loader with shuffle=False."
            )
        if x.drop_last:
            raise ValueError(
                "`X` is a data loader that drops its last rows; make it with drop_last=False."
            )
        return IteratedBlocks(lambda: _batches(x), "a DataLoader")
    if isinstance(x, data.IterableDataset):
        return IteratedBlocks(lambda: _single_rows(x), type(x).__name__)
    if type(x) is data.TensorDataset and x.tensors[0].ndim == 2:
        return DenseSource(x.tensors[0])
    return DatasetRows(x)


def _batches(loader: Any) -> Iterator[np.ndarray]:
    """Batches of a data loader, each row flattened."""
    for number, batch in enumerate(loader):
        values = _numbers(_without_label(batch), f"batch {number}")
        if loader.batch_size is None and loader.batch_sampler is None:
            values = values[None] if values.ndim == 1 else values
        yield values.reshape(values.shape[0], -1)


def _single_rows(dataset: Any) -> Iterator[np.ndarray]:
    for number, item in enumerate(dataset):
        yield _numbers(_without_label(item), f"row {number}").reshape(1, -1)


def _without_label(item: Any) -> Any:
    return item[0] if isinstance(item, (tuple, list)) and len(item) else item


def _numbers(values: Any, what: str) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    if not hasattr(values, "__array__"):
        raise TypeError(
            f"`X` gave a {type(values).__name__} as {what}; its items must be rows or pairs of a "
            "row and a label, as tensors or arrays."
        )
    return np.asarray(values)
