"""Cells about the partition alone: the pictures of figures 1 and 2, and what the number of blocks does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from blockxmc.errors import BlockXMCError
from blockxmc.partition import Partitioner
from blockxmc.partition.choice import PAPER_ROWS
from blockxmc.training.trials.grid import lam_capturing

if TYPE_CHECKING:
    from blockxmc.data import Dataset

# Blocks of the picture, as in the paper.
PICTURE_BLOCKS = 3
# Shares of the positives to capture in the picture; the first that leaves all blocks alive is taken. A smaller share means
# a larger lambda, which shows better.
PICTURE_FLOORS = (0.8, 0.9, 0.98)
# Rows shown of each block, rows of the example, and points of a curve of label counts.
PICTURE_ROWS, EXAMPLE_ROWS, STRIP_POINTS = 400, 8, 400
# A strip shows this many times its label cluster, and a few labels more.
STRIP_LENGTH, STRIP_MORE = 2, 8

# Numbers of blocks of the figure over q, as far as blocks have this many rows.
Q_GRID = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
MIN_ROWS_PER_BLOCK = PAPER_ROWS
# Its lambdas capture these shares of the positives with a single block.
Q_FLOORS = (0.98, 0.8, 0.5)


def picture(train: Dataset, seed: int, threads: int) -> dict[str, Any]:
    """A partition into three blocks: the first rows of each, sorted label counts, and some rows' labels by cluster."""
    common: dict[str, Any] = {"n_blocks": PICTURE_BLOCKS, "random_state": seed, "n_jobs": threads}
    start = Partitioner(lam=0.0, max_iter=0, **common).fit(train.X, train.Y)
    for floor in PICTURE_FLOORS:
        part = Partitioner(lam=lam_capturing(start.path(), floor), **common).fit(train.X, train.Y)
        if part.n_blocks_ == PICTURE_BLOCKS:
            break
    shown = [np.flatnonzero(part.assignment_ == block)[:PICTURE_ROWS] for block in range(part.n_blocks_)]
    rows = np.concatenate(shown)
    return {
        "lam": part.lam_,
        "captured": part.captured_,
        "blocks": part.n_blocks_,
        "labels": train.n_labels,
        "rows_of_block": np.bincount(part.assignment_, minlength=part.n_blocks_).tolist(),
        "label_clusters": [cluster.tolist() for cluster in part.label_clusters_],
        "shown_blocks": part.assignment_[rows].tolist(),
        "shown_labels": _labels_of(train, rows),
        "strips": [_strip(part, block) for block in range(part.n_blocks_)],
        "examples": _examples(train, part),
    }


def _labels_of(train: Dataset, rows: Any) -> list[list[int]]:
    indptr, indices = train.Y.indptr, train.Y.indices
    return [indices[indptr[row] : indptr[row + 1]].tolist() for row in rows]


def _strip(part: Partitioner, block: int) -> dict[str, Any]:
    """Label counts of a block, highest first, at STRIP_POINTS ranks at most, and where lambda cuts them."""
    ranking = part.ranking_
    counts = ranking.counts[ranking.indptr[block] : ranking.indptr[block + 1]]
    cut = len(part.label_clusters_[block])
    ranks = np.unique(np.linspace(0, min(counts.size, STRIP_LENGTH * cut + STRIP_MORE) - 1, STRIP_POINTS).astype(int))
    return {"ranks": (ranks + 1).tolist(), "counts": counts[ranks].tolist(), "cut": cut, "all": int(counts.size)}


def _examples(train: Dataset, part: Partitioner) -> list[dict[str, Any]]:
    """The first rows with labels: where their labels stand (by rank) in each label cluster, and the block they went to."""
    ranking = part.ranking_
    ranked = [
        ranking.labels[start : start + len(own)]
        for start, own in zip(ranking.indptr, part.label_clusters_, strict=False)
    ]
    rows = np.flatnonzero(np.diff(train.Y.indptr) > 0)[:EXAMPLE_ROWS]
    return [
        {
            "row": int(row),
            "block": int(part.assignment_[row]),
            "ranks": [np.flatnonzero(np.isin(order, labels)).tolist() for order in ranked],
            "labels": len(labels),
        }
        for row, labels in zip(rows, _labels_of(train, rows), strict=True)
    ]


def over_q(train: Dataset, seed: int, threads: int) -> dict[str, Any]:
    """Captured share, blocks alive and labels per row for growing q, at three fixed lambdas."""
    whole = Partitioner(n_blocks=1, lam=0.0, max_iter=0, random_state=seed, n_jobs=threads).fit(train.X, train.Y)
    grid = [q for q in Q_GRID if q == 1 or q <= train.n_rows // MIN_ROWS_PER_BLOCK]
    curves = []
    for floor in Q_FLOORS:
        lam = lam_capturing(whole.path(), floor)
        points = [_point(train, q, lam, seed, threads) for q in grid]
        curves.append({"floor": floor, "lam": lam, "points": points, "chosen": _paper_choice(points)})
    return {"curves": curves}


def _point(train: Dataset, q: int, lam: float, seed: int, threads: int) -> dict[str, Any]:
    try:
        part = Partitioner(n_blocks=q, lam=lam, random_state=seed, n_jobs=threads).fit(train.X, train.Y)
    except BlockXMCError:  # the lambda is too large for so many blocks: none is alive
        return {"q": q, "alive": 0, "captured": 0.0, "labels_per_row": 0.0}
    cost = float(part.path([part.lam_]).cost[0])
    return {"q": q, "alive": part.n_blocks_, "captured": part.captured_, "labels_per_row": cost}


def _paper_choice(points: list[dict[str, Any]]) -> int:
    """The paper's rule: raise q from 2 while no block dies, and take the q that captures most."""
    best: dict[str, Any] = points[0]
    for point in points[1:]:
        if point["alive"] < point["q"]:
            break
        if best["q"] == 1 or point["captured"] > best["captured"]:
            best = point
    return int(best["q"])
