"""Download the data sets from their publishers.

The checksums are those of the CIFAR-10 page (https://www.cs.toronto.edu/~kriz/cifar.html) and of
torchvision (``torchvision/datasets/mnist.py`` and ``cifar.py``).  UCI publishes none for its NIPS
file, which is therefore read and its shape checked before it is kept.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primedpca_paper.datasets import FORMATS, SETS, TITLES

__all__ = ["REMOTES", "Remote", "download"]

#: Seconds without a byte after which a download fails.
TIMEOUT = 60


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded.

    Attributes
    ----------
    file : str
        Name of the file in the data folder.
    url : str
        Its address.
    md5 : str or None
        The publisher's checksum, in hexadecimal digits.
    check : callable or None
        For a file without a checksum, a function of the folder that raises ``ValueError`` if the
        file in it is damaged.
    """

    file: str
    url: str
    md5: str | None = None
    check: Callable[[Path], object] | None = None

    def verify(self, folder: Path) -> None:
        """Raise ``ValueError`` unless the file in ``folder`` is the published one."""
        if self.md5 is not None:
            found = _pooch().file_hash(str(folder / self.file), alg="md5")
            if found != self.md5:
                raise ValueError(f"its MD5 sum is {found}, not {self.md5}")
        if self.check is not None:
            self.check(folder)


_MNIST = ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873")
_NIPS = {form.origin: form for form in FORMATS["nips"]}

#: Sources of each set, tried in this order.
REMOTES: dict[str, tuple[Remote, ...]] = {
    "mnist": tuple(
        Remote(_MNIST[0], f"{base}/{_MNIST[0]}", _MNIST[1])
        for base in (
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "http://yann.lecun.com/exdb/mnist",
        )
    ),
    "cifar10": (
        Remote(
            "cifar-10-python.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
        ),
    ),
    "nips": tuple(
        Remote(form.origin, f"https://archive.ics.uci.edu/{place}/{form.origin}", check=form.load)
        for place, form in (
            ("static/public/371", _NIPS["nips+conference+papers+1987+2015.zip"]),
            ("ml/machine-learning-databases/00371", _NIPS["NIPS_1987-2015.csv"]),
        )
    ),
}


def download(
    name: str,
    folder: Path | str,
    *,
    remotes: Mapping[str, tuple[Remote, ...]] = REMOTES,
    progress: Any = None,
) -> Path:
    """Download a set into a folder, unless the folder holds it.

    A file gets its name only when it is complete and verified.  An existing file is verified and
    never overwritten.

    Parameters
    ----------
    name : {"mnist", "cifar10", "nips"}
        Name of the set.
    folder : path
        Data folder; made if it does not exist.
    remotes : mapping of str to tuple of Remote, default=REMOTES
        Sources of each set.
    progress : object, optional
        Progress bar with an attribute ``total`` and methods ``update(n)``, ``reset()`` and
        ``close()``, as pooch requires.

    Returns
    -------
    Path
        The downloaded file.
    """
    if name not in remotes:
        known = ", ".join(remotes)
        drawn = "is drawn, not downloaded" if name in SETS else "is not a data set"
        raise ValueError(f"`name`={name!r} {drawn}. Use one of {known}.")
    _pooch()  # if it is missing, say so before a folder is made
    folder = Path(folder)
    for remote in remotes[name]:
        if (folder / remote.file).exists():
            return _verified(remote, folder)
    problems, wrong = [], False
    # In the data folder, so that a finished file is moved on one disk; deleted in any case.
    with _scratch(folder) as place:
        for remote in remotes[name]:
            try:
                _fetch(remote, Path(place), progress)
                remote.verify(Path(place))
            except (OSError, ValueError) as error:
                wrong = wrong or isinstance(error, ValueError)
                problems.append(f"{remote.url}: {error}")
            else:
                os.replace(Path(place) / remote.file, folder / remote.file)
                return folder / remote.file
    raise (ValueError if wrong else ConnectionError)(
        f"{TITLES.get(name, name)} could not be downloaded ({'; '.join(problems)}). Nothing was "
        f"kept. Try again later, or put the file into {folder} by hand."
    )


def _verified(remote: Remote, folder: Path) -> Path:
    path = folder / remote.file
    try:
        remote.verify(folder)
    except ValueError as error:
        raise ValueError(
            f"{path} exists, but is not the published file: {error}. It was not changed. Move it "
            "away and download again."
        ) from error
    return path


def _scratch(folder: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=".download-", dir=folder)
    except OSError as error:
        raise type(error)(
            f"The folder {str(folder)!r} cannot be written to: {error.strerror}. Use another one."
        ) from error


def _fetch(remote: Remote, folder: Path, progress: Any) -> None:
    # A transfer that the server compresses would be decompressed here, and change the checksum.
    fetch = _pooch().HTTPDownloader(
        progressbar=progress or False,
        chunk_size=2**16,
        timeout=TIMEOUT,
        headers={"Accept-Encoding": "identity"},
    )
    fetch(remote.url, str(folder / remote.file), None)


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            "Downloading needs pooch. Install it with `pip install 'primedpca[data]'`."
        ) from error
    return pooch
