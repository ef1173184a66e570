"""A fit that can be checkpointed, resumed, interrupted, and shared among ranks.

May import ``_solve``, ``_io`` and what they may import.
"""
