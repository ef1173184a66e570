"""What tells fits apart: data, parameters and versions.

What passes gave before a kill holds for the data that they read, so that a fit that goes on with
them proves nothing of others.  Data in memory are hashed whole.  Of files, which may take hours to
read, sizes, dates and a few blocks are compared: the system dates every change of a file, and
that date (``ctime``) cannot be put back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

import primedpca
from primedpca._core.arrays import dtype_name, is_dense, is_sparse, to_numpy
from primedpca._core.threads import pool_of, processors
from primedpca.protocols import DataSource, is_spread

__all__ = ["agreement", "digest", "fingerprint"]

#: Options that do not change what is found, and one of which only a number can be compared.
FREE = {"checkpoint", "engine", "random_state", "verbose", "warm_start", "whiten"}

BLOCKS = 4  # that are hashed of data that are not in memory: first, last and two between


def digest(*values: Any) -> str:
    """A hash of arrays and plain values, to the bit; objects count by their type alone."""
    found = hashlib.sha256()
    for value in values:
        _feed(found, value)
    return found.hexdigest()


def _feed(found: Any, value: Any) -> None:
    if is_sparse(value):
        value = value.tocsr() if not hasattr(value, "indptr") else value
        value = {"shape": value.shape, "values": (value.data, value.indices, value.indptr)}
    if is_dense(value) or isinstance(value, np.generic):
        array = to_numpy(value)
        found.update(f"array {dtype_name(array.dtype)} {array.shape};".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    elif isinstance(value, Mapping):
        for name in sorted(value):
            found.update(f"{name}:".encode())
            _feed(found, value[name])
    elif isinstance(value, (list, tuple)):
        found.update(f"{len(value)} of;".encode())
        for part in value:
            _feed(found, part)
    elif is_dataclass(value) and not isinstance(value, type):
        found.update(f"{type(value).__qualname__};".encode())
        _feed(found, {field.name: getattr(value, field.name) for field in fields(value)})
    elif value is None or isinstance(value, (bool, int, float, str)):
        found.update(f"{type(value).__name__} {value!r};".encode())
    else:  # its address would be another in every process
        name = getattr(value, "__qualname__", type(value).__qualname__)
        found.update(f"{getattr(value, '__module__', '')} {name};".encode())


def fingerprint(source: DataSource, sample_weight: Any = None) -> dict[str, Any]:
    """Shape, type and cut of the data, a hash of their entries, and of files their dates.

    Parameters
    ----------
    source : DataSource
        One that has ``fingerprint()`` is asked for what it knows beside this: plain values.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    dict
        It changes with any entry of data in memory.  Of files, and of what has a word of its own,
        the first and last block and two between are hashed.
    """
    last, files = len(source.blocks) - 1, _files(source)
    apart = files or hasattr(source, "fingerprint") or getattr(source, "on_disk", False)
    chosen = [0]
    if hasattr(source, "read") and not is_spread(source):  # of others, their own word
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
    if hasattr(source, "fingerprint"):
        known["source"] = digest(source.fingerprint())
    elif files:
        known["file"] = _dates(files)
    return known


def _hashes(source: DataSource, chosen: list[int]) -> list[str]:
    """A hash of each of these blocks."""
    if not hasattr(source, "read"):
        return [digest(next(iter(source.scan()))[1])]
    in_order = len(chosen) == 1 or getattr(source, "sequential", False)
    if in_order or source.device not in (None, "cpu"):
        return [digest(source.read(i)) for i in chosen]
    pool = pool_of(processors(), "primedpca-hashes")
    return list(pool.map(lambda i: digest(source.read(i)), chosen))


def _files(source: Any) -> list[str]:
    """The files that the rows are read from, those in folders among them."""
    while (below := getattr(source, "source", None)) is not None:
        source = below
    named = getattr(source, "paths", None) or [getattr(source, "path", None)]
    found: list[str] = []
    for path in named:
        if not isinstance(path, (str, os.PathLike)) or not os.path.exists(path):
            return []
        name = os.fspath(path)
        inside = [os.path.join(at, own) for at, _, names in os.walk(name) for own in names]
        found += sorted(inside) if os.path.isdir(name) else [name]
    return found


def _dates(files: list[str]) -> str:
    """Size and dates of a file; of several, in one number."""
    about = [os.stat(path) for path in files]
    dates = [(one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in about]
    if len(files) > 1:
        return f"{len(files)} files, {digest(dates)}"
    return "{} bytes, changed at {} ns, by the system's own date at {} ns".format(*dates[0])


def agreement(
    source: DataSource, options: Mapping[str, Any], sample_weight: Any, start: Any
) -> dict[str, dict[str, Any]]:
    """All that two fits must agree in for one to go on where the other was left.

    Parameters
    ----------
    source : DataSource
    options : mapping
        The parameters of the estimator.
    sample_weight : array of shape (n,) or None
    start : array of shape (d, q) or None
        Directions to start from.

    Returns
    -------
    dict
        ``data``, ``options`` and ``versions``, each a dictionary of plain values.
    """
    given = {name: _plain(value) for name, value in options.items() if name not in FREE}
    seed = options["random_state"]
    given["random_state"] = int(seed) if isinstance(seed, (int, np.integer)) else None
    given["start"] = None if start is None else digest(start)
    library = type(next(iter(source.scan()))[1]).__module__.split(".")[0]
    versions = {"primedpca": primedpca.__version__, "numpy": np.__version__}
    if library not in ("numpy", "scipy"):
        versions[library] = str(import_module(library).__version__)
    data = fingerprint(source, sample_weight)
    return {"data": data, "options": given, "versions": versions}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{name} {digest(value)[:16]}"
