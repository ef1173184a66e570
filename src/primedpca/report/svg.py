"""Figures of Matplotlib as SVG that can stand in an HTML page beside others."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

__all__ = ["drawing", "inline_svg"]

INK = "#010203"  # no picture uses it, so that it can be told apart and follow the page's text


@contextmanager
def drawing(salt: str) -> Iterator[None]:
    """Inside, figures have no ground of their own, and text stays text."""
    from matplotlib import rc_context

    from primedpca.plots import style

    clear = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings: Any = dict.fromkeys(clear, "none")
    settings |= dict.fromkeys((*inked, "grid.color", "legend.labelcolor"), INK)
    settings |= {"svg.fonttype": "none", "svg.hashsalt": salt, "savefig.dpi": 150}
    settings["font.sans-serif"] = ["DejaVu Sans", "Verdana"]
    with style(), rc_context(settings), warnings.catch_warnings():
        # The reader's browser has letters for what Matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def inline_svg(figure: Any, alt: str, prefix: str) -> str:
    """``figure`` as an SVG element with the words ``alt``, of whatever width the page gives it.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Drawn within :func:`drawing`.
    alt : str
    prefix : str
        Put before every identifier: no two of a page may be alike.

    Returns
    -------
    str
    """
    held = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(held, format="svg", metadata=nothing)
    text = held.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, count=1, flags=re.S)
    text = re.sub(r'(\sid=")([^"]*")', rf"\1{prefix}\2", text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\1{prefix}", text)
    text = text.replace(INK, "currentColor")
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    head = f'<svg role="img" aria-label="{escape(alt)}" viewBox="{box[1]}">'
    return head + text[text.index(">") + 1 :].strip()
