"""Dask clusters: the engine, the tasks that workers run, and waiting for them."""

from primedpca.engines.dask.engine import DaskEngine

__all__ = ["DaskEngine"]
