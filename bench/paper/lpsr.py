"""Why LPSR-NB stays below its published figures: naive Bayes scorers, ways to select labels, and better scorers.

    python bench/paper/lpsr.py DATA_DIR... --out docs/results

Rows are taken as the files have them, as others did. Nothing is chosen here: every variant is shown on the test rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from blockxmc import DiSMEC, NaiveBayes, metrics
from blockxmc.baselines import CBMLC, LPSR
from blockxmc.data import read_data_dir
from blockxmc.paper.experiments.published import published

KS = (1, 3, 5)


def bernoulli(train, test, alpha):
    """Scores of a naive Bayes of present and absent features: the log-odds of every label."""
    X, Z, Y = ((part != 0).astype(np.float64).toarray() for part in (train.X, test.X, train.Y))
    with_label, count = Y.T @ X, Y.sum(axis=0)[:, None]
    inside = (with_label + alpha) / (count + 2 * alpha)
    outside = (X.sum(axis=0) - with_label + alpha) / (len(X) - count + 2 * alpha)
    prior = np.log((count + 1) / (len(X) - count + 1))
    absent = np.log1p(-inside) - np.log1p(-outside)
    return Z @ (np.log(inside) - np.log(outside) - absent).T + absent.sum(axis=1) + prior.ravel()


def variants():
    """Name -> how to make an estimator, or the scores of the test rows."""
    for alpha in (1.0, 0.3, 0.1, 0.01):
        yield f"naive Bayes of counts, all labels, alpha {alpha:g}", NaiveBayes(alpha=alpha)
    for alpha in (1.0, 0.1):
        yield f"naive Bayes of presence, all labels, alpha {alpha:g}", alpha
    for q in (4, 16):
        yield f"naive Bayes trained inside {q} clusters", CBMLC(NaiveBayes(), n_blocks=q)
    for q, labels in ((8, 100), (32, 100), (32, 30), (64, 20)):
        for assign in ("frequency", "rank"):
            yield (
                f"LPSR-NB, {q} clusters, {labels} labels by {assign}",
                LPSR(n_blocks=q, n_labels=labels, assign=assign),
            )
    yield "DiSMEC, all labels", DiSMEC()
    yield "LPSR over DiSMEC, 8 clusters, 100 labels by frequency", LPSR(DiSMEC())


def answers(made, train, test):
    """The best five labels of every test row."""
    if isinstance(made, float):
        return np.argsort(-bernoulli(train, test, made), axis=1, kind="stable")[:, : max(KS)]
    return made.fit(train.X, train.Y).predict_topk(test.X, max(KS))[0]


def section(folder):
    """The lines about one data set."""
    train, test = read_data_dir(folder)
    theirs = [published(folder.name, "lpsr/naive-bayes", f"P@{k}") for k in KS]
    lines = [f"## {folder.name}", "", "| scorer | P@1 | P@3 | P@5 |", "|---|---:|---:|---:|"]
    if None not in theirs:
        lines.append("| LPSR-NB, published | " + " | ".join(f"{value:.2f}" for value in theirs) + " |")
    alone = routed = -np.inf
    for name, made in variants():
        labels = answers(made, train, test)
        found = [100 * metrics.precision_at_k(test.Y, labels, k) for k in KS]
        if name.startswith("naive Bayes"):
            alone = max(alone, found[0])
        elif name.startswith("LPSR-NB"):
            routed = max(routed, found[0])
        lines.append(f"| {name} | " + " | ".join(f"{value:.2f}" for value in found) + " |")
        print(folder.name, name, [round(value, 2) for value in found], flush=True)
    told = f"The best P@1 of a naive Bayes of all labels is {alone:.2f}, that of LPSR over one of them {routed:.2f}."
    if theirs[0] is not None:
        told += f" The published figure is {theirs[0]:.2f}: {theirs[0] - max(alone, routed):+.2f} from the better one."
    return [*lines, "", told, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    options = parser.parse_args()
    lines = [
        "# LPSR-NB beside its published figures",
        "",
        "Made by `python bench/paper/lpsr.py`, on rows as the files have them.",
        "",
    ]
    for folder in options.folders:
        lines += section(folder)
    (options.out / "lpsr.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
