"""Dense data in memory, moved to the device that works on them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from primedpca._core.arrays import is_sparse
from primedpca.protocols import DataSource
from primedpca.sources.base import needed
from primedpca.sources.memory.dense import DenseSource


def torch_on(device: Any) -> Any:
    """PyTorch, if it is installed and has the device."""
    torch = needed("torch", f"`device`={device!r}", "torch")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"`device`={device!r} is not available: {error}") from error
    return torch


def on_device(source: DataSource, device: Any) -> DataSource:
    """``source`` on ``device`` (such as ``"cuda"``), as a PyTorch tensor; None leaves it alone."""
    if device is None or str(device) == str(source.device or "cpu"):
        return source
    array = source.traits.array
    if array is None or is_sparse(array):
        raise ValueError(
            f"`device`={device!r} takes dense data in memory, not {source!r}; use `device`=None."
        )
    torch = torch_on(device)
    with warnings.catch_warnings():
        # PyTorch warns that it cannot mark its view as read-only; the library never writes to it.
        warnings.simplefilter("ignore", UserWarning)
        try:
            return DenseSource(torch.as_tensor(array, device=device))
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"`device`={device!r} is not available: {error}") from error


def held_on(source: DataSource, device: Any) -> DataSource:
    """``source`` copied to ``device`` whole, block by block if it is not in memory."""
    there = device is None or str(device) == str(source.device or "cpu")
    if there or source.traits.array is not None:
        return on_device(source, device)
    if source.axis == 1:
        raise ValueError(f"`device`={device!r} takes data read in rows, not {source!r}.")
    torch, held = torch_on(device), None
    for i, block in source.scan():
        start, stop = source.blocks[i]
        part = block if isinstance(block, torch.Tensor) else torch.as_tensor(np.array(block))
        if held is None:
            held = torch.empty(source.shape, dtype=part.dtype, device=device)
        held[start:stop] = part
    return DenseSource(held)
