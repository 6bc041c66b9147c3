"""Counts pairs of labels, and fits on held-out rows how much they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import pattern_args, take_rows
from blockxmc.model.companions import Companions
from blockxmc.model.reranker import Reranker
from blockxmc.training.reranker import order_of, telling_rows
from blockxmc.training.settings import Settings

F32 = NDArray[np.float32]


def companions_of(Y: sparse.csr_array, settings: Settings, n_rows: int | None = None, threads: int = 1) -> Companions:
    """The pairs of labels that enough rows carry, each with its count.

    Of very many rows, some are counted: every so manieth, without those that carry most labels. Positives of labels are
    those of ``n_rows`` rows with labels (None: of these).

    >>> from blockxmc.training.settings import SETTINGS
    >>> Y = sparse.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]], np.float32))
    >>> pairs = companions_of(Y, SETTINGS)
    >>> pairs.indptr.tolist(), pairs.others.tolist()  # labels 0 and 1, in two rows
    ([0, 1, 1, 1], [1])
    """
    sizes = np.diff(Y.indptr).astype(np.int64)
    counted = np.flatnonzero((sizes > 0) & (sizes <= settings.companion_labels))
    step = -(-int((sizes[counted] ** 2).sum()) // settings.companion_pairs)
    counted = counted[:: max(step, 1)]
    some = take_rows(Y, counted)
    by_label = pattern_args(sparse.csr_array(some.T))
    indptr, others, counts = _kernels.label_pairs(*pattern_args(some), *by_label, settings.companion_rows, threads)
    log_counts = np.minimum(np.rint(16 * np.log(counts + 0.5)), 255).astype(np.uint8)
    among = int(np.count_nonzero(sizes)) if n_rows is None else n_rows
    log_rows = 2 * np.log(max(among, 1)) - np.log(max(counted.size, 1))
    return Companions(indptr, others, log_counts, float(log_rows))


def fit_companions(
    reranker: Reranker,
    companions: Companions,
    labels: NDArray[np.int64],
    scores: F32,
    right: NDArray[np.bool_],
    settings: Settings,
    threads: int,
) -> Reranker:
    """The reranker with companions that count as much as puts right labels best before wrong ones.

    ``labels`` (rows x few) are in the order that the reranker gave them, with their ``scores``. The first one is left out:
    where it was moved, too, precision of the first label fell.
    """
    there = (scores > -np.inf)[:, 1:]
    known = np.where(scores > -np.inf, labels, -1)
    sums = companions.sums(known, reranker.log_positives, threads)[:, 1:].astype(np.float64)
    scores, right = scores[:, 1:], right[:, 1:] & there
    telling = telling_rows(right, there)
    if telling.sum() < settings.companion_least_rows:
        return reranker
    spread = sums[there].std()
    if not spread > 0:
        return reranker
    features = np.where(there[..., None], np.stack([sums / spread, scores], axis=-1), 0.0)
    of_sums, of_score = order_of(features[telling], right[telling], there[telling], settings, threads)
    if of_sums <= 0:
        return reranker
    return replace(reranker, companions=replace(companions, weight=float(of_sums / spread / of_score)))
