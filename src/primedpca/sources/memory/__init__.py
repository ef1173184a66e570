"""Data in memory: arrays, sparse matrices, data frames, lazy arrays and iterables.

One module per kind.  Imports ``sources.base`` and nothing of the other rooms of ``sources``.
"""
