"""Small pieces of HTML for notebooks: tables, bars, and a plot of angles.

No script and no style sheet: a notebook may drop them.  Text and lines take the colour of the
notebook, light or dark; the other colours have enough contrast on both.  All text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from primedpca._core.outward_rounding import degrees_up

__all__ = ["angle_plot", "bar", "block", "bound_markup", "paragraph", "table"]

BLUE, ORANGE, GREEN = "#2489c9", "#d9701a", "#2a9d6e"
WIDTH, HEIGHT, LEFT, BOTTOM = 360, 130, 46, 18
MOST_POINTS = 200  # components in a plot of angles
LOWEST, HIGHEST = -8.0, math.log10(90)  # decades of degrees
FONT = 'font-size="9" fill="currentColor"'


def block(*parts: str) -> str:
    """Join parts in one element."""
    return (
        f'<div style="max-width: 46em; line-height: 1.45; overflow-x: auto">{"".join(parts)}</div>'
    )


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f'<p style="margin: 0.3em 0">{escape(text)}</p>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain text; cells that begin with ``<svg`` are taken as they are.

    Examples
    --------
    >>> "&lt;b&gt;" in table(["name"], [["<b>"]])
    True
    """
    style = 'style="text-align: left; padding: 0.1em 0.8em 0.1em 0; white-space: nowrap"'
    top = "".join(f"<th {style}>{escape(word)}</th>" for word in head)
    body = "".join(
        "<tr>" + "".join(f"<td {style}>{_cell(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return (
        '<table style="border-collapse: collapse; margin: 0.4em 0; font-size: 0.92em">'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(text: str) -> str:
    return text if text.startswith("<svg ") else escape(text)


def bar(share: float, first: bool = False) -> str:
    """Return a horizontal bar that fills a share, from 0 to 1, of its width."""
    width = max(1.0, 90 * min(max(share, 0.0), 1.0))
    colour = BLUE if first else "currentColor"
    faint = 1 if first else 0.45
    return (
        '<svg role="presentation" width="90" height="10" viewBox="0 0 90 10">'
        f'<rect width="{width:.1f}" height="10" rx="2" fill="{colour}" opacity="{faint}"/></svg>'
    )


def angle_plot(
    own: Sequence[float] | np.ndarray,
    counted: Sequence[float] | np.ndarray,
    tol: float | None = None,
) -> str:
    """Draw the bound of each component in degrees, on a logarithmic scale, and the tolerance.

    Parameters
    ----------
    own, counted : array of shape (k,)
        Bounds of single vectors, and those that decide, in radians.
    tol : float, optional
        Tolerance in radians.
    """
    k = min(len(own), MOST_POINTS)
    if k == 0:
        return ""
    wide = WIDTH - LEFT - 10
    met = "" if tol is None else f", {int((np.asarray(counted) <= tol).sum())} within the tolerance"
    parts = [
        f'<svg role="img" aria-label="Bounds on the angles of {len(own)} components{met}" '
        f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'style="display: block; max-width: 100%">'
    ]
    for power, label in ((-8, "10⁻⁸°"), (-6, "10⁻⁶°"), (-4, "10⁻⁴°"), (-2, "0.01°"), (0, "1°")):
        y = _height(float(power))
        parts.append(_line(LEFT, y, WIDTH - 10, y, 'opacity="0.2"'))
        parts.append(
            f'<text x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end" {FONT}>{label}</text>'
        )
    if tol is not None:
        y = _height(math.log10(math.degrees(tol)))
        parts.append(_line(LEFT, y, WIDTH - 10, y, 'stroke-dasharray="5 3"'))
        parts.append(f'<text x="{WIDTH - 10}" y="{y + 10:.1f}" text-anchor="end" {FONT}>tol</text>')
    size = max(1.5, min(4.0, wide / k / 3))
    for i in range(k):
        x = LEFT + wide * (i + 0.5) / k
        parts.append(_point(x, float(own[i]), float(counted[i]), tol, size))
    ends = f"1 to {k}" + (f" of {len(own)}" if len(own) > k else "")
    words = "component 1" if len(own) == 1 else f"components {ends}"
    middle = LEFT + wide / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{HEIGHT - 4}" text-anchor="middle" {FONT}>{words}</text></svg>'
    )
    return "".join(parts)


def _height(decade: float) -> float:
    share = (min(max(decade, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return 8 + (HEIGHT - BOTTOM - 12) * (1 - share)


def _line(x: float, y: float, end: float, other: float, look: str) -> str:
    place = f'x1="{x:.1f}" y1="{y:.1f}" x2="{end:.1f}" y2="{other:.1f}"'
    return f'<line {place} stroke="currentColor" {look}/>'


def _point(x: float, own: float, counted: float, tol: float | None, size: float) -> str:
    """A dot; a ring for a subspace and for components without variance."""
    degrees = math.degrees(counted)
    y = _height(math.log10(degrees) if degrees > 0 else LOWEST)
    good = counted <= (math.pi / 8 if tol is None else tol)
    colour = GREEN if good else ORANGE
    fill = colour if own == counted else "none"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{fill}" stroke="{colour}"/>'


def bound_markup(radians: float) -> str:
    """Format a bound in degrees for a table, rounded up."""
    return "not proven" if radians >= math.pi / 2 else f"{degrees_up(radians):.2g}°"
