"""Figures of what lambda, the number of blocks and the data do to BP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from blockxmc.paper.experiments.canvas import COLOURS, GREY, MARKERS, THREE, Figure, canvas, draw_failure
from blockxmc.paper.experiments.cells import Cell
from blockxmc.paper.experiments.published import published
from blockxmc.paper.experiments.results import Entry, Results
from blockxmc.paper.experiments.settings import BASE_TITLES, KS
from blockxmc.paper.experiments.tables import TEXT, Column, Table

# Stands for 0 candidates where labels are divided by them, and for lambda 0 on a logarithmic axis.
NO_CANDIDATES, NO_LAMBDA = 1e-12, 1e-300
# A logarithmic axis that spans less than this factor has ticks at 1, 2 and 5, a longer one at powers of ten.
SHORT_AXIS = 1000


# ---- figure 3 ----
@dataclass(frozen=True)
class Curve:
    """What cross-validation says about each lambda, means over the folds."""

    lams: np.ndarray[Any, Any]
    base: np.ndarray[Any, Any]  # P@k of the base alone
    precision: np.ndarray[Any, Any]  # lambdas x ks
    speedup: np.ndarray[Any, Any]  # labels over candidates


def lambda_curve(row: dict[str, Any]) -> Curve:
    """The curve in a tuning cell."""
    folds = row["folds"]
    candidates = np.mean([fold["candidates"] for fold in folds], axis=0)
    precision = np.mean([fold["precision"] for fold in folds], axis=0)
    base = np.mean([fold["base"] for fold in folds], axis=0)
    return Curve(np.array(row["lams"]), base, precision, row["n_labels"] / np.maximum(candidates, NO_CANDIDATES))


def figure_lambda(results: Results) -> list[Figure]:
    """Precision and speed-up against lambda, data sets by bases."""
    names, bases = results.data, results.settings.bases
    size = (4.1 * len(bases), 2.9 * len(names) + 0.5)
    rows = []
    with canvas(len(names), len(bases), figsize=size, squeeze=False, layout="constrained") as (figure, axes, drawn):
        for i, data in enumerate(names):
            for j, base in enumerate(bases):
                cell = Cell(data, "tune", base)
                row, place = results.row(cell), axes[i, j]
                place.set_title(f"{data} · {BASE_TITLES[base]}")
                if row is None:
                    draw_failure(place, results.error(cell))
                    continue
                curve = lambda_curve(row)
                handles = _draw_curve(place, curve, row, last=j == len(bases) - 1)
                rows += _curve_points(data, base, cell, curve)
                figure.legends.clear()
                figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    heads = [Column("Data", TEXT), Column("Base", TEXT), Column("lambda", ".6g"), *(Column(f"P@{k}") for k in KS)]
    points = Table("figure-lambda", "Precision and speed-up by lambda", [*heads, Column("Speed-up", ".2fx")], rows)
    caption = (
        f"Means over {results.settings.folds} folds; dashed: the base alone; shaded: every fold within "
        f"{results.settings.tolerance:g} points of it; vertical lines: the accuracy-driven (dotted; it may have another "
        "number of blocks) and the speed-driven choice (which may lie between the lambdas shown), where there is one."
    )
    return [
        Figure(
            "figure-lambda",
            "Precision and speed-up as functions of lambda",
            caption,
            drawn["png"],
            drawn["svg"],
            points,
        )
    ]


def _draw_curve(axes: Any, curve: Curve, row: dict[str, Any], last: bool) -> list[Any]:
    handles = []
    for k, colour, marker in zip(range(len(KS)), ("#1d5f8a", "#c8553d", "#3a7d44"), "os^", strict=True):
        axes.axhline(curve.base[k], color=colour, linewidth=0.8, linestyle="--", alpha=0.7)
        handles += axes.plot(
            curve.lams,
            curve.precision[:, k],
            color=colour,
            marker=marker,
            markersize=3.5,
            linewidth=1.3,
            label=f"P@{KS[k]}",
        )
    if row["interval"] is not None:
        low, high = row["interval"]
        pad = (curve.lams[-1] / max(curve.lams[0], NO_LAMBDA)) ** 0.015  # so that a single lambda shows
        axes.axvspan(low / pad, high * pad, color="#e9c46a", alpha=0.22, linewidth=0)
    axes.axvline(row["accuracy_driven"]["lam"], color="black", linewidth=0.9, linestyle=":")
    if row["speed_driven"] is not None:
        axes.axvline(row["speed_driven"]["lam"], color="black", linewidth=0.9)
    twin = axes.twinx()
    handles += twin.plot(curve.lams, curve.speedup, color=GREY, linewidth=1.3, linestyle="-.", label="speed-up")
    axes.set_xscale("log")
    twin.set_yscale("log")
    _plain_ticks(twin.yaxis, "{:g}x")
    _plain_ticks(axes.xaxis, "{:g}")
    twin.tick_params(axis="y", colors=GREY)
    twin.spines["top"].set_visible(False)
    blocks = sorted(set(row["blocks"]))
    count = f"{blocks[0]}" if len(blocks) == 1 else f"{blocks[0]} to {blocks[-1]}"
    within = "" if row["interval"] is not None else "; none within the tolerance"
    axes.set(xlabel=f"lambda ({count} blocks{within})", ylabel="precision, points")
    if last:
        twin.set_ylabel("speed-up", color=GREY)
    return handles


def _plain_ticks(axis: Any, form: str) -> None:
    """Plain digits on a logarithmic axis: powers of ten, and 2 and 5 times these on a short axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    few = high / max(low, NO_LAMBDA) < SHORT_AXIS
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: form.format(value)))


def _curve_points(data: str, base: str, cell: Cell, curve: Curve) -> list[list[Entry]]:
    return [
        [Entry(data), Entry(BASE_TITLES[base]), *(Entry(float(value), cell.id) for value in (lam, *precision, speedup))]
        for lam, precision, speedup in zip(curve.lams, curve.precision, curve.speedup, strict=True)
    ]


# ---- the number of blocks ----
def figure_q(results: Results) -> list[Figure]:
    """Captured share and blocks alive over the number of blocks asked for."""
    names = results.data
    rows = []
    size = (3.9 * len(names) + 0.3, 5.2)
    options: dict[str, Any] = {"figsize": size, "squeeze": False, "sharex": "col", "layout": "constrained"}
    with canvas(2, len(names), **options) as (_, axes, drawn):
        for j, data in enumerate(names):
            cell = Cell(data, "q")
            row = results.row(cell)
            axes[0, j].set_title(data)
            if row is None:
                draw_failure(axes[0, j], results.error(cell))
                continue
            _draw_q(axes[:, j], row)
            for curve in row["curves"]:
                rows += [
                    [
                        Entry(data),
                        Entry(curve["lam"], cell.id),
                        *(Entry(point[key], cell.id) for key in ("q", "alive", "captured", "labels_per_row")),
                    ]
                    for point in curve["points"]
                ]
        axes[0, 0].set_ylabel("share of positives captured")
        axes[1, 0].set_ylabel("blocks alive")
    heads = [Column("Data", TEXT), Column("lambda", ".4g"), Column("q", ".0f"), Column("Alive", ".0f")]
    points = Table(
        "figure-q",
        "Captured share and blocks alive by q",
        [*heads, Column("Captured", ".4f"), Column("Labels/row", ".1f")],
        rows,
    )
    caption = (
        "At three lambdas (those at which a single block would capture 98, 80 and 50 % of the positives). Grey: all blocks "
        "alive. Ringed: the q of the paper's rule (most captured before a block dies) on this grid."
    )
    return [Figure("figure-q", "What the number of blocks does", caption, drawn["png"], drawn["svg"], points)]


def _draw_q(axes: Any, row: dict[str, Any]) -> None:
    for curve, colour in zip(row["curves"], THREE, strict=True):
        q = [point["q"] for point in curve["points"]]
        label = f"lambda {curve['lam']:.3g}"
        chosen = q.index(curve["chosen"])
        for place, key in zip(axes, ("captured", "alive"), strict=True):
            values = [point[key] for point in curve["points"]]
            place.plot(q, values, color=colour, marker="o", markersize=3, linewidth=1.3, label=label)
            place.plot(q[chosen], values[chosen], "o", markersize=9, markerfacecolor="none", markeredgecolor=colour)
    axes[1].plot(q, q, color="#ced4da", linewidth=3, zorder=0)
    axes[0].legend(loc="best")
    axes[0].set_ylim(None, 1.02)
    for place in axes:
        place.set_xscale("log", base=2)
        place.xaxis.set_major_formatter("{x:.0f}")
        place.spines["right"].set_visible(False)
    axes[1].set_yscale("log", base=2)
    axes[1].yaxis.set_major_formatter("{x:.0f}")
    axes[1].set_xlabel("blocks asked for (q)")


# ---- labels per sample ----
PAPER_DATA = ("amazoncat-13k", "wiki10-31k", "delicious-200k", "wikilshtc-325k", "amazon-670k")


def figure_alps(results: Results) -> list[Figure]:
    """Speed-up of speed-driven BP against the average number of labels per sample, ours and the paper's."""
    rows = []
    highest: dict[str, tuple[float, float]] = {}
    with canvas(1, 1, figsize=(7.5, 4.4), layout="constrained") as (_, axes, drawn):
        for base in results.settings.bases:
            colour, title, marker = COLOURS[base], BASE_TITLES[base], MARKERS[base]
            for data in results.data:
                point = _alps_point(results, data, base)
                if point is not None:
                    rows.append(
                        [Entry(data), Entry(title), *(Entry(x, Cell(data, "bp-speed", base).id) for x in point)]
                    )
                    highest[data] = max(highest.get(data, point), point)
                    axes.scatter(*point, color=colour, marker=marker, alpha=0.75, linewidths=0, s=44, zorder=3)
            theirs = [point for data in PAPER_DATA if (point := _paper_point(data, base))]
            hollow: dict[str, Any] = {"facecolors": "none", "edgecolors": colour, "marker": marker}
            axes.scatter([x for x, _ in theirs], [y for _, y in theirs], s=26, **hollow)
            axes.scatter([], [], color=colour, marker=marker, label=title)
        axes.scatter([], [], facecolors="none", edgecolors=GREY, label="the paper's data")
        for data, place in highest.items():
            axes.annotate(data, place, xytext=(0, 6), textcoords="offset points", fontsize=8, ha="center")
        axes.set(
            xscale="log", yscale="log", xlabel="average labels per sample", ylabel="speed-up (labels / candidates)"
        )
        for axis in (axes.xaxis, axes.yaxis):
            _plain_ticks(axis, "{:g}")
        axes.spines["right"].set_visible(False)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    heads = [Column("Data", TEXT), Column("Base", TEXT), Column("ALpS"), Column("Speed-up", ".1fx")]
    points = Table("figure-alps", "Speed-up by labels per sample", heads, rows)
    caption = "Speed-driven BP where a lambda is feasible; hollow: the paper's figures of its own five data sets."
    return [Figure("figure-alps", "Speed-up and labels per sample", caption, drawn["png"], drawn["svg"], points)]


def _alps_point(results: Results, data: str, base: str) -> tuple[float, float] | None:
    sizes, row = results.row(Cell(data, "data")), results.row(Cell(data, "bp-speed", base))
    if sizes is None or row is None or row.get("feasible") is False:
        return None
    return sizes["labels_per_sample"], row["speedup_paper"]


def _paper_point(data: str, base: str) -> tuple[float, float] | None:
    labels = published(data, "data", "labels_per_sample")
    speedup = published(data, f"bp-speed/{base}", "speedup_paper")
    return None if labels is None or speedup is None else (labels, speedup)
