"""Data sets of the demo: two synthetic ones, and MNIST if its files are at hand."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from primedpca.sources.base import whole
from primedpca.sources.files.numpy_files import npz_source

__all__ = ["MNIST", "MNIST_SHAPE", "data_folder", "mnist", "read_idx", "read_images", "synthetic"]

MNIST_SHAPE = (60_000, 784)
IDX_MAGIC = 0x803  # unsigned bytes in three dimensions


def data_folder() -> Path | None:
    """Return the folder that the variable ``PRIMEDPCA_DATA`` names, or ``None`` if it is unset."""
    name = os.environ.get("PRIMEDPCA_DATA")
    if not name:
        return None
    folder = Path(name)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"`PRIMEDPCA_DATA`={name!r} is not a folder. Correct it or unset it."
        )
    return folder


def mnist(folder: Path) -> np.ndarray | None:
    """Return MNIST's training images, uint8, one per row; ``None`` if ``folder`` has no file."""
    for file, read in MNIST.items():
        path = folder / file
        if path.is_file():
            try:
                return read([path], MNIST_SHAPE)
            except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(
                    f"{path} cannot be read as MNIST: {error}. Replace it with a sound copy."
                ) from error
    return None


def synthetic(
    kind: Literal["exponential", "linear"],
    *,
    n_samples: int = 5000,
    n_features: int = 50,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the paper's synthetic data, whose variances fall from 1000 to 1.

    Parameters
    ----------
    kind : {"exponential", "linear"}
        How the variances fall.
    n_samples : int, default=5000
        Number of rows.
    n_features : int, default=50
        Number of columns.
    seed : int, default=0
        Seed of the random numbers.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Centred rows; their sample covariance (divided by ``n - 1``) has exactly these variances.
    components : ndarray of shape (n_features, n_features)
        True principal components, as rows.
    """
    if kind not in ("exponential", "linear"):
        raise ValueError(f"`kind`={kind!r} must be 'exponential' or 'linear'.")
    if n_samples <= n_features:
        raise ValueError(
            f"`n_samples`={n_samples} must exceed `n_features`={n_features}, or the sample "
            "covariance cannot have these variances."
        )
    fall = np.geomspace if kind == "exponential" else np.linspace
    spectrum = fall(1000.0, 1.0, n_features)
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n_samples, n_features))
    scores = np.linalg.qr(noise - noise.mean(axis=0))[0]
    components = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0].T
    return scores * np.sqrt(spectrum * (n_samples - 1)) @ components, components


def read_idx(paths: Sequence[Path], shape: tuple[int, int]) -> np.ndarray:
    """Read the images of one IDX file, gzipped or not.

    Returns
    -------
    ndarray of shape (n, d), uint8
    """
    path = paths[0]
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        header = stream.read(16)
        if len(header) < 16:
            raise ValueError(f"it ends after {len(header)} bytes, inside its header")
        magic, n, height, width = struct.unpack(">4I", header)
        if magic != IDX_MAGIC:
            raise ValueError(
                f"it starts with {magic:#010x}, where IDX images have {IDX_MAGIC:#010x}"
            )
        if (n, height * width) != shape:
            raise ValueError(
                f"its header says {n} images of {height} x {width}, "
                f"not {shape[0]} of {shape[1]} pixels"
            )
        raw = stream.read(math.prod(shape) + 1)
    if len(raw) != math.prod(shape):
        raise ValueError(
            f"it is {'longer' if len(raw) > math.prod(shape) else 'shorter'} than its header says"
        )
    return np.frombuffer(raw, np.uint8).reshape(shape)


def read_images(paths: Sequence[Path], shape: tuple[int, int]) -> np.ndarray:
    """Read images as rows, from the array ``X`` of each ``.npz`` file in turn.

    Returns
    -------
    ndarray of shape (n, d), uint8
    """
    n, d = shape
    try:
        # Without a cache only headers are read here, so that a lie about the size costs nothing.
        parts = [npz_source(path, "X", cache=0) for path in paths]
        for path, part in zip(paths, parts, strict=True):
            if part.dtype != np.uint8 or part.shape[1] != d:
                raise ValueError(f"{path.name} holds {part.dtype} {part.shape}, not uint8 (n, {d})")
        rows = sum(int(part.shape[0] or 0) for part in parts)
        if rows != n:
            raise ValueError(f"it holds {rows} images, not {n}")
        return np.concatenate([whole(part) for part in parts])
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, TypeError) as error:  # damage, in the library's reader
        raise ValueError(str(error)) from error


#: Files that hold MNIST's training images, in order of preference, and their readers.
MNIST: dict[str, Callable[[Sequence[Path], tuple[int, int]], np.ndarray]] = {
    "train-images-idx3-ubyte.gz": read_idx,
    "train-images-idx3-ubyte": read_idx,
    "mnist_train.npz": read_images,
}
