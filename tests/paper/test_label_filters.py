from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator
from tiny_learner import TinyRidge

from blockxmc import _kernels
from blockxmc._core.matrix import as_csr, csr_args
from blockxmc.errors import BlockXMCError
from blockxmc.linear.weights import LinearWeights, LowRankWeights
from blockxmc.paper.label_filters import CandidateWeights, Filters, LabelFilters, quantile_bounds


def line_of_topics(n=600, n_labels=20, seed=0):
    """Labels lie along a curve in feature space; a row carries the label nearest to it and sometimes the next one."""
    rng = np.random.default_rng(seed)
    at = rng.random(n) * n_labels
    centres = np.arange(24) * n_labels / 24
    X = np.exp(-0.5 * (at[:, None] - centres) ** 2).astype(np.float32)
    X += 0.02 * rng.random(X.shape, dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Y = np.zeros((n, n_labels), np.int64)
    Y[np.arange(n), at.astype(int)] = 1
    Y[np.arange(n), np.minimum(at.astype(int) + 1, n_labels - 1)] |= rng.random(n) < 0.3
    return X, Y


def no_filters(n_labels, n_rows):
    return np.empty((0, n_labels), np.float32), np.empty((0, n_labels), np.float32), np.empty((0, n_rows), np.float32)


def random_intervals(rng, n_filters, n_labels):
    lower = rng.integers(-4, 5, (n_filters, n_labels)).astype(np.float32)
    upper = lower + rng.integers(-1, 6, (n_filters, n_labels)).astype(np.float32)
    lower[:, ::5], upper[:, ::5] = np.inf, -np.inf
    return lower, upper


@pytest.mark.parametrize(("n_filters", "n_labels"), [(1, 1), (1, 64), (2, 65), (5, 200), (3, 0)])
def test_candidates_equal_the_naive_interval_test(n_filters, n_labels):
    rng = np.random.default_rng(n_labels)
    lower, upper = random_intervals(rng, n_filters, n_labels)
    # Whole numbers hit the bounds exactly; infinities and NaN must not break anything.
    P = rng.integers(-6, 11, (150, n_filters)).astype(np.float32)
    P[:50] += rng.random((50, n_filters), dtype=np.float32)
    P[0], P[1], P[2] = np.inf, -np.inf, np.nan
    expected = ((lower < P[:, None, :].transpose(0, 2, 1)) & (P[:, :, None] <= upper)).all(axis=1)
    results = [_kernels.FilterIndex(lower, upper).candidates(P, threads) for threads in (1, 3)]
    for indptr, labels in results:
        found = sparse.csr_array((np.ones(labels.size), labels, indptr), (150, n_labels)).toarray() > 0
        np.testing.assert_array_equal(found, expected)


def objective_of_bounds(own_weight, own, foreign, weights, bound, upper):
    """The part of the objective that one bound of one label decides."""
    sign = -1 if upper else 1
    keep = np.maximum(0, 1 - sign * (own - bound)).sum()
    drop = (weights * np.maximum(0, 1 - sign * (bound - foreign))).sum()
    return own_weight * keep + drop


@pytest.mark.parametrize("seed", range(12))
def test_exact_bounds_equal_brute_force(seed):
    rng = np.random.default_rng(seed)
    n, m = 25, 6
    Y = rng.random((n, m)) < 0.3
    Y[:, 5] = False  # no rows: empty interval
    p = np.round(rng.normal(size=n) * 3, 1).astype(np.float32)
    p_before = rng.normal(size=n).astype(np.float32)
    earlier = (np.full((1, m), -1, np.float32), np.full((1, m), 1, np.float32), p_before[None])
    alive = (p_before > -1) & (p_before <= 1)
    Yc = as_csr(Y.astype(np.float32))
    lower, upper = np.empty(m, np.float32), np.empty(m, np.float32)
    own_weight = float(rng.choice([0.5, 1.7, 6.0]))
    before, after = _kernels.filters_bounds(
        *csr_args(Yc)[:2],
        m,
        *csr_args(as_csr(Y.T.astype(np.float32)))[:2],
        *earlier,
        p,
        np.arange(n),
        own_weight,
        lower,
        upper,
        2,
    )
    means = np.array([p[Y[:, c]].astype(np.float64).mean() if Y[:, c].any() else np.inf for c in range(m)])
    rank = np.lexsort((np.arange(m), means)).argsort()
    inside = 0
    for c in range(m):
        if not Y[:, c].any():
            assert lower[c] == np.inf
            assert upper[c] == -np.inf
            continue
        foreign = alive & ~Y[:, c]
        left = (Y & (rank < rank[c])).sum(axis=1)[foreign]
        right = Y.sum(axis=1)[foreign] - left
        grid = np.concatenate([p - 1, p + 1])
        for bound, weights, is_upper in ((lower[c], left, False), (upper[c], right, True)):
            values = [objective_of_bounds(own_weight, p[Y[:, c]], p[foreign], weights, b, is_upper) for b in grid]
            found = objective_of_bounds(own_weight, p[Y[:, c]], p[foreign], weights, bound, is_upper)
            assert found == pytest.approx(min(values), abs=1e-4)
        inside += ((lower[c] < p[foreign]) & (p[foreign] <= upper[c])).sum()
    assert after == inside
    assert before == sum((alive & ~Y[:, c]).sum() for c in range(5) if Y[:, c].any())


def test_bounds_without_foreign_rows_hug_the_own_ones():
    lower, upper = np.empty(1, np.float32), np.empty(1, np.float32)
    ones = np.arange(3, dtype=np.int32)
    _kernels.filters_bounds(
        np.arange(4), np.zeros(3, np.int32), 1, np.array([0, 3]), ones, *no_filters(1, 3),
        np.float32([1, 2, 5]), np.arange(3), 1.0, lower, upper, 1,
    )  # fmt: skip
    assert (lower[0], upper[0]) == (0, 6)


def test_quantile_bounds_cut_the_tails():
    p = np.arange(100, dtype=np.float32)
    lower, upper = quantile_bounds(p, np.array([0, 100]), np.arange(100, dtype=np.int32))
    assert (lower[0], upper[0]) == (4, 95)


def test_filters_never_drop_a_label_inside_its_intervals():
    X, Y = line_of_topics()
    model = LabelFilters(TinyRidge(), n_filters=3, n_steps=5000).fit(X, Y)
    filters, passed = model.filters_, model.filters_.candidates(as_csr(X)).toarray() > 0
    P = (X.astype(np.float64) @ filters.directions.astype(np.float64)).astype(np.float32)
    clearly = np.ones_like(passed)
    for f in range(3):
        clearly &= (P[:, f, None] > filters.lower[f] + 1e-4) & (P[:, f, None] < filters.upper[f] - 1e-4)
    assert clearly.sum() > 600
    assert passed[clearly].all()


@pytest.mark.parametrize("bounds", ["exact", "quantile"])
def test_fewer_candidates_with_more_filters_and_precision_near_the_base(bounds):
    X, Y = line_of_topics(900)
    base = TinyRidge().fit(X[:600], Y[:600])
    seen = []
    for n_filters in (1, 2, 4):
        model = LabelFilters(TinyRidge(), n_filters=n_filters, n_steps=20_000, bounds=bounds).fit(X[:600], Y[:600])
        seen.append(model.filters_.candidates(as_csr(X[600:])).nnz / 300)
    assert seen[0] > seen[1] > seen[2]
    assert seen[2] < 10  # of 20 labels
    assert model.score(X[600:], Y[600:]) > base.score(X[600:], Y[600:]) - 0.03
    cost = model.cost_
    assert cost["products"] == pytest.approx(4 + cost["candidates"])
    assert cost["speedup"] == pytest.approx(20 / cost["products"])
    assert cost["speedup_paper"] == pytest.approx(20 / cost["candidates"])
    assert 0.9 < cost["candidate_recall"] <= 1


@pytest.mark.parametrize("low_rank", [False, True])
def test_candidates_are_scored_as_the_base_scores_them(low_rank):
    X, Y = line_of_topics(200)
    base = TinyRidge(low_rank=low_rank).fit(X, sparse.csr_array(Y))
    model = LabelFilters(TinyRidge(low_rank=low_rank), n_filters=2, n_steps=5000).fit(X, sparse.csr_array(Y))
    all_scores, some = base.decision_function(X).toarray(), model.decision_function(X)
    rows = np.repeat(np.arange(200), np.diff(some.indptr))
    np.testing.assert_allclose(some.data, all_scores[rows, some.indices], atol=1e-4)
    labels, scores = model.predict_topk(X, k=3)
    for i in range(0, 200, 20):
        row = as_csr(X[i : i + 1])
        one_labels, one_scores = model.predict_one(row.indices, row.data, k=3)
        np.testing.assert_array_equal(one_labels, labels[i])
        np.testing.assert_allclose(one_scores, scores[i], rtol=1e-6)
        part = some[[i]]
        best = part.indices[np.lexsort((part.indices, -part.data))][:3]
        np.testing.assert_array_equal(labels[i][labels[i] >= 0], best)


@pytest.mark.parametrize("n_candidates", [1, 60])
def test_few_and_many_candidates_score_as_a_dense_product(n_candidates):
    rng = np.random.default_rng(1)
    X = as_csr(sparse.random_array((20, 40), density=0.1, rng=rng, dtype=np.float32).tocsr())
    by_label = as_csr(sparse.random_array((60, 40), density=0.5, rng=rng, dtype=np.float32).tocsr())
    labels = np.concatenate([np.sort(rng.choice(60, n_candidates, replace=False)) for _ in range(20)]).astype(np.int32)
    found = CandidateWeights(by_label).score(csr_args(X), np.arange(21) * n_candidates, labels, 1)
    exact = (X @ by_label.T).toarray()[np.repeat(np.arange(20), n_candidates), labels]
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)


def test_a_low_rank_base_keeps_its_bias():
    W, H, bias = np.ones((2, 1), np.float32), np.ones((2, 1), np.float32), np.float32([5, 7])
    row = as_csr(np.float32([[1, 2]]))
    found = CandidateWeights.of(LowRankWeights(W, H, bias)).score(csr_args(row), np.array([0, 2]), np.int32([0, 1]), 1)
    np.testing.assert_array_equal(found, [8, 10])


def test_weights_of_the_l1_norm_are_scored_too():
    rng = np.random.default_rng(0)
    X = sparse.random_array((9, 7), density=0.5, rng=rng, dtype=np.float32).tocsr()
    weights = LinearWeights(as_csr(rng.normal(size=(7, 4))), np.float32([1, 2, 3, 4]), np.float32([-1, 0, 1, 2]))
    indptr, labels = np.arange(0, 37, 4), np.tile(np.arange(4, dtype=np.int32), 9)
    found = CandidateWeights.of(weights).score(csr_args(as_csr(X)), indptr, labels, 1)
    np.testing.assert_allclose(found.reshape(9, 4), weights.scores(as_csr(X)), rtol=1e-5, atol=1e-6)


def test_a_row_that_passes_no_filter_gets_nothing():
    X, Y = line_of_topics(200)
    model = LabelFilters(TinyRidge(), n_filters=2, n_steps=2000).fit(X, Y)
    model.filters_ = Filters(model.filters_.directions, *(np.full((2, 20), b, np.float32) for b in (np.inf, -np.inf)))
    assert (model.predict_topk(X[:3], k=2)[0] == -1).all()
    assert not model.predict(X[:3]).any()


def test_same_bits_for_any_number_of_threads():
    X, Y = line_of_topics(300)
    one, three = (LabelFilters(TinyRidge(), n_steps=3000, n_jobs=jobs).fit(X, Y) for jobs in (1, 3))
    for name in ("directions", "lower", "upper"):
        np.testing.assert_array_equal(getattr(one.filters_, name), getattr(three.filters_, name))
    for a, b in zip(one.predict_topk(X), three.predict_topk(X), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("low_rank", [False, True])
def test_state_and_pickle_round_trip(low_rank):
    X, Y = line_of_topics(200)
    model = LabelFilters(TinyRidge(low_rank=low_rank), n_steps=2000).fit(X, Y)
    again = LabelFilters(TinyRidge(low_rank=low_rank), n_jobs=1)
    again.targets_, again.n_features_in_ = model.targets_, model.n_features_in_
    again._restore(model._state())
    copy = pickle.loads(pickle.dumps(model))
    for other in (again, copy):
        assert other.cost_ == model.cost_
        for a, b in zip(other._topk(as_csr(X), 5), model.predict_topk(X, 5), strict=True):
            np.testing.assert_array_equal(a, b)
    assert set(again._state()["weights"]) == ({"by_label", "W"} if low_rank else {"by_label", "bias"})


def test_labels_without_rows_and_odd_data():
    X, Y = line_of_topics(60)
    Y[:, 3] = 0
    model = LabelFilters(TinyRidge(), n_steps=500).fit(X, Y)
    assert 3 not in model.predict_topk(X, k=20)[0]
    nothing = LabelFilters(TinyRidge(), n_steps=500).fit(X, sparse.csr_array((60, 4)))
    assert (nothing.predict_topk(X, k=2)[0] == -1).all()
    empty_rows = sparse.csr_array((60, 5), dtype=np.float32)
    assert LabelFilters(TinyRidge(), n_steps=500).fit(empty_rows, Y).predict_topk(empty_rows, k=1)[0].shape == (60, 1)
    assert LabelFilters(TinyRidge(), n_steps=500).fit(X, Y[:, :1]).predict_topk(X, k=1)[0].shape == (60, 1)


def test_more_labels_than_are_drawn_per_step():
    rng = np.random.default_rng(0)
    X = sparse.random_array((400, 50), density=0.2, rng=rng, dtype=np.float32).tocsr()
    Y = sparse.csr_array((np.ones(800), rng.integers(1500, size=800), np.arange(0, 801, 2)), (400, 1500))
    Y.sum_duplicates()
    Y.data[:] = 1
    model = LabelFilters(TinyRidge(), n_filters=2, n_steps=3000).fit(X, Y)
    assert model.cost_["candidates"] < 1500
    # Labels are memorised here: what was seen in training passes far more often than chance.
    share = model.filters_.candidates(as_csr(X)).multiply(Y).sum() / Y.sum()
    assert share > 1.2 * model.filters_.candidates(as_csr(X)).nnz / (400 * 1500)


@pytest.mark.parametrize(
    "params",
    [{"n_filters": 0}, {"n_filters": 65}, {"C1": 0}, {"C2": np.inf}, {"n_steps": 0}, {"bounds": "wide"},
     {"base": LogisticRegression()}],
)  # fmt: skip
def test_bad_parameters_are_named(params):
    X, Y = line_of_topics(30)
    with pytest.raises(BlockXMCError, match=next(iter(params))):
        LabelFilters(**{"base": TinyRidge(), **params}).fit(X, Y)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks():
    check_estimator(LabelFilters(TinyRidge(), n_steps=2000))
