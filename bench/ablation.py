"""What each part of the default is worth: it is taken out or changed, one part at a time.

    python bench/ablation.py DATA_DIR... [--out docs/results]

A seventh of the training rows (at most 6,000) is held out and judges; the test rows are not looked at. Labels that are left
with fewer rows than any had before are dropped. Writes ablation.md and ablation.json; variants that the JSON file holds
already are not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc import BlockwiseClassifier, Partitioner, metrics
from blockxmc._core.matrix import take_rows
from blockxmc.classifier import lean_dismec
from blockxmc.data import read_data_dir
from blockxmc.training.shared import fit as shared_fit
from blockxmc.training.shared import labels as shared
from blockxmc.training.shared import mix as merging
from blockxmc.training.shared import reranker


def lean(**changed):
    return lean_dismec().set_params(**changed)


# Name -> parameters of the classifier, and what is put in place of parts of the library: (where, name, value).
VARIANTS = {
    "default": ({}, []),
    "labels learn from assigned rows only": ({}, [(shared_fit, "NEGATIVE_BLOCKS", 0)]),
    "... from one routed block": ({}, [(shared_fit, "NEGATIVE_BLOCKS", 1)]),
    "... from four": ({}, [(shared_fit, "NEGATIVE_BLOCKS", 4)]),
    "block probabilities not merged": ({}, [(merging, "SLOPES", (0.0, 0.0))]),
    "rare labels not stretched": ({}, [(merging, "STRETCHES", (0.0,))]),
    "no likeness to label means": ({}, [(merging, "LIKENESSES", (0.0,))]),
    "neither of the two": ({}, [(merging, "STRETCHES", (0.0,)), (merging, "LIKENESSES", (0.0,))]),
    "no neighbors": ({"n_neighbors": 0}, []),
    "five neighbors": ({"n_neighbors": 5}, []),
    "twenty neighbors": ({"n_neighbors": 20}, []),
    "no second look": ({}, [(reranker, "LEAST_ROWS", 10**9)]),
    "neither neighbors nor a second look": ({"n_neighbors": 0}, [(reranker, "LEAST_ROWS", 10**9)]),
    "second look at five labels": ({}, [(reranker, "FIRST", 5)]),
    "second look at sixteen": ({}, [(reranker, "FIRST", 16)]),
    "C = 1": ({"base": lean(C=1.0)}, []),
    "C = 0.25": ({"base": lean(C=0.25)}, []),
    "pruned at 0.05": ({"base": lean(prune=0.05)}, []),
    "pruned at 0.2": ({"base": lean(prune=0.2)}, []),
    "single precision": ({"weight_bits": 32}, []),
    "weights of 8 bits": ({"weight_bits": 8}, []),
    "router learns from all rows": ({}, [(shared, "ROUTER_SAMPLE", None)]),
    "no common labels": ({}, [(shared, "FEW_BLOCKS", 10**9), (shared, "MANY_BLOCKS", 10**9)]),
    "common beyond two blocks": ({}, [(shared, "FEW_BLOCKS", 2)]),
    "common beyond eight blocks": ({}, [(shared, "FEW_BLOCKS", 8)]),
    "80 % of the positives captured": ({}, [(shared, "CAPTURED_FLOOR", 0.8)]),
    "all positives captured": ({}, [(shared, "CAPTURED_FLOOR", 1.0)]),
    "start from clusters of rows": ({"partitioner": Partitioner(init="kmeans")}, []),
    "cost objective": ({"partitioner": Partitioner(init="labels", objective="cost")}, []),
    "two blocks visited": ({"route": 2}, []),
    "four blocks visited": ({"route": 4}, []),
    "eight blocks visited": ({"route": 8}, []),
    "blocks until half of the probability": ({"route": 0.5}, []),
    "blocks until seven tenths of it": ({"route": 0.7}, []),
    "blocks until nine tenths of it": ({"route": 0.9}, []),
    "two partitions": ({"n_partitions": 2}, []),
}


def measure(train, new, params, patches):
    with ExitStack() as stack:
        for place, name, value in patches:
            stack.enter_context(patch.object(place, name, value))
        start = time.process_time()
        clf = BlockwiseClassifier(n_jobs=1, **params).fit(*train)
        seconds = time.process_time() - start
    labels, _ = clf.predict_topk(new[0], 5)
    times = []
    for _ in range(3):
        start = time.process_time()
        clf.predict_topk(new[0], 5)
        times.append(time.process_time() - start)
    with tempfile.TemporaryDirectory() as folder:
        clf.save(Path(folder) / "model")
        size = sum(file.stat().st_size for file in (Path(folder) / "model").rglob("*") if file.is_file())
    return {
        **{f"P@{k}": 100 * metrics.precision_at_k(new[1], labels, k) for k in (1, 3, 5)},
        "candidates": clf.cost_["candidates"],
        "train_cpu_s": seconds,
        "batch_us": 1e6 * min(times) / new[0].shape[0],
        "model_mb": size / 1e6,
    }


def split(folder):
    train, _ = read_data_dir(folder)
    X = sparse.csr_array(normalize(train.X))
    order = np.random.default_rng(0).permutation(X.shape[0])
    size = min(X.shape[0] // 7, 6000)
    kept, new = np.sort(order[size:]), np.sort(order[:size])
    # A label of which the split leaves a single row, where every label had two, must have its other row among those that
    # judge: that would reward guessing such labels.
    before, after = (np.bincount(Y.indices, minlength=Y.shape[1]) for Y in (train.Y, take_rows(train.Y, kept)))
    Y = sparse.csr_array(train.Y[:, after >= before[before > 0].min()])
    return tuple((take_rows(X, rows), take_rows(Y, rows)) for rows in (kept, new))


def table(found):
    titles = ["variant", "P@1", "P@3", "P@5", "candidates", "training CPU s", "batch µs", "model MB"]
    lines = ["# What each part of the default is worth", "", " ".join(__doc__.split("\n\n")[2].split()), ""]
    for data, rows in found.items():
        base = rows["default"]
        lines += [f"## {data}", "", "| " + " | ".join(titles) + " |", "|---" + "|---:" * (len(titles) - 1) + "|"]
        for name, row in rows.items():
            own = [f"{row[f'P@{k}']:.2f} ({row[f'P@{k}'] - base[f'P@{k}']:+.2f})" for k in (1, 3, 5)]
            others = [
                f"{row['candidates']:,.0f}",
                *(f"{row[key]:.1f}" for key in ("train_cpu_s", "batch_us", "model_mb")),
            ]
            lines.append(f"| {name} | " + " | ".join([*own, *others]) + " |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    options = parser.parse_args()
    store = options.out / "ablation.json"
    found = json.loads(store.read_text()) if store.exists() else {}
    for folder in options.folders:
        train, new = split(folder)
        rows = found.setdefault(folder.resolve().name, {})
        for name, (params, patches) in VARIANTS.items():
            if name not in rows:
                rows[name] = measure(train, new, params, patches)
                print(folder.name, name, {key: round(value, 2) for key, value in rows[name].items()}, flush=True)
                store.write_text(json.dumps(found, indent=1) + "\n")
    (options.out / "ablation.md").write_text(table(found))


if __name__ == "__main__":
    main()
