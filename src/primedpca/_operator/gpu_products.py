"""Products of large CUDA blocks with few columns, at the speed of memory (Triton).

``A V`` and ``A^T Y`` with a tall ``A`` and some tens of columns compute little and read ``A`` once
each, but cuBLAS takes up to three times as long as the reading does, and takes float32 or float64
only.  The kernels here multiply blocks as they are stored, with the accuracy of float32 at least:
float32 in float64 where tensor cores do that, or else in TF32 parts, float16 and bfloat16 as TF32,
whole numbers of 8 bits as bfloat16.  Columns of float64, such as those that check a proof, are
multiplied in float64.

Gram matrices of whole numbers are exact: products of 8 bits are added in 32 bits, and blocks in
float64.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from primedpca._core.arrays import Array, dtype_name, is_torch_array

__all__ = ["adjoint", "counted_square", "counts", "forward", "serves", "statistics", "sums"]

#: Kind of each type of entries, by which kernels multiply.
KINDS = {
    "float32": "float32",
    "float16": "half",
    "bfloat16": "half",
    "uint8": "whole",
    "int8": "whole",
}
#: Most columns of a product in float32, of whole numbers, and in float64.
COLUMNS, COLUMNS_WHOLE, COLUMNS_WIDE = 64, 21, 32
#: Most readings of a block for one product.
READINGS = 4
#: Fewest entries of a block: below, launching two kernels of Triton costs more than they save.
#: Kernels of float64 are faster, and the alternative to them is a copy of the block.
ENTRIES, ENTRIES_WIDE = 2**27, 2**24
#: Compute capabilities of the GPUs whose tensor cores multiply float64: A100, H100 and B200.
FLOAT64 = ((8, 0), (9, 0), (10, 0))
#: Of each kind, measured on an H200: rows and columns of a tile, warps and stages.
FORWARD = {
    "float32": (128, 64, 4, 3),
    "half": (128, 32, 4, 4),
    "whole": (64, 128, 4, 3),
    "wide": (64, 64, 4, 3),
    "wide half": (128, 32, 4, 3),
    "wide whole": (128, 32, 4, 3),
}
ADJOINT = {
    "float32": (64, 128, 8, 3),
    "half": (32, 256, 8, 4),
    "whole": (128, 64, 4, 2),
    "wide": (32, 128, 4, 3),
    "wide half": (32, 128, 4, 3),
    "wide whole": (64, 64, 4, 3),
}
#: The same of sums over columns, which take parts of the rows as ``A^T Y``.
STATISTICS = (8, 256, 4, 3)
#: Programs that keep a GPU busy, and the most parts that rows are cut in for ``A^T Y``.
BUSY, PARTS = 1024, 64
#: Middle of the range of uint8: without it, entries fit into a signed byte.
MIDDLE = 128
#: Columns whose products of two signed bytes cannot overflow 32 bits.
SLAB = 2**16
#: Groups of rows in a Gram matrix, of which only the pairs above the diagonal are multiplied.
GROUPS = 4


def serves(block: Array, vectors: Array) -> bool:
    """Whether these kernels multiply such a block as it is stored: on CUDA, by Triton."""
    if not _is_there(block):
        return False
    if not 0 < vectors.shape[1] <= READINGS * _most(block, vectors):
        return False
    wide = dtype_name(vectors.dtype) == "float64" or _is_widened(block, vectors)
    if block.numel() < (ENTRIES_WIDE if wide else ENTRIES):
        return False
    return _is_recent(block.device) and _kernels() is not None


def _is_there(block: Array) -> bool:
    """Whether a block is on CUDA, compact along its rows, and of a type that the kernels read."""
    if not (is_torch_array(block) and block.is_cuda):
        return False
    return dtype_name(block.dtype) in KINDS and block.stride(1) == 1


def _most(block: Array, vectors: Array) -> int:
    """Return how many columns a kernel multiplies in one reading."""
    if dtype_name(vectors.dtype) == "float64":
        return COLUMNS_WIDE
    return COLUMNS_WHOLE if KINDS[dtype_name(block.dtype)] == "whole" else COLUMNS


def _in_readings(multiply: Any, block: Array, vectors: Array) -> Array:
    """Return the product with any number of columns, as many at a time as a kernel takes."""
    import torch

    most = _most(block, vectors)
    if vectors.shape[1] <= most:
        return multiply(block, vectors)
    return torch.cat([multiply(block, part) for part in vectors.split(most, dim=1)], dim=1)


def forward(block: Array, vectors: Array) -> Array:
    """Return ``A V``, ``(rows, p)``, in the type of the vectors or in float64."""
    import torch

    if _is_widened(block, vectors):  # by all columns, so that all readings have one type
        vectors = vectors.to(torch.float64)
    return _in_readings(_forward, block, vectors)


def _forward(block: Array, vectors: Array) -> Array:
    import torch

    (n, d), p, kind = block.shape, vectors.shape[1], _kind(block, vectors)
    bm, bk, warps, stages = FORWARD[kind]
    # Few rows keep a GPU busy if their columns are cut into parts, whose sums are added.
    (down, parts), each = _cut(d, n, bk, bm, BUSY, PARTS)
    v = _padded(_in_parts(vectors) if kind == "whole" else vectors)
    y = torch.empty((parts, n, v.shape[1]), dtype=_sums(v), device=block.device)
    tile, options = (bm, bk, v.shape[1]), dict[str, Any](num_warps=warps, num_stages=stages)
    _kernels().forward[(down, parts)](
        block, v, y, n, d, block.stride(0), each, 1.0, *tile, kind, **options
    )
    return _joined(y[0] if parts == 1 else y.sum(dim=0, dtype=torch.float64).to(y.dtype), p, kind)


def adjoint(block: Array, y: Array) -> Array:
    """Return ``A^T Y``, ``(d, p)`` in float64: the sums of parts of the rows are added in it."""
    return _in_readings(_adjoint, block, y)


def _adjoint(block: Array, y: Array) -> Array:
    import torch

    (n, d), p, kind = block.shape, y.shape[1], _kind(block, y)
    bm, bk, warps, stages = ADJOINT[kind]
    grid, each = _cut(n, d, bm, bk, BUSY, PARTS)
    columns = _padded(_in_parts(y) if kind == "whole" else y)
    z = torch.empty((grid[1], d, columns.shape[1]), dtype=_sums(columns), device=block.device)
    tile, options = (bm, bk, columns.shape[1]), dict[str, Any](num_warps=warps, num_stages=stages)
    _kernels().adjoint[grid](
        block, columns, z, n, d, block.stride(0), each, 1.0, *tile, kind, **options
    )
    return _joined(z.sum(dim=0, dtype=torch.float64), p, kind)


def sums(block: Array) -> bool:
    """Whether :func:`statistics` reads such a block faster than PyTorch does."""
    large = _is_there(block) and block.numel() >= ENTRIES_WIDE
    return large and _is_recent(block.device) and _kernels() is not None


def statistics(block: Array) -> tuple[Array, Array]:
    """Return the sum of all squares, and the column sums, in float64: one reading."""
    import torch

    (n, d), (bm, bk, warps, stages) = block.shape, STATISTICS
    grid, each = _cut(n, d, bm, bk, 2 * BUSY, 4 * PARTS)
    found = torch.empty((2, grid[1], d), dtype=torch.float64, device=block.device)
    options: Any = {"num_warps": warps, "num_stages": stages}
    _kernels().statistics[grid](block, *found, n, d, block.stride(0), each, bm, bk, **options)
    sums, squares = found.sum(dim=1)
    return squares.sum(), sums


def _cut(n: int, d: int, bm: int, bk: int, busy: int, most: int) -> tuple[tuple[int, int], int]:
    """Return the programs along the columns and the rows, and the rows of each of them."""
    across = -(-d // bk)
    parts = min(most, max(1, busy // across), max(1, n // bm))
    return (across, parts), bm * (n // (bm * parts) + 1)


def _sums(columns: Array) -> Any:
    """Return the type in which products with these columns are added."""
    import torch

    return torch.float64 if columns.dtype == torch.float64 else torch.float32


def _is_widened(block: Array, columns: Array) -> bool:
    """Whether float32 is multiplied in float64, which on some GPUs takes no longer."""
    single = dtype_name(block.dtype) == dtype_name(columns.dtype) == "float32"
    if not (single and block.is_cuda and columns.shape[1] <= COLUMNS_WIDE):
        return False
    return _capability(block.device) in FLOAT64


def _kind(block: Array, columns: Array) -> str:
    kind = KINDS[dtype_name(block.dtype)]
    if dtype_name(columns.dtype) != "float64":
        return kind
    return "wide" if kind == "float32" or not block.is_cuda else f"wide {kind}"


def _in_parts(columns: Array) -> Array:
    """Return float32 columns as three times as many in bfloat16, which add up to them."""
    import torch

    parts = []
    for _ in range(3):
        parts.append(columns.to(torch.bfloat16))
        columns = columns - parts[-1].to(torch.float32)
    return torch.cat(parts, dim=1)


def _joined(product: Array, p: int, kind: str) -> Array:
    """Return the columns of a product without those that pad it; parts are added, small first."""
    if kind != "whole":
        return product[:, :p]
    return product[:, 2 * p : 3 * p] + product[:, p : 2 * p] + product[:, :p]


def _padded(columns: Array) -> Array:
    """Return the columns with zeros up to a power of two, as tensor cores want it."""
    import torch

    p, columns = columns.shape[1], columns.contiguous()
    missing = max(16, 1 << (p - 1).bit_length()) - p
    return torch.nn.functional.pad(columns, (0, missing)) if missing else columns


def counts(block: Array) -> bool:
    """Whether the Gram matrix of the rows of a block can be made by products of whole numbers."""
    whole = _is_there(block) and KINDS[dtype_name(block.dtype)] == "whole"
    return whole and block.shape[0] >= 256 and _is_recent(block.device)


def _is_recent(device: Any) -> bool:
    """Whether the tensor cores of a GPU multiply bfloat16, and bytes: since Ampere."""
    return _capability(device) >= (8, 0)


@cache
def _capability(device: Any) -> tuple[int, int]:
    import torch

    found: tuple[int, int] = torch.cuda.get_device_capability(device)
    return found


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
