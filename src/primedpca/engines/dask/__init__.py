"""Dask clusters: the engine, the tasks that workers run, and waiting for them."""
