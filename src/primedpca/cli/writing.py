"""Where commands may write.

The rule: a file that is there is replaced only with ``--force``, the data never; whether all can
be written is looked at before anything is read.
"""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["check_checkpoint", "check_output", "check_outputs"]


def check_outputs(named: Mapping[str, Path | None], force: bool, *inputs: str | Path) -> None:
    """Refuse files that :func:`check_output` refuses, and one that is named twice."""
    taken: dict[str, str] = {}
    for option, path in named.items():
        if path is None:
            continue
        check_output(path, option, force, *inputs)
        real = os.path.realpath(path)
        if real in taken:
            raise ValueError(f"`{taken[real]}` and `{option}` are both {path}; name two files.")
        taken[real] = option


def check_output(path: Path, option: str, force: bool, *inputs: str | Path) -> None:
    """Refuse a file that cannot be written, is there already, or belongs to the inputs."""
    if path.is_dir():
        raise IsADirectoryError(f"`{option}` {path} is a folder; name a file.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"`{option}` {path}: {path.parent} is no folder; make it first.")
    for given in inputs:
        _check_outside(path, option, given)
        for part in _files_of(given):
            if path.exists() and part.exists() and os.path.samefile(path, part):
                raise FileExistsError(f"`{option}` {path} is what is read; name another file.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} is there already; name another file, or add `--force`.")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise OSError(f"`{option}` {path} cannot be written: {error.strerror}.") from error


def check_checkpoint(folder: Path | None, data: str) -> None:
    """Refuse a folder for checkpoints among the data; whether it can be used is seen later."""
    if folder is not None:
        _check_outside(folder, "--checkpoint", data)


def _check_outside(path: Path, option: str, given: str | Path) -> None:
    """Refuse what would lie in a folder or store that is read, or is one."""
    # The file may be a link into it, or lie in it as a link to elsewhere.
    places = (os.path.realpath(path), os.path.join(os.path.realpath(path.parent), path.name))
    for part in _files_of(given):
        whole = os.path.realpath(part)
        if part.is_dir() and any(Path(place).is_relative_to(whole) for place in places):
            raise ValueError(
                f"`{option}` {path} lies in {part}, which is read; name another place."
            )


def _files_of(given: str | Path) -> list[Path]:
    """What is read of DATA: a file or folder, all that fit a pattern, files that go together."""
    from primedpca.sources.files.common import split_part
    from primedpca.sources.files.plink import is_plink

    name = split_part(given)[0]
    if glob.has_magic(name) and not os.path.exists(name):
        return [Path(found) for found in glob.glob(name)]
    ends = (".bim", ".fam") if is_plink(name) else ()
    return [Path(name), *(Path(name).with_suffix(end) for end in ends)]
