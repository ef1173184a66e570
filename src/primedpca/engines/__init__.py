"""Where blocks are worked on.  Add an engine: one file here and one branch below."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from primedpca.engines.local import LocalEngine
from primedpca.protocols import Block, Engine
from primedpca.sources.memory.dask_array import array_below

__all__ = ["LocalEngine", "as_engine", "batches_of", "together"]


def as_engine(engine: Any = None, source: Any = None) -> Engine:
    """The engine that ``engine`` names.

    ``None`` is this machine, or for a Dask array the client in scope; a client or the address of
    a scheduler is that Dask cluster; an Engine is itself.
    """
    if engine is None:
        engine = None if source is None else source.traits.client()
        if engine is None:
            return LocalEngine()
    if isinstance(engine, str) and engine == "torch_distributed":
        from primedpca.engines.torch.engine import TorchDistributed

        return TorchDistributed()
    if _is_client(engine) or (isinstance(engine, str) and ":" in engine):
        from primedpca.engines.dask.engine import dask_engine

        engine = dask_engine(engine)
    if isinstance(engine, Engine):
        if getattr(engine, "remote", False):
            _read_by(engine, source)
        return engine
    raise ValueError(
        f"`engine`={engine!r} is not available; use None for this machine, "
        "'torch_distributed' for the ranks of torchrun, a Dask client or the address of its "
        "scheduler such as 'tcp://127.0.0.1:8786', or pass an object with the `sweep` method of "
        "primedpca.protocols.Engine."
    )


def _read_by(engine: Engine, source: Any) -> None:
    """Let a Dask array, also one below a view, be computed where it is worked on."""
    array = array_below(source)
    if array is not None:
        array.engine = engine


def together(engine: Any, task: str) -> AbstractContextManager[None]:
    """Where several processes make a fit: errors inside reach all of them."""
    found: Any = as_engine(engine) if engine == "torch_distributed" else engine
    return found.together(task) if hasattr(found, "together") else nullcontext()


def _is_client(engine: Any) -> bool:
    """Whether this is a Dask client (nothing is imported to find out)."""
    return any(kind.__module__.split(".")[0] == "distributed" for kind in type(engine).__mro__)


def batches_of(
    data: Any, size: int, seed: int | None, epoch: int, start: int
) -> Iterator[tuple[Any, Block]]:
    """Mini-batches of the source of a Centred, their rows read where its engine reads."""
    if not hasattr(data.engine, "gathering"):
        return data.source.batches(size, seed, epoch, start)
    near: Any
    known, near = getattr(data, "near", (None, None))
    if known is not data.source:
        near = data.engine.gathering(data.source)
        data.near = data.source, near  # what it holds of the last epoch
    return near.batches(size, seed, epoch, start)
