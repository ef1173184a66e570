"""Regular files only: a pipe, socket or device could keep a reader waiting for ever."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, BinaryIO

__all__ = ["check_regular", "open_regular"]

#: Opening a FIFO to read waits for a writer, unless told not to; Windows knows neither flag.
FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
#: Test of a mode -> what such a file is called.
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a path that does not lead to a regular file that can be read.

    For libraries that open a path themselves; a file read here is opened by
    :func:`open_regular`.
    """
    os.close(_opened(os.fspath(path)))


def open_regular(path: str | os.PathLike[str], mode: str = "rb") -> BinaryIO:
    """Open a regular file to read, checked after opening: nothing can take its place between."""
    handle = _opened(os.fspath(path))
    try:
        if hasattr(os, "set_blocking"):  # not on Windows before Python 3.12
            os.set_blocking(handle, True)
        file: Any = os.fdopen(handle, mode)
    except BaseException:
        os.close(handle)
        raise
    return file  # type: ignore[no-any-return]


def _opened(path: str) -> int:
    """A descriptor of a regular file."""
    try:
        # Before opening, too: to open a device may do something, such as rewind a tape.
        _check_mode(path, os.stat(path).st_mode)
        handle = os.open(path, FLAGS)
    except OSError as error:
        raise _told(path, error) from None
    try:
        _check_mode(path, os.fstat(handle).st_mode)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_mode(path: str, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    found = next((name for test, name in KINDS if test(mode)), "something else")
    kind = IsADirectoryError if stat.S_ISDIR(mode) else OSError
    remedy = "name a file in it" if stat.S_ISDIR(mode) else "save its contents to a file first"
    raise kind(f"{path} is not a regular file but {found}; {remedy}.")


def _told(path: str, error: OSError) -> OSError:
    """The same error in words that name the path and a remedy."""
    if error.errno is None:  # in our words already
        return error
    if isinstance(error, FileNotFoundError):
        if os.path.islink(path):
            return FileNotFoundError(
                f"{path} is a symbolic link to {os.readlink(path)}, which is not there; restore "
                "the file or correct the link."
            )
        return FileNotFoundError(f"{path} is not there; check the path.")
    if isinstance(error, PermissionError):
        return PermissionError(
            f"{path} cannot be read: {error.strerror}; ask its owner for the right to read it."
        )
    if error.errno == errno.ELOOP:
        return OSError(f"{path} is a symbolic link that leads back to itself; correct the link.")
    return OSError(f"{path} cannot be opened: {error.strerror}.")
