"""Figures 1 and 2 of the paper: what a partition looks like, and how it is made."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from blockxmc.paper.experiments.canvas import GREY, STYLE, THREE, Figure, canvas, draw_failure
from blockxmc.paper.experiments.cells import Cell
from blockxmc.paper.experiments.results import Entry, Results
from blockxmc.paper.experiments.tables import TEXT, Column, Table
from blockxmc.plots import _pyplot, draw_blocks

SHADES = ("Blues", "Greens", "Oranges")


def figure_blocks(results: Results) -> list[Figure]:
    """The permuted label matrix of three blocks, and how label and instance clusters are selected."""
    figures = []
    for data in results.data:
        cell = Cell(data, "blocks")
        row = results.row(cell)
        if row is None:
            figures.append(_missing(data, cell, results.error(cell)))
        else:
            figures += [_matrix(data, cell, row), _selection(data, cell, row)]
    return figures


def _missing(data: str, cell: Cell, error: str | None) -> Figure:
    """A panel that says why there are no pictures."""
    with canvas(1, 1, figsize=(6, 1.5)) as (_, axes, drawn):
        draw_failure(axes, error)
    points = Table(f"figure-blocks-{data}", f"Blocks of {data}", [Column("failed", TEXT)], [[Entry(error, cell.id)]])
    return Figure(points.name, f"Permuted label matrix of {data}", "", drawn["png"], drawn["svg"], points)


def _matrix(data: str, cell: Cell, row: dict[str, Any]) -> Figure:
    lists = row["shown_labels"]
    indptr = np.concatenate([[0], np.cumsum([len(labels) for labels in lists])])
    indices = np.array([label for labels in lists for label in labels], dtype=np.int32)
    shape = (len(lists), row["labels"])
    Y = sparse.csr_array((np.ones(indices.size, np.float32), indices, indptr), shape=shape)
    clusters = [np.array(cluster, dtype=np.int64) for cluster in row["label_clusters"]]
    kept = len(set().union(*row["label_clusters"]))
    everywhere = len(set.intersection(*map(set, row["label_clusters"])))
    held = f"{kept:,} of {row['labels']:,} labels, {row['captured']:.0%} of the positives captured"
    title = f"{data}: {row['blocks']} blocks, {held}"
    drawn = {}
    with tempfile.TemporaryDirectory() as folder, _pyplot().rc_context(STYLE):
        for kind in ("png", "svg"):
            path = Path(folder) / f"blocks.{kind}"
            draw_blocks(Y, np.array(row["shown_blocks"]), clusters, path, title=title)
            drawn[kind] = path.read_bytes()
    counted = enumerate(zip(row["rows_of_block"], map(len, row["label_clusters"]), strict=True))
    sizes = [[Entry(data), *(Entry(n, cell.id) for n in (block + 1, *both))] for block, both in counted]
    columns = [Column("Data", TEXT), Column("Block", ".0f"), Column("Rows", ",.0f"), Column("Labels", ",.0f")]
    points = Table(f"figure-blocks-{data}", f"Blocks of {data}", columns, sizes)
    caption = (
        f"The first {max(np.bincount(row['shown_blocks']))} training rows of each of {row['blocks']} blocks (lambda "
        f"{row['lam']:.4g}), columns by the blocks that hold a label; shaded: the label cluster of a block. In every "
        f"block: {everywhere:,} of the labels."
    )
    return Figure(
        points.name, f"Permuted label matrix of {data}", caption, drawn["png"], drawn["svg"], points, vector=False
    )


def _selection(data: str, cell: Cell, row: dict[str, Any]) -> Figure:
    with canvas(1, 2, figsize=(12, 3.6), width_ratios=(1, 1.15), layout="constrained") as (_, axes, drawn):
        _draw_label_step(axes[0], row)
        _draw_instance_step(axes[1], row)
    rows = [
        [
            Entry(data),
            Entry(block + 1, cell.id),
            Entry(rank, cell.id),
            Entry(count, cell.id),
            Entry(int(rank <= strip["cut"]), cell.id),
        ]
        for block, strip in enumerate(row["strips"])
        for rank, count in zip(strip["ranks"], strip["counts"], strict=True)
    ]
    columns = [Column("Data", TEXT), *(Column(name, ",.0f") for name in ("Block", "Rank", "Count", "Selected"))]
    points = Table(f"figure-selection-{data}", f"Column sums of the blocks of {data}", columns, rows)
    caption = (
        "Left: column sums of the label matrix within each block, highest first (its value at the head); left of the line: "
        f"its label cluster. Right: where the labels of the first {len(row['examples'])} training rows stand inside each "
        "label cluster; a row goes to the block that holds most of its labels (bold count; a tie stays where it was)."
    )
    return Figure(points.name, f"Label and instance selection on {data}", caption, drawn["png"], drawn["svg"], points)


def _draw_label_step(axes: Any, row: dict[str, Any]) -> None:
    longest = max(strip["ranks"][-1] for strip in row["strips"])
    for block, strip in enumerate(row["strips"]):
        edges = np.concatenate([[0], strip["ranks"]])
        shade = np.sqrt(np.array([strip["counts"]], dtype=float) / max(strip["counts"][0], 1))
        axes.pcolormesh(
            edges, [block + 0.15, block + 0.85], shade, cmap=SHADES[block], vmin=-0.15, vmax=1.1, rasterized=True
        )
        axes.plot([strip["cut"]] * 2, [block + 0.02, block + 0.98], color="black", linewidth=1.4)
        right = strip["cut"] < 0.75 * longest
        axes.text(
            strip["cut"] + (0.012 if right else -0.012) * longest, block + 0.5, f"{strip['cut']:,} labels selected",
            ha="left" if right else "right", va="center", fontsize=8,
            bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1.5},
        )  # fmt: skip
        axes.text(0, block + 0.06, f" {strip['counts'][0]:,}", fontsize=7, va="center")
    axes.set(ylim=(len(row["strips"]), 0), xlim=(0, longest), xlabel="labels of the block by column sum", yticks=[])
    axes.set_yticks(np.arange(len(row["strips"])) + 0.5, [f"block {b + 1}" for b in range(len(row["strips"]))])
    axes.tick_params(axis="y", length=0)
    axes.spines["right"].set_visible(False)
    axes.set_title("label clusters: column sums, highest first")


def _draw_instance_step(axes: Any, row: dict[str, Any]) -> None:
    n_blocks, gap = row["blocks"], 0.3
    for block, cluster in enumerate(row["label_clusters"]):
        left, width = block * (1 + gap), 1.0
        for i, example in enumerate(row["examples"]):
            won = example["block"] == block
            axes.barh(i, width, left=left, height=0.72, color=THREE[block], alpha=0.22 if won else 0.07, linewidth=0)
            ranks = (np.array(example["ranks"][block]) + 0.5) / max(len(cluster), 1) * width + left
            axes.vlines(ranks, i - 0.36, i + 0.36, color=THREE[block] if won else GREY, linewidth=1.3)
            axes.text(
                left + width + 0.02, i, len(example["ranks"][block]), va="center", fontsize=9,
                fontweight="bold" if won else "normal", color=THREE[block] if won else GREY,
            )  # fmt: skip
        axes.text(left, -0.75, f"label cluster {block + 1} ({len(cluster):,})", color=THREE[block], fontsize=8)
    axes.set(xlim=(0, n_blocks * (1 + gap)), ylim=(len(row["examples"]) - 0.5, -1.2), xticks=[])
    axes.set_yticks(range(len(row["examples"])), [f"row {example['row'] + 1}" for example in row["examples"]])
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title("instance clusters: labels of a row inside each label cluster")
