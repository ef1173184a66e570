"""CUDA graphs of steps that are made many times: launched once, replayed without the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from primedpca._core.arrays import Array, is_torch_array

__all__ = ["captured", "side_stream"]


@cache
def side_stream(device: Any) -> Any:
    """Return the stream of captures: libraries keep a workspace of 32 MB for every stream."""
    import torch

    return torch.cuda.Stream(device)


def captured(step: Callable[[], None], state: Sequence[Array]) -> Callable[[], None]:
    """Return ``step`` as a CUDA graph on CUDA, and ``step`` itself elsewhere.

    Parameters
    ----------
    step : callable
        Changes the arrays of ``state`` in place, and never waits for the host.
    state : sequence of arrays
        Their values are kept.
    """
    if not (is_torch_array(state[0]) and state[0].is_cuda):
        return step
    import torch

    before = [array.clone() for array in state]
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(here)
    with torch.cuda.stream(side):
        for _ in range(3):  # libraries allocate their workspaces in the first calls
            step()
    here.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    for array, value in zip(state, before, strict=True):
        array.copy_(value)
    torch.cuda.synchronize()
    replay: Callable[[], None] = graph.replay
    return replay
