"""What a choice of candidates allows and costs, before any label is scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc.errors import BlockXMCError
from blockxmc.metrics.ranking import check_k, indicator, is_sparse

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
    parts = [np.diff(part.indptr) for _, part in _patterns(candidates, n_labels)]
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


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
    n = np.shape(given)[0]
    if n != truth.shape[0]:
        raise BlockXMCError(f"candidates are given for {n} rows, but Y has {truth.shape[0]}")
    known = sparse.csr_array((np.ones(truth.nnz, bool), truth.indices, truth.indptr), shape=truth.shape)
    found = np.zeros(n, np.int64)
    for start, part in _patterns(candidates, truth.shape[1]):
        rows = slice(start, start + part.shape[0])
        found[rows] = np.diff(sparse.csr_array(known[rows].multiply(part)).indptr)
    return found, np.diff(truth.indptr).astype(np.int64)


def _patterns(candidates: Any, n_labels: int) -> Iterator[tuple[int, sparse.csr_array]]:
    """Candidates as Boolean CSR pieces of consecutive rows, each with the number of its first row."""
    if isinstance(candidates, tuple):
        visited, clusters = _visited(candidates[0], len(candidates[1])), _clusters(candidates[1], n_labels)
        for start in range(0, visited.shape[0], _ROWS_AT_ONCE):
            yield start, sparse.csr_array(visited[start : start + _ROWS_AT_ONCE] @ clusters)
        return
    if not is_sparse(candidates):
        raise BlockXMCError("candidates must be a sparse matrix of rows x labels or a pair (blocks, label clusters)")
    S = sparse.csr_array(candidates)
    if S.shape[1] != n_labels:
        raise BlockXMCError(f"candidates have {S.shape[1]} columns, but there are {n_labels} labels")
    yield 0, _pattern(S.indices, S.indptr, S.shape)


def _visited(blocks: Any, n_blocks: int) -> sparse.csr_array:
    """Boolean rows x blocks matrix of the visited blocks."""
    given = np.asarray(blocks)
    table = given.reshape(given.shape[0], -1) if given.size else np.zeros((given.shape[0], 0), np.int64)
    if given.ndim not in (1, 2) or table.dtype.kind not in "iu":
        raise BlockXMCError("blocks must be integers: the visited blocks of each row, padded with -1")
    if table.size and (table.min() < -1 or table.max() >= n_blocks):
        raise BlockXMCError(f"blocks must lie in 0..{n_blocks - 1} (or be -1 for padding)")
    used = table >= 0
    indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
    return _pattern(table[used], indptr, (table.shape[0], n_blocks))


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
