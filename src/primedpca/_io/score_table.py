"""Scores as a CSV, TSV or Parquet table, with columns for row names and classes."""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.sources.files.common import need
from primedpca.sources.files.table_columns import reads_as_number

__all__ = ["FORMATS", "write_table"]

#: Formats of score files; :mod:`primedpca._io.score_file` writes the first, which is not a table.
FORMATS = (".npy", ".csv", ".tsv", ".parquet")
ROWS = 65536  # rows written at a time
#: Spreadsheets run text that begins with one of these as a formula.
FORMULAS = tuple("=@+-\t\r\n\uff1d\uff20\uff0b\uff0d")


def write_table(
    path: Path,
    scores: np.ndarray,
    names: list[str],
    before: dict[str, np.ndarray] | None = None,
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
    before = before or {}
    draft = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    write = _parquet if path.suffix == ".parquet" else _text
    try:
        write(draft, path.suffix, scores, names, before)
        os.replace(draft, path)
    except OSError as error:
        raise OSError(f"Scores could not be written to {path}: {error}") from error
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Scores could not be written to {path}: {error.object[:40]!r} is not valid text (it "
            "has an unpaired surrogate). Rename it."
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _slabs(n: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS))


def _text(draft: Path, suffix: str, scores: Any, names: list[str], before: Any) -> None:
    # The fewest digits with which reading the text always gives the same float again.
    digits = "%.9g" if scores.dtype == np.float32 else "%.17g"
    with open(draft, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
        writer.writerow(map(_inert, [*before, *names]))
        for rows in _slabs(scores.shape[0]):
            texts = (map(_inert, values[rows].tolist()) for values in before.values())
            left = zip(*texts, strict=True)
            numbers = ([digits % value for value in row] for row in scores[rows].tolist())
            if before:
                writer.writerows([*own, *row] for own, row in zip(left, numbers, strict=True))
            else:
                writer.writerows(numbers)


def _inert(value: Any) -> Any:
    """Return the value with an apostrophe if a spreadsheet would run it as a formula."""
    if not isinstance(value, str) or not value.startswith(FORMULAS):
        return value
    return value if value[0] in "+-" and reads_as_number(value) else f"'{value}"


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
