"""Data in memory: arrays, sparse matrices, data frames, lazy arrays and iterables."""
