"""The centroid of a label: the mean direction of its positives. It knows words that few positives could not teach."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args, csr_of, pattern_args
from blockxmc._core.progress import Reporter
from blockxmc.linear.one_vs_all import typical_length
from blockxmc.partition.start import label_vectors


def label_centroids(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    labels: NDArray[np.integer],
    learned: sparse.csr_array,
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
        sums = label_vectors(X, Y, labels.astype(np.int32), threads=threads, phase=phase)
        weights = pattern_args(learned)
        indptr, indices, data = _kernels.large_or_known(*csr_args(sums), *weights, X.shape[1], prune, threads)
        data /= np.float32(typical_length(X))
        return csr_of(indptr, indices, data, sums.shape)
