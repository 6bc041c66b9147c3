"""Time of the partition as the data grow: a ladder of 1x, 4x, 16x rows, or one run of the WikiLSHTC-325K shape."""

import argparse
import resource
import time

import numpy as np
from planted import planted

from blockxmc._core.progress import Reporter, thread_count
from blockxmc.partition.alternation import Alternation, Rules
from blockxmc.partition.start import cluster_rows

HEADER = (
    f"{'rows':>9}{'nnz(X)':>11}{'nnz(Y)':>10}{'blocks':>8}{'start CPU':>11}{'wall':>8}"
    f"{'alternation CPU':>17}{'wall':>8}{'rounds':>8}{'ns/(nnz(Y) round)':>19}{'captured':>10}{'peak GiB':>10}"
)


def clocks():
    return np.array([time.process_time(), time.perf_counter()])


def measure(X, Y, q, lam, threads):
    begin = clocks()
    z = cluster_rows(X, q, balanced=False, seed=0, threads=threads, reporter=Reporter())
    start = clocks() - begin
    begin = clocks()
    with Reporter().phase("") as silent:
        blocks = Alternation(X, Y, z, Rules(lam), threads).run(100, 1e-5, silent)
    rounds = clocks() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{X.shape[0]:>9}{X.nnz:>11}{Y.nnz:>10}{blocks.clusters.sizes.size:>8}{start[0]:>11.1f}{start[1]:>8.1f}"
        f"{rounds[0]:>17.2f}{rounds[1]:>8.2f}{blocks.n_iter:>8}{1e9 * rounds[0] / (Y.nnz * max(blocks.n_iter, 1)):>19.0f}"
        f"{blocks.captured / Y.nnz:>10.3f}{peak:>10.2f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wiki", action="store_true", help="1.78M rows, 1.6M features, 325K labels, 1575 blocks")
    parser.add_argument("--blocks", type=int, default=128)
    parser.add_argument("--lam", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    threads = thread_count(args.threads)
    print(f"{threads} threads\n{HEADER}", flush=True)
    if args.wiki:
        X, Y = planted(1_778_351, 1_617_899, 325_056)
        measure(X, Y, 1575, args.lam, threads)
        return
    for factor in (1, 4, 16):
        X, Y = planted(20_000 * factor, 50_000, 20_000, features=20, topics=200)
        # lambda grows with the rows, so that the blocks stay the same problem.
        measure(X, Y, args.blocks, args.lam * factor, threads)


if __name__ == "__main__":
    main()
