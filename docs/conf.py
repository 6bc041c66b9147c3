"""The documentation site: `make docs` builds it into docs/_build/html, which opens from disk."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from blockxmc import __version__  # noqa: E402

project, author = "blockxmc", "the blockxmc authors"
version = release = __version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "generated_pages",
    "offline_math",
]
exclude_patterns = [
    "_build",
    "jupyter_execute",
    "results/experiments/figure-*.md",
    "results/experiments/table-*.md",
    "results/experiments/verdicts.md",
    "results/experiments/report.md",  # generated_pages has it without long tables
]
# Pages of results begin where the report that they are part of puts them.
suppress_warnings = ["myst.header"]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

# Examples are notebooks kept as text; they run when the site is built, and an error in one stops the build.
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = True
numpydoc_class_members_toctree = False
numpydoc_show_inherited_class_members = True

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_context = {"default_mode": "auto"}
html_title = "blockxmc"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "logo": {"text": "blockxmc"},
}
copyright = "the blockxmc authors, Apache-2.0"
