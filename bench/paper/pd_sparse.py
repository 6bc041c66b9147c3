"""PD-Sparse and PPD-Sparse: seconds, gap and precision per setting: python bench/paper/pd_sparse.py DATA_DIR [--normalise].

DATA_DIR holds train.txt and test.txt in XC format (`n d m` header, then `labels feature:value ...` per line).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc import PDSparse, PPDSparse

SETTINGS: list[Any] = [
    PDSparse(lam=0.01),
    PDSparse(lam=0.01, importance_sampling=True),
    PDSparse(lam=0.01, post_solve=False),
    PDSparse(lam=0.1),
    PDSparse(lam=1.0),
    PPDSparse(lam=0.01),
    PPDSparse(lam=0.0),
    PPDSparse(lam=0.1),
]


def read(path: Path) -> tuple[sparse.csr_array, sparse.csr_array]:
    with path.open() as lines:
        n, d, m = map(int, next(lines).split())
        labels, features = [], []
        for line in lines:
            pairs = line.split()
            labels.append([] if not pairs or ":" in pairs[0] else [int(j) for j in pairs.pop(0).split(",")])
            features.append({int(f): float(v) for f, v in (pair.split(":") for pair in pairs)})
    assert len(labels) == n
    y_indptr = np.cumsum([0] + [len(row) for row in labels])
    x_indptr = np.cumsum([0] + [len(row) for row in features])
    Y = sparse.csr_array((np.ones(y_indptr[-1]), [j for row in labels for j in row], y_indptr), shape=(n, m))
    values = [v for row in features for v in row.values()]
    X = sparse.csr_array((np.array(values, np.float32), [f for row in features for f in row], x_indptr), shape=(n, d))
    X.sort_indices()
    return X, Y


def precision(clf: Any, X: sparse.csr_array, Y: sparse.csr_array) -> list[float]:
    hits = np.zeros(5)
    for start in range(0, X.shape[0], 256):
        best = clf.predict_topk(X[start : start + 256], k=5)[0]
        rows = np.repeat(np.arange(start, start + best.shape[0]), 5)
        hits += np.asarray(Y[rows, np.maximum(best.ravel(), 0)]).reshape(best.shape).sum(axis=0)
    return [100 * hits[:k].sum() / k / X.shape[0] for k in (1, 3, 5)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--normalise", action="store_true", help="scale rows to unit length first")
    arguments = parser.parse_args()
    (X, Y), (X_test, Y_test) = (read(arguments.data / f"{part}.txt") for part in ("train", "test"))
    if arguments.normalise:
        X, X_test = normalize(X), normalize(X_test)
    print(f"{'setting':<52} {'CPU s':>8} {'gap':>8} {'certified':>9} {'MB':>10}  P@1 / 3 / 5")
    for clf in SETTINGS:
        start = time.process_time()
        clf.fit(X, Y)
        seconds = time.process_time() - start
        gap = f"{clf.gap_ / max(clf.objective_, 1e-12):.4f}" if hasattr(clf, "gap_") else "-"
        certified = f"{clf.certified_:.4f}" if hasattr(clf, "certified_") else "-"
        scores = " / ".join(f"{p:.2f}" for p in precision(clf, X_test, Y_test))
        megabytes = clf.scorer_.nbytes / 1e6
        name = " ".join(repr(clf).split())
        print(f"{name:<52} {seconds:8.1f} {gap:>8} {certified:>9} {megabytes:10.1f}  {scores}", flush=True)


if __name__ == "__main__":
    main()
