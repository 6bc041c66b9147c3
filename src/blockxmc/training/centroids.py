"""The centroid of a label: the mean direction of its positives. It knows words that few positives could not teach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import copy_rows, csr_args, csr_of, pattern_args, take_rows
from blockxmc._core.progress import Phase, Reporter
from blockxmc.linear.one_vs_all import typical_length
from blockxmc.partition.start import Begun, label_vectors


@dataclass(frozen=True)
class KnownSums:
    """Sums of the rows of labels, of which the partition knew some: they need not be made again."""

    place: NDArray[np.int64]  # of each label among the vectors that are there; -1: it is not
    vectors: sparse.csr_array | None = None

    @classmethod
    def of(cls, begun: Begun | None, n_labels: int) -> KnownSums:
        """Those that a partition began with, if it began with any."""
        place = np.full(n_labels, -1)
        if begun is None:
            return cls(place)
        place[begun.labels] = np.arange(begun.labels.size)
        return cls(place, begun.vectors)

    def without(self, labels: NDArray[np.integer]) -> KnownSums:
        """The same where these labels have other rows now."""
        place = self.place.copy()
        place[labels] = -1
        return KnownSums(place, self.vectors)

    def of_labels(
        self, X: sparse.csr_array, Y: sparse.csr_array, labels: NDArray[np.integer], threads: int, phase: Phase
    ) -> sparse.csr_array:
        """A row for each of these labels: those that are not known are made."""
        place = self.place[labels]
        new = place < 0
        if new.all() or self.vectors is None:
            return label_vectors(X, Y, labels.astype(np.int32), threads=threads, phase=phase)
        old = copy_rows(self.vectors, place[~new], threads)
        if not new.any():
            return old
        made = label_vectors(X, Y, labels[new].astype(np.int32), threads=threads, phase=phase)
        both = sparse.csr_array(sparse.vstack([old, made], "csr"))
        return copy_rows(both, np.argsort(np.argsort(new, kind="stable")), threads)


def label_centroids(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    labels: NDArray[np.integer],
    learned: sparse.csr_array,
    known: KnownSums,
    *,
    prune: float,
    threads: int,
    reporter: Reporter,
) -> sparse.csr_array:
    """Some labels x features: a row's product with it is the cosine to the label's centroid.

    Parts below ``prune`` are left out where the label has no ``learned`` weight (these labels x features): they would
    cost memory and time that they are not worth.
    """
    with reporter.phase("label centroids", labels.size) as phase:
        sums = known.of_labels(X, Y, labels, threads, phase)
        weights = pattern_args(learned)
        indptr, indices, data = _kernels.large_or_known(*csr_args(sums), *weights, X.shape[1], prune, threads)
        data /= np.float32(typical_length(X))
        return csr_of(indptr, indices, data, sums.shape)


class Remembered:
    """Rows of a matrix that are made when they are first asked for, and kept.

    >>> made = []
    >>> rows = Remembered(lambda some: made.extend(some.tolist()) or sparse.csr_array(np.eye(4, dtype=np.float32)[some]))
    >>> rows(np.array([0, 2])).shape, rows(np.array([2, 1])).toarray().argmax(axis=1).tolist(), made
    ((2, 4), [2, 1], [0, 2, 1])
    """

    def __init__(self, make: Callable[[NDArray[np.intp]], sparse.csr_array]) -> None:
        self._make = make
        self._rows: sparse.csr_array | None = None
        self._known = np.empty(0, np.intp)

    def __call__(self, numbers: NDArray[np.intp]) -> sparse.csr_array:
        """These rows, in this order; no number twice."""
        new = numbers[~np.isin(numbers, self._known)]
        if new.size or self._rows is None:
            made = self._make(new)
            self._rows = made if self._rows is None else sparse.csr_array(sparse.vstack([self._rows, made], "csr"))
            self._known = np.concatenate([self._known, new])
        order = np.argsort(self._known)
        return take_rows(self._rows, order[np.searchsorted(self._known, numbers, sorter=order)])
