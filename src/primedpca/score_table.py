"""Scores as a table for other programs: CSV or Parquet, with the names of rows and classes."""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.sources.files import need

__all__ = ["FORMATS", "write_table"]

#: Of files of scores; the first is no table, and :mod:`primedpca.score_file` writes it.
FORMATS = (".npy", ".csv", ".tsv", ".parquet")
ROWS = 65536  # at a time


def write_table(
    path: Path,
    scores: np.ndarray,
    names: list[str],
    before: dict[str, np.ndarray] | None = None,
) -> None:
    """Write ``scores`` ``(n, k)`` as a table that is there whole or not at all.

    Parameters
    ----------
    path : Path
        Its suffix says the format, ``.csv``, ``.tsv`` or ``.parquet``.  What stands there is
        replaced.
    scores : ndarray of shape (n, k)
        May be a memory map: a few rows are held at a time.
    names : list of k str
        Of the columns.
    before : dict of ndarray of shape (n,), optional
        Columns to the left of them, by name.
    """
    before = before or {}
    draft = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    write = _parquet if path.suffix == ".parquet" else _text
    try:
        write(draft, path.suffix, scores, names, before)
        os.replace(draft, path)
    except OSError as error:
        raise OSError(f"the scores could not be written to {path}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _slabs(n: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS))


def _text(draft: Path, suffix: str, scores: Any, names: list[str], before: Any) -> None:
    # As many digits as give the same number back.
    digits = "%.9g" if scores.dtype == np.float32 else "%.17g"
    with open(draft, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
        writer.writerow([*before, *names])
        for rows in _slabs(scores.shape[0]):
            left = zip(*(values[rows].tolist() for values in before.values()), strict=True)
            texts = ([digits % value for value in row] for row in scores[rows].tolist())
            if before:
                writer.writerows([*own, *row] for own, row in zip(left, texts, strict=True))
            else:
                writer.writerows(texts)


def _parquet(draft: Path, suffix: str, scores: Any, names: list[str], before: Any) -> None:
    arrow, parquet = need("pyarrow", "Parquet"), need("pyarrow.parquet", "Parquet")
    writer = None
    for rows in _slabs(scores.shape[0]):
        columns = [arrow.array(values[rows]) for values in before.values()]
        block = np.asarray(scores[rows])
        columns += [arrow.array(np.ascontiguousarray(block[:, j])) for j in range(len(names))]
        table = arrow.table(columns, names=[*before, *names])
        writer = writer or parquet.ParquetWriter(draft, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
