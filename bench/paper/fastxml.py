"""FastXML on a data folder: training CPU seconds, time per predicted row and precision, rows as given and L2-normalised.

usage: python bench/paper/fastxml.py DATA_DIR [N_TREES]      (DATA_DIR holds train.txt and test.txt in XC format)
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from sklearn.preprocessing import normalize

from blockxmc import metrics
from blockxmc._core.matrix import as_csr
from blockxmc.baselines import FastXML
from blockxmc.data import read_xc


def cpu_seconds(call):
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def main() -> None:
    folder, n_trees = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50
    train, test = read_xc(folder / "train.txt"), read_xc(folder / "test.txt")
    (n, d), m = train.X.shape, train.Y.shape[1]
    print(f"{folder.name}: {n} rows, {d} features, {m} labels, {n_trees} trees")
    columns = ("train CPU s", "batch µs", "one row µs", "products", "candidates", "P@1 / 3 / 5")
    print(f"{'rows':<14}" + "".join(f"{title:>13}" for title in columns))
    for name, prepare in (("as given", as_csr), ("L2-normalised", lambda X: as_csr(normalize(X)))):
        X, X_test = prepare(train.X), prepare(test.X)
        train_s, model = cpu_seconds(lambda X=X: FastXML(n_trees=n_trees).fit(X, train.Y))
        model.set_params(n_jobs=1)
        batch_s, (labels, _) = cpu_seconds(lambda model=model, X=X_test: model.predict_topk(X, k=5))
        singles = [X_test[[i]] for i in range(min(500, X_test.shape[0]))]
        one_s, _ = cpu_seconds(lambda model=model, rows=singles: [model.predict_one(r.indices, r.data) for r in rows])
        precision = " / ".join(f"{100 * metrics.precision_at_k(test.Y, labels, k):.2f}" for k in (1, 3, 5))
        figures = (f"{train_s:.1f}", f"{1e6 * batch_s / X_test.shape[0]:.0f}", f"{1e6 * one_s / len(singles):.0f}")
        counts = (f"{model.cost_['products']:.0f}", f"{model.cost_['candidates']:.0f}")
        print(f"{name:<14}" + "".join(f"{figure:>13}" for figure in figures + counts) + "   " + precision)


if __name__ == "__main__":
    main()
