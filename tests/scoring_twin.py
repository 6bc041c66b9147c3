"""The scorer in a few lines of NumPy and SciPy: what the packed one must agree with."""

import numpy as np
from scipy import sparse


class ByteWeights:
    """Linear weights as integers in -127..127 with a scale for each label."""

    def __init__(self, weights):
        coef = np.asarray(weights.coef.toarray(), np.float32)
        largest = abs(coef).max(axis=0, initial=0)
        tiny = np.finfo(np.float32).tiny  # below it a scale would lose its digits
        self.scale = np.where(largest > 0, np.maximum(largest / np.float32(127), tiny), np.float32(1))
        self.coef = np.rint(coef / self.scale)
        self.bias, self.mass, self.n_labels = weights.bias, weights.mass, weights.n_labels

    def scores(self, X):
        out = (X @ self.coef).astype(np.float32) * self.scale + self.bias
        return out if self.mass is None else out + np.asarray(abs(X).sum(axis=1)).reshape(-1, 1) * self.mass


class TwinScorer:
    def __init__(self, weights, label_ids, n_features, n_labels):
        self.weights, self.label_ids = weights, [np.asarray(ids, np.int64) for ids in label_ids]
        self.n_features, self.n_labels, self.n_blocks = n_features, n_labels, len(weights)

    def scores(self, X, blocks):
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

    def topk(self, X, blocks, k):
        scores = self.scores(X, blocks)
        labels = np.full((X.shape[0], k), -1, np.int64)
        best = np.full((X.shape[0], k), -np.inf, np.float32)
        for i, (a, b) in enumerate(zip(scores.indptr[:-1], scores.indptr[1:], strict=True)):
            order = np.lexsort((scores.indices[a:b], -scores.data[a:b]))[:k]
            labels[i, : order.size] = scores.indices[a:b][order]
            best[i, : order.size] = scores.data[a:b][order]
        return labels, best
