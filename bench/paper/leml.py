"""Sparse times dense beside SciPy, and LEML's seconds per outer iteration: python bench/paper/leml.py [rows] [rank]"""

import sys
import time

import numpy as np
from scipy import sparse

from blockxmc import LEML
from blockxmc.paper._tall import spmm, transpose


def zipf_csr(n: int, d: int, per_row: int, rng: np.random.Generator) -> sparse.csr_array:
    """Rows of about ``per_row`` columns, drawn as words are: few columns often, many seldom."""
    columns = np.minimum(d ** rng.random((n, per_row)), d - 1).astype(np.int32)
    rows = np.repeat(np.arange(n), per_row)
    X = sparse.csr_array((rng.random(n * per_row, np.float32), (rows, columns.ravel())), shape=(n, d))
    X.sum_duplicates()
    return X


def cpu_seconds(work, repeat: int = 3) -> float:
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    n, rank = (int(a) for a in (sys.argv[1:] + ["20000", "200"][len(sys.argv) - 1 :])[:2])
    rng = np.random.default_rng(0)
    X, Y = zipf_csr(n, n, 120, rng), zipf_csr(n, n // 4, 6, rng)
    Y.data[:] = 1
    Xt = transpose(X)
    print(f"X: {n} x {n}, {X.nnz} non-zeros; {rank} dense columns; CPU seconds, one thread\n")
    print(f"{'product':<12}{'scipy':>9}{'blockxmc':>10}{'ratio':>8}")
    for name, peer, ours in (("X @ W", X, X), ("X.T @ B", X.T, Xt)):
        B = rng.standard_normal((ours.shape[1], rank), np.float32)
        theirs, own = cpu_seconds(lambda p=peer, B=B: p @ B), cpu_seconds(lambda o=ours, B=B: spmm(o, B, 1))
        print(f"{name:<12}{theirs:>9.3f}{own:>10.3f}{theirs / own:>8.2f}")
    print(f"{'transpose':<12}{'':>9}{cpu_seconds(lambda: transpose(X)):>10.3f}   once per training")

    seconds = [cpu_seconds(lambda it=it: LEML(rank=rank, n_iter=it).fit(X, Y), 1) for it in (1, 3)]
    print(f"\nLEML, rank {rank}, {Y.shape[1]} labels: {(seconds[1] - seconds[0]) / 2:.2f} CPU s per outer iteration")


if __name__ == "__main__":
    main()
