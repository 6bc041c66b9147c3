"""What a block keeps of its weights from one lambda to the next: vectors of labels, as they are or as starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc.linear.weights import LinearWeights, Weights

Labels = NDArray[np.int64]


def places(have: Labels, want: Labels) -> NDArray[np.intp]:
    """Where each wanted label stands among those a block had; -1: it is new.

    >>> places(np.array([2, 5, 9]), np.array([5, 7])).tolist()
    [1, -1]
    """
    if have.size == 0:
        return np.full(want.size, -1)
    at = np.searchsorted(have, want)
    found = (at < have.size) & (have[np.minimum(at, have.size - 1)] == want)
    return np.where(found, at, -1)


def has_vectors(weights: Weights) -> bool:
    """Whether the weights are one vector per label and nothing else, so that labels can be put together anew."""
    return isinstance(weights, LinearWeights) and weights.mass is None and weights.offset is None


def vectors(weights: Any, n_features: int, at: NDArray[np.intp]) -> sparse.csr_array:
    """The vectors of the labels at these places, labels x all features; a negative place has an empty vector.

    >>> weights = LinearWeights(sparse.csr_array([[1.0, 2.0]]), np.zeros(2, np.float32), features=np.array([3]))
    >>> vectors(weights, 4, np.array([1, -1])).toarray().tolist()
    [[0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]]
    """
    own = sparse.csr_array(weights.coef.T)
    columns = own.indices if weights.features is None else weights.features[own.indices]
    wide = sparse.csr_array((own.data, columns, own.indptr), shape=(own.shape[0], n_features))
    taken = sparse.csr_array(wide[np.maximum(at, 0)])
    if (at < 0).any():
        known = np.repeat(at >= 0, np.diff(taken.indptr))
        lengths = np.where(at >= 0, np.diff(taken.indptr), 0)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        taken = sparse.csr_array((taken.data[known], taken.indices[known], indptr), shape=taken.shape)
    return taken


def together(known: Any, at: NDArray[np.intp], fresh: Any, n_features: int) -> LinearWeights:
    """Weights of labels in their order: those at places of ``known``, and where a place is negative those of ``fresh``.

    >>> one = LinearWeights(sparse.csr_array([[1.0]]), np.array([5.0]), features=np.array([0]))
    >>> two = LinearWeights(sparse.csr_array([[2.0]]), np.array([6.0]), features=np.array([1]))
    >>> both = together(one, np.array([-1, 0]), two, 2)
    >>> both.coef.toarray().tolist(), both.bias.tolist()
    ([[0.0, 1.0], [2.0, 0.0]], [6.0, 5.0])
    """
    new = np.cumsum(at < 0) - 1
    parts = [vectors(known, n_features, at[at >= 0]), vectors(fresh, n_features, np.arange(fresh.n_labels))]
    order = np.where(at >= 0, np.cumsum(at >= 0) - 1, (at >= 0).sum() + new)
    whole = sparse.csr_array(sparse.csr_array(sparse.vstack(parts, format="csr"))[order])
    used, columns = np.unique(whole.indices, return_inverse=True)
    narrow = sparse.csr_array((whole.data, columns.astype(np.int32), whole.indptr), shape=(at.size, used.size))
    bias = np.where(at >= 0, known.bias[at], fresh.bias[np.maximum(new, 0)]) if known.n_labels else fresh.bias
    return LinearWeights(sparse.csr_array(narrow.T), bias.astype(fresh.bias.dtype), features=used.astype(np.int32))
