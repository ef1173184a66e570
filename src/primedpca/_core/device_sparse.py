"""Sparse blocks in the memory of a GPU: products with a few dense columns, in a fixed order.

A block keeps its entries in the order in which they are stored, and the positions that sort them
the other way, so that products with the block and with its transpose both run along rows.  A row
with many entries is cut into segments, whose sums are added afterwards.  Every sum has one order,
so results are the same to the bit in every run, unlike those of cuSPARSE.
"""

from __future__ import annotations

import warnings
from copy import copy
from functools import cache
from typing import Any

import numpy as np

from primedpca._core.arrays import Array

__all__ = ["DeviceSparse"]

#: Most entries that are added one after the other.
SEGMENT = 256
#: Columns of a product, and entries of a row, that a program takes at a time.
COLUMNS, ENTRIES = 64, 32


class DeviceSparse:
    """A compressed sparse block as tensors of PyTorch, with the attributes of SciPy's.

    Parameters
    ----------
    host : sparse array
        The block in host memory, CSR or CSC.  It is kept: kernels that are needed once or rarely
        run there.
    data : tensor of shape (nnz,)
        Stored entries, on the device and in the type to compute in.
    indices, indptr : tensor
        Those of ``host``, on the device.
    """

    #: Recognised by :func:`primedpca._core.arrays.is_sparse`.
    is_sparse_block = True

    def __init__(self, host: Any, data: Array, indices: Array, indptr: Array) -> None:
        self.host, self.shape = host, (int(host.shape[0]), int(host.shape[1]))
        self.format = host.format
        major = self.shape[0] if host.format == "csr" else self.shape[1]
        self._along = _Order(indptr, indices, None, major)
        self._across: dict[str, _Order] = {}  # filled when first used, and shared by copies
        self._data, self._turned = data, None

    @classmethod
    def sent(cls, host: Any, device: Any, dtype: str) -> DeviceSparse:
        """Copy a SciPy block to a device, its entries in ``dtype``."""
        import torch

        def copied(values: np.ndarray, kind: Any) -> Array:
            held = torch.empty(
                values.shape, dtype=kind, pin_memory=torch.device(device).type != "cpu"
            )
            held.numpy()[...] = values
            return held.to(device, non_blocking=True)

        narrow = max(host.shape) < 2**31 and host.nnz < 2**31
        whole = torch.int32 if narrow else torch.int64
        parts = (host.data, getattr(torch, dtype)), (host.indices, whole), (host.indptr, whole)
        return cls(host, *(copied(*part) for part in parts))

    @property
    def data(self) -> Array:
        """Stored entries."""
        return self._data

    @data.setter
    def data(self, values: Array) -> None:
        self._data, self._turned = values, None

    @property
    def dtype(self) -> Any:
        """Type of the entries."""
        return self._data.dtype

    @property
    def device(self) -> Any:
        """Device of the entries."""
        return self._data.device

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self._data.shape[0])

    @property
    def indices(self) -> Array:
        """Column of each entry of compressed rows, row of each entry of compressed columns."""
        return self._along.indices

    @property
    def indptr(self) -> Array:
        """First entry of each compressed row or column, and the number of entries."""
        return self._along.indptr

    def spread(self, axis: int) -> Array:
        """Return the row (axis 0) or column (axis 1) of each stored entry, counted from 0."""
        if (self.format == "csr") == (axis == 1):
            return self._along.indices
        return self._along.owners()

    @property
    def T(self) -> DeviceSparse:  # noqa: N802
        """The transpose, which shares all arrays."""
        other = copy(self)
        other.host, other.shape = self.host.T, (self.shape[1], self.shape[0])
        other.format = "csc" if self.format == "csr" else "csr"
        return other

    def tocsc(self) -> DeviceSparse:
        """Return the block itself, whose entries are sorted both ways."""
        return self

    def toarray(self) -> Array:
        """Return the block as a dense tensor."""
        import torch

        dense = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        dense[self.spread(0).long(), self.spread(1).long()] = self._data
        return dense

    def __matmul__(self, right: Array) -> Array:
        """Return the product with a dense vector or matrix."""
        if right.ndim == 1:
            return (self @ right[:, None])[:, 0]
        if self.format == "csr":
            return self._along.times(self._data, self.shape, right)
        order = self._across.get("order")
        if order is None:
            order = self._across["order"] = self._along.sorted_across(self.shape[0])
        if self._turned is None:
            self._turned = self._data[order.places]
        return order.times(self._turned, self.shape, right)


class _Order:
    """Entries sorted by one index: ``indptr`` and the other ``indices``, and segments of rows.

    Parameters
    ----------
    indptr, indices : tensor
        Of compressed rows.
    places : tensor or None
        Where the entries are in the order in which they are stored; None for this order.
    length : int
        Number of rows.
    """

    def __init__(self, indptr: Array, indices: Array, places: Array | None, length: int) -> None:
        self.indptr, self.indices, self.places, self.length = indptr, indices, places, length
        self._cut: tuple[Array, Array, Array | None] | None = None

    def owners(self) -> Array:
        """Return the row of each entry."""
        import torch

        rows = torch.arange(self.length, device=self.indptr.device, dtype=self.indices.dtype)
        total = int(self.indices.shape[0])
        return torch.repeat_interleave(rows, self.indptr.diff(), output_size=total)

    def sorted_across(self, length: int) -> _Order:
        """Return the same entries sorted by the other index."""
        import torch

        # Stable, so that the order of the entries of a row is fixed.
        across, places = torch.sort(self.indices, stable=True)
        wanted = torch.arange(length + 1, device=across.device, dtype=across.dtype)
        indptr = torch.searchsorted(across, wanted, out_int32=across.dtype == torch.int32)
        return _Order(indptr, self.owners()[places], places, length)

    def times(self, data: Array, shape: tuple[int, int], right: Array) -> Array:
        """Return the product of these rows with a dense matrix."""
        import torch

        if right.shape[1] == 0:
            return torch.empty((self.length, 0), dtype=right.dtype, device=right.device)
        if not uses_kernel(data):
            return self._plain(data, shape, right)
        if self._cut is None:
            self._cut = self._segments()
        edges, first, numbers = self._cut
        right = right if right.stride(1) == 1 else right.contiguous()
        parts = _launched(edges, self.indices, data, right)
        if numbers is None:
            return parts
        return _launched(first, numbers, torch.ones_like(parts[:, 0]), parts)

    def _segments(self) -> tuple[Array, Array, Array | None]:
        """Return the edges of the segments, the first segment of each row, and their numbers.

        The numbers are None where every row is one segment, so that nothing is left to add.
        """
        import torch

        kind = self.indptr.dtype
        counts = (self.indptr.diff() + SEGMENT - 1) // SEGMENT
        first = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(kind)
        total = int(first[-1])
        rows = torch.repeat_interleave(counts, output_size=total)
        number = torch.arange(total, device=self.indptr.device, dtype=kind)
        edges = self.indptr[rows] + (number - first[rows]) * SEGMENT
        alone = bool((counts == 1).all())
        return torch.cat([edges, self.indptr[-1:]]), first, None if alone else number

    def _plain(self, data: Array, shape: tuple[int, int], right: Array) -> Array:
        """Return the product as PyTorch makes it, on any device."""
        import torch

        with warnings.catch_warnings():
            # PyTorch calls compressed tensors a beta feature, and their checks costly.
            warnings.simplefilter("ignore", UserWarning)
            held = torch.sparse_csr_tensor(
                self.indptr, self.indices, data, shape, check_invariants=False
            )
            return held @ right


def uses_kernel(data: Array) -> bool:
    """Whether the Triton kernel multiplies such entries."""
    return bool(data.is_cuda) and _kernel() is not None


def _launched(indptr: Array, indices: Array, data: Array, right: Array) -> Array:
    """Return the products of all compressed rows with a dense matrix, by the Triton kernel."""
    import torch

    rows, p = indptr.shape[0] - 1, right.shape[1]
    out = torch.empty((rows, p), dtype=right.dtype, device=right.device)
    width = min(COLUMNS, max(16, 1 << (p - 1).bit_length()))
    if rows:
        _kernel()[(rows, -(-p // width))](
            *(indptr, indices, data, right, out, p, right.stride(0), width, ENTRIES), num_warps=4
        )
    return out


@cache
def _kernel() -> Any:
    """Return the Triton kernel, or None if Triton is not installed."""
    try:
        from primedpca._core.triton_sparse import rows_times
    except ImportError:
        return None
    return rows_times
