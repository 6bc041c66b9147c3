import numpy as np
import pytest
from partition_twins import best_blocks, ragged, random_problem, ranked
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args


def labels_of(Y):
    return np.ascontiguousarray(Y.indptr, np.int64), np.ascontiguousarray(Y.indices, np.int32)


def random_clusters(rng, m, q, popular=3):
    """Label lists of very different sizes: some labels in every block, some in most, some in none."""
    member = rng.random((q, m)) < rng.random(m)
    member[:, :popular] = True
    member[:, -1] = False
    return [np.flatnonzero(row) for row in member]


class TestRankLabels:
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("min_count", [1, 3])
    def test_equals_counting(self, seed, min_count):
        _, Y = random_problem(seed)
        assignment = np.random.default_rng(seed).integers(-1, 4, Y.shape[0]).astype(np.int32)
        indptr, labels, counts = _kernels.rank_labels(*labels_of(Y), Y.shape[1], assignment, 5, min_count, 2)
        for block, (expected, expected_counts) in enumerate(ranked(Y, assignment, 5, min_count)):
            part = slice(indptr[block], indptr[block + 1])
            np.testing.assert_array_equal(labels[part], expected)
            np.testing.assert_array_equal(counts[part], expected_counts)

    def test_no_rows_and_no_labels(self):
        for Y in (sparse.csr_array((0, 3)), sparse.csr_array((4, 0)), sparse.csr_array((4, 3))):
            none = np.zeros(Y.shape[0], np.int32)
            indptr, labels, counts = _kernels.rank_labels(*labels_of(Y), Y.shape[1], none, 2, 1, 2)
            assert indptr.tolist() == [0, 0, 0]
            assert labels.size == counts.size == 0

    def test_bad_arguments_are_refused(self):
        _, Y = random_problem(0)
        z = np.zeros(Y.shape[0], np.int32)
        indptr, indices = labels_of(Y)
        with pytest.raises(ValueError, match="block id"):
            _kernels.rank_labels(indptr, indices, Y.shape[1], z + 2, 2, 1, 1)
        with pytest.raises(ValueError, match="one block per row"):
            _kernels.rank_labels(indptr, indices, Y.shape[1], z[1:], 2, 1, 1)
        with pytest.raises(ValueError, match="column index"):
            _kernels.rank_labels(indptr, indices, 3, z, 2, 1, 1)
        with pytest.raises(ValueError, match="row pointers"):
            _kernels.rank_labels(indptr[:-1], indices, Y.shape[1], z, 2, 1, 1)
        with pytest.raises(TypeError):
            _kernels.rank_labels(indptr.astype(np.int32), indices, Y.shape[1], z, 2, 1, 1)


class TestChooseBlocks:
    @pytest.mark.parametrize("seed", range(12))
    @pytest.mark.parametrize("small", [False, True])
    @pytest.mark.parametrize("price", [0.0, 0.25])
    def test_complement_lists_equal_the_full_table(self, seed, small, price):
        rng = np.random.default_rng(seed)
        _, Y = random_problem(seed, m=25, label_rate=0.15 if seed % 2 else 0.5)
        q = int(rng.integers(1, 12))
        clusters = random_clusters(rng, Y.shape[1], q, popular=seed % 4)
        assignment = rng.integers(-1, q, Y.shape[0]).astype(np.int32)
        chosen, captured = _kernels.choose_blocks(
            *labels_of(Y), Y.shape[1], *ragged(clusters), assignment, price, small, 2
        )
        expected, expected_captured = best_blocks(Y, clusters, assignment, price, small)
        np.testing.assert_array_equal(chosen, expected)
        assert captured == expected_captured

    def test_a_label_in_every_block_is_evidence(self):
        Y = sparse.csr_array(np.array([[1, 0], [0, 0]], np.float32))
        nobody = np.full(2, -1, np.int32)
        chosen, captured = _kernels.choose_blocks(*labels_of(Y), 2, *ragged([[0, 1], [0]]), nobody, 0.0, False, 1)
        assert (chosen.tolist(), captured) == ([1, -1], 1)

    def test_read_only_arrays(self):
        _, Y = random_problem(1)
        arrays = [*labels_of(Y), *ragged([[0, 1], [2]]), np.zeros(Y.shape[0], np.int32)]
        for array in arrays:
            array.flags.writeable = False
        _kernels.choose_blocks(*arrays[:2], Y.shape[1], *arrays[2:], 0.0, False, 1)

    def test_a_label_twice_in_a_cluster_is_refused(self):
        _, Y = random_problem(1)
        with pytest.raises(ValueError, match="twice"):
            _kernels.choose_blocks(
                *labels_of(Y), Y.shape[1], *ragged([[0, 0]]), np.zeros(Y.shape[0], np.int32), 0.0, False, 1
            )


class TestNearestCentroids:
    @pytest.mark.parametrize("budget", [1, 20 * 3, 2**20])
    def test_equals_dense_cosines(self, budget):
        X, _ = random_problem(3, n=80)
        assignment = np.random.default_rng(3).integers(-1, 5, 80).astype(np.int32)
        dense = X.toarray().astype(np.float64)
        norms = np.linalg.norm(dense, axis=1, keepdims=True)
        unit = np.divide(dense, norms, out=np.zeros_like(dense), where=norms > 0)
        sums = np.array([unit[assignment == c].sum(axis=0) for c in range(5)])
        expected = unit @ (sums / np.linalg.norm(sums, axis=1, keepdims=True)).T
        for k in (1, 3, 7):
            cluster, cosine = (
                found.reshape(80, k)
                for found in _kernels.nearest_centroids(
                    *csr_args(X), X.shape[1], assignment, 6, *csr_args(X), k, budget, 2, np.zeros(2, np.int64)
                )
            )
            best = -np.sort(-expected, axis=1)[:, :k]
            np.testing.assert_allclose(cosine[:, :5], best, atol=1e-5)
            np.testing.assert_allclose(np.take_along_axis(expected, cluster[:, :5], axis=1), best, atol=1e-5)
            assert (cluster[:, 5:] == -1).all()  # the sixth cluster has no rows
            assert np.isneginf(cosine[:, 5:]).all()

    def test_threads_find_the_same(self):
        X, _ = random_problem(6, n=700)
        assignment = np.random.default_rng(6).integers(0, 9, 700).astype(np.int32)
        first, *others = (
            _kernels.nearest_centroids(
                *csr_args(X), X.shape[1], assignment, 9, *csr_args(X), 2, 2**20, threads, np.zeros(2, np.int64)
            )
            for threads in (1, 2, 3, 16)
        )
        for other in others:
            for mine, theirs in zip(first, other, strict=True):
                np.testing.assert_array_equal(mine, theirs)

    def test_no_features_and_no_queries(self):
        X, none = sparse.csr_array((3, 0), dtype=np.float32), sparse.csr_array((0, 0), dtype=np.float32)
        z = np.array([1, 1, -1], np.int32)
        progress = np.zeros(2, np.int64)
        cluster, _ = _kernels.nearest_centroids(*csr_args(X), 0, z, 2, *csr_args(X), 1, 100, 1, progress)
        assert cluster.tolist() == [1, 1, 1]
        assert not _kernels.nearest_centroids(*csr_args(X), 0, z, 2, *csr_args(none), 1, 100, 1, progress)[0].size


class TestBalancedTree:
    def tree(self, X, leaves, *, sample=2**14, threads=1, seed=0):
        return _kernels.balanced_tree(
            *csr_args(X), X.shape[1], leaves, seed, sample, 20, threads, np.zeros(2, np.int64)
        )

    @pytest.mark.parametrize("leaves", [1, 2, 3, 7, 32, 100])
    @pytest.mark.parametrize("sample", [2, 30, 1000])
    def test_leaves_are_equally_large(self, leaves, sample):
        X, _ = random_problem(2, n=100)
        sizes = np.bincount(self.tree(X, leaves, sample=sample), minlength=leaves)
        assert sizes.min() >= 1
        assert sizes.max() - sizes.min() <= 1 + np.log2(leaves)

    @pytest.mark.parametrize("seed", range(5))
    def test_finds_planted_groups(self, seed):
        rng = np.random.default_rng(seed)
        group = np.arange(200) % 2
        rows = np.abs(rng.normal(0, 0.1, (200, 12)))
        rows[np.arange(200), group * 6 + rng.integers(0, 5, 200)] += 2
        rows[np.arange(200), group * 6 + 5] += 2
        leaf = self.tree(sparse.csr_array(rows.astype(np.float32)), 2, seed=seed)
        assert len({(a, b) for a, b in zip(leaf.tolist(), group.tolist(), strict=True)}) == 2

    def test_a_deeper_tree_refines_a_shallower_one(self):
        X, _ = random_problem(5, n=128)
        deep = self.tree(X, 16)
        np.testing.assert_array_equal(deep >> 2, self.tree(X, 4))

    def test_equal_rows_are_still_divided(self):
        X = sparse.csr_array(np.ones((9, 2), np.float32))
        assert sorted(np.bincount(self.tree(X, 4)).tolist()) == [2, 2, 2, 3]
        assert sorted(np.bincount(self.tree(sparse.csr_array((6, 2), dtype=np.float32), 3)).tolist()) == [2, 2, 2]

    def test_infinities_do_no_harm(self):
        rows = np.random.default_rng(0).random((50, 3)).astype(np.float32)
        rows[::3, 0] = np.inf
        assert np.bincount(self.tree(sparse.csr_array(rows), 5)).tolist() == [10] * 5

    def test_stop_flag_and_bad_arguments(self):
        X, _ = random_problem(0)
        stop = np.array([0, 1], np.int64)
        _kernels.balanced_tree(*csr_args(X), X.shape[1], 8, 0, 100, 20, 1, stop)
        assert stop[0] == 0
        with pytest.raises(ValueError, match="more leaves"):
            self.tree(X, X.shape[0] + 1)
        with pytest.raises(ValueError, match="sample"):
            self.tree(X, 2, sample=1)

    def test_threads_give_the_same_tree(self):
        X, _ = random_problem(8, n=500)
        for leaves, sample in ((37, 64), (37, 2**14), (2, 2**14), (3, 300)):
            first, *others = (self.tree(X, leaves, sample=sample, threads=t, seed=4) for t in (1, 2, 3, 5, 16))
            for other in others:
                np.testing.assert_array_equal(first, other)


def test_heaviest_sums_on_awkward_input():
    X = sparse.csr_array(np.array([[3, 4, 0], [0, 0, 0], [0, 0, 2], [-1, 0, 0]], np.float32))
    lists = [[], [1], [0, 2], [0, 0, 3], [0, 3]]
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    rows = np.array([row for ids in lists for row in ids], np.int32)

    def sums(keep, rows=rows, indptr=indptr):
        found = _kernels.heaviest_sums(*csr_args(X), 3, indptr, rows, keep, 2, np.zeros(2, np.int64))
        for array in found:
            assert array.flags.c_contiguous
        return sparse.csr_array((found[2], found[1], found[0]), shape=(len(lists), 3)).toarray()

    unit = np.array([[0.6, 0.8, 0], [0, 0, 0], [0, 0, 1], [-1, 0, 0]], np.float32)
    expected = np.array([unit[ids].sum(axis=0) for ids in lists])
    np.testing.assert_allclose(sums(3), expected, atol=1e-6)
    heaviest = np.zeros_like(expected)
    for row, full in zip(heaviest, expected, strict=True):
        row[np.abs(full).argmax()] = full[np.abs(full).argmax()]
    np.testing.assert_allclose(sums(1), heaviest, atol=1e-6)
    with pytest.raises(ValueError, match="out of range"):
        sums(1, rows=rows + 2)
    with pytest.raises(ValueError, match="at least one feature"):
        sums(0)
    with pytest.raises(ValueError, match="row pointers"):
        sums(1, indptr=indptr[:-1])


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_heaviest_sums_of_long_and_short_lists(threads):
    rng = np.random.default_rng(5)
    X, _ = random_problem(5, n=900)
    # A few lists of nearly all rows among hundreds of short ones, and empty ones at the end.
    lists = [np.sort(rng.choice(900, 880 if at % 150 == 7 else at % 4, replace=False)) for at in range(600)] + [
        []
    ] * 300
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    rows, progress = np.concatenate(lists).astype(np.int32), np.zeros(2, np.int64)
    found = _kernels.heaviest_sums(*csr_args(X), X.shape[1], indptr, rows, X.shape[1], threads, progress)
    dense = X.toarray().astype(np.float64)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    unit = np.divide(dense, norms, out=np.zeros_like(dense), where=norms > 0)
    expected = np.array([unit[np.asarray(ids, int)].sum(axis=0) for ids in lists])
    sums = sparse.csr_array((found[2], found[1], found[0]), shape=expected.shape)
    np.testing.assert_allclose(sums.toarray(), expected, rtol=1e-4, atol=1e-4)
    assert progress[0] == len(lists)
