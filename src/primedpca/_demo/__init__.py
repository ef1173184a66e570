"""The computations of ``primedpca demo`` and ``primedpca bench``, and their data.

May import the whole library except the command line.
"""
