"""Blocks whose weights score themselves (low-rank weights, any other classifier): rows are grouped by block, each group
is scored densely in tiles, and the selection is the same as for packed weights."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from blockxmc import _kernels
from blockxmc._core import stored
from blockxmc._core.allowed import Mask
from blockxmc._core.base import TopK
from blockxmc._core.matrix import csr_args, take_rows
from blockxmc.errors import BlockXMCError
from blockxmc.linear.scorer import I32, I64, Scorer, as_blocks, as_row, empty_topk
from blockxmc.linear.weights import LinearWeights, LowRankWeights, Weights

# Scores held at once per thread: 16 MB.
TILE_CELLS = 1 << 22


class DenseScorer(Scorer):
    """Blocks of any weights.

    >>> from blockxmc.linear.scorers import pack_scorer
    >>> low_rank = LowRankWeights(np.eye(2, dtype=np.float32), np.array([[1, 0], [0, 2]], np.float32))
    >>> scorer = pack_scorer([low_rank], [np.array([3, 7])], n_features=2, n_labels=8)
    >>> scorer.one([0, 1], [1.0, 1.0], None, 2)[0].tolist()
    [7, 3]
    """

    def __init__(self, weights: list[Weights], label_ids: list[I32], n_features: int, n_labels: int) -> None:
        self.n_features, self.n_labels, self.n_blocks = n_features, n_labels, len(weights)
        self._weights, self._label_ids = weights, label_ids

    @property
    def label_clusters(self) -> list[I32]:
        """Label ids of each block, ascending."""
        return self._label_ids

    @property
    def is_linear(self) -> bool:
        """Whether scores are sums over the features of a row."""
        return all(isinstance(w, LowRankWeights | LinearWeights) for w in self._weights)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that are known to be arrays."""
        parts = [part for w in self._weights for part in _arrays_of(w).values()]
        return sum(part.nbytes for part in [*parts, *self._label_ids])

    def topk(
        self, X: sparse.csr_array, blocks: I32 | None, k: int, *, threads: int = 1, allowed: Mask | None = None
    ) -> TopK:
        """Best k candidates of each row: best first, ties to the lower label id, padded with -1 / -inf."""
        visited = self._visited(X, blocks)
        width = visited.shape[1]
        labels, scores = empty_topk(X.shape[0] * max(width, 1), k)
        labels.fill(-1)
        scores.fill(-np.inf)

        def keep(tile: tuple[int, I64, I64]) -> None:
            block, rows, slots = tile
            tile_labels, tile_scores = empty_topk(rows.size, k)
            found, ids = self._block_scores(block, X, rows), self._label_ids[block]
            if allowed is not None:
                found, ids = np.ascontiguousarray(found[:, allowed[ids]]), ids[allowed[ids]]
            _kernels.dense_topk(found, ids, tile_labels, tile_scores)
            labels[slots], scores[slots] = tile_labels, tile_scores

        self._run(keep, visited, threads)
        if width > 1:
            return _best_distinct(labels.reshape(-1, width * k), scores.reshape(-1, width * k), k)
        return labels, scores

    def scores(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> sparse.csr_array:
        """Scores of all candidates of each row, by ascending label; explicit zeros are kept."""

        def triplets(tile: tuple[int, I64, I64]) -> tuple[I64, I64, NDArray[np.float32]]:
            block, rows, _ = tile
            values = self._block_scores(block, X, rows)
            ids = self._label_ids[block].astype(np.int64)
            return np.repeat(rows, ids.size), np.tile(ids, rows.size), values.ravel()

        none = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
        found = [none, *self._run(triplets, self._visited(X, blocks), threads)]
        rows, ids, values = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.lexsort((-values, ids, rows))
        rows, ids, values = rows[order], ids[order], values[order]
        first = np.ones(rows.size, bool)
        first[1:] = (np.diff(rows) != 0) | (np.diff(ids) != 0)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[first], minlength=X.shape[0]))])
        return sparse.csr_array((values[first], ids[first], indptr), shape=(X.shape[0], self.n_labels))

    def one(
        self, indices: ArrayLike, values: ArrayLike, blocks: ArrayLike | None, k: int, allowed: Mask | None = None
    ) -> TopK:
        """``topk`` of one sparse row; 1-d ``blocks`` and results."""
        columns, data = as_row(indices, values)
        row = sparse.csr_array((data, columns, [0, columns.size]), shape=(1, self.n_features))
        visited = None if blocks is None else np.reshape(blocks, (1, -1)).astype(np.int32)
        labels, scores = self.topk(row, visited, k, allowed=allowed)
        return labels[0], scores[0]

    def n_candidates(self, blocks: I32 | None, *, threads: int = 1) -> I64:
        """Number of distinct labels in the visited blocks of each row; for None one number that holds for all rows."""
        visited = np.arange(self.n_blocks, dtype=np.int32)[None, :] if blocks is None else blocks
        empty = np.zeros(0, np.int32)
        unions = (np.unique(np.concatenate([empty, *(self._label_ids[b] for b in row if b >= 0)])) for row in visited)
        return np.fromiter((union.size for union in unions), np.int64, len(visited))

    def touched(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> float:
        """Mean number of weights that scoring a row reads, for linear and low-rank weights; others count nothing."""
        total = 0.0
        for block, rows, _ in self._tiles(self._visited(X, blocks)):
            w, nnz = self._weights[block], np.diff(X.indptr)[rows]
            if isinstance(w, LowRankWeights):
                total += float(nnz.sum()) * w.W.shape[1] + rows.size * w.H.size
            elif isinstance(w, LinearWeights):
                seen = take_rows(X, rows) if w.features is None else take_rows(X, rows)[:, w.features]
                total += float(np.diff(sparse.csr_array(w.coef).indptr)[seen.indices].sum())
        return total / max(X.shape[0], 1)

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays and JSON values for the model directory."""
        blocks = {}
        for block, (w, ids) in enumerate(zip(self._weights, self._label_ids, strict=True)):
            arrays = _arrays_of(w)
            if not arrays:
                raise BlockXMCError(f"the base cannot be saved: {type(w).__name__} is not a set of arrays; pickle it")
            blocks[str(block)] = {"labels": ids, **arrays}
        return {"kind": "dense", "n_features": self.n_features, "n_labels": self.n_labels, "blocks": blocks}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> DenseScorer:
        """Take back what ``state`` gave; every index is checked now."""
        n_features, n_labels = (
            stored.whole(state["n_features"], "n_features"),
            stored.whole(state["n_labels"], "n_labels"),
        )
        blocks = stored.mapping(state["blocks"], "the list of blocks")
        weights: list[Weights] = []
        ids = []
        for block in range(len(blocks)):
            arrays, what = stored.mapping(blocks[str(block)], f"block {block}"), f"of block {block}"
            labels = stored.array(arrays["labels"], f"labels {what}", np.int32, (None,))
            ids.append(stored.ascending(labels, n_labels, f"labels {what}"))
            restored = _low_rank_from if "H" in arrays else _linear_from
            weights.append(restored(arrays, n_features, labels.size, what))
        return cls(weights, ids, n_features, n_labels)

    def _visited(self, X: sparse.csr_array, blocks: I32 | None) -> I32:
        if X.shape[1] != self.n_features:
            raise BlockXMCError(f"X has {X.shape[1]} features, but the model was trained on {self.n_features}")
        if blocks is None:
            return np.tile(np.arange(self.n_blocks, dtype=np.int32), (X.shape[0], 1))
        visited = as_blocks(blocks)
        assert visited is not None
        if visited.ndim != 2 or visited.shape[0] != X.shape[0]:
            raise BlockXMCError("blocks must have one row per row of X")
        if visited.size and (visited.min() < -1 or visited.max() >= self.n_blocks):
            raise BlockXMCError("blocks must be block numbers, or -1 as padding")
        return visited

    def _tiles(self, visited: I32) -> Iterator[tuple[int, I64, I64]]:
        """Block, rows and their places in the flattened ``visited``, at most TILE_CELLS scores at a time."""
        flat = visited.ravel()
        order = np.argsort(flat, kind="stable").astype(np.int64)
        starts = np.searchsorted(flat[order], np.arange(self.n_blocks + 1))
        for block, ids in enumerate(self._label_ids):
            step = max(1, TILE_CELLS // max(ids.size, 1))
            for start in range(starts[block], starts[block + 1] if ids.size else 0, step):
                slots = order[start : min(start + step, starts[block + 1])]
                yield block, slots // visited.shape[1], slots

    def _run(self, work: Any, visited: I32, threads: int) -> list[Any]:
        """Tiles are the unit of parallel work; a BLAS stays on one thread, so that sums do not depend on their number."""
        with threadpool_limits(1, user_api="blas") if not self.is_linear and visited.shape[0] > 1 else nullcontext():
            if threads == 1:
                return [work(tile) for tile in self._tiles(visited)]
            with ThreadPoolExecutor(threads) as pool:
                return list(pool.map(work, self._tiles(visited)))

    def _block_scores(self, block: int, X: sparse.csr_array, rows: I64) -> NDArray[np.float32]:
        weights = self._weights[block]
        some = X if rows.size == X.shape[0] and (np.diff(rows) == 1).all() else take_rows(X, rows)
        if not isinstance(weights, LowRankWeights):
            return np.ascontiguousarray(weights.scores(some), dtype=np.float32)
        if weights.features is not None:
            some = sparse.csr_array(some[:, weights.features])
        out = np.empty((rows.size, weights.n_labels), np.float32)
        W, H = (np.ascontiguousarray(part, dtype=np.float32) for part in (weights.W, weights.H))
        _kernels.low_rank_scores(*csr_args(some), W, H, out)
        return out if weights.bias is None else out + weights.bias


def _best_distinct(labels: I64, scores: NDArray[np.float32], k: int) -> TopK:
    """Best k distinct labels of each row (the higher score of a repeated label)."""
    order = np.lexsort((-scores, labels), axis=1)
    labels, scores = np.take_along_axis(labels, order, 1), np.take_along_axis(scores, order, 1)
    repeated = np.zeros(labels.shape, bool)
    repeated[:, 1:] = labels[:, 1:] == labels[:, :-1]
    scores = np.where(repeated, -np.inf, scores)
    labels = np.where(repeated, -1, labels)
    order = np.lexsort((labels, -scores), axis=1)[:, :k]
    return np.take_along_axis(labels, order, 1), np.take_along_axis(scores, order, 1)


def _arrays_of(weights: Weights) -> dict[str, NDArray[Any]]:
    """The arrays that make up linear or low-rank weights; nothing for others."""
    if not isinstance(weights, (LowRankWeights, LinearWeights)):
        return {}
    features = {} if weights.features is None else {"features": weights.features}
    if isinstance(weights, LowRankWeights):
        bias = {} if weights.bias is None else {"bias": weights.bias}
        return {"W": weights.W, "H": weights.H, **bias, **features}
    by_feature = sparse.csr_array(weights.coef)
    coef = {"indptr": by_feature.indptr, "indices": by_feature.indices, "data": by_feature.data}
    mass = {} if weights.mass is None else {"mass": weights.mass}
    return {**coef, "bias": weights.bias, **mass, **features}


def _features_from(arrays: dict[str, Any], n_features: int, what: str) -> tuple[I32 | None, int]:
    """The features that the rows of weights stand for (None: all), and how many there are."""
    if "features" not in arrays:
        return None, n_features
    features = stored.array(arrays["features"], f"features {what}", np.int32, (None,))
    return stored.ascending(features, n_features, f"features {what}"), features.size


def _vector_from(arrays: dict[str, Any], name: str, n_labels: int, what: str) -> NDArray[np.float32] | None:
    return stored.array(arrays[name], f"{name} {what}", np.float32, (n_labels,)) if name in arrays else None


def _low_rank_from(arrays: dict[str, Any], n_features: int, n_labels: int, what: str) -> LowRankWeights:
    features, n_rows = _features_from(arrays, n_features, what)
    H = stored.array(arrays["H"], f"H {what}", np.float32, (n_labels, None))
    W = stored.array(arrays["W"], f"W {what}", np.float32, (n_rows, H.shape[1]))
    return LowRankWeights(W, H, _vector_from(arrays, "bias", n_labels, what), features)


def _linear_from(arrays: dict[str, Any], n_features: int, n_labels: int, what: str) -> LinearWeights:
    features, n_rows = _features_from(arrays, n_features, what)
    data = stored.array(arrays["data"], f"data {what}", np.float32, (None,))
    indptr, indices = arrays["indptr"], arrays["indices"]
    stored.array(indptr, f"indptr {what}", indptr.dtype, (n_rows + 1,))
    stored.array(indices, f"indices {what}", indptr.dtype, (data.size,))
    stored.check_csr_parts(indptr, indices, data, (n_rows, n_labels), f"weights {what}")
    coef = sparse.csr_array((data, indices, indptr), shape=(n_rows, n_labels))
    bias = stored.array(arrays["bias"], f"bias {what}", np.float32, (n_labels,))
    return LinearWeights(coef, bias, _vector_from(arrays, "mass", n_labels, what), features)
