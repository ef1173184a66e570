"""Checks that a path is a regular file: a pipe, socket or device could block a reader for ever."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, BinaryIO

__all__ = ["check_regular", "open_regular"]

#: Without O_NONBLOCK, opening a FIFO waits for a writer; Windows has neither of the first two.
FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
#: Test of a mode, and the name of such a file.
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a path that is not a readable regular file.

    For libraries that open paths themselves; the package opens files by :func:`open_regular`.
    """
    os.close(_opened(os.fspath(path)))


def open_regular(path: str | os.PathLike[str], mode: str = "rb") -> BinaryIO:
    """Open a regular file to read, checked after opening so that it cannot be swapped between."""
    handle = _opened(os.fspath(path))
    try:
        if hasattr(os, "set_blocking"):  # not on Windows before Python 3.12
            os.set_blocking(handle, True)
        opened: Any = os.fdopen(handle, mode)
    except BaseException:
        os.close(handle)
        raise
    file: BinaryIO = opened
    return file


def _opened(path: str) -> int:
    """Descriptor of a regular file."""
    try:
        # Before opening, too: opening a device may have effects, such as rewinding a tape.
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
    """The same error with a message that names the path and a remedy."""
    if error.errno is None:  # raised by _check_mode
        return error
    if isinstance(error, FileNotFoundError):
        if os.path.islink(path):
            return FileNotFoundError(
                f"{path} is a symbolic link to {os.readlink(path)}, which does not exist; restore "
                "the file or correct the link."
            )
        return FileNotFoundError(f"File not found: {path}. Check the path.")
    if isinstance(error, PermissionError):
        return PermissionError(
            f"{path} cannot be read: {error.strerror}. Ask its owner for permission."
        )
    if error.errno == errno.ELOOP:
        return OSError(f"{path} is a symbolic link to itself; correct the link.")
    return OSError(f"{path} cannot be opened: {error.strerror}.")
