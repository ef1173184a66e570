"""Matplotlib figures as SVG elements of one HTML page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

__all__ = ["drawing", "inline_svg"]

#: A colour that no plot uses: it marks what follows the text colour of the page.
INK = "#010203"


@contextmanager
def drawing(salt: str) -> Iterator[None]:
    """Context in which figures are transparent and keep text as text."""
    from matplotlib import rc_context

    from primedpca.plots.canvas import colours, style

    settings: Any = colours("none", INK)
    settings |= {"svg.fonttype": "none", "svg.hashsalt": salt, "savefig.dpi": 150}
    settings["font.sans-serif"] = ["DejaVu Sans", "Verdana"]
    with style(), rc_context(settings), warnings.catch_warnings():
        # The browser has fonts for the characters that Matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def inline_svg(figure: Any, alt: str, prefix: str) -> str:
    """Return ``figure`` as an SVG element that fills the width that the page gives it.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Drawn within :func:`drawing`.
    alt : str
        Description for readers who cannot see the plot.
    prefix : str
        Prefix of every identifier, which must be unique within the page.

    Returns
    -------
    str
    """
    held = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(held, format="svg", metadata=nothing)
    text = held.getvalue()
    text = text[text.index("<svg") :]
    # Styles and identifiers would apply to all plots of the page, so drop or prefix them.
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, count=1, flags=re.S)
    text = re.sub(r'(\sid=")([^"]*")', rf"\1{prefix}\2", text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\1{prefix}", text)
    text = text.replace(INK, "currentColor")
    # Without width and height the page decides the size; the view box keeps the proportions.
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    head = f'<svg role="img" aria-label="{escape(alt)}" viewBox="{box[1]}">'
    return head + text[text.index(">") + 1 :].strip()
