"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_write", "rename_new"]


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the same folder; rename it to ``path`` when the block ends.

    The temporary file exists and is empty; write to it under its own name.  If the block raises,
    the temporary file is deleted and ``path`` is unchanged.  The contents are flushed to the disk
    before the file is renamed, so that a crash or a loss of power leaves the old file or the new
    one.

    Parameters
    ----------
    path : path
        The file to write.  A symbolic link is replaced, not followed.
    overwrite : bool, default=False
        Whether to replace an existing file.  If False, an existing file raises FileExistsError,
        also if it appears while the block runs.

    Yields
    ------
    Path
        Path with a hidden name: ``.NAME.`` and 12 random characters.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with atomic_write(path) as draft:
    ...     _ = draft.write_text("whole")
    >>> path.read_text()
    'whole'
    """
    target = Path(path)
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(f"{target} already exists. Choose another name.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Folder not found: {target.parent}. Create it first.")
    # In the same folder, because a rename is atomic only within one file system.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        with open(draft, "xb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
        yield draft
        draft.chmod(mode)  # some writers (safetensors) make the file private to its owner
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        if overwrite:
            os.replace(draft, target)
        else:
            rename_new(draft, target)
    except FileExistsError:
        raise
    except OSError as error:
        kind = type(error) if type(error).__module__ == "builtins" else OSError
        raise kind(f"{target} could not be written: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(target.parent)


def rename_new(draft: Path, target: Path) -> None:
    """Rename without replacing: unlike a rename, a link fails if the name is taken."""
    try:
        os.link(draft, target)
    except OSError:
        # A file system without hard links: a file that appears after this check is replaced.
        if os.path.lexists(target):
            raise FileExistsError(f"{target} already exists. Choose another name.") from None
        os.rename(draft, target)


def _sync_folder(folder: Path) -> None:
    """Flush the folder, so that the new name survives a loss of power."""
    if os.name != "posix":  # Windows cannot open folders
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot flush a folder
            os.fsync(handle)
    finally:
        os.close(handle)
