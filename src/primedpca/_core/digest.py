"""Hash of arrays and plain values."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, is_dense, is_sparse, to_numpy

__all__ = ["digest", "written"]

SHOWN = 80  # characters of a value in words


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


def written(value: Any) -> str:
    """A value in words that distinguish it from others: plain ones in full, long ones by a hash.

    Examples
    --------
    >>> written(["-999", 3])
    "['-999', 3]"
    """
    text = _in_words(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]}... {digest(text)[:16]}"


def _in_words(value: Any) -> str:
    if isinstance(value, (np.generic, np.dtype)):
        value = value.str if isinstance(value, np.dtype) else value.item()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    if is_dense(value) or is_sparse(value):
        return f"{dtype_name(value.dtype)} {tuple(value.shape)} {digest(value)[:16]}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_in_words(part)}' for key, part in value.items())}}}"
    if isinstance(value, (set, frozenset)):
        return _in_words(sorted(value, key=repr))
    if isinstance(value, Iterable):  # of any library: an index of pandas, the keys of a mapping
        return f"[{', '.join(map(_in_words, value))}]"
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{name} {digest(value)[:16]}"
