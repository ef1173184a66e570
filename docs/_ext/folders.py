"""Links from pages to folders and files beside the site, which on GitHub are just there.

A folder becomes a list of what is in it that the site has; a file outside of docs/ is copied.
"""

import re
from pathlib import Path

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)\)")


def unfolded(app, name, text):
    """Point links to folders at the first page or picture that lies in them."""
    here = Path(app.env.doc2path(name)).parent

    def points(match):
        words, target = match[1], here / match[2]
        if not target.is_dir():
            return match[0]
        inside = sorted([*target.glob("*.md"), *target.glob("*.png")])
        return f"[{words}]({inside[0].relative_to(here)})" if inside else words

    text[0] = LINK.sub(points, text[0])


def setup(app):
    """Look at every page as it is read."""
    app.connect("source-read", unfolded)
    return {"parallel_read_safe": True}
