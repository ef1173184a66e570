"""Files that the library writes: models, scores, tables.

May import ``_core``, ``protocols``, ``result``, ``sources`` and ``_operator``.
"""
