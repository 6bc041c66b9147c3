from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from blockxmc import _kernels
from blockxmc._core.matrix import as_csr, csr_args
from blockxmc.baselines import FastXML
from blockxmc.errors import BlockXMCError


def topics(n=300, n_topics=6, seed=0):
    """Rows of a topic share its words; labels are the topic, its twin, and now and then a common label."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(n_topics, size=n)
    X = (rng.random((n, 8 * n_topics)) < 0.05).astype(np.float32)
    for i, t in enumerate(topic):
        X[i, 8 * t : 8 * t + 8] += rng.random(8) < 0.6
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-6)
    Y = np.zeros((n, 2 * n_topics + 1), np.int64)
    Y[np.arange(n), topic] = 1
    Y[np.arange(n), n_topics + topic] = rng.random(n) < 0.7
    Y[:, -1] = rng.random(n) < 0.3
    return X, Y


def split_in_python(Y, side):
    """The alternation of one node, written for reading: sides and nDCG after every move step."""
    n, m = Y.shape
    discount = 1 / np.log2(np.arange(m) + 2)
    own = [np.flatnonzero(row) for row in Y]
    gain = [1 / sum(discount[: labels.size]) if labels.size else 0.0 for labels in own]
    side, trace = side.copy(), []
    while len(trace) < 2 or trace[-1] - trace[-2] >= 1e-6:
        discount_of = []
        for s in (-1, 1):
            sums = np.zeros(m)
            for i in np.flatnonzero(side == s):
                sums[own[i]] += gain[i]
            ranked = np.empty(m)
            ranked[np.lexsort((np.arange(m), -sums))] = discount
            discount_of.append(ranked)
        ndcg = 0.0
        for i, labels in enumerate(own):
            minus, plus = (sum(ranked[labels]) for ranked in discount_of)
            side[i] = side[i] if minus == plus else (1 if plus > minus else -1)
            ndcg += gain[i] * max(minus, plus)
        trace.append(ndcg / n)
    return side, np.array(trace)


@pytest.mark.parametrize("seed", range(8))
def test_node_split_never_loses_ndcg_and_equals_its_python_twin(seed):
    rng = np.random.default_rng(seed)
    Y = (rng.random((60, 12)) < 0.2).astype(np.float64)
    Y[3] = 0  # a row without labels stays where it is
    start = rng.choice(np.array([-1, 1], np.int8), 60)
    side, trace = _kernels.fastxml_split(*csr_args(as_csr(Y))[:2], 12, start)
    assert (np.diff(trace) >= -1e-12).all()
    assert side[3] == start[3]
    expected_side, expected_trace = split_in_python(Y, start)
    np.testing.assert_allclose(trace, expected_trace, atol=1e-9)
    np.testing.assert_array_equal(side, expected_side)


@pytest.mark.parametrize(("n", "d", "density"), [(40, 30, 0.1), (300, 100, 0.1), (12, 200, 0.3)])
def test_separator_reaches_the_optimum_that_liblinear_finds(n, d, density):
    rng = np.random.default_rng(n)
    X = sparse.random_array((n, d), density=density, rng=rng, dtype=np.float32).tocsc()
    side = np.where(rng.random(n) < 0.4, 1, -1).astype(np.int8)
    cost = np.where(side > 0, 5.0, 2.5)

    def objective(w):
        return np.abs(w).sum() + (cost * np.log1p(np.exp(-side * (X @ w)))).sum()

    columns = (X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data)
    tight = _kernels.fastxml_separator(*columns, side, 5.0, 2.5, 1e-9, 1000, 1000, 1)
    quick = _kernels.fastxml_separator(*columns, side, 5.0, 2.5, 0.01, 10, 10, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = LogisticRegression(
            penalty="l1",
            solver="liblinear",
            C=1.0,
            class_weight={1: 5.0, -1: 2.5},
            fit_intercept=False,
            tol=1e-10,
            max_iter=10_000,
        )
        best = objective(peer.fit(X.tocsr(), side).coef_[0])
    assert objective(tight) == pytest.approx(best, rel=1e-7)
    assert objective(quick) <= best + 0.05 * (objective(np.zeros(d)) - best)


def predicted_in_python(forest, X):
    """Scores of every row by walking the arrays."""
    out = np.zeros((X.shape[0], forest.n_labels))
    for i, row in enumerate(X.astype(np.float64)):
        for root in forest.roots:
            node = root
            while forest.children[2 * node] >= 0:
                part = slice(forest.feature_ptr[node], forest.feature_ptr[node + 1])
                z = forest.bias[node] + forest.weights[part].astype(np.float64) @ row[forest.features[part]]
                node = forest.children[2 * node + int(z >= 0)]
            part = slice(forest.label_ptr[node], forest.label_ptr[node + 1])
            out[i, forest.labels[part]] += forest.label_scores[part]
    return out / forest.roots.size


def test_prediction_walks_the_trees():
    X, Y = topics()
    model = FastXML(n_trees=7).fit(X, Y)
    expected = predicted_in_python(model.forest_, X[:50])
    labels, scores = model.predict_topk(X[:50], k=3)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, labels, axis=1), rtol=1e-5)
    np.testing.assert_allclose(scores[:, 0], expected.max(axis=1), rtol=1e-5)
    found = model.decision_function(X[:50])
    np.testing.assert_allclose(np.where(found < -1e29, 0, found + 0.5), expected, atol=1e-6)
    np.testing.assert_array_equal(model.predict(X[:50]), expected > 0.5)
    for i in range(5):
        row = as_csr(X[i : i + 1])
        one_labels, one_scores = model.predict_one(row.indices, row.data, k=3)
        np.testing.assert_array_equal(one_labels, labels[i])
        np.testing.assert_array_equal(one_scores, scores[i])


def test_training_rows_sit_in_the_leaf_that_prediction_finds():
    X, Y = topics()
    forest = FastXML(n_trees=3, max_leaf=5).fit(X, Y).forest_
    reached = forest.leaves(as_csr(X))
    counts = np.bincount(reached.ravel(), minlength=forest.n_rows.size)
    leaf = forest.children[::2] < 0
    np.testing.assert_array_equal(counts[leaf], forest.n_rows[leaf])
    # A leaf holds the mean label vector of exactly these rows.
    node = reached[0, 0]
    part = slice(forest.label_ptr[node], forest.label_ptr[node + 1])
    mean = Y[reached[:, 0] == node].mean(axis=0)
    np.testing.assert_allclose(forest.label_scores[part], mean[forest.labels[part]], rtol=1e-6)
    assert (mean > 0).sum() == part.stop - part.start


def test_learns_topics_and_counts_its_cost():
    X, Y = topics(600)
    model = FastXML(n_trees=10).fit(X[:400], sparse.csr_array(Y[:400]))
    assert model.score(X[400:], sparse.csr_array(Y[400:])) > 0.9
    depth = model.forest_.depth[model.forest_.leaves(as_csr(X[:400]))].sum(axis=1).mean()
    assert model.cost_["products"] == pytest.approx(depth)
    assert 1 <= model.cost_["candidates"] <= 13


def test_same_bits_for_any_number_of_threads():
    X, Y = topics()
    one, three = (FastXML(n_trees=6, n_jobs=jobs, random_state=4).fit(X, Y) for jobs in (1, 3))
    for name, array in one.forest_.arrays().items():
        np.testing.assert_array_equal(array, getattr(three.forest_, name))
    for a, b in zip(one.predict_topk(X), three.predict_topk(X), strict=True):
        np.testing.assert_array_equal(a, b)
    other = FastXML(n_trees=6, random_state=5).fit(X, Y)
    assert not np.array_equal(one.forest_.features, other.forest_.features)


def read_only(value):
    if isinstance(value, np.ndarray):
        value = value.copy()
        value.setflags(write=False)
    return value


def test_state_and_pickle_round_trip():
    X, Y = topics()
    model = FastXML(n_trees=4).fit(X, Y)
    state = model._state()
    again = FastXML(n_trees=4)
    again.targets_, again.n_features_in_ = model.targets_, model.n_features_in_
    again._restore({**state, "forest": {name: read_only(v) for name, v in state["forest"].items()}})
    assert again.cost_ == model.cost_
    for other in (again.forest_, pickle.loads(pickle.dumps(model)).forest_):
        for a, b in zip(other.topk(as_csr(X), 5), model.predict_topk(X, 5), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "damage",
    [
        {"features": np.int32([10**6])},
        {"labels": np.int32([-1])},
        {"roots": np.int32([10**6])},
        {"children": np.int32([0, 0])},
        {"feature_ptr": np.array([0, 2**40])},
        {"label_ptr": np.array([0, -5])},
        {"label_scores": np.float32([0])},
    ],
)
def test_damaged_arrays_are_refused(damage):
    X, Y = topics(60)
    arrays = FastXML(n_trees=2).fit(X, Y).forest_.arrays()
    (name, bad), *_ = damage.items()
    arrays[name] = arrays[name].copy()
    arrays[name][-bad.size :] = bad
    from blockxmc.paper.fastxml import Forest

    with pytest.raises(ValueError):
        Forest(**arrays).topk(as_csr(X), 3)


def test_index_out_of_range_in_one_row_is_refused():
    X, Y = topics(60)
    with pytest.raises(ValueError, match="out of range"):
        FastXML(n_trees=2).fit(X, Y).predict_one([10**6], [1.0])


def test_odd_data():
    X, Y = topics(40)
    empty_rows = sparse.csr_array((40, 5), dtype=np.float32)
    labels, _ = FastXML(n_trees=2).fit(empty_rows, Y).predict_topk(empty_rows, k=1)
    assert (labels == Y.sum(axis=0).argmax()).all()  # nothing to split on: every tree is one leaf
    nothing = FastXML(n_trees=2).fit(X, sparse.csr_array((40, 4)))
    assert (nothing.predict_topk(X, k=2)[0] == -1).all()
    single = FastXML(n_trees=2).fit(X, np.ones((40, 1), int))
    assert (single.predict_topk(X, k=2)[0] == [0, -1]).all()
    assert single.cost_["products"] == 0  # all rows alike: no split can change a prediction
    assert FastXML(n_trees=2, leaf_labels=1).fit(X, Y).forest_.labels.size <= 40 * 2
    assert FastXML(n_trees=2, bias=0.0).fit(X, Y).forest_.bias.any() == np.False_


@pytest.mark.parametrize(
    "params", [{"n_trees": 0}, {"max_leaf": 1.5}, {"leaf_labels": 0}, {"C": 0}, {"C": np.nan}, {"bias": -1}]
)
def test_bad_parameters_are_named(params):
    X, Y = topics(20)
    with pytest.raises(BlockXMCError, match=next(iter(params))):
        FastXML(**params).fit(X, Y)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks():
    check_estimator(FastXML(n_trees=5))


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif("BLOCKXMC_DATA" not in os.environ, reason="needs the larger data sets (BLOCKXMC_DATA)")
@pytest.mark.parametrize(
    ("name", "published"), [("bibtex", (63.42, 39.23, 28.86)), ("delicious", (69.61, 64.12, 59.27))]
)
def test_published_precision(name, published):
    from blockxmc import metrics
    from blockxmc.data import read_xc

    folder = Path(os.environ["BLOCKXMC_DATA"]) / name
    train, test = read_xc(folder / "train.txt"), read_xc(folder / "test.txt")
    labels, _ = FastXML().fit(train.X, train.Y).predict_topk(test.X, k=5)
    for k, expected in zip((1, 3, 5), published, strict=True):
        assert 100 * metrics.precision_at_k(test.Y, labels, k) > expected - 2
