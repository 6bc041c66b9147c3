"""One figure per data set: P@5 against batch time, every system, labelled where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Bbox
from peer_report import OURS, Row

COLOURS = {
    "blockxmc default": "#c1121f",
    "pecos xr-linear": "#1d3557",
    "omikuji parabel-1": "#8ab17d",
    "omikuji parabel-3": "#2a9d8f",
    "omikuji bonsai-3": "#6a8d2f",
    "napkinxc plt": "#e09f3e",
    "libmultilabel tree": "#7b2cbf",
}
SHORT = {
    "blockxmc default": "blockxmc",
    "pecos xr-linear": "PECOS",
    "omikuji parabel-1": "Parabel 1",
    "omikuji parabel-3": "Parabel 3",
    "omikuji bonsai-3": "Bonsai 3",
    "napkinxc plt": "napkinXC",
    "libmultilabel tree": "LibMultiLabel",
}
FRAME = 5.0  # points of P@5 below the best that are drawn to scale
# Where a label may stand: pixels from its point to the label's centre, in heights of the label, and widths across.
PLACES = [(0.0, 0.5), (0.0, -0.5), (1.2, 0.0), (-1.2, 0.0)]
PLACES += [
    (up, across) for up in (1.2, -1.2, 2.2, -2.2, 3.2, -3.2, 4.4, -4.4, 6, -6, 8, -8) for across in (0.5, -0.5, 0.0)
]


def draw(data: str, rows: Sequence[Row], path: Path) -> None:
    """Settings of one model are joined by a line; a point far below stands on the lower edge with its value."""
    figure, axes = plt.subplots(figsize=(10, 5.8), dpi=150)
    best = max(row["P@5"] for row in rows)
    floor = best - FRAME
    points = []
    for system, colour in COLOURS.items():
        own = sorted((row for row in rows if row["system"] == system), key=lambda row: row["batch_us"])
        if not own:
            continue
        width, size = (2.2, 8) if system == OURS else (1.2, 5.5)
        heights = [max(row["P@5"], floor) for row in own]
        axes.plot(
            [row["batch_us"] for row in own], heights, marker="o", color=colour, linewidth=width, markersize=size,
            alpha=0.9, zorder=3 if system == OURS else 2,
        )  # fmt: skip
        for row, height in zip(own, heights, strict=True):
            points.append((row["batch_us"], height, _name(row, floor), colour))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    times = [x for x, *_ in points]
    axes.set_xlim(min(times) / 1.7, max(times) * 1.7)
    axes.set_ylim(floor - 0.25, best + 0.45)
    axes.set(xlabel="batch time, CPU µs per row on one thread", ylabel="P@5, points")
    title = f"{data}: precision against the time of a prediction (up and left is better; Parabel, Bonsai: omikuji)"
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(True, which="major", color="#e9ecef", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    _label(figure, axes, points)
    figure.savefig(path)
    plt.close(figure)


def _name(row: Row, floor: float) -> str:
    name = f"{SHORT[row['system']]}, {row['setting']}"
    if row["system"].startswith("omikuji"):
        name = name.replace(", beam 10", "")  # it has no other beam here
    return f"{name} ({row['P@5']:.1f}, below the frame)" if row["P@5"] < floor else name


def _label(figure: Any, axes: Any, points: Sequence[tuple[float, float, str, str]]) -> None:
    """Put each text where it covers least: other texts, points, and what lies beyond the edges."""
    figure.canvas.draw()
    frame = axes.get_window_extent()
    marks = [tuple(axes.transData.transform((x, y))) for x, y, *_ in points]
    taken = [Bbox.from_bounds(x - 8, y - 8, 16, 16) for x, y in marks]
    for i in range(1, len(points)):
        if points[i - 1][-1] == points[i][-1]:  # the line between two settings of one model, as a chain of small boxes
            chain = np.linspace(marks[i - 1], marks[i], 40)
            taken += [Bbox.from_bounds(x - 2, y - 2, 4, 4) for x, y in chain]
    for (x, y), (*_, text, colour) in zip(marks, points, strict=True):
        note = axes.text(0, 0, text, fontsize=7.5, color=colour, ha="center", va="center", zorder=4, transform=None)
        size = note.get_window_extent()
        width, height = size.width, size.height

        def box(place: tuple[float, float], x: float = x, y: float = y, w: float = width, h: float = height) -> Bbox:
            side = (place[1] > 0) - (place[1] < 0)
            return Bbox.from_bounds(x + place[1] * w + 16 * side - w / 2, y + place[0] * h - h / 2, w, h)

        best = box(min(PLACES, key=lambda place: _covered(box(place), taken, frame)))
        taken.append(best)
        centre = (best.x0 + best.x1) / 2, (best.y0 + best.y1) / 2
        note.set_position(centre)
        if abs(centre[1] - y) > 1.5 * height:
            end = min(max(x, best.x0), best.x1), best.y0 if centre[1] > y else best.y1
            axes.plot(*zip((x, y), end, strict=True), color=colour, linewidth=0.5, transform=None, clip_on=False)


def _covered(box: Bbox, taken: Sequence[Bbox], frame: Bbox) -> float:
    inside = Bbox.intersection(box, frame)
    lost = box.width * box.height - (inside.width * inside.height if inside else 0.0)
    shared = (Bbox.intersection(box, other) for other in taken)
    return float(lost + sum(both.width * both.height for both in shared if both))
