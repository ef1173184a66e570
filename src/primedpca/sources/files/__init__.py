"""Data on disk: one module per format, and the registry of file suffixes in ``paths``."""
