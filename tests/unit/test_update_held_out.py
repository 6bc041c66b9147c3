"""Rows that the fit held out, in updates: when blocks learn of them; and labels that come to blocks they never met."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse

from blockxmc import BlockwiseClassifier
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.linear.vectors import LabelVectors
from blockxmc.training.lessons import newly_met, rows_of
from blockxmc.training.shared.kept import Kept

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
    del state["placed"]  # saved before there was this: blocks learnt of them with the first update
    assert not Kept.from_state(state).placed
    assert Kept.from_state(state | {"history": state["history"] * 2}).placed
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
