"""Fingerprints of data, by which a checkpoint recognises the data that it was made from.

Products computed before an interruption hold only for the data that they were computed from: a
fit resumed on other data would prove nothing.  Data in memory are hashed whole.  Files may take
hours to read, so their sizes, dates and a few blocks are compared: the system dates every change
of a file (``ctime``), and that date cannot be set back.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, to_numpy
from primedpca._core.digest import digest
from primedpca._core.threads import pool_of, processors
from primedpca.protocols import DataSource, is_spread

__all__ = ["fingerprint"]

BLOCKS = 4  # hashed of data that are not in memory: the first, the last and two between


def fingerprint(source: DataSource, sample_weight: Any = None) -> dict[str, Any]:
    """Shape, type and cut of the data, a hash of their entries, and of files their dates.

    Parameters
    ----------
    source : DataSource
        If its traits have a ``fingerprint`` of their own, that is included.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    dict
        It changes with any entry of data in memory.  Of files, and of data with a fingerprint of
        their own, the first and last block and two between are hashed.
    """
    last, files, own = len(source.blocks) - 1, _files(source), source.traits.fingerprint()
    apart = files or own is not None or source.traits.on_disk
    chosen = [0]
    if not is_spread(source):  # a rank cannot read all blocks
        some = np.random.default_rng(last).integers(0, last + 1, BLOCKS - 2)
        chosen = sorted({0, last, *some.tolist()}) if apart else list(range(last + 1))
    known = {
        "shape": tuple(source.shape),
        "dtype": dtype_name(source.dtype),
        "axis": int(source.axis),
        "blocks": digest(source.blocks),
        "device": str(source.device),
        "contents": digest(chosen, _hashes(source, chosen)),
        "sample_weight": None if sample_weight is None else digest(to_numpy(sample_weight)),
    }
    if own is not None:
        known["source"] = digest(own)
    elif files:
        known["file"] = _dates(files)
    return known


def _hashes(source: DataSource, chosen: list[int]) -> list[str]:
    """A hash of each of these blocks."""
    in_order = len(chosen) == 1 or source.traits.sequential
    if in_order or source.device not in (None, "cpu"):
        return [digest(source.read(i)) for i in chosen]
    pool = pool_of(processors(), "primedpca-hashes")
    return list(pool.map(lambda i: digest(source.read(i)), chosen))


def _files(source: DataSource) -> list[str]:
    """Files that the rows are read from, including those in folders."""
    found: list[str] = []
    for name in source.traits.paths:
        if not os.path.exists(name):
            return []
        inside = [os.path.join(at, own) for at, _, names in os.walk(name) for own in names]
        found += sorted(inside) if os.path.isdir(name) else [name]
    return found


def _dates(files: list[str]) -> str:
    """Size and dates of a file; of several, as one hash."""
    about = [os.stat(path) for path in files]
    dates = [(one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in about]
    if len(files) > 1:
        return f"{len(files)} files, {digest(dates)}"
    return "{} bytes, changed at {} ns, by the system's own date at {} ns".format(*dates[0])
