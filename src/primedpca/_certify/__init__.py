"""Proofs of accuracy: bounds on angles and variances, probes, rounding errors.

May import ``_operator``, ``priming`` and what they may import.
"""
