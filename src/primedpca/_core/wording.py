"""Numbers as text: angles, probabilities, durations, sizes, and numbered lists.

Claims are never rounded in their own favour: bounds are rounded up, and probabilities that a claim
holds are rounded down.  Text counts components from 1; arrays and masks are indexed from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_FLOOR, Context, Decimal

from primedpca._core.outward_rounding import degrees_up

__all__ = [
    *("angle_words", "bound_words", "certainty_words", "count_words", "degrees", "duration"),
    *("numbered", "size"),
]

MOST_NINES = 30  # digits of a probability in per cent; a smaller failure probability shows these
FINEST = 1e-6  # degrees; in a sentence, more zeros tell the reader nothing
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def numbered(which: Iterable[bool], most: int | None = None) -> str:
    """Name the components that a mask selects, counted from 1.

    Parameters
    ----------
    which : iterable of bool
    most : int or None, default=None
        Maximum number of runs that are listed; ``None`` lists all.

    Examples
    --------
    >>> numbered([True, True, True, False, True])
    'Components 1 to 3 and 5'
    >>> numbered([True, False] * 5, most=2)
    'Components 1, 3 and 3 more'
    """
    numbers = [i for i, chosen in enumerate(which, start=1) if chosen]
    runs: list[list[int]] = []
    for i in numbers:
        if runs and runs[-1][-1] == i - 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    parts: list[str] = []
    for run in runs[:most]:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    if left := sum(map(len, runs[len(runs) if most is None else most :])):
        parts.append(f"{left} more")
    listed = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
    return f"Component{'s' * (len(numbers) > 1)} {listed}"


def count_words(count: int, noun: str = "component") -> str:
    """Return ``1 component`` or ``3 components``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def passes_words(passes: float) -> str:
    """Format a number of passes; mini-batches are fractions of one.

    Examples
    --------
    >>> passes_words(2.0), passes_words(0.1234), passes_words(1234.5)
    ('2', '0.123', '1234')
    """
    return f"{passes:.3g}" if passes < 100 else f"{passes:.0f}"


def degrees(radians: float) -> str:
    """Format an angle bound in degrees with two digits, rounded up.

    Examples
    --------
    >>> degrees(0.00351), degrees(1.61e-12), degrees(0.0), degrees(math.pi / 2)
    ('0.21°', '9.3e-11°', '0°', '90°')
    """
    value = degrees_up(radians)
    return f"{value:.0f}°" if value >= 10 else f"{value:.2g}°"


def angle_words(radians: float) -> str:
    """Format an angle bound for a sentence: degrees, rounded up, never in powers of ten.

    Examples
    --------
    >>> angle_words(0.00035), angle_words(1e-12), angle_words(0.2)
    ('0.021°', '0.000001°', '12°')
    """
    return f"{Decimal(repr(max(degrees_up(radians), FINEST))).normalize():f}°"


def bound_words(radians: float) -> str:
    """Format an angle bound for a table of degrees; a dash stands for "nothing proven".

    Examples
    --------
    >>> bound_words(0.00035), bound_words(1e-12), bound_words(2.0)
    ('0.021', '5.8 × 10⁻¹¹', '–')
    """
    if radians >= math.pi / 2:
        return "–"
    if radians == 0:
        return "0"
    value = Decimal(f"{degrees_up(radians):.1e}")
    if value >= Decimal("0.0001"):
        return f"{value:f}"
    power = value.adjusted()
    return f"{value.scaleb(-power):f} × 10{str(power).translate(SUPERSCRIPTS)}"


def certainty_words(failure_probability: float) -> str:
    """Format the probability that all claims hold in per cent, rounded down.

    Examples
    --------
    >>> certainty_words(1e-6), certainty_words(0.05), certainty_words(9e-7)
    ('99.9999 %', '95 %', '99.9999 %')
    """
    # The small addition keeps log10 of a power of ten from falling below it.
    nines = max(0, math.floor(-math.log10(failure_probability) + 1e-9) - 2)
    nines = min(nines, MOST_NINES)
    down = Context(prec=2 * MOST_NINES, rounding=ROUND_FLOOR)
    held = down.multiply(100, down.subtract(1, Decimal(repr(float(failure_probability)))))
    return f"{down.quantize(held, Decimal(1).scaleb(-nines)):f} %"


def duration(seconds: float) -> str:
    """Format a time, such as ``3 ms``, ``0.3 s``, ``45 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def memory_words(count: float, up: bool = False) -> str:
    """Format a memory limit or need: whole MB, and below 1 MB kB or bytes.

    Parameters
    ----------
    count : float
        Number of bytes.
    up : bool, default=False
        Whether to round up, as for a need that exceeds a limit.

    Examples
    --------
    >>> memory_words(2.1e7), memory_words(1500, up=True), memory_words(1)
    ('21 MB', '2 kB', '1 byte')
    """
    rounded = math.ceil if up else round
    for unit, above in (("MB", 1e6), ("kB", 1e3)):
        if count >= above:
            return f"{rounded(count / above)} {unit}"
    return count_words(rounded(count), "byte")


def size(count: float) -> str:
    """Format a number of bytes, such as ``2.1 GB``."""
    for unit, above in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= above:
            return f"{count / above:.1f} {unit}"
    return f"{count:.0f} B"
