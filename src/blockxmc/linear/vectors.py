"""One weight vector per label, stored label by label: the form in which shared weights are trained, mixed and packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args, csr_of, renumbered, take_rows
from blockxmc.linear.weights import F32, LinearWeights


@dataclass(frozen=True)
class LabelVectors:
    """score = x . vector of the label + bias (+ |x|_1 * mass).

    >>> v = LabelVectors(sparse.csr_array(np.eye(2, dtype=np.float32)), np.zeros(2, np.float32))
    >>> v.scores(sparse.csr_array(np.array([[3, 4]], np.float32))).tolist()
    [[3.0, 4.0]]
    """

    vectors: sparse.csr_array  # labels x features, float32
    bias: F32
    mass: F32 | None = None  # coefficient of the row's l1 norm (naive Bayes), usually absent

    @classmethod
    def joined(cls, parts: Sequence[LinearWeights], order: NDArray[np.intp]) -> LabelVectors:
        """The labels of all parts, one part after another; ``order`` says where each stands in the end."""
        back = np.argsort(order)
        vectors = [sparse.csr_array(part.coef.T) for part in parts]
        whole = sparse.csr_array(sparse.vstack(vectors, format="csr")) if len(vectors) > 1 else vectors[0]
        masses = [part.mass for part in parts if part.mass is not None]
        mass = np.concatenate(masses)[back] if masses else None
        return cls(sparse.csr_array(whole[back]), np.concatenate([part.bias for part in parts])[back], mass)

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.vectors.shape[0])

    def scores(self, X: sparse.csr_array) -> F32:
        """Dense scores, rows x labels."""
        out = np.asarray((X @ self.vectors.T).toarray(), np.float32) + self.bias
        if self.mass is not None:
            out += np.asarray(abs(X).sum(axis=1)).reshape(-1, 1) * self.mass
        return out

    def few_scores(self, X: sparse.csr_array, labels: NDArray[np.int64], threads: int) -> F32:
        """Scores of some labels of each row (rows x few; a negative label scores 0).

        >>> v = LabelVectors(sparse.csr_array(np.eye(2, dtype=np.float32)), np.ones(2, np.float32))
        >>> v.few_scores(sparse.csr_array(np.array([[3, 4]], np.float32)), np.array([[1, -1]]), 1).tolist()
        [[5.0, 0.0]]
        """
        there = labels >= 0
        indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
        out = np.zeros(labels.shape, np.float32)
        out[there] = self.pair_scores(X, indptr, labels[there], threads)
        return out

    def pair_scores(
        self, X: sparse.csr_array, indptr: NDArray[np.integer], labels: NDArray[np.integer], threads: int
    ) -> F32:
        """Scores of lists of labels: those of row i stand at ``labels[indptr[i] : indptr[i + 1]]``."""
        # Only the vectors that are asked for: the kernel prepares all that it is given.
        asked, position = renumbered(labels, self.n_labels)
        found = np.empty(position.size, np.float32)
        kernel = _kernels.LabelWeights(*csr_args(take_rows(self.vectors, asked)), self.vectors.shape[1])
        kernel.score(*csr_args(X), indptr.astype(np.int64), position.astype(np.int32), found, threads)
        found += self.bias[labels]
        if self.mass is not None:
            lengths = np.asarray(abs(X).sum(axis=1), np.float32)
            found += np.repeat(lengths, np.diff(indptr)) * self.mass[labels]
        return found

    def adjusted(self, factors: F32, other: sparse.csr_array, share: float, threads: int = 1) -> LabelVectors:
        """Vectors whose scores are ``(score + 1) * factor - 1``, a factor for each label, plus a share of another's.

        >>> v = LabelVectors(sparse.csr_array(np.eye(2, dtype=np.float32)), np.zeros(2, np.float32))
        >>> x = sparse.csr_array(np.array([[3, 4]], np.float32))
        >>> v.adjusted(np.array([1, 2], np.float32), v.vectors, 0.5).scores(x).tolist()
        [[4.5, 11.0]]
        """
        if share:
            factors = np.ascontiguousarray(factors, np.float32)
            own, others = csr_args(self.vectors), csr_args(other)
            arrays = _kernels.weighted_sum(*own, factors, *others, share, self.vectors.shape[1], threads)
            vectors = csr_of(*arrays, self.vectors.shape)
        else:
            vectors = self.vectors.copy()
            vectors.data *= np.repeat(factors, np.diff(vectors.indptr))
        mass = None if self.mass is None else self.mass * factors
        return LabelVectors(vectors, (self.bias + 1) * factors - 1, mass)

    def replaced(self, labels: NDArray[np.intp], new: LabelVectors) -> LabelVectors:
        """The vectors with those of ``labels`` replaced by ``new``, which has them in this order."""
        position = np.arange(self.n_labels)
        position[labels] = self.n_labels + np.arange(labels.size)
        both = sparse.csr_array(sparse.vstack([self.vectors, new.vectors], format="csr"))
        bias = np.concatenate([self.bias, new.bias])[position]
        mass = None
        if self.mass is not None and new.mass is not None:
            mass = np.concatenate([self.mass, new.mass])[position]
        return replace(self, vectors=sparse.csr_array(both[position]), bias=bias, mass=mass)
