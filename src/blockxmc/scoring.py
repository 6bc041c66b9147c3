"""Weights packed for serving: blocks of labels, each scored only for the rows that visit it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._base import TopK
from blockxmc.weights import LinearWeights, LowRankWeights, Weights

I32 = NDArray[np.int32]


class Scorer:
    """q blocks of labels with their weights (reference implementation; a label in several visited blocks: max)."""

    def __init__(
        self, weights: list[Weights], label_ids: list[NDArray[np.int64]], n_features: int, n_labels: int
    ) -> None:
        self.weights, self.label_ids = weights, label_ids
        self.n_features, self.n_labels, self.n_blocks = n_features, n_labels, len(weights)

    @classmethod
    def pack(
        cls, weights: Sequence[Weights], label_ids: Sequence[NDArray[Any]], *, n_features: int, n_labels: int
    ) -> Scorer:
        """Pack the weights of each block; ``label_ids[l]`` are the global ids of block l's labels, ascending."""
        return cls(list(weights), [np.asarray(ids, np.int64) for ids in label_ids], n_features, n_labels)

    def scores(self, X: sparse.csr_array, blocks: I32 | None, *, threads: int = 1) -> sparse.csr_array:
        """Scores of all candidates of each row; ``blocks`` (n x b, -1 pads) are the visited blocks, None: all."""
        if blocks is None:
            blocks = np.tile(np.arange(self.n_blocks, dtype=np.int32), (X.shape[0], 1))
        dense = np.full((X.shape[0], self.n_labels), -np.inf, np.float32)
        for block, (weights, ids) in enumerate(zip(self.weights, self.label_ids, strict=True)):
            rows = np.flatnonzero((blocks == block).any(axis=1))
            if rows.size and ids.size:
                cells = np.ix_(rows, ids)
                dense[cells] = np.maximum(dense[cells], weights.scores(X[rows]))
        kept = dense > -np.inf
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        return sparse.csr_array((dense[kept], np.nonzero(kept)[1], indptr), shape=dense.shape)

    def topk(self, X: sparse.csr_array, blocks: I32 | None, k: int, *, threads: int = 1) -> TopK:
        """Best k candidates of each row: best first, ties to the lower label id, padded with -1 / -inf."""
        scores = self.scores(X, blocks)
        labels = np.full((X.shape[0], k), -1, np.int64)
        best = np.full((X.shape[0], k), -np.inf, np.float32)
        for i, (a, b) in enumerate(zip(scores.indptr[:-1], scores.indptr[1:], strict=True)):
            order = np.lexsort((scores.indices[a:b], -scores.data[a:b]))[:k]
            labels[i, : order.size] = scores.indices[a:b][order]
            best[i, : order.size] = scores.data[a:b][order]
        return labels, best

    def one(self, indices: ArrayLike, values: ArrayLike, blocks: I32 | None, k: int) -> TopK:
        """``topk`` of one sparse row, without validation or threads; 1-d results."""
        columns, data = np.asarray(indices), np.asarray(values, np.float32)
        row = sparse.csr_array((data, columns, [0, columns.size]), shape=(1, self.n_features))
        labels, scores = self.topk(row, None if blocks is None else np.reshape(blocks, (1, -1)), k)
        return labels[0], scores[0]

    def state(self) -> dict[str, Any]:
        """Nested dict of arrays for the model directory."""
        blocks = {}
        for i, (w, ids) in enumerate(zip(self.weights, self.label_ids, strict=True)):
            blocks[str(i)] = {"labels": ids, **{name: v for name, v in vars(w).items() if v is not None}}
        return {"n_features": self.n_features, "n_labels": self.n_labels, "blocks": blocks}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Scorer:
        """Take back what ``state`` gave."""
        weights: list[Weights] = []
        ids = []
        for i in range(len(state["blocks"])):
            block = dict(state["blocks"][str(i)])
            ids.append(block.pop("labels"))
            weights.append(LowRankWeights(**block) if "H" in block else LinearWeights(**block))
        return cls(weights, ids, state["n_features"], state["n_labels"])
