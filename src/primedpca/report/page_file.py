"""Where a page may be written, and writing it whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from primedpca.report.inputs import data_paths

__all__ = ["check_page_path", "write_page"]

BEGINNING = b"<!doctype html"


def check_page_path(path: str | os.PathLike[str], data: Any = None) -> Path:
    """``path`` as that of a page that can be written; refuses before anything is worked out.

    Parameters
    ----------
    path : path
        An HTML page that is there is replaced.  Anything else that is there is left alone.
    data : data, optional
        What the page is about; no file of it is written to.

    Returns
    -------
    Path
    """
    page = Path(path)
    folder = page.parent
    if page.is_dir():
        raise IsADirectoryError(f"{page} is a folder; name the page in it, as {page / 'page.html'}")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder, so {page.name} cannot be written there.")
    for part in data_paths(data):
        if page.exists() and part.exists() and os.path.samefile(page, part):
            raise FileExistsError(f"{page} holds the data; name another file for the page.")
    if (page.exists() or page.is_symlink()) and not _is_page(page):
        raise FileExistsError(f"{page} is there already and no HTML page; name another file.")
    if page.suffix.lower() not in (".html", ".htm"):  # no browser would open it as one
        raise ValueError(f"{page} is to be an HTML page; name it {page.stem}.html.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written to, so {page.name} cannot be made.")
    return page


def write_page(page: Path, html: str) -> None:
    """Put ``html`` where ``page`` is, in one step; a link stays one and leads to the page."""
    target = Path(os.path.realpath(page))
    draft = target.parent / f".{target.name}.{secrets.token_hex(6)}"
    try:
        with open(draft, "x", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(html)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise type(error)(f"{page} could not be written: {error}") from error
        raise


def _is_page(path: Path) -> bool:
    """Whether what is there is an HTML page, or empty; a pipe or a device is not looked into."""
    if not path.is_file():
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(len(BEGINNING))
    except OSError as error:
        raise PermissionError(f"{path} is there already and cannot be read: {error}") from error
    return head.lower() == BEGINNING or not head
