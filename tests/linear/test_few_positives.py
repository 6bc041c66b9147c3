"""Labels with few positives: the rows that they take one by one, and what stands for the others, beside LIBLINEAR."""

import numpy as np
import pytest
from helpers import same_bits
from scipy import sparse
from sklearn.svm import LinearSVC

from blockxmc import DiSMEC
from blockxmc._core.progress import Reporter
from blockxmc.linear.one_vs_all import OneVsAll, train_one_vs_all

FEW, NEAREST, C = 3, 12, 0.5


def labels_and_rows(rng, n=160, d=40, n_labels=12):
    """Sparse rows, labels with one to six positives, and about 70 rows for each, its positives among them."""
    X = rng.random((n, d)) * (rng.random((n, d)) < 0.2)
    X[n // 2 :] = X[: n - n // 2]  # rows that are as like as others
    Y, members = np.zeros((n, n_labels)), np.zeros((n_labels, n))
    for j in range(n_labels):
        chosen = rng.permutation(n)
        Y[chosen[: 1 + j // 2], j] = 1
        members[j, chosen[: rng.integers(60, 75)]] = 1
    return (sparse.csr_array(m.astype(np.float32)) for m in (X, Y, members))


def solved(X, Y, rows, threads=1, bias=1.0, costs=None, few=FEW, start=None):
    problem = OneVsAll("squared_hinge", C=C, tol=1e-6, bias=bias, prune=0.0, few=few, nearest=NEAREST)
    with Reporter().phase("") as phase:
        return train_one_vs_all(problem, X, Y, threads=threads, phase=phase, rows=rows, costs=costs, start=start)


def numbers(weights):
    return [weights.coef.toarray(), weights.bias]


def plain(X, positive, members, bias, costs):
    """Weights and bias by LIBLINEAR on rows that NumPy has chosen."""
    like = X.astype(np.float32) @ X[positive].sum(axis=0).astype(np.float32)
    others = np.setdiff1d(members, positive)
    sorted_others = others[np.lexsort((others, -np.round(like[others], 5)))]
    near, far = np.sort(sorted_others[:NEAREST]), sorted_others[NEAREST:]
    taken = np.concatenate([positive, near])
    features = np.vstack([X[taken], np.zeros((1, X.shape[1]))])
    features = np.column_stack([features, np.full(len(features), bias)])
    signs = np.where(np.arange(len(features)) < positive.size, 1, -1)
    counts = np.concatenate([costs[positive, 0], costs[near, 1], [costs[far, 1].sum()]])
    svm = LinearSVC(loss="squared_hinge", dual=False, C=C, tol=1e-9, fit_intercept=False, max_iter=10**5)
    found = svm.fit(features, signs, sample_weight=counts).coef_.ravel()
    return found[:-1], found[-1] * bias


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("bias", [1.0, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_beside_liblinear(seed, bias, weighed):
    rng = np.random.default_rng(seed)
    X, Y, rows = labels_and_rows(rng)
    costs = rng.uniform(0.5, 2, (X.shape[0], 2)).astype(np.float32) if weighed else None
    found = solved(X, Y, rows, bias=bias, costs=costs)
    exact = solved(X, Y, rows, bias=bias, costs=costs, few=0)
    counts = np.diff(sparse.csc_array(Y).indptr)
    for j, count in enumerate(counts):
        weights, other = found.coef.toarray()[:, j], exact.coef.toarray()[:, j]
        if count > FEW:  # all rows one by one, as ever
            assert np.abs(weights - other).max() < 1e-4
            continue
        own, members = np.flatnonzero(Y.toarray()[:, j]), np.flatnonzero(rows.toarray()[j])
        as_counted = np.ones((X.shape[0], 2)) if costs is None else costs
        wanted, wanted_bias = plain(X.toarray(), own, members, bias, as_counted)
        assert np.abs(weights - wanted).max() < 1e-3
        assert abs(found.bias[j] - wanted_bias) < 1e-3
        assert np.abs(weights - other).max() > 1e-3  # it is another problem


def test_without_bias_the_others_say_nothing():
    X, Y, rows = labels_and_rows(np.random.default_rng(2))
    found = solved(X, Y, rows, bias=None)
    assert not found.bias.any()
    wanted, _ = plain(
        X.toarray(), np.flatnonzero(Y.toarray()[:, 0]), np.flatnonzero(rows.toarray()[0]), 0, np.ones((160, 2))
    )
    assert np.abs(found.coef.toarray()[:, 0] - wanted).max() < 1e-3


def test_the_same_bits_for_threads_and_company():
    X, Y, rows = labels_and_rows(np.random.default_rng(3), n_labels=40)
    whole = solved(X, Y, rows)
    assert same_bits(numbers(solved(X, Y, rows, threads=3)), numbers(whole))
    for j in (0, 3, 5):  # of few positives, by itself
        alone = solved(X, Y[:, [j]], rows[[j]])
        assert same_bits(numbers(alone), [whole.coef.toarray()[:, [j]], whole.bias[[j]]])


def test_labels_of_most_rows_and_all_rows_as_they_were():
    X, Y, _ = labels_and_rows(np.random.default_rng(4))
    most = sparse.csr_array(np.ones((Y.shape[1], X.shape[0]), np.float32))
    for rows in (most, None):
        assert same_bits(numbers(solved(X, Y, rows)), numbers(solved(X, Y, rows, few=0)))


def test_numbers_beyond_float():
    """Products that are no numbers are sorted last; nothing falls."""
    X, Y, rows = labels_and_rows(np.random.default_rng(5))
    X.data *= np.where(np.random.default_rng(6).random(X.nnz) < 0.5, 3e38, -3e38).astype(np.float32)
    assert solved(X, Y, rows).coef.shape == (40, 12)


def test_a_row_of_weight_0_takes_nobodys_place():
    rng = np.random.default_rng(4)
    X, Y, rows = labels_and_rows(rng)
    weight = (rng.random(X.shape[0]) < 0.6).astype(np.float32)
    weight[Y.sum(axis=1) > 0] = 1
    costs = np.repeat(weight[:, None], 2, axis=1)
    without = sparse.csr_array(rows.toarray() * weight)
    assert without.nnz < rows.nnz
    for j in range(2 * FEW):
        found, wanted = (solved(X, Y[:, [j]], members[[j]], costs=costs) for members in (rows, without))
        assert same_bits(numbers(found), numbers(wanted))


def test_all_rows_where_no_bias_stands_for_them():
    assert DiSMEC().takes_nearest
    assert not DiSMEC(bias=None).takes_nearest
