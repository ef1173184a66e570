"""The data of the paper's experiments."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

__all__ = ["SETS", "TITLES", "Dataset", "data_folder", "load_set", "mnist", "synthetic"]

TITLES = {
    "exponential": "Exponential synthetic",
    "linear": "Linear synthetic",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "nips": "NIPS bag of words",
}
SETS = tuple(TITLES)


@dataclass(frozen=True)
class Dataset:
    """A set in the units of the experiments: float32, pixels from 0 to 1, counts as they are."""

    name: str
    title: str
    X: Any
    origin: str


def load_set(name: str, folder: Path | None = None) -> Dataset:
    """One of :data:`SETS`."""
    if name in ("exponential", "linear"):
        return Dataset(name, TITLES[name], synthetic(name)[0].astype(np.float32), "drawn")  # type: ignore[arg-type]
    where = folder or data_folder()
    if where is None:
        raise FileNotFoundError("no data folder")
    if name == "mnist":
        x: Any = mnist(where) / np.float32(255)
    elif name == "cifar10":
        parts = [np.load(where / f"cifar10_train_{part}.npz")["X"] for part in "abc"]
        x = np.concatenate(parts) / np.float32(255)
    else:
        x = sp.load_npz(where / "nips_1987-2003_bow.npz").astype(np.float32).tocsr()
    return Dataset(name, TITLES[name], x, str(where))


def synthetic(
    kind: Literal["exponential", "linear"],
    *,
    n_samples: int = 5000,
    n_features: int = 50,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """The paper's synthetic data: a spectrum that falls from 1000 to 1.

    Parameters
    ----------
    kind : {"exponential", "linear"}
        How the spectrum falls.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Centred; its sample covariance (divided by ``n - 1``) has exactly that spectrum.
    components : ndarray of shape (n_features, n_features)
        The true principal components, as rows.
    """
    if kind not in ("exponential", "linear"):
        raise ValueError(f"`kind`={kind!r} must be 'exponential' or 'linear'.")
    if n_samples <= n_features:
        raise ValueError(
            f"`n_samples`={n_samples} must exceed `n_features`={n_features}, or the sample "
            "covariance cannot have that spectrum."
        )
    fall = np.geomspace if kind == "exponential" else np.linspace
    spectrum = fall(1000.0, 1.0, n_features)
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n_samples, n_features))
    scores = np.linalg.qr(noise - noise.mean(axis=0))[0]
    components = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0].T
    return scores * np.sqrt(spectrum * (n_samples - 1)) @ components, components


def data_folder() -> Path | None:
    """The folder that the variable ``PRIMEDPCA_DATA`` names, or ``None``."""
    name = os.environ.get("PRIMEDPCA_DATA")
    if not name:
        return None
    folder = Path(name)
    if not folder.is_dir():
        raise FileNotFoundError(f"`PRIMEDPCA_DATA`={name!r} is no folder; unset it or mend it.")
    return folder


def mnist(folder: Path) -> np.ndarray:
    """The MNIST training images of a data folder, uint8, ``(60000, 784)``."""
    path = folder / "mnist_train.npz"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; MNIST is read from there.")
    with np.load(path) as archive:
        images: np.ndarray = archive["X"]
    return images
