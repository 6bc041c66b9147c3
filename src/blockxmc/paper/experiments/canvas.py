"""What all figures share: a canvas, colours, and a picture with the numbers it shows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from blockxmc.paper.experiments.tables import Table, why_nothing
from blockxmc.plots import _pyplot

COLOURS = {
    "dismec": "#1d5f8a",
    "pd-sparse": "#c8553d",
    "leml": "#3a7d44",
    "ppd-sparse": "#7b4b94",
    "naive-bayes": "#8d6b2f",
}
MARKERS = {"dismec": "o", "pd-sparse": "s", "leml": "^", "ppd-sparse": "D", "naive-bayes": "v"}
THREE = ("#1d5f8a", "#3a7d44", "#c8553d")
GREY = "#6c757d"
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": False,
    "svg.hashsalt": "blockxmc",
    "legend.frameon": False,
    "legend.fontsize": 8,
}


@dataclass(frozen=True)
class Figure:
    """A picture in two forms, and the numbers it shows."""

    name: str
    title: str
    caption: str
    png: bytes
    svg: bytes
    points: Table
    vector: bool = True  # whether pages show the SVG rather than the PNG


@contextmanager
def canvas(*shape: int, **options: Any) -> Iterator[tuple[Any, Any, dict[str, bytes]]]:
    """A figure, its axes and a dict that has the bytes of its PNG and SVG after the with block."""
    plt = _pyplot()
    drawn: dict[str, bytes] = {}
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(*shape, **options)
        try:
            yield figure, axes, drawn
            for kind in ("png", "svg"):
                out = io.BytesIO()
                figure.savefig(out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
                drawn[kind] = out.getvalue()
        finally:
            plt.close(figure)


def draw_failure(axes: Any, error: str | None) -> None:
    """Say in a panel why there is nothing to draw."""
    place: dict[str, Any] = {"ha": "center", "va": "center", "transform": axes.transAxes}
    axes.text(0.5, 0.5, why_nothing(error or ""), wrap=True, color=GREY, fontsize=8, **place)
    axes.set(xticks=[], yticks=[])
