"""Rows that the fit held out, in updates: when blocks learn of them; and labels that come to blocks they never met."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse

from blockxmc import BlockwiseClassifier, DiSMEC
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.linear.vectors import LabelVectors
from blockxmc.training.blocks import holds, visits_of
from blockxmc.training.kept import Kept
from blockxmc.training.lessons import KnownRows, Told, newly_met, rows_of
from blockxmc.training.listings import lists
from blockxmc.training.settings import SETTINGS

OLD = 500


@pytest.fixture(scope="module")
def data():
    X, Y = blocky(n=640, n_features=60, n_labels=32, n_blocks=4)
    return sparse.csr_array(X), sparse.csr_array(Y)


@pytest.fixture
def fitted(data):
    clf = BlockwiseClassifier(n_blocks=4, lam=1.0, keep_rows=True, random_state=1, n_jobs=1)
    return clf.fit(*(part[:OLD] for part in data))


def test_a_small_update_leaves_held_out_rows_where_they_are_and_a_large_one_places_them(data, fitted):
    X, Y = data
    held, before = fitted.kept_.unseen, fitted.partition_
    assert held.size
    fitted.update(X[OLD : OLD + 10], Y[OLD : OLD + 10])
    assert not fitted.kept_.placed
    assert_array_equal(fitted.partition_.assignment_[:OLD], before.assignment_)
    shown = np.setdiff1d(np.arange(OLD + 10), held)
    assert fitted.partition_.n_positives_ == Y[shown].nnz
    small = fitted.partition_
    fitted.update(X[OLD + 10 :], Y[OLD + 10 :])
    assert fitted.kept_.placed
    now = fitted.partition_.assignment_[: OLD + 10]
    assert_array_equal(now[shown], small.assignment_[shown])
    for row in held:
        labels = Y[[row]].indices
        listed = [np.isin(labels, ids).sum() for ids in small.label_clusters_]
        assert listed[now[row]] == max(listed)
        if listed[small.assignment_[row]] == max(listed):
            assert now[row] == small.assignment_[row]
    assert fitted.partition_.n_positives_ == Y.nnz


def test_what_rows_tell_labels_that_come_to_their_blocks():
    rng = np.random.default_rng(0)
    n_rows, n_labels, n_blocks = 40, 12, 5
    X = sparse.csr_array(rng.normal(size=(n_rows, 6)).astype(np.float32))
    Y = sparse.csr_array((rng.random((n_rows, n_labels)) < 0.2).astype(np.float32))
    visits = (rng.random((n_rows, n_blocks)) < 0.4).astype(np.float32)
    before, now = (rng.random((n_blocks, n_labels)) < share for share in (0.3, 0.5))
    before[:, 10:] = False  # the last two are new: they have no weights yet
    known = LabelVectors(
        sparse.csr_array(rng.normal(size=(10, 6)).astype(np.float32)), rng.normal(size=10).astype(np.float32)
    )
    clusters = tuple([np.flatnonzero(block) for block in lists] for lists in (before, now))
    told = newly_met(known, (X, Y), sparse.csr_array(visits), clusters, -0.5, 1)
    wanted = []
    for row in range(n_rows):
        for label in range(10):
            blocks = np.flatnonzero(visits[row])
            new = (now & ~before)[blocks, label].any() and not before[blocks, label].any() and not Y[row, label]
            margin = X[[row]].toarray()[0] @ known.vectors[[label]].toarray()[0] + known.bias[label]
            if new and margin > -0.5:
                wanted.append((row, label))
    assert wanted
    assert list(zip(told.rows.tolist(), told.labels.tolist(), strict=True)) == wanted
    assert not told.positive.any()
    expected = [sum(visits[:, block].sum() for block in np.flatnonzero(now[:, label])) for label in range(n_labels)]
    assert_array_equal(rows_of(sparse.csr_array(visits), clusters[1], n_labels), expected)


def test_whether_held_out_rows_have_blocks_is_stored(fitted):
    state = fitted.kept_.state()
    assert state["placed"] is False
    assert not Kept.from_state(state).placed
    with pytest.raises(ModelFormatError, match="neither yes nor no"):
        Kept.from_state(state | {"placed": 1})


def test_a_label_twice_in_a_block_is_refused(data, fitted):
    X, Y = data
    ranking = fitted.partition_.ranking_
    fitted.partition_.ranking_ = replace(ranking, labels=np.zeros_like(ranking.labels))
    with pytest.raises(ModelFormatError, match="a block of the partition has a label twice"):
        fitted.update(X[OLD:], Y[OLD:])


def test_verbose_that_is_text_is_refused(data, fitted):
    with pytest.raises(BlockXMCError, match="verbose must be 0 or 1, got 'text'"):
        fitted.set_params(verbose="text").update(data[0][OLD:], data[1][OLD:])


@pytest.fixture(scope="module")
def marked():
    """Rows with a feature of their own each, in a model that was updated twice."""
    X, Y = blocky(n=1200, n_labels=120, n_features=90, n_blocks=8)
    rng = np.random.default_rng(5)
    noise = sparse.random_array(Y.shape, density=0.01, rng=rng) > 0
    Y = sparse.csr_array(((Y + noise) > 0).astype(np.float32))
    X = sparse.csr_array(sparse.hstack([X, 0.5 * abs(X).max() * sparse.eye_array(1200)]), dtype=np.float32)
    learner = DiSMEC(C=0.5, prune=0.0, tol=1e-4)
    clf = BlockwiseClassifier(learner, n_blocks=8, effort="low", keep_rows=True, random_state=2).fit(X[:960], Y[:960])
    clf.update(X[960:980], Y[960:980])
    return clf.update(X[980:], Y[980:])


def test_forgotten_rows_are_gone_from_all_weights(marked):
    kept, columns = marked.kept_, 90 + np.arange(1200)
    Y = kept.rows(marked.n_features_in_, 120)[1]
    own = (abs(kept.labels.vectors).toarray()[:, columns].T > 0.01) & (
        Y.toarray() == 0
    )  # labels that it is a negative of
    listed = lists(marked.partition_, Y, kept.negative_blocks, kept, 8)
    visits = visits_of(marked.partition_.assignment_, kept.negative_blocks, 8)
    rows = np.flatnonzero((own & ((visits @ holds(listed, 120)).toarray() == 0)).any(axis=1))
    assert rows.size > 10  # which have taught labels that have left all blocks they visit
    for gone in (rows[:1], rows[5:6], rows[-1:], kept.unseen[:1], kept.unseen[-1:]):
        clf = copy.copy(marked).forget(gone)
        for vectors in (clf.kept_.labels.vectors, clf.kept_.blocks.vectors):
            assert abs(vectors).tocsc()[:, columns[gone]].max() < 1e-3  # as exactly as labels are solved


def test_a_row_that_tells_a_label_something_does_not_hold_it(marked):
    Y = marked.kept_.rows(marked.n_features_in_, 120)[1]
    visits = sparse.csr_array(np.ones((1200, 1), np.float32))
    known = KnownRows(Y, visits, [np.arange(120)], np.ones(1200, bool), SETTINGS)
    label = 3
    others = np.flatnonzero(Y[:, [label]].toarray().ravel() == 0)
    labels, zeros = np.full(others.size, label), np.zeros(others.size, np.float32)
    lessons = known.lessons(Told(others, labels, zeros.astype(bool), zeros), np.array([label]), 1)
    assert np.unique(lessons.rows.indices).size == lessons.rows.indices.size
