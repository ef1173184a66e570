"""Output of commands: one JSON object, or text that has colour only on a terminal."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import TYPE_CHECKING, Any

from primedpca._core.wording import degrees, duration, size

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["angle", "duration", "print_json", "printable", "say", "size", "to_terminal"]

#: Characters that a terminal interprets instead of showing: control characters, bidirectional
#: marks, line separators, and lone surrogates, which cannot be encoded at all.
CONTROLS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
    r"|[\U000e0000-\U000e007f]"
)


def printable(text: object, keep: str = "") -> str:
    r"""Escape the characters that a terminal would interpret, except those in ``keep``.

    Examples
    --------
    >>> print(printable("red \x1b[31m, a line\nanother"))
    red \x1b[31m, a line\nanother
    """

    def written(match: re.Match[str]) -> str:
        return match[0] if match[0] in keep else ascii(match[0])[1:-1]

    return CONTROLS.sub(written, str(text))


def say(text: str, *, error: bool = False) -> None:
    """Print a line, to standard error if it is about an error."""
    print(printable(text), file=sys.stderr if error else sys.stdout)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on one line; NaN and infinity become null."""
    # Two trips through json replace non-finite numbers without a walk of our own.
    text = json.dumps(value, default=_as_json)
    plain = json.loads(text, parse_constant=lambda name: None)
    text = json.dumps(plain, allow_nan=False, ensure_ascii=False)
    # Readable in any language, but control characters stay escaped on a terminal.
    print(CONTROLS.sub(lambda match: json.dumps(match[0])[1:-1], text))


def _as_json(value: Any) -> Any:
    """Convert NumPy arrays and numbers to lists and numbers, and anything else to text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def to_terminal(*, stderr: bool = False) -> Console:
    """Return a console: coloured on a terminal, plain in a pipe, without markup in text."""
    from rich.console import Console

    class Terminal(Console):
        """A console that prints text literally; styles are separate arguments."""

        def print(self, *objects: Any, **look: Any) -> None:
            shown = (printable(part, "\n") if isinstance(part, str) else part for part in objects)
            super().print(*shown, **look)

    return Terminal(stderr=stderr, highlight=False, markup=False, emoji=False)


def angle(radians: float) -> str:
    """Format a bound in degrees, rounded up; a right angle proves nothing.

    Examples
    --------
    >>> angle(0.00351), angle(2.0)
    ('0.21°', 'not proven')
    """
    return "not proven" if radians >= math.pi / 2 else degrees(radians)
