import numpy as np
import pytest
from scipy import sparse
from sklearn.naive_bayes import ComplementNB, MultinomialNB
from sklearn.utils.estimator_checks import check_estimator

from blockxmc import NaiveBayes
from blockxmc._core.progress import _SilentPhase
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context
from blockxmc.paper import naive_bayes
from blockxmc.paper.naive_bayes import offset_term

JOB = Context(1, 0, _SilentPhase())


def problem(n=50, d=20, m=7, seed=0):
    rng = np.random.default_rng(seed)
    X = sparse.csr_array(rng.poisson(0.4, (n, d)).astype(np.float32))
    Y = sparse.csr_array((rng.random((n, m)) < 0.25).astype(np.float32))
    return X, Y


def dense_log_odds(X, Y, alpha):
    """The definition, label by label."""
    X, Y = X.toarray().astype(np.float64), Y.toarray() > 0
    n, d = X.shape
    out = np.empty((n, Y.shape[1]))
    for j, own in enumerate(Y.T):
        c, rest = X[own].sum(axis=0), X[~own].sum(axis=0)
        weights = np.log((c + alpha) / (c.sum() + alpha * d)) - np.log((rest + alpha) / (rest.sum() + alpha * d))
        out[:, j] = X @ weights + np.log((own.sum() + 0.5) / ((~own).sum() + 0.5))
    return out


@pytest.mark.parametrize("alpha", [0.01, 1.0, 3.0])
def test_equals_the_definition(alpha):
    X, Y = problem()
    scores = NaiveBayes(alpha, n_jobs=1).fit(X, Y).decision_function(X).toarray()
    np.testing.assert_allclose(scores, dense_log_odds(X, Y, alpha), rtol=1e-4, atol=1e-4)


def test_agrees_with_scikit_learn():
    X, Y = problem()
    unit = sparse.csr_array(np.vstack([np.zeros(20), np.eye(20)]).astype(np.float32))
    scores = NaiveBayes(n_jobs=1).fit(X, Y).decision_function(unit).toarray()
    ours = scores[1:] - scores[0]  # weight of each feature
    for j in range(Y.shape[1]):
        multinomial = MultinomialNB().fit(X, Y[:, [j]].toarray().ravel())
        log_prob = multinomial.feature_log_prob_
        np.testing.assert_allclose(ours[:, j], log_prob[1] - log_prob[0], atol=1e-5)
        complement = ComplementNB().fit(X, Y[:, [j]].toarray().ravel()).feature_log_prob_
        np.testing.assert_allclose(ours[:, j], complement[1] - complement[0], atol=1e-5)


def test_weights_are_as_sparse_as_co_occurrence():
    X, Y = problem(n=30, d=200, m=20)
    weights = NaiveBayes()._train(X, Y, JOB)
    assert weights.coef.nnz <= (Y.T @ X).nnz
    np.testing.assert_array_equal(weights.offset, offset_term(X, 1.0))
    np.testing.assert_allclose(weights.scores(X), dense_log_odds(X, Y, 1.0), rtol=1e-4, atol=1e-4)


def test_labels_with_their_own_rows_are_as_if_trained_alone():
    X, Y = problem()
    rows = sparse.csr_array((np.random.default_rng(5).random((7, 50)) < 0.5).astype(np.float32))
    scores = NaiveBayes()._train(X, Y, JOB, rows=rows).scores(X)
    for j in range(7):
        own = rows[[j]].indices
        model = NaiveBayes(n_jobs=1).fit(X[own], Y[own][:, [j]])
        np.testing.assert_allclose(scores[:, [j]], model.decision_function(X).toarray(), rtol=1e-4, atol=1e-4)


def test_all_rows_for_every_label_is_the_plain_model():
    X, Y = problem()
    scores = NaiveBayes()._train(X, Y, JOB, rows=sparse.csr_array(np.ones((7, 50), np.float32))).scores(X)
    np.testing.assert_allclose(scores, dense_log_odds(X, Y, 1.0), rtol=1e-4, atol=1e-4)


def test_labels_on_all_rows_and_on_none_are_finite():
    X, _ = problem()
    Y = sparse.csr_array(np.repeat([[1.0, 0.0]], 50, axis=0).astype(np.float32))
    model = NaiveBayes(n_jobs=1).fit(X, Y)
    scores = model.decision_function(X).toarray()
    assert np.isfinite(scores).all()
    assert (model.predict_topk(X, 1)[0] == 0).all()
    np.testing.assert_array_equal(model.predict(X).toarray(), Y.toarray())


def test_chunks_and_threads_change_nothing(monkeypatch):
    X, Y = problem(m=30)
    whole = NaiveBayes(n_jobs=1).fit(X, Y).decision_function(X).toarray()
    monkeypatch.setattr(naive_bayes, "_CHUNK", 4)
    for threads in (1, 3):
        np.testing.assert_array_equal(NaiveBayes(n_jobs=threads).fit(X, Y).decision_function(X).toarray(), whole)


def test_one_row_many_rows_and_all_scores_agree():
    X, Y = problem()
    model = NaiveBayes(n_jobs=1).fit(X, Y)
    labels, scores = model.predict_topk(X, 3)
    all_scores = model.decision_function(X).toarray()
    np.testing.assert_allclose(scores, np.take_along_axis(all_scores, labels, axis=1), rtol=1e-5)
    start, stop = X.indptr[3:5]
    one_labels, one_scores = model.predict_one(X.indices[start:stop], X.data[start:stop], 3)
    np.testing.assert_array_equal(one_labels, labels[3])
    np.testing.assert_allclose(one_scores, scores[3], rtol=1e-5)


def test_empty_input():
    X, Y = problem()
    assert NaiveBayes()._train(X, Y[:, :0], JOB).scores(X).shape == (50, 0)
    assert np.isfinite(NaiveBayes()._train(X[:0], Y[:0], JOB).scores(X)).all()


def test_bad_input_is_refused():
    X, Y = problem()
    with pytest.raises(BlockXMCError, match="alpha"):
        NaiveBayes(alpha=0).fit(X, Y)
    with pytest.raises(BlockXMCError, match="Negative values"):
        NaiveBayes().fit(-X, Y)


def test_state_survives_a_round_trip():
    X, Y = problem()
    model, other = NaiveBayes(n_jobs=1).fit(X, Y), NaiveBayes(n_jobs=1)
    other.targets_, other.n_features_in_ = model.targets_, model.n_features_in_
    other._restore(model._state())
    np.testing.assert_array_equal(other.predict_one([1, 4], [1.0, 2.0])[1], model.predict_one([1, 4], [1.0, 2.0])[1])


# scikit-learn itself casts an infinite y to integers before it refuses it.
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_is_a_scikit_learn_estimator():
    check_estimator(NaiveBayes(n_jobs=1), on_skip=None)
