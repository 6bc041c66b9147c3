"""What a choice of candidates allows and costs, before any label is scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc.errors import BlockXMCError
from blockxmc.metrics.ranking import check_k, indicator, is_among, is_sparse

I64 = NDArray[np.int64]
# Rows whose candidates are spelled out at a time when they are given by blocks.
_ROWS_AT_ONCE = 4096


def candidate_recall(Y: Any, candidates: Any) -> float:
    """Mean share of a row's labels among its candidates, over the rows that have labels; it bounds R@k.

    ``candidates`` is an n x m CSR matrix (stored entries are candidates) or a pair (blocks, label clusters): the
    visited blocks of each row (n x b, -1 pads) and the label ids of each block.

    >>> candidate_recall([[1, 0, 1], [0, 1, 0]], ([[0], [1]], [[0, 1], [1, 2]]))
    0.75
    """
    found, n_true = _found(Y, candidates)
    some = n_true > 0
    return float((found[some] / n_true[some]).mean()) if some.any() else 0.0


def precision_ceiling(Y: Any, candidates: Any, k: int) -> float:
    """The P@k of a perfect ranking of the candidates: mean of min(k, labels among the candidates) / k.

    >>> precision_ceiling([[1, 0, 1], [0, 1, 0]], ([[0], [1]], [[0, 1], [1, 2]]), k=1)
    1.0
    """
    found, _ = _found(Y, candidates)
    k = check_k(k)
    return float(np.minimum(found, k).mean() / k) if found.size else 0.0


def candidate_counts(candidates: Any, n_labels: int) -> I64:
    """Number of distinct candidates of each row; ``candidates`` as in :func:`candidate_recall`.

    >>> candidate_counts(([[0, 1], [1, -1]], [[0, 1], [1, 2]]), n_labels=3).tolist()
    [3, 2]
    """
    if not isinstance(candidates, tuple):
        return np.diff(_stored(candidates, n_labels).indptr).astype(np.int64)
    blocks, clusters = _blocks(candidates[0], len(candidates[1])), _clusters(candidates[1], n_labels)
    used = blocks >= 0
    indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
    visits = _pattern(blocks[used], indptr, (blocks.shape[0], clusters.shape[0]))
    counts = np.zeros(blocks.shape[0], np.int64)
    for start in range(0, counts.size, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        counts[rows] = np.diff(sparse.csr_array(visits[rows] @ clusters).indptr)
    return counts


def speedups(
    n_labels: int,
    products_router: ArrayLike,
    candidates: ArrayLike,
    *,
    flops_full: ArrayLike | None = None,
    flops: ArrayLike | None = None,
) -> dict[str, float | None]:
    """The three speed-ups over scoring all labels; every argument is a mean or one number per row.

    ``speedup_paper`` = m / candidates (leaves the router out, as the paper's tables do), ``speedup`` = m / (products
    of the router + candidates), ``speedup_flops`` = flops of the full model / flops of this one, router included (None
    where they are not given). All are ratios of means, and infinite where nothing is scored.

    >>> speedups(1000, 30, [10, 30], flops_full=5e6, flops=2e5)
    {'speedup_paper': 50.0, 'speedup': 20.0, 'speedup_flops': 25.0}
    """
    scored = _mean(candidates)
    return {
        "speedup_paper": _times(n_labels, scored),
        "speedup": _times(n_labels, _mean(products_router) + scored),
        "speedup_flops": None if flops is None or flops_full is None else _times(_mean(flops_full), _mean(flops)),
    }


def _found(Y: Any, candidates: Any) -> tuple[I64, I64]:
    """Labels of each row among its candidates, and all labels of each row."""
    truth = indicator(Y)
    given = candidates[0] if isinstance(candidates, tuple) else candidates
    n, m = truth.shape
    if np.shape(given)[0] != n:
        raise BlockXMCError(f"candidates are given for {np.shape(given)[0]} rows, but Y has {n}")
    n_true = np.diff(truth.indptr).astype(np.int64)
    if not isinstance(candidates, tuple):
        known = _pattern(truth.indices, truth.indptr, truth.shape)
        return np.diff(sparse.csr_array(known.multiply(_stored(candidates, m))).indptr).astype(np.int64), n_true
    blocks, clusters = _blocks(candidates[0], len(candidates[1])), _clusters(candidates[1], m)
    members = np.repeat(np.arange(clusters.shape[0]), np.diff(clusters.indptr)) * m + clusters.indices
    rows = np.repeat(np.arange(n), n_true)
    inside = np.zeros(rows.size, bool)
    for visited in blocks.T:
        block = visited[rows]
        inside |= is_among(block * m + truth.indices, members) & (block >= 0)
    return np.bincount(rows[inside], minlength=n), n_true


def _stored(candidates: Any, n_labels: int) -> sparse.csr_array:
    """Boolean rows x labels matrix of the stored entries."""
    if not is_sparse(candidates):
        raise BlockXMCError("candidates must be a sparse matrix of rows x labels or a pair (blocks, label clusters)")
    S = sparse.csr_array(candidates)
    if S.shape[1] != n_labels:
        raise BlockXMCError(f"candidates have {S.shape[1]} columns, but there are {n_labels} labels")
    return _pattern(S.indices, S.indptr, S.shape)


def _blocks(blocks: Any, n_blocks: int) -> I64:
    """The visited blocks as a checked table of rows x visits, -1 pads."""
    given = np.asarray(blocks)
    table = given.reshape(given.shape[0], -1) if given.size else np.zeros((given.shape[0], 0), np.int64)
    if given.ndim not in (1, 2) or table.dtype.kind not in "iu":
        raise BlockXMCError("blocks must be integers: the visited blocks of each row, padded with -1")
    if table.size and (table.min() < -1 or table.max() >= n_blocks):
        raise BlockXMCError(f"blocks must lie in 0..{n_blocks - 1} (or be -1 for padding)")
    return table.astype(np.int64)


def _clusters(label_clusters: Sequence[ArrayLike], n_labels: int) -> sparse.csr_array:
    """Boolean blocks x labels matrix."""
    clusters = [np.asarray(cluster, np.int64).ravel() for cluster in label_clusters]
    labels = np.concatenate(clusters) if clusters else np.zeros(0, np.int64)
    if labels.size and (labels.min() < 0 or labels.max() >= n_labels):
        raise BlockXMCError(f"label clusters must hold labels of 0..{n_labels - 1}")
    indptr = np.concatenate([[0], np.cumsum([cluster.size for cluster in clusters], dtype=np.int64)])
    return _pattern(labels, indptr, (len(clusters), n_labels))


def _pattern(indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int]) -> sparse.csr_array:
    """A Boolean CSR matrix that is true at the given places, canonical, owning nothing of the caller's."""
    out = sparse.csr_array((np.ones(indices.size, bool), indices, indptr), shape=shape)
    if not out.has_canonical_format:
        out = out.copy()
        out.sum_duplicates()
    return out


def _mean(values: ArrayLike) -> float:
    array = np.asarray(values, np.float64)
    return float(array.mean()) if array.size else 0.0


def _times(full: float, part: float) -> float:
    return full / part if part else float("inf")
