"""What each step of the default is worth: it is taken out or changed, one at a time, with several seeds.

    python bench/ablation.py DATA_DIR... [--seeds 5] [--jobs 16] [--rows 80000] [--anew] [--out docs/results]

A seventh of the training rows (at most 6,000, others for each seed) is held out and judges; test rows are not looked at.
Labels that are left with fewer rows than any had before are dropped. Of larger sets, 80,000 random rows are taken (--rows).
Each variant is trained on one thread, some side by side (--jobs), which slows all of them by what they share.

Writes ablation.md and ablation.json; what the JSON file holds already is not run again, but with --anew.
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
from blockxmc.partition import start
from blockxmc.training import settings

NEVER = 10**9
KEYS = ("P@1", "P@3", "P@5")


def lean(**changed):
    return lean_dismec().set_params(**changed)


# Name -> parameters of the classifier, and settings that differ from the default's.
VARIANTS = {
    "default": ({}, {}),
    "80 % of the positives captured": ({"effort": "low"}, {}),
    "no neighbors": ({"n_neighbors": 0}, {}),
    "no reranker": ({}, {"reranker_least_rows": NEVER}),
    "no companions": ({}, {"companion_least_rows": NEVER}),
    "no centroids": ({}, {"centroid_weights": (0.0,)}),
    "no block probabilities": ({}, {"slopes": (0.0,)}),
    "labels learn from two negative blocks": ({}, {"negative_blocks": 2}),
    "a row's labels share nothing": ({}, {"shared_positive": 0.0}),
    "no label is trained again": ({}, {"lost": 1.0}),
    "every label that lost a row is trained again": ({}, {"lost": 0.0}),
    "candidates: 32": ({}, {"candidates": 32}),
    "candidates: 128": ({}, {"candidates": 128}),
    "most blocks: 8": ({}, {"most_blocks": 8}),
    "noise: the best mix alone": ({}, {"noise": 0.001}),
    "labels count alike where rows choose their first block": ({}, {"RARITY": 0.0}),
    "rounds of the alternation until nothing moves": ({}, {"rounds": 100}),
    "start from clusters of rows": ({"partitioner": Partitioner(init="kmeans")}, {}),
    "number of blocks chosen for eight visited": ({}, {"usual_blocks": 8}),
    "blocks until half of the probability": ({}, {"top_p": 0.5}),
    "blocks until nine tenths of it": ({}, {"top_p": 0.9}),
    "no frequent labels": ({}, {"few_blocks": NEVER, "many_blocks": NEVER}),
    "router prune 0.1": ({}, {"router_prune": 0.1}),
    "router tol 0.02": ({}, {"router_tol": 0.02}),
    "router learns from all rows": ({}, {"router_sample": None}),
    "centroid prune 0.05": ({}, {"centroid_prune": 0.05}),
    "held out: one in eighty": ({}, {"held_out_one_in": 80}),
    "reranker of five labels": ({}, {"reranked": 5}),
    "pruned at 0.05": ({"base": lean(prune=0.05)}, {}),
    "weights of 32 bits": ({"weight_bits": 32}, {}),
}


def measure(train, new, seed, params, changed):
    own = {name: value for name, value in changed.items() if name.islower()}
    with (
        patch.object(settings, "SETTINGS", replace(settings.SETTINGS, **own)),
        patch.object(start, "RARITY", changed.get("RARITY", start.RARITY)),
    ):
        began = time.process_time()
        clf = BlockwiseClassifier(n_jobs=1, random_state=seed, **params).fit(*train)
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
    rows = np.arange(labels.shape[0])
    right = np.stack([np.asarray(new[1][rows, np.maximum(best, 0)]).ravel() for best in labels.T], 1)
    return {
        **{f"P@{k}": 100 * metrics.precision_at_k(new[1], labels, k) for k in (1, 3, 5)},
        "calibration_error": metrics.calibration_error(right[labels >= 0], scores[labels >= 0]),
        "train_cpu_s": seconds,
        "batch_us": 1e6 * min(times) / new[0].shape[0],
        "model_mb": size / 1e6,
    }


def run(folder, most, name, seed):
    """A variant on a data set; in a process of its own, which keeps the data for the next."""
    return measure(*split(folder, most, seed), seed, *VARIANTS[name])


@lru_cache(maxsize=1)
def loaded(folder, most):
    train, _ = read_data_dir(folder)
    X, Y = sparse.csr_array(normalize(train.X)), sparse.csr_array(train.Y)
    rows = np.arange(X.shape[0])
    if most and X.shape[0] > most:
        rows = np.sort(np.random.default_rng(7).choice(X.shape[0], most, replace=False))
    return take_rows(X, rows), take_rows(Y, rows)


@lru_cache(maxsize=1)
def split(folder, most, seed):
    X, Y = loaded(folder, most)
    order = np.random.default_rng(seed).permutation(X.shape[0])
    size = min(X.shape[0] // 7, 6000)
    kept, new = np.sort(order[size:]), np.sort(order[:size])
    # A label of which the split leaves a single row, where every label had two, must have its other row among those that
    # judge: that would reward guessing such labels.
    before, after = (np.bincount(part.indices, minlength=Y.shape[1]) for part in (Y, take_rows(Y, kept)))
    Y = sparse.csr_array(Y[:, after >= before[before > 0].min()])
    return tuple((take_rows(X, rows), take_rows(Y, rows)) for rows in (kept, new))


def changes(found, name):
    """Of each set: the change of mean P@1/3/5 per seed, and ratios to the default."""
    out = {}
    for data, variants in found.items():
        base, own = variants.get("default", {}), variants.get(name, {})
        seeds = sorted(set(base) & set(own))
        if seeds:
            change = [np.mean([own[s][key] - base[s][key] for key in KEYS]) for s in seeds]
            ratios = [
                np.median([own[s][key] / base[s][key] for s in seeds])
                for key in ("train_cpu_s", "batch_us", "model_mb")
            ]
            error = np.mean([own[s]["calibration_error"] - base[s]["calibration_error"] for s in seeds])
            out[data] = np.array(change), ratios, error
    return out


def standard_error(values):
    return values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else float("nan")


def table(found):
    sets = list(found)
    heads = ["variant", "mean", *sets, "CPU", "batch", "model", "calibration error"]
    lines = ["# What each step of the default is worth", "", " ".join(__doc__.split("\n\n")[2].split()), ""]
    lines += [
        "Change of the mean of P@1, P@3 and P@5, in points, with its standard error over seeds; ratios to the default's",
        "CPU time in training, batch time and bytes of the model.",
        "",
        "| " + " | ".join(heads) + " |",
        "|---" + "|---:" * (len(heads) - 1) + "|",
    ]
    for name in VARIANTS:
        rows = changes(found, name)
        if name == "default" or not rows:
            continue
        each = {data: (change.mean(), standard_error(change)) for data, (change, _, _) in rows.items()}
        mean = np.mean([value for value, _ in each.values()])
        error = np.sqrt(np.nansum(np.square([error for _, error in each.values()]))) / len(each)
        cells = [f"{each[data][0]:+.2f} ± {each[data][1]:.2f}" if data in each else "–" for data in sets]
        ratios = np.mean([ratio for _, ratio, _ in rows.values()], axis=0)
        calibration = np.mean([error for _, _, error in rows.values()])
        costs = [*(f"{ratio:.2f}" for ratio in ratios), f"{calibration:+.4f}"]
        lines.append(f"| {name} | " + " | ".join([f"**{mean:+.3f}** ± {error:.3f}", *cells, *costs]) + " |")
    lines += [
        "",
        "The default:",
        "",
        "| data | seeds | P@1 | P@3 | P@5 | calibration error |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for data, variants in found.items():
        runs = list(variants["default"].values())
        mean = [np.mean([each[key] for each in runs]) for key in (*KEYS, "calibration_error")]
        lines.append(f"| {data} | {len(runs)} | " + " | ".join(f"{v:.2f}" for v in mean[:3]) + f" | {mean[3]:.3f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=80000, help="training rows of larger sets that are taken; 0: all")
    parser.add_argument("--jobs", type=int, default=1, help="variants that are trained side by side")
    parser.add_argument("--anew", action="store_true", help="run what the JSON file holds already, too")
    options = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the processes that are started from here
    store = options.out / "ablation.json"
    found = json.loads(store.read_text()) if store.exists() and not options.anew else {}
    wanted = []
    for folder in options.folders:
        of_set = found.setdefault(folder.resolve().name, {})
        for seed in range(options.seeds):
            missing = [name for name in VARIANTS if str(seed) not in of_set.get(name, {})]
            wanted += [(folder, options.rows, name, seed) for name in missing]
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        begun = {pool.submit(run, *each): each for each in wanted}
        for done in as_completed(begun):
            folder, _, name, seed = begun[done]
            row = {key: round(value, 4) for key, value in done.result().items()}
            found[folder.resolve().name].setdefault(name, {})[str(seed)] = row
            print(folder.name, name, seed, row, flush=True)
            store.write_text(json.dumps(found) + "\n")
    (options.out / "ablation.md").write_text(table(found))


if __name__ == "__main__":
    main()
