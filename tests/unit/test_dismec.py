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
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Job


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
        job = Job(threads=1, seed=0, phase=phase)
        model = DiSMEC(tol=1e-6, prune=0.0)
        some = model._train(X, half, job, rows=rows)
        sliced = model._train(X[:150], half[:150], job)
    np.testing.assert_allclose(some.coef.toarray(), sliced.coef.toarray(), atol=1e-3)


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
