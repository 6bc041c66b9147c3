"""What names of labels teach: texts of Debian packages, whose labels are packages.

    python bench/label_texts.py DEBIAN_SMALL_DIR [--seeds 3] [--out docs/results]

Trains the default three times: without label texts, with every name as the text of its label (`label_texts=names`), and
with every name as a training row of its own, the simple way. In "4,000 rows" only so many random rows are shown; in "a
fifth unseen", one label in five (of those with fewer than a hundred rows) has lost all its training rows. Recall is that of
all pairs of rows and labels whose label has so many training rows. Prints the table and the bars; writes label_texts.md.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import sparse

from blockxmc import BlockwiseClassifier, TextClassifier, metrics
from blockxmc.data.corpus import read_corpus
from blockxmc.data.text import from_texts

WAYS = ("no label texts", "label texts", "as training rows")
GROUPS = {"no rows": (0, 0), "1-3 rows": (1, 3), "4-10 rows": (4, 10)}
# What is asked: P@k within a tenth of a point, and a recall of rare labels that is a point higher.
MOST_LOST, LEAST_GAINED = 0.1, 1.0


def read(folder, most, unseen):
    train, test = (read_corpus(next(folder.glob(f"{part}.jsonl.*"))) for part in ("train", "test"))
    names = sorted({name for row in train.labels for name in row})
    counts = Counter(name for row in train.labels for name in row)
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(train.texts))[:most])
    drawn = rng.random(len(names)) < (0.2 if unseen else 0)
    gone = {name for name, out in zip(names, drawn, strict=True) if out and counts[name] < 100}
    labels = [[name for name in train.labels[i] if name not in gone] for i in rows]
    return [train.texts[i] for i in rows], labels, test, names


def train_and_measure(way, seed, texts, labels, test, names):
    own = names if way == "label texts" else None
    counted = Counter(name for row in labels for name in row)
    counts = np.array([counted[name] for name in names])
    if way == "as training rows":
        texts, labels = texts + names, labels + [[name] for name in names]
    start = time.process_time()
    model = TextClassifier(BlockwiseClassifier(n_jobs=1, random_state=seed)).fit(texts, labels, label_texts=own)
    seconds = time.process_time() - start
    known = list(model.label_names_)
    X = model.vectorizer_.transform(test.texts)
    start = time.process_time()
    ids, _ = model.classifier_.predict_topk(X, 20)
    serving = 1e6 * (time.process_time() - start) / X.shape[0]
    # Judged on all names, those that a model does not know included.
    place = {name: j for j, name in enumerate(names)}
    order = np.array([place[name] for name in known] + [-1])
    ids = order[ids]
    Y = from_texts(test.texts, test.labels, model.vectorizer_, names).Y
    result = {f"P@{k}": 100 * metrics.precision_at_k(Y, ids, k) for k in (1, 3, 5)}
    for group, (low, high) in GROUPS.items():
        for k in (5, 20):
            result[f"R@{k}, {group}"] = recall(Y, ids[:, :k], (counts >= low) & (counts <= high))
    return result | {
        "candidates": model.classifier_.cost_["candidates"],
        "µs per row": serving,
        "training s": seconds,
    }


def recall(Y, ids, which):
    """Share of the pairs of rows and these labels that are among the answers; NaN where there is none."""
    own = sparse.csr_array(Y @ sparse.diags_array(which.astype(np.float32)))
    own.eliminate_zeros()
    rows = np.repeat(np.arange(ids.shape[0]), ids.shape[1])
    hits = np.asarray(own[rows, np.maximum(ids, 0).ravel()]).ravel() * (ids.ravel() >= 0)
    return 100 * float(hits.sum()) / own.nnz if own.nnz else float("nan")


def bars(name, mean):
    """Whether what is asked is met."""
    without, with_texts = mean["no label texts"], mean["label texts"]
    lost = max(without[f"P@{k}"] - with_texts[f"P@{k}"] for k in (1, 3, 5))
    gained = with_texts["R@5, 1-3 rows"] - without["R@5, 1-3 rows"]
    met = "met" if lost <= MOST_LOST and gained >= LEAST_GAINED else "not met"
    return f"{name}: P@1/3/5 lose at most {lost:+.2f}, R@5 of labels with 1-3 rows gains {gained:+.2f}: {met}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sets = {
        "debian-small": (None, False),
        "debian-small, 4,000 rows": (4000, False),
        "debian-small, a fifth unseen": (None, True),
    }
    lines, verdicts = [], []
    for name, (most, unseen) in sets.items():
        data = read(args.folder, most, unseen)
        mean = {}
        for way in WAYS:
            runs = [train_and_measure(way, seed, *data) for seed in range(args.seeds)]
            mean[way] = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            print(name, way, {key: round(value, 2) for key, value in mean[way].items()}, flush=True)
        verdicts.append(bars(name, mean))
        lines += [f"## {name}", "", "| | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
        for key in mean[WAYS[0]]:
            values = [mean[way][key] for way in WAYS]
            if not np.isnan(values).all():
                lines.append(f"| {key} | " + " | ".join(f"{value:.2f}" for value in values) + " |")
        lines.append("")
    print(*verdicts, sep="\n")
    if args.out is not None:
        head = [
            "# Label texts: what names teach labels with few rows or none",
            "",
            f"`bench/label_texts.py`, mean of {args.seeds} seeds, one thread of a loaded machine; test rows judge.",
            "The text of a label is no more than the name of a package. Recall is that of all pairs whose label has so",
            "many training rows. The other sets come without texts.",
            "",
            *(f"- {verdict}" for verdict in verdicts),
            "",
        ]
        (args.out / "label_texts.md").write_text("\n".join(head + lines))


if __name__ == "__main__":
    main()
