"""Where blocks are worked on.  Add an engine: one file here and one branch below."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from primedpca.engines.local import LocalEngine
from primedpca.protocols import Engine

__all__ = ["LocalEngine", "as_engine", "together"]


def as_engine(engine: Any = None) -> Engine:
    """The engine that ``engine`` names: ``None`` is this machine; an Engine is itself."""
    if engine is None:
        return LocalEngine()
    if isinstance(engine, str) and engine == "torch_distributed":
        from primedpca.engines.torch_distributed import TorchDistributed

        return TorchDistributed()
    if isinstance(engine, Engine):
        return engine
    raise ValueError(
        f"`engine`={engine!r} is not available; use None for this machine, "
        "'torch_distributed' for the ranks of torchrun, or pass an object with the `sweep` "
        "method of primedpca.protocols.Engine."
    )


def together(engine: Any, task: str) -> AbstractContextManager[None]:
    """Where several processes make a fit: errors inside reach all of them."""
    found: Any = as_engine(engine) if isinstance(engine, str) else engine
    return found.together(task) if hasattr(found, "together") else nullcontext()
