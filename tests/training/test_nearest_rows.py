"""The rows that a label without weights learns from, beside a plain computation."""

import numpy as np
import pytest
from scipy import sparse

from blockxmc._core.progress import Reporter
from blockxmc.learners.dismec import DiSMEC
from blockxmc.training.blocks import visits_of
from blockxmc.training.labels import LabelTrainer, nearest_rows
from blockxmc.training.settings import Settings


def pattern(rng, n_labels, n_rows, share):
    return sparse.csr_array((rng.random((n_labels, n_rows)) < share).astype(np.float32))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("most", [0, 1, 7, 20, 1000])
def test_beside_a_plain_computation(threads, most):
    rng = np.random.default_rng(most)
    X = sparse.csr_array(rng.random((60, 9), np.float32) * (rng.random((60, 9)) < 0.5))
    positives = pattern(rng, 12, 60, 0.05)
    rows = sparse.csr_array((positives + pattern(rng, 12, 60, 0.6) > 0).astype(np.float32))
    new = rng.random(12) < 0.7
    found = nearest_rows(X, positives, rows, new, most, threads)
    for label in range(12):
        members, own, left = (
            m.indices[m.indptr[label] : m.indptr[label + 1]].tolist() for m in (rows, positives, found)
        )
        if not new[label] or len(members) <= most or len(own) > most:
            assert left == members
            continue
        assert len(left) == most
        assert set(own) <= set(left)
        assert left == sorted(left)
        like = X.toarray() @ X.toarray()[own].sum(axis=0) if own else np.zeros(60)
        left_out = set(members) - set(left)
        assert max(like[list(left_out)]) <= min([*like[list(set(left) - set(own))], np.inf]) + 1e-4


def test_only_new_labels_are_cut():
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.random((80, 10), np.float32))
    Y = sparse.csr_array((rng.random((80, 2)) < 0.1).astype(np.float32))
    block = np.zeros(80, np.int32)
    how = [np.arange(2)], Reporter(), 1, 0
    visits, labels = visits_of(block, block[:, None], 1), np.arange(2)
    few, all_rows = (
        LabelTrainer(DiSMEC(tol=1e-6), X, *how, Settings(update_negatives=most)).train_some(
            Y, visits, labels, "again", np.array([False, True])
        )
        for most in (20, 1000)
    )
    apart = abs(few.scores(X) - all_rows.scores(X)).max(axis=0)
    assert apart[0] < 2e-3 < 2e-2 < apart[1]


@pytest.mark.parametrize("most", [1, 3, 8, 39])
def test_of_rows_that_are_as_like_the_first_stay(most):
    rng = np.random.default_rng(most)
    X = sparse.csr_array(rng.integers(0, 2, (40, 3)).astype(np.float32))  # few different rows
    own = rng.permutation(40)[:1]
    positives = sparse.csr_array((np.ones(1, np.float32), own, [0, 1]), shape=(1, 40))
    found = nearest_rows(X, positives, sparse.csr_array(np.ones((1, 40), np.float32)), np.ones(1, bool), most, 1)
    like = (X.toarray() @ X.toarray()[own[0]]).astype(float)
    like[own] = np.inf
    assert found.indices.tolist() == sorted(np.argsort(-like, kind="stable")[:most])


def test_own_rows_must_be_among_the_rows():
    X, one, other = (sparse.csr_array(np.array(given, np.float32)) for given in (np.eye(3), [[1, 0, 0]], [[0, 1, 1]]))
    with pytest.raises(ValueError, match="own rows must be among the rows"):
        nearest_rows(X, one, other, np.ones(1, bool), 1, 1)
