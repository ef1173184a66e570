"""Choice of the algorithm: costs of each, memory limits, number of extra directions.

May import ``_operator``, ``priming`` and what they may import.
"""
