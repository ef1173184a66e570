"""Dask clusters: the engine, the tasks that workers run, and waiting for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primedpca.engines.dask.engine import DaskEngine

__all__ = ["DaskEngine"]


def __getattr__(name: str) -> Any:
    if name != "DaskEngine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from primedpca.engines.dask.engine import DaskEngine  # on first use: workers need only tasks

    return DaskEngine
