"""Dense arrays in memory: NumPy, PyTorch, CuPy."""

from functools import cache
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, is_torch_array, work_dtype
from primedpca.protocols import Array, Block
from primedpca.sources import base
from primedpca.sources.base import BLOCK_BYTES, MemorySource, cut_evenly, tall_first

DEVICE_BLOCK_BYTES = 2**30  # an accelerator is fast at one large product, slow at many small ones
#: The same of data that are on a GPU already, and the part of its memory that a block may be: the
#: host needs some 0.3 ms to start the work on a block.
RESIDENT_BYTES, RESIDENT_SHARE = 2**32, 1 / 32


@cache
def resident_bytes(device: str) -> int:
    """Return the size of a block of data on a device, the same on every GPU of a model."""
    if not device.startswith("cuda"):
        return DEVICE_BLOCK_BYTES
    import torch

    memory = torch.cuda.get_device_properties(device).total_memory
    return max(DEVICE_BLOCK_BYTES, min(RESIDENT_BYTES, int(RESIDENT_SHARE * memory)))


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
        most = resident_bytes(self.device) if self.library == "torch" else DEVICE_BLOCK_BYTES
        self.blocks = cut_in_memory(length, across, x.dtype, self.device, most)

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
