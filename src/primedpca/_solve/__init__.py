"""The main path of every fit and audit: prime, refine, let a certifier look, decide to stop.

May import ``_certify``, ``_planning``, ``_operator``, ``priming`` and what they may import.
"""
