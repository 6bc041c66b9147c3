"""One figure per data set: P@5 against batch time, every system, labelled where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from peer_report import OURS, TITLES, Row

COLOURS = {
    "blockxmc default": "#c1121f",
    "pecos xr-linear": "#1d3557",
    "omikuji parabel-1": "#8ab17d",
    "omikuji parabel-3": "#2a9d8f",
    "omikuji bonsai-3": "#6a8d2f",
    "napkinxc plt": "#e09f3e",
}
FRAME = 5.0  # points of P@5 below the best that are drawn to scale
# Where a label may stand beside its point: offset in points, and how it is anchored.
PLACES = [
    (dx, dy, "left" if dx > 0 else "right", "center")
    for dy in (0, 9, -9, 18, -18, 27, -27, 36, -36, 45, -45)
    for dx in (7, -7)
]


def draw(data: str, rows: Sequence[Row], path: Path) -> None:
    """Settings of one model are joined by a line; a point far below stands on the lower edge with its value."""
    figure, axes = plt.subplots(figsize=(9.5, 5.6), dpi=150)
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
            below = f" ({row['P@5']:.1f}, below the frame)" if row["P@5"] < floor else ""
            points.append((row["batch_us"], height, f"{TITLES[system]}, {row['setting']}{below}", colour))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    times = [x for x, *_ in points]
    axes.set_xlim(min(times) / 1.7, max(times) * 1.7)
    axes.set_ylim(floor - 0.25, best + 0.45)
    axes.set(xlabel="batch time, CPU µs per row on one thread", ylabel="P@5, points")
    axes.set_title(f"{data}: precision against the time of a prediction (up and left is better)", loc="left", fontsize=10)
    axes.grid(True, which="major", color="#e9ecef", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    _label(figure, axes, points)
    figure.savefig(path)
    plt.close(figure)


def _label(figure: Any, axes: Any, points: Sequence[tuple[float, float, str, str]]) -> None:
    """Put each text at the first place where it meets no other text, no point and no edge."""
    figure.canvas.draw()
    frame = axes.get_window_extent()
    marks = [axes.transData.transform((x, y)) for x, y, *_ in points]
    taken: list[Any] = []
    for x, y, text, colour in points:
        for dx, dy, across, up in PLACES:
            note = axes.annotate(
                text, (x, y), (dx, dy), textcoords="offset points", ha=across, va=up, fontsize=7, color=colour,
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkB": 2} if dy else None,
            )  # fmt: skip
            box = note.get_window_extent()
            free = not any(box.overlaps(other) for other in taken) and not any(box.contains(*mark) for mark in marks)
            if free and frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1:
                break
            if (dx, dy, across, up) != PLACES[-1]:
                note.remove()
        taken.append(box)
