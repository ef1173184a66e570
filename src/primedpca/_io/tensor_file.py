"""Arrays and plain values in one safetensors file with a checksum.

Arrays are tensors.  Their containers (lists, tuples, dictionaries and a few classes that the reader
knows by name) are JSON in the header.  Reading such a file never runs code from it.
"""

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.atomic_files import atomic_write

FORMAT = 1


def write_file(
    path: str | os.PathLike[str],
    kind: str,
    value: Any,
    types: Mapping[str, Any],
    overwrite: bool = True,
) -> None:
    """Write ``value`` to a file, completely or not at all.

    Parameters
    ----------
    path : path
        File to write.
    kind : str
        Kind of file, in one word; :func:`read_file` rejects files of another kind.
    value : object
        Made of ``None``, numbers, text, lists, tuples, dictionaries, NumPy arrays and ``types``.
    types : mapping of str to class
        Dataclasses, named tuples and enumerations that may occur.
    overwrite : bool, default=True
        Whether to replace an existing file, in one step, after the new contents are on the disk.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors: dict[str, np.ndarray] = {}
    names = {known: name for name, known in types.items()}
    body = json.dumps(_encode(value, tensors, names))
    head = {"primedpca": kind, "format": str(FORMAT), "body": body}
    head["sha256"] = _digest(kind, body, tensors)
    with atomic_write(path, overwrite=overwrite) as draft:
        try:
            save_file(tensors, draft, metadata=head)
        except SafetensorError as error:
            raise OSError(str(error)) from error


def read_file(path: str | os.PathLike[str], kind: str, types: Mapping[str, Any]) -> Any:
    """Read a value that :func:`write_file` has written, after verifying its checksum.

    Parameters
    ----------
    path : path
    kind : str
        Kind of file that is expected.
    types : mapping of str to class
        Classes that may occur, by the names in the file.

    Raises
    ------
    FileNotFoundError
        If ``path`` is not a file.
    ValueError
        If the file is damaged, of another kind or format, or holds unknown types.
    """
    from safetensors import safe_open

    name = os.fspath(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"File not found: {name}. Pass the path of a {kind}.")
    try:
        with safe_open(path, "numpy") as file:
            head = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
            if strange := [array.dtype for array in tensors.values() if array.dtype.kind == "V"]:
                raise ValueError(f"it holds an array of unsupported type {strange[0]}.")
    except OSError:
        raise
    except Exception as error:  # the types differ between versions of safetensors
        raise ValueError(f"{name} is damaged or not a {kind} of primedpca: {error}") from error
    found, version, body = (head.get(key) for key in ("primedpca", "format", "body"))
    if found != kind:
        held = found or "something else"
        raise ValueError(f"{name} is not a {kind} of primedpca: it holds {held}.")
    if version != str(FORMAT):
        raise ValueError(f"{name} has format {version}, not {FORMAT}. Install a newer primedpca.")
    if _digest(kind, body or "", tensors) != head.get("sha256"):
        raise ValueError(f"{name} is damaged: its checksum does not match. Restore it from a copy.")
    try:
        value = json.loads(body or "", parse_constant=_finite, parse_float=_finite)
        return _decode(value, tensors, types)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{name} is not a valid {kind}: {error}") from error


def _finite(word: str) -> float:
    """Parse a finite number of JSON; others are written as ``{"@float": ...}``."""
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(f"{word[:20]} is not a finite JSON number.")
    return value


def _digest(kind: str, body: str, tensors: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256(f"{kind}\n{body}".encode())
    # With dtypes and shapes: the same bytes could be read as another array.
    for name in sorted(tensors):
        array = tensors[name]
        found.update(f"\n{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _encode(value: Any, tensors: dict[str, np.ndarray], names: Mapping[Any, str]) -> Any:
    inner = partial(_encode, tensors=tensors, names=names)
    known = names.get(type(value))
    match value:
        case np.generic():
            return inner(value.item())
        case np.ndarray() if value.dtype.kind in "OUS":
            texts = [_encodable(str(entry)) for entry in value.ravel()]
            return {"@text": texts, "shape": list(value.shape)}
        case np.ndarray():
            name = f"{len(tensors):04d}"
            # Safetensors stores contiguous arrays in native byte order only.
            tensors[name] = np.asarray(value, dtype=value.dtype.newbyteorder("="), order="C")
            return {"@array": name}
        case str():
            return _encodable(value)
        case float() if not math.isfinite(value):
            return {"@float": repr(value)}
        case None | bool() | int() | float():
            return value
        case Enum() if known:
            return {"@type": known, "member": value.name}
        case _ if known:
            fields = getattr(value, "_fields", None) or [
                own.name for own in dataclasses.fields(value)
            ]
            return {"@type": known, "fields": {own: inner(getattr(value, own)) for own in fields}}
        case tuple():
            return {"@tuple": [inner(part) for part in value]}
        case list():
            return [inner(part) for part in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {"@dict": {key: inner(part) for key, part in value.items()}}
    raise TypeError(f"Unsupported type in a file: {type(value).__name__}.")


def _encodable(text: str) -> str:
    """Return the text; raise ValueError for an unpaired surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{text[:40]!r} has an unpaired surrogate. Rename it.") from None
    return text


def _decode(value: Any, tensors: Mapping[str, np.ndarray], types: Mapping[str, Any]) -> Any:
    """Decode a value; raise ValueError for anything that :func:`_encode` does not write."""
    inner = partial(_decode, tensors=tensors, types=types)
    match value:
        case str():
            return _encodable(value)
        case list():
            return [inner(part) for part in value]
        case {"@array": str(name), **rest} if not rest:
            if name not in tensors:
                raise ValueError("an entry names an array that the file does not hold.")
            return tensors[name]
        case {"@text": list(entries), "shape": list(shape), **rest} if not rest:
            return _texts(entries, shape)
        case {"@float": "inf" | "-inf" | "nan" as word, **rest} if not rest:
            return float(word)
        case {"@tuple": list(parts), **rest} if not rest:
            return tuple(inner(part) for part in parts)
        case {"@dict": dict(parts), **rest} if not rest:
            return {_encodable(key): inner(part) for key, part in parts.items()}
        case {"@type": str(name), **rest} if len(rest) == 1:
            if name not in types:
                raise ValueError("a value has an unknown type.")
            kind = types[name]
            match rest:
                case {"member": str(member)} if member in getattr(kind, "__members__", ()):
                    return kind[member]
                case {"fields": dict(fields)} if not issubclass(kind, Enum):
                    return kind(**{key: inner(part) for key, part in fields.items()})
    if isinstance(value, dict):
        shown = ", ".join(repr(key[:20]) for key in sorted(value)[:5]) or "(none)"
        raise ValueError(f"an entry with the fields {shown} is not valid.")
    return value


def _texts(entries: list[Any], shape: list[Any]) -> np.ndarray:
    if not all(isinstance(entry, str) for entry in entries):
        raise ValueError("a text array holds a value that is not a string.")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError("the shape of a text array is not made of integers of at least 0.")
    if math.prod(shape) != len(entries):
        raise ValueError(f"a text array holds {len(entries)} strings, which do not fill its shape.")
    return np.array([_encodable(entry) for entry in entries], dtype=object).reshape(shape)
