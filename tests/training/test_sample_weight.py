"""What a row counts: in the solver, in the classifier and in text models."""

import numpy as np
import pytest
from helpers import blocky
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from blockxmc import BlockwiseClassifier, DiSMEC, TextClassifier
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context
from blockxmc.training.hints import Hints
from blockxmc.training.labels import shared_costs

TIGHT = DiSMEC(tol=1e-8, prune=0.0)


def plain_rows(n=60, n_labels=5, seed=0):
    rng = np.random.default_rng(seed)
    X = sparse.csr_array((rng.random((n, 12)) * (rng.random((n, 12)) < 0.5)).astype(np.float32))
    Y = sparse.csr_array((rng.random((n, n_labels)) < 0.3).astype(np.float32))
    return X, Y


def margins(X, Y, on, **options):
    """Scores of a classifier of one block, before they are calibrated."""
    model = BlockwiseClassifier(TIGHT, n_blocks=1, weight_bits=32).fit(X, Y, **options)
    return model.model_.scorer.scores(on, None).toarray()


def test_weights_of_rows_are_those_of_liblinear():
    X, Y = plain_rows()
    weight = np.random.default_rng(1).integers(0, 4, 60).astype(np.float32)
    with Reporter().phase("") as silent:
        found = TIGHT._train(X, Y, Context(1, 0, silent), costs=shared_costs(Y, 0.0, weight))
    theirs = LinearSVC(C=1.0, tol=1e-8, dual=False, intercept_scaling=1.0, max_iter=10000)
    for label in range(Y.shape[1]):
        theirs.fit(X.astype(np.float64), Y[:, [label]].toarray().ravel() > 0, sample_weight=weight)
        np.testing.assert_allclose(found.coef.toarray()[:, label], theirs.coef_[0], atol=1e-4)
        np.testing.assert_allclose(found.bias[label], theirs.intercept_[0], atol=1e-4)


def test_a_row_of_weight_two_is_a_row_that_is_there_twice():
    X, Y = plain_rows()
    weight = np.random.default_rng(2).integers(0, 4, 60)
    assert {0, 1, 2, 3} == set(weight.tolist())
    twice = np.repeat(np.arange(60), weight)
    weighted = margins(X, Y, X, sample_weight=weight)
    np.testing.assert_allclose(weighted, margins(X[twice], Y[twice], X), atol=1e-4)
    assert abs(weighted - margins(X, Y, X)).max() > 0.05


def test_equal_weights_are_a_larger_cost():
    X, Y = blocky(n=600, n_labels=30)
    exact = {"n_blocks": 4, "weight_bits": 32}  # weights that differ in the last bit are not rounded apart
    alike = [
        BlockwiseClassifier(DiSMEC(C=2.0, tol=1e-7), **exact).fit(X, Y).predict_topk(X),
        BlockwiseClassifier(DiSMEC(C=1.0, tol=1e-7), **exact)
        .fit(X, Y, sample_weight=np.full(600, 2.0))
        .predict_topk(X),
    ]
    np.testing.assert_allclose(alike[0][1], alike[1][1], atol=1e-4)
    half = BlockwiseClassifier(DiSMEC(C=1.0, tol=1e-7), **exact).fit(X, Y).predict_topk(X)
    found = np.isfinite(alike[0][1]) & np.isfinite(half[1])
    assert abs(alike[0][1][found] - half[1][found]).max() > 1e-2
    plain = BlockwiseClassifier(n_blocks=4).fit(X, Y).predict_topk(X)
    for mine, theirs in zip(
        BlockwiseClassifier(n_blocks=4).fit(X, Y, np.ones(600)).predict_topk(X), plain, strict=True
    ):
        assert_array_equal(mine, theirs)


def test_rows_without_weight_teach_nothing():
    X, Y = blocky(n=600, n_labels=30)
    wrong = np.arange(600) % 3 == 0
    mixed = Y.toarray()
    mixed[wrong] = 1 - mixed[wrong]
    model = BlockwiseClassifier(n_blocks=4, n_neighbors=5).fit(X, sparse.csr_array(mixed), ~wrong)
    blind = BlockwiseClassifier(n_blocks=4, n_neighbors=5).fit(X, sparse.csr_array(mixed * ~wrong[:, None]), ~wrong)
    for mine, theirs in zip(model.predict_topk(X), blind.predict_topk(X), strict=True):
        assert_array_equal(mine, theirs)  # what labels they have does not matter
    assert_array_equal(model.label_counts_, Y[~wrong].sum(axis=0))
    assert model.partition_.assignment_.size == 600
    kept = np.concatenate(model.model_.neighbors.rows.label_clusters)
    assert_array_equal(np.sort(kept), np.flatnonzero(~wrong))  # no neighbors, either
    held_out = model.score(X[wrong], Y[wrong])
    assert held_out > BlockwiseClassifier(n_blocks=4).fit(X, sparse.csr_array(mixed)).score(X[wrong], Y[wrong])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, 2.0], "1-d with a number per row"),
        (np.ones((60, 1)), "1-d with a number per row"),
        (np.full(60, -1.0), "at least 0"),
        (np.full(60, np.nan), "finite"),
        (np.zeros(60), "not all of them zero"),
        (["heavy"] * 60, "a number per row"),
    ],
)
def test_wrong_weights_are_refused(weight, message):
    X, Y = plain_rows()
    with pytest.raises(BlockXMCError, match=message):
        BlockwiseClassifier().fit(X, Y, sample_weight=weight)


def test_learners_that_cannot_weigh_rows_say_so():
    X, Y = plain_rows()
    for model in (BlockwiseClassifier.paper(n_blocks=2, lam=0.1), BlockwiseClassifier(DecisionTreeClassifier())):
        with pytest.raises(BlockXMCError, match="sample_weight needs shared weights of DiSMEC"):
            model.fit(X, Y, sample_weight=np.ones(60))
    with pytest.raises(BlockXMCError, match="DiSMEC takes no sample_weight"):
        TextClassifier(DiSMEC()).fit(["red apple", "green leaf"], [["fruit"], ["plant"]], sample_weight=[1, 1])


def test_texts_count_as_much_as_they_weigh():
    texts, labels = ["red apple"] * 2 + ["red apple"], [["fruit"], ["fruit"], ["phone"]]
    assert TextClassifier().fit(texts, labels).suggest("red apple", k=1)[0].label == "fruit"
    assert TextClassifier().fit(texts, labels, sample_weight=[1, 1, 9]).suggest("red apple", k=1)[0].label == "phone"


def test_hints_leave_labels_alone_where_all_rows_count():
    X, Y = plain_rows()
    assert Hints.checked(X, Y, np.arange(1, 61), None).taught(Y) is Y
    assert Hints.checked(X, Y, None, None).teaching is None


def test_few_rows_that_count_are_enough():
    X, Y = plain_rows(n=400, n_labels=8)
    for seed in range(5):
        weight = np.zeros(400)
        weight[np.random.default_rng(seed).choice(400, 8, replace=False)] = 1
        clf = BlockwiseClassifier(n_blocks=2, n_jobs=1, random_state=seed).fit(X, Y, sample_weight=weight)
        assert np.isfinite(clf.predict_proba(X[:5]).data).all()
