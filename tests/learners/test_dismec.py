from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import blockxmc
from blockxmc import DiSMEC
from blockxmc._core.needs import sizes_of
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context
from blockxmc.linear.one_vs_all import unit_prune


@parametrize_with_checks([DiSMEC(n_jobs=1)])
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def some_data(n=300, d=80, m=30, seed=0):
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, d), density=0.1, rng=rng, format="csr", dtype=np.float32)
    Y = sparse.csr_array(((X @ rng.normal(size=(d, m))) > 0.8).astype(np.float32))
    return X, Y


def test_learns_ranks_and_survives_clone_and_pickle():
    X, Y = some_data()
    model = DiSMEC(n_jobs=1).fit(X, Y)
    labels, scores = model.predict_topk(X, k=3)
    assert model.score(X, Y) > 0.7
    assert (np.diff(scores, axis=1) <= 0).all()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_topk(X, k=3)[0], labels)
    np.testing.assert_array_equal(clone(model).fit(X, Y).predict_topk(X, k=3)[1], scores)


def test_trains_each_label_on_its_rows():
    X, Y = some_data(m=4)
    rows = sparse.csr_array(np.repeat([[1.0, 0.0]], 4, axis=0).repeat(150, axis=1).astype(np.float32))
    half = sparse.csr_array(Y.toarray() * (np.arange(300) < 150)[:, None])
    with Reporter().phase("") as phase:
        job = Context(threads=1, seed=0, phase=phase)
        model = DiSMEC(tol=1e-6, prune=0.0)
        some = model._train(X, half, job, rows=rows)
        sliced = model._train(X[:150], half[:150], job)
    np.testing.assert_allclose(some.coef.toarray(), sliced.coef.toarray(), atol=1e-3)


def long_rows(n_features):
    """Rows of unit length with all of so many features, and two labels that a few of these tell."""
    rng = np.random.default_rng(0)
    Y = (rng.random((60, 2)) < 0.5).astype(np.float32)
    X = rng.random((60, n_features)) + 0.1
    X[:, :20] += 2 * np.repeat(Y, 10, axis=1)
    return sparse.csr_array((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)), sparse.csr_array(Y)


def weights_of(model, X, Y):
    with Reporter().phase("") as phase:
        return model._train(X, Y, Context(threads=1, seed=0, phase=phase)).coef.toarray()


@pytest.mark.parametrize(("n_features", "level"), [(100, 0.1), (150, 0.1 / 1.5**0.5), (600, 0.07)])
def test_long_rows_keep_smaller_weights(n_features, level):
    X, Y = long_rows(n_features)
    whole = weights_of(DiSMEC(prune=0.0, tol=1e-6, unit_rows=True), X, Y)
    pruned = DiSMEC(prune=0.1, tol=1e-6, unit_rows=True)
    found = weights_of(pruned, X, Y)
    np.testing.assert_array_equal(found, np.where(np.abs(whole) < level, 0, whole))
    assert np.any((np.abs(whole) > level) & (np.abs(whole) < level * 1.1))
    np.testing.assert_allclose(8 * weights_of(pruned, 8 * X, Y), found, rtol=1e-3)
    as_given = np.abs(weights_of(DiSMEC(prune=0.1), X, Y))
    assert as_given[as_given > 0].min() >= 0.1


def test_empty_rows_do_not_make_rows_short():
    X, _ = long_rows(600)
    padded = sparse.vstack([X, sparse.csr_array((600, 600), dtype=np.float32)], format="csr")
    assert unit_prune(0.1, padded) == unit_prune(0.1, X) == pytest.approx(0.07)
    assert unit_prune(0.1, sparse.csr_array(np.zeros((3, 4)))) == 0.1


def test_stored_zeros_do_not_make_rows_long():
    X, Y = long_rows(100)
    X.resize((60, 600))
    every = np.tile(np.arange(600, dtype=np.int32), 60)
    stored = sparse.csr_array((X.toarray().ravel(), every, 600 * np.arange(61)), shape=X.shape)
    assert stored.nnz == 36_000
    assert unit_prune(0.1, stored) == unit_prune(0.1, X) == 0.1
    assert sizes_of(stored, Y).weights == sizes_of(X, Y).weights


def test_grid_search_over_C():
    X, Y = some_data()
    search = GridSearchCV(DiSMEC(n_jobs=1), {"C": [0.01, 1.0]}, cv=2).fit(X, Y)
    assert search.best_params_["C"] == 1.0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"C": 0.0}, "C must"),
        ({"C": float("nan")}, "C must"),
        ({"tol": -1.0}, "tol must"),
        ({"prune": -0.1}, "prune must"),
        ({"bias": -1.0}, "bias must"),
        ({"bias": float("inf")}, "bias must"),
    ],
)
def test_refuses_parameters_out_of_range(params, message):
    X, Y = some_data(n=20)
    with pytest.raises(BlockXMCError, match=message):
        DiSMEC(**params).fit(X, Y)


@pytest.mark.parametrize("bias", [None, 0.0])
def test_without_a_bias(bias):
    X, Y = some_data()
    model = DiSMEC(bias=bias, n_jobs=1).fit(X, Y)
    assert (model.scorer_.scores(sparse.csr_array((1, 80), dtype=np.float32), None).data == 0).all()


def test_is_public():
    assert blockxmc.DiSMEC is DiSMEC
    assert "DiSMEC" in blockxmc.__all__
