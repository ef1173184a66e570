"""Hash of arrays and plain values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, is_dense, is_sparse, to_numpy

__all__ = ["digest"]


def digest(*values: Any) -> str:
    """SHA-256 of arrays and plain values, to the bit; other objects count by their type alone."""
    found = hashlib.sha256()
    for value in values:
        _feed(found, value)
    return found.hexdigest()


def _feed(found: Any, value: Any) -> None:
    # Checkpoints keep these hashes: what is fed here, and in which order, must not change.
    if is_sparse(value):
        value = value if value.format in ("csr", "csc", "bsr") else value.tocsr()
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
    else:  # by name: an address would differ in every process
        name = getattr(value, "__qualname__", type(value).__qualname__)
        found.update(f"{getattr(value, '__module__', '')} {name};".encode())
