"""Figures (matplotlib, the ``plots`` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc.errors import MissingExtraError


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError("matplotlib", "plots") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def block_matrix(
    Y: sparse.csr_array,
    assignment: NDArray[np.integer],
    label_clusters: Sequence[NDArray[np.integer]],
    rows_per_block: int = 400,
) -> tuple[sparse.csr_array, NDArray[np.intp], NDArray[np.intp]]:
    """The label matrix with rows sorted by block and columns by where their label lives.

    Returns the permuted matrix, the row offsets of the blocks and the label id of each column. A label that sits in
    several label clusters stands between the places of its blocks, so popular labels end up in the middle.

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
    rows_per_block: int = 400,
    title: str = "",
) -> None:
    """Figure 1 of the paper: the permuted training label matrix, a dot for each label a row has."""
    plt = _pyplot()
    matrix, offsets, columns = block_matrix(Y, assignment, label_clusters, rows_per_block)
    inside = np.zeros((len(label_clusters), columns.size), dtype=bool)
    for block, ids in enumerate(label_clusters):
        inside[block] = np.isin(columns, ids)
    figure, axes = plt.subplots(figsize=(9, 6.2), dpi=150)
    for block in range(len(label_clusters)):
        # Shade what the block looks at, so that dots on white are the labels it misses.
        axes.pcolorfast(
            (0, columns.size), (offsets[block], offsets[block + 1]), inside[[block]].astype(float),
            cmap="Blues", vmin=0, vmax=4,
        )  # fmt: skip
    dots = sparse.coo_array(matrix)
    hit = inside[np.searchsorted(offsets, dots.row, side="right") - 1, dots.col]
    size = max(0.15, min(4.0, 4e4 / max(dots.nnz, 1)))
    # Tens of thousands of dots: an image inside an SVG, not a drawn shape each.
    style: dict[str, Any] = {"s": size, "marker": "s", "linewidths": 0, "rasterized": True}
    axes.scatter(dots.col[hit] + 0.5, dots.row[hit] + 0.5, c="black", label="captured", **style)
    axes.scatter(dots.col[~hit] + 0.5, dots.row[~hit] + 0.5, c="#d1495b", label="missed", **style)
    for offset in offsets[1:-1]:
        axes.axhline(offset, color="#8d99ae", linewidth=0.6)
    axes.set(xlim=(0, columns.size), ylim=(offsets[-1], 0), xlabel="labels, by block", ylabel="training rows, by block")
    axes.set_title(title, loc="left", fontsize=10)
    legend = axes.legend(loc="upper right", framealpha=0.9, fontsize=8, markerscale=8 / np.sqrt(size) / 2)
    legend.set_zorder(5)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
