"""Checks of the files that commands write, made before anything is read.

An existing file is replaced only with ``--force``; the data and the model read are never replaced.
"""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["check_checkpoint", "check_output", "check_outputs"]


def check_outputs(named: Mapping[str, Path | None], force: bool, *inputs: str | Path) -> None:
    """Check every output with :func:`check_output`, and that no two are the same file."""
    taken: dict[str, str] = {}
    for option, path in named.items():
        if path is None:
            continue
        check_output(path, option, force, *inputs)
        real = os.path.realpath(path)  # two names may be links to one file
        if real in taken:
            raise ValueError(f"`{taken[real]}` and `{option}` are both {path}. Name two files.")
        taken[real] = option


def check_output(path: Path, option: str, force: bool, *inputs: str | Path) -> None:
    """Check that a file can be written, does not exist unless ``force``, and is not an input."""
    if path.is_dir():
        raise IsADirectoryError(f"`{option}` {path} is a folder. Name a file.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"`{option}` {path}: folder not found. Create {path.parent} first.")
    for given in inputs:
        _check_outside(path, option, given)
        for part in _files_of(given):
            if path.exists() and part.exists() and os.path.samefile(path, part):
                raise FileExistsError(f"`{option}` {path} is an input. Name another file.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} already exists. Name another file, or add `--force`.")
    # Permissions do not tell everything (a read-only file system, a full disk): try it.
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise OSError(f"`{option}` {path} cannot be written: {error.strerror}.") from error


def check_checkpoint(folder: Path | None, data: str) -> None:
    """Check that checkpoints do not lie among the data; the fit checks the folder itself."""
    if folder is not None:
        _check_outside(folder, "--checkpoint", data)


def _check_outside(path: Path, option: str, given: str | Path) -> None:
    """Check that a path is not, and is not inside, a folder or store that is read."""
    # The path may be a link into the folder, or lie in the folder as a link to elsewhere.
    places = (os.path.realpath(path), os.path.join(os.path.realpath(path.parent), path.name))
    for part in _files_of(given):
        whole = os.path.realpath(part)
        if part.is_dir() and any(Path(place).is_relative_to(whole) for place in places):
            raise ValueError(f"`{option}` {path} is inside {part}, an input. Name another place.")


def _files_of(given: str | Path) -> list[Path]:
    """Return the files of DATA: a file or folder, those of a pattern, or a set of files."""
    from primedpca.sources.files.common import split_part

    name = split_part(given)[0]
    if glob.has_magic(name) and not os.path.exists(name):
        return [Path(found) for found in glob.glob(name)]
    # A PLINK .bed file is useless without its two tables, so they are inputs as well.
    ends = (".bim", ".fam") if name.lower().endswith(".bed") else ()
    return [Path(name), *(Path(name).with_suffix(end) for end in ends)]
