"""What extra columns cost beside words, and what they bring.

    python bench/extra.py ELIFE_DIR DEBIAN_DIR [--out docs/results]

Cost on elife-keywords, whose words come as features: 384 dense columns (its rows in 384 directions, turned at random, so
that all columns of a row are filled) beside them, at a weight of 0.5; the choice of the weight is timed with the training.
The classifier with and without columns is trained and asked in turns, in CPU time of one thread
(serving: the median of several calls). Use on debian-small: its
texts with `extra=` their letters in 384 directions, and noise. Writes extra.md.
"""

from __future__ import annotations

import argparse
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
from blockxmc.training.shared.extra import best_extra_weight

WIDTH, WEIGHT, TURNS, SERVED = 384, 0.5, 2, 7


def precision(Y, labels):
    return [100 * metrics.precision_at_k(Y, labels, k) for k in (1, 3, 5)]


def cost(folder):
    """Seconds of training, of the choice, and microseconds per served row, without columns and with them."""
    train, test = read_data_dir(folder)
    words = [sparse.csr_array(normalize(part.X)).astype(np.float32) for part in (train, test)]
    svd = TruncatedSVD(WIDTH, random_state=0, n_iter=2).fit(words[0])
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, WIDTH)))[0]
    columns = [np.asarray(normalize(svd.transform(part)) @ turned, np.float32) for part in words]
    both = [beside(part, large_values(extra * np.float32(WEIGHT))) for part, extra in zip(words, columns, strict=True)]
    seconds = {"words": [], "words and columns": [], "choice of the weight": []}
    served, found = {"words": [], "words and columns": []}, {}
    for _ in range(TURNS):
        for name, (X, new) in {"words": words, "words and columns": both}.items():
            start = time.process_time()
            clf = BlockwiseClassifier(n_jobs=1).fit(X, train.Y)
            seconds[name].append(time.process_time() - start)
            for _ in range(SERVED):
                start = time.process_time()
                labels, _ = clf.predict_topk(new, 5)
                served[name].append(1e6 * (time.process_time() - start) / new.shape[0])
            found[name] = precision(test.Y, labels)
        start = time.process_time()
        chosen = best_extra_weight(words[0], columns[0], train.Y)
        seconds["choice of the weight"].append(time.process_time() - start)
    print(
        "chosen on elife-keywords:", chosen, {name: np.round(values, 1) for name, values in seconds.items()}, flush=True
    )
    trained = {name: float(np.mean(values)) for name, values in seconds.items()}
    served = {name: float(np.median(values)) for name, values in served.items()}
    longer = (trained["words and columns"] + trained["choice of the weight"]) / trained["words"]
    slower = served["words and columns"] / served["words"]
    return trained, served, found, longer, slower, chosen


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
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    trained, served, found, longer, slower, chosen = cost(options.elife)
    lines = ["# Extra columns", "", "`bench/extra.py`, CPU time of one thread on a loaded machine.", ""]
    lines += [
        f"elife-keywords, {WIDTH} columns beside words, at a weight of {WEIGHT} (the trial chooses {chosen}):",
        "",
    ]
    lines += ["| | training, s | serving, µs per row | P@1 | P@3 | P@5 |", "|---|---:|---:|---:|---:|---:|"]
    for name, values in found.items():
        numbers = " | ".join(f"{value:.2f}" for value in values)
        lines.append(f"| {name} | {trained[name]:.1f} | {served[name]:.0f} | {numbers} |")
    lines += ["", f"The choice of the weight takes {trained['choice of the weight']:.1f} s. With it, training takes"]
    lines += [f"{longer:.2f} times as long as without columns, serving {slower:.2f} times.", ""]
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
