"""Small data sets that several tests share."""

import numpy as np
from scipy import sparse

from blockxmc._core.matrix import as_csr, as_indicator
from blockxmc._core.progress import Reporter
from blockxmc.learners._learner import Context


def trained(learner, X, Y):
    """The weights a learner finds, before they are packed for serving."""
    with Reporter().phase("") as silent:
        return learner._train(as_csr(X), as_indicator(Y), Context(learner._threads, learner.random_state or 0, silent))


def blocky(n=240, n_features=60, n_labels=30, n_blocks=3, seed=0):
    """Rows in planted blocks: each block has features and labels of its own, and two labels are everywhere."""
    rng = np.random.default_rng(seed)
    block = rng.integers(n_blocks, size=n)
    X, Y = np.zeros((n, n_features), np.float32), np.zeros((n, n_labels), np.float32)
    per_f, per_l = n_features // n_blocks, (n_labels - 2) // n_blocks
    for i, b in enumerate(block):
        topic = rng.integers(per_l, size=2)
        Y[i, 2 + b * per_l + topic] = 1
        Y[i, rng.integers(2)] = 1
        X[i, b * per_f + (topic * 2) % per_f] = 1
        X[i, b * per_f + rng.integers(per_f, size=3)] += 0.3
        X[i, rng.integers(n_features, size=2)] += 0.1
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sparse.csr_array(X), sparse.csr_array(Y)


def same_bits(a, b):
    """Whether two nested dicts hold the same bits."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_bits(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same_bits, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if sparse.issparse(a):
        return (
            a.format == b.format
            and a.shape == b.shape
            and same_bits([a.indptr, a.indices, a.data], [b.indptr, b.indices, b.data])
        )
    return a == b


def gains_of_all(neighbors, X, visited, threads):
    """What every label of each row gains."""
    labels = np.tile(np.arange(neighbors.n_labels), (X.shape[0], 1))
    return neighbors.few_gains(X, visited, labels, threads)


def catalogue(n=1500, planted=0, seed=0):
    """Texts whose labels are words of them, one in seven missing; the last ``planted`` rows have one each of their own."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for i in range(n):
        mine = rng.choice(600, size=2, replace=False, p=np.arange(600, 0, -1) / 180300).tolist()
        words = [f"topic{j}" for j in mine if rng.random() < 0.86] + [f"noise{j}" for j in rng.integers(300, size=4)]
        texts.append(" ".join(words))
        labels.append([f"topic{j} science" for j in mine])
        if i >= n - planted:
            texts[i], labels[i] = texts[i] + f" single{i}", [*labels[i], f"single{i}"]
    return texts, labels
