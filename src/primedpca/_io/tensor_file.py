"""Arrays and plain values in one safetensors file with a checksum.

Arrays are tensors.  Their containers (lists, tuples, dictionaries and a few classes that the reader
knows by name) are JSON in the header.  Reading such a file never runs code from it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.atomic_files import atomic_write

FORMAT = 1


def write_file(
    path: str | os.PathLike[str], kind: str, value: Any, types: Mapping[str, Any]
) -> None:
    """Write ``value`` to a file, completely or not at all.

    Parameters
    ----------
    path : path
        File to write.  An existing file is replaced in one step, after the new contents are on
        the disk.
    kind : str
        Kind of file, in one word; :func:`read_file` rejects files of another kind.
    value : object
        Made of ``None``, numbers, text, lists, tuples, dictionaries, NumPy arrays and ``types``.
    types : mapping of str to class
        Dataclasses, named tuples and enumerations that may occur.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors: dict[str, np.ndarray] = {}
    names = {known: name for name, known in types.items()}
    body = json.dumps(_encode(value, tensors, names))
    head = {"primedpca": kind, "format": str(FORMAT), "body": body}
    head["sha256"] = _digest(kind, body, tensors)
    with atomic_write(path, overwrite=True) as draft:
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
        raise ValueError(
            f"{name} has format {version}, but this version of primedpca reads format {FORMAT}. "
            "Install a newer version."
        )
    if _digest(kind, body or "", tensors) != head.get("sha256"):
        raise ValueError(f"{name} is damaged: its checksum does not match. Restore it from a copy.")
    try:
        return _decode(_parsed(body or ""), tensors, types)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{name} is not a valid {kind}: {error}") from error


def _parsed(body: str) -> Any:
    """Parse JSON whose numbers are all finite; others are written as ``{"@float": ...}``."""

    def refused(word: str) -> float:
        raise ValueError(f"{word[:20]} is not a finite JSON number.")

    def finite(word: str) -> float:
        value = float(word)
        return value if math.isfinite(value) else refused(word)

    return json.loads(body, parse_constant=refused, parse_float=finite)


def _digest(kind: str, body: str, tensors: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256(f"{kind}\n{body}".encode())
    # With dtypes and shapes: the same bytes could be read as another array.
    for name in sorted(tensors):
        array = tensors[name]
        found.update(f"\n{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _encode(value: Any, tensors: dict[str, np.ndarray], names: Mapping[Any, str]) -> Any:
    def inner(part: Any) -> Any:
        return _encode(part, tensors, names)

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OUS":
            texts = [_encodable(str(entry)) for entry in value.ravel()]
            return {"@text": texts, "shape": list(value.shape)}
        name = f"{len(tensors):04d}"
        # Safetensors stores contiguous arrays in native byte order only.
        tensors[name] = np.asarray(value, dtype=value.dtype.newbyteorder("="), order="C")
        return {"@array": name}
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {"@float": repr(value)}
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Enum) and type(value) in names:
        return {"@type": names[type(value)], "member": value.name}
    if type(value) in names:
        tuple_names = getattr(value, "_fields", None)
        fields = tuple_names or [field.name for field in dataclasses.fields(value)]
        held = {field: inner(getattr(value, field)) for field in fields}
        return {"@type": names[type(value)], "fields": held}
    if isinstance(value, tuple):
        return {"@tuple": [inner(part) for part in value]}
    if isinstance(value, list):
        return [inner(part) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"@dict": {key: inner(part) for key, part in value.items()}}
    raise TypeError(f"Unsupported type in a file: {type(value).__name__}.")


def _encodable(text: str) -> str:
    """Return the text; raise ValueError for an unpaired surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{text[:40]!r} is not valid text (it has an unpaired surrogate). Rename it."
        ) from None
    return text


def _decode(value: Any, tensors: Mapping[str, np.ndarray], types: Mapping[str, Any]) -> Any:
    """Decode a value; raise ValueError for anything that :func:`_encode` does not write."""

    def inner(part: Any) -> Any:
        return _decode(part, tensors, types)

    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, list):
        return [inner(part) for part in value]
    if not isinstance(value, dict):
        return value
    tag = next((tag for tag in TAGS if tag in value), None)
    if tag is None or value.keys() - {tag, *TAGS[tag]}:
        raise ValueError(f"an entry has the unknown fields {_listed(value)}.")
    held = value[tag]
    if tag == "@array":
        if not isinstance(held, str) or held not in tensors:
            raise ValueError("an entry names an array that the file does not hold.")
        return tensors[held]
    if tag == "@text":
        return _texts(inner(held), value.get("shape"))
    if tag == "@float":
        if held not in ("inf", "-inf", "nan"):
            raise ValueError("a special float is not inf, -inf or nan.")
        return float(held)
    if tag == "@tuple":
        return tuple(_expected(inner(held), list, "the entries of a tuple"))
    if tag == "@dict":
        named = _expected(held, dict, "a dictionary")
        return {_encodable(key): inner(part) for key, part in named.items()}
    if not isinstance(held, str) or held not in types:
        raise ValueError("a value has an unknown type.")
    known = types[held]
    if issubclass(known, Enum):
        member = value.get("member")
        if not isinstance(member, str) or member not in known.__members__:
            raise ValueError(f"a value names an unknown member of {held}.")
        return known[member]
    fields = _expected(value.get("fields"), dict, f"the fields of {held}")
    return known(**{key: inner(part) for key, part in fields.items()})


#: Tag of each kind of entry, and the other fields that such an entry may have.
TAGS: dict[str, tuple[str, ...]] = {
    "@array": (),
    "@text": ("shape",),
    "@float": (),
    "@tuple": (),
    "@dict": (),
    "@type": ("member", "fields"),
}


def _texts(entries: Any, shape: Any) -> np.ndarray:
    entries, shape = _expected(entries, list, "a text array"), _expected(shape, list, "a shape")
    if not all(isinstance(entry, str) for entry in entries):
        raise ValueError("a text array holds a value that is not a string.")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError("the shape of a text array is not made of integers of at least 0.")
    if math.prod(shape) != len(entries):
        raise ValueError(f"a text array holds {len(entries)} strings, which do not fill its shape.")
    return np.array(entries, dtype=object).reshape(shape)


def _expected(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{what} must be a {kind.__name__}, got {type(value).__name__}.")
    return value


def _listed(value: dict[str, Any]) -> str:
    return ", ".join(repr(key[:20]) for key in sorted(value)[:5]) or "(none)"
