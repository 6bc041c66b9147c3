"""The order of answers: by the score that is shown, ties to the lower id, for every k, batch, thread count and row."""

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse

from blockxmc import BlockwiseClassifier, DiSMEC, NaiveBayes

KS = (1, 2, 3, 5, 7, 8, 9, 10, 15, 16, 17, 31, 32, 33, 40)


def problem(seed, n_labels=36):
    """Few rows in blocks, with labels that cannot be told from each other, and rows that say little or shout."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([12, 60, 260]))
    X, Y = (part.toarray() for part in blocky(n=n, n_features=24, n_labels=n_labels, n_blocks=3, seed=seed))
    order = rng.permutation(n_labels)  # twins lie anywhere
    Y[:, order[:12]] = Y[:, order[12:24]]
    X[rng.random(n) < 0.2] = 0
    X = np.round(X, 1) if seed % 2 else X
    loud = X[:20] * rng.choice([1, 30, 1e3, 1e6, -1e4], size=(min(n, 20), 1)).astype(np.float32)
    return sparse.csr_array(X), sparse.csr_array(Y), sparse.csr_array(np.vstack([X[:20], loud]))


def check_order(clf, X, n_labels):
    X = sparse.csr_array(X, dtype=np.float32)
    every_label, every_score = clf.predict_topk(X, n_labels)
    there = every_label >= 0
    assert (every_score[:, :-1] >= every_score[:, 1:]).all()
    alike = (every_score[:, :-1] == every_score[:, 1:]) & there[:, 1:]
    assert (every_label[:, :-1] < every_label[:, 1:])[alike].all()
    scores = clf.decision_function(X)
    for k in KS:
        for threads in (1, 3):
            labels, found = clf.set_params(n_jobs=threads).predict_topk(X, k)
            width = min(k, n_labels)
            assert_array_equal(labels[:, :width], every_label[:, :width], f"k={k}, {threads} threads")
            assert_array_equal(found[:, :width], every_score[:, :width])
            assert (labels[:, width:] == -1).all()
        for i in range(0, X.shape[0], 3):
            row = X[[i]]
            one = clf.predict_one(row.indices.astype(np.int32), row.data, min(k, n_labels))
            assert_array_equal(one[0], every_label[i, : min(k, n_labels)], f"k={k}, row {i} alone")
            assert_array_equal(one[1], every_score[i, : min(k, n_labels)])
    if sparse.issparse(scores):
        for i in range(X.shape[0]):  # of all candidates, those that are no candidates come last
            row = scores[[i]]
            best = row.indices[np.lexsort((row.indices, -row.data))]
            assert_array_equal(every_label[i, : best.size], best)
            assert_array_equal(every_score[i, : best.size], -np.sort(-row.data))


@pytest.mark.parametrize("seed", range(14))
def test_the_first_answers_are_the_same_for_every_k(seed):
    X, Y, rows = problem(seed)
    blocks = ("auto", 1, 3)[seed % 3]
    clf = BlockwiseClassifier(n_blocks=blocks, lam="auto" if blocks == "auto" else 0.3, random_state=seed, n_jobs=1)
    check_order(clf.fit(X, Y), rows, Y.shape[1])


@pytest.mark.parametrize("base", [DiSMEC(), NaiveBayes()], ids=["dismec", "naive bayes"])
def test_so_are_those_of_margins(base):
    X, Y, rows = problem(1)
    X, rows = abs(X), abs(rows)
    check_order(BlockwiseClassifier.paper(base, n_blocks=3, lam=0.3).fit(X, Y), rows, Y.shape[1])


def test_labels_behind_the_first_that_are_shown_alike():
    """Scores that differ, of labels whose probability is rounded to the same number: more of them than are asked for."""
    X, Y, _ = problem(3)
    clf = BlockwiseClassifier(n_blocks=3, lam=0.3).fit(X, Y)
    rows = sparse.csr_array(X[:5] * np.float32(1e9))
    labels, scores = clf.predict_topk(rows, 36)
    alike = (scores[:, :-1] == scores[:, 1:]) & (scores[:, 1:] >= 0)
    assert alike.sum() > 20
    assert (labels[:, :-1] < labels[:, 1:])[alike].all()
    check_order(clf, rows, 36)
