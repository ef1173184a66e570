"""CUDA graphs of work that is repeated: launched once, replayed without the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from primedpca._core.arrays import Array, is_torch_array

__all__ = ["Replays", "captured", "recorded"]

#: Held while work is captured: whatever another thread launches on the same stream would join it.
_capturing = threading.Lock()
#: For every stream of replays the first graph: while it lives, so does the memory of the others.
_first: dict[Any, Any] = {}
#: Device, type and shape of the vectors of all products so far.
_loaded: set[Any] = set()


@cache
def _side_stream(device: Any) -> Any:
    """Return the stream of captures: libraries keep a workspace of 32 MB for every stream."""
    import torch

    return torch.cuda.Stream(device)


def recorded(
    step: Callable[[], Any], device: Any, warm: int = 0, pool: Any = None
) -> tuple[Any, Any]:
    """Return the CUDA graph of one step, and what the step returned: arrays that replays fill.

    Parameters
    ----------
    step : callable
        Never waits for the host.
    device : torch.device
    warm : int, default=0
        How often the step is made before: libraries allocate their workspaces in the first calls.
    pool : tuple, optional
        Memory that the graph shares with others.  By default it has its own.
    """
    import torch

    graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    with _capturing:
        side = _side_stream(device)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            for _ in range(warm):
                step()
            # Not torch.cuda.graph, which waits for the GPU and frees the memory that it caches.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                found = step()
            finally:
                graph.capture_end()
        here.wait_stream(side)
    return graph, found


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
    graph, _ = recorded(step, state[0].device, warm=3)
    for array, value in zip(state, before, strict=True):
        array.copy_(value)
    replay: Callable[[], None] = graph.replay
    return replay


class Replays:
    """Products with data that stay where they are on a GPU, captured once and then replayed.

    What the product depends on, beside the vectors, must stay the same.  The second product of
    each width is captured; the very first one already if this process has made such a product
    before, so that its kernels are loaded.
    """

    def __init__(self) -> None:
        #: Of each width the vectors, their product and the graph between them; None before the
        #: capture, and False where that failed.
        self._made: dict[int, Any] = {}

    def product(self, multiply: Callable[[Array], Array], vectors: Array) -> Array:
        """Return ``multiply(vectors)``, in an array of the caller's own."""
        width, kind = vectors.shape[1], (vectors.device, vectors.dtype, *vectors.shape)
        repeated = width in self._made or (not self._made and kind in _loaded)
        made = self._made.setdefault(width, None)
        if made is None and repeated:
            made = self._made[width] = self._captured(multiply, vectors)
        if not made:
            _loaded.add(kind)
            return multiply(vectors)
        given, product, graph = made
        given.copy_(vectors)
        graph.replay()
        return product.clone()

    def _captured(self, multiply: Callable[[Array], Array], vectors: Array) -> Any:
        import torch

        given, device = vectors.clone(), vectors.device
        stream = torch.cuda.current_stream(device)
        first = _first.get(stream)
        try:
            pool = None if first is None else first.pool()
            graph, product = recorded(lambda: multiply(given), device, pool=pool)
        except RuntimeError:  # too little memory, or another thread's work on the GPU
            return False
        _first.setdefault(stream, graph)
        return given, product, graph
