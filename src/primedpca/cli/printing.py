"""What is printed, and how: one JSON object, or text that is plain unless for a terminal."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import TYPE_CHECKING, Any

from primedpca._core.outward_rounding import degrees_up

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["angle", "duration", "print_json", "printable", "say", "size", "to_terminal"]

#: Characters that a terminal obeys and does not show: controls, marks that turn the direction of
#: writing, separators of lines, and halves of surrogate pairs, which cannot be written at all.
OBEYED = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
    r"|[\U000e0000-\U000e007f]"
)


def printable(text: object, keep: str = "") -> str:
    r"""The text with characters that a terminal would obey written out, but for those to keep.

    Examples
    --------
    >>> print(printable("red \x1b[31m, a line\nanother"))
    red \x1b[31m, a line\nanother
    """

    def written(match: re.Match[str]) -> str:
        return match[0] if match[0] in keep else ascii(match[0])[1:-1]

    return OBEYED.sub(written, str(text))


def say(text: str, *, error: bool = False) -> None:
    """Print a line, to the error stream if it is about an error."""
    print(printable(text), file=sys.stderr if error else sys.stdout)


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on one line; what is no number is null."""
    text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=False)
    print(OBEYED.sub(lambda match: json.dumps(match[0])[1:-1], text))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def to_terminal(*, stderr: bool = False) -> Console:
    """A console: coloured on a terminal, plain in a pipe, nothing guessed to be markup."""
    from rich.console import Console

    class Terminal(Console):
        """A console on which text stays text; colours are given beside it."""

        def print(self, *objects: Any, **look: Any) -> None:
            shown = (printable(part, "\n") if isinstance(part, str) else part for part in objects)
            super().print(*shown, **look)

    return Terminal(stderr=stderr, highlight=False, markup=False, emoji=False)


def angle(radians: float) -> str:
    """Two digits of a bound in degrees, rounded up; a right angle is nothing.

    Examples
    --------
    >>> angle(0.00351), angle(1.61e-12), angle(0.0), angle(2.0)
    ('0.21°', '9.3e-11°', '0°', 'not proven')
    """
    return "not proven" if radians >= math.pi / 2 else f"{degrees_up(radians):.2g}°"


def duration(seconds: float) -> str:
    """``3 ms``, ``0.3 s``, ``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: float) -> str:
    """Bytes for people."""
    for unit, above in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= above:
            return f"{count / above:.1f} {unit}"
    return f"{count:.0f} B"
