"""Training rows near a row: found, asked, served, stored."""

import pickle
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers import blocky, gains_of_all
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.preprocessing import normalize
from sklearn.tree import DecisionTreeClassifier

from blockxmc import BlockwiseClassifier, _kernels, load
from blockxmc._core.matrix import csr_args
from blockxmc.errors import BlockXMCError, ModelFormatError
from blockxmc.model.neighbors import MOST_FEATURES, Neighbors


def asked_by_hand(X, Y, assignment, rows, visited, count):
    """What labels gain, by dense cosines to all training rows of the visited blocks."""
    cosine = normalize(rows).toarray() @ normalize(X).toarray().T
    gains = np.zeros((rows.shape[0], Y.shape[1]))
    for i, blocks in enumerate(visited):
        there = np.flatnonzero(np.isin(assignment, blocks[blocks >= 0]))
        nearest = there[np.argsort(-cosine[i, there], kind="stable")[:count]]
        nearest = nearest[cosine[i, nearest] > 0]
        gains[i] = cosine[i, nearest] @ Y[nearest].toarray() / (cosine[i, nearest].sum() + 2)
    return gains


@given(st.integers(0, 10_000), st.integers(1, 12), st.floats(0.01, 100))
def test_labels_of_the_nearest_rows_of_visited_blocks_gain(seed, count, length):
    rng = np.random.default_rng(seed)
    X = sparse.csr_array(sparse.random(60, 25, 0.3, rng=rng, dtype=np.float32))
    Y = sparse.csr_array((rng.random((60, 9)) < 0.3).astype(np.float32))
    assignment = rng.integers(0, 4, 60).astype(np.int32)
    new = sparse.csr_array(sparse.random(15, 25, 0.3, rng=rng, dtype=np.float32)) * np.float32(length)
    visited = np.array([rng.permutation(4)[:3] for _ in range(15)], np.int32)
    visited[rng.random(visited.shape) < 0.2] = -1
    neighbors = Neighbors.pack(X, Y, assignment, 4, count=count, bits=32)
    expected = asked_by_hand(X, Y, assignment, new, visited, count)
    np.testing.assert_allclose(gains_of_all(neighbors, new, visited, 2), expected, atol=1e-5)
    few = rng.integers(-1, 9, (15, 6))
    wanted = np.where(few < 0, 0, np.take_along_axis(expected, np.maximum(few, 0), axis=1))
    np.testing.assert_allclose(neighbors.few_gains(new, visited, few, 3), wanted, atol=1e-5)


def test_only_some_rows_may_be_neighbors():
    X, Y = blocky(n=50, n_labels=10)
    among = np.arange(50) % 2 == 0
    neighbors = Neighbors.pack(X, Y, np.zeros(50, np.int32), 1, count=5, among=among)
    assert_array_equal(neighbors.rows.label_clusters[0], np.flatnonzero(among))


@given(st.integers(0, 10_000), st.integers(0, 9))
def test_the_largest_values_of_each_row_are_kept(seed, most):
    rng = np.random.default_rng(seed)
    X = sparse.csr_array(sparse.random(12, 15, 0.5, rng=rng, dtype=np.float32))
    X.data = (rng.integers(-3, 4, X.nnz) / 2).astype(np.float32)  # ties
    indptr, indices, data = _kernels.largest_values(*csr_args(X), most, 2)
    for i in range(12):
        columns, values = X.indices[slice(*X.indptr[i : i + 2])], X.data[slice(*X.indptr[i : i + 2])]
        kept = np.sort(np.argsort(-abs(values), kind="stable")[:most])
        assert_array_equal(indices[indptr[i] : indptr[i + 1]], columns[kept])
        assert_array_equal(data[indptr[i] : indptr[i + 1]], values[kept])
    of_unit = _kernels.largest_values(*csr_args(normalize(X)), most, 1)
    for found, wanted in zip(_kernels.largest_values(*csr_args(X), most, 2, unit=True), of_unit, strict=True):
        assert_array_equal(found, wanted)


def test_long_rows_are_cut():
    X = sparse.csr_array(np.random.default_rng(0).random((30, 100), np.float32))
    neighbors = Neighbors.pack(X, sparse.csr_array(np.eye(30, dtype=np.float32)), np.zeros(30, np.int32), 1)
    features = sparse.csr_array(np.eye(100, dtype=np.float32))
    kept = neighbors.rows.scores(features, None).toarray()
    assert_array_equal((kept > 0).sum(axis=0), MOST_FEATURES)
    np.testing.assert_allclose(kept.max(axis=0), normalize(X).toarray().max(axis=1), rtol=5e-3)


@cache
def fitted_once():
    X, Y = blocky(n=500, n_labels=40)
    return X, Y, BlockwiseClassifier(n_blocks=6, n_neighbors=7).fit(X, Y)


@pytest.fixture
def fitted():
    return fitted_once()


def scores_of_candidates(scores):
    """Dense, -inf where a label is no candidate; a last column answers the padding, label -1."""
    dense = np.full((scores.shape[0], scores.shape[1] + 1), -np.inf, np.float32)
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    dense[rows, scores.indices] = scores.data
    return dense


def test_all_ways_to_ask_agree(fitted):
    X, _, clf = fitted
    assert clf.model_.neighbors.count == 7
    all_scores = scores_of_candidates(clf.decision_function(X))
    for threads in (1, 2):
        labels, scores = clf.model_.topk(X, 5, threads)
        assert_array_equal(np.take_along_axis(all_scores, labels, 1), scores)
        assert_array_equal(-np.sort(-all_scores, axis=1)[:, :5], scores)
    for row in (0, 99, 499):
        own = slice(*X.indptr[row : row + 2])
        alone = clf.predict_one(X.indices[own], X.data[own], 5)
        assert_array_equal(alone[0], labels[row])
        assert_array_equal(alone[1], scores[row])


def test_of_long_rows_only_the_largest_features_are_compared(fitted):
    X, _, clf = fitted
    few = replace(clf.model_, neighbors=replace(clf.model_.neighbors, features=3), reranker=None)
    cut = X.copy()
    for row in range(X.shape[0]):
        values = cut.data[slice(*X.indptr[row : row + 2])]
        values[np.argsort(-values, kind="stable")[3:]] = 0
    cut.eliminate_zeros()
    visited = few.visited(X, 1)
    gains = gains_of_all(few.neighbors, X, visited, 2)
    # The rows that are left out still count in the row's length.
    share = gains_of_all(replace(few.neighbors, features=100), cut, visited, 1)
    assert_array_equal(gains > 0, share > 0)
    assert (gains != gains_of_all(clf.model_.neighbors, X, visited, 1)).any()
    labels, scores = few.topk(X, 5, 1)
    assert_array_equal(np.take_along_axis(scores_of_candidates(few.scores(X, 2)), labels, 1), scores)
    for row in (0, 99, 499):
        own = slice(*X.indptr[row : row + 2])
        assert_array_equal(few.one(X.indices[own], X.data[own], 5)[1], scores[row])


@given(st.integers(0, 10_000), st.integers(1, 40), st.floats(0, 2), st.sampled_from([0.0, 0.4]))
def test_bonuses_never_lose_a_label(seed, k, weight, slope):
    """What was passed over because its own score is low may come first with a bonus."""
    X, _, clf = fitted_once()
    rows = sparse.csr_array(X[np.random.default_rng(seed).permutation(X.shape[0])[:20]])
    neighbors = replace(clf.model_.neighbors, weight=weight)
    blocks = replace(clf.model_, neighbors=neighbors, slope=slope, calibration=None)
    bare = replace(blocks, neighbors=None)
    scores = bare.scores(rows, 1).toarray()
    scores[scores == 0] = -np.inf  # no candidate
    visited = blocks.visited(rows, 1)
    assert visited is not None
    expected = scores + gains_of_all(neighbors, rows, visited, 1)
    labels, found = blocks.topk(rows, k, 1)
    wanted = -np.sort(-expected, axis=1)[:, :k].astype(np.float32)
    there = labels >= 0
    np.testing.assert_allclose(found[there], wanted[there], atol=1e-5)
    assert np.isneginf(wanted[~there]).all()


def test_the_length_of_a_row_does_not_matter_to_its_neighbors(fitted):
    X, _, clf = fitted
    visited = clf.model_.visited(X, 1)
    gains, longer = (gains_of_all(clf.model_.neighbors, rows, visited, 1) for rows in (X, X * np.float32(4)))
    np.testing.assert_allclose(gains, longer, atol=1e-6)


def test_neighbors_are_stored(fitted, tmp_path):
    X, _, clf = fitted
    clf.save(tmp_path / "model")
    back = load(tmp_path / "model")
    for ours, theirs in zip(clf.predict_topk(X, 5), back.predict_topk(X, 5), strict=True):
        assert_array_equal(ours, theirs)
    assert back.model_.neighbors.nbytes == clf.model_.neighbors.nbytes


def test_neighbors_of_older_models_are_read(fitted):
    X, _, clf = fitted
    neighbors = clf.model_.neighbors
    new = neighbors.state()
    assert "bias" not in new["rows"]
    assert (new["indptr"].dtype, new["labels"].dtype) == (np.uint8, np.uint16)
    older = new | {"rows": neighbors.rows.__getstate__(), "indptr": neighbors.indptr, "labels": neighbors.labels}
    for state in (new, older, older | {"indptr": neighbors.indptr.astype(np.int32)}):
        back = Neighbors.from_state(state)
        assert back.indptr.dtype == np.int64
        visited = np.zeros((X.shape[0], 1), np.int32)
        assert_array_equal(gains_of_all(back, X, visited, 1), gains_of_all(neighbors, X, visited, 1))
    for wrong in (new["indptr"].astype(np.int16), new["indptr"].tolist()):
        with pytest.raises(ModelFormatError, match="indptr of neighbors"):
            Neighbors.from_state(new | {"indptr": wrong})


def test_neighbors_travel_to_other_processes(fitted):
    X, _, clf = fitted
    clf.predict_topk(X, 5)
    for back in (pickle.loads(pickle.dumps(clf)), deepcopy(clf)):
        assert_array_equal(back.predict_topk(X, 5)[1], clf.predict_topk(X, 5)[1])


def test_neighbors_of_a_damaged_model_are_refused(fitted):
    state = fitted[2].model_.neighbors.state()
    labels = state["labels"].copy()
    labels[3] = 40
    with pytest.raises(BlockXMCError, match="a label that is out of range"):
        _ = Neighbors.from_state(state | {"labels": labels}).kernel
    with pytest.raises(BlockXMCError, match="indptr of neighbors"):
        Neighbors.from_state(state | {"indptr": state["indptr"][:-1].copy()})
    for wrong in ({"labels": labels.astype(np.int64)}, {"count": None}, {"rows": {"kind": "packed"}}):
        with pytest.raises(ModelFormatError):
            Neighbors.from_state(state | wrong)


def test_a_model_may_do_without(fitted):
    X, Y, clf = fitted
    without = BlockwiseClassifier(n_blocks=6, n_neighbors=0).fit(X, Y)
    assert without.model_.neighbors is None
    assert without.cost_["products"] < clf.cost_["products"]


@pytest.mark.parametrize("n_neighbors", [-1, 2.5, "many"])
def test_the_number_of_neighbors_must_make_sense(n_neighbors):
    X, Y = blocky(n=50, n_labels=10)
    with pytest.raises(BlockXMCError, match="n_neighbors must be"):
        BlockwiseClassifier(n_neighbors=n_neighbors).fit(X, Y)


def test_neighbors_need_shared_weights_and_a_linear_base():
    X, Y = blocky(n=300, n_labels=10)
    with pytest.raises(BlockXMCError, match="needs shared weights"):
        BlockwiseClassifier(weights="per-block", n_blocks=2, lam=0.1, n_neighbors=5).fit(X, Y)
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    with pytest.raises(BlockXMCError, match="needs a linear base"):
        BlockwiseClassifier(tree, weights="shared", n_blocks=2, n_neighbors=5).fit(X, Y)
    assert BlockwiseClassifier(tree, weights="shared", n_blocks=2).fit(X, Y).model_.neighbors is None


def test_more_neighbors_than_rows_are_as_many_as_there_are_rows(tmp_path):
    X, Y = blocky(n=260, n_labels=20)
    clf = BlockwiseClassifier(n_blocks=3, n_neighbors=1000).fit(X, Y)
    clf.save(tmp_path / "m")
    assert_array_equal(load(tmp_path / "m").predict_topk(X, 3)[1], clf.predict_topk(X, 3)[1])
