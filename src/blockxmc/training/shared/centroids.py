"""The centroid of a label: the mean direction of its positives. It knows words that few positives could not teach."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc._core.progress import Reporter
from blockxmc.linear.one_vs_all import typical_length
from blockxmc.partition.start import label_vectors


def label_centroids(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    learned: sparse.csr_array,
    reporter: Reporter,
    *,
    prune: float,
    threads: int,
) -> sparse.csr_array:
    """Labels x features: a row's product with it is the cosine to the label's centroid.

    Parts below ``prune`` are left out where the label has no ``learned`` weight (labels x features): they would cost
    memory and time that they are not worth.
    """
    ids = np.arange(Y.shape[1], dtype=np.int32)
    with reporter.phase("label centroids", Y.shape[1]) as phase:
        centroids = sparse.csr_array(normalize(label_vectors(X, Y, ids, threads=threads, phase=phase)))
    large = centroids.copy()
    large.data[abs(large.data) < prune] = 0
    small = sparse.csr_array(centroids - large)
    for part in (large, small):
        part.eliminate_zeros()
    kept = sparse.csr_array(large + small * learned.astype(bool))
    return sparse.csr_array(kept / np.float32(typical_length(X)))
