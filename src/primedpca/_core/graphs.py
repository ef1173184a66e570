"""CUDA graphs of work that is repeated: launched once, replayed without the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from primedpca._core.arrays import Array, is_torch_array

__all__ = ["captured", "recorded"]

#: Held while work is captured: whatever another thread launches on the same stream would join it.
_capturing = threading.Lock()


@cache
def _side_stream(device: Any) -> Any:
    """Return the stream of captures: libraries keep a workspace of 32 MB for every stream."""
    import torch

    return torch.cuda.Stream(device)


def recorded(step: Callable[[], None], device: Any, warm: int) -> Any:
    """Return the CUDA graph of one step.

    Parameters
    ----------
    step : callable
        Never waits for the host.
    device : torch.device
    warm : int
        How often the step is made before: libraries allocate their workspaces in the first calls.
    """
    import torch

    graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    numbers = torch.cuda.default_generators[here.device_index]
    with _capturing:
        side, before = _side_stream(device), numbers.clone_state()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            for _ in range(warm):
                step()
            # Not torch.cuda.graph, which waits for the GPU and frees the memory that it caches.
            try:
                graph.capture_begin(capture_error_mode="thread_local")
                step()
                graph.capture_end()
            except BaseException:
                with suppress(RuntimeError):
                    graph.capture_end()
                # A capture that fails would leave PyTorch unable to draw random numbers.
                numbers.graphsafe_set_state(before)
                raise
        here.wait_stream(side)
    return graph


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
    before = [array.clone() for array in state]
    graph = recorded(step, state[0].device, warm=3)
    for array, value in zip(state, before, strict=True):
        array.copy_(value)
    replay: Callable[[], None] = graph.replay
    return replay
