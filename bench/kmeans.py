"""Our k-means start beside scikit-learn's: CPU seconds and mean cosine of a row with its centroid (higher is better)."""

import argparse
import time

import numpy as np
from planted import planted
from scipy import sparse
from sklearn.cluster import BisectingKMeans, KMeans, MiniBatchKMeans
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from blockxmc._core.progress import Reporter
from blockxmc.partition.start import cluster_rows


def mean_cosine(unit, z, q):
    member = sparse.csr_matrix((np.ones(z.size, np.float32), z, np.arange(z.size + 1)), shape=(z.size, q))
    sums = member.T @ unit
    return float(np.sqrt(np.asarray(sums.multiply(sums).sum(axis=1))).sum() / z.size)


def timed(run):
    start = time.process_time()
    z = run()
    return time.process_time() - start, z


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--features", type=int, default=20000)
    parser.add_argument("--clusters", type=int, nargs="+", default=[8, 32, 64, 256])
    args = parser.parse_args()
    X, _ = planted(args.rows, args.features, 1000, topics=64)
    unit = normalize(sparse.csr_matrix(X))
    print(f"{args.rows} rows, {args.features} features, {X.nnz / args.rows:.0f} per row; one thread")
    print(f"{'clusters':>8}  {'method':<28}{'CPU s':>8}{'ratio':>8}{'cosine':>9}{'largest / mean':>16}")
    for q in args.clusters:
        options = {"seed": 0, "threads": 1, "reporter": Reporter()}
        methods = {
            "ours, kmeans": lambda q=q, o=options: cluster_rows(X, q, balanced=False, **o),
            "ours, balanced": lambda q=q, o=options: cluster_rows(X, q, balanced=True, **o),
            "sklearn KMeans": lambda q=q: KMeans(q, n_init=1, max_iter=20, random_state=0).fit(unit).labels_,
            "sklearn BisectingKMeans": lambda q=q: BisectingKMeans(q, max_iter=20, random_state=0).fit(unit).labels_,
            "sklearn MiniBatchKMeans": lambda q=q: (
                MiniBatchKMeans(q, n_init=1, batch_size=8192, max_iter=20, random_state=0).fit(unit).labels_
            ),
        }
        first = None
        with threadpool_limits(1):
            for name, run in methods.items():
                seconds, z = timed(run)
                first = first or seconds
                largest = np.bincount(z).max() * q / z.size
                print(
                    f"{q:>8}  {name:<28}{seconds:>8.2f}{seconds / first:>8.1f}"
                    f"{mean_cosine(unit, z, q):>9.4f}{largest:>16.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
