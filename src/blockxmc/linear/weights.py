"""What a learner hands over after training: the weights of L labels, before they are packed for serving."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args, csr_of

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ids = NDArray[np.integer]


class Weights(Protocol):
    """Anything that can score its own labels on sparse rows."""

    @property
    def n_labels(self) -> int:
        """Number of labels scored."""

    def scores(self, X: sparse.csr_array) -> F32:
        """Dense scores, rows x labels."""

    def on_features(self, features: I32) -> Weights:
        """The same weights, trained on these columns of X only, as weights on all columns."""


@dataclass(frozen=True)
class LinearWeights:
    """One sparse vector per label: score = x @ coef + bias (+ |x|_1 * mass).

    The solver writes ``coef`` label by label (CSC), other learners feature by feature (CSR).

    ``features`` names the columns of X that the rows of ``coef`` stand for; None means all of them, in order.

    >>> w = LinearWeights(sparse.csr_array(np.eye(2, dtype=np.float32)), np.zeros(2, np.float32))
    >>> w.scores(sparse.csr_array(np.array([[3, 4]], np.float32))).tolist()
    [[3.0, 4.0]]
    >>> w.on_features(np.array([0, 2], np.int32)).scores(sparse.csr_array(np.array([[3, 9, 4]], np.float32))).tolist()
    [[3.0, 4.0]]
    """

    coef: sparse.csr_array | sparse.csc_array  # d x L (or len(features) x L) float32
    bias: F32  # L
    mass: F32 | None = None  # L: coefficient of the row's l1 norm (naive Bayes), usually absent
    features: I32 | None = None  # ascending
    offset: F32 | None = None  # per row of coef: what a feature adds to all labels alike (naive Bayes)

    @property
    def n_labels(self) -> int:
        """Number of labels scored."""
        return int(self.coef.shape[1])

    def scores(self, X: sparse.csr_array) -> F32:
        """Dense scores, rows x labels."""
        seen = X if self.features is None else X[:, self.features]
        out = np.asarray((seen @ self.coef).toarray(), dtype=np.float32) + self.bias
        if self.mass is not None:
            out += np.asarray(abs(X).sum(axis=1)).reshape(-1, 1) * self.mass
        if self.offset is not None:
            out += np.asarray(seen @ self.offset).reshape(-1, 1)
        return out

    def on_features(self, features: I32) -> LinearWeights:
        """The same weights, trained on these columns of X only, as weights on all columns."""
        own = features if self.features is None else features[self.features]
        return replace(self, features=own)

    def split(self, label_sets: Iterable[Ids]) -> Iterator[LinearWeights]:
        """The weights of each label set, each holding only the features it uses."""
        by_label = csr_args(sparse.csr_array(self.coef.T))
        n_features = self.coef.shape[0]
        for labels in label_sets:
            ids = np.ascontiguousarray(labels, np.int32)
            used, indptr, columns, values = _kernels.take_columns(*by_label, ids, n_features)
            part = csr_of(indptr, columns, values, (used.size, ids.size))
            features = used if self.features is None else self.features[used]
            mass = None if self.mass is None else self.mass[labels]
            yield LinearWeights(part, self.bias[labels], mass, features)


@dataclass(frozen=True)
class LowRankWeights:
    """Scores through a bottleneck of k dimensions: score = (x @ W) @ H.T (+ bias).

    >>> w = LowRankWeights(np.ones((2, 1), np.float32), np.ones((3, 1), np.float32), np.arange(3, dtype=np.float32))
    >>> w.scores(sparse.csr_array(np.array([[3, 4]], np.float32))).tolist()
    [[7.0, 8.0, 9.0]]
    """

    W: F32  # d x k (or len(features) x k)
    H: F32  # L x k
    bias: F32 | None = None  # L
    features: I32 | None = None

    @property
    def n_labels(self) -> int:
        """Number of labels scored."""
        return int(self.H.shape[0])

    def scores(self, X: sparse.csr_array) -> F32:
        """Dense scores, rows x labels."""
        seen = X if self.features is None else X[:, self.features]
        out = np.asarray((seen @ self.W) @ self.H.T, dtype=np.float32)
        return out if self.bias is None else out + self.bias

    def on_features(self, features: I32) -> LowRankWeights:
        """The same weights, trained on these columns of X only, as weights on all columns."""
        own = features if self.features is None else features[self.features]
        return replace(self, features=own)

    def split(self, label_sets: Iterable[Ids]) -> Iterator[LowRankWeights]:
        """The weights of each label set; W is shared by all."""
        for labels in label_sets:
            bias = None if self.bias is None else self.bias[labels]
            yield LowRankWeights(self.W, np.ascontiguousarray(self.H[labels]), bias, self.features)
