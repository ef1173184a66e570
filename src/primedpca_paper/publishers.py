"""Readers of CIFAR-10 and NIPS in the formats of their publishers.

Each reader takes the files and the shape that the set must have, checks the header before it
reads the rest, and raises a ``ValueError`` that describes any damage.
"""

from __future__ import annotations

import csv
import io
import math
import pickle
import pickletools
import tarfile
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import scipy.sparse as sp

from primedpca.sources.base import whole
from primedpca.sources.files.numpy_files import sparse_npz

__all__ = [
    "BATCHES",
    "NIPS_CSV",
    "read_cifar_files",
    "read_cifar_tar",
    "read_counts",
    "read_nips",
]

#: The training batches of CIFAR-10, in order.
BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
NIPS_CSV = "NIPS_1987-2015.csv"


def read_cifar_tar(paths: Sequence[Path], shape: tuple[int, int]) -> np.ndarray:
    """Read CIFAR-10's training images from the archive itself, without unpacking it to disk.

    Returns
    -------
    ndarray of shape (n, d), uint8
        A row holds all red, then all green, then all blue pixels.
    """
    images = np.empty(shape, np.uint8)
    missing = set(BATCHES)
    with tarfile.open(paths[0], "r:gz") as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            stream = archive.extractfile(member) if name in missing and member.isreg() else None
            if stream is not None:
                _batch_rows(images, name)[:] = _batch(stream.read(_most(shape)), name, shape)
                missing.remove(name)
            if not missing:
                return images
    raise ValueError(f"{', '.join(sorted(missing))} not in it")


def read_cifar_files(paths: Sequence[Path], shape: tuple[int, int]) -> np.ndarray:
    """Read CIFAR-10's training images from the five files of the unpacked archive."""
    images = np.empty(shape, np.uint8)
    for path in paths:
        with path.open("rb") as stream:
            raw = stream.read(_most(shape))
        _batch_rows(images, path.name)[:] = _batch(raw, path.name, shape)
    return images


def read_nips(paths: Sequence[Path], shape: tuple[int, int]) -> sp.csr_array:
    """Read UCI's table of words by papers, transposed, from a CSV file or its zip file.

    Returns
    -------
    csr_array of shape (n, d), float32
        Papers by words.
    """
    n_papers, n_words = shape
    places, counts, ends = array("i"), array("f"), [0]
    with _text(paths[0]) as text:
        rows = csv.reader(_lines(text, longest=64 * (n_papers + 16)))
        heading = next(rows, [""])
        if len(heading) != n_papers + 1:
            raise ValueError(f"its first line names {len(heading) - 1} papers, not {n_papers}")
        for row in rows:
            if len(ends) > n_words:
                raise ValueError(f"it has more than {n_words} words")
            if len(row) != n_papers + 1:
                raise ValueError(f"line {rows.line_num} has {len(row)} fields, not {n_papers + 1}")
            for j, field in enumerate(row):
                if field != "0" and j:
                    places.append(j - 1)
                    counts.append(_count(field, rows.line_num, j + 1))
            ends.append(len(places))
    if len(ends) <= n_words:
        raise ValueError(f"it has {len(ends) - 1} words, not {n_words}")
    parts = (np.asarray(counts), np.asarray(places), np.asarray(ends))
    return sp.csr_array(sp.csr_array(parts, shape=(n_words, n_papers)).T)


def read_counts(paths: Sequence[Path], shape: tuple[int, int]) -> sp.csr_array:
    """Read counts that ``scipy.sparse.save_npz`` wrote.

    Returns
    -------
    csr_array of shape (n, d), float32
    """
    try:
        source = sparse_npz(paths[0])
        if source.shape != shape:
            raise ValueError(f"its shape is {source.shape}, not {shape}")
        counts = sp.csr_array(whole(source), dtype=np.float32)
    except (OSError, TypeError) as error:  # damage, in the library's reader
        raise ValueError(str(error)) from error
    if not np.all(np.isfinite(counts.data)) or np.any(counts.data < 0):
        raise ValueError("its counts are not all finite numbers from 0 up")
    return counts


def _text(path: Path) -> TextIO:
    if path.suffix != ".zip":
        return path.open(encoding="utf-8", newline="")
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.rpartition("/")[2] == NIPS_CSV]
        if not names:
            raise ValueError(f"{NIPS_CSV} is not in it")
        # The stream keeps the archive open for as long as it lives.
        return io.TextIOWrapper(archive.open(names[0]), encoding="utf-8", newline="")


def _lines(text: TextIO, longest: int) -> Iterator[str]:
    """Yield lines; one of ``longest`` characters is refused, so that none can fill the memory."""
    number = 0
    while line := text.readline(longest):
        number += 1
        if len(line) == longest:
            raise ValueError(f"line {number} is longer than {longest} characters")
        yield line


def _count(field: str, line: int, column: int) -> int:
    if not (field.isascii() and field.isdigit() and len(field) < 10):
        raise ValueError(f"line {line}, field {column} is {field[:20]!r}, not a count")
    return int(field)


def _most(shape: tuple[int, int]) -> int:
    """Return how many bytes of a batch are read at most: pixels, labels and names of images."""
    n, d = shape
    return n // len(BATCHES) * (d + 1024) + 4096


def _batch_rows(images: np.ndarray, name: str) -> np.ndarray:
    size = len(images) // len(BATCHES)
    return images[size * BATCHES.index(name) :][:size]


def _batch(raw: bytes, name: str, shape: tuple[int, int]) -> np.ndarray:
    """Return the pixels of one pickled batch, ``(n / 5, d)``."""
    wanted = (shape[0] // len(BATCHES), shape[1])
    try:
        _check_opcodes(raw)
        content = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
        pixels = content[b"data"] if b"data" in content else content["data"]
        _, found, kind, fortran, values = pixels.state
        if kind.name not in (b"u1", "u1") or fortran:
            raise ValueError(f"its pixels are {kind.name!r}, not rows of bytes")
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"{name} is not a pickled batch of images ({error!r})") from error
    if tuple(found) != wanted or len(values) != math.prod(wanted):
        raise ValueError(f"{name} holds an array of {found}, not {wanted}")
    return np.frombuffer(values, np.uint8).reshape(wanted)


def _check_opcodes(raw: bytes) -> None:
    """Refuse a pickle that would allocate more than it holds: long strings, high memo numbers."""
    for number, (opcode, value, _) in enumerate(pickletools.genops(raw)):
        if opcode.name in ("PUT", "LONG_BINPUT") and (value or 0) > number:
            raise ValueError(f"memo {value} after {number} opcodes")


class _Array:
    """Stand-in for the array of a pickle; keeps its state."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Kind:
    """Stand-in for the dtype of a pickle."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name

    def __setstate__(self, _: Any) -> None:
        """Ignore byte order and alignment, which do not matter for single bytes."""


#: The only names that a batch may import.
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): _Kind,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    # Python 3 writes bytes this way in protocol 2.
    ("_codecs", "encode"): lambda text, _: text.encode("latin1"),
}


class _Unpickler(pickle.Unpickler):
    """Unpickler of plain containers and the stand-ins above, which runs no foreign code."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed") from None
