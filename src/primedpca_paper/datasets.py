"""The five data sets of the paper's experiments."""

from __future__ import annotations

import csv
import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._demo import MNIST, MNIST_SHAPE, data_folder, read_images, synthetic
from primedpca_paper.publishers import (
    BATCHES,
    NIPS_CSV,
    read_cifar_files,
    read_cifar_tar,
    read_counts,
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

#: Points and dimensions of the published sets.
SHAPES = {
    "exponential": (5000, 50),
    "linear": (5000, 50),
    "mnist": MNIST_SHAPE,
    "cifar10": (50_000, 3072),
    "nips": (5811, 11_463),
}
#: The same as the paper's tables print them.  UCI's table for NIPS has 5,812 columns, of which
#: the first holds the words.
PAPER_SHAPES = {
    **SHAPES,
    "mnist": (60_000, 768),
    "cifar10": (50_000, 3092),
    "nips": (5812, 11_463),
}


@dataclass(frozen=True)
class Dataset:
    """A data set in the units of the experiments: float32, pixels from 0 to 1, raw counts.

    Attributes
    ----------
    name : str
        Short name, one of :data:`SETS`.
    title : str
        Name in tables and figures.
    X : ndarray or csr_array of shape (n, d)
        Rows are points; sparse for NIPS.
    origin : str
        Name of the file that was read, or ``"drawn"`` for a synthetic set.
    """

    name: str
    title: str
    X: Any
    origin: str


#: Errors that the readers raise for damaged files.
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
    """One form in which a folder may hold a data set.

    Attributes
    ----------
    origin : str
        Name of the file, or a pattern for several files.
    files : tuple of str
        Names of the files, all of which are needed.
    read : callable
        Function of the paths of the files and the shape.
    shape : tuple of int
        Number of points and dimensions that the files must hold.
    """

    origin: str
    files: tuple[str, ...]
    read: Callable[[Sequence[Path], tuple[int, int]], Any]
    shape: tuple[int, int]

    @classmethod
    def of_file(cls, file: str, read: Callable[..., Any], shape: tuple[int, int]) -> Format:
        """Make a format of one file."""
        return cls(file, (file,), read, shape)

    def missing(self, folder: Path) -> list[str]:
        """Return the names of the files that ``folder`` lacks."""
        return [file for file in self.files if not (folder / file).is_file()]

    def load(self, folder: Path) -> Any:
        """Read the files; damage raises a ``ValueError`` that describes it.

        Returns
        -------
        ndarray of shape (n, d), uint8, or csr_array of shape (n, d), float32
        """
        try:
            return self.read([folder / file for file in self.files], self.shape)
        except _DAMAGE as error:
            raise ValueError(str(error).rstrip(".")) from error


#: Formats of each set in order of preference, the publisher's own files first.
FORMATS: dict[str, tuple[Format, ...]] = {
    "mnist": tuple(Format.of_file(file, read, MNIST_SHAPE) for file, read in MNIST.items()),
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
        ``"exponential"``, ``"linear"``, ``"mnist"``, ``"cifar10"`` or ``"nips"``.
    folder : path, optional
        Folder of the files, by default the one that ``PRIMEDPCA_DATA`` names.  The synthetic
        sets are drawn and need none.

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError
        The set was not found; the message lists the files that are accepted.
    ValueError
        A file is damaged; the message names the file and the damage.
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
    """Check that :func:`load_set` would find a set, without reading it."""
    _check_name(name)
    if name not in ("exponential", "linear"):
        _place(name, folder)


def _place(name: str, folder: Path | str | None) -> tuple[Path, Format]:
    where = data_folder() if folder is None else _existing(Path(folder))
    if where is None:
        raise FileNotFoundError(
            f"{TITLES[name]} is read from files, and no data folder is given. Set `--data-dir` or "
            f"the variable `PRIMEDPCA_DATA`. {_remedy(name)}"
        )
    return where, _found(name, where)


def find_format(name: str, folder: Path) -> Format | None:
    """Return the first format of which ``folder`` holds any file, or ``None``."""
    _check_name(name)
    for form in FORMATS.get(name, ()):
        if len(form.missing(folder)) < len(form.files):
            return form
    return None


def read_format(name: str, form: Format, folder: Path) -> Any:
    """Read a set in the units of its files; damage raises a ``ValueError`` with the remedy.

    Returns
    -------
    ndarray of shape (n, d), uint8, or csr_array of shape (n, d), float32
    """
    if missing := form.missing(folder):
        raise ValueError(
            f"{TITLES[name]} in {folder} is incomplete: {', '.join(missing)} missing. "
            f"{_remedy(name)}"
        )
    try:
        return form.load(folder)
    except ValueError as error:
        raise ValueError(
            f"{folder / form.origin} cannot be read as {TITLES[name]}: {error}. Replace it with a "
            f"sound copy, or delete it and run `primedpca datasets --download {name}`."
        ) from error


def mnist(folder: Path) -> np.ndarray:
    """Read the MNIST training images of a data folder, uint8, ``(60000, 784)``."""
    images: np.ndarray = read_format("mnist", _found("mnist", folder), folder)
    return images


def _check_name(name: str) -> None:
    if name not in SETS:
        raise ValueError(f"`name`={name!r} is not a data set. Use one of {', '.join(SETS)}.")


def _found(name: str, folder: Path) -> Format:
    form = find_format(name, folder)
    if form is None:
        raise FileNotFoundError(f"{TITLES[name]} was not found in {folder}. {_remedy(name)}")
    return form


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise FileNotFoundError(f"Data folder not found: {str(folder)!r}. Correct its name.")
    return folder


def _remedy(name: str) -> str:
    files = " or ".join(form.origin for form in FORMATS[name])
    return f"Put {files} there, or run `primedpca datasets --download {name}`."
