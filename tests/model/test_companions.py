"""Pairs of labels: counted, served and stored as the formula says."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import blocky
from hypothesis import given
from hypothesis import strategies as st
from model.test_reranker import fitted_once, random_look
from numpy.testing import assert_array_equal
from scipy import sparse

from blockxmc import BlockwiseClassifier
from blockxmc.errors import ModelFormatError
from blockxmc.model.companions import LEAD, Companions
from blockxmc.model.reranker import Reranker
from blockxmc.training.companions import companions_of, fit_companions
from blockxmc.training.settings import SETTINGS


def lifts(Y, n_counted, log_positives, least=2):
    """All lifts in so many words, counts rounded as they are stored."""
    both = Y.T @ Y
    counts = np.where(both >= least, np.rint(16 * np.log(both + 0.5)) / 16, np.log(0.5))
    positives = np.exp(log_positives.astype(np.float64))
    return counts - np.log(np.outer(positives, positives) / n_counted + 0.5)


def sums_of(lift, labels):
    """What the labels of a row, best first, say about each other."""
    out = np.zeros(len(labels))
    for j in range(1, len(labels)):
        out[j] = sum(lift[labels[i], labels[j]] / (i + 1) for i in range(len(labels)) if i != j)
    return out


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(2, 12))
def test_pairs_are_counted_and_add_up(seed, n_rows, n_labels):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_rows, n_labels)) < rng.random(n_labels)).astype(np.float32)
    log_positives = np.log(np.maximum(Y.sum(axis=0), 1)).astype(np.float32)
    pairs = companions_of(sparse.csr_array(Y), SETTINGS)
    both = Y.T @ Y
    expected = [np.flatnonzero((both[a] >= 2) & (np.arange(n_labels) > a)) for a in range(n_labels)]
    assert_array_equal(pairs.others, np.concatenate(expected))
    assert_array_equal(np.diff(pairs.indptr), [len(own) for own in expected])
    counts = np.concatenate([both[a, own] for a, own in enumerate(expected)])
    assert_array_equal(pairs.log_counts, np.rint(16 * np.log(counts + 0.5)))
    assert_array_equal(companions_of(sparse.csr_array(Y), SETTINGS, threads=3).others, pairs.others)
    labels = np.stack([rng.permutation(n_labels) for _ in range(5)])
    lift = lifts(Y, max(np.count_nonzero(Y.any(axis=1)), 1), log_positives)
    found = pairs.sums(labels, log_positives)
    np.testing.assert_allclose(found, [sums_of(lift, row) for row in labels], atol=1e-3)
    labels[:, 1:] = -1  # nobody to hear of
    assert not pairs.sums(labels, log_positives).any()


def test_rows_that_are_not_shown_leave_lifts_as_they_are():
    Y = np.tile([[1, 1, 0], [0, 1, 1], [0, 0, 0]], (400, 1)).astype(np.float32)
    log_positives = np.log(Y.sum(axis=0)).astype(np.float32)
    shown = Y.copy()
    shown[:600] = 0
    pairs = companions_of(sparse.csr_array(Y), SETTINGS), companions_of(sparse.csr_array(shown), SETTINGS, n_rows=800)
    both, half = (found.sums(np.array([[0, 1]]), log_positives) for found in pairs)
    np.testing.assert_allclose(both, half, atol=0.05)


def test_of_many_pairs_some_rows_are_counted():
    Y = sparse.csr_array(np.tile([[1, 1, 0], [0, 1, 1]], (500, 1)).astype(np.float32))
    all_rows, some = (
        companions_of(Y, replace(SETTINGS, companion_pairs=most)) for most in (SETTINGS.companion_pairs, 1500)
    )
    log_positives = np.log(np.asarray(Y.sum(axis=0)).ravel()).astype(np.float32)
    labels = np.array([[0, 1, 2]])
    assert np.exp(some.log_counts[0] / 16) < 0.4 * np.exp(all_rows.log_counts[0] / 16)
    found = (pairs.sums(labels, log_positives) for pairs in (some, all_rows))
    np.testing.assert_allclose(*found, atol=1.5)  # the last pair has a count of 0, which weighs more with more rows
    longer = sparse.csr_array(np.ones((4, 10), np.float32))
    assert not companions_of(longer, replace(SETTINGS, companion_labels=9)).others.size


@given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from([0.0, 0.4]), st.sampled_from([0.02, 1.0]))
def test_served_labels_hear_of_each_other_and_the_first_stays(seed, first, slope, weight):
    X, Y, clf = fitted_once()
    rng = np.random.default_rng(seed)
    rows = sparse.csr_array(X[rng.permutation(X.shape[0])[:10]])
    look = random_look(rng, 40, first)
    pairs = replace(companions_of(Y, SETTINGS), weight=weight)
    blocks = replace(clf.model_, slope=slope, calibration=None, reranker=look)
    told = replace(blocks, reranker=replace(look, companions=pairs))
    labels, scores = blocks.topk(rows, 40, 1)
    lift = lifts(Y.toarray(), np.count_nonzero(np.diff(Y.indptr)), look.log_positives)
    before = replace(blocks, reranker=None).topk(rows, first, 1)[0]
    found = told.topk(rows, 40, 2)
    for i in range(10):
        expected = dict(zip(labels[i].tolist(), scores[i].tolist(), strict=True))
        front = [label for label in labels[i].tolist() if label in before[i] and expected[label] > -1e5]
        if len(front) < min(first, (before[i] >= 0).sum()):
            continue  # frequent labels that no visited block lists are left out
        least = min(expected[label] for label in front)
        for label, gained in zip(front, weight * sums_of(lift, front), strict=True):
            expected[label] += gained
        highest = max((expected[label] for label in front[1:]), default=-np.inf)
        expected[front[0]] = max(expected[front[0]], highest + LEAD)
        moved = min(expected[label] for label in front) - least
        for label in expected.keys() - set(front):
            expected[label] += moved
        there = found[0][i] >= 0
        assert found[0][i, 0] == labels[i, 0]
        wanted = [expected[label] for label in found[0][i, there].tolist()]
        np.testing.assert_allclose(found[1][i, there], wanted, atol=2e-2 * weight + 1e-4, rtol=1e-5)
        part = slice(*rows.indptr[i : i + 2])
        assert_array_equal(told.one(rows.indices[part], rows.data[part], 40)[0], found[0][i])
    python = pairs.told(np.where(labels[:, :first] >= 0, labels[:, :first], -1), scores[:, :first], look.log_positives)
    assert (python[:, 0] >= python.max(axis=1)).all()


def planted(n=600, seed=0):
    """Scores say nothing; of ten labels, those of the same parity come together."""
    rng = np.random.default_rng(seed)
    labels = np.stack([rng.permutation(10)[:6] for _ in range(n)])
    right = labels % 2 == labels[:, :1] % 2
    Y = np.zeros((n, 10), np.float32)
    np.put_along_axis(Y, labels, right.astype(np.float32), axis=1)
    return labels, rng.normal(size=labels.shape).astype(np.float32) * 0.1 + [1, 0, 0, 0, 0, 0], right, Y


def test_the_fit_finds_what_pairs_say():
    labels, scores, right, Y = planted()
    look = Reranker(np.zeros(22, np.float32), np.log(Y.sum(axis=0)).astype(np.float32), 6)
    pairs, scores = companions_of(sparse.csr_array(Y), SETTINGS), scores.astype(np.float32)
    told = fit_companions(look, pairs, labels, scores, right, SETTINGS, 1)
    assert told.companions is not None
    assert told.companions.weight > 0
    anew = told.companions.told(labels, scores, look.log_positives)
    order = np.argsort(-anew, axis=1)
    assert_array_equal(order[:, 0], 0)
    first = lambda order: np.take_along_axis(right, order[:, :3], 1).mean()  # noqa: E731
    assert first(order) > first(np.argsort(-scores, axis=1)) + 0.2
    # Where pairs mislead, or too few rows tell, they do not count.
    wrong = np.concatenate([right[:, :1], ~right[:, 1:]], axis=1)
    assert fit_companions(look, pairs, labels, scores, wrong, SETTINGS, 1) is look
    assert fit_companions(look, pairs, labels[:90], scores[:90], right[:90], SETTINGS, 1) is look


def test_damaged_pairs_are_refused():
    pairs = companions_of(sparse.csr_array(np.ones((4, 3), np.float32)), SETTINGS)
    look = random_look(np.random.default_rng(0), 3, 8)
    state = replace(look, companions=pairs).state()
    back = Reranker.from_state(state)
    assert back.companions is not None
    assert_array_equal(back.companions.others, pairs.others)
    assert Reranker.from_state(state | {"companions": None}).companions is None
    own = state["companions"]
    for wrong in (
        {"indptr": own["indptr"][:-1]},
        {"indptr": own["indptr"] + 1},
        {"others": own["others"][:-1]},
        {"log_counts": own["log_counts"].astype(np.int64)},
        {"weight": np.nan},
        {"log_rows": None},
    ):
        with pytest.raises(ModelFormatError):
            _ = Reranker.from_state(state | {"companions": own | wrong}).kernel
    with pytest.raises(ModelFormatError):
        Companions.from_state({}, 3)
    with pytest.raises(ModelFormatError):
        _ = replace(look, companions=pairs, log_positives=np.zeros(4, np.float32)).kernel
    with pytest.raises(ValueError, match="out of range"):
        pairs.sums(np.array([[0, 7]]), look.log_positives)


def test_updates_count_pairs_anew():
    X, Y = blocky(n=4000, n_labels=60, n_features=90, n_blocks=6)
    clf = BlockwiseClassifier(n_blocks=8, keep_rows=True).fit(X[:3900], Y[:3900])
    look = clf.model_.reranker
    assert look is not None
    clf.model_ = replace(clf.model_, reranker=replace(look, companions=replace(companions_of(Y, SETTINGS), weight=0.1)))
    clf.update(X[3900:], Y[3900:])
    found, wanted = clf.model_.reranker.companions, companions_of(sparse.csr_array(Y), SETTINGS)
    assert found.weight == 0.1
    assert_array_equal(found.others, wanted.others)
    assert_array_equal(found.log_counts, wanted.log_counts)
