"""A random data set with the shape of a real one: topics with their own features and labels, and Zipf tails in both."""

import numpy as np
from scipy import sparse


def planted(n, d, m, *, features=42, labels=3.2, topics=2000, seed=0):
    """X (n x d, float32) and Y (n x m): most of a row's features and labels come from its topic."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, topics, n, dtype=np.int32)
    X = _draw(rng, topic, d, np.full(n, features, np.int32), own_share=0.6, spread=400, skew=0.9)
    Y = _draw(rng, topic, m, 1 + rng.poisson(labels - 1, n).astype(np.int32), own_share=0.85, spread=300, skew=1.4)
    X.data[:] = rng.random(X.nnz, dtype=np.float32) + np.float32(0.1)
    return X, Y


def _draw(rng, topic, width, sizes, *, own_share, spread, skew):
    """Each row draws ``sizes`` columns, from the ``spread`` columns of its topic or from a global Zipf law."""
    width_max = int(sizes.max())
    columns = np.empty((topic.size, width_max), np.int32)
    step = 2**16
    for a in range(0, topic.size, step):
        shape = (min(step, topic.size - a), width_max)
        everywhere = (width * rng.random(shape) ** 3).astype(np.int64)
        home = (topic[a : a + step, None].astype(np.int64) * 7919) % width
        own = (home + spread * rng.random(shape) ** (1 + skew)).astype(np.int64) % width
        drawn = np.where(rng.random(shape) < own_share, own, everywhere).astype(np.int32)
        drawn[np.arange(width_max) >= sizes[a : a + step, None]] = np.iinfo(np.int32).max
        columns[a : a + step] = np.sort(drawn, axis=1)
    fresh = columns != np.iinfo(np.int32).max
    fresh[:, 1:] &= columns[:, 1:] != columns[:, :-1]
    indptr = np.concatenate([[0], np.cumsum(fresh.sum(axis=1), dtype=np.int64)])
    indices = columns[fresh]
    return sparse.csr_array((np.ones(indices.size, np.float32), indices, indptr), shape=(topic.size, width))
