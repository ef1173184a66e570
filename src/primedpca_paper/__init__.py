"""The experiments of the paper: data sets, runs, tables, figures and their commands.

Imports :mod:`primedpca`, which never imports this package; the commands ``primedpca datasets``
and ``primedpca reproduce`` join the command line as entry points.
"""
