"""Which labels the blocks of a model that learns on list, and which they have listed before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc.partition import Partitioner
from blockxmc.training.blocks import cover_all_labels
from blockxmc.training.kept import Kept

I32 = NDArray[np.int32]


def lists(
    partition: Partitioner, Y: sparse.csr_array, negative_blocks: I32, kept: Kept, most: int
) -> list[NDArray[np.int64]]:
    """The labels that each block lists: its cluster, and labels that came after the fit, in the blocks their rows visit.

    Such a label has few rows, and no row of it has taught the router: it is listed by no more than ``most`` blocks.
    """
    clusters = cover_all_labels(Y, partition.assignment_, partition.label_clusters_)
    came = np.flatnonzero(Y.indices >= kept.fit_labels)
    if not came.size:
        return clusters
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))[came]
    blocks = np.column_stack([partition.assignment_[rows], negative_blocks[rows]]).astype(np.int64)
    # The blocks that most of its rows visit; of those that as many do, the lower ones.
    pairs, counts = np.unique(blocks + len(clusters) * Y.indices[came][:, None].astype(np.int64), return_counts=True)
    of, labels = pairs % len(clusters), pairs // len(clusters)
    best = np.lexsort((of, -counts, labels))
    first = np.searchsorted(labels, labels)  # where the blocks of the label begin
    chosen = best[np.arange(best.size) - first < most]
    own = np.repeat(np.arange(len(clusters)), [ids.size for ids in clusters]) * Y.shape[1] + np.concatenate(clusters)
    both = np.union1d(own, of[chosen] * Y.shape[1] + labels[chosen])
    return np.split(both % Y.shape[1], np.searchsorted(both, np.arange(1, len(clusters)) * Y.shape[1]))


def left_since(
    earlier: I32, before: list[NDArray[np.int64]], now: list[NDArray[np.int64]], solved: NDArray[np.bool_]
) -> I32:
    """Pairs of a block and a label that it no longer lists, but whose rows the label has met since it was last solved.

    >>> before, now = [np.array([0, 1, 2]), np.array([1])], [np.array([0]), np.array([1, 2])]
    >>> left_since(np.array([[1, 0]], np.int32), before, now, np.array([False, False, True])).tolist()
    [[0, 1], [1, 0]]
    """
    then, today = (
        np.concatenate([ids + solved.size * block for block, ids in enumerate(lists)]) for lists in (before, now)
    )
    then = np.union1d(then, earlier[:, 0].astype(np.int64) * solved.size + earlier[:, 1])
    left = np.setdiff1d(then, today)
    left = left[~solved[left % solved.size]]
    return np.column_stack([left // solved.size, left % solved.size]).astype(np.int32)
