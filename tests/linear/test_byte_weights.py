"""Weights of 8 bits against a few lines of NumPy, bit for bit: rows hold integers, so that the sums are exact."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scoring_twin import ByteWeights, TwinScorer

from blockxmc.linear.scorers import pack_scorer, pack_shared_scorer
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights
from blockxmc.model.routed_scorer import RoutedScorer

# Labels at the edges of 8-bit label numbers, and magnitudes from the smallest subnormal to nearly the largest.
WIDTHS = (0, 1, 2, 3, 7, 255, 256, 257, 300)
MAGNITUDES = (1e-45, 1e-40, 1e-38, 1e-30, 1.0, 1e4, 1e35)
DENSITIES = (0.0, 0.01, 0.1, 0.3, 1.0)


def vectors_of(weights):
    return LabelVectors.joined([weights], np.arange(weights.n_labels))


def random_block(rng, d, width, density, magnitudes, with_mass):
    coef = rng.normal(size=(d, width)) * (rng.random((d, width)) < density) * rng.choice(magnitudes, width)
    bias = rng.normal(size=width).astype(np.float32)
    bias[rng.random(width) < 0.2] = -np.inf
    mass = rng.integers(-2, 3, width).astype(np.float32) if with_mass else None
    return LinearWeights(sparse.csr_array(coef.astype(np.float32)), bias, mass)


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, n_blocks = draw(st.sampled_from([1, 9, 50])), draw(st.integers(1, 4))
    magnitudes = draw(st.lists(st.sampled_from(MAGNITUDES), min_size=1, max_size=4))
    with_mass = draw(st.booleans())
    weights, ids = [], []
    for _ in range(n_blocks):
        width, density = draw(st.sampled_from(WIDTHS)), draw(st.sampled_from(DENSITIES))
        weights.append(random_block(rng, d, width, density, magnitudes, with_mass))
        ids.append(np.sort(rng.choice(400, width, replace=False)))
    # Unit rows show each weight alone, the others their sums.
    rows = np.vstack([np.eye(d), rng.integers(-3, 4, (6, d)) * (rng.random((6, d)) < 0.5)])
    return weights, ids, sparse.csr_array(rows.astype(np.float32))


def packed(weights, ids, X, **options):
    return pack_scorer(weights, ids, n_features=X.shape[1], n_labels=400, bits=8, **options)


@settings(max_examples=150)
@given(problems())
def test_every_path_agrees_with_the_twin(problem):
    weights, ids, X = problem
    scorer, twin = packed(weights, ids, X), TwinScorer([ByteWeights(w) for w in weights], ids, X.shape[1], 400)
    scores, expected = scorer.scores(X, None), twin.scores(X, None)
    listed = scores.data > -np.inf
    assert np.array_equal(scores.data[listed], expected.data)
    assert np.array_equal(scores.indices[listed], expected.indices)
    labels, best = scorer.topk(X, None, 3)
    for found in (scorer.topk(X, None, 3, threads=2), packed(weights, ids, X, threads=3).topk(X, None, 3)):
        assert np.array_equal(found[0], labels)
        assert np.array_equal(found[1], best)
    finite = best > -np.inf
    wanted = twin.topk(X, None, 3)
    assert np.array_equal(best, wanted[1])
    assert np.array_equal(labels[finite], wanted[0][finite])
    for i in range(X.shape[0]):
        at = slice(X.indptr[i], X.indptr[i + 1])
        one = scorer.one(X.indices[at], X.data[at], None, 3)
        assert np.array_equal(one[0], labels[i])
        assert np.array_equal(one[1], best[i])


@settings(max_examples=60)
@given(problems(), st.sampled_from([32, 16, 8]))
def test_packing_gives_the_same_bytes_for_any_number_of_threads(problem, bits):
    weights, ids, X = problem
    options = {"n_features": X.shape[1], "n_labels": 400, "bits": bits}
    alone = pack_scorer(weights, ids, **options).state()
    for threads in (2, 5):
        together = pack_scorer(weights, ids, threads=threads, **options).state()
        assert alone.keys() == together.keys()
        assert all(np.array_equal(alone[name], together[name]) for name in alone)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([32, 16, 8]), st.booleans())
@example(0, 8, True)
def test_shared_vectors_are_packed_like_the_weights_of_each_block(seed, bits, with_mass):
    rng = np.random.default_rng(seed)
    whole = random_block(rng, 30, 80, rng.choice(DENSITIES), [1.0], with_mass)
    clusters = [np.flatnonzero(rng.random(80) < share) for share in (0.0, 0.1, 0.5, 1.0)]
    frequent = np.flatnonzero(rng.random(80) < 0.1) if seed % 2 else np.zeros(0, int)
    options = {"n_features": 30, "n_labels": 80, "bits": bits}
    # In its blocks a frequent label has no weights and a score of -inf; a last block has its own.
    keep = np.ones(80, np.float32)
    keep[frequent] = 0
    own = LinearWeights(
        sparse.csr_array(whole.coef * keep), np.where(keep > 0, whole.bias, -np.inf).astype(np.float32), whole.mass
    )
    last = [frequent] if frequent.size else []
    expected = pack_scorer([*own.split(clusters), *whole.split(last)], [*clusters, *last], **options)
    found = pack_shared_scorer(vectors_of(whole), clusters, frequent, n_features=30, bits=bits, threads=2)
    assert all(np.array_equal(found.state()[name], value) for name, value in expected.state().items())


def test_routed_calls_agree_bit_for_bit():
    rng = np.random.default_rng(0)
    X = sparse.random_array((300, 40), density=0.3, rng=rng, dtype=np.float32, format="csr")
    whole = random_block(rng, 40, 400, 0.1, [1.0], False)
    clusters = [np.sort(rng.choice(400, width, replace=False)) for width in (256, 257, 40, 0, 3)]
    scorer = pack_shared_scorer(vectors_of(whole), clusters, np.zeros(0, int), n_features=40, bits=8)
    router = pack_scorer([random_block(rng, 40, 5, 0.5, [1.0], False)], [np.arange(5)], n_features=40, n_labels=5)
    for slope in (0.0, 0.4):
        routed = RoutedScorer(router, scorer, 3, slope)
        labels, best = routed.topk(X, 4)
        again = routed.topk(X, 4, threads=2)
        assert np.array_equal(again[0], labels)
        assert np.array_equal(again[1], best)
        scores = routed.scores(X, threads=2)
        for i in range(X.shape[0]):
            at = slice(X.indptr[i], X.indptr[i + 1])
            one = routed.one(X.indices[at], X.data[at], 4)
            assert np.array_equal(one[0], labels[i])
            assert np.array_equal(one[1], best[i])
            there = best[i] > -np.inf
            assert np.array_equal(scores[[i], labels[i][there]], best[i][there])


@pytest.mark.parametrize("m", [16_384, 16_385])
def test_many_labels_are_cut_into_chunks(m):
    rng = np.random.default_rng(m)
    cells = rng.integers(0, 30, 9_000), rng.integers(0, m, 9_000)
    coef = sparse.csr_array((rng.normal(size=9_000).astype(np.float32), cells), shape=(30, m))
    weights = LinearWeights(coef, rng.normal(size=m).astype(np.float32))
    X = sparse.csr_array(np.eye(30, dtype=np.float32))
    scorer = pack_scorer([weights], [np.arange(m)], n_features=30, n_labels=m, bits=8)
    assert np.array_equal(scorer.scores(X, None).toarray(), ByteWeights(weights).scores(X))
