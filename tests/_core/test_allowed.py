"""Answers among some labels: exact, in every estimator, and the same for one row and for many."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from contract.test_estimators import ESTIMATORS, NAMES
from helpers import blocky
from hypothesis import given
from hypothesis import strategies as st
from model.test_explanations import with_reranker
from model.test_reranker import random_look
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from blockxmc import BlockwiseClassifier, DiSMEC
from blockxmc.errors import BlockXMCError
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import LinearWeights


def restricted(scores, k, allowed):
    """The best k allowed labels of each row of a matrix of scores, one row at a time."""
    labels, best = np.full((scores.shape[0], k), -1), np.full((scores.shape[0], k), -np.inf)
    for i in range(scores.shape[0]):
        part = slice(scores.indptr[i], scores.indptr[i + 1])
        pairs = [(-s, j) for j, s in zip(scores.indices[part], scores.data[part], strict=True) if allowed[j]]
        for rank, (s, j) in enumerate(sorted(pairs)[:k]):
            labels[i, rank], best[i, rank] = j, -s
    return labels, best


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_every_estimator_answers_with_the_best_allowed_labels(estimator):
    X, Y = blocky(n=120, n_labels=14)
    model = clone(estimator).set_params(n_jobs=1).fit(X, Y)
    allowed = np.arange(14) % 3 > 0
    allowed[:2] = False  # the frequent ones
    labels, scores = model.predict_topk(X, k=4, allow=allowed)
    expected = restricted(sparse.csr_array(model.decision_function(X)), 4, allowed)
    assert_array_equal(labels, expected[0])
    assert_allclose(scores, expected[1], atol=1e-6)
    for same in ({"allow": np.flatnonzero(allowed)}, {"deny": np.flatnonzero(~allowed).tolist()}, {"deny": ~allowed}):
        assert_array_equal(model.predict_topk(X, 4, **same)[0], labels)
    for i in (0, 7, 119):
        at = slice(X.indptr[i], X.indptr[i + 1])
        one = model.predict_one(X.indices[at], X.data[at], 4, deny=~allowed)
        assert_array_equal(one[0], labels[i])
        assert_allclose(one[1], scores[i], atol=1e-6)


@cache
def fitted_once():
    X, Y = blocky(n=500, n_labels=40)
    return X, Y, BlockwiseClassifier(n_blocks=6, route=3, n_neighbors=7).fit(X, Y)


@pytest.mark.parametrize("few", [4, 64])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
def test_a_probability_does_not_depend_on_what_else_is_allowed(share, few, monkeypatch):
    """Reranker and calibration go by ranks among all candidates: so do answers among some of them."""
    monkeypatch.setattr("blockxmc._core.allowed.FEW_LABELS", few)
    clf, X = with_reranker()
    allowed = np.random.default_rng(0).random(60) < share
    labels, scores = clf.predict_topk(X, 5, allow=allowed)
    expected = restricted(sparse.csr_array(clf.predict_proba(X)), 5, allowed)
    assert_array_equal(labels, expected[0])
    assert_allclose(scores, expected[1], atol=1e-6)
    for i in range(0, X.shape[0], 29):
        at = slice(X.indptr[i], X.indptr[i + 1])
        one = clf.predict_one(X.indices[at], X.data[at], 5, allow=allowed)
        assert_array_equal(one[0], labels[i])
        assert_allclose(one[1], scores[i], atol=1e-6)


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 12), st.sampled_from([0.0, 0.4]), st.booleans())
def test_the_reranker_looks_at_the_best_allowed_labels(seed, k, first, slope, with_neighbors):
    """As if no block listed the other labels: the first of the allowed gain, and the others follow."""
    X, _, clf = fitted_once()
    rng = np.random.default_rng(seed)
    rows = sparse.csr_array(X[rng.permutation(X.shape[0])[:6]])
    allowed = rng.random(40) < rng.random()
    plain = replace(clf.model_, slope=slope, calibration=None, reranker=None)
    plain = plain if with_neighbors else replace(plain, neighbors=None)
    looked = replace(plain, reranker=random_look(rng, 40, first))
    labels, best = looked.topk(rows, k, 2, allowed)
    before = restricted(plain.scores(rows, 1), 40, allowed)
    everything = replace(looked, reranker=replace(looked.reranker, first=40)).scores(rows, 1).toarray()
    for i in range(6):
        front, back = before[0][i, :first], before[0][i, first:]
        front, back = front[front >= 0], back[back >= 0]
        gained = everything[i, front]  # with 40 first labels all gain, so this is what the formula says
        shift = gained.min() - before[1][i, front.size - 1] if front.size else 0
        expected = dict(zip(front, gained, strict=True))
        expected |= dict(zip(back, before[1][i, first : first + back.size] + shift, strict=True))
        found = labels[i][labels[i] >= 0]
        assert found.size == min(k, len(expected))
        assert_allclose(best[i, : found.size], [expected[j] for j in found], atol=1e-4)
        assert_allclose(best[i, : found.size], sorted(expected.values(), reverse=True)[:k], atol=1e-4)
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        alone = looked.one(rows.indices[part], rows.data[part], k, allowed)
        assert_array_equal(alone[0], labels[i])
        assert_array_equal(alone[1], best[i])


@given(st.integers(0, 10_000), st.integers(1, 400), st.integers(1, 3))
def test_many_labels_in_several_chunks(seed, k, threads):
    rng = np.random.default_rng(seed)
    X, _ = blocky(n=30, n_features=12, n_labels=8, seed=seed)
    coef = sparse.csr_array(rng.normal(size=(12, 700)).round(1).astype(np.float32))
    scorer = pack_scorer(
        [LinearWeights(coef, np.zeros(700, np.float32))], [np.arange(700)], n_features=12, n_labels=700
    )
    allowed = rng.random(700) < rng.random()
    labels, best = scorer.topk(X, None, k, threads=threads, allowed=allowed)
    expected = restricted(scorer.scores(X, None), k, allowed)
    assert_array_equal(labels, expected[0])
    assert_array_equal(best, expected[1].astype(np.float32))


def test_labels_are_given_by_name_id_or_mask_and_unknown_ones_are_refused():
    X = [[1.0, 0], [0.9, 0.1], [0, 1.0], [0.1, 0.9]]
    clf = DiSMEC().fit(X, [["red", "warm"], ["red"], ["blue"], ["blue", "cold"]])
    names = clf.label_names_
    for allow in (["warm", "cold"], [1, 3], np.array([False, True, False, True]), [False, True, False, True]):
        labels, _ = clf.predict_topk(X, 4, allow=allow)
        assert set(names[labels[labels >= 0]]) == {"warm", "cold"}
    assert names[clf.predict_topk(X, 1, allow="warm")[0]].ravel().tolist() == ["warm"] * 4
    assert (clf.predict_topk(X, 2, allow=[])[0] == -1).all()
    assert names[clf.predict_topk(X[:1], 1, allow=["red", "blue"], deny=["red"])[0]].tolist() == [["blue"]]
    for bad in (["pink"], [4], [-1], np.ones(3, bool), [1.5], [None]):
        with pytest.raises(BlockXMCError, match=r"mask of shape|does not know"):
            clf.predict_topk(X, 1, deny=bad)
    by_number = DiSMEC().fit(X, [[10, 30], [10], [20], [20, 30]])
    assert by_number.label_names_[by_number.predict_topk(X, 1, allow=[30])[0]].ravel().tolist() == [30] * 4
    with pytest.raises(BlockXMCError, match="'0', which the model does not know"):
        by_number.predict_topk(X, 1, allow=[0])
