"""One weight vector per label, stored label by label: the form in which shared weights are trained, mixed and packed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args, csr_of, renumbered, take_rows
from blockxmc.linear.weights import F32, LinearWeights

# Labels whose vectors are copied at a time where some are replaced.
_AT_A_TIME = 2**16


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
    def joined(cls, parts: list[LinearWeights], order: NDArray[np.intp], threads: int = 1) -> LabelVectors:
        """The labels of all parts, one part after another; ``order`` says where each stands in the end.

        The parts are taken from the list, so that no weight is held twice for long.
        """
        vectors = [sparse.csr_array(part.coef.T) for part in parts]
        masses = [part.mass for part in parts if part.mass is not None]
        bias = _in_order([part.bias for part in parts], order)
        mass = _in_order(masses, order) if masses else None
        parts.clear()
        return cls(_rows_in_order(vectors, order, threads), bias, mass)

    @classmethod
    def stacked(cls, parts: list[LabelVectors], threads: int = 1) -> LabelVectors:
        """The labels of all parts, one part after another; takes them from the list, so that none is held twice.

        >>> v = LabelVectors(sparse.csr_array(np.eye(2, dtype=np.float32)), np.zeros(2, np.float32))
        >>> LabelVectors.stacked([v, v]).vectors.shape
        (4, 2)
        """
        order = np.arange(sum(part.n_labels for part in parts))
        masses = [part.mass for part in parts if part.mass is not None]
        bias, mass = _in_order([part.bias for part in parts], order), _in_order(masses, order) if masses else None
        vectors = [part.vectors for part in parts]
        parts.clear()
        return cls(_rows_in_order(vectors, order, threads), bias, mass)

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.vectors.shape[0])

    def some(self, labels: NDArray[np.intp]) -> LabelVectors:
        """The vectors of these labels alone."""
        mass = None if self.mass is None else self.mass[labels]
        return LabelVectors(take_rows(self.vectors, labels), self.bias[labels], mass)

    def scores(self, X: sparse.csr_array) -> F32:
        """Dense scores, rows x labels."""
        out = np.asarray((X @ self.vectors.T).toarray(), np.float32) + self.bias
        if self.mass is not None:
            out += np.asarray(abs(X).sum(axis=1)).reshape(-1, 1) * self.mass
        return out

    def few_scores(self, X: sparse.csr_array, labels: NDArray[np.integer], threads: int) -> F32:
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
        some = self.vectors if asked.size == self.n_labels else take_rows(self.vectors, asked)
        kernel = _kernels.LabelWeights(*csr_args(some), self.vectors.shape[1], threads)
        kernel.score(*csr_args(X), indptr.astype(np.int64), position, found, threads)
        if self.bias.any():
            found += self.bias[labels]
        if self.mass is not None:
            lengths = np.asarray(abs(X).sum(axis=1), np.float32)
            found += np.repeat(lengths, np.diff(indptr)) * self.mass[labels]
        return found

    def plus(self, other: sparse.csr_array, share: float, threads: int = 1) -> LabelVectors:
        """Vectors with a share of others added.

        >>> v = LabelVectors(sparse.csr_array(np.eye(2, dtype=np.float32)), np.zeros(2, np.float32))
        >>> v.plus(v.vectors, 0.5).scores(sparse.csr_array(np.array([[3, 4]], np.float32))).tolist()
        [[4.5, 6.0]]
        """
        if not share:
            return self
        arrays = _kernels.weighted_sum(*csr_args(self.vectors), *csr_args(other), share, self.vectors.shape[1], threads)
        return LabelVectors(csr_of(*arrays, self.vectors.shape), self.bias, self.mass)

    def replaced(self, labels: NDArray[np.intp], new: LabelVectors, threads: int = 1) -> LabelVectors:
        """The vectors with those of ``labels`` replaced by ``new``, which has them in this order."""
        kept = np.ones(self.n_labels, bool)
        kept[labels] = False
        others = np.flatnonzero(kept)
        order = np.concatenate([others, labels])
        parts = np.split(others, range(_AT_A_TIME, others.size, _AT_A_TIME))
        sizes = np.diff(self.vectors.indptr)[others], np.diff(new.vectors.indptr)
        vectors = chain((take_rows(self.vectors, part) for part in parts), [new.vectors])
        bias = _in_order([self.bias[others], new.bias], order)
        mass = None
        if self.mass is not None and new.mass is not None:
            mass = _in_order([self.mass[others], new.mass], order)
        shape = (order.size, self.vectors.shape[1])
        return replace(
            self, vectors=_placed(vectors, np.concatenate(sizes), order, shape, threads), bias=bias, mass=mass
        )


def _in_order(parts: Sequence[F32], order: NDArray[np.intp]) -> F32:
    """The numbers of all parts, the next of which stands at the next place of ``order``."""
    out = np.empty(order.size, np.float32)
    out[order] = np.concatenate(parts)
    return out


def _rows_in_order(parts: list[sparse.csr_array], order: NDArray[np.intp], threads: int) -> sparse.csr_array:
    """The same for rows of matrices, which are taken from the list: each is copied once, to where it ends up."""
    if len(parts) == 1 and bool((order[1:] > order[:-1]).all()):
        return parts[0]
    shape = (order.size, parts[0].shape[1])
    sizes = np.concatenate([np.diff(part.indptr) for part in parts])
    return _placed((parts.pop(0) for _ in range(len(parts))), sizes, order, shape, threads)


def _placed(
    parts: Iterable[sparse.csr_array],
    sizes: NDArray[np.integer],
    order: NDArray[np.intp],
    shape: tuple[int, int],
    threads: int,
) -> sparse.csr_array:
    """Rows of all parts, of these sizes, each at the next place of ``order``; parts are asked for one by one."""
    indptr = np.zeros(order.size + 1, np.int64)
    indptr[order + 1] = sizes
    np.cumsum(indptr, out=indptr)
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    first = 0
    for part in parts:
        starts = indptr[order[first : first + part.shape[0]]]
        _kernels.place_rows(*csr_args(part), starts, indices, data, threads)
        first += part.shape[0]
    return csr_of(indptr, indices, data, shape)
