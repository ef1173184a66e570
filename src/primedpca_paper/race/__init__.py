"""A race of primings and other solvers on any data: contestants, runs, and the page of results.

Imports the library, the true components of :mod:`primedpca_paper.arena` and the peers of
:mod:`primedpca_paper.peers`.
"""
