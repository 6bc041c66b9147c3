"""DiSMEC beside LIBLINEAR (through scikit-learn), one machine per label, same objective and stopping rule.

    python bench/dismec.py DATA_DIR [--labels 48] [--threads 2] [--full]

CPU seconds of the process, all threads together. The peers train a random sample of the labels, one after the other on
data converted beforehand, interleaved with ours on the same sample; "all labels" scales that up, and with --full ours is
also measured on all labels. "excess" is the mean relative distance of the objective from its minimum.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from blockxmc import DiSMEC, metrics
from blockxmc._core.matrix import as_csr, as_indicator
from blockxmc._core.progress import Reporter
from blockxmc.data import read_xc
from blockxmc.learners._learner import Context


def cpu_seconds(work):
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def ours(X, Y, threads, **params):
    with Reporter().phase("") as silent:
        weights = DiSMEC(**params)._train(as_csr(X), as_indicator(Y), Context(threads, 0, silent))
    return np.vstack([weights.coef.toarray(), weights.bias[None]])


def peer(X, Y, **params):
    columns = []
    for j in range(Y.shape[1]):
        model = LinearSVC(**params).fit(X, Y[:, [j]].toarray().ravel())
        columns.append(np.append(model.coef_.ravel(), model.intercept_))
    return np.array(columns).T


def objectives(X, Y, W):
    margins = (2 * Y.toarray() - 1) * (X @ W[:-1] + W[-1])
    return 0.5 * (W**2).sum(axis=0) + (np.maximum(0, 1 - margins) ** 2).sum(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--labels", type=int, default=48, help="size of the sample the peers train")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--full", action="store_true", help="train all labels with ours, and measure P@k on the test rows"
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)

    train = read_xc(args.data / "train.txt")
    X, Y = train.X, train.Y
    usable = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1]) > 0)
    sample = np.sort(np.random.default_rng(0).choice(usable, min(args.labels, usable.size), replace=False))
    few = sparse.csr_array(Y[:, sample])
    X64 = sparse.csr_matrix(
        (X.data.astype(np.float64), X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape
    )

    methods = {
        "blockxmc": lambda labels: ours(X, labels, args.threads, prune=0.0),
        "LIBLINEAR primal, tol 0.01": lambda labels: peer(X64, labels, dual=False, tol=0.01),
        "LIBLINEAR dual, tol 0.1": lambda labels: peer(X64, labels, dual=True, tol=0.1, random_state=0),
        "LIBLINEAR dual, tol 0.01": lambda labels: peer(X64, labels, dual=True, tol=0.01, random_state=0),
    }
    spent = dict.fromkeys(methods, 0.0)
    excess = dict.fromkeys(methods, 0.0)
    for start in range(0, sample.size, 16):
        labels = sparse.csr_array(few[:, start : start + 16])
        best = objectives(X64, labels, ours(X, labels, args.threads, prune=0.0, tol=1e-5))
        for name, method in methods.items():
            seconds, weights = cpu_seconds(lambda method=method, labels=labels: method(labels))
            spent[name] += seconds
            excess[name] += float((objectives(X64, labels, weights) / best - 1).sum()) / sample.size

    print(f"{args.data.name}: {X.shape[0]} rows, {X.nnz / X.shape[0]:.0f} features each, {Y.shape[1]} labels")
    print(f"{'':28}{'CPU s, sample':>14}{'all labels':>12}{'x blockxmc':>12}{'excess':>10}")
    for name, seconds in spent.items():
        whole = seconds * usable.size / sample.size
        print(f"{name:28}{seconds:14.2f}{whole:12.1f}{seconds / spent['blockxmc']:12.1f}{excess[name]:10.1e}")
    if args.full:
        seconds, model = cpu_seconds(lambda: DiSMEC(n_jobs=args.threads).fit(X, Y))
        test = read_xc(args.data / "test.txt")
        labels, _ = model.predict_topk(test.X, k=5)
        scores = " ".join(f"{100 * metrics.precision_at_k(test.Y, labels, k):.2f}" for k in (1, 3, 5))
        print(f"blockxmc, all labels at once: {seconds:.1f} CPU s; P@1/3/5 {scores}")


if __name__ == "__main__":
    # LIBLINEAR calls BLAS on short vectors: idle BLAS threads would spin and be counted as its CPU time.
    with threadpool_limits(1):
        main()
