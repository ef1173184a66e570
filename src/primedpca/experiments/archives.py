"""The paper's data sets in ``.npz`` files, read with limits on what a header may declare."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from primedpca.sources.files.zip_members import read_member

__all__ = ["read_counts", "read_images"]


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
        return read_member(archive, name, "it", most)
    except TypeError as error:  # Python objects
        raise ValueError(str(error)) from error
