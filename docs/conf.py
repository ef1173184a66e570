"""The site: ``make docs``."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
os.environ.setdefault("MPLBACKEND", "agg")

from primedpca import __version__

project = "primedpca"
author = "The primedpca developers"
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "myst_nb",
    "numpydoc",
    "mathml",
    "pages_of_site",
]
# Of an example the page is made from its .rst; its notebook is only there to download.
exclude_patterns = ["_build", "auto_examples/*.ipynb"]
templates_path = ["_templates"]
# The gallery keeps functions in its settings, which cannot be compared with the last build.
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["dollarmath"]
# The tutorial is a notebook without outputs: the build runs it, and fails if a cell does.
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
myst_heading_anchors = 3
html_math_renderer = "mathml"

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc says the types, and the shapes
numpydoc_show_class_members = False
# Undocumented, missing or unknown parameters, types and returns fail the build.
numpydoc_validation_checks = {"GL08", "PR01", "PR02", "PR03", "PR04", "RT01", "YD01"}
# But not of what has attributes in their place, of members that a protocol describes, and of
# generators, which have Yields in the place of Returns.
numpydoc_validation_exclude = {
    r"^sklearn\.",
    r"^primedpca\.(result|protocols|sources)\.",
    r"^primedpca(\.(priming|engines)|_paper)\.(\w+\.)*[A-Z]\w+\.",
    r"^primedpca\.(monitoring|choosing|rotation)\.[A-Z]",
    r"^primedpca\.(prime|plots\.style)$",
}
add_module_names = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]+\.py$",
    "within_subsection_order": "pages_of_site.by_place",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "plot_gallery": "True",
    "remove_config_comments": True,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "primedpca"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
copyright = "The primedpca developers, BSD-3-Clause"
