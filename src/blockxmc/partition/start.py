"""Where the alternation starts: spherical k-means on the rows, a balanced tree of 2-means, or label clusters first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import row_norms

from blockxmc import _kernels
from blockxmc._core.matrix import copy_rows, csr_args, csr_of, pattern_args
from blockxmc._core.progress import Phase, Reporter, run_in_threads, watched
from blockxmc.partition.ranking import F64, I32

# Above this many clusters k-means starts from the balanced tree, whose cost grows with log(q), and makes one pass only:
# the first pass brings most of what many would.
MAX_LLOYD = 64
# Above this many clusters a row is compared with those of a few groups only, each a subtree of the balanced tree.
MAX_FLAT = 256
NEAR_GROUPS = 8
# Such groups are looked into side by side, so many at most: each has a copy of its rows, and its part of the budget below.
GROUPS_AT_ONCE = 4
# Floats that the centroids held at one time may take (512 MiB).
CENTROID_BUDGET = 2**27
# Rows on which one split of the tree is learned; all rows of the node are then split along the direction found.
SPLIT_SAMPLE = 2**14
SPLIT_ITERATIONS = 20
LLOYD_PASSES = 20
# Labels count by their number of positives to the power of -RARITY where rows choose their first block (ablation: "labels
# count alike"); 1 does about the same.
RARITY = 0.5
# A label's vector keeps its heaviest features only.
LABEL_FEATURES = 256


def cluster_rows(
    X: sparse.csr_array,
    n_clusters: int,
    *,
    balanced: bool,
    seed: int,
    threads: int,
    reporter: Reporter,
) -> I32:
    """Cluster the rows of X by direction: a balanced tree of 2-means, or k-means (many clusters: from that tree)."""
    if n_clusters == 1:
        return np.zeros(X.shape[0], np.int32)
    if n_clusters <= MAX_LLOYD and not balanced:
        with reporter.phase("start: k-means", LLOYD_PASSES) as phase:
            return lloyd(X, n_clusters, seed=seed, threads=threads, phase=phase)
    with reporter.phase("start: balanced tree", n_clusters - 1) as phase:
        leaves = balanced_tree(X, n_clusters, seed=seed, threads=threads, phase=phase)
    if balanced:
        return leaves
    with reporter.phase("start: k-means", 1):
        if n_clusters <= MAX_FLAT:
            return lloyd_pass(X, leaves, n_clusters, threads)
        return tree_pass(X, leaves, n_clusters, threads)


def balanced_tree(
    X: sparse.csr_array,
    n_leaves: int,
    *,
    seed: int,
    threads: int,
    phase: Phase,
    iterations: int = SPLIT_ITERATIONS,
) -> I32:
    """Equally large leaves, numbered so that with 2^t of them ``leaf >> s`` is the leaf s levels higher up."""
    return watched(
        _kernels.balanced_tree, *csr_args(X), X.shape[1], n_leaves, seed, SPLIT_SAMPLE, iterations, threads, phase=phase
    )


def lloyd(X: sparse.csr_array, n_clusters: int, *, seed: int, threads: int, phase: Phase) -> I32:
    """Spherical k-means from a k-means++ start until under 0.1 % of the rows move; no cluster ends empty."""
    rng = np.random.default_rng(seed)
    assignment = np.full(X.shape[0], -1, np.int32)
    assignment[_spread_rows(X, n_clusters, rng)] = np.arange(n_clusters, dtype=np.int32)
    for done in range(1, LLOYD_PASSES + 1):
        nearest = lloyd_pass(X, assignment, n_clusters, threads)
        moved = int((nearest != assignment).sum())
        assignment = nearest
        phase.update(done)
        if moved * 1000 <= X.shape[0]:
            break
    return assignment


def lloyd_pass(X: sparse.csr_array, assignment: I32, n_clusters: int, threads: int) -> I32:
    """Every row to the nearest of the clusters' mean directions; no cluster ends empty."""
    nearest, cosine = _nearest(X, assignment, n_clusters, X, threads)
    _reseed_empty(nearest[:, 0], cosine[:, 0], n_clusters)
    return nearest[:, 0]


def tree_pass(X: sparse.csr_array, leaves: I32, n_leaves: int, threads: int) -> I32:
    """``lloyd_pass`` from the leaves of a balanced tree, looking only into the groups of leaves nearest to each row."""
    size = round(n_leaves**0.5)  # neighboring leaves have close ancestors
    groups = leaves // np.int32(size)
    n_groups = -(-n_leaves // size)
    near = _nearest(X, groups, n_groups, X, threads, k=min(NEAR_GROUPS, n_groups))[0]
    near = np.maximum(near, 0).astype(
        np.uint16
    )  # groups are fewer than 2^16, and such small numbers are sorted much faster
    order, ends = np.argsort(near, axis=None, kind="stable"), np.cumsum(np.bincount(near.ravel(), minlength=n_groups))
    near_rows = np.split(order // near.shape[1], ends[:-1])
    found: dict[int, tuple[I32, NDArray[np.float32]]] = {}
    at_once = min(threads, GROUPS_AT_ONCE)

    def look_into(group: int, _: Phase) -> None:
        own, share = np.flatnonzero(groups == group), -(-threads // at_once)
        within = leaves[own] - np.int32(group * size)
        parts = copy_rows(X, own, share), within, size, copy_rows(X, near_rows[group], share)
        found[group] = _nearest(*parts, share, budget=CENTROID_BUDGET // at_once)

    with Reporter().phase("") as silent:
        run_in_threads(look_into, range(n_groups), at_once, silent)
    nearest, cosine = leaves.copy(), np.full(X.shape[0], -np.inf, np.float32)
    for group, rows in enumerate(near_rows):
        leaf, value = found[group]
        closer = value[:, 0] > cosine[rows]
        nearest[rows[closer]] = leaf[closer, 0] + np.int32(group * size)
        cosine[rows[closer]] = value[closer, 0]
    _reseed_empty(nearest, cosine, n_leaves)
    return nearest


def label_first(
    X: sparse.csr_array, Y: sparse.csr_array, n_clusters: int, *, seed: int, threads: int, reporter: Reporter
) -> I32:
    """Cluster the labels by the rows they occur in, then send each row to the cluster that holds most of its labels."""
    seen = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
    with reporter.phase("start: label vectors", seen.size) as phase:
        vectors = label_vectors(X, Y, seen, threads=threads, phase=phase)
    n_clusters = min(n_clusters, seen.size)
    which = cluster_rows(vectors, n_clusters, balanced=False, seed=seed, threads=threads, reporter=reporter)
    cluster_of = np.zeros(Y.shape[1], np.int32)
    cluster_of[seen] = which
    with reporter.phase("start: blocks of rows"):
        assignment = heaviest_clusters(Y, cluster_of, threads)
        return nearest_blocks(X, assignment, n_clusters, threads)


def heaviest_clusters(Y: sparse.csr_array, cluster_of: I32, threads: int = 1) -> I32:
    """The cluster that holds most of each row's labels (-1: a row without labels), rare labels counted more.

    A label counts ``n ** -RARITY`` for n positives. Counted alike, the few most frequent labels would choose the cluster of
    most rows: one block would take a third of them, and its labels would learn from all of these.

    >>> Y = sparse.csr_array(np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]], np.float32))
    >>> heaviest_clusters(Y, np.array([0, 1, 1], np.int32)).tolist()
    [1, 0, -1]
    """
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    weight = np.maximum(counts, 1) ** -RARITY
    return _kernels.heaviest_clusters(*pattern_args(Y), weight, cluster_of, threads)


def label_vectors(
    X: sparse.csr_array, Y: sparse.csr_array, labels: I32, *, threads: int, phase: Phase
) -> sparse.csr_array:
    """One row per label: the sum of the unit rows that carry it, cut to its heaviest features."""
    rows = csr_args(sparse.csc_array(Y)[:, labels].T)
    indptr, indices, data = watched(
        _kernels.heaviest_sums, *csr_args(X), X.shape[1], *rows[:2], LABEL_FEATURES, threads, phase=phase
    )
    return csr_of(indptr, indices, data, (labels.size, X.shape[1]))


def nearest_blocks(X: sparse.csr_array, assignment: I32, n_blocks: int, threads: int) -> I32:
    """Give every row without a block (-1) the block whose rows point most nearly its way."""
    lost = np.flatnonzero(assignment < 0)
    if not lost.size:
        return assignment
    out = assignment.copy()
    out[lost] = _nearest(X, assignment, n_blocks, copy_rows(X, lost, threads), threads)[0][:, 0]
    return out


def _nearest(
    X: sparse.csr_array,
    assignment: I32,
    n_clusters: int,
    queries: sparse.csr_array,
    threads: int,
    *,
    k: int = 1,
    budget: int = CENTROID_BUDGET,
) -> tuple[I32, NDArray[np.float32]]:
    """The k nearest clusters of each query and their cosines, nearest first."""
    with Reporter().phase("") as silent:
        clusters, cosines = watched(
            _kernels.nearest_centroids,
            *csr_args(X),
            X.shape[1],
            assignment,
            n_clusters,
            *csr_args(queries),
            k,
            budget,
            threads,
            phase=silent,
        )
    return clusters.reshape(-1, k), cosines.reshape(-1, k)


def _spread_rows(X: sparse.csr_array, n_clusters: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Greedy k-means++ on a sample of 50 rows per cluster.

    Rows are drawn by their distance from those chosen; of a few drawn, the one that brings the sample nearest is taken.
    """
    usable = np.flatnonzero(np.diff(X.indptr) > 0)
    if usable.size < n_clusters:
        usable = np.arange(X.shape[0])
    sample = np.sort(rng.choice(usable, min(usable.size, 50 * n_clusters), replace=False))
    rows = sparse.csr_array(X[sample].multiply(_inverse_norms(X[sample])[:, None]))
    trials = 2 + int(np.log(n_clusters))
    chosen = [int(rng.integers(sample.size))]
    free = np.ones(sample.size, dtype=bool)
    distance = np.ones(sample.size)
    drawn = np.array(chosen)
    while True:
        cosine = np.asarray((rows @ rows[drawn].T).toarray(), dtype=np.float64)
        nearer = np.minimum(distance[:, None], np.maximum(1.0 - cosine, 0.0))
        best = int(nearer.sum(axis=0).argmin())
        chosen[-1], distance = int(drawn[best]), nearer[:, best]
        free[chosen[-1]] = False
        if len(chosen) == n_clusters:
            return np.asarray(sample[chosen])
        weights = np.where(free, distance, 0.0)
        # Where only copies of chosen rows are left, any of them will do.
        weights = weights if weights.sum() > 0 else free.astype(np.float64)
        drawn = rng.choice(sample.size, trials, p=weights / weights.sum())
        chosen.append(-1)


def _reseed_empty(nearest: I32, cosine: NDArray[np.float32], n_clusters: int) -> None:
    """Give each empty cluster the row that is farthest from its centroid, never the last row of another cluster."""
    counts = np.bincount(nearest, minlength=n_clusters)
    empty = np.flatnonzero(counts == 0)
    farthest = iter(np.argsort(cosine, kind="stable")) if empty.size else iter(())
    for cluster in empty:
        row = next(i for i in farthest if counts[nearest[i]] > 1)
        counts[nearest[row]] -= 1
        nearest[row] = cluster
        counts[cluster] = 1


def _inverse_norms(X: sparse.csr_array) -> F64:
    norms = np.asarray(row_norms(X), dtype=np.float64)
    return np.divide(1.0, norms, out=np.zeros(norms.size), where=norms > 0)
