"""Checksum of the operands of a pass, by which ranks see that they are in sync."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from primedpca._core.arrays import Array, dtype_name, is_dense, is_torch_array, to_numpy
from primedpca._core.packing import lies_in_columns

__all__ = ["checksum"]

PIECE = 2**22  # words that are mixed at a time on a device
#: Odd numbers whose bits look random (SplitMix64), as int64.
STEP, FIRST, SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def checksum(value: Any) -> int:
    """Return a number that changes with any bit of the arrays and numbers in ``value``.

    It also changes with signs and with the order of entries, in which eigensolvers of different
    machines differ.
    """
    found = hashlib.blake2b(digest_size=8)
    _feed(found, value)
    return int.from_bytes(found.digest(), "little")


def _feed(found: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        value = [value[name] for name in sorted(value)]
    if isinstance(value, (list, tuple)):
        found.update(f"{len(value)} of;".encode())
        for part in value:
            _feed(found, part)
    elif is_dense(value):
        turned = lies_in_columns(value)  # the bits of later products depend on the layout
        about = f"{dtype_name(value.dtype)} {tuple(value.shape)} {turned};"
        found.update(about.encode())
        flat = (value.T if turned else value).reshape(-1)
        if is_torch_array(flat) and flat.device.type != "cpu":
            found.update(str(mixed(flat)).encode())
        else:
            found.update(np.ascontiguousarray(to_numpy(flat)).view(np.uint8))
    else:
        known = value is None or isinstance(value, (bool, int, float, str))
        found.update(f"{value!r};".encode() if known else type(value).__qualname__.encode())


def mixed(flat: Array) -> int:
    """Return a number that depends on every bit of a tensor ``(length,)`` and its position.

    Computed on the tensor's device: each word and its position go through SplitMix64, and the
    results are added with wrap-around.
    """
    import torch

    words = {8: torch.int64, 4: torch.int32, 2: torch.int16}.get(flat.element_size(), torch.uint8)
    whole, total = flat.contiguous().view(words), 0
    for start in range(0, whole.shape[0], PIECE):
        piece = whole[start : start + PIECE].to(torch.int64, copy=True)
        piece ^= torch.arange(start + 1, start + 1 + piece.shape[0], device=piece.device) * STEP
        for shift, factor in ((30, FIRST), (27, SECOND), (31, 1)):
            piece ^= (piece >> shift) & (2 ** (64 - shift) - 1)  # shifted without the sign
            piece *= factor
        total += int(piece.sum())
    return total % 2**64
