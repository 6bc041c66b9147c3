from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from blockxmc.errors import BlockXMCError
from blockxmc.routing import Router, assess_routing


def blobs(n=400, d=60, q=5, seed=0, noise=0.4):
    rng = np.random.default_rng(seed)
    block = rng.integers(q, size=n)
    X = np.maximum(rng.random((q, d))[block] ** 4 + noise * rng.normal(size=(n, d)), 0).astype(np.float32)
    return sparse.csr_array(X / np.linalg.norm(X, axis=1, keepdims=True)), block


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_routes_to_the_likeliest_blocks(loss):
    X, block = blobs()
    router = Router(loss=loss).fit(X, block, threads=2)
    blocks, probabilities = router.route(X, 3)
    assert blocks.dtype == np.int32
    assert probabilities.dtype == np.float32
    assert (blocks[:, 0] == block).mean() > 0.9
    assert (np.diff(probabilities, axis=1) <= 0).all()
    everything = router.route(X, 5)[1]
    np.testing.assert_allclose(everything.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(router.blocks(X, 3), blocks)


def test_probabilities_are_normalised_sigmoids():
    X, block = blobs(n=50)
    router = Router().fit(X, block)
    blocks, probabilities = router.route(X, 2)
    margins = router.scorer.scores(X, None).toarray()
    expected = expit(margins) / expit(margins).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, np.take_along_axis(expected, blocks, axis=1), rtol=1e-4)


def test_several_positive_blocks_per_row():
    X, block = blobs()
    both = sparse.lil_array((X.shape[0], 5), dtype=np.float32)
    both[np.arange(block.size), block] = 1
    both[block == 0, 1] = 1
    blocks, _ = Router().fit(X, sparse.csr_array(both)).route(X[block == 0], 2)
    assert (np.sort(blocks, axis=1) == [0, 1]).all(axis=1).mean() > 0.8


def test_rows_left_out_have_no_say():
    X, block = blobs()
    keep = np.arange(block.size) % 3 > 0
    wrong = np.where(keep, block, (block + 1) % 5)
    masked = Router().fit(X, wrong, mask=keep)
    negative = Router().fit(X, np.where(keep, block, -1), n_blocks=5)
    sliced = Router().fit(X[keep], block[keep])
    for other in (masked, negative):
        np.testing.assert_array_equal(other.route(X, 2)[1], sliced.route(X, 2)[1])


def test_one_block_needs_no_training():
    X, block = blobs(n=30)
    router = Router().fit(X, np.zeros_like(block))
    blocks, probabilities = router.route(X, 4)
    assert router.scorer is None
    assert blocks.tolist() == [[0]] * 30
    assert (probabilities == 1).all()


def test_an_unfitted_copy_has_the_same_parameters():
    X, block = blobs(n=100)
    router = Router(bias=1.0, prune=0.01, loss="squared_hinge", sample=50).fit(X, block)
    copy = router.unfitted()
    assert copy.scorer is None
    for a, b in zip(router.route(X, 2), copy.fit(X, block).route(X, 2), strict=True):
        np.testing.assert_array_equal(a, b)


def test_blocks_learn_from_a_sample_where_rows_are_many():
    X, block = blobs(n=4000, d=300, q=200, noise=0.2)
    test_X, test_block = X[3000:], block[3000:]
    options = {"bias": 1.0, "loss": "squared_hinge", "tol": 0.1}
    whole, few, one = (
        Router(**options, sample=sample).fit(X[:3000], block[:3000], n_blocks=200) for sample in (None, 300, 2900)
    )
    right = [(router.blocks(test_X, 1)[:, 0] == test_block).mean() for router in (whole, few)]
    assert right[0] > 0.5
    assert right[1] > right[0] - 0.05
    assert (few.scorer.topk(X, None, 1)[1] != whole.scorer.topk(X, None, 1)[1]).any()
    # Where a sample would save nothing, all rows are used.
    np.testing.assert_array_equal(one.route(test_X, 2)[1], whole.route(test_X, 2)[1])


def test_a_sample_does_not_depend_on_threads_and_keeps_every_block():
    X, block = blobs(n=2000, d=100, q=130)
    routers = [Router(sample=50, loss="squared_hinge").fit(X, block, threads=threads) for threads in (1, 3)]
    assert routers[0].n_blocks == 130
    for a, b in zip(*(router.route(X, 3) for router in routers), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bad_input():
    X, block = blobs(n=20)
    with pytest.raises(BlockXMCError, match="loss must"):
        Router(loss="hinge")
    with pytest.raises(BlockXMCError, match="C must"):
        Router(C=-1)
    with pytest.raises(BlockXMCError, match="sample must"):
        Router(sample=0)
    with pytest.raises(BlockXMCError, match="20 rows"):
        Router().fit(X, block[:-1])
    with pytest.raises(BlockXMCError, match="whole number"):
        Router().fit(X, block + 0.5)
    with pytest.raises(BlockXMCError, match="there are 2 blocks"):
        Router().fit(X, block, n_blocks=2)
    with pytest.raises(BlockXMCError, match="mask must"):
        Router().fit(X, block, mask=[True])
    with pytest.raises(BlockXMCError, match="not fitted"):
        Router().route(X, 1)
    with pytest.raises(BlockXMCError, match="at least one block"):
        Router().fit(X, block).route(X, 0)
    with pytest.raises(BlockXMCError, match="two rows"):
        assess_routing(X[:1], np.ones((1, 1)), [0], [np.array([0])])


def brute_force(visited, clusters, Y):
    recall, sizes, ceilings = [], [], []
    for blocks, labels in zip(visited, Y, strict=True):
        union = set().union(*(clusters[b].tolist() for b in blocks))
        truth = set(np.flatnonzero(labels))
        sizes.append(len(union))
        ceilings.append(min(3, len(truth & union)) / 3)
        if truth:
            recall.append(len(truth & union) / len(truth))
    return np.mean(recall), np.mean(sizes), np.mean(ceilings)


@pytest.mark.parametrize("b", [1, 2])
def test_assessment_equals_counting_by_hand(b):
    X, block = blobs(noise=0.8)
    rng = np.random.default_rng(1)
    Y = (rng.random((400, 12)) < 0.02 + 0.3 * (np.arange(12) // 2 == block[:, None])).astype(np.float32)
    clusters = [np.array([2 * i, 2 * i + 1, 11]) for i in range(4)] + [np.array([], int)]
    found = assess_routing(X, Y, block, clusters, b, seed=3)
    assert found == assess_routing(X, Y, block, clusters, b, seed=3, threads=2)

    order = np.random.default_rng(3).permutation(400)
    test, fit = np.sort(order[:80]), np.sort(order[80:])
    visited = Router().fit(X[fit], block[fit]).blocks(X[test], b)
    recall, size, ceiling = brute_force(visited, clusters, Y[test])
    assert found["candidate_recall"] == pytest.approx(recall)
    assert found["candidates"] == pytest.approx(size)
    assert found["products"] == pytest.approx(size + 5)
    assert found["precision_ceiling@3"] == pytest.approx(ceiling)
    assert found["router_accuracy"] == pytest.approx((visited[:, 0] == block[test]).mean())
    assert found["rows"] == 80


def test_assessment_of_one_block_is_exact():
    X, _ = blobs(n=50)
    Y = np.eye(5)[np.arange(50) % 5]
    found = assess_routing(X, Y, np.zeros(50, int), [np.arange(5)])
    assert (found["candidate_recall"], found["candidates"], found["products"]) == (1, 5, 5)
