"""Where blocks are worked on.  Add an engine: one file here and one branch below."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from primedpca.engines.local import LocalEngine
from primedpca.protocols import DataSource, Engine

__all__ = ["LocalEngine", "as_engine", "batches_of", "together"]


def as_engine(engine: Any = None, source: Any = None) -> Engine:
    """The engine that ``engine`` names.

    ``None`` is this machine, or for a Dask array the client in scope; a client or the address of
    a scheduler is that Dask cluster; an Engine is itself.
    """
    if engine is None:
        engine = getattr(source, "client", None)
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
    while source is not None:
        if hasattr(source, "lazy"):
            source.engine = engine
        source = getattr(source, "source", None)


def together(engine: Any, task: str) -> AbstractContextManager[None]:
    """Where several processes make a fit: errors inside reach all of them."""
    found: Any = as_engine(engine) if engine == "torch_distributed" else engine
    return found.together(task) if hasattr(found, "together") else nullcontext()


def _is_client(engine: Any) -> bool:
    """Whether this is a Dask client (nothing is imported to find out)."""
    return any(kind.__module__.split(".")[0] == "distributed" for kind in type(engine).__mro__)


def batches_of(engine: Engine, source: DataSource, known: Any = None) -> Any:
    """The source of mini-batches, their rows read where the engine reads; ``known`` if it fits."""
    if not hasattr(engine, "gathering"):
        return source
    return known if known is not None else engine.gathering(source)
