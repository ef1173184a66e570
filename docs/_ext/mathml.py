"""Mathematics as MathML, which browsers draw themselves: the site loads nothing from elsewhere."""

from latex2mathml.converter import convert


def inline(writer, node):
    """A formula in a line."""
    writer.body.append(convert(node.astext()))
    raise _skip()


def block(writer, node):
    """A formula on a line of its own."""
    writer.body.append('<div class="math">')
    writer.body.append(convert(node.astext(), display="block"))
    writer.body.append("</div>")
    raise _skip()


def _skip():
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app):
    """Offer the renderer as ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True}
