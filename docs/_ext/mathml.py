"""Mathematics as MathML, which browsers draw themselves: the site loads nothing from elsewhere."""

import re

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

TAG = re.compile(r"\\tag\{([^}]*)\}")


def inline(writer, node):
    """A formula in a line."""
    writer.body.append(convert(node.astext()))
    raise SkipNode


def block(writer, node):
    """A formula on a line of its own, with its number on the right."""
    text = node.astext()
    number = TAG.search(text)
    writer.body.append('<div class="math">')
    writer.body.append(convert(TAG.sub("", text), display="block"))
    if number:
        writer.body.append(f'<span class="eqno">({number[1]})</span>')
    writer.body.append("</div>")
    raise SkipNode


def setup(app):
    """Offer the renderer as ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True}
