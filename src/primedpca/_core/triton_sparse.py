"""Triton kernel of :mod:`._core.device_sparse`; needs Triton."""

import triton
import triton.language as tl


@triton.jit
def rows_times(indptr, indices, data, v, y, p, stride, bn: tl.constexpr, be: tl.constexpr):
    """Multiply one compressed row with bn columns of ``v``: be entries at a time, in order."""
    row = tl.program_id(0)
    columns = tl.program_id(1) * bn + tl.arange(0, bn)
    start = tl.load(indptr + row)
    stop = tl.load(indptr + row + 1)
    total = tl.zeros((be, bn), v.dtype.element_ty)
    for k in range(start, stop, be):
        places = k + tl.arange(0, be)
        weights = tl.load(data + places, mask=places < stop, other=0.0)
        others = tl.load(indices + places, mask=places < stop, other=0).to(tl.int64)
        inside = (places < stop)[:, None] & (columns < p)[None, :]
        some = tl.load(v + others[:, None] * stride + columns[None, :], mask=inside, other=0.0)
        total += weights[:, None] * some
    place = row.to(tl.int64) * p + columns
    tl.store(y + place, tl.sum(total, axis=0), mask=columns < p)
