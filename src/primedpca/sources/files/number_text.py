"""Numbers as people and programs write them: decimal commas, thousands, currencies, missing marks.

Nothing is guessed: a text is a number in the notation that the user states, or an error that
names the option with which it would be one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from primedpca._core.arrays import check_python_numbers
from primedpca.sources.files.common import need

#: Texts that stand for a missing value in every text file, as in pyarrow, and of spreadsheets.
ABSENT = (
    *("", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "NULL", "null", "NaN", "nan", "-NaN"),
    *("-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
#: Texts that often stand for a missing value, but may also be values.
MARKS = {
    *("-", "--", "---", "–", "—", ".", "..", "...", "?", "*", "none", "None", "NONE"),
    *("nil", "missing", "Missing", "unknown", "Unknown", "n.a.", "N.A.", "n. a.", "k.A.", "na"),
    *("n/d", "N/D", "\\N", "(null)", "<NA>", "<null>", "NaT", "#DIV/0!", "#VALUE!"),
    *("#REF!", "#NAME?", "#NUM!", "#NULL!", "#DIV/0", "blank", "empty"),
}
#: Separators of thousands that are all written for a blank: also no-break spaces.
BLANKS = " \u00a0\u202f\u2009"
SPACE = rf"\s{BLANKS}"  # in Arrow, \s has only those of ASCII
MINUS = "\u2212"  # a sign of its own, which typesetters use
DASHES = "\u2013\u2014-"  # behind a decimal sign they stand for zeros: 12.- is 12
LOOKED_AT = 2000  # entries of a column in which a notation is looked for
DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([T ].*)?|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}")
TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp][Mm])?")
PER_CENT = re.compile(r"%\s*[-+(]?\d")  # as in Turkish
AFFIX = re.compile(rf"[^\d.,+()'<>≤≥~\s−{DASHES}]{{1,6}}")
CURRENCIES = {"USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "CAD", "AUD", "SEK", "kr", "Rs", "R"}
TRUTH = {"true", "false"}  # in any spelling
YES_NO = {*TRUTH, "yes", "no", "y", "n", "t", "f", "ja", "nein", "oui", "non", "on", "off"}


@dataclass(frozen=True)
class Notation:
    """How a text file writes numbers and missing values.

    With ``decimal``, ``thousands`` or ``strip``, accounting notation is read as well: ``(5)`` and
    ``5-`` are -5.  A dash right after the decimal sign stands for its digits: ``5.-`` is 5.

    Attributes
    ----------
    decimal : str, default="."
        The decimal sign.
    thousands : str or None
        Separator of groups of digits; a blank stands for no-break spaces, too.
    strip : tuple of str
        Texts to remove before or after a number, such as ``"$"``, ``"%"`` or ``"kg"``.
    na_values : tuple of str
        Texts that stand for a missing value, besides :data:`ABSENT`.
    na_numbers : tuple of float
        Those of them that are numbers: ``-999`` also stands for ``-999.0`` and ``-9.99e2``.
    """

    decimal: str = "."
    thousands: str | None = None
    strip: tuple[str, ...] = ()
    na_values: tuple[str, ...] = ()
    na_numbers: tuple[float, ...] = ()

    @property
    def signs(self) -> str:
        """Signs with which numbers are written, other than those of missing values and units."""
        return f"0123456789eE+(){self.decimal}{self.thousands or ''}{MINUS}{DASHES}"

    @classmethod
    def of(cls, decimal: Any, thousands: Any, strip: Any, na_values: Any) -> "Notation":
        """Check the options and return the notation."""
        for name, sign in (("decimal", decimal), ("thousands", thousands)):
            known = isinstance(sign, str) and len(sign) == 1 and not sign.isalnum()
            if sign is not None and (not known or sign in '+-()"'):
                raise ValueError(f"`{name}`={sign!r} must be one sign, such as ',' or '.'.")
        decimal = "." if decimal is None else decimal
        if thousands == decimal:
            other = "," if thousands == "." else "."
            words = f"`thousands` and `decimal` are both {thousands!r}. Pass `decimal`={other!r}."
            raise ValueError(words)
        strip, marks = texts_of(strip, "strip"), marks_of(na_values, "na_values")
        for text in strip:
            if not text.strip() or re.search(r"[\d()+-]", text):
                raise ValueError(f"`strip` has {text!r}; digits, signs and brackets stay.")
        plain = cls(decimal, thousands, tuple(text.strip() for text in strip))
        absent = tuple(str(mark) for mark in marks)
        return replace(plain, na_values=absent, na_numbers=plain._numbers_in(marks))

    def _numbers_in(self, marks: list[Any]) -> tuple[float, ...]:
        """The values among marks for missing values that are numbers, or texts of numbers."""
        found = list[float]()
        for mark in marks:
            if isinstance(mark, str):
                found += self._floats(mark.strip())
            elif not isinstance(mark, (bool, np.bool_)):
                # numpy.float32(0.1) prints as 0.1, which is another number in float64.
                found += [float(mark), float(str(mark))]
        return tuple(dict.fromkeys(found))

    def _floats(self, mark: str) -> list[float]:
        """The value of a text in this notation, or else as programs write it, if it is a number."""
        arrow = need("pyarrow", "CSV")
        if all(_right([mark], self)) and not self.is_plain:
            return [x for x in self.numbers(arrow.array([mark]))[0].to_pylist() if x is not None]
        if "," in mark and all(_right([mark], replace(self, decimal=","))):
            words = f"Pass `decimal`=',', or {mark.replace(',', '.')}."
            raise ValueError(f"`na_values` has {mark!r}, a number with a decimal comma. {words}")
        return [float(mark)] if reads_as_number(mark) else []

    def without_absent(self, values: np.ndarray, boolean: Sequence[bool]) -> np.ndarray:
        """Return the numbers of a table, with NaN for those that stand for a missing value.

        Columns that are ``boolean`` hold true and false, which are not the numbers 1 and 0.
        """
        if not self.na_numbers:
            return values
        absent = np.isin(values, self.na_numbers)
        absent[:, np.asarray(boolean, bool)] = False
        values = values.copy(order="K")
        values[absent] = np.nan
        return values

    @property
    def is_plain(self) -> bool:
        """Whether pyarrow reads every number of this notation by itself."""
        return self.thousands is None and not self.strip and self.decimal == "."

    @property
    def absent(self) -> list[str]:
        """All texts that stand for a missing value."""
        return [*ABSENT, *self.na_values]

    @cached_property
    def _patterns(self) -> tuple[str, str, str, str]:
        """Patterns of what stands before and after a number, of a number, and of separators."""
        one = "|".join(re.escape(text) for text in sorted(self.strip, key=len, reverse=True))
        between = ""
        if self.thousands is not None:
            signs = BLANKS if self.thousands in BLANKS else self.thousands
            between = f"[{re.escape(signs)}]"
        # No number has a zero before its first separator: 0,123 is one with a decimal comma.
        grouped = rf"[1-9]\d{{0,2}}(?:{between}\d{{2,3}})*{between}\d{{3}}|"
        whole = rf"{grouped if between else ''}\d+"
        sign = re.escape(self.decimal)
        number = rf"(?:(?:{whole})(?:{sign}\d*)?|{sign}\d+)(?:[eE][+-]?\d+)?|[iI]nf(?:inity)?"
        before = rf"^([{SPACE}(+-]*)(?:{one})[{SPACE}]*"
        after = rf"[{SPACE}]*(?:{one})([{SPACE})-]*)$"
        return before, after, f"^[+-]?(?:{number})$", between

    def plain(self, column: Any) -> tuple[Any, Any]:
        """Arrow arrays: whether each text is a number, and the text that float64 is cast from.

        Both are null for a missing value.
        """
        arrow, compute = need("pyarrow", "CSV"), need("pyarrow.compute", "CSV")
        before, after, number, between = self._patterns
        text = compute.utf8_trim_whitespace(column)
        absent = compute.is_in(text, value_set=arrow.array(self.absent, text.type))
        text = compute.replace_substring(compute.if_else(absent, None, text), MINUS, "-")
        if self.strip:
            text = compute.replace_substring_regex(text, before, r"\1")
            text = compute.replace_substring_regex(text, after, r"\1")
        if self.is_plain:
            return compute.match_substring_regex(text, number), text
        # Before signs behind numbers are read: 12.- is a price without cents, not -12.
        zeros = rf"(\d{re.escape(self.decimal)})[{DASHES}]{{1,2}}([{SPACE})]*)$"
        text = compute.replace_substring_regex(text, zeros, r"\1\2")
        text = compute.replace_substring_regex(
            text, rf"^\([{SPACE}]*([^-].*?)[{SPACE}]*\)$", r"-\1"
        )
        text = compute.replace_substring_regex(text, rf"^([^-].*?)[{SPACE}]*-$", r"-\1")
        right = compute.match_substring_regex(text, number)
        text = compute.replace_substring_regex(text, between, "") if between else text
        if self.decimal != ".":
            text = compute.replace_substring(text, self.decimal, ".")
        return right, text

    def numbers(self, column: Any) -> tuple[Any, int | None]:
        """Arrow array of float64, and the place of the first text that is not a number, or None."""
        arrow, compute = need("pyarrow", "CSV"), need("pyarrow.compute", "CSV")
        right, text = self.plain(column)
        wrong = compute.index(right, False).as_py()
        if wrong >= 0:
            return None, wrong
        return text.cast(arrow.float64()), None

    def check_whole_numbers(self, column: Any, name: str) -> None:
        """Refuse whole numbers in the texts of a column that float64 cannot hold."""
        found = (word.strip() for word in self.plain(column)[1].to_pylist() if word)
        found = (word.removesuffix(".") for word in found)
        whole = [int(word) for word in found if word.lstrip("+-").isdecimal()]
        check_python_numbers(whole, f"column {name!r}")


def texts_of(given: Any, argument: str) -> list[str]:
    """One text or several, as a list; numbers are taken as they are written."""
    return [str(mark) for mark in marks_of(given, argument)]


def marks_of(given: Any, argument: str) -> list[Any]:
    """One text or number or several, of Python or NumPy, as a list."""
    if isinstance(given, Mapping):  # pandas takes marks for each column so
        raise TypeError(
            f"`{argument}`={given!r} is a {type(given).__name__}, but the same texts apply to all "
            "columns. Pass them as a list."
        )
    if isinstance(given, np.ndarray):
        given = given.ravel()  # one without dimensions cannot be iterated over
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    found = [] if given is None else list(given) if several else [given]
    known = (str, int, float, np.integer, np.floating, np.bool_)
    if not all(isinstance(mark, known) for mark in found):
        raise TypeError(f"`{argument}`={given!r} must be a text or number, or several.")
    return found


def reads_as_number(text: str) -> bool:
    """Whether a text is a number as programs write them."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python allows underscores among digits


def are_numbers(texts: Sequence[str], notation: Notation) -> list[bool]:
    """Whether each text is a number in a notation, or as programs write it."""
    right = zip(texts, _right(texts, notation), strict=True)
    return [good or reads_as_number(text) for text, good in right]


def may_be_row(texts: Sequence[str], notation: Notation) -> bool:
    """Whether fields of a first line may be a row: nothing but numbers, truth values and gaps.

    Gaps alone are names.
    """
    gaps = MARKS.union(notation.absent)
    known = [text for text in texts if text not in gaps or reads_as_number(text)]
    numbers = zip(known, are_numbers(known, notation), strict=True)
    return bool(known) and all(number or text.lower() in TRUTH for text, number in numbers)


# -- remedies ----------------------------------------------------------------------------------


def remedy(
    entries: Iterable[str | None], own: Notation, start: int = 0, comments: Sequence[str] = ()
) -> tuple[str, str]:
    """Describe a column of text by an entry that is not a number, and name the option for it.

    Parameters
    ----------
    entries : iterable of str or None
        Of the first lines.
    own : Notation
        The options that were given.
    start : int, default=0
        Index of the row of the first entry; messages count rows from 1.
    comments : sequence of str, default=()
        Signs with which a comment may begin, of entries at the start of their lines.

    Returns
    -------
    what : str
        Such as ``"'1.234,50' in row 3"``.
    option : str
        Such as ``"`decimal`=',', `thousands`='.'"``; empty if none is known.
    """
    absent = set(own.absent)
    known = [(i, entry.strip()) for i, entry in enumerate(entries, start) if entry]
    known = [(i, entry) for i, entry in known if entry not in absent]
    right = _right([entry for _, entry in known], own)
    bad = [pair for pair, good in zip(known, right, strict=True) if not good]
    if not bad:
        return "text", ""
    row, shown = bad[0]
    what = f"{shortened(shown)!r} in row {row + 1}"
    if any("\0" in entry for _, entry in bad):
        return f"NUL bytes, {what}", ""
    signs = {entry[0] for _, entry in bad}
    units = signs.intersection(own.strip)  # a unit without its number, not a comment
    if all(PER_CENT.match(entry) for _, entry in bad):  # as a comment, whole rows would be lost
        units.add("%")
    if len(signs) == 1 and signs.issubset(comments) and not units and len(bad) < len(known):
        return what, f"`comment`={signs.pop()!r}"
    texts = list(dict.fromkeys(entry for _, entry in known))[:LOOKED_AT]
    wrong = list(dict.fromkeys(entry for _, entry in bad))[:LOOKED_AT]
    if all(DATE.fullmatch(entry) or TIME.fullmatch(entry) for entry in wrong):
        return f"dates or times, {what}", ""
    option = _notation_for(texts, wrong, own)
    if not option and {entry.lower() for entry in wrong} <= YES_NO:
        return f"yes or no, {what}", ""
    return what, option


def shortened(text: str, most: int = 20) -> str:
    """Return the text, cut if it is long."""
    return text if len(text) <= most else f"{text[:most]}..."


def _right(texts: Sequence[str], notation: Notation) -> list[bool]:
    """Whether each text is a number in a notation."""
    if notation.is_plain:
        return [reads_as_number(text.replace(MINUS, "-")) for text in texts]
    arrow = need("pyarrow", "CSV")
    right, _ = notation.plain(arrow.array(texts, arrow.string()))
    return [good is True for good in right.to_pylist()]


def _notation_for(texts: list[str], wrong: list[str], own: Notation) -> str:
    """Options with which all texts are numbers or missing; empty if there are none."""
    units = set(own.strip).union(*map(_affixes, texts))
    marks = [text for text in wrong if text in MARKS or text in units]
    if marks and len(marks) == len(wrong):
        return _written(own, Notation(own.decimal, own.thousands, own.strip, tuple(marks)))
    numbers = [text for text in texts if text not in marks]
    found = [one for one in _candidates(numbers, own, tuple(marks)) if all(_right(numbers, one))]
    if not found:
        return ""
    first = found[0]
    if own.decimal != ".":  # which was stated: what it means in other columns stays
        return _written(own, first)
    other = next((one for one in found if _contradicts(first, one)), None)
    doubtful = next((text for text in numbers if re.search(r"\d,\d{3}(?!\d)", text)), None)
    if other is None or doubtful is None:
        return _written(own, first)
    comma, point = sorted((first, other), key=lambda one: one.decimal)
    return (
        f"{_written(own, point)} if the comma in {shortened(doubtful)!r} separates thousands, or "
        f"{_written(own, comma)} if it is the decimal sign"
    )


def _contradicts(one: Notation, other: Notation) -> bool:
    """Whether the comma is the decimal sign in one notation and not in the other."""
    return {one.decimal, other.decimal} == {".", ","} and one.strip == other.strip


def _candidates(texts: list[str], own: Notation, marks: tuple[str, ...]) -> Iterator[Notation]:
    """Yield notations to try, the simplest first."""
    ends = dict.fromkeys(affix for text in texts for affix in _affixes(text))
    units = [end for end in ends if end.isalpha()]
    ends = ends if len(units) < 2 else {}  # 1a, 2b, ... are names
    strips = [own.strip]
    if ends and len(ends) <= 4:
        strips.append(tuple(dict.fromkeys((*own.strip, *ends))))
    signs = [(".", None), (".", ","), (",", None), (",", "."), (".", " "), (",", " ")]
    signs += [(".", "'"), (".", "\u2019")]
    if own.decimal != ".":
        separators = (None, ".", ",", " ", "'", "\u2019")
        stated = [(own.decimal, mark) for mark in separators if mark != own.decimal]
        signs = [*stated, *signs]
    for strip in strips:
        for decimal, thousands in [(own.decimal, own.thousands), *signs]:
            yield Notation(decimal, thousands, strip, (*own.na_values, *marks))


def _affixes(text: str) -> list[str]:
    """Currency, unit or per cent sign before and after the digits of a text."""
    outer = re.fullmatch(r"([^\d]*?)([\d.,'\u2019 \u00a0\u202f]+)([^\d]*)", text)
    if outer is None:
        return []
    before, after = (AFFIX.search(part) for part in (outer[1], outer[3]))
    found = [after[0]] if after else []
    # Letters right before a number are more often a name, such as r1, than a currency.
    if before and (not before[0].isalpha() or before[0] in CURRENCIES):
        found.append(before[0])
    return found


def _written(own: Notation, found: Notation) -> str:
    """Write the options in which a notation differs from the one that was given."""
    parts = [
        f"`{name}`={getattr(found, name)!r}" if getattr(found, name) else f"no `{name}`"
        for name in ("decimal", "thousands")
        if getattr(found, name) != getattr(own, name)
    ]
    for name in ("strip", "na_values"):
        texts = list(islice(dict.fromkeys(getattr(found, name)), 9))
        if set(texts) - set(getattr(own, name)):
            parts.append(f"`{name}`={texts if len(texts) > 1 else texts[0]!r}")
    return ", ".join(parts)
