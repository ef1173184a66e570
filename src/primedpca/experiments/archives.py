"""Arrays in ``.npz`` files, read without believing their headers.

NumPy would allocate what a header promises; here a header is held against the most that the
caller can use before a byte is read, and every member is read to its end, so that its checksum
is compared.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

__all__ = ["read_counts", "read_images"]

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_images(paths: Sequence[Path], shape: tuple[int, int]) -> np.ndarray:
    """Images as rows, from the member ``X`` of each file in turn.

    Returns
    -------
    ndarray of shape (n, d), uint8
    """
    n, d = shape
    images = np.empty(shape, np.uint8)
    start = 0
    for path in paths:
        with zipfile.ZipFile(path) as archive:
            part = _member(archive, "X", most=n * d)
        if part.dtype != np.uint8 or part.ndim != 2 or part.shape[1] != d:
            raise ValueError(f"{path.name} holds {part.dtype} {part.shape}, not uint8 (n, {d})")
        if start + len(part) > n:
            raise ValueError(f"{path.name} brings more than {n} images")
        images[start : start + len(part)] = part
        start += len(part)
    if start < n:
        raise ValueError(f"it holds {start} images, not {n}")
    return images


def read_counts(paths: Sequence[Path], shape: tuple[int, int]) -> sp.csr_array:
    """A sparse matrix as ``scipy.sparse.save_npz`` leaves it.

    Returns
    -------
    csr_array of shape (n, d), float32
    """
    n, d = shape
    with zipfile.ZipFile(paths[0]) as archive:
        kind = _member(archive, "format", most=1)
        if kind.tolist() not in (b"csr", "csr"):
            raise ValueError(f"its format is {kind.tolist()!r}, not csr")
        found = tuple(_member(archive, "shape", most=2).tolist())
        if found != shape:
            raise ValueError(f"its shape is {found}, not {shape}")
        indptr, indices, data = (
            _member(archive, name, most=most)
            for name, most in (("indptr", n + 1), ("indices", n * d), ("data", n * d))
        )
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise ValueError("its indices are not whole numbers")
    if data.dtype.kind not in "iuf" or not np.all(np.isfinite(data)) or np.any(data < 0):
        raise ValueError("its counts are not all finite numbers from 0 up")
    counts = sp.csr_array((data.astype(np.float32), indices, indptr), shape=shape)
    # One index out of range would crash whoever multiplies.
    counts.check_format(full_check=True)
    return counts


def _member(archive: zipfile.ZipFile, name: str, *, most: int) -> np.ndarray:
    """One array of at most so many entries."""
    try:
        stream = archive.open(f"{name}.npy")
    except KeyError:
        raise ValueError(f"it has no array `{name}`") from None
    with stream:
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"`{name}` has the unknown format version {version}")
        shape, fortran, dtype = _HEADERS[version](stream)
        if dtype.hasobject:
            raise ValueError(f"`{name}` holds Python objects, not numbers")
        if min(shape, default=0) < 0 or math.prod(shape) > most or dtype.itemsize > 64:
            raise ValueError(f"`{name}` claims {dtype} {shape}, more than the {most} that fit")
        wanted = math.prod(shape) * dtype.itemsize
        raw = stream.read(wanted + 1)
    if len(raw) != wanted:
        raise ValueError(f"`{name}` is {'longer' if len(raw) > wanted else 'shorter'} than it says")
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")
