"""Dense arrays in memory: NumPy, PyTorch, CuPy."""

from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, is_torch_array, work_dtype
from primedpca.protocols import Array, Block
from primedpca.sources import base
from primedpca.sources.base import BLOCK_BYTES, MemorySource, cut_evenly, tall_first

DEVICE_BLOCK_BYTES = 2**30  # an accelerator is fast at one large product, slow at many small ones


def cut_in_memory(
    length: int, across: int, dtype: Any, device: Any, on_device: int = DEVICE_BLOCK_BYTES
) -> tuple[tuple[int, int], ...]:
    """Cut ``length`` rows (columns) of ``across`` entries into blocks that suit the device.

    For processors their number is even from half a block on, so that two of them end together.
    """
    host, each = device in (None, "cpu"), 4 if work_dtype(dtype) == "float32" else 8
    if not host and dtype_name(dtype) in ("uint8", "int8"):
        each = 1  # multiplied as they are stored
    step = max(16, (BLOCK_BYTES if host else on_device) // (each * max(across, 1)))
    if host and 2 * length > step:
        step = max(8, -(-length // (2 * -(-length // (2 * step)))))
    return cut_evenly(length, step)


class DenseSource(MemorySource):
    """A two-dimensional array of any layout and real dtype; never copied, never written to.

    Attributes
    ----------
    array : array of shape (n, d)
        The array itself; of NumPy a view that cannot be written to.
    """

    def __init__(self, x: Array) -> None:
        self.shape, self.dtype = base.matrix_shape(x), x.dtype
        if isinstance(x, np.ndarray):
            self.library, self.array = "numpy", np.asarray(x).view()
            self.array.flags.writeable = False
        else:
            self.array: Array = x.detach() if is_torch_array(x) else x
            self.library, self.device = base.library_of(x), str(x.device)
        self.axis = tall_first(self.shape)
        length, across = self.shape[self.axis], self.shape[1 - self.axis]
        self.blocks = cut_in_memory(length, across, x.dtype, self.device)

    def read(self, i: int) -> Block:
        """A view of the block."""
        start, stop = self.blocks[i]
        return self.array[start:stop] if self.axis == 0 else self.array[:, start:stop]

    def rows(self, index: np.ndarray) -> Block:
        """Rows by number, gathered."""
        return base.take_rows(self.array, index)

    def __repr__(self) -> str:
        n, d = self.shape
        return f"DenseSource({self.library}, {n} x {d}, {dtype_name(self.dtype)})"
