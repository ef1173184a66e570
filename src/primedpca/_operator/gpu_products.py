"""Products of large CUDA blocks with few columns, at the speed of memory (Triton).

``A V`` and ``A^T Y`` with a tall ``A`` and some tens of columns compute little and read ``A`` once
each, but cuBLAS takes up to three times as long as the reading does.  The kernels here split
float32 into TF32 parts, whose three products have the accuracy of float32.  Whole numbers of 8
bits are exact in bfloat16; the columns are split into three parts of it.

Gram matrices of such numbers are exact: products of 8 bits are added in 32 bits, and blocks in
float64.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from primedpca._core.arrays import Array, dtype_name

__all__ = ["adjoint", "counted_square", "counts", "forward", "serves", "serves_whole"]

#: Most columns of a product.
COLUMNS = 64
#: Fewest entries of a block: below, launching two kernels of Triton costs more than they save.
ENTRIES = 2**27
#: Rows and columns of a tile, warps and stages; for ``A^T Y`` also the parts that rows are cut in.
FORWARD: tuple[int, ...] = (64, 64, 4, 3)
ADJOINT: tuple[int, ...] = (64, 128, 4, 3)
#: The same for whole numbers of 8 bits, whose tiles are four times as small.
FORWARD_WHOLE: tuple[int, ...] = (64, 128, 4, 4)
ADJOINT_WHOLE: tuple[int, ...] = (64, 128, 4, 4)
PARTS = 32
#: Middle of the range of uint8: without it, entries fit into a signed byte.
MIDDLE = 128
#: Columns whose products of two signed bytes cannot overflow 32 bits.
SLAB = 2**16
#: Groups of rows in a Gram matrix, of which only the pairs above the diagonal are multiplied.
GROUPS = 4


def serves(block: Array, vectors: Array) -> bool:
    """Whether these kernels multiply such a block: float32 rows on CUDA, with Triton installed."""
    return dtype_name(block.dtype) == "float32" and _suits(block, vectors, COLUMNS)


def serves_whole(block: Array, vectors: Array) -> bool:
    """Whether these kernels multiply a block of whole numbers of 8 bits as it is stored."""
    if dtype_name(block.dtype) not in ("uint8", "int8"):
        return False
    return _suits(block, vectors, COLUMNS // 3) and _is_recent(block.device)


def _suits(block: Array, vectors: Array, most: int) -> bool:
    if not getattr(block, "is_cuda", False) or not 0 < vectors.shape[1] <= most:
        return False
    if dtype_name(vectors.dtype) != "float32" or block.numel() < ENTRIES:
        return False
    return block.stride(1) == 1 and _kernels() is not None


def forward(block: Array, vectors: Array) -> Array:
    """Return ``A V``, ``(rows, p)`` in float32."""
    import torch

    whole = not block.dtype.is_floating_point
    (n, d), v = block.shape, _padded(_in_parts(vectors) if whole else vectors)
    bm, bk, warps, stages = FORWARD_WHOLE if whole else FORWARD
    y = torch.empty((n, v.shape[1]), device=block.device)
    _kernels().forward[(-(-n // bm),)](
        *(block, v, y, n, d, block.stride(0), bm, bk, v.shape[1], whole),
        num_warps=warps,
        num_stages=stages,
    )
    return _joined(y, vectors.shape[1], whole)


def adjoint(block: Array, y: Array) -> Array:
    """Return ``A^T Y``, ``(d, p)`` in float64: the sums of parts of the rows are added in it."""
    import torch

    whole = not block.dtype.is_floating_point
    (n, d), columns = block.shape, _padded(_in_parts(y) if whole else y)
    bm, bk, warps, stages = ADJOINT_WHOLE if whole else ADJOINT
    z = torch.empty((PARTS, d, columns.shape[1]), device=block.device)
    each = bm * (n // (bm * PARTS) + 1)
    _kernels().adjoint[(-(-d // bk), PARTS)](
        *(block, columns, z, n, d, block.stride(0), each, bm, bk, columns.shape[1], whole),
        num_warps=warps,
        num_stages=stages,
    )
    return _joined(z.sum(dim=0, dtype=torch.float64), y.shape[1], whole)


def _in_parts(columns: Array) -> Array:
    """Return float32 columns as three times as many in bfloat16, which add up to them."""
    import torch

    parts = []
    for _ in range(3):
        parts.append(columns.to(torch.bfloat16))
        columns = columns - parts[-1].to(torch.float32)
    return torch.cat(parts, dim=1)


def _joined(product: Array, p: int, whole: bool) -> Array:
    """Return the columns of a product without those that pad it; parts are added, small first."""
    if not whole:
        return product[:, :p]
    return product[:, 2 * p : 3 * p] + product[:, p : 2 * p] + product[:, :p]


def _padded(columns: Array) -> Array:
    """Return the columns with zeros up to a power of two from 16 on, as tensor cores want it."""
    import torch

    p, columns = columns.shape[1], columns.contiguous()
    missing = max(16, 1 << (p - 1).bit_length()) - p
    return torch.nn.functional.pad(columns, (0, missing)) if missing else columns


def counts(block: Array) -> bool:
    """Whether the Gram matrix of the rows of a block can be made by products of whole numbers."""
    if dtype_name(block.dtype) not in ("uint8", "int8") or not getattr(block, "is_cuda", False):
        return False
    return bool(block.shape[0] >= 256 and block.stride(1) == 1 and _is_recent(block.device))


@cache
def _is_recent(device: Any) -> bool:
    """Whether the tensor cores of a GPU multiply bfloat16, and bytes: since Ampere."""
    import torch

    return bool(torch.cuda.get_device_capability(device) >= (8, 0))


def counted_square(block: Array) -> tuple[Array, Array, float]:
    """Return ``B B^T`` in float64 and the sums of the columns of ``B = A - shift``, all exact.

    The shift, which comes third, is the same number for all columns.
    """
    import torch

    (n, d), unsigned = block.shape, dtype_name(block.dtype) == "uint8"
    # cuBLAS wants multiples of 8, of all groups of rows.
    size = -(-n // (8 * GROUPS)) * 8
    square = torch.zeros((GROUPS * size,) * 2, dtype=torch.float64, device=block.device)
    sums = []
    for start in range(0, d, SLAB):
        some = block[:, start : start + SLAB]
        width = -(-some.shape[1] // 8) * 8
        rows = torch.zeros((GROUPS * size, width), dtype=torch.int8, device=block.device)
        rows[:n, : some.shape[1]] = (some ^ MIDDLE).view(torch.int8) if unsigned else some
        sums.append(rows.sum(dim=0, dtype=torch.int64)[: some.shape[1]])
        for i in range(GROUPS):
            above = rows[i * size : (i + 1) * size]
            for j in range(i, GROUPS):
                left = rows[j * size : (j + 1) * size]
                part = square[i * size : (i + 1) * size, j * size : (j + 1) * size]
                part += torch._int_mm(above, left.T)
    square = square[:n, :n]
    square = square.triu() + square.triu(1).T
    return square, torch.cat(sums).to(torch.float64), float(MIDDLE * unsigned)


@cache
def _kernels() -> Any:
    """Return the module of the kernels, or None if Triton is not installed."""
    try:
        from primedpca._operator import triton_kernels
    except ImportError:
        return None
    return triton_kernels
