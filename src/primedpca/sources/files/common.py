"""Shared parts of sources on disk: checks that a file is unchanged, and errors that name it."""

from __future__ import annotations

import gzip
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

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
    "reading",
    "split_part",
    "stamp_of",
    "unpacked",
    "whole_lines",
]

LINE_BYTES = 2**26  # of a text file: a line without an end would fill the memory
PLAUSIBLE_BYTES = 2**26
#: No codec makes less than this of anything but a constant, and constants are left out.
PLAUSIBLE_RATIO = 2**14


class Stamp(NamedTuple):
    """What tells a file from another, or from itself after it was written to."""

    size: int
    modified: int
    changed: int  # by the system's own clock: a date of writing can be set back, this one not
    inode: int
    device: int

    def check(self, now: Stamp, path: str, where: str) -> None:
        """Refuse a file that is not what it was when it was opened."""
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
            what = "was changed, in its contents, rights or names,"
        raise OSError(f"{path} {what} since it was opened (seen at {where}); open it again.")


def stamp_of(path: str | int, what: str | None = None) -> Stamp:
    """The stamp of a file, by path or by descriptor; of a folder, who it is and no more."""
    name = what or path
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{name} is not there.") from None
    except PermissionError as error:
        raise PermissionError(f"{name} cannot be read: {error.strerror}.") from error
    if stat.S_ISDIR(found.st_mode):
        return Stamp(0, 0, 0, found.st_ino, found.st_dev)
    if not stat.S_ISREG(found.st_mode) and isinstance(path, str):
        check_regular(path)
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)


class FileSource(BlockSource):
    """A source in one file, which must stay what it was when it was opened.

    Attributes
    ----------
    path : str
    on_disk : bool
        Blocks are read from a disk every time.
    """

    path: str
    on_disk = True
    _stamp: Stamp | None = None

    def _check_same(self, where: str) -> None:
        """Refuse a file that was replaced, written to, truncated or deleted: one ``stat``."""
        if self._stamp is not None:
            self._stamp.check(stamp_of(self.path), self.path, where)

    def _place(self, i: int) -> str:
        """Block ``i`` in words, for an error message."""
        start, stop = self.blocks[i]
        return f"block {i}, {('rows', 'columns')[self.axis]} {start}:{stop}"

    def __repr__(self) -> str:
        n, d = self.shape
        return f"{type(self).__name__}({self.path!r}, {n} x {d}, {self.dtype})"


def need(library: str, what: str) -> Any:
    """An optional library, or an error that names the extra it comes with."""
    from importlib import import_module

    try:
        return import_module(library)
    except ImportError as error:
        raise ImportError(
            f"Reading {what} needs {library.split('.')[0]}: pip install 'primedpca[disk]'."
        ) from error


@contextmanager
def reading(path: str, where: str) -> Iterator[None]:
    """Whatever a library raises on damaged files becomes an error that names file and place."""
    try:
        yield
    except (FileNotFoundError, PermissionError, ImportError):
        raise
    except Exception as error:
        if type(error) is MemoryError:  # Arrow's own is for lengths that a damaged file declares
            raise
        if path in str(error):
            raise
        if isinstance(error, InexactError):
            raise ValueError(f"{path}: {error}") from error
        kind = OSError if isinstance(error, OSError) else ValueError
        raise kind(f"{path} is damaged or cannot be read ({where}): {error}") from error


@contextmanager
def unpacked(path: str) -> Iterator[Any]:
    """A regular file to read bytes from, unpacked on the way if its name ends with ``.gz``."""
    with open_regular(path) as file:
        if not path.lower().endswith(".gz"):
            yield file
            return
        with gzip.GzipFile(fileobj=file) as stream:
            yield stream


@contextmanager
def opened_archive(path: str) -> Iterator[zipfile.ZipFile]:
    """The ZIP archive in a regular file."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        yield archive


def whole_lines(
    file: Any, path: str, size: int | None = None, most: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Pieces of whole lines, each with the byte at which it begins.

    About ``size`` bytes are read at a time; a line of more than ``most`` is refused.
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
                "text, or its lines do not end."
            )
    if length:
        yield begin, b"".join(held)


def check_matrix(path: str, shape: tuple[int, ...], dtype: Any) -> tuple[int, int]:
    """Refuse what has not two dimensions of real numbers; the shape as whole numbers."""
    if len(shape) != 2:
        raise ValueError(
            f"{path} holds an array of shape {tuple(shape)}; two dimensions, (n_samples, "
            "n_features), are needed."
        )
    try:
        work_dtype(dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None
    if min(shape) < 0:
        raise ValueError(f"{path} says that its shape is {tuple(shape)}: it must not be negative.")
    if 0 in shape:
        raise ValueError(
            f"{path} is empty: its shape is {tuple(shape)}, a minimum of 1 is required."
        )
    return int(shape[0]), int(shape[1])


def check_plausible(path: str, shape: tuple[int, int], itemsize: int, true_size: int) -> None:
    """Refuse a header that promises far more than the file can hold, however compressed."""
    promised = shape[0] * shape[1] * itemsize
    if promised > max(PLAUSIBLE_BYTES, PLAUSIBLE_RATIO * true_size):
        raise ValueError(
            f"{path} says that it holds {shape[0]} x {shape[1]} numbers, {promised} bytes, but "
            f"only {true_size} bytes are stored: its header is wrong or most of it is missing."
        )


def split_part(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """``"file.h5::group/name"`` as path and part; a path that is there is never split.

    Both may have ``::`` in their names: the longest path that is there counts.
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
