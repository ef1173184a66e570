"""Tables of scores, loadings and other numbers: ``.npy``, Zarr, CSV, TSV and Parquet.

Scores are written block by block, so that they need not fit into memory.
"""

import csv
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from primedpca._core.arrays import is_cupy_array, is_torch_array, to_numpy
from primedpca._core.atomic_files import atomic_write
from primedpca._operator.operator import Centred
from primedpca.engines import LocalEngine
from primedpca.protocols import Array, DataSource
from primedpca.sources.base import OneBlock, needed
from primedpca.sources.files.number_text import reads_as_number

#: Formats of tables: numbers with names of rows and columns.
TABLES = (".csv", ".tsv", ".parquet")
#: Formats of score files; all but the tables hold numbers only.
FORMATS = (".npy", *TABLES, ".zarr")
ROWS = 65536  # rows written at a time
CHUNK_BYTES = 2**22  # of a Zarr store
#: Spreadsheets run text that begins with one of these as a formula.
FORMULAS = tuple("=@+-\t\r\n\uff1d\uff20\uff0b\uff0d")
END = "\r\n"
#: Columns to the left of the numbers, by name.
Beside = dict[str, np.ndarray]


def check_path(out: str | os.PathLike[str]) -> Path:
    """Return ``out`` as a path, after checking that a new file of scores can be created there."""
    path = Path(out)
    if path.suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise ValueError(f"`out`={os.fspath(out)!r} must end in one of {known}. Rename it.")
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} already exists. Choose another name for `out`.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Folder not found: {path.parent}. Create it, or change `out`.")
    return path


def write_into(out: Any, scores: Any) -> Any:
    """Write ``scores`` into the array ``out``, which must have the same shape, and return it."""
    found, wanted = tuple(getattr(out, "shape", ())), tuple(scores.shape)
    if found != wanted:
        raise ValueError(f"`out` must be an array of shape {wanted}, got {found or repr(out)}.")
    if is_torch_array(out):
        import torch

        scores = torch.as_tensor(scores, device=out.device)
        whole, limits = not (out.is_floating_point() or out.is_complex()), torch.finfo
    else:
        scores = scores if is_cupy_array(out) else to_numpy(scores)
        fits = out.dtype.kind in "fc" and np.can_cast(scores.dtype, out.dtype, "same_kind")
        whole, limits = not fits, np.finfo
        if isinstance(out, np.ndarray) and not out.flags.writeable:
            raise ValueError("`out` is read-only. Pass an array that can be written to.")
    if whole:
        raise TypeError(f"`out` has dtype {out.dtype}, which does not hold floats. Use float64.")
    size = 0.0 if 0 in wanted else float(abs(scores).max())
    if size > float(limits(out.dtype).max):
        words = f"which cannot hold a score of {size:.3g}. Use {scores.dtype}."
        raise ValueError(f"`out` has dtype {out.dtype}, {words}")
    out[...] = scores
    return out


def write_scores_file(path: Path, data: Centred, vectors: Array, names: list[str]) -> Any:
    """Write the scores ``M V`` to a file in one pass, completely or not at all.

    Parameters
    ----------
    path : Path
        A path that :func:`check_path` has accepted.
    data : Centred
        Data whose mean is known.  Data read in rows need memory for the scores of one block,
        data read in columns for all scores.  In tables, the names and labels of their rows stand
        beside the scores.
    vectors : array of shape (d, k)
        Components as columns.
    names : list of k str
        Names of the scores.

    Returns
    -------
    ndarray of shape (n, k), zarr.Array or Path
        The file as a read-only memory map, the array of a Zarr store, or the path of a table.
    """
    shape = (data.shape[0], int(vectors.shape[1]))
    kind = to_numpy(data.narrow(vectors[:0])).dtype
    blocks = score_blocks(data, vectors)
    if path.suffix in TABLES:
        write_table(path, blocks, names, names_and_labels(data.source, names))
        return path
    if path.suffix == ".zarr":
        return _write_zarr(path, blocks, shape, kind, names)
    # Not a memory map: on a full disk a write raises, but a map kills the process.
    with atomic_write(path) as draft, open(draft, "wb") as file:
        header = {"descr": kind.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for scores in blocks:
            file.write(np.ascontiguousarray(scores).data)
    # A file without entries cannot be mapped.
    return np.load(path, mmap_mode="r" if 0 not in shape else None)


def score_blocks(data: Centred, vectors: Array) -> Iterator[np.ndarray]:
    """Yield the scores ``M V`` in the order of the rows, in one pass; refuse non-finite ones."""
    source = data.source
    if source.axis == 1:
        scores = data.forward(vectors)
        data.check_finite(scores)
        yield to_numpy(scores)
        return
    for i, block in source.scan():
        rows = np.arange(*source.blocks[i])
        scores = data.part(OneBlock(block), rows, LocalEngine(1)).forward(vectors)
        data.check_finite(scores)
        yield to_numpy(scores)


def names_and_labels(source: DataSource, names: list[str]) -> Beside:
    """Return the names and the labels of the rows that a source knows, by their headings.

    Two columns of one heading would be read as one, so a heading of the scores is refused.
    """
    known, found = source.traits, dict[str, np.ndarray]()
    for heading, values in zip(known.headings, (known.row_names(), known.labels()), strict=True):
        if values is None:
            continue
        plain = _plain(values)
        # One column of the data may be both names and labels.
        other = heading in found and found[heading].tolist() != plain.tolist()
        if heading in names or other:
            words = "Rename that of the row names or labels in the data, or leave it out."
            raise ValueError(f"The table of scores would have two columns {heading!r}. {words}")
        found[heading] = plain
    return found


def _plain(values: Any) -> np.ndarray:
    """Return an array that can be written: dates and objects become text, missing entries None."""
    plain = np.asarray(values)
    kind = plain.dtype.kind
    if kind in "biuU" or (kind == "f" and not np.isnan(plain).any()):
        return plain
    pairs = zip(plain, plain.tolist() if kind == "f" else map(str, plain), strict=True)
    return np.array([None if is_missing(value) else entry for value, entry in pairs], dtype=object)


def is_missing(value: Any) -> bool:
    """Whether an entry is None, NaN, NaT, or the NA of pandas."""
    if isinstance(value, (float, np.floating)):
        return bool(np.isnan(value))
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def write_table(
    path: Path,
    blocks: Iterable[np.ndarray],
    names: list[str],
    beside: Beside | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write numbers as a table, completely or not at all.

    Parameters
    ----------
    path : Path
        File to write; its suffix chooses the format, ``.csv``, ``.tsv`` or ``.parquet``.
    blocks : iterable of ndarray of shape (rows, k)
        The numbers, some rows at a time.
    names : list of k str
        Names of the columns of numbers.
    beside : dict of ndarray of shape (n,) or None, default=None
        Columns to the left of the numbers, by name.  In text files, an apostrophe is put before
        text that a spreadsheet would run as a formula.
    overwrite : bool, default=False
        Whether to replace an existing file.
    """
    write: Callable[..., None] = _parquet if path.suffix == ".parquet" else _text
    try:
        with atomic_write(path, overwrite=overwrite) as draft:
            write(draft, path.suffix, _slabs(blocks), names, beside or {})
    except UnicodeEncodeError as error:
        words = f"{path} cannot hold {error.object[:40]!r}, which has an unpaired surrogate"
        raise ValueError(f"{words}. Rename it.") from error


def _slabs(blocks: Iterable[np.ndarray]) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield at most ``ROWS`` rows at a time, and which of all rows they are."""
    at = 0
    for block in blocks:
        for start in range(0, max(len(block), 1), ROWS):
            slab = block[start : start + ROWS]
            yield slice(at, at + len(slab)), slab
            at += len(slab)


def _text(draft: Path, suffix: str, slabs: Any, names: list[str], beside: Beside) -> None:
    with open(draft, "w", encoding="utf-8", newline="") as file:
        # The writer quotes only the signs of its line end, so it must end lines by both.
        lines = SimpleNamespace(write=lambda line: file.write(f"{line.removesuffix(END)}\n"))
        delimiter = "\t" if suffix == ".tsv" else ","
        writer = csv.writer(lines, delimiter=delimiter, lineterminator=END)
        writer.writerow(map(_inert, [*beside, *names]))
        for rows, numbers in slabs:
            # The fewest digits with which reading the text always gives the same float again.
            digits = "%.9g" if numbers.dtype == np.float32 else "%.17g"
            texts = [map(_inert, values[rows].tolist()) for values in beside.values()]
            for row, *own in zip(numbers.tolist(), *texts, strict=True):
                writer.writerow([*own, *(digits % value for value in row)])


def _inert(value: Any) -> Any:
    """Return the value with an apostrophe if a spreadsheet would run it as a formula."""
    if not isinstance(value, str) or not value.startswith(FORMULAS):
        return value
    return value if value[0] in "+-" and reads_as_number(value) else f"'{value}"


def _parquet(draft: Path, suffix: str, slabs: Any, names: list[str], beside: Beside) -> None:
    arrow, parquet = (
        needed(name, "Writing Parquet", "disk") for name in ("pyarrow", "pyarrow.parquet")
    )
    writer: Any = None
    # Their types are found by all rows: all names of the first ones may be missing.
    texts = [arrow.array(values) for values in beside.values()]
    for rows, numbers in slabs:
        columns = [values[rows] for values in texts]
        columns += [arrow.array(np.ascontiguousarray(numbers[:, j])) for j in range(len(names))]
        table = arrow.table(columns, names=[*beside, *names])
        writer = writer or parquet.ParquetWriter(draft, table.schema)
        writer.write_table(table)
    writer.close()


def _write_zarr(
    path: Path, blocks: Iterable[np.ndarray], shape: tuple[int, int], kind: Any, names: list[str]
) -> Any:
    """Write the numbers to a new Zarr store; its attribute ``columns`` holds their names."""
    zarr = needed("zarr", "Writing Zarr", "disk")
    rows = max(1, min(shape[0], CHUNK_BYTES // (kind.itemsize * max(shape[1], 1))))
    with _new_folder(path) as draft:
        look = {"shape": shape, "chunks": (rows, max(shape[1], 1)), "dtype": kind}
        with _writing(path):
            store = zarr.create_array(draft, attributes={"columns": names}, **look)
        for at, numbers in _slabs(blocks):
            with _writing(path):
                store[at] = numbers
    return zarr.open_array(path, mode="r")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Name the store in errors of writing; Zarr gives the number of the error alone."""
    try:
        yield
    except OSError as error:
        words = f"{path} could not be written: {error.strerror or error}."
        raise OSError(
            f"{words} Free some space or raise the limit, or name another place."
        ) from error


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """Yield the path of a folder to fill; rename it to ``path`` when the block ends."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        yield draft
        os.rename(draft, path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
