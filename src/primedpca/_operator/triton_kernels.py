"""Triton kernels of :mod:`._operator.gpu_products`; needs Triton.

Every program multiplies one tile after the other: ``bm`` rows and ``bk`` columns of the block.
Entries outside the block count as zero.
"""

import triton
import triton.language as tl


@triton.jit
def forward(
    x, v, y, n, d, stride, bm: tl.constexpr, bk: tl.constexpr, bn: tl.constexpr, whole: tl.constexpr
):
    """``Y = X V`` of bm rows, in float32: three TF32 products for one.

    With ``whole``, entries are whole numbers of 8 bits, and columns in bfloat16, which holds both.
    """
    rows = tl.program_id(0) * bm + tl.arange(0, bm)
    columns = tl.arange(0, bn)
    start = rows.to(tl.int64) * stride
    total = tl.zeros((bm, bn), tl.float32)
    for k in range(0, d, bk):
        inner = k + tl.arange(0, bk)
        inside = (rows[:, None] < n) & (inner[None, :] < d)
        tile = tl.load(x + start[:, None] + inner[None, :], mask=inside, other=0)
        some = tl.load(
            v + inner[:, None] * bn + columns[None, :], mask=inner[:, None] < d, other=0.0
        )
        if whole:
            total = tl.dot(tile.to(tl.bfloat16), some, total)
        else:
            total = tl.dot(tile, some, total, input_precision="tf32x3")
    place = rows[:, None].to(tl.int64) * bn + columns[None, :]
    tl.store(y + place, total, mask=rows[:, None] < n)


@triton.jit
def adjoint(
    x,
    y,
    z,
    n,
    d,
    stride,
    each,
    bm: tl.constexpr,
    bk: tl.constexpr,
    bn: tl.constexpr,
    whole: tl.constexpr,
):
    """``Z = X^T Y`` of bk columns and of ``each`` rows, in float32; ``whole`` as in ``forward``."""
    inner = tl.program_id(0) * bk + tl.arange(0, bk)
    part = tl.program_id(1)
    columns = tl.arange(0, bn)
    total = tl.zeros((bk, bn), tl.float32)
    for m in range(part * each, min(n, (part + 1) * each), bm):
        rows = m + tl.arange(0, bm)
        inside = (rows[None, :] < n) & (inner[:, None] < d)
        start = rows.to(tl.int64) * stride
        tile = tl.load(x + start[None, :] + inner[:, None], mask=inside, other=0)
        place = rows[:, None].to(tl.int64) * bn + columns[None, :]
        some = tl.load(y + place, mask=rows[:, None] < n, other=0.0)
        if whole:
            total = tl.dot(tile.to(tl.bfloat16), some, total)
        else:
            total = tl.dot(tile, some, total, input_precision="tf32x3")
    place = part.to(tl.int64) * d * bn + inner[:, None] * bn + columns[None, :]
    tl.store(z + place, total, mask=inner[:, None] < d)
