"""Triton kernels of :mod:`._operator.gpu_products`; needs Triton.

Every program multiplies one tile after the other: ``bm`` rows and ``bk`` columns of the block.
Entries outside the block count as zero.
"""

import triton
import triton.language as tl


@triton.jit
def _times(tile, some, total, one, kind: tl.constexpr):
    """``total + tile some`` with the accuracy of float32, or in float64.

    Kinds of entries: ``"float32"`` is split into TF32 parts, three products for one;
    ``"half"`` (float16, bfloat16) is exact in TF32, so that only the columns are split;
    ``"whole"`` (8 bits) is exact in bfloat16, in which the columns come.  ``"wide"`` is float32
    multiplied in float64, and ``"wide half"`` and ``"wide whole"`` are the others.

    Tensor cores cut off digits when they add, so that long sums shrink.  The product of a tile is
    therefore added outside of them; multiplied with ``one``, which only the caller knows to be 1,
    or else the compiler would add inside.
    """
    if kind == "whole":
        total += one * tl.dot(tile.to(tl.bfloat16), some)
    elif kind == "half":
        wide = tile.to(tl.float32)
        # The leading 11 of 24 bits, and the others.
        high = (some.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
        part = tl.dot(wide, some - high, input_precision="tf32")
        total += one * tl.dot(wide, high, part, input_precision="tf32")
    elif kind == "wide":
        total = tl.dot(tile.to(tl.float64), some, total, out_dtype=tl.float64)
    elif kind == "wide half" or kind == "wide whole":
        # Opaque to the compiler, which else tries to load halves in a layout of float64 and fails.
        tile = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=f,f", [tile.to(tl.float32)], tl.float32, is_pure=False, pack=1
        )
        total = tl.dot(tile.to(tl.float64), some, total, out_dtype=tl.float64)
    else:
        total = tl.dot(tile, some, total, input_precision="tf32x3")
    return total


@triton.jit
def forward(
    x,
    v,
    y,
    n,
    d,
    stride,
    each,
    one,
    bm: tl.constexpr,
    bk: tl.constexpr,
    bn: tl.constexpr,
    kind: tl.constexpr,
):
    """``Y = X V`` of bm rows and of ``each`` columns, in the type of Y."""
    rows = tl.program_id(0) * bm + tl.arange(0, bm)
    part = tl.program_id(1)
    columns = tl.arange(0, bn)
    start = rows.to(tl.int64) * stride
    total = tl.zeros((bm, bn), y.dtype.element_ty)
    for k in range(part * each, min(d, (part + 1) * each), bk):
        inner = k + tl.arange(0, bk)
        inside = (rows[:, None] < n) & (inner[None, :] < d)
        tile = tl.load(x + start[:, None] + inner[None, :], mask=inside, other=0)
        some = tl.load(
            v + inner[:, None] * bn + columns[None, :], mask=inner[:, None] < d, other=0.0
        )
        total = _times(tile, some, total, one, kind)
    place = part.to(tl.int64) * n * bn + rows[:, None].to(tl.int64) * bn + columns[None, :]
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
    one,
    bm: tl.constexpr,
    bk: tl.constexpr,
    bn: tl.constexpr,
    kind: tl.constexpr,
):
    """``Z = X^T Y`` of bk columns and of ``each`` rows, in the type of Z."""
    inner = tl.program_id(0) * bk + tl.arange(0, bk)
    part = tl.program_id(1)
    columns = tl.arange(0, bn)
    total = tl.zeros((bk, bn), z.dtype.element_ty)
    for m in range(part * each, min(n, (part + 1) * each), bm):
        rows = m + tl.arange(0, bm)
        inside = (rows[None, :] < n) & (inner[:, None] < d)
        start = rows.to(tl.int64) * stride
        tile = tl.load(x + start[None, :] + inner[:, None], mask=inside, other=0)
        place = rows[:, None].to(tl.int64) * bn + columns[None, :]
        some = tl.load(y + place, mask=rows[:, None] < n, other=0.0)
        total = _times(tile, some, total, one, kind)
    place = part.to(tl.int64) * d * bn + inner[:, None] * bn + columns[None, :]
    tl.store(z + place, total, mask=inner[:, None] < d)


@triton.jit
def statistics(x, sums, squares, n, d, stride, each, bm: tl.constexpr, bk: tl.constexpr):
    """Sums, and sums of squares, of bk columns and of ``each`` rows, in float64."""
    inner = tl.program_id(0) * bk + tl.arange(0, bk)
    part = tl.program_id(1)
    total = tl.zeros((bm, bk), tl.float64)
    square = tl.zeros((bm, bk), tl.float64)
    for m in range(part * each, min(n, (part + 1) * each), bm):
        rows = m + tl.arange(0, bm)
        inside = (rows[:, None] < n) & (inner[None, :] < d)
        start = rows.to(tl.int64) * stride
        tile = tl.load(x + start[:, None] + inner[None, :], mask=inside, other=0).to(tl.float64)
        total += tile
        square += tile * tile
    place = part.to(tl.int64) * d + inner
    tl.store(sums + place, tl.sum(total, axis=0), mask=inner < d)
    tl.store(squares + place, tl.sum(square, axis=0), mask=inner < d)
