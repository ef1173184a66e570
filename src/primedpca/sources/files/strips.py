"""Arrays that are stored in chunks, read in strips so that every chunk is read once a pass."""

from __future__ import annotations

import math
from typing import Literal

from primedpca.sources import base
from primedpca.sources.base import cut_evenly, tall_first
from primedpca.sources.files.common import PLAUSIBLE_BYTES

__all__ = ["count_missing", "outside", "strips"]

ABSENT_CHUNKS = 2**15
ABSENT_RATIO = 64  # absent chunks to a stored one


def strips(
    shape: tuple[int, int], chunks: tuple[int, int], itemsize: int
) -> tuple[Literal[0, 1], tuple[tuple[int, int], ...]]:
    """Axis to cut along, and blocks along it that hold whole chunks, so that each is read once.

    The axis is the one whose strips of whole chunks take less memory.  A block holds as many
    strips as fit into ``READ_BYTES``.

    Examples
    --------
    >>> from primedpca.sources.files.strips import strips
    >>> strips((1000, 30), (1000, 10), 8)  # a chunk holds whole columns
    (1, ((0, 30),))
    """
    width = [min(chunks[axis], shape[axis]) * shape[1 - axis] for axis in (0, 1)]
    tie = width[0] == width[1]
    axis: Literal[0, 1] = tall_first(shape) if tie else 0 if width[0] < width[1] else 1
    length, chunk = shape[axis], min(chunks[axis], shape[axis])
    together = max(1, base.READ_BYTES // (width[axis] * itemsize))
    cuts = cut_evenly(-(-length // chunk), together)
    return axis, tuple((a * chunk, min(b * chunk, length)) for a, b in cuts)


def outside(shape: tuple[int, int], chunks: tuple[int, int], axis: int) -> int:
    """Count the numbers in a strip of chunks that lie outside the array but are decoded.

    Examples
    --------
    >>> from primedpca.sources.files.strips import outside
    >>> outside((20, 4), (20, 100), 0)
    1920
    """
    across = -(-shape[1 - axis] // chunks[1 - axis]) * chunks[1 - axis]
    return chunks[axis] * across - min(chunks[axis], shape[axis]) * shape[1 - axis]


def count_missing(
    label: str, shape: tuple[int, ...], chunks: tuple[int, ...], itemsize: int, stored: int
) -> int:
    """Count the absent chunks, and refuse chunks much larger or more numerous than plausible.

    Every chunk is decoded whole, however little of it lies inside the array, and every absent
    chunk costs time, although it takes no room in the file.

    Parameters
    ----------
    label : str
        Names the array in errors.
    shape, chunks : tuple of int
    itemsize : int
        Bytes of a number.
    stored : int
        Number of chunks that are stored.
    """
    needed, chunk = math.prod(shape) * itemsize, math.prod(chunks) * itemsize
    if chunk > max(PLAUSIBLE_BYTES, 2 * needed):
        raise ValueError(
            f"{label} has chunks of shape {tuple(chunks)}, {chunk} bytes each, for an array of "
            f"shape {tuple(shape)}, {needed} bytes. Write it again with smaller chunks."
        )
    total = math.prod(-(-side // step) for side, step in zip(shape, chunks, strict=True))
    missing = total - stored
    if missing > max(ABSENT_CHUNKS, ABSENT_RATIO * stored):
        raise ValueError(
            f"{label} lacks {missing} of its {total} chunks of shape {tuple(chunks)}: its metadata "
            "are wrong or most of it is missing. Write it again with larger chunks."
        )
    return missing
