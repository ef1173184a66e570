"""Arrays that are stored in chunks, read in strips so that every chunk is read once a pass."""

from __future__ import annotations

from typing import Literal

from primedpca.sources import files
from primedpca.sources.base import cut_evenly

__all__ = ["strips", "tall_first"]


def tall_first(shape: tuple[int, int]) -> Literal[0, 1]:
    """Rows of tall data, columns of wide ones, where the storage does not care."""
    return 0 if shape[0] >= shape[1] else 1


def strips(
    shape: tuple[int, int], chunks: tuple[int, int], itemsize: int
) -> tuple[Literal[0, 1], tuple[tuple[int, int], ...]]:
    """The axis, and the cut along it, with which no chunk is read twice.

    Of the two axes the one whose strips of whole chunks take less memory; as many chunks to a
    strip as a block may hold.

    Examples
    --------
    >>> from primedpca.sources.strips import strips
    >>> strips((1000, 30), (1000, 10), 8)  # whole columns lie together
    (1, ((0, 30),))
    """
    width = [min(chunks[axis], shape[axis]) * shape[1 - axis] for axis in (0, 1)]
    tie = width[0] == width[1]
    axis: Literal[0, 1] = tall_first(shape) if tie else 0 if width[0] < width[1] else 1
    length, chunk = shape[axis], min(chunks[axis], shape[axis])
    together = max(1, files.READ_BYTES // (width[axis] * itemsize))
    cuts = cut_evenly(-(-length // chunk), together)
    return axis, tuple((a * chunk, min(b * chunk, length)) for a, b in cuts)
