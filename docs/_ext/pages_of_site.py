"""What the pages need to be both good pages of a repository and pages of this site."""

import importlib.util
import re
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)\)")
NAME = re.compile(r"(?<![`\w*])(\w+)_(?=[,)=])")
REFERENCE = re.compile(r":ref:`([^`<]*?)\s*(?:<[^`]*>)?`")


def page_read(app, name, text):
    """Links to folders, and entries of contents for pages that may not be written yet."""
    path = Path(app.env.doc2path(name))
    if name.startswith("results/"):  # linked to, but too many for a table of contents
        text[0] = "---\norphan: true\n---\n\n" + text[0]
    if path.suffix == ".md":
        text[0] = LINK.sub(lambda link: _into(path.parent, link), text[0])
    elif path.parent == Path(app.srcdir):
        kept = [line for line in text[0].splitlines() if not _is_empty(path.parent, line.strip())]
        text[0] = "\n".join(kept) + "\n"


def _into(here, link):
    """A folder is a place to look around in a repository; here its first page stands for it."""
    if not (here / link[2]).is_dir():
        return link[0]
    inside = sorted([*(here / link[2]).glob("*.md"), *(here / link[2]).glob("*.png")])
    return f"[{link[1]}]({inside[0].relative_to(here)})" if inside else link[1]


def _is_empty(here, line):
    """Whether a line is a pattern, such as ``report*``, that no page has the name of."""
    return re.fullmatch(r"\w+\*", line) is not None and not any(here.glob(line + ".*"))


def docstring_read(app, what, name, thing, options, lines):
    """Fitted attributes in shapes are no links, and labels of scikit-learn's site are not here."""
    lines[:] = [REFERENCE.sub(r"\1", NAME.sub(r"\1\\_", line)) for line in lines]


def by_place(file_name):
    """Where an example stands in the gallery: these first, then the others by name."""
    order = ["quickstart", "scores", "biplot", "component_images", "how_many", "ties", "audit"]
    name = Path(file_name).stem.removeprefix("plot_")
    return (order.index(name) if name in order else len(order), name)


class SpeedTable(Directive):
    """The table of ``benchmarks/summary.py``, from the results of the benchmark."""

    def run(self):
        """Write the Markdown table as a list table, whose cells have the same markup."""
        path = Path(__file__).parents[2] / "benchmarks" / "summary.py"
        spec = importlib.util.spec_from_file_location("summary", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.state.document.settings.env.note_dependency(str(module.RESULTS))
        head, _, *rows = module.summary().splitlines()
        lines = [".. list-table::", "   :header-rows: 1", "   :class: table", ""]
        for row in (head, *rows):
            first, *others = [cell.strip() for cell in row.strip("|").split("|")]
            lines += [f"   * - {first}", *(f"     - {cell}" for cell in others)]
        made = nodes.container()
        self.state.nested_parse(StringList(lines, source=str(path)), 0, made)
        return made.children


def setup(app):
    """Look at every page and docstring as it is read, after numpydoc."""
    app.add_directive("speed-table", SpeedTable)
    app.connect("source-read", page_read)
    app.connect("autodoc-process-docstring", docstring_read, priority=900)
    return {"parallel_read_safe": True}
