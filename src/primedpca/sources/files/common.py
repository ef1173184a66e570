"""Shared parts of sources on disk: checks that a file is unchanged, and errors that name it."""

from __future__ import annotations

import gzip
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from primedpca._core.arrays import InexactError, work_dtype
from primedpca.sources import base
from primedpca.sources.base import BlockSource
from primedpca.sources.files.regular_files import check_regular, open_regular

__all__ = [
    "FileSource",
    "Stamp",
    "check_matrix",
    "check_plausible",
    "need",
    "opened_archive",
    "read_into",
    "reading",
    "split_part",
    "stamp_of",
    "unpacked",
    "whole_lines",
]

LINE_BYTES = 2**26  # of a text file: a line without an end would fill the memory
PLAUSIBLE_BYTES = 2**26
#: No codec shrinks anything but constants further, and stores leave constants out.
PLAUSIBLE_RATIO = 2**14


class Stamp(NamedTuple):
    """Facts that change when a file is replaced or written to."""

    size: int
    modified: int
    changed: int  # ctime, which unlike the date of writing cannot be set back
    inode: int
    device: int

    def check(self, now: Stamp, path: str, where: str) -> None:
        """Refuse a file that has changed since it was opened."""
        if now == self:
            return
        if (now.inode, now.device) != (self.inode, self.device):
            what = "was replaced by another file"
        elif now.size < self.size:
            what = f"was truncated from {self.size} to {now.size} bytes"
        elif now.size > self.size:
            what = f"has grown from {self.size} to {now.size} bytes"
        elif now.modified != self.modified:
            what = "was written to"
        else:
            what = "was changed (contents, permissions or name)"
        raise OSError(f"{path} {what} since it was opened (seen at {where}); open it again.")


def stamp_of(path: str | int, what: str | None = None) -> Stamp:
    """Stamp of a file, by path or descriptor; of a folder, its identity only."""
    name = what or path
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"File not found: {name}.") from None
    except PermissionError as error:
        raise PermissionError(f"{name} cannot be read: {error.strerror}.") from error
    if stat.S_ISDIR(found.st_mode):
        return Stamp(0, 0, 0, found.st_ino, found.st_dev)
    if not stat.S_ISREG(found.st_mode) and isinstance(path, str):
        check_regular(path)
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)


class FileSource(BlockSource):
    """A source in one file, which must not change after it was opened."""

    path: str
    on_disk = True
    library: str | None = "numpy"
    _stamp: Stamp | None = None

    def _check_same(self, where: str) -> None:
        """Refuse a file that was replaced, written to, truncated or deleted; it costs a stat."""
        if self._stamp is not None:
            self._stamp.check(stamp_of(self.path), self.path, where)

    def _place(self, i: int) -> str:
        """Description of block ``i`` for an error message."""
        start, stop = self.blocks[i]
        return f"block {i}, {('rows', 'columns')[self.axis]} {start}:{stop}"

    def __repr__(self) -> str:
        n, d = self.shape
        return f"{type(self).__name__}({self.path!r}, {n} x {d}, {self.dtype})"


def need(library: str, what: str) -> Any:
    """Import an optional library, or raise an error that names the extra to install."""
    from importlib import import_module

    try:
        return import_module(library)
    except ImportError as error:
        raise ImportError(
            f"Reading {what} needs {library.split('.')[0]}: pip install 'primedpca[disk]'."
        ) from error


@contextmanager
def reading(path: str, where: str) -> Iterator[None]:
    """Turn errors of libraries on damaged files into errors that name the file and the place."""
    try:
        yield
    except (FileNotFoundError, PermissionError, ImportError):
        raise
    except Exception as error:
        if type(error) is MemoryError:  # Arrow's subclass is for lengths in damaged files
            raise
        if path in str(error):
            raise
        if isinstance(error, InexactError):
            raise ValueError(f"{path}: {error}") from error
        kind = OSError if isinstance(error, OSError) else ValueError
        raise kind(f"{path} is damaged or cannot be read ({where}): {error}") from error


@contextmanager
def unpacked(path: str) -> Iterator[Any]:
    """Open a regular file to read bytes, decompressed if its name ends with ``.gz``."""
    with open_regular(path) as file:
        if not path.lower().endswith(".gz"):
            yield file
            return
        with gzip.GzipFile(fileobj=file) as stream:
            yield stream


@contextmanager
def opened_archive(path: str) -> Iterator[zipfile.ZipFile]:
    """Open the ZIP archive in a regular file."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        yield archive


def whole_lines(
    file: Any, path: str, size: int | None = None, most: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of whole lines, each with the byte at which it begins.

    About ``size`` bytes are read at a time; a line of more than ``most`` bytes is refused.
    """
    size, most = size or base.READ_BYTES, most or LINE_BYTES
    begin, held, length = 0, [b""], 0
    while piece := file.read(size):
        end = piece.rfind(b"\n") + 1
        if end:
            yield begin, b"".join([*held, piece[:end]])
            begin, held, length = begin + length + end, [piece[end:]], len(piece) - end
        else:
            held.append(piece)
            length += len(piece)
        if length > most:
            raise ValueError(
                f"{path} has a line of more than {most} bytes, from byte {begin} on; it is not "
                "text, or its line ends are missing."
            )
    if length:
        yield begin, b"".join(held)


def read_into(file: Any, held: np.ndarray) -> int:
    """Fill ``held`` from ``file``; return the number of bytes that there were."""
    view, got = held.data, 0
    while got < len(view):  # one read may return fewer bytes; of a ZIP member it makes a copy
        count = file.readinto(view[got : got + 2**20])
        if not count:
            break
        got += count
    return got


def check_matrix(path: str, shape: tuple[int, ...], dtype: Any) -> tuple[int, int]:
    """Return the shape as whole numbers; refuse all but two dimensions of real numbers."""
    if len(shape) != 2:
        raise ValueError(
            f"{path} holds an array of shape {tuple(shape)}; it must have two dimensions, "
            "(n_samples, n_features)."
        )
    try:
        work_dtype(dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None
    if min(shape) < 0:
        raise ValueError(f"{path} declares shape {tuple(shape)}, which must not be negative.")
    if 0 in shape:
        raise ValueError(
            f"{path} is empty: its shape is {tuple(shape)}, a minimum of 1 is required."
        )
    return int(shape[0]), int(shape[1])


def check_plausible(path: str, shape: tuple[int, int], itemsize: int, true_size: int) -> None:
    """Refuse a header that declares far more than the file can hold, however compressed."""
    promised = shape[0] * shape[1] * itemsize
    if promised > max(PLAUSIBLE_BYTES, PLAUSIBLE_RATIO * true_size):
        raise ValueError(
            f"{path} declares {shape[0]} x {shape[1]} numbers, {promised} bytes, but only "
            f"{true_size} bytes are stored: its header is wrong or most of it is missing."
        )


def split_part(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """Split ``"file.h5::group/name"`` into path and part; an existing path is never split.

    Both may have ``::`` in their names: the longest existing path counts.
    """
    text = os.fspath(path)
    if "::" not in text or os.path.exists(text):
        return text, None
    pieces = text.split("::")
    for count in range(len(pieces) - 1, 0, -1):
        name = "::".join(pieces[:count])
        if os.path.exists(name):
            return name, "::".join(pieces[count:])
    name, part = text.rsplit("::", 1)
    return name, part
