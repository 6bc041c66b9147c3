"""Figures (matplotlib, the ``plots`` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc.errors import BlockXMCError, MissingExtraError
from blockxmc.partition import Partitioner

if TYPE_CHECKING:
    from blockxmc.data import Dataset
    from blockxmc.tuning import TuningResult

# Rows shown of each block: all of a large data set would be a grey area.
ROWS_PER_BLOCK = 400


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError("matplotlib", "plots") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def check_figure(path: Path) -> None:
    """Refuse, before hours of work for it, a figure that cannot be drawn or written."""
    plt = _pyplot()
    figure = plt.figure()
    kinds = figure.canvas.get_supported_filetypes()
    plt.close(figure)
    if path.suffix.lower().removeprefix(".") not in kinds:
        raise BlockXMCError(f"{path}: a figure is a file like {path.stem or 'figure'}.png, .svg or .pdf")
    if not path.parent.is_dir():
        raise BlockXMCError(f"{path}: there is no folder {path.parent}; make it first")


def block_matrix(
    Y: sparse.csr_array,
    assignment: NDArray[np.integer],
    label_clusters: Sequence[NDArray[np.integer]],
    rows_per_block: int = ROWS_PER_BLOCK,
) -> tuple[sparse.csr_array, NDArray[np.intp], NDArray[np.intp]]:
    """The label matrix with rows sorted by block, and columns by the blocks that hold their label.

    Returns the permuted matrix, the row offsets of the blocks and the label id of each column. A label of several label
    clusters stands between its blocks, so that frequent labels stand in the middle.

    >>> Y = sparse.csr_array(np.eye(2, dtype=np.float32)[[1, 0, 1]])
    >>> permuted, offsets, columns = block_matrix(Y, np.array([1, 0, 1]), [np.array([0]), np.array([1])])
    >>> permuted.toarray().astype(int).tolist(), offsets.tolist(), columns.tolist()
    ([[1, 0], [0, 1], [0, 1]], [0, 1, 3], [0, 1])
    """
    rows = [np.flatnonzero(assignment == block)[:rows_per_block] for block in range(len(label_clusters))]
    offsets = np.concatenate([[0], np.cumsum([part.size for part in rows])])
    labels = np.concatenate([np.asarray(ids, dtype=np.intp) for ids in label_clusters])
    homes = np.repeat(np.arange(len(label_clusters)), [len(ids) for ids in label_clusters])
    columns, which = np.unique(labels, return_inverse=True)
    centre = np.bincount(which, weights=homes) / np.bincount(which)
    frequency = np.bincount(Y.indices, minlength=Y.shape[1])[columns]
    columns = columns[np.lexsort((-frequency, centre))]
    return sparse.csr_array(Y[np.concatenate(rows)][:, columns]), offsets, columns


def draw_blocks(
    Y: sparse.csr_array,
    assignment: NDArray[np.integer],
    label_clusters: Sequence[NDArray[np.integer]],
    path: Path,
    rows_per_block: int = ROWS_PER_BLOCK,
    title: str = "",
    captions: Sequence[str] | None = None,
    others: bool = False,
) -> None:
    """Figure 1 of the paper: the permuted training label matrix, a dot for each label a row has.

    ``captions`` are written beside the blocks; see :func:`typical_labels`. ``others``: labels that no block holds stand at
    the right, so that all that is missed is seen.
    """
    plt = _pyplot()
    held = np.unique(np.concatenate(label_clusters))
    rest = [np.setdiff1d(Y.indices, held)] if others else []
    matrix, offsets, columns = block_matrix(Y, assignment, [*label_clusters, *rest], rows_per_block)
    offsets = offsets[: len(label_clusters) + 1]
    inside = np.zeros((len(label_clusters), columns.size), dtype=bool)
    for block, ids in enumerate(label_clusters):
        inside[block] = np.isin(columns, ids)
    figure, axes = plt.subplots(figsize=(9, 6.2), dpi=150)
    for block in range(len(label_clusters)):
        # Shade the label cluster of the block, so that dots on white are labels it misses.
        axes.pcolorfast(
            (0, columns.size), (offsets[block], offsets[block + 1]), inside[[block]].astype(float),
            cmap="Blues", vmin=0, vmax=4,
        )  # fmt: skip
    dots = sparse.coo_array(matrix)
    hit = inside[np.searchsorted(offsets, dots.row, side="right") - 1, dots.col]
    size = max(0.15, min(4.0, 2e4 / max(dots.nnz, 1)))
    # Tens of thousands of dots: an SVG holds them as one image.
    style: dict[str, Any] = {"s": size, "marker": "s", "linewidths": 0, "rasterized": True}
    axes.scatter(dots.col[hit] + 0.5, dots.row[hit] + 0.5, c="black", label="captured", **style)
    axes.scatter(dots.col[~hit] + 0.5, dots.row[~hit] + 0.5, c="#d1495b", label="missed", **style)
    for offset in offsets[1:-1]:
        axes.axhline(offset, color="#8d99ae", linewidth=0.6)
    axes.set(xlim=(0, columns.size), ylim=(offsets[-1], 0), xlabel="labels, by block", ylabel="training rows, by block")
    if others:
        axes.axvline(held.size, color="#8d99ae", linewidth=0.6)
        axes.text(columns.size, -0.01 * offsets[-1], "labels of no block", ha="right", fontsize=8, color="#33415c")
    for block, caption in enumerate(captions or ()):
        middle = (offsets[block] + offsets[block + 1]) / 2
        axes.text(columns.size * 1.01, middle, caption, va="center", fontsize=8, color="#33415c")
    axes.set_title(title, loc="left", fontsize=10)
    place: dict[str, Any] = {"loc": "upper right", "bbox_to_anchor": (1.0, -0.06), "borderaxespad": 0.1}
    axes.legend(ncols=2, frameon=False, fontsize=8, markerscale=8 / np.sqrt(size) / 2, **place)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def typical_labels(
    Y: sparse.csr_array, assignment: NDArray[np.integer], n_blocks: int, count: int = 3
) -> list[NDArray[np.intp]]:
    """The labels that tell most about each block: frequent in it, and rare elsewhere.

    >>> Y = sparse.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 1, 1]], np.float32))
    >>> [ids.tolist() for ids in typical_labels(Y, np.array([0, 0, 1]), 2, count=1)]
    [[0], [2]]
    """
    rows = sparse.csr_array(
        (np.ones(assignment.size), (assignment, np.arange(assignment.size))), (n_blocks, Y.shape[0])
    )
    inside = (rows @ Y).toarray()
    share = inside / np.maximum(inside.sum(axis=0), 1)
    return [np.argsort(-worth, kind="stable")[:count] for worth in inside * share**2]


def draw_trade(train: Dataset, path: Path, n_blocks: int = 12, captured: float = 0.9) -> str:
    """Blocks at the smallest lambda of a grid that captures no more than this share, where the trade is seen: few labels in
    a block, and some missed. Returns the title of the figure.
    """
    for lam in np.geomspace(1e-4, 1, 33):
        part = Partitioner(n_blocks=n_blocks, lam=float(lam), random_state=0).fit(train.X, train.Y)
        if part.captured_ <= captured:
            break
    size = np.mean([len(ids) for ids in part.label_clusters_])
    share = f"{size:.0f} of {train.Y.shape[1]:,} labels each on average"
    title = f"{part.n_blocks_} blocks, {share}: {part.captured_:.0%} captured"
    typical = typical_labels(train.Y, part.assignment_, part.n_blocks_, count=2)
    names = train.label_names or [str(label) for label in range(train.Y.shape[1])]
    captions = [", ".join(_shortened(names[label]) for label in ids) for ids in typical]
    draw_blocks(train.Y, part.assignment_, part.label_clusters_, path, title=title, captions=captions, others=True)
    return title


def _shortened(name: str, most: int = 18) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def draw_lambda(result: TuningResult, path: Path, title: str = "") -> None:
    """Figure 3 of the paper: precision (left) and speed-up (right) over lambda, the feasible range and both choices."""
    plt = _pyplot()
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    lams, precision, error = np.array(result.lams), result.mean_precision, result.standard_error
    # A logarithmic axis has no zero: lambda 0 is drawn at half of the next.
    zero = lams[1] / 2 if lams.size > 1 else 1.0
    lams = np.where(lams == 0, zero, lams)
    colours = ("#1d3557", "#2a9d8f", "#e76f51", "#8d6a9f", "#6c757d")
    figure, axes = plt.subplots(figsize=(7.6, 4.6), dpi=150)
    right = axes.twinx()
    axes.set_zorder(right.get_zorder() + 1)
    axes.patch.set_visible(False)
    if result.interval is not None:
        low, high = (value or zero for value in result.interval)
        pad = max((lams[-1] / lams[0]) ** 0.008, 1.01)
        label = f"within {result.tolerance:g} points"
        right.axvspan(low / pad, high * pad, color="#e9f2ec", zorder=0, label=label, linewidth=0)
    for i, k in enumerate(result.ks):
        colour = colours[i % len(colours)]
        axes.plot(lams, precision[:, i], color=colour, marker="o", markersize=3.5, linewidth=1.6, label=f"P@{k}")
        if np.isfinite(error).all():
            band = precision[:, i] - error[:, i], precision[:, i] + error[:, i]
            axes.fill_between(lams, *band, color=colour, alpha=0.15, linewidth=0)
        axes.axhline(result.base_precision[i], color=colour, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.7)
    right.plot(lams, result.speedup, color="#adb5bd", marker="s", markersize=3, linewidth=1.4, label="speed-up")
    marks = {"speed-driven": ("v", 9), "least loss": ("v", 9), "accuracy-driven": ("^", 6)}
    for name, point in result.choices.items():
        marker, size = marks[name]
        axes.axvline(point.lam or zero, color="#495057", linewidth=0.7, linestyle=":")
        heights = list(point.precision)
        axes.plot(
            [point.lam or zero] * len(heights), heights, marker, color="#212529", markersize=size, linestyle="none",
            label=name, markeredgecolor="white", markeredgewidth=0.7,
        )  # fmt: skip
    axes.plot([], [], color="#6c757d", linewidth=0.8, linestyle=(0, (4, 3)), label="no blocks")
    axes.set_xscale("log")
    right.set_yscale("log")
    for axis in (axes.xaxis, right.yaxis):
        axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set(xlabel="$\\lambda$", ylabel="precision, points")
    right.set_ylabel("speed-up $m / E|L|$", color="#868e96")
    right.tick_params(axis="y", colors="#868e96", which="both")
    for side in (axes, right):
        side.spines["top"].set_visible(False)
    axes.set_title(title, loc="left", fontsize=10)
    if result.interval is None:
        axes.set_title(f"no $\\lambda$ within {result.tolerance:g} points", loc="right", fontsize=9, color="#c1121f")
    handles = [side.get_legend_handles_labels() for side in (axes, right)]
    figure.legend(
        handles[0][0] + handles[1][0], handles[0][1] + handles[1][1], loc="lower center", ncols=4, fontsize=8,
        frameon=False,
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(path)
    plt.close(figure)


def draw_reliability(
    right: NDArray[np.bool_], probabilities: NDArray[np.floating], path: Path, title: str = "", bins: int = 15
) -> None:
    """What probabilities mean: the share that is right in bins of equally many answers, and how many answers there are."""
    plt = _pyplot()
    from blockxmc.metrics import calibration_error

    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, bins) if part.size]
    said, found = (np.array([values[part].mean() for part in parts]) for values in (probabilities, right))
    # Two standard errors of a share: what chance alone moves it by.
    error = 2 * np.sqrt(np.maximum(found * (1 - found), 1e-9) / np.array([part.size for part in parts]))
    figure, (axes, below) = plt.subplots(
        2, 1, figsize=(5.4, 6.2), dpi=150, sharex=True, height_ratios=(4, 1), layout="constrained"
    )
    axes.plot([0, 1], [0, 1], color="#adb5bd", linewidth=1, linestyle=(0, (4, 3)), label="perfect")
    style: dict[str, Any] = {"color": "#1d3557", "marker": "o", "markersize": 4, "linewidth": 1.4, "capsize": 2}
    axes.errorbar(said, found, yerr=error, label="found, with two standard errors", **style)
    below.hist(probabilities, bins=np.linspace(0, 1, 41), color="#2a9d8f")
    below.set(xlabel="probability", ylabel="answers", xlim=(-0.01, 1.01))
    axes.set(ylabel="share that is right", ylim=(-0.01, 1.01))
    for side in (axes, below):
        side.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set_title(title, loc="left", fontsize=10)
    facts = (
        f"calibration error {calibration_error(right, probabilities):.3f}\n"
        f"probabilities add up to {probabilities.sum() / max(right.sum(), 1):.2f} times the hits"
    )
    axes.text(0.02, 0.98, facts, transform=axes.transAxes, va="top", fontsize=8, color="#495057")
    figure.savefig(path)
    plt.close(figure)
