"""Checksum of the operands of a pass, which shows whether ranks are in sync."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from primedpca._core.arrays import Array, dtype_name, is_dense, is_torch_array, to_numpy
from primedpca._core.packing import lies_in_columns

__all__ = ["checksum"]

PIECE = 2**22  # words processed at a time on a device, to bound the temporary copy
#: The odd constants of SplitMix64 as int64, the widest integers that PyTorch computes with.
STEP, FIRST, SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def checksum(value: Any) -> int:
    """Return a number that changes with any bit of the arrays and numbers in ``value``.

    Signs and the order of entries change the number as well; eigensolvers of different machines
    may differ in both.
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
        turned = lies_in_columns(value)  # the memory layout affects the bits of later products
        about = f"{dtype_name(value.dtype)} {tuple(value.shape)} {turned};"
        found.update(about.encode())
        flat = (value.T if turned else value).reshape(-1)
        if is_torch_array(flat) and flat.device.type != "cpu":
            found.update(str(mixed(flat)).encode())
        else:
            found.update(np.ascontiguousarray(to_numpy(flat)).view(np.uint8))
    else:
        # The repr of other objects may hold an address, which differs between ranks.
        known = value is None or isinstance(value, (bool, int, float, str))
        found.update(f"{value!r};".encode() if known else type(value).__qualname__.encode())


def mixed(flat: Array) -> int:
    """Return a number that depends on every bit of a tensor ``(length,)`` and its position.

    It is computed on the tensor's device: each word is combined with its position, hashed by
    SplitMix64, and the hashes are added modulo 2**64.
    """
    import torch

    words = {8: torch.int64, 4: torch.int32, 2: torch.int16}.get(flat.element_size(), torch.uint8)
    whole, total = flat.contiguous().view(words), 0
    for start in range(0, whole.shape[0], PIECE):
        piece = whole[start : start + PIECE].to(torch.int64, copy=True)
        piece ^= torch.arange(start + 1, start + 1 + piece.shape[0], device=piece.device) * STEP
        for shift, factor in ((30, FIRST), (27, SECOND), (31, 1)):
            piece ^= (piece >> shift) & (2 ** (64 - shift) - 1)  # an unsigned shift of int64
            piece *= factor
        total += int(piece.sum())
    return total % 2**64
