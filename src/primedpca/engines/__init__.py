"""Engines: where blocks are processed.

To add an engine, write one file here and one branch in :func:`as_engine`.  May import ``_core``,
``protocols``, ``result`` and ``sources``.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from primedpca._core.process import limit_threads
from primedpca.engines.base import AdaptedEngine, BaseEngine, FixedTree, read_and_apply
from primedpca.engines.local import LocalEngine
from primedpca.protocols import Engine

__all__ = [
    "BaseEngine",
    "FixedTree",
    "LocalEngine",
    "as_engine",
    "limit_threads",
    "read_and_apply",
    "storable",
    "together",
]


def as_engine(engine: Any = None, source: Any = None) -> Engine:
    """Return the engine for the estimator's parameter ``engine``.

    ``None`` means this machine, or for a Dask array the Dask client in scope.  A client or the
    address of a scheduler means that Dask cluster.  An Engine is returned as it is, and an object
    that has only ``sweep`` is given the other members.
    """
    if engine is None:
        engine = None if source is None else source.traits.client()
        if engine is None:
            return LocalEngine()
    if isinstance(engine, type):
        name = engine.__name__
        raise TypeError(f"`engine` is the class {name}. Pass an instance, {name}().")
    if isinstance(engine, (BaseEngine, Engine)):
        return engine
    if isinstance(engine, str) and engine == "torch_distributed":
        # Inside: most fits need neither engine, and each imports an optional library.
        from primedpca.engines.torch.engine import TorchDistributed

        return TorchDistributed()
    if _is_client(engine) or (isinstance(engine, str) and ":" in engine):
        from primedpca.engines.dask.engine import DaskEngine, client_at

        return DaskEngine(client_at(engine) if isinstance(engine, str) else engine)
    if callable(getattr(engine, "sweep", None)):
        return AdaptedEngine(engine)
    raise ValueError(
        f"`engine`={engine!r} is not available. Use None for this machine, "
        "'torch_distributed' for the ranks of torchrun, a Dask client or the address of its "
        "scheduler such as 'tcp://127.0.0.1:8786', or an object with the `sweep` method of "
        "primedpca.protocols.Engine."
    )


def storable(engine: Any) -> Any:
    """Return an engine as a pickle or a copy of a model holds it.

    A client of a Dask cluster has connections, which cannot be stored: the address of its
    scheduler takes its place, and None if the client is closed.
    """
    return getattr(engine.scheduler, "address", None) if _is_client(engine) else engine


def _is_client(engine: Any) -> bool:
    """Whether an engine is a Dask client, recognised without importing Dask."""
    return "distributed" in {kind.__module__.split(".")[0] for kind in type(engine).__mro__}


def together(engine: Any, task: str) -> AbstractContextManager[None]:
    """Context in which errors of one rank reach all ranks that make a fit together."""
    return nullcontext() if engine is None else as_engine(engine).together(task)
