"""What extra columns cost beside words, and what they bring.

    python bench/extra.py ELIFE_DIR DEBIAN_DIR [--turns 3] [--out docs/results]

Cost on elife-keywords, whose words come as features: 384 dense columns (its rows in 384 directions, turned at random, so
that all columns of a row are filled) beside them, at a weight of 0.5; the choice of the weight is timed with the training.
Classifiers with and without columns are trained in turns and asked in turns, in CPU time of one thread; the ratios are
medians over the turns. Use on debian-small: its texts with `extra=` their letters in 384 directions, and noise. Writes
extra.md.
"""

from __future__ import annotations

import argparse
import os
import time
import zlib
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

from blockxmc import BlockwiseClassifier, TextClassifier, metrics
from blockxmc.data import read_data_dir
from blockxmc.data.corpus import read_corpus
from blockxmc.data.extra import beside, large_values
from blockxmc.data.text import from_texts
from blockxmc.training.extra import best_extra_weight

WIDTH, WEIGHT, SERVED = 384, 0.5, 15


def precision(Y, labels):
    return [100 * metrics.precision_at_k(Y, labels, k) for k in (1, 3, 5)]


def cost(folder, turns):
    """Seconds of training and of the choice, microseconds per served row, precision, and ratios: with columns, without."""
    train, test = read_data_dir(folder)
    words = [sparse.csr_array(normalize(part.X)).astype(np.float32) for part in (train, test)]
    svd = TruncatedSVD(WIDTH, random_state=0, n_iter=2).fit(words[0])
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, WIDTH)))[0]
    columns = [np.asarray(normalize(svd.transform(part)) @ turned, np.float32) for part in words]
    both = [beside(part, large_values(extra * np.float32(WEIGHT))) for part, extra in zip(words, columns, strict=True)]
    sides = {"words": words, "words and columns": both}
    seconds = {name: [] for name in (*sides, "choice of the weight")}
    served, models = {name: [] for name in sides}, {}
    for _ in range(turns):
        for name, (X, _) in sides.items():
            models[name] = in_cpu_time(seconds[name], lambda X=X: BlockwiseClassifier(n_jobs=1).fit(X, train.Y))
        chosen = in_cpu_time(seconds["choice of the weight"], lambda: best_extra_weight(words[0], columns[0], train.Y))
        print({name: np.round(values, 1) for name, values in seconds.items()}, flush=True)
    found = {}
    for _ in range(SERVED):  # both in turns: what else the machine does slows both
        for name, (_, new) in sides.items():
            labels, _ = in_cpu_time(served[name], lambda name=name, new=new: models[name].predict_topk(new, 5))
            found[name] = precision(test.Y, labels)
    pairs = zip(seconds["words"], seconds["words and columns"], seconds["choice of the weight"], strict=True)
    longer = float(np.median([(more + choice) / plain for plain, more, choice in pairs]))
    slower = float(np.median(np.array(served["words and columns"]) / served["words"]))
    trained = {name: float(np.median(values)) for name, values in seconds.items()}
    served = {name: 1e6 * float(np.median(values)) / test.X.shape[0] for name, values in served.items()}
    return trained, served, found, longer, slower, chosen


def in_cpu_time(seconds, task):
    """What a task returns; its CPU seconds are added to a list."""
    start = time.process_time()
    done = task()
    seconds.append(time.process_time() - start)
    return done


def noise(texts):
    return np.stack([np.random.default_rng(zlib.crc32(text.encode())).normal(size=WIDTH) for text in texts])


def use(folder):
    """Weight and P@1/3/5 without extra columns, with letters, and with noise."""
    train, test = (read_corpus(folder / f"{part}.jsonl.gz") for part in ("train", "test"))
    letters = make_pipeline(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), min_df=5, sublinear_tf=True),
        TruncatedSVD(WIDTH, random_state=0, n_iter=2),
    )
    found = {}
    for name, extra in {"words": None, "and letters": letters, "and noise": noise}.items():
        model = TextClassifier(BlockwiseClassifier(n_jobs=1), extra=extra).fit(train.texts, train.labels)
        data = from_texts(test.texts, test.labels, model.vectorizer_, list(model.label_names_))
        weight = getattr(model, "extra_weight_", 0.0)
        found[name] = [weight, *precision(data.Y, model.classifier_.predict_topk(data.X, 5)[0])]
        print(name, found[name], flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("elife", type=Path)
    parser.add_argument("debian", type=Path)
    parser.add_argument("--turns", type=int, default=3, help="trainings of each")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    trained, served, found, longer, slower, chosen = cost(options.elife, options.turns)
    how = f"CPU time of one thread; load {before:.1f} before and {os.getloadavg()[0]:.1f} after"
    lines = ["# Extra columns", "", f"`bench/extra.py`, {how}.", ""]
    lines += [
        f"elife-keywords, {WIDTH} columns beside words, at a weight of {WEIGHT} (the trial chooses {chosen}):",
        "",
    ]
    lines += ["| | training, s | serving, µs per row | P@1 | P@3 | P@5 |", "|---|---:|---:|---:|---:|---:|"]
    for name, values in found.items():
        numbers = " | ".join(f"{value:.2f}" for value in values)
        lines.append(f"| {name} | {trained[name]:.1f} | {served[name]:.0f} | {numbers} |")
    lines += ["", f"The choice of the weight takes {trained['choice of the weight']:.1f} s. With it, training takes"]
    lines += [f"{longer:.2f} times as long as without columns (median of {options.turns} pairs of trainings), serving"]
    lines += [f"{slower:.2f} times (median of {SERVED} pairs of calls).", ""]
    print(*lines, sep="\n", flush=True)
    lines += [
        "debian-small, from its texts:",
        "",
        "| features | weight | P@1 | P@3 | P@5 |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, values in use(options.debian).items():
        lines.append(f"| {name} | " + " | ".join(f"{value:.2f}" for value in values) + " |")
    if options.out is not None:
        (options.out / "extra.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
