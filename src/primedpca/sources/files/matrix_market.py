"""Matrix Market files, parsed in pieces with NumPy, which checks every byte.

SciPy's reader is not used: it crashes on some damaged files and reads ``1,5`` as 1.
"""

from __future__ import annotations

import os
import re
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from primedpca.protocols import DataSource
from primedpca.sources.files.common import Lines, check_matrix, reading, unpacked, whole_lines
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.memory.sparse import SparseSource

PIECE_BYTES = 2**19  # so that the positions of its tokens stay in the cache
LINE_BYTES = 2**20
COMMENT_BYTES = 2**26
PASSED_OVER = re.compile(rb"(?:(?:%[^\n]*|[ \t\r]*)\n)*")  # comments and blank lines
NUMBER = re.compile(rb"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|inf|infinity)", re.I)
GZIP_RATIO = 1032  # one byte of a deflated stream never becomes more
LEAST_SIDE = 2**20  # rows or columns that may be empty whatever the length of the file
FIELDS: dict[str, Any] = dict.fromkeys(("real", "double", "pattern"), np.float64)
FIELDS |= {"integer": np.int64, "unsigned-integer": np.uint64}
SYMMETRIES = ("general", "symmetric", "skew-symmetric")
#: Classes of bytes: not allowed (0), a space, the end of a line, and parts of numbers.
SPACE, END, PLAIN, LETTER = 1, 2, 3, 4
CLASSES = np.zeros(256, np.uint8)
CLASSES[list(b" \t\r")] = SPACE
CLASSES[list(b"\n")] = END
CLASSES[list(b"0123456789+-.eE")] = PLAIN
CLASSES[list(b"nafityNAFITY")] = LETTER  # of nan, inf and infinity


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
        raise ValueError(
            f"its first line is {shown(line)}; after %%MatrixMarket it must have `matrix`, "
            "`coordinate` or `array`, a field and a symmetry"
        )
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
    text, found = Tokens(piece, head.width, before), list[Any]()
    for j, side in enumerate((head.rows, head.columns) if head.coordinates else ()):
        index = text.integers(j)
        if index.size and not (index.min() >= 1 and index.max() <= side):
            bad = int(np.argmax((index < 1) | (index > side)))
            raise text.refusal(j, bad, f"an index {index[bad]}, not in 1..{side}")
        found.append((index - 1).astype(np.int32 if side < 2**31 else np.int64))
    if found and head.symmetry != "general":  # entries above the diagonal would count twice
        row, column = found
        strict = head.symmetry != "symmetric"
        wrong = row <= column if strict else row < column
        if wrong.any():
            bad = int(np.argmax(wrong))
            place, part = f"{row[bad] + 1}, {column[bad] + 1}", "below" if strict else "on or below"
            what = f"an entry at {place}; a {head.symmetry} file holds those {part} the diagonal"
            raise text.refusal(0, bad, what)
    if head.field != "pattern":
        kind, j = FIELDS[head.field], head.width - 1
        parse = {np.float64: text.reals, np.int64: text.signed, np.uint64: text.integers}[kind]
        found.append(parse(j))
    return found


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


class Tokens:
    """The numbers in whole lines of text, as many in each line; blank lines are skipped.

    Nothing is skipped, guessed or cut off.

    Parameters
    ----------
    piece : bytes
        Whole lines.
    width : int
        Number of numbers in a line.
    before : int
        Number of lines before the piece, for messages.

    Raises
    ------
    ValueError
        For a byte that no number has, for a line with more or fewer numbers, and later for a
        word that is not a number.  The message names the line, counted from 1.
    """

    def __init__(self, piece: bytes, width: int, before: int) -> None:
        self.piece, self.width, self.before = piece, width, before
        self._data = np.frombuffer(piece, np.uint8)
        self._classes = CLASSES[self._data]
        if not self._classes.all():
            place = int(np.argmin(self._classes))
            raise ValueError(f"{self._line(place)} holds {shown(piece[place : place + 1])}")
        inside = np.zeros(self._data.size + 2, np.bool_)
        np.greater(self._classes, END, out=inside[1:-1])
        edges = np.flatnonzero(inside[1:] != inside[:-1])
        self._starts, self._stops = edges[::2], edges[1::2]
        self._check_lines()

    def _check_lines(self) -> None:
        """Refuse a line with more or fewer numbers than ``width``, unless it is blank."""
        width, ends = self.width, np.flatnonzero(self._classes == END)
        rows = -(-self._starts.size // width)
        first, last = self._starts[::width], self._stops[width - 1 :: width]
        if last.size == rows:
            # Without blank lines, every row but perhaps the last has its end of line.
            plain = rows - 1 <= ends.size <= rows and (last[: ends.size] <= ends).all()
            if plain and (first[1:] > ends[: rows - 1]).all():
                return
            line = np.searchsorted(ends, first)
            if (line == np.searchsorted(ends, last)).all() and (np.diff(line) > 0).all():
                return
        # Some line is wrong; finding it may be slow.
        counts = [len(line.split()) for line in self.piece.split(b"\n")]
        wrong = next(i for i, count in enumerate(counts) if count not in (0, width))
        number = self.before + wrong + 1
        raise ValueError(f"line {number} has {counts[wrong]} numbers instead of {width}")

    def integers(self, j: int, skip: np.ndarray | int = 0) -> np.ndarray:
        """Number ``j`` of each line as uint64: digits only, after ``skip`` bytes."""
        starts, stops = self._starts[j :: self.width] + skip, self._stops[j :: self.width]
        lengths = stops - starts
        longest = int(lengths.max(initial=0))
        if longest > 19:
            tokens = zip(starts.tolist(), stops.tolist(), strict=True)
            return np.array([self._integer(a, b) for a, b in tokens], np.uint64)
        values, wrong = np.zeros(starts.size, np.uint64), lengths <= 0
        for k in range(longest):
            there = lengths > k
            digits = self._data[np.where(there, stops - 1 - k, stops - 1)] - np.uint8(48)
            wrong |= digits > 9
            values += np.where(there, digits, 0).astype(np.uint64) * np.uint64(10**k)
        if wrong.any():
            bad = int(np.argmax(wrong))
            self._integer(int(starts[bad]), int(stops[bad]))
        return values

    def signed(self, j: int) -> np.ndarray:
        """Number ``j`` of each line as int64."""
        first = self._data[self._starts[j :: self.width]]
        negative = first == ord("-")
        sizes = self.integers(j, negative | (first == ord("+")))
        beyond = sizes > np.uint64(2**63 - 1) + negative
        if beyond.any():
            what = "an integer that does not fit into 64 bits; use the field `real` to round it"
            raise self.refusal(j, int(np.argmax(beyond)), what)
        return np.where(negative, np.uint64(0) - sizes, sizes).view(np.int64)

    def _integer(self, start: int, stop: int) -> int:
        text = self.piece[start:stop]
        if not re.fullmatch(rb"\d+", text):
            raise ValueError(f"{self._line(start)} has {shown(text)} instead of an integer")
        digits = text.lstrip(b"0") or b"0"
        if len(digits) > 20 or int(digits) >= 2**64:
            raise ValueError(f"{self._line(start)}: {shown(text)} does not fit into 64 bits")
        return int(digits)

    def reals(self, j: int) -> np.ndarray:
        """Number ``j`` of each line as float64, rounded correctly."""
        starts, stops = self._starts[j :: self.width], self._stops[j :: self.width]
        if not (self._classes == LETTER).any():
            inside = np.zeros(self._data.size + 1, np.int8)
            inside[starts], inside[stops] = 1, -1  # these do not meet: a space lies between
            mask = np.cumsum(inside[:-1], dtype=np.int8).view(np.bool_)
            text = np.where(mask, self._data, np.uint8(32)).tobytes()
            try:
                # NumPy takes "1-2" for two numbers and stops at a word that is not a number.
                # The count is right only where every word is one number.
                values = np.fromstring(text, np.float64, sep=" ")
            except (ValueError, DeprecationWarning):
                values = np.empty(0)
            if values.size == starts.size:
                return values
        found = []
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            text = self.piece[start:stop]
            if not NUMBER.fullmatch(text):
                raise ValueError(f"{self._line(start)} has {shown(text)} instead of a number")
            found.append(float(text))
        return np.array(found, np.float64)

    def refusal(self, j: int, i: int, what: str) -> ValueError:
        """Error that line ``i``, of those that are not blank, has ``what`` as its number ``j``."""
        return ValueError(f"{self._line(int(self._starts[j :: self.width][i]))} has {what}")

    def _line(self, place: int) -> str:
        before = self.before + self.piece.count(b"\n", 0, place)
        return f"line {before + 1}"


def shown(text: bytes) -> str:
    """Quote a few bytes for a message."""
    more = "..." if len(text) > 40 else ""
    return repr(text[:40].decode("utf-8", "replace").rstrip("\r\n")) + more
