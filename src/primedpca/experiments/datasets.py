"""The data of the paper's experiments."""

from __future__ import annotations

import csv
import gzip
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from primedpca.experiments.archives import read_counts, read_images
from primedpca.experiments.publishers import (
    BATCHES,
    NIPS_CSV,
    read_cifar_files,
    read_cifar_tar,
    read_idx,
    read_nips,
)

__all__ = [
    "FORMATS",
    "PAPER_SHAPES",
    "SETS",
    "SHAPES",
    "TITLES",
    "Dataset",
    "Format",
    "check_set",
    "data_folder",
    "find_format",
    "load_set",
    "mnist",
    "read_format",
    "synthetic",
]

TITLES = {
    "exponential": "Exponential synthetic",
    "linear": "Linear synthetic",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "nips": "NIPS bag of words",
}
SETS = tuple(TITLES)

#: Points and dimensions of the sets as they are published.
SHAPES = {
    "exponential": (5000, 50),
    "linear": (5000, 50),
    "mnist": (60_000, 784),
    "cifar10": (50_000, 3072),
    "nips": (5811, 11_463),
}
#: And as the paper's tables print them. UCI's table for NIPS is 5,812 columns wide, but the
#: first holds the words.
PAPER_SHAPES = {
    **SHAPES,
    "mnist": (60_000, 768),
    "cifar10": (50_000, 3092),
    "nips": (5812, 11_463),
}


@dataclass(frozen=True)
class Dataset:
    """A set in the units of the experiments: float32, pixels from 0 to 1, counts as they are.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, d)
        Rows are points; sparse for NIPS.
    origin : str
        The name of the file that was read, or ``"drawn"``.
    """

    name: str
    title: str
    X: Any
    origin: str


#: What the libraries below raise when a file is not what its name says.
_DAMAGE = (
    ValueError,
    EOFError,
    RuntimeError,
    csv.Error,
    gzip.BadGzipFile,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class Format:
    """One form in which a set may lie in a folder.

    Attributes
    ----------
    origin : str
        What to call it: a file name, or several in short.
    files : tuple of str
        All are needed.
    read : callable
        Takes the paths of the files and the shape.
    shape : tuple of int
        What must come out: points and dimensions.
    """

    origin: str
    files: tuple[str, ...]
    read: Callable[[Sequence[Path], tuple[int, int]], Any]
    shape: tuple[int, int]

    @classmethod
    def of_file(cls, file: str, read: Callable[..., Any], shape: tuple[int, int]) -> Format:
        """A format of one file."""
        return cls(file, (file,), read, shape)

    def missing(self, folder: Path) -> list[str]:
        """Those of its files that are not there."""
        return [file for file in self.files if not (folder / file).is_file()]

    def load(self, folder: Path) -> Any:
        """Read the files; whatever is wrong with them is a ``ValueError`` that says it.

        Returns
        -------
        ndarray of shape (n, d), uint8, or csr_array of shape (n, d), float32
        """
        try:
            return self.read([folder / file for file in self.files], self.shape)
        except _DAMAGE as error:
            raise ValueError(str(error)) from error


#: In order of preference; the publisher's own files come first.
FORMATS: dict[str, tuple[Format, ...]] = {
    "mnist": (
        Format.of_file("train-images-idx3-ubyte.gz", read_idx, SHAPES["mnist"]),
        Format.of_file("train-images-idx3-ubyte", read_idx, SHAPES["mnist"]),
        Format.of_file("mnist_train.npz", read_images, SHAPES["mnist"]),
    ),
    "cifar10": (
        Format.of_file("cifar-10-python.tar.gz", read_cifar_tar, SHAPES["cifar10"]),
        Format(
            "cifar-10-batches-py/data_batch_{1,2,3,4,5}",
            tuple(f"cifar-10-batches-py/{batch}" for batch in BATCHES),
            read_cifar_files,
            SHAPES["cifar10"],
        ),
        Format(
            "cifar10_train_{a,b,c}.npz",
            tuple(f"cifar10_train_{part}.npz" for part in "abc"),
            read_images,
            SHAPES["cifar10"],
        ),
    ),
    "nips": (
        Format.of_file(NIPS_CSV, read_nips, SHAPES["nips"]),
        Format.of_file("nips+conference+papers+1987+2015.zip", read_nips, SHAPES["nips"]),
        # A stand-in: the papers of fewer years, with other words.
        Format.of_file("nips_1987-2003_bow.npz", read_counts, (2483, 14_036)),
    ),
}


def load_set(name: str, folder: Path | str | None = None) -> Dataset:
    """Load one of :data:`SETS`.

    Parameters
    ----------
    name : str
    folder : path, optional
        Where its files are; the folder that ``PRIMEDPCA_DATA`` names unless given. The
        synthetic sets are drawn and need none.

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError
        The set is not there; the text names every file that would do.
    ValueError
        A file is damaged; the text says which and how.
    """
    _check_name(name)
    if name in ("exponential", "linear"):
        x = synthetic(name)[0].astype(np.float32)  # type: ignore[arg-type]
        return Dataset(name, TITLES[name], x, "drawn")
    where, form = _place(name, folder)
    x = read_format(name, form, where)
    if x.dtype == np.uint8:
        x = x / np.float32(255)
    return Dataset(name, TITLES[name], x, form.origin)


def check_set(name: str, folder: Path | str | None = None) -> None:
    """Raise what :func:`load_set` would where a set is not there, without reading it."""
    _check_name(name)
    if name not in ("exponential", "linear"):
        _place(name, folder)


def _place(name: str, folder: Path | str | None) -> tuple[Path, Format]:
    where = data_folder() if folder is None else _existing(Path(folder))
    if where is None:
        raise FileNotFoundError(
            f"{TITLES[name]} is read from files, and no folder is given: name it with "
            f"`--data-dir` or the variable `PRIMEDPCA_DATA`. {_remedy(name)}"
        )
    return where, _found(name, where)


def find_format(name: str, folder: Path) -> Format | None:
    """The form in which a folder holds a set: the first of which any file is there."""
    _check_name(name)
    for form in FORMATS.get(name, ()):
        if len(form.missing(folder)) < len(form.files):
            return form
    return None


def read_format(name: str, form: Format, folder: Path) -> Any:
    """Read a set as its files have it, or say which is damaged and what to do.

    Returns
    -------
    ndarray of shape (n, d), uint8, or csr_array of shape (n, d), float32
    """
    if missing := form.missing(folder):
        raise ValueError(
            f"{TITLES[name]} in {folder} is not whole: {', '.join(missing)} missing. "
            f"{_remedy(name)}"
        )
    try:
        return form.load(folder)
    except ValueError as error:
        raise ValueError(
            f"{folder / form.origin} cannot be read as {TITLES[name]}: {error}. Remove it, and put "
            f"a sound copy there or run `primedpca datasets --download {name}`."
        ) from error


def mnist(folder: Path) -> np.ndarray:
    """The MNIST training images of a data folder, uint8, ``(60000, 784)``."""
    return read_format("mnist", _found("mnist", folder), folder)


def data_folder() -> Path | None:
    """The folder that the variable ``PRIMEDPCA_DATA`` names, or ``None``."""
    name = os.environ.get("PRIMEDPCA_DATA")
    if not name:
        return None
    folder = Path(name)
    if not folder.is_dir():
        raise FileNotFoundError(f"`PRIMEDPCA_DATA`={name!r} is no folder; unset it or mend it.")
    return folder


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
    n_samples, n_features : int
    seed : int

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


def _check_name(name: str) -> None:
    if name not in SETS:
        raise ValueError(f"`name`={name!r} is no data set; take one of {', '.join(SETS)}.")


def _found(name: str, folder: Path) -> Format:
    form = find_format(name, folder)
    if form is None:
        raise FileNotFoundError(f"{TITLES[name]} is not in {folder}. {_remedy(name)}")
    return form


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise FileNotFoundError(f"the data folder {str(folder)!r} is not there; mend its name.")
    return folder


def _remedy(name: str) -> str:
    files = " or ".join(form.origin for form in FORMATS[name])
    return f"Put {files} there, or run `primedpca datasets --download {name}`."
