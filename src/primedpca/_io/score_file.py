"""Files of scores: ``.npy`` written block by block, and CSV, TSV and Parquet tables."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.arrays import to_numpy
from primedpca._core.atomic_files import atomic_write
from primedpca._operator.operator import Centred
from primedpca.engines import LocalEngine
from primedpca.protocols import Array
from primedpca.sources.base import OneBlock
from primedpca.sources.files.common import need
from primedpca.sources.files.table_columns import reads_as_number

#: Formats of score files; all but the first are tables.
FORMATS = (".npy", ".csv", ".tsv", ".parquet")
ROWS = 65536  # rows written at a time
#: Spreadsheets run text that begins with one of these as a formula.
FORMULAS = tuple("=@+-\t\r\n\uff1d\uff20\uff0b\uff0d")


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
    # Not a memory map: on a full disk a write raises, but a map kills the process.
    with atomic_write(path) as draft, open(draft, "wb") as file:
        header = {"descr": kind.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for scores in _in_blocks(data, vectors):
            data.check_finite(scores)
            file.write(np.ascontiguousarray(to_numpy(scores)).data)
    # A file without entries cannot be mapped.
    whole: np.ndarray = np.load(path, mmap_mode="r" if 0 not in shape else None)
    return whole


def _in_blocks(data: Centred, vectors: Array) -> Iterator[Any]:
    source = data.source
    if source.axis == 1:
        yield data.forward(vectors)
        return
    for i, block in source.scan():
        rows = np.arange(*source.blocks[i])
        yield data.part(OneBlock(block), rows, LocalEngine(1)).forward(vectors)


def write_table(
    path: Path, scores: np.ndarray, names: list[str], before: dict[str, np.ndarray] | None = None
) -> None:
    """Write scores as a table, completely or not at all.

    Parameters
    ----------
    path : Path
        File to write; its suffix chooses the format, ``.csv``, ``.tsv`` or ``.parquet``.  An
        existing file is replaced.
    scores : ndarray of shape (n, k)
        Scores; may be a memory map, of which 65,536 rows are read at a time.
    names : list of k str
        Names of the score columns.
    before : dict of ndarray of shape (n,) or None, default=None
        Columns to the left of the scores, by name.  In text files, an apostrophe is put before
        text that a spreadsheet would run as a formula.
    """
    write = _parquet if path.suffix == ".parquet" else _text
    try:
        with atomic_write(path, overwrite=True) as draft:
            write(draft, path.suffix, scores, names, before or {})
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Scores could not be written to {path}: {error.object[:40]!r} is not valid text (it "
            "has an unpaired surrogate). Rename it."
        ) from error


def _slabs(n: int) -> Iterator[slice]:
    return (slice(start, start + ROWS) for start in range(0, max(n, 1), ROWS))


def _text(draft: Path, suffix: str, scores: Any, names: list[str], before: Any) -> None:
    # The fewest digits with which reading the text always gives the same float again.
    digits = "%.9g" if scores.dtype == np.float32 else "%.17g"
    with open(draft, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
        writer.writerow(map(_inert, [*before, *names]))
        for rows in _slabs(scores.shape[0]):
            texts = [map(_inert, values[rows].tolist()) for values in before.values()]
            for row, *own in zip(scores[rows].tolist(), *texts, strict=True):
                writer.writerow([*own, *(digits % value for value in row)])


def _inert(value: Any) -> Any:
    """Return the value with an apostrophe if a spreadsheet would run it as a formula."""
    if not isinstance(value, str) or not value.startswith(FORMULAS):
        return value
    return value if value[0] in "+-" and reads_as_number(value) else f"'{value}"


def _parquet(draft: Path, suffix: str, scores: Any, names: list[str], before: Any) -> None:
    arrow, parquet = need("pyarrow", "Parquet"), need("pyarrow.parquet", "Parquet")
    writer: Any = None
    for rows in _slabs(scores.shape[0]):
        columns = [arrow.array(values[rows]) for values in before.values()]
        block = np.asarray(scores[rows])
        columns += [arrow.array(np.ascontiguousarray(block[:, j])) for j in range(len(names))]
        table = arrow.table(columns, names=[*before, *names])
        writer = writer or parquet.ParquetWriter(draft, table.schema)
        writer.write_table(table)
    writer.close()
