"""The router beside LIBLINEAR's logistic regression (through scikit-learn), one-vs-rest over q blocks, tolerance 0.01.

    python bench/router.py DATA_DIR [--blocks 16 64] [--threads 2]

Blocks are k-means clusters of the rows. CPU seconds of the process, all threads together, interleaved in one run; "agree"
is the share of training rows sent to the same block.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from blockxmc.data import read_xc
from blockxmc.routing import Router


def cpu_seconds(work):
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def one_vs_rest(model, X, blocks, q):
    return [clone(model).fit(X, blocks == block) for block in range(q)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--blocks", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    X = read_xc(args.data / "train.txt").X
    X64 = sparse.csr_matrix(
        (X.data.astype(np.float64), X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape
    )
    peers = {
        "logistic": LogisticRegression(solver="liblinear", fit_intercept=False, tol=0.01),
        "squared_hinge": LinearSVC(dual=False, fit_intercept=False, tol=0.01),
    }
    print(f"{args.data.name}: {X.shape[0]} rows, {X.nnz / X.shape[0]:.0f} features each")
    print(f"{'blocks':>6} {'loss':14}{'blockxmc CPU s':>15}{'LIBLINEAR CPU s':>17}{'ratio':>8}{'agree':>8}")
    for wanted in args.blocks:
        found = MiniBatchKMeans(wanted, random_state=0, n_init=1, batch_size=4096).fit_predict(X64)
        blocks = np.unique(found, return_inverse=True)[1]
        q = int(blocks.max()) + 1
        for loss, peer in peers.items():
            router = Router(loss=loss)
            here, _ = cpu_seconds(lambda router=router, blocks=blocks: router.fit(X, blocks, threads=args.threads))
            there, theirs = cpu_seconds(lambda peer=peer, blocks=blocks, q=q: one_vs_rest(peer, X64, blocks, q))
            best = np.argmax([model.decision_function(X64) for model in theirs], axis=0)
            agree = float((router.blocks(X, 1)[:, 0] == best).mean())
            print(f"{q:6} {loss:14}{here:15.2f}{there:17.2f}{there / here:8.1f}{agree:8.3f}")


if __name__ == "__main__":
    # LIBLINEAR calls BLAS on short vectors: idle BLAS threads would spin and be counted as its CPU time.
    with threadpool_limits(1):
        main()
