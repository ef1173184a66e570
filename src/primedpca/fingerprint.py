"""What tells fits apart: data, without reading all of them, parameters and versions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

import primedpca
from primedpca.arrays import dtype_name, is_dense, is_sparse, to_numpy
from primedpca.protocols import DataSource, is_spread

__all__ = ["agreement", "digest", "fingerprint"]

#: Options that do not change what is found, and one of which only a number can be compared.
FREE = {"checkpoint", "engine", "random_state", "verbose", "warm_start", "whiten"}

BLOCKS = 4  # that are hashed: the first, the last and two between


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
    """Shape, type and cut of the data, a hash of a few blocks, and of a file its size and date.

    Parameters
    ----------
    source : DataSource
        One that has ``fingerprint()`` is asked for what it knows beside this: plain values.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    dict
        It changes with anything in the first and last blocks and in two between; of changes in
        the other blocks of data in memory it knows nothing.
    """
    last = len(source.blocks) - 1
    chosen = [0]
    if hasattr(source, "read") and not is_spread(source):  # of others, their own word
        some = np.random.default_rng(last).integers(0, last + 1, BLOCKS - 2)
        chosen = sorted({0, last, *some.tolist()})
    hashes = []
    for i in chosen:
        block = source.read(i) if hasattr(source, "read") else next(iter(source.scan()))[1]
        hashes.append(digest(block))
    known = {
        "shape": tuple(source.shape),
        "dtype": dtype_name(source.dtype),
        "axis": int(source.axis),
        "blocks": digest(source.blocks),
        "device": str(source.device),
        "contents": digest(chosen, hashes),
        "sample_weight": None if sample_weight is None else digest(to_numpy(sample_weight)),
    }
    path = getattr(source, "path", None)
    if hasattr(source, "fingerprint"):
        known["source"] = digest(source.fingerprint())
    elif isinstance(path, (str, os.PathLike)) and os.path.isfile(path):
        about = os.stat(path)
        known["file"] = f"{about.st_size} bytes, changed at {about.st_mtime_ns} ns"
    return known


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
