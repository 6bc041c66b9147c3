"""Weights that learn from new rows while old ones hold: beside a slow solution, and beside a training on all rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from blockxmc._core.progress import Reporter
from blockxmc.linear.one_vs_all import Lessons, OneVsAll, shift_one_vs_all, train_one_vs_all
from blockxmc.linear.weights import LinearWeights

N, N_OLD, N_FEATURES, N_LABELS = 200, 180, 30, 5
PROBLEM = OneVsAll("squared_hinge", C=0.5, tol=1e-5, bias=1.0, prune=0.0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = sparse.random_array((N, N_FEATURES), density=0.3, rng=rng, dtype=np.float32, format="csr")
    scores = X @ rng.normal(size=(N_FEATURES, N_LABELS)) + rng.normal(size=(N, N_LABELS))
    return sparse.csr_array(X), (scores > 1).astype(np.float32)


def trained(X, Y):
    with Reporter().phase("") as phase:
        return train_one_vs_all(PROBLEM, X, sparse.csr_array(Y), threads=1, phase=phase)


def lessons_of(X, Y, old):
    """All new rows, and all old ones that lie inside the margin."""
    signs = 2 * Y - 1
    products = np.asarray((X @ old.coef).todense()) + old.bias
    new = (np.arange(N) >= N_OLD)[:, None]
    there = (new | (signs * products < 1)).T
    rows = sparse.csr_array(there.astype(np.float32))
    rows.data = np.where(new, signs, 0).T[there].astype(np.float32)
    return Lessons(rows, np.where(new, products, 0).T[there], np.linspace(0.5, 1.5, rows.nnz).astype(np.float32))


def shifted(X, old, lessons, threads=1, **changes):
    problem = OneVsAll(**({"loss": "squared_hinge", "C": 0.5, "tol": 1e-5, "bias": 1.0, "prune": 0.0} | changes))
    with Reporter().phase("") as phase:
        return shift_one_vs_all(problem, X, old, lessons, threads=threads, phase=phase)


def as_dense(weights):
    return np.vstack([np.asarray(weights.coef.todense()), weights.bias])


def test_the_change_is_the_minimum_of_its_objective(data):
    X, Y = data
    old = trained(X[:N_OLD], Y[:N_OLD])
    lessons = lessons_of(X, Y, old)
    found = as_dense(shifted(X, old, lessons)) - as_dense(old)
    with_bias = np.column_stack([np.asarray(X.todense()), np.ones(N)])
    for label in range(N_LABELS):
        part = slice(lessons.rows.indptr[label], lessons.rows.indptr[label + 1])
        rows, signs = with_bias[lessons.rows.indices[part]], lessons.rows.data[part]
        products, costs = lessons.products[part], lessons.costs[part]

        def objective(v, rows=rows, signs=signs, products=products, costs=costs):
            z = products + rows @ v
            missed = np.where(signs == 0, z, np.maximum(0, 1 - signs * z))
            return 0.5 * v @ v + 0.5 * costs @ missed**2

        best = minimize(objective, np.zeros(N_FEATURES + 1), method="BFGS", options={"gtol": 1e-7}).fun
        assert objective(found[:, label]) == pytest.approx(best, rel=1e-3)
        assert objective(0 * found[:, label]) > 1.01 * best


def test_it_comes_near_to_a_training_on_all_rows(data):
    X, Y = data
    old, whole = trained(X[:N_OLD], Y[:N_OLD]), trained(X, Y)
    lessons = lessons_of(X, Y, old)
    found = shifted(X, old, Lessons(lessons.rows, lessons.products, np.ones_like(lessons.costs)))
    before, after = (np.linalg.norm(as_dense(some) - as_dense(whole), axis=0) for some in (old, found))
    assert (after < 0.5 * before).all()


def test_labels_without_lessons_stay_as_they_are_and_small_weights_go(data):
    X, Y = data
    old = trained(X[:N_OLD], Y[:N_OLD])
    nothing = Lessons(
        sparse.csr_array((N_LABELS, N), dtype=np.float32), np.zeros(0, np.float32), np.zeros(0, np.float32)
    )
    np.testing.assert_array_equal(as_dense(shifted(X, old, nothing)), as_dense(old))
    pruned = shifted(X, old, lessons_of(X, Y, old), prune=0.2)
    full = shifted(X, old, lessons_of(X, Y, old))
    kept = np.asarray(pruned.coef.todense())
    expected = np.asarray(full.coef.todense())
    np.testing.assert_array_equal(kept, np.where(abs(expected) >= 0.2, expected, 0))


def test_the_same_bits_for_any_thread_count(data):
    X, Y = data
    Y = np.tile(Y, 10)
    old = trained(X[:N_OLD], Y[:N_OLD])
    lessons = lessons_of(X, Y, old)
    one, three = (as_dense(shifted(X, old, lessons, threads=threads)) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_lessons_that_do_not_fit_are_refused(data):
    X, Y = data
    old = trained(X[:N_OLD], Y[:N_OLD])
    good = lessons_of(X, Y, old)
    with pytest.raises(ValueError, match="per lesson"):
        shifted(X, old, Lessons(good.rows, good.products[1:], good.costs))
    with pytest.raises(ValueError, match="0 or more"):
        shifted(X, old, Lessons(good.rows, good.products, -good.costs))
    with pytest.raises(ValueError, match="per lesson"):
        shifted(X, old, Lessons(good.rows, good.products * np.float32(np.nan), good.costs))
    with pytest.raises(ValueError, match="per label"):
        shifted(X, LinearWeights(old.coef[:, :2], old.bias[:2]), good)
