"""Answers ranked by probability times the weight of a label: rare labels, whose hits are worth more, come earlier."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.base import TopK
from blockxmc._core.matrix import take_rows

# Labels that are asked for first, by probability; many times as many where one further back may come to the front.
FEW_LABELS = 64


def topk_by_weight(
    topk: Callable[[sparse.csr_array, int], TopK], X: sparse.csr_array, k: int, weights: NDArray[np.float32]
) -> TopK:
    """The exact best k labels of each row by probability times weight, given the best by probability alone.

    A label that was not asked for has at most the probability of the last one that was: where this times the largest weight
    does not reach the k-th place, no more labels need to be looked at.
    """
    labels, scores = np.full((X.shape[0], k), -1, np.int64), np.full((X.shape[0], k), -np.inf, np.float32)
    rows, asked, largest = np.arange(X.shape[0]), min(max(FEW_LABELS, 2 * k), weights.size), weights.max(initial=0)
    while rows.size:
        found, p = topk(X if rows.size == X.shape[0] else take_rows(X, rows), asked)
        worth = np.where(found >= 0, np.maximum(p, 0) * weights[np.maximum(found, 0)], -np.inf).astype(np.float32)
        order = np.lexsort((found, -worth), axis=1)[:, :k]
        best = np.take_along_axis(worth, order, 1)
        labels[rows], scores[rows] = np.take_along_axis(found, order, 1), best
        open_ended = (found[:, -1] >= 0) & (np.maximum(p[:, -1], 0) * largest >= best[:, -1])
        if asked == weights.size:
            break
        rows, asked = rows[open_ended], min(8 * asked, weights.size)
    return np.where(np.isneginf(scores), -1, labels), scores
