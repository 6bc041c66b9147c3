"""Prediction: packed blocks beside SciPy, on centroid weights pruned to the sparsity of real one-vs-all models.

usage: python bench/predict.py DATA_DIR [--blocks 256] [--visit 4] [--per-label 150] [--per-block 1000]

DATA_DIR holds train.txt and test.txt in XC format. CPU microseconds per row; medians of interleaved repetitions.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer, normalize

from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import LinearWeights
from blockxmc.model.routed_scorer import RoutedScorer


def read(path, shape=None):
    with path.open("rb") as file:
        header = map(int, file.readline().split()[1:])
        d, m = shape or header
        X, y = load_svmlight_file(file, n_features=d, multilabel=True, zero_based=True, dtype=np.float32)
    Y = MultiLabelBinarizer(classes=range(m), sparse_output=True).fit_transform(y)
    return sparse.csr_array(normalize(X)), sparse.csr_array(Y, dtype=np.float32)


def centroids(X, groups, keep):
    """Mean row of each group less the mean of all rows; the ``keep`` largest entries of each at unit length."""
    sizes = np.maximum(groups.sum(axis=0), 1)
    sums = sparse.csr_array(groups.T @ X)
    mean = np.asarray(X.mean(axis=0)).ravel()
    sums.data = sums.data / np.repeat(sizes, np.diff(sums.indptr)) - mean[sums.indices]
    for a, b in zip(sums.indptr[:-1], sums.indptr[1:], strict=True):
        if b - a > keep:
            small = np.argpartition(-np.abs(sums.data[a:b]), keep)[keep:]
            sums.data[a:b][small] = 0
    sums.eliminate_zeros()
    return sparse.csr_array(normalize(sums).T.tocsr(), dtype=np.float32)


def assign(X, q, rng, rounds=4):
    """Blocks by a few rounds of spherical k-means."""
    centres = X[rng.choice(X.shape[0], q, replace=False)]
    for _ in range(rounds):
        tiles = (X[i : i + 4096] for i in range(0, X.shape[0], 4096))
        nearest = np.concatenate([(tile @ centres.T).toarray().argmax(axis=1) for tile in tiles])
        member = sparse.csr_array(np.eye(q, dtype=np.float32))[nearest]
        centres = sparse.csr_array(normalize(member.T @ X))
    return member


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def interleaved(jobs, repeat=5):
    """Median CPU and wall seconds of each job."""
    times = {name: [] for name in jobs}
    for _ in range(repeat):
        for name, job in jobs.items():
            start, wall = cpu(), time.perf_counter()
            job()
            times[name].append((cpu() - start, time.perf_counter() - wall))
    return {name: np.median(pairs, axis=0) for name, pairs in times.items()}


def one_by_one(call, X):
    """Median wall time of a call per row."""
    rows = [(X.indices[a:b], X.data[a:b]) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    times = np.empty(len(rows))
    for i, (indices, values) in enumerate(rows):
        start = time.perf_counter()
        call(indices, values)
        times[i] = time.perf_counter() - start
    return float(np.median(times))


def scipy_topk(X, coef, bias, k=5):
    for i in range(0, X.shape[0], 512):
        scores = (X[i : i + 512] @ coef).toarray() + bias
        best = np.argpartition(-scores, k, axis=1)[:, :k]
        np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1), 1)


def scipy_columns_topk(X, rows_of_labels, bias, k=5):
    """Weights stored by label: every label's vector meets every row."""
    for row in X.toarray():
        scores = rows_of_labels @ row + bias
        best = np.argpartition(-scores, k)[:k]
        best[np.argsort(-scores[best])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--blocks", type=int, default=256)
    parser.add_argument("--visit", type=int, default=4)
    parser.add_argument("--per-label", type=int, default=150)
    parser.add_argument("--per-block", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=4000, help="test rows used")
    args = parser.parse_args()
    X, Y = read(args.data / "train.txt")
    test, truth = read(args.data / "test.txt", (X.shape[1], Y.shape[1]))
    test, truth = test[: args.rows], truth[: args.rows]
    d, m, n = X.shape[1], Y.shape[1], test.shape[0]
    rng = np.random.default_rng(0)

    coef, bias = centroids(X, Y, args.per_label), np.full(m, -0.1, np.float32)
    full = pack_scorer([LinearWeights(coef, bias)], [np.arange(m)], n_features=d, n_labels=m)
    member = assign(X, args.blocks, rng)
    counts = sparse.csr_array(member.T @ Y)
    counts.data *= counts.data >= 3
    counts.eliminate_zeros()
    clusters = np.split(counts.indices, counts.indptr[1:-1])
    clusters = [np.sort(ids) for ids in clusters]
    by_label = coef.tocsc()
    weights = [LinearWeights(sparse.csr_array(by_label[:, ids]), bias[ids]) for ids in clusters]
    blocks = pack_scorer(weights, clusters, n_features=d, n_labels=m)
    q = args.blocks
    router_weights = LinearWeights(centroids(X, member, args.per_block), np.zeros(q, np.float32))
    router = pack_scorer([router_weights], [np.arange(q)], n_features=d, n_labels=q)
    visited = router.topk(test, None, args.visit)[0].astype(np.int32)
    labels = {"full": full.topk(test, None, 5)[0], "routed": RoutedScorer(router, blocks, args.visit).topk(test, 5)[0]}
    p1 = {name: float(np.asarray(truth[np.arange(n), best[:, 0]]).mean()) for name, best in labels.items()}
    print(f"{args.data.name}: {n} rows, {test.nnz / n:.0f} features per row, {m} labels; P@1 {p1}")
    print(f"blocks: {blocks.n_candidates(visited).mean():.0f} candidates per row")
    for name, scorer, visits in (("full", full, None), ("router", router, None), ("blocks", blocks, visited)):
        print(f"{name}: {scorer.nbytes / 1e6:.1f} MB, {scorer.touched(test, visits):.0f} weights touched per row")

    label_rows = sparse.csr_array(coef.T.tocsr())
    few = test[:200]
    batch = interleaved(
        {
            "full, packed, 1 thread": lambda: full.topk(test, None, 5),
            "full, packed, 2 threads": lambda: full.topk(test, None, 5, threads=2),
            "full, SciPy X @ W": lambda: scipy_topk(test, coef, bias),
            "full, SciPy by label": lambda: scipy_columns_topk(few, label_rows, bias),
            "router": lambda: router.topk(test, None, args.visit),
            "blocks": lambda: blocks.topk(test, visited, 5),
            "routed, 1 thread": lambda: RoutedScorer(router, blocks, args.visit).topk(test, 5),
            "routed, 2 threads": lambda: RoutedScorer(router, blocks, args.visit).topk(test, 5, threads=2),
        }
    )
    single = {
        "full, packed, 1 thread": lambda i, v: full.one(i, v, None, 5),
        "full, SciPy X @ W": lambda i, v: scipy_topk(sparse.csr_array((v, i, [0, i.size]), shape=(1, d)), coef, bias),
        "router": lambda i, v: router.one(i, v, None, args.visit),
        "routed, 1 thread": lambda i, v: RoutedScorer(router, blocks, args.visit).one(i, v, 5),
    }
    print(f"{'µs per row':28}{'batch CPU':>10}{'batch wall':>11}{'one by one':>11}")
    for name, (seconds, wall) in batch.items():
        rows = 200 if "by label" in name else n
        call = f"{one_by_one(single[name], test) * 1e6:11.1f}" if name in single else ""
        print(f"{name:28}{seconds / rows * 1e6:10.2f}{wall / rows * 1e6:11.2f}{call}")


if __name__ == "__main__":
    main()
