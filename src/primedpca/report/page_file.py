"""Checks of the path of a report page, and writing the page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from primedpca._core.atomic_files import atomic_write
from primedpca.report.inputs import data_paths

__all__ = ["check_page_path", "write_page"]

BEGINNING = b"<!doctype html"


def check_page_path(path: str | os.PathLike[str], data: Any = None) -> Path:
    """Check that a page can be written to ``path``, before anything is computed.

    Parameters
    ----------
    path : path
        An existing HTML page may be replaced; any other existing file is an error.
    data : data, optional
        The data of the report.  None of their files may be the page.

    Returns
    -------
    Path
    """
    page = Path(path)
    folder = page.parent
    if page.is_dir():
        raise IsADirectoryError(f"{page} is a folder. Name a file in it: {page / 'page.html'}")
    if not folder.is_dir():
        raise FileNotFoundError(f"Folder not found: {folder}. Create it, then write {page.name}.")
    for part in data_paths(data):
        if page.exists() and part.exists() and os.path.samefile(page, part):
            raise FileExistsError(f"{page} holds the data. Name another file for the page.")
    if (page.exists() or page.is_symlink()) and not _is_page(page):
        raise FileExistsError(f"{page} exists and is not an HTML page. Name another file.")
    if page.suffix.lower() not in (".html", ".htm"):  # a browser would not show it as a page
        raise ValueError(f"{page} must end in .html. Name it {page.stem}.html.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"No permission to write {page.name} to {folder}.")
    return page


def write_page(page: Path, html: str) -> None:
    """Write ``html`` to ``page`` in one step; a symbolic link is followed and stays a link."""
    # ``atomic_write`` replaces links, so resolve the link first.
    with atomic_write(os.path.realpath(page), overwrite=True) as draft:
        text = html.encode("utf-8", errors="backslashreplace")  # names may hold lone surrogates
        draft.write_bytes(text)


def _is_page(path: Path) -> bool:
    """Whether a file is an HTML page or empty; pipes and devices are not opened."""
    if not path.is_file():
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(len(BEGINNING))
    except OSError as error:
        raise PermissionError(f"{path} exists and cannot be read: {error}") from error
    return head.lower() == BEGINNING or not head
