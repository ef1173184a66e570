"""Regular files only: a pipe or a device in the place of a file would block or never end."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, BinaryIO, cast

__all__ = ["check_regular", "open_regular"]


def check_regular(path: Any) -> None:
    """Raise ``OSError`` unless ``path`` is a regular file that can be opened.

    Parameters
    ----------
    path : str or path
        Symbolic links are followed.
    """
    open_regular(path).close()


def open_regular(path: Any, mode: str = "rb") -> BinaryIO:
    """Open a regular file and refuse anything else, checked on what was opened.

    Parameters
    ----------
    path : str or path
        Symbolic links are followed.
    mode : str, default="rb"
        A binary mode for reading.

    Returns
    -------
    binary file
    """
    name = os.fspath(path)
    # Without O_NONBLOCK, opening a pipe waits for a writer. Regular files ignore it.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        opened = os.open(name, flags | getattr(os, "O_BINARY", 0))
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP):  # sockets, absent devices
            raise OSError(_message(name)) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(_message(name))
        return cast(BinaryIO, os.fdopen(opened, mode))
    except BaseException:
        os.close(opened)
        raise


def _message(name: Any) -> str:
    return f"{name} is not a regular file but a folder, pipe, socket or device; name a file."
