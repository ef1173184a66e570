"""Dense arrays in memory: NumPy, PyTorch, CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, is_numpy_array, is_torch_array, namespace, work_dtype
from primedpca.protocols import Array, Block
from primedpca.sources.base import BLOCK_BYTES, MemorySource, cut_evenly, take_rows

__all__ = ["DenseSource", "block_length"]

DEVICE_BLOCK_BYTES = 2**30  # an accelerator wants one large product, not many small ones


def block_length(dtype: Any, across: int, device: Any) -> int:
    """How many rows (columns) of ``across`` entries make a block that suits the device."""
    itemsize = 4 if work_dtype(dtype) == "float32" else 8
    budget = BLOCK_BYTES if device in (None, "cpu") else DEVICE_BLOCK_BYTES
    return max(16, budget // (itemsize * max(across, 1)))


class DenseSource(MemorySource):
    """A two-dimensional array of any layout and real dtype; never copied, never written to.

    Tall arrays are cut into rows and wide ones into columns: the products of a pass then add
    up matrices of the smaller side.
    """

    def __init__(self, x: Array) -> None:
        self.shape = (int(x.shape[0]), int(x.shape[1]))
        self.dtype = x.dtype
        self._x = x.detach() if is_torch_array(x) else x
        if is_numpy_array(x):
            self._x = np.asarray(x).view()
            self._x.flags.writeable = False
            self.device = None
        else:
            self.device = str(x.device)
        self.axis = 0 if self.shape[0] >= self.shape[1] else 1
        length, across = self.shape[self.axis], self.shape[1 - self.axis]
        self.blocks = cut_evenly(length, block_length(x.dtype, across, self.device))

    @property
    def array(self) -> Array:
        """The array itself."""
        return self._x

    def read(self, i: int) -> Block:
        """A view of the block."""
        start, stop = self.blocks[i]
        return self._x[start:stop] if self.axis == 0 else self._x[:, start:stop]

    def rows(self, index: np.ndarray) -> Block:
        """The rows themselves, gathered."""
        return take_rows(self._x, index)

    def __repr__(self) -> str:
        library = namespace(self._x).__name__.rsplit(".", 1)[-1]
        return (
            f"DenseSource({library}, {self.shape[0]} x {self.shape[1]}, {dtype_name(self.dtype)})"
        )
