"""Numbers in lines of text, parsed with NumPy: nothing is skipped, guessed or cut off."""

from __future__ import annotations

import re

import numpy as np

__all__ = ["Tokens", "shown"]

NUMBER = re.compile(rb"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|inf|infinity)", re.I)

#: Classes of bytes: not allowed (0), a space, the end of a line, and parts of numbers.
NOTHING, SPACE, END, DIGIT, SIGN, LETTER = range(6)
CLASSES = np.zeros(256, np.uint8)
for _class, _bytes in (
    (SPACE, b" \t\r"),
    (END, b"\n"),
    (DIGIT, b"0123456789"),
    (SIGN, b"+-.eE"),
    (LETTER, b"nafityNAFITY"),  # of nan, inf and infinity
):
    CLASSES[list(_bytes)] = _class


class Tokens:
    """The numbers in whole lines of text, as many in each line; blank lines are skipped.

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
        raise ValueError(
            f"line {self.before + wrong + 1} has {counts[wrong]} numbers instead of {width}"
        )

    def _column(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        return self._starts[j :: self.width], self._stops[j :: self.width]

    def signs(self, j: int) -> np.ndarray:
        """Whether number ``j`` of each line is negative."""
        negative: np.ndarray = self._data[self._column(j)[0]] == ord("-")
        return negative

    def integers(self, j: int, signed: bool = False) -> np.ndarray:
        """Number ``j`` of each line as uint64: digits only, after a sign that is skipped."""
        starts, stops = self._column(j)
        if signed:
            first = self._data[starts]
            starts = starts + ((first == ord("-")) | (first == ord("+")))
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

    def _integer(self, start: int, stop: int) -> int:
        text = self.piece[start:stop]
        if not re.fullmatch(rb"\d+", text):
            raise ValueError(f"{self._line(start)} has {shown(text)} instead of an integer")
        digits = text.lstrip(b"0") or b"0"
        if len(digits) > 20 or int(digits) >= 2**64:
            raise ValueError(
                f"{self._line(start)} has {shown(text)}, which does not fit into 64 bits"
            )
        return int(digits)

    def reals(self, j: int) -> np.ndarray:
        """Number ``j`` of each line as float64, rounded correctly."""
        starts, stops = self._column(j)
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

    def where(self, j: int, i: int) -> str:
        """Line of entry ``i`` of column ``j``, for a message."""
        return self._line(int(self._column(j)[0][i]))

    def shown(self, j: int, i: int) -> str:
        """Entry ``i`` of column ``j``, quoted for a message."""
        starts, stops = self._column(j)
        return shown(self.piece[starts[i] : stops[i]])

    def _line(self, place: int) -> str:
        number = self.before + self.piece.count(b"\n", 0, place) + 1
        return f"line {number}"


def shown(text: bytes) -> str:
    """Quote a few bytes for a message."""
    more = "..." if len(text) > 40 else ""
    return repr(text[:40].decode("utf-8", "replace").rstrip("\r\n")) + more
