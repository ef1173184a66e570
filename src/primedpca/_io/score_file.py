"""Scores of more rows than fit into memory, written to a ``.npy`` file block by block."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._operator.operator import Centred
from primedpca.engines import LocalEngine
from primedpca.protocols import Array
from primedpca.sources.base import OneBlock

__all__ = ["check_path", "write_scores_file"]


def check_path(out: str | os.PathLike[str]) -> Path:
    """Return ``out`` as a path, after checking that a new ``.npy`` file can be created there."""
    path = Path(out)
    if path.suffix != ".npy":
        raise ValueError(
            f"`out`={os.fspath(out)!r} must end in .npy, the format of scores. Rename it, or pass "
            "an array to write into."
        )
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} already exists. Choose another name for `out`.")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"Folder not found: {path.parent}. Create it, or choose another `out`."
        )
    return path


def write_scores_file(path: Path, data: Centred, vectors: Array) -> np.ndarray:
    """Write the scores ``M V`` to a ``.npy`` file in one pass, completely or not at all.

    Parameters
    ----------
    path : Path
        A path that :func:`check_path` has accepted.
    data : Centred
        Data whose mean is known.  Data read in rows need memory for the scores of one block,
        data read in columns for all scores.
    vectors : array of shape (d, k)
        Components as columns.

    Returns
    -------
    ndarray of shape (n, k)
        The file as a read-only memory map.
    """
    shape = (data.shape[0], int(vectors.shape[1]))
    kind = to_numpy(data.narrow(vectors[:0])).dtype
    draft = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    try:
        # Not a memory map: on a full disk a write raises, but a map kills the process.
        with open(draft, "xb") as file:
            header = {"descr": kind.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for scores in _in_blocks(data, vectors):
                data.check_finite(scores)
                file.write(np.ascontiguousarray(to_numpy(scores)).data)
            file.flush()
            os.fsync(file.fileno())
        _publish(draft, path)
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise
        raise OSError(f"Scores could not be written to {path}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    # A file without entries cannot be mapped.
    whole: np.ndarray = np.load(path, mmap_mode="r" if 0 not in shape else None)
    return whole


def _publish(draft: Path, path: Path) -> None:
    """Rename the finished file, unless the name was taken in the meantime."""
    try:
        os.link(draft, path)  # fails if the name is taken, where a rename would replace the file
    except FileExistsError:
        raise FileExistsError(f"{path} already exists. Choose another name for `out`.") from None
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(f"{path} already exists. Choose another `out`.") from None
        os.rename(draft, path)


def _in_blocks(data: Centred, vectors: Array) -> Iterator[Any]:
    source = data.source
    if source.axis == 1:
        yield data.forward(vectors)
        return
    for i, block in source.scan():
        rows = np.arange(*source.blocks[i])
        yield data.part(OneBlock(block), rows, LocalEngine(1)).forward(vectors)
