"""Matrix Market files, parsed in pieces with NumPy, which checks every byte.

SciPy's reader is not used: it crashes on some damaged files and reads ``1,5`` as 1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from primedpca.protocols import DataSource
from primedpca.sources.files.common import check_matrix, reading, unpacked, whole_lines
from primedpca.sources.files.number_text import Tokens, shown
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.sparse import SparseSource

PIECE_BYTES = 2**19  # so that the positions of its tokens stay in the cache
LINE_BYTES = 2**20
COMMENT_BYTES = 2**26
PASSED_OVER = re.compile(rb"(?:(?:%[^\n]*|[ \t\r]*)\n)*")  # comments and blank lines
GZIP_RATIO = 1032  # one byte of a deflated stream never becomes more
LEAST_SIDE = 2**20  # rows or columns that may be empty whatever the length of the file
FIELDS = {
    "real": np.float64,
    "double": np.float64,
    "integer": np.int64,
    "unsigned-integer": np.uint64,
    "pattern": np.float64,
}
SYMMETRIES = ("general", "symmetric", "skew-symmetric")


class Header(NamedTuple):
    """Contents of the first lines."""

    rows: int
    columns: int
    entries: int
    coordinates: bool
    field: str
    symmetry: str

    @property
    def width(self) -> int:
        """Number of numbers in a line."""
        return 1 if not self.coordinates else 2 if self.field == "pattern" else 3


def matrix_market(path: str | os.PathLike[str]) -> DataSource:
    """Source of a Matrix Market file, ``.mtx`` or ``.mtx.gz``, loaded once.

    Parameters
    ----------
    path : path
        The format ``coordinate`` stays sparse; ``array`` is dense.  Fields may be real, integer
        or pattern, symmetry general, symmetric or skew-symmetric.  Entries at one place add up.

    Returns
    -------
    DataSource
        Exactly as many entries as the header declares, each of them checked.
    """
    name = os.fspath(path)
    with reading(name, "Matrix Market"), unpacked(name) as file:
        pieces = whole_lines(file, name, PIECE_BYTES, LINE_BYTES)
        head, line, rest = _header(pieces)
        check_matrix(name, (head.rows, head.columns), np.dtype(FIELDS[head.field]))
        packed = name.lower().endswith(".gz")
        _check_room(head, os.path.getsize(name) * (GZIP_RATIO if packed else 1))
        held: list[list[np.ndarray]] = [[] for _ in range(head.width)]
        text, count = 0, 0
        for piece in _chained(rest, pieces):
            found = _parsed(piece, head, line)
            text, line, count = text + len(piece), line + piece.count(b"\n"), count + found[0].size
            if count > head.entries:
                raise ValueError(f"it has more than the {head.entries} entries that it declares")
            for parts, values in zip(held, found, strict=True):
                parts.append(values)
        if count < head.entries:
            raise ValueError(
                f"it ends after {count} of the {head.entries} entries that it declares"
            )
        _check_sides(head, text)
    columns = []
    while held:  # one after another, so that only one is in memory twice
        columns.append(np.concatenate(held.pop(0)))
    return _sparse(head, columns) if head.coordinates else _dense(head, columns[0])


# -- the header -------------------------------------------------------------------------------


def _header(pieces: Iterator[tuple[int, bytes]]) -> tuple[Header, int, bytes]:
    """Header, number of its lines, and the entries that follow it in the same piece."""
    banner: list[str] | None = None
    line = 0
    for begin, piece in pieces:
        start = 0
        if banner is None:
            start, line = piece.find(b"\n") + 1 or len(piece), 1
            banner = _banner(piece[:start])
        stop = PASSED_OVER.match(piece, start).end()  # type: ignore[union-attr]
        line += piece.count(b"\n", start, stop)
        if stop < len(piece):
            end = piece.find(b"\n", stop) + 1 or len(piece)
            return _sized(banner, piece[stop:end], line + 1), line + 1, piece[end:]
        if begin + stop > COMMENT_BYTES:
            raise ValueError(f"it begins with more than {COMMENT_BYTES} bytes of comments")
    raise ValueError("it ends before the line of its size" if banner else "it is empty")


def _banner(line: bytes) -> list[str]:
    words = line[:200].decode("ascii", "replace").split()
    if not words or words[0].lower() != "%%matrixmarket":
        raise ValueError(f"its first line begins with {shown(line)}, not with %%MatrixMarket")
    banner = [word.lower() for word in words[1:]]
    if len(banner) != 4 or banner[0] != "matrix" or banner[1] not in ("coordinate", "array"):
        raise ValueError(
            f"its first line is {shown(line)}; after %%MatrixMarket it must have `matrix`, "
            "`coordinate` or `array`, a field and a symmetry"
        )
    if banner[2] == "complex" or banner[3] == "hermitian":
        raise ValueError(
            "it holds complex numbers, which are not supported; write real and imaginary parts as "
            "columns of real numbers"
        )
    if banner[2] not in FIELDS or (banner[1] == "array" and banner[2] == "pattern"):
        raise ValueError(f"its field {banner[2]!r} is not one of {', '.join(FIELDS)}")
    if banner[3] not in SYMMETRIES:
        raise ValueError(f"its symmetry {banner[3]!r} is not one of {', '.join(SYMMETRIES)}")
    return banner


def _sized(banner: list[str], line: bytes, number: int) -> Header:
    coordinates = banner[1] == "coordinate"
    words = line.split()
    wanted = 3 if coordinates else 2
    if len(words) != wanted or not all(re.fullmatch(rb"\d{1,18}", word) for word in words):
        raise ValueError(f"line {number} must give its size as {wanted} integers: {shown(line)}")
    rows, columns, *stored = map(int, words)
    if banner[3] != "general" and rows != columns:
        raise ValueError(f"it is declared {banner[3]}, but is {rows} x {columns}")
    entries = stored[0] if coordinates else rows * columns
    if not coordinates and banner[3] != "general":
        entries = rows * (rows + (1 if banner[3] == "symmetric" else -1)) // 2
    return Header(rows, columns, entries, coordinates, banner[2], banner[3])


def _check_room(head: Header, room: int) -> None:
    """Refuse more entries than the file can hold, before anything is parsed."""
    least = 2 * head.width  # bytes of the shortest line
    if head.entries * least > room + 1:
        raise ValueError(
            f"its header declares {head.rows} x {head.columns} with {head.entries} entries, but it "
            f"holds at most {room} bytes of text"
        )


def _check_sides(head: Header, text: int) -> None:
    """Refuse sides for which even the empty rows or columns would fill the memory."""
    if head.coordinates and max(head.rows, head.columns) > text + LEAST_SIDE:
        raise ValueError(
            f"its header declares {head.rows} x {head.columns}, but its {head.entries} entries "
            f"take {text} bytes"
        )


# -- the entries ------------------------------------------------------------------------------


def _chained(rest: bytes, pieces: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    yield rest
    for _, piece in pieces:
        yield piece


def _parsed(piece: bytes, head: Header, before: int) -> list[np.ndarray]:
    """Parse whole lines: one array for each number of a line.

    ``before`` is the number of lines before the piece, for messages.
    """
    text = Tokens(piece, head.width, before)
    found = []
    if head.coordinates:
        for j, side in enumerate((head.rows, head.columns)):
            index = text.integers(j)
            if index.size and not (index.min() >= 1 and index.max() <= side):
                bad = int(np.argmax((index < 1) | (index > side)))
                raise ValueError(
                    f"{text.where(j, bad)} has an index {index[bad]}, not in 1..{side}"
                )
            found.append((index - 1).astype(np.int32 if side < 2**31 else np.int64))
        _check_triangle(text, found, head.symmetry)
    if head.field != "pattern":
        found.append(_values(text, head.width - 1, head.field))
    return found


def _values(text: Tokens, j: int, field: str) -> np.ndarray:
    if FIELDS[field] is np.float64:
        return text.reals(j)
    if field == "unsigned-integer":
        return text.integers(j)
    negative, sizes = text.signs(j), text.integers(j, signed=True)
    beyond = sizes > np.uint64(2**63 - 1) + negative
    if beyond.any():
        bad = int(np.argmax(beyond))
        raise ValueError(
            f"{text.where(j, bad)} has {text.shown(j, bad)}, which does not fit into 64 bits; "
            "change the field to `real` to read it rounded"
        )
    return np.where(negative, np.uint64(0) - sizes, sizes).view(np.int64)


def _check_triangle(text: Tokens, found: list[np.ndarray], symmetry: str) -> None:
    """Refuse entries above the diagonal of a symmetric matrix: they would count twice."""
    if symmetry == "general":
        return
    row, column = found
    wrong = row < column if symmetry == "symmetric" else row <= column
    if wrong.any():
        bad = int(np.argmax(wrong))
        part = "on or below" if symmetry == "symmetric" else "below"
        raise ValueError(
            f"{text.where(0, bad)} has an entry at {row[bad] + 1}, {column[bad] + 1}, but the "
            f"matrix is {symmetry}: the file may only hold entries {part} the diagonal"
        )


# -- the matrix -------------------------------------------------------------------------------


def _sparse(head: Header, found: list[np.ndarray]) -> SparseSource:
    row, column = found[:2]
    values = np.ones(row.size) if head.field == "pattern" else found[2]
    if head.symmetry != "general":
        other = row != column
        mirrored = values[other] if head.symmetry == "symmetric" else -values[other]
        row, column = np.r_[row, column[other]], np.r_[column, row[other]]
        values = np.r_[values, mirrored]
    return SparseSource(sp.coo_array((values, (row, column)), shape=(head.rows, head.columns)))


def _dense(head: Header, values: np.ndarray) -> DenseSource:
    if head.symmetry == "general":
        return DenseSource(values.reshape(head.rows, head.columns, order="F"))
    whole = np.zeros((head.rows, head.columns), values.dtype)
    skew = head.symmetry != "symmetric"
    # Columns below the diagonal are rows of the upper triangle.
    place = np.triu_indices(head.rows, 1 if skew else 0)
    whole[place] = -values if skew else values
    whole.T[place] = values
    return DenseSource(whole)
