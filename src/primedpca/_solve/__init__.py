"""The main loop of every fit and audit: prime, refine, certify, and decide when to stop.

May import ``_certify``, ``_planning``, ``_operator``, ``priming`` and what they may import.
"""
