"""Lines of text tables: encodings, line ends, quoted line breaks, comments, runs of blanks."""

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from primedpca.sources.files import common

#: Byte order marks and the encodings that they name; longer ones come first.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
WIDE = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # without a mark, most are little-endian
LOOKED_AT = 2**16  # bytes in which line ends and NUL bytes are looked for
#: Bytes that cp1252 does not define.
NOT_CP1252 = b"\x81\x8d\x8f\x90\x9d"


class EncodingError(common.UnfitError):
    """Bytes that are not text in the encoding; the message names one in which they may be."""


@dataclass(frozen=True)
class Lines:
    """The way from the bytes of a file to lines in UTF-8 that pyarrow parses.

    Attributes
    ----------
    encoding : str
        Of the file, with its byte order.
    begin : int
        Bytes of the byte order mark.
    end : bytes
        End of a line, in the encoding.
    comment : str or None
        Sign with which a comment begins.
    blanks : bool
        Whether runs of blanks separate the fields.
    quoted : bool, default=False
        Whether quoted text may continue on the next line.
    """

    encoding: str
    begin: int
    end: bytes
    comment: str | None
    blanks: bool
    quoted: bool = False

    @classmethod
    def of(cls, head: bytes, encoding: str | None, comment: str | None, blanks: bool) -> "Lines":
        """Find the encoding and the end of the lines of a file that begins with ``head``."""
        if comment is not None and (len(comment) != 1 or comment in '"\r\n'):
            raise ValueError(f"`comment`={comment!r} must be one character, such as '#'.")
        found, begin = _encoding(head, encoding)
        begin = begin if head[:begin] in {mark for mark, _ in MARKS} else 0
        lines = head[begin:].decode(found, "ignore")
        end = "\r" if "\n" not in lines and "\r" in lines else "\n"
        return cls(found, begin, end.encode(found), comment, blanks)

    def cut(self, file: Any, path: str) -> common.Lines:
        """Yield pieces of whole lines, in the encoding, each with the byte at which it begins."""
        file.seek(self.begin)
        mark = '"'.encode(self.encoding) if self.quoted else b""
        for begin, piece in common.whole_lines(file, path, end=self.end, quote=mark):
            yield begin + self.begin, piece

    def decoded(self, piece: bytes) -> bytes:
        """A piece in UTF-8, without comments and runs of blanks."""
        if self.encoding != "utf-8":
            try:
                piece = piece.decode(self.encoding).encode()
            except UnicodeDecodeError as error:
                raise EncodingError(not_text(error, self.encoding)) from error
        if self.comment is not None and self.comment.encode() in piece:
            piece = _by_line(piece, lambda line: _before(line, self.comment.encode()))  # type: ignore[union-attr]
        return _by_line(piece, _one_blank) if self.blanks else piece

    def first(self, piece: bytes, most: int) -> Iterator[tuple[int, str]]:
        """Yield the first lines, each with the byte at which it begins.

        A line goes on while a quotation is open.
        """
        place, mark = 0, '"'.encode(self.encoding)
        for _ in range(most):
            stop = _line_end(piece, place, self.end)
            while piece.count(mark, place, stop) % 2 and stop < len(piece):
                stop = _line_end(piece, stop, self.end)
            if stop == place:
                return
            text = self.decoded(piece[place:stop]).decode("utf-8", "replace").rstrip("\r\n")
            yield place, text
            place = stop


def _encoding(head: bytes, given: str | None) -> tuple[str, int]:
    """The encoding of a file, with its byte order, and the length of its byte order mark."""
    mark, name = next(((m, name) for m, name in MARKS if head.startswith(m)), (b"", "utf-8"))
    if given is not None:
        try:
            known = codecs.lookup(given).name.removesuffix("-sig")
            "".encode(known)
        except LookupError:
            words = "must be the name of an encoding, such as 'utf-8', 'cp1252' or 'utf-16'"
            raise ValueError(f"`encoding`={given!r} {words}.") from None
        name = name if mark and name.startswith(known) else WIDE.get(known, known)
        if not "\n".encode(name).strip(b"\0") == b"\n":
            raise ValueError(f"`encoding`={given!r} is not supported. Save the file as UTF-8.")
    elif not mark and head[:LOOKED_AT].count(b"\0") > len(head[:LOOKED_AT]) // 4:
        first = head[: len(head) // 2 * 2]
        order = "le" if first[1::2].count(b"\0") > first[::2].count(b"\0") else "be"
        raise EncodingError(f"it has many NUL bytes; pass `encoding`='utf-16-{order}'.")
    return name, len(mark)


def not_text(error: UnicodeDecodeError, encoding: str = "utf-8") -> str:
    """Message on bytes that are not text in an encoding, with another one to try."""
    part = error.object[error.start : error.start + LOOKED_AT]
    other = "latin-1" if any(byte in NOT_CP1252 for byte in part) else "cp1252"
    words = f"it has the byte {part[0]:#x}, which is not {encoding.upper()}"
    if encoding != "utf-8":
        return f"{words}; pass another `encoding`."
    return f"{words}; pass `encoding`={other!r} (Windows), or the encoding in which it was saved."


def check_utf8(piece: bytes) -> None:
    """Refuse bytes that are not UTF-8."""
    try:
        piece.decode()
    except UnicodeDecodeError as error:
        raise EncodingError(not_text(error)) from error


def fields(line: str, delimiter: str) -> list[str]:
    """Fields of one line, of any length.

    Examples
    --------
    >>> fields('1,"a, b",', ",")
    ['1', 'a, b', '']
    """
    if '"' not in line:
        return line.split(delimiter)
    sign = re.escape(delimiter)
    one = re.compile(rf'(?:"((?:[^"]|"")*)"[^{sign}]*|([^{sign}]*))({sign}|\Z)')
    found, place, more = [], 0, "more"
    while more:
        match = one.match(line, place)
        assert match is not None  # the second branch matches any text
        quoted, plain, more = match.groups()
        found.append(plain if quoted is None else quoted.replace('""', '"'))
        place = match.end()
    return found


def _line_end(piece: bytes, start: int, end: bytes) -> int:
    """Byte after the line that begins at ``start``."""
    found = piece.find(end, start)
    while found >= 0 and found % len(end):  # the same bytes across two characters
        found = piece.find(end, found + 1)
    return len(piece) if found < 0 else found + len(end)


def _by_line(piece: bytes, change: Callable[[bytes], bytes]) -> bytes:
    end = b"\r" if b"\n" not in piece else b"\n"
    return end.join(change(line) for line in piece.split(end))


def _before(line: bytes, mark: bytes) -> bytes:
    """The part of a line before a comment; a mark inside quotation marks is text."""
    place = line.find(mark)
    while place >= 0 and line.count(b'"', 0, place) % 2:
        place = line.find(mark, place + 1)
    return line if place < 0 else line[:place].rstrip()


def _one_blank(line: bytes) -> bytes:
    """A line with one blank between its fields."""
    if b'"' not in line:
        return b" ".join(line.split())
    return re.sub(rb'("[^"]*")|[ \t]+', lambda found: found[1] or b" ", line.strip())
