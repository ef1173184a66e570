"""Lines of text tables: encodings, line ends, quoted line breaks, comments, runs of blanks."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from primedpca.sources.files import common
from primedpca.sources.files.number_text import shortened

#: Byte order marks and the encodings that they name; longer ones come first.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
WIDE = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # without a mark, most are little-endian
#: First bytes of files that often have the name of a text file, and what to do with them.
CONTAINERS = {
    b"\x1f\x8b": "is compressed by gzip; decompress it, or rename it to .csv.gz or .tsv.gz",
    b"PK\x03\x04": "is a ZIP archive; unpack it, or rename it to .xlsx or .ods if it is a workbook",
    b"\xfd7zXZ\0": "is compressed by xz; decompress it",
    b"\x28\xb5\x2f\xfd": "is compressed by Zstandard; decompress it",
    b"\xd0\xcf\x11\xe0": "is an old Excel file; save it as .xlsx or .csv",
}
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
    delimiter : str
        Sign between fields; a blank stands for runs of blanks and tabs.
    """

    encoding: str
    begin: int
    end: bytes
    comment: str | None
    delimiter: str

    @classmethod
    def of(cls, head: bytes, encoding: str | None, comment: str | None, delimiter: str) -> "Lines":
        """Find the encoding and the end of the lines of a file that begins with ``head``."""
        found, begin = _encoding(head, encoding)
        begin = begin if head[:begin] in {mark for mark, _ in MARKS} else 0
        known = cls(found, begin, "\n".encode(found), comment, delimiter)
        # Text in quotation marks may have line breaks of another system.
        lines = known._patterns[0].sub(b"", head[begin:].decode(found, "ignore").encode())
        mac = b"\n" not in lines and b"\r" in lines
        return replace(known, end="\r".encode(found)) if mac else known

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
        """Patterns of a quotation or comment, and of text up to a quotation that is not closed.

        As in pyarrow, a quotation mark is text unless it begins a field.
        """
        before = re.escape("\r\n" + (" \t" if self.delimiter == " " else self.delimiter))
        sign = "" if self.comment is None else re.escape(self.comment)
        comment = f"|{sign}[^\r\n]*+" if sign else ""
        # Each begins with a literal, and the look behind comes after it: so searches are fast.
        opened = f'"(?<![^{before}]")[^"]*+(?:""[^"]*+)*+'
        mark = f'{opened}(?:"|\\Z){comment}'
        text = f'(?:[^"{sign}]++|{opened}"|"(?<=[^{before}]"){comment}|[^"])*+'
        return re.compile(mark.encode()), re.compile(text.encode())

    def cut(self, file: Any, path: str) -> common.Lines:
        """Yield pieces of whole lines, in the encoding, each with the byte at which it begins.

        A line break in quotation marks does not end a line.
        """
        file.seek(self.begin)
        begin, held = self.begin, b""
        for _, piece in common.whole_lines(file, path, end=self.end):
            held += piece
            stop = self._closed(held)
            if stop:
                yield begin, held[:stop]
            begin, held = begin + stop, held[stop:]
            if len(held) > common.LINE_BYTES:
                words = f"over {common.LINE_BYTES} bytes in the line at {begin}"
                raise ValueError(f"{path} is not text: {words}.")
        if held:
            yield begin, held
            line = shortened(self._utf8(held).decode("utf-8", "replace"), 40)
            raise common.UnfitError(
                f"a quotation mark is not closed in {line!r}; correct the line."
            )

    def _closed(self, piece: bytes) -> int:
        """Bytes of a piece up to the last line end outside quotation marks."""
        if '"'.encode(self.encoding) not in piece:
            return len(piece)
        text = self._utf8(piece)
        opened = self._opened(text)
        if opened is None:
            return len(piece)
        plain = self._patterns[0].sub(lambda found: b" " * len(found[0]), text[:opened])
        stop = plain.rfind(self.end.decode(self.encoding).encode()) + 1
        return stop if self.encoding == "utf-8" else len(text[:stop].decode().encode(self.encoding))

    def _opened(self, text: bytes) -> int | None:
        """Byte of the quotation mark that is not closed in a text, if there is one."""
        found = self._patterns[1].match(text)
        stop = found.end() if found else 0
        return stop if stop < len(text) else None

    @cached_property
    def _sound(self) -> re.Pattern[bytes]:
        """Pattern of decoded text up to a quotation that text follows, or that is not closed."""
        before, after = (" \t", "") if self.delimiter == " " else (self.delimiter, " \t")
        blanks = f"[{after.replace(self.delimiter, '')}]*+" if after else ""
        sign = re.escape(before)
        opened = f'"(?<![^\r\n{sign}]")[^"]*+(?:""[^"]*+)*+"(?={blanks}(?:[\r\n{sign}]|\\Z))'
        return re.compile(f'(?:[^"]++|{opened}|"(?<=[^\r\n{sign}]"))*+'.encode())

    def check_quotations(self, text: bytes, path: str, begin: int) -> None:
        """Refuse text behind a closing quotation mark, which may belong to another line.

        ``text`` is decoded, and begins at the byte ``begin`` of the file.
        """
        if b'"' not in text:
            return
        found = self._sound.match(text)
        place = found.end() if found else 0
        if place == len(text) or place == self._opened(text):  # which is refused with the file
            return
        end = self.end.decode(self.encoding).encode()
        number = self._line_number(path, begin) + text.count(end, 0, place)
        start, stop = text.rfind(end, 0, place) + 1, text.find(end, place)
        line = text[start : stop if stop >= 0 else len(text)].decode("utf-8", "replace")
        shown = shortened(line.strip(), 40)
        raise common.UnfitError(
            f"text follows a quotation in line {number}, {shown!r}; correct the line: quote the "
            "whole field and double the quotation marks in it, or remove one that nothing closes."
        )

    def _line_number(self, path: str, begin: int) -> int:
        """Number of the line that begins at a byte of the file, counted from 1."""
        number, before = 1, begin - self.begin
        with common.unpacked(path) as file:
            file.seek(self.begin)
            for place, piece in common.whole_lines(file, path, end=self.end):
                if place >= before:
                    break
                text = self._utf8(piece[: before - place])
                number += text.count(self.end.decode(self.encoding).encode())
        return number

    def _utf8(self, piece: bytes) -> bytes:
        if self.encoding == "utf-8":
            return piece
        try:
            return piece.decode(self.encoding).encode()
        except UnicodeDecodeError as error:
            raise EncodingError(not_text(error, self.encoding)) from error

    def decoded(self, piece: bytes) -> bytes:
        """A piece in UTF-8, without comments and runs of blanks."""
        text, blanks = self._utf8(piece), self.delimiter == " "
        if self.comment is None or self.comment.encode() not in text:
            if not blanks:
                return text
            if b'"' not in text:
                return b"\n".join(b" ".join(line.split()) for line in text.splitlines())
        # A tab that separates fields is not a blank: a row of empty fields is a row.
        blank = b" " if self.delimiter == "\t" else b" \t"
        parts, last = list[bytes](), 0  # by turns outside and inside quotation marks
        for found in self._patterns[0].finditer(text):
            part, comment = text[last : found.start()], found[0][:1] != b'"'
            parts += [part.rstrip(blank), b""] if comment else [part, found[0]]
            last = found.end()
        parts.append(text[last:])
        if blanks:
            parts[::2] = map(_one_blank, parts[::2])
        return b"".join(parts).strip(b" ") if blanks else b"".join(parts)

    def blank(self, piece: bytes) -> int:
        """Bytes of the blank lines with which a piece begins."""
        stop = len(piece) - len(piece.lstrip(b" \r\n\0"))
        return common.last_end(piece[:stop], self.end)

    def first(self, piece: bytes, most: int) -> Iterator[tuple[int, str]]:
        """Yield the first lines, each with the byte at which it begins.

        A line goes on while a quotation is open.
        """
        place = 0
        for _ in range(most):
            stop, within = place, False
            while stop < len(piece) and (stop == place or within):
                start, stop = stop, _line_end(piece, stop, self.end)
                line = self._utf8(piece[start:stop])
                within = self._opened(b'"' + line if within else line) is not None
            if stop == place:
                return
            text = self.decoded(piece[place:stop]).decode("utf-8", "replace").rstrip("\r\n")
            yield place, text
            place = stop


def check_encoding(given: Any) -> str | None:
    """Return the name of an encoding as Python writes it, or None for unknown."""
    if given is None:
        return None
    try:
        known = codecs.lookup(given).name.removesuffix("-sig")
        end = "\n".encode(WIDE.get(known, known))
    except (LookupError, TypeError, ValueError):
        words = "must be the name of an encoding, such as 'utf-8', 'cp1252' or 'utf-16'"
        raise ValueError(f"`encoding`={given!r} {words}.") from None
    if end.strip(b"\0") != b"\n":
        raise ValueError(f"`encoding`={given!r} is not supported. Save the file as UTF-8.")
    return known


def check_delimiter(given: Any) -> None:
    """Refuse what pyarrow does not take for a sign between fields."""
    known = isinstance(given, str) and len(given) == 1 and given.isascii() and given not in '"\r\n'
    if not known:
        words = "must be one ASCII character, such as ';', and no quotation mark or line break"
        raise ValueError(f"`delimiter`={given!r} {words}. Replace another one in the file.")


def check_container(head: bytes) -> None:
    """Refuse the first bytes of a file that is compressed, or not text, whatever its name."""
    remedy = next((words for mark, words in CONTAINERS.items() if head.startswith(mark)), None)
    if remedy is not None:
        raise common.UnfitError(f"it {remedy}.")


def check_comment(given: Any, delimiter: str, in_numbers: str = "") -> str | None:
    """Return the sign with which a comment begins, or None if there is none.

    Parameters
    ----------
    given : object
        As the user has passed it.
    delimiter : str
    in_numbers : str, default=""
        Signs with which numbers are written.  A comment may begin anywhere in a line, so that it
        would cut them off.
    """
    if given is None:
        return None
    known = isinstance(given, str) and len(given) == 1 and given not in '"\r\n'
    if not known or given == delimiter or not given.isprintable():
        words = (
            f"must be one printable character other than the delimiter {delimiter!r}, such as '#'"
        )
        raise ValueError(f"`comment`={given!r} {words}.")
    if given in in_numbers:
        words = "is a part of numbers, which would be cut off there"
        raise ValueError(f"`comment`={given!r} {words}. Pass `skip_rows`, or remove the lines.")
    return str(given)


def _encoding(head: bytes, given: str | None) -> tuple[str, int]:
    """The encoding of a file, with its byte order, and the length of its byte order mark."""
    mark, name = next(((m, name) for m, name in MARKS if head.startswith(m)), (b"", "utf-8"))
    if given is not None:
        name = name if mark and name.startswith(given) else WIDE.get(given, given)
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


def _one_blank(text: bytes) -> bytes:
    """Text with one blank between its fields, and none at the ends of its lines."""
    return re.sub(rb" ?([\r\n]) ?", rb"\1", re.sub(rb"[ \t]+", b" ", text))
