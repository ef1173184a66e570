"""Data on disk: one module per format, and the registry of file suffixes in ``paths``.

Formats that must be loaded whole become sources of ``sources.memory``, which this room may import.
"""
