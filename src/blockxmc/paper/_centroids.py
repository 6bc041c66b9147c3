"""Blocks by k-means on the features alone, and the router that goes with them: the nearest centroid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc.linear.weights import LinearWeights
from blockxmc.partition import Partitioner
from blockxmc.routing import Router


def kmeans_blocks(
    X: sparse.csr_array, Y: sparse.csr_array, n_blocks: int, *, seed: int, threads: int
) -> tuple[NDArray[np.int32], list[NDArray[np.int64]]]:
    """Rows by spherical k-means, and all labels seen in each block."""
    partition = Partitioner(min(n_blocks, X.shape[0]), lam=0.0, max_iter=0, random_state=seed, n_jobs=threads).fit(X, Y)
    return partition.assignment_, partition.label_clusters_


def centroid_router(X: sparse.csr_array, assignment: NDArray[np.integer], n_blocks: int) -> Router:
    """Sends a row to the block whose mean direction is closest (on normalised rows: the nearest centroid)."""
    rows = normalize(X)
    ones, rows_of = np.ones(assignment.size, np.float32), np.arange(assignment.size)
    member = sparse.csr_array((ones, (assignment, rows_of)), shape=(n_blocks, assignment.size))
    centroids = normalize(sparse.csr_array(member @ rows))
    bias = np.zeros(n_blocks, np.float32)
    return Router.from_weights(LinearWeights(sparse.csr_array(centroids.T, dtype=np.float32), bias))
