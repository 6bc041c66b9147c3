"""Vectors of labels: parts that are put in order, replaced and taken, beside SciPy."""

import numpy as np
import pytest
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args, renumbered, without_rows
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights


def random_rows(n, d, seed, density=0.3):
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    return sparse.csr_array(dense.astype(np.float32))


def vectors_of(n, d, seed):
    rows = random_rows(n, d, seed)
    return LabelVectors(rows, np.arange(n, dtype=np.float32) + seed)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("sizes", [[7], [3, 0, 5], [2000, 1500]])
def test_joined_parts_stand_in_order(sizes, threads):
    parts = [vectors_of(n, 9, seed) for seed, n in enumerate(sizes)]
    order = np.random.default_rng(0).permutation(sum(sizes))
    weights = [LinearWeights(part.vectors.T, part.bias) for part in parts]
    found = LabelVectors.joined(weights, order, threads)
    dense = np.concatenate([part.vectors.toarray() for part in parts])
    bias = np.concatenate([part.bias for part in parts])
    assert (found.vectors.toarray()[order] == dense).all()
    assert (found.bias[order] == bias).all()


def test_replaced_vectors_are_the_new_ones():
    old, new = vectors_of(6, 4, 0), vectors_of(3, 4, 100)
    labels = np.array([4, 0, 5])
    found = old.replaced(labels, new, threads=2)
    expected, bias = old.vectors.toarray(), old.bias.copy()
    expected[labels], bias[labels] = new.vectors.toarray(), new.bias
    assert (found.vectors.toarray() == expected).all()
    assert (found.bias == bias).all()
    assert (old.replaced(np.array([], int), vectors_of(0, 4, 1)).vectors.toarray() == old.vectors.toarray()).all()


def test_some_vectors():
    vectors = vectors_of(5, 4, 0)
    labels = np.array([3, 1])
    X = random_rows(2, 4, 9)
    assert (vectors.some(labels).scores(X) == vectors.scores(X)[:, labels]).all()


def test_rows_without_room_are_refused():
    rows = random_rows(2, 5, 0, density=1.0)
    indices, data = np.zeros(10, np.int32), np.zeros(10, np.float32)
    for starts in ([0, 6], [-1, 5]):
        with pytest.raises(ValueError, match="no room"):
            _kernels.place_rows(*csr_args(rows), np.array(starts), indices, data, 1)
    with pytest.raises(ValueError, match="one start per row"):
        _kernels.place_rows(*csr_args(rows), np.array([0]), indices, data, 1)


def test_renumbered_is_unique_without_sorting():
    numbers = np.random.default_rng(0).integers(50, size=400)
    for some in (numbers, numbers[:0]):
        different, position = np.unique(some, return_inverse=True)
        found = renumbered(some, 60)
        assert (found[0] == different).all()
        assert (found[1] == position).all()


def test_without_rows_empties_them():
    X = random_rows(30, 8, 3)
    rows = np.random.default_rng(1).random(30) < 0.4
    found = without_rows(X, rows)
    assert (found.toarray() == np.where(rows[:, None], 0, X.toarray())).all()
    assert found.nnz == X[~rows].nnz


def test_stacked_and_replaced_vectors_do_not_depend_on_their_parts(monkeypatch):
    whole = vectors_of(50, 9, 3)
    stretches = np.split(np.arange(50), [20, 20, 41])
    parts = [whole.some(some) for some in stretches]
    found = LabelVectors.stacked(parts, 2)
    assert not parts
    assert (found.vectors != whole.vectors).nnz == 0
    assert (found.bias == whole.bias).all()
    new, labels = vectors_of(2, 9, 7), np.array([49, 1])
    at_once = whole.replaced(labels, new)
    monkeypatch.setattr("blockxmc.linear.vectors._AT_A_TIME", 7)
    in_parts = whole.replaced(labels, new)
    assert (in_parts.vectors != at_once.vectors).nnz == 0
    assert (in_parts.bias == at_once.bias).all()
