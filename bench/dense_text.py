"""What denser rows cost: training on words, then on words and pairs of words, of the same texts.

    python bench/dense_text.py TRAIN.jsonl[.gz] [--threads 1] [--dismec]

A line has "text" and "labels". Features are TF-IDF of what at least two texts have; --dismec adds DiSMEC on all rows.
CPU seconds of the process, all threads together. Twice the numbers per row should cost about twice the time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import MultiLabelBinarizer

from blockxmc import BlockwiseClassifier
from blockxmc.learners import DiSMEC


def read(path: Path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        rows = [json.loads(line) for line in lines]
    Y = MultiLabelBinarizer(sparse_output=True).fit_transform([row["labels"] for row in rows])
    return [row["text"] for row in rows], sparse.csr_array(Y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dismec", action="store_true")
    args = parser.parse_args()

    texts, Y = read(args.train)
    models = {"default": BlockwiseClassifier(n_jobs=args.threads)}
    if args.dismec:
        models["DiSMEC"] = DiSMEC(C=0.5, prune=0.1, tol=0.05, n_jobs=args.threads)
    seconds: dict[str, list[float]] = {name: [] for name in models}
    density = []
    for longest in (1, 2):
        X = sparse.csr_array(TfidfVectorizer(ngram_range=(1, longest), min_df=2, dtype=np.float32).fit_transform(texts))
        density.append(X.nnz / X.shape[0])
        for name, model in models.items():
            start = time.process_time()
            model.fit(X, Y)
            seconds[name].append(time.process_time() - start)
    print(
        f"numbers per row: {density[0]:.0f} with words, {density[1]:.0f} with pairs, {density[1] / density[0]:.2f} times"
    )
    for name, (words, pairs) in seconds.items():
        print(f"{name}: {words:.2f} CPU s with words, {pairs:.2f} with pairs, {pairs / words:.2f} times")


if __name__ == "__main__":
    main()
