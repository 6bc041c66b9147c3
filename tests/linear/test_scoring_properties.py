"""The packed scorer against its twin on adversarial blocks. Integers make every sum exact and ties common."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from scoring_twin import TwinScorer

from blockxmc import _kernels
from blockxmc.linear.packed import PackedScorer
from blockxmc.linear.scorers import pack_scorer, restore_scorer
from blockxmc.linear.weights import LinearWeights, LowRankWeights
from blockxmc.model.routed_scorer import RoutedScorer


def random_csr(rng, shape, density, integer=True):
    dense = rng.integers(-3, 4, shape) if integer else rng.normal(size=shape)
    return sparse.csr_array((dense * (rng.random(shape) < density)).astype(np.float32))


@st.composite
def problems(draw, integer=True):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, m = draw(st.integers(0, 9)), draw(st.integers(1, 60)), draw(st.integers(1, 90))
    n_blocks, width, k = draw(st.integers(1, 6)), draw(st.integers(0, 5)), draw(st.integers(1, 12))
    density = draw(st.sampled_from([0.0, 0.02, 0.1, 0.5, 1.0]))
    share = draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))
    with_mass = draw(st.booleans())
    weights, ids = [], []
    for _ in range(n_blocks):
        cluster = np.flatnonzero(rng.random(m) < share * rng.random() * 1.5)
        bias = rng.integers(-2, 3, cluster.size).astype(np.float32)
        mass = rng.integers(-1, 2, cluster.size).astype(np.float32) if with_mass and rng.random() < 0.6 else None
        weights.append(LinearWeights(random_csr(rng, (d, cluster.size), density * rng.random(), integer), bias, mass))
        ids.append(cluster)
    X = random_csr(rng, (n, d), draw(st.sampled_from([0.0, 0.1, 0.6])), integer)
    blocks = None if draw(st.booleans()) else rng.integers(-1, n_blocks, (n, width)).astype(np.int32)
    return weights, ids, X, blocks, m, k


def both(weights, ids, X, m):
    return (
        pack_scorer(weights, ids, n_features=X.shape[1], n_labels=m),
        TwinScorer(weights, ids, X.shape[1], m),
    )


def same(found, expected):
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def row(X, i):
    return X.indices[X.indptr[i] : X.indptr[i + 1]], X.data[X.indptr[i] : X.indptr[i + 1]]


@settings(max_examples=300)
@given(problems())
def test_agrees_with_the_twin(problem):
    weights, ids, X, blocks, m, k = problem
    scorer, twin = both(weights, ids, X, m)
    assert isinstance(scorer, PackedScorer)
    expected = twin.topk(X, blocks, k)
    same(scorer.topk(X, blocks, k), expected)
    same(scorer.topk(X, blocks, k, threads=3), expected)
    for i in range(X.shape[0]):
        found = scorer.one(*row(X, i), None if blocks is None else blocks[i], k)
        same(found, (expected[0][i], expected[1][i]))
    scores, expected_scores = scorer.scores(X, blocks), twin.scores(X, blocks)
    assert np.array_equal(scores.indptr, expected_scores.indptr)
    assert np.array_equal(scores.indices, expected_scores.indices)
    assert np.array_equal(scores.data, expected_scores.data)
    assert np.array_equal(np.broadcast_to(scorer.n_candidates(blocks), X.shape[0]), np.diff(scores.indptr))


@settings(max_examples=100)
@given(problems(integer=False))
def test_paths_and_threads_agree_bit_for_bit(problem):
    weights, ids, X, blocks, m, k = problem
    scorer, twin = both(weights, ids, X, m)
    labels, best = scorer.topk(X, blocks, k)
    same(scorer.topk(X, blocks, k, threads=2), (labels, best))
    for i in range(X.shape[0]):
        same(scorer.one(*row(X, i), None if blocks is None else blocks[i], k), (labels[i], best[i]))
    np.testing.assert_allclose(best, twin.topk(X, blocks, k)[1], rtol=1e-4, atol=1e-4)
    # The best scores are the scores: same bits in the list of all candidates.
    scores = scorer.scores(X, blocks, threads=2)
    for i, j in zip(*np.nonzero(labels >= 0), strict=True):
        assert scores[i, labels[i, j]] == best[i, j]


@settings(max_examples=60)
@given(problems(), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_fused_routing_equals_the_two_calls(problem, b, seed):
    weights, ids, X, _, m, k = problem
    scorer, _ = both(weights, ids, X, m)
    rng = np.random.default_rng(seed)
    q = len(weights)
    router_weights = LinearWeights(random_csr(rng, (X.shape[1], q), 0.5, False), rng.normal(size=q).astype(np.float32))
    router = pack_scorer([router_weights], [np.arange(q)], n_features=X.shape[1], n_labels=q)
    expected = scorer.topk(X, router.topk(X, None, b)[0].astype(np.int32), k)
    same(RoutedScorer(router, scorer, b).topk(X, k), expected)
    same(RoutedScorer(router, scorer, b).topk(X, k, threads=2), expected)
    for i in range(X.shape[0]):
        same(RoutedScorer(router, scorer, b).one(*row(X, i), k), (expected[0][i], expected[1][i]))


@settings(max_examples=100)
@given(problems())
def test_self_scoring_weights_agree_with_the_twin(problem):
    weights, ids, X, blocks, m, k = problem
    rng = np.random.default_rng(X.nnz)
    low_rank = [
        LowRankWeights(
            rng.integers(-2, 3, (X.shape[1], 3)).astype(np.float32),
            rng.integers(-2, 3, (w.n_labels, 3)).astype(np.float32),
        )
        for w in weights[::2]
    ]
    mixed = [low_rank[i // 2] if i % 2 == 0 else w for i, w in enumerate(weights)]
    scorer, twin = both(mixed, ids, X, m)
    expected = twin.topk(X, blocks, k)
    same(scorer.topk(X, blocks, k), expected)
    same(scorer.topk(X, blocks, k, threads=2), expected)
    for i in range(X.shape[0]):
        same(scorer.one(*row(X, i), None if blocks is None else blocks[i], k), (expected[0][i], expected[1][i]))
    assert (abs(scorer.scores(X, blocks) - twin.scores(X, blocks))).nnz == 0
    assert np.array_equal(
        np.broadcast_to(scorer.n_candidates(blocks), X.shape[0]), np.diff(twin.scores(X, blocks).indptr)
    )
    restored = restore_scorer(scorer.state())
    same(restored.topk(X, blocks, k), expected)


@pytest.mark.parametrize("rank", [1, 16, 37, 100])
def test_low_rank_rows_and_batches_agree_bit_for_bit(rank):
    rng = np.random.default_rng(rank)
    d, m = 40, 70
    weights = LowRankWeights(
        rng.normal(size=(d, rank)).astype(np.float32), rng.normal(size=(m, rank)).astype(np.float32)
    )
    X = random_csr(rng, (11, d), 0.3, False)
    scorer, twin = both([weights], [np.arange(m)], X, m)
    labels, best = scorer.topk(X, None, 5)
    same(scorer.topk(X, None, 5, threads=2), (labels, best))
    np.testing.assert_allclose(best, twin.topk(X, None, 5)[1], rtol=1e-4)
    for i in range(X.shape[0]):
        same(scorer.one(*row(X, i), None, 5), (labels[i], best[i]))


@pytest.mark.parametrize("d", [50, 4000])
@pytest.mark.parametrize("m", [40_000, 16_384, 16_385])
def test_many_labels_are_cut_into_chunks(d, m):
    rng = np.random.default_rng(m + d)
    nnz = 30_000
    cells = (rng.integers(0, 50, nnz) * (d // 50), rng.integers(0, m, nnz))
    coef = sparse.csr_array((rng.integers(-3, 4, nnz).astype(np.float32), cells), shape=(d, m))
    weights = LinearWeights(coef, rng.integers(-1, 2, m).astype(np.float32))
    X = sparse.csr_array(random_csr(rng, (20, d), 0.3))
    scorer, twin = both([weights], [np.arange(m)], X, m)
    for k in (1, 5, 700):
        same(scorer.topk(X, None, k, threads=2), twin.topk(X, None, k))
    assert scorer.scores(X, None).nnz == 20 * m
    assert np.array_equal(scorer.label_clusters[0], np.arange(m))


@given(st.integers(0, 10_000), st.integers(1, 300), st.integers(1, 40), st.sampled_from([2, 30, 10_000]))
def test_the_best_of_many_scores_with_ties_and_gaps(seed, n, k, levels):
    rng = np.random.default_rng(seed)
    scores = (rng.integers(0, levels, (3, n)) / 7).astype(np.float32)
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    scores[rng.random(scores.shape) < 0.05] = np.nan
    labels, best = np.empty((3, k), np.int64), np.empty((3, k), np.float32)
    _kernels.dense_topk(scores, np.arange(n, dtype=np.int32), labels, best)
    for row, found, values in zip(scores, labels, best, strict=True):
        order = np.argsort(-row, kind="stable")  # NaN last
        expected = order[row[order] > -np.inf][:k]
        assert_array_equal(found[: expected.size], expected)
        assert_array_equal(values[: expected.size], row[expected])
        assert (found[expected.size :] == -1).all()
