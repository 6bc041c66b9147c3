"""What a learner hands over after training: the weights of L labels on d features, before they are packed for serving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

F32 = NDArray[np.float32]


class Weights(Protocol):
    """Anything that can score its own labels on sparse rows."""

    @property
    def n_labels(self) -> int:
        """Number of labels scored."""

    def scores(self, X: sparse.csr_array) -> F32:
        """Dense scores, rows x labels."""


@dataclass(frozen=True)
class LinearWeights:
    """One sparse vector per label, stored feature-major: score = x @ coef + bias (+ |x|_1 * mass).

    >>> w = LinearWeights(sparse.csr_array(np.eye(2, dtype=np.float32)), np.zeros(2, np.float32))
    >>> w.scores(sparse.csr_array(np.array([[3, 4]], np.float32))).tolist()
    [[3.0, 4.0]]
    """

    coef: sparse.csr_array  # d x L float32
    bias: F32  # L
    mass: F32 | None = None  # L: coefficient of the row's l1 norm (naive Bayes), usually absent

    @property
    def n_labels(self) -> int:
        """Number of labels scored."""
        return int(self.coef.shape[1])

    def scores(self, X: sparse.csr_array) -> F32:
        """Dense scores, rows x labels."""
        out = np.asarray((X @ self.coef).toarray(), dtype=np.float32) + self.bias
        if self.mass is not None:
            out += np.asarray(abs(X).sum(axis=1)).reshape(-1, 1) * self.mass
        return out


@dataclass(frozen=True)
class LowRankWeights:
    """Scores through a bottleneck of k dimensions: score = (x @ W) @ H.T (+ bias).

    >>> w = LowRankWeights(np.ones((2, 1), np.float32), np.ones((3, 1), np.float32), np.arange(3, dtype=np.float32))
    >>> w.scores(sparse.csr_array(np.array([[3, 4]], np.float32))).tolist()
    [[7.0, 8.0, 9.0]]
    """

    W: F32  # d x k
    H: F32  # L x k
    bias: F32 | None = None  # L

    @property
    def n_labels(self) -> int:
        """Number of labels scored."""
        return int(self.H.shape[0])

    def scores(self, X: sparse.csr_array) -> F32:
        """Dense scores, rows x labels."""
        out = np.asarray((X @ self.W) @ self.H.T, dtype=np.float32)
        return out if self.bias is None else out + self.bias
