"""What each part of the default is worth: it is taken out or changed, one part at a time.

    python bench/ablation.py DATA_DIR... [--jobs 16] [--anew] [--out docs/results]

A seventh of the training rows (at most 6,000) is held out and judges; the test rows are not looked at. Labels that are left
with fewer rows than any had before are dropped. Writes ablation.md and ablation.json; variants that the JSON file holds
already are not run again, but with --anew. Each variant is trained on one thread; --jobs so many side by side, which slows
all of them by what they share.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

from blockxmc import BlockwiseClassifier, Partitioner, metrics
from blockxmc._core.matrix import take_rows
from blockxmc.classifier import lean_dismec
from blockxmc.data import read_data_dir
from blockxmc.model import neighbors
from blockxmc.partition import start
from blockxmc.training import settings

NEVER = 10**9


def lean(**changed):
    return lean_dismec().set_params(**changed)


# Name -> parameters of the classifier, and settings of shared training that differ from the default's.
VARIANTS = {
    "default": ({}, {}),
    # blocks
    "90 % of the positives captured": ({}, {"captured_floor": 0.9}),
    "all positives captured": ({}, {"captured_floor": 1.0}),
    "labels count alike where rows choose their first block": ({}, {"RARITY": 0.0}),
    "number of blocks chosen for two visited": ({}, {"usual_blocks": 2}),
    "number of blocks chosen for eight visited": ({}, {"usual_blocks": 8}),
    "one round of the alternation": ({}, {"rounds": 1}),
    "rounds of the alternation until nothing moves": ({}, {"rounds": 100}),
    "start from clusters of rows": ({"partitioner": Partitioner(init="kmeans")}, {}),
    "cost objective": ({"partitioner": Partitioner(init="labels", objective="cost")}, {}),
    "two blocks visited": ({"route": 2}, {}),
    "four blocks visited": ({"route": 4}, {}),
    "eight blocks visited": ({"route": 8}, {}),
    "blocks until half of the probability": ({"route": 0.5}, {}),
    "blocks until seven tenths of it": ({"route": 0.7}, {}),
    "blocks until nine tenths of it": ({"route": 0.9}, {}),
    "most blocks: 8": ({}, {"most_blocks": 8}),
    "most blocks: 32": ({}, {"most_blocks": 32}),
    "no frequent labels": ({}, {"few_blocks": NEVER, "many_blocks": NEVER}),
    "frequent beyond two blocks": ({}, {"few_blocks": 2}),
    "frequent beyond eight blocks": ({}, {"few_blocks": 8}),
    # router
    "router taught its own block alone": ({}, {"router_targets": 1}),
    "router taught three more blocks": ({}, {"router_targets": 3}),
    "router taught blocks half as much home": ({}, {"router_near": 0.5}),
    "router taught blocks a tenth as much home": ({}, {"router_near": 0.1}),
    "router taught by any share of a label's positives": ({}, {"router_home": 0.0}),
    "router prune 0.1": ({}, {"router_prune": 0.1}),
    "router prune 0.2": ({}, {"router_prune": 0.2}),
    "router of 32 bits": ({}, {"router_bits": 32}),
    "router tol 0.02": ({}, {"router_tol": 0.02}),
    "router tol 0.5": ({}, {"router_tol": 0.5}),
    "router learns from all rows": ({}, {"router_sample": None}),
    "router learns from 1,024 other rows": ({}, {"router_sample": 1024}),
    # labels
    "labels learn from assigned rows only": ({}, {"negative_blocks": 0}),
    "labels learn from one negative block": ({}, {"negative_blocks": 1}),
    "labels learn from two negative blocks": ({}, {"negative_blocks": 2}),
    "labels learn from four negative blocks": ({}, {"negative_blocks": 4}),
    "labels of few positives learn from all their rows": ({}, {"few_positives": 0}),
    "few positives: two at most": ({}, {"few_positives": 2}),
    "few positives: eight at most": ({}, {"few_positives": 8}),
    "few positives: 64 nearest rows": ({}, {"nearest": 64}),
    "a row's labels share nothing": ({}, {"shared_positive": 0.0}),
    "a row's labels share it evenly": ({}, {"shared_positive": 1.0}),
    "C = 1": ({"base": lean(C=1.0)}, {}),
    "C = 0.25": ({"base": lean(C=0.25)}, {}),
    "pruned at 0.05": ({"base": lean(prune=0.05)}, {}),
    "pruned at 0.2": ({"base": lean(prune=0.2)}, {}),
    "solved to 0.02": ({"base": lean(tol=0.02)}, {}),
    "solved to 0.2": ({"base": lean(tol=0.2)}, {}),
    "float32 weights": ({"weight_bits": 32}, {}),
    "weights of 8 bits": ({"weight_bits": 8}, {}),
    "centroid prune 0.05": ({}, {"centroid_prune": 0.05}),
    "centroid prune 0.2": ({}, {"centroid_prune": 0.2}),
    # held-out rows
    "held out: one in eighty": ({}, {"held_out_one_in": 80}),
    "held out: one in twenty, up to 4,096": ({}, {"held_out_one_in": 20, "held_out_most": 4096}),
    "held out: 512 at least": ({}, {"held_out_least": 512}),
    "trained again: labels that lost any row": ({}, {"lost": 0.0, "lost_of_many": 0.0}),
    "trained again: labels that lost a third": ({}, {"lost": 1 / 3, "lost_of_many": 1 / 3}),
    "trained again: labels of many positives as others": ({}, {"many_positives": NEVER}),
    "trained again: many positives from 100": ({}, {"many_positives": 100}),
    # score mix
    "block probabilities not merged": ({}, {"slopes": (0.0, 0.0)}),
    "rare labels not stretched": ({}, {"stretches": (0.0,)}),
    "no centroids": ({}, {"centroid_weights": (0.0,)}),
    "neither stretch nor centroids": ({}, {"stretches": (0.0,), "centroid_weights": (0.0,)}),
    "candidates mixed: 16": ({}, {"mixed_candidates": 16}),
    "candidates mixed: 64": ({}, {"mixed_candidates": 64}),
    "candidates mixed by slope 0.5": ({}, {"middle_slope": 0.5}),
    "noise 0.01: the best mix alone": ({}, {"noise": 0.01}),
    "noise 0.2": ({}, {"noise": 0.2}),
    "clearly better: one standard error": ({}, {"clearly": 1.0}),
    # neighbors
    "no neighbors": ({"n_neighbors": 0}, {}),
    "five neighbors": ({"n_neighbors": 5}, {}),
    "twenty neighbors": ({"n_neighbors": 20}, {}),
    "neighbors of 16 bits": ({}, {"neighbor_bits": 16}),
    "neighbors compared by 12 features": ({}, {"MOST_FEATURES": 12}),
    "neighbors compared by 48 features": ({}, {"MOST_FEATURES": 48}),
    # reranker
    "no reranker": ({}, {"reranker_least_rows": NEVER}),
    "neither neighbors nor reranker": ({"n_neighbors": 0}, {"reranker_least_rows": NEVER}),
    "reranker of five labels": ({}, {"reranked": 5}),
    "reranker of sixteen labels": ({}, {"reranked": 16}),
    "reranker rows: 100 are enough": ({}, {"reranker_least_rows": 100}),
    "reranker pull 0.001": ({}, {"reranker_pull": 0.001}),
    "reranker pull 0.1": ({}, {"reranker_pull": 0.1}),
    "reranker pull towards a score weight of 2": ({}, {"reranker_score_weight": 2.0}),
    "reranker counts positives from 1": ({}, {"reranker_few_positives": 1}),
    "reranker bounds at 0.02": ({}, {"reranker_outermost": 0.02}),
    # companions
    "no companions": ({}, {"companion_least_rows": NEVER}),
    "companions: pairs that one row carries": ({}, {"companion_rows": 1}),
    # calibration
    "calibrated on 32 labels": ({}, {"calibrated": 32}),
    "calibrated on 256 labels": ({}, {"calibrated": 256}),
}


def measure(train, new, params, changed):
    features, rarity = changed.get("MOST_FEATURES", neighbors.MOST_FEATURES), changed.get("RARITY", start.RARITY)
    own = {name: value for name, value in changed.items() if name.islower()}
    with (
        patch.object(settings, "SETTINGS", replace(settings.SETTINGS, **own)),
        patch.object(neighbors, "MOST_FEATURES", features),
        patch.object(start, "RARITY", rarity),
    ):
        began = time.process_time()
        clf = BlockwiseClassifier(n_jobs=1, **params).fit(*train)
        seconds = time.process_time() - began
    labels, scores = clf.predict_topk(new[0], 5)
    times = []
    for _ in range(3):
        began = time.process_time()
        clf.predict_topk(new[0], 5)
        times.append(time.process_time() - began)
    with tempfile.TemporaryDirectory() as folder:
        clf.save(Path(folder) / "model")
        size = sum(file.stat().st_size for file in (Path(folder) / "model").rglob("*") if file.is_file())
    right = np.stack(
        [np.asarray(new[1][np.arange(labels.shape[0]), np.maximum(best, 0)]).ravel() for best in labels.T], 1
    )
    return {
        **{f"P@{k}": 100 * metrics.precision_at_k(new[1], labels, k) for k in (1, 3, 5)},
        "calibration_error": metrics.calibration_error(right[labels >= 0], scores[labels >= 0]),
        "candidates": clf.cost_["candidates"],
        "train_cpu_s": seconds,
        "batch_us": 1e6 * min(times) / new[0].shape[0],
        "model_mb": size / 1e6,
    }


def run(folder, name):
    """A variant on a data set; in a process of its own, which keeps the data for the next."""
    return measure(*split(folder), *VARIANTS[name])


@lru_cache(maxsize=1)
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
    titles = [
        "variant",
        "P@1",
        "P@3",
        "P@5",
        "calibration error",
        "candidates",
        "training CPU s",
        "batch µs",
        "model MB",
    ]
    lines = ["# What each part of the default is worth", "", " ".join(__doc__.split("\n\n")[2].split()), ""]
    for data, rows in found.items():
        base = rows["default"]
        lines += [f"## {data}", "", "| " + " | ".join(titles) + " |", "|---" + "|---:" * (len(titles) - 1) + "|"]
        for name, row in rows.items():
            own = [f"{row[f'P@{k}']:.2f} ({row[f'P@{k}'] - base[f'P@{k}']:+.2f})" for k in (1, 3, 5)]
            others = [
                f"{row['calibration_error']:.3f}",
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
    parser.add_argument("--jobs", type=int, default=1, help="variants that are trained side by side")
    parser.add_argument("--anew", action="store_true", help="run variants that the JSON file holds already, too")
    options = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the processes that are started from here
    store = options.out / "ablation.json"
    found = json.loads(store.read_text()) if store.exists() else {}
    wanted = []
    for folder in options.folders:
        rows = found.setdefault(folder.resolve().name, {})
        if options.anew:
            rows.clear()
        wanted += [(folder, name) for name in VARIANTS if name not in rows]
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        begun = {pool.submit(run, *each): each for each in wanted}
        for done in as_completed(begun):
            folder, name = begun[done]
            row = found[folder.resolve().name][name] = done.result()
            print(folder.name, name, {key: round(value, 2) for key, value in row.items()}, flush=True)
            store.write_text(json.dumps(in_order(found), indent=1) + "\n")
    (options.out / "ablation.md").write_text(table(in_order(found)))


def in_order(found):
    """Variants as they are listed here, the others of an earlier page behind them; data sets without any are left out."""
    order = {name: place for place, name in enumerate(VARIANTS)}
    return {
        data: dict(sorted(rows.items(), key=lambda row: order.get(row[0], len(order))))
        for data, rows in found.items()
        if rows
    }


if __name__ == "__main__":
    main()
