"""Formulas as MathML, which browsers draw themselves: the site needs no script from elsewhere."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def setup(app: Sphinx):
    """Sphinx calls this once; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "version": "1"}


def inline(self, node):
    self.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def display(self, node):
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode
