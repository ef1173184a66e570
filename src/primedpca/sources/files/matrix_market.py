"""Matrix Market files, parsed in pieces by NumPy's ``loadtxt``, which refuses malformed lines.

SciPy's reader is not used: it crashes on some damaged files and reads ``1,5`` as 1.
"""

import os
import re
import warnings
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from primedpca.protocols import DataSource
from primedpca.sources.files import common
from primedpca.sources.files.common import Lines, check_matrix, reading, unpacked, whole_lines
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.sparse import SparseSource, index_dtype

PIECE_BYTES = 2**19
LINE_BYTES = 2**20
COMMENT_BYTES = 2**26
PASSED_OVER = re.compile(rb"(?:(?:%[^\n]*|[ \t\r]*)\n)*")  # comments and blank lines
NUMBER = re.compile(rb"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|inf|infinity)", re.I)
INTEGER = re.compile(rb"[+-]?\d+")
#: Bytes of numbers, with nan, inf and infinity, and of the space around them.
ALLOWED = b" \t\r\n0123456789+-.eEnafityNAFITY"
GZIP_RATIO = 1032  # one byte of a deflated stream never becomes more
LEAST_SIDE = 2**20  # rows or columns that may be empty whatever the length of the file
FIELDS: dict[str, Any] = dict.fromkeys(("real", "double", "pattern"), np.float64)
FIELDS |= {"integer": np.int64, "unsigned-integer": np.uint64}
#: Least integer of 64 bits with a sign; its negative does not fit.
LEAST = -(2**63)
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
        return len(self.kinds)

    @property
    def kinds(self) -> list[Any]:
        """Types of the numbers in a line: two indices, if there are any, and the value."""
        indices = [np.uint64, np.uint64] if self.coordinates else []
        return indices if self.field == "pattern" else [*indices, FIELDS[self.field]]


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
    folder, file_name = os.path.split(name)
    if file_name.startswith("matrix.mtx") and common.is_tenx(folder):
        words = f"{name}: 10x Genomics writes genes as rows, so rows are genes here"
        remedy = common.TENX.format("read_10x_mtx", folder or ".")
        warnings.warn(f"{words}. {remedy}", UserWarning, stacklevel=2)
    with reading(name, "Matrix Market"), unpacked(name) as file:
        pieces = whole_lines(file, name, PIECE_BYTES, LINE_BYTES)
        head, line, rest = _header(pieces)
        declared = f"its header declares {head.rows} x {head.columns} with {head.entries} entries"
        check_matrix(name, (head.rows, head.columns), np.dtype(FIELDS[head.field]))
        room = os.path.getsize(name) * (GZIP_RATIO if name.lower().endswith(".gz") else 1)
        if head.entries * 2 * head.width > room + 1:  # a number takes two bytes with its space
            raise ValueError(f"{declared}, but it holds at most {room} bytes of text")
        held: list[list[np.ndarray]] = [[] for _ in range(head.width)]
        text = count = 0
        for piece in chain([rest], (piece for _, piece in pieces)):
            found = _parsed(piece, head, line)
            text, line, count = text + len(piece), line + piece.count(b"\n"), count + found[0].size
            if count > head.entries:
                raise ValueError(f"it has more than the {head.entries} entries that it declares")
            for parts, values in zip(held, found, strict=True):
                parts.append(values)
        if count < head.entries:
            raise ValueError(f"it ends after {count} of the {head.entries} entries it declares")
        # Even empty rows or columns would fill the memory.
        if head.coordinates and max(head.rows, head.columns) > text + LEAST_SIDE:
            raise ValueError(f"{declared}, but its {count} entries take {text} bytes")
        columns = []
        while held:  # one after another, so that only one is in memory twice
            columns.append(np.concatenate(held.pop(0)))
        return _sparse(head, columns) if head.coordinates else _dense(head, columns[0])


def _header(pieces: Lines) -> tuple[Header, int, bytes]:
    """Header, number of its lines, and the entries that follow it in the same piece."""
    banner: list[str] = []
    line = 0
    for begin, piece in pieces:
        start = 0
        if not banner:
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
    first, *banner = line[:200].decode("ascii", "replace").lower().split() or [""]
    if first != "%%matrixmarket":
        raise ValueError(f"its first line begins with {shown(line)}, not with %%MatrixMarket")
    if len(banner) != 4 or banner[0] != "matrix" or banner[1] not in ("coordinate", "array"):
        raise ValueError(f"its first line is {shown(line)}, not matrix, format, field, symmetry")
    kind, field, symmetry = banner[1:]
    if field == "complex" or symmetry == "hermitian":
        raise ValueError("it holds complex numbers, which are not supported; use two real columns")
    if field not in FIELDS or (kind == "array" and field == "pattern"):
        raise ValueError(f"its field {field!r} is not one of {', '.join(FIELDS)}")
    if symmetry not in SYMMETRIES:
        raise ValueError(f"its symmetry {symmetry!r} is not one of {', '.join(SYMMETRIES)}")
    return banner


def _sized(banner: list[str], line: bytes, number: int) -> Header:
    _, kind, field, symmetry = banner
    words, wanted = line.split(), 3 if kind == "coordinate" else 2
    if len(words) != wanted or not all(re.fullmatch(rb"\d{1,18}", word) for word in words):
        raise ValueError(f"line {number} must give its size as {wanted} integers: {shown(line)}")
    rows, columns, *stored = map(int, words)
    if symmetry != "general" and rows != columns:
        raise ValueError(f"it is declared {symmetry}, but is {rows} x {columns}")
    entries = stored[0] if stored else rows * columns
    if not stored and symmetry != "general":  # the lower triangle, with or without the diagonal
        entries = rows * (rows + (1 if symmetry == "symmetric" else -1)) // 2
    return Header(rows, columns, entries, bool(stored), field, symmetry)


def _parsed(piece: bytes, head: Header, before: int) -> list[np.ndarray]:
    """Parse whole lines: one array for each number of a line.

    ``before`` is the number of lines before the piece, for messages.
    """
    if strange := piece.translate(None, ALLOWED):
        line = before + piece.count(b"\n", 0, piece.index(strange[:1])) + 1
        raise ValueError(f"line {line} holds {shown(strange[:1])}")
    found = _columns(piece, head, before)
    for j, side in enumerate((head.rows, head.columns) if head.coordinates else ()):
        wrong = np.flatnonzero((found[j] < 1) | (found[j] > side))
        if wrong.size:
            what = f"an index {found[j][wrong[0]]}, not in 1..{side}"
            raise ValueError(f"line {_line(piece, before, wrong[0])} has {what}")
        found[j] = (found[j] - 1).astype(index_dtype(side))
    if head.coordinates and head.symmetry != "general":  # others would count twice
        (row, column), strict = found[:2], head.symmetry != "symmetric"
        wrong = np.flatnonzero(row <= column if strict else row < column)
        if wrong.size:
            place, part = f"{row[wrong[0]] + 1}, {column[wrong[0]] + 1}", "on or " * (not strict)
            what = f"an entry at {place}, not {part}below the diagonal ({head.symmetry})"
            raise ValueError(f"line {_line(piece, before, wrong[0])} has {what}")
    return found


def _columns(piece: bytes, head: Header, before: int) -> list[np.ndarray]:
    """One array for each number of a line, of the type that the header declares."""
    lines = [line for line in piece.decode("ascii").split("\n") if line.strip()]
    names = [f"column {j}" for j in range(head.width)]
    table = np.empty(0, list(zip(names, head.kinds, strict=True)))
    if lines:
        with warnings.catch_warnings():
            # Otherwise some versions of NumPy read 1.5 as the integer 1, with this warning.
            warnings.filterwarnings("error", message=".*integer via a float")
            try:
                table = np.loadtxt(lines, table.dtype, comments=None, ndmin=1)
            except (ValueError, DeprecationWarning) as error:
                raise _refusal(piece, head, before) or error from None
    return [table[name] for name in names]


def _line(piece: bytes, before: int, i: int) -> int:
    """Number of the line, counted from 1, that holds entry ``i`` of a piece."""
    lines = enumerate(piece.split(b"\n"), before + 1)
    return [number for number, line in lines if line.strip()][i]


def _refusal(piece: bytes, head: Header, before: int) -> ValueError | None:
    """Find the first line that NumPy has refused; only here, as it may be slow."""
    for number, line in enumerate(piece.split(b"\n"), before + 1):
        words = line.split()
        if words and len(words) != head.width:
            return ValueError(f"line {number} has {len(words)} numbers instead of {head.width}")
        for word, kind in zip(words, head.kinds, strict=False):
            real = kind is np.float64
            signed = real or kind is np.int64 or not word.startswith(b"-")
            if not (NUMBER if real else INTEGER).fullmatch(word) or not signed:
                wanted = "a number" if real else "an integer"
                return ValueError(f"line {number} has {shown(word)} instead of {wanted}")
            # Ten digits more than 64 bits hold: Python refuses to convert thousands.
            if not real and (len(word) > 30 or not _fits(int(word), kind)):
                return ValueError(f"line {number}: {shown(word)} does not fit into 64 bits")
    return None


def _fits(value: int, kind: Any) -> bool:
    limits = np.iinfo(kind)
    return bool(limits.min <= value <= limits.max)


def _sparse(head: Header, found: list[np.ndarray]) -> SparseSource:
    row, column = found[:2]
    values = np.ones(row.size) if head.field == "pattern" else found[2]
    if head.symmetry != "general":
        other = row != column
        values = values if head.symmetry == "symmetric" else _signed(values)
        mirrored = values[other] if head.symmetry == "symmetric" else -values[other]
        row, column = np.r_[row, column[other]], np.r_[column, row[other]]
        values = np.r_[values, mirrored]
    whole = sp.coo_array((values, (row, column)), shape=(head.rows, head.columns))
    if values.dtype.kind in "iu" and values.size:
        _check_sums(whole)
    return SparseSource(whole)


def _signed(values: np.ndarray) -> np.ndarray:
    """Return the values in a type that holds their negatives, too."""
    lost = values == LEAST if values.dtype.kind == "i" else values > -(LEAST + 1)
    if values.dtype.kind in "iu" and lost.any():
        raise ValueError(f"the negative of {values[lost][0]} does not fit into 64 bits")
    return values.astype(np.int64) if values.dtype.kind == "u" else values


def _check_sums(whole: sp.coo_array) -> None:
    """Raise ValueError if entries at one place add up to more than their integers hold."""
    limits = np.iinfo(whole.data.dtype)
    largest = max(int(whole.data.max()), -int(whole.data.min()))
    if largest * whole.data.size <= limits.max:
        return
    index = np.ravel_multi_index(whole.coords, whole.shape)
    order = np.argsort(index, kind="stable")
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    sums = np.add.reduceat(whole.data[order].astype(np.float64), starts)
    for i in np.flatnonzero(np.abs(sums) > 0.99 * limits.max):
        some = order[starts[i] :][index[order[starts[i] :]] == index[order[starts[i]]]]
        total = sum(map(int, whole.data[some]))  # Python's integers do not overflow
        if not limits.min <= total <= limits.max:
            row, column = (int(part[some[0]]) + 1 for part in whole.coords)
            raise ValueError(f"its entries at {row}, {column} add up to {total}, beyond 64 bits")


def _dense(head: Header, values: np.ndarray) -> DenseSource:
    if head.symmetry == "general":
        return DenseSource(values.reshape(head.rows, head.columns, order="F"))
    whole = np.zeros((head.rows, head.columns), values.dtype)
    skew = head.symmetry != "symmetric"
    # Columns below the diagonal are rows of the upper triangle.
    place = np.triu_indices(head.rows, 1 if skew else 0)
    values = _signed(values) if skew else values
    whole = whole.astype(values.dtype, copy=False)
    whole[place] = -values if skew else values
    whole.T[place] = values
    return DenseSource(whole)


def shown(text: bytes) -> str:
    """Quote a few bytes for a message."""
    more = "..." if len(text) > 40 else ""
    return repr(text[:40].decode("utf-8", "replace").rstrip("\r\n")) + more
